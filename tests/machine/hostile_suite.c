/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/machine/hostile_suite.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
	IDLE_TRIES = 5,
	AWAKE_MS = 200,
	AWAKE_LOOP_SHARE = 10, /* of that time, at the most */
};

bool hostile_is_wanted(const struct hostile_suite *suite, const char *attack, uint64_t seed)
{
	return !suite->only ||
	       (strcmp(suite->only, attack) == 0 && (!suite->only_has_seed || suite->only_seed == seed));
}

void hostile_find_fault(struct hostile_suite *suite, const char *format, ...)
{
	va_list arguments;

	if (suite->reason[0])
		return;
	va_start(arguments, format);
	vsnprintf(suite->reason, sizeof(suite->reason), format, arguments);
	va_end(arguments);
}

void hostile_print_words(const char *who, const char *words, size_t maximum)
{
	size_t length = strlen(words);

	printf("#   %s: ", who);
	for (const char *c = length > maximum ? words + length - maximum : words; *c; c++)
		putchar(*c == '\n' ? '|' : *c);
	putchar('\n');
}

void hostile_report(struct hostile_suite *suite, struct hostile_vm *vm, const char *attack, uint64_t seed,
	const char *what)
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
		hostile_print_words("vmm", vm->error_text, HOSTILE_LAST_WORDS * 10);
		hostile_print_words("the guest's last words", vm->said, HOSTILE_LAST_WORDS);
	}
	suite->reason[0] = '\0';
	fflush(stdout);
}

bool hostile_begin(struct hostile_suite *suite, struct hostile_vm *vm, const char *attack, uint64_t seed)
{
	const char *options[] = {
		"--cpus", strncmp(attack, HOSTILE_SEVERAL, strlen(HOSTILE_SEVERAL)) == 0 ? "4" : "1", NULL};
	char cmdline[HOSTILE_CMDLINE_MAX];

	snprintf(cmdline, sizeof(cmdline), "attack=%s seed=%llu long=%d thin=%d", attack,
		(unsigned long long)seed, suite->long_run, suite->setup.sanitized && !suite->long_run);
	if (!hostile_start(vm, &suite->setup, cmdline, options)) {
		hostile_find_fault(suite, "cannot start it");
		return false;
	}
	if (!hostile_await(vm, "hostile: begin\n", NULL, HOSTILE_LIMIT_MS))
		hostile_find_fault(suite, "the guest does not begin");
	return !suite->reason[0];
}

static void check_words(struct hostile_suite *suite, struct hostile_vm *vm)
{
	const char *files = hostile_check_files(&suite->setup);

	if (strstr(vm->error_text, "Sanitizer") || strstr(vm->error_text, "runtime error"))
		hostile_find_fault(suite, "a sanitizer speaks");
	if (vm->errors_lost)
		hostile_find_fault(suite, "more than %d bytes on standard error", HOSTILE_ERRORS_MAX);
	if (files)
		hostile_find_fault(suite, "%s", files);
}

int hostile_expect_end(struct hostile_suite *suite, struct hostile_vm *vm, const char *line)
{
	int status = hostile_finish(vm);
	const char *last = hostile_last_line(vm);

	check_words(suite, vm);
	if (status < 0)
		hostile_find_fault(suite, "it had to be killed");
	if (line && !strstr(last, line))
		hostile_find_fault(
			suite, "status %d, and the last line is \"%s\", not \"%s\"", status, last, line);
	return status;
}

void hostile_expect_status(struct hostile_suite *suite, struct hostile_vm *vm, int wanted, const char *line)
{
	int status = hostile_expect_end(suite, vm, line);

	if (status != wanted)
		hostile_find_fault(suite, "status %d instead of %d", status, wanted);
}

bool hostile_expect_reply(
	struct hostile_suite *suite, struct hostile_vm *vm, uint32_t type, struct vmm_message *reply)
{
	int64_t us = hostile_ask(vm, type, reply);

	if (us < 0)
		hostile_find_fault(suite, "request %u to process %d is not answered (status %d, %s)", type,
			(int)vm->pid, reply->status, vm->control < 0 ? "it hung up" : "in time");
	else if (us > HOSTILE_ANSWER_US)
		hostile_find_fault(suite, "request %u is answered after %lld us", type, (long long)us);
	return us >= 0;
}

/* In an emulated machine a thread that has just gone to sleep may look busy; one that spins does each time.
 */
void hostile_expect_idle(struct hostile_suite *suite, const struct hostile_vm *vm, const char *when)
{
	char why[HOSTILE_WHY_MAX];

	for (int i = 0; i < IDLE_TRIES; i++)
		if (hostile_is_idle(vm, why))
			return;
	hostile_find_fault(suite, "%s, %s", when, why);
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

void hostile_expect_sleep(struct hostile_suite *suite, struct hostile_vm *vm)
{
	char why[HOSTILE_WHY_MAX];

	for (int i = 0; i < IDLE_TRIES; i++)
		if (hostile_is_idle(vm, why))
			return;
	if (only_guest_is_awake(vm))
		printf("# the guest's halts end at once within KVM: %s\n", why);
	else
		hostile_find_fault(suite, "while the guest sleeps, %s", why);
}

void hostile_expect_size(
	struct hostile_suite *suite, const struct hostile_usage *before, const struct hostile_usage *after)
{
	uint64_t bound = suite->setup.sanitized ? HOSTILE_GROWTH_SANITIZED_KIB : HOSTILE_GROWTH_KIB;

	if (after->kib > before->kib + bound)
		hostile_find_fault(suite, "%llu KiB, %llu before", (unsigned long long)after->kib,
			(unsigned long long)before->kib);
}

void hostile_expect_growth(
	struct hostile_suite *suite, const struct hostile_usage *before, const struct hostile_usage *after)
{
	if (after->fds != before->fds)
		hostile_find_fault(suite, "%u fds, %u before", after->fds, before->fds);
	if (after->threads != before->threads)
		hostile_find_fault(suite, "%u threads, %u before", after->threads, before->threads);
	hostile_expect_size(suite, before, after);
}

void hostile_pause_and_kill(struct hostile_suite *suite, struct hostile_vm *vm)
{
	struct vmm_message reply = {0};

	if (hostile_expect_reply(suite, vm, VMM_STATUS, &reply) &&
		hostile_expect_reply(suite, vm, VMM_PAUSE, &reply)) {
		hostile_expect_idle(suite, vm, "while paused");
		/* whatever the guest has left behind in the processor and the devices */
		if (hostile_save(vm, &reply) < 0)
			hostile_find_fault(suite, "it is not saved: status %d, %s", reply.status, reply.text);
	}
	hostile_expect_reply(suite, vm, VMM_KILL, &reply);
	hostile_expect_status(suite, vm, VMM_END_KILLED, "ended by the control socket");
}
