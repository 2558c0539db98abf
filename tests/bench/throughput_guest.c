/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An init that measures what its machine's disk, vsock and network carry, and asks for a restart.
 *
 * The kernel's command line says what: `bench.tests=` lists beginnings of the names below, `bench.ms=` the
 * length of each measurement. For each test one line on the console, `result NAME OPERATIONS BYTES
 * NANOSECONDS`, or `failed NAME WHY`. Disks are opened with O_DIRECT: no page cache of the guest is between.
 */
#include "tests/bench/throughput.h"
#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <linux/aio_abi.h>
#include <linux/vm_sockets.h>

enum {
	WARM_UP_MS =
		100, /* of each disk test, not counted: first touches of memory are not the disk's speed */
	DEPTH_MAX = 32,
	STREAMS_MAX = 16,
	LINE_MAX_BYTES = 4096,
	KIB = 1024,
};

#define GUEST_ADDRESS "10.0.77.2"
#define HOST_ADDRESS "10.0.77.1"

struct result {
	uint64_t operations, bytes, ns;
};

struct test {
	const char *name;
	int (*run)(const struct test *test, uint32_t ms, struct result *result);
	/* disk */
	bool write, random;
	uint32_t size;	/* bytes of a request */
	uint32_t depth; /* requests at a time */
	/* stream */
	bool tcp;
	enum stream_op op;
	unsigned streams;
};

/* ---- disk ---- */

struct disk {
	int fd;
	const struct test *test;
	aio_context_t aio;
	uint64_t requests_max; /* of test->size that fit */
	uint64_t next, seed;
	struct iocb blocks[DEPTH_MAX];
	uint64_t done;
};

static uint64_t next_offset(struct disk *disk)
{
	uint64_t n = disk->next++;

	if (disk->test->random) {
		disk->seed ^= disk->seed << 13;
		disk->seed ^= disk->seed >> 7;
		disk->seed ^= disk->seed << 17;
		n = disk->seed;
	}
	return n % disk->requests_max * disk->test->size;
}

static int submit(struct disk *disk, struct iocb **blocks, long count)
{
	for (long done = 0, n; done < count; done += n) {
		n = syscall(SYS_io_submit, disk->aio, count - done, blocks + done);
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
	}
	return 0;
}

/* Waits for requests and, while more is set, sends new ones in their places. How many ended, or -errno. */
static int turn(struct disk *disk, bool more)
{
	struct io_event events[DEPTH_MAX];
	struct iocb *again[DEPTH_MAX];
	long n = syscall(SYS_io_getevents, disk->aio, 1L, (long)disk->test->depth, events, NULL);
	int error = 0;

	if (n < 0)
		return -errno;
	for (long i = 0; i < n; i++) {
		if (events[i].res != disk->test->size)
			return events[i].res < 0 ? (int)events[i].res : -EIO;
		again[i] = (struct iocb *)(uintptr_t)events[i].obj;
		again[i]->aio_offset = (int64_t)next_offset(disk);
	}
	if (more)
		error = submit(disk, again, n);
	return error ? error : (int)n;
}

/* Keeps depth requests under way for ms. 0 or -errno. */
static int run_requests(struct disk *disk, uint32_t ms)
{
	uint64_t end = now_ns() + ms * UINT64_C(1000000);
	struct iocb *first[DEPTH_MAX];
	uint32_t under_way = disk->test->depth;
	int error;

	for (uint32_t i = 0; i < under_way; i++) {
		disk->blocks[i].aio_offset = (int64_t)next_offset(disk);
		first[i] = &disk->blocks[i];
	}
	error = submit(disk, first, under_way);
	for (disk->done = 0; !error && under_way;) {
		bool more = now_ns() < end;
		int n = turn(disk, more);

		if (n < 0)
			return n;
		disk->done += (uint64_t)n;
		if (!more)
			under_way -= (uint32_t)n;
	}
	return error;
}

static int prepare_disk(struct disk *disk, const struct test *test)
{
	uint64_t bytes = 0;
	char *memory = mmap(NULL, (size_t)test->size * test->depth, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	*disk = (struct disk){.test = test, .seed = 88172645463325252};
	disk->fd = open("/dev/vda", O_RDWR | O_DIRECT | O_CLOEXEC);
	if (memory == MAP_FAILED || disk->fd < 0 || ioctl(disk->fd, BLKGETSIZE64, &bytes) < 0)
		return -errno;
	memset(memory, 'x', (size_t)test->size * test->depth);
	disk->requests_max = bytes / test->size;
	if (disk->requests_max == 0)
		return -ENOSPC;
	if (syscall(SYS_io_setup, test->depth, &disk->aio) < 0)
		return -errno;
	for (uint32_t i = 0; i < test->depth; i++)
		disk->blocks[i] = (struct iocb){
			.aio_lio_opcode = test->write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
			.aio_fildes = (uint32_t)disk->fd,
			.aio_buf = (uintptr_t)memory + (size_t)test->size * i,
			.aio_nbytes = test->size,
		};
	return 0;
}

/* What it takes goes with the process. */
static int run_disk(const struct test *test, uint32_t ms, struct result *result)
{
	static struct disk disk;
	uint64_t start = 0;
	int error = prepare_disk(&disk, test);

	if (!error)
		error = run_requests(&disk, WARM_UP_MS);
	if (!error) {
		start = now_ns();
		error = run_requests(&disk, ms);
	}
	result->ns = now_ns() - start;
	result->operations = disk.done;
	result->bytes = disk.done * test->size;
	return error;
}

/* ---- streams ---- */

static int connect_to_host(bool over_tcp)
{
	struct sockaddr_vm vm = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = STREAM_PORT};
	struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons(STREAM_PORT)};
	struct sockaddr *address = over_tcp ? (struct sockaddr *)&tcp : (struct sockaddr *)&vm;
	int fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	inet_pton(AF_INET, HOST_ADDRESS, &tcp.sin_addr);
	if (fd < 0 || connect(fd, address, over_tcp ? sizeof(tcp) : sizeof(vm)) < 0)
		return -errno;
	if (over_tcp)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static int run_echo(int fd, uint32_t ms, struct result *result)
{
	uint64_t end = now_ns() + ms * UINT64_C(1000000);
	char byte = 'x';
	int error = 0;

	while (!error && now_ns() < end) {
		error = write_all(fd, &byte, 1);
		if (!error)
			error = read_all(fd, &byte, 1);
		result->operations++;
		result->bytes++;
	}
	return error;
}

static int run_stream(const struct test *test, uint32_t ms, struct result *result)
{
	static char chunk[STREAM_CHUNK];
	struct stream_request request = {.op = test->op, .ms = ms};
	int fd = connect_to_host(test->tcp), error = fd;

	if (fd >= 0)
		error = write_all(fd, &request, sizeof(request));
	if (error)
		return error;
	switch (test->op) {
	case STREAM_TO_HOST:
		error = send_for(fd, chunk, ms);
		if (!error && shutdown(fd, SHUT_WR) < 0)
			error = -errno;
		return error ? error : read_all(fd, &result->bytes, sizeof(result->bytes));
	case STREAM_TO_GUEST:
		return drain(fd, chunk, &result->bytes);
	case STREAM_ECHO:
		return run_echo(fd, ms, result);
	}
	return -EINVAL;
}

/* Each stream is a process's; their sums go through a pipe. */
static int run_streams(const struct test *test, uint32_t ms, struct result *result)
{
	uint64_t start = now_ns();
	struct result one;
	int pipes[2], status, error = 0;

	if (pipe(pipes) < 0)
		return -errno;
	for (unsigned i = 0; i < test->streams; i++) {
		if (fork() != 0)
			continue;
		one = (struct result){0};
		error = run_stream(test, ms, &one);
		if (!error)
			error = write_all(pipes[1], &one, sizeof(one));
		_exit(-error);
	}
	close(pipes[1]);
	while (wait(&status) > 0)
		if (status && !error)
			error = WIFEXITED(status) ? -WEXITSTATUS(status) : -EINTR;
	result->ns = now_ns() - start;
	while (!error && read_all(pipes[0], &one, sizeof(one)) == 0) {
		result->operations += one.operations;
		result->bytes += one.bytes;
	}
	close(pipes[0]);
	return error;
}

/* ---- the tests ---- */

#define DISK(test_name, is_write, is_random, bytes, at_a_time)                                               \
	{                                                                                                    \
		.name = (test_name), .run = run_disk, .write = (is_write), .random = (is_random),            \
		.size = (bytes), .depth = (at_a_time)                                                        \
	}
#define STREAM(test_name, is_tcp, what, count)                                                               \
	{                                                                                                    \
		.name = (test_name), .run = run_streams, .tcp = (is_tcp), .op = (what), .streams = (count)   \
	}

static const struct test tests[] = {
	DISK("blk-read-seq-256k", false, false, 256 * KIB, 4),
	DISK("blk-write-seq-256k", true, false, 256 * KIB, 4),
	DISK("blk-read-seq-4k", false, false, 4 * KIB, 1),
	DISK("blk-write-seq-4k", true, false, 4 * KIB, 1),
	DISK("blk-read-random-4k", false, true, 4 * KIB, 1),
	DISK("blk-write-random-4k", true, true, 4 * KIB, 1),
	DISK("blk-read-random-4k-x32", false, true, 4 * KIB, DEPTH_MAX),
	DISK("blk-write-random-4k-x32", true, true, 4 * KIB, DEPTH_MAX),
	STREAM("vsock-to-host", false, STREAM_TO_HOST, 1),
	STREAM("vsock-to-guest", false, STREAM_TO_GUEST, 1),
	STREAM("vsock-to-host-x16", false, STREAM_TO_HOST, STREAMS_MAX),
	STREAM("vsock-to-guest-x16", false, STREAM_TO_GUEST, STREAMS_MAX),
	STREAM("vsock-round-trip", false, STREAM_ECHO, 1),
	STREAM("tcp-to-host", true, STREAM_TO_HOST, 1),
	STREAM("tcp-to-guest", true, STREAM_TO_GUEST, 1),
	STREAM("tcp-to-host-x16", true, STREAM_TO_HOST, STREAMS_MAX),
	STREAM("tcp-to-guest-x16", true, STREAM_TO_GUEST, STREAMS_MAX),
	STREAM("tcp-round-trip", true, STREAM_ECHO, 1),
};

/* A line to the kernel's log, and so to the console whatever drives it. */
static void say(const char *format, ...)
{
	char line[LINE_MAX_BYTES];
	int fd = open("/dev/kmsg", O_WRONLY | O_CLOEXEC);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	dprintf(fd, "<1>%s", line);
	close(fd);
}

/* In a process of its own, so that nothing is left of it. */
static void run_test(const struct test *test, uint32_t ms)
{
	struct result result = {0};
	int error;

	if (fork() != 0) {
		wait(NULL);
		return;
	}
	error = test->run(test, ms, &result);
	if (error)
		say("failed %s %s", test->name, strerror(-error));
	else
		say("result %s %llu %llu %llu", test->name, (unsigned long long)result.operations,
			(unsigned long long)result.bytes, (unsigned long long)result.ns);
	_exit(0);
}

/* The value after key in the line, which begins a word, cut at its end; the empty string when there is none.
 */
static const char *value_of(const char *line, const char *key, char *value, size_t room)
{
	const char *at = strstr(line, key);

	snprintf(value, room, "%s", at ? at + strlen(key) : "");
	value[strcspn(value, " \n")] = 0;
	return value;
}

/* 0 or -errno. */
static int bring_up(const char *name)
{
	struct ifreq request = {0};
	struct sockaddr_in *address = (struct sockaddr_in *)(void *)&request.ifr_addr;
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), error = 0;

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	address->sin_family = AF_INET;
	inet_pton(AF_INET, GUEST_ADDRESS, &address->sin_addr);
	if (fd < 0 || ioctl(fd, SIOCSIFADDR, &request) < 0)
		return -errno;
	inet_pton(AF_INET, "255.255.255.0", &address->sin_addr);
	if (ioctl(fd, SIOCSIFNETMASK, &request) < 0)
		error = -errno;
	request.ifr_flags = IFF_UP | IFF_RUNNING;
	if (!error && ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		error = -errno;
	close(fd);
	return error;
}

/* /dev, /proc, and the kernel's command line in line. 0 or -errno. */
static int set_up(char *line, size_t room)
{
	int fd;

	if (mount("dev", "/dev", "devtmpfs", 0, NULL) < 0 || mount("proc", "/proc", "proc", 0, NULL) < 0)
		return -errno;
	fd = open("/proc/cmdline", O_RDONLY | O_CLOEXEC);
	return fd < 0 || read(fd, line, room - 1) <= 0 ? -errno : 0;
}

static int measure(void)
{
	char line[LINE_MAX_BYTES] = "", list[LINE_MAX_BYTES], ms[16];
	int error = set_up(line, sizeof(line));

	value_of(line, "bench.tests=", list, sizeof(list));
	value_of(line, "bench.ms=", ms, sizeof(ms));
	if (!error && strstr(list, "tcp"))
		error = bring_up("eth0");
	for (char *word = strtok(list, ","); !error && word; word = strtok(NULL, ","))
		for (size_t i = 0; i < sizeof(tests) / sizeof(tests[0]); i++)
			if (strncmp(tests[i].name, word, strlen(word)) == 0)
				run_test(&tests[i], (uint32_t)strtoul(ms, NULL, 10));
	return error;
}

int main(void)
{
	int error = measure();

	if (error)
		say("failed init %s", strerror(-error));
	return reboot(RB_AUTOBOOT);
}
