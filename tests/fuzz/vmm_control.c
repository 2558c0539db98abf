/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket with peers that send any message, with and without fds, that do not read, leave and come
 * back; and a machine that answers when it likes. Each request that is taken is answered once, by its type
 * and number, unless its peer is gone; each message to the peer is well-formed; the machine hears of nothing
 * that no valid message asked for.
 */
#include "common/io.h"
#include "tests/fuzz/support/fuzz.h"
#include "vmm/control.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { WAITERS_MAX = CONTROL_PENDING_MAX, REQUESTS_MAX = 512, SEND_FDS_MAX = 3 };

struct fuzz {
	struct fuzz_input *input;
	struct loop *loop;
	struct control *control;
	int listener; /* its other end is the control's; -1: it has one peer only */
	struct sockaddr_un address;
	socklen_t address_length;
	int peer;
	bool ended;
	enum vmm_state state;
	unsigned asked, heard; /* of the machine: by valid messages, and what it was told */
	struct {
		control_done_fn done;
		void *context;
		int fd;
	} waiters[WAITERS_MAX];
	unsigned waiting;
	struct {
		uint32_t type, sequence;
	} requests[REQUESTS_MAX]; /* sent and not answered */
	unsigned request_count;
};

/* the machine */

static int wait_for(struct fuzz *fuzz, control_done_fn done, void *context, int fd)
{
	/* The table of control.c is as long, and it reserves its place before it asks the machine. */
	FUZZ_ASSERT(fuzz->waiting < WAITERS_MAX);
	fuzz->waiters[fuzz->waiting].done = done;
	fuzz->waiters[fuzz->waiting].context = context;
	fuzz->waiters[fuzz->waiting].fd = fd;
	fuzz->waiting++;
	return 0;
}

static void on_status(void *context, enum vmm_state *state, uint64_t *exits, uint64_t *guest_cpu_ns)
{
	struct fuzz *fuzz = context;

	*state = fuzz->state;
	*exits = *guest_cpu_ns = 1;
}

static int on_pause(void *context, control_done_fn done, void *done_context)
{
	struct fuzz *fuzz = context;
	uint8_t choice = fuzz_u8(fuzz->input);

	fuzz->heard++;
	if (choice % 4 == 1)
		return 1;
	return choice % 4 == 2 ? -EBUSY : wait_for(fuzz, done, done_context, -1);
}

static int on_resume(void *context)
{
	struct fuzz *fuzz = context;

	fuzz->heard++;
	return fuzz_one_in(fuzz->input, 3) ? -EINVAL : 0;
}

static void on_kill(void *context)
{
	struct fuzz *fuzz = context;

	fuzz->heard++;
}

static int on_connect(void *context, uint32_t port, int fd, control_done_fn done, void *done_context)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(fd >= 0 && port != UINT32_MAX && (fcntl(fd, F_GETFL) & O_NONBLOCK));
	fuzz->heard++;
	if (!fuzz_one_in(fuzz->input, 4))
		return wait_for(fuzz, done, done_context, fd);
	close(fd);
	return -ENODEV;
}

static int on_net(void *context, bool up, int fd)
{
	struct fuzz *fuzz = context;

	fuzz->heard++;
	fd_close(&fd);
	return up && fuzz_one_in(fuzz->input, 2) ? -ENOTCONN : 0;
}

static int on_balloon(void *context, uint64_t target, struct balloon_status *status)
{
	struct fuzz *fuzz = context;

	fuzz->heard++;
	*status = (struct balloon_status){.target = target};
	return fuzz_one_in(fuzz->input, 2) ? -EINVAL : 0;
}

static int on_save(void *context, struct control_save *save)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(save->state >= 0 && save->memory >= 0);
	FUZZ_ASSERT((save->disk >= 0) == ((save->flags & VMM_SAVE_DISK) != 0));
	fuzz->heard++;
	save->state_bytes = save->memory_bytes = save->disk_bytes = 1;
	snprintf(save->why, VMM_MESSAGE_TEXT, "no");
	return fuzz_one_in(fuzz->input, 2) ? -EBUSY : 0;
}

static int on_restore(void *context, const struct vmm_message *request, const int *fds, unsigned count,
	control_done_fn done, void *done_context)
{
	struct fuzz *fuzz = context;

	FUZZ_ASSERT(request->type == VMM_RESTORE && count >= 2 && count <= VMM_RESTORE_FDS_MAX);
	fuzz->heard++;
	if (fuzz_one_in(fuzz->input, 2))
		return -EALREADY;
	for (unsigned i = 0; i < count; i++)
		close(fds[i]);
	return wait_for(fuzz, done, done_context, -1);
}

static const struct control_ops ops = {.status = on_status,
	.pause = on_pause,
	.resume = on_resume,
	.kill = on_kill,
	.connect = on_connect,
	.net = on_net,
	.balloon = on_balloon,
	.save = on_save,
	.restore = on_restore};

static void finish_waiter(struct fuzz *fuzz, unsigned which, int status)
{
	control_done_fn done = fuzz->waiters[which].done;
	void *context = fuzz->waiters[which].context;

	fd_close(&fuzz->waiters[which].fd);
	fuzz->waiters[which] = fuzz->waiters[--fuzz->waiting];
	done(context, status);
}

/* the peer */

static void leave(struct fuzz *fuzz)
{
	fd_close(&fuzz->peer);
	fuzz->request_count = 0;
}

static void come(struct fuzz *fuzz)
{
	if (fuzz->peer >= 0 || fuzz->listener < 0)
		return;
	fuzz->peer = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	FUZZ_ASSERT(fuzz->peer >= 0);
	if (connect(fuzz->peer, (struct sockaddr *)&fuzz->address, fuzz->address_length) < 0) {
		FUZZ_ASSERT(errno == EAGAIN); /* the backlog is full of those who left */
		fd_close(&fuzz->peer);
	}
}

static void take_answer(struct fuzz *fuzz, const struct vmm_message *message)
{
	for (unsigned i = 0; i < fuzz->request_count; i++) {
		/* By both: a malformed message may have had the sequence of a request that waits. */
		if (fuzz->requests[i].sequence != message->sequence ||
			(fuzz->requests[i].type | VMM_REPLY) != message->type)
			continue;
		fuzz->requests[i] = fuzz->requests[--fuzz->request_count];
		return;
	}
	/* Of one that broke the protocol, then: it ends the connection. */
	FUZZ_ASSERT(message->status == -EPROTO);
}

static void check_message(struct fuzz *fuzz, const struct vmm_message *message, size_t fds)
{
	FUZZ_ASSERT(message->reserved == 0 && message->status <= 0);
	FUZZ_ASSERT(memchr(message->text, '\0', sizeof(message->text)));
	FUZZ_ASSERT(message->status == 0 || message->text[0] != '\0');
	if (message->type & VMM_REPLY) {
		FUZZ_ASSERT(
			(fds == 1) == (message->type == (VMM_CONNECT | VMM_REPLY) && message->status == 0));
		take_answer(fuzz, message);
		return;
	}
	FUZZ_ASSERT(message->sequence == 0);
	FUZZ_ASSERT(message->type == VMM_EVENT_STATE || message->type == VMM_EVENT_STREAM);
	FUZZ_ASSERT(fds == (message->type == VMM_EVENT_STREAM));
}

/* False: the other side has closed. */
static bool read_answers(struct fuzz *fuzz, unsigned limit)
{
	struct vmm_message message;
	int fds[IO_FDS_MAX];

	for (unsigned i = 0; i < limit && fuzz->peer >= 0; i++) {
		size_t count = IO_FDS_MAX;
		ssize_t got = io_receive_fds(fuzz->peer, &message, sizeof(message), fds, &count);

		if (got == -EAGAIN)
			return true;
		if (got <= 0)
			return false;
		FUZZ_ASSERT(got == sizeof(message));
		for (size_t f = 0; f < count; f++)
			close(fds[f]);
		check_message(fuzz, &message, count);
	}
	return true;
}

static bool is_valid(const struct vmm_message *message, size_t length, size_t fds)
{
	if (length != sizeof(*message) || message->reserved || !message->sequence)
		return false;
	if (message->type == VMM_NET)
		return fds <= 1;
	if (message->type == VMM_SAVE)
		return fds == (message->arg0 & VMM_SAVE_DISK ? 3 : 2);
	if (message->type == VMM_RESTORE)
		return fds >= 2 && fds <= VMM_RESTORE_FDS_MAX;
	return fds == 0 && message->type >= VMM_CONNECT && message->type <= VMM_BALLOON;
}

static void send_to_control(struct fuzz *fuzz, const void *data, size_t length, size_t fds)
{
	const struct vmm_message *message = data;
	int sent[SEND_FDS_MAX] = {STDIN_FILENO, STDIN_FILENO, STDIN_FILENO};

	if (fuzz->peer < 0 || io_send_fds(fuzz->peer, data, length, sent, fds) < 0)
		return;
	if (!is_valid(message, length, fds))
		return;
	/* What a request asks of the machine, STATUS does not. */
	fuzz->asked += message->type != VMM_STATUS;
	FUZZ_ASSERT(fuzz->request_count < REQUESTS_MAX);
	fuzz->requests[fuzz->request_count].type = message->type;
	fuzz->requests[fuzz->request_count].sequence = message->sequence;
	fuzz->request_count++;
}

static size_t fds_of(const struct vmm_message *message, uint8_t choice)
{
	switch (message->type) {
	case VMM_NET:
		return (choice >> 6) & 1;
	case VMM_SAVE:
		return message->arg0 & VMM_SAVE_DISK ? 3 : 2;
	case VMM_RESTORE:
		return 2 + ((choice >> 6) & 1);
	default:
		return 0;
	}
}

static void step_request(struct fuzz *fuzz, uint32_t sequence)
{
	static const uint32_t types[] = {
		VMM_CONNECT, VMM_PAUSE, VMM_RESUME, VMM_STATUS, VMM_SAVE, VMM_NET, VMM_BALLOON, VMM_RESTORE};
	uint8_t choice = fuzz_u8(fuzz->input);
	struct vmm_message message = {.type = types[choice & 7], .sequence = sequence, .arg0 = choice >> 7};

	if (choice & 8)
		message.arg0 = fuzz_u64(fuzz->input);
	if (message.type == VMM_SAVE && choice & 64)
		message.type = VMM_KILL;
	send_to_control(fuzz, &message, sizeof(message), fds_of(&message, choice));
}

/* A message that is wrong somewhere. */
static void step_malformed(struct fuzz *fuzz, uint32_t sequence)
{
	struct vmm_message message[2] = {{.type = VMM_STATUS, .sequence = sequence}, {.type = 0}};
	uint8_t choice = fuzz_u8(fuzz->input), where = fuzz_u8(fuzz->input);
	size_t length = sizeof(message[0]);

	if (choice & 1)
		memset((uint8_t *)message + where % 48, fuzz_u8(fuzz->input), 1 + (choice >> 5));
	if (choice & 2)
		length = 1 + where;
	send_to_control(fuzz, message, length, choice & 4 ? (choice >> 3) % (SEND_FDS_MAX + 1) : 0);
}

/* the machine's own doings */

static void step_machine(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->input);
	int fd;

	switch (choice % 4) {
	case 0:
		fuzz->state = choice / 4 % (VMM_STATE_PAUSED + 1);
		control_state_changed(fuzz->control);
		break;
	case 1:
		fd = control_offer_stream(fuzz->control, choice, fuzz_u16(fuzz->input));
		FUZZ_ASSERT(
			fd >= 0 || fd == -ECONNREFUSED || fd == -EAGAIN || fd == -EPIPE || fd == -ECONNRESET);
		fd_close(&fd);
		break;
	default:
		if (fuzz->waiting)
			finish_waiter(
				fuzz, fuzz_below(fuzz->input, fuzz->waiting), choice & 4 ? -ECONNREFUSED : 0);
		break;
	}
}

static void step(struct fuzz *fuzz, uint32_t sequence)
{
	uint8_t choice = fuzz_u8(fuzz->input);

	switch (choice & 7) {
	case 0:
	case 1:
		step_request(fuzz, sequence);
		break;
	case 2:
		step_machine(fuzz);
		break;
	case 3:
		if (!read_answers(fuzz, choice >> 3))
			leave(fuzz);
		break;
	case 4:
		step_malformed(fuzz, sequence);
		break;
	case 5:
		if (choice & 8)
			leave(fuzz);
		come(fuzz);
		break;
	default:
		fuzz_turn(fuzz->loop);
		break;
	}
	FUZZ_ASSERT(fuzz->heard <= fuzz->asked);
}

/* life */

static int make_listener(struct fuzz *fuzz)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	fuzz->address = (struct sockaddr_un){.sun_family = AF_UNIX};
	fuzz->address_length = sizeof(fuzz->address);
	/* Without a name the kernel chooses an abstract one. */
	FUZZ_ASSERT(fd >= 0 && bind(fd, (struct sockaddr *)&fuzz->address, sizeof(sa_family_t)) == 0);
	FUZZ_ASSERT(listen(fd, CONTROL_BACKLOG) == 0);
	FUZZ_ASSERT(getsockname(fd, (struct sockaddr *)&fuzz->address, &fuzz->address_length) == 0);
	fuzz->listener = fd;
	return fd;
}

static int make_connected(struct fuzz *fuzz)
{
	int pair[2], small = 1;

	FUZZ_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
	FUZZ_ASSERT(fd_set_nonblock(pair[0]) == 0);
	FUZZ_ASSERT(setsockopt(pair[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)) == 0);
	fuzz->peer = pair[0];
	return pair[1];
}

static void start(struct fuzz *fuzz)
{
	char name[16];
	bool listens = fuzz_u8(fuzz->input) & 1;

	fuzz->peer = fuzz->listener = -1;
	fuzz->loop = loop_create();
	FUZZ_ASSERT(fuzz->loop);
	snprintf(name, sizeof(name), "fd:%d", listens ? make_listener(fuzz) : make_connected(fuzz));
	FUZZ_ASSERT(control_create(name, fuzz->loop, &ops, fuzz, &fuzz->control) == 0);
	come(fuzz);
}

/* A peer that reads to the end has an answer to everything that nobody waits for. */
static void finish(struct fuzz *fuzz)
{
	bool open = true;

	while (fuzz->waiting)
		finish_waiter(fuzz, 0, 0);
	for (unsigned before = UINT_MAX; open && fuzz->request_count < before;) {
		before = fuzz->request_count;
		fuzz_settle(fuzz->loop);
		open = read_answers(fuzz, UINT_MAX);
		while (fuzz->waiting)
			finish_waiter(fuzz, 0, 0);
		open = open && read_answers(fuzz, UINT_MAX);
	}
	FUZZ_ASSERT(!open || fuzz->peer < 0 || fuzz->request_count == 0);
	if (fuzz_one_in(fuzz->input, 2))
		control_ended(fuzz->control, VMM_END_PANIC, "the guest's kernel panicked");
	leave(fuzz);
	fuzz_settle(fuzz->loop);
	control_destroy(fuzz->control);
	loop_destroy(fuzz->loop);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct fuzz fuzz = {.input = &input, .state = VMM_STATE_RUNNING};

	fuzz_begin();
	start(&fuzz);
	for (uint32_t sequence = 1; fuzz_left(&input) && sequence < REQUESTS_MAX; sequence++)
		step(&fuzz, sequence);
	finish(&fuzz);
	fuzz_end();
	return 0;
}
