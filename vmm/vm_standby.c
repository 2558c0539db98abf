/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standby: a process that is there before anyone knows what it will be. What does not depend on that is done
 * already: the program is loaded, KVM open, its VM made, the control socket served.
 */
#include "common/io.h"
#include "common/log.h"
#include "vmm/config_options.h"
#include "vmm/trace.h"
#include "vmm/vm.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	STANDBY_CID_MIN = 3, /* virtio 5.10.4: those below are others' */
	HEX_DIGIT_BITS = 4,
};

struct vm_standby {
	struct vmm_message order;
	int fds[VMM_RESTORE_FDS_MAX]; /* until config names them by number: then they are files' */
	unsigned count;
	control_done_fn done; /* NULL: nothing is ordered, or that is answered */
	void *done_context;
};

/* --- what the control socket asks meanwhile --- */

static void get_status(void *context, enum vmm_state *state, uint64_t *exits, uint64_t *guest_cpu_ns)
{
	const struct vm *vm = context;

	*state = vm->state;
	*exits = *guest_cpu_ns = 0;
}

static int refuse_call(void *context)
{
	(void)context;
	return -EBUSY;
}

static int refuse_pause(void *context, control_done_fn done, void *done_context)
{
	(void)context;
	(void)done;
	(void)done_context;
	return -EBUSY;
}

static int refuse_connect(void *context, uint32_t port, int fd, control_done_fn done, void *done_context)
{
	(void)context;
	(void)port;
	(void)done;
	(void)done_context;
	fd_close(&fd);
	return -EBUSY;
}

static int refuse_net(void *context, bool up, int fd)
{
	(void)context;
	(void)up;
	fd_close(&fd);
	return -EBUSY;
}

static int refuse_balloon(void *context, uint64_t target, struct balloon_status *status)
{
	(void)context;
	(void)target;
	(void)status;
	return -EBUSY;
}

static int refuse_save(void *context, struct control_save *save)
{
	(void)context;
	snprintf(save->why, VMM_MESSAGE_TEXT, "the VM is in standby");
	return -EBUSY;
}

static void end(struct vm *vm, const char *reason)
{
	vm_end(vm, VMM_END_KILLED, reason);
	loop_stop(vm->loop, 0);
}

static void kill_standby(void *context)
{
	end(context, "ended by the control socket");
}

static void peer_left(void *context)
{
	end(context, "ended in standby: nobody is left at the control socket");
}

static int take_order(void *context, const struct vmm_message *order, const int *fds, unsigned count,
	control_done_fn done, void *done_context)
{
	struct vm *vm = context;
	struct vm_standby *standby = vm->standby;

	if (standby->done)
		return -EALREADY;
	standby->order = *order;
	standby->count = count;
	memcpy(standby->fds, fds, count * sizeof(fds[0]));
	standby->done = done;
	standby->done_context = done_context;
	loop_stop(vm->loop, 0);
	return 0;
}

static const struct control_ops standby_ops = {
	.status = get_status,
	.pause = refuse_pause,
	.resume = refuse_call,
	.kill = kill_standby,
	.connect = refuse_connect,
	.net = refuse_net,
	.balloon = refuse_balloon,
	.save = refuse_save,
	.restore = take_order,
	.left = peer_left,
};

/* --- the order --- */

/* What the order's text says of the memory under private pages; nothing: 0. 0 or -EINVAL. */
static int get_base_sum(const struct vmm_message *order, uint64_t *sum)
{
	static const char digits[] = "0123456789abcdef";
	size_t length = strnlen(order->text, sizeof(order->text));

	*sum = 0;
	if (length == 0)
		return 0;
	if (!(order->arg1 & VMM_RESTORE_PAGES) || length != VMM_RESTORE_SUM_DIGITS)
		return -EINVAL;
	for (size_t i = 0; i < length; i++) {
		const char *digit = strchr(digits, order->text[i]);

		if (!digit)
			return -EINVAL;
		*sum = *sum << HEX_DIGIT_BITS | (uint64_t)(digit - digits);
	}
	return 0;
}

static int check_order(const struct vm_standby *standby)
{
	const struct vmm_message *order = &standby->order;
	const uint64_t flags = VMM_RESTORE_WORKING_SET | VMM_RESTORE_PAGES | VMM_RESTORE_PAUSED;
	unsigned others = 2 + (order->arg1 & VMM_RESTORE_WORKING_SET ? 1 : 0) +
			  (order->arg1 & VMM_RESTORE_PAGES ? 1 : 0);
	unsigned disks = standby->count - others, uppers = (unsigned)__builtin_popcountll(order->arg3);
	uint64_t sum;

	if (order->arg0 < STANDBY_CID_MIN || order->arg0 >= UINT32_MAX || (order->arg1 & ~flags) != 0 ||
		get_base_sum(order, &sum) < 0)
		return -EINVAL;
	if (standby->count < others || disks > VMM_RESTORE_DISKS_MAX || uppers > disks)
		return -EINVAL;
	disks -= uppers;
	if (order->arg2 >> disks != 0 || order->arg3 >> disks != 0 || (order->arg2 & order->arg3) != 0)
		return -EINVAL;
	return 0;
}

/* Room for size bytes, which are enough for any. */
static void name_fd(char *path, size_t size, int fd)
{
	snprintf(path, size, "fd:%d", fd);
}

/* As if they had been on the command line. */
static void complete_config(const struct vm_standby *standby, struct config *config)
{
	const struct vmm_message *order = &standby->order;
	unsigned next = 0;

	name_fd(config->restore.state, PATH_MAX, standby->fds[next++]);
	name_fd(config->restore.memory, PATH_MAX, standby->fds[next++]);
	if (order->arg1 & VMM_RESTORE_WORKING_SET)
		name_fd(config->restore.working_set, PATH_MAX, standby->fds[next++]);
	if (order->arg1 & VMM_RESTORE_PAGES)
		name_fd(config->restore.pages, PATH_MAX, standby->fds[next++]);
	(void)get_base_sum(order, &config->base_sum);
	for (unsigned i = 0; next < standby->count; i++) {
		config->disks[i] = (struct config_disk){.read_only = order->arg2 >> i & 1};
		name_fd(config->disks[i].path, PATH_MAX, standby->fds[next++]);
		if (order->arg3 >> i & 1)
			name_fd(config->disks[i].upper, CONFIG_UPPER_MAX, standby->fds[next++]);
		config->disk_count = i + 1;
	}
	config->vsock_cid = (uint32_t)order->arg0;
	config->paused = config->paused || order->arg1 & VMM_RESTORE_PAUSED;
}

void vm_standby_name_files(struct config *config)
{
	snprintf(config->restore.state, PATH_MAX, "(state)");
	snprintf(config->restore.memory, PATH_MAX, "(memory)");
	snprintf(config->restore.working_set, PATH_MAX, "(working set)");
	if (config->restore.pages[0] != '\0')
		snprintf(config->restore.pages, PATH_MAX, "(pages)");
	for (unsigned i = 0; i < config->disk_count; i++) {
		snprintf(config->disks[i].path, PATH_MAX, "(disk %u)", i);
		if (config->disks[i].upper[0] != '\0')
			snprintf(config->disks[i].upper, CONFIG_UPPER_MAX, "(upper %u)", i);
	}
}

void vm_answer(struct vm *vm, int status)
{
	struct vm_standby *standby = vm->standby;

	if (!standby || !standby->done)
		return;
	standby->done(standby->done_context, status);
	standby->done = NULL;
}

static int wait_for_order(struct vm *vm, struct config *config)
{
	struct vm_standby *standby = vm->standby;
	uint64_t began = trace_begin();
	int r = 0;

	/* Whoever was there may be gone already. */
	if (!vm_has_ended(vm))
		r = loop_run(vm->loop);
	trace_phase(began, "standby");
	if (r < 0) {
		log_error("the event loop failed: %s", strerror(-r));
		return r;
	}
	if (vm_has_ended(vm))
		return -ECANCELED;
	vm->state = VMM_STATE_STARTING;
	r = check_order(standby);
	if (r == 0) {
		complete_config(standby, config);
		return 0;
	}
	for (unsigned i = 0; i < standby->count; i++)
		fd_close(&standby->fds[i]);
	log_error("--standby: what came over the control socket is no order to restore; send VMM_RESTORE as "
		  "docs/control-protocol.md has it");
	vm_answer(vm, r);
	return r;
}

int vm_stand_by(struct config *config, struct vm **out)
{
	struct vm_standby *standby = calloc(1, sizeof(*standby));
	struct vm *vm = NULL;
	int r = standby ? vm_prepare(config, &standby_ops, standby, &vm) : -ENOMEM;

	if (r < 0) {
		if (!standby)
			log_error("--standby: %s", strerror(ENOMEM));
		free(standby);
		return r;
	}
	r = wait_for_order(vm, config);
	if (r == -ECANCELED) {
		control_ended(vm->control, vm->end, vm->reason);
		log_info("%s", vm->reason);
	}
	if (r < 0)
		vm_destroy(vm);
	else
		*out = vm;
	return r;
}
