/* SPDX-License-Identifier: Apache-2.0 */
/* Guests that flood a device without end: vmm answers, does not grow, and starves no other VM. */
#include "tests/machine/hostile_suite.h"
#include <stdio.h>
#include <stdlib.h>

enum {
	FLOOD_ASKS = 40,
	FLOOD_MS = 400,
	FAIR_TRIES = 6,
	FAIR_SHARE = 5, /* another VM gets on at least at a fifth of its pace */
};

static uint64_t count_exits(struct hostile_suite *suite, struct hostile_vm *vm)
{
	struct vmm_message reply = {0};

	return hostile_expect_reply(suite, vm, VMM_STATUS, &reply) ? reply.arg1 : 0;
}

/* How far it gets within a fixed time; beside: whose words are read meanwhile. */
static uint64_t measure_pace(struct hostile_suite *suite, struct hostile_vm *vm, struct hostile_vm *beside)
{
	uint64_t before = count_exits(suite, vm), start = hostile_now_us(), after;

	hostile_listen(beside, FLOOD_MS);
	after = count_exits(suite, vm);
	return (after - before) * 1000000 / (hostile_now_us() - start);
}

/* Its pace beside the flood, and beside the flooding VM paused. True when it is fair. */
static bool is_fair(struct hostile_suite *suite, struct hostile_vm *vm, struct hostile_vm *other,
	char why[HOSTILE_REASON_MAX])
{
	struct vmm_message reply = {0};
	uint64_t alone, beside;

	hostile_expect_reply(suite, vm, VMM_PAUSE, &reply);
	alone = measure_pace(suite, other, vm);
	hostile_expect_reply(suite, vm, VMM_RESUME, &reply);
	beside = measure_pace(suite, other, vm);
	snprintf(why, HOSTILE_REASON_MAX, "another VM makes %llu exits a second beside it, %llu alone",
		(unsigned long long)beside, (unsigned long long)alone);
	return beside >= alone / FAIR_SHARE;
}

/* What starves another VM does so each time. */
static void check_fairness(struct hostile_suite *suite, struct hostile_vm *vm, struct hostile_vm *other)
{
	char why[HOSTILE_REASON_MAX];

	for (int i = 0; i < FAIR_TRIES; i++)
		if (is_fair(suite, vm, other, why))
			return;
	hostile_find_fault(suite, "%s", why);
}

static void check_flood(struct hostile_suite *suite, struct hostile_vm *vm, struct hostile_vm *other)
{
	struct hostile_usage before, after;
	struct vmm_message reply = {0};

	hostile_usage(vm, &before);
	check_fairness(suite, vm, other);
	for (int i = 0; i < FLOOD_ASKS; i++)
		hostile_expect_reply(suite, vm, VMM_STATUS, &reply);
	for (int i = 0; i < HOSTILE_PAUSES; i++)
		if (!hostile_expect_reply(suite, vm, VMM_PAUSE, &reply) ||
			!hostile_expect_reply(suite, vm, VMM_RESUME, &reply))
			return;
	if (hostile_expect_reply(suite, vm, VMM_PAUSE, &reply) && hostile_usage(vm, &after))
		hostile_expect_size(suite, &before, &after);
}

static const struct flood {
	uint64_t seed;
	const char *what;
	bool deaf;
} floods[] = {
	{0, "kicks without end", false},
	{1, "register accesses and resets without end", false},
	{2, "requests on every queue without end", false},
	{3, "serial output without end", false},
	{3, "serial output without end that nobody reads", true},
	{4, "strings to the serial line that nobody reads", true},
};

void hostile_test_floods(struct hostile_suite *suite)
{
	struct hostile_vm *other = calloc(1, sizeof(*other));

	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
		struct hostile_vm *vm;

		if (!hostile_is_wanted(suite, "flood", floods[i].seed))
			continue;
		vm = calloc(1, sizeof(*vm));
		if (hostile_begin(suite, other, "compatibility", 0) &&
			hostile_begin(suite, vm, "flood", floods[i].seed)) {
			vm->deaf = floods[i].deaf;
			check_flood(suite, vm, other);
			hostile_pause_and_kill(suite, vm);
			hostile_pause_and_kill(suite, other);
		}
		if (suite->reason[0]) {
			printf("# process %d floods, process %d is beside it\n", (int)vm->pid,
				(int)other->pid);
			hostile_print_words("vmm beside", other->error_text, HOSTILE_LAST_WORDS);
		}
		hostile_report(suite, vm, "flood", floods[i].seed, floods[i].what);
		free(vm);
	}
	free(other);
}
