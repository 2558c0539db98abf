/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vmm without a VM, for tests of the daemon: it speaks common/proto_vmm.h on --control fd:N and plays the
 * guest's agent, well or badly as it is told.
 *
 * Told twice. The "kernel" (--kernel fd:N) is a text of words that say how it boots:
 *   boot exit:N | silent | mute | hello-version | hello-garbage | identity-refused | no-connect | warm-write
 * | warm-panic:MS | boot:MS | sample-refused | sample-dies | sample-hangs | sample-missing | sample-status:N
 * | sample-malformed
 * or as a vmm does that the guest has taken over:
 *   agent-file | agent-seqpacket | unblock | strays | children-write | hello-lines | serial-flood | calls
 * and of templates, whose state file is the text that was saved, with "restored" before it:
 *   pause-refused | save-refused | save-slow:MS | restore-exit:N
 * and the command of a run, argv[0], says how that goes: echo WORD...   the words
 * and a newline on stdout          exit N          exit status N cat            stdin to stdout, until its
 * end             signal N        ends by that signal both           "out" on stdout, "err" on stderr flood
 * BYTES     that many bytes of a pattern dribble BYTES   as many frames of one byte sleep          nothing,
 * until a KILL or the end no-such-command fails to start, ENOENT latin          bytes that are not UTF-8
 * started-sleep   STARTED, then as sleep refuse         ERROR                                      oom,
 * timeout    ends so close closes the stream without EXIT             die N           the vmm exits with
 * status N panic          says so, then exits as the vmm does        half            dies within a frame
 * bad-type, bad-flags, bad-offset, bad-exit, bad-length, bad-started, bad-early, bad-credit, bad-count break
 * the protocol
 */
#include "common/frame.h"
#include "common/io.h"
#include "common/parse.h"
#include "common/proto_vmm.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SCRIPT_MAX = 256, CHUNK = 32 * 1024, LIFE_SECONDS = 120, STRAYS = 5000, CHILDREN = 8, CHILD_MS = 200 };

struct fake {
	int control, agent, session, listener, kernel; /* kernel: or the state file */
	bool restored;
	char script[SCRIPT_MAX];
	uint64_t offset[2];
};

static bool told(const struct fake *fake, const char *word)
{
	return strstr(fake->script, word) != NULL;
}

/* The number after "word:", or -1. */
static long told_number(const struct fake *fake, const char *word)
{
	const char *found = strstr(fake->script, word);

	return found ? strtol(found + strlen(word), NULL, 10) : -1;
}

static void pause_ms(long milliseconds)
{
	const struct timespec time = {
		.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};

	nanosleep(&time, NULL);
}

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "fake vmm: %s: %s\n", what, strerror(errno));
	exit(VMM_END_SETUP);
}

/* --- the control socket --- */

static void say(struct fake *fake, struct vmm_message message, int fd)
{
	if (io_send_fds(fake->control, &message, sizeof message, &fd, fd >= 0))
		exit(0);
}

static void end(struct fake *fake, enum vmm_end how, const char *reason)
{
	struct vmm_message message = {.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_ENDED, .arg1 = how};

	snprintf(message.text, sizeof message.text, "%s", reason);
	say(fake, message, -1);
	exit((int)how);
}

/* What is one file has one set of flags, whoever holds it: waits until the daemon has set its, and undoes
 * that.
 */
static void unblock(int theirs)
{
	while (!(fcntl(theirs, F_GETFL) & O_NONBLOCK))
		pause_ms(1);
	fcntl(theirs, F_SETFL, 0);
}

/* Our end of a stream whose other one goes to the daemon with the message. */
static int open_stream(struct fake *fake, struct vmm_message message)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		fail("socketpair");
	say(fake, message, pair[1]);
	if (told(fake, "unblock") && message.type == (VMM_CONNECT | VMM_REPLY))
		unblock(pair[1]);
	close(pair[1]);
	return pair[0];
}

/* The state is what the restored vmm is told, the memory some pages with a hole before them. */
static void save(struct fake *fake, struct vmm_message *reply, const int fds[2])
{
	static const char page[4096] = "memory";

	if (told_number(fake, "save-slow:") > 0)
		pause_ms(told_number(fake, "save-slow:"));
	if (told(fake, "save-refused")) {
		reply->status = -ENOSPC;
		snprintf(reply->text, sizeof reply->text, "no room for the memory");
		return;
	}
	if (io_write_all(fds[0], fake->script, strlen(fake->script)) ||
		pwrite(fds[1], page, sizeof page, 1 << 20) != sizeof page)
		fail("saving");
	reply->arg0 = strlen(fake->script);
	reply->arg1 = sizeof page;
}

/* PAUSE and SAVE are replied to here. False: it is another request. */
static bool take_snapshot_request(
	struct fake *fake, const struct vmm_message *request, int *fds, size_t count)
{
	struct vmm_message reply = {.type = request->type | VMM_REPLY, .sequence = request->sequence};

	if (request->type == VMM_PAUSE && told(fake, "pause-refused"))
		reply.status = -EALREADY;
	else if (request->type == VMM_SAVE && count == 2)
		save(fake, &reply, fds);
	else if (request->type != VMM_PAUSE)
		return false;
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
	say(fake, reply, -1);
	return true;
}

static void wait_for_connect(struct fake *fake)
{
	struct vmm_message request;
	int fds[IO_FDS_MAX];
	size_t count;

	do {
		count = IO_FDS_MAX;
		if (io_receive_fds(fake->control, &request, sizeof request, fds, &count) != sizeof request)
			exit(0);
	} while (take_snapshot_request(fake, &request, fds, count));
	if (request.type != VMM_CONNECT || request.arg0 != AGENT_GUEST_PORT)
		fail("unexpected request");
	request.type |= VMM_REPLY;
	if (told(fake, "no-connect")) {
		request.status = -ECONNREFUSED;
		say(fake, request, -1);
		pause();
	}
	fake->session = open_stream(fake, request);
}

/* --- the agent's control stream --- */

static void greet(struct fake *fake)
{
	struct agent_hello hello = {.version = AGENT_PROTO_VERSION};
	const char warning[] = "a warning of the fake agent\n";
	char lines[AGENT_TEXT_MAX];

	if (told(fake, "hello-garbage")) {
		io_write_all(fake->agent, "GET / HTTP/1.1\r\n\r\n", 18);
		pause();
	}
	hello.version += told(fake, "hello-version");
	if (told(fake, "hello-lines")) {
		memset(lines, '\n', sizeof lines);
		hello.warnings_length = sizeof lines;
		frame_write(fake->agent, AGENT_HELLO, &hello, sizeof hello, lines, sizeof lines);
		return;
	}
	hello.warnings_length = sizeof warning - 1;
	frame_write(fake->agent, AGENT_HELLO, &hello, sizeof hello, warning, sizeof warning - 1);
}

static void read_frame(int fd, struct frame_reader *reader, struct frame *frame)
{
	int status;

	while ((status = frame_reader_next(reader, frame)) == 0)
		if (frame_reader_fill(reader, fd) <= 0)
			exit(0);
	if (status < 0)
		fail("the daemon sent a malformed frame");
}

static void take_identity(struct fake *fake)
{
	struct agent_status answer = {.status = 0};
	struct agent_identity identity;
	struct frame_reader reader;
	struct frame frame;
	const char text[] = "entropy";
	const uint8_t none[AGENT_ENTROPY_BYTES] = {0};

	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fail("memory");
	read_frame(fake->agent, &reader, &frame);
	if (frame.type != AGENT_IDENTITY || frame.length != sizeof identity)
		fail("no identity");
	memcpy(&identity, frame.payload, sizeof identity);
	if (!identity.hostname[0] || !identity.realtime_ns || !memcmp(identity.entropy, none, sizeof none))
		fail("identity without content");
	frame_reader_finish(&reader);
	if (told(fake, "identity-refused")) {
		answer.status = EPERM;
		answer.text_length = sizeof text - 1;
	}
	frame_write(fake->agent, AGENT_IDENTITY_DONE, &answer, sizeof answer, text, answer.text_length);
}

/* --- a session --- */

static void put(struct fake *fake, int type, const void *data, size_t length)
{
	struct agent_output output = {.offset = fake->offset[type == AGENT_STDERR]};

	fake->offset[type == AGENT_STDERR] += length;
	if (frame_write(fake->session, (uint8_t)type, &output, sizeof output, data, length))
		exit(0);
}

static void put_exit(struct fake *fake, int kind, int code, int step)
{
	struct agent_exit ending = {.kind = (uint8_t)kind,
		.code = code,
		.step = (uint16_t)step,
		.stdout_bytes = fake->offset[0],
		.stderr_bytes = fake->offset[1],
		.wall_us = 1234,
		.max_rss_kib = 56};

	frame_write(fake->session, AGENT_EXIT, &ending, sizeof ending, NULL, 0);
}

static void put_started(struct fake *fake)
{
	struct agent_started started = {.session = 1, .pid = 77};

	frame_write(fake->session, AGENT_STARTED, &started, sizeof started, NULL, 0);
}

static void do_echo(struct fake *fake, const char *word, uint32_t count)
{
	char line[CHUNK];
	size_t length = 0;

	for (uint32_t i = 0; i < count; i++, word += strlen(word) + 1)
		length += (size_t)snprintf(
			line + length, sizeof line - length, "%s%s", word, i + 1 < count ? " " : "");
	line[length++] = '\n';
	put(fake, AGENT_STDOUT, line, length);
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_flood(struct fake *fake, const char *bytes)
{
	static uint8_t chunk[CHUNK];
	unsigned long long left = strtoull(bytes, NULL, 10);

	for (size_t i = 0; i < sizeof chunk; i++)
		chunk[i] = (uint8_t)('a' + i % 26);
	while (left) {
		size_t part = left < sizeof chunk ? (size_t)left : sizeof chunk;

		put(fake, AGENT_STDOUT, chunk, part);
		left -= part;
	}
	put_exit(fake, AGENT_EXITED, 0, 0);
}

/* Frames of one byte each, many in one write. */
static void do_dribble(struct fake *fake, const char *bytes)
{
	unsigned long count = strtoul(bytes, NULL, 10);
	struct agent_output output;
	struct frame_queue queue;

	frame_queue_init(&queue, SIZE_MAX);
	for (output.offset = 0; output.offset < count; output.offset++)
		if (frame_queue_put(&queue, AGENT_STDOUT, &output, sizeof output, "x", 1))
			fail("memory");
	io_write_all(fake->session, queue.buffer, frame_queue_length(&queue));
	frame_queue_finish(&queue);
	fake->offset[0] = count;
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_cat(struct fake *fake, struct frame_reader *reader)
{
	struct agent_credit credit;
	struct frame frame;

	for (;;) {
		read_frame(fake->session, reader, &frame);
		if (frame.type == AGENT_KILL) {
			put_exit(fake, AGENT_KILLED, 0, 0);
			return;
		}
		if (frame.type == AGENT_STDIN_EOF)
			break;
		if (frame.type != AGENT_STDIN)
			continue;
		credit = (struct agent_credit){.bytes = frame.length};
		put(fake, AGENT_STDOUT, frame.payload, frame.length);
		frame_write(fake->session, AGENT_STDIN_CREDIT, &credit, sizeof credit, NULL, 0);
	}
	put_exit(fake, AGENT_EXITED, 0, 0);
}

static void do_sleep(struct fake *fake, struct frame_reader *reader)
{
	struct frame frame;

	do
		read_frame(fake->session, reader, &frame);
	while (frame.type != AGENT_KILL && frame.type != AGENT_SIGNAL);
	if (frame.type == AGENT_KILL)
		put_exit(fake, AGENT_KILLED, 0, 0);
	else
		put_exit(fake, AGENT_SIGNALLED, (int)frame.payload[0], 0);
}

static void break_protocol(struct fake *fake, const char *how)
{
	struct agent_output output = {.offset = fake->offset[0] + 1};
	struct agent_frame_header header = {.length = 0, .type = AGENT_EXIT, .flags = 1};
	struct agent_started started = {.session = 99};
	struct agent_credit credit = {.bytes = 0};

	if (!strcmp(how, "bad-type"))
		frame_write(fake->session, 0x6f, NULL, 0, NULL, 0);
	else if (!strcmp(how, "bad-flags"))
		io_write_all(fake->session, &header, sizeof header);
	else if (!strcmp(how, "bad-offset"))
		frame_write(fake->session, AGENT_STDOUT, &output, sizeof output, "x", 1);
	else if (!strcmp(how, "bad-exit"))
		put_exit(fake, AGENT_EXITED, 256, 0);
	else if (!strcmp(how, "bad-count")) {
		put(fake, AGENT_STDOUT, "abc", 3);
		fake->offset[0] = 2;
		put_exit(fake, AGENT_EXITED, 0, 0);
	} else if (!strcmp(how, "bad-length")) {
		header = (struct agent_frame_header){.length = AGENT_FRAME_MAX, .type = AGENT_STDOUT};
		io_write_all(fake->session, &header, sizeof header);
	} else if (!strcmp(how, "bad-started"))
		frame_write(fake->session, AGENT_STARTED, &started, sizeof started, NULL, 0);
	else if (!strcmp(how, "bad-credit"))
		frame_write(fake->session, AGENT_STDIN_CREDIT, &credit, sizeof credit, NULL, 0);
	else
		put(fake, AGENT_STDOUT, "early", 5);
	pause();
}

static void die_within_frame(struct fake *fake)
{
	struct agent_frame_header header = {.length = 100, .type = AGENT_STDOUT};

	io_write_all(fake->session, &header, sizeof header);
	end(fake, VMM_END_TRIPLE_FAULT, "at the half of a frame");
}

/* What ends without STARTED. True when the command was one of these. */
static bool run_unstarted(struct fake *fake, const char *command)
{
	struct agent_status refusal = {.status = EPERM, .text_length = 7};

	if (!strcmp(command, "refuse") || (!strcmp(command, "sh") && told(fake, "sample-refused")))
		frame_write(fake->session, AGENT_ERROR, &refusal, sizeof refusal, "not now", 7);
	else if (!strcmp(command, "no-such-command") ||
		 (!strcmp(command, "sh") && told(fake, "sample-missing")))
		put_exit(fake, AGENT_FAILED_TO_START, ENOENT, AGENT_STEP_EXEC);
	else if (!strcmp(command, "sleep"))
		pause();
	else if (!strcmp(command, "bad-early") || !strcmp(command, "bad-started"))
		break_protocol(fake, command);
	else
		return false;
	return true;
}

static void run_started(
	struct fake *fake, const char *command, const char *next, uint32_t count, struct frame_reader *reader)
{
	if (!strcmp(command, "sh") && told(fake, "sample-dies"))
		end(fake, VMM_END_PANIC, "in the sample command");
	if (!strcmp(command, "sh") && told(fake, "sample-hangs"))
		pause();
	if (!strcmp(command, "sh") && told_number(fake, "sample-status:") > 0)
		put_exit(fake, AGENT_EXITED, (int)told_number(fake, "sample-status:"), 0);
	else if (!strcmp(command, "sh") && told(fake, "sample-malformed"))
		put_exit(fake, AGENT_EXITED, -1, 0);
	else if (!strcmp(command, "echo"))
		do_echo(fake, next, count);
	else if (!strcmp(command, "exit"))
		put_exit(fake, AGENT_EXITED, atoi(next), 0);
	else if (!strcmp(command, "signal"))
		put_exit(fake, AGENT_SIGNALLED, atoi(next), 0);
	else if (!strcmp(command, "oom"))
		put_exit(fake, AGENT_OUT_OF_MEMORY, SIGKILL, 0);
	else if (!strcmp(command, "timeout"))
		put_exit(fake, AGENT_TIMED_OUT, 0, 0);
	else if (!strcmp(command, "cat") || !strcmp(command, "sh"))
		do_cat(fake, reader);
	else if (!strcmp(command, "flood"))
		do_flood(fake, next);
	else if (!strcmp(command, "dribble"))
		do_dribble(fake, next);
	else if (!strcmp(command, "started-sleep"))
		do_sleep(fake, reader);
	else if (!strcmp(command, "die"))
		exit(atoi(next));
	else if (!strcmp(command, "panic"))
		end(fake, VMM_END_PANIC, "pvpanic");
	else if (!strcmp(command, "half"))
		die_within_frame(fake);
	else if (!strncmp(command, "bad-", 4))
		break_protocol(fake, command);
	else if (!strcmp(command, "latin")) {
		put(fake, AGENT_STDOUT, "\xe9\xff\0x", 4);
		put_exit(fake, AGENT_EXITED, 0, 0);
	} else if (!strcmp(command, "both")) {
		put(fake, AGENT_STDOUT, "out\n", 4);
		put(fake, AGENT_STDERR, "err\n", 4);
		put_exit(fake, AGENT_EXITED, 0, 0);
	} else if (!strcmp(command, "close")) {
		close(fake->session);
		pause();
	} else {
		put_exit(fake, AGENT_FAILED_TO_START, EACCES, AGENT_STEP_EXEC);
	}
}

/* A line of a shell's: a command and one argument, which is the rest. */
static void split_line(char *line, char *command, size_t size, char **rest, uint32_t *count)
{
	size_t length = strcspn(line, " ");

	snprintf(command, size, "%.*s", (int)length, line);
	*count = line[length] ? 2 : 1;
	*rest = line + length + (line[length] != '\0');
}

static void serve_session(struct fake *fake)
{
	struct agent_new_view view;
	struct frame_reader reader;
	struct frame frame;
	const char *why;
	char command[64];
	char *strings, *next;

	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fail("memory");
	read_frame(fake->session, &reader, &frame);
	if (frame.type != AGENT_NEW || frame_parse_new(&frame, &view, &why))
		fail("no proper NEW");
	/* The reader's buffer moves on with its next frame. */
	strings = malloc(view.fixed.strings_length);
	if (!strings)
		fail("memory");
	memcpy(strings, view.strings, view.fixed.strings_length);
	next = strings + strlen(strings) + 1;
	if (!strcmp(strings, "sh") && !(view.fixed.flags & AGENT_NEW_STDIN)) {
		split_line(next + strlen(next) + 1, command, sizeof command, &next, &view.fixed.argc);
	} else {
		snprintf(command, sizeof command, "%s", strings);
	}
	if (!run_unstarted(fake, command)) {
		put_started(fake);
		run_started(fake, command, next, view.fixed.argc - 1, &reader);
	}
	free(strings);
	frame_reader_finish(&reader);
	/* As a guest does: the stream is closed after the terminal frame, the VM goes on. */
	fd_close(&fake->session);
}

/* --- life --- */

/* The state's of --restore fd:N,memory=fd:M, or -1. */
static int restored_fd(int argc, char **argv)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], "--restore"))
			return atoi(argv[i + 1] + 3);
	return -1;
}

static int option_fd(int argc, char **argv, const char *name)
{
	for (int i = 1; i + 1 < argc; i++)
		if (!strcmp(argv[i], name) && !strncmp(argv[i + 1], "fd:", 3))
			return atoi(argv[i + 1] + 3);
	fprintf(stderr, "fake vmm: no %s fd:N\n", name);
	exit(VMM_END_USAGE);
}

/* Does not come back before the file takes no more, which is not to end us. */
static void flood_serial(int serial)
{
	static const char text[CHUNK];

	while (write(serial, text, sizeof text) > 0)
		;
	if (errno != EFBIG)
		fail("the serial log");
}

static void expect_refused(long result, const char *call)
{
	if (result < 0 && errno == EPERM)
		return;
	fprintf(stderr, "fake vmm: %s is not refused\n", call);
	exit(VMM_END_SETUP);
}

static void *run_thread(void *argument)
{
	return argument;
}

/* What is refused, and that what looks like it is not. */
static void try_calls(void)
{
	pthread_t thread;
	int pair[2];

	expect_refused(socket(AF_INET, SOCK_STREAM, 0), "socket(AF_INET)");
	expect_refused(socket(AF_VSOCK, SOCK_STREAM, 0), "socket(AF_VSOCK)");
	expect_refused(socketpair(AF_TIPC, SOCK_STREAM, 0, pair), "socketpair(AF_TIPC)");
	expect_refused(syscall(SYS_unshare, CLONE_NEWUSER), "unshare");
	expect_refused(syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, NULL, NULL, NULL, 0), "clone");
	expect_refused(syscall(SYS_ptrace, 0, 0, NULL, NULL), "ptrace");
	expect_refused(syscall(SYS_mount, "x", "/", "fuse", 0, NULL), "mount");
	expect_refused(syscall(SYS_io_uring_setup, 1, NULL), "io_uring_setup");
	expect_refused(syscall(SYS_kexec_file_load, -1, -1, 0, NULL, 0), "kexec_file_load");
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) < 0 || close(pair[0]) || close(pair[1]))
		fail("socketpair(AF_UNIX)");
	if (pthread_create(&thread, NULL, run_thread, NULL) || pthread_join(thread, NULL))
		fail("a thread");
}

/* Ends, and leaves children that write on our standard error for ever. */
static _Noreturn void leave_children(void)
{
	static const char text[CHUNK];

	for (int i = 0; i < CHILDREN; i++)
		if (fork() == 0)
			while (write(STDERR_FILENO, text, sizeof text) > 0)
				;
	pause_ms(CHILD_MS);
	exit(VMM_END_SETUP);
}

/* One after the other, each when the daemon has closed the one before. */
static void open_strays(struct fake *fake)
{
	for (int i = 0; i < STRAYS; i++) {
		int fd = open_stream(fake, (struct vmm_message){.type = VMM_EVENT_STREAM, .arg0 = 99});
		char byte;

		while (read(fd, &byte, 1) > 0)
			;
		close(fd);
	}
}

static void boot(struct fake *fake)
{
	struct vmm_message hello = {.type = VMM_EVENT_STREAM, .arg0 = AGENT_HOST_PORT};

	if (fake->restored && told_number(fake, "restore-exit:") >= 0) {
		fprintf(stderr, "fake vmm: told not to restore\n");
		exit((int)told_number(fake, "restore-exit:"));
	}
	if (told(fake, " exit:")) {
		fprintf(stderr, "fake vmm: told to exit\n");
		exit((int)told_number(fake, " exit:"));
	}
	if (told(fake, "silent"))
		pause();
	say(fake, (struct vmm_message){.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_RUNNING}, -1);
	if (told(fake, "mute"))
		pause();
	if (told_number(fake, "boot:") > 0)
		pause_ms(told_number(fake, "boot:"));
	if (told(fake, "children-write"))
		leave_children();
	if (told(fake, "strays"))
		open_strays(fake);
	if (told(fake, "agent-file") || told(fake, "agent-seqpacket")) {
		say(fake, hello, told(fake, "agent-file") ? fake->kernel : fake->listener);
		pause();
	}
	/* A port that nobody waits on comes first: the daemon has to ignore it. */
	close(open_stream(fake, (struct vmm_message){.type = VMM_EVENT_STREAM, .arg0 = 99}));
	fake->agent = open_stream(fake, hello);
	greet(fake);
	take_identity(fake);
}

/* The first session is the daemon's sample command, the second is to be a user's. */
static void serve(struct fake *fake)
{
	for (int session = 0;; session++) {
		wait_for_connect(fake);
		fake->offset[0] = fake->offset[1] = 0;
		if (session > 0 && told(fake, "warm-write"))
			put_started(fake);
		if (session > 0 && told_number(fake, "warm-panic:") >= 0) {
			pause_ms(told_number(fake, "warm-panic:"));
			end(fake, VMM_END_PANIC, "while warm");
		}
		serve_session(fake);
	}
}

int main(int argc, char **argv)
{
	struct fake fake = {.control = -1,
		.agent = -1,
		.session = -1,
		.kernel = restored_fd(argc, argv),
		.listener = option_fd(argc, argv, "--control")};
	struct pollfd wait = {.fd = fake.listener, .events = POLLIN};

	fake.restored = fake.kernel >= 0;
	if (!fake.restored)
		fake.kernel = option_fd(argc, argv, "--kernel");
	if (io_pread_full(fake.kernel, fake.script, sizeof fake.script - 1, 0) < 0)
		fail("script");
	/* A test that fails does not leave it for ever. */
	alarm(LIFE_SECONDS);
	poll(&wait, 1, -1);
	fake.control = accept(fake.listener, NULL, NULL);
	if (fake.control < 0)
		fail("accept");
	if (told(&fake, "calls"))
		try_calls();
	if (told(&fake, "serial-flood"))
		flood_serial(option_fd(argc, argv, "--serial"));
	boot(&fake);
	serve(&fake);
	return 0;
}
