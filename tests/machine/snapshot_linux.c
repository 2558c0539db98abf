/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linux that is saved and restored while it works: memory, timers, time, disk and streams (snapshot_guest.c
 * counts). TAP. Usage: snapshot_linux VMM KERNEL INITRAMFS CPUS [long]
 */
#include "common/io.h"
#include "tests/machine/snapshot_guest.h"
#include "tests/machine/snapshot_vm.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
	DISK_BYTES = 4 << 20,
	CYCLES = 8,
	CYCLES_LONG = 50,
	PAUSES = 100,
	PAUSES_LONG = 1000,
	COUNT_CYCLES = 30,
	COUNT_CYCLES_LONG = 500,
	COUNT_BYTES = 256 * 1024, /* of a stream in each */
	SAVE_EACH = 5,		  /* cycles */
	APART_MS = 2000,	  /* a snapshot lies so long */
	PAUSE_S = 6,
	PAUSE_LONG_S = 60,
	PATIENCE_S = 3, /* the least that the kernel takes; 21 of its own */
	CLONES = 20,
	CLONES_LONG = 1000,
	CLONES_EACH = 10, /* of one snapshot */
	NS_PER_MS = 1000000,
};
#define NONCE UINT64_C(0x1234567890abcdef)

struct test {
	struct suite suite;
	const char *cpus, *initramfs;
	char disk[32]; /* fd:N */
	int disk_fd;
	bool is_long;
};

struct report {
	uint64_t nonce, memory, memory_failures, naps, naps_early, disk, disk_failures, back, clock, boot;
	int held;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

/* --- the guest --- */

static bool command(struct machine *machine, const char *line, char answer[SNAPSHOT_LINE_MAX])
{
	return snapshot_vm_command(machine, SNAPSHOT_PORT, line, answer, SNAPSHOT_LINE_MAX);
}

static bool ask(struct machine *machine, struct report *r, char answer[SNAPSHOT_LINE_MAX])
{
	return command(machine, "report\n", answer) &&
	       sscanf(answer,
		       "nonce %" SCNu64 " memory %" SCNu64 " %" SCNu64 " naps %" SCNu64 " %" SCNu64
		       " disk %" SCNu64 " %" SCNu64 " back %" SCNu64 " held %d clock %" SCNu64 " %" SCNu64,
		       &r->nonce, &r->memory, &r->memory_failures, &r->naps, &r->naps_early, &r->disk,
		       &r->disk_failures, &r->back, &r->held, &r->clock, &r->boot) == 11;
}

/* Until all workers have done some more since `from`. */
static bool gets_on(
	struct machine *machine, const struct report *from, struct report *to, char answer[SNAPSHOT_LINE_MAX])
{
	for (int i = 0; i < 1000; i++) {
		if (!ask(machine, to, answer))
			return false;
		if (to->memory > from->memory + 1 && to->naps > from->naps + 1 && to->disk > from->disk + 1)
			return true;
		usleep(10 * 1000);
	}
	return false;
}

static const char *const *options_of(const struct test *test, bool boot)
{
	static const char *options[16];
	int n = 0;

	if (boot) {
		options[n++] = "--cpus";
		options[n++] = test->cpus;
		options[n++] = "--initrd";
		options[n++] = test->initramfs;
	}
	options[n++] = "--disk";
	options[n++] = test->disk;
	options[n] = NULL;
	return options;
}

static bool boot(struct test *test, struct machine *machine)
{
	int ready;

	if (!machine_start(&test->suite, test->suite.guests, options_of(test, true), true, machine))
		return false;
	ready = snapshot_vm_await_stream(machine, SNAPSHOT_READY_PORT);
	if (ready >= 0) {
		close(ready);
		return true;
	}
	machine_expect_end(&test->suite, machine, "Linux boots", -1, "");
	return false;
}

/* It has ended, and its name in the report is what went wrong; nothing more can be asked of it. */
static void finish(struct test *test, struct machine *machine, const char *name)
{
	kill(machine->pid, SIGTERM);
	machine_expect_end(&test->suite, machine, name, VMM_END_KILLED, "ended by SIGTERM");
}

/* --- tests --- */

static bool no_failures(const struct report *r)
{
	return r->memory_failures == 0 && r->naps_early == 0 && r->disk_failures == 0 && r->back == 0;
}

/* That the clock went on while it stood, and that an emulated host is slow, the kernel may notice. */
static void check_log(struct test *test, struct machine *machine, const char *name)
{
	char answer[SNAPSHOT_LINE_MAX];

	do
		command(machine, "log\n", answer);
	while (strstr(answer, "clocksource: Long readout interval") ||
		strstr(answer, "hrtimer: interrupt took"));
	suite_report(&test->suite, strcmp(answer, "none\n") == 0, name, "it says: %s", answer);
}

/* Restored and at once asked for a stream, while the guest still holds the old one. */
static void test_restore(struct test *test, struct machine *machine)
{
	struct suite *suite = &test->suite;
	char answer[SNAPSHOT_LINE_MAX] = "", kept[64];
	struct report before = {.nonce = 0}, after = before, later = before;
	struct snapshot_files files;
	uint64_t started, elapsed;
	int held;
	bool ok;

	snprintf(kept, sizeof(kept), "nonce %" PRIu64 "\n", NONCE);
	ok = command(machine, kept, answer);
	held = snapshot_vm_connect(machine, SNAPSHOT_PORT);
	ok = ok && held >= 0 && io_write_all(held, "hold\n", 5) == 0 &&
	     snapshot_vm_read(held, answer, 5) == 5;
	ok = ok && ask(machine, &before, answer);
	suite_report(suite, ok && before.held == -1, "Linux works", "it answers: %s", answer);
	started = now_ns();
	if (!snapshot_vm_take(suite, machine, "a snapshot of Linux", &files))
		return;
	suite_report(
		suite, snapshot_vm_read(held, answer, 1) == 0, "a stream ends with its VM", "it does not");
	close(held);
	usleep(APART_MS * 1000);
	if (!snapshot_vm_restore(suite, &files, options_of(test, false), machine))
		return;
	snapshot_files_close(&files);
	ok = ask(machine, &after, answer);
	elapsed = now_ns() - started;
	suite_report(suite, ok, "vsock: a new stream works at once", "it answers: %s", answer);
	suite_report(suite, after.nonce == NONCE, "false success: a nonce in memory is still there",
		"it answers: %s", answer);
	suite_report(suite,
		after.clock > before.clock &&
			after.clock - before.clock < elapsed - APART_MS * (uint64_t)NS_PER_MS,
		"clock: monotonic goes on where it was", "%" PRIu64 " ns in %" PRIu64,
		after.clock - before.clock, elapsed);
	suite_report(suite,
		after.boot - before.boot == after.clock - before.clock ||
			after.boot - before.boot < elapsed - APART_MS * (uint64_t)NS_PER_MS,
		"clock: and so does boot time", "%" PRIu64 " ns in %" PRIu64, after.boot - before.boot,
		elapsed);
	ok = gets_on(machine, &after, &later, answer);
	suite_report(suite, ok && later.naps > after.naps, "timers lost: sleeps in flight end on every CPU",
		"it answers: %s", answer);
	suite_report(suite, ok && later.disk > after.disk && later.disk_failures == 0,
		"in-flight requests: the disk goes on, and holds what was written", "it answers: %s", answer);
	suite_report(suite, ok && later.held == ECONNRESET, "vsock: an old stream is reset in the guest",
		"it answers: %s", answer);
	suite_report(suite, ok && no_failures(&later), "and nothing has failed", "it answers: %s", answer);
	check_log(test, machine, "and the kernel has not complained");
}

static void test_cycles(struct test *test, struct machine *machine)
{
	struct report from = {.nonce = 0}, to = from;
	char answer[SNAPSHOT_LINE_MAX] = "";
	struct snapshot_files files;
	bool ok = ask(machine, &from, answer);
	int cycles = test->is_long ? CYCLES_LONG : CYCLES, i = 0;
	char name[96];

	snprintf(name, sizeof(name), "chained snapshots: %d times over, memory and disk hold", cycles);
	while (ok && i < cycles) {
		if (!snapshot_vm_take(&test->suite, machine, "cycles", &files))
			return;
		snapshot_files_seal(&files);
		ok = snapshot_vm_restore(&test->suite, &files, options_of(test, false), machine);
		snapshot_files_close(&files);
		ok = ok && ask(machine, &to, answer) && no_failures(&to) && to.nonce == NONCE;
		i += ok;
	}
	ok = ok && gets_on(machine, &from, &to, answer) && no_failures(&to);
	suite_report(&test->suite, ok && i == cycles, name, "after %d it answers: %s", i, answer);
	check_log(test, machine, "and the kernel has not complained then");
}

static void test_pauses(struct test *test, struct machine *machine)
{
	struct report from = {.nonce = 0}, to = from;
	struct vmm_message message = {.status = 0};
	char answer[SNAPSHOT_LINE_MAX] = "";
	bool ok = ask(machine, &from, answer);
	int pauses = test->is_long ? PAUSES_LONG : PAUSES, i = 0;
	char name[96];

	snprintf(name, sizeof(name), "paused and resumed %d times: memory and disk hold", pauses);
	while (ok && i < pauses && machine_ask(machine, VMM_PAUSE, &message) &&
		machine_ask(machine, VMM_RESUME, &message))
		i++;
	ok = ok && gets_on(machine, &from, &to, answer) && no_failures(&to);
	suite_report(&test->suite, ok && i == pauses, name, "after %d it answers: %s", i, answer);
}

/* A stream of numbers that count up. */
struct counted {
	int fd;
	uint64_t next;
	size_t held; /* bytes of a number that has come in part */
	uint8_t data[64 * 1024];
};

/* That many bytes at least; false: other numbers came, or none. */
static bool read_count(struct counted *counted, size_t bytes)
{
	for (size_t got = 0; got < bytes;) {
		ssize_t n = snapshot_vm_read(
			counted->fd, counted->data + counted->held, sizeof(counted->data) - counted->held);
		size_t at = 0;

		if (n <= 0)
			return false;
		got += (size_t)n;
		counted->held += (size_t)n;
		for (; counted->held - at >= sizeof(uint64_t); at += sizeof(uint64_t)) {
			uint64_t number;

			memcpy(&number, counted->data + at, sizeof(number));
			if (number != counted->next++)
				return false;
		}
		counted->held -= at;
		memmove(counted->data, counted->data + at, counted->held);
	}
	return true;
}

/* A stream shows what a disk cannot: a request that was done twice. */
static void test_stream(struct test *test, struct machine *machine)
{
	int cycles = test->is_long ? COUNT_CYCLES_LONG : COUNT_CYCLES, i = 0;
	struct counted counted = {.fd = snapshot_vm_connect(machine, SNAPSHOT_PORT)};
	struct vmm_message message = {.status = 0};
	struct snapshot_files files;
	char name[128];
	bool ok = counted.fd >= 0 && io_write_all(counted.fd, "count\n", 6) == 0;

	snprintf(name, sizeof(name),
		"in-flight requests: a stream over %d pauses and %d saves, each byte once and in order",
		cycles, cycles / SAVE_EACH);
	while (ok && i < cycles) {
		ok = read_count(&counted, COUNT_BYTES) && machine_ask(machine, VMM_PAUSE, &message);
		if (ok && i % SAVE_EACH == 0) {
			ok = snapshot_vm_save(machine, &files, &message) == 0;
			snapshot_files_close(&files);
		}
		ok = ok && machine_ask(machine, VMM_RESUME, &message);
		i += ok;
	}
	suite_report(&test->suite, ok, name, "cycle %d, number %" PRIu64 ": status %d %s", i, counted.next,
		message.status, message.text);
	fd_close(&counted.fd);
}

/* The kernel is to complain of what a pause looks like, unless it is told that it was one. */
static void test_long_pause(struct test *test, struct machine *machine)
{
	unsigned int seconds = test->is_long ? PAUSE_LONG_S : PAUSE_S;
	struct report from = {.nonce = 0}, to = from;
	struct vmm_message message = {.status = 0};
	char answer[SNAPSHOT_LINE_MAX] = "", patience[32], name[96];
	bool ok;

	snprintf(patience, sizeof(patience), "patience %d\n", PATIENCE_S);
	ok = command(machine, patience, answer) && ask(machine, &from, answer) &&
	     machine_ask(machine, VMM_PAUSE, &message);
	sleep(seconds);
	ok = ok && machine_ask(machine, VMM_RESUME, &message) && gets_on(machine, &from, &to, answer);
	snprintf(name, sizeof(name), "long pause: after %u s the guest goes on", seconds);
	suite_report(&test->suite, ok && no_failures(&to), name, "it answers: %s", answer);
	suite_report(&test->suite, to.clock - from.clock >= seconds * UINT64_C(1000) * NS_PER_MS,
		"long pause: and knows how long it was", "%" PRIu64 " ns", to.clock - from.clock);
	check_log(test, machine, "long pause: and the kernel has not complained");
	command(machine, "patience 21\n", answer);
}

/* Each clone its own VM, of one snapshot that stays; they have the same CID and the same ports. */
static void test_clones(struct test *test, struct machine *machine)
{
	struct report reports[2] = {{.nonce = 0}};
	struct machine clones[2];
	char answer[SNAPSHOT_LINE_MAX] = "";
	struct snapshot_files files;
	bool ok = true;

	if (!snapshot_vm_take(&test->suite, machine, "clones", &files))
		return;
	snapshot_files_seal(&files);
	for (int i = 0; ok && i < 2; i++)
		ok = snapshot_vm_restore(&test->suite, &files, options_of(test, false), &clones[i]);
	snapshot_files_close(&files);
	if (!ok)
		return;
	ok = command(&clones[0], "nonce 1\n", answer) && command(&clones[1], "nonce 2\n", answer) &&
	     ask(&clones[0], &reports[0], answer) && ask(&clones[1], &reports[1], answer);
	suite_report(&test->suite, ok && reports[0].nonce == 1 && reports[1].nonce == 2,
		"vsock: two clones with one address do not cross-talk", "it answers: %s", answer);
	finish(test, &clones[0], "one ends");
	finish(test, &clones[1], "and so does the other");
}

/*
 * Clones of many snapshots, each taken of the last clone of the one before, at whatever moment that is, of a
 * guest that does nothing but sleep: in each clone every sleep that was under way ends.
 */
static void test_many_clones(struct test *test, struct machine *machine)
{
	int clones = test->is_long ? CLONES_LONG : CLONES, woke = 0;
	struct snapshot_files files = {.state = -1, .memory = -1};
	char answer[SNAPSHOT_LINE_MAX] = "", name[96], output[MACHINE_OUTPUT_MAX];
	bool ok = command(machine, "still\n", answer) && strcmp(answer, "still\n") == 0;

	snprintf(name, sizeof(name), "timers lost: %d clones made during sleeps of %d ms: all wake", clones,
		SNAPSHOT_NAP_MS);
	while (ok && woke < clones) {
		if (woke % CLONES_EACH == 0) {
			snapshot_files_close(&files);
			if (!snapshot_vm_take(&test->suite, machine, name, &files))
				break;
			snapshot_files_seal(&files);
		} else {
			kill(machine->pid, SIGKILL);
			machine_finish(machine, output);
		}
		ok = snapshot_vm_restore(&test->suite, &files, options_of(test, false), machine) &&
		     command(machine, "wake\n", answer) && strcmp(answer, "awake 0\n") == 0;
		woke += ok;
	}
	suite_report(&test->suite, woke == clones, name, "after %d it answers: %s", woke, answer);
	check_log(test, machine, "timers lost: and no kernel has complained");
	snapshot_files_close(&files);
}

int main(int argc, char *argv[])
{
	struct test test = {.suite = {.memory = "40M"}};
	struct machine machine;

	test.is_long = argc == 6 && strcmp(argv[5], "long") == 0;
	if (argc != 5 && !test.is_long) {
		fprintf(stderr, "usage: %s VMM KERNEL INITRAMFS CPUS [long]\n", argv[0]);
		return 2;
	}
	test.suite.vmm = argv[1];
	test.suite.guests = argv[2];
	test.initramfs = argv[3];
	test.cpus = argv[4];
	if (atoi(test.cpus) > 1)
		test.suite.memory = "64M";
	test.disk_fd = memfd_create("disk", 0);
	if (test.disk_fd < 0 || ftruncate(test.disk_fd, DISK_BYTES) < 0) {
		perror("disk");
		return 1;
	}
	snprintf(test.disk, sizeof(test.disk), "fd:%d", test.disk_fd);
	signal(SIGPIPE, SIG_IGN);
	if (boot(&test, &machine)) {
		test_restore(&test, &machine);
		test_cycles(&test, &machine);
		test_pauses(&test, &machine);
		test_stream(&test, &machine);
		test_long_pause(&test, &machine);
		test_many_clones(&test, &machine);
		test_clones(&test, &machine);
	}
	printf("1..%d\n", test.suite.count);
	return test.suite.failed > 0;
}
