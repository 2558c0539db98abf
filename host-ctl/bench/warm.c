/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/bench/warm.h"
#include "common/frame.h"
#include "common/io.h"
#include "host-ctl/cli/client.h"
#include "host-ctl/support/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

__attribute__((format(printf, 2, 3))) static int fail(struct warm *warm, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(warm->error, sizeof(warm->error), format, arguments);
	va_end(arguments);
	return -1;
}

/* A mark that is not taken is missed by whoever reads the trace. */
static void mark(const struct warm *warm, const char *what)
{
	if (warm->mark >= 0 && write(warm->mark, what, strlen(what)) < 0)
		perror("--mark");
}

/* ---- the pool ---- */

/* The pool of that template in the answer of GET /v1/pools, a reference of its own; NULL: it has none. */
static json_t *find_pool(const json_t *answer, const char *template)
{
	json_t *pool;
	size_t i;

	json_array_foreach(json_object_get(answer, "pools"), i, pool)
	{
		const char *name = json_string_value(json_object_get(pool, "template"));

		if (name && strcmp(name, template) == 0)
			return json_incref(pool);
	}
	return NULL;
}

static int ask_pool(struct warm *warm, json_t **pool)
{
	struct client_error error;
	struct client client;
	int r = client_connect(&client, warm->socket, CLIENT_QUERY_TIMEOUT_MS, &error);
	json_t *answer = NULL;

	if (r == 0)
		r = client_call(&client, "GET", warm->template ? "/v1/pools" : "/v1/pool", NULL, NULL,
			&answer, &error);
	client_finish(&client);
	if (r < 0)
		return fail(warm, "%s", error.message);
	*pool = warm->template ? find_pool(answer, warm->template) : json_incref(answer);
	json_decref(answer);
	return *pool ? 0
		     : fail(warm,
			       "the template %s has no pool; give it one: host-ctl pool --template %s "
			       "--target 1",
			       warm->template, warm->template);
}

static int settle(void)
{
	static const struct timespec pause = {.tv_nsec = WARM_SETTLE_MS * 1000000L};

	nanosleep(&pause, NULL);
	return 0;
}

int warm_await_pool(struct warm *warm, void (*look)(void *data, const json_t *pool), void *data)
{
	static const struct timespec pause = {.tv_nsec = WARM_POOL_POLL_MS * 1000000L};
	uint64_t end = clock_now() + WARM_POOL_WAIT_MS * CLOCK_NS_PER_MS;
	json_t *pool = NULL;
	json_int_t alive, target;
	size_t vms;

	do {
		if (ask_pool(warm, &pool) < 0)
			return -1;
		if (look)
			look(data, pool);
		alive = json_integer_value(json_object_get(pool, "warm"));
		target = json_integer_value(json_object_get(pool, "target"));
		vms = json_array_size(json_object_get(pool, "vms"));
		json_decref(pool);
		if (target == 0)
			return fail(warm,
				"the pool keeps no VM warm; have it keep some: host-ctl pool --target 2");
		if (alive == target && vms == (size_t)target)
			return settle();
		nanosleep(&pause, NULL);
	} while (clock_now() < end);
	return fail(warm, "the pool is not full after two minutes; host-ctl pool says why");
}

/* ---- a request ---- */

static json_t *make_request(const struct warm *warm)
{
	json_t *list = json_array();

	for (char **argument = warm->argv; *argument; argument++)
		json_array_append_new(list, json_string(*argument));
	return json_pack("{s:o, s:s*}", "argv", list, "template", warm->template);
}

/* One frame: 1 when it was the last, 0, or -errno. */
static int take_frame(struct warm *warm, const struct frame *frame, uint64_t *first, struct agent_exit *end)
{
	if (frame->type == AGENT_STDOUT && *first == 0) {
		*first = clock_now();
		mark(warm, "first byte");
	} else if (frame->type == AGENT_EXIT && frame->length == sizeof(*end)) {
		memcpy(end, frame->payload, sizeof(*end));
		return 1;
	} else if (frame->type == AGENT_HOST_ERROR) {
		return -EREMOTEIO;
	}
	return 0;
}

/* Reads to the terminal frame. *first: when the first byte of output came. */
static int read_run(struct warm *warm, struct client *client, uint64_t *first)
{
	struct frame_reader reader;
	struct agent_exit end = {0};
	struct frame frame;
	int r = frame_reader_init(&reader, AGENT_FRAME_MAX), last = 0;

	*first = 0;
	if (r == 0)
		r = frame_reader_feed(&reader, client->buffer + client->start, client->end - client->start);
	while (r >= 0 && last == 0) {
		r = frame_reader_next(&reader, &frame);
		if (r == 0) {
			r = frame_reader_fill(&reader, client->fd);
			r = r == 0 ? -ECONNRESET : r;
		} else if (r > 0) {
			last = take_frame(warm, &frame, first, &end);
			r = last < 0 ? last : r;
		}
	}
	frame_reader_finish(&reader);
	if (r < 0)
		return fail(warm, "a run of %s: %s", warm->argv[0], strerror(-r));
	if (*first == 0 || end.kind != AGENT_EXITED || end.code != 0)
		return fail(warm, "a run of %s ended otherwise than with output and status 0", warm->argv[0]);
	return 0;
}

int warm_time_request(struct warm *warm, uint64_t *ns)
{
	json_t *request = make_request(warm);
	struct client_error error;
	struct client client;
	uint64_t start, first = 0;
	int r;

	if (!request)
		return fail(warm, "the program's words are no UTF-8, or there is no memory");
	mark(warm, "request");
	start = clock_now();
	r = client_connect(&client, warm->socket, -1, &error);
	if (r == 0)
		r = client_upgrade(&client, "/v1/run", request, &error);
	json_decref(request);
	if (r < 0)
		r = fail(warm, "POST /v1/run: %s", error.message);
	else
		r = read_run(warm, &client, &first);
	client_finish(&client);
	if (r == 0)
		*ns = first - start;
	return r;
}

/* ---- a process ---- */

int warm_time_spawn(struct warm *warm, uint64_t *ns)
{
	posix_spawn_file_actions_t actions;
	char byte, *environment[] = {NULL};
	int ends[2], r, status = 0;
	uint64_t start;
	pid_t pid;

	if (pipe2(ends, O_CLOEXEC) < 0)
		return fail(warm, "a pipe: %s", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	*ns = 0;
	start = clock_now();
	r = posix_spawn(&pid, warm->here, &actions, NULL, warm->argv, environment);
	fd_close(&ends[1]);
	if (r == 0 && read(ends[0], &byte, 1) == 1)
		*ns = clock_now() - start;
	fd_close(&ends[0]);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return fail(warm, "%s: %s", warm->here, strerror(r));
	waitpid(pid, &status, 0);
	return status == 0 && *ns
		       ? 0
		       : fail(warm, "%s ended otherwise than with output and status 0", warm->here);
}
