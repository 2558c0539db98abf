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
 * boots of all VMs seen are told too, as the daemon timed them. With --samples REQUESTS may be 0: then it is
 * SPAWNS processes, and the daemon is not asked. PROGRAM must be the same file in the guest
 * and here, where --here names it when it has another path; --template says whose clones are asked.
 */
#include "host-ctl/bench/statistics.h"
#include "host-ctl/bench/warm.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAMPLES_MAX = 10000 };

struct samples {
	double *ns;
	size_t count;
};

struct bench {
	struct warm warm;
	FILE *to; /* for --samples, or NULL */
	struct samples boots, requests, spawns;
	json_t *seen; /* ids of the VMs whose boot is in boots */
	bool clones;  /* they are started from a template */
};

static void add(struct samples *samples, uint64_t ns)
{
	if (samples->count < SAMPLES_MAX)
		samples->ns[samples->count++] = (double)ns;
}

static void tell(const struct bench *bench, const char *kind, uint64_t ns)
{
	if (bench->to)
		fprintf(bench->to, "%s %llu\n", kind, (unsigned long long)ns);
}

static int fail(const char *what, const char *why)
{
	fprintf(stderr, "first_byte: %s: %s\n", what, why);
	return -1;
}

/* The boots of VMs not seen before, or what a clone has in place of one. */
static void note_boots(void *data, const json_t *pool)
{
	struct bench *bench = data;
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

static int time_request(struct bench *bench)
{
	uint64_t ns;

	if (warm_time_request(&bench->warm, &ns) < 0)
		return fail("a request", bench->warm.error);
	add(&bench->requests, ns);
	tell(bench, "request", ns);
	return 0;
}

static int time_spawn(struct bench *bench)
{
	uint64_t ns;

	if (warm_time_spawn(&bench->warm, &ns) < 0)
		return fail("a process", bench->warm.error);
	add(&bench->spawns, ns);
	tell(bench, "spawn", ns);
	return 0;
}

static int await_pool(struct bench *bench)
{
	return warm_await_pool(&bench->warm, note_boots, bench) < 0 ? fail("the pool", bench->warm.error) : 0;
}

/* ---- the table ---- */

/* Its median in ns; 0: there are no samples, or no memory. */
static double print_row(const char *name, const struct samples *samples)
{
	struct statistics of;

	if (samples->count == 0 || statistics_of(samples->ns, samples->count, &of) < 0)
		return 0;
	printf("  %-40s %10.2f %10.2f %6zu\n", name, of.minimum / 1e6, of.median / 1e6, of.count);
	return of.median;
}

static void print_table(struct bench *bench)
{
	const char *start = bench->clones ? "clone" : "cold boot";
	double boot, request, spawn;
	char label[64];

	printf("  %-40s %10s %10s %6s\n", "", "min, ms", "median, ms", "n");
	snprintf(label, sizeof(label), "%s: vmm's start to a warm VM", start);
	boot = print_row(label, &bench->boots);
	request = print_row("warm VM: request to first byte", &bench->requests);
	spawn = print_row("posix_spawn here: call to first byte", &bench->spawns);
	printf("  a warm request takes %.1f times a posix_spawn (medians), and a %s %.0f times\n",
		request / spawn, start, boot / spawn);
}

static int time_spawns(struct bench *bench, long spawns)
{
	for (long i = 0; i < spawns; i++)
		if (time_spawn(bench) < 0)
			return -1;
	return 0;
}

static int run(struct bench *bench, long requests, long spawns)
{
	if (requests == 0)
		return time_spawns(bench, spawns);
	for (long i = 0; i < requests; i++) {
		if (await_pool(bench) < 0 || time_spawns(bench, spawns) < 0 || time_request(bench) < 0)
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
			bench->warm.here = at[1];
		else if (strcmp(at[0], "--template") == 0)
			bench->warm.template = at[1];
		else if (strcmp(at[0], "--mark") == 0 && bench->warm.mark < 0)
			bench->warm.mark = open(at[1], O_WRONLY | O_CLOEXEC);
		else
			return fail(at[0], "is not an option");
		if ((strcmp(at[0], "--mark") == 0 && bench->warm.mark < 0) ||
			(strcmp(at[0], "--samples") == 0 && !bench->to))
			return fail(at[1], strerror(errno));
	}
	return 0;
}

int main(int argc, char **argv)
{
	static double boots[SAMPLES_MAX], requests[SAMPLES_MAX], spawns[SAMPLES_MAX];
	struct bench bench = {
		.warm.mark = -1, .boots.ns = boots, .requests.ns = requests, .spawns.ns = spawns};
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
	if (argc < 4 || atol(operands[1]) < (bench.to ? 0 : 1) || atol(operands[2]) < (bench.to ? 0 : 1))
		return usage();
	bench.warm.socket = operands[0];
	bench.warm.argv = program;
	if (!bench.warm.here)
		bench.warm.here = program[0];
	bench.seen = json_object();
	r = run(&bench, atol(operands[1]), atol(operands[2]));
	json_decref(bench.seen);
	if (bench.to && fclose(bench.to) != 0)
		r = fail("--samples", strerror(errno));
	if (bench.warm.mark >= 0)
		close(bench.warm.mark);
	if (r == 0 && !bench.to)
		print_table(&bench);
	return r == 0 ? 0 : 1;
}
