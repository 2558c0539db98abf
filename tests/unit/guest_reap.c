/* SPDX-License-Identifier: Apache-2.0 */
/* Children that end faster than they are reaped: all are, a bounded number a turn, and others are served. */
#include "guest_fixture.h"

enum { TURNS = 4, CHILDREN = TURNS * AGENT_REAP_MAX + 1, A_WHILE_MS = 100 };

static pid_t children[CHILDREN];

/* Ended, each of them, and not reaped. */
static void make_ended_children(void)
{
	siginfo_t info;

	for (int i = 0; i < CHILDREN; i++) {
		children[i] = fork();
		assert_true(children[i] >= 0);
		if (children[i] == 0)
			_exit(0);
	}
	for (int i = 0; i < CHILDREN; i++)
		assert_int_equal(waitid(P_PID, (id_t)children[i], &info, WEXITED | WNOWAIT), 0);
}

static int count_children(void)
{
	int count = 0;

	for (int i = 0; i < CHILDREN; i++)
		count += kill(children[i], 0) == 0;
	return count;
}

static void one_signal_stands_for_many_and_none_is_forgotten(void **state)
{
	struct fixture *f = *state;
	int left = CHILDREN, turns = 0;

	make_ended_children();
	while (left > 0) {
		int before = left;

		assert_int_equal(loop_turn(f->loop, WAIT_MS), 0);
		left = count_children();
		/* The signal and what was left by the turn before may come in one turn. */
		assert_in_range(before - left, 1, 2 * AGENT_REAP_MAX);
		turns++;
	}
	assert_in_range(turns, TURNS / 2 + 1, TURNS + 2);
	turn_for(f, A_WHILE_MS);
	assert_true(f->childless > 0);
}

static void one_call_has_a_bound(void **state)
{
	struct fixture *f = *state;

	make_ended_children();
	agent_reap(f->agent);
	assert_int_equal(count_children(), CHILDREN - AGENT_REAP_MAX);
	assert_int_equal(f->childless, 0);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(count_children(), 0);
	assert_true(f->childless > 0);
}

static void a_stream_is_served_meanwhile(void **state)
{
	struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct fixture *f = *state;
	struct client client;
	struct frame frame;

	make_ended_children();
	client_open(f, &client);
	client_send(f, &client, AGENT_CONTROL, &control, sizeof(control));
	client_expect(f, &client, AGENT_HELLO, &frame);
	assert_true(count_children() > 0);
	client_close(&client);
	turn_for(f, A_WHILE_MS);
	assert_int_equal(count_children(), 0);
}

/* Where nothing waits, the loop rests. */
static void it_does_not_come_back_for_nothing(void **state)
{
	struct fixture *f = *state;
	uint64_t before;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid == 0)
		_exit(0);
	assert_int_equal(loop_turn(f->loop, WAIT_MS), 0);
	assert_int_equal(kill(pid, 0), -1);
	before = test_now_ms();
	assert_int_equal(loop_turn(f->loop, A_WHILE_MS), 0);
	assert_true(test_now_ms() - before >= A_WHILE_MS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			one_signal_stands_for_many_and_none_is_forgotten, setup, teardown),
		cmocka_unit_test_setup_teardown(one_call_has_a_bound, setup, teardown),
		cmocka_unit_test_setup_teardown(a_stream_is_served_meanwhile, setup, teardown),
		cmocka_unit_test_setup_teardown(it_does_not_come_back_for_nothing, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
