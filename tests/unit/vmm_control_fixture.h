/* SPDX-License-Identifier: Apache-2.0 */
/* A control socket over a socketpair, with a machine that only takes notes, and the test as its peer. */
#ifndef TESTS_UNIT_VMM_CONTROL_FIXTURE_H
#define TESTS_UNIT_VMM_CONTROL_FIXTURE_H

#include "tests/support/unit.h"

#include "common/io.h"
#include "common/log.h"
#include "vmm/control.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WAITERS_MAX = CONTROL_PENDING_MAX + 8 };

/* A machine whose operations end when the test says so. */
struct machine {
	struct loop *loop;
	struct control *control;
	int peer;
	enum vmm_state state;
	int answer; /* of pause, resume and connect */
	unsigned pauses, resumes, kills, connects;
	uint32_t port;
	struct balloon_status balloon;
	struct {
		control_done_fn done;
		void *context;
		int fd;
	} waiters[WAITERS_MAX];
	unsigned waiting;
	unsigned nets;
	bool up;
	unsigned saves, restores, lefts;
	uint64_t cid, save_flags;
	int tap; /* came with the last VMM_NET; -1: none */
};

static inline void fake_status(void *context, enum vmm_state *state, uint64_t *exits, uint64_t *guest_cpu_ns)
{
	struct machine *machine = context;

	*state = machine->state;
	*exits = 1234;
	*guest_cpu_ns = 5678;
}

static inline void wait_for(struct machine *machine, control_done_fn done, void *context, int fd)
{
	assert_true(machine->waiting < WAITERS_MAX);
	machine->waiters[machine->waiting].done = done;
	machine->waiters[machine->waiting].context = context;
	machine->waiters[machine->waiting].fd = fd;
	machine->waiting++;
}

static inline int fake_pause(void *context, control_done_fn done, void *done_context)
{
	struct machine *machine = context;

	machine->pauses++;
	if (machine->answer == 0)
		wait_for(machine, done, done_context, -1);
	return machine->answer;
}

static inline int fake_resume(void *context)
{
	struct machine *machine = context;

	machine->resumes++;
	if (machine->answer == 0)
		machine->state = VMM_STATE_RUNNING;
	return machine->answer;
}

static inline void fake_kill(void *context)
{
	struct machine *machine = context;

	machine->kills++;
}

static inline int fake_connect(void *context, uint32_t port, int fd, control_done_fn done, void *done_context)
{
	struct machine *machine = context;

	machine->connects++;
	machine->port = port;
	if (machine->answer == 0)
		wait_for(machine, done, done_context, fd);
	else
		fd_close(&fd);
	return machine->answer;
}

static inline int fake_balloon(void *context, uint64_t target, struct balloon_status *status)
{
	struct machine *machine = context;

	if (machine->answer == 0 && target != VMM_BALLOON_ASK)
		machine->balloon.target = target;
	*status = machine->balloon;
	return machine->answer;
}

static inline int fake_net(void *context, bool up, int fd)
{
	struct machine *machine = context;

	machine->nets++;
	machine->up = up;
	fd_close(&machine->tap);
	machine->tap = fd;
	return machine->answer;
}

static inline int fake_save(void *context, struct control_save *save)
{
	struct machine *machine = context;

	machine->saves++;
	machine->save_flags = save->flags;
	/* Which is which is told by what is in them. */
	assert_int_equal(write(save->state, "s", 1), 1);
	assert_int_equal(write(save->memory, "m", 1), 1);
	if (save->flags & VMM_SAVE_DISK)
		assert_int_equal(write(save->disk, "d", 1), 1);
	else
		assert_int_equal(save->disk, -1);
	save->state_bytes = 11;
	save->memory_bytes = 22;
	save->disk_bytes = 33;
	if (machine->answer < 0)
		snprintf(save->why, VMM_MESSAGE_TEXT, "no room");
	return machine->answer;
}

/* The first fd stays with the waiter, the others are closed. */
static inline int fake_restore(void *context, const struct vmm_message *request, const int *fds,
	unsigned count, control_done_fn done, void *done_context)
{
	struct machine *machine = context;

	machine->restores = count;
	machine->cid = request->arg0;
	if (machine->answer < 0)
		return machine->answer;
	for (unsigned i = 1; i < count; i++)
		close(fds[i]);
	wait_for(machine, done, done_context, fds[0]);
	return 0;
}

static inline void fake_left(void *context)
{
	struct machine *machine = context;

	machine->lefts++;
}

static const struct control_ops standby_ops = {
	.status = fake_status, .restore = fake_restore, .left = fake_left};

static const struct control_ops ops = {
	.save = fake_save,
	.balloon = fake_balloon,
	.status = fake_status,
	.pause = fake_pause,
	.resume = fake_resume,
	.kill = fake_kill,
	.connect = fake_connect,
	.net = fake_net,
};

/* The test's end of the line. */
static inline void turn(struct machine *machine)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(loop_turn(machine->loop, 0), 0);
}

static inline void request(struct machine *machine, uint32_t type, uint32_t sequence, uint64_t arg0)
{
	struct vmm_message message = {.type = type, .sequence = sequence, .arg0 = arg0};

	assert_int_equal(io_send_fds(machine->peer, &message, sizeof(message), NULL, 0), 0);
	turn(machine);
}

/* The next message; its fd, or -1, is returned. */
static inline int expect(
	struct machine *machine, uint32_t type, uint32_t sequence, int status, struct vmm_message *out)
{
	struct vmm_message message = {0};
	int fd = -1;
	size_t count = 1;

	assert_int_equal(
		io_receive_fds(machine->peer, &message, sizeof(message), &fd, &count), sizeof(message));
	assert_int_equal(message.type, type);
	assert_int_equal(message.sequence, sequence);
	assert_int_equal(message.status, status);
	assert_int_equal(message.reserved, 0);
	assert_non_null(memchr(message.text, '\0', sizeof(message.text)));
	if (out)
		*out = message;
	return count == 1 ? fd : -1;
}

static inline void expect_nothing(struct machine *machine)
{
	char byte;

	assert_int_equal(recv(machine->peer, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
	assert_int_equal(errno, EAGAIN);
}

static inline void expect_closed(struct machine *machine)
{
	char byte;

	assert_int_equal(recv(machine->peer, &byte, 1, MSG_DONTWAIT), 0);
}

static inline void expect_state(struct machine *machine, enum vmm_state state)
{
	struct vmm_message message;

	assert_int_equal(expect(machine, VMM_EVENT_STATE, 0, 0, &message), -1);
	assert_int_equal(message.arg0, state);
}

static inline void finish_waiter(struct machine *machine, unsigned i, int status)
{
	machine->waiters[i].done(machine->waiters[i].context, status);
	turn(machine);
}

static inline int set_up(void **state)
{
	static struct machine machine;
	char name[16];
	int pair[2];

	log_init("test", LOG_LEVEL_ERROR);
	memset(&machine, 0, sizeof(machine));
	machine.state = VMM_STATE_RUNNING;
	machine.tap = -1;
	machine.loop = loop_create();
	if (!machine.loop || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -1;
	machine.peer = pair[0];
	snprintf(name, sizeof(name), "fd:%d", pair[1]);
	*state = &machine;
	if (control_create(name, machine.loop, &ops, &machine, &machine.control) < 0)
		return -1;
	expect_state(&machine, VMM_STATE_RUNNING);
	return 0;
}

static inline int tear_down(void **state)
{
	struct machine *machine = *state;

	control_destroy(machine->control);
	for (unsigned i = 0; i < machine->waiting; i++)
		fd_close(&machine->waiters[i].fd);
	fd_close(&machine->peer);
	fd_close(&machine->tap);
	loop_destroy(machine->loop);
	return 0;
}

#endif
