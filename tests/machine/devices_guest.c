/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of tests/machine/devices.c: PID 1 of a Linux without anything else. Listens on vsock port
 * DEVICES_PORT; a connection begins with a command line and is served by a process of its own. Answers are a
 * line too, but for echo.
 *
 *   echo            all bytes back until the end of the stream
 *   pour BYTES      that many bytes of the pattern, then close at once
 *   sum DEVICE      a checksum over all of the block device
 *   fill DEVICE     writes the pattern over all of it, synced
 *   zero DEVICE     has all of it read as zeros, by the device
 *   discard DEVICE  tells the device that nothing of it is needed
 *   mount DEVICE    its ext4 as /disk
 *   put N           file N of /disk, of the pattern from N on, synced with its name
 *   flood 0         files of /disk without end, and nothing synced
 *   whole N         whether files 1 to N of /disk are as they were put
 *   serial DEVICE   what the driver says of it
 *   random BYTES    from the hardware generator: how many, and how many of them are zero
 *   call PORT BYTES connects to the host's port, sends the pattern, half-closes, reads the same back
 *   machine         its processors, and its memory in MiB
 *   high DEVICE     as sum, past the page cache into a buffer; how many of whose pages lie above 4 GiB
 *   lines           which interrupt each virtio device has had, in their order
 *   off             ends the machine
 *   reboot, panic   end it as they say
 */
#include "tests/machine/devices.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/vm_sockets.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum { CHUNK = 64 * 1024, BACKLOG = 128, PAGE = 4096 };

/* /proc/self/pagemap (Documentation/admin-guide/mm/pagemap.rst) */
#define PAGEMAP_FRAME ((UINT64_C(1) << 55) - 1)
#define FRAME_HIGH ((UINT64_C(4) << 30) / PAGE)

static void answer(int fd, const char *text)
{
	char line[DEVICES_LINE_MAX];
	int length = snprintf(line, sizeof(line), "%s\n", text);

	(void)!write(fd, line, (size_t)length);
}

static void answer_error(int fd, const char *what)
{
	char text[DEVICES_LINE_MAX];

	snprintf(text, sizeof(text), "%s: %s", what, devices_error(errno));
	answer(fd, text);
}

static int write_all(int fd, const uint8_t *data, size_t length)
{
	while (length) {
		ssize_t written = write(fd, data, length);

		if (written <= 0)
			return -1;
		data += written;
		length -= (size_t)written;
	}
	return 0;
}

static int send_pattern(int fd, uint64_t length)
{
	static uint8_t chunk[CHUNK];

	for (uint64_t offset = 0; offset < length;) {
		size_t run = length - offset < CHUNK ? (size_t)(length - offset) : CHUNK;

		devices_pattern(chunk, offset, run);
		if (write_all(fd, chunk, run) < 0)
			return -1;
		offset += run;
	}
	return 0;
}

static void serve_echo(int fd)
{
	static uint8_t chunk[CHUNK];
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) > 0)
		if (write_all(fd, chunk, (size_t)got) < 0)
			return;
}

static void serve_sum(int fd, const char *path)
{
	static uint8_t chunk[CHUNK];
	uint64_t sum = DEVICES_SUM_START, bytes = 0;
	char text[DEVICES_LINE_MAX];
	int disk = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = -1;

	while (disk >= 0 && (got = read(disk, chunk, sizeof(chunk))) > 0) {
		sum = devices_sum(sum, chunk, (size_t)got);
		bytes += (uint64_t)got;
	}
	if (got < 0) {
		answer_error(fd, path);
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu64 " %016" PRIx64, bytes, sum);
	answer(fd, text);
}

static void serve_machine(int fd)
{
	char text[DEVICES_LINE_MAX];
	struct sysinfo info = {0};

	(void)sysinfo(&info);
	snprintf(text, sizeof(text), "%ld %" PRIu64, sysconf(_SC_NPROCESSORS_ONLN),
		(uint64_t)info.totalram * info.mem_unit >> 20);
	answer(fd, text);
}

/* Of the CHUNK bytes at a place in memory. */
static unsigned count_high_pages(const uint8_t *chunk)
{
	int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
	unsigned high = 0;

	for (unsigned i = 0; i < CHUNK / PAGE; i++) {
		uint64_t entry = 0, page = (uintptr_t)chunk / PAGE + i;

		if (pread(map, &entry, sizeof(entry), (off_t)(page * sizeof(entry))) != sizeof(entry))
			return 0;
		high += (entry & PAGEMAP_FRAME) >= FRAME_HIGH;
	}
	close(map);
	return high;
}

static void serve_high(int fd, const char *path)
{
	uint8_t *chunk = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE | MAP_LOCKED, -1, 0);
	int disk = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	uint64_t sum = DEVICES_SUM_START;
	char text[DEVICES_LINE_MAX];
	ssize_t got = -1;

	while (chunk != MAP_FAILED && disk >= 0 && (got = read(disk, chunk, CHUNK)) > 0)
		sum = devices_sum(sum, chunk, (size_t)got);
	if (got < 0) {
		answer_error(fd, path);
		return;
	}
	snprintf(text, sizeof(text), "%u %016" PRIx64, count_high_pages(chunk), sum);
	answer(fd, text);
}

/* A line of /proc/interrupts: "  3:  17  0  IO-APIC  3-edge  virtio2", one count a processor. */
static void add_line(const char *row, char *text, size_t size)
{
	const char *name = strstr(row, "virtio");
	char *rest = NULL;
	unsigned long number = strtoul(row, &rest, 10), count = 0;

	if (!name || !rest || *rest != ':')
		return;
	rest++;
	for (long i = 0; i < sysconf(_SC_NPROCESSORS_ONLN); i++)
		count += strtoul(rest, &rest, 10);
	if (count > 0)
		snprintf(text + strlen(text), size - strlen(text), "%s%lu %.*s", *text ? ", " : "", number,
			(int)strcspn(name, "-\n"), name);
}

static void serve_lines(int fd)
{
	char row[256], text[DEVICES_LINE_MAX] = "";
	FILE *file = fopen("/proc/interrupts", "re");

	while (file && fgets(row, sizeof(row), file))
		add_line(row, text, sizeof(text));
	if (file)
		fclose(file);
	answer(fd, text);
}

static void panic(void)
{
	int file = open("/proc/sysrq-trigger", O_WRONLY | O_CLOEXEC);

	(void)!write(file, "c", 1);
}

static void serve_fill(int fd, const char *path)
{
	static uint8_t chunk[CHUNK];
	int disk = open(path, O_WRONLY | O_CLOEXEC);
	uint64_t offset = 0;
	ssize_t written = -1;

	while (disk >= 0) {
		devices_pattern(chunk, offset, sizeof(chunk));
		written = write(disk, chunk, sizeof(chunk));
		if (written <= 0)
			break;
		offset += (uint64_t)written;
	}
	if (disk < 0 || offset == 0 || errno != ENOSPC || fsync(disk) < 0)
		answer_error(fd, path);
	else
		answer(fd, "filled");
}

/* BLKZEROOUT or BLKDISCARD over all of it. */
static void serve_range(int fd, const char *path, unsigned long request)
{
	int disk = open(path, O_RDWR | O_CLOEXEC);
	uint64_t range[2] = {0, 0};

	if (disk < 0 || ioctl(disk, BLKGETSIZE64, &range[1]) < 0 || ioctl(disk, request, range) < 0 ||
		fsync(disk) < 0)
		answer_error(fd, path);
	else
		answer(fd, "done");
}

static void serve_mount(int fd, const char *path)
{
	(void)mkdir("/disk", 0755);
	if (mount(path, "/disk", "ext4", 0, NULL) < 0)
		answer_error(fd, path);
	else
		answer(fd, "mounted");
}

static int put_file(const char *path, uint64_t number, bool synced)
{
	static uint8_t chunk[CHUNK];
	int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), failed;

	devices_pattern(chunk, number, sizeof(chunk));
	failed = file < 0 || write_all(file, chunk, sizeof(chunk)) < 0 || (synced && fsync(file) < 0);
	if (file >= 0)
		close(file);
	return failed ? -1 : 0;
}

static void serve_put(int fd, uint64_t number)
{
	int folder = open("/disk", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char path[64];

	snprintf(path, sizeof(path), "/disk/%" PRIu64, number);
	if (folder < 0 || put_file(path, number, true) < 0 || fsync(folder) < 0)
		answer_error(fd, path);
	else
		answer(fd, "synced");
}

static void serve_flood(int fd)
{
	char path[64];

	answer(fd, "flooding");
	for (uint64_t i = 0;; i++) {
		snprintf(path, sizeof(path), "/disk/flood.%" PRIu64, i % DEVICES_FLOOD_FILES);
		(void)unlink(path);
		(void)put_file(path, i, false);
	}
}

static void serve_whole(int fd, uint64_t count)
{
	static uint8_t chunk[CHUNK + 1], wanted[CHUNK];
	char text[DEVICES_LINE_MAX] = "whole", path[64];

	for (uint64_t i = 1; i <= count; i++) {
		int file;
		ssize_t got;

		snprintf(path, sizeof(path), "/disk/%" PRIu64, i);
		file = open(path, O_RDONLY | O_CLOEXEC);
		got = file < 0 ? -1 : read(file, chunk, sizeof(chunk));
		devices_pattern(wanted, i, CHUNK);
		if (got != CHUNK || memcmp(chunk, wanted, CHUNK) != 0)
			snprintf(text, sizeof(text), "%s is not", path);
		if (file >= 0)
			close(file);
	}
	answer(fd, text);
}

static void serve_serial(int fd, const char *name)
{
	char path[DEVICES_LINE_MAX], text[DEVICES_LINE_MAX] = "";
	int file;
	ssize_t got = -1;

	snprintf(path, sizeof(path), "/sys/block/%s/serial", name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0)
		got = read(file, text, sizeof(text) - 2);
	if (got < 0) {
		answer_error(fd, path);
		return;
	}
	text[strcspn(text, "\n")] = '\0';
	answer(fd, text);
}

static void serve_random(int fd, uint64_t length)
{
	static uint8_t chunk[CHUNK];
	uint64_t bytes = 0, zeros = 0;
	char text[DEVICES_LINE_MAX];
	int device = open("/dev/hwrng", O_RDONLY | O_CLOEXEC);

	while (device >= 0 && bytes < length) {
		ssize_t got =
			read(device, chunk, sizeof(chunk) < length - bytes ? sizeof(chunk) : length - bytes);

		if (got <= 0)
			break;
		for (ssize_t i = 0; i < got; i++)
			zeros += chunk[i] == 0;
		bytes += (uint64_t)got;
	}
	if (bytes < length) {
		answer_error(fd, "/dev/hwrng");
		return;
	}
	snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64, bytes, zeros);
	answer(fd, text);
}

/* The bytes come back while they are sent, so a child sends them. */
static const char *call(uint32_t port, uint64_t length)
{
	static uint8_t chunk[CHUNK], wanted[CHUNK];
	struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = port};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint64_t bytes = 0;
	ssize_t got;

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		return devices_error(errno);
	if (fork() == 0) {
		int failed = send_pattern(fd, length) < 0 || shutdown(fd, SHUT_WR) < 0;

		_exit(failed);
	}
	while ((got = read(fd, chunk, sizeof(chunk))) > 0) {
		devices_pattern(wanted, bytes, (size_t)got);
		if (memcmp(chunk, wanted, (size_t)got) != 0)
			return "other bytes came back";
		bytes += (uint64_t)got;
	}
	if (got < 0)
		return devices_error(errno);
	return bytes == length ? "same" : "another length came back";
}

/* False: the word is another's. */
static bool serve_disk(int fd, const char *word, const char *name, uint64_t number)
{
	if (strcmp(word, "zero") == 0)
		serve_range(fd, name, BLKZEROOUT);
	else if (strcmp(word, "discard") == 0)
		serve_range(fd, name, BLKDISCARD);
	else if (strcmp(word, "mount") == 0)
		serve_mount(fd, name);
	else if (strcmp(word, "put") == 0)
		serve_put(fd, number);
	else if (strcmp(word, "flood") == 0)
		serve_flood(fd);
	else if (strcmp(word, "whole") == 0)
		serve_whole(fd, number);
	else
		return false;
	return true;
}

static void serve(int fd)
{
	char line[DEVICES_LINE_MAX] = "", word[16] = "", name[32] = "";
	uint64_t number = 0, more = 0;

	for (size_t i = 0; i < sizeof(line) - 1 && read(fd, line + i, 1) == 1 && line[i] != '\n'; i++)
		;
	if (sscanf(line, "%15s %31s %" SCNu64, word, name, &more) < 1)
		return;
	number = strtoull(name, NULL, 10);
	if (strcmp(word, "echo") == 0)
		serve_echo(fd);
	else if (strcmp(word, "pour") == 0)
		(void)send_pattern(fd, number);
	else if (strcmp(word, "sum") == 0)
		serve_sum(fd, name);
	else if (strcmp(word, "fill") == 0)
		serve_fill(fd, name);
	else if (serve_disk(fd, word, name, number))
		return;
	else if (strcmp(word, "serial") == 0)
		serve_serial(fd, name);
	else if (strcmp(word, "random") == 0)
		serve_random(fd, number);
	else if (strcmp(word, "call") == 0)
		answer(fd, call((uint32_t)number, more));
	else if (strcmp(word, "machine") == 0)
		serve_machine(fd);
	else if (strcmp(word, "high") == 0)
		serve_high(fd, name);
	else if (strcmp(word, "lines") == 0)
		serve_lines(fd);
	else if (strcmp(word, "off") == 0)
		reboot(RB_POWER_OFF);
	else if (strcmp(word, "reboot") == 0)
		reboot(RB_AUTOBOOT);
	else if (strcmp(word, "panic") == 0)
		panic();
	else
		answer(fd, "what?");
}

int main(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = DEVICES_PORT};
	int listener;

	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	(void)mount("proc", "/proc", "proc", 0, NULL);
	signal(SIGCHLD, SIG_IGN);
	listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(listener, BACKLOG) < 0)
		reboot(RB_AUTOBOOT); /* no other way to say that this cannot work */
	(void)call(DEVICES_READY_PORT, 0);
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			serve(fd);
			_exit(0);
		}
		close(fd);
	}
}
