/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket, over a socketpair and over a listening socket, with a machine that only takes notes. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/log.h"
#include "common/unix_socket.h"
#include "vmm/control.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAITERS_MAX = CONTROL_PENDING_MAX + 8, FDS_LIMIT = 128 };

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
	uint64_t cid;
	int tap; /* came with the last VMM_NET; -1: none */
};

static void fake_status(void *context, enum vmm_state *state, uint64_t *exits, uint64_t *guest_cpu_ns)
{
	struct machine *machine = context;

	*state = machine->state;
	*exits = 1234;
	*guest_cpu_ns = 5678;
}

static void wait_for(struct machine *machine, control_done_fn done, void *context, int fd)
{
	assert_true(machine->waiting < WAITERS_MAX);
	machine->waiters[machine->waiting].done = done;
	machine->waiters[machine->waiting].context = context;
	machine->waiters[machine->waiting].fd = fd;
	machine->waiting++;
}

static int fake_pause(void *context, control_done_fn done, void *done_context)
{
	struct machine *machine = context;

	machine->pauses++;
	if (machine->answer == 0)
		wait_for(machine, done, done_context, -1);
	return machine->answer;
}

static int fake_resume(void *context)
{
	struct machine *machine = context;

	machine->resumes++;
	if (machine->answer == 0)
		machine->state = VMM_STATE_RUNNING;
	return machine->answer;
}

static void fake_kill(void *context)
{
	struct machine *machine = context;

	machine->kills++;
}

static int fake_connect(void *context, uint32_t port, int fd, control_done_fn done, void *done_context)
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

static int fake_balloon(void *context, uint64_t target, struct balloon_status *status)
{
	struct machine *machine = context;

	if (machine->answer == 0 && target != VMM_BALLOON_ASK)
		machine->balloon.target = target;
	*status = machine->balloon;
	return machine->answer;
}

static int fake_net(void *context, bool up, int fd)
{
	struct machine *machine = context;

	machine->nets++;
	machine->up = up;
	fd_close(&machine->tap);
	machine->tap = fd;
	return machine->answer;
}

static int fake_save(
	void *context, int state, int memory, uint64_t *state_bytes, uint64_t *memory_bytes, char *why)
{
	struct machine *machine = context;

	machine->saves++;
	/* Which is which is told by what is in them. */
	assert_int_equal(write(state, "s", 1), 1);
	assert_int_equal(write(memory, "m", 1), 1);
	*state_bytes = 11;
	*memory_bytes = 22;
	if (machine->answer < 0)
		snprintf(why, VMM_MESSAGE_TEXT, "no room");
	return machine->answer;
}

/* The first fd stays with the waiter, the others are closed. */
static int fake_restore(void *context, const struct vmm_message *request, const int *fds, unsigned count,
	control_done_fn done, void *done_context)
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

static void fake_left(void *context)
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
static void turn(struct machine *machine)
{
	for (int i = 0; i < 4; i++)
		assert_int_equal(loop_turn(machine->loop, 0), 0);
}

static void request(struct machine *machine, uint32_t type, uint32_t sequence, uint64_t arg0)
{
	struct vmm_message message = {.type = type, .sequence = sequence, .arg0 = arg0};

	assert_int_equal(io_send_fds(machine->peer, &message, sizeof(message), NULL, 0), 0);
	turn(machine);
}

/* The next message; its fd, or -1, is returned. */
static int expect(
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

static void expect_nothing(struct machine *machine)
{
	char byte;

	assert_int_equal(recv(machine->peer, &byte, 1, MSG_DONTWAIT | MSG_PEEK), -1);
	assert_int_equal(errno, EAGAIN);
}

static void expect_closed(struct machine *machine)
{
	char byte;

	assert_int_equal(recv(machine->peer, &byte, 1, MSG_DONTWAIT), 0);
}

static void expect_state(struct machine *machine, enum vmm_state state)
{
	struct vmm_message message;

	assert_int_equal(expect(machine, VMM_EVENT_STATE, 0, 0, &message), -1);
	assert_int_equal(message.arg0, state);
}

static void finish_waiter(struct machine *machine, unsigned i, int status)
{
	machine->waiters[i].done(machine->waiters[i].context, status);
	turn(machine);
}

static int set_up(void **state)
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

static int tear_down(void **state)
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

static void status_says_all(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;

	machine->state = VMM_STATE_PAUSED;
	request(machine, VMM_STATUS, 7, 0);
	expect(machine, VMM_STATUS | VMM_REPLY, 7, 0, &message);
	assert_int_equal(message.arg0, VMM_STATE_PAUSED);
	assert_int_equal(message.arg1, 1234);
	assert_int_equal(message.arg2, 5678);
	expect_nothing(machine);
}

static void a_pause_is_answered_when_the_vcpus_stand(void **state)
{
	struct machine *machine = *state;

	request(machine, VMM_PAUSE, 1, 0);
	expect_nothing(machine);
	request(machine, VMM_STATUS, 2, 0);
	expect(machine, VMM_STATUS | VMM_REPLY, 2, 0, NULL);
	machine->state = VMM_STATE_PAUSED;
	finish_waiter(machine, 0, 0);
	expect(machine, VMM_PAUSE | VMM_REPLY, 1, 0, NULL);
	expect_state(machine, VMM_STATE_PAUSED);
	machine->answer = 1;
	request(machine, VMM_PAUSE, 3, 0);
	expect(machine, VMM_PAUSE | VMM_REPLY, 3, 0, NULL);
	machine->answer = -EALREADY;
	request(machine, VMM_PAUSE, 4, 0);
	expect(machine, VMM_PAUSE | VMM_REPLY, 4, -EALREADY, NULL);
	expect_nothing(machine);
	assert_int_equal(machine->pauses, 3);
}

static void a_resume_is_answered_at_once(void **state)
{
	struct machine *machine = *state;

	machine->state = VMM_STATE_PAUSED;
	request(machine, VMM_RESUME, 1, 0);
	expect(machine, VMM_RESUME | VMM_REPLY, 1, 0, NULL);
	expect_state(machine, VMM_STATE_RUNNING);
	machine->answer = -EBUSY;
	request(machine, VMM_RESUME, 2, 0);
	expect(machine, VMM_RESUME | VMM_REPLY, 2, -EBUSY, NULL);
	expect_nothing(machine);
}

/* A request that brings the write ends of that many pipes; the read end of the first is returned. */
static int request_with_pipes(struct machine *machine, uint32_t type, uint64_t arg0, unsigned count)
{
	struct vmm_message message = {.type = type, .sequence = 1, .arg0 = arg0};
	int ends[3][2], fds[3] = {-1, -1, -1};

	for (unsigned i = 0; i < count; i++) {
		assert_int_equal(pipe2(ends[i], O_CLOEXEC | O_NONBLOCK), 0);
		fds[i] = ends[i][1];
	}
	assert_int_equal(io_send_fds(machine->peer, &message, sizeof(message), fds, count), 0);
	for (unsigned i = 0; i < count; i++) {
		close(ends[i][1]);
		if (i > 0)
			close(ends[i][0]);
	}
	turn(machine);
	return ends[0][0];
}

/* The other end of a pipe: is it open anywhere still? */
static void expect_end(int fd, bool closed)
{
	char byte;

	assert_int_equal(read(fd, &byte, 1), closed ? 0 : -1);
}

static void a_link_is_set(void **state)
{
	struct machine *machine = *state;

	request(machine, VMM_NET, 1, VMM_LINK_UP);
	expect(machine, VMM_NET | VMM_REPLY, 1, 0, NULL);
	assert_true(machine->up);
	assert_int_equal(machine->tap, -1);
	request(machine, VMM_NET, 2, VMM_LINK_DOWN);
	expect(machine, VMM_NET | VMM_REPLY, 2, 0, NULL);
	assert_false(machine->up);
	machine->answer = -ENOTCONN;
	request(machine, VMM_NET, 3, VMM_LINK_UP);
	expect(machine, VMM_NET | VMM_REPLY, 3, -ENOTCONN, NULL);
	request(machine, VMM_NET, 4, 2);
	expect(machine, VMM_NET | VMM_REPLY, 4, -EINVAL, NULL);
	assert_int_equal(machine->nets, 3);
	expect_nothing(machine);
}

static void a_backend_comes_with_the_link(void **state)
{
	struct machine *machine = *state;
	int other = request_with_pipes(machine, VMM_NET, VMM_LINK_UP, 1);

	expect(machine, VMM_NET | VMM_REPLY, 1, 0, NULL);
	assert_true(machine->tap >= 0);
	assert_int_equal(fcntl(machine->tap, F_GETFD), FD_CLOEXEC);
	expect_end(other, false);
	fd_close(&machine->tap);
	expect_end(other, true);
	close(other);
	/* one for a link that is none is closed */
	other = request_with_pipes(machine, VMM_NET, 2, 1);
	expect(machine, VMM_NET | VMM_REPLY, 1, -EINVAL, NULL);
	expect_end(other, true);
	close(other);
}

/* Sends the two ends of a pair of pipes and returns what came out of each. */
static void ask_save(struct machine *machine, uint32_t sequence, char out[2])
{
	struct vmm_message message = {.type = VMM_SAVE, .sequence = sequence};
	int first[2], second[2];

	assert_int_equal(pipe2(first, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(pipe2(second, O_CLOEXEC | O_NONBLOCK), 0);
	assert_int_equal(
		io_send_fds(machine->peer, &message, sizeof(message), (const int[]){first[1], second[1]}, 2),
		0);
	close(first[1]);
	close(second[1]);
	turn(machine);
	assert_int_equal(read(first[0], &out[0], 1), 1);
	assert_int_equal(read(second[0], &out[1], 1), 1);
	/* They are closed when the reply is there. */
	expect_end(first[0], true);
	expect_end(second[0], true);
	close(first[0]);
	close(second[0]);
}

static void a_save_gets_state_and_memory_in_this_order(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;
	char out[2];

	ask_save(machine, 7, out);
	assert_memory_equal(out, "sm", 2);
	expect(machine, VMM_SAVE | VMM_REPLY, 7, 0, &message);
	assert_int_equal(message.arg0, 11);
	assert_int_equal(message.arg1, 22);
	machine->answer = -ENOSPC;
	ask_save(machine, 8, out);
	expect(machine, VMM_SAVE | VMM_REPLY, 8, -ENOSPC, &message);
	assert_string_equal(message.text, "no room");
	assert_int_equal(machine->saves, 2);
}

static void a_restore_is_answered_when_it_is_done(void **state)
{
	struct machine *machine = *state;
	int other;

	control_set_ops(machine->control, &standby_ops, machine);
	other = request_with_pipes(machine, VMM_RESTORE, 5, 3);
	assert_int_equal(machine->restores, 3);
	assert_int_equal(machine->cid, 5);
	expect_nothing(machine);
	expect_end(other, false);
	finish_waiter(machine, 0, 0);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, 0, NULL);
	fd_close(&machine->waiters[0].fd);
	expect_end(other, true);
	close(other);
}

static void a_restore_that_is_refused_closes_its_files(void **state)
{
	struct machine *machine = *state;
	int other;

	/* This one is no longer in standby. */
	other = request_with_pipes(machine, VMM_RESTORE, 5, 2);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -EALREADY, NULL);
	expect_end(other, true);
	close(other);
	control_set_ops(machine->control, &standby_ops, machine);
	machine->answer = -ENOMEM;
	other = request_with_pipes(machine, VMM_RESTORE, 5, 2);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -ENOMEM, NULL);
	expect_end(other, true);
	close(other);
}

static void a_restore_with_too_few_files_breaks_the_protocol(void **state)
{
	struct machine *machine = *state;
	int other;

	control_set_ops(machine->control, &standby_ops, machine);
	other = request_with_pipes(machine, VMM_RESTORE, 5, 1);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	expect_end(other, true);
	assert_int_equal(machine->restores, 0);
	assert_int_equal(machine->lefts, 1);
	close(other);
}

static void a_restore_with_too_many_files_breaks_the_protocol(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message = {.type = VMM_RESTORE, .sequence = 1};
	int fds[VMM_RESTORE_FDS_MAX + 1];

	control_set_ops(machine->control, &standby_ops, machine);
	for (unsigned i = 0; i <= VMM_RESTORE_FDS_MAX; i++)
		fds[i] = STDIN_FILENO;
	assert_int_equal(
		io_send_fds(machine->peer, &message, sizeof(message), fds, VMM_RESTORE_FDS_MAX + 1), 0);
	turn(machine);
	expect(machine, VMM_RESTORE | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	assert_int_equal(machine->restores, 0);
}

static void a_peer_that_leaves_is_told_of_once(void **state)
{
	struct machine *machine = *state;

	control_set_ops(machine->control, &standby_ops, machine);
	fd_close(&machine->peer);
	turn(machine);
	assert_int_equal(machine->lefts, 1);
}

static void a_save_without_just_two_files_breaks_the_protocol(void **state)
{
	static const unsigned counts[] = {1, 3};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		struct machine *machine;
		int other;

		assert_int_equal(set_up(state), 0);
		machine = *state;
		other = request_with_pipes(machine, VMM_SAVE, 0, counts[i]);
		expect(machine, VMM_SAVE | VMM_REPLY, 1, -EPROTO, NULL);
		expect_closed(machine);
		expect_end(other, true);
		assert_int_equal(machine->saves, 0);
		close(other);
		tear_down(state);
	}
}

static void two_backends_break_the_protocol(void **state)
{
	struct machine *machine = *state;
	int other = request_with_pipes(machine, VMM_NET, VMM_LINK_UP, 2);

	expect(machine, VMM_NET | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	expect_end(other, true);
	assert_int_equal(machine->nets, 0);
	close(other);
}

static void a_backend_with_another_request_breaks_the_protocol(void **state)
{
	struct machine *machine = *state;
	int other = request_with_pipes(machine, VMM_STATUS, 0, 1);

	expect(machine, VMM_STATUS | VMM_REPLY, 1, -EPROTO, NULL);
	expect_closed(machine);
	expect_end(other, true);
	close(other);
}

static void expect_balloon(struct machine *machine, uint32_t sequence, uint64_t target)
{
	struct vmm_message message;

	expect(machine, VMM_BALLOON | VMM_REPLY, sequence, 0, &message);
	assert_int_equal(message.arg0, target);
	assert_int_equal(message.arg1, 200);
	assert_int_equal(message.arg2, 300);
	assert_int_equal(message.arg3, 0);
	assert_string_equal(message.text, "");
}

static void a_balloon_is_moved_and_asked(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;

	machine->balloon = (struct balloon_status){.target = 100, .actual = 200, .reported = 300};
	request(machine, VMM_BALLOON, 1, VMM_BALLOON_ASK);
	expect_balloon(machine, 1, 100);
	request(machine, VMM_BALLOON, 2, 150);
	expect_balloon(machine, 2, 150);
	request(machine, VMM_BALLOON, 3, 0);
	expect_balloon(machine, 3, 0);
	machine->answer = -ENODEV;
	request(machine, VMM_BALLOON, 4, VMM_BALLOON_ASK);
	expect(machine, VMM_BALLOON | VMM_REPLY, 4, -ENODEV, &message);
	assert_int_equal(message.arg0, 0);
	assert_string_equal(message.text, strerror(ENODEV));
	expect_nothing(machine);
}

static void a_kill_is_answered_before_the_end(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;

	request(machine, VMM_KILL, 9, 0);
	expect(machine, VMM_KILL | VMM_REPLY, 9, 0, NULL);
	assert_int_equal(machine->kills, 1);
	control_ended(machine->control, VMM_END_KILLED, "ended by the test");
	expect(machine, VMM_EVENT_STATE, 0, 0, &message);
	assert_int_equal(message.arg0, VMM_STATE_ENDED);
	assert_int_equal(message.arg1, VMM_END_KILLED);
	assert_string_equal(message.text, "ended by the test");
}

/* Two fds are the ends of one stream. */
static void assert_joined(int a, int b)
{
	char byte = 0;

	assert_true(a >= 0 && b >= 0);
	assert_int_equal(write(a, "x", 1), 1);
	assert_int_equal(read(b, &byte, 1), 1);
	assert_int_equal(byte, 'x');
}

static void a_connection_brings_a_stream(void **state)
{
	struct machine *machine = *state;
	int fd;

	request(machine, VMM_CONNECT, 5, 1024);
	expect_nothing(machine);
	assert_int_equal(machine->port, 1024);
	finish_waiter(machine, 0, 0);
	fd = expect(machine, VMM_CONNECT | VMM_REPLY, 5, 0, NULL);
	assert_joined(machine->waiters[0].fd, fd);
	assert_true(fcntl(machine->waiters[0].fd, F_GETFL) & O_NONBLOCK);
	assert_int_equal(fcntl(machine->waiters[0].fd, F_GETFD), FD_CLOEXEC);
	fd_close(&fd);
}

static void connections_end_in_any_order(void **state)
{
	struct machine *machine = *state;
	int fd;

	request(machine, VMM_CONNECT, 1, 10);
	request(machine, VMM_CONNECT, 2, 11);
	request(machine, VMM_CONNECT, 3, 12);
	finish_waiter(machine, 2, -ECONNREFUSED);
	finish_waiter(machine, 1, 0);
	finish_waiter(machine, 0, -ECONNRESET);
	assert_int_equal(expect(machine, VMM_CONNECT | VMM_REPLY, 3, -ECONNREFUSED, NULL), -1);
	fd = expect(machine, VMM_CONNECT | VMM_REPLY, 2, 0, NULL);
	assert_joined(fd, machine->waiters[1].fd);
	fd_close(&fd);
	assert_int_equal(expect(machine, VMM_CONNECT | VMM_REPLY, 1, -ECONNRESET, NULL), -1);
	expect_nothing(machine);
}

static void a_connection_can_be_refused(void **state)
{
	struct machine *machine = *state;

	machine->answer = -ENODEV;
	request(machine, VMM_CONNECT, 1, 10);
	assert_int_equal(expect(machine, VMM_CONNECT | VMM_REPLY, 1, -ENODEV, NULL), -1);
	request(machine, VMM_CONNECT, 2, UINT32_MAX);
	expect(machine, VMM_CONNECT | VMM_REPLY, 2, -EINVAL, NULL);
	request(machine, VMM_CONNECT, 3, 1ull << 32);
	expect(machine, VMM_CONNECT | VMM_REPLY, 3, -EINVAL, NULL);
	assert_int_equal(machine->connects, 1);
}

static void waiting_requests_have_a_bound(void **state)
{
	struct machine *machine = *state;

	for (uint32_t i = 1; i <= CONTROL_PENDING_MAX; i++)
		request(machine, VMM_CONNECT, i, 1);
	expect_nothing(machine);
	request(machine, VMM_CONNECT, 100, 1);
	expect(machine, VMM_CONNECT | VMM_REPLY, 100, -EBUSY, NULL);
	request(machine, VMM_PAUSE, 101, 0);
	expect(machine, VMM_PAUSE | VMM_REPLY, 101, -EBUSY, NULL);
	assert_int_equal(machine->waiting, CONTROL_PENDING_MAX);
	finish_waiter(machine, 5, -ECONNREFUSED);
	expect(machine, VMM_CONNECT | VMM_REPLY, 6, -ECONNREFUSED, NULL);
	request(machine, VMM_CONNECT, 102, 1);
	assert_int_equal(machine->waiting, CONTROL_PENDING_MAX + 1);
	expect_nothing(machine);
}

static void a_guest_connection_is_offered(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;
	int ours = control_offer_stream(machine->control, 4242);
	int theirs = expect(machine, VMM_EVENT_STREAM, 0, 0, &message);

	assert_int_equal(message.arg0, 4242);
	assert_joined(ours, theirs);
	assert_true(fcntl(ours, F_GETFL) & O_NONBLOCK);
	fd_close(&ours);
	fd_close(&theirs);
}

/* What breaks the protocol is answered with -EPROTO, and the connection ends. */
static void a_broken_message_ends_the_connection(void **state)
{
	static const struct {
		struct vmm_message message;
		size_t length;
		uint32_t type, sequence;
	} cases[] = {
		{{.type = VMM_STATUS, .sequence = 3}, sizeof(struct vmm_message) - 1, VMM_STATUS, 3},
		{{.type = VMM_STATUS, .sequence = 3}, 1, VMM_STATUS, 0},
		{{.type = VMM_STATUS, .sequence = 0}, sizeof(struct vmm_message), VMM_STATUS, 0},
		{{.type = VMM_STATUS, .sequence = 3, .reserved = 1}, sizeof(struct vmm_message), VMM_STATUS,
			3},
		{{.type = 0, .sequence = 3}, sizeof(struct vmm_message), 0, 3},
		{{.type = VMM_RESTORE + 1, .sequence = 3}, sizeof(struct vmm_message), VMM_RESTORE + 1, 3},
		{{.type = VMM_KILL | VMM_REPLY, .sequence = 3}, sizeof(struct vmm_message), VMM_KILL, 3},
		{{.type = VMM_EVENT_STATE, .sequence = 3}, sizeof(struct vmm_message), VMM_EVENT_STATE, 3},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct machine *machine;

		assert_int_equal(set_up(state), 0);
		machine = *state;
		assert_int_equal(send(machine->peer, &cases[i].message, cases[i].length, 0), cases[i].length);
		turn(machine);
		expect(machine, cases[i].type | VMM_REPLY, cases[i].sequence, -EPROTO, NULL);
		expect_closed(machine);
		assert_int_equal(machine->kills, 0);
		assert_int_equal(control_offer_stream(machine->control, 1), -ECONNREFUSED);
		tear_down(state);
	}
}

static void a_longer_message_or_one_with_fds_ends_the_connection(void **state)
{
	struct {
		struct vmm_message message;
		char more;
	} longer = {.message = {.type = VMM_STATUS, .sequence = 4}};
	struct machine *machine;

	assert_int_equal(set_up(state), 0);
	machine = *state;
	assert_int_equal(
		send(machine->peer, &longer, sizeof(longer.message) + 1, 0), sizeof(longer.message) + 1);
	turn(machine);
	expect(machine, VMM_STATUS | VMM_REPLY, 4, -EPROTO, NULL);
	expect_closed(machine);
	tear_down(state);

	assert_int_equal(set_up(state), 0);
	machine = *state;
	assert_int_equal(
		io_send_fds(machine->peer, &longer.message, sizeof(longer.message), &machine->peer, 1), 0);
	turn(machine);
	expect(machine, VMM_STATUS | VMM_REPLY, 4, -EPROTO, NULL);
	expect_closed(machine);
	tear_down(state);
}

static void a_peer_that_does_not_read_is_dropped(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message = {.type = VMM_STATUS, .sequence = 1};
	unsigned sent = 0;

	log_init("test", LOG_LEVEL_ERROR);
	while (sent < 100000 &&
		send(machine->peer, &message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
		sent++;
		assert_int_equal(loop_turn(machine->loop, 0), 0);
	}
	assert_true(sent > 1 && sent < 100000);
	assert_int_equal(errno, EPIPE);
	assert_int_equal(control_offer_stream(machine->control, 1), -ECONNREFUSED);
}

static void what_waits_outlives_its_peer(void **state)
{
	struct machine *machine = *state;

	request(machine, VMM_CONNECT, 1, 10);
	request(machine, VMM_PAUSE, 2, 0);
	fd_close(&machine->peer);
	turn(machine);
	finish_waiter(machine, 0, 0);
	finish_waiter(machine, 1, 0);
	assert_int_equal(machine->waiting, 2);
}

static void the_end_answers_what_waits(void **state)
{
	struct machine *machine = *state;
	struct vmm_message message;

	request(machine, VMM_CONNECT, 1, 10);
	control_ended(machine->control, VMM_END_TRIPLE_FAULT, "triple fault");
	expect(machine, VMM_CONNECT | VMM_REPLY, 1, -ECONNRESET, NULL);
	expect(machine, VMM_EVENT_STATE, 0, 0, &message);
	assert_int_equal(message.arg1, VMM_END_TRIPLE_FAULT);
	finish_waiter(machine, 0, -ECONNRESET);
	expect_nothing(machine);
}

/* Listening sockets. */
static int open_peer(const char *path)
{
	int fd = unix_connect(path, SOCK_SEQPACKET);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_SETFL, 0), 0); /* the test waits */
	return fd;
}

static void a_path_serves_one_peer_after_another(void **state)
{
	struct machine machine = {.loop = loop_create(), .state = VMM_STATE_RUNNING, .peer = -1};
	char folder[] = "/tmp/control-XXXXXX", path[64];
	int first, second;
	struct stat status;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	assert_int_equal(control_create(path, machine.loop, &ops, &machine, &machine.control), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode & 0777, 0600);
	first = open_peer(path);
	turn(&machine);
	second = open_peer(path);
	turn(&machine);
	machine.peer = first;
	expect_state(&machine, VMM_STATE_RUNNING);
	machine.peer = second;
	expect_nothing(&machine);
	request(&machine, VMM_STATUS, 6, 0);
	expect_nothing(&machine);
	fd_close(&first);
	turn(&machine);
	turn(&machine);
	expect_state(&machine, VMM_STATE_RUNNING);
	expect(&machine, VMM_STATUS | VMM_REPLY, 6, 0, NULL);
	fd_close(&second);
	control_destroy(machine.control);
	assert_int_equal(stat(path, &status), -1);
	loop_destroy(machine.loop);
	assert_int_equal(rmdir(folder), 0);
}

/* As a guest does that opens connections until there are no more fds. */
static void take_every_fd(int fds[FDS_LIMIT], unsigned *count)
{
	while (*count < FDS_LIMIT && (fds[*count] = dup(STDIN_FILENO)) >= 0)
		++*count;
	assert_int_equal(errno, EMFILE);
}

static void the_next_peer_has_an_fd_whatever_is_open(void **state)
{
	struct machine machine = {.loop = loop_create(), .state = VMM_STATE_RUNNING, .peer = -1};
	char folder[] = "/tmp/control-XXXXXX", path[64];
	struct rlimit before, limit;
	int fds[FDS_LIMIT], first;
	unsigned count = 0;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	assert_int_equal(control_create(path, machine.loop, &ops, &machine, &machine.control), 0);
	first = open_peer(path);
	turn(&machine);
	machine.peer = open_peer(path);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){.rlim_cur = FDS_LIMIT, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	fd_close(&first);
	take_every_fd(fds, &count);
	assert_int_equal(loop_turn(machine.loop, 0), 0);
	take_every_fd(fds, &count);
	turn(&machine);
	expect_state(&machine, VMM_STATE_RUNNING);
	while (count > 0)
		close(fds[--count]);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	control_destroy(machine.control);
	fd_close(&machine.peer);
	loop_destroy(machine.loop);
	assert_int_equal(rmdir(folder), 0);
}

static void a_peer_that_came_before_us_is_greeted(void **state)
{
	struct machine machine = {.loop = loop_create(), .state = VMM_STATE_STARTING};
	char folder[] = "/tmp/control-XXXXXX", path[64], name[16];
	int listener;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/s", folder);
	listener = unix_listen(path, SOCK_SEQPACKET, 0600, 4);
	assert_true(listener >= 0);
	machine.peer = open_peer(path);
	snprintf(name, sizeof(name), "fd:%d", listener);
	assert_int_equal(control_create(name, machine.loop, &ops, &machine, &machine.control), 0);
	expect_state(&machine, VMM_STATE_STARTING);
	control_destroy(machine.control);
	expect_closed(&machine);
	assert_int_equal(fcntl(listener, F_GETFD), -1);
	assert_int_equal(access(path, F_OK), 0); /* the parent's, not ours to unlink */
	fd_close(&machine.peer);
	loop_destroy(machine.loop);
	unlink(path);
	rmdir(folder);
}

static void other_files_are_refused(void **state)
{
	struct machine machine = {.loop = loop_create(), .peer = -1};
	char name[16];
	int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)state;
	assert_int_equal(control_create("fd:x", machine.loop, &ops, &machine, &machine.control), -EINVAL);
	assert_int_equal(control_create("fd:999999", machine.loop, &ops, &machine, &machine.control), -EBADF);
	snprintf(name, sizeof(name), "fd:%d", null);
	assert_int_equal(control_create(name, machine.loop, &ops, &machine, &machine.control), -ENOTSOCK);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
	snprintf(name, sizeof(name), "fd:%d", pair[0]);
	assert_int_equal(
		control_create(name, machine.loop, &ops, &machine, &machine.control), -ESOCKTNOSUPPORT);
	assert_int_equal(fcntl(pair[0], F_GETFD), -1); /* taken over, on failure too */
	assert_int_equal(
		control_create("/no/such/folder/s", machine.loop, &ops, &machine, &machine.control), -ENOENT);
	assert_null(machine.control);
	fd_close(&pair[1]);
	loop_destroy(machine.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(status_says_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_pause_is_answered_when_the_vcpus_stand, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_resume_is_answered_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_link_is_set, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_backend_comes_with_the_link, set_up, tear_down),
		cmocka_unit_test_setup_teardown(two_backends_break_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_save_gets_state_and_memory_in_this_order, set_up, tear_down),
		cmocka_unit_test(a_save_without_just_two_files_breaks_the_protocol),
		cmocka_unit_test_setup_teardown(a_restore_is_answered_when_it_is_done, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_restore_that_is_refused_closes_its_files, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_restore_with_too_few_files_breaks_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_restore_with_too_many_files_breaks_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_peer_that_leaves_is_told_of_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(
			a_backend_with_another_request_breaks_the_protocol, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_balloon_is_moved_and_asked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_kill_is_answered_before_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_connection_brings_a_stream, set_up, tear_down),
		cmocka_unit_test_setup_teardown(connections_end_in_any_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_connection_can_be_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(waiting_requests_have_a_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_guest_connection_is_offered, set_up, tear_down),
		cmocka_unit_test(a_broken_message_ends_the_connection),
		cmocka_unit_test(a_longer_message_or_one_with_fds_ends_the_connection),
		cmocka_unit_test_setup_teardown(a_peer_that_does_not_read_is_dropped, set_up, tear_down),
		cmocka_unit_test_setup_teardown(what_waits_outlives_its_peer, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_end_answers_what_waits, set_up, tear_down),
		cmocka_unit_test(a_path_serves_one_peer_after_another),
		cmocka_unit_test(the_next_peer_has_an_fd_whatever_is_open),
		cmocka_unit_test(a_peer_that_came_before_us_is_greeted),
		cmocka_unit_test(other_files_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
