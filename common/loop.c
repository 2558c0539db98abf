/* SPDX-License-Identifier: Apache-2.0 */
#include "common/loop.h"
#include "common/io.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

enum {
	ROUND_EVENTS = 32,
	SIGNALS_PER_READ = 4,
};

enum source_kind { SOURCE_FD, SOURCE_TIMER, SOURCE_SIGNAL };

struct loop_source {
	struct loop *loop;
	struct loop_source *next, *previous; /* in loop->sources, or next only in loop->dead */
	enum source_kind kind;
	int fd;
	bool removed;
	union {
		loop_fd_fn fd;
		loop_timer_fn timer;
		loop_signal_fn signal;
	} fn;
	void *context;
};

struct loop {
	int epoll;
	struct loop_source *sources;
	struct loop_source *dead; /* removed in this round, freed at its end */
	/* Asked for; and those of them whose turn it is. */
	struct loop_task *tasks, *present;
	bool stopping;
	int value;
};

struct loop *loop_create(void)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (loop->epoll < 0) {
		free(loop);
		return NULL;
	}
	return loop;
}

static void free_dead(struct loop *loop)
{
	while (loop->dead) {
		struct loop_source *source = loop->dead;

		loop->dead = source->next;
		free(source);
	}
}

void loop_destroy(struct loop *loop)
{
	if (!loop)
		return;
	while (loop->sources)
		loop_remove(loop->sources);
	free_dead(loop);
	fd_close(&loop->epoll);
	free(loop);
}

/* Closes the fd of a source that owns it, on failure too. */
static struct loop_source *add_source(struct loop *loop, enum source_kind kind, int fd, uint32_t events)
{
	struct loop_source *source = calloc(1, sizeof(*source));
	struct epoll_event event = {.events = events};

	if (!source)
		goto fail;
	source->loop = loop;
	source->kind = kind;
	source->fd = fd;
	event.data.ptr = source;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		goto fail;
	source->next = loop->sources;
	if (source->next)
		source->next->previous = source;
	loop->sources = source;
	return source;
fail:
	if (kind != SOURCE_FD)
		fd_close(&fd);
	free(source);
	return NULL;
}

struct loop_source *loop_add_fd(struct loop *loop, int fd, uint32_t events, loop_fd_fn fn, void *context)
{
	struct loop_source *source = add_source(loop, SOURCE_FD, fd, events);

	if (source) {
		source->fn.fd = fn;
		source->context = context;
	}
	return source;
}

int loop_set_events(struct loop_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	return epoll_ctl(source->loop->epoll, EPOLL_CTL_MOD, source->fd, &event) < 0 ? -errno : 0;
}

struct loop_source *loop_add_timer(struct loop *loop, loop_timer_fn fn, void *context)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	struct loop_source *source;

	if (fd < 0)
		return NULL;
	source = add_source(loop, SOURCE_TIMER, fd, EPOLLIN);
	if (source) {
		source->fn.timer = fn;
		source->context = context;
	}
	return source;
}

int loop_set_timer(struct loop_source *timer, uint64_t nanoseconds)
{
	struct itimerspec when = {
		.it_value =
			{
				.tv_sec = (time_t)(nanoseconds / 1000000000),
				.tv_nsec = (long)(nanoseconds % 1000000000),
			},
	};

	return timerfd_settime(timer->fd, 0, &when, NULL) < 0 ? -errno : 0;
}

struct loop_source *loop_add_signals(
	struct loop *loop, const int *signals, unsigned count, loop_signal_fn fn, void *context)
{
	struct loop_source *source;
	sigset_t set;
	int fd;

	sigemptyset(&set);
	for (unsigned i = 0; i < count; i++)
		if (sigaddset(&set, signals[i]) < 0)
			return NULL;
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return NULL;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return NULL;
	source = add_source(loop, SOURCE_SIGNAL, fd, EPOLLIN);
	if (source) {
		source->fn.signal = fn;
		source->context = context;
	}
	return source;
}

struct loop_source *loop_add_signal(struct loop *loop, int signal, loop_signal_fn fn, void *context)
{
	return loop_add_signals(loop, &signal, 1, fn, context);
}

void loop_remove(struct loop_source *source)
{
	struct loop *loop;

	if (!source || source->removed)
		return;
	loop = source->loop;
	source->removed = true;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, source->fd, NULL);
	if (source->kind != SOURCE_FD)
		fd_close(&source->fd);
	if (source->previous)
		source->previous->next = source->next;
	else
		loop->sources = source->next;
	if (source->next)
		source->next->previous = source->previous;
	source->next = loop->dead;
	loop->dead = source;
}

static void dispatch_timer(struct loop_source *source)
{
	uint64_t expirations;

	/* Another callback of this round may have set the timer anew: then there is nothing to read. */
	if (read(source->fd, &expirations, sizeof(expirations)) == (ssize_t)sizeof(expirations))
		source->fn.timer(source->context);
}

static void dispatch_signal(struct loop_source *source)
{
	struct signalfd_siginfo info[SIGNALS_PER_READ];
	ssize_t n = read(source->fd, info, sizeof(info));

	for (ssize_t i = 0; i < n / (ssize_t)sizeof(info[0]) && !source->removed; i++)
		source->fn.signal(source->context, &info[i]);
}

static void dispatch(struct loop_source *source, uint32_t events)
{
	switch (source->kind) {
	case SOURCE_FD:
		source->fn.fd(source->context, events);
		break;
	case SOURCE_TIMER:
		dispatch_timer(source);
		break;
	case SOURCE_SIGNAL:
		dispatch_signal(source);
		break;
	}
}

void loop_defer(struct loop *loop, struct loop_task *task)
{
	struct loop_task **at = &loop->tasks;

	if (task->asked)
		return;
	task->asked = true;
	task->next = NULL;
	while (*at)
		at = &(*at)->next;
	*at = task;
}

static bool unlink_task(struct loop_task **at, const struct loop_task *task)
{
	while (*at && *at != task)
		at = &(*at)->next;
	if (!*at)
		return false;
	*at = task->next;
	return true;
}

void loop_forgo(struct loop *loop, struct loop_task *task)
{
	if (task->asked && !unlink_task(&loop->tasks, task))
		unlink_task(&loop->present, task);
	task->asked = false;
}

static void call_tasks(struct loop *loop)
{
	struct loop_task *task;

	loop->present = loop->tasks;
	loop->tasks = NULL;
	while ((task = loop->present)) {
		loop->present = task->next;
		task->asked = false;
		task->fn(task->context);
	}
}

int loop_turn(struct loop *loop, int timeout_ms)
{
	struct epoll_event events[ROUND_EVENTS];
	int n = epoll_wait(loop->epoll, events, ROUND_EVENTS, loop->tasks ? 0 : timeout_ms);

	if (n < 0)
		return errno == EINTR ? 0 : -errno;
	for (int i = 0; i < n; i++) {
		struct loop_source *source = events[i].data.ptr;

		if (!source->removed)
			dispatch(source, events[i].events);
	}
	call_tasks(loop);
	free_dead(loop);
	return 0;
}

int loop_run(struct loop *loop)
{
	loop->stopping = false;
	while (!loop->stopping) {
		int r = loop_turn(loop, -1);

		if (r < 0)
			return r;
	}
	return loop->value;
}

void loop_stop(struct loop *loop, int value)
{
	loop->stopping = true;
	loop->value = value;
}
