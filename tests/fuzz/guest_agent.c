/* SPDX-License-Identifier: Apache-2.0 */
/*
 * guest-init's agent before hosts that send any bytes in any order, and commands that do what they like,
 * which are no processes here (fake_children.h). What the agent says is held against proto_guest.h: a host
 * that is answered by ERROR or EXIT hears nothing after it, output comes without a gap, and EXIT counts what
 * came.
 */
#include "common/io.h"
#include "guest-init/agent.h"
#include "tests/fuzz/support/fake_children.h"
#include "tests/fuzz/support/fake_time.h"
#include "tests/fuzz/support/fuzz.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { CLIENTS_MAX = 12, SESSION_IDS = 4, PAYLOAD_MAX = AGENT_FRAME_MAX + AGENT_FRAME_HEADER };

struct client {
	int fd; /* -1: not connected */
	struct frame_reader reader;
	bool attached, closed; /* closed: nothing may come any more, for ERROR or EXIT came */
	bool known[SESSION_OUTPUTS];
	uint64_t next[SESSION_OUTPUTS]; /* offset of the next byte, once known */
};

struct fuzz {
	struct fuzz_input *input;
	struct loop *loop;
	struct agent *agent;
	struct fake_children children;
	struct warnings warnings;
	struct users_files users;
	char passwd[32], group[32];
	int listener, passwd_fd, group_fd;
	struct sockaddr_un address;
	socklen_t address_length;
	struct client clients[CLIENTS_MAX];
	unsigned shutdowns;
};

/* the guest around the agent */

static int set_entropy(void *context, const uint8_t *bytes, size_t length)
{
	struct fuzz *fuzz = context;

	(void)bytes;
	FUZZ_ASSERT(length == AGENT_ENTROPY_BYTES);
	return fuzz_one_in(fuzz->input, 16) ? -EROFS : 0;
}

static int set_clock(void *context, uint64_t realtime_ns)
{
	(void)context;
	(void)realtime_ns;
	return 0;
}

static int set_machine_id(void *context, const uint8_t id[AGENT_MACHINE_ID_BYTES])
{
	(void)context;
	(void)id;
	return 0;
}

static int set_hostname(void *context, const char *name)
{
	(void)context;
	FUZZ_ASSERT(name[0] != '\0' && strlen(name) < AGENT_HOSTNAME_MAX);
	return 0;
}

static int renew_boot_id(void *context)
{
	(void)context;
	return 0;
}

static const struct identity_ops identity_ops = {.set_entropy = set_entropy,
	.set_clock = set_clock,
	.set_machine_id = set_machine_id,
	.set_hostname = set_hostname,
	.renew_boot_id = renew_boot_id};

static void on_shutdown(void *context, uint32_t grace_ms)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(grace_ms <= AGENT_SHUTDOWN_GRACE_MAX_MS);
	fuzz->shutdowns++;
}

/* what the agent says */

static void check_output(struct client *client, const struct frame *frame)
{
	int which = frame->type == AGENT_STDOUT ? SESSION_STDOUT : SESSION_STDERR;
	struct agent_output output;

	FUZZ_ASSERT(client->attached && frame->length > sizeof(output));
	FUZZ_ASSERT(frame->length <= sizeof(output) + AGENT_DATA_MAX);
	memcpy(&output, frame->payload, sizeof(output));
	FUZZ_ASSERT(!client->known[which] || output.offset == client->next[which]);
	client->known[which] = true;
	client->next[which] = output.offset + (frame->length - sizeof(output));
}

static void check_exit(struct client *client, const struct frame *frame)
{
	struct agent_exit ending;

	FUZZ_ASSERT(frame->length == sizeof(ending));
	memcpy(&ending, frame->payload, sizeof(ending));
	FUZZ_ASSERT(ending.kind >= AGENT_EXITED && ending.kind <= AGENT_KILLED);
	FUZZ_ASSERT(ending.step <= AGENT_STEP_EXEC && ending.core <= 1);
	FUZZ_ASSERT((ending.kind == AGENT_FAILED_TO_START) == (ending.step != AGENT_STEP_NONE));
	FUZZ_ASSERT(!client->known[SESSION_STDOUT] || ending.stdout_bytes == client->next[SESSION_STDOUT]);
	FUZZ_ASSERT(!client->known[SESSION_STDERR] || ending.stderr_bytes == client->next[SESSION_STDERR]);
	client->closed = true;
}

static void check_text(const struct frame *frame, size_t fixed, uint32_t length)
{
	FUZZ_ASSERT(frame->length == fixed + length && length <= AGENT_TEXT_MAX);
	FUZZ_ASSERT(!memchr(frame->payload + fixed, '\0', length));
}

static void check_status(const struct frame *frame)
{
	struct agent_status status;

	FUZZ_ASSERT(frame->length >= sizeof(status));
	memcpy(&status, frame->payload, sizeof(status));
	check_text(frame, sizeof(status), status.text_length);
	FUZZ_ASSERT(status.status >= 0 && status.status < 4096);
	FUZZ_ASSERT(frame->type != AGENT_ERROR || status.status > 0);
}

static void check_started(struct client *client, const struct frame *frame)
{
	struct agent_started started;

	FUZZ_ASSERT(!client->attached && frame->length == sizeof(started));
	memcpy(&started, frame->payload, sizeof(started));
	FUZZ_ASSERT(started.session != 0 && started.pid >= FAKE_PID_FIRST);
	FUZZ_ASSERT(started.stdin_credit <= AGENT_STDIN_WINDOW);
	client->attached = true;
}

static void check_frame(struct client *client, const struct frame *frame)
{
	struct agent_hello hello;
	struct agent_credit credit;

	FUZZ_ASSERT(!client->closed);
	switch (frame->type) {
	case AGENT_HELLO:
		FUZZ_ASSERT(frame->length >= sizeof(hello));
		memcpy(&hello, frame->payload, sizeof(hello));
		check_text(frame, sizeof(hello), hello.warnings_length);
		break;
	case AGENT_ERROR:
		client->closed = true;
		check_status(frame);
		break;
	case AGENT_IDENTITY_DONE:
	case AGENT_BASELINE_DONE:
	case AGENT_HELD:
		check_status(frame);
		break;
	case AGENT_STARTED:
		check_started(client, frame);
		break;
	case AGENT_STDOUT:
	case AGENT_STDERR:
		check_output(client, frame);
		break;
	case AGENT_STDIN_CREDIT:
		FUZZ_ASSERT(client->attached && frame->length == sizeof(credit));
		memcpy(&credit, frame->payload, sizeof(credit));
		FUZZ_ASSERT(credit.bytes > 0 && credit.bytes <= AGENT_STDIN_WINDOW && credit.reserved == 0);
		break;
	case AGENT_EXIT:
		check_exit(client, frame);
		break;
	default:
		FUZZ_ASSERT(!"a frame that a guest sends");
	}
}

/* hosts */

static void leave(struct client *client)
{
	fd_close(&client->fd);
	frame_reader_finish(&client->reader);
}

static void adopt(struct client *client, int fd)
{
	*client = (struct client){.fd = fd};
	FUZZ_ASSERT(fd >= 0 && fd_set_nonblock(fd) == 0);
	FUZZ_ASSERT(frame_reader_init(&client->reader, AGENT_FRAME_MAX) == 0);
}

static void come(struct fuzz *fuzz, struct client *client)
{
	adopt(client, socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
	if (connect(client->fd, (struct sockaddr *)&fuzz->address, fuzz->address_length) < 0)
		leave(client); /* the backlog is full */
}

/* A stream that the guest opened. */
static void be_called(struct fuzz *fuzz, struct client *client)
{
	int fds[2];

	FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
	adopt(client, fds[0]);
	FUZZ_ASSERT(agent_add_outgoing(fuzz->agent, fds[1]) == 0);
}

static void read_frames(struct client *client, unsigned fills)
{
	struct frame frame;
	int r = 1;

	while (client->fd >= 0 && r > 0 && fills-- > 0) {
		r = frame_reader_fill(&client->reader, client->fd);
		while (r > 0 && frame_reader_next(&client->reader, &frame) == 1)
			check_frame(client, &frame);
		if (r == -EAGAIN)
			return;
		if (r <= 0)
			leave(client);
	}
}

static void send_bytes(struct client *client, const void *data, size_t length)
{
	(void)!send(
		client->fd, data, length, MSG_NOSIGNAL); /* what finds no room is lost: the stream is cut */
}

static void send_frame(struct client *client, uint8_t type, const void *payload, size_t length)
{
	static uint8_t bytes[PAYLOAD_MAX];
	struct agent_frame_header header = {.length = (uint32_t)length, .type = type};

	memcpy(bytes, &header, sizeof(header));
	if (length)
		memcpy(bytes + sizeof(header), payload, length);
	send_bytes(client, bytes, sizeof(header) + length);
}

/* A command that could be one, but for what the input spoils. */
static void send_new(struct fuzz *fuzz, struct client *client)
{
	static const char *const users[] = {"", "agent", "nobody", "broken"};
	uint8_t choice = fuzz_u8(fuzz->input), more = fuzz_u8(fuzz->input);
	struct agent_new new = {.session = choice % SESSION_IDS + 1, .flags = (choice >> 2) & 7, .argc = 1};
	char payload[512];
	size_t at = sizeof(new);

	at += (size_t)sprintf(payload + at, "command") + 1;
	if (more & 1)
		new.envc = 1, at += (size_t)sprintf(payload + at, "%s", more & 2 ? "PATH=/x" : "HOME=/y") + 1;
	at += (size_t)sprintf(payload + at, "%s", more & 4 ? "/" : "") + 1;
	at += (size_t)sprintf(payload + at, "%s", users[(more >> 3) & 3]) + 1;
	new.strings_length = (uint32_t)(at - sizeof(new));
	if (more & 32)
		new.deadline_ms = fuzz_u64(fuzz->input);
	if (more & 64)
		new.memory_max = fuzz_u8(fuzz->input);
	memcpy(payload, &new, sizeof(new));
	if (more & 128) {
		choice = fuzz_u8(fuzz->input);
		payload[choice % at] = (char)fuzz_u8(fuzz->input);
	}
	send_frame(client, AGENT_NEW, payload, at);
}

static void send_identity(struct fuzz *fuzz, struct client *client)
{
	struct agent_identity identity = {.realtime_ns = 1, .machine_id = {1}, .hostname = "sandbox-1"};

	if (fuzz_one_in(fuzz->input, 8)) {
		fuzz_take(fuzz->input, identity.hostname,
			fuzz_below(fuzz->input, sizeof(identity.hostname) + 1));
		identity.machine_id[0] = identity.hostname[0] & 1; /* 0: the same machine */
	}
	send_frame(client, AGENT_IDENTITY, &identity, sizeof(identity));
}

static void send_attach(struct fuzz *fuzz, struct client *client)
{
	uint8_t choice = fuzz_u8(fuzz->input);
	struct agent_attach attach = {.session = choice % (SESSION_IDS + 1),
		.stdout_offset = AGENT_OFFSET_OLDEST,
		.stderr_offset = AGENT_OFFSET_OLDEST};

	if (choice & 0x40)
		attach.stdout_offset = fuzz_u16(fuzz->input);
	if (choice & 0x80)
		attach.stderr_offset = fuzz_u16(fuzz->input);
	send_frame(client, AGENT_ATTACH, &attach, sizeof(attach));
}

static void send_small(struct fuzz *fuzz, struct client *client, uint8_t type)
{
	/* struct agent_control, _shutdown, _signal and _resize are all of 8 bytes, the latter half mostly
	 * zero */
	uint32_t payload[2] = {fuzz_u8(fuzz->input), 0};

	if (fuzz_one_in(fuzz->input, 8))
		fuzz_take(fuzz->input, payload, sizeof(payload));
	if (type == AGENT_CONTROL && payload[0] % 4)
		payload[0] = AGENT_PROTO_VERSION;
	send_frame(client, type, payload, sizeof(payload));
}

static void send_some_frame(struct fuzz *fuzz, struct client *client)
{
	static const uint8_t zeros[AGENT_DATA_MAX + 1];
	uint8_t choice = fuzz_u8(fuzz->input);

	switch (choice % 12) {
	case 0:
		send_new(fuzz, client);
		break;
	case 1:
		send_attach(fuzz, client);
		break;
	case 2:
		send_identity(fuzz, client);
		break;
	case 3:
		send_frame(client, AGENT_STDIN, zeros, choice / 12);
		break;
	case 4:
		send_frame(client, AGENT_STDIN, zeros, (size_t)fuzz_u16(fuzz->input) + 1);
		break;
	case 5:
		send_frame(client, AGENT_STDIN_EOF, zeros, choice / 12 == 20);
		break;
	case 6:
		send_frame(client, AGENT_KILL, zeros, choice / 12 == 20);
		break;
	case 7:
		send_small(fuzz, client, AGENT_SIGNAL);
		break;
	case 8:
		send_small(fuzz, client, AGENT_RESIZE);
		break;
	case 9:
		send_small(fuzz, client, AGENT_SHUTDOWN);
		break;
	case 10:
		send_frame(client, choice, zeros, fuzz_u8(fuzz->input));
		break;
	default:
		if (choice == AGENT_HOLD)
			send_frame(client, AGENT_HOLD, zeros, fuzz_u8(fuzz->input) == 0);
		else
			send_small(fuzz, client, AGENT_CONTROL);
		break;
	}
}

static void send_raw(struct fuzz *fuzz, struct client *client)
{
	size_t length = fuzz_u8(fuzz->input);
	const uint8_t *bytes = fuzz_bytes(fuzz->input, &length);

	send_bytes(client, bytes, length);
}

/* steps */

static void step_client(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input);
	struct client *client = &fuzz->clients[choice % CLIENTS_MAX];

	choice = fuzz_u8(fuzz->input);
	if (client->fd < 0) {
		if (choice == 0xff)
			be_called(fuzz, client);
		else
			come(fuzz, client);
		return;
	}
	switch (choice & 7) {
	case 0:
		read_frames(client, 1 + (choice >> 3));
		break;
	case 1:
		send_raw(fuzz, client);
		break;
	case 2:
		if (choice & 8)
			leave(client);
		else
			(void)shutdown(client->fd, (choice >> 4) % 3);
		break;
	default:
		send_some_frame(fuzz, client);
		break;
	}
}

static void step_users(struct fuzz *fuzz)
{
	size_t length = fuzz_u8(fuzz->input);
	const uint8_t *bytes = fuzz_bytes(fuzz->input, &length);
	uint8_t choice = fuzz_u8(fuzz->input);

	(void)!pwrite(choice & 1 ? fuzz->group_fd : fuzz->passwd_fd, bytes, length, choice >> 1);
}

static void step(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input);

	switch (choice & 7) {
	case 0:
		fake_children_step(&fuzz->children, fuzz->input);
		agent_reap(fuzz->agent);
		break;
	case 1:
		if (choice == 0xf9 && fuzz->shutdowns)
			agent_stop(fuzz->agent);
		else if (choice & 8)
			fake_time_fire(fuzz->loop, choice >> 4);
		else if (choice & 16)
			step_users(fuzz);
		else
			agent_reap(fuzz->agent);
		break;
	case 2:
	case 3:
		fuzz_turn(fuzz->loop);
		break;
	default:
		step_client(fuzz);
		break;
	}
}

/* life */

static int make_listener(struct fuzz *fuzz)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	fuzz->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	fuzz->address_length = sizeof(fuzz->address);
	/* Without a name the kernel chooses an abstract one. */
	FUZZ_ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&fuzz->address, sizeof(sa_family_t)) == 0);
	FUZZ_ASSERT(listen(fd, CLIENTS_MAX) == 0);
	FUZZ_ASSERT(getsockname(fd, (struct sockaddr *)&fuzz->address, &fuzz->address_length) == 0);
	return fd;
}

static int make_text(const char *text, char path[32])
{
	int fd = memfd_create("text", MFD_CLOEXEC);

	FUZZ_ASSERT(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
	snprintf(path, 32, "/proc/self/fd/%d", fd);
	return fd;
}

static void start(struct fuzz *fuzz)
{
	struct agent_config config = {.users = &fuzz->users,
		.identity = &identity_ops,
		.identity_context = fuzz,
		.shutdown = on_shutdown,
		.shutdown_context = fuzz,
		.warnings = &fuzz->warnings};

	signal(SIGPIPE, SIG_IGN); /* guest-init has all signals blocked */
	for (unsigned i = 0; i < CLIENTS_MAX; i++)
		fuzz->clients[i].fd = -1;
	fake_children_init(&fuzz->children, fuzz->input);
	fuzz->passwd_fd = make_text(
		"root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:\nbroken:x:1:\n", fuzz->passwd);
	fuzz->group_fd = make_text("agent:x:1000:\nwheel:x:10:root,agent\n", fuzz->group);
	fuzz->users = (struct users_files){.passwd = fuzz->passwd, .group = fuzz->group};
	fuzz->listener = config.listen_fd = make_listener(fuzz);
	fuzz->loop = config.loop = loop_create();
	FUZZ_ASSERT(fuzz->loop && agent_create(&config, &fuzz->agent) == 0);
}

/* What a good host does first; most of what there is to reach comes after it. */
static void greet(struct fuzz *fuzz)
{
	const struct agent_control control = {.version = AGENT_PROTO_VERSION};
	struct client *client = &fuzz->clients[0];

	come(fuzz, client);
	send_frame(client, AGENT_CONTROL, &control, sizeof(control));
	send_identity(fuzz, client);
	fuzz_settle(fuzz->loop);
	read_frames(client, 4);
}

static void finish(struct fuzz *fuzz)
{
	fuzz_settle(fuzz->loop);
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		read_frames(&fuzz->clients[i], UINT32_MAX);
		leave(&fuzz->clients[i]);
	}
	fuzz_settle(fuzz->loop);
	agent_destroy(fuzz->agent);
	loop_destroy(fuzz->loop);
	fake_children_finish(&fuzz->children);
	close(fuzz->listener);
	close(fuzz->passwd_fd);
	close(fuzz->group_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	static struct fuzz fuzz; /* too large for the stack */

	fuzz_begin();
	fuzz = (struct fuzz){.input = &input};
	start(&fuzz);
	if (fuzz_u8(&input) % 8)
		greet(&fuzz);
	while (fuzz_left(&input))
		step(&fuzz);
	finish(&fuzz);
	fuzz_end();
	return 0;
}
