/* SPDX-License-Identifier: Apache-2.0 */
/* Guests that never say that their files are on their disk: what waits for that has its time, and nothing
 * else waits. It takes all of that time. */
#include "host-ctl/sandbox/sandbox_sync.h"
#include "tests/unit/hostctl_snapshot_fixture.h"

static void expect_too_long(int fd, const char *id)
{
	struct answer answer;
	char message[256];

	client_answer(fd, &answer);
	snprintf(message, sizeof message,
		"the guest of sandbox %s did not bring its files to its disk: it took too long", id);
	expect_error_answer(&answer, 502, "incomplete", message);
	close(fd);
}

static void test_guests_that_do_not_answer(void **state)
{
	struct daemon daemon;
	char forked[32], saved[32], other[32];
	int fork_fd, snapshot_fd;

	(void)state;
	start_one(&daemon, "boot hold-nothing", "{}", forked);
	create_sandbox(&daemon, "{}", saved);
	create_sandbox(&daemon, "{}", other);
	fork_fd = begin_fork(&daemon, forked, "{}");
	snapshot_fd = begin_snapshot(&daemon, saved, frozen);
	await_state(&daemon, forked, "copying");
	await_state(&daemon, saved, "copying");
	expect_lives(&daemon, other, 1);
	sleep_ms(SANDBOX_SYNC_MS - WAIT_MS / 2);
	await_state(&daemon, forked, "copying");
	await_state(&daemon, saved, "copying");
	expect_too_long(fork_fd, forked);
	expect_too_long(snapshot_fd, saved);
	expect_none_made(&daemon);
	expect_lives(&daemon, forked, 1);
	expect_lives(&daemon, saved, 1);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_guests_that_do_not_answer)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
