/* SPDX-License-Identifier: Apache-2.0 */
/* The protocol itself: first frames, control, and what a peer gets that breaks a rule. */
#include "guest_fixture.h"
#include <netinet/in.h>

static void send_control(struct fixture *f, struct client *client, uint32_t version, uint32_t reserved)
{
	struct agent_control control = {.version = version, .reserved = reserved};

	client_send(f, client, AGENT_CONTROL, &control, sizeof(control));
}

static void open_control(struct fixture *f, struct client *client)
{
	struct frame frame;

	client_open(f, client);
	send_control(f, client, AGENT_PROTO_VERSION, 0);
	client_expect(f, client, AGENT_HELLO, &frame);
}

static void open_session(struct fixture *f, struct client *client, uint32_t flags)
{
	struct command command = {.argv = ARGV("/bin/sleep", "1000"), .flags = flags};
	struct frame frame;

	client_open(f, client);
	client_new(f, client, &command);
	client_expect(f, client, AGENT_STARTED, &frame);
}

static void hello_says_what_it_is(void **state)
{
	struct fixture *f = *state;
	struct agent_hello hello, again;
	struct client client;
	struct frame frame;

	warnings_add(&f->warnings, "something is missing");
	client_open(f, &client);
	send_control(f, &client, AGENT_PROTO_VERSION, 0);
	client_expect(f, &client, AGENT_HELLO, &frame);
	memcpy(&hello, frame.payload, sizeof(hello));
	assert_int_equal(hello.version, AGENT_PROTO_VERSION);
	assert_true(hello.boot_ns > 0);
	assert_int_equal(hello.warnings_length, f->warnings.length);
	assert_int_equal(frame.length, sizeof(hello) + f->warnings.length);
	assert_memory_equal(frame.payload + sizeof(hello), f->warnings.text, f->warnings.length);
	assert_memory_equal(frame.payload + frame.length - 21, "something is missing\n", 21);
	/* Asked again, it says the same. */
	send_control(f, &client, AGENT_PROTO_VERSION, 0);
	client_expect(f, &client, AGENT_HELLO, &frame);
	memcpy(&again, frame.payload, sizeof(again));
	assert_memory_equal(again.boot_id, hello.boot_id, sizeof(hello.boot_id));
	client_close(&client);
}

static void another_version_is_refused(void **state)
{
	struct fixture *f = *state;
	struct client client;

	client_open(f, &client);
	send_control(f, &client, AGENT_PROTO_VERSION + 1, 0);
	client_expect_error(f, &client, EPROTONOSUPPORT, "CONTROL: this guest speaks version 2");
	client_close(&client);
}

static void nothing_runs_before_identity(void **state)
{
	struct fixture *f = *state;
	struct command command = {.argv = ARGV("/bin/true")};
	struct agent_identity identity = {.machine_id = {1}, .hostname = "a"};
	struct agent_status status;
	struct outcome outcome;
	struct client client, control;
	struct frame frame;

	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect_error(f, &client, EPERM, "NEW: this guest has no identity yet (IDENTITY comes first)");
	client_close(&client);
	/* One that fails half-way is none. */
	f->identity.fail_at = 2;
	open_control(f, &control);
	client_send(f, &control, AGENT_IDENTITY, &identity, sizeof(identity));
	client_expect(f, &control, AGENT_IDENTITY_DONE, &frame);
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, EROFS);
	client_open(f, &client);
	client_new(f, &client, &command);
	client_expect_error(f, &client, EPERM, "NEW: this guest has no identity yet (IDENTITY comes first)");
	client_close(&client);
	f->identity = (struct fake_identity){0};
	client_send(f, &control, AGENT_IDENTITY, &identity, sizeof(identity));
	client_expect(f, &control, AGENT_IDENTITY_DONE, &frame);
	run_command(f, &command, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	client_close(&control);
}

static void identity_is_applied_in_order(void **state)
{
	static const char *const steps[] = {"", "entropy", "clock", "machine id", "host name", "boot id"};
	struct fixture *f = *state;
	struct agent_identity identity = {.realtime_ns = 1234567890123456789, .hostname = "Box-7.example"};
	struct agent_status status;
	struct client client;
	struct frame frame;

	memset(identity.entropy, 0xa5, sizeof(identity.entropy));
	memset(identity.machine_id, 0x5a, sizeof(identity.machine_id));
	open_control(f, &client);
	for (int i = 0; i < 6; i++) {
		f->identity = (struct fake_identity){.fail_at = i};
		client_send(f, &client, AGENT_IDENTITY, &identity, sizeof(identity));
		client_expect(f, &client, AGENT_IDENTITY_DONE, &frame);
		memcpy(&status, frame.payload, sizeof(status));
		assert_int_equal(status.status, i == 0 ? 0 : EROFS);
		assert_int_equal(status.text_length, strlen(steps[i]));
		assert_int_equal(frame.length, sizeof(status) + status.text_length);
		assert_memory_equal(frame.payload + sizeof(status), steps[i], status.text_length);
		assert_int_equal(f->identity.calls, i == 0 ? 5 : i);
		assert_memory_equal(f->identity.order, "ecmhb", f->identity.calls);
		if (i == 0)
			assert_memory_equal(&f->identity.got, &identity, sizeof(identity));
	}
	client_close(&client);
}

static void host_names_are_checked_first(void **state)
{
	struct fixture *f = *state;
	static const char *const bad[] = {"", "a b", "a_b", "a/b", "\xc3\xa4"};
	struct agent_identity identity = {0};
	struct client client;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]) + 1; i++) {
		memset(identity.hostname, i == 0 ? 'x' : 0, sizeof(identity.hostname));
		if (i > 0)
			strcpy(identity.hostname, bad[i - 1]);
		open_control(f, &client);
		client_send(f, &client, AGENT_IDENTITY, &identity, sizeof(identity));
		client_expect_error(f, &client, EPROTO, "IDENTITY: the host name is not one");
		client_close(&client);
		assert_int_equal(f->identity.calls, 0);
	}
}

static void shutdown_is_handed_on(void **state)
{
	struct fixture *f = *state;
	struct agent_shutdown shutdown = {.grace_ms = 1500};
	static const char why[] = "SHUTDOWN: the grace is too long, or reserved is not zero";
	uint64_t end = test_now_ms() + WAIT_MS;
	struct client client;

	open_control(f, &client);
	client_send(f, &client, AGENT_SHUTDOWN, &shutdown, sizeof(shutdown));
	while (f->shutdowns == 0 && test_now_ms() < end)
		loop_turn(f->loop, TURN_MS);
	assert_int_equal(f->shutdowns, 1);
	assert_int_equal(f->grace_ms, 1500);
	shutdown.grace_ms = AGENT_SHUTDOWN_GRACE_MAX_MS + 1;
	client_send(f, &client, AGENT_SHUTDOWN, &shutdown, sizeof(shutdown));
	client_expect_error(f, &client, EPROTO, why);
	client_close(&client);
	assert_int_equal(f->shutdowns, 1);
}

/* ---- malformed frames ---- */

enum where { FRESH, CONTROL, SESSION, SESSION_WITH_STDIN };

static void open_where(struct fixture *f, struct client *client, enum where where)
{
	if (where == FRESH)
		client_open(f, client);
	else if (where == CONTROL)
		open_control(f, client);
	else
		open_session(f, client, where == SESSION ? 0 : AGENT_NEW_STDIN);
}

static void close_where(struct fixture *f, struct client *client, enum where where)
{
	struct outcome outcome = {0};

	client_close(client);
	if (where < SESSION)
		return;
	/* The session was not touched by what its stream did wrong: it can be attached to, and ended. */
	client_open(f, client);
	client_send(
		f, client, AGENT_ATTACH, &(struct agent_attach){.session = 1}, sizeof(struct agent_attach));
	client_send(f, client, AGENT_KILL, NULL, 0);
	client_finish(f, client, &outcome);
	assert_true(outcome.started);
	assert_int_equal(outcome.exit.kind, AGENT_KILLED);
}

static void header(uint8_t *at, uint32_t length, uint8_t type, uint8_t flags, uint16_t reserved)
{
	const struct agent_frame_header bytes = {length, type, flags, reserved};

	memcpy(at, &bytes, sizeof(bytes));
}

static void broken_headers_are_refused(void **state)
{
	struct fixture *f = *state;
	static const struct {
		uint32_t length;
		uint8_t type, flags;
		uint16_t reserved;
		const char *why;
	} cases[] = {
		{8, AGENT_CONTROL, 1, 0, "a frame's header is not valid"},
		{8, AGENT_CONTROL, 0, 1, "a frame's header is not valid"},
		{8, AGENT_CONTROL, 0, 0x8000, "a frame's header is not valid"},
		{AGENT_FRAME_MAX + 1, AGENT_NEW, 0, 0, "a frame's header is not valid"},
		{UINT32_MAX, AGENT_NEW, 0, 0, "a frame's header is not valid"},
		{0, 0x00, 0, 0, "a frame of unknown type"},
		{0, 0x7f, 0, 0, "a frame of unknown type"},
		{0, 0xff, 0, 0, "a frame of unknown type"},
		{0, AGENT_HELLO, 0, 0, "a frame of unknown type"},
		{0, AGENT_EXIT, 0, 0, "a frame of unknown type"},
	};
	struct client client;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint8_t bytes[AGENT_FRAME_HEADER];

		header(bytes, cases[i].length, cases[i].type, cases[i].flags, cases[i].reserved);
		client_open(f, &client);
		client_send_raw(f, &client, bytes, sizeof(bytes));
		client_expect_error(f, &client, EPROTO, cases[i].why);
		client_close(&client);
	}
}

static void frames_out_of_order_are_refused(void **state)
{
	static const char order[] = "this frame is out of order on this stream";
	struct fixture *f = *state;
	/* Every type of frame where it may not come. */
	static const struct {
		uint8_t type, where[3];
		int count;
	} cases[] = {
		{AGENT_CONTROL, {SESSION}, 1},
		{AGENT_NEW, {CONTROL, SESSION}, 2},
		{AGENT_ATTACH, {CONTROL, SESSION}, 2},
		{AGENT_IDENTITY, {FRESH, SESSION}, 2},
		{AGENT_SHUTDOWN, {FRESH, SESSION}, 2},
		{AGENT_STDIN, {FRESH, CONTROL}, 2},
		{AGENT_STDIN_EOF, {FRESH, CONTROL}, 2},
		{AGENT_SIGNAL, {FRESH, CONTROL}, 2},
		{AGENT_RESIZE, {FRESH, CONTROL}, 2},
		{AGENT_KILL, {FRESH, CONTROL}, 2},
	};
	struct client client;

	give_identity(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int j = 0; j < cases[i].count; j++) {
			open_where(f, &client, cases[i].where[j]);
			client_send(f, &client, cases[i].type, NULL, 0);
			client_expect_error(f, &client, EPROTO, order);
			close_where(f, &client, cases[i].where[j]);
			if (cases[i].where[j] >= SESSION) {
				teardown(state);
				setup(state);
				f = *state;
				give_identity(f);
			}
		}
	}
}

static void wrong_lengths_and_values_are_refused(void **state)
{
	static const char length[] = "this frame has a wrong length";
	static const char stdin_why[] = "STDIN: this session has no stdin, or it was ended";
	static const char eof_why[] = "STDIN_EOF: this session has no stdin, or it was ended";
	static const char signal_why[] = "SIGNAL: not 1..64, or reserved is not zero";
	static const uint32_t signal_0[2] = {0, 0}, signal_65[2] = {65, 0}, signal_reserved[2] = {1, 1};
	static const uint32_t control_reserved[2] = {AGENT_PROTO_VERSION, 1};
	static const uint32_t shutdown_reserved[2] = {1, 1};
	static uint8_t zeros[AGENT_DATA_MAX + 1];
	const struct {
		enum where where;
		uint8_t type;
		const void *payload;
		size_t length;
		const char *why;
	} cases[] = {
		{FRESH, AGENT_CONTROL, zeros, 7, length},
		{FRESH, AGENT_CONTROL, zeros, 9, length},
		{FRESH, AGENT_CONTROL, control_reserved, 8, "CONTROL: reserved is not zero"},
		{FRESH, AGENT_ATTACH, zeros, 23, length},
		{FRESH, AGENT_ATTACH, zeros, 25, length},
		{CONTROL, AGENT_IDENTITY, zeros, 151, length},
		{CONTROL, AGENT_IDENTITY, zeros, 153, length},
		{CONTROL, AGENT_SHUTDOWN, zeros, 0, length},
		{CONTROL, AGENT_SHUTDOWN, shutdown_reserved, 8,
			"SHUTDOWN: the grace is too long, or reserved is not zero"},
		{SESSION, AGENT_STDIN, zeros, 1, stdin_why},
		{SESSION, AGENT_STDIN_EOF, NULL, 0, eof_why},
		{SESSION_WITH_STDIN, AGENT_STDIN, zeros, AGENT_DATA_MAX + 1, length},
		{SESSION_WITH_STDIN, AGENT_STDIN_EOF, zeros, 1, length},
		{SESSION, AGENT_SIGNAL, zeros, 4, length},
		{SESSION, AGENT_SIGNAL, signal_0, 8, signal_why},
		{SESSION, AGENT_SIGNAL, signal_65, 8, signal_why},
		{SESSION, AGENT_SIGNAL, signal_reserved, 8, signal_why},
		{SESSION, AGENT_RESIZE, zeros, 7, length},
		{SESSION, AGENT_RESIZE, zeros, 8, "RESIZE: this session has no tty"},
		{SESSION, AGENT_RESIZE, signal_reserved, 8, "RESIZE: reserved is not zero"},
		{SESSION, AGENT_KILL, zeros, 1, length},
	};
	struct fixture *f;
	struct client client;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		f = *state;
		give_identity(f);
		open_where(f, &client, cases[i].where);
		client_send(f, &client, cases[i].type, cases[i].payload, cases[i].length);
		client_expect_error(f, &client, EPROTO, cases[i].why);
		close_where(f, &client, cases[i].where);
		if (cases[i].where >= SESSION) {
			teardown(state);
			setup(state);
		}
	}
}

static void more_stdin_than_the_window_is_refused(void **state)
{
	static uint8_t zeros[AGENT_DATA_MAX];
	struct fixture *f = *state;
	struct agent_status status = {0};
	struct client client;
	struct frame frame;

	give_identity(f);
	/* sleep reads nothing, so after what its pipe takes no more credit comes. */
	open_session(f, &client, AGENT_NEW_STDIN);
	for (int i = 0; i < 10; i++)
		client_send(f, &client, AGENT_STDIN, zeros, sizeof(zeros));
	do
		assert_int_equal(client_next(f, &client, &frame), 1);
	while (frame.type == AGENT_STDIN_CREDIT);
	assert_int_equal(frame.type, AGENT_ERROR);
	memcpy(&status, frame.payload, sizeof(status));
	assert_int_equal(status.status, EPROTO);
	assert_memory_equal(frame.payload + sizeof(status), "STDIN: more than the window", 27);
	client_expect_end(f, &client);
	close_where(f, &client, SESSION);
}

static void stdin_after_its_end_is_refused(void **state)
{
	struct fixture *f = *state;
	struct client client;

	give_identity(f);
	open_session(f, &client, AGENT_NEW_STDIN);
	client_send(f, &client, AGENT_STDIN_EOF, NULL, 0);
	client_send(f, &client, AGENT_STDIN, "x", 1);
	client_expect_error(f, &client, EPROTO, "STDIN: this session has no stdin, or it was ended");
	close_where(f, &client, SESSION);
}

/* The bounds of NEW; its form is tested with common/frame. */
static void new_is_checked(void **state)
{
	struct fixture *f = *state;
	static char payload[AGENT_FRAME_MAX];
	static const struct {
		size_t field, size;
		uint64_t value;
		int error;
		const char *why;
	} cases[] = {
		{offsetof(struct agent_new, session), 8, 0, EPROTO, "NEW: the session's id is zero"},
		{offsetof(struct agent_new, flags), 4, 1 << 3, EPROTO, "NEW: unknown flags"},
		{offsetof(struct agent_new, argc), 4, 0, EINVAL, "argv is empty"},
		{offsetof(struct agent_new, argc), 4, AGENT_ARGC_MAX + 1, E2BIG,
			"argv has more than AGENT_ARGC_MAX entries"},
		{offsetof(struct agent_new, envc), 4, AGENT_ENVC_MAX + 1, E2BIG,
			"env has more than AGENT_ENVC_MAX entries"},
		{offsetof(struct agent_new, envc), 4, 3, EPROTO,
			"NEW: the strings are not argc + envc + 2 in number"},
		{offsetof(struct agent_new, strings_length), 4, 5, EPROTO,
			"NEW: the strings' length is not that of the frame"},
	};
	struct command command = {.argv = ARGV("/bin/true")};
	struct client client;

	give_identity(f);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t length = make_new(&command, payload);

		memcpy(payload + cases[i].field, &cases[i].value, cases[i].size);
		client_open(f, &client);
		client_send(f, &client, AGENT_NEW, payload, length);
		client_expect_error(f, &client, cases[i].error, cases[i].why);
		client_close(&client);
	}
	client_open(f, &client);
	client_send(f, &client, AGENT_NEW, payload, 3);
	client_expect_error(f, &client, EPROTO, "NEW: the frame is shorter than its struct");
	client_close(&client);
	command.argv = ARGV("", "x");
	client_open(f, &client);
	client_send(f, &client, AGENT_NEW, payload, make_new(&command, payload));
	client_expect_error(f, &client, EINVAL, "argv[0] is empty");
	client_close(&client);
}

static void a_new_of_the_largest_size_runs(void **state)
{
	struct fixture *f = *state;
	static char payload[AGENT_FRAME_MAX], big[AGENT_STRINGS_MAX];
	struct command command = {.argv = ARGV("/bin/sh", "-c", "echo ${#0}", big)};
	struct outcome outcome = {0};
	struct agent_new new;
	struct client client;
	char expected[32];
	size_t length;

	give_identity(f);
	length = make_new(&command, payload) - sizeof(new);
	memset(big, 'x', AGENT_STRINGS_MAX - length);
	length = make_new(&command, payload);
	memcpy(&new, payload, sizeof(new));
	assert_int_equal(new.strings_length, AGENT_STRINGS_MAX);
	client_open(f, &client);
	client_send(f, &client, AGENT_NEW, payload, length);
	client_finish(f, &client, &outcome);
	assert_int_equal(outcome.exit.kind, AGENT_EXITED);
	snprintf(expected, sizeof(expected), "%zu\n", strlen(big));
	assert_string_equal(outcome.out, expected);
	strcat(big, "x");
	client_open(f, &client);
	client_send(f, &client, AGENT_NEW, payload, make_new(&command, payload));
	client_expect_error(
		f, &client, E2BIG, "argv, env, cwd and user together are longer than AGENT_STRINGS_MAX");
	client_close(&client);
}

/* A stream that ends anywhere in a frame, and one that brings it byte by byte. */
static void half_frames_do_no_harm(void **state)
{
	struct fixture *f = *state;
	static uint8_t bytes[AGENT_FRAME_MAX];
	struct command command = {.argv = ARGV("/bin/echo", "x")};
	struct outcome outcome = {0};
	struct client client;
	size_t length;

	give_identity(f);
	length = make_new(&command, (char *)bytes + AGENT_FRAME_HEADER);
	header(bytes, (uint32_t)length, AGENT_NEW, 0, 0);
	length += AGENT_FRAME_HEADER;
	for (size_t i = 0; i < length; i++) {
		client_open(f, &client);
		client_send_raw(f, &client, bytes, i);
		loop_turn(f->loop, TURN_MS);
		client_close(&client);
		loop_turn(f->loop, TURN_MS);
	}
	client_open(f, &client);
	for (size_t i = 0; i < length; i++) {
		client_send_raw(f, &client, bytes + i, 1);
		loop_turn(f->loop, TURN_MS);
	}
	client_finish(f, &client, &outcome);
	assert_string_equal(outcome.out, "x\n");
}

static void one_stream_too_many_is_told(void **state)
{
	struct fixture *f = *state;
	static struct client clients[AGENT_STREAMS_MAX];
	struct client other;
	struct frame frame;

	for (int i = 0; i < AGENT_STREAMS_MAX; i++)
		open_control(f, &clients[i]);
	client_open(f, &other);
	client_expect_error(f, &other, EAGAIN, "too many streams");
	client_close(&other);
	/* The others work on, and one that leaves makes room. */
	send_control(f, &clients[0], AGENT_PROTO_VERSION, 0);
	client_expect(f, &clients[0], AGENT_HELLO, &frame);
	client_close(&clients[1]);
	open_control(f, &clients[1]);
	for (int i = 0; i < AGENT_STREAMS_MAX; i++)
		client_close(&clients[i]);
}

/* ---- the stream that the guest opens ---- */

static void it_says_hello_unasked(void **state)
{
	struct fixture *f = *state;
	struct agent_identity identity = {.machine_id = {1}, .hostname = "a"};
	struct client client;
	struct frame frame;
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
	assert_int_equal(agent_add_outgoing(f->agent, fds[0]), 0);
	client.fd = fds[1];
	assert_int_equal(frame_reader_init(&client.reader, AGENT_FRAME_MAX), 0);
	client_expect(f, &client, AGENT_HELLO, &frame);
	client_send(f, &client, AGENT_IDENTITY, &identity, sizeof(identity));
	client_expect(f, &client, AGENT_IDENTITY_DONE, &frame);
	client_close(&client);
}

static void a_host_that_is_not_there_does_no_harm(void **state)
{
	struct fixture *f = *state;
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), out;
	socklen_t length = sizeof(address);
	size_t before = f->warnings.length;
	uint64_t end = test_now_ms() + WAIT_MS;
	struct client client;

	/* A port that is bound and not listened on refuses. */
	assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
	out = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(connect(out, (struct sockaddr *)&address, length), -1);
	assert_int_equal(errno, EINPROGRESS);
	assert_int_equal(agent_add_outgoing(f->agent, out), 0);
	/* Its fd is closed when that is known. */
	while (fcntl(out, F_GETFD) >= 0 && test_now_ms() < end)
		loop_turn(f->loop, TURN_MS);
	assert_int_equal(fcntl(out, F_GETFD), -1);
	close(fd);
	/* Nothing is missing in the guest. */
	assert_int_equal(f->warnings.length, before);
	/* It serves on. */
	open_control(f, &client);
	client_close(&client);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(hello_says_what_it_is),
		CASE(another_version_is_refused),
		CASE(nothing_runs_before_identity),
		CASE(identity_is_applied_in_order),
		CASE(host_names_are_checked_first),
		CASE(shutdown_is_handed_on),
		CASE(broken_headers_are_refused),
		CASE(frames_out_of_order_are_refused),
		CASE(wrong_lengths_and_values_are_refused),
		CASE(more_stdin_than_the_window_is_refused),
		CASE(stdin_after_its_end_is_refused),
		CASE(new_is_checked),
		CASE(a_new_of_the_largest_size_runs),
		CASE(half_frames_do_no_harm),
		CASE(one_stream_too_many_is_told),
		CASE(it_says_hello_unasked),
		CASE(a_host_that_is_not_there_does_no_harm),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
