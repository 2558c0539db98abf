/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of tests/machine/balloon.c: PID 1 of a Linux without anything else. Connects to the host and does
 * what it is told there, a line at a time; an answer is a line too.
 *
 *   hold MIB        takes that much memory and fills it with bytes that differ from word to word
 *   check           compares them
 *   drop            frees it
 *   zeros MIB       takes that much memory, which must be zero, fills and compares it, and frees it
 *   memory NAME     a line of /proc/meminfo, in KiB
 *   order N         the kernel reports free blocks of 2^N pages and more
 *   work MIB        a process takes, fills, compares and frees pieces of up to that much, until told to stop
 *   stop            how many pieces it had, or what it found wrong
 *   off             ends the machine
 */
#include "tests/machine/balloon.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/vm_sockets.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB_SHIFT = 20, WORK_PIECES = 8 };

struct area {
	uint64_t *words;
	size_t count;
	uint64_t seed;
};

static uint64_t word_at(uint64_t seed, size_t index)
{
	return (seed + index) * UINT64_C(0x9e3779b97f4a7c15) | 1; /* never zero */
}

static bool take(struct area *area, size_t bytes)
{
	void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	*area = (struct area){.words = map == MAP_FAILED ? NULL : map, .count = bytes / sizeof(uint64_t)};
	return area->words != NULL;
}

static void drop(struct area *area)
{
	if (area->words)
		munmap(area->words, area->count * sizeof(uint64_t));
	area->words = NULL;
}

static void fill(struct area *area, uint64_t seed)
{
	area->seed = seed;
	for (size_t i = 0; i < area->count; i++)
		area->words[i] = word_at(seed, i);
}

static bool is_same(const struct area *area)
{
	for (size_t i = 0; i < area->count; i++)
		if (area->words[i] != word_at(area->seed, i))
			return false;
	return true;
}

static bool is_zero(const struct area *area)
{
	for (size_t i = 0; i < area->count; i++)
		if (area->words[i] != 0)
			return false;
	return true;
}

static const char *hold(struct area *held, size_t bytes)
{
	static uint64_t seed = 1;

	if (!take(held, bytes))
		return strerror(errno);
	fill(held, seed++);
	return "held";
}

static const char *take_zeros(size_t bytes)
{
	struct area area;
	const char *text = "good";

	if (!take(&area, bytes))
		return strerror(errno);
	if (!is_zero(&area))
		text = "fresh memory is not zero";
	fill(&area, bytes);
	if (!is_same(&area))
		text = "memory does not keep what is written";
	drop(&area);
	return text;
}

static void read_meminfo(const char *name, char *text, size_t size)
{
	char line[BALLOON_LINE_MAX];
	FILE *file = fopen("/proc/meminfo", "re");
	size_t length = strlen(name);

	snprintf(text, size, "-1");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			snprintf(text, size, "%lu", strtoul(line + length + 1, NULL, 10));
	if (file)
		fclose(file);
}

static const char *set_order(const char *order)
{
	int fd = open("/sys/module/page_reporting/parameters/page_reporting_order", O_WRONLY | O_CLOEXEC);
	const char *text = fd >= 0 && write(fd, order, strlen(order)) > 0 ? "set" : strerror(errno);

	if (fd >= 0)
		close(fd);
	return text;
}

static volatile sig_atomic_t stopped;

static void on_stop(int number)
{
	(void)number;
	stopped = 1;
}

/* One piece in turn is compared and freed, and another is taken in its place. */
static void work(int out, size_t bytes)
{
	struct area areas[WORK_PIECES] = {{0}};
	uint64_t random = 88172645463325252, pieces;

	signal(SIGTERM, on_stop);
	for (pieces = 0; !stopped; pieces++) {
		struct area *area = &areas[pieces % WORK_PIECES];

		if (area->words && !is_same(area)) {
			dprintf(out, "piece %" PRIu64 " has changed\n", pieces);
			return;
		}
		drop(area);
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		if (!take(area, 4096 + random % (bytes / WORK_PIECES)) || !is_zero(area)) {
			dprintf(out, "piece %" PRIu64 " is not zero\n", pieces);
			return;
		}
		fill(area, random);
	}
	for (unsigned i = 0; i < WORK_PIECES; i++)
		if (areas[i].words && !is_same(&areas[i]))
			dprintf(out, "piece %u has changed at the end\n", i);
	dprintf(out, "%" PRIu64 "\n", pieces);
}

struct worker {
	pid_t pid;
	int out;
};

static const char *start_work(struct worker *worker, size_t bytes)
{
	int pair[2];

	if (pipe(pair) < 0)
		return strerror(errno);
	worker->out = pair[0];
	worker->pid = fork();
	if (worker->pid == 0) {
		close(pair[0]);
		work(pair[1], bytes);
		_exit(0);
	}
	close(pair[1]);
	return "working";
}

static void stop_work(struct worker *worker, char *text, size_t size)
{
	ssize_t got;
	int status = 0;

	kill(worker->pid, SIGTERM);
	waitpid(worker->pid, &status, 0);
	got = read(worker->out, text, size - 1);
	close(worker->out);
	text[got > 0 ? got : 0] = '\0';
	text[strcspn(text, "\n")] = '\0';
	if (status != 0 || got <= 0)
		snprintf(text, size, "the worker ended with wait status %#x", (unsigned)status);
}

static void serve(int host, struct area *held, struct worker *worker, const char *line)
{
	char word[16] = "", value[32] = "", text[BALLOON_LINE_MAX] = "what?";
	size_t bytes;

	if (sscanf(line, "%15s %31s", word, value) < 1)
		return;
	bytes = strtoul(value, NULL, 10) << MIB_SHIFT;
	if (strcmp(word, "hold") == 0)
		snprintf(text, sizeof(text), "%s", hold(held, bytes));
	else if (strcmp(word, "check") == 0)
		snprintf(text, sizeof(text), "%s", is_same(held) ? "same" : "changed");
	else if (strcmp(word, "drop") == 0) {
		drop(held);
		snprintf(text, sizeof(text), "dropped");
	} else if (strcmp(word, "zeros") == 0)
		snprintf(text, sizeof(text), "%s", take_zeros(bytes));
	else if (strcmp(word, "memory") == 0)
		read_meminfo(value, text, sizeof(text));
	else if (strcmp(word, "order") == 0)
		snprintf(text, sizeof(text), "%s", set_order(value));
	else if (strcmp(word, "work") == 0)
		snprintf(text, sizeof(text), "%s", start_work(worker, bytes));
	else if (strcmp(word, "stop") == 0)
		stop_work(worker, text, sizeof(text));
	else if (strcmp(word, "off") == 0)
		reboot(RB_POWER_OFF);
	dprintf(host, "%s\n", text);
}

int main(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = BALLOON_GUEST_PORT};
	char line[BALLOON_LINE_MAX];
	struct area held = {0};
	struct worker worker = {0};
	FILE *lines;
	int host;

	(void)mount("proc", "/proc", "proc", 0, NULL);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	host = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(host, (struct sockaddr *)&address, sizeof(address)) < 0)
		reboot(RB_AUTOBOOT); /* no other way to say that this cannot work */
	lines = fdopen(host, "r");
	while (lines && fgets(line, sizeof(line), lines))
		serve(host, &held, &worker, line);
	reboot(RB_POWER_OFF);
	return 0;
}
