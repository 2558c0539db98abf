/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The balloon before Linux's own driver: what the vmm holds of the host's memory, what its guest has, and
 * that no byte which the guest uses is lost. The guest (balloon_guest.c) does what it is told over vsock. TAP
 * on standard output, with the figures as comments; when something failed, the guest's console on standard
 * error. Usage: balloon VMM KERNEL INITRAMFS
 */
#include "tests/machine/balloon.h"
#include "common/proto_vmm.h"
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	LIMIT_MS = 60000, /* for any one thing, in an emulated machine on a loaded host */
	STEP_MS = 20,
	MIB = 1024, /* in KiB, as all sizes here */
	MOVES = 50,
};

struct test {
	const char *vmm, *kernel, *initramfs;
	char folder[32], vsock[64], listener[80], control[64], console[64];
	pid_t pid;
	int listening, guest, peer; /* for the guest; to it; to the vmm's control socket */
	uint32_t sequence;
	int count, failed;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

__attribute__((format(printf, 4, 5))) static void report(
	struct test *test, bool ok, const char *name, const char *why, ...)
{
	va_list arguments;

	va_start(arguments, why);
	test->count++;
	test->failed += !ok;
	printf("%sok %d - %s\n#   ", ok ? "" : "not ", test->count, name);
	vprintf(why, arguments);
	printf("\n");
	fflush(stdout);
	va_end(arguments);
}

static void rest(void)
{
	const struct timespec time = {.tv_nsec = STEP_MS * 1000000L};

	nanosleep(&time, NULL);
}

/* sockets */

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static bool wait_for(int fd)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};

	return poll(&pollfd, 1, LIMIT_MS) == 1;
}

/* Tells the guest; its answer, static until the next call. */
__attribute__((format(printf, 2, 3))) static const char *tell(struct test *test, const char *format, ...)
{
	static char line[BALLOON_LINE_MAX];
	size_t length = 0;
	va_list arguments;

	va_start(arguments, format);
	vdprintf(test->guest, format, arguments);
	va_end(arguments);
	dprintf(test->guest, "\n");
	while (length < sizeof(line) - 1 && wait_for(test->guest) &&
		read(test->guest, line + length, 1) == 1) {
		if (line[length] == '\n')
			break;
		length++;
	}
	line[length] = '\0';
	return line;
}

static bool told(struct test *test, const char *command, long mib, const char *wanted)
{
	return strcmp(tell(test, "%s %ld", command, mib), wanted) == 0;
}

static void connect_control(struct test *test)
{
	struct sockaddr_un address = address_of(test->control);

	test->peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connect(test->peer, (struct sockaddr *)&address, sizeof(address)) < 0)
		die(test->control);
}

/* The answer's status; its words are in *reply. */
static int control(struct test *test, uint32_t type, uint64_t arg0, struct vmm_message *reply)
{
	struct vmm_message request = {.type = type, .sequence = ++test->sequence, .arg0 = arg0};

	if (send(test->peer, &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request))
		die("control");
	while (wait_for(test->peer) && recv(test->peer, reply, sizeof(*reply), 0) == sizeof(*reply))
		if (reply->type == (type | VMM_REPLY) && reply->sequence == request.sequence)
			return reply->status;
	die("control: no answer");
	return 0;
}

/* figures, in KiB */

static long rss(struct test *test)
{
	char path[64], line[128];
	long value = -1;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/status", test->pid);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "VmRSS:", 6) == 0)
			value = strtol(line + 6, NULL, 10);
	if (file)
		fclose(file);
	return value;
}

static long memory(struct test *test, const char *name)
{
	return strtol(tell(test, "memory %s", name), NULL, 10);
}

static struct vmm_message ask_balloon(struct test *test)
{
	struct vmm_message reply = {0};

	(void)control(test, VMM_BALLOON, VMM_BALLOON_ASK, &reply);
	return reply;
}

static long actual(struct test *test)
{
	return (long)(ask_balloon(test).arg1 / 1024);
}

/* Sets the target and waits until the guest is there. False: it is not, within the limit. */
static bool move(struct test *test, long target)
{
	struct vmm_message reply;

	if (control(test, VMM_BALLOON, (uint64_t)target * 1024, &reply) != 0)
		return false;
	for (int waited = 0; waited < LIMIT_MS; waited += STEP_MS) {
		if (actual(test) == target)
			return true;
		rest();
	}
	return false;
}

/* Waits until the vmm has at most that much of the host; what it has then. */
static long await_rss(struct test *test, long most)
{
	long now = rss(test);

	for (int waited = 0; now > most && waited < LIMIT_MS; waited += STEP_MS) {
		rest();
		now = rss(test);
	}
	return now;
}

/* the machine */

static void make_folder(struct test *test)
{
	struct sockaddr_un address;

	strcpy(test->folder, "/tmp/balloon-XXXXXX");
	if (!mkdtemp(test->folder))
		die(test->folder);
	snprintf(test->console, sizeof(test->console), "%s/console", test->folder);
	snprintf(test->vsock, sizeof(test->vsock), "%s/vsock", test->folder);
	snprintf(test->control, sizeof(test->control), "%s/control", test->folder);
	snprintf(test->listener, sizeof(test->listener), "%s_%d", test->vsock, BALLOON_GUEST_PORT);
	address = address_of(test->listener);
	test->listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(test->listening, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(test->listening, 1) < 0)
		die(test->listener);
}

/* True: it is up, and the guest waits for orders. */
static bool start_machine(struct test *test, const char *memory, const char *option)
{
	test->pid = fork();
	if (test->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(test->vmm, test->vmm, "--kernel", test->kernel, "--initrd", test->initramfs, "--mem",
			memory, "--vsock", test->vsock, "--control", test->control, "--serial", test->console,
			option, (char *)NULL);
		die(test->vmm);
	}
	test->guest = wait_for(test->listening) ? accept(test->listening, NULL, NULL) : -1;
	report(test, test->guest >= 0, "a guest boots", "%s, %s", memory, option ? option : "no balloon");
	if (test->guest < 0)
		return false;
	connect_control(test);
	return true;
}

static void end_machine(struct test *test)
{
	int status = -1;

	dprintf(test->guest, "off\n");
	waitpid(test->pid, &status, 0);
	test->pid = 0;
	close(test->guest);
	close(test->peer);
	report(test, status == 0, "it powers off", "wait status %#x", (unsigned)status);
}

/* The cases. */

/* What the guest frees goes back by its reports. */
static void test_reporting(struct test *test, long hold)
{
	long full, after;
	uint64_t reported = ask_balloon(test).arg2;

	report(test, told(test, "hold", hold, "held"), "the guest takes memory and fills it", "%ld MiB",
		hold);
	full = rss(test);
	report(test, full >= hold * MIB, "it is the host's memory", "vmm's RSS: %ld MiB", full / MIB);
	report(test, strcmp(tell(test, "check"), "same") == 0, "it has its bytes", "compared");
	report(test, strcmp(tell(test, "drop"), "dropped") == 0, "the guest frees it", "all of it");
	after = await_rss(test, full - hold * MIB * 9 / 10);
	report(test, full - after >= hold * MIB * 9 / 10, "and the host has it back, unasked",
		"vmm's RSS: %ld to %ld MiB", full / MIB, after / MIB);
	reported = ask_balloon(test).arg2 - reported;
	report(test, reported >= (uint64_t)hold * MIB * 1024 * 9 / 10, "the reports are counted",
		"%" PRIu64 " MiB", reported >> 20);
	report(test, told(test, "zeros", hold, "good"), "the guest can use it again, and finds zeros",
		"%ld MiB", hold);
}

/* A guest too small to report what it frees: only the target takes it. */
static void test_target(struct test *test, long target)
{
	long full, available, after;

	(void)told(test, "hold", target + target / 2, "held");
	(void)tell(test, "drop");
	full = rss(test);
	available = memory(test, "MemAvailable");
	report(test, move(test, target * MIB), "the guest gives up what it is asked for", "%ld MiB", target);
	after = rss(test);
	report(test, full - after >= target * MIB * 8 / 10, "the host has it", "vmm's RSS: %ld to %ld MiB",
		full / MIB, after / MIB);
	after = memory(test, "MemAvailable");
	report(test, labs(available - after - target * MIB) < target * MIB / 10, "the guest has it no more",
		"MemAvailable: %ld to %ld MiB", available / MIB, after / MIB);
	report(test, move(test, 0), "it gets it back", "target 0");
	after = memory(test, "MemAvailable");
	report(test, labs(available - after) < target * MIB / 10, "all of it", "MemAvailable: %ld MiB",
		after / MIB);
	report(test, told(test, "zeros", target + target / 2, "good"), "and can use it, and finds zeros",
		"%ld MiB", target + target / 2);
}

static void test_refusals(struct test *test, uint64_t mib)
{
	struct vmm_message reply;
	int status = control(test, VMM_BALLOON, (mib << 20) + 1, &reply);

	report(test, status == -EINVAL, "more than the guest's memory is refused", "status %d", status);
	reply = ask_balloon(test);
	report(test, reply.arg0 == 0 && reply.arg1 == 0, "and changes nothing", "target %" PRIu64,
		reply.arg0);
}

static void test_paused(struct test *test, long target)
{
	struct vmm_message reply;
	int status = control(test, VMM_PAUSE, 0, &reply);
	long now;

	if (status == 0)
		status = control(test, VMM_BALLOON, (uint64_t)target * MIB * 1024, &reply);
	rest();
	now = actual(test);
	report(test, status == 0 && now == 0, "a paused guest takes a target and does nothing",
		"status %d, actual %ld", status, now);
	status = control(test, VMM_RESUME, 0, &reply);
	report(test, status == 0 && move(test, target * MIB), "resumed, it goes there", "status %d", status);
	report(test, move(test, 0), "and back", "target 0");
}

/* It needs more than the balloon leaves: it takes back what it needs, and nothing of it is killed. */
static void test_out_of_memory(struct test *test, long target, long hold)
{
	long left;

	report(test, move(test, target * MIB), "most of the memory is in the balloon", "%ld MiB", target);
	report(test, told(test, "hold", hold, "held"), "the guest takes more than is left", "%ld MiB", hold);
	report(test, strcmp(tell(test, "check"), "same") == 0, "it has its bytes", "compared");
	left = actual(test);
	report(test, left > 0 && left < target * MIB, "for that it took from the balloon", "%ld MiB are left",
		left / MIB);
	(void)tell(test, "drop");
	report(test, move(test, 0), "and takes the rest when it may", "target 0");
}

/* What is in use keeps its bytes, and what is taken anew is zero, whatever the balloon does. */
static void test_moves(struct test *test)
{
	unsigned moves = 0;
	const char *answer;

	(void)tell(test, "order 5");
	(void)told(test, "work", 32, "working");
	while (moves < MOVES && move(test, 48 * MIB) && move(test, (long)(32 + moves % 16) * MIB))
		moves++;
	report(test, moves == MOVES, "the target goes up and down while the guest works", "%u times", moves);
	answer = tell(test, "stop");
	report(test, strtol(answer, NULL, 10) > MOVES && answer[strspn(answer, "0123456789")] == '\0',
		"no byte in use was lost, and fresh memory was zero", "pieces compared: %s", answer);
	report(test, move(test, 0), "all comes back", "target 0");
}

static void test_large(struct test *test)
{
	if (!start_machine(test, "512M", "--balloon"))
		return;
	test_reporting(test, 256);
	end_machine(test);
}

static void test_small(struct test *test)
{
	if (!start_machine(test, "128M", "--balloon"))
		return;
	test_target(test, 64);
	test_refusals(test, 128);
	test_paused(test, 32);
	test_out_of_memory(test, 96, 80);
	/* With small blocks a small guest reports, too. */
	report(test, strcmp(tell(test, "order 5"), "set") == 0, "blocks of 128 KiB are worth a report",
		"order 5");
	test_reporting(test, 64);
	test_moves(test);
	end_machine(test);
}

static void test_first_target(struct test *test)
{
	long now = 0;

	if (!start_machine(test, "128M", "--balloon=64M"))
		return;
	for (int waited = 0; now != 64 * MIB && waited < LIMIT_MS; waited += STEP_MS) {
		rest();
		now = actual(test);
	}
	report(test, now == 64 * MIB, "a guest goes to its first target by itself", "%ld MiB", now / MIB);
	end_machine(test);
}

static void test_none(struct test *test)
{
	struct vmm_message reply;
	int status;

	if (!start_machine(test, "128M", NULL))
		return;
	status = control(test, VMM_BALLOON, VMM_BALLOON_ASK, &reply);
	report(test, status == -ENODEV, "a machine without a balloon says so", "status %d", status);
	end_machine(test);
}

/* Leaves nothing: no VM, no file. */
static void clean_up(struct test *test)
{
	char command[96];

	if (test->pid > 0)
		kill(test->pid, SIGKILL);
	if (test->failed) {
		snprintf(command, sizeof(command), "cat %s >&2", test->console);
		(void)!system(command);
	}
	snprintf(command, sizeof(command), "rm -rf %s", test->folder);
	(void)!system(command);
}

int main(int argc, char **argv)
{
	struct test test = {.guest = -1, .peer = -1};

	if (argc != 4)
		return 2;
	test.vmm = argv[1];
	test.kernel = argv[2];
	test.initramfs = argv[3];
	make_folder(&test);
	test_large(&test);
	test_small(&test);
	test_first_target(&test);
	test_none(&test);
	clean_up(&test);
	printf("1..%d\n", test.count);
	return test.failed != 0;
}
