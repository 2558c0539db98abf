/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds for a vmm whatever its guest does, and the verdicts on it, in TAP:
 *
 *   - vmm ends with a status and a line of its own, or lives; no signal, no word of a sanitizer
 *   - while the guest sleeps or the VM is paused, vmm does, too (hostile_is_idle)
 *   - it holds as many fds and threads as before, and at most HOSTILE_GROWTH_KIB more memory besides the
 * guest's
 *   - files that are not the guest's to write are as before
 *   - the control socket answers within HOSTILE_ANSWER_US, and a paused VM can be saved
 *   - a guest that lives can reset its devices, and they work: it says so itself
 *
 * A case is hostile_begin, what it expects, and hostile_report, which tells the first thing that was wrong.
 */
#ifndef TESTS_MACHINE_HOSTILE_SUITE_H
#define TESTS_MACHINE_HOSTILE_SUITE_H

#include "tests/machine/hostile_vm.h"

enum {
	HOSTILE_REASON_MAX = 256,
	HOSTILE_ANSWER_US = 3000000, /* in an emulated machine on a loaded host; the median is a hundredth */
	HOSTILE_GROWTH_KIB = 512,
	HOSTILE_GROWTH_SANITIZED_KIB = 8192, /* its quarantine and its books */
	HOSTILE_LAST_WORDS = 200,
	HOSTILE_PAUSES = 20, /* in a row, of a guest that does not end */
};

#define HOSTILE_SEVERAL "several" /* attacks whose names begin so get several processors */

struct hostile_suite {
	struct hostile_setup setup;
	bool long_run;
	uint64_t seed_first, seed_count;
	const char *only; /* NULL: all */
	bool only_has_seed;
	uint64_t only_seed;
	int count, failed;
	char reason[2 * HOSTILE_REASON_MAX]; /* the first that is wrong with the present case; empty: none */
};

/* Is the case asked for? */
bool hostile_is_wanted(const struct hostile_suite *suite, const char *attack, uint64_t seed);

/* Starts the guest and waits for its first word; false: something is wrong. */
bool hostile_begin(struct hostile_suite *suite, struct hostile_vm *vm, const char *attack, uint64_t seed);
void hostile_find_fault(struct hostile_suite *suite, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void hostile_report(struct hostile_suite *suite, struct hostile_vm *vm, const char *attack, uint64_t seed,
	const char *what);
/* The end of them, on one line. */
void hostile_print_words(const char *who, const char *words, size_t maximum);

/* Each finds a fault where it is not so. */
bool hostile_expect_reply(
	struct hostile_suite *suite, struct hostile_vm *vm, uint32_t type, struct vmm_message *reply);
void hostile_expect_idle(struct hostile_suite *suite, const struct hostile_vm *vm, const char *when);
/* For a guest that has said that it sleeps. */
void hostile_expect_sleep(struct hostile_suite *suite, struct hostile_vm *vm);
void hostile_expect_size(
	struct hostile_suite *suite, const struct hostile_usage *before, const struct hostile_usage *after);
/* The size, and fds and threads. */
void hostile_expect_growth(
	struct hostile_suite *suite, const struct hostile_usage *before, const struct hostile_usage *after);
/* Waits for the VM's end. line: what the last line has in it, or NULL: any. Its exit status, -1: killed. */
int hostile_expect_end(struct hostile_suite *suite, struct hostile_vm *vm, const char *line);
void hostile_expect_status(struct hostile_suite *suite, struct hostile_vm *vm, int wanted, const char *line);
/* Pauses it, saves it, kills it, and waits for its end. */
void hostile_pause_and_kill(struct hostile_suite *suite, struct hostile_vm *vm);

/* Floods, each beside another VM, which must get on (hostile_flood.c). */
void hostile_test_floods(struct hostile_suite *suite);

#endif
