/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of vmm before Linux's own drivers: a guest (devices_guest.c) does what it is told over vsock,
 * and this side compares. TAP on standard output; when something failed, the guest's console on standard
 * error. Usage: devices VMM KERNEL INITRAMFS [OPTION-OF-VMM]...
 *
 * The options say what the guest must find: --mem, --cpus, and with --boot mptable its lines and its ends.
 */
#include "tests/machine/devices.h"
#include "common/parse.h"
#include "common/proto_vmm.h"
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	CHUNK = 64 * 1024,
	LIMIT_MS = 60000, /* for any one answer, in an emulated machine on a loaded host */
	STEP_MS = 100,
	DISK_BYTES = 4 * 1024 * 1024,
	ECHO_BYTES = 4 * 1024 * 1024,
	POUR_BYTES = 2 * 1024 * 1024,
	STREAMS = 24,
	STREAM_BYTES = 100 * 1000,
	CALL_PORT = 5000,
	CALL_BYTES = 1024 * 1024,
	RANDOM_BYTES = 16 * 1024, /* each 64 are a request */
	OPTIONS_MAX = 16,
	MIB = 1 << 20,
	HOLE_MIB = 3072, /* memory above this lies above 4 GiB */
	KERNEL_MIB = 24, /* what a kernel keeps at most of what it is given, and */
	PAGE_SHARE = 48, /* one part in that many, for its own books of the pages */
	HIGH_PAGES = CHUNK / 4096,
};

struct test {
	const char *vmm, *kernel, *initramfs;
	char **options;	 /* up to NULL */
	uint64_t memory; /* MiB */
	uint64_t cpus;
	bool mptable;
	char folder[32], vsock[64], base[64], disk[64], console[64];
	pid_t pid;
	int ready; /* listens for the guest */
	int count, failed;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void report(struct test *test, bool ok, const char *name, const char *why)
{
	test->count++;
	test->failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", test->count, name);
	if (!ok)
		printf("#   %s\n", why);
	fflush(stdout);
}

/* host sockets */

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static int listen_at(struct test *test, unsigned port)
{
	char path[80];
	struct sockaddr_un address;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(path, sizeof(path), "%s_%u", test->vsock, port);
	unlink(path);
	address = address_of(path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 8) < 0)
		die(path);
	return fd;
}

static bool wait_for(int fd, short events)
{
	struct pollfd pollfd = {.fd = fd, .events = events};

	return poll(&pollfd, 1, LIMIT_MS) == 1;
}

/* A line without its newline; false: none within the limit. */
static bool read_line(int fd, char *line, size_t size)
{
	size_t length = 0;

	while (length < size - 1 && wait_for(fd, POLLIN) && read(fd, line + length, 1) == 1) {
		if (line[length] == '\n') {
			line[length] = '\0';
			return true;
		}
		length++;
	}
	line[length] = '\0';
	return false;
}

/* A stream to the guest, joined; -1: not. */
static int connect_guest(struct test *test, unsigned port)
{
	struct sockaddr_un address = address_of(test->vsock);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	char line[DEVICES_LINE_MAX], wanted[DEVICES_LINE_MAX];

	snprintf(wanted, sizeof(wanted), "OK %u", port);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die(test->vsock);
	dprintf(fd, "CONNECT %u\n", port);
	if (read_line(fd, line, sizeof(line)) && strcmp(line, wanted) == 0)
		return fd;
	close(fd);
	return -1;
}

static int start_command(struct test *test, const char *command)
{
	int fd = connect_guest(test, DEVICES_PORT);

	if (fd >= 0)
		dprintf(fd, "%s\n", command);
	return fd;
}

/* Tells the guest and expects that answer. */
static void expect_answer(struct test *test, const char *name, const char *command, const char *wanted)
{
	char line[DEVICES_LINE_MAX] = "", why[3 * DEVICES_LINE_MAX];
	int fd = start_command(test, command);
	bool ok = fd >= 0 && read_line(fd, line, sizeof(line)) && strcmp(line, wanted) == 0;

	snprintf(why, sizeof(why), "%s: \"%s\", not \"%s\"", command, line, wanted);
	report(test, ok, name, why);
	if (fd >= 0)
		close(fd);
}

/* Reads to the end and compares with the pattern. False: other bytes, or another number of them. */
static bool read_pattern(int fd, uint64_t length)
{
	static uint8_t chunk[CHUNK], wanted[CHUNK];
	uint64_t offset = 0;
	ssize_t got = -1;

	while (wait_for(fd, POLLIN) && (got = read(fd, chunk, sizeof(chunk))) > 0) {
		devices_pattern(wanted, offset, (size_t)got);
		if (memcmp(chunk, wanted, (size_t)got) != 0)
			return false;
		offset += (uint64_t)got;
		got = -1;
	}
	return got == 0 && offset == length;
}

/* A child sends, so that reading and writing do not wait for each other. */
static pid_t send_pattern(int fd, uint64_t length)
{
	static uint8_t chunk[CHUNK];
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	for (uint64_t offset = 0; offset < length;) {
		size_t run = length - offset < CHUNK ? (size_t)(length - offset) : CHUNK;
		ssize_t written;

		devices_pattern(chunk, offset, run);
		written = send(fd, chunk, run, MSG_NOSIGNAL);
		if (written <= 0)
			_exit(1);
		offset += (uint64_t)written;
	}
	shutdown(fd, SHUT_WR);
	_exit(0);
}

/* the machine */

static void make_disk(const char *path, uint64_t seed)
{
	static uint8_t chunk[CHUNK];
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

	for (unsigned i = 0; i < DISK_BYTES / CHUNK; i++) {
		devices_pattern(chunk, seed + (uint64_t)i * CHUNK, CHUNK);
		if (write(fd, chunk, CHUNK) != CHUNK)
			die(path);
	}
	close(fd);
}

static uint64_t sum_file(const char *path)
{
	static uint8_t chunk[CHUNK];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t sum = DEVICES_SUM_START;
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) > 0)
		sum = devices_sum(sum, chunk, (size_t)got);
	close(fd);
	return sum;
}

static void start_machine(struct test *test)
{
	char base[96], disk[96];
	const char *argv[OPTIONS_MAX + 20] = {test->vmm, "--kernel", test->kernel, "--initrd",
		test->initramfs, "--disk", base, "--disk", disk, "--vsock", test->vsock, "--serial",
		test->console};
	int count = 13;

	for (int i = 0; i < OPTIONS_MAX && test->options[i]; i++)
		argv[count++] = test->options[i];
	strcpy(test->folder, "/tmp/devices-XXXXXX");
	if (!mkdtemp(test->folder))
		die(test->folder);
	snprintf(test->console, sizeof(test->console), "%s/console", test->folder);
	snprintf(test->vsock, sizeof(test->vsock), "%s/vsock", test->folder);
	snprintf(test->base, sizeof(test->base), "%s/base", test->folder);
	snprintf(test->disk, sizeof(test->disk), "%s/disk", test->folder);
	snprintf(base, sizeof(base), "%s,ro,id=the-base", test->base);
	snprintf(disk, sizeof(disk), "%s,id=the-disk-0123456789x", test->disk);
	make_disk(test->base, 1000003);
	make_disk(test->disk, 2000003);
	test->ready = listen_at(test, DEVICES_READY_PORT);
	test->pid = fork();
	if (test->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execv(test->vmm, (char *const *)argv);
		die(test->vmm);
	}
}

/* The cases. */

static bool test_boot(struct test *test)
{
	int fd = -1;

	/* in steps, to see a machine that has ended */
	for (int waited = 0; fd < 0 && waited < LIMIT_MS && waitpid(test->pid, NULL, WNOHANG) == 0;
		waited += STEP_MS) {
		struct pollfd pollfd = {.fd = test->ready, .events = POLLIN};

		if (poll(&pollfd, 1, STEP_MS) == 1)
			fd = accept(test->ready, NULL, NULL);
	}
	report(test, fd >= 0, "the guest connects to the host when it is up", "it did not");
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void test_machine(struct test *test)
{
	uint64_t cpus = 0, memory = 0, least = test->memory - KERNEL_MIB - test->memory / PAGE_SHARE;
	char line[DEVICES_LINE_MAX] = "";
	int fd = start_command(test, "machine");

	if (fd >= 0 && read_line(fd, line, sizeof(line)))
		(void)sscanf(line, "%" SCNu64 " %" SCNu64, &cpus, &memory);
	report(test, cpus == test->cpus, "the guest has its processors", line);
	report(test, memory >= least && memory < test->memory, "and its memory", line);
	close(fd);
}

/* The device writes to memory above 4 GiB, which a guest that has some takes first. */
static void test_high_memory(struct test *test)
{
	char wanted[DEVICES_LINE_MAX];

	if (test->memory <= HOLE_MIB)
		return;
	snprintf(wanted, sizeof(wanted), "%d %016" PRIx64, HIGH_PAGES, sum_file(test->base));
	expect_answer(test, "a disk is read into memory above 4 GiB", "high /dev/vda", wanted);
}

/* Device N has pin N + 1, or one more where the serial line is before it, and each has interrupted by now. */
static void test_lines(struct test *test)
{
	if (test->mptable)
		expect_answer(test, "the devices have the lines of the MP table", "lines",
			"1 virtio0, 2 virtio1, 3 virtio2, 5 virtio3");
}

static void test_disks(struct test *test)
{
	char wanted[DEVICES_LINE_MAX];
	uint64_t before = sum_file(test->base);

	snprintf(wanted, sizeof(wanted), "%d %016" PRIx64, DISK_BYTES, before);
	expect_answer(test, "the guest reads the read-only disk", "sum /dev/vda", wanted);
	expect_answer(test, "it may not write it", "fill /dev/vda", "/dev/vda: EPERM");
	report(test, sum_file(test->base) == before, "and it is as before", "it is not");
	expect_answer(test, "the disks have their serials", "serial vda", "the-base");
	expect_answer(test, "up to the longest", "serial vdb", "the-disk-0123456789x");
	snprintf(wanted, sizeof(wanted), "%d %016" PRIx64, DISK_BYTES, sum_file(test->disk));
	expect_answer(test, "the guest reads the other disk", "sum /dev/vdb", wanted);
	expect_answer(test, "and writes and syncs it", "fill /dev/vdb", "filled");
	make_disk(test->base, 0); /* the guest has it in its cache: only the file's bytes are wanted here */
	report(test, sum_file(test->disk) == sum_file(test->base), "the host finds those bytes",
		"it does not");
}

static void test_random(struct test *test)
{
	char command[DEVICES_LINE_MAX], line[DEVICES_LINE_MAX] = "";
	unsigned bytes = 0, zeros = RANDOM_BYTES;
	int fd;

	snprintf(command, sizeof(command), "random %d", RANDOM_BYTES);
	fd = start_command(test, command);
	if (fd >= 0 && read_line(fd, line, sizeof(line)))
		(void)sscanf(line, "%u %u", &bytes, &zeros);
	report(test, bytes == RANDOM_BYTES && zeros < RANDOM_BYTES / 128 && zeros > RANDOM_BYTES / 512,
		"the guest gets random bytes", line);
	close(fd);
}

static void test_echo(struct test *test)
{
	int fd = start_command(test, "echo"), status;
	pid_t pid = send_pattern(fd, ECHO_BYTES);

	report(test, read_pattern(fd, ECHO_BYTES), "bytes go both ways, with half-close", "they differ");
	report(test, waitpid(pid, &status, 0) == pid && status == 0, "and all were taken", "they were not");
	close(fd);
}

static void test_slow_reader(struct test *test)
{
	char command[DEVICES_LINE_MAX];
	int slow, fd;

	snprintf(command, sizeof(command), "pour %d", POUR_BYTES);
	slow = start_command(test, command);
	fd = start_command(test, "echo");
	dprintf(fd, "others are not held up");
	shutdown(fd, SHUT_WR);
	report(test, wait_for(fd, POLLIN), "a stream that nobody reads holds up no other", "it does");
	close(fd);
	report(test, read_pattern(slow, POUR_BYTES),
		"and its bytes arrive when they are read, though the guest has closed", "they do not");
	close(slow);
}

static void test_many(struct test *test)
{
	int fds[STREAMS];
	pid_t pids[STREAMS];
	unsigned good = 0;
	char why[64];

	for (unsigned i = 0; i < STREAMS; i++)
		fds[i] = start_command(test, "echo");
	for (unsigned i = 0; i < STREAMS; i++)
		pids[i] = send_pattern(fds[i], STREAM_BYTES);
	for (unsigned i = 0; i < STREAMS; i++) {
		/* the children hold copies of the fds, which end with them */
		good += read_pattern(fds[i], STREAM_BYTES);
		waitpid(pids[i], NULL, 0);
		close(fds[i]);
	}
	snprintf(why, sizeof(why), "%u of %d are", good, STREAMS);
	report(test, good == STREAMS, "many streams at once are whole", why);
}

static void test_calls(struct test *test)
{
	char command[DEVICES_LINE_MAX], line[DEVICES_LINE_MAX] = "";
	static uint8_t chunk[CHUNK];
	int listener = listen_at(test, CALL_PORT), fd, peer;
	ssize_t got;

	expect_answer(test, "a port of the host that nobody has resets", "call 5001 1", "ECONNRESET");
	snprintf(command, sizeof(command), "call %d %d", CALL_PORT, CALL_BYTES);
	fd = start_command(test, command);
	peer = wait_for(listener, POLLIN) ? accept(listener, NULL, NULL) : -1;
	while (peer >= 0 && wait_for(peer, POLLIN) && (got = read(peer, chunk, sizeof(chunk))) > 0)
		if (send(peer, chunk, (size_t)got, MSG_NOSIGNAL) != got)
			break;
	close(peer);
	(void)read_line(fd, line, sizeof(line));
	report(test, strcmp(line, "same") == 0, "the guest calls the host and gets its bytes back", line);
	close(fd);
	close(listener);
	fd = connect_guest(test, DEVICES_PORT + 1);
	report(test, fd < 0, "a port of the guest that nobody has closes the client", "it does not");
	if (fd >= 0)
		close(fd);
}

static void expect_end(struct test *test, const char *name, enum vmm_end end)
{
	int status = -1;
	char why[64];

	waitpid(test->pid, &status, 0);
	test->pid = -1;
	snprintf(why, sizeof(why), "wait status %#x", (unsigned)status);
	report(test, WIFEXITED(status) && WEXITSTATUS(status) == (int)end, name, why);
}

static void end_by(struct test *test, const char *command, const char *name, enum vmm_end end)
{
	int fd = start_command(test, command);

	expect_end(test, name, end);
	close(fd);
}

/* True when the console has those words; in steps, within the limit. */
static bool console_says(const struct test *test, const char *words)
{
	char command[160];

	snprintf(command, sizeof(command), "grep -qF '%s' %s", words, test->console);
	for (int waited = 0; waited < LIMIT_MS; waited += STEP_MS) {
		if (system(command) == 0)
			return true;
		poll(NULL, 0, STEP_MS);
	}
	return false;
}

/* Leaves nothing: no VM, no file. */
static void clean_up(struct test *test)
{
	char command[96];

	if (test->pid > 0)
		kill(test->pid, SIGKILL);
	if (test->failed) {
		snprintf(command, sizeof(command), "cat %s >&2", test->console);
		(void)!system(command);
	}
	snprintf(command, sizeof(command), "rm -rf %s", test->folder);
	(void)!system(command);
}

static void restart_machine(struct test *test)
{
	clean_up(test);
	start_machine(test);
	if (!test_boot(test))
		exit(1);
}

/* Without a tree there is no register to power off by, and Linux halts instead, for ever. */
static void test_ends_without_tree(struct test *test)
{
	int fd;

	end_by(test, "reboot", "the guest reboots", VMM_END_REBOOT);
	restart_machine(test);
	end_by(test, "panic", "the guest panics, which reboots", VMM_END_REBOOT);
	report(test, console_says(test, "Kernel panic - not syncing"), "and says so", "it does not");
	restart_machine(test);
	fd = start_command(test, "off");
	report(test, console_says(test, "reboot: System halted"), "the guest halts", "it does not");
	report(test, waitpid(test->pid, NULL, WNOHANG) == 0, "which does not end the VM", "it does");
	kill(test->pid, SIGTERM);
	expect_end(test, "but a signal does", VMM_END_KILLED);
	close(fd);
}

static void test_end(struct test *test)
{
	if (test->mptable)
		test_ends_without_tree(test);
	else
		end_by(test, "off", "the guest powers off", VMM_END_POWEROFF);
	report(test, access(test->vsock, F_OK) < 0, "and the socket is gone", "it is not");
}

/* What of the options the guest must find. */
static void read_options(struct test *test)
{
	test->memory = 128;
	test->cpus = 1;
	for (char **option = test->options; option[0] && option[1]; option += 2) {
		if (strcmp(option[0], "--mem") == 0 &&
			parse_size(option[1], 1, UINT64_MAX, &test->memory) == 0)
			test->memory /= MIB;
		if (strcmp(option[0], "--cpus") == 0)
			(void)parse_u64(option[1], 1, UINT64_MAX, &test->cpus);
		if (strcmp(option[0], "--boot") == 0)
			test->mptable = strcmp(option[1], "mptable") == 0;
	}
}

int main(int argc, char **argv)
{
	struct test test = {0};

	if (argc < 4 || argc - 4 > OPTIONS_MAX)
		return 2;
	test.vmm = argv[1];
	test.kernel = argv[2];
	test.initramfs = argv[3];
	test.options = argv + 4;
	read_options(&test);
	start_machine(&test);
	if (test_boot(&test)) {
		test_machine(&test);
		test_high_memory(&test);
		test_disks(&test);
		test_random(&test);
		test_echo(&test);
		test_slow_reader(&test);
		test_many(&test);
		test_calls(&test);
		test_lines(&test);
		test_end(&test);
	}
	clean_up(&test);
	printf("1..%d\n", test.count);
	return test.failed != 0;
}
