/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a VM: its files, control socket, cgroup and process, and the events of all these. */
#include "common/io.h"
#include "common/unix_socket.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/input_file.h"
#include "host-ctl/support/process.h"
#include "host-ctl/vm/launch.h"
#include "host-ctl/vm/standby.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LISTEN_BACKLOG = 4, PARCEL_STANDBY = 2, PARCEL_ALWAYS = 5, PARCEL_MAX = 10, CID_FIRST = 3 };

/* What one start opens, only until the child has it. */
struct parcel {
	int listener, kvm, first, second, image, working_set, serial, disk, upper,
		pages; /* as they are numbered in the child */
	int errors;
};

static const struct parcel empty_parcel = {-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1};

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

/* What a VM is made from. A clone's is the daemon's own, and was looked at when it was loaded. */
static int open_input(const struct vm *vm, const char *path, enum input_kind kind, const char *what, int *fd,
	struct error *error)
{
	const char *fault;
	struct stat status;

	if (vm_source_is_clone(vm->source))
		return open_path(path, O_RDONLY, what, fd, error);
	*fd = input_file_open(AT_FDCWD, path, 0, kind, &status, &fault);
	if (*fd >= 0)
		return 0;
	error_set(error, fault && vm->build ? ERROR_INVALID : ERROR_INTERNAL, "cannot open the %s %s: %s%s",
		what, path, fault ? "it is " : "", fault ? fault : strerror(-*fd));
	return *fd;
}

static int open_files(struct vm *vm, struct parcel *parcel, struct error *error)
{
	const struct vm_config *config = vm->config;
	const struct vm_source *source = vm->source;
	bool clone = vm_source_is_clone(source);
	const struct vm_file *first = clone ? &source->state : &source->kernel;
	const struct vm_file *second = clone ? &source->memory : &source->initrd;
	char path[256];
	int status;

	status = open_input(vm, first->path, INPUT_FILE, clone ? "state" : "kernel", &parcel->first, error);
	if (!status)
		status = open_input(
			vm, second->path, INPUT_FILE, clone ? "memory" : "initrd", &parcel->second, error);
	if (!status)
		status = open_input(vm, source->image.path, INPUT_IMAGE, "image", &parcel->image, error);
	if (!status && vm_has_working_set(vm))
		status = open_path(
			source->working_set.path, O_RDONLY, "working set", &parcel->working_set, error);
	if (!status && source->pages.path)
		status = open_path(source->pages.path, O_RDONLY, "private pages", &parcel->pages, error);
	if (!status && config->serial_directory) {
		snprintf(path, sizeof path, "%s/%s.log", config->serial_directory, vm->id);
		status = open_path(path, O_WRONLY | O_CREAT | O_TRUNC, "serial log", &parcel->serial, error);
	}
	return status ? status : vm_open_disk(vm, &parcel->disk, &parcel->upper, error);
}

/* The named socket, listening, and our connection that waits in its backlog. */
static int open_control(struct vm *vm, int *listener)
{
	char path[VM_SOCKET_MAX];

	vm_socket_path(vm, path);
	*listener = unix_listen(path, SOCK_SEQPACKET, 0600, LISTEN_BACKLOG);
	if (*listener < 0)
		return *listener;
	vm->control = unix_connect(path, SOCK_SEQPACKET);
	return vm->control < 0 ? vm->control : 0;
}

struct cgroup_limits vm_limits_of(const struct vm_source *source)
{
	return (struct cgroup_limits){
		.memory_bytes = source->memory_bytes + VM_MEMORY_OVERHEAD,
		.cpu_quota_us = (source->cpus + UINT64_C(1)) * VM_CPU_QUOTA_US,
		.pids = VM_PIDS_MAX,
	};
}

static int open_group(struct vm *vm, bool awaited)
{
	const struct cgroup_limits limits = vm_limits_of(vm->source);

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

static void process_ended(void *context, uint32_t events)
{
	(void)events;
	vm_process_ended(context);
}

static void time_is_up(void *context)
{
	vm_time_is_up(context);
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

static int prepare_agent_reader(struct vm *vm)
{
	int status = frame_reader_init(&vm->agent_reader, sizeof(struct agent_hello) + AGENT_TEXT_MAX);

	vm->agent_reader.flags = MSG_DONTWAIT;
	return status;
}

static int add_sources(struct vm *vm)
{
	struct loop *loop = vm->config->loop;

	vm->control_source = loop_add_fd(loop, vm->control, EPOLLIN, control_ready, vm);
	vm->errors_source = loop_add_fd(loop, vm->errors, EPOLLIN, errors_ready, vm);
	vm->timer = loop_add_timer(loop, time_is_up, vm);
	if (!vm->control_source || !vm->errors_source || !vm->timer)
		return -errno;
	return prepare_agent_reader(vm);
}

/* The numbers follow the order of fds in launch, from LAUNCH_FD_FIRST. */
static const char *const first_arguments[] = {"--control", "fd:3", "--kvm", "fd:4", NULL};
static const char *const standby_arguments[] = {"--standby", NULL};
static const char *const image_arguments[] = {"--disk", "fd:7,ro", NULL};
static const char *const boot_arguments[] = {"--kernel", "fd:5", "--initrd", "fd:6", NULL};

enum { ARGUMENTS_MAX = 32 };

struct arguments {
	const char *list[ARGUMENTS_MAX];
	unsigned int count;
	char cid[16], cpus[16], disk[32], restore[64], serial[24];
};

static void add_list(struct arguments *arguments, const char *const *list)
{
	while (*list)
		arguments->list[arguments->count++] = *list++;
}

static void add_pair(struct arguments *arguments, const char *name, const char *value)
{
	arguments->list[arguments->count++] = name;
	arguments->list[arguments->count++] = value;
}

/* The second disk; behind the other files, as launch() has them. */
static void add_disk(struct arguments *arguments, const struct vm *vm, bool serial)
{
	const int number = LAUNCH_FD_FIRST + PARCEL_ALWAYS + vm_has_working_set(vm) + serial;

	if (vm_source_is_cow(vm->source))
		snprintf(arguments->disk, sizeof arguments->disk, "fd:%d,cow=fd:%d", number, number + 1);
	else
		snprintf(arguments->disk, sizeof arguments->disk, "fd:%d", number);
	add_pair(arguments, "--disk", arguments->disk);
	if (!vm_source_is_clone(vm->source))
		add_pair(arguments, "--cmdline", "tinderbox.upper=/dev/vdb");
}

/* What a clone is made of; its private pages are behind all other files. */
static void add_restore(struct arguments *arguments, const struct vm *vm, bool serial)
{
	const int number = LAUNCH_FD_FIRST + PARCEL_ALWAYS + vm_has_working_set(vm) + serial +
			   (vm_source_has_disk(vm->source) ? 2 : 0);
	size_t length =
		(size_t)snprintf(arguments->restore, sizeof arguments->restore, "%s", "fd:5,memory=fd:6");

	if (vm->source->pages.path)
		length += (size_t)snprintf(arguments->restore + length, sizeof arguments->restore - length,
			",pages=fd:%d", number);
	if (vm_has_working_set(vm))
		snprintf(arguments->restore + length, sizeof arguments->restore - length, "%s",
			",working-set=fd:8");
	add_pair(arguments, "--restore", arguments->restore);
	if (vm->source->held)
		arguments->list[arguments->count++] = "--paused";
}

static void make_arguments(const struct vm *vm, bool serial, struct arguments *arguments)
{
	const struct vm_source *source = vm->source;

	*arguments = (struct arguments){.list = {vm->config->vmm}, .count = 1};
	snprintf(arguments->cid, sizeof arguments->cid, "%u", vm_cid(vm));
	snprintf(arguments->cpus, sizeof arguments->cpus, "%u", source->cpus);
	add_list(arguments, first_arguments);
	if (vm->state == VM_STANDBY) {
		add_list(arguments, standby_arguments);
		return;
	}
	add_list(arguments, image_arguments);
	if (vm_source_has_disk(source))
		add_disk(arguments, vm, serial);
	add_pair(arguments, "--vsock-cid", arguments->cid);
	if (serial) {
		snprintf(arguments->serial, sizeof arguments->serial, "%d", VM_SERIAL_MAX);
		add_pair(arguments, "--serial", vm_has_working_set(vm) ? "fd:9" : "fd:8");
		add_pair(arguments, "--serial-max", arguments->serial);
	}
	if (vm_source_is_clone(source)) {
		/* Memory and processors are as they were. */
		add_restore(arguments, vm, serial);
		return;
	}
	add_list(arguments, boot_arguments);
	add_pair(arguments, "--mem", source->size);
	add_pair(arguments, "--cpus", arguments->cpus);
}

uint32_t vm_cid(const struct vm *vm)
{
	return vm->source->cid ? vm->source->cid : CID_FIRST + vm->slot;
}

static int launch(struct vm *vm, const struct parcel *parcel, unsigned int user)
{
	const struct vm_config *config = vm->config;
	int fds[PARCEL_MAX] = {parcel->listener, parcel->kvm, parcel->first, parcel->second, parcel->image};
	unsigned int count = vm->state == VM_STANDBY ? PARCEL_STANDBY : PARCEL_ALWAYS;
	struct arguments arguments;
	struct launch request;

	if (parcel->working_set >= 0)
		fds[count++] = parcel->working_set;
	if (parcel->serial >= 0)
		fds[count++] = parcel->serial;
	if (parcel->disk >= 0)
		fds[count++] = parcel->disk;
	if (parcel->upper >= 0)
		fds[count++] = parcel->upper;
	if (parcel->pages >= 0)
		fds[count++] = parcel->pages;
	make_arguments(vm, parcel->serial >= 0, &arguments);
	request = (struct launch){
		.path = config->vmm,
		.argv = (char *const *)arguments.list,
		.fds = fds,
		.count = count,
		.error_output = parcel->errors,
		.cgroup = vm->group,
		.uid = config->uid_base + user,
		.gid = (gid_t)(config->uid_base + user),
		.files_max = VM_FILES_MAX,
		/* What one in standby will be is not known, and there is no file for it to write. */
		.file_bytes_max = vm->state == VM_STANDBY ? RLIM_INFINITY : vm_file_bytes_max(vm),
	};
	return launch_start(&request, &vm->pid, &vm->pidfd);
}

static void close_parcel(struct parcel *parcel)
{
	fd_close(&parcel->listener);
	fd_close(&parcel->kvm);
	fd_close(&parcel->first);
	fd_close(&parcel->second);
	fd_close(&parcel->image);
	fd_close(&parcel->working_set);
	fd_close(&parcel->serial);
	fd_close(&parcel->disk);
	fd_close(&parcel->upper);
	fd_close(&parcel->pages);
	fd_close(&parcel->errors);
}

static struct vm *create(const struct vm_config *config)
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
	vm->pidfd = vm->control = vm->agent = vm->session = vm->errors = vm->group = vm->group_events =
		vm->upper = -1;
	return vm;
}

/* A process that cannot be watched is waited for here; only when memory for one source is missing. */
static void abandon_process(struct vm *vm)
{
	siginfo_t info;

	vm_kill(vm);
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
	return loop_set_timer(vm->timer, vm_boot_timeout_ms(vm) * CLOCK_NS_PER_MS);
}

/* All of it but the files that it is made from. */
static int start_process(
	struct vm *vm, struct parcel *parcel, unsigned int user, bool awaited, struct error *error)
{
	const char *step = "control socket";
	int status = open_path(vm->config->kvm, O_RDWR, "KVM device", &parcel->kvm, error);

	if (!status)
		status = open_control(vm, &parcel->listener);
	if (!status && (step = "cgroup"))
		status = open_group(vm, awaited);
	if (!status && (step = "event sources"))
		status = open_errors(vm, &parcel->errors);
	if (!status)
		status = add_sources(vm);
	if (!status && (step = "process")) {
		vm->started_ns = clock_now();
		status = launch(vm, parcel, user);
	}
	if (!status && (step = "event sources"))
		status = watch_process(vm);
	if (status && error->kind == ERROR_NONE)
		error_set(error, ERROR_INTERNAL, "cannot make the VM's %s: %s", step, strerror(-status));
	return status;
}

static void set_order(
	struct vm *vm, const struct vm_order *order, const struct vm_events *events, void *context)
{
	vm->source = order->source;
	vm->memory_bytes = order->source->memory_bytes;
	vm->build = order->build;
	vm->slot = order->slot;
	vm->events = events;
	vm->context = context;
}

static int start(const struct vm_config *config, const struct vm_order *order, const struct vm_events *events,
	void *context, struct vm **out, struct error *error)
{
	struct parcel parcel = empty_parcel;
	struct vm *vm = create(config);
	int status;

	if (!vm) {
		error_set(error, ERROR_INTERNAL, "cannot make the VM's memory: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	set_order(vm, order, events, context);
	vm->state = VM_LAUNCHED;
	status = open_files(vm, &parcel, error);
	if (!status)
		status = start_process(vm, &parcel, order->slot, order->awaited, error);
	close_parcel(&parcel);
	if (status)
		vm_destroy(vm);
	else
		*out = vm;
	return status;
}

int vm_start(const struct vm_config *config, const struct vm_order *order, const struct vm_events *events,
	void *context, struct vm **out, struct error *error)
{
	bool clone = vm_source_is_clone(order->source) && !config->serial_directory;
	struct vm *vm = clone ? standby_take(config->standby) : NULL;

	error->kind = ERROR_NONE;
	if (vm && vm_adopt(vm, order, events, context, error) == 0) {
		*out = vm;
		return 0;
	}
	error->kind = ERROR_NONE;
	return start(config, order, events, context, out, error);
}

/* Of what is in standby, or was found: what it is made from is not known, or not yet. */
static const struct vm_source nothing = {.cpus = 1};

/* --- of an earlier daemon --- */

static int add_found_sources(struct vm *vm)
{
	struct loop *loop = vm->config->loop;

	vm->control_source = loop_add_fd(loop, vm->control, EPOLLIN, control_ready, vm);
	vm->timer = loop_add_timer(loop, time_is_up, vm);
	vm->pidfd_source = loop_add_fd(loop, vm->pidfd, EPOLLIN, process_ended, vm);
	return vm->control_source && vm->timer && vm->pidfd_source ? prepare_agent_reader(vm) : -errno;
}

static int open_found(struct vm *vm, const struct vm_found *found)
{
	char path[VM_SOCKET_MAX];
	uint64_t ticks;
	int status;

	vm->pidfd = (int)syscall(SYS_pidfd_open, vm->pid, 0);
	if (vm->pidfd < 0)
		return -errno;
	/* From here on the pid cannot be another's without the pidfd's knowing. */
	status = process_start_time(vm->pid, &ticks);
	if (status || ticks != found->start_ticks)
		return status ? status : -ESRCH;
	vm->group = cgroup_open(vm->config->cgroups, vm->id);
	if (vm->group < 0)
		return vm->group;
	vm_socket_path(vm, path);
	vm->control = unix_connect(path, SOCK_SEQPACKET);
	return vm->control < 0 ? vm->control : add_found_sources(vm);
}

int vm_take_back(const struct vm_config *config, const struct vm_found *found, const struct vm_events *events,
	void *context, struct vm **out, struct error *error)
{
	const struct vm_order order = {.source = &nothing, .slot = found->slot};
	struct vm *vm = create(config);
	int status;

	if (!vm) {
		error_set(error, ERROR_INTERNAL, "cannot make the VM's memory: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	snprintf(vm->id, sizeof vm->id, "%s", found->id);
	set_order(vm, &order, events, context);
	vm->pid = found->pid;
	vm->state = VM_OWNED;
	vm->found = vm->booted = vm->was_busy = true;
	vm->started_ns = vm->warm_ns = clock_now();
	status = open_found(vm, found);
	if (!status) {
		vm->seat = found->seat;
		*out = vm;
		return 0;
	}
	error_set(error, ERROR_INTERNAL, "cannot take back %s: %s", vm->id, strerror(-status));
	vm_destroy(vm);
	return status;
}

/* --- standby --- */

int vm_stand_by(const struct vm_config *config, unsigned int user, bool *seat, const struct vm_events *events,
	void *context, struct vm **out, struct error *error)
{
	const struct vm_order order = {.source = &nothing};
	struct parcel parcel = empty_parcel;
	struct vm *vm = create(config);
	int status;

	error->kind = ERROR_NONE;
	if (!vm) {
		error_set(error, ERROR_INTERNAL, "cannot make the VM's memory: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	set_order(vm, &order, events, context);
	vm->state = VM_STANDBY;
	status = start_process(vm, &parcel, user, false, error);
	close_parcel(&parcel);
	if (status) {
		vm_destroy(vm);
		return status;
	}
	vm->seat = seat;
	*out = vm;
	return 0;
}

static int send_order(struct vm *vm, const struct vm_source *source, const struct parcel *parcel)
{
	struct vmm_message message = {.type = VMM_RESTORE,
		.sequence = ++vm->sequence,
		.arg0 = source->cid,
		.arg2 = 1 /* the image is read-only */,
		.arg3 = parcel->upper >= 0 ? 2 : 0 /* and the disk copy-on-write */};
	int fds[PARCEL_MAX];
	unsigned int count = 0;

	fds[count++] = parcel->first;
	fds[count++] = parcel->second;
	if (parcel->working_set >= 0) {
		message.arg1 = VMM_RESTORE_WORKING_SET;
		fds[count++] = parcel->working_set;
	}
	if (parcel->pages >= 0) {
		message.arg1 |= VMM_RESTORE_PAGES;
		fds[count++] = parcel->pages;
		if (source->memory_sum)
			snprintf(message.text, sizeof message.text, "%.*s", VMM_RESTORE_SUM_DIGITS,
				source->memory_sum);
	}
	if (source->held)
		message.arg1 |= VMM_RESTORE_PAUSED;
	fds[count++] = parcel->image;
	if (parcel->upper >= 0) {
		fds[count++] = parcel->disk;
		fds[count++] = parcel->upper;
	}
	return io_send_fds(vm->control, &message, sizeof message, fds, count);
}

int vm_adopt(struct vm *vm, const struct vm_order *order, const struct vm_events *events, void *context,
	struct error *error)
{
	const struct vm_events *former = vm->events;
	const struct cgroup_limits limits = vm_limits_of(order->source);
	struct parcel parcel = empty_parcel;
	void *former_context = vm->context;
	int status;

	set_order(vm, order, events, context);
	vm->started_ns = clock_now();
	status = open_files(vm, &parcel, error);
	if (!status)
		status = cgroup_set_limits(vm->config->cgroups, vm->group, &limits);
	if (!status && order->awaited)
		status = cgroup_set_weight(vm->config->cgroups, vm->group, VM_WEIGHT);
	if (!status)
		status = vm_set_file_bytes_max(vm);
	if (!status)
		status = send_order(vm, order->source, &parcel);
	close_parcel(&parcel);
	if (!status) {
		vm_move(vm, VM_LAUNCHED);
		loop_set_timer(vm->timer, vm_boot_timeout_ms(vm) * CLOCK_NS_PER_MS);
		return 0;
	}
	if (error->kind == ERROR_NONE)
		error_set(error, ERROR_INTERNAL, "cannot use a vmm in standby: %s", strerror(-status));
	vm->source = &nothing;
	vm->events = former;
	vm->context = former_context;
	vm_end(vm, error->message);
	return status;
}
