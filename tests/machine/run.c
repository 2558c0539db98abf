/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs the tiny guests with the real vmm and says in TAP how each ended; then the control protocol with
 * guests that never end by themselves. Usage: run VMM FOLDER-OF-GUESTS
 */
#include "common/io.h"
#include "common/proto_vmm.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	OPTIONS_MAX = 8,
	OUTPUT_MAX = 4096,
	LIMIT_MS = 20000, /* for anything that a VM is waited for */
	MORE_EXITS = 100,
};

struct suite {
	const char *vmm, *guests;
	int count, failed;
};

/* A VM that runs. */
struct machine {
	pid_t pid;
	int control; /* -1: none */
	int errors;  /* its standard error */
	uint32_t sequence;
};

static void report(struct suite *suite, bool ok, const char *name, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

static void report(struct suite *suite, bool ok, const char *name, const char *format, ...)
{
	va_list arguments;

	suite->count++;
	suite->failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", suite->count, name);
	if (!ok) {
		printf("#   ");
		va_start(arguments, format);
		vprintf(format, arguments);
		va_end(arguments);
		printf("\n");
	}
	fflush(stdout);
}

static void run_vmm(
	const struct suite *suite, const char *guest, const char *const *options, int control, int errors)
{
	char path[PATH_MAX], control_name[16];
	const char *argv[OPTIONS_MAX + 8] = {suite->vmm, "--kernel", path, "--mem", "16M"};
	int n = 5;

	snprintf(path, sizeof(path), "%s/%s.elf", suite->guests, guest);
	if (control >= 0) {
		snprintf(control_name, sizeof(control_name), "fd:%d", control);
		fd_set_cloexec(control, 0);
		argv[n++] = "--control";
		argv[n++] = control_name;
	}
	for (int i = 0; options && i < OPTIONS_MAX && options[i]; i++)
		argv[n++] = options[i];
	/* However this test ends, no VM outlives it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	dup2(errors, STDERR_FILENO);
	execv(suite->vmm, (char *const *)argv);
	_exit(127);
}

static bool try_start(const struct suite *suite, const char *guest, const char *const *options,
	bool controlled, struct machine *machine)
{
	int sockets[2] = {-1, -1}, pipes[2];

	*machine = (struct machine){.pid = -1, .control = -1, .errors = -1};
	if (pipe2(pipes, O_CLOEXEC) < 0 ||
		(controlled && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0))
		return false;
	machine->control = sockets[0];
	machine->errors = pipes[0];
	machine->pid = fork();
	if (machine->pid == 0)
		run_vmm(suite, guest, options, sockets[1], pipes[1]);
	fd_close(&sockets[1]);
	fd_close(&pipes[1]);
	return machine->pid > 0;
}

static bool start(struct suite *suite, const char *guest, const char *const *options, bool controlled,
	struct machine *machine)
{
	if (try_start(suite, guest, options, controlled, machine))
		return true;
	report(suite, false, guest, "cannot start it: %s", strerror(errno));
	return false;
}

static bool is_readable(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	return poll(&wait, 1, LIMIT_MS) == 1;
}

/* Its exit status, or -1 when it had to be killed; output is what it said. */
static int finish(struct machine *machine, char *output)
{
	size_t length = 0;
	ssize_t n = 1;
	int status;

	while (n > 0 && length < OUTPUT_MAX - 1 && is_readable(machine->errors)) {
		n = read(machine->errors, output + length, OUTPUT_MAX - 1 - length);
		length += n > 0 ? (size_t)n : 0;
	}
	output[length] = '\0';
	if (n > 0)
		kill(machine->pid, SIGKILL);
	waitpid(machine->pid, &status, 0);
	fd_close(&machine->errors);
	fd_close(&machine->control);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_end(
	struct suite *suite, struct machine *machine, const char *name, int status, const char *line)
{
	char output[OUTPUT_MAX];
	int got = finish(machine, output);

	report(suite, got == status && strstr(output, line), name, "status %d instead of %d, said: %s", got,
		status, output);
}

/* --- guests that end by themselves --- */

static const struct {
	const char *name, *guest;
	int status;
	const char *line;
	const char *options[OPTIONS_MAX];
} endings[] = {
	{"ports in every width, and by strings", "ports", VMM_END_POWEROFF, "the guest powered off", {0}},
	{"the same with a serial line", "ports", VMM_END_POWEROFF, "the guest powered off",
		{"--serial", "/dev/null", NULL}},
	{"device registers in every width and alignment", "mmio", VMM_END_POWEROFF, "the guest powered off",
		{"--stats", NULL}},
	{"the same of a vsock device", "mmio", VMM_END_POWEROFF, "the guest powered off",
		{"--vsock", "machine-test.sock", NULL}},
	{"a device's interrupt, and one that came while masked", "irq", VMM_END_POWEROFF,
		"the guest powered off", {0}},
	{"an interrupt to itself", "ipi", VMM_END_POWEROFF, "the guest powered off", {0}},
	{"code in a device's registers is refused", "device_memory", VMM_END_GUEST_FAULT,
		"KVM cannot emulate", {0}},
};

static void test_endings(struct suite *suite)
{
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		struct machine machine;

		if (start(suite, endings[i].guest, endings[i].options, false, &machine))
			expect_end(suite, &machine, endings[i].name, endings[i].status, endings[i].line);
	}
}

static void test_kvm_fd(struct suite *suite)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	char name[16];
	const char *options[] = {"--kvm", name, NULL};
	struct machine machine;

	snprintf(name, sizeof(name), "fd:%d", kvm);
	fd_set_cloexec(kvm, 0);
	if (start(suite, "ipi", options, false, &machine))
		expect_end(
			suite, &machine, "a /dev/kvm that was handed over", VMM_END_POWEROFF, "powered off");
	fd_close(&kvm);
	options[1] = "/dev/null";
	if (start(suite, "ipi", options, false, &machine))
		expect_end(suite, &machine, "a /dev/kvm that is none", VMM_END_SETUP,
			"--kvm: /dev/null is not KVM: give /dev/kvm");
}

/* --- the control protocol --- */

static bool receive(struct machine *machine, struct vmm_message *message)
{
	size_t count = 0;

	return is_readable(machine->control) && io_receive_fds(machine->control, message, sizeof(*message),
							NULL, &count) == (ssize_t)sizeof(*message);
}

static bool send_request(struct machine *machine, uint32_t type, uint64_t arg0)
{
	struct vmm_message request = {.type = type, .sequence = ++machine->sequence, .arg0 = arg0};

	return io_send_fds(machine->control, &request, sizeof(request), NULL, 0) == 0;
}

/* The reply to the last request; events before it are passed over. */
static bool await_reply(struct machine *machine, struct vmm_message *reply)
{
	do
		if (!receive(machine, reply))
			return false;
	while (reply->sequence != machine->sequence);
	return true;
}

/* True when it was done. */
static bool ask(struct machine *machine, uint32_t type, struct vmm_message *reply)
{
	return send_request(machine, type, 0) && await_reply(machine, reply) &&
	       reply->type == (type | VMM_REPLY) && reply->status == 0;
}

static bool await_state(struct machine *machine, enum vmm_state state, struct vmm_message *event)
{
	do
		if (!receive(machine, event))
			return false;
	while (event->type != VMM_EVENT_STATE || event->arg0 != state);
	return true;
}

static uint64_t count_exits(struct machine *machine, enum vmm_state *state)
{
	struct vmm_message reply = {.arg0 = VMM_STATE_ENDED};

	if (!ask(machine, VMM_STATUS, &reply))
		return 0;
	*state = (enum vmm_state)reply.arg0;
	return reply.arg1;
}

/* True when the guest gets on; the number of questions is a bound, not a time. */
static bool gets_on(struct machine *machine)
{
	enum vmm_state state = VMM_STATE_ENDED;
	uint64_t first = count_exits(machine, &state);

	for (int i = 0; i < 10000; i++)
		if (count_exits(machine, &state) > first + MORE_EXITS)
			return true;
	return false;
}

static void test_states(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;
	enum vmm_state state = VMM_STATE_ENDED;
	uint64_t exits;

	if (!start(suite, "exits", NULL, true, &machine))
		return;
	report(suite, receive(&machine, &message) && message.type == VMM_EVENT_STATE,
		"the first word is the state", "type %u", message.type);
	report(suite, await_state(&machine, VMM_STATE_RUNNING, &message), "it runs", "no event said so");
	report(suite, gets_on(&machine), "exits are counted", "they are not");
	report(suite, ask(&machine, VMM_PAUSE, &message), "a pause is done", "status %d", message.status);
	report(suite, await_state(&machine, VMM_STATE_PAUSED, &message), "and said", "no event said so");
	exits = count_exits(&machine, &state);
	usleep(50 * 1000);
	report(suite, state == VMM_STATE_PAUSED && exits > 0 && count_exits(&machine, &state) == exits,
		"a paused guest stands still", "state %d, %llu exits", state, (unsigned long long)exits);
	report(suite, ask(&machine, VMM_PAUSE, &message), "a second pause is done already", "status %d",
		message.status);
	report(suite, ask(&machine, VMM_RESUME, &message) && gets_on(&machine), "it resumes", "it does not");
	report(suite, ask(&machine, VMM_RESUME, &message), "a second resume is done already", "status %d",
		message.status);
	report(suite, ask(&machine, VMM_KILL, &message), "it is killed", "status %d", message.status);
	report(suite, await_state(&machine, VMM_STATE_ENDED, &message) && message.arg1 == VMM_END_KILLED,
		"and says so", "end %llu", (unsigned long long)message.arg1);
	expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by the control socket");
}

/* Pauses and resumes without a gap, so that kicks come at every point of the vCPU's way. */
static void test_many_pauses(struct suite *suite, const char *guest)
{
	struct vmm_message message = {0};
	struct machine machine;
	char name[64];
	int i = 0;

	snprintf(name, sizeof(name), "200 pauses (%s)", guest);
	if (!start(suite, guest, NULL, true, &machine))
		return;
	while (i < 200 && ask(&machine, VMM_PAUSE, &message) && ask(&machine, VMM_RESUME, &message))
		i++;
	report(suite, i == 200, name, "the %dth failed with %d", i, message.status);
	snprintf(name, sizeof(name), "killed while paused (%s)", guest);
	ask(&machine, VMM_PAUSE, &message);
	report(suite, ask(&machine, VMM_KILL, &message), name, "status %d", message.status);
	expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket");
}

static void test_early_kill(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;

	if (!start(suite, "spin", NULL, true, &machine))
		return;
	report(suite, ask(&machine, VMM_KILL, &message), "killed by the first word", "status %d",
		message.status);
	expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket");
}

/* Nobody in this guest will ever answer: the request ends with the VM. */
static void test_connect(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;
	uint32_t sequence;
	bool ok;

	if (!start(suite, "sleep", NULL, true, &machine))
		return;
	ok = send_request(&machine, VMM_CONNECT, 1024);
	sequence = machine.sequence;
	ok = ok && ask(&machine, VMM_KILL, &message);
	while (ok && message.sequence != sequence)
		ok = receive(&machine, &message);
	report(suite, ok && message.type == (VMM_CONNECT | VMM_REPLY) && message.status == -ECONNRESET,
		"a connection that waits ends with the VM", "type %u, status %d", message.type,
		message.status);
	expect_end(suite, &machine, "and it ends", VMM_END_KILLED, "ended by the control socket");
}

static void test_peer_that_leaves(struct suite *suite)
{
	struct vmm_message message = {0};
	struct machine machine;

	if (!start(suite, "spin", NULL, true, &machine))
		return;
	report(suite, await_state(&machine, VMM_STATE_RUNNING, &message), "it runs", "no event said so");
	fd_close(&machine.control);
	usleep(50 * 1000);
	report(suite, waitpid(machine.pid, NULL, WNOHANG) == 0, "a VM survives its daemon", "it is gone");
	kill(machine.pid, SIGTERM);
	expect_end(suite, &machine, "and ends by SIGTERM", VMM_END_KILLED, "ended by SIGTERM");
}

int main(int argc, char *argv[])
{
	struct suite suite = {0};

	if (argc != 3) {
		fprintf(stderr, "usage: %s VMM FOLDER-OF-GUESTS\n", argv[0]);
		return 2;
	}
	suite.vmm = argv[1];
	suite.guests = argv[2];
	signal(SIGPIPE, SIG_IGN);
	test_endings(&suite);
	test_kvm_fd(&suite);
	test_states(&suite);
	test_many_pauses(&suite, "exits");
	test_many_pauses(&suite, "spin");
	test_many_pauses(&suite, "sleep");
	test_early_kill(&suite);
	test_connect(&suite);
	test_peer_that_leaves(&suite);
	printf("1..%d\n", suite.count);
	return suite.failed > 0;
}
