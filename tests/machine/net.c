/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The network device of vmm before Linux's own driver, over taps in a network namespace of the test's own. A
 * guest (net_guest.c) does what it is told over vsock, and this side compares. TAP on standard output; when
 * something failed, the guest's console on standard error. Usage: net VMM KERNEL INITRAMFS
 */
#include "tests/machine/net.h"
#include "common/io.h"
#include "common/proto_vmm.h"
#include "tests/machine/net_taps.h"
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_ether.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>

enum {
	LIMIT_MS = 60000, /* for any one answer, in an emulated machine on a loaded host */
	STEP_MS = 100,
	PINGS = 20,
	STREAM_BYTES = 32 * 1024 * 1024,
	SMALL_PACKETS = 100000,
	FLOOD_PACKETS = 2000,
	PORT = 7000,
	IDLE_MS = 1000,
	IDLE_TICKS_MAX = 20, /* of 10 ms: far below what a loop that spins takes in IDLE_MS */
};

struct test {
	const char *vmm, *kernel, *initramfs;
	char folder[32], vsock[64], control_path[64], console[64];
	pid_t pid;
	int ready; /* listens for the guest */
	int control;
	uint32_t sequence;
	int count, failed;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void report(struct test *test, bool ok, const char *name, const char *why)
{
	test->count++;
	test->failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", test->count, name);
	if (!ok)
		printf("#   %s\n", why);
	fflush(stdout);
}

static void expect(struct test *test, const char *name, const char *got, const char *wanted)
{
	char why[3 * DEVICES_LINE_MAX];

	snprintf(why, sizeof(why), "\"%s\", not \"%s\"", got, wanted);
	report(test, strcmp(got, wanted) == 0, name, why);
}

static void expect_number(struct test *test, const char *name, int64_t got, int64_t wanted)
{
	char why[64];

	snprintf(why, sizeof(why), "%" PRId64 ", not %" PRId64, got, wanted);
	report(test, got == wanted, name, why);
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* the machine */

static int listen_at(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	unlink(path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 8) < 0)
		die(path);
	return fd;
}

static int connect_at(const char *path, int type)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
		die(path);
	return fd;
}

/* A line without its newline; empty: none within the limit. */
static void read_line(int fd, char line[DEVICES_LINE_MAX])
{
	size_t length = 0;

	while (length < DEVICES_LINE_MAX - 1 && net_wait(fd, LIMIT_MS) && read(fd, line + length, 1) == 1 &&
		line[length] != '\n')
		length++;
	line[length] = '\0';
}

static int start_command(struct test *test, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A stream to the guest with the command in it. */
static int start_command(struct test *test, const char *format, ...)
{
	char line[DEVICES_LINE_MAX];
	int fd = connect_at(test->vsock, SOCK_STREAM);
	va_list arguments;

	dprintf(fd, "CONNECT %d\n", DEVICES_PORT);
	read_line(fd, line);
	va_start(arguments, format);
	vdprintf(fd, format, arguments);
	va_end(arguments);
	dprintf(fd, "\n");
	return fd;
}

/* The guest's answer to it. */
static void ask(struct test *test, const char *command, char line[DEVICES_LINE_MAX])
{
	int fd = start_command(test, "%s", command);

	read_line(fd, line);
	close(fd);
}

static void expect_answer(struct test *test, const char *name, const char *command, const char *wanted)
{
	char line[DEVICES_LINE_MAX];

	ask(test, command, line);
	expect(test, name, line, wanted);
}

static void start_machine(struct test *test, const char *net)
{
	char ready[96];

	strcpy(test->folder, "/tmp/net-XXXXXX");
	if (!mkdtemp(test->folder))
		die(test->folder);
	snprintf(test->console, sizeof(test->console), "%s/console", test->folder);
	snprintf(test->vsock, sizeof(test->vsock), "%s/vsock", test->folder);
	snprintf(test->control_path, sizeof(test->control_path), "%s/control", test->folder);
	snprintf(ready, sizeof(ready), "%s_%d", test->vsock, DEVICES_READY_PORT);
	test->ready = listen_at(ready);
	test->pid = fork();
	if (test->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(test->vmm, test->vmm, "--kernel", test->kernel, "--initrd", test->initramfs, "--mem",
			"128M", "--net", net, "--vsock", test->vsock, "--control", test->control_path,
			"--serial", test->console, (char *)NULL);
		die(test->vmm);
	}
}

static bool await_boot(struct test *test)
{
	int fd = NO_FD;

	/* in steps, to see a machine that has ended */
	for (int waited = 0; fd < 0 && waited < LIMIT_MS && waitpid(test->pid, NULL, WNOHANG) == 0;
		waited += STEP_MS)
		if (net_wait(test->ready, STEP_MS))
			fd = accept(test->ready, NULL, NULL);
	report(test, fd >= 0, "the guest comes up", "it does not");
	if (fd < 0)
		return false;
	close(fd);
	test->control = connect_at(test->control_path, SOCK_SEQPACKET);
	return true;
}

/* A request and its reply, whose status is returned; events are passed over. */
static int exchange(struct test *test, uint32_t type, uint64_t arg0, int fd, struct vmm_message *reply)
{
	*reply = (struct vmm_message){.type = type, .sequence = ++test->sequence, .arg0 = arg0};
	if (io_send_fds(test->control, reply, sizeof(*reply), &fd, fd >= 0) < 0)
		return -EIO;
	while (net_wait(test->control, LIMIT_MS) &&
		recv(test->control, reply, sizeof(*reply), 0) == sizeof(*reply))
		if (reply->type == (type | VMM_REPLY) && reply->sequence == test->sequence)
			return reply->status;
	return -ETIMEDOUT;
}

static int request(struct test *test, uint32_t type, uint64_t arg0, int fd)
{
	struct vmm_message message;

	return exchange(test, type, arg0, fd, &message);
}

/* Exits of the guest to the VMM since its start. */
static uint64_t count_exits(struct test *test)
{
	struct vmm_message message;

	return exchange(test, VMM_STATUS, 0, NO_FD, &message) == 0 ? message.arg1 : 0;
}

/* Ticks of processor time that the process has used. */
static unsigned long read_ticks(pid_t pid)
{
	char path[64];
	unsigned long user = 0, system = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	file = fopen(path, "re");
	if (!file || fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
			     &system) != 2)
		die(path);
	fclose(file);
	return user + system;
}

static void expect_idle(struct test *test, const char *name)
{
	struct timespec while_idle = {.tv_sec = IDLE_MS / 1000};
	unsigned long before = read_ticks(test->pid), used;
	char why[64];

	nanosleep(&while_idle, NULL);
	used = read_ticks(test->pid) - before;
	snprintf(why, sizeof(why), "%lu ticks in a second", used);
	report(test, used <= IDLE_TICKS_MAX, name, why);
}

/* The cases. */

static void test_pings(struct test *test, const char *when)
{
	char command[DEVICES_LINE_MAX], name[DEVICES_LINE_MAX], wanted[16];

	snprintf(command, sizeof(command), "ping %d %d", PINGS, NET_PING_MS);
	snprintf(wanted, sizeof(wanted), "%d", PINGS);
	snprintf(name, sizeof(name), "%s: the guest pings the host", when);
	expect_answer(test, name, command, wanted);
	snprintf(name, sizeof(name), "%s: the host pings the guest", when);
	expect_number(test, name, net_ping(NET_GUEST_ADDRESS, PINGS, NET_PING_MS), PINGS);
}

/* Without a MAC that was given: administered locally, one station's. */
static void test_mac(struct test *test)
{
	char line[DEVICES_LINE_MAX];
	unsigned first = 0;

	ask(test, "mac", line);
	report(test, sscanf(line, "%2x:", &first) == 1 && (first & 3) == 2, "the address is a local one",
		line);
}

static const unsigned wanted_features[] = {0, 1, 5, 7, 8, 9, 11, 12, 13, 15, 16, 29, 32};

static void test_features(struct test *test)
{
	char line[DEVICES_LINE_MAX], wanted[65] = "";

	memset(wanted, '0', 64);
	for (size_t i = 0; i < sizeof(wanted_features) / sizeof(wanted_features[0]); i++)
		wanted[wanted_features[i]] = '1';
	ask(test, "features", line);
	expect(test, "the driver takes every feature", line, wanted);
}

static int listen_tcp(void)
{
	struct sockaddr_in address = net_address(INADDR_ANY, PORT);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
		die("listen");
	return fd;
}

/* What passes the tap from a moment on. */
struct meter {
	struct test *test;
	const char *tap;
	struct net_traffic traffic;
	uint64_t start, exits;
};

static struct meter start_meter(struct test *test, const char *tap)
{
	return (struct meter){.test = test,
		.tap = tap,
		.traffic = net_read_traffic(tap),
		.start = now_ms(),
		.exits = count_exits(test)};
}

static void stop_meter(const char *what, struct meter *meter)
{
	struct net_traffic traffic = net_read_traffic(meter->tap);
	uint64_t ms = now_ms() - meter->start, exits = count_exits(meter->test) - meter->exits;

	traffic.in_bytes -= meter->traffic.in_bytes;
	traffic.in_packets -= meter->traffic.in_packets;
	traffic.out_bytes -= meter->traffic.out_bytes;
	traffic.out_packets -= meter->traffic.out_packets;
	meter->traffic = traffic;
	printf("# %s: %" PRIu64 " ms; from the guest %" PRIu64 " packets, %" PRIu64 " bytes; to it %" PRIu64
	       ", %" PRIu64 "; %" PRIu64 " exits\n",
		what, ms, traffic.in_packets, traffic.in_bytes, traffic.out_packets, traffic.out_bytes,
		exits);
}

static uint64_t sum_of_pattern(uint64_t length)
{
	static uint8_t chunk[NET_CHUNK];
	uint64_t sum = DEVICES_SUM_START;

	for (uint64_t offset = 0; offset < length; offset += sizeof(chunk)) {
		devices_pattern(chunk, offset, sizeof(chunk));
		sum = devices_sum(sum, chunk, sizeof(chunk));
	}
	return sum;
}

static void test_stream_out(struct test *test, const char *tap, uint64_t wanted_sum)
{
	int listener = listen_tcp(), command, stream;
	struct meter meter = start_meter(test, tap);
	uint64_t sum = 0, bytes = 0;
	char line[DEVICES_LINE_MAX], wanted[32];

	command = start_command(test, "tcp-pour %d %d", PORT, STREAM_BYTES);
	stream = net_wait(listener, LIMIT_MS) ? accept(listener, NULL, NULL) : NO_FD;
	if (stream >= 0)
		bytes = net_take_stream(stream, &sum);
	stop_meter("TCP, guest to host", &meter);
	report(test, bytes == STREAM_BYTES && sum == wanted_sum, "a stream of the guest is whole",
		"it is not");
	report(test, meter.traffic.in_bytes > 2 * ETH_FRAME_LEN * meter.traffic.in_packets,
		"its packets are longer than Ethernet's", "they are not");
	snprintf(wanted, sizeof(wanted), "%d", STREAM_BYTES);
	read_line(command, line);
	expect(test, "and the guest has sent it", line, wanted);
	close(command);
	close(stream);
	close(listener);
}

static void test_stream_in(struct test *test, const char *tap, uint64_t wanted_sum)
{
	int listener = listen_tcp(), command, stream;
	struct meter meter = start_meter(test, tap);
	char line[DEVICES_LINE_MAX], wanted[64];

	command = start_command(test, "tcp-take %d", PORT);
	stream = net_wait(listener, LIMIT_MS) ? accept(listener, NULL, NULL) : NO_FD;
	expect_number(test, "a stream goes to the guest", (int64_t)net_send_stream(stream, STREAM_BYTES),
		STREAM_BYTES);
	read_line(command, line);
	stop_meter("TCP, host to guest", &meter);
	snprintf(wanted, sizeof(wanted), "%d %016" PRIx64, STREAM_BYTES, wanted_sum);
	expect(test, "and is whole there", line, wanted);
	report(test, meter.traffic.out_bytes > 2 * ETH_FRAME_LEN * meter.traffic.out_packets,
		"its packets are longer than Ethernet's", "they are not");
	close(command);
	close(stream);
	close(listener);
}

static void test_small(struct test *test, const char *tap)
{
	char line[DEVICES_LINE_MAX], wanted[16];
	int packets = net_bind_small(PORT), command;
	struct meter meter = start_meter(test, tap);

	snprintf(wanted, sizeof(wanted), "%d", SMALL_PACKETS);
	command = start_command(test, "udp-pour %d %d", PORT, SMALL_PACKETS);
	expect_number(test, "small packets of the guest come, each and in order",
		(int64_t)net_take_small(packets, SMALL_PACKETS), SMALL_PACKETS);
	read_line(command, line);
	expect(test, "and the guest knows", line, wanted);
	stop_meter("small packets, guest to host", &meter);
	close(command);
	close(packets);

	meter = start_meter(test, tap);
	command = start_command(test, "udp-take %d %d", PORT, SMALL_PACKETS);
	read_line(command, line);
	packets = net_connect(SOCK_DGRAM, NET_GUEST_ADDRESS, PORT);
	expect_number(test, "small packets of the host are acknowledged",
		(int64_t)net_send_small(packets, SMALL_PACKETS), SMALL_PACKETS);
	read_line(command, line);
	expect(test, "and have come, each and in order", line, wanted);
	stop_meter("small packets, host to guest", &meter);
	close(command);
	close(packets);
}

static void test_link(struct test *test)
{
	char line[DEVICES_LINE_MAX];

	expect_answer(test, "the link is up", "carrier 1", "1");
	expect_number(test, "down is taken", request(test, VMM_NET, VMM_LINK_DOWN, NO_FD), 0);
	expect_answer(test, "and the guest sees it", "carrier 0", "0");
	ask(test, "ping 1 300", line);
	expect(test, "nothing passes", line, "0");
	expect_number(test, "in neither direction", net_ping(NET_GUEST_ADDRESS, 1, 300), 0);
	expect_number(test, "up is taken", request(test, VMM_NET, VMM_LINK_UP, NO_FD), 0);
	expect_answer(test, "and the guest sees it", "carrier 1", "1");
	test_pings(test, "up again");
}

/* The guest stands, so it gives no buffer back: what comes fills its queue, then the host's. */
static void test_full_queue(struct test *test)
{
	uint8_t bytes[NET_SMALL_BYTES] = {0};
	int fd = net_connect(SOCK_DGRAM, NET_GUEST_ADDRESS, PORT + 1);

	expect_number(test, "the machine stands", request(test, VMM_PAUSE, 0, NO_FD), 0);
	for (unsigned i = 0; i < FLOOD_PACKETS; i++)
		(void)!send(fd, bytes, sizeof(bytes), 0);
	close(fd);
	expect_idle(test, "a full queue costs no processor time");
	expect_number(test, "the machine goes on", request(test, VMM_RESUME, 0, NO_FD), 0);
	test_pings(test, "after a full queue");
}

static void test_refused_backends(struct test *test)
{
	int pair[2], bare = open("/dev/net/tun", O_RDWR | O_CLOEXEC);

	if (pipe(pair) < 0 || bare < 0)
		die("pipe");
	expect_number(test, "a pipe is no tap", request(test, VMM_NET, VMM_LINK_UP, pair[0]), -ENOTTY);
	expect_number(
		test, "nor is one without an interface", request(test, VMM_NET, VMM_LINK_UP, bare), -EBADFD);
	expect_number(test, "there is no link but up and down", request(test, VMM_NET, 2, NO_FD), -EINVAL);
	close(bare);
	close(pair[0]);
	close(pair[1]);
	test_pings(test, "after a refusal");
}

static void test_backend_gone(struct test *test, const char *tap)
{
	int fd;
	char line[DEVICES_LINE_MAX];

	net_delete_interface(tap);
	expect_answer(test, "without its tap, the link is down", "carrier 0", "0");
	expect_idle(test, "that costs no processor time");
	expect_number(test, "it cannot be set up", request(test, VMM_NET, VMM_LINK_UP, NO_FD), -ENOTCONN);
	fd = start_command(test, "echo");
	dprintf(fd, "others work\n");
	read_line(fd, line);
	expect(test, "other devices work", line, "others work");
	close(fd);
}

static void test_attach(struct test *test, const char *name, const char *when)
{
	int tap = net_make_tap(name, NET_HOST_ADDRESS, true);

	expect_number(test, "a tap is attached", request(test, VMM_NET, VMM_LINK_UP, tap), 0);
	close(tap);
	expect_answer(test, "and the link comes up", "carrier 1", "1");
	test_pings(test, when);
}

static void end_machine(struct test *test)
{
	int fd = start_command(test, "off"), status = -1;
	char why[64];

	waitpid(test->pid, &status, 0);
	test->pid = 0;
	snprintf(why, sizeof(why), "wait status %#x", (unsigned)status);
	report(test, status == 0, "the guest powers off", why);
	close(fd);
}

static void run_with_tap(struct test *test)
{
	uint64_t sum = sum_of_pattern(STREAM_BYTES);

	net_make_tap("net-one", NET_HOST_ADDRESS, false);
	start_machine(test, "net-one");
	if (!await_boot(test))
		return;
	test_features(test);
	test_mac(test);
	test_pings(test, "first");
	test_stream_out(test, "net-one", sum);
	test_stream_in(test, "net-one", sum);
	test_small(test, "net-one");
	test_link(test);
	test_full_queue(test);
	test_refused_backends(test);
	test_backend_gone(test, "net-one");
	test_attach(test, "net-two", "over another tap");
	test_stream_in(test, "net-two", sum);
	end_machine(test);
}

static void run_without_tap(struct test *test)
{
	start_machine(test, "none,mac=02:00:5E:10:00:01");
	if (!await_boot(test))
		return;
	expect_answer(test, "without a tap the link is down", "carrier 0", "0");
	expect_answer(test, "the address is the one that was given", "mac", "02:00:5e:10:00:01");
	expect_number(test, "it cannot be set up", request(test, VMM_NET, VMM_LINK_UP, NO_FD), -ENOTCONN);
	test_attach(test, "net-three", "over the first tap");
	end_machine(test);
}

/* Leaves nothing: no VM, no file; the taps go with the namespace. */
static void clean_up(struct test *test)
{
	char command[96];

	if (test->pid > 0) {
		kill(test->pid, SIGKILL);
		waitpid(test->pid, NULL, 0);
	}
	if (test->failed) {
		snprintf(command, sizeof(command), "cat %s >&2", test->console);
		(void)!system(command);
	}
	snprintf(command, sizeof(command), "rm -rf %s", test->folder);
	(void)!system(command);
	close(test->ready);
	close(test->control);
	test->pid = 0;
	test->control = NO_FD;
}

int main(int argc, char **argv)
{
	struct test test = {.control = NO_FD, .ready = NO_FD};

	if (argc != 4)
		return 2;
	signal(SIGPIPE, SIG_IGN);
	if (unshare(CLONE_NEWNET) < 0)
		die("unshare");
	test.vmm = argv[1];
	test.kernel = argv[2];
	test.initramfs = argv[3];
	run_with_tap(&test);
	clean_up(&test);
	net_delete_interface("net-two");
	run_without_tap(&test);
	clean_up(&test);
	printf("1..%d\n", test.count);
	return test.failed != 0;
}
