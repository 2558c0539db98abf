/* SPDX-License-Identifier: Apache-2.0 */
/* A VM that stays: what its owner asks of the vmm, each answered by one message of the same number. */
#include "common/io.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

void vm_own(struct vm *vm, const struct vm_owner_events *events, void *context, int *stream)
{
	vm_move(vm, VM_OWNED);
	vm->was_busy = true;
	vm->owner = events;
	vm->owner_context = context;
	*stream = vm->session;
	vm->session = -1;
	vm_close_session(vm);
}

void vm_set_owner(struct vm *vm, const struct vm_owner_events *events, void *context)
{
	vm->owner = events;
	vm->owner_context = context;
}

bool vm_is_identified(const struct vm *vm)
{
	return vm->identified;
}

static struct vm_asked *find(struct vm *vm, uint32_t sequence)
{
	for (unsigned int i = 0; i < VM_ASKED_MAX; i++)
		if (vm->asked[i].sequence == sequence)
			return &vm->asked[i];
	return NULL;
}

int vm_ask(
	struct vm *vm, struct vmm_message *message, const int *fds, size_t count, struct vm_request *request)
{
	struct vm_asked *asked = find(vm, 0);

	if (vm->state != VM_OWNED || vm->control < 0)
		return -ENOTCONN;
	if (!asked)
		return -EAGAIN;
	/* 0 marks a free place. */
	if (!++vm->sequence)
		++vm->sequence;
	message->sequence = vm->sequence;
	if (io_send_fds(vm->control, message, sizeof *message, fds, count) < 0) {
		vm_lose(vm, "the vmm takes no request");
		return -ENOTCONN;
	}
	*asked = (struct vm_asked){.type = message->type, .sequence = message->sequence, .request = request};
	return 0;
}

static int ask(struct vm *vm, enum vmm_message_type type, uint64_t argument, struct vm_request *request)
{
	struct vmm_message message = {.type = type, .arg0 = argument};

	return vm_ask(vm, &message, NULL, 0, request);
}

int vm_ask_stream(struct vm *vm, struct vm_request *request)
{
	return ask(vm, VMM_CONNECT, AGENT_GUEST_PORT, request);
}

int vm_ask_pause(struct vm *vm, struct vm_request *request)
{
	return ask(vm, VMM_PAUSE, 0, request);
}

int vm_ask_resume(struct vm *vm, struct vm_request *request)
{
	return ask(vm, VMM_RESUME, 0, request);
}

/* A new stream takes so little at once. */
static int send_shutdown(int fd, uint32_t grace_ms)
{
	const struct agent_control control = {.version = AGENT_PROTO_VERSION};
	const struct agent_shutdown order = {.grace_ms = grace_ms};
	struct frame_queue queue;
	int status;

	frame_queue_init(&queue, 2 * AGENT_FRAME_HEADER + sizeof control + sizeof order);
	status = frame_queue_put(&queue, AGENT_CONTROL, &control, sizeof control, NULL, 0);
	if (!status)
		status = frame_queue_put(&queue, AGENT_SHUTDOWN, &order, sizeof order, NULL, 0);
	if (!status)
		status = frame_queue_flush(&queue, fd) == 0 ? 0 : -EPIPE;
	frame_queue_finish(&queue);
	return status;
}

/* What the guest answers is not read: its end says all. */
static void shutdown_replied(struct vm_request *request, int status, int fd)
{
	struct vm *vm = (struct vm *)((char *)request - offsetof(struct vm, shutdown));

	if (!status)
		status = send_shutdown(fd, vm->grace_ms);
	if (!status) {
		vm->session = fd;
		return;
	}
	fd_close(&fd);
	vm_end(vm, "its guest could not be told to shut down");
}

void vm_shut_down(struct vm *vm, uint32_t grace_ms)
{
	vm->shutdown.replied = shutdown_replied;
	vm->grace_ms = grace_ms;
	if (vm_ask_stream(vm, &vm->shutdown))
		vm_end(vm, "its guest could not be told to shut down");
}

void vm_forget(struct vm *vm, const struct vm_request *request)
{
	for (unsigned int i = 0; i < VM_ASKED_MAX; i++)
		if (vm->asked[i].sequence && vm->asked[i].request == request)
			vm->asked[i].request = NULL;
}

void vm_owned_replied(struct vm *vm, const struct vmm_message *message, int fd)
{
	struct vm_asked *asked = message->sequence ? find(vm, message->sequence) : NULL;
	bool connects = asked && asked->type == VMM_CONNECT;
	struct vm_request *request;

	if (!asked || message->type != (asked->type | VMM_REPLY) ||
		(fd >= 0) != (connects && message->status == 0)) {
		fd_close(&fd);
		vm_end(vm, asked ? "the vmm gave another reply than was asked for"
				 : "the vmm replied to what was not asked");
		return;
	}
	request = asked->request;
	*asked = (struct vm_asked){.sequence = 0};
	if (message->type == (VMM_SAVE | VMM_REPLY))
		vm_save_replied(vm, message, request);
	if (request)
		request->replied(request, message->status, fd);
	else
		fd_close(&fd);
}

int vm_limit(struct vm *vm, uint64_t *memory_bytes, unsigned int *cpu_hundredths)
{
	struct cgroup_limits limits = vm_limits_of(vm->source);
	const unsigned int most = (unsigned int)(limits.cpu_quota_us * 100 / CGROUP_CPU_PERIOD_US);

	if (*memory_bytes > limits.memory_bytes)
		*memory_bytes = limits.memory_bytes;
	if (*cpu_hundredths > most)
		*cpu_hundredths = most;
	if (*memory_bytes)
		limits.memory_bytes = *memory_bytes;
	if (*cpu_hundredths)
		limits.cpu_quota_us = *cpu_hundredths * (uint64_t)CGROUP_CPU_PERIOD_US / 100;
	return cgroup_set_limits(vm->config->cgroups, vm->group, &limits);
}

bool vm_left_nothing(const struct vm_config *config, const char *id)
{
	char path[VM_SOCKET_MAX];

	snprintf(path, sizeof path, "%s/%s", config->socket_directory, id);
	return faccessat(config->cgroups->fd, id, F_OK, 0) < 0 && errno == ENOENT && access(path, F_OK) < 0 &&
	       errno == ENOENT;
}
