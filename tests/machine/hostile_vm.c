/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/machine/hostile_vm.h"
#include "common/io.h"
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	PATTERN_STEP = 7, /* the disks' byte N is N * 7 */
	SECTOR = 512,
	ARGUMENTS_MAX = 48,
	HELP_MAX = 16384,
	MEMORY_MIB = 32,
	MESSAGE_FDS = 1,
	US_PER_MS = 1000,
	IDLE_MS = 60,
	IDLE_SHARE = 30, /* a hundredth each; what spins takes all */
};

uint64_t hostile_now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

/* --- files --- */

static int make_disk(const char *path)
{
	uint8_t *bytes = malloc(HOSTILE_DISK_BYTES);
	int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600), r = -EIO;

	for (size_t i = 0; bytes && i < HOSTILE_DISK_BYTES; i++)
		bytes[i] = (uint8_t)(i * PATTERN_STEP);
	if (bytes && fd >= 0)
		r = io_write_all(fd, bytes, HOSTILE_DISK_BYTES);
	fd_close(&fd);
	free(bytes);
	return r;
}

/* True when the first `checked` bytes are the pattern and the size is a disk's. */
static bool is_disk(const char *path, size_t checked)
{
	uint8_t *bytes = malloc(HOSTILE_DISK_BYTES + 1);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	bool ok = bytes && fd >= 0 &&
		  io_read_full(fd, bytes, HOSTILE_DISK_BYTES + 1) == (ssize_t)HOSTILE_DISK_BYTES;

	for (size_t i = 0; ok && i < checked; i++)
		ok = bytes[i] == (uint8_t)(i * PATTERN_STEP);
	fd_close(&fd);
	free(bytes);
	return ok;
}

const char *hostile_check_files(const struct hostile_setup *setup)
{
	if (!is_disk(setup->shared, HOSTILE_DISK_BYTES))
		return "the read-only disk has changed";
	if (!is_disk(setup->neighbour, HOSTILE_DISK_BYTES))
		return "a file beside the disks has changed";
	if (!is_disk(setup->private, SECTOR))
		return "the private disk has another size, or its first sector has changed";
	return NULL;
}

/* Devices that only newer ones have, by what --help lists. */
static void find_extra(struct hostile_setup *setup)
{
	static const char *const wanted[][2] = {{"  --net ", "--net=none"}, {"  --balloon", "--balloon"}};
	char command[512], *help = calloc(1, HELP_MAX);
	unsigned count = 0;
	FILE *pipe;

	snprintf(command, sizeof(command), "%s --help", setup->vmm);
	pipe = popen(command, "re");
	if (pipe && help) {
		(void)!fread(help, 1, HELP_MAX - 1, pipe);
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++)
			if (strstr(help, wanted[i][0]))
				setup->extra[count++] = wanted[i][1];
	}
	if (pipe)
		pclose(pipe);
	free(help);
}

int hostile_setup(struct hostile_setup *setup, const char *vmm, const char *guest)
{
	int r;

	*setup = (struct hostile_setup){.vmm = vmm, .guest = guest, .sanitized = strstr(vmm, "san") != NULL};
	strcpy(setup->folder, "/tmp/hostile-XXXXXX");
	if (!mkdtemp(setup->folder))
		return -errno;
	snprintf(setup->shared, sizeof(setup->shared), "%s/shared", setup->folder);
	snprintf(setup->private, sizeof(setup->private), "%s/private", setup->folder);
	snprintf(setup->neighbour, sizeof(setup->neighbour), "%s/private.1", setup->folder);
	r = make_disk(setup->shared);
	if (r == 0)
		r = make_disk(setup->private);
	if (r == 0)
		r = make_disk(setup->neighbour);
	find_extra(setup);
	return r;
}

void hostile_teardown(struct hostile_setup *setup)
{
	unlink(setup->shared);
	unlink(setup->private);
	unlink(setup->neighbour);
	rmdir(setup->folder);
}

/* --- start --- */

static void run_vmm(
	const struct hostile_setup *setup, const char *cmdline, const char *const *options, const int *fds)
{
	char serial[16], control[16], memory[16], shared[80];
	const char *argv[ARGUMENTS_MAX] = {setup->vmm, "--kernel", setup->guest, "--mem", memory, "--cmdline",
		cmdline, "--serial", serial, "--control", control, "--disk", shared, "--disk",
		setup->private};
	int n = 15;

	snprintf(memory, sizeof(memory), "%dM", MEMORY_MIB);
	snprintf(shared, sizeof(shared), "%s,ro", setup->shared);
	snprintf(serial, sizeof(serial), "fd:%d", fds[0]);
	snprintf(control, sizeof(control), "fd:%d", fds[1]);
	for (int i = 0; setup->extra[i]; i++)
		argv[n++] = setup->extra[i];
	for (int i = 0; options && options[i] && n < ARGUMENTS_MAX - 1; i++)
		argv[n++] = options[i];
	fd_set_cloexec(fds[0], 0);
	fd_set_cloexec(fds[1], 0);
	/* What is freed is kept for a while, which is not growth; what leaks is said at the end. */
	setenv("ASAN_OPTIONS", "quarantine_size_mb=1:exitcode=99", 1);
	/* However this test ends, no VM outlives it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(fds[2], STDERR_FILENO);
	execv(setup->vmm, (char *const *)argv);
	_exit(127);
}

bool hostile_start(struct hostile_vm *vm, const struct hostile_setup *setup, const char *cmdline,
	const char *const *options)
{
	int serial[2] = {-1, -1}, control[2] = {-1, -1}, errors[2] = {-1, -1};

	*vm = (struct hostile_vm){.setup = setup, .pid = -1, .control = -1, .serial = -1, .errors = -1};
	if (pipe2(serial, O_CLOEXEC) < 0 || pipe2(errors, O_CLOEXEC) < 0 ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0)
		return false;
	vm->serial = serial[0];
	vm->control = control[0];
	vm->errors = errors[0];
	vm->pid = fork();
	if (vm->pid == 0)
		run_vmm(setup, cmdline, options, (const int[]){serial[1], control[1], errors[1]});
	fd_close(&serial[1]);
	fd_close(&control[1]);
	fd_close(&errors[1]);
	fd_set_nonblock(vm->serial);
	fd_set_nonblock(vm->errors);
	return vm->pid > 0;
}

/* --- what it says --- */

/* Only the end is kept, for floods are longer than any buffer. */
static void keep_said(struct hostile_vm *vm, const char *bytes, size_t length)
{
	size_t room = sizeof(vm->said) - 1;

	if (length > room) {
		bytes += length - room;
		length = room;
	}
	if (vm->said_length + length > room) {
		size_t excess = vm->said_length + length - room;

		memmove(vm->said, vm->said + excess, vm->said_length - excess);
		vm->said_length -= excess;
	}
	memcpy(vm->said + vm->said_length, bytes, length);
	vm->said_length += length;
	for (size_t i = 0; i < vm->said_length; i++)
		if (vm->said[i] == '\0')
			vm->said[i] = '.';
	vm->said[vm->said_length] = '\0';
}

/* False: at its end. */
static bool read_serial(struct hostile_vm *vm)
{
	char bytes[HOSTILE_SAID_MAX / 2];
	ssize_t n = read(vm->serial, bytes, sizeof(bytes));

	if (n > 0)
		keep_said(vm, bytes, (size_t)n);
	else if (n == 0)
		fd_close(&vm->serial);
	return vm->serial >= 0;
}

static void read_errors(struct hostile_vm *vm)
{
	size_t room = HOSTILE_ERRORS_MAX - vm->errors_length;
	char lost[4096];
	ssize_t n = room > 0 ? read(vm->errors, vm->error_text + vm->errors_length, room)
			     : read(vm->errors, lost, sizeof(lost));

	if (n > 0 && room > 0)
		vm->errors_length += (size_t)n;
	else if (n > 0)
		vm->errors_lost = true;
	else if (n == 0)
		fd_close(&vm->errors);
}

/* Events and what comes with them. False: the peer is gone. */
static bool read_control(struct hostile_vm *vm, struct vmm_message *message)
{
	int fd = -1;
	size_t count = MESSAGE_FDS;
	ssize_t n = io_receive_fds(vm->control, message, sizeof(*message), &fd, &count);

	if (count > 0 && n > 0)
		fd_close(&fd);
	if (n == (ssize_t)sizeof(*message))
		return true;
	if (n == 0 || n == -ECONNRESET)
		fd_close(&vm->control);
	return false;
}

/* One wait for whatever comes. False: nothing within the time. message: of the control socket, type 0: none.
 */
static bool turn(struct hostile_vm *vm, int timeout_ms, struct vmm_message *message)
{
	struct pollfd fds[] = {{.fd = vm->deaf ? -1 : vm->serial, .events = POLLIN},
		{.fd = vm->errors, .events = POLLIN}, {.fd = vm->control, .events = POLLIN}};

	message->type = 0;
	if (poll(fds, 3, timeout_ms) <= 0)
		return false;
	if (fds[0].revents)
		read_serial(vm);
	if (fds[1].revents)
		read_errors(vm);
	if (fds[2].revents && !read_control(vm, message))
		message->type = 0;
	return true;
}

static int left_ms(uint64_t end_us)
{
	uint64_t now = hostile_now_us();

	return now < end_us ? (int)((end_us - now) / US_PER_MS) + 1 : 0;
}

bool hostile_await(struct hostile_vm *vm, const char *word, const char *or_word, unsigned limit_ms)
{
	uint64_t end = hostile_now_us() + (uint64_t)limit_ms * US_PER_MS;
	struct vmm_message message;

	while (!strstr(vm->said, word) && !(or_word && strstr(vm->said, or_word)))
		if (vm->serial < 0 || left_ms(end) == 0 || !turn(vm, left_ms(end), &message))
			return false;
	return true;
}

void hostile_drain(struct hostile_vm *vm)
{
	struct vmm_message message;

	while ((vm->serial >= 0 || vm->errors >= 0 || vm->control >= 0) && turn(vm, 0, &message))
		;
}

void hostile_listen(struct hostile_vm *vm, unsigned ms)
{
	struct vmm_message message;
	uint64_t end = hostile_now_us() + (uint64_t)ms * US_PER_MS;

	while (left_ms(end) > 0)
		turn(vm, left_ms(end), &message);
}

static int64_t ask_with(
	struct hostile_vm *vm, uint32_t type, const int *fds, size_t count, struct vmm_message *reply)
{
	struct vmm_message request = {.type = type, .sequence = ++vm->sequence};
	uint64_t start = hostile_now_us(), end = start + (uint64_t)HOSTILE_LIMIT_MS * US_PER_MS;

	if (vm->control < 0 || io_send_fds(vm->control, &request, sizeof(request), fds, count) < 0)
		return -1;
	do
		if (vm->control < 0 || left_ms(end) == 0 || !turn(vm, left_ms(end), reply))
			return -1;
	while (reply->type != (type | VMM_REPLY) || reply->sequence != vm->sequence);
	return reply->status == 0 ? (int64_t)(hostile_now_us() - start) : -1;
}

int64_t hostile_ask(struct hostile_vm *vm, uint32_t type, struct vmm_message *reply)
{
	return ask_with(vm, type, NULL, 0, reply);
}

int64_t hostile_save(struct hostile_vm *vm, struct vmm_message *reply)
{
	int fds[] = {memfd_create("state", MFD_CLOEXEC), memfd_create("memory", MFD_CLOEXEC)};
	int64_t us = ask_with(vm, VMM_SAVE, fds, 2, reply);

	fd_close(&fds[0]);
	fd_close(&fds[1]);
	return us;
}

/* --- what it holds --- */

static unsigned count_entries(pid_t pid, const char *what)
{
	char path[64];
	unsigned count = 0;
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, what);
	folder = opendir(path);
	if (!folder)
		return 0;
	for (const struct dirent *entry = readdir(folder); entry; entry = readdir(folder))
		count += isdigit((unsigned char)entry->d_name[0]) != 0;
	closedir(folder);
	return count;
}

/* Of all mappings but the guest's, which is known by its size. */
static uint64_t sum_anonymous(pid_t pid)
{
	unsigned long size = 0, value;
	uint64_t sum = 0;
	char path[64], line[512];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "Size: %lu kB", &value) == 1)
			size = value;
		else if (sscanf(line, "Anonymous: %lu kB", &value) == 1 && size != MEMORY_MIB * 1024UL)
			sum += value;
	if (file)
		fclose(file);
	return sum;
}

/* CPU time of a process' first thread. */
static uint64_t read_loop_ns(pid_t pid)
{
	unsigned long long ns = 0;
	char path[64];
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", pid, pid);
	file = fopen(path, "re");
	if (file && fscanf(file, "%llu", &ns) != 1)
		ns = 0;
	if (file)
		fclose(file);
	return ns;
}

bool hostile_usage(const struct hostile_vm *vm, struct hostile_usage *usage)
{
	struct timespec used;
	clockid_t clock;

	if (clock_getcpuclockid(vm->pid, &clock) != 0 || clock_gettime(clock, &used) < 0)
		return false;
	usage->cpu_ns = (uint64_t)used.tv_sec * 1000000000 + (uint64_t)used.tv_nsec;
	usage->loop_ns = read_loop_ns(vm->pid);
	usage->fds = count_entries(vm->pid, "fd");
	usage->threads = count_entries(vm->pid, "task");
	usage->kib = sum_anonymous(vm->pid);
	return usage->fds > 0 && usage->kib > 0;
}

bool hostile_is_idle(const struct hostile_vm *vm, char why[HOSTILE_WHY_MAX])
{
	struct hostile_usage before, after;
	uint64_t used, start = hostile_now_us(), passed;

	if (!hostile_usage(vm, &before) || (usleep(IDLE_MS * 1000), !hostile_usage(vm, &after))) {
		snprintf(why, HOSTILE_WHY_MAX, "it is gone");
		return false;
	}
	passed = hostile_now_us() - start;
	used = (after.cpu_ns - before.cpu_ns) / 1000;
	snprintf(why, HOSTILE_WHY_MAX, "it uses %llu us of CPU time in %llu us, %llu of them in the loop",
		(unsigned long long)used, (unsigned long long)passed,
		(unsigned long long)(after.loop_ns - before.loop_ns) / 1000);
	return used <= passed * IDLE_SHARE / 100;
}

/* --- end --- */

int hostile_finish(struct hostile_vm *vm)
{
	uint64_t end = hostile_now_us() + (uint64_t)HOSTILE_LIMIT_MS * US_PER_MS;
	struct vmm_message message;
	bool killed = false;
	int status = 0;

	while (vm->errors >= 0 && left_ms(end) > 0)
		turn(vm, left_ms(end), &message);
	if (vm->errors >= 0) {
		kill(vm->pid, SIGKILL);
		killed = true;
	}
	waitpid(vm->pid, &status, 0);
	fd_close(&vm->errors);
	fd_close(&vm->serial);
	fd_close(&vm->control);
	if (killed)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

const char *hostile_last_line(struct hostile_vm *vm)
{
	char *line;

	while (vm->errors_length > 0 && vm->error_text[vm->errors_length - 1] == '\n')
		vm->errors_length--;
	vm->error_text[vm->errors_length] = '\0';
	line = strrchr(vm->error_text, '\n');
	return line ? line + 1 : vm->error_text;
}
