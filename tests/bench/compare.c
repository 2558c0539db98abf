/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of two kinds of times that were measured in turns, by the statistics of `host-ctl bench`.
 *
 *   compare [--json FILE] NAME NAME
 *
 * Reads lines "0 NS" and "1 NS" from standard input, by the kind; the n-th of the one and the n-th of the
 * other are a pair.
 */
#include "host-ctl/bench/series.h"
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int fail(const char *what)
{
	fprintf(stderr, "compare: %s\n", what);
	return 1;
}

static int read_samples(struct series *series)
{
	unsigned long long kind, ns;
	int got;

	while ((got = scanf("%llu %llu", &kind, &ns)) == 2) {
		if (kind > 1 || ns == 0 || series->count[kind] == SERIES_ROUNDS_MAX)
			return fail("a line is no sample");
		series_add(series, kind, ns);
	}
	return got == EOF && series->count[0] && series->count[1] ? 0 : fail("there are no samples");
}

static int write_json(const struct series *series, const char *path)
{
	json_t *object = series_to_json(series);
	int r = object ? json_dump_file(object, path, JSON_INDENT(1)) : -1;

	json_decref(object);
	return r < 0 ? fail("cannot write the file of --json") : 0;
}

int main(int argc, char **argv)
{
	bool json = argc == 5 && strcmp(argv[1], "--json") == 0;
	struct series series;
	int r;

	if (!json && argc != 3) {
		fprintf(stderr, "usage: compare [--json FILE] NAME NAME\n");
		return 2;
	}
	r = series_init(&series, 2, SERIES_ROUNDS_MAX) < 0 ? fail("no memory") : 0;
	for (int i = 0; r == 0 && i < 2; i++)
		snprintf(series.names[i], SERIES_NAME_MAX, "%s", argv[argc - 2 + i]);
	if (r == 0)
		r = read_samples(&series);
	if (r == 0 && series_print(stdout, &series) < 0)
		r = fail("no memory");
	if (r == 0 && json)
		r = write_json(&series, argv[2]);
	series_finish(&series);
	return r;
}
