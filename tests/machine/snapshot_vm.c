/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/machine/snapshot_vm.h"
#include "common/io.h"
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
#include <unistd.h>

static int make_file(const char *name)
{
	int fd = memfd_create(name, MFD_ALLOW_SEALING);

	if (fd < 0) {
		perror("memfd_create");
		exit(1);
	}
	return fd;
}

void snapshot_files_make(struct snapshot_files *files)
{
	*files = (struct snapshot_files){
		.state = make_file("state"), .memory = make_file("memory"), .disk = -1};
}

void snapshot_files_close(struct snapshot_files *files)
{
	fd_close(&files->state);
	fd_close(&files->memory);
	fd_close(&files->disk);
}

void snapshot_files_seal(const struct snapshot_files *files)
{
	if (fcntl(files->memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		perror("F_ADD_SEALS");
		exit(1);
	}
}

uint8_t *snapshot_files_state(const struct snapshot_files *files, size_t *length)
{
	struct stat status = {.st_size = 0};
	uint8_t *data;

	(void)fstat(files->state, &status);
	data = malloc((size_t)status.st_size + 1);
	*length = (size_t)status.st_size;
	if (!data || io_pread_full(files->state, data, *length, 0) != (ssize_t)*length) {
		perror("state");
		exit(1);
	}
	return data;
}

int snapshot_vm_save_into(struct machine *machine, uint64_t flags, const struct snapshot_files *files,
	struct vmm_message *reply)
{
	struct vmm_message request = {.type = VMM_SAVE, .sequence = ++machine->sequence, .arg0 = flags};
	const int fds[VMM_SAVE_FDS_MAX] = {files->state, files->memory, files->disk};

	if (io_send_fds(machine->control, &request, sizeof(request), fds, flags & VMM_SAVE_DISK ? 3 : 2) <
			0 ||
		!machine_await_reply(machine, reply))
		return -ETIMEDOUT;
	return reply->status;
}

int snapshot_vm_save_as(
	struct machine *machine, uint64_t flags, struct snapshot_files *files, struct vmm_message *reply)
{
	snapshot_files_make(files);
	if (flags & VMM_SAVE_DISK)
		files->disk = make_file("disk");
	return snapshot_vm_save_into(machine, flags, files, reply);
}

int snapshot_vm_save(struct machine *machine, struct snapshot_files *files, struct vmm_message *reply)
{
	return snapshot_vm_save_as(machine, 0, files, reply);
}

bool snapshot_vm_take(
	struct suite *suite, struct machine *machine, const char *name, struct snapshot_files *files)
{
	return snapshot_vm_take_as(suite, machine, 0, name, files);
}

bool snapshot_vm_take_as(struct suite *suite, struct machine *machine, uint64_t flags, const char *name,
	struct snapshot_files *files)
{
	struct vmm_message reply = {.status = 0};
	char output[MACHINE_OUTPUT_MAX];
	bool done;

	*files = (struct snapshot_files){.state = -1, .memory = -1, .disk = -1};
	done = machine_ask(machine, VMM_PAUSE, &reply) &&
	       snapshot_vm_save_as(machine, flags, files, &reply) == 0;
	if (!done)
		suite_report(suite, false, name, "pause or save: status %d, %s", reply.status, reply.text);
	kill(machine->pid, SIGKILL);
	machine_finish(machine, output);
	if (!done)
		printf("#   it said: %s\n", output);
	return done;
}

/* restore: the value of --restore; NULL: standby. */
static void run_vmm(const struct suite *suite, const char *restore, int control, const char *const *options)
{
	const char *argv[MACHINE_OPTIONS_MAX + 8] = {suite->vmm};
	char control_name[16];
	int n = 1;

	argv[n++] = restore ? "--restore" : "--standby";
	if (restore)
		argv[n++] = restore;
	snprintf(control_name, sizeof(control_name), "fd:%d", control);
	fd_set_cloexec(control, 0);
	argv[n++] = "--control";
	argv[n++] = control_name;
	for (int i = 0; options && i < MACHINE_OPTIONS_MAX && options[i]; i++)
		argv[n++] = options[i];
	/* However this test ends, no VM outlives it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(suite->vmm, (char *const *)argv);
	_exit(127);
}

static bool start(
	struct suite *suite, const char *restore, const char *const *options, struct machine *machine)
{
	int sockets[2] = {-1, -1}, pipes[2];

	*machine = (struct machine){.pid = -1, .control = -1, .errors = -1};
	if (pipe2(pipes, O_CLOEXEC) < 0 ||
		socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
		suite_report(suite, false, "restore", "cannot start it: %s", strerror(errno));
		return false;
	}
	machine->control = sockets[0];
	machine->errors = pipes[0];
	machine->pid = fork();
	if (machine->pid == 0) {
		dup2(pipes[1], STDERR_FILENO);
		run_vmm(suite, restore, sockets[1], options);
	}
	fd_close(&sockets[1]);
	fd_close(&pipes[1]);
	return machine->pid > 0;
}

bool snapshot_vm_restore(struct suite *suite, const struct snapshot_files *files, const char *const *options,
	struct machine *machine)
{
	char restore[64];

	snprintf(restore, sizeof(restore), "fd:%d,memory=fd:%d", files->state, files->memory);
	return start(suite, restore, options, machine);
}

bool snapshot_vm_restore_with(
	struct suite *suite, const struct snapshot_files *files, int working_set, struct machine *machine)
{
	char restore[96];

	snprintf(restore, sizeof(restore), "fd:%d,memory=fd:%d,working-set=fd:%d", files->state,
		files->memory, working_set);
	return start(suite, restore, NULL, machine);
}

bool snapshot_vm_restore_upon(struct suite *suite, int base, const struct snapshot_files *files,
	const char *const *options, struct machine *machine)
{
	char restore[96];

	snprintf(restore, sizeof(restore), "fd:%d,memory=fd:%d,pages=fd:%d", files->state, base,
		files->memory);
	return start(suite, restore, options, machine);
}

bool snapshot_vm_stand_by(struct suite *suite, const char *const *options, struct machine *machine)
{
	struct vmm_message event;

	return start(suite, NULL, options, machine) &&
	       machine_await_state(machine, VMM_STATE_STANDBY, &event);
}

int snapshot_vm_order(struct machine *machine, struct vmm_message *order, const int *fds, unsigned count)
{
	struct vmm_message reply;

	order->type = VMM_RESTORE;
	order->sequence = ++machine->sequence;
	if (io_send_fds(machine->control, order, sizeof(*order), fds, count) < 0 ||
		!machine_await_reply(machine, &reply))
		return -ETIMEDOUT;
	return reply.status;
}

int snapshot_vm_count_ends(struct suite *suite, const struct snapshot_files *files, int count, int status)
{
	struct machine clones[SNAPSHOT_VM_CLONES_MAX];
	char output[MACHINE_OUTPUT_MAX];
	int started = 0, right = 0;

	while (started < count && snapshot_vm_restore(suite, files, NULL, &clones[started]))
		started++;
	for (int i = 0; i < started; i++) {
		right += machine_finish(&clones[i], output) == status;
		for (int j = i + 1; j < started && right <= i; j++)
			kill(clones[j].pid, SIGKILL);
	}
	return right;
}

/* The next message, with its fd or -1; false: none within the limit. */
static bool receive(struct machine *machine, struct vmm_message *message, int *fd)
{
	struct pollfd wait = {.fd = machine->control, .events = POLLIN};
	size_t count = 1;

	*fd = -1;
	return poll(&wait, 1, MACHINE_LIMIT_MS) == 1 &&
	       io_receive_fds(machine->control, message, sizeof(*message), fd, &count) ==
		       (ssize_t)sizeof(*message);
}

int snapshot_vm_connect(struct machine *machine, uint32_t port)
{
	struct vmm_message message = {.type = VMM_CONNECT, .sequence = ++machine->sequence, .arg0 = port};
	int fd = -1;

	if (io_send_fds(machine->control, &message, sizeof(message), NULL, 0) < 0)
		return -EPIPE;
	do {
		fd_close(&fd);
		if (!receive(machine, &message, &fd))
			return -ETIMEDOUT;
	} while (message.sequence != machine->sequence);
	return message.status < 0 ? message.status : fd;
}

int snapshot_vm_await_stream(struct machine *machine, uint32_t port)
{
	struct vmm_message message;
	int fd = -1;

	do {
		fd_close(&fd);
		if (!receive(machine, &message, &fd) ||
			(message.type == VMM_EVENT_STATE && message.arg0 == VMM_STATE_ENDED))
			return -ETIMEDOUT;
	} while (message.type != VMM_EVENT_STREAM || message.arg0 != port);
	return fd;
}

ssize_t snapshot_vm_read(int fd, void *data, size_t length)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	return poll(&wait, 1, MACHINE_LIMIT_MS) == 1 ? read(fd, data, length) : -ETIMEDOUT;
}

bool snapshot_vm_command(struct machine *machine, uint32_t port, const char *line, char *answer, size_t size)
{
	int fd = snapshot_vm_connect(machine, port);
	size_t length = 0;

	answer[0] = '\0';
	if (fd < 0) {
		snprintf(answer, size, "no stream: %s", strerror(-fd));
		return false;
	}
	if (io_write_all(fd, line, strlen(line)) == 0)
		while (length < size - 1) {
			ssize_t n = snapshot_vm_read(fd, answer + length, size - 1 - length);

			if (n <= 0)
				break;
			length += (size_t)n;
		}
	answer[length] = '\0';
	close(fd);
	return length > 0;
}
