/* SPDX-License-Identifier: Apache-2.0 */
/* Work on a thread of its own: the loop goes on meanwhile, and learns of its end. */
#include "tests/support/fail_alloc.h"
#include "tests/support/unit.h"

#include "host-ctl/support/worker.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { TURNS_MAX = 1000, TURN_MS = 100, TICK_NS = 1000000, WAIT_MS = 20 * 1000 };

struct job {
	struct loop *loop;
	pthread_t thread;    /* that worked */
	sigset_t signals;    /* blocked there */
	int release;	     /* work reads a byte here before it ends; -1: at once */
	unsigned int worked; /* times */
	unsigned int ticks, done, ticks_when_done;
	struct loop_source *timer;
};

static void work(void *context)
{
	struct job *job = context;
	char byte;

	job->thread = pthread_self();
	pthread_sigmask(SIG_SETMASK, NULL, &job->signals);
	if (job->release >= 0)
		assert_int_equal(read(job->release, &byte, 1), 1);
	job->worked++;
}

static void done(void *context)
{
	struct job *job = context;

	assert_true(pthread_equal(pthread_self(), job->thread) == 0);
	assert_int_equal(job->worked, job->done + 1);
	job->done++;
	job->ticks_when_done = job->ticks;
	loop_stop(job->loop, 0);
}

static void tick(void *context)
{
	struct job *job = context;

	job->ticks++;
	loop_set_timer(job->timer, TICK_NS);
}

static void turn_until_done(struct job *job, unsigned int wanted)
{
	for (int i = 0; i < TURNS_MAX && job->done < wanted; i++)
		assert_int_equal(loop_turn(job->loop, TURN_MS), 0);
	assert_int_equal(job->done, wanted);
}

static void test_the_loop_goes_on_meanwhile(void **state)
{
	struct job job = {.loop = loop_create()};
	int pipe_ends[2];

	(void)state;
	assert_int_equal(pipe2(pipe_ends, O_CLOEXEC), 0);
	job.release = pipe_ends[0];
	job.timer = loop_add_timer(job.loop, tick, &job);
	assert_non_null(job.timer);
	loop_set_timer(job.timer, TICK_NS);
	assert_int_equal(worker_start(job.loop, work, done, &job), 0);
	for (int i = 0; i < TURNS_MAX && job.ticks < 20; i++)
		assert_int_equal(loop_turn(job.loop, TURN_MS), 0);
	assert_int_equal(job.ticks, 20);
	assert_int_equal(job.done, 0);
	assert_int_equal(write(pipe_ends[1], "x", 1), 1);
	turn_until_done(&job, 1);
	assert_true(job.ticks_when_done >= 20);
	/* Signals are the loop's. */
	for (int signal = 1; signal < 32; signal++)
		if (signal != SIGKILL && signal != SIGSTOP)
			assert_int_equal(sigismember(&job.signals, signal), 1);
	close(pipe_ends[0]);
	close(pipe_ends[1]);
	loop_remove(job.timer);
	loop_destroy(job.loop);
}

static void test_one_after_another_leaves_nothing(void **state)
{
	struct job job = {.loop = loop_create(), .release = -1};
	int before = dup(0), after;

	(void)state;
	close(before);
	for (unsigned int i = 1; i <= 100; i++) {
		assert_int_equal(worker_start(job.loop, work, done, &job), 0);
		turn_until_done(&job, i);
	}
	after = dup(0);
	close(after);
	assert_int_equal(after, before);
	loop_destroy(job.loop);
}

static void limit_files(rlim_t maximum)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = maximum;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_a_start_that_fails_calls_nothing(void **state)
{
	struct job job = {.loop = loop_create(), .release = -1};
	struct rlimit before;

	(void)state;
	fail_alloc(0);
	assert_int_equal(worker_start(job.loop, work, done, &job), -ENOMEM);
	assert_int_equal(fail_alloc_end(), 1);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit_files(3);
	assert_int_equal(worker_start(job.loop, work, done, &job), -EMFILE);
	limit_files(before.rlim_cur);
	assert_int_equal(loop_turn(job.loop, 0), 0);
	assert_int_equal(job.worked + job.done, 0);
	loop_destroy(job.loop);
}

/* The other end of a pipe tells when its last copy is closed. */
static void expect_closed(int other)
{
	struct pollfd wait = {.fd = other, .events = POLLIN};

	assert_int_equal(poll(&wait, 1, WAIT_MS), 1);
	assert_true(wait.revents & POLLHUP);
	close(other);
}

static void test_fds_are_closed_later(void **state)
{
	int first[2], second[2], third[2];

	(void)state;
	assert_int_equal(pipe2(first, O_CLOEXEC), 0);
	assert_int_equal(pipe2(second, O_CLOEXEC), 0);
	assert_int_equal(pipe2(third, O_CLOEXEC), 0);
	worker_close((const int[]){first[1], -1, second[1]}, 3);
	expect_closed(first[0]);
	expect_closed(second[0]);
	/* Without memory it is done at once. */
	fail_alloc(0);
	worker_close(&third[1], 1);
	assert_int_equal(fail_alloc_end(), 1);
	assert_int_equal(fcntl(third[1], F_GETFD), -1);
	expect_closed(third[0]);
	worker_close((const int[]){-1}, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_loop_goes_on_meanwhile),
		cmocka_unit_test(test_one_after_another_leaves_nothing),
		cmocka_unit_test(test_a_start_that_fails_calls_nothing),
		cmocka_unit_test(test_fds_are_closed_later),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
