/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vmm without a VM, for tests of the daemon: it speaks common/proto_vmm.h on --control fd:N and plays the
 * guest's agent, well or badly as it is told.
 *
 * Told twice. The "kernel" (--kernel fd:N) is a text of words that say how it boots:
 *   boot exit:N | silent | mute | hello-version | hello-garbage | identity-refused | no-connect | warm-write
 * | bad-status
 * | warm-panic:MS | boot:MS | sample-refused | sample-dies | sample-hangs | sample-missing | sample-status:N
 * | sample-malformed
 * or as a vmm does that the guest has taken over:
 *   agent-file | agent-seqpacket | unblock | strays | children-write | hello-lines | serial-flood | calls
 * or that has a program which poses as the agent:
 *   impostor | agent-unprivileged
 * and of templates, whose state file has the same text:
 *   pause-refused | save-refused | save-slow:MS | save-full | restore-exit:N | touch
 * | baseline-status:N | baseline-nothing | baseline-garbage
 * | brought-status:N | brought-nothing | brought-garbage
 * and of those that are made of what its owner has saved: clone-notes:N | clone-notes-nothing
 * and to who owns the VM:
 *   pause-nothing | pause-panic | resume-refused | later-refused | later-nothing | later-twice
 * | keep-refused | keep-slow:MS | keep-dies | keep-panic | wake-exit:N | wake-mute | wake-panic
 * | shutdown-nothing | shutdown-late:MS | shutdown-panic | hold-nothing | hold-status:N | hold-garbage
 * and to the daemon that takes it back:
 *   new-slow:MS | return-never | attach-nothing | attach-gone | attach-garbage | deaf:BYTES
 * and of changes (fake_changes.c): changes:N
 * and the command of a run, argv[0], says how that goes (fake_session.c):
 *   echo WORD... | exit N | cat | signal N | both | flood BYTES | dribble BYTES | sleep | started-sleep
 * | no-such-command | latin | limits | sizes N | refuse | oom | timeout | close | die N | panic | half
 * or breaks the protocol:
 *   bad-type | bad-flags | bad-offset | bad-exit | bad-length | bad-started | bad-early
 * | bad-credit | bad-count
 */
#include "tests/fake-vmm/fake_vmm.h"
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
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LIFE_SECONDS = 120, STRAYS = 5000, CHILDREN = 8, CHILD_MS = 200 };

bool fake_told(const struct fake *fake, const char *word)
{
	return strstr(fake->script, word) != NULL;
}

/* The number after "word:", or -1. */
long fake_told_number(const struct fake *fake, const char *word)
{
	const char *found = strstr(fake->script, word);

	return found ? strtol(found + strlen(word), NULL, 10) : -1;
}

void fake_pause_ms(long milliseconds)
{
	const struct timespec time = {
		.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000};

	nanosleep(&time, NULL);
}

void fake_mark(const char *name)
{
	prctl(PR_SET_NAME, name);
}

_Noreturn void fake_fail(const char *what)
{
	fprintf(stderr, "fake vmm: %s: %s\n", what, strerror(errno));
	exit(VMM_END_SETUP);
}

/* --- the control socket --- */

static void say(struct fake *fake, struct vmm_message message, int fd)
{
	/* A daemon that is gone is found when it is listened to. */
	io_send_fds(fake->control, &message, sizeof message, &fd, fd >= 0);
}

void fake_end(struct fake *fake, enum vmm_end how, const char *reason)
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
		fake_pause_ms(1);
	fcntl(theirs, F_SETFL, 0);
}

/* Our end of a stream whose other one goes to the daemon with the message. */
static int open_stream(struct fake *fake, struct vmm_message message)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair))
		fake_fail("socketpair");
	say(fake, message, pair[1]);
	if (fake_told(fake, "unblock") && message.type == (VMM_CONNECT | VMM_REPLY))
		unblock(pair[1]);
	close(pair[1]);
	return pair[0];
}

/* --- the agent's control stream --- */

static void greet(struct fake *fake)
{
	struct agent_hello hello = {.version = AGENT_PROTO_VERSION};
	const char warning[] = "a warning of the fake agent\n";
	char lines[AGENT_TEXT_MAX];

	if (fake_told(fake, "hello-garbage")) {
		io_write_all(fake->agent, "GET / HTTP/1.1\r\n\r\n", 18);
		pause();
	}
	hello.version += fake_told(fake, "hello-version");
	if (fake_told(fake, "hello-lines")) {
		memset(lines, '\n', sizeof lines);
		hello.warnings_length = sizeof lines;
		frame_write(fake->agent, AGENT_HELLO, &hello, sizeof hello, lines, sizeof lines);
		return;
	}
	hello.warnings_length = sizeof warning - 1;
	frame_write(fake->agent, AGENT_HELLO, &hello, sizeof hello, warning, sizeof warning - 1);
}

bool fake_read_frame(int fd, struct frame_reader *reader, struct frame *frame)
{
	int status;

	while ((status = frame_reader_next(reader, frame)) == 0)
		if (frame_reader_fill(reader, fd) <= 0)
			return false;
	if (status < 0)
		fake_fail("the daemon sent a malformed frame");
	return true;
}

/* again: as the machine that it is. */
static void take_identity(struct fake *fake, bool again)
{
	struct agent_status answer = {.status = 0};
	struct agent_identity identity;
	struct frame_reader reader;
	struct frame frame;
	const char text[] = "entropy";
	const uint8_t none[AGENT_ENTROPY_BYTES] = {0};

	if (frame_reader_init(&reader, AGENT_FRAME_MAX))
		fake_fail("memory");
	if (!fake_read_frame(fake->agent, &reader, &frame)) {
		frame_reader_finish(&reader);
		return;
	}
	if (frame.type != AGENT_IDENTITY || frame.length != sizeof identity)
		fake_fail("no identity");
	memcpy(&identity, frame.payload, sizeof identity);
	if (!identity.hostname[0] || !identity.realtime_ns || !memcmp(identity.entropy, none, sizeof none))
		fake_fail("identity without content");
	if (again != !memcmp(identity.machine_id, none, sizeof identity.machine_id))
		fake_fail("identity of another machine");
	frame_reader_finish(&reader);
	if (fake_told(fake, "identity-refused")) {
		answer.status = EPERM;
		answer.text_length = sizeof text - 1;
	}
	frame_write(fake->agent, AGENT_IDENTITY_DONE, &answer, sizeof answer, text, answer.text_length);
}

/* A program without privileges connects to the agent's port as the agent does, and learns nothing. */
static void pose(struct fake *fake)
{
	const struct vmm_message from_any_port = {
		.type = VMM_EVENT_STREAM, .arg0 = AGENT_HOST_PORT, .arg1 = AGENT_LINK_PORT_LAST + 1};
	int agent = fake->agent;
	char byte;

	if (!fake_told(fake, "impostor"))
		return;
	fake->agent = open_stream(fake, from_any_port);
	greet(fake);
	if (read(fake->agent, &byte, 1) > 0)
		fake_fail("the daemon took a program for the agent");
	close(fake->agent);
	fake->agent = agent;
}

/* The agent of a guest that runs finds the next daemon, and is given its identity again. */
static void come_back(struct fake *fake)
{
	struct vmm_message hello = {
		.type = VMM_EVENT_STREAM, .arg0 = AGENT_HOST_PORT, .arg1 = AGENT_LINK_PORT_FIRST};

	if (!fake->away || fake->paused || fake_told(fake, "return-never"))
		return;
	fake->away = false;
	pose(fake);
	fake->agent = open_stream(fake, hello);
	greet(fake);
	take_identity(fake, true);
}

/* --- snapshots --- */

static void set_paused(struct fake *fake, bool paused)
{
	fake->paused = paused;
	fake_stand(paused);
}

/* PAUSE, RESUME and SAVE are replied to here. False: it is another request. */
static bool take_snapshot_request(
	struct fake *fake, const struct vmm_message *request, int *fds, size_t count)
{
	struct vmm_message reply = {.type = request->type | VMM_REPLY, .sequence = request->sequence};

	if (request->type == VMM_PAUSE && fake_told(fake, "pause-refused"))
		reply.status = -EALREADY;
	else if (request->type == VMM_RESUME && fake_told(fake, "resume-refused"))
		reply.status = -EIO;
	else if (request->type == VMM_SAVE && count == (request->arg0 & VMM_SAVE_DISK ? 3 : 2))
		fake_save(fake, request, &reply, fds);
	else if (request->type != VMM_PAUSE && request->type != VMM_RESUME)
		return false;
	if (!reply.status && request->type != VMM_SAVE)
		set_paused(fake, request->type == VMM_PAUSE);
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
	if (request->type == VMM_PAUSE && fake_told(fake, "pause-nothing"))
		return true;
	say(fake, reply, -1);
	if (request->type == VMM_PAUSE && fake_told(fake, "pause-panic"))
		fake_end(fake, VMM_END_PANIC, "while paused");
	if (request->type == VMM_RESUME)
		come_back(fake);
	return true;
}

/* Of a VM whose first stream of a user's was opened: true when this one is not to be. */
static bool refuse_later(struct fake *fake, struct vmm_message *reply)
{
	if (fake_told(fake, "later-nothing"))
		return true;
	if (fake_told(fake, "later-twice"))
		close(open_stream(fake, *reply));
	if (!fake_told(fake, "later-refused"))
		return false;
	reply->status = -ECONNREFUSED;
	say(fake, *reply, -1);
	return true;
}

/* The daemon is gone: waits for the next one, and says how the guest is. */
static void await_daemon(struct fake *fake)
{
	struct pollfd wait = {.fd = fake->listener, .events = POLLIN};

	fd_close(&fake->control);
	fd_close(&fake->agent);
	fake->away = true;
	poll(&wait, 1, -1);
	fake->control = accept(fake->listener, NULL, NULL);
	if (fake->control < 0)
		fake_fail("accept");
	say(fake,
		(struct vmm_message){
			.type = VMM_EVENT_STATE, .arg0 = fake->paused ? VMM_STATE_PAUSED : VMM_STATE_RUNNING},
		-1);
	come_back(fake);
}

static void wait_for_connect(struct fake *fake, bool later)
{
	struct vmm_message request;
	int fds[IO_FDS_MAX];
	ssize_t got;
	size_t count;

	do {
		do {
			count = IO_FDS_MAX;
			fake_await_request(fake);
			while ((got = io_receive_fds(fake->control, &request, sizeof request, fds, &count)) <=
				0) {
				await_daemon(fake);
				count = IO_FDS_MAX;
			}
			if (got != sizeof request)
				exit(0);
		} while (take_snapshot_request(fake, &request, fds, count));
		if (request.type != VMM_CONNECT || request.arg0 != AGENT_GUEST_PORT)
			fake_fail("unexpected request");
		request.type |= VMM_REPLY;
	} while (later && refuse_later(fake, &request));
	if (fake_told(fake, "no-connect") || fake_told(fake, "bad-status")) {
		request.status = fake_told(fake, "bad-status") ? INT32_MIN : -ECONNREFUSED;
		say(fake, request, -1);
		pause();
	}
	fake->session = open_stream(fake, request);
}

/* --- life --- */

/* Says that it waits, and is told what to restore: the state, and what a clone has. */
static int stand_by(struct fake *fake)
{
	struct vmm_message order;
	int fds[IO_FDS_MAX];
	size_t count = IO_FDS_MAX, files;

	say(fake, (struct vmm_message){.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_STANDBY}, -1);
	if (io_receive_fds(fake->control, &order, sizeof order, fds, &count) != sizeof order)
		exit(VMM_END_KILLED);
	files = 3u + (order.arg1 & VMM_RESTORE_WORKING_SET ? 1 : 0) +
		(order.arg1 & VMM_RESTORE_PAGES ? 1 : 0);
	if (order.type != VMM_RESTORE || order.arg0 < 3 || order.arg2 != 1 || order.arg3 & ~UINT64_C(2) ||
		count != files + (order.arg3 ? 2 : 0))
		fake_fail("another order");
	fake->holds = order.arg1 & VMM_RESTORE_PAUSED;
	fake->kernel = fds[0];
	fake_restore(fake, fds[1], order.arg1 & VMM_RESTORE_PAGES ? fds[files - 2] : -1, order.text);
	if (order.arg3)
		fake_use_upper(fake, fds[files], fds[files + 1]);
	order.type |= VMM_REPLY;
	order.arg0 = order.arg1 = order.arg2 = order.arg3 = 0;
	say(fake, order, -1);
	return fds[0];
}

/* Maps the memory as a vmm does, reads its first page and writes that of save(). */
static void touch_memory(const char *argument)
{
	enum { PAGE = 4096, WRITTEN = 256, READ = 0 };
	const char *memory = strstr(argument, ",memory=fd:");
	int fd = memory ? atoi(memory + strlen(",memory=fd:")) : -1;
	off_t size = lseek(fd, 0, SEEK_END);
	volatile char *pages = size < 0 ? MAP_FAILED
					: mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
						  MAP_PRIVATE | MAP_NORESERVE, fd, 0);

	if (pages == MAP_FAILED)
		fake_fail("mapping the memory");
	(void)pages[READ * PAGE];
	pages[WRITTEN * PAGE] = 1;
}

static bool has_option(int argc, char **argv, const char *name)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return true;
	return false;
}

/* The state's of --restore fd:N,memory=fd:M, or -1. */
static int restored_fd(int argc, char **argv)
{
	const char *value = fake_option_value(argc, argv, "--restore");

	return value ? atoi(value + 3) : -1;
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
		fake_fail("the serial log");
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
		fake_fail("socketpair(AF_UNIX)");
	if (pthread_create(&thread, NULL, run_thread, NULL) || pthread_join(thread, NULL))
		fake_fail("a thread");
}

/* Ends, and leaves children that write on our standard error for ever, and stay when nobody reads it any
 * more. */
static _Noreturn void leave_children(void)
{
	static const char text[CHUNK];

	for (int i = 0; i < CHILDREN; i++)
		if (fork() == 0) {
			signal(SIGPIPE, SIG_IGN);
			while (write(STDERR_FILENO, text, sizeof text) > 0)
				;
			for (;;)
				pause();
		}
	fake_pause_ms(CHILD_MS);
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

/* The guest is held; a daemon that ends meanwhile leaves it so. True: another has let it run. */
static bool await_resume(struct fake *fake)
{
	struct vmm_message request, reply;
	int fds[IO_FDS_MAX];
	size_t count = IO_FDS_MAX;

	say(fake, (struct vmm_message){.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_PAUSED}, -1);
	while (io_receive_fds(fake->control, &request, sizeof request, fds, &count) <= 0) {
		fake->paused = true;
		await_daemon(fake);
		count = IO_FDS_MAX;
	}
	if (request.type != VMM_RESUME)
		fake_fail("a guest that is held is asked for something else");
	reply = (struct vmm_message){.type = VMM_RESUME | VMM_REPLY, .sequence = request.sequence};
	say(fake, reply, -1);
	fake->paused = false;
	if (!fake->away)
		return false;
	come_back(fake);
	return true;
}

static void boot(struct fake *fake)
{
	struct vmm_message hello = {
		.type = VMM_EVENT_STREAM, .arg0 = AGENT_HOST_PORT, .arg1 = AGENT_LINK_PORT_LAST};

	if (fake->restored && fake_told_number(fake, "restore-exit:") >= 0) {
		fprintf(stderr, "fake vmm: told not to restore\n");
		exit((int)fake_told_number(fake, "restore-exit:"));
	}
	if (fake_told(fake, " exit:")) {
		fprintf(stderr, "fake vmm: told to exit\n");
		exit((int)fake_told_number(fake, " exit:"));
	}
	if (fake_told(fake, "silent"))
		pause();
	if (fake->holds && await_resume(fake))
		return;
	say(fake, (struct vmm_message){.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_RUNNING}, -1);
	if (fake->is_saved && fake_told(fake, "wake-panic"))
		fake_end(fake, VMM_END_PANIC, "when it was woken");
	if (fake_told(fake, " mute") || (fake->is_saved && fake_told(fake, "wake-mute")))
		pause();
	if (fake_told_number(fake, "boot:") > 0)
		fake_pause_ms(fake_told_number(fake, "boot:"));
	if (fake_told(fake, "children-write"))
		leave_children();
	if (fake_told(fake, "strays"))
		open_strays(fake);
	if (fake_told(fake, "agent-file") || fake_told(fake, "agent-seqpacket")) {
		say(fake, hello, fake_told(fake, "agent-file") ? fake->kernel : fake->listener);
		pause();
	}
	/* A port that nobody waits on comes first: the daemon has to ignore it. */
	close(open_stream(fake, (struct vmm_message){.type = VMM_EVENT_STREAM, .arg0 = 99}));
	pose(fake);
	hello.arg1 += fake_told(fake, "agent-unprivileged");
	fake->agent = open_stream(fake, hello);
	greet(fake);
	take_identity(fake, fake->holds);
}

static void *serve_session(void *copy)
{
	fake_serve_session(copy);
	free(copy);
	return NULL;
}

/* In a thread of its own, as several may go on at once. */
static void start_session(const struct fake *fake)
{
	struct fake *copy = malloc(sizeof *copy);
	pthread_t thread;

	if (!copy)
		fake_fail("memory");
	*copy = *fake;
	if (pthread_create(&thread, NULL, serve_session, copy) || pthread_detach(thread))
		fake_fail("a thread");
}

/* The first session is the daemon's sample command, the second is to be a user's. */
static void serve(struct fake *fake)
{
	for (int session = 0;; session++) {
		wait_for_connect(fake, session > 1);
		fake->offset[0] = fake->offset[1] = 0;
		if (session > 0 && fake_told(fake, "warm-write"))
			fake_put_started(fake);
		if (session > 0 && fake_told_number(fake, "warm-panic:") >= 0) {
			fake_pause_ms(fake_told_number(fake, "warm-panic:"));
			fake_end(fake, VMM_END_PANIC, "while warm");
		}
		start_session(fake);
	}
}

static int number_after(const char *value, const char *key)
{
	const char *found = strstr(value, key);

	return found ? atoi(found + strlen(key)) : -1;
}

static void restore(struct fake *fake, int argc, char **argv)
{
	const char *value = fake_option_value(argc, argv, "--restore");

	fake->holds = has_option(argc, argv, "--paused");
	fake_restore(fake, number_after(value, ",memory=fd:"), number_after(value, ",pages=fd:"), "");
}

int main(int argc, char **argv)
{
	struct fake fake = {.lower = -1,
		.upper = -1,
		.control = -1,
		.agent = -1,
		.session = -1,
		.kernel = restored_fd(argc, argv),
		.listener = option_fd(argc, argv, "--control")};
	struct pollfd wait = {.fd = fake.listener, .events = POLLIN};

	/* A test that fails does not leave it for ever. */
	alarm(LIFE_SECONDS);
	poll(&wait, 1, -1);
	fake.control = accept(fake.listener, NULL, NULL);
	if (fake.control < 0)
		fake_fail("accept");
	if (has_option(argc, argv, "--standby"))
		fake.kernel = stand_by(&fake);
	else if (fake.kernel >= 0)
		restore(&fake, argc, argv);
	fake_take_disk(&fake, argc, argv);
	fake.restored = fake.kernel >= 0;
	if (!fake.restored) {
		fake.kernel = option_fd(argc, argv, "--kernel");
		parse_size(fake_option_value(argc, argv, "--mem"), 0, UINT64_MAX, &fake.memory);
	}
	if (!fake.restored && io_pread_full(fake.kernel, fake.script, sizeof fake.script - 1, 0) < 0)
		fake_fail("script");
	if (fake.restored && fake_told(&fake, "touch") && !has_option(argc, argv, "--standby"))
		touch_memory(fake_option_value(argc, argv, "--restore"));
	if (fake_told(&fake, "calls"))
		try_calls();
	if (fake_told(&fake, "serial-flood"))
		flood_serial(option_fd(argc, argv, "--serial"));
	boot(&fake);
	serve(&fake);
	return 0;
}
