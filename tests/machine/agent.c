/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest-init in a real guest, over the vmm's vsock socket: what no process on the host can show. Says TAP.
 * Usage: agent VMM KERNEL INITRD BASE [OPTION-OF-VMM]...
 *
 * What runs in the guest are shell scripts; a case is a script, how it must end, and what it must print.
 * Longer than other files, because all its cases share one client and one list of scripts.
 */
#include "common/frame.h"
#include "common/io.h"
#include "common/proto_vmm.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	LIMIT_MS = 60000, /* for any frame, and for a VM's end, in an emulated machine on a loaded host */
	OUTPUT_MAX = 8192,
	OPTIONS_MAX = 8,
	TRANSFER_BYTES = 4 << 20,
};

struct suite {
	const char *vmm, *kernel, *initrd, *base;
	char **options; /* further ones of the vmm, up to NULL */
	int off;	/* its status when the guest was to power off */
	int count, failed;
	char folder[64], socket[96], hello_socket[96], serial[96];
};

struct machine {
	pid_t pid;
	int listener, control;
	struct frame_reader reader; /* of control */
	char warnings[AGENT_TEXT_MAX + 1];
};

struct stream {
	int fd;
	struct frame_reader reader;
};

struct result {
	bool complete;
	struct agent_exit exit;
	char out[OUTPUT_MAX + 1];
	size_t length;
	uint64_t total, checksum;
};

static void report(struct suite *suite, bool ok, const char *name, const char *got)
{
	suite->count++;
	suite->failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", suite->count, name);
	if (!ok)
		printf("#   got: %s\n", got);
	fflush(stdout);
}

/* ---- the machine ---- */

static int unix_socket(const char *path, bool listening)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	memcpy(address.sun_path, path, strlen(path) + 1);
	if (listening) {
		unlink(path);
		r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 4) < 0;
	} else {
		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	}
	if (r != 0)
		fd_close(&fd);
	return fd;
}

/* What a VM is given. */
struct boot {
	bool disk, vsock;
	const char *upper; /* a disk for the private layer; NULL: tmpfs */
};
static const struct boot usual = {.disk = true, .vsock = true};

static void exec_vmm(const struct suite *suite, const struct boot *boot)
{
	char base[256];
	const char *argv[24 + OPTIONS_MAX] = {suite->vmm, "--kernel", suite->kernel, "--initrd",
		suite->initrd, "--mem", "128M", "--log-level", "error", "--serial", suite->serial,
		"--cmdline", boot->upper ? "loglevel=5 tinderbox.upper=/dev/vdb" : "loglevel=5"};
	int n = 13;

	snprintf(base, sizeof(base), "%s,ro", suite->base);
	if (boot->disk) {
		argv[n++] = "--disk";
		argv[n++] = base;
	}
	if (boot->upper) {
		argv[n++] = "--disk";
		argv[n++] = boot->upper;
	}
	if (boot->vsock) {
		argv[n++] = "--vsock";
		argv[n++] = suite->socket;
	}
	for (int i = 0; suite->options[i]; i++)
		argv[n++] = suite->options[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(argv[0], (char *const *)argv);
	perror(argv[0]);
	_exit(127);
}

static bool readable(int fd)
{
	struct pollfd poller = {.fd = fd, .events = POLLIN};

	return poll(&poller, 1, LIMIT_MS) == 1;
}

/* 1: a frame; 0: the end, or nothing in time. */
static int next_frame(int fd, struct frame_reader *reader, struct frame *frame)
{
	for (;;) {
		int r = frame_reader_next(reader, frame);

		if (r != 0)
			return r > 0;
		if (!readable(fd) || frame_reader_fill(reader, fd) <= 0)
			return 0;
	}
}

/* Starts a VM and takes its HELLO. */
static bool start(struct suite *suite, struct machine *machine, const struct boot *boot)
{
	struct agent_hello hello;
	struct frame frame;

	*machine = (struct machine){.control = -1};
	frame_reader_init(&machine->reader, AGENT_FRAME_MAX);
	machine->listener = unix_socket(suite->hello_socket, true);
	unlink(suite->serial);
	machine->pid = fork();
	if (machine->pid == 0)
		exec_vmm(suite, boot);
	if (!readable(machine->listener))
		return false;
	machine->control = accept4(machine->listener, NULL, NULL, SOCK_CLOEXEC);
	if (next_frame(machine->control, &machine->reader, &frame) != 1 || frame.type != AGENT_HELLO)
		return false;
	memcpy(&hello, frame.payload, sizeof(hello));
	memcpy(machine->warnings, frame.payload + sizeof(hello), hello.warnings_length);
	return hello.version == AGENT_PROTO_VERSION && frame.length == sizeof(hello) + hello.warnings_length;
}

/* The VM's exit status, or -1 when it had to be killed. */
static int wait_for_end(struct machine *machine)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000000};
	int status = -1;

	for (int waited = 0; machine->pid > 0 && waited < LIMIT_MS; waited += 20) {
		if (waitpid(machine->pid, &status, WNOHANG) == machine->pid) {
			machine->pid = 0;
			break;
		}
		nanosleep(&pause, NULL);
	}
	if (machine->pid > 0) {
		kill(machine->pid, SIGKILL);
		waitpid(machine->pid, NULL, 0);
		status = -1;
	}
	fd_close(&machine->control);
	fd_close(&machine->listener);
	frame_reader_finish(&machine->reader);
	return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool give_identity(struct machine *machine)
{
	struct agent_identity identity = {.hostname = "box-42.test"};
	struct agent_status status = {.status = -1};
	struct timespec now;
	struct frame frame;

	/* Tomorrow, so that a guest which kept its own clock is found out. */
	clock_gettime(CLOCK_REALTIME, &now);
	identity.realtime_ns = ((uint64_t)now.tv_sec + 86400) * 1000000000;
	for (int i = 0; i < AGENT_MACHINE_ID_BYTES; i++)
		identity.machine_id[i] = (uint8_t)(0xa0 + i);
	if (getrandom(identity.entropy, sizeof(identity.entropy), 0) < 0)
		return false;
	frame_write(machine->control, AGENT_IDENTITY, &identity, sizeof(identity), NULL, 0);
	if (next_frame(machine->control, &machine->reader, &frame) != 1 || frame.type != AGENT_IDENTITY_DONE)
		return false;
	memcpy(&status, frame.payload, sizeof(status));
	return status.status == 0;
}

static void ask_for_shutdown(struct machine *machine, uint32_t grace_ms)
{
	const struct agent_shutdown shutdown = {.grace_ms = grace_ms};

	frame_write(machine->control, AGENT_SHUTDOWN, &shutdown, sizeof(shutdown), NULL, 0);
}

/* ---- commands ---- */

struct command {
	const char *script;
	const char *user;
	uint64_t deadline_ms, memory_max;
	uint32_t pids_max, flags;
};

static bool open_stream(const struct suite *suite, struct stream *stream)
{
	static const char request[] = "CONNECT 1024\n";
	char line[32];
	size_t length = 0;

	frame_reader_init(&stream->reader, AGENT_FRAME_MAX);
	stream->fd = unix_socket(suite->socket, false);
	if (stream->fd < 0 || io_write_all(stream->fd, request, sizeof(request) - 1) < 0)
		return false;
	while (length < sizeof(line) && readable(stream->fd) && read(stream->fd, line + length, 1) == 1)
		if (line[length++] == '\n')
			return memcmp(line, "OK ", 3) == 0;
	return false;
}

static void close_stream(struct stream *stream)
{
	fd_close(&stream->fd);
	frame_reader_finish(&stream->reader);
}

static void send_new(const struct stream *stream, const struct command *command)
{
	static uint64_t session; /* a number that was not used before */
	struct agent_new new = {
		.session = session + 1,
		.flags = command->flags,
		.argc = 3,
		.deadline_ms = command->deadline_ms,
		.memory_max = command->memory_max,
		.pids_max = command->pids_max,
		.rows = 24,
		.cols = 80,
	};
	char strings[4096];
	int n = snprintf(strings, sizeof(strings), "sh%c-c%c%s%c/%c%s%c", 0, 0, command->script, 0, 0,
		command->user ? command->user : "", 0);

	session++;
	new.strings_length = (uint32_t)n;
	frame_write(stream->fd, AGENT_NEW, &new, sizeof(new), strings, new.strings_length);
}

static void note_output(struct result *result, const struct frame *frame)
{
	size_t bytes = frame->length - sizeof(struct agent_output), room = OUTPUT_MAX - result->length;
	const uint8_t *data = frame->payload + sizeof(struct agent_output);

	for (size_t i = 0; i < bytes; i++)
		result->checksum = result->checksum * 31 + data[i];
	result->total += bytes;
	room = bytes < room ? bytes : room;
	memcpy(result->out + result->length, data, room);
	result->length += room;
}

/* Until EXIT; stdout and stderr in one. */
static void finish(struct stream *stream, struct result *result)
{
	struct frame frame;

	while (!result->complete && next_frame(stream->fd, &stream->reader, &frame) == 1) {
		if (frame.type == AGENT_STDOUT || frame.type == AGENT_STDERR)
			note_output(result, &frame);
		if (frame.type == AGENT_EXIT) {
			memcpy(&result->exit, frame.payload, sizeof(result->exit));
			result->complete = true;
		}
	}
	close_stream(stream);
}

static void run(const struct suite *suite, const struct command *command, struct result *result)
{
	struct stream stream;

	*result = (struct result){0};
	if (open_stream(suite, &stream))
		send_new(&stream, command);
	finish(&stream, result);
}

static void expect(struct suite *suite, const char *name, const struct command *command, int kind, int code,
	const char *out)
{
	struct result result;
	char got[OUTPUT_MAX + 128];

	run(suite, command, &result);
	snprintf(got, sizeof(got), "complete %d kind %d code %d: %s", result.complete, result.exit.kind,
		result.exit.code, result.out);
	report(suite,
		result.complete && result.exit.kind == kind && result.exit.code == code &&
			(!out || strcmp(result.out, out) == 0),
		name, got);
}

/* ---- the cases ---- */

#define CLEAN "exec 2>&1; "

static void test_the_root(struct suite *suite)
{
	static const struct {
		const char *name, *script, *out;
	} cases[] = {
		{"the mounts", "cut -d' ' -f2,3 /proc/mounts | grep -v '^/.* proc$' | tr '\\n' ';'",
			"/sys sysfs;/dev devtmpfs;/ overlay;/dev/pts devpts;/dev/shm tmpfs;/run tmpfs;/tmp "
			"tmpfs;"
			"/sys/fs/cgroup cgroup2;/proc/sys/kernel/random/boot_id tmpfs;"},
		{"PID 1 was deleted with its initramfs", "readlink /proc/1/exe", "/init (deleted)\n"},
		{"the root can be written",
			"echo a >/etc/new && mv /etc/new /etc/old && cat /etc/old; rm -r /var/*; "
			"ls /var | wc -l",
			"a\n0\n"},
		{"/tmp is everyone's", "ls -ld /tmp | cut -c1-10", "drwxrwxrwt\n"},
		{"the controllers are on", "cat /sys/fs/cgroup/tinderbox/cgroup.subtree_control",
			"cpu io memory pids\n"},
		{"a command is in a cgroup of its own", "grep -c '^0::/tinderbox/[0-9]*$' /proc/self/cgroup",
			"1\n"},
		{"lo is up", "ifconfig lo | grep -c 'inet addr:127.0.0.1'", "1\n"},
		{"standard names in /dev",
			"echo x >/dev/stdout; ls /dev/fd/ | head -n 1; echo y | cat /dev/stdin", "x\n0\ny\n"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		expect(suite, cases[i].name, &(struct command){.script = cases[i].script}, AGENT_EXITED, 0,
			cases[i].out);
}

static void test_identity(struct suite *suite)
{
	struct result result;
	char got[64];
	int64_t ahead;

	expect(suite, "the host name", &(struct command){.script = "hostname"}, AGENT_EXITED, 0,
		"box-42.test\n");
	expect(suite, "the machine id", &(struct command){.script = "cat /etc/machine-id"}, AGENT_EXITED, 0,
		"a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\n");
	run(suite, &(struct command){.script = "date +%s"}, &result);
	ahead = strtoll(result.out, NULL, 10) - 86400 - (int64_t)time(NULL);
	snprintf(got, sizeof(got), "%lld s ahead", (long long)ahead);
	report(suite, ahead >= -5 && ahead <= 30, "the clock", got);
	expect(suite, "getrandom does not wait",
		&(struct command){.script = "head -c 16 /dev/random | wc -c", .deadline_ms = 5000},
		AGENT_EXITED, 0, "16\n");
}

static void test_limits(struct suite *suite)
{
	expect(suite, "out of memory is told apart",
		&(struct command){.script = "exec tail /dev/zero", .memory_max = 16 << 20},
		AGENT_OUT_OF_MEMORY, SIGKILL, "");
	expect(suite, "KILL from inside is a signal, not out of memory",
		&(struct command){.script = "kill -KILL $$", .memory_max = 16 << 20}, AGENT_SIGNALLED,
		SIGKILL, "");
	expect(suite, "a limit does not stay with the cgroup",
		&(struct command){.script = "cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/memory.max"},
		AGENT_EXITED, 0, "max\n");
	expect(suite, "out of memory of a child is the command's own affair",
		&(struct command){
			.script = "exec 2>/dev/null; (exec tail /dev/zero); echo $?", .memory_max = 16 << 20},
		AGENT_EXITED, 0, "137\n");
	expect(suite, "an end to fork bombs",
		&(struct command){.script = "sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait", .pids_max = 3},
		AGENT_EXITED, 2, NULL);
}

static void test_the_end_of_a_tree(struct suite *suite)
{
	expect(suite, "a deadline ends a child that called setsid",
		&(struct command){.script = "setsid sleep 777 & sleep 777", .deadline_ms = 300},
		AGENT_TIMED_OUT, 0, "");
	expect(suite, "a leader's end ends its children",
		&(struct command){.script = "setsid sleep 777 </dev/null >/dev/null 2>&1 &"}, AGENT_EXITED, 0,
		"");
	/* Those two may need a moment to die; they are gone before sleep 1 is over. */
	expect(suite, "they are gone, and reaped",
		&(struct command){.script = "sleep 1; ps | grep -c '[s]leep 777'; grep -l '^State:.Z' "
					    "/proc/[0-9]*/status 2>/dev/null | wc -l"},
		AGENT_EXITED, 0, "0\n0\n");
	expect(suite, "children are kept when asked",
		&(struct command){
			.script = "sleep 778 </dev/null >/dev/null 2>&1 &", .flags = AGENT_NEW_KEEP_CHILDREN},
		AGENT_EXITED, 0, "");
	expect(suite, "they are there", &(struct command){.script = "ps | grep -c '[s]leep 778'"},
		AGENT_EXITED, 0, "1\n");
	expect(suite, "orphans are reaped",
		&(struct command){
			.script = "i=0; while [ $i -lt 20 ]; do (true &) ; i=$((i+1)); done; sleep 0.5; "
				  "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"},
		AGENT_EXITED, 0, "0\n");
	expect(suite, "a command cannot end PID 1",
		&(struct command){.script = "kill -KILL 1; kill -SEGV 1; kill -HUP 1; sleep 0.1; echo on"},
		AGENT_EXITED, 0, "on\n");
}

static void test_users(struct suite *suite)
{
	expect(suite, "a terminal",
		&(struct command){.script = "tty && stty size && : </dev/tty", .flags = AGENT_NEW_TTY},
		AGENT_EXITED, 0, "/dev/pts/0\r\n24 80\r\n");
	expect(suite, "another user's terminal is its own",
		&(struct command){.script = "stat -c %U $(tty)", .user = "agent", .flags = AGENT_NEW_TTY},
		AGENT_EXITED, 0, "agent\r\n");
	expect(suite, "another user has its ids and no way back",
		&(struct command){.script = CLEAN "id -u; id -g; id -G; cat /root/x 2>&1 | grep -c denied; "
						  "kill -TERM 1 2>/dev/null; echo $?; echo $HOME",
			.user = "agent"},
		AGENT_EXITED, 0, "1000\n1000\n1000\n1\n1\n/home/agent\n");
	expect(suite, "root without a look-up, and with", &(struct command){.script = "id -u; echo $HOME"},
		AGENT_EXITED, 0, "0\n/root\n");
	expect(suite, "a user that is not there", &(struct command){.script = "true", .user = "no-one"},
		AGENT_FAILED_TO_START, ENOENT, "");
}

/* More than every buffer on the way holds, both ways at once. */
static void test_transfer(struct suite *suite)
{
	static uint8_t data[AGENT_DATA_MAX];
	struct command command = {.script = "cat", .flags = AGENT_NEW_STDIN};
	struct agent_started started;
	struct agent_credit credit = {0};
	struct result result = {0};
	uint64_t sent = 0, checksum = 0, allowed = 0;
	struct stream stream;
	struct frame frame;
	char got[96];

	if (open_stream(suite, &stream))
		send_new(&stream, &command);
	while (sent < TRANSFER_BYTES && next_frame(stream.fd, &stream.reader, &frame) == 1) {
		if (frame.type == AGENT_STARTED) {
			memcpy(&started, frame.payload, sizeof(started));
			allowed = started.stdin_credit;
		} else if (frame.type == AGENT_STDIN_CREDIT) {
			memcpy(&credit, frame.payload, sizeof(credit));
			allowed += credit.bytes;
		} else if (frame.type == AGENT_STDOUT) {
			note_output(&result, &frame);
		}
		for (; sent < TRANSFER_BYTES && allowed - sent >= sizeof(data); sent += sizeof(data)) {
			for (size_t i = 0; i < sizeof(data); i++) {
				data[i] = (uint8_t)((sent + i) * 2654435761U >> 13);
				checksum = checksum * 31 + data[i];
			}
			frame_write(stream.fd, AGENT_STDIN, data, sizeof(data), NULL, 0);
		}
	}
	frame_write(stream.fd, AGENT_STDIN_EOF, NULL, 0, NULL, 0);
	finish(&stream, &result);
	snprintf(got, sizeof(got), "complete %d, %llu bytes, checksum %s", result.complete,
		(unsigned long long)result.total, result.checksum == checksum ? "right" : "wrong");
	report(suite,
		result.complete && result.total == TRANSFER_BYTES && result.checksum == checksum &&
			result.exit.kind == AGENT_EXITED,
		"4 MiB through cat are identical", got);
}

/* A command sees TERM and has its grace; its stream gets all it wrote, and EXIT. */
static void test_shutdown(struct suite *suite, struct machine *machine)
{
	struct command command = {.script = "exec 2>/dev/null; trap 'echo asked; exit 3' TERM; echo ready; "
					    "while :; do sleep 0.05; done"};
	struct result result = {0};
	struct stream stream;
	struct frame frame;
	char got[OUTPUT_MAX + 64];
	int status;

	if (open_stream(suite, &stream))
		send_new(&stream, &command);
	while (next_frame(stream.fd, &stream.reader, &frame) == 1 && frame.type != AGENT_STDOUT)
		;
	ask_for_shutdown(machine, 20000);
	finish(&stream, &result);
	snprintf(got, sizeof(got), "complete %d kind %d: %s", result.complete, result.exit.kind, result.out);
	report(suite,
		result.complete && result.exit.kind == AGENT_KILLED && strcmp(result.out, "asked\n") == 0,
		"at shutdown a command has its grace", got);
	status = wait_for_end(machine);
	snprintf(got, sizeof(got), "status %d", status);
	report(suite, status == suite->off, "then the guest powers off", got);
}

static void test_main_guest(struct suite *suite)
{
	struct machine machine;
	bool up = start(suite, &machine, &usual);

	report(suite, up && machine.warnings[0] == '\0', "HELLO, and nothing is missing", machine.warnings);
	if (up) {
		report(suite, give_identity(&machine), "identity is taken", "a failure");
		test_identity(suite);
		test_the_root(suite);
		test_limits(suite);
		test_the_end_of_a_tree(suite);
		test_users(suite);
		test_transfer(suite);
		test_shutdown(suite, &machine);
	}
	wait_for_end(&machine);
}

/* What busybox's poweroff and reboot send to PID 1. */
static void test_signal(struct suite *suite, const char *name, const char *script, int wanted)
{
	struct command command = {.script = script};
	struct machine machine;
	struct result result;
	char got[32] = "no guest";
	int status = -1;

	if (start(suite, &machine, &usual) && give_identity(&machine)) {
		run(suite, &command, &result);
		status = wait_for_end(&machine);
		snprintf(got, sizeof(got), "status %d", status);
	} else {
		wait_for_end(&machine);
	}
	report(suite, status == wanted, name, got);
}

static void test_without_a_disk(struct suite *suite)
{
	static const char wanted[] =
		"root: no base at /dev/vda (No such file or directory): the initramfs stays the root\n";
	struct command command = {.script = "true"};
	struct machine machine;
	struct result result;
	char got[64];
	bool up = start(suite, &machine, &(const struct boot){.vsock = true});

	report(suite, up && strcmp(machine.warnings, wanted) == 0, "a missing disk is named in HELLO",
		machine.warnings);
	if (up && give_identity(&machine)) {
		run(suite, &command, &result);
		snprintf(got, sizeof(got), "kind %d code %d", result.exit.kind, result.exit.code);
		report(suite, result.exit.kind == AGENT_FAILED_TO_START && result.exit.code == ENOENT,
			"commands are served from the initramfs, where there is no shell", got);
		ask_for_shutdown(&machine, 0);
	}
	report(suite, wait_for_end(&machine) == suite->off, "such a guest powers off too", "another status");
}

static bool make_file_system(const char *path)
{
	char command[256];
	int status;

	snprintf(command, sizeof(command), "mke2fs -q -F -t ext4 %s 16M >/dev/null 2>&1", path);
	status = system(command); /* NOLINT(cert-env33-c): a path of our own */
	return status == 0;
}

/* A private layer on a disk outlives its guest; one in memory does not. */
static void test_upper(struct suite *suite)
{
	static const struct command write = {
		.script = "cat /kept 2>/dev/null; echo x >>/kept; rm -f /etc/group"};
	static const struct command read = {.script = "cat /kept; ls /etc/group 2>/dev/null | wc -l"};
	struct machine machine;
	char path[96];
	const struct boot boot = {.disk = true, .vsock = true, .upper = path};

	snprintf(path, sizeof(path), "%s/upper", suite->folder);
	report(suite, make_file_system(path), "mke2fs makes a file system",
		"a failure (is e2fsprogs there?)");
	for (int i = 0; i < 2; i++) {
		bool up = start(suite, &machine, &boot) && give_identity(&machine);

		report(suite, up && machine.warnings[0] == '\0', "a private layer on ext4", machine.warnings);
		if (up && i == 0)
			expect(suite, "it is written to", &write, AGENT_EXITED, 0, "");
		else if (up)
			expect(suite, "it outlives its guest", &read, AGENT_EXITED, 0, "x\n0\n");
		if (up)
			ask_for_shutdown(&machine, 1000);
		wait_for_end(&machine);
	}
	unlink(path);
}

/* Nobody can talk to it: the serial line is where it says so, and it stays up. */
static void test_without_vsock(struct suite *suite)
{
	const struct timespec pause = {.tv_nsec = 100 * 1000000};
	static char text[64 * 1024];
	const char *found = NULL;
	pid_t pid = fork();
	bool alive;

	if (pid == 0)
		exec_vmm(suite, &(const struct boot){.disk = true});
	for (int waited = 0; !found && waited < LIMIT_MS; waited += 100) {
		int fd = open(suite->serial, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd >= 0 ? io_read_full(fd, text, sizeof(text) - 1) : 0;

		fd_close(&fd);
		text[n > 0 ? n : 0] = '\0';
		found = strstr(text, "guest-init: warning: vsock: no way to the host: No such device");
		nanosleep(&pause, NULL);
	}
	report(suite, found, "a missing vsock device is named", "no such line on the serial port");
	alive = waitpid(pid, NULL, WNOHANG) == 0;
	report(suite, alive, "and the guest stays up", "it ended");
	if (alive) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	struct suite suite = {0};

	if (argc < 5 || argc > 5 + OPTIONS_MAX) {
		fprintf(stderr, "usage: agent VMM KERNEL INITRD BASE [OPTION-OF-VMM]...\n");
		return 2;
	}
	suite = (struct suite){.vmm = argv[1],
		.kernel = argv[2],
		.initrd = argv[3],
		.base = argv[4],
		.options = argv + 5,
		.off = VMM_END_POWEROFF,
		.folder = "/tmp/tinderbox-XXXXXX"};
	/* Nothing powers off where no tree says what would: guest-init reboots. */
	for (char **option = suite.options; *option; option++)
		if (strcmp(*option, "mptable") == 0)
			suite.off = VMM_END_REBOOT;
	if (!mkdtemp(suite.folder)) {
		perror(suite.folder);
		return 1;
	}
	snprintf(suite.socket, sizeof(suite.socket), "%s/v", suite.folder);
	snprintf(suite.hello_socket, sizeof(suite.hello_socket), "%s/v_%d", suite.folder, AGENT_HOST_PORT);
	snprintf(suite.serial, sizeof(suite.serial), "%s/serial", suite.folder);
	signal(SIGPIPE, SIG_IGN);
	test_main_guest(&suite);
	test_signal(&suite, "poweroff from inside", "poweroff", suite.off);
	test_signal(&suite, "reboot from inside", "reboot", VMM_END_REBOOT);
	test_without_a_disk(&suite);
	test_upper(&suite);
	test_without_vsock(&suite);
	unlink(suite.serial);
	unlink(suite.socket);
	unlink(suite.hello_socket);
	rmdir(suite.folder);
	printf("1..%d\n", suite.count);
	return suite.failed ? 1 : 0;
}
