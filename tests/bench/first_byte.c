/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long until the first byte of a program's output: asked of a warm VM, and by posix_spawn on this host,
 * in turns, so that both meet the same moment of the machine.
 *
 *   first_byte [OPTION VALUE]... SOCKET REQUESTS SPAWNS [--] PROGRAM ARG...
 *
 * --samples appends each time to FILE, "request NS" or "spawn NS"; --mark writes "request" and "first byte"
 * to FILE when they happen, for a trace of the kernel. REQUESTS times: wait until the daemon's pool is full
 * and the machine so at rest, then SPAWNS processes, then one request. A request is timed from before it
 * connects to the arrival of the first byte of output; a process from before posix_spawn to the same. The
 * boots of all VMs seen are told too, as the daemon timed them. PROGRAM must be the same file in the guest
 * and here, where --here names it when it has another path; --template says whose clones are asked.
 */
#include "common/frame.h"
#include "host-ctl/cli/client.h"
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	SAMPLES_MAX = 10000,
	POOL_WAIT_MS = 120 * 1000, /* for the pool to be full again */
	POOL_POLL_MS = 20,
	SETTLE_MS = 50, /* for the daemon to have closed what asked */
};

struct samples {
	uint64_t *ns;
	size_t count;
};

struct bench {
	const char *socket;
	FILE *to; /* for --samples, or NULL */
	int mark; /* for --mark, or -1 */
	char **argv;
	char *here;	/* the program's file on this host */
	char *template; /* whose clones are asked; NULL: base's */
	struct samples boots, requests, spawns;
	json_t *seen; /* ids of the VMs whose boot is in boots */
	bool clones;  /* they are started from a template */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void add(struct samples *samples, uint64_t ns)
{
	if (samples->count < SAMPLES_MAX)
		samples->ns[samples->count++] = ns;
}

static void tell(const struct bench *bench, const char *kind, uint64_t ns)
{
	if (bench->to)
		fprintf(bench->to, "%s %llu\n", kind, (unsigned long long)ns);
}

/* A mark that is not taken is missed by whoever reads the trace. */
static void mark(const struct bench *bench, const char *what)
{
	if (bench->mark >= 0 && write(bench->mark, what, strlen(what)) < 0)
		perror("first_byte: --mark");
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "first_byte: %s: %s\n", what, why);
	return -1;
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

static int ask_pool(const struct bench *bench, json_t **pool)
{
	struct client_error error;
	struct client client;
	int r = client_connect(&client, bench->socket, CLIENT_QUERY_TIMEOUT_MS, &error);
	const char *path = bench->template ? "/v1/pools" : "/v1/pool";
	json_t *answer = NULL;

	if (r == 0)
		r = client_call(&client, "GET", path, NULL, NULL, &answer, &error);
	client_finish(&client);
	if (r < 0)
		return fail(path, error.message);
	*pool = bench->template ? find_pool(answer, bench->template) : json_incref(answer);
	json_decref(answer);
	return *pool ? 0 : fail(bench->template, "has no pool");
}

/* The boots of VMs not seen before, or what a clone has in place of one. */
static void note_boots(struct bench *bench, const json_t *pool)
{
	const json_t *vm;
	size_t i;

	bench->clones = json_is_string(json_object_get(pool, "template"));
	json_array_foreach(json_object_get(pool, "vms"), i, vm)
	{
		const char *id = json_string_value(json_object_get(vm, "id"));
		json_int_t ms = json_integer_value(json_object_get(vm, "boot_ms"));

		if (!id || ms <= 0 || json_object_get(bench->seen, id))
			continue;
		json_object_set_new(bench->seen, id, json_true());
		add(&bench->boots, (uint64_t)ms * 1000000);
	}
}

static int settle(void)
{
	static const struct timespec pause = {.tv_nsec = SETTLE_MS * 1000000L};

	nanosleep(&pause, NULL);
	return 0;
}

/* Until every VM of the pool is warm, and no other one is left. */
static int await_pool(struct bench *bench)
{
	static const struct timespec pause = {.tv_nsec = POOL_POLL_MS * 1000000L};
	uint64_t end = now_ns() + POOL_WAIT_MS * 1000000ULL;
	json_t *pool = NULL;
	size_t vms;
	json_int_t warm, target;

	do {
		if (ask_pool(bench, &pool) < 0)
			return -1;
		note_boots(bench, pool);
		warm = json_integer_value(json_object_get(pool, "warm"));
		target = json_integer_value(json_object_get(pool, "target"));
		vms = json_array_size(json_object_get(pool, "vms"));
		json_decref(pool);
		if (warm == target && vms == (size_t)target)
			return settle();
		nanosleep(&pause, NULL);
	} while (now_ns() < end);
	return fail("the pool", "is not full after two minutes");
}

/* ---- a request ---- */

static json_t *make_request(const struct bench *bench)
{
	json_t *list = json_array();

	for (char **argument = bench->argv; *argument; argument++)
		json_array_append_new(list, json_string(*argument));
	return json_pack("{s:o, s:s*}", "argv", list, "template", bench->template);
}

/* Reads to the terminal frame. 0 when there was output and the command ended well; *first: its arrival. */
static int read_run(const struct bench *bench, struct client *client, uint64_t *first)
{
	struct frame_reader reader;
	struct agent_exit end = {0};
	struct frame frame;
	int r = frame_reader_init(&reader, AGENT_FRAME_MAX);

	*first = 0;
	if (r == 0)
		r = frame_reader_feed(&reader, client->buffer + client->start, client->end - client->start);
	while (r >= 0 && end.kind == 0) {
		r = frame_reader_next(&reader, &frame);
		if (r == 0) {
			r = frame_reader_fill(&reader, client->fd);
			r = r == 0 ? -ECONNRESET : r;
		} else if (r > 0 && frame.type == AGENT_STDOUT && *first == 0) {
			*first = now_ns();
			mark(bench, "first byte");
		} else if (r > 0 && frame.type == AGENT_EXIT && frame.length == sizeof(end)) {
			memcpy(&end, frame.payload, sizeof(end));
		} else if (r > 0 && frame.type == AGENT_HOST_ERROR) {
			r = -EREMOTEIO;
		}
	}
	frame_reader_finish(&reader);
	if (r < 0)
		return fail("a run", strerror(-r));
	if (*first == 0 || end.kind != AGENT_EXITED || end.code != 0)
		return fail("a run", "ended otherwise than with output and status 0");
	return 0;
}

static int time_request(struct bench *bench)
{
	json_t *request = make_request(bench);
	struct client_error error;
	struct client client;
	uint64_t start, first;
	int r;

	mark(bench, "request");
	start = now_ns();
	r = client_connect(&client, bench->socket, -1, &error);
	if (r == 0)
		r = client_upgrade(&client, "/v1/run", request, &error);
	json_decref(request);
	if (r < 0)
		r = fail("POST /v1/run", error.message);
	else
		r = read_run(bench, &client, &first);
	client_finish(&client);
	if (r < 0)
		return r;
	add(&bench->requests, first - start);
	tell(bench, "request", first - start);
	return 0;
}

/* ---- a process ---- */

static int time_spawn(struct bench *bench)
{
	posix_spawn_file_actions_t actions;
	char byte, *environment[] = {NULL};
	int ends[2], r, status = 0;
	uint64_t start, took = 0;
	pid_t pid;

	if (pipe(ends) < 0)
		return fail("pipe", strerror(errno));
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
	posix_spawn_file_actions_addclose(&actions, ends[0]);
	start = now_ns();
	r = posix_spawn(&pid, bench->here, &actions, NULL, bench->argv, environment);
	close(ends[1]);
	if (r == 0 && read(ends[0], &byte, 1) == 1)
		took = now_ns() - start;
	close(ends[0]);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		return fail(bench->here, strerror(r));
	waitpid(pid, &status, 0);
	if (status != 0 || took == 0)
		return fail(bench->here, "ended otherwise than with output and status 0");
	add(&bench->spawns, took);
	tell(bench, "spawn", took);
	return 0;
}

/* ---- the table ---- */

static int compare(const void *left, const void *right)
{
	uint64_t a = *(const uint64_t *)left, b = *(const uint64_t *)right;

	return (a > b) - (a < b);
}

static double median_us(const struct samples *samples)
{
	size_t middle = samples->count / 2;

	return (double)samples->ns[middle] / 1000;
}

static void print_row(const char *name, struct samples *samples)
{
	if (samples->count == 0)
		return;
	qsort(samples->ns, samples->count, sizeof(samples->ns[0]), compare);
	printf("  %-40s %10.2f %10.2f %6zu\n", name, (double)samples->ns[0] / 1000000,
		median_us(samples) / 1000, samples->count);
}

static void print_table(struct bench *bench)
{
	const char *start = bench->clones ? "clone" : "cold boot";
	char label[64];

	printf("  %-40s %10s %10s %6s\n", "", "min, ms", "median, ms", "n");
	snprintf(label, sizeof(label), "%s: vmm's start to a warm VM", start);
	print_row(label, &bench->boots);
	print_row("warm VM: request to first byte", &bench->requests);
	print_row("posix_spawn here: call to first byte", &bench->spawns);
	printf("  a warm request takes %.1f times a posix_spawn (medians), and a %s %.0f times\n",
		median_us(&bench->requests) / median_us(&bench->spawns), start,
		bench->boots.count ? median_us(&bench->boots) / median_us(&bench->spawns) : 0);
}

static int run(struct bench *bench, long requests, long spawns)
{
	for (long i = 0; i < requests; i++) {
		if (await_pool(bench) < 0)
			return -1;
		for (long j = 0; j < spawns; j++)
			if (time_spawn(bench) < 0)
				return -1;
		if (time_request(bench) < 0)
			return -1;
	}
	return await_pool(bench);
}

static int usage(void)
{
	fprintf(stderr, "usage: first_byte [--samples FILE] [--mark FILE] [--here FILE] [--template NAME] "
			"SOCKET REQUESTS SPAWNS [--] PROGRAM ARG...\n");
	return 2;
}

/* 0 or -1. The options before the operands; *argv is moved past them. */
static int take_options(struct bench *bench, char ***argv)
{
	for (char **at = *argv; at[0] && strncmp(at[0], "--", 2) == 0 && at[1]; at += 2, *argv = at) {
		if (strcmp(at[0], "--samples") == 0 && !bench->to)
			bench->to = fopen(at[1], "ae");
		else if (strcmp(at[0], "--here") == 0)
			bench->here = at[1];
		else if (strcmp(at[0], "--template") == 0)
			bench->template = at[1];
		else if (strcmp(at[0], "--mark") == 0 && bench->mark < 0)
			bench->mark = open(at[1], O_WRONLY | O_CLOEXEC);
		else
			return fail(at[0], "is not an option");
		if ((strcmp(at[0], "--mark") == 0 && bench->mark < 0) ||
			(strcmp(at[0], "--samples") == 0 && !bench->to))
			return fail(at[1], strerror(errno));
	}
	return 0;
}

int main(int argc, char **argv)
{
	static uint64_t boots[SAMPLES_MAX], requests[SAMPLES_MAX], spawns[SAMPLES_MAX];
	struct bench bench = {.mark = -1, .boots.ns = boots, .requests.ns = requests, .spawns.ns = spawns};
	char **operands = argv + 1, **program;
	int r;

	if (argc < 2 || take_options(&bench, &operands) < 0)
		return usage();
	argc -= (int)(operands - argv);
	program = operands + 3;
	if (argc > 3 && strcmp(*program, "--") == 0) {
		program++;
		argc--;
	}
	if (argc < 4 || atol(operands[1]) < 1 || atol(operands[2]) < (bench.to ? 0 : 1))
		return usage();
	bench.socket = operands[0];
	bench.argv = program;
	if (!bench.here)
		bench.here = program[0];
	bench.seen = json_object();
	r = run(&bench, atol(operands[1]), atol(operands[2]));
	json_decref(bench.seen);
	if (bench.to && fclose(bench.to) != 0)
		r = fail("--samples", strerror(errno));
	if (bench.mark >= 0)
		close(bench.mark);
	if (r == 0 && !bench.to)
		print_table(&bench);
	return r == 0 ? 0 : 1;
}
