/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile guests (tests/machine/hostile) against the real vmm, in TAP: which attacks there are, and how each
 * must end. What holds for all is in hostile_suite.h.
 *
 * Usage: hostile VMM GUEST [--long] [--seeds FIRST COUNT] [--only ATTACK [SEED]]
 */
#include "common/parse.h"
#include "tests/machine/hostile_suite.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WILD_LIMIT_MS = 1500, SEEDS = 12, SEEDS_LONG = 200 };

#define FAR_AHEAD "further ahead than the queue is long"

/* --- attacks that the guest survives --- */

/* seeds: how many variants there are. fault: the line that vmm may end with by status 6; NULL: it must not.
 */
static const struct survived {
	const char *attack;
	unsigned seeds;
	const char *fault, *what;
} survived[] = {
	{"registers", 1, NULL, "each register, value and status"},
	{"status", 1, NULL, "status values in any order"},
	{"configuration", 1, NULL, "configuration by every width at every offset"},
	{"notify", 1, NULL, "queues that do not exist are notified"},
	{"power", 1, NULL, "other values in the registers that end the VM"},
	{"rings-outside", 1, NULL, "rings outside memory"},
	{"rings-at-the-end", 1, NULL, "rings at the last byte of memory"},
	{"rings-overlap", 12, FAR_AHEAD, "rings over each other"},
	{"rings-in-tables", 1, FAR_AHEAD, "rings in page tables that are in use"},
	{"chains", 1, NULL, "malformed chains, buffers at every border"},
	{"live", 1, NULL, "queues changed while live"},
	{"resets", 1, NULL, "resets while requests are in flight"},
	{"widths", 1, NULL, "every way to access memory, on what is none"},
	{"addresses", 1, NULL, "addresses far away"},
	{"ports", 1, NULL, "every port"},
	{"strings", 1, NULL, "strings from and to ports"},
	{"ioapic", 1, NULL, "IOAPIC registers, every delivery mode"},
	{"ioapic-flood", 1, NULL, "interrupt routes changed without end"},
	{"lapic", 1, NULL, "local APIC registers"},
	{"interrupt-storm", 1, NULL, "a storm of interrupts to itself"},
	{"msrs", 1, NULL, "model-specific registers"},
	{"apic-base", 1, NULL, "the local APIC moved and switched off"},
	{"x2apic", 1, NULL, "the local APIC by model-specific registers"},
	{"paravirtual", 1, NULL, "clocks and times in memory that is none"},
	{"hypercalls", 1, NULL, "hypercalls"},
	{"cpuid", 1, NULL, "a flood of CPUID"},
	{HOSTILE_SEVERAL, 7, FAR_AHEAD, "several processors at the same devices"},
	{HOSTILE_SEVERAL "-starts", 1, NULL, "other processors started again and again"},
};

/* After the guest's last word, or the VM's end. */
static void judge(struct hostile_suite *suite, struct hostile_vm *vm, const struct hostile_usage *before,
	const char *fault)
{
	struct hostile_usage after;

	if (strstr(vm->said, "hostile: done\n")) {
		hostile_expect_sleep(suite, vm);
		if (hostile_usage(vm, &after))
			hostile_expect_growth(suite, before, &after);
		hostile_pause_and_kill(suite, vm);
	} else if (strstr(vm->said, "hostile: failed")) {
		hostile_find_fault(suite, "the guest finds a fault");
		kill(vm->pid, SIGTERM);
		hostile_expect_end(suite, vm, NULL);
	} else if (fault && vm->serial < 0) {
		hostile_expect_status(suite, vm, VMM_END_GUEST_FAULT, fault);
	} else {
		kill(vm->pid, SIGTERM);
		hostile_find_fault(
			suite, "no word from the guest, status %d", hostile_expect_end(suite, vm, NULL));
	}
}

static void test_attack(
	struct hostile_suite *suite, const char *attack, uint64_t seed, const char *fault, const char *what)
{
	struct hostile_usage before;
	struct hostile_vm *vm = calloc(1, sizeof(*vm));

	if (hostile_begin(suite, vm, attack, seed)) {
		if (!hostile_usage(vm, &before))
			hostile_find_fault(suite, "its usage cannot be read");
		hostile_await(vm, "hostile: done\n", "hostile: failed",
			suite->long_run ? HOSTILE_LONG_LIMIT_MS : HOSTILE_LIMIT_MS);
		judge(suite, vm, &before, fault);
	}
	hostile_report(suite, vm, attack, seed, what);
	free(vm);
}

static void test_survived(struct hostile_suite *suite)
{
	for (size_t i = 0; i < sizeof(survived) / sizeof(survived[0]); i++)
		for (unsigned seed = 0; seed < survived[i].seeds; seed++)
			if (hostile_is_wanted(suite, survived[i].attack, seed))
				test_attack(
					suite, survived[i].attack, seed, survived[i].fault, survived[i].what);
}

/* --- attacks that end the VM --- */

static const struct ended {
	const char *attack;
	uint64_t seed;
	enum vmm_end status;
	const char *line, *what;
} ended[] = {
	{"triple-invalid", 0, VMM_END_TRIPLE_FAULT, "triple fault",
		"an invalid instruction without a handler"},
	{"triple-breakpoint", 0, VMM_END_TRIPLE_FAULT, "triple fault", "a breakpoint without a handler"},
	{"triple-stack", 0, VMM_END_TRIPLE_FAULT, "triple fault", "no stack"},
	{"triple-nmi", 0, VMM_END_TRIPLE_FAULT, "triple fault", "an NMI without a handler"},
	{"triple-tables", 0, VMM_END_TRIPLE_FAULT, "triple fault", "no page tables"},
	{"fetch", 0, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "code in a device's registers"},
	{"fetch", 1, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "code in the IOAPIC"},
	{"fetch", 2, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "code behind memory"},
	{"fetch", 3, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "code in the local APIC"},
	{"fetch", 4, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "code in the hole"},
	{"unknown", 0, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "x87 on a register"},
	{"unknown", 1, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "16 bytes compared on a register"},
	{"unknown", 2, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "SSE arithmetic on a register"},
	{"init", 0, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "INIT to itself: there is no firmware"},
	{"line", 0, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "INIT by a device's line"},
	{"smi", 0, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "SMI to itself"},
	{"line", 1, VMM_END_GUEST_FAULT, "that KVM cannot emulate", "SMI by a device's line"},
	{"poweroff", 0, VMM_END_POWEROFF, "the guest powered off", "power-off under load, twice"},
	{"panic", 0, VMM_END_PANIC, "the guest's kernel panicked", "a panic, then power-off"},
	{"panic", 254, VMM_END_PANIC, "the guest's kernel panicked", "a panic with every event"},
	{"reset", 0, VMM_END_REBOOT, "the guest asked for a reset", "a reset, then power-off"},
	{"real", 0, VMM_END_REBOOT, "the guest asked for a reset", "a reset from real mode"},
	{"index-ahead", 0, VMM_END_GUEST_FAULT, FAR_AHEAD, "an index that no ring has"},
};

static void test_ended(struct hostile_suite *suite)
{
	for (size_t i = 0; i < sizeof(ended) / sizeof(ended[0]); i++) {
		struct hostile_vm *vm = calloc(1, sizeof(*vm));

		if (hostile_is_wanted(suite, ended[i].attack, ended[i].seed)) {
			if (hostile_begin(suite, vm, ended[i].attack, ended[i].seed))
				hostile_expect_status(suite, vm, (int)ended[i].status, ended[i].line);
			hostile_report(suite, vm, ended[i].attack, ended[i].seed, ended[i].what);
		}
		free(vm);
	}
}

/* --- attacks that may end in more than one way, or not at all --- */

/*
 * What is no memory as what only memory can be, random programs that may do anything: by the processor, such
 * a guest ends, hangs or gets through. Whichever it is, vmm answers, and ends as it should.
 */
static void test_open(struct hostile_suite *suite, const char *attack, uint64_t seed, const char *what)
{
	struct hostile_vm *vm = calloc(1, sizeof(*vm));

	if (hostile_begin(suite, vm, attack, seed)) {
		hostile_await(vm, "hostile: done\n", "hostile: failed", WILD_LIMIT_MS);
		if (vm->serial >= 0 && vm->control >= 0) {
			struct vmm_message reply = {0};

			/* It may end meanwhile, by itself. */
			if (hostile_ask(vm, VMM_PAUSE, &reply) >= 0)
				hostile_expect_idle(suite, vm, "while paused");
			hostile_ask(vm, VMM_KILL, &reply);
		}
		switch (hostile_expect_end(suite, vm, NULL)) {
		case VMM_END_POWEROFF:
		case VMM_END_PANIC:
		case VMM_END_REBOOT:
		case VMM_END_TRIPLE_FAULT:
		case VMM_END_GUEST_FAULT:
		case VMM_END_KVM:
		case VMM_END_KILLED:
			break;
		default:
			hostile_find_fault(suite, "that status is none of a guest's");
		}
	}
	hostile_report(suite, vm, attack, seed, what);
	free(vm);
}

/*
 * walked: the processor itself reads or writes what is no memory; nothing of it comes to vmm but the pause
 * and the kill. Not with sanitizers, which have nothing to watch.
 */
static const struct open {
	const char *attack;
	unsigned seeds;
	bool walked;
	const char *what;
} opens[] = {
	{"tables", 5, true, "page tables in what is no memory"},
	{"stack", 5, true, "a stack in what is no memory"},
	{"gates", 5, true, "interrupt gates in what is no memory"},
	{"segments", 5, true, "segments in what is no memory"},
	{"task", 5, true, "the exceptions' stack in what is no memory"},
	{"unknown", 4, false, "a descriptor table's address from a register"},
	{"efer", 1, false, "EFER, which not every processor enters a guest with"},
	{"sipi", 2, false, "start-up to itself"},
};

static void test_opens(struct hostile_suite *suite)
{
	for (size_t i = 0; i < sizeof(opens) / sizeof(opens[0]); i++) {
		if (opens[i].walked && suite->setup.sanitized)
			continue;
		for (unsigned seed = 0; seed < opens[i].seeds; seed++)
			if (hostile_is_wanted(suite, opens[i].attack, seed))
				test_open(suite, opens[i].attack, seed, opens[i].what);
	}
}

static void test_random(struct hostile_suite *suite)
{
	for (uint64_t i = 0; i < suite->seed_count; i++) {
		uint64_t seed = suite->seed_first + i;

		if (hostile_is_wanted(suite, "random", seed))
			test_attack(suite, "random", seed, FAR_AHEAD, "a random program");
		if (hostile_is_wanted(suite, "wild", seed))
			test_open(suite, "wild", seed, "a random program that may hit itself");
	}
}

/* --- guests that never end --- */

static const struct endless {
	const char *attack;
	uint64_t seed;
	const char *word, *what;
	bool sleeps;
} endless[] = {
	{"spin", 0, "hostile: spins\n", "an endless loop, interrupts off", false},
	{"spin", 1, "hostile: spins\n", "an endless loop, interrupts on", false},
	{"idle", 0, "hostile: sleeps\n", "halted for ever, interrupts off", true},
	{"compatibility", 0, "hostile: spins\n", "an endless loop of 32-bit code that reads a port", false},
	{"endless-string", 0, "hostile: spins\n", "one instruction that never ends", false},
	{"endless-exception", 0, "hostile: spins\n", "exceptions without end", false},
	{"endless-exception", 1, "hostile: spins\n", "breakpoints without end", false},
	{"feed", 0, "hostile: fed\n", "a disk that feeds itself while the guest sleeps", false},
	{HOSTILE_SEVERAL "-for-ever", 6, "hostile: spins\n", "several processors without end", false},
};

static void test_endless(struct hostile_suite *suite)
{
	struct vmm_message reply = {0};

	for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++) {
		struct hostile_vm *vm;

		if (!hostile_is_wanted(suite, endless[i].attack, endless[i].seed))
			continue;
		vm = calloc(1, sizeof(*vm));
		if (hostile_begin(suite, vm, endless[i].attack, endless[i].seed)) {
			if (!hostile_await(vm, endless[i].word, NULL, HOSTILE_LIMIT_MS))
				hostile_find_fault(suite, "the guest says nothing");
			if (endless[i].sleeps)
				hostile_expect_idle(suite, vm, "while the guest sleeps");
			for (int k = 0; k < HOSTILE_PAUSES; k++)
				if (!hostile_expect_reply(suite, vm, VMM_PAUSE, &reply) ||
					!hostile_expect_reply(suite, vm, VMM_RESUME, &reply))
					break;
			hostile_pause_and_kill(suite, vm);
		}
		hostile_report(suite, vm, endless[i].attack, endless[i].seed, endless[i].what);
		free(vm);
	}
}

/* --- main --- */

static bool read_number(const char *text, uint64_t *number)
{
	return text && parse_u64(text, 0, UINT64_MAX, number) == 0;
}

static bool read_options(struct hostile_suite *suite, char *argv[])
{
	suite->seed_count = SEEDS;
	for (; *argv; argv++)
		if (strcmp(*argv, "--long") == 0) {
			suite->long_run = true;
			suite->seed_count = SEEDS_LONG;
		} else if (strcmp(*argv, "--seeds") == 0 && read_number(argv[1], &suite->seed_first) &&
			   read_number(argv[2], &suite->seed_count)) {
			argv += 2;
		} else if (strcmp(*argv, "--only") == 0 && argv[1]) {
			suite->only = *++argv;
			suite->only_has_seed = read_number(argv[1], &suite->only_seed);
			if (suite->only_has_seed) {
				argv++;
				suite->seed_first = suite->only_seed;
				suite->seed_count = 1;
			}
		} else {
			return false;
		}
	return true;
}

int main(int argc, char *argv[])
{
	struct hostile_suite suite = {0};

	if (argc < 3 || !read_options(&suite, argv + 3)) {
		fprintf(stderr, "usage: %s VMM GUEST [--long] [--seeds FIRST COUNT] [--only ATTACK [SEED]]\n",
			argv[0]);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	if (hostile_setup(&suite.setup, argv[1], argv[2]) < 0) {
		perror("hostile");
		return 1;
	}
	test_survived(&suite);
	test_ended(&suite);
	test_opens(&suite);
	test_endless(&suite);
	hostile_test_floods(&suite);
	test_random(&suite);
	hostile_teardown(&suite.setup);
	printf("1..%d\n", suite.count);
	return suite.failed > 0;
}
