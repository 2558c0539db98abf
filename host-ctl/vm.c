/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm.h"
#include "common/io.h"
#include "common/log.h"
#include "common/unix_socket.h"
#include "host-ctl/cause.h"
#include "host-ctl/clock.h"
#include "host-ctl/launch.h"
#include "host-ctl/vm_private.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TO(state) (1u << (state))

static const struct {
	const char *name; /* in the API */
	const char *waits_for;
	unsigned int next; /* legal transitions */
} states[VM_STATE_COUNT] = {
	[VM_LAUNCHED] = {"starting", "the vmm to answer on its control socket",
		TO(VM_BOOTING) | TO(VM_ENDING)},
	[VM_BOOTING] = {"starting", "the guest's agent to say hello", TO(VM_HELLO) | TO(VM_ENDING)},
	[VM_HELLO] = {"starting", "the agent's hello on its stream", TO(VM_IDENTITY) | TO(VM_ENDING)},
	[VM_IDENTITY] = {"starting", "the agent to take its identity", TO(VM_CONNECTING) | TO(VM_ENDING)},
	[VM_CONNECTING] = {"starting", "a stream to the agent",
		TO(VM_REHEARSING) | TO(VM_WARM) | TO(VM_ENDING)},
	[VM_REHEARSING] = {"starting", "the sample command to end", TO(VM_CONNECTING) | TO(VM_ENDING)},
	[VM_WARM] = {"warm", "a run", TO(VM_BUSY) | TO(VM_ENDING)},
	[VM_BUSY] = {"busy", "the run to end", TO(VM_ENDING)},
	[VM_ENDING] = {"ending", "the process to end", 0},
};

static const char *const ends[VMM_END_COUNT] = {
	[VMM_END_POWEROFF] = "the guest powered off",
	[VMM_END_SETUP] = "the VM could not be set up",
	[VMM_END_USAGE] = "the vmm refused its command line",
	[VMM_END_PANIC] = "the guest's kernel panicked",
	[VMM_END_REBOOT] = "the guest rebooted",
	[VMM_END_TRIPLE_FAULT] = "the guest triple-faulted",
	[VMM_END_GUEST_FAULT] = "the guest did what the machine does not bear",
	[VMM_END_KVM] = "KVM failed",
	[VMM_END_KILLED] = "the vmm was told to end",
};

void vm_move(struct vm *vm, enum vm_state next)
{
	if (!(states[vm->state].next & TO(next)))
		log_error("%s: bug: from state %d to %d", vm->id, vm->state, next);
	vm->state = next;
}

const char *vm_state_name(const struct vm *vm)
{
	return states[vm->state].name;
}

bool vm_is_starting(const struct vm *vm)
{
	return vm->state < VM_WARM;
}

const char *vm_cause(const struct vm *vm)
{
	return vm->cause;
}

static void drop(struct loop_source **source, int *fd)
{
	loop_remove(*source);
	*source = NULL;
	fd_close(fd);
}

static void close_streams(struct vm *vm)
{
	drop(&vm->control_source, &vm->control);
	drop(&vm->agent_source, &vm->agent);
	if (!vm->session_events)
		drop(&vm->session_source, &vm->session);
}

static void socket_path(const struct vm *vm, char path[VM_SOCKET_MAX])
{
	snprintf(path, VM_SOCKET_MAX, "%s/%s", vm->config->socket_directory, vm->id);
}

/* Frees all that is left. The process is reaped, or was never there. */
static void destroy(struct vm *vm)
{
	char path[VM_SOCKET_MAX];

	vm->session_events = NULL;
	close_streams(vm);
	drop(&vm->pidfd_source, &vm->pidfd);
	drop(&vm->errors_source, &vm->errors);
	drop(&vm->group_source, &vm->group_events);
	loop_remove(vm->timer);
	frame_reader_finish(&vm->agent_reader);
	frame_reader_finish(&vm->session_reader);
	socket_path(vm, path);
	unlink(path);
	if (vm->group >= 0)
		cgroup_remove(vm->config->cgroups, vm->id);
	fd_close(&vm->group);
	free(vm);
}

/* Reports `gone` when process, cgroup and session are all done with. */
static void try_finish(struct vm *vm)
{
	if (!vm->reaped || vm->session_events || vm->group >= 0)
		return;
	vm->events->gone(vm->context, vm);
	destroy(vm);
}

/* 0 when it is gone or will never be; -EBUSY: not empty yet. */
static int remove_group(struct vm *vm)
{
	int status = cgroup_remove(vm->config->cgroups, vm->id);

	if (status == -EBUSY)
		return status;
	if (status)
		log_error("%s: cannot remove its cgroup: %s", vm->id, strerror(-status));
	drop(&vm->group_source, &vm->group_events);
	fd_close(&vm->group);
	return 0;
}

static void group_changed(void *context, uint32_t events)
{
	struct vm *vm = context;
	char text[256];

	(void)events;
	/* Reading takes note of the change; the next one wakes again. */
	if (pread(vm->group_events, text, sizeof text, 0) < 0)
		log_warn("%s: cannot read cgroup.events: %s", vm->id, strerror(errno));
	remove_group(vm);
	try_finish(vm);
}

/* The process is gone, but the kernel may still count it in the cgroup for a moment. */
static void begin_group_removal(struct vm *vm)
{
	if (!remove_group(vm))
		return;
	cgroup_kill(vm->group);
	vm->group_events = cgroup_open_events(vm->group);
	if (vm->group_events >= 0)
		vm->group_source =
			loop_add_fd(vm->config->loop, vm->group_events, EPOLLPRI, group_changed, vm);
	/* It may have emptied before it was watched. */
	if (!remove_group(vm) || vm->group_source)
		return;
	/* No fd to kill it by, or to watch it by. */
	fd_close(&vm->group_events);
	loop_set_timer(vm->timer, VM_GROUP_RETRY_MS * CLOCK_NS_PER_MS);
}

/* For a reaped one: what has kept it so far is tried again. */
static void finish_later(struct vm *vm)
{
	if (vm->group >= 0 && !vm->group_source)
		begin_group_removal(vm);
	try_finish(vm);
}

/* Words for how the process ended, when no cause of ours holds. */
static void describe_end(const struct vm *vm, const siginfo_t *info, char *text, size_t size)
{
	bool said = vm->said_ended && vm->said_end < VMM_END_COUNT;

	if (said)
		snprintf(text, size, "%s%s%s", ends[vm->said_end], vm->said_reason[0] ? ": " : "",
			vm->said_reason);
	else if (info->si_code == CLD_EXITED && info->si_status < VMM_END_COUNT)
		snprintf(text, size, "%s", ends[info->si_status]);
	else if (info->si_code == CLD_EXITED)
		snprintf(text, size, "the vmm exited with status %d", info->si_status);
	else if (vm->group >= 0 && cgroup_had_oom_kill(vm->group))
		snprintf(text, size, "the host's kernel killed the vmm: out of the memory of its cgroup");
	else
		snprintf(text, size, "the vmm was killed by signal %d (%s)", info->si_status,
			strsignal(info->si_status));
}

static void compose_cause(struct vm *vm, const siginfo_t *info)
{
	const struct vm_config *config = vm->config;
	/* As launch() numbers them. */
	const char *const names[] = {"(control socket)", config->kvm, config->kernel, config->initrd,
		config->image, "(serial log)"};
	char words[TAIL_BYTES];

	if (!vm->killed)
		describe_end(vm, info, vm->cause, sizeof vm->cause);
	tail_format(&vm->tail, words, sizeof words);
	cause_add_words(vm->cause, sizeof vm->cause, words, vm->said_reason);
	cause_name_files(vm->cause, sizeof vm->cause, LAUNCH_FD_FIRST, names, sizeof names / sizeof *names);
}

static void process_ended(void *context, uint32_t events)
{
	struct vm *vm = context;
	siginfo_t info = {0};

	(void)events;
	if (waitid(P_PIDFD, (id_t)vm->pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0)
		return;
	if (!vm->killed && vm->control >= 0)
		vm_control_ready(vm);
	/* Not to its end: a child of the vmm may go on writing, until its cgroup is killed. */
	for (int reads = 0; reads < VM_ERRORS_MAX / TAIL_READ && tail_read(&vm->tail, vm->errors) > 0;
		reads++)
		;
	vm->reaped = true;
	compose_cause(vm, &info);
	if (vm->state != VM_ENDING)
		vm_move(vm, VM_ENDING);
	close_streams(vm);
	drop(&vm->pidfd_source, &vm->pidfd);
	drop(&vm->errors_source, &vm->errors);
	loop_set_timer(vm->timer, 0);
	begin_group_removal(vm);
	vm->events->ended(vm->context, vm);
	if (vm->session_events)
		vm->session_events->ended(vm->session_context);
	else
		try_finish(vm);
}

static void kill_now(struct vm *vm)
{
	int status;

	if (vm->reaped || vm->killed)
		return;
	vm->killed = !vm->said_ended;
	status = cgroup_kill(vm->group);
	if (status && syscall(SYS_pidfd_send_signal, vm->pidfd, SIGKILL, NULL, 0) < 0)
		log_error("%s: cannot kill pid %d: %s", vm->id, (int)vm->pid, strerror(errno));
}

void vm_end(struct vm *vm, const char *cause)
{
	if (vm->state == VM_ENDING)
		return;
	snprintf(vm->cause, sizeof vm->cause, "%s", cause ? cause : "its run is over");
	vm_move(vm, VM_ENDING);
	loop_set_timer(vm->timer, 0);
	kill_now(vm);
	close_streams(vm);
}

void vm_lose(struct vm *vm, const char *cause)
{
	if (vm->state == VM_ENDING)
		return;
	snprintf(vm->cause, sizeof vm->cause, "%s", cause);
	vm_move(vm, VM_ENDING);
	drop(&vm->agent_source, &vm->agent);
	if (!vm->session_events)
		drop(&vm->session_source, &vm->session);
	loop_set_timer(vm->timer, VM_EXIT_GRACE_MS * CLOCK_NS_PER_MS);
}

static void time_is_up(void *context)
{
	struct vm *vm = context;
	char cause[VM_CAUSE_MAX];

	if (vm->state == VM_ENDING) {
		kill_now(vm);
		if (vm->reaped)
			finish_later(vm);
		return;
	}
	if (vm->state == VM_BUSY) {
		vm->session_events->alarm(vm->session_context);
		return;
	}
	snprintf(cause, sizeof cause, "not ready within %llu ms: still waiting for %s",
		(unsigned long long)vm->config->boot_timeout_ms, states[vm->state].waits_for);
	vm_end(vm, cause);
}

static void control_ready(void *context, uint32_t events)
{
	(void)events;
	vm_control_ready(context);
}

static void errors_ready(void *context, uint32_t events)
{
	struct vm *vm = context;
	int status = tail_read(&vm->tail, vm->errors);

	(void)events;
	if (status < 0) {
		loop_remove(vm->errors_source);
		vm->errors_source = NULL;
	}
}

void vm_close_session(struct vm *vm)
{
	drop(&vm->session_source, &vm->session);
}

void vm_take(struct vm *vm, const struct vm_session_events *events, void *context)
{
	vm_move(vm, VM_BUSY);
	vm->was_busy = true;
	vm->session_events = events;
	vm->session_context = context;
}

void vm_set_alarm(struct vm *vm, uint64_t milliseconds)
{
	loop_set_timer(vm->timer, milliseconds * CLOCK_NS_PER_MS);
}

int vm_watch_session(struct vm *vm, uint32_t events)
{
	return loop_set_events(vm->session_source, events);
}

void vm_release(struct vm *vm, const char *cause)
{
	vm->session_events = NULL;
	vm->session_context = NULL;
	drop(&vm->session_source, &vm->session);
	if (vm->state != VM_ENDING) {
		vm_end(vm, cause);
		return;
	}
	kill_now(vm);
	if (vm->reaped)
		/* Not from here: the caller may be within `ended`. */
		loop_set_timer(vm->timer, 1);
}

/* --- starting --- */

enum { LISTEN_BACKLOG = 4 };

/* What one start opens, only until the child has it. */
struct parcel {
	int listener, kvm, kernel, initrd, image, serial, errors;
};

static int open_path(const char *path, int flags, const char *what, int *fd, struct error *error)
{
	int status;

	*fd = open(path, flags | O_CLOEXEC, 0600);
	if (*fd >= 0)
		return 0;
	status = -errno;
	error_set(error, ERROR_INTERNAL, "cannot open the %s %s: %s", what, path, strerror(-status));
	return status;
}

static int open_files(const struct vm *vm, struct parcel *parcel, struct error *error)
{
	const struct vm_config *config = vm->config;
	char path[256];
	int status = open_path(config->kvm, O_RDWR, "KVM device", &parcel->kvm, error);

	if (!status)
		status = open_path(config->kernel, O_RDONLY, "kernel", &parcel->kernel, error);
	if (!status)
		status = open_path(config->initrd, O_RDONLY, "initrd", &parcel->initrd, error);
	if (!status)
		status = open_path(config->image, O_RDONLY, "image", &parcel->image, error);
	if (!status && config->serial_directory) {
		snprintf(path, sizeof path, "%s/%s.log", config->serial_directory, vm->id);
		status = open_path(path, O_WRONLY | O_CREAT | O_TRUNC, "serial log", &parcel->serial, error);
	}
	return status;
}

/* The named socket, listening, and our connection that waits in its backlog. */
static int open_control(struct vm *vm, int *listener)
{
	char path[VM_SOCKET_MAX];

	socket_path(vm, path);
	*listener = unix_listen(path, SOCK_SEQPACKET, 0600, LISTEN_BACKLOG);
	if (*listener < 0)
		return *listener;
	vm->control = unix_connect(path, SOCK_SEQPACKET);
	return vm->control < 0 ? vm->control : 0;
}

static int open_group(struct vm *vm, bool awaited)
{
	const struct cgroup_limits limits = {
		.memory_bytes = vm->config->memory_bytes + VM_MEMORY_OVERHEAD,
		.cpu_quota_us = (vm->config->cpus + UINT64_C(1)) * VM_CPU_QUOTA_US,
		.pids = VM_PIDS_MAX,
	};

	vm->group = cgroup_create(vm->config->cgroups, vm->id, &limits);
	if (vm->group < 0)
		return vm->group;
	return cgroup_set_weight(vm->config->cgroups, vm->group, awaited ? VM_WEIGHT : VM_WEIGHT_REFILL);
}

static int open_errors(struct vm *vm, int *writer)
{
	int ends_of_pipe[2];

	if (pipe2(ends_of_pipe, O_CLOEXEC) < 0)
		return -errno;
	vm->errors = ends_of_pipe[0];
	*writer = ends_of_pipe[1];
	return fd_set_nonblock(vm->errors);
}

static int add_sources(struct vm *vm)
{
	struct loop *loop = vm->config->loop;
	int status;

	vm->control_source = loop_add_fd(loop, vm->control, EPOLLIN, control_ready, vm);
	vm->errors_source = loop_add_fd(loop, vm->errors, EPOLLIN, errors_ready, vm);
	vm->timer = loop_add_timer(loop, time_is_up, vm);
	if (!vm->control_source || !vm->errors_source || !vm->timer)
		return -errno;
	status = frame_reader_init(&vm->agent_reader, sizeof(struct agent_hello) + AGENT_TEXT_MAX);
	vm->agent_reader.flags = MSG_DONTWAIT;
	return status;
}

static int launch(struct vm *vm, const struct parcel *parcel)
{
	const struct vm_config *config = vm->config;
	const int fds[] = {
		parcel->listener, parcel->kvm, parcel->kernel, parcel->initrd, parcel->image, parcel->serial};
	char cid[16], cpus[16];
	/* The numbers follow the order of fds, from LAUNCH_FD_FIRST. */
	const char *const argv[] = {config->vmm, "--control", "fd:3", "--kvm", "fd:4", "--kernel", "fd:5",
		"--initrd", "fd:6", "--disk", "fd:7,ro", "--serial", parcel->serial >= 0 ? "fd:8" : "none",
		"--mem", config->memory, "--cpus", cpus, "--vsock-cid", cid, NULL};
	const struct launch request = {
		.path = config->vmm,
		.argv = (char *const *)argv,
		.fds = fds,
		.count = parcel->serial >= 0 ? 6 : 5,
		.error_output = parcel->errors,
		.cgroup = vm->group,
		.uid = config->uid_base + vm->slot,
		.gid = (gid_t)(config->uid_base + vm->slot),
		.files_max = VM_FILES_MAX,
		.file_bytes_max = VM_SERIAL_MAX,
	};

	snprintf(cid, sizeof cid, "%u", 3 + vm->slot);
	snprintf(cpus, sizeof cpus, "%u", config->cpus);
	return launch_start(&request, &vm->pid, &vm->pidfd);
}

static void close_parcel(struct parcel *parcel)
{
	fd_close(&parcel->listener);
	fd_close(&parcel->kvm);
	fd_close(&parcel->kernel);
	fd_close(&parcel->initrd);
	fd_close(&parcel->image);
	fd_close(&parcel->serial);
	fd_close(&parcel->errors);
}

static struct vm *create(const struct vm_config *config, unsigned int slot)
{
	struct vm *vm = calloc(1, sizeof *vm);
	unsigned char random[6];

	if (!vm || getrandom(random, sizeof random, 0) != sizeof random) {
		free(vm);
		return NULL;
	}
	snprintf(vm->id, sizeof vm->id, "vm-%02x%02x%02x%02x%02x%02x", random[0], random[1], random[2],
		random[3], random[4], random[5]);
	vm->config = config;
	vm->slot = slot;
	vm->state = VM_LAUNCHED;
	vm->pidfd = vm->control = vm->agent = vm->session = vm->errors = vm->group = vm->group_events = -1;
	return vm;
}

/* A process that cannot be watched is waited for here; only when memory for one source is missing. */
static void abandon_process(struct vm *vm)
{
	siginfo_t info;

	kill_now(vm);
	waitid(P_PIDFD, (id_t)vm->pidfd, &info, WEXITED);
}

static int watch_process(struct vm *vm)
{
	vm->pidfd_source = loop_add_fd(vm->config->loop, vm->pidfd, EPOLLIN, process_ended, vm);
	if (!vm->pidfd_source) {
		int status = -errno;

		abandon_process(vm);
		return status;
	}
	return loop_set_timer(vm->timer, vm->config->boot_timeout_ms * CLOCK_NS_PER_MS);
}

int vm_start(const struct vm_config *config, unsigned int slot, bool awaited, const struct vm_events *events,
	void *context, struct vm **out, struct error *error)
{
	struct parcel parcel = {-1, -1, -1, -1, -1, -1, -1};
	struct vm *vm = create(config, slot);
	int status = vm ? 0 : -ENOMEM;
	const char *step = "memory";

	error->kind = ERROR_NONE;
	if (!status)
		status = open_files(vm, &parcel, error);
	if (!status && (step = "control socket"))
		status = open_control(vm, &parcel.listener);
	if (!status && (step = "cgroup"))
		status = open_group(vm, awaited);
	if (!status && (step = "event sources"))
		status = open_errors(vm, &parcel.errors);
	if (!status)
		status = add_sources(vm);
	if (!status && (step = "process")) {
		vm->events = events;
		vm->context = context;
		vm->started_ns = clock_now();
		status = launch(vm, &parcel);
	}
	if (!status && (step = "event sources"))
		status = watch_process(vm);
	close_parcel(&parcel);
	if (!status) {
		*out = vm;
		return 0;
	}
	if (error->kind == ERROR_NONE)
		error_set(error, ERROR_INTERNAL, "cannot make the VM's %s: %s", step, strerror(-status));
	if (vm)
		destroy(vm);
	return status;
}
