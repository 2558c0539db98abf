/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile guests (tests/machine/hostile) against the real vmm, in TAP. Whatever the guest does, this holds:
 *
 *   - vmm ends with a status and a line of its own, or lives; no signal, no word of a sanitizer
 *   - while the guest sleeps or the VM is paused, vmm does, too (hostile_is_idle)
 *   - it holds as many fds and threads as before, and at most GROWTH_KIB more memory besides the guest's
 *   - files that are not the guest's to write are as before
 *   - the control socket answers within ANSWER_US, and a paused VM can be saved
 *   - a guest that lives can reset its devices, and they work: it says so itself
 *
 * Usage: hostile VMM GUEST [--long] [--seeds FIRST COUNT] [--only ATTACK [SEED]]
 */
#include "common/parse.h"
#include "tests/machine/hostile_vm.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	REASON_MAX = 256,
	ANSWER_US = 1000000, /* in an emulated machine on a loaded host; the median is a hundredth */
	IDLE_TRIES = 5,
	AWAKE_MS = 200,
	AWAKE_LOOP_SHARE = 10, /* of that time, at the most */
	GROWTH_KIB = 512,
	GROWTH_SANITIZED_KIB = 8192, /* its quarantine and its books */
	WILD_LIMIT_MS = 1500,
	FLOOD_ASKS = 40,
	FLOOD_MS = 400,
	LAST_WORDS = 200,
	PAUSES = 20,
	FAIR_TRIES = 6,
	FAIR_SHARE = 5, /* another VM gets on at least at a fifth of its pace */
	SEEDS = 12,
	SEEDS_LONG = 200,
};

#define FAR_AHEAD "further ahead than the queue is long"
#define SEVERAL "several" /* attacks whose names begin so get several processors */

struct suite {
	struct hostile_setup setup;
	bool long_run;
	uint64_t seed_first, seed_count;
	const char *only; /* NULL: all */
	bool only_has_seed;
	uint64_t only_seed;
	int count, failed;
	char reason[2 * REASON_MAX]; /* the first that is wrong with the present case; empty: none */
};

static void __attribute__((format(printf, 2, 3))) find_fault(struct suite *suite, const char *format, ...)
{
	va_list arguments;

	if (suite->reason[0])
		return;
	va_start(arguments, format);
	vsnprintf(suite->reason, sizeof(suite->reason), format, arguments);
	va_end(arguments);
}

/* The end of them, on one line. */
static void print_words(const char *who, const char *words, size_t maximum)
{
	size_t length = strlen(words);

	printf("#   %s: ", who);
	for (const char *c = length > maximum ? words + length - maximum : words; *c; c++)
		putchar(*c == '\n' ? '|' : *c);
	putchar('\n');
}

static void report(
	struct suite *suite, struct hostile_vm *vm, const char *attack, uint64_t seed, const char *what)
{
	bool ok = !suite->reason[0];

	suite->count++;
	suite->failed += !ok;
	printf("%sok %d - %s %llu: %s\n", ok ? "" : "not ", suite->count, attack, (unsigned long long)seed,
		what);
	if (!ok) {
		printf("#   %s\n#   repeat it: hostile %s %s%s --only %s %llu\n", suite->reason,
			suite->setup.vmm, suite->setup.guest, suite->long_run ? " --long" : "", attack,
			(unsigned long long)seed);
		print_words("vmm", vm->error_text, LAST_WORDS * 10);
		print_words("the guest's last words", vm->said, LAST_WORDS);
	}
	suite->reason[0] = '\0';
	fflush(stdout);
}

/* --- what holds always --- */

static bool begin(struct suite *suite, struct hostile_vm *vm, const char *attack, uint64_t seed)
{
	const char *options[] = {"--cpus", strncmp(attack, SEVERAL, strlen(SEVERAL)) == 0 ? "4" : "1", NULL};
	char cmdline[HOSTILE_CMDLINE_MAX];

	snprintf(cmdline, sizeof(cmdline), "attack=%s seed=%llu long=%d thin=%d", attack,
		(unsigned long long)seed, suite->long_run, suite->setup.sanitized && !suite->long_run);
	if (!hostile_start(vm, &suite->setup, cmdline, options)) {
		find_fault(suite, "cannot start it");
		return false;
	}
	if (!hostile_await(vm, "hostile: begin\n", NULL, HOSTILE_LIMIT_MS))
		find_fault(suite, "the guest does not begin");
	return !suite->reason[0];
}

static void check_words(struct suite *suite, struct hostile_vm *vm)
{
	const char *files = hostile_check_files(&suite->setup);

	if (strstr(vm->error_text, "Sanitizer") || strstr(vm->error_text, "runtime error"))
		find_fault(suite, "a sanitizer speaks");
	if (vm->errors_lost)
		find_fault(suite, "more than %d bytes on standard error", HOSTILE_ERRORS_MAX);
	if (files)
		find_fault(suite, "%s", files);
}

/* line: what the last line has in it, or NULL: any. */
static int finish(struct suite *suite, struct hostile_vm *vm, const char *line)
{
	int status = hostile_finish(vm);
	const char *last = hostile_last_line(vm);

	check_words(suite, vm);
	if (status < 0)
		find_fault(suite, "it had to be killed");
	if (line && !strstr(last, line))
		find_fault(suite, "status %d, and the last line is \"%s\", not \"%s\"", status, last, line);
	return status;
}

static void finish_with(struct suite *suite, struct hostile_vm *vm, int wanted, const char *line)
{
	int status = finish(suite, vm, line);

	if (status != wanted)
		find_fault(suite, "status %d instead of %d", status, wanted);
}

static bool ask(struct suite *suite, struct hostile_vm *vm, uint32_t type, struct vmm_message *reply)
{
	int64_t us = hostile_ask(vm, type, reply);

	if (us < 0)
		find_fault(suite, "request %u to process %d is not answered (status %d, %s)", type,
			(int)vm->pid, reply->status, vm->control < 0 ? "it hung up" : "in time");
	else if (us > ANSWER_US)
		find_fault(suite, "request %u is answered after %lld us", type, (long long)us);
	return us >= 0;
}

/* In an emulated machine a thread that has just gone to sleep may look busy; one that spins does each time.
 */
static void check_idle(struct suite *suite, const struct hostile_vm *vm, const char *when)
{
	char why[HOSTILE_WHY_MAX];

	for (int i = 0; i < IDLE_TRIES; i++)
		if (hostile_is_idle(vm, why))
			return;
	find_fault(suite, "%s, %s", when, why);
}

/*
 * A program may leave an event behind for which KVM ends each halt at once: then a vCPU's thread is busy
 * within KVM_RUN, on the guest's own account. vmm sleeps when its loop does and no vCPU comes back to it.
 */
static bool only_guest_is_awake(struct hostile_vm *vm)
{
	struct vmm_message first, last;
	struct hostile_usage before, after;

	if (hostile_ask(vm, VMM_STATUS, &first) < 0 || !hostile_usage(vm, &before))
		return false;
	usleep(AWAKE_MS * 1000);
	if (!hostile_usage(vm, &after) || hostile_ask(vm, VMM_STATUS, &last) < 0)
		return false;
	return after.loop_ns > 0 &&
	       after.loop_ns - before.loop_ns < AWAKE_MS * 1000000ull / AWAKE_LOOP_SHARE &&
	       last.arg1 == first.arg1;
}

static void check_sleep(struct suite *suite, struct hostile_vm *vm)
{
	char why[HOSTILE_WHY_MAX];

	for (int i = 0; i < IDLE_TRIES; i++)
		if (hostile_is_idle(vm, why))
			return;
	if (only_guest_is_awake(vm))
		printf("# the guest's halts end at once within KVM: %s\n", why);
	else
		find_fault(suite, "while the guest sleeps, %s", why);
}

static void check_growth(
	struct suite *suite, const struct hostile_usage *before, const struct hostile_usage *after)
{
	uint64_t bound = suite->setup.sanitized ? GROWTH_SANITIZED_KIB : GROWTH_KIB;

	if (after->fds != before->fds)
		find_fault(suite, "%u fds, %u before", after->fds, before->fds);
	if (after->threads != before->threads)
		find_fault(suite, "%u threads, %u before", after->threads, before->threads);
	if (after->kib > before->kib + bound)
		find_fault(suite, "%llu KiB, %llu before", (unsigned long long)after->kib,
			(unsigned long long)before->kib);
}

static void pause_and_kill(struct suite *suite, struct hostile_vm *vm)
{
	struct vmm_message reply = {0};

	if (ask(suite, vm, VMM_STATUS, &reply) && ask(suite, vm, VMM_PAUSE, &reply)) {
		check_idle(suite, vm, "while paused");
		/* whatever the guest has left behind in the processor and the devices */
		if (hostile_save(vm, &reply) < 0)
			find_fault(suite, "it is not saved: status %d, %s", reply.status, reply.text);
	}
	ask(suite, vm, VMM_KILL, &reply);
	finish_with(suite, vm, VMM_END_KILLED, "ended by the control socket");
}

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
	{SEVERAL, 7, FAR_AHEAD, "several processors at the same devices"},
	{SEVERAL "-starts", 1, NULL, "other processors started again and again"},
};

/* After the guest's last word, or the VM's end. */
static void judge(
	struct suite *suite, struct hostile_vm *vm, const struct hostile_usage *before, const char *fault)
{
	struct hostile_usage after;

	if (strstr(vm->said, "hostile: done\n")) {
		check_sleep(suite, vm);
		if (hostile_usage(vm, &after))
			check_growth(suite, before, &after);
		pause_and_kill(suite, vm);
	} else if (strstr(vm->said, "hostile: failed")) {
		find_fault(suite, "the guest finds a fault");
		kill(vm->pid, SIGTERM);
		finish(suite, vm, NULL);
	} else if (fault && vm->serial < 0) {
		finish_with(suite, vm, VMM_END_GUEST_FAULT, fault);
	} else {
		kill(vm->pid, SIGTERM);
		find_fault(suite, "no word from the guest, status %d", finish(suite, vm, NULL));
	}
}

static void test_attack(
	struct suite *suite, const char *attack, uint64_t seed, const char *fault, const char *what)
{
	struct hostile_usage before;
	struct hostile_vm *vm = calloc(1, sizeof(*vm));

	if (begin(suite, vm, attack, seed)) {
		if (!hostile_usage(vm, &before))
			find_fault(suite, "its usage cannot be read");
		hostile_await(vm, "hostile: done\n", "hostile: failed", HOSTILE_LIMIT_MS);
		judge(suite, vm, &before, fault);
	}
	report(suite, vm, attack, seed, what);
	free(vm);
}

static bool is_wanted(const struct suite *suite, const char *attack, uint64_t seed)
{
	return !suite->only ||
	       (strcmp(suite->only, attack) == 0 && (!suite->only_has_seed || suite->only_seed == seed));
}

static void test_survived(struct suite *suite)
{
	for (size_t i = 0; i < sizeof(survived) / sizeof(survived[0]); i++)
		for (unsigned seed = 0; seed < survived[i].seeds; seed++)
			if (is_wanted(suite, survived[i].attack, seed))
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

static void test_ended(struct suite *suite)
{
	for (size_t i = 0; i < sizeof(ended) / sizeof(ended[0]); i++) {
		struct hostile_vm *vm = calloc(1, sizeof(*vm));

		if (is_wanted(suite, ended[i].attack, ended[i].seed)) {
			if (begin(suite, vm, ended[i].attack, ended[i].seed))
				finish_with(suite, vm, (int)ended[i].status, ended[i].line);
			report(suite, vm, ended[i].attack, ended[i].seed, ended[i].what);
		}
		free(vm);
	}
}

/* --- attacks that may end in more than one way, or not at all --- */

/*
 * What is no memory as what only memory can be, random programs that may do anything: by the processor, such
 * a guest ends, hangs or gets through. Whichever it is, vmm answers, and ends as it should.
 */
static void test_open(struct suite *suite, const char *attack, uint64_t seed, const char *what)
{
	struct hostile_vm *vm = calloc(1, sizeof(*vm));

	if (begin(suite, vm, attack, seed)) {
		hostile_await(vm, "hostile: done\n", "hostile: failed", WILD_LIMIT_MS);
		if (vm->serial >= 0 && vm->control >= 0) {
			struct vmm_message reply = {0};

			/* It may end meanwhile, by itself. */
			if (hostile_ask(vm, VMM_PAUSE, &reply) >= 0)
				check_idle(suite, vm, "while paused");
			hostile_ask(vm, VMM_KILL, &reply);
		}
		switch (finish(suite, vm, NULL)) {
		case VMM_END_POWEROFF:
		case VMM_END_PANIC:
		case VMM_END_REBOOT:
		case VMM_END_TRIPLE_FAULT:
		case VMM_END_GUEST_FAULT:
		case VMM_END_KVM:
		case VMM_END_KILLED:
			break;
		default:
			find_fault(suite, "that status is none of a guest's");
		}
	}
	report(suite, vm, attack, seed, what);
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

static void test_opens(struct suite *suite)
{
	for (size_t i = 0; i < sizeof(opens) / sizeof(opens[0]); i++) {
		if (opens[i].walked && suite->setup.sanitized)
			continue;
		for (unsigned seed = 0; seed < opens[i].seeds; seed++)
			if (is_wanted(suite, opens[i].attack, seed))
				test_open(suite, opens[i].attack, seed, opens[i].what);
	}
}

static void test_random(struct suite *suite)
{
	for (uint64_t i = 0; i < suite->seed_count; i++) {
		uint64_t seed = suite->seed_first + i;

		if (is_wanted(suite, "random", seed))
			test_attack(suite, "random", seed, FAR_AHEAD, "a random program");
		if (is_wanted(suite, "wild", seed))
			test_open(suite, "wild", seed, "a random program that may hit itself");
	}
}

/* --- guests that never end --- */

/*
 * not_in_lab: under it the emulated host's own kernel dies now and then ("corrupted stack end detected inside
 * scheduler", with QEMU 7.2 and 10.0), or gives its processors no time. Why is not known.
 */
static const struct endless {
	const char *attack;
	uint64_t seed;
	const char *word, *what;
	bool sleeps;
	bool not_in_lab;
} endless[] = {
	{"spin", 0, "hostile: spins\n", "an endless loop, interrupts off", false, false},
	{"spin", 1, "hostile: spins\n", "an endless loop, interrupts on", false, false},
	{"idle", 0, "hostile: sleeps\n", "halted for ever, interrupts off", true, false},
	{"compatibility", 0, "hostile: spins\n", "an endless loop of 32-bit code that reads a port", false,
		false},
	{"endless-string", 0, "hostile: spins\n", "one instruction that never ends", false, false},
	{"endless-exception", 0, "hostile: spins\n", "exceptions without end", false, false},
	{"endless-exception", 1, "hostile: spins\n", "breakpoints without end", false, false},
	{"feed", 0, "hostile: fed\n", "a disk that feeds itself while the guest sleeps", false, false},
	{SEVERAL "-for-ever", 6, "hostile: spins\n", "several processors without end", false, true},
};

static void test_endless(struct suite *suite)
{
	struct vmm_message reply = {0};

	for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++) {
		struct hostile_vm *vm;

		if (!is_wanted(suite, endless[i].attack, endless[i].seed) ||
			(endless[i].not_in_lab && getenv("TINDERBOX_LAB")))
			continue;
		vm = calloc(1, sizeof(*vm));
		if (begin(suite, vm, endless[i].attack, endless[i].seed)) {
			if (!hostile_await(vm, endless[i].word, NULL, HOSTILE_LIMIT_MS))
				find_fault(suite, "the guest says nothing");
			if (endless[i].sleeps)
				check_idle(suite, vm, "while the guest sleeps");
			for (int k = 0; k < PAUSES; k++)
				if (!ask(suite, vm, VMM_PAUSE, &reply) || !ask(suite, vm, VMM_RESUME, &reply))
					break;
			pause_and_kill(suite, vm);
		}
		report(suite, vm, endless[i].attack, endless[i].seed, endless[i].what);
		free(vm);
	}
}

/* --- floods, beside another VM --- */

static uint64_t count_exits(struct suite *suite, struct hostile_vm *vm)
{
	struct vmm_message reply = {0};

	return ask(suite, vm, VMM_STATUS, &reply) ? reply.arg1 : 0;
}

/* How far it gets within a fixed time; beside: whose words are read meanwhile. */
static uint64_t measure_pace(struct suite *suite, struct hostile_vm *vm, struct hostile_vm *beside)
{
	uint64_t before = count_exits(suite, vm), start = hostile_now_us(), after;

	hostile_listen(beside, FLOOD_MS);
	after = count_exits(suite, vm);
	return (after - before) * 1000000 / (hostile_now_us() - start);
}

/* Its pace beside the flood, and beside the flooding VM paused. True when it is fair. */
static bool is_fair(
	struct suite *suite, struct hostile_vm *vm, struct hostile_vm *other, char why[REASON_MAX])
{
	struct vmm_message reply = {0};
	uint64_t alone, beside;

	ask(suite, vm, VMM_PAUSE, &reply);
	alone = measure_pace(suite, other, vm);
	ask(suite, vm, VMM_RESUME, &reply);
	beside = measure_pace(suite, other, vm);
	snprintf(why, REASON_MAX, "another VM makes %llu exits a second beside it, %llu alone",
		(unsigned long long)beside, (unsigned long long)alone);
	return beside >= alone / FAIR_SHARE;
}

/* What starves another VM does so each time. */
static void check_fairness(struct suite *suite, struct hostile_vm *vm, struct hostile_vm *other)
{
	char why[REASON_MAX];

	for (int i = 0; i < FAIR_TRIES; i++)
		if (is_fair(suite, vm, other, why))
			return;
	find_fault(suite, "%s", why);
}

static void check_flood(struct suite *suite, struct hostile_vm *vm, struct hostile_vm *other)
{
	struct hostile_usage before, after;
	struct vmm_message reply = {0};
	uint64_t bound = suite->setup.sanitized ? GROWTH_SANITIZED_KIB : GROWTH_KIB;

	hostile_usage(vm, &before);
	check_fairness(suite, vm, other);
	for (int i = 0; i < FLOOD_ASKS; i++)
		ask(suite, vm, VMM_STATUS, &reply);
	for (int i = 0; i < PAUSES; i++)
		if (!ask(suite, vm, VMM_PAUSE, &reply) || !ask(suite, vm, VMM_RESUME, &reply))
			return;
	if (ask(suite, vm, VMM_PAUSE, &reply) && hostile_usage(vm, &after) && after.kib > before.kib + bound)
		find_fault(suite, "%llu KiB, %llu before", (unsigned long long)after.kib,
			(unsigned long long)before.kib);
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

static void test_floods(struct suite *suite)
{
	struct hostile_vm *other = calloc(1, sizeof(*other));

	for (size_t i = 0; i < sizeof(floods) / sizeof(floods[0]); i++) {
		struct hostile_vm *vm;

		if (!is_wanted(suite, "flood", floods[i].seed))
			continue;
		vm = calloc(1, sizeof(*vm));
		if (begin(suite, other, "compatibility", 0) && begin(suite, vm, "flood", floods[i].seed)) {
			vm->deaf = floods[i].deaf;
			check_flood(suite, vm, other);
			pause_and_kill(suite, vm);
			pause_and_kill(suite, other);
		}
		if (suite->reason[0]) {
			printf("# process %d floods, process %d is beside it\n", (int)vm->pid,
				(int)other->pid);
			print_words("vmm beside", other->error_text, LAST_WORDS);
		}
		report(suite, vm, "flood", floods[i].seed, floods[i].what);
		free(vm);
	}
	free(other);
}

/* --- main --- */

static bool read_number(const char *text, uint64_t *number)
{
	return text && parse_u64(text, 0, UINT64_MAX, number) == 0;
}

static bool read_options(struct suite *suite, char *argv[])
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
	struct suite suite = {0};

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
	test_floods(&suite);
	test_random(&suite);
	hostile_teardown(&suite.setup);
	printf("1..%d\n", suite.count);
	return suite.failed > 0;
}
