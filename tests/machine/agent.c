/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest-init in a real guest, over the vmm's vsock socket: what no process on the host can show. Says TAP.
 * Usage: agent VMM KERNEL INITRD BASE [OPTION-OF-VMM]...
 *
 * What runs in the guest are shell scripts; a case is a script, how it must end, and what it must print.
 */
#include "common/io.h"
#include "common/proto_vmm.h"
#include "tests/machine/agent_client.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TRANSFER_BYTES = 4 << 20 };

#define CLEAN "exec 2>&1; "

static const struct agent_boot usual = {.disk = true, .vsock = true};

static void test_the_root(struct agent_suite *suite)
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
		agent_expect(suite, cases[i].name, &(struct agent_command){.script = cases[i].script},
			AGENT_EXITED, 0, cases[i].out);
}

static void test_identity(struct agent_suite *suite)
{
	struct agent_result result;
	char got[64];
	int64_t ahead;

	agent_expect(suite, "the host name", &(struct agent_command){.script = "hostname"}, AGENT_EXITED, 0,
		"box-42.test\n");
	agent_expect(suite, "the machine id", &(struct agent_command){.script = "cat /etc/machine-id"},
		AGENT_EXITED, 0, "a0a1a2a3a4a5a6a7a8a9aaabacadaeaf\n");
	agent_run(suite, &(struct agent_command){.script = "date +%s"}, &result);
	ahead = strtoll(result.out, NULL, 10) - 86400 - (int64_t)time(NULL);
	snprintf(got, sizeof(got), "%lld s ahead", (long long)ahead);
	agent_report(suite, ahead >= -5 && ahead <= 30, "the clock", got);
	agent_expect(suite, "getrandom does not wait",
		&(struct agent_command){.script = "head -c 16 /dev/random | wc -c", .deadline_ms = 5000},
		AGENT_EXITED, 0, "16\n");
}

static void test_limits(struct agent_suite *suite)
{
	agent_expect(suite, "out of memory is told apart",
		&(struct agent_command){.script = "exec tail /dev/zero", .memory_max = 16 << 20},
		AGENT_OUT_OF_MEMORY, SIGKILL, "");
	agent_expect(suite, "KILL from inside is a signal, not out of memory",
		&(struct agent_command){.script = "kill -KILL $$", .memory_max = 16 << 20}, AGENT_SIGNALLED,
		SIGKILL, "");
	agent_expect(suite, "a limit does not stay with the cgroup",
		&(struct agent_command){
			.script = "cat /sys/fs/cgroup/$(cut -d: -f3 /proc/self/cgroup)/memory.max"},
		AGENT_EXITED, 0, "max\n");
	agent_expect(suite, "out of memory of a child is the command's own affair",
		&(struct agent_command){
			.script = "exec 2>/dev/null; (exec tail /dev/zero); echo $?", .memory_max = 16 << 20},
		AGENT_EXITED, 0, "137\n");
	agent_expect(suite, "an end to fork bombs",
		&(struct agent_command){
			.script = "sleep 1 & sleep 1 & sleep 1 & sleep 1 & wait", .pids_max = 3},
		AGENT_EXITED, 2, NULL);
}

static void test_the_end_of_a_tree(struct agent_suite *suite)
{
	agent_expect(suite, "a deadline ends a child that called setsid",
		&(struct agent_command){.script = "setsid sleep 777 & sleep 777", .deadline_ms = 300},
		AGENT_TIMED_OUT, 0, "");
	agent_expect(suite, "a leader's end ends its children",
		&(struct agent_command){.script = "setsid sleep 777 </dev/null >/dev/null 2>&1 &"},
		AGENT_EXITED, 0, "");
	/* Those two may need a moment to die; they are gone before sleep 1 is over. */
	agent_expect(suite, "they are gone, and reaped",
		&(struct agent_command){.script = "sleep 1; ps | grep -c '[s]leep 777'; grep -l '^State:.Z' "
						  "/proc/[0-9]*/status 2>/dev/null | wc -l"},
		AGENT_EXITED, 0, "0\n0\n");
	agent_expect(suite, "children are kept when asked",
		&(struct agent_command){
			.script = "sleep 778 </dev/null >/dev/null 2>&1 &", .flags = AGENT_NEW_KEEP_CHILDREN},
		AGENT_EXITED, 0, "");
	agent_expect(suite, "they are there", &(struct agent_command){.script = "ps | grep -c '[s]leep 778'"},
		AGENT_EXITED, 0, "1\n");
	agent_expect(suite, "orphans are reaped",
		&(struct agent_command){
			.script = "i=0; while [ $i -lt 20 ]; do (true &) ; i=$((i+1)); done; sleep 0.5; "
				  "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l"},
		AGENT_EXITED, 0, "0\n");
	agent_expect(suite, "a command cannot end PID 1",
		&(struct agent_command){
			.script = "kill -KILL 1; kill -SEGV 1; kill -HUP 1; sleep 0.1; echo on"},
		AGENT_EXITED, 0, "on\n");
}

static void test_users(struct agent_suite *suite)
{
	agent_expect(suite, "a terminal",
		&(struct agent_command){.script = "tty && stty size && : </dev/tty", .flags = AGENT_NEW_TTY},
		AGENT_EXITED, 0, "/dev/pts/0\r\n24 80\r\n");
	agent_expect(suite, "another user's terminal is its own",
		&(struct agent_command){
			.script = "stat -c %U $(tty)", .user = "agent", .flags = AGENT_NEW_TTY},
		AGENT_EXITED, 0, "agent\r\n");
	agent_expect(suite, "another user has its ids and no way back",
		&(struct agent_command){.script = CLEAN
					"id -u; id -g; id -G; cat /root/x 2>&1 | grep -c denied; "
					"kill -TERM 1 2>/dev/null; echo $?; echo $HOME",
			.user = "agent"},
		AGENT_EXITED, 0, "1000\n1000\n1000\n1\n1\n/home/agent\n");
	agent_expect(suite, "root without a look-up, and with",
		&(struct agent_command){.script = "id -u; echo $HOME"}, AGENT_EXITED, 0, "0\n/root\n");
	agent_expect(suite, "a user that is not there",
		&(struct agent_command){.script = "true", .user = "no-one"}, AGENT_FAILED_TO_START, ENOENT,
		"");
}

/* More than every buffer on the way holds, both ways at once. */
static void test_transfer(struct agent_suite *suite)
{
	static uint8_t data[AGENT_DATA_MAX];
	struct agent_command command = {.script = "cat", .flags = AGENT_NEW_STDIN};
	struct agent_started started;
	struct agent_credit credit = {0};
	struct agent_result result = {0};
	uint64_t sent = 0, checksum = 0, allowed = 0;
	struct agent_stream stream;
	struct frame frame;
	char got[96];

	if (agent_open_stream(suite, &stream))
		agent_send_new(&stream, &command);
	while (sent < TRANSFER_BYTES && agent_next_frame(stream.fd, &stream.reader, &frame) == 1) {
		if (frame.type == AGENT_STARTED) {
			memcpy(&started, frame.payload, sizeof(started));
			allowed = started.stdin_credit;
		} else if (frame.type == AGENT_STDIN_CREDIT) {
			memcpy(&credit, frame.payload, sizeof(credit));
			allowed += credit.bytes;
		} else if (frame.type == AGENT_STDOUT) {
			agent_note_output(&result, &frame);
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
	agent_finish(&stream, &result);
	snprintf(got, sizeof(got), "complete %d, %llu bytes, checksum %s", result.complete,
		(unsigned long long)result.total, result.checksum == checksum ? "right" : "wrong");
	agent_report(suite,
		result.complete && result.total == TRANSFER_BYTES && result.checksum == checksum &&
			result.exit.kind == AGENT_EXITED,
		"4 MiB through cat are identical", got);
}

/* A command sees TERM and has its grace; its stream gets all it wrote, and EXIT. */
static void test_shutdown(struct agent_suite *suite, struct agent_machine *machine)
{
	struct agent_command command = {
		.script = "exec 2>/dev/null; trap 'echo asked; exit 3' TERM; echo ready; "
			  "while :; do sleep 0.05; done"};
	struct agent_result result = {0};
	struct agent_stream stream;
	struct frame frame;
	char got[AGENT_RESULT_MAX + 64];
	int status;

	if (agent_open_stream(suite, &stream))
		agent_send_new(&stream, &command);
	while (agent_next_frame(stream.fd, &stream.reader, &frame) == 1 && frame.type != AGENT_STDOUT)
		;
	agent_ask_shutdown(machine, 20000);
	agent_finish(&stream, &result);
	snprintf(got, sizeof(got), "complete %d kind %d: %s", result.complete, result.exit.kind, result.out);
	agent_report(suite,
		result.complete && result.exit.kind == AGENT_KILLED && strcmp(result.out, "asked\n") == 0,
		"at shutdown a command has its grace", got);
	status = agent_await_end(machine);
	snprintf(got, sizeof(got), "status %d", status);
	agent_report(suite, status == suite->off, "then the guest powers off", got);
}

static void test_main_guest(struct agent_suite *suite)
{
	struct agent_machine machine;
	bool up = agent_start(suite, &machine, &usual);

	agent_report(
		suite, up && machine.warnings[0] == '\0', "HELLO, and nothing is missing", machine.warnings);
	if (up) {
		agent_report(suite, agent_give_identity(&machine), "identity is taken", "a failure");
		test_identity(suite);
		test_the_root(suite);
		test_limits(suite);
		test_the_end_of_a_tree(suite);
		test_users(suite);
		test_transfer(suite);
		test_shutdown(suite, &machine);
	}
	agent_await_end(&machine);
}

/* What busybox's poweroff and reboot send to PID 1. */
static void test_signal(struct agent_suite *suite, const char *name, const char *script, int wanted)
{
	struct agent_command command = {.script = script};
	struct agent_machine machine;
	struct agent_result result;
	char got[32] = "no guest";
	int status = -1;

	if (agent_start(suite, &machine, &usual) && agent_give_identity(&machine)) {
		agent_run(suite, &command, &result);
		status = agent_await_end(&machine);
		snprintf(got, sizeof(got), "status %d", status);
	} else {
		agent_await_end(&machine);
	}
	agent_report(suite, status == wanted, name, got);
}

static void test_without_a_disk(struct agent_suite *suite)
{
	static const char wanted[] =
		"root: no base at /dev/vda (No such file or directory): the initramfs stays the root\n";
	struct agent_command command = {.script = "true"};
	struct agent_machine machine;
	struct agent_result result;
	char got[64];
	bool up = agent_start(suite, &machine, &(const struct agent_boot){.vsock = true});

	agent_report(suite, up && strcmp(machine.warnings, wanted) == 0, "a missing disk is named in HELLO",
		machine.warnings);
	if (up && agent_give_identity(&machine)) {
		agent_run(suite, &command, &result);
		snprintf(got, sizeof(got), "kind %d code %d", result.exit.kind, result.exit.code);
		agent_report(suite, result.exit.kind == AGENT_FAILED_TO_START && result.exit.code == ENOENT,
			"commands are served from the initramfs, where there is no shell", got);
		agent_ask_shutdown(&machine, 0);
	}
	agent_report(suite, agent_await_end(&machine) == suite->off, "such a guest powers off too",
		"another status");
}

static bool make_file_system(const char *path)
{
	char command[256];
	int status;

	snprintf(command, sizeof(command), "mke2fs -q -F -t ext4 %s 16M >/dev/null 2>&1", path);
	status = system(command); /* NOLINT(cert-env33-c): a path of our own */
	return status == 0;
}

/* What nobody has synced is there after a power cut, for the host has asked for it. */
static void test_held(struct agent_suite *suite, const struct agent_boot *boot)
{
	static const struct agent_command write = {
		.script = "echo y >/held; mkdir /more; echo z >/more/held"};
	static const struct agent_command read = {.script = "cat /held /more/held"};
	struct agent_machine machine;
	bool up = agent_start(suite, &machine, boot) && agent_give_identity(&machine);
	int held = -1;
	char got[32];

	if (up) {
		agent_expect(suite, "more is written", &write, AGENT_EXITED, 0, "");
		held = agent_hold(&machine);
		kill(machine.pid, SIGKILL);
	}
	snprintf(got, sizeof(got), "status %d", held);
	agent_report(suite, held == 0, "the files are held", got);
	agent_await_end(&machine);
	up = agent_start(suite, &machine, boot) && agent_give_identity(&machine);
	agent_report(suite, up, "a guest after a power cut", machine.warnings);
	if (up) {
		agent_expect(suite, "has them", &read, AGENT_EXITED, 0, "y\nz\n");
		agent_ask_shutdown(&machine, 0);
	}
	agent_await_end(&machine);
}

/* A private layer on a disk, here a copy-on-write one, outlives its guest; one in memory does not. */
static void test_upper(struct agent_suite *suite)
{
	static const struct agent_command write = {
		.script = "cat /kept 2>/dev/null; echo x >>/kept; rm -f /etc/group"};
	static const struct agent_command read = {.script = "cat /kept; ls /etc/group 2>/dev/null | wc -l"};
	struct agent_machine machine;
	char path[96], upper[112], disk[224];
	const struct agent_boot boot = {.disk = true, .vsock = true, .upper = disk};

	snprintf(path, sizeof(path), "%s/lower", suite->folder);
	snprintf(upper, sizeof(upper), "%s/upper", suite->folder);
	snprintf(disk, sizeof(disk), "%s,cow=%s", path, upper);
	agent_report(suite, make_file_system(path), "mke2fs makes a file system",
		"a failure (is e2fsprogs there?)");
	for (int i = 0; i < 2; i++) {
		bool up = agent_start(suite, &machine, &boot) && agent_give_identity(&machine);

		agent_report(suite, up && machine.warnings[0] == '\0', "a private layer on ext4",
			machine.warnings);
		if (up && i == 0)
			agent_expect(suite, "it is written to", &write, AGENT_EXITED, 0, "");
		else if (up)
			agent_expect(suite, "it outlives its guest", &read, AGENT_EXITED, 0, "x\n0\n");
		if (up)
			agent_ask_shutdown(&machine, 1000);
		agent_await_end(&machine);
	}
	test_held(suite, &boot);
	unlink(path);
	unlink(upper);
}

/* Nobody can talk to it: the serial line is where it says so, and it stays up. */
static void test_without_vsock(struct agent_suite *suite)
{
	const struct timespec pause = {.tv_nsec = 100 * 1000000};
	static char text[64 * 1024];
	const char *found = NULL;
	pid_t pid = fork();
	bool alive;

	if (pid == 0)
		agent_exec_vmm(suite, &(const struct agent_boot){.disk = true});
	for (int waited = 0; !found && waited < AGENT_LIMIT_MS; waited += 100) {
		int fd = open(suite->serial, O_RDONLY | O_CLOEXEC);
		ssize_t n = fd >= 0 ? io_read_full(fd, text, sizeof(text) - 1) : 0;

		fd_close(&fd);
		text[n > 0 ? n : 0] = '\0';
		found = strstr(text, "guest-init: warning: vsock: no way to the host: No such device");
		nanosleep(&pause, NULL);
	}
	agent_report(suite, found, "a missing vsock device is named", "no such line on the serial port");
	alive = waitpid(pid, NULL, WNOHANG) == 0;
	agent_report(suite, alive, "and the guest stays up", "it ended");
	if (alive) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
}

int main(int argc, char **argv)
{
	struct agent_suite suite = {0};

	if (argc < 5 || argc > 5 + AGENT_OPTIONS_MAX) {
		fprintf(stderr, "usage: agent VMM KERNEL INITRD BASE [OPTION-OF-VMM]...\n");
		return 2;
	}
	suite = (struct agent_suite){.vmm = argv[1],
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
