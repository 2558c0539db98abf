/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/worker.h"
#include "common/io.h"
#include "common/log.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct worker {
	pthread_t thread;
	int event; /* readable when work has returned */
	struct loop_source *source;
	void (*work)(void *context);
	void (*done)(void *context);
	void *context;
};

/* With every signal blocked: they are the loop's. */
static int start_thread(pthread_t *thread, bool detached, void *(*run)(void *context), void *context)
{
	pthread_attr_t attributes;
	sigset_t all, before;
	int status = pthread_attr_init(&attributes);

	if (status)
		return -status;
	sigfillset(&all);
	pthread_attr_setstacksize(&attributes, WORKER_STACK);
	if (detached)
		pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	status = pthread_create(thread, &attributes, run, context);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return -status;
}

static void free_worker(struct worker *worker)
{
	loop_remove(worker->source);
	fd_close(&worker->event);
	free(worker);
}

static void *run_work(void *context)
{
	const struct worker *worker = context;
	const uint64_t one = 1;

	worker->work(worker->context);
	if (write(worker->event, &one, sizeof one) != sizeof one)
		log_error("bug: a worker cannot say that it is done: %s", strerror(errno));
	return NULL;
}

static void work_is_done(void *context, uint32_t events)
{
	struct worker *worker = context;
	void (*done)(void *) = worker->done;
	void *for_whom = worker->context;

	(void)events;
	/* It has nothing left to do but to end. */
	pthread_join(worker->thread, NULL);
	free_worker(worker);
	done(for_whom);
}

int worker_start(struct loop *loop, void (*work)(void *context), void (*done)(void *context), void *context)
{
	struct worker *worker = calloc(1, sizeof *worker);
	int status;

	if (!worker)
		return -ENOMEM;
	*worker = (struct worker){.work = work, .done = done, .context = context};
	worker->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (worker->event >= 0)
		worker->source = loop_add_fd(loop, worker->event, EPOLLIN, work_is_done, worker);
	status = worker->source ? 0 : -errno;
	if (!status)
		status = start_thread(&worker->thread, false, run_work, worker);
	if (status)
		free_worker(worker);
	return status; /* NOLINT(clang-analyzer-unix.Malloc): the source has it */
}

/* --- closing --- */

struct closing {
	size_t count;
	int fds[WORKER_FDS_MAX];
};

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		int fd = fds[i];

		fd_close(&fd);
	}
}

static void *run_closing(void *context)
{
	struct closing *closing = context;

	close_all(closing->fds, closing->count);
	free(closing);
	return NULL;
}

void worker_close(const int *fds, size_t count)
{
	struct closing *closing = calloc(1, sizeof *closing);
	pthread_t thread;

	for (size_t i = 0; closing && i < count && closing->count < WORKER_FDS_MAX; i++)
		if (fds[i] >= 0)
			closing->fds[closing->count++] = fds[i];
	if (closing && closing->count && start_thread(&thread, true, run_closing, closing) == 0)
		return; /* NOLINT(clang-analyzer-unix.Malloc): the thread has it */
	free(closing);
	close_all(fds, count);
}
