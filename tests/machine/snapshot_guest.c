/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of tests/machine/snapshot_linux.c: PID 1 of a Linux without anything else. On each CPU one
 * process checks memory and one naps; one checks the disk, one watches the clock; all count what they did
 * where everybody sees it. Commands, one a connection:
 *
 *   nonce N   keeps the number
 *   report    SNAPSHOT_REPORT
 *   hold      answers "held" and reads until the stream ends
 *   files     as they were written? Then one is changed: "files", how often that was, and how many were not
 *   count     0, 1, 2 and so on, a u64 each, until nobody reads them
 *   still     ends all that is not a nap; "still"
 *   wake      when every sleep that now is under way has ended: "awake", and how much of all has failed
 *   patience N  when the kernel complains of a CPU that does nothing for RCU: after N seconds; "set", or
 * "none" when it never does log       what the kernel has complained of since the start, or "none"
 */
#include "tests/machine/snapshot_guest.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/vm_sockets.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
	CPUS_MAX = 8,
	BACKLOG = 16,
	WORDS = 512 * 1024, /* of each process that checks memory: 4 MiB */
	BLOCK = 64 * 1024,
	BLOCKS = 32,
	RECORD_MAX = 8192, /* of /dev/kmsg; a smaller buffer is refused */
	FILES = 16,
	FILE_WORDS = 16 * 1024, /* 128 KiB */
	LEVEL_WARNING = 4,
	LEVEL_MASK = 7,
	NS_PER_MS = 1000000,
};

struct count {
	uint64_t rounds, failures;
};

struct shared {
	uint64_t nonce, back;
	int held;
	pid_t busy[CPUS_MAX + 2]; /* all but those that nap */
	int busy_count;
	uint64_t file_rounds, file_failures, file_sums[FILES]; /* sums: 0: there is none */
	struct count memory[CPUS_MAX], naps[CPUS_MAX], disk;
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000 * NS_PER_MS + (uint64_t)now.tv_nsec;
}

/* The CPU of a worker; each has one. */
static void stay_on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	(void)sched_setaffinity(0, sizeof(set), &set);
}

/* workers */

static void check_memory(struct count *count)
{
	volatile uint64_t *words = malloc(WORDS * sizeof(*words));

	for (uint64_t seed = 1;; seed = seed * 6364136223846793005u + 1442695040888963407u) {
		uint64_t failures = 0;

		for (uint64_t i = 0; i < WORDS; i++)
			words[i] = seed ^ (i * 0x9e3779b97f4a7c15u);
		for (uint64_t i = 0; i < WORDS; i++)
			failures += words[i] != (seed ^ (i * 0x9e3779b97f4a7c15u));
		count->failures += failures;
		count->rounds++;
		sched_yield();
	}
}

static void nap(struct count *count)
{
	struct timespec span = {.tv_nsec = SNAPSHOT_NAP_MS * NS_PER_MS};

	for (;;) {
		uint64_t started = now_ns(CLOCK_MONOTONIC);

		if (nanosleep(&span, NULL) < 0 ||
			now_ns(CLOCK_MONOTONIC) - started < SNAPSHOT_NAP_MS * NS_PER_MS)
			count->failures++;
		count->rounds++;
	}
}

static void watch_clock(struct shared *shared)
{
	struct timespec span = {.tv_nsec = NS_PER_MS};

	for (uint64_t last = 0, now;; last = now) {
		now = now_ns(CLOCK_MONOTONIC);
		if (now < last)
			shared->back++;
		(void)nanosleep(&span, NULL);
	}
}

/* Past the page cache, so that each block is a request of its own. */
static void check_disk(struct count *count)
{
	int disk = open("/dev/vda", O_RDWR | O_DIRECT | O_CLOEXEC);
	uint8_t *block = aligned_alloc(4096, BLOCK), *back = aligned_alloc(4096, BLOCK);

	for (uint64_t round = 0;; round++) {
		off_t at = (off_t)(round % BLOCKS) * BLOCK;

		memset(block, (int)(round * 7 + 1), BLOCK);
		memcpy(block, &round, sizeof(round));
		if (pwrite(disk, block, BLOCK, at) != BLOCK || (round % 8 == 0 && fdatasync(disk) < 0) ||
			pread(disk, back, BLOCK, at) != BLOCK || memcmp(block, back, BLOCK) != 0)
			count->failures++;
		count->rounds++;
	}
}

/* True in the worker. */
static bool start_busy(struct shared *shared)
{
	pid_t pid = fork();

	if (pid > 0)
		shared->busy[shared->busy_count++] = pid;
	return pid == 0;
}

static void start_workers(struct shared *shared, int cpus)
{
	for (int cpu = 0; cpu < cpus; cpu++) {
		if (start_busy(shared)) {
			stay_on(cpu);
			check_memory(&shared->memory[cpu]);
		}
		if (fork() == 0) {
			stay_on(cpu);
			nap(&shared->naps[cpu]);
		}
	}
	if (start_busy(shared))
		check_disk(&shared->disk);
	if (start_busy(shared))
		watch_clock(shared);
}

/* commands */

/* The slowest of them: all must get on. */
static struct count sum(const struct count *counts, int cpus)
{
	struct count all = counts[0];

	for (int i = 1; i < cpus; i++) {
		if (counts[i].rounds < all.rounds)
			all.rounds = counts[i].rounds;
		all.failures += counts[i].failures;
	}
	return all;
}

static void report(int fd, const struct shared *shared, int cpus)
{
	struct count memory = sum(shared->memory, cpus), naps = sum(shared->naps, cpus);

	dprintf(fd, SNAPSHOT_REPORT, shared->nonce, memory.rounds, memory.failures, naps.rounds,
		naps.failures, shared->disk.rounds, shared->disk.failures, shared->back, shared->held,
		now_ns(CLOCK_MONOTONIC), now_ns(CLOCK_BOOTTIME));
}

static void hold(int fd, struct shared *shared)
{
	char byte;
	ssize_t got;

	shared->held = -1;
	dprintf(fd, "held\n");
	got = read(fd, &byte, 1);
	shared->held = got == 0 ? 0 : got < 0 ? errno : EPROTO;
}

/* FNV-1a, by words */
static uint64_t sum_of(const uint64_t *words, size_t count)
{
	uint64_t sum = 0xcbf29ce484222325u;

	for (size_t i = 0; i < count; i++)
		sum = (sum ^ words[i]) * 0x100000001b3u;
	return sum;
}

static bool file_is_right(const char *path, uint64_t sum, uint64_t *words)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (file < 0)
		return errno == ENOENT && sum == 0;
	got = read(file, words, FILE_WORDS * sizeof(*words));
	close(file);
	return got == (ssize_t)(FILE_WORDS * sizeof(*words)) && sum_of(words, FILE_WORDS) == sum;
}

/* 0 when it could not. */
static uint64_t write_file(const char *path, uint64_t seed, uint64_t *words)
{
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t put;

	if (file < 0)
		return 0;
	for (size_t i = 0; i < FILE_WORDS; i++)
		words[i] = seed = seed * 6364136223846793005u + 1442695040888963407u;
	put = write(file, words, FILE_WORDS * sizeof(*words));
	close(file);
	return put == (ssize_t)(FILE_WORDS * sizeof(*words)) ? sum_of(words, FILE_WORDS) : 0;
}

static void change_files(int fd, struct shared *shared)
{
	uint64_t round = shared->file_rounds++, *words = malloc(FILE_WORDS * sizeof(*words));
	unsigned which = (unsigned)(round * 7 % FILES);
	char path[32];

	for (unsigned i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "/files/%u", i);
		shared->file_failures += !file_is_right(path, shared->file_sums[i], words);
	}
	snprintf(path, sizeof(path), "/files/%u", which);
	if (round % 4 == 3) {
		(void)unlink(path);
		shared->file_sums[which] = 0;
	} else {
		shared->file_sums[which] = write_file(path, round + 1, words);
		shared->file_failures += shared->file_sums[which] == 0;
	}
	free(words);
	dprintf(fd, "files %" PRIu64 " %" PRIu64 "\n", shared->file_rounds, shared->file_failures);
}

static void count_up(int fd)
{
	uint64_t numbers[512], next = 0;

	do
		for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
			numbers[i] = next++;
	while (write(fd, numbers, sizeof(numbers)) == (ssize_t)sizeof(numbers));
}

static uint64_t all_failures(const struct shared *shared, int cpus)
{
	return sum(shared->memory, cpus).failures + sum(shared->naps, cpus).failures + shared->disk.failures +
	       shared->back;
}

static void be_still(int fd, struct shared *shared)
{
	while (shared->busy_count > 0)
		kill(shared->busy[--shared->busy_count], SIGKILL);
	dprintf(fd, "still\n");
}

static void wake(int fd, const struct shared *shared, int cpus)
{
	const volatile struct count *naps = shared->naps;
	struct timespec span = {.tv_nsec = NS_PER_MS};
	uint64_t rounds[CPUS_MAX];

	for (int i = 0; i < cpus; i++)
		rounds[i] = naps[i].rounds;
	for (int i = 0; i < cpus; i++)
		while (naps[i].rounds == rounds[i])
			(void)nanosleep(&span, NULL);
	dprintf(fd, "awake %" PRIu64 "\n", all_failures(shared, cpus));
}

static void set_patience(int fd, const char *seconds)
{
	int parameter = open("/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout", O_WRONLY | O_CLOEXEC);

	if (parameter >= 0 && write(parameter, seconds, strlen(seconds)) == (ssize_t)strlen(seconds))
		dprintf(fd, "set\n");
	else
		dprintf(fd, "none\n");
}

/* Each read is a record: its level and facility in decimal, ... ';' and the text. */
static void tell_log(int fd, int kernel_log)
{
	char record[RECORD_MAX + 1];
	ssize_t n;

	while ((n = read(kernel_log, record, RECORD_MAX)) > 0) {
		char *text;

		record[n] = '\0';
		text = strchr(record, ';');
		if (text && (strtoul(record, NULL, 10) & LEVEL_MASK) <= LEVEL_WARNING) {
			text[1 + strcspn(text + 1, "\n")] = '\0';
			dprintf(fd, "%.200s\n", text + 1);
			return;
		}
	}
	dprintf(fd, "none\n");
}

static void serve(int fd, struct shared *shared, int cpus, int kernel_log)
{
	char line[64] = "";

	for (size_t i = 0; i < sizeof(line) - 1 && read(fd, line + i, 1) == 1; i++)
		if (line[i] == '\n') {
			line[i] = '\0';
			break;
		}
	if (strncmp(line, "nonce ", 6) == 0) {
		shared->nonce = strtoull(line + 6, NULL, 10);
		dprintf(fd, "kept\n");
	} else if (strcmp(line, "report") == 0) {
		report(fd, shared, cpus);
	} else if (strcmp(line, "hold") == 0) {
		hold(fd, shared);
	} else if (strcmp(line, "files") == 0) {
		change_files(fd, shared);
	} else if (strcmp(line, "count") == 0) {
		count_up(fd);
	} else if (strcmp(line, "still") == 0) {
		be_still(fd, shared);
	} else if (strcmp(line, "wake") == 0) {
		wake(fd, shared, cpus);
	} else if (strncmp(line, "patience ", 9) == 0) {
		set_patience(fd, line + 9);
	} else if (strcmp(line, "log") == 0) {
		tell_log(fd, kernel_log);
	} else {
		dprintf(fd, "what?\n");
	}
}

static void call_ready(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = SNAPSHOT_READY_PORT};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
}

int main(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = SNAPSHOT_PORT};
	int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), kernel_log, listener;
	struct shared *shared =
		mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mkdir("/files", 0700);
	(void)mount("files", "/files", "tmpfs", 0, NULL);
	(void)mkdir("/sys", 0755);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	signal(SIGCHLD, SIG_IGN);
	kernel_log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	lseek(kernel_log, 0, SEEK_END);
	listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (cpus > CPUS_MAX || shared == MAP_FAILED || kernel_log < 0 ||
		bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, BACKLOG) < 0)
		reboot(RB_AUTOBOOT); /* no other way to say that this cannot work */
	start_workers(shared, cpus);
	call_ready();
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			serve(fd, shared, cpus, kernel_log);
			_exit(0);
		}
		close(fd);
	}
}
