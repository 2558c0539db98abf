/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/vm.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/worker.h"
#include "host-ctl/vm/cause.h"
#include "host-ctl/vm/launch.h"
#include "host-ctl/vm/standby.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define TO(state) (1u << (state))

static const struct {
	const char *name; /* in the API */
	const char *waits_for;
	unsigned int next; /* legal transitions */
} states[VM_STATE_COUNT] = {
	[VM_STANDBY] = {"standby", "the vmm to be ready", TO(VM_LAUNCHED) | TO(VM_ENDING)},
	[VM_LAUNCHED] = {"starting", "the vmm to answer on its control socket",
		TO(VM_HELD) | TO(VM_BOOTING) | TO(VM_ENDING)},
	[VM_HELD] = {"starting", "being let run", TO(VM_BOOTING) | TO(VM_ENDING)},
	[VM_BOOTING] = {"starting", "the guest's agent to say hello", TO(VM_HELLO) | TO(VM_ENDING)},
	[VM_HELLO] = {"starting", "the agent's hello on its stream", TO(VM_IDENTITY) | TO(VM_ENDING)},
	[VM_IDENTITY] = {"starting", "the agent to take its identity",
		TO(VM_NOTING) | TO(VM_CONNECTING) | TO(VM_PARKING) | TO(VM_ENDING)},
	[VM_NOTING] = {"starting", "the agent to note the guest's files", TO(VM_CONNECTING) | TO(VM_ENDING)},
	[VM_CONNECTING] = {"starting", "a stream to the agent",
		TO(VM_PREPARING) | TO(VM_REHEARSING) | TO(VM_WARM) | TO(VM_ENDING)},
	[VM_PREPARING] = {"building", "a command of the template's to end",
		TO(VM_CONNECTING) | TO(VM_PARKING) | TO(VM_ENDING)},
	[VM_REHEARSING] = {"starting", "the sample command to end",
		TO(VM_CONNECTING) | TO(VM_PARKING) | TO(VM_ENDING)},
	[VM_PARKING] = {"building", "the agent to note the guest's files and bring them to its disk",
		TO(VM_PAUSING) | TO(VM_ENDING)},
	[VM_PAUSING] = {"building", "the guest to stand", TO(VM_SAVING) | TO(VM_ENDING)},
	[VM_SAVING] = {"building", "the vmm to save the guest", TO(VM_ENDING)},
	[VM_WARM] = {"warm", "a run", TO(VM_BUSY) | TO(VM_OWNED) | TO(VM_ENDING)},
	[VM_BUSY] = {"busy", "the run to end", TO(VM_ENDING)},
	[VM_OWNED] = {"owned", "its owner to end it", TO(VM_ENDING)},
	[VM_ENDING] = {"ending", "the process to end", 0},
};

static const char *const ends[VMM_END_COUNT] = {
	[VMM_END_POWEROFF] = "the guest powered off",
	[VMM_END_SETUP] = "the VM could not be set up",
	[VMM_END_USAGE] = "the vmm refused its command line",
	[VMM_END_PANIC] = "the guest's kernel panicked",
	[VMM_END_REBOOT] = "the guest asked for a reset",
	[VMM_END_TRIPLE_FAULT] = "the guest's processor gave up",
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

void vm_socket_path(const struct vm *vm, char path[VM_SOCKET_MAX])
{
	snprintf(path, VM_SOCKET_MAX, "%s/%s", vm->config->socket_directory, vm->id);
}

void vm_destroy(struct vm *vm)
{
	char path[VM_SOCKET_MAX];

	vm->session_events = NULL;
	close_streams(vm);
	drop(&vm->pidfd_source, &vm->pidfd);
	drop(&vm->errors_source, &vm->errors);
	drop(&vm->group_source, &vm->group_events);
	if (vm->upper >= 0)
		worker_close(&vm->upper, 1);
	loop_remove(vm->timer);
	loop_forgo(vm->config->loop, &vm->release);
	frame_reader_finish(&vm->agent_reader);
	frame_reader_finish(&vm->session_reader);
	vm_socket_path(vm, path);
	unlink(path);
	if (vm->group >= 0)
		cgroup_remove(vm->config->cgroups, vm->id);
	fd_close(&vm->group);
	if (vm->seat)
		*vm->seat = false;
	free(vm);
}

/* Reports `gone` when process, cgroup and session are all done with. */
static void try_finish(struct vm *vm)
{
	const struct vm_owner_events *owner = vm->owner;
	void *context = vm->owner_context;

	if (!vm->reaped || vm->session_events || vm->group >= 0)
		return;
	vm->events->gone(vm->context, vm);
	vm_destroy(vm);
	if (owner)
		owner->gone(context);
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
		cause_set_end(text, size, ends[vm->said_end], vm->said_reason);
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

/* How one ended that is no child of ours is not known, but for what it said. */
static void compose_cause_of_found(struct vm *vm)
{
	if (vm->killed)
		return;
	if (vm->said_ended && vm->said_end < VMM_END_COUNT)
		cause_set_end(vm->cause, sizeof vm->cause, ends[vm->said_end], vm->said_reason);
	else
		snprintf(vm->cause, sizeof vm->cause, "the vmm ended, and an earlier daemon had started it");
}

/* Of a start or a build; of others the vmm's reason says enough. */
static void add_console(struct vm *vm)
{
	const char *folder = vm->config->serial_directory;
	char path[PATH_MAX];

	if (vm->killed || vm->booted || !vm->said_ended || vm->said_end != VMM_END_PANIC)
		return;
	snprintf(path, sizeof path, "%s/%s.log", folder ? folder : "", vm->id);
	cause_add_console(vm->cause, sizeof vm->cause, folder ? path : NULL);
}

enum { NAMES_MAX = 10 };

/* As launch() in vm_start.c numbers them. How many there are. */
static unsigned int name_files(const struct vm *vm, const char *names[NAMES_MAX])
{
	const struct vm_source *source = vm->source;
	bool clone = vm_source_is_clone(source);
	unsigned int count = 0;

	names[count++] = "(control socket)";
	names[count++] = vm->config->kvm;
	names[count++] = clone ? source->state.name : source->kernel.name;
	names[count++] = clone ? source->memory.name : source->initrd.name;
	names[count++] = source->image.name;
	if (vm_has_working_set(vm))
		names[count++] = source->working_set.name;
	if (vm->config->serial_directory)
		names[count++] = "(serial log)";
	if (vm_source_has_disk(source)) {
		names[count++] = source->disk.name;
		names[count++] = source->upper.path ? source->upper.name : "(upper file of the disk)";
	}
	if (source->pages.path)
		names[count++] = source->pages.name;
	return count;
}

static void compose_cause(struct vm *vm, const siginfo_t *info)
{
	const char *names[NAMES_MAX];
	unsigned int count = name_files(vm, names);
	char words[TAIL_BYTES];

	if (!vm->killed)
		describe_end(vm, info, vm->cause, sizeof vm->cause);
	tail_format(&vm->tail, words, sizeof words);
	cause_add_words(vm->cause, sizeof vm->cause, words, vm->said_reason);
	add_console(vm);
	/* What came later has no number of ours. */
	cause_name_files(vm->cause, sizeof vm->cause, LAUNCH_FD_FIRST, names, vm->seat ? 2 : count);
}

void vm_process_ended(struct vm *vm)
{
	siginfo_t info = {0};

	/* One that was found is told by its pidfd alone. */
	if (!vm->found &&
		(waitid(P_PIDFD, (id_t)vm->pidfd, &info, WEXITED | WNOHANG) < 0 || info.si_pid == 0))
		return;
	if (!vm->killed && vm->control >= 0)
		vm_control_ready(vm);
	/* Not to its end: a child of the vmm may go on writing, until its cgroup is killed. */
	for (int reads = 0;
		!vm->found && reads < VM_ERRORS_MAX / TAIL_READ && tail_read(&vm->tail, vm->errors) > 0;
		reads++)
		;
	vm->reaped = true;
	if (vm->found)
		compose_cause_of_found(vm);
	else
		compose_cause(vm, &info);
	if (vm->state != VM_ENDING)
		vm_move(vm, VM_ENDING);
	close_streams(vm);
	drop(&vm->pidfd_source, &vm->pidfd);
	drop(&vm->errors_source, &vm->errors);
	loop_set_timer(vm->timer, 0);
	begin_group_removal(vm);
	vm->events->ended(vm->context, vm);
	/* One that was taken may never have been warm. */
	if (vm->seat && !vm->booted && vm->source->state.path)
		standby_refill(vm->config->standby);
	if (vm->owner)
		vm->owner->ended(vm->owner_context);
	if (vm->session_events)
		vm->session_events->ended(vm->session_context);
	else
		try_finish(vm);
}

void vm_kill(struct vm *vm)
{
	int status;

	if (vm->reaped || vm->killed)
		return;
	vm->killed = !vm->said_ended;
	status = cgroup_kill(vm->group);
	if (status && syscall(SYS_pidfd_send_signal, vm->pidfd, SIGKILL, NULL, 0) < 0)
		log_error("%s: cannot kill pid %d: %s", vm->id, (int)vm->pid, strerror(errno));
}

static void set_ending(struct vm *vm, const char *cause)
{
	snprintf(vm->cause, sizeof vm->cause, "%s", cause ? cause : "its run is over");
	vm_move(vm, VM_ENDING);
	loop_set_timer(vm->timer, 0);
}

void vm_end(struct vm *vm, const char *cause)
{
	if (vm->state == VM_ENDING)
		return;
	set_ending(vm, cause);
	vm_kill(vm);
	close_streams(vm);
}

void vm_retire(struct vm *vm, const char *cause)
{
	vm->retired = true;
	vm_end(vm, cause);
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

bool vm_source_is_clone(const struct vm_source *source)
{
	return source->state.path != NULL;
}

bool vm_source_has_disk(const struct vm_source *source)
{
	return source->disk.path != NULL;
}

bool vm_source_is_cow(const struct vm_source *source)
{
	return vm_source_has_disk(source) &&
	       (vm_source_is_clone(source) || source->upper.path || source->new_upper);
}

bool vm_has_working_set(const struct vm *vm)
{
	return vm_source_is_clone(vm->source) && vm->source->working_set.path && !vm->config->no_prefault;
}

/* What is saved and lies upon no memory that is there already is read whole. */
uint64_t vm_boot_timeout_ms(const struct vm *vm)
{
	const struct vm_source *source = vm->source;
	uint64_t bytes = source->pages_bytes;

	if (source->reads_memory)
		bytes += source->memory_bytes;
	return vm->config->boot_timeout_ms + bytes / VM_READ_BYTES_PER_MS;
}

void vm_time_is_up(struct vm *vm)
{
	char cause[VM_CAUSE_MAX];

	if (vm->state == VM_ENDING) {
		vm_kill(vm);
		if (vm->reaped)
			finish_later(vm);
		return;
	}
	if (vm->state == VM_BUSY) {
		vm->session_events->alarm(vm->session_context);
		return;
	}
	if (vm->state == VM_OWNED) {
		vm_end_save(vm);
		return;
	}
	if (vm->state == VM_PARKING && vm->parked) {
		vm_pause(vm);
		return;
	}
	snprintf(cause, sizeof cause, "not ready within %llu ms: still waiting for %s%s",
		(unsigned long long)(vm->state == VM_PREPARING || (vm->state == VM_PARKING && vm->noted)
					     ? vm->build->command_timeout_ms
					     : vm_boot_timeout_ms(vm)),
		states[vm->state].waits_for,
		vm->state == VM_BOOTING && vm->mistaken
			? "; who came to its port did not come from one of the agent's own: if the image or "
			  "template is older than this daemon, make it anew"
			: "");
	vm_end(vm, cause);
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

static void end_released(void *context)
{
	struct vm *vm = context;

	vm_kill(vm);
	close_streams(vm);
}

void vm_release(struct vm *vm, const char *cause)
{
	vm->session_events = NULL;
	vm->session_context = NULL;
	drop(&vm->session_source, &vm->session);
	if (vm->state != VM_ENDING) {
		set_ending(vm, cause);
		drop(&vm->agent_source, &vm->agent);
		/* Behind the answer that the run has given. */
		vm->release = (struct loop_task){.fn = end_released, .context = vm};
		loop_defer(vm->config->loop, &vm->release);
		return;
	}
	vm_kill(vm);
	if (vm->reaped)
		/* Not from here: the caller may be within `ended`. */
		loop_set_timer(vm->timer, 1);
}
