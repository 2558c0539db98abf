/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One event loop: epoll, with signals by signalfd and timers by timerfd. Single-threaded: everything is
 * called on the loop's own thread, or before it runs; loop_stop before loop_run has no effect. Nested turns
 * are not allowed.
 *
 * A callback may remove any source, its own included; a removed source's callback is not called again,
 * and its memory is freed after the present round. A source never owns its fd, but for timers and
 * signals; remove it before the fd is closed, or the number may be another file's by then.
 */
#ifndef COMMON_LOOP_H
#define COMMON_LOOP_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/signalfd.h>

struct loop;
struct loop_source;

/* events: EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLHUP, EPOLLERR as epoll_ctl(2) has them. */
typedef void (*loop_fd_fn)(void *context, uint32_t events);
typedef void (*loop_timer_fn)(void *context);
typedef void (*loop_signal_fn)(void *context, const struct signalfd_siginfo *info);

/* NULL with errno set on failure (EMFILE, ENOMEM). */
struct loop *loop_create(void);
/* Takes NULL. Removes what sources are left; their fds stay open. */
void loop_destroy(struct loop *loop);

/* NULL with errno set on failure. The source lives until loop_remove or loop_destroy. */
struct loop_source *loop_add_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn fn, void *context);
/* 0 or -errno. events may be 0: only hang-up and error are reported then. */
int loop_set_events(struct loop_source *source, uint32_t events);

/* A timer that is not armed yet. CLOCK_MONOTONIC. */
struct loop_source *loop_add_timer(struct loop *loop, loop_timer_fn fn, void *context);
/* Fires once after that many nanoseconds; 0 disarms. 0 or -errno. */
int loop_set_timer(struct loop_source *timer, uint64_t nanoseconds);

/* Blocks the signals in this thread and reads them by one signalfd. */
struct loop_source *loop_add_signals(
	struct loop *loop, const int *signals, unsigned count, loop_signal_fn fn, void *context);
struct loop_source *loop_add_signal(struct loop *loop, int signal, loop_signal_fn fn, void *context);

/* Takes NULL. */
void loop_remove(struct loop_source *source);

/* Work that waits until the callbacks of a round have returned. The asker's memory, which stays until fn is
 * called or loop_forgo was; fn and context are set before, the rest is zero. fn may free it. */
struct loop_task {
	void (*fn)(void *context);
	void *context;
	struct loop_task *next; /* the loop's */
	bool asked;
};

/* Calls it once, at the end of the present round; asked for by a task or between rounds, at the end of the
 * next, which then waits for nothing. Tasks are called in the order in which they were asked for. To ask
 * again before it was called is without effect. Takes no system call. */
void loop_defer(struct loop *loop, struct loop_task *task);
/* It is not called. Takes one that was not asked for. */
void loop_forgo(struct loop *loop, struct loop_task *task);

/* Runs until loop_stop; returns the value given to it, or -errno of epoll_wait. */
int loop_run(struct loop *loop);
/* One round: waits for at most timeout_ms (-1: for ever), dispatches. 0 or -errno. For tests and for loops
 * inside loops. */
int loop_turn(struct loop *loop, int timeout_ms);
void loop_stop(struct loop *loop, int value);

#endif
