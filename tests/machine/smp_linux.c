/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux with several CPUs: what it finds (smp_guest.c tells), that all of them work, and each of its ends
 * from another CPU than the first. Usage: smp_linux VMM KERNEL INITRAMFS
 */
#include "common/io.h"
#include "tests/machine/machine.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	CONSOLE_MAX = 65536,
	NAME_MAX_SHOWN = 128,
	PAUSES = 20,
};

struct test {
	struct suite suite;
	const char *initramfs;
	char console[CONSOLE_MAX];
	size_t length;
};

/* Reads the console up to that text, or its end. True: the text came. */
static bool read_console(struct test *test, int fd, const char *until)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};
	ssize_t n = 1;

	while (n > 0 && test->length < CONSOLE_MAX - 1 && poll(&wait, 1, MACHINE_LIMIT_MS) == 1) {
		n = read(fd, test->console + test->length, CONSOLE_MAX - 1 - test->length);
		test->length += n > 0 ? (size_t)n : 0;
		test->console[test->length] = '\0';
		if (until && strstr(test->console, until))
			return true;
	}
	return false;
}

/* *console is the caller's to close. */
static bool start(struct test *test, const char *cpus, const char *how, bool controlled,
	struct machine *machine, int *console)
{
	const char *options[] = {
		"--cpus", cpus, "--initrd", test->initramfs, "--serial", "-", "--cmdline", how, NULL};
	int pipes[2];
	bool started;

	if (pipe2(pipes, O_CLOEXEC) < 0)
		return false;
	test->length = 0;
	test->console[0] = '\0';
	started = machine_start_with(
		&test->suite, test->suite.guests, options, controlled, (const int[]){-1, pipes[1]}, machine);
	fd_close(&pipes[1]);
	*console = pipes[0];
	return started;
}

/* The console from the guest's first line on. */
static const char *guest_part(const struct test *test)
{
	const char *first = strstr(test->console, "guest: ");

	return first ? first : test->console;
}

/* A line of the guest, which the console ends with a carriage return. */
static bool said(const struct test *test, const char *line)
{
	char text[NAME_MAX_SHOWN];

	snprintf(text, sizeof(text), "guest: %s\r\n", line);
	return strstr(test->console, text) != NULL;
}

static void expect_said(struct test *test, unsigned cpus, const char *line)
{
	char name[2 * NAME_MAX_SHOWN];

	snprintf(name, sizeof(name), "%u CPUs: %s", cpus, line);
	suite_report(&test->suite, said(test, line), name, "said: %s", guest_part(test));
}

static void expect_topology(struct test *test, unsigned cpus)
{
	char line[NAME_MAX_SHOWN], range[16] = "0";
	unsigned right = 0;

	if (cpus > 1)
		snprintf(range, sizeof(range), "0-%u", cpus - 1);
	snprintf(line, sizeof(line), "online %u", cpus);
	expect_said(test, cpus, line);
	snprintf(line, sizeof(line), "possible %s", range);
	expect_said(test, cpus, line);
	snprintf(line, sizeof(line), "present %s", range);
	expect_said(test, cpus, line);
	for (unsigned i = 0; i < cpus; i++) {
		snprintf(line, sizeof(line), "cpu %u package 0 core %u of %u siblings %u apicid %u", i, i,
			cpus, cpus, i);
		right += said(test, line);
	}
	snprintf(line, sizeof(line), "%u CPUs: one package of as many cores", cpus);
	suite_report(&test->suite, right == cpus, line, "%u are right: %s", right, guest_part(test));
}

static void expect_no_warnings(struct test *test, unsigned cpus)
{
	const char *worst = strstr(test->console, "guest: warning");
	char name[NAME_MAX_SHOWN];

	snprintf(name, sizeof(name), "%u CPUs: the kernel complains of nothing", cpus);
	suite_report(&test->suite, !worst, name, "%.500s", worst ? worst : "");
}

/* Up to level 2 a cache is a core's own, level 3 is everybody's. A processor may not say. */
static void expect_caches(struct test *test, unsigned cpus)
{
	const char *wrong = NULL;
	char name[NAME_MAX_SHOWN];

	for (const char *at = test->console; (at = strstr(at, "guest: cpu ")); at++) {
		unsigned cpu, level, first, last;
		int numbers =
			sscanf(at, "guest: cpu %u cache %u shared by %u-%u", &cpu, &level, &first, &last);

		if (numbers < 3) /* of something else */
			continue;
		if (numbers == 3)
			last = first;
		if (level < 3 ? first != cpu || last != cpu : first != 0 || last != cpus - 1)
			wrong = at;
	}
	snprintf(name, sizeof(name), "%u CPUs: caches are shared as the cores have them", cpus);
	suite_report(&test->suite, !wrong, name, "%.100s", wrong ? wrong : "");
}

static void expect_work(struct test *test, unsigned cpus)
{
	char line[NAME_MAX_SHOWN];

	snprintf(line, sizeof(line), "worked on %u", cpus);
	expect_said(test, cpus, line);
	expect_said(test, cpus, "moved 20 times");
	snprintf(line, sizeof(line), "interrupt at %u came", cpus - 1);
	expect_said(test, cpus, line);
	expect_said(test, cpus, "interrupt at 0 came");
	snprintf(line, sizeof(line), "%u CPUs: a device's interrupt comes nowhere else", cpus);
	suite_report(&test->suite,
		!strstr(test->console, "guest: interrupt at") || !strstr(test->console, ", not at "), line,
		"said: %s", guest_part(test));
	snprintf(line, sizeof(line), "ends on %u", cpus - 1);
	expect_said(test, cpus, line);
}

static const struct {
	const char *cpus, *how, *name;
	int status;
	const char *line;
} boots[] = {
	{"1", "o", "1 CPU: power-off", VMM_END_POWEROFF, "the guest powered off"},
	{"2", "r", "2 CPUs: reboot on the last", VMM_END_REBOOT, "the guest asked for a reset"},
	{"3", "p", "3 CPUs: panic on the last", VMM_END_PANIC, "the guest's kernel panicked"},
	{"5", "o", "5 CPUs: power-off on the last", VMM_END_POWEROFF, "the guest powered off"},
	{"8", "p", "8 CPUs: panic on the last", VMM_END_PANIC, "the guest's kernel panicked"},
};

/* Boots to the guest's end; *machine is to be finished. False: not started. */
static bool boot(struct test *test, const char *cpus, const char *how, struct machine *machine)
{
	int console;

	if (!start(test, cpus, how, false, machine, &console))
		return false;
	read_console(test, console, NULL);
	fd_close(&console);
	return true;
}

static void test_boots(struct test *test)
{
	for (size_t i = 0; i < sizeof(boots) / sizeof(boots[0]); i++) {
		unsigned cpus = (unsigned)atoi(boots[i].cpus);
		struct machine machine;

		if (!boot(test, boots[i].cpus, boots[i].how, &machine))
			return;
		machine_expect_end(&test->suite, &machine, boots[i].name, boots[i].status, boots[i].line);
		expect_topology(test, cpus);
		expect_caches(test, cpus);
		expect_no_warnings(test, cpus);
		expect_work(test, cpus);
	}
}

/* Boots until the guest says that all CPUs are busy, or what else it says. */
static bool start_busy(struct test *test, struct machine *machine, int *console)
{
	if (!start(test, "8", "s", true, machine, console))
		return false;
	read_console(test, *console, "guest: spins");
	return true;
}

/* All CPUs are busy. */
static void test_pauses(struct test *test)
{
	struct vmm_message message = {0};
	struct machine machine;
	uint64_t before, after;
	int console, i = 0;

	if (!start_busy(test, &machine, &console))
		return;
	suite_report(&test->suite, strstr(test->console, "guest: spins"), "8 CPUs are busy", "said: %s",
		guest_part(test));
	while (i < PAUSES && machine_ask(&machine, VMM_PAUSE, &message) &&
		machine_ask(&machine, VMM_RESUME, &message))
		i++;
	suite_report(
		&test->suite, i == PAUSES, "20 pauses of them", "the %dth failed with %d", i, message.status);
	machine_ask(&machine, VMM_PAUSE, &message);
	machine_ask(&machine, VMM_STATUS, &message);
	before = message.arg2;
	usleep(100 * 1000);
	machine_ask(&machine, VMM_STATUS, &message);
	after = message.arg2;
	suite_report(&test->suite, before > 0 && before == after && message.arg0 == VMM_STATE_PAUSED,
		"no CPU runs while paused", "%llu ns, then %llu", (unsigned long long)before,
		(unsigned long long)after);
	suite_report(&test->suite, machine_ask(&machine, VMM_RESUME, &message), "it resumes", "status %d",
		message.status);
	kill(machine.pid, SIGTERM);
	machine_expect_end(
		&test->suite, &machine, "ended while all are busy", VMM_END_KILLED, "ended by SIGTERM");
	fd_close(&console);
}

int main(int argc, char *argv[])
{
	static struct test test;

	if (argc != 4) {
		fprintf(stderr, "usage: %s VMM KERNEL INITRAMFS\n", argv[0]);
		return 2;
	}
	test.suite.vmm = argv[1];
	test.suite.guests = argv[2];
	test.suite.memory = "128M";
	test.initramfs = argv[3];
	signal(SIGPIPE, SIG_IGN);
	test_boots(&test);
	test_pauses(&test);
	printf("1..%d\n", test.suite.count);
	return test.suite.failed > 0;
}
