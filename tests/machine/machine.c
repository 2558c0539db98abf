/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/machine/machine.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MORE_EXITS = 100, ASKED_MAX = 10000 };

bool suite_begin(struct suite *suite, int argc, char *argv[])
{
	if (argc != 3) {
		fprintf(stderr, "usage: %s VMM FOLDER-OF-GUESTS\n", argv[0]);
		return false;
	}
	suite->vmm = argv[1];
	suite->guests = argv[2];
	signal(SIGPIPE, SIG_IGN);
	return true;
}

int suite_end(const struct suite *suite)
{
	printf("1..%d\n", suite->count);
	return suite->failed > 0;
}

void suite_report(struct suite *suite, bool ok, const char *name, const char *format, ...)
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

/* What a VM is started with; the fds are -1 where there is none. */
struct request {
	const char *guest;
	const char *const *options;
	const int *stdio;
	int control, errors;
};

static void run_vmm(const struct suite *suite, const struct request *request)
{
	const char *const *options = request->options;
	char path[PATH_MAX], control_name[16];
	const char *argv[MACHINE_OPTIONS_MAX + 8] = {
		suite->vmm, "--kernel", path, "--mem", suite->memory ? suite->memory : "16M"};
	int n = 5;

	if (strchr(request->guest, '/'))
		snprintf(path, sizeof(path), "%s", request->guest);
	else
		snprintf(path, sizeof(path), "%s/%s.elf", suite->guests, request->guest);
	if (request->control >= 0) {
		snprintf(control_name, sizeof(control_name), "fd:%d", request->control);
		fd_set_cloexec(request->control, 0);
		argv[n++] = "--control";
		argv[n++] = control_name;
	}
	for (int i = 0; options && i < MACHINE_OPTIONS_MAX && options[i]; i++)
		argv[n++] = options[i];
	/* However this test ends, no VM outlives it. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (int i = 0; request->stdio && i < 2; i++)
		if (request->stdio[i] >= 0)
			dup2(request->stdio[i], i);
	dup2(request->errors, STDERR_FILENO);
	execv(suite->vmm, (char *const *)argv);
	_exit(127);
}

static bool try_start(
	const struct suite *suite, struct request *request, bool controlled, struct machine *machine)
{
	int sockets[2] = {-1, -1}, pipes[2];

	*machine = (struct machine){.pid = -1, .control = -1, .errors = -1};
	if (pipe2(pipes, O_CLOEXEC) < 0 ||
		(controlled && socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0))
		return false;
	machine->control = sockets[0];
	machine->errors = pipes[0];
	request->control = sockets[1];
	request->errors = pipes[1];
	machine->pid = fork();
	if (machine->pid == 0)
		run_vmm(suite, request);
	fd_close(&sockets[1]);
	fd_close(&pipes[1]);
	return machine->pid > 0;
}

bool machine_start_with(struct suite *suite, const char *guest, const char *const *options, bool controlled,
	const int stdio[2], struct machine *machine)
{
	struct request request = {.guest = guest, .options = options, .stdio = stdio};

	if (try_start(suite, &request, controlled, machine))
		return true;
	suite_report(suite, false, guest, "cannot start it: %s", strerror(errno));
	return false;
}

bool machine_start(struct suite *suite, const char *guest, const char *const *options, bool controlled,
	struct machine *machine)
{
	return machine_start_with(suite, guest, options, controlled, NULL, machine);
}

static bool is_readable(int fd)
{
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	return poll(&wait, 1, MACHINE_LIMIT_MS) == 1;
}

int machine_finish(struct machine *machine, char *output)
{
	size_t length = 0;
	ssize_t n = 1;
	int status;

	while (n > 0 && length < MACHINE_OUTPUT_MAX - 1 && is_readable(machine->errors)) {
		n = read(machine->errors, output + length, MACHINE_OUTPUT_MAX - 1 - length);
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

void machine_expect_end(
	struct suite *suite, struct machine *machine, const char *name, int status, const char *line)
{
	char output[MACHINE_OUTPUT_MAX];
	int got = machine_finish(machine, output);

	suite_report(suite, got == status && strstr(output, line), name, "status %d instead of %d, said: %s",
		got, status, output);
}

/* --- the control protocol --- */

bool machine_receive(struct machine *machine, struct vmm_message *message)
{
	size_t count = 0;

	return is_readable(machine->control) && io_receive_fds(machine->control, message, sizeof(*message),
							NULL, &count) == (ssize_t)sizeof(*message);
}

bool machine_request(struct machine *machine, uint32_t type, uint64_t arg0)
{
	struct vmm_message request = {.type = type, .sequence = ++machine->sequence, .arg0 = arg0};

	return io_send_fds(machine->control, &request, sizeof(request), NULL, 0) == 0;
}

bool machine_await_reply(struct machine *machine, struct vmm_message *reply)
{
	do
		if (!machine_receive(machine, reply))
			return false;
	while (reply->sequence != machine->sequence);
	return true;
}

bool machine_ask(struct machine *machine, uint32_t type, struct vmm_message *reply)
{
	return machine_request(machine, type, 0) && machine_await_reply(machine, reply) &&
	       reply->type == (type | VMM_REPLY) && reply->status == 0;
}

bool machine_await_state(struct machine *machine, enum vmm_state state, struct vmm_message *event)
{
	do
		if (!machine_receive(machine, event))
			return false;
	while (event->type != VMM_EVENT_STATE || event->arg0 != state);
	return true;
}

uint64_t machine_count_exits(struct machine *machine, enum vmm_state *state)
{
	struct vmm_message reply = {.arg0 = VMM_STATE_ENDED};

	if (!machine_ask(machine, VMM_STATUS, &reply))
		return 0;
	*state = (enum vmm_state)reply.arg0;
	return reply.arg1;
}

bool machine_gets_on(struct machine *machine)
{
	enum vmm_state state = VMM_STATE_ENDED;
	uint64_t first = machine_count_exits(machine, &state);

	for (int i = 0; i < ASKED_MAX; i++)
		if (machine_count_exits(machine, &state) > first + MORE_EXITS)
			return true;
	return false;
}
