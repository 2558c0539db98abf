/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of tests/machine/smp_linux.c: PID 1 of a Linux with several CPUs, and nothing else. Says in the
 * kernel's log, which the console shows at once, each line after "guest: ", what the kernel made of the
 * machine and what it complained of; then ends as the last letter of the kernel's command line tells, on the
 * last CPU:
 *
 *   o powers off, p panics, r reboots, s says "spins" and keeps all CPUs busy for ever
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	TEXT_MAX = 16384,
	RECORD_MAX = 8192, /* of /dev/kmsg; a smaller buffer is refused */
	LEVEL_WARNING = 4,
	LEVEL_MASK = 7,
	WORK = 2000000,
	RANDOM_BYTES = 256,
	SWITCHES = 20,
};

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static int kernel_log = -1;

/* One write a line is one record. */
static void say(const char *format, ...)
{
	char line[256];
	int length = snprintf(line, sizeof(line), "<6>guest: ");
	va_list arguments;

	va_start(arguments, format);
	length += vsnprintf(line + length, sizeof(line) - (size_t)length - 1, format, arguments);
	va_end(arguments);
	if (length > (int)sizeof(line) - 2)
		length = (int)sizeof(line) - 2;
	line[length++] = '\n';
	(void)!write(kernel_log, line, (size_t)length);
}

/* The whole file, terminated, its last newline cut; empty when it cannot be read. */
static void read_file(const char *path, char *text)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	size_t length = 0;
	ssize_t n;

	while (fd >= 0 && (n = read(fd, text + length, TEXT_MAX - 1 - length)) > 0)
		length += (size_t)n;
	if (length > 0 && text[length - 1] == '\n')
		length--;
	text[length] = '\0';
	if (fd >= 0)
		close(fd);
}

static void say_file(const char *name, const char *path)
{
	char text[TEXT_MAX];

	read_file(path, text);
	say("%s %s", name, text);
}

/* The number that follows name in a CPU's part of /proc/cpuinfo; -1: none. */
static int field(const char *part, const char *name)
{
	const char *found = strstr(part, name);
	const char *colon = found ? strchr(found, ':') : NULL;

	return colon ? atoi(colon + 1) : -1;
}

static void say_processors(void)
{
	char text[TEXT_MAX];
	char *part = text, *next;

	read_file("/proc/cpuinfo", text);
	for (; part && strncmp(part, "processor", 9) == 0; part = next) {
		next = strstr(part, "\n\n");
		if (next) {
			*next = '\0';
			next += 2;
		}
		say("cpu %d package %d core %d of %d siblings %d apicid %d", field(part, "processor"),
			field(part, "physical id"), field(part, "core id"), field(part, "cpu cores"),
			field(part, "siblings"), field(part, "initial apicid"));
	}
}

/* Level 2 must be a core's own, level 3 everybody's; a machine without that level says nothing. */
static void say_caches(void)
{
	for (int cpu = 0; cpu < 2; cpu++)
		for (int index = 0; index < 5; index++) {
			char path[128], level[TEXT_MAX], shared[TEXT_MAX];
			const char *folder = "/sys/devices/system/cpu/cpu%d/cache/index%d/%s";

			snprintf(path, sizeof(path), folder, cpu, index, "level");
			read_file(path, level);
			snprintf(path, sizeof(path), folder, cpu, index, "shared_cpu_list");
			read_file(path, shared);
			if (level[0])
				say("cpu %d cache %s shared by %s", cpu, level, shared);
		}
}

static bool pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	return sched_setaffinity(0, sizeof(set), &set) == 0 && sched_getcpu() == cpu;
}

/* A process on each CPU works; the sum of their results must be what it is. */
static void work_everywhere(int cpus)
{
	int good = 0, status;

	for (int cpu = 0; cpu < cpus; cpu++)
		if (fork() == 0) {
			volatile unsigned sum = 0;

			if (!pin(cpu))
				_exit(1);
			for (unsigned i = 0; i < WORK; i++)
				sum += i;
			_exit(sum != (unsigned)((unsigned long)WORK * (WORK - 1) / 2) ||
				sched_getcpu() != cpu);
		}
	while (wait(&status) > 0)
		good += status == 0;
	say("worked on %d", good);
}

/* From CPU to CPU and back: each move is an interrupt to the other. */
static void wander(int cpus)
{
	int moves = 0;

	for (int i = 0; i < SWITCHES; i++)
		moves += pin(i % cpus);
	say("moved %d times", moves);
}

/* The line of /proc/interrupts for virtio's first device that has had one: its number, and counts by CPU. */
static int find_interrupt(const char *text, int cpus, unsigned long *counts)
{
	for (const char *line = strchr(text, '\n'); line; line = strchr(line, '\n')) {
		char *end;
		int number = (int)strtol(++line, &end, 10);
		const char *next = strchr(line, '\n');
		const char *device = strstr(line, "virtio");

		if (*end != ':' || !device || (next && device > next))
			continue;
		for (int i = 0; i < cpus; i++)
			counts[i] = strtoul(end + 1, &end, 10);
		return number;
	}
	return -1;
}

static bool read_random(void)
{
	char bytes[RANDOM_BYTES];
	int fd = open("/dev/hwrng", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, bytes, sizeof(bytes));

	if (fd >= 0)
		close(fd);
	return n > 0;
}

/* A device's interrupts go where they are sent: to the last CPU, then to the first. */
static void move_interrupt(int cpus)
{
	char text[TEXT_MAX], path[64], list[16];
	unsigned long before[8] = {0}, after[8] = {0};
	int number;

	for (int target = cpus - 1; target >= 0; target -= cpus > 1 ? cpus - 1 : 1) {
		int fd;

		read_file("/proc/interrupts", text);
		number = find_interrupt(text, cpus, before);
		snprintf(path, sizeof(path), "/proc/irq/%d/smp_affinity_list", number);
		snprintf(list, sizeof(list), "%d", target);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, list, strlen(list)) < 0)
			say("affinity of %d: %s", number, strerror(errno));
		close(fd);
		/* An edge that is under way still comes to the old one. */
		if (!read_random())
			say("no random bytes");
		read_file("/proc/interrupts", text);
		find_interrupt(text, cpus, before);
		for (int i = 0; i < 3; i++)
			if (!read_random())
				say("no random bytes");
		read_file("/proc/interrupts", text);
		find_interrupt(text, cpus, after);
		for (int i = 0; i < cpus; i++)
			if (i != target && after[i] != before[i])
				say("interrupt at %d, not at %d", i, target);
		say("interrupt at %d %s", target, after[target] > before[target] ? "came" : "did not come");
	}
}

/* The text of the log's next warning, or NULL. */
static const char *next_warning(int fd, char record[RECORD_MAX])
{
	ssize_t n;

	while ((n = read(fd, record, RECORD_MAX - 1)) > 0) {
		char *text;

		record[n] = '\0';
		record[strcspn(record, "\n")] = '\0';
		text = strchr(record, ';');
		if (text && (atoi(record) & LEVEL_MASK) <= LEVEL_WARNING)
			return text + 1;
	}
	return NULL;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

/* What is dumped behind that complaint; and a host that had no time for the guest. */
static bool is_harmless(const char *text)
{
	return begins(text, "CPUID[0d, ") || begins(text, "hrtimer: interrupt took ");
}

/*
 * What the kernel complained of, but for what an emulated and busy host is to blame for: its processor's
 * table of XSAVE differs from what the kernel expects, and it comes late.
 */
static void say_warnings(void)
{
	char record[RECORD_MAX];
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	const char *text = fd < 0 ? NULL : next_warning(fd, record);
	bool cut = false;

	if (fd < 0)
		say("warning: no log");
	for (; text; text = next_warning(fd, record)) {
		if (begins(text, "------------[ cut here")) {
			cut = true;
			continue;
		}
		if (cut && begins(text, "XSAVE consistency problem"))
			while (text && !begins(text, "---[ end trace"))
				text = next_warning(fd, record);
		else if (!is_harmless(text))
			say("warning: %s", text);
		cut = false;
		if (!text)
			break;
	}
	if (fd >= 0)
		close(fd);
}

static void spin(int cpus)
{
	for (int cpu = 1; cpu < cpus; cpu++)
		if (fork() == 0) {
			pin(cpu);
			for (;;)
				(void)getppid();
		}
	pin(0);
	say("spins");
	for (;;)
		(void)getppid();
}

static void end(char how, int cpus)
{
	int fd;

	if (how == 's')
		spin(cpus);
	if (!pin(cpus - 1))
		say("cannot go to CPU %d", cpus - 1);
	say("ends on %d", sched_getcpu());
	if (how == 'p') {
		fd = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);
		(void)!write(fd, "c", 1);
	}
	reboot(how == 'r' ? RB_AUTOBOOT : RB_POWER_OFF);
}

int main(void)
{
	int cpus, limit;
	char text[TEXT_MAX];

	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	(void)mount("proc", "/proc", "proc", 0, NULL);
	limit = open("/proc/sys/kernel/printk_devkmsg", O_WRONLY | O_CLOEXEC);
	(void)!write(limit, "on\n", 3);
	close(limit);
	kernel_log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
	say("online %d", cpus);
	say_file("possible", "/sys/devices/system/cpu/possible");
	say_file("present", "/sys/devices/system/cpu/present");
	say_processors();
	say_caches();
	work_everywhere(cpus);
	wander(cpus);
	move_interrupt(cpus);
	say_warnings();
	read_file("/proc/cmdline", text);
	end(text[0] ? text[strlen(text) - 1] : 'o', cpus);
	return 1;
}
