/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/machine/agent_client.h"
#include "common/io.h"
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void agent_report(struct agent_suite *suite, bool ok, const char *name, const char *got)
{
	suite->count++;
	suite->failed += !ok;
	printf("%sok %d - %s\n", ok ? "" : "not ", suite->count, name);
	if (!ok)
		printf("#   got: %s\n", got);
	fflush(stdout);
}

/* --- the machine --- */

static int unix_socket(const char *path, bool listening)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	memcpy(address.sun_path, path, strlen(path) + 1);
	if (listening) {
		unlink(path);
		r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 4) < 0;
	} else {
		r = connect(fd, (struct sockaddr *)&address, sizeof(address));
	}
	if (r != 0)
		fd_close(&fd);
	return fd;
}

void agent_exec_vmm(const struct agent_suite *suite, const struct agent_boot *boot)
{
	char base[256];
	const char *argv[24 + AGENT_OPTIONS_MAX] = {suite->vmm, "--kernel", suite->kernel, "--initrd",
		suite->initrd, "--mem", "128M", "--log-level", "error", "--serial", suite->serial,
		"--cmdline", boot->upper ? "loglevel=5 tinderbox.upper=/dev/vdb" : "loglevel=5"};
	int n = 13;

	snprintf(base, sizeof(base), "%s,ro", suite->base);
	if (boot->disk) {
		argv[n++] = "--disk";
		argv[n++] = base;
	}
	if (boot->upper) {
		argv[n++] = "--disk";
		argv[n++] = boot->upper;
	}
	if (boot->vsock) {
		argv[n++] = "--vsock";
		argv[n++] = suite->socket;
	}
	for (int i = 0; suite->options[i]; i++)
		argv[n++] = suite->options[i];
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	execv(argv[0], (char *const *)argv);
	perror(argv[0]);
	_exit(127);
}

static bool readable(int fd)
{
	struct pollfd poller = {.fd = fd, .events = POLLIN};

	return poll(&poller, 1, AGENT_LIMIT_MS) == 1;
}

int agent_next_frame(int fd, struct frame_reader *reader, struct frame *frame)
{
	for (;;) {
		int r = frame_reader_next(reader, frame);

		if (r != 0)
			return r > 0;
		if (!readable(fd) || frame_reader_fill(reader, fd) <= 0)
			return 0;
	}
}

bool agent_start(struct agent_suite *suite, struct agent_machine *machine, const struct agent_boot *boot)
{
	struct agent_hello hello;
	struct frame frame;

	*machine = (struct agent_machine){.control = -1};
	frame_reader_init(&machine->reader, AGENT_FRAME_MAX);
	machine->listener = unix_socket(suite->hello_socket, true);
	unlink(suite->serial);
	machine->pid = fork();
	if (machine->pid == 0)
		agent_exec_vmm(suite, boot);
	if (!readable(machine->listener))
		return false;
	machine->control = accept4(machine->listener, NULL, NULL, SOCK_CLOEXEC);
	if (agent_next_frame(machine->control, &machine->reader, &frame) != 1 || frame.type != AGENT_HELLO)
		return false;
	memcpy(&hello, frame.payload, sizeof(hello));
	memcpy(machine->warnings, frame.payload + sizeof(hello), hello.warnings_length);
	return hello.version == AGENT_PROTO_VERSION && frame.length == sizeof(hello) + hello.warnings_length;
}

int agent_await_end(struct agent_machine *machine)
{
	const struct timespec pause = {.tv_nsec = 20 * 1000000};
	int status = -1;

	for (int waited = 0; machine->pid > 0 && waited < AGENT_LIMIT_MS; waited += 20) {
		if (waitpid(machine->pid, &status, WNOHANG) == machine->pid) {
			machine->pid = 0;
			break;
		}
		nanosleep(&pause, NULL);
	}
	if (machine->pid > 0) {
		kill(machine->pid, SIGKILL);
		waitpid(machine->pid, NULL, 0);
		status = -1;
	}
	fd_close(&machine->control);
	fd_close(&machine->listener);
	frame_reader_finish(&machine->reader);
	return status >= 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool agent_give_identity(struct agent_machine *machine)
{
	struct agent_identity identity = {.hostname = "box-42.test"};
	struct agent_status status = {.status = -1};
	struct timespec now;
	struct frame frame;

	clock_gettime(CLOCK_REALTIME, &now);
	identity.realtime_ns = ((uint64_t)now.tv_sec + 86400) * 1000000000;
	for (int i = 0; i < AGENT_MACHINE_ID_BYTES; i++)
		identity.machine_id[i] = (uint8_t)(0xa0 + i);
	if (getrandom(identity.entropy, sizeof(identity.entropy), 0) < 0)
		return false;
	frame_write(machine->control, AGENT_IDENTITY, &identity, sizeof(identity), NULL, 0);
	if (agent_next_frame(machine->control, &machine->reader, &frame) != 1 ||
		frame.type != AGENT_IDENTITY_DONE)
		return false;
	memcpy(&status, frame.payload, sizeof(status));
	return status.status == 0;
}

int agent_hold(struct agent_machine *machine)
{
	struct agent_status status;
	struct frame frame;

	frame_write(machine->control, AGENT_HOLD, NULL, 0, NULL, 0);
	if (agent_next_frame(machine->control, &machine->reader, &frame) != 1 || frame.type != AGENT_HELD ||
		frame.length != sizeof(status))
		return -1;
	memcpy(&status, frame.payload, sizeof(status));
	return status.status;
}

void agent_ask_shutdown(struct agent_machine *machine, uint32_t grace_ms)
{
	const struct agent_shutdown shutdown = {.grace_ms = grace_ms};

	frame_write(machine->control, AGENT_SHUTDOWN, &shutdown, sizeof(shutdown), NULL, 0);
}

/* --- commands --- */

bool agent_open_stream(const struct agent_suite *suite, struct agent_stream *stream)
{
	static const char request[] = "CONNECT 1024\n";
	char line[32];
	size_t length = 0;

	frame_reader_init(&stream->reader, AGENT_FRAME_MAX);
	stream->fd = unix_socket(suite->socket, false);
	if (stream->fd < 0 || io_write_all(stream->fd, request, sizeof(request) - 1) < 0)
		return false;
	while (length < sizeof(line) && readable(stream->fd) && read(stream->fd, line + length, 1) == 1)
		if (line[length++] == '\n')
			return memcmp(line, "OK ", 3) == 0;
	return false;
}

static void close_stream(struct agent_stream *stream)
{
	fd_close(&stream->fd);
	frame_reader_finish(&stream->reader);
}

void agent_send_new(const struct agent_stream *stream, const struct agent_command *command)
{
	static uint64_t session; /* a number that was not used before */
	struct agent_new new = {
		.session = session + 1,
		.flags = command->flags,
		.argc = 3,
		.deadline_ms = command->deadline_ms,
		.memory_max = command->memory_max,
		.pids_max = command->pids_max,
		.rows = 24,
		.cols = 80,
	};
	char strings[4096];
	int n = snprintf(strings, sizeof(strings), "sh%c-c%c%s%c/%c%s%c", 0, 0, command->script, 0, 0,
		command->user ? command->user : "", 0);

	session++;
	new.strings_length = (uint32_t)n;
	frame_write(stream->fd, AGENT_NEW, &new, sizeof(new), strings, new.strings_length);
}

void agent_note_output(struct agent_result *result, const struct frame *frame)
{
	size_t bytes = frame->length - sizeof(struct agent_output), room = AGENT_RESULT_MAX - result->length;
	const uint8_t *data = frame->payload + sizeof(struct agent_output);

	for (size_t i = 0; i < bytes; i++)
		result->checksum = result->checksum * 31 + data[i];
	result->total += bytes;
	room = bytes < room ? bytes : room;
	memcpy(result->out + result->length, data, room);
	result->length += room;
}

void agent_finish(struct agent_stream *stream, struct agent_result *result)
{
	struct frame frame;

	while (!result->complete && agent_next_frame(stream->fd, &stream->reader, &frame) == 1) {
		if (frame.type == AGENT_STDOUT || frame.type == AGENT_STDERR)
			agent_note_output(result, &frame);
		if (frame.type == AGENT_EXIT) {
			memcpy(&result->exit, frame.payload, sizeof(result->exit));
			result->complete = true;
		}
	}
	close_stream(stream);
}

void agent_run(
	const struct agent_suite *suite, const struct agent_command *command, struct agent_result *result)
{
	struct agent_stream stream;

	*result = (struct agent_result){0};
	if (agent_open_stream(suite, &stream))
		agent_send_new(&stream, command);
	agent_finish(&stream, result);
}

void agent_expect(struct agent_suite *suite, const char *name, const struct agent_command *command, int kind,
	int code, const char *out)
{
	struct agent_result result;
	char got[AGENT_RESULT_MAX + 128];

	agent_run(suite, command, &result);
	snprintf(got, sizeof(got), "complete %d kind %d code %d: %s", result.complete, result.exit.kind,
		result.exit.code, result.out);
	agent_report(suite,
		result.complete && result.exit.kind == kind && result.exit.code == code &&
			(!out || strcmp(result.out, out) == 0),
		name, got);
}
