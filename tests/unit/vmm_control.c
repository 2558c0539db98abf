/* SPDX-License-Identifier: Apache-2.0 */
/* The control socket: requests without files, their answers, and when these come. */
#include "tests/unit/vmm_control_fixture.h"

#include <fcntl.h>

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
	int ours = control_offer_stream(machine->control, 1023, 4242);
	int theirs = expect(machine, VMM_EVENT_STREAM, 0, 0, &message);

	assert_int_equal(message.arg0, 4242);
	assert_int_equal(message.arg1, 1023);
	assert_joined(ours, theirs);
	assert_true(fcntl(ours, F_GETFL) & O_NONBLOCK);
	fd_close(&ours);
	fd_close(&theirs);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(status_says_all, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_pause_is_answered_when_the_vcpus_stand, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_resume_is_answered_at_once, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_balloon_is_moved_and_asked, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_kill_is_answered_before_the_end, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_connection_brings_a_stream, set_up, tear_down),
		cmocka_unit_test_setup_teardown(connections_end_in_any_order, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_connection_can_be_refused, set_up, tear_down),
		cmocka_unit_test_setup_teardown(waiting_requests_have_a_bound, set_up, tear_down),
		cmocka_unit_test_setup_teardown(a_guest_connection_is_offered, set_up, tear_down),
		cmocka_unit_test_setup_teardown(the_end_answers_what_waits, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
