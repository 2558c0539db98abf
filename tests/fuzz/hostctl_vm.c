/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host-ctl's side of a VM that its guest has taken over, vmm included, be it booted or cloned, for runs or to
 * become a template: any message with any fds on the control socket, any bytes on the agent's stream and on
 * the session's, in any order; and a client that sends, waits and leaves meanwhile. Whatever they do, no
 * transition is made that vm.h and run.h do not allow, each run ends once, output comes without a gap, a
 * template is saved once and after all of its commands, and in the end nothing is left of the VM.
 */
#include "common/io.h"
#include "host-ctl/run/run.h"
#include "host-ctl/vm/vm.h"
#include "tests/fuzz/support/fake_guest.h"
#include "tests/fuzz/support/fake_process.h"
#include "tests/fuzz/support/fake_time.h"
#include "tests/fuzz/support/fuzz.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the first byte, besides the number of rehearsals. */
enum { SHAPE_NOTES = 0x20, SHAPE_CLONE = 0x40, SHAPE_BUILD = 0x80 };

enum { STREAMS_MAX = 16, END_TRIES = 64 };

struct fuzz {
	struct fuzz_input *input;
	struct loop *loop;
	struct vm_config config;
	struct vm_source source;
	struct vm_build build;
	struct vm_order order;
	struct cgroup_tree cgroups;
	char folder[32];
	struct vm *vm; /* NULL: gone */
	bool warm, saved, ended;

	struct fake_process process;
	int control;		  /* the vmm's end; -1: not accepted, or closed */
	int streams[STREAMS_MAX]; /* the guest's ends, the agent's and the session's among them */
	unsigned stream_count;
	struct fake_guest guest; /* with two of these */

	struct run run;
	struct metrics metrics;
	bool running, full; /* a run is under way; the client takes nothing now */
	unsigned runs, results;
	uint64_t output[2];
};

/* the daemon around it */

static void on_warm(void *context, struct vm *vm)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(!vm->build && vm == fuzz->vm && !fuzz->warm && vm->state == VM_WARM && vm->session >= 0);
	FUZZ_ASSERT(vm->rehearsed == vm->source->rehearsals);
	fuzz->warm = true;
}

static void on_ended(void *context, struct vm *vm)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(!fuzz->ended && fuzz->process.ended && vm->state == VM_ENDING);
	FUZZ_ASSERT(vm_cause(vm)[0] != '\0' && strlen(vm_cause(vm)) < VM_CAUSE_MAX);
	for (const char *at = vm_cause(vm); *at; at++)
		FUZZ_ASSERT(*at >= ' ' && *at <= '~');
	fuzz->ended = true;
}

static void on_gone(void *context, struct vm *vm)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(vm == fuzz->vm && fuzz->ended && !fuzz->running);
	fuzz->vm = NULL;
}

static const struct vm_events vm_events = {.warm = on_warm, .ended = on_ended, .gone = on_gone};

static void on_build_output(void *context, bool is_stderr, const void *bytes, size_t length)
{
	struct fuzz *fuzz = context;

	(void)is_stderr;
	FUZZ_ASSERT(!fuzz->saved && !fuzz->full && fuzz->vm->state == VM_PREPARING);
	FUZZ_ASSERT(bytes && length <= AGENT_DATA_MAX);
	fuzz->full = length % 8 == 7;
}

/* Not before every command is done. */
static void on_saved(void *context, uint64_t state_bytes, uint64_t memory_bytes)
{
	struct fuzz *fuzz = context;

	(void)state_bytes;
	(void)memory_bytes;
	FUZZ_ASSERT(!fuzz->saved && fuzz->vm->state == VM_SAVING && fuzz->vm->session < 0);
	FUZZ_ASSERT(fuzz->vm->prepared == fuzz->build.count);
	FUZZ_ASSERT(fuzz->vm->rehearsed == fuzz->source.rehearsals);
	fuzz->saved = true;
}

static bool has_room(void *context)
{
	return !((struct fuzz *)context)->full;
}

static void on_frame(void *context, const struct frame *frame)
{
	struct fuzz *fuzz = context;
	struct agent_output output;

	FUZZ_ASSERT(fuzz->running && !fuzz->full);
	if (frame->type == AGENT_STDOUT || frame->type == AGENT_STDERR) {
		memcpy(&output, frame->payload, sizeof(output));
		FUZZ_ASSERT(output.offset == fuzz->output[frame->type == AGENT_STDERR]);
		fuzz->output[frame->type == AGENT_STDERR] += frame->length - sizeof(output);
	} else {
		FUZZ_ASSERT(frame->type == AGENT_STARTED || frame->type == AGENT_STDIN_CREDIT);
	}
	fuzz->full = fuzz_one_in(fuzz->input, 8);
}

static void on_drained(void *context)
{
	FUZZ_ASSERT(((struct fuzz *)context)->running);
}

static void on_done(void *context, const struct run_result *result)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(fuzz->running);
	FUZZ_ASSERT(run_result_name(result)[0] != '\0');
	if (result->error.kind == ERROR_NONE) {
		FUZZ_ASSERT(result->exit.kind >= AGENT_EXITED && result->exit.kind <= AGENT_KILLED);
		FUZZ_ASSERT(result->exit.stdout_bytes >= fuzz->output[0]);
		FUZZ_ASSERT(result->exit.stderr_bytes >= fuzz->output[1]);
	} else {
		FUZZ_ASSERT(result->error.kind == ERROR_INCOMPLETE ||
			    result->error.kind == ERROR_GUEST_LOST ||
			    result->error.kind == ERROR_ATTACH_FAILED);
		FUZZ_ASSERT(result->error.message[0] != '\0');
	}
	fuzz->running = false;
	fuzz->results++;
}

static const struct run_sink sink = {
	.has_room = has_room, .frame = on_frame, .drained = on_drained, .done = on_done};

static void start_run(struct fuzz *fuzz)
{
	static const char streams[] = "{\"argv\":[\"a\"],\"stdin_stream\":true,\"timeout_ms\":5}",
			  plain[] = "{\"argv\":[\"a\"],\"stdin\":\"abc\"}";
	const struct run_origin origin = {.uid = 0, .pid = 1, .received_ns = 1};
	bool upgraded = fuzz_one_in(fuzz->input, 2);
	const char *body = upgraded ? streams : plain;
	struct run_request request;
	struct error error;

	FUZZ_ASSERT(run_request_parse(&request, body, strlen(body), upgraded, &error) == 0);
	fuzz->running = true;
	fuzz->full = false;
	fuzz->runs++;
	FUZZ_ASSERT(run_start(&fuzz->run, fuzz->vm, &request, true, &origin, fuzz->loop, &fuzz->metrics,
			    &sink, fuzz) == 0);
	run_request_finish(&request);
}

/* the vmm */

static int make_stream(struct fuzz *fuzz)
{
	int fds[2];

	if (fuzz->stream_count == STREAMS_MAX)
		return -1;
	FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
	fuzz->streams[fuzz->stream_count++] = fds[0];
	return fds[1];
}

/* What a message may bring along: a stream as it should be, or something else. */
static int make_fd(struct fuzz *fuzz, uint8_t kind)
{
	int fds[2], type = kind & 1 ? SOCK_DGRAM : SOCK_SEQPACKET;

	if (kind % 8 < 5)
		return make_stream(fuzz);
	if (kind % 8 == 7)
		return fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
	FUZZ_ASSERT(socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) == 0);
	close(fds[0]);
	return fds[1];
}

static void send_message(struct fuzz *fuzz, const void *data, size_t length, int *fds, size_t count)
{
	if (fuzz->control >= 0)
		(void)io_send_fds(fuzz->control, data, length, fds, count);
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
}

static void send_stream(struct fuzz *fuzz, uint32_t type, uint32_t sequence, uint64_t arg0, int *ours)
{
	struct vmm_message message = {
		.type = type, .sequence = sequence, .arg0 = arg0, .arg1 = AGENT_LINK_PORT_FIRST};
	int fd = make_stream(fuzz);

	if (fd < 0)
		return;
	*ours = fuzz->streams[fuzz->stream_count - 1];
	send_message(fuzz, &message, sizeof(message), &fd, 1);
}

static void step_message(struct fuzz *fuzz)
{
	static const uint32_t types[] = {
		VMM_EVENT_STATE, VMM_EVENT_STREAM, VMM_CONNECT | VMM_REPLY, VMM_STATUS | VMM_REPLY};
	uint8_t choice = fuzz_u8(fuzz->input), fd_choice = fuzz_u8(fuzz->input);
	struct vmm_message message = {
		.type = types[choice & 3], .sequence = fuzz->vm ? fuzz->vm->sequence : 1};
	size_t length = sizeof(message), count = fd_choice & 1 ? 1 : (fd_choice >> 1) % 4;
	int fds[4];

	if (fuzz->vm && (fuzz->vm->state == VM_PAUSING || fuzz->vm->state == VM_SAVING) && choice & 2)
		message.type = (choice & 1 ? VMM_SAVE : VMM_PAUSE) | VMM_REPLY;
	message.arg0 = choice & 4 ? fuzz_u16(fuzz->input) : choice >> 6;
	message.arg1 = choice & 64 ? AGENT_LINK_PORT_LAST : 0;
	if (choice & 8)
		message.status = -(int32_t)fuzz_u8(fuzz->input);
	if (choice & 16)
		message.sequence = fuzz_u8(fuzz->input);
	if (choice & 32)
		fuzz_take(fuzz->input, message.text, fuzz_u8(fuzz->input) % (sizeof(message.text) + 1));
	if (choice == 0xff)
		length = fuzz_u8(fuzz->input) % sizeof(message);
	for (size_t i = 0; i < count; i++) {
		fds[i] = make_fd(fuzz, fd_choice >> 3);
		if (fds[i] < 0)
			count = i;
	}
	send_message(fuzz, &message, length, fds, count);
}

static void step_errors(struct fuzz *fuzz)
{
	size_t length = fuzz_u8(fuzz->input);
	const uint8_t *bytes = fuzz_bytes(fuzz->input, &length);

	if (fuzz->process.errors >= 0)
		(void)!write(fuzz->process.errors, bytes, length);
}

/* The end of the process, and of what it held; a stream may be held by another still. */
static void step_end(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input);

	fake_process_end(
		&fuzz->process, choice & 1 ? CLD_EXITED : CLD_KILLED, choice & 1 ? choice >> 1 : SIGSEGV);
	if (choice & 2)
		fd_close(&fuzz->control);
}

/* the guest */

/* What a sound vmm, guest or daemon does next. */
static void step_on(struct fuzz *fuzz)
{
	struct vmm_message running = {.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_RUNNING};
	struct vmm_message done = {.type = VMM_PAUSE | VMM_REPLY, .sequence = fuzz->vm->sequence};

	switch (fuzz->vm->state) {
	case VM_LAUNCHED:
		send_message(fuzz, &running, sizeof(running), NULL, 0);
		break;
	case VM_BOOTING:
		send_stream(fuzz, VMM_EVENT_STREAM, 0, AGENT_HOST_PORT, &fuzz->guest.agent);
		break;
	case VM_HELLO:
		fake_guest_hello(&fuzz->guest, fuzz_u8(fuzz->input) % 4);
		break;
	case VM_IDENTITY:
		fake_guest_status(fuzz->guest.agent, AGENT_IDENTITY_DONE, 0, 0);
		break;
	case VM_NOTING:
		fake_guest_status(fuzz->guest.agent, AGENT_BASELINE_DONE, 0, 0);
		break;
	case VM_CONNECTING:
		send_stream(fuzz, VMM_CONNECT | VMM_REPLY, fuzz->vm->sequence, 0, &fuzz->guest.session);
		break;
	case VM_PREPARING:
	case VM_REHEARSING:
		fake_guest_exit(&fuzz->guest, AGENT_EXITED, 0);
		break;
	case VM_PARKING:
		fake_guest_status(fuzz->guest.agent, AGENT_BASELINE_DONE, 0, 0);
		fuzz_settle(fuzz->loop);
		fake_time_fire(fuzz->loop, 0);
		break;
	case VM_SAVING:
		done.type = VMM_SAVE | VMM_REPLY;
		/* fall through */
	case VM_PAUSING:
		send_message(fuzz, &done, sizeof(done), NULL, 0);
		break;
	case VM_WARM:
		start_run(fuzz);
		break;
	case VM_BUSY:
		if (fuzz->run.session.state == SESSION_STARTING)
			fake_guest_started(&fuzz->guest);
		else
			fake_guest_exit(&fuzz->guest, AGENT_EXITED, fuzz_u8(fuzz->input));
		break;
	default:
		break;
	}
	fuzz_settle(fuzz->loop);
}

static void step_frame(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input), value = fuzz_u8(fuzz->input);
	struct agent_credit credit = {.bytes = value * 4096u};

	switch (choice & 15) {
	case 0:
		fake_guest_hello(&fuzz->guest, (size_t)value * 20);
		break;
	case 1:
		fake_guest_status(fuzz->guest.agent, AGENT_IDENTITY_DONE, choice >> 4, value);
		break;
	case 2:
		fake_guest_started(&fuzz->guest);
		break;
	case 3:
		fake_guest_output(&fuzz->guest, choice >> 7, value);
		break;
	case 4:
		fake_guest_output(&fuzz->guest, choice >> 7, value * 257u);
		break;
	case 5:
		fake_guest_exit(&fuzz->guest, choice >> 4, value - 1);
		break;
	case 6:
		fake_guest_status(fuzz->guest.session, AGENT_ERROR, choice >> 4, value);
		break;
	case 7:
		fake_guest_send(fuzz->guest.session, AGENT_STDIN_CREDIT, &credit, sizeof(credit), 0);
		break;
	case 8:
		fuzz->guest.offset[choice >> 7] += value; /* a gap, from now on */
		break;
	default:
		fake_guest_send(
			choice & 16 ? fuzz->guest.agent : fuzz->guest.session, value, NULL, 0, choice >> 4);
		break;
	}
}

static void step_bytes(struct fuzz *fuzz)
{
	size_t length = fuzz_u8(fuzz->input);
	const uint8_t *bytes = fuzz_bytes(fuzz->input, &length);
	int fd = fuzz_one_in(fuzz->input, 2) ? fuzz->guest.agent : fuzz->guest.session;

	if (fd >= 0)
		(void)!send(fd, bytes, length, MSG_NOSIGNAL);
}

/* A stream of the guest's is read, half-closed or closed. */
static void step_stream(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input), bytes[4096];
	int fd;

	if (choice == 0xff)
		fd_close(&fuzz->control);
	if (fuzz->stream_count == 0)
		return;
	fd = fuzz->streams[(choice >> 3) % fuzz->stream_count];
	switch (choice & 7) {
	case 0:
		if (fuzz->guest.agent == fd)
			fuzz->guest.agent = -1;
		if (fuzz->guest.session == fd)
			fuzz->guest.session = -1;
		close(fd);
		fuzz->streams[(choice >> 3) % fuzz->stream_count] = fuzz->streams[fuzz->stream_count - 1];
		fuzz->stream_count--;
		break;
	case 1:
		(void)shutdown(fd, choice >> 3 & 1 ? SHUT_WR : SHUT_RD);
		break;
	default:
		while (recv(fd, bytes, sizeof(bytes), 0) > 0)
			;
		break;
	}
}

/* the client */

static void step_client(struct fuzz *fuzz)
{
	static const uint8_t types[] = {
		AGENT_STDIN, AGENT_STDIN, AGENT_STDIN_EOF, AGENT_SIGNAL, AGENT_RESIZE, AGENT_KILL, AGENT_NEW};
	static const uint8_t zeros[AGENT_DATA_MAX + 1];
	const struct agent_signal signal = {.signal = SIGTERM};
	uint8_t choice = fuzz_u8(fuzz->input);
	struct frame frame = {.type = types[choice % sizeof(types)], .payload = zeros};
	const char *why = "";
	int r;

	if (!fuzz->running && fuzz->vm) {
		fuzz->full = false;
		vm_build_continue(fuzz->vm);
	}
	if (!fuzz->running)
		return;
	if (choice == 0xff) {
		run_cancel(&fuzz->run, "the client left");
		fuzz->running = false;
		fuzz->results++;
	} else if (choice & 0x80) {
		fuzz->full = choice & 1;
		if (!fuzz->full)
			run_continue(&fuzz->run);
	} else {
		if (frame.type == AGENT_STDIN)
			frame.length = fuzz_u16(fuzz->input) + (choice == 0x7f);
		if (frame.type == AGENT_SIGNAL || frame.type == AGENT_RESIZE)
			frame.length = sizeof(signal) - (choice & 1);
		if (frame.type == AGENT_SIGNAL)
			frame.payload = (const uint8_t *)&signal;
		r = run_input(&fuzz->run, &frame, &why);
		FUZZ_ASSERT(r == 0 || r == -EAGAIN || (r == -EPROTO && why[0] != '\0'));
	}
}

static void step(struct fuzz *fuzz)
{
	static void (*const steps[])(struct fuzz * fuzz) = {step_on, step_on, step_on, step_message,
		step_errors, step_frame, step_frame, step_bytes, step_stream, step_client, step_client};
	uint8_t choice = fuzz_u8(fuzz->input);

	if (choice < 0xd0) {
		steps[choice % (sizeof(steps) / sizeof(steps[0]))](fuzz);
	} else if (choice < 0xf8) {
		fuzz_turn(fuzz->loop);
	} else if (choice < 0xfc) {
		fake_time_fire(fuzz->loop, choice);
	} else if (choice == 0xfc) {
		step_end(fuzz);
	} else if (choice == 0xfd) {
		vm_end(fuzz->vm, "the daemon wants it");
	}
}

/* life */

/* What it is made of, and whether it is to become warm or a template. */
static void set_order(struct fuzz *fuzz)
{
	static const char *const commands[] = {"first", "second\n\xff"};
	/* A file with bytes in it, which nothing of the daemon reads. */
	const struct vm_file file = {.path = "/proc/self/exe", .name = "file"};
	uint8_t shape = fuzz_u8(fuzz->input);

	fuzz->source = (struct vm_source){
		.image = file, .size = "128M", .memory_bytes = 1, .cpus = 1, .rehearsals = shape % 3};
	/* Of a guest that was saved at work, which no template is built of. */
	fuzz->source.notes = (shape & SHAPE_CLONE) && (shape & SHAPE_NOTES) && !(shape & SHAPE_BUILD);
	if (shape & SHAPE_CLONE)
		fuzz->source.state = fuzz->source.memory = file;
	else
		fuzz->source.kernel = fuzz->source.initrd = file;
	fuzz->build = (struct vm_build){.commands = commands,
		.count = 2,
		.command_timeout_ms = 1000,
		.state = STDIN_FILENO,
		.memory = STDIN_FILENO,
		.context = fuzz,
		.output = on_build_output,
		.has_room = has_room,
		.saved = on_saved};
	fuzz->order = (struct vm_order){.source = &fuzz->source, .awaited = true};
	if (shape & SHAPE_BUILD)
		fuzz->order.build = &fuzz->build;
}

static bool start(struct fuzz *fuzz)
{
	struct error error;
	int status;

	fuzz->control = fuzz->guest.agent = fuzz->guest.session = -1;
	snprintf(fuzz->folder, sizeof(fuzz->folder), "/tmp/fuzz-XXXXXX");
	FUZZ_ASSERT(mkdtemp(fuzz->folder));
	fuzz->loop = loop_create();
	FUZZ_ASSERT(fuzz->loop);
	fuzz->config = (struct vm_config){.vmm = "/dev/null",
		.kvm = "/dev/null",
		.socket_directory = fuzz->folder,
		.uid_base = 700000,
		.boot_timeout_ms = 1000,
		.cgroups = &fuzz->cgroups,
		.loop = fuzz->loop};
	set_order(fuzz);
	fake_process_init(&fuzz->process, fuzz->input);
	status = vm_start(&fuzz->config, &fuzz->order, &vm_events, fuzz, &fuzz->vm, &error);
	if (status < 0) {
		/* Else the target would go on to try nothing. */
		FUZZ_ASSERT(fuzz->process.refused && error.message[0] != '\0');
		return false;
	}
	fuzz->control = accept4(fuzz->process.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	FUZZ_ASSERT(fuzz->control >= 0);
	return true;
}

static void finish(struct fuzz *fuzz)
{
	if (fuzz->vm)
		fuzz_settle(fuzz->loop);
	if (fuzz->vm)
		vm_end(fuzz->vm, "the program is over");
	while (fuzz->stream_count)
		close(fuzz->streams[--fuzz->stream_count]);
	if (fuzz->vm)
		fuzz_settle(fuzz->loop);
	/* A run of one that has ended is over, unless its client reads nothing. */
	if (fuzz->running) {
		FUZZ_ASSERT(fuzz->run.session.paused || !fuzz->ended);
		run_cancel(&fuzz->run, "the client left");
		fuzz->results += fuzz->running;
		fuzz->running = false;
	}
	for (unsigned tries = 0; fuzz->vm && tries < END_TRIES; tries++) {
		fake_time_fire(fuzz->loop, tries);
		fuzz_settle(fuzz->loop);
	}
	FUZZ_ASSERT(!fuzz->vm && fuzz->runs == fuzz->results);
	fd_close(&fuzz->control);
	fake_process_finish(&fuzz->process);
	loop_destroy(fuzz->loop);
	FUZZ_ASSERT(rmdir(fuzz->folder) == 0); /* its socket is gone */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct fuzz fuzz = {.input = &input};

	fuzz_begin();
	if (start(&fuzz))
		while (fuzz.vm && fuzz_left(&input))
			step(&fuzz);
	finish(&fuzz);
	fuzz_end();
	return 0;
}
