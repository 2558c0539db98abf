/* SPDX-License-Identifier: Apache-2.0 */
/* From a launched process to a warm VM: the control socket, the agent's first stream, the session's. */
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/text.h"
#include "host-ctl/vm/standby.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>

static void agent_ready(void *context, uint32_t events)
{
	vm_agent_ready(context, events);
}

static bool has_option(int fd, int option, int wanted)
{
	int value;
	socklen_t length = sizeof value;

	return getsockopt(fd, SOL_SOCKET, option, &value, &length) == 0 && value == wanted;
}

/*
 * The one fd of a message in *stream, or -1; closes the rest. 0, or -ENOTSOCK: it is no stream as we make
 * them. That it does not block is for this end's peace only: the vmm may hold the same open file, and undo
 * it; so each call on it says so again.
 */
static int take_stream(int *fds, size_t count, int *stream)
{
	*stream = -1;
	for (size_t i = 1; i < count; i++)
		fd_close(&fds[i]);
	if (!count)
		return 0;
	if (!has_option(fds[0], SO_DOMAIN, AF_UNIX) || !has_option(fds[0], SO_TYPE, SOCK_STREAM) ||
		fd_set_nonblock(fds[0]) < 0) {
		fd_close(&fds[0]);
		return -ENOTSOCK;
	}
	*stream = fds[0];
	return 0;
}

/* Of one that was taken back, the agent finds us anew. */
static bool awaits_agent(const struct vm *vm)
{
	return vm->state == VM_BOOTING || (vm->state == VM_OWNED && vm->found && vm->agent < 0);
}

/* By the port that it comes from: a program of a user's may connect to the agent's host port as well. */
static bool is_agents(const struct vmm_message *message)
{
	return message->arg0 == AGENT_HOST_PORT && message->arg1 >= AGENT_LINK_PORT_FIRST &&
	       message->arg1 <= AGENT_LINK_PORT_LAST;
}

static void stream_opened(struct vm *vm, const struct vmm_message *message, int fd)
{
	/* A guest may connect to what it likes; only the agent's one stream is answered. */
	if (fd < 0 || !awaits_agent(vm) || !is_agents(message)) {
		fd_close(&fd);
		vm->mistaken = vm->mistaken || message->arg0 == AGENT_HOST_PORT;
		if (++vm->strays > VM_STRAYS_MAX)
			vm_end(vm, "the guest opened streams without end");
		return;
	}
	vm->agent = fd;
	vm->agent_source = loop_add_fd(vm->config->loop, fd, EPOLLIN | EPOLLRDHUP, agent_ready, vm);
	if (!vm->agent_source) {
		vm_end(vm, "the daemon cannot watch its agent: out of memory");
		return;
	}
	if (!vm->found)
		vm_move(vm, VM_HELLO);
}

static void hold(struct vm *vm, uint64_t state)
{
	if (state == VMM_STATE_RUNNING) {
		vm_end(vm, "the vmm let a guest run that was to be held");
	} else if (state == VMM_STATE_PAUSED) {
		loop_set_timer(vm->timer, 0);
		vm_move(vm, VM_HELD);
		vm->events->held(vm->context, vm);
	}
}

void vm_let_run(struct vm *vm)
{
	struct vmm_message message = {.type = VMM_RESUME, .sequence = ++vm->sequence};

	if (vm->state != VM_HELD)
		return;
	vm_move(vm, VM_BOOTING);
	loop_set_timer(vm->timer, vm_boot_timeout_ms(vm) * CLOCK_NS_PER_MS);
	if (io_send_fds(vm->control, &message, sizeof message, NULL, 0) < 0)
		vm_lose(vm, "the vmm takes no request");
}

static void let_run(struct vm *vm, const struct vmm_message *message)
{
	bool asked = vm->source->held && vm_is_starting(vm) && message->sequence && !vm->running;

	vm->running = true;
	if (!asked)
		vm_end(vm, "the vmm replied to what was not asked");
	else if (message->status)
		vm_lose(vm, "the vmm could not let the guest run");
}

static void state_changed(struct vm *vm, const struct vmm_message *message)
{
	if (message->arg0 == VMM_STATE_ENDED) {
		vm->said_ended = true;
		vm->said_end = message->arg1;
		text_copy_printable(vm->said_reason, sizeof vm->said_reason, message->text,
			strnlen(message->text, sizeof message->text - 1));
		vm_lose(vm, "the vmm said that the VM ended, but did not exit");
	} else if (vm->state == VM_STANDBY) {
		vm->ready = message->arg0 == VMM_STATE_STANDBY;
		loop_set_timer(vm->timer, 0);
	} else if (vm->state == VM_LAUNCHED && vm->source->held) {
		hold(vm, message->arg0);
	} else if (vm->state == VM_LAUNCHED) {
		vm_move(vm, VM_BOOTING);
	} else if (vm->state == VM_OWNED && vm->owner && vm->owner->stands) {
		if (!vm->saves)
			vm_end_save(vm);
		vm->owner->stands(vm->owner_context, message->arg0 == VMM_STATE_PAUSED);
	}
}

static void session_ready(void *context, uint32_t events)
{
	struct vm *vm = context;

	if (vm->session_events)
		vm->session_events->ready(vm->session_context, events);
	else if (vm->state == VM_REHEARSING || vm->state == VM_PREPARING)
		vm_command_ready(vm);
	else if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
		vm_lose(vm, "the guest closed its session stream while warm");
	else
		vm_end(vm, "the guest wrote to its session stream while warm");
}

static void become_warm(struct vm *vm)
{
	loop_set_timer(vm->timer, 0);
	cgroup_set_weight(vm->config->cgroups, vm->group, VM_WEIGHT);
	vm->warm_ns = clock_now();
	vm->booted = true;
	vm_move(vm, VM_WARM);
	standby_refill(vm->config->standby);
	vm->events->warm(vm->context, vm);
}

/* Adopts the connected session stream: CONNECTING to PREPARING, REHEARSING or WARM. fd becomes the VM's. */
static void set_session(struct vm *vm, int fd)
{
	vm->session = fd;
	vm->session_source = loop_add_fd(vm->config->loop, fd, EPOLLIN | EPOLLRDHUP, session_ready, vm);
	if (!vm->session_source)
		vm_end(vm, "the daemon cannot watch its stream: out of memory");
	else if (!vm_command_start(vm))
		become_warm(vm);
}

static void connected(struct vm *vm, const struct vmm_message *message, int fd)
{
	char cause[VM_CAUSE_MAX];

	if (vm->state != VM_CONNECTING || message->sequence != vm->sequence) {
		fd_close(&fd);
		vm_end(vm, "the vmm replied to what was not asked");
	} else if (message->status || fd < 0) {
		snprintf(cause, sizeof cause, "no stream to the agent: %s",
			message->status ? strerror(-message->status) : "no fd came");
		fd_close(&fd);
		vm_end(vm, cause);
	} else {
		set_session(vm, fd);
	}
}

/* Of a vmm that was in standby. When it could not, it says why on its standard error and ends. */
static void restored(struct vm *vm, const struct vmm_message *message)
{
	if (vm->state != VM_LAUNCHED || message->sequence != vm->sequence)
		vm_end(vm, "the vmm replied to what was not asked");
	else if (message->status)
		vm_lose(vm, "the vmm could not restore the guest, but did not exit");
}

static bool is_owners(const struct vm *vm, const struct vmm_message *message)
{
	return vm->state == VM_OWNED && (message->type & VMM_REPLY);
}

static void handle_message(struct vm *vm, const struct vmm_message *message, int fd)
{
	if (is_owners(vm, message)) {
		vm_owned_replied(vm, message, fd);
		return;
	}
	switch (message->type) {
	case VMM_EVENT_STATE:
		fd_close(&fd);
		state_changed(vm, message);
		return;
	case VMM_EVENT_STREAM:
		stream_opened(vm, message, fd);
		return;
	case VMM_CONNECT | VMM_REPLY:
		connected(vm, message, fd);
		return;
	case VMM_RESTORE | VMM_REPLY:
		fd_close(&fd);
		restored(vm, message);
		return;
	case VMM_RESUME | VMM_REPLY:
		fd_close(&fd);
		let_run(vm, message);
		return;
	case VMM_PAUSE | VMM_REPLY:
	case VMM_SAVE | VMM_REPLY:
		fd_close(&fd);
		vm_build_replied(vm, message);
		return;
	default:
		fd_close(&fd);
		vm_end(vm, "the vmm sent a message of an unknown type");
	}
}

/* Why it is none of a vmm's, or NULL. */
static const char *find_fault(const struct vmm_message *message, ssize_t size, int fds_status)
{
	if (fds_status < 0)
		return "the vmm sent an fd that is no stream";
	if (size != sizeof *message)
		return "the vmm sent a message of a wrong size";
	if (message->status > 0 || message->status < VMM_STATUS_MIN)
		return "the vmm sent a status that is no error's";
	return NULL;
}

static void take_message(
	struct vm *vm, const struct vmm_message *message, ssize_t size, int *fds, size_t count)
{
	int fd, status = take_stream(fds, count, &fd);
	const char *fault = find_fault(message, size, status);

	if (!fault) {
		handle_message(vm, message, fd);
		return;
	}
	fd_close(&fd);
	vm_end(vm, fault);
}

void vm_control_ready(struct vm *vm)
{
	struct vmm_message message;
	int fds[IO_FDS_MAX];

	for (int i = 0; i < VM_CONTROL_BURST && vm->control >= 0; i++) {
		size_t count = IO_FDS_MAX;
		ssize_t got = io_receive_fds(vm->control, &message, sizeof message, fds, &count);

		if (got == -EAGAIN)
			return;
		if (got > 0) {
			take_message(vm, &message, got, fds, count);
			continue;
		}
		/* Closed: usual when the process ends, which its pidfd tells with the reason. */
		loop_remove(vm->control_source);
		vm->control_source = NULL;
		fd_close(&vm->control);
		vm_lose(vm, "the vmm closed its control socket");
	}
}

/* --- the agent's stream --- */

int vm_tell_agent(struct vm *vm, uint8_t type, const void *payload, size_t length)
{
	struct frame_queue queue;
	int status;

	frame_queue_init(&queue, AGENT_FRAME_HEADER + length);
	status = frame_queue_put(&queue, type, payload, length, NULL, 0);
	/* A new stream takes so little at once. */
	if (!status)
		status = frame_queue_flush(&queue, vm->agent) == 0 ? 0 : -EPIPE;
	frame_queue_finish(&queue);
	return status;
}

static int send_identity(struct vm *vm)
{
	struct agent_identity identity = {.realtime_ns = clock_read(CLOCK_REALTIME)};

	/* Without an id it stays the machine that it is, whatever name comes with it. */
	if (getrandom(identity.entropy, sizeof identity.entropy, 0) != sizeof identity.entropy ||
		(!vm->found && !vm->source->same_machine &&
			getrandom(identity.machine_id, sizeof identity.machine_id, 0) !=
				sizeof identity.machine_id))
		return -EIO;
	snprintf(identity.hostname, sizeof identity.hostname, "%s", vm->id);
	return vm_tell_agent(vm, AGENT_IDENTITY, &identity, sizeof identity);
}

static void log_warnings(const struct vm *vm, const uint8_t *text, uint32_t length)
{
	char line[256];

	for (int lines = 0; length && lines < VM_WARNINGS_MAX; lines++) {
		const uint8_t *newline = memchr(text, '\n', length);
		uint32_t part = newline ? (uint32_t)(newline - text) : length;

		text_copy_printable(line, sizeof line, text, part);
		log_warn("%s: guest: %s", vm->id, line);
		part += newline != NULL;
		text += part;
		length -= part;
	}
	if (length)
		log_warn("%s: the guest has more to say", vm->id);
}

static void handle_hello(struct vm *vm, const struct frame *frame)
{
	struct agent_hello hello;
	char cause[VM_CAUSE_MAX];

	if (frame->type != AGENT_HELLO || frame->length < sizeof hello) {
		vm_end(vm, "the agent's first frame is not a hello");
		return;
	}
	memcpy(&hello, frame->payload, sizeof hello);
	if (hello.warnings_length != frame->length - sizeof hello) {
		vm_end(vm, "the agent's hello is malformed");
		return;
	}
	if (hello.version != AGENT_PROTO_VERSION) {
		snprintf(cause, sizeof cause,
			"the agent speaks protocol %u, this daemon %d: rebuild the images", hello.version,
			AGENT_PROTO_VERSION);
		vm_end(vm, cause);
		return;
	}
	log_warnings(vm, frame->payload + sizeof hello, hello.warnings_length);
	vm->greeted = true;
	if (send_identity(vm) < 0)
		vm_lose(vm, "the agent's stream took no identity");
	else if (!vm->found)
		vm_move(vm, VM_IDENTITY);
}

void vm_connect_session(struct vm *vm)
{
	struct vmm_message message = {
		.type = VMM_CONNECT, .sequence = ++vm->sequence, .arg0 = AGENT_GUEST_PORT};

	if (io_send_fds(vm->control, &message, sizeof message, NULL, 0) < 0)
		vm_lose(vm, "the vmm takes no request");
	else
		vm_move(vm, VM_CONNECTING);
}

void vm_go_on(struct vm *vm)
{
	if (vm->build && !vm_has_commands(vm))
		vm_park(vm);
	else
		vm_connect_session(vm);
}

static void handle_identity_done(struct vm *vm, const struct frame *frame)
{
	struct agent_status status;
	char text[256], cause[VM_CAUSE_MAX];

	if (frame->type != AGENT_IDENTITY_DONE || frame->length < sizeof status) {
		vm_end(vm, "the agent did not answer to its identity");
		return;
	}
	memcpy(&status, frame->payload, sizeof status);
	if (status.text_length != frame->length - sizeof status || status.status < 0) {
		vm_end(vm, "the agent's answer to its identity is malformed");
		return;
	}
	if (status.status) {
		text_copy_printable(text, sizeof text, frame->payload + sizeof status, status.text_length);
		snprintf(cause, sizeof cause, "the agent could not take its identity: %s: %s", text,
			strerror(status.status));
		vm_end(vm, cause);
		return;
	}
	vm->identified = true;
	if (!vm->found && vm->source->notes)
		vm_note(vm);
	else if (!vm->found)
		vm_go_on(vm);
	else if (vm->owner && vm->owner->identified)
		vm->owner->identified(vm->owner_context);
}

static bool is_unidentified(const struct vm *vm)
{
	return vm->state == VM_OWNED && vm->found && !vm->identified;
}

static void handle_frame(struct vm *vm, const struct frame *frame)
{
	if (vm->state == VM_HELLO || (is_unidentified(vm) && !vm->greeted))
		handle_hello(vm, frame);
	else if (vm->state == VM_IDENTITY || is_unidentified(vm))
		handle_identity_done(vm, frame);
	else if ((vm->state == VM_PARKING && !vm->noted) || vm->state == VM_NOTING)
		vm_noted(vm, frame);
	else if (vm->state == VM_PARKING && !vm->parked)
		vm_brought(vm, frame);
	else
		vm_end(vm, "the agent sent a control frame that was not asked for");
}

void vm_agent_ready(struct vm *vm, uint32_t events)
{
	struct frame frame;
	int got = frame_reader_fill(&vm->agent_reader, vm->agent), status = 0;

	(void)events;
	if (got == -EAGAIN)
		return;
	if (got <= 0) {
		loop_remove(vm->agent_source);
		vm->agent_source = NULL;
		fd_close(&vm->agent);
		/* A busy VM's session tells by itself. */
		if (vm->state != VM_BUSY)
			vm_lose(vm, "the agent closed its stream");
		return;
	}
	while (vm->agent >= 0 && (status = frame_reader_next(&vm->agent_reader, &frame)) > 0)
		handle_frame(vm, &frame);
	if (vm->agent >= 0 && status < 0)
		vm_end(vm, "the agent sent a malformed frame");
}
