/* SPDX-License-Identifier: Apache-2.0 */
/* What `host-ctl bench` measures; for its own files. Each fills call->series, or returns -1 with the sentence
 * in call->error. */
#ifndef HOST_CTL_BENCH_H
#define HOST_CTL_BENCH_H

#include "host-ctl/bench/series.h"
#include <limits.h>
#include <stdbool.h>

enum { BENCH_ERROR_MAX = 1024, BENCH_WORDS_MAX = 64, BENCH_LOG_MAX = 300 };

/* Paths are of argv, or defaults in `found`. */
struct bench_call {
	const char *vmm, *kernel, *initrd, *image, *memory;
	char found[4][PATH_MAX];
	const char *options[2]; /* -a and -b: more of vmm's; NULL: not given */
	const char *socket, *template, *here;
	char **argv; /* the program that is run; ends with NULL */
	size_t rounds;
	struct series series;
	char error[BENCH_ERROR_MAX];
};

/* The sentence; returns -1. */
int bench_fail(struct bench_call *call, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* vmm, from its start to the agent's hello: with -a, and in turns with -b. */
int bench_boot(struct bench_call *call);
/* The same of a restore, in turns with a boot. */
int bench_restore(struct bench_call *call);
/* A warm VM of the daemon, in turns with posix_spawn of the same program. */
int bench_run(struct bench_call *call);

#endif
