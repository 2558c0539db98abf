/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl control` against a vmm played by the test: what it asks, and what it says of every answer. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/proto_vmm.h"
#include "common/unix_socket.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WAIT_MS = 20 * 1000, WORDS_MAX = 8, TEXT_MAX = 4096, FAILED = CLI_FAILURE };

/* The socket is "s" in a folder of the test's own, which is the current one. */
struct fixture {
	char folder[64];
	int listener, peer;
	pid_t pid;
	int out, err; /* of the verb that runs */
	char said[TEXT_MAX], complained[TEXT_MAX];
};

static int set_up(void **state)
{
	static struct fixture fixture;

	fixture = (struct fixture){.folder = "/tmp/hostctl-control-XXXXXX", .peer = -1};
	assert_non_null(mkdtemp(fixture.folder));
	assert_int_equal(chdir(fixture.folder), 0);
	fixture.listener = unix_listen("s", SOCK_SEQPACKET, 0600, 4);
	assert_true(fixture.listener >= 0);
	*state = &fixture;
	return 0;
}

static int tear_down(void **state)
{
	struct fixture *f = *state;

	fd_close(&f->listener);
	fd_close(&f->peer);
	unlink("s");
	unlink("file");
	unlink("stream");
	assert_int_equal(chdir("/"), 0);
	return rmdir(f->folder);
}

/* Starts the verb with these words, in a process of its own. */
static void start(struct fixture *f, const char *const *words)
{
	char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "control"};
	int argc = 1;

	for (; words[argc - 1]; argc++)
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
	f->out = memfd_create("out", 0);
	f->err = memfd_create("err", 0);
	fflush(NULL);
	f->pid = fork();
	if (f->pid == 0) {
		dup2(f->out, STDOUT_FILENO);
		dup2(f->err, STDERR_FILENO);
		close(f->listener);
		_exit(cmd_control(argc, argv));
	}
}

static void read_text(int fd, char *text)
{
	ssize_t got = pread(fd, text, TEXT_MAX - 1, 0);

	assert_true(got >= 0);
	text[got] = '\0';
	close(fd);
}

/* Its exit status; what it said is in the fixture. */
static int finish(struct fixture *f)
{
	int status = 0;

	fd_close(&f->peer);
	assert_int_equal(waitpid(f->pid, &status, 0), f->pid);
	read_text(f->out, f->said);
	read_text(f->err, f->complained);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void assert_said(struct fixture *f, int status, const char *said, const char *complained)
{
	int got = finish(f);

	assert_string_equal(f->complained, complained);
	assert_string_equal(f->said, said);
	assert_int_equal(got, status);
}

static void await(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};

	assert_int_equal(poll(&pollfd, 1, WAIT_MS), 1);
}

static void accept_peer(struct fixture *f)
{
	await(f->listener);
	f->peer = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(f->peer >= 0);
}

static void send_message(struct fixture *f, const struct vmm_message *message)
{
	assert_int_equal(io_send_fds(f->peer, message, sizeof(*message), NULL, 0), 0);
}

static void send_state(struct fixture *f, enum vmm_state state)
{
	struct vmm_message message = {.type = VMM_EVENT_STATE, .arg0 = state};

	send_message(f, &message);
}

/* The next request, which must be that; the fd that came with it, or -1. */
static int expect_request(struct fixture *f, uint32_t type, uint64_t arg0, struct vmm_message *request)
{
	int fd = -1;
	size_t count = 1;

	await(f->peer);
	assert_int_equal(io_receive_fds(f->peer, request, sizeof(*request), &fd, &count), sizeof(*request));
	assert_int_equal(request->type, type);
	assert_true(request->arg0 == arg0);
	assert_int_equal(request->sequence, 1);
	assert_int_equal(request->reserved, 0);
	return count ? fd : -1;
}

/* A vmm that greets, takes the request, with a file or without, and answers it so. */
static void play_with(struct fixture *f, const char *const *words, uint32_t type, uint64_t arg0, bool file,
	struct vmm_message reply)
{
	struct vmm_message request;
	int fd;

	start(f, words);
	accept_peer(f);
	send_state(f, VMM_STATE_RUNNING);
	fd = expect_request(f, type, arg0, &request);
	assert_int_equal(fd >= 0, file);
	fd_close(&fd);
	send_state(f, VMM_STATE_RUNNING); /* events may come between */
	reply.type = type | VMM_REPLY;
	reply.sequence = request.sequence;
	send_message(f, &reply);
}

static void play(
	struct fixture *f, const char *const *words, uint32_t type, uint64_t arg0, struct vmm_message reply)
{
	play_with(f, words, type, arg0, false, reply);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void actions_ask_and_say(void **state)
{
	static const struct {
		const char *words[WORDS_MAX];
		uint32_t type;
		uint64_t arg0;
		struct vmm_message reply;
		const char *said;
	} cases[] = {
		{{"s", "status"}, VMM_STATUS, 0, {.arg0 = VMM_STATE_PAUSED, .arg1 = 1234, .arg2 = 5678901},
			"state     paused\nexits     1234\nboot CPU  5.678 ms\n"},
		{{"--json", "s", "status"}, VMM_STATUS, 0,
			{.arg0 = VMM_STATE_RUNNING, .arg1 = 1234, .arg2 = 5678901},
			"{\"state\":\"running\",\"exits\":1234,\"boot_cpu_ns\":5678901}\n"},
		{{"s", "status"}, VMM_STATUS, 0, {.arg0 = 99},
			"state     unknown\nexits     0\nboot CPU  0.000 ms\n"},
		{{"s", "pause"}, VMM_PAUSE, 0, {.arg0 = 0}, "paused\n"},
		{{"s", "pause", "--json"}, VMM_PAUSE, 0, {.arg0 = 0}, "{\"state\":\"paused\"}\n"},
		{{"s", "resume"}, VMM_RESUME, 0, {.arg0 = 0}, "running\n"},
		{{"s", "balloon"}, VMM_BALLOON, VMM_BALLOON_ASK,
			{.arg0 = 64 << 20, .arg1 = 3 << 19, .arg2 = UINT64_C(5) << 30},
			"target    64.0 MiB\ngiven up  1.5 MiB\nreported  5120.0 MiB free since the start\n"},
		{{"s", "--json", "balloon", "64M"}, VMM_BALLOON, 64 << 20,
			{.arg0 = 64 << 20, .arg1 = 4096, .arg2 = 8192},
			"{\"target\":67108864,\"actual\":4096,\"reported\":8192}\n"},
		{{"s", "balloon", "0"}, VMM_BALLOON, 0, {.arg0 = 0},
			"target    0.0 MiB\ngiven up  0.0 MiB\nreported  0.0 MiB free since the start\n"},
		{{"s", "net", "up"}, VMM_NET, VMM_LINK_UP, {.arg0 = 0}, "link up\n"},
		{{"s", "net", "down"}, VMM_NET, VMM_LINK_DOWN, {.arg0 = 0}, "link down\n"},
		{{"s", "net", "down", "--json"}, VMM_NET, VMM_LINK_DOWN, {.arg0 = 0},
			"{\"link\":\"down\"}\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		play(*state, cases[i].words, cases[i].type, cases[i].arg0, cases[i].reply);
		assert_said(*state, 0, cases[i].said, "");
	}
}

static void a_kill_waits_for_the_end(void **state)
{
	struct fixture *f = *state;
	struct vmm_message ended = {.type = VMM_EVENT_STATE,
		.arg0 = VMM_STATE_ENDED,
		.arg1 = VMM_END_KILLED,
		.text = "ended by \033 the test"};

	play(f, WORDS("s", "kill"), VMM_KILL, 0, (struct vmm_message){.status = 0});
	send_message(f, &ended);
	assert_said(f, 0, "ended: ended by ? the test\n", "");
	play(f, WORDS("s", "kill", "--json"), VMM_KILL, 0, (struct vmm_message){.status = 0});
	send_message(f, &ended);
	assert_said(
		f, 0, "{\"state\":\"ended\",\"status\":8,\"reason\":\"ended by \\u001B the test\"}\n", "");
	play(f, WORDS("s", "kill"), VMM_KILL, 0, (struct vmm_message){.status = 0});
	assert_said(f, FAILED, "", "host-ctl: s was closed before there was an answer: the VM has ended\n");
}

static void refusals_are_told_with_their_mend(void **state)
{
	static const struct {
		const char *words[WORDS_MAX];
		uint32_t type;
		uint64_t arg0;
		int status;
		const char *complained;
	} cases[] = {
		{{"s", "status"}, VMM_STATUS, 0, -EPROTO,
			"this vmm does not know that request; use the host-ctl of its version"},
		{{"s", "resume"}, VMM_RESUME, 0, -ESRCH, "the VM has ended"},
		{{"s", "pause"}, VMM_PAUSE, 0, -EALREADY, "a pause is under way already; ask for the status"},
		{{"s", "pause"}, VMM_PAUSE, 0, -ECONNRESET, "the VM ended before its CPUs stood"},
		{{"s", "pause"}, VMM_PAUSE, 0, -EBUSY, "too many requests wait already; try again later"},
		{{"s", "resume"}, VMM_RESUME, 0, -EBUSY,
			"a pause is under way; try again when the VM is paused"},
		{{"s", "balloon"}, VMM_BALLOON, VMM_BALLOON_ASK, -ENODEV,
			"the VM has no balloon; start vmm with --balloon"},
		{{"s", "balloon", "1G"}, VMM_BALLOON, 1 << 30, -EINVAL,
			"that is more than the guest's memory; give less"},
		{{"s", "net", "up"}, VMM_NET, VMM_LINK_UP, -ENODEV,
			"the VM has no network device; start vmm with --net none or a tap"},
		{{"s", "net", "up"}, VMM_NET, VMM_LINK_UP, -ENOTCONN,
			"nothing is behind the network device; give it a tap: net attach TAP"},
		{{"s", "net", "up"}, VMM_NET, VMM_LINK_UP, -EIO, "the vmm refuses: Input/output error"},
	};
	char wanted[TEXT_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		play(*state, cases[i].words, cases[i].type, cases[i].arg0,
			(struct vmm_message){.status = cases[i].status});
		snprintf(wanted, sizeof(wanted), "host-ctl: s: %s\n", cases[i].complained);
		assert_said(*state, FAILED, "", wanted);
	}
	play(*state, WORDS("s", "pause", "--json"), VMM_PAUSE, 0, (struct vmm_message){.status = -EBUSY});
	assert_said(*state, FAILED,
		"{\"error\":{\"code\":\"busy\",\"message\":\"s: too many requests wait already; try again "
		"later\",\"retryable\":true,\"detail\":null}}\n",
		"host-ctl: s: too many requests wait already; try again later\n");
}

static void sockets_that_are_none_are_named(void **state)
{
	struct fixture *f = *state;
	int stream = unix_listen("stream", SOCK_STREAM, 0600, 4);

	start(f, WORDS("missing", "status"));
	assert_said(f, FAILED, "",
		"host-ctl: there is no missing: has the VM ended, or is its vmm without --control "
		"missing?\n");
	assert_int_equal(mknod("file", S_IFREG | 0600, 0), 0);
	start(f, WORDS("file", "status"));
	assert_said(
		f, FAILED, "", "host-ctl: file is not a socket; give the path that vmm has for --control\n");
	start(f, WORDS("stream", "status"));
	assert_said(f, FAILED, "",
		"host-ctl: stream is not the control socket of a vmm but one of another kind; give the path "
		"that vmm has for --control\n");
	fd_close(&stream);
	fd_close(&f->listener);
	start(f, WORDS("s", "status"));
	assert_said(f, FAILED, "",
		"host-ctl: nobody listens at s: its vmm was killed; remove the socket or start the VM "
		"again\n");
	start(f, WORDS("", "status"));
	assert_said(f, FAILED, "", "host-ctl: '' cannot be the path of a socket: it is empty\n");
}

static void a_vmm_that_serves_another_is_busy(void **state)
{
	struct fixture *f = *state;

	start(f, WORDS("s", "status", "--json")); /* it waits in the backlog */
	assert_int_equal(finish(f), FAILED);
	assert_string_equal(f->complained,
		"host-ctl: the vmm at s does not answer: it serves one peer at a time, and host-ctl serve or "
		"another one has it; try again when that has gone\n");
	assert_non_null(strstr(f->said, "\"code\":\"busy\""));
	assert_non_null(strstr(f->said, "\"retryable\":true"));
}

static const char no_vmm[] =
	"host-ctl: what answers at s does not speak as a vmm of this version does; give the "
	"path that vmm has for --control\n";

static void what_is_no_vmm_is_named(void **state)
{
	struct fixture *f = *state;
	struct vmm_message message = {.type = VMM_STATUS | VMM_REPLY}, request;

	/* greetings: of another length, another type, with a reserved field, without an end of the text */
	start(f, WORDS("s", "status"));
	accept_peer(f);
	assert_int_equal(send(f->peer, "hello", 5, 0), 5);
	assert_said(f, FAILED, "", no_vmm);
	for (unsigned i = 0; i < 3; i++) {
		start(f, WORDS("s", "status"));
		accept_peer(f);
		send_message(f, &message);
		assert_said(f, FAILED, "", no_vmm);
		message = (struct vmm_message){.type = VMM_EVENT_STATE, .reserved = i == 0};
		if (i == 1)
			memset(message.text, 'x', sizeof(message.text));
	}
	/* replies: to another request, of another type, with a status that is none */
	for (unsigned i = 0; i < 3; i++) {
		start(f, WORDS("s", "status"));
		accept_peer(f);
		send_state(f, VMM_STATE_RUNNING);
		(void)expect_request(f, VMM_STATUS, 0, &request);
		message = (struct vmm_message){.type = (i == 0 ? VMM_PAUSE : VMM_STATUS) | VMM_REPLY,
			.sequence = i == 1 ? 2 : 1,
			.status = i == 2 ? 1 : 0};
		send_message(f, &message);
		assert_said(f, FAILED, "", no_vmm);
	}
}

static void an_end_in_between_is_told(void **state)
{
	struct fixture *f = *state;
	struct vmm_message request;

	start(f, WORDS("s", "pause"));
	accept_peer(f);
	assert_said(f, FAILED, "", "host-ctl: s was closed before there was an answer: the VM has ended\n");
	start(f, WORDS("s", "pause"));
	accept_peer(f);
	send_state(f, VMM_STATE_RUNNING);
	(void)expect_request(f, VMM_PAUSE, 0, &request);
	assert_said(f, FAILED, "", "host-ctl: s was closed before there was an answer: the VM has ended\n");
}

/* What is refused before anything is sent. The vmm greets, so that the words are looked at. */
static void wrong_words_are_refused(void **state)
{
	static const struct {
		const char *words[WORDS_MAX];
		bool connects;
		const char *complained;
	} cases[] = {
		{{NULL}, false, "control: SOCKET and ACTION are missing (see `host-ctl help control`)"},
		{{"s"}, false, "control: an action is missing (see `host-ctl help control`)"},
		{{"s", "fly"}, false, "control: unknown action 'fly' (see `host-ctl help control`)"},
		{{"s", "status", "now"}, false,
			"control: that action is written 'status' (see `host-ctl help control`)"},
		{{"s", "net"}, false,
			"control: that action is written 'net up|down|attach TAP' (see `host-ctl help "
			"control`)"},
		{{"s", "net", "attach", "a", "b", "c"}, false,
			"control: 'c' is not expected here (see `host-ctl help control`)"},
		{{"--fast", "s", "status"}, false,
			"control: unknown option '--fast' (see `host-ctl help control`)"},
		{{"s", "balloon", "much"}, true,
			"'much' is not a size; write a number with K, M or G, such as 64M"},
		{{"s", "balloon", "18446744073709551615"}, true,
			"'18446744073709551615' is not a size; write a number with K, M or G, such as 64M"},
		{{"s", "net", "sideways"}, true, "that action is written 'net up|down|attach TAP'"},
		{{"s", "net", "up", "now"}, true, "that action is written 'net up|down|attach TAP'"},
		{{"s", "net", "attach"}, true, "net attach wants the name of a tap"},
	};
	struct fixture *f = *state;
	char wanted[TEXT_MAX], byte;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		start(f, cases[i].words);
		if (cases[i].connects) {
			accept_peer(f);
			send_state(f, VMM_STATE_RUNNING);
			await(f->peer);
			assert_int_equal(recv(f->peer, &byte, 1, 0), 0); /* nothing but the end */
		}
		snprintf(wanted, sizeof(wanted), "host-ctl: %s\n", cases[i].complained);
		assert_said(f, FAILED, "", wanted);
	}
}

/* The VM is asked whether it has a place for a tap at all, by a file that is none. */
static void a_tap_that_is_not_there_is_not_all_that_may_lack(void **state)
{
	static const struct {
		const char *name;
		int status;
		const char *complained;
	} cases[] = {
		{"no-such-tap", -EINVAL,
			"the tap 'no-such-tap' cannot be had: No such device; make it first: ip tuntap add "
			"NAME mode tap, ip link set NAME up"},
		{"a-name-that-is-too-long", -EBADF,
			"the tap 'a-name-that-is-too-long' cannot be had: No such device; make it first: ip "
			"tuntap add NAME mode tap, ip link set NAME up"},
		{"no-such-tap", -ENODEV,
			"s: the VM has no network device; start vmm with --net none or a tap"},
	};
	char wanted[TEXT_MAX];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		play_with(*state, WORDS("s", "net", "attach", cases[i].name), VMM_NET, VMM_LINK_UP, true,
			(struct vmm_message){.status = cases[i].status});
		snprintf(wanted, sizeof(wanted), "host-ctl: %s\n", cases[i].complained);
		assert_said(*state, FAILED, "", wanted);
	}
}

static void help_tells_of_every_action(void **state)
{
	start(*state, WORDS("--help"));
	assert_said(*state, 0, control_usage, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(actions_ask_and_say),
		CASE(a_kill_waits_for_the_end),
		CASE(refusals_are_told_with_their_mend),
		CASE(sockets_that_are_none_are_named),
		CASE(a_vmm_that_serves_another_is_busy),
		CASE(what_is_no_vmm_is_named),
		CASE(an_end_in_between_is_told),
		CASE(wrong_words_are_refused),
		CASE(a_tap_that_is_not_there_is_not_all_that_may_lack),
		CASE(help_tells_of_every_action),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
