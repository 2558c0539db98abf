/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: removal from within callbacks, timers, signals. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/loop.h"
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct fixture {
	struct loop *loop;
	struct loop_source *sources[2];
	int fds[2];
	int calls;
};

static void remove_both(void *context, uint32_t events)
{
	struct fixture *f = context;

	assert_true(events & EPOLLIN);
	f->calls++;
	loop_remove(f->sources[0]);
	loop_remove(f->sources[1]);
}

static void a_callback_may_remove_itself_and_the_other(void **state)
{
	(void)state;
	struct fixture f = {.loop = loop_create()};

	for (int i = 0; i < 2; i++) {
		f.fds[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		f.sources[i] = loop_add_fd(f.loop, f.fds[i], EPOLLIN, remove_both, &f);
		assert_non_null(f.sources[i]);
	}
	assert_int_equal(loop_turn(f.loop, 0), 0);
	assert_int_equal(f.calls, 1);
	assert_int_equal(loop_turn(f.loop, 0), 0);
	assert_int_equal(f.calls, 1);
	loop_destroy(f.loop);
	fd_close(&f.fds[0]);
	fd_close(&f.fds[1]);
}

static void stop_with_7(void *context)
{
	loop_stop(context, 7);
}

static void count(void *context)
{
	++*(int *)context;
}

static void timers_fire_once_and_can_be_disarmed(void **state)
{
	(void)state;
	struct loop *loop = loop_create();
	int calls = 0;
	struct loop_source *never = loop_add_timer(loop, count, &calls);
	struct loop_source *timer = loop_add_timer(loop, stop_with_7, loop);

	assert_int_equal(loop_set_timer(never, 1), 0);
	assert_int_equal(loop_set_timer(never, 0), 0);
	assert_int_equal(loop_set_timer(timer, 1000), 0);
	assert_int_equal(loop_run(loop), 7);
	assert_int_equal(calls, 0);
	loop_destroy(loop);
}

static void take_signal(void *context, const struct signalfd_siginfo *info)
{
	loop_stop(context, (int)info->ssi_signo);
}

static void signals_arrive_as_events(void **state)
{
	(void)state;
	struct loop *loop = loop_create();

	assert_non_null(loop_add_signal(loop, SIGUSR1, take_signal, loop));
	assert_int_equal(raise(SIGUSR1), 0);
	assert_int_equal(loop_run(loop), SIGUSR1);
	loop_destroy(loop);
}

struct taken {
	struct loop *loop;
	unsigned count, numbers[2];
};

static void take_both(void *context, const struct signalfd_siginfo *info)
{
	struct taken *taken = context;

	assert_true(taken->count < 2);
	taken->numbers[taken->count++] = info->ssi_signo;
	if (taken->count == 2)
		loop_stop(taken->loop, 0);
}

static void one_source_takes_several_signals(void **state)
{
	static const int signals[] = {SIGUSR1, SIGUSR2}, wrong[] = {SIGUSR1, -1};
	struct taken taken = {.loop = loop_create()};

	(void)state;
	errno = 0;
	assert_null(loop_add_signals(taken.loop, wrong, 2, take_both, &taken));
	assert_int_equal(errno, EINVAL);
	assert_non_null(loop_add_signals(taken.loop, signals, 2, take_both, &taken));
	assert_int_equal(raise(SIGUSR2), 0);
	assert_int_equal(raise(SIGUSR1), 0);
	assert_int_equal(loop_run(taken.loop), 0);
	assert_int_equal(taken.numbers[0] + taken.numbers[1], SIGUSR1 + SIGUSR2);
	assert_int_not_equal(taken.numbers[0], taken.numbers[1]);
	loop_destroy(taken.loop);
}

static void a_closed_fd_is_refused(void **state)
{
	(void)state;
	struct loop *loop = loop_create();
	int fd = eventfd(0, EFD_CLOEXEC);

	close(fd);
	errno = 0;
	assert_null(loop_add_fd(loop, fd, EPOLLIN, remove_both, NULL));
	assert_int_equal(errno, EBADF);
	loop_destroy(loop);
	loop_destroy(NULL);
	loop_remove(NULL);
}

static void stop_now(void *context, uint32_t events)
{
	(void)events;
	loop_stop(context, 0);
}

static void a_source_of_no_events_still_hears_hang_up(void **state)
{
	(void)state;
	struct loop *loop = loop_create();
	int fds[2];

	assert_int_equal(pipe(fds), 0);
	assert_non_null(loop_add_fd(loop, fds[0], 0, stop_now, loop));
	fd_close(&fds[1]);
	assert_int_equal(loop_run(loop), 0);
	loop_destroy(loop);
	fd_close(&fds[0]);
}

/* Two pieces of work, and when they were done. */
struct work {
	struct loop *loop;
	struct loop_task first, second;
	char done[16];
	bool again;
};

static void note(struct work *work, const char *what)
{
	strncat(work->done, what, sizeof work->done - strlen(work->done) - 1);
}

static void do_first(void *context)
{
	struct work *work = context;

	note(work, "1");
	if (work->again)
		loop_defer(work->loop, &work->first);
	work->again = false;
}

static void do_second(void *context)
{
	note(context, "2");
}

static void ask_for_both(void *context, uint32_t events)
{
	struct work *work = context;

	(void)events;
	loop_defer(work->loop, &work->second);
	loop_defer(work->loop, &work->first);
	loop_defer(work->loop, &work->second);
	note(work, "c");
}

static struct work new_work(void)
{
	return (struct work){.loop = loop_create()};
}

static void tasks_follow_the_callbacks_of_their_round(void **state)
{
	(void)state;
	struct work work = new_work();
	int fds[2];

	work.first = (struct loop_task){.fn = do_first, .context = &work};
	work.second = (struct loop_task){.fn = do_second, .context = &work};
	for (int i = 0; i < 2; i++) {
		fds[i] = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
		assert_non_null(loop_add_fd(work.loop, fds[i], EPOLLIN | EPOLLET, ask_for_both, &work));
	}
	assert_int_equal(loop_turn(work.loop, 0), 0);
	assert_string_equal(work.done, "cc21");
	assert_int_equal(loop_turn(work.loop, 0), 0);
	assert_string_equal(work.done, "cc21");
	loop_destroy(work.loop);
	fd_close(&fds[0]);
	fd_close(&fds[1]);
}

/* A round that has one to call does not wait. */
static void a_task_that_asks_again_is_called_in_the_next_round(void **state)
{
	(void)state;
	struct work work = new_work();

	work.first = (struct loop_task){.fn = do_first, .context = &work};
	work.again = true;
	loop_defer(work.loop, &work.first);
	assert_int_equal(loop_turn(work.loop, -1), 0);
	assert_string_equal(work.done, "1");
	assert_int_equal(loop_turn(work.loop, -1), 0);
	assert_string_equal(work.done, "11");
	assert_false(work.first.asked);
	loop_destroy(work.loop);
}

static void forgo_second(void *context)
{
	struct work *work = context;

	note(work, "1");
	loop_forgo(work->loop, &work->second);
}

static void a_task_that_is_forgone_is_not_called(void **state)
{
	(void)state;
	struct work work = new_work();

	work.first = (struct loop_task){.fn = do_first, .context = &work};
	work.second = (struct loop_task){.fn = do_second, .context = &work};
	loop_forgo(work.loop, &work.first);
	loop_defer(work.loop, &work.first);
	loop_defer(work.loop, &work.second);
	loop_forgo(work.loop, &work.first);
	assert_int_equal(loop_turn(work.loop, 0), 0);
	assert_string_equal(work.done, "2");
	/* By one that comes before it. */
	work.first.fn = forgo_second;
	loop_defer(work.loop, &work.first);
	loop_defer(work.loop, &work.second);
	assert_int_equal(loop_turn(work.loop, 0), 0);
	assert_string_equal(work.done, "21");
	loop_defer(work.loop, &work.second);
	assert_int_equal(loop_turn(work.loop, -1), 0);
	assert_string_equal(work.done, "212");
	loop_destroy(work.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_callback_may_remove_itself_and_the_other),
		cmocka_unit_test(timers_fire_once_and_can_be_disarmed),
		cmocka_unit_test(signals_arrive_as_events),
		cmocka_unit_test(one_source_takes_several_signals),
		cmocka_unit_test(a_closed_fd_is_refused),
		cmocka_unit_test(a_source_of_no_events_still_hears_hang_up),
		cmocka_unit_test(tasks_follow_the_callbacks_of_their_round),
		cmocka_unit_test(a_task_that_asks_again_is_called_in_the_next_round),
		cmocka_unit_test(a_task_that_is_forgone_is_not_called),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
