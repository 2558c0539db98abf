/* SPDX-License-Identifier: Apache-2.0 */
/* The upgraded form of a run: a scripted daemon on one side, pipes and files as standard streams on the
 * other. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "host-ctl/cli/cmd_stream.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* A prepared stream: the daemon's end is in `daemon`, what was put out is read from out[0] and err[0]. */
struct fixture {
	struct client client;
	struct cmd_stream stream;
	struct client_error error;
	int daemon, out[2], err[2];
};

static void fixture_init(struct fixture *fixture, int input)
{
	int pair[2];

	memset(fixture, 0, sizeof(*fixture));
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	assert_int_equal(pipe2(fixture->out, O_CLOEXEC), 0);
	assert_int_equal(pipe2(fixture->err, O_CLOEXEC), 0);
	client_init(&fixture->client, pair[0], -1);
	fixture->daemon = pair[1];
	assert_int_equal(
		cmd_stream_init(&fixture->stream, &fixture->client, input, fixture->out[1], fixture->err[1]),
		0);
}

static void fixture_finish(struct fixture *fixture)
{
	cmd_stream_finish(&fixture->stream);
	client_finish(&fixture->client);
	fd_close(&fixture->daemon);
	fd_close(&fixture->out[0]);
	fd_close(&fixture->out[1]);
	fd_close(&fixture->err[0]);
	fd_close(&fixture->err[1]);
}

static int run(struct fixture *fixture)
{
	return cmd_stream_run(&fixture->stream, &fixture->error);
}

/* ---- what the daemon says ---- */

static void say(int fd, uint8_t type, const void *head, size_t head_length, const char *text)
{
	assert_int_equal(frame_write(fd, type, head, head_length, text, text ? strlen(text) : 0), 0);
}

static void say_output(int fd, uint8_t type, uint64_t offset, const char *text)
{
	struct agent_output output = {.offset = offset};

	say(fd, type, &output, sizeof(output), text);
}

static void say_exit(int fd, int code, uint64_t stdout_bytes, uint64_t stderr_bytes)
{
	struct agent_exit exit = {
		.kind = AGENT_EXITED,
		.code = code,
		.stdout_bytes = stdout_bytes,
		.stderr_bytes = stderr_bytes,
	};

	say(fd, AGENT_EXIT, &exit, sizeof(exit), NULL);
}

static void say_credit(int fd, uint32_t bytes)
{
	struct agent_credit credit = {.bytes = bytes};

	say(fd, AGENT_STDIN_CREDIT, &credit, sizeof(credit), NULL);
}

/* The pipe's content so far must be exactly the text. */
static void assert_content(int fd, const char *text)
{
	char got[256] = "";
	ssize_t n;

	assert_int_equal(fd_set_nonblock(fd), 0);
	n = read(fd, got, sizeof(got) - 1);
	assert_string_equal(n > 0 ? got : "", text);
}

/* ---- output ---- */

static void output_and_exit_come_through(void **state)
{
	(void)state;
	struct agent_started started = {.session = 1, .pid = 7};
	struct fixture fixture;

	fixture_init(&fixture, -1);
	say(fixture.daemon, AGENT_STARTED, &started, sizeof(started), NULL);
	say_output(fixture.daemon, AGENT_STDOUT, 0, "one ");
	say_output(fixture.daemon, AGENT_STDERR, 0, "oops");
	say_output(fixture.daemon, AGENT_STDOUT, 4, "two");
	say_output(fixture.daemon, AGENT_STDOUT, 7, "");
	say_exit(fixture.daemon, 3, 7, 4);
	assert_int_equal(run(&fixture), 0);
	assert_int_equal(fixture.stream.result.kind, AGENT_EXITED);
	assert_int_equal(fixture.stream.result.code, 3);
	assert_content(fixture.out[0], "one two");
	assert_content(fixture.err[0], "oops");
	fixture_finish(&fixture);
}

static void frames_that_came_with_the_101_are_read_first(void **state)
{
	(void)state;
	struct agent_exit exit = {.kind = AGENT_SIGNALLED, .code = 9};
	struct agent_frame_header header = {.length = sizeof(exit), .type = AGENT_EXIT};
	struct cmd_stream stream;
	struct client_error error;
	struct client client;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	client_init(&client, pair[0], -1);
	/* All but the last byte with the 101, the last one later. */
	memcpy(client.buffer + 100, &header, sizeof(header));
	memcpy(client.buffer + 100 + sizeof(header), &exit, sizeof(exit));
	client.start = 100;
	client.end = 100 + sizeof(header) + sizeof(exit) - 1;
	assert_int_equal(send(pair[1], (uint8_t *)&exit + sizeof(exit) - 1, 1, 0), 1);
	assert_int_equal(cmd_stream_init(&stream, &client, -1, -1, -1), 0);
	assert_int_equal(cmd_stream_run(&stream, &error), 0);
	assert_int_equal(cmd_result_status(&stream.result), 137);
	cmd_stream_finish(&stream);
	client_finish(&client);
	close(pair[1]);
}

/* ---- a daemon that breaks the protocol ---- */

static void bad_header(int fd)
{
	struct agent_frame_header header = {.type = AGENT_STDOUT, .flags = 1};

	assert_int_equal(send(fd, &header, sizeof(header), 0), sizeof(header));
}

static void long_header(int fd)
{
	struct agent_frame_header header = {.type = AGENT_STDOUT, .length = AGENT_FRAME_MAX + 1};

	assert_int_equal(send(fd, &header, sizeof(header), 0), sizeof(header));
}

static void half_frame(int fd)
{
	struct agent_frame_header header = {.type = AGENT_EXIT, .length = sizeof(struct agent_exit)};

	assert_int_equal(send(fd, &header, sizeof(header), 0), sizeof(header));
}

static void nothing(int fd)
{
	(void)fd;
}

static void output_gap(int fd)
{
	say_output(fd, AGENT_STDOUT, 0, "abc");
	say_output(fd, AGENT_STDOUT, 4, "e");
}

static void output_again(int fd)
{
	say_output(fd, AGENT_STDERR, 0, "abc");
	say_output(fd, AGENT_STDERR, 2, "c");
}

static void output_without_offset(int fd)
{
	say(fd, AGENT_STDOUT, NULL, 0, "1234567");
}

static void output_missing(int fd)
{
	say_output(fd, AGENT_STDOUT, 0, "abc");
	say_exit(fd, 0, 4, 0);
}

static void client_frame(int fd)
{
	say(fd, AGENT_STDIN, NULL, 0, "x");
}

static void guest_error(int fd)
{
	struct agent_status status = {.status = ENOMEM};

	say(fd, AGENT_ERROR, &status, sizeof(status), NULL);
}

static void short_credit(int fd)
{
	say(fd, AGENT_STDIN_CREDIT, NULL, 0, "1234");
}

static void short_started(int fd)
{
	say(fd, AGENT_STARTED, NULL, 0, "1234");
}

static void short_exit(int fd)
{
	say(fd, AGENT_EXIT, NULL, 0, "1234");
}

static void host_error(int fd)
{
	say(fd, AGENT_HOST_ERROR, NULL, 0,
		"{\"error\":{\"code\":\"guest_lost\",\"message\":\"the VM is gone\",\"retryable\":false,"
		"\"detail\":{\"vm\":\"7\"}}}");
}

static void host_error_garbage(int fd)
{
	say(fd, AGENT_HOST_ERROR, NULL, 0, "{\"error\":");
}

static void bad_streams_are_named(void **state)
{
	(void)state;
	static const struct {
		void (*script)(int fd);
		int result;
		const char *code, *message;
	} cases[] = {
		{nothing, -ECONNRESET, "incomplete", "the daemon closed the stream without a result"},
		{half_frame, -ECONNRESET, "incomplete",
			"the daemon closed the stream without a result, within a frame"},
		{bad_header, -EPROTO, "protocol",
			"the daemon broke the protocol: a frame header that makes no sense"},
		{long_header, -EPROTO, "protocol",
			"the daemon broke the protocol: a frame header that makes no sense"},
		{output_gap, -EPROTO, "protocol",
			"the daemon broke the protocol: output that does not join on to what came before"},
		{output_again, -EPROTO, "protocol",
			"the daemon broke the protocol: output that does not join on to what came before"},
		{output_without_offset, -EPROTO, "protocol",
			"the daemon broke the protocol: output without its offset"},
		{output_missing, -EPROTO, "protocol",
			"the daemon broke the protocol: output is missing before the terminal frame"},
		{client_frame, -EPROTO, "protocol",
			"the daemon broke the protocol: a frame that may not come from it"},
		{guest_error, -EPROTO, "protocol",
			"the daemon broke the protocol: a frame that may not come from it"},
		{short_credit, -EPROTO, "protocol", "the daemon broke the protocol: credit of another size"},
		{short_started, -EPROTO, "protocol",
			"the daemon broke the protocol: a start of another size"},
		{short_exit, -EPROTO, "protocol",
			"the daemon broke the protocol: a terminal frame that makes no sense"},
		{host_error, -EREMOTEIO, "guest_lost", "the VM is gone"},
		{host_error_garbage, -EPROTO, "protocol",
			"the daemon broke the protocol: an error frame without an error object"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fixture fixture;

		fixture_init(&fixture, -1);
		cases[i].script(fixture.daemon);
		assert_int_equal(shutdown(fixture.daemon, SHUT_WR), 0);
		assert_int_equal(run(&fixture), cases[i].result);
		assert_string_equal(fixture.error.message, cases[i].message);
		assert_string_equal(fixture.error.code, cases[i].code);
		fixture_finish(&fixture);
	}
}

/* ---- output that nobody takes ---- */

static void a_reader_that_left_ends_the_run(void **state)
{
	(void)state;
	struct fixture fixture;
	sigset_t pending;

	fixture_init(&fixture, -1);
	fd_close(&fixture.out[0]);
	say_output(fixture.daemon, AGENT_STDOUT, 0, "lost");
	assert_int_equal(run(&fixture), -EPIPE);
	assert_string_equal(fixture.error.message, "cannot write to standard output: Broken pipe");
	/* The signal does not lurk. */
	assert_int_equal(sigpending(&pending), 0);
	assert_false(sigismember(&pending, SIGPIPE));
	fixture_finish(&fixture);
}

static void a_full_disk_ends_the_run(void **state)
{
	(void)state;
	struct fixture fixture;

	fixture_init(&fixture, -1);
	close(fixture.err[1]);
	fixture.err[1] = open("/dev/full", O_WRONLY | O_CLOEXEC);
	assert_true(fixture.err[1] >= 0);
	fixture.stream.error = fixture.err[1];
	say_output(fixture.daemon, AGENT_STDERR, 0, "lost");
	assert_int_equal(run(&fixture), -ENOSPC);
	assert_string_equal(fixture.error.message, "cannot write to standard error: No space left on device");
	fixture_finish(&fixture);
}

static void sockets_serve_as_standard_streams(void **state)
{
	(void)state;
	char got[16] = "";
	struct fixture fixture;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	fixture_init(&fixture, -1);
	fixture.stream.output = pair[0];
	say_output(fixture.daemon, AGENT_STDOUT, 0, "socket");
	say_exit(fixture.daemon, 0, 6, 0);
	assert_int_equal(run(&fixture), 0);
	assert_int_equal(recv(pair[1], got, sizeof(got), MSG_DONTWAIT), 6);
	assert_string_equal(got, "socket");
	fixture_finish(&fixture);

	/* One whose other end is closed is a reader that left. */
	fd_close(&pair[1]);
	fixture_init(&fixture, -1);
	fixture.stream.output = pair[0];
	say_output(fixture.daemon, AGENT_STDOUT, 0, "socket");
	assert_int_equal(run(&fixture), -EPIPE);
	fixture_finish(&fixture);
	fd_close(&pair[0]);
}

/* ---- a daemon that listens ---- */

enum { INPUT_BYTES = 3 * AGENT_STDIN_WINDOW / 2 };

struct listener {
	int fd;
	struct frame_reader reader;
	uint64_t input;	      /* bytes of STDIN */
	uint32_t checksum;    /* their sum */
	uint64_t at_window;   /* bytes that came before any credit was given */
	unsigned int signals; /* SIGNAL frames */
	uint32_t last_signal;
	bool killed, ended;
	void (*on_signal)(struct listener *listener);
};

/* The next frame, waited for. False at the end of the stream. */
static bool next_frame(struct listener *listener, struct frame *frame)
{
	for (;;) {
		int r = frame_reader_next(&listener->reader, frame);

		if (r != 0)
			return r > 0;
		if (frame_reader_fill(&listener->reader, listener->fd) <= 0)
			return false;
	}
}

static void note_input(struct listener *listener, const struct frame *frame)
{
	listener->input += frame->length;
	for (uint32_t i = 0; i < frame->length; i++)
		listener->checksum += frame->payload[i];
}

/* Takes the whole window, sees that no more comes within a while, then gives credit for what it took. */
static void *listen_to_input(void *argument)
{
	struct listener *listener = argument;
	struct timeval while_ = {.tv_usec = 100 * 1000}, forever = {0};
	struct frame frame;

	frame_reader_init(&listener->reader, AGENT_FRAME_MAX);
	setsockopt(listener->fd, SOL_SOCKET, SO_RCVTIMEO, &while_, sizeof(while_));
	while (next_frame(listener, &frame) && frame.type == AGENT_STDIN)
		note_input(listener, &frame);
	listener->at_window = listener->input;
	setsockopt(listener->fd, SOL_SOCKET, SO_RCVTIMEO, &forever, sizeof(forever));
	say_credit(listener->fd, AGENT_STDIN_WINDOW);
	while (next_frame(listener, &frame) && frame.type == AGENT_STDIN)
		note_input(listener, &frame);
	listener->ended = frame.type == AGENT_STDIN_EOF;
	say_exit(listener->fd, 0, 0, 0);
	frame_reader_finish(&listener->reader);
	return NULL;
}

static int input_file(uint32_t *checksum)
{
	uint8_t *bytes = malloc(INPUT_BYTES);
	int fd = memfd_create("input", MFD_CLOEXEC);

	assert_non_null(bytes);
	*checksum = 0;
	for (size_t i = 0; i < INPUT_BYTES; i++)
		*checksum += bytes[i] = (uint8_t)(i * 7 + i / 251);
	assert_int_equal(io_write_all(fd, bytes, INPUT_BYTES), 0);
	assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
	free(bytes);
	return fd;
}

static void input_keeps_to_its_window(void **state)
{
	(void)state;
	struct listener listener = {0};
	uint32_t checksum;
	struct fixture fixture;
	pthread_t thread;
	int input = input_file(&checksum);

	fixture_init(&fixture, input);
	listener.fd = fixture.daemon;
	assert_int_equal(pthread_create(&thread, NULL, listen_to_input, &listener), 0);
	assert_int_equal(run(&fixture), 0);
	pthread_join(thread, NULL);
	assert_int_equal(listener.at_window, AGENT_STDIN_WINDOW);
	assert_int_equal(listener.input, INPUT_BYTES);
	assert_int_equal(listener.checksum, checksum);
	assert_true(listener.ended);
	fixture_finish(&fixture);
	close(input);
}

static void input_that_cannot_be_read_is_named(void **state)
{
	(void)state;
	int input = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct fixture fixture;

	fixture_init(&fixture, input);
	assert_int_equal(run(&fixture), -EISDIR);
	assert_string_equal(fixture.error.message, "cannot read standard input: Is a directory");
	fixture_finish(&fixture);
	close(input);
}

/* ---- signals ---- */

/* Counts what comes and ends the run when the script's last step is taken. */
static void *listen_to_signals(void *argument)
{
	struct listener *listener = argument;
	struct agent_signal signal;
	struct frame frame;

	frame_reader_init(&listener->reader, AGENT_FRAME_MAX);
	while (next_frame(listener, &frame)) {
		if (frame.type == AGENT_SIGNAL) {
			memcpy(&signal, frame.payload, sizeof(signal));
			listener->last_signal = signal.signal;
			listener->signals++;
		}
		listener->killed = listener->killed || frame.type == AGENT_KILL;
		listener->on_signal(listener);
	}
	frame_reader_finish(&listener->reader);
	return NULL;
}

static void exit_at_once(struct listener *listener)
{
	say_exit(listener->fd, 42, 0, 0);
}

static void interrupt_again(struct listener *listener)
{
	(void)listener;
	kill(getpid(), SIGINT);
}

static void exit_when_killed(struct listener *listener)
{
	struct agent_exit exit = {.kind = AGENT_KILLED};

	if (listener->killed)
		say(listener->fd, AGENT_EXIT, &exit, sizeof(exit), NULL);
	else
		kill(getpid(), SIGINT);
}

static int run_with_signal(struct fixture *fixture, struct listener *listener, int signal)
{
	pthread_t thread;
	int r;

	fixture_init(fixture, -1);
	listener->fd = fixture->daemon;
	assert_int_equal(pthread_create(&thread, NULL, listen_to_signals, listener), 0);
	kill(getpid(), signal);
	r = run(fixture);
	client_finish(&fixture->client);
	pthread_join(thread, NULL);
	return r;
}

static void signals_are_passed_on(void **state)
{
	(void)state;
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
		struct listener listener = {.on_signal = exit_at_once};
		struct fixture fixture;

		assert_int_equal(run_with_signal(&fixture, &listener, signals[i]), 0);
		assert_int_equal(listener.signals, 1);
		assert_int_equal(listener.last_signal, signals[i]);
		assert_int_equal(cmd_result_status(&fixture.stream.result), 42);
		fixture_finish(&fixture);
	}
}

static void the_second_interrupt_kills(void **state)
{
	(void)state;
	struct listener listener = {.on_signal = exit_when_killed};
	struct fixture fixture;

	assert_int_equal(run_with_signal(&fixture, &listener, SIGINT), 0);
	assert_int_equal(listener.signals, 1);
	assert_true(listener.killed);
	assert_int_equal(cmd_result_status(&fixture.stream.result), 137);
	fixture_finish(&fixture);
}

static void the_third_interrupt_leaves(void **state)
{
	(void)state;
	struct listener listener = {.on_signal = interrupt_again};
	struct fixture fixture;

	assert_int_equal(run_with_signal(&fixture, &listener, SIGINT), -EINTR);
	assert_true(listener.killed);
	assert_string_equal(fixture.error.message, "interrupted; the command's VM is destroyed");
	fixture_finish(&fixture);
}

static void ignored_signals_stay_ignored(void **state)
{
	(void)state;
	struct fixture fixture;
	sigset_t blocked;

	signal(SIGHUP, SIG_IGN);
	fixture_init(&fixture, -1);
	assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &blocked), 0);
	assert_false(sigismember(&blocked, SIGHUP));
	assert_true(sigismember(&blocked, SIGTERM));
	fixture_finish(&fixture);
	assert_int_equal(sigprocmask(SIG_SETMASK, NULL, &blocked), 0);
	assert_false(sigismember(&blocked, SIGTERM));
	signal(SIGHUP, SIG_DFL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(output_and_exit_come_through),
		cmocka_unit_test(frames_that_came_with_the_101_are_read_first),
		cmocka_unit_test(bad_streams_are_named),
		cmocka_unit_test(a_reader_that_left_ends_the_run),
		cmocka_unit_test(a_full_disk_ends_the_run),
		cmocka_unit_test(sockets_serve_as_standard_streams),
		cmocka_unit_test(input_keeps_to_its_window),
		cmocka_unit_test(input_that_cannot_be_read_is_named),
		cmocka_unit_test(signals_are_passed_on),
		cmocka_unit_test(the_second_interrupt_kills),
		cmocka_unit_test(the_third_interrupt_leaves),
		cmocka_unit_test(ignored_signals_stay_ignored),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
