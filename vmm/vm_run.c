/* SPDX-License-Identifier: Apache-2.0 */
/* A VM's life after set-up: running, pausing, ending, and what the control socket asks for. */
#include "common/io.h"
#include "common/log.h"
#include "vmm/tap.h"
#include "vmm/trace.h"
#include "vmm/virtio/balloon.h"
#include "vmm/virtio/mmio.h"
#include "vmm/virtio/net.h"
#include "vmm/virtio/vsock.h"
#include "vmm/vm.h"
#include "vmm/vm_snapshot.h"
#include "vmm/vm_trace.h"
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

static void wish_all(struct vm *vm, enum vcpu_wish wish)
{
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		vcpu_wish(&vm->vcpus[i], wish);
}

static bool all_stand(struct vm *vm)
{
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		if (!vcpu_stands(&vm->vcpus[i]))
			return false;
	return true;
}

void vm_end(struct vm *vm, enum vmm_end end, const char *reason)
{
	bool first;

	pthread_mutex_lock(&vm->end_lock);
	first = !vm->ended;
	if (first) {
		vm->ended = true;
		vm->end = end;
		snprintf(vm->reason, sizeof(vm->reason), "%s", reason);
	}
	pthread_mutex_unlock(&vm->end_lock);
	if (!first)
		return;
	eventfd_write(vm->halt, 1);
	wish_all(vm, VCPU_QUIT);
	eventfd_write(vm->wake, 1);
}

bool vm_has_ended(struct vm *vm)
{
	bool ended;

	pthread_mutex_lock(&vm->end_lock);
	ended = vm->ended;
	pthread_mutex_unlock(&vm->end_lock);
	return ended;
}

static void finish_pause(struct vm *vm, int status)
{
	control_done_fn paused = vm->paused;

	vm->paused = NULL;
	if (paused)
		paused(vm->paused_context, status);
}

static void handle_wake(void *context, uint32_t events)
{
	struct vm *vm = context;
	eventfd_t count;

	(void)events;
	eventfd_read(vm->wake, &count);
	if (!all_stand(vm))
		return;
	if (vm_has_ended(vm)) {
		vm->state = VMM_STATE_ENDED;
		finish_pause(vm, -ECONNRESET);
		loop_stop(vm->loop, 0);
	} else if (vm->paused) {
		vm->state = VMM_STATE_PAUSED;
		for (unsigned i = 0; i < vm->device_count; i++)
			virtio_mmio_pause(vm->devices[i].mmio);
		finish_pause(vm, 0);
	}
}

/* What ends the VM in good order. */
static const struct {
	int number;
	const char *reason;
} signals[] = {
	{SIGTERM, "ended by SIGTERM"},
	{SIGINT, "ended by SIGINT"},
	{SIGHUP, "ended by SIGHUP"},
};
enum { SIGNALS = sizeof(signals) / sizeof(signals[0]) };

static void handle_signal(void *context, const struct signalfd_siginfo *info)
{
	for (size_t i = 0; i < SIGNALS; i++)
		if (info->ssi_signo == (uint32_t)signals[i].number)
			vm_end(context, VMM_END_KILLED, signals[i].reason);
}

static void get_status(void *context, enum vmm_state *state, uint64_t *exits, uint64_t *guest_cpu_ns)
{
	struct vm *vm = context;

	*state = vm->state;
	*exits = stats_exits(&vm->stats);
	*guest_cpu_ns = vm->stats.booted.cpu_ns;
	if (*guest_cpu_ns > 0)
		return;
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		*guest_cpu_ns += vcpu_cpu_ns(&vm->vcpus[i]);
}

static int pause_vm(void *context, control_done_fn done, void *done_context)
{
	struct vm *vm = context;

	if (vm->state == VMM_STATE_PAUSED)
		return 1;
	if (vm->paused)
		return -EALREADY;
	if (vm_has_ended(vm))
		return -ESRCH;
	vm->paused = done;
	vm->paused_context = done_context;
	eventfd_write(vm->halt, 1);
	wish_all(vm, VCPU_STAND);
	/* They may stand already. */
	eventfd_write(vm->wake, 1);
	return 0;
}

/* From standing. A guest that stood is excused for it; one that was restored finds its devices awake. */
static void run_all(struct vm *vm)
{
	bool stood = vm->state == VMM_STATE_PAUSED || vm->asleep;

	for (unsigned i = 0; stood && i < vm->vcpu_count; i++)
		vcpu_excuse_pause(&vm->vcpus[i]);
	for (unsigned i = 0; vm->asleep && i < vm->device_count; i++)
		virtio_mmio_wake(vm->devices[i].mmio);
	vm->asleep = false;
	vm->state = VMM_STATE_RUNNING;
	wish_all(vm, VCPU_RUN);
}

static int resume_vm(void *context)
{
	struct vm *vm = context;
	eventfd_t count;

	if (vm->paused)
		return -EBUSY;
	if (vm_has_ended(vm))
		return -ESRCH;
	if (vm->state == VMM_STATE_RUNNING)
		return 0;
	eventfd_read(vm->halt, &count);
	for (unsigned i = 0; i < vm->device_count; i++)
		virtio_mmio_resume(vm->devices[i].mmio);
	run_all(vm);
	return 0;
}

static void kill_vm(void *context)
{
	vm_end(context, VMM_END_KILLED, "ended by the control socket");
}

static int connect_guest(void *context, uint32_t port, int fd, control_done_fn done, void *done_context)
{
	struct vm *vm = context;

	if (vm->vsock)
		return vsock_connect(vm->vsock, port, fd, done, done_context);
	fd_close(&fd);
	return -ENODEV;
}

/* The fd is set up before the device sees it, so that a refused one changes nothing. */
static int set_net(void *context, bool up, int fd)
{
	struct vm *vm = context;
	int r = vm->net ? 0 : -ENODEV;

	if (fd >= 0) {
		if (r == 0)
			r = tap_adopt(fd);
		if (r == 0)
			r = net_attach(vm->net, fd);
		else
			fd_close(&fd);
	}
	return r < 0 ? r : net_set_link(vm->net, up);
}

static int move_balloon(void *context, uint64_t target, struct balloon_status *status)
{
	struct vm *vm = context;
	int r = 0;

	if (!vm->balloon)
		return -ENODEV;
	if (vm_has_ended(vm))
		return -ESRCH;
	if (target != VMM_BALLOON_ASK)
		r = balloon_set_target(vm->balloon, target);
	if (r == 0)
		*status = balloon_status(vm->balloon);
	return r;
}

static int save_vm(void *context, struct control_save *save)
{
	return vm_save(context, save);
}

const struct control_ops vm_control_ops = {
	.status = get_status,
	.pause = pause_vm,
	.resume = resume_vm,
	.kill = kill_vm,
	.connect = connect_guest,
	.net = set_net,
	.balloon = move_balloon,
	.save = save_vm,
};

static void collect_vcpu(struct vcpu *vcpu, struct stats_counts *counts)
{
	counts->cpu_ns += vcpu_cpu_ns(vcpu);
	for (unsigned i = 0; vcpu->stats >= 0 && i < STATS_KVM_COUNTERS; i++) {
		uint64_t value;

		if (kvm_read_stat(vcpu->stats, stats_kvm_names[i], &value) == 0)
			counts->kvm[i] += value;
	}
}

void vm_collect_stats(struct vm *vm, struct stats_counts *counts)
{
	stats_collect(&vm->stats, &vm->ports, &vm->mmio, counts);
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		collect_vcpu(&vm->vcpus[i], counts);
	counts->has_net = vm->net != NULL;
	if (vm->net)
		counts->net = net_counts(vm->net);
	counts->device_count = vm->device_count;
	for (unsigned i = 0; i < vm->device_count; i++) {
		counts->devices[i].name = virtio_mmio_name(vm->devices[i].mmio);
		counts->devices[i].counts = virtio_mmio_stats(vm->devices[i].mmio);
	}
}

static void print_stats(struct vm *vm)
{
	struct stats_counts *counts = calloc(1, sizeof(*counts));
	bool json = vm->config->stats_file != NULL;
	int r = -ENOMEM;

	if (counts) {
		vm_collect_stats(vm, counts);
		r = stats_print(json ? vm->files->stats : STDERR_FILENO, json, &vm->stats, counts, &vm->ports,
			&vm->mmio);
	}
	if (r < 0)
		log_error("--stats: cannot be written: %s", strerror(-r));
	free(counts);
}

static void report_end(struct vm *vm)
{
	bool orderly = vm->end == VMM_END_POWEROFF || vm->end == VMM_END_REBOOT || vm->end == VMM_END_KILLED;

	stats_note(&vm->stats, STATS_ENDED);
	if (vm->control)
		control_ended(vm->control, vm->end, vm->reason);
	log_at(orderly ? LOG_LEVEL_INFO : LOG_LEVEL_ERROR, "%s", vm->reason);
	if (vm->config->stats)
		print_stats(vm);
	vm_trace_end(vm);
}

/* Ends the VM before it has run. Always -errno. */
static int fail_start(struct vm *vm, int r, const char *format, ...) __attribute__((format(printf, 3, 4)));

static int fail_start(struct vm *vm, int r, const char *format, ...)
{
	char what[VMM_MESSAGE_TEXT / 2], reason[VMM_MESSAGE_TEXT];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(what, sizeof(what), format, arguments);
	va_end(arguments);
	snprintf(reason, sizeof(reason), "%s: %s%s", what, strerror(-r),
		r == -EAGAIN ? "; raise the limit of threads (ulimit -u, pids.max), or give fewer --cpus"
			     : "");
	vm_end(vm, VMM_END_SETUP, reason);
	return r;
}

static int start(struct vm *vm)
{
	int numbers[SIGNALS];

	for (size_t i = 0; i < SIGNALS; i++)
		numbers[i] = signals[i].number;
	if (!loop_add_signals(vm->loop, numbers, SIGNALS, handle_signal, vm))
		return fail_start(vm, -errno, "cannot wait for signals");
	if (!loop_add_fd(vm->loop, vm->wake, EPOLLIN, handle_wake, vm))
		return fail_start(vm, -errno, "cannot wait for the vCPUs");
	for (unsigned i = 0; i < vm->vcpu_count; i++) {
		int r = vcpu_start(&vm->vcpus[i]);

		if (r < 0)
			return fail_start(vm, r, "cannot start the thread of CPU %u", i);
	}
	return 0;
}

enum vmm_end vm_run(struct vm *vm)
{
	uint64_t began = trace_begin();
	int r = start(vm);

	trace_phase(began, "start");
	if (r < 0) {
		report_end(vm);
		return vm->end;
	}
	if (vm->config->paused)
		vm->state = VMM_STATE_PAUSED;
	else
		run_all(vm);
	if (vm->control)
		control_state_changed(vm->control);
	stats_note(&vm->stats, STATS_RUN);
	r = loop_run(vm->loop);
	if (r < 0) {
		log_error("the event loop failed: %s", strerror(-r));
		vm_end(vm, VMM_END_KVM, "the event loop failed");
	}
	report_end(vm);
	return vm->end;
}
