/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs with several vCPUs, with tiny guests: they start one another, use the same devices at once, are paused,
 * killed and ended in every state that a vCPU can be in. Usage: smp VMM FOLDER-OF-GUESTS
 */
#include "common/io.h"
#include "tests/machine/machine.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	CPUS = 8,
	ROUNDS = 100, /* of smp_hammer.s */
	PAUSES = 100,
	STATE_PAUSES = 30,
	RACES = 5,
	NAME_MAX_SHOWN = 128,
	FILL_BYTES = 4096, /* half of a pipe of two pages; the first byte more leaves no room */
	STEP_US = 10000,
};

/* --- guests that end by themselves --- */

static void test_starts(struct suite *suite)
{
	static const char *const counts[] = {"1", "2", "3", "5", "8"};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		const char *options[] = {"--cpus", counts[i], NULL};
		char name[NAME_MAX_SHOWN];
		struct machine machine;

		snprintf(
			name, sizeof(name), "%s CPUs start, know their ids and answer interrupts", counts[i]);
		if (machine_start(suite, "smp", options, false, &machine))
			machine_expect_end(suite, &machine, name, VMM_END_POWEROFF, "the guest powered off");
	}
}

static const struct {
	const char *name, *how, *cpus;
	int status;
	const char *line;
} ends[] = {
	{"power-off by the last CPU", "o", "5", VMM_END_POWEROFF, "info: the guest powered off\n"},
	{"panic on the last CPU", "p", "2", VMM_END_PANIC, "error: the guest's kernel panicked\n"},
	{"reset by the last CPU", "r", "8", VMM_END_REBOOT, "info: the guest asked for a reset\n"},
	{"a triple fault of the last CPU", "t", "8", VMM_END_TRIPLE_FAULT, "error: triple fault (CPU 7)\n"},
	{"an instruction of the last CPU that KVM cannot emulate", "e", "3", VMM_END_GUEST_FAULT,
		"that KVM cannot emulate (internal error 1) (CPU 2)\n"},
};

static void test_ends(struct suite *suite)
{
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		const char *options[] = {"--cpus", ends[i].cpus, "--cmdline", ends[i].how, NULL};
		struct machine machine;

		if (machine_start(suite, "smp_end", options, false, &machine))
			machine_expect_end(suite, &machine, ends[i].name, ends[i].status, ends[i].line);
	}
}

/* All at once, each in its way: one of them it is, said once. */
static void test_end_races(struct suite *suite)
{
	static const char *const options[] = {"--cpus", "8", "--cmdline", "a", NULL};
	char output[MACHINE_OUTPUT_MAX] = "";
	int status = VMM_END_POWEROFF, i = 0;

	for (; i < RACES; i++) {
		const char *wanted;
		struct machine machine;

		if (!machine_start(suite, "smp_end", options, false, &machine))
			return;
		status = machine_finish(&machine, output);
		wanted = status == VMM_END_POWEROFF ? "vmm: info: the guest powered off\n"
			 : status == VMM_END_PANIC  ? "vmm: error: the guest's kernel panicked\n"
			 : status == VMM_END_REBOOT ? "vmm: info: the guest asked for a reset\n"
						    : "";
		if (strcmp(output, wanted) != 0)
			break;
	}
	suite_report(suite, i == RACES, "eight CPUs end it at the same moment, five times",
		"time %d: status %d, said: %s", i, status, output);
}

/* --- everything at once --- */

/* A row of the statistics: name and numbers as they are printed. */
static void expect_row(struct suite *suite, const char *output, const char *name, const char *numbers)
{
	char title[NAME_MAX_SHOWN], got[NAME_MAX_SHOWN] = "";
	const char *row = strstr(output, name);
	size_t length = 0;

	/* the columns of "boot" first, which are zero without a guest that says hello */
	row = row ? row + strlen(name) : "";
	for (; *row && *row != '\n' && length < sizeof(got) - 1; row++)
		if (*row != ' ' || (length > 0 && got[length - 1] != ' '))
			got[length++] = *row;
	got[length] = '\0';
	snprintf(title, sizeof(title), "no access is lost: %s", name);
	suite_report(suite, strcmp(got, numbers) == 0, title, "\"%s\", not \"%s\"", got, numbers);
}

static void expect_letters(struct suite *suite, const char *path)
{
	unsigned counts[256] = {0}, right = 0, all = 0;
	FILE *file = fopen(path, "re");

	for (int c; file && (c = fgetc(file)) != EOF; all++)
		counts[c]++;
	if (file)
		fclose(file);
	for (unsigned i = 0; i < CPUS; i++)
		right += counts['a' + i] == ROUNDS;
	suite_report(suite, right == CPUS && all == CPUS * ROUNDS,
		"no byte of the serial line is lost or made up", "%u bytes, %u letters right", all, right);
}

static void test_hammer(struct suite *suite)
{
	char path[] = "/tmp/machine-smp-XXXXXX", output[MACHINE_OUTPUT_MAX];
	const char *options[] = {"--cpus", "8", "--serial", path, "--stats", NULL};
	struct machine machine;
	int status, fd = mkstemp(path);

	fd_close(&fd);
	if (!machine_start(suite, "smp_hammer", options, false, &machine))
		return;
	status = machine_finish(&machine, output);
	suite_report(suite, status == VMM_END_POWEROFF && strstr(output, "the guest powered off"),
		"eight CPUs at the same registers", "status %d, said: %s", status, output);
	expect_letters(suite, path);
	expect_row(suite, output, "  port 0x3f8 serial", "0 0 800 800");
	expect_row(suite, output, "  mmio 0xd0000000 rng", "0 0 1600 800");
	expect_row(suite, output, "  mmio 0xfec00000 ioapic", "0 0 801 801");
	expect_row(suite, output, "  port 0x80", "800");
	expect_row(suite, output, "  mmio 0xd0020000", "800");
	unlink(path);
}

/* --- pauses --- */

static void test_sums(struct suite *suite)
{
	static const char *const options[] = {"--cpus", "8", "--serial", "-", NULL};
	struct vmm_message message = {0};
	struct machine machine;
	int pipes[2], i = 0;

	if (pipe2(pipes, O_CLOEXEC) < 0 ||
		!machine_start_with(suite, "smp_count", options, true, (const int[]){pipes[0], -1}, &machine))
		return;
	suite_report(suite, machine_gets_on(&machine), "eight CPUs count", "they do not");
	while (i < PAUSES && machine_ask(&machine, VMM_PAUSE, &message) &&
		machine_ask(&machine, VMM_RESUME, &message))
		i++;
	suite_report(
		suite, i == PAUSES, "100 pauses while they do", "the %dth failed with %d", i, message.status);
	suite_report(suite, machine_gets_on(&machine), "and they go on", "they do not");
	suite_report(suite, write(pipes[1], "x", 1) == 1, "they are told to stop", "%s", strerror(errno));
	machine_expect_end(suite, &machine, "and the sum is right", VMM_END_POWEROFF,
		"vmm: info: the guest powered off\n");
	fd_close(&pipes[0]);
	fd_close(&pipes[1]);
}

/* --- every state of a vCPU --- */

/* A VM whose CPU 7 waits for room in a pipe that nobody reads. *reader is the caller's to close. */
static bool start_states(struct suite *suite, struct machine *machine, int *reader)
{
	static const char *const options[] = {"--cpus", "8", "--serial", "-", NULL};
	static const char fill[FILL_BYTES];
	int pipes[2], bytes = 0;

	if (pipe2(pipes, O_CLOEXEC) < 0 || fcntl(pipes[1], F_SETPIPE_SZ, 2 * FILL_BYTES) < 0 ||
		write(pipes[1], fill, sizeof(fill)) != sizeof(fill) ||
		!machine_start_with(suite, "smp_states", options, true, (const int[]){-1, pipes[1]}, machine))
		return false;
	fd_close(&pipes[1]);
	*reader = pipes[0];
	for (int waited = 0; bytes <= FILL_BYTES && waited < MACHINE_LIMIT_MS * 1000; waited += STEP_US) {
		usleep(STEP_US);
		ioctl(*reader, FIONREAD, &bytes);
	}
	if (bytes <= FILL_BYTES)
		suite_report(
			suite, false, "eight CPUs in eight states", "the serial line has %d bytes", bytes);
	return bytes > FILL_BYTES;
}

static void test_kills(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;
	int reader;

	if (!start_states(suite, &machine, &reader))
		return;
	suite_report(suite, machine_ask(&machine, VMM_KILL, &message), "eight CPUs in eight states: killed",
		"status %d", message.status);
	machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket\n");
	fd_close(&reader);
	if (!start_states(suite, &machine, &reader))
		return;
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "ended by SIGTERM", VMM_END_KILLED, "ended by SIGTERM\n");
	fd_close(&reader);
}

static void test_pauses(struct suite *suite)
{
	struct vmm_message message = {0};
	enum vmm_state state = VMM_STATE_ENDED;
	struct machine machine;
	uint64_t exits;
	int reader, i = 0;

	if (!start_states(suite, &machine, &reader))
		return;
	while (i < STATE_PAUSES && machine_ask(&machine, VMM_PAUSE, &message) &&
		machine_ask(&machine, VMM_RESUME, &message))
		i++;
	suite_report(suite, i == STATE_PAUSES, "30 pauses in these states", "the %dth failed with %d", i,
		message.status);
	suite_report(suite, machine_gets_on(&machine), "they go on after it", "they do not");
	suite_report(suite, machine_ask(&machine, VMM_PAUSE, &message), "one pause more", "status %d",
		message.status);
	exits = machine_count_exits(&machine, &state);
	usleep(100 * 1000);
	suite_report(suite, state == VMM_STATE_PAUSED && machine_count_exits(&machine, &state) == exits,
		"all stand still", "state %d, %llu exits", state, (unsigned long long)exits);
	suite_report(suite, machine_ask(&machine, VMM_KILL, &message), "killed while paused", "status %d",
		message.status);
	machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket\n");
	fd_close(&reader);
}

/* Before the guest has come to start the others, or while it does. */
static void test_early_kill(struct suite *suite)
{
	static const char *const options[] = {"--cpus", "8", NULL};
	struct vmm_message message = {0};
	struct machine machine;

	if (!machine_start(suite, "spin", options, true, &machine))
		return;
	suite_report(suite,
		machine_ask(&machine, VMM_PAUSE, &message) && machine_ask(&machine, VMM_RESUME, &message),
		"a pause while seven wait to be started", "status %d", message.status);
	suite_report(
		suite, machine_ask(&machine, VMM_KILL, &message), "killed then", "status %d", message.status);
	machine_expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket\n");
}

int main(int argc, char *argv[])
{
	struct suite suite = {0};

	if (!suite_begin(&suite, argc, argv))
		return 2;
	test_starts(&suite);
	test_ends(&suite);
	test_end_races(&suite);
	test_hammer(&suite);
	test_sums(&suite);
	test_kills(&suite);
	test_pauses(&suite);
	test_early_kill(&suite);
	return suite_end(&suite);
}
