/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/control.h"
#include "common/io.h"
#include "common/log.h"
#include "common/unix_socket.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { FDS_MAX = VMM_RESTORE_FDS_MAX }; /* that a request may bring */
_Static_assert((int)VMM_SAVE_FDS_MAX <= (int)FDS_MAX, "what a save brings has room");

/* A request that was accepted and not answered yet. */
struct pending {
	struct control *control;
	bool used, orphaned; /* orphaned: its peer is gone */
	uint32_t type, sequence;
	int fd; /* for the peer, with the reply; -1: none */
};

struct control {
	struct loop *loop;
	const struct control_ops *ops;
	void *context;
	char *path;	    /* made by us, NULL: not */
	int listener, peer; /* -1: none */
	int spare;	    /* keeps a number free for the next peer, whatever the guest has open; -1: none */
	struct loop_source *listener_source, *peer_source;
	struct pending pending[CONTROL_PENDING_MAX];
};

/* While there is no peer. */
static void keep_spare(struct control *control)
{
	if (control->listener >= 0 && control->spare < 0)
		control->spare = fcntl(control->listener, F_DUPFD_CLOEXEC, 0);
}

static void close_peer(struct control *control)
{
	loop_remove(control->peer_source);
	control->peer_source = NULL;
	fd_close(&control->peer);
	keep_spare(control);
	for (unsigned i = 0; i < CONTROL_PENDING_MAX; i++) {
		control->pending[i].orphaned = true;
		fd_close(&control->pending[i].fd);
	}
	if (control->listener_source)
		loop_set_events(control->listener_source, EPOLLIN);
}

static void drop_peer(struct control *control)
{
	if (control->peer < 0)
		return;
	close_peer(control);
	if (control->ops->left)
		control->ops->left(control->context);
}

/* To the peer, if there is one and it reads. */
static int send_message(struct control *control, const struct vmm_message *message, int fd)
{
	int r;

	if (control->peer < 0)
		return -ECONNREFUSED;
	r = io_send_fds(control->peer, message, sizeof(*message), &fd, fd >= 0 ? 1 : 0);
	if (r < 0) {
		if (r != -EPIPE && r != -ECONNRESET)
			log_warn("control: the peer is dropped: %s",
				r == -EAGAIN ? "it does not read" : strerror(-r));
		drop_peer(control);
	}
	return r;
}

static void reply(struct control *control, uint32_t type, uint32_t sequence, int status, int fd)
{
	struct vmm_message message = {.type = type | VMM_REPLY, .sequence = sequence, .status = status};

	if (status < 0)
		snprintf(message.text, sizeof(message.text), "%s", strerror(-status));
	send_message(control, &message, fd);
}

/* One of the table's, or NULL. */
static struct pending *reserve_pending(struct control *control, const struct vmm_message *request, int fd)
{
	for (unsigned i = 0; i < CONTROL_PENDING_MAX; i++) {
		if (control->pending[i].used)
			continue;
		control->pending[i] = (struct pending){
			.control = control,
			.used = true,
			.type = request->type,
			.sequence = request->sequence,
			.fd = fd,
		};
		return &control->pending[i];
	}
	return NULL;
}

static void release_pending(struct pending *pending)
{
	fd_close(&pending->fd);
	pending->used = false;
}

static void finish_pending(void *context, int status)
{
	struct pending *pending = context;
	struct control *control = pending->control;

	if (!pending->orphaned)
		reply(control, pending->type, pending->sequence, status, status == 0 ? pending->fd : -1);
	if (!pending->orphaned && pending->type == VMM_PAUSE && status == 0)
		control_state_changed(control);
	release_pending(pending);
}

/* A stream's two ends: *ours does not block, *theirs is for the peer to set. */
static int make_stream(int *ours, int *theirs)
{
	int pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -errno;
	*ours = pair[0];
	*theirs = pair[1];
	return 0;
}

static int serve_connect(struct control *control, const struct vmm_message *request)
{
	struct pending *pending;
	int ours = -1, theirs = -1, r;

	if (request->arg0 >= UINT32_MAX)
		return -EINVAL;
	r = make_stream(&ours, &theirs);
	if (r < 0)
		return r;
	pending = reserve_pending(control, request, theirs);
	if (!pending) {
		fd_close(&ours);
		fd_close(&theirs);
		return -EBUSY;
	}
	r = control->ops->connect(control->context, (uint32_t)request->arg0, ours, finish_pending, pending);
	if (r < 0)
		release_pending(pending);
	return r;
}

/* 1: answered already or to be answered; 0 or -errno: the answer. */
static int serve_pause(struct control *control, const struct vmm_message *request)
{
	struct pending *pending = reserve_pending(control, request, -1);
	int r;

	if (!pending)
		return -EBUSY;
	r = control->ops->pause(control->context, finish_pending, pending);
	if (r == 0)
		return 1;
	release_pending(pending);
	return r < 0 ? r : 0;
}

static void serve_resume(struct control *control, const struct vmm_message *request)
{
	int r = control->ops->resume(control->context);

	reply(control, request->type, request->sequence, r, -1);
	if (r == 0)
		control_state_changed(control);
}

static void serve_status(struct control *control, const struct vmm_message *request)
{
	struct vmm_message message = {.type = VMM_STATUS | VMM_REPLY, .sequence = request->sequence};
	enum vmm_state state;

	control->ops->status(control->context, &state, &message.arg1, &message.arg2);
	message.arg0 = state;
	send_message(control, &message, -1);
}

static void serve_balloon(struct control *control, const struct vmm_message *request)
{
	struct vmm_message message = {.type = VMM_BALLOON | VMM_REPLY, .sequence = request->sequence};
	struct balloon_status status;
	int r = control->ops->balloon(control->context, request->arg0, &status);

	if (r < 0) {
		reply(control, request->type, request->sequence, r, -1);
		return;
	}
	message.arg0 = status.target;
	message.arg1 = status.actual;
	message.arg2 = status.reported;
	send_message(control, &message, -1);
}

/* Takes the fd over. */
static int serve_net(struct control *control, const struct vmm_message *request, int fd)
{
	if (request->arg0 == VMM_LINK_DOWN || request->arg0 == VMM_LINK_UP)
		return control->ops->net(control->context, request->arg0 == VMM_LINK_UP, fd);
	fd_close(&fd);
	return -EINVAL;
}

static void serve_save(struct control *control, const struct vmm_message *request, int *fds)
{
	struct vmm_message message = {.type = VMM_SAVE | VMM_REPLY, .sequence = request->sequence};
	struct control_save save = {.flags = request->arg0,
		.state = fds[0],
		.memory = fds[1],
		.disk = fds[2],
		.why = message.text};

	message.status = control->ops->save(control->context, &save);
	message.arg0 = save.state_bytes;
	message.arg1 = save.memory_bytes;
	message.arg2 = save.disk_bytes;
	for (unsigned i = 0; i < FDS_MAX; i++)
		fd_close(&fds[i]);
	send_message(control, &message, -1);
}

static int serve_restore(struct control *control, const struct vmm_message *request, int *fds)
{
	struct pending *pending = control->ops->restore ? reserve_pending(control, request, -1) : NULL;
	unsigned count = 0;
	int r = pending ? 0 : control->ops->restore ? -EBUSY : -EALREADY;

	while (count < FDS_MAX && fds[count] >= 0)
		count++;
	if (r == 0)
		r = control->ops->restore(control->context, request, fds, count, finish_pending, pending);
	if (r == 0)
		return 0;
	if (pending)
		release_pending(pending);
	for (unsigned i = 0; i < count; i++)
		fd_close(&fds[i]);
	return r;
}

static bool fds_fit(const struct vmm_message *request, size_t fds)
{
	switch (request->type) {
	case VMM_NET:
		return fds <= 1;
	case VMM_SAVE:
		return fds == (request->arg0 & VMM_SAVE_DISK ? 3 : 2);
	case VMM_RESTORE:
		return fds >= 2;
	default:
		return fds == 0;
	}
}

static bool is_valid(const struct vmm_message *request, ssize_t length, size_t fds)
{
	return length == (ssize_t)sizeof(*request) && request->reserved == 0 && request->sequence != 0 &&
	       fds_fit(request, fds);
}

static void refuse(struct control *control, const struct vmm_message *request)
{
	reply(control, request->type & ~(uint32_t)VMM_REPLY, request->sequence, -EPROTO, -1);
	drop_peer(control);
}

/* fds: as many as the request may bring; the others are -1. Takes them over. */
static void serve(struct control *control, const struct vmm_message *request, int fds[FDS_MAX])
{
	int r;

	switch (request->type) {
	case VMM_CONNECT:
		r = serve_connect(control, request);
		if (r < 0)
			reply(control, request->type, request->sequence, r, -1);
		break;
	case VMM_PAUSE:
		r = serve_pause(control, request);
		if (r <= 0)
			reply(control, request->type, request->sequence, r, -1);
		break;
	case VMM_RESUME:
		serve_resume(control, request);
		break;
	case VMM_STATUS:
		serve_status(control, request);
		break;
	case VMM_KILL:
		reply(control, request->type, request->sequence, 0, -1);
		control->ops->kill(control->context);
		break;
	case VMM_NET:
		r = serve_net(control, request, fds[0]);
		reply(control, request->type, request->sequence, r, -1);
		break;
	case VMM_BALLOON:
		serve_balloon(control, request);
		break;
	case VMM_SAVE:
		serve_save(control, request, fds);
		break;
	case VMM_RESTORE:
		r = serve_restore(control, request, fds);
		if (r < 0)
			reply(control, request->type, request->sequence, r, -1);
		break;
	default:
		refuse(control, request);
	}
}

static void handle_peer(void *context, uint32_t events)
{
	struct control *control = context;
	struct vmm_message request = {0};
	int fds[FDS_MAX];
	size_t count = FDS_MAX;
	ssize_t n;

	(void)events;
	for (unsigned i = 0; i < FDS_MAX; i++)
		fds[i] = -1;
	n = io_receive_fds(control->peer, &request, sizeof(request), fds, &count);
	if (n == -EAGAIN)
		return;
	if (n > 0 && is_valid(&request, n, count)) {
		serve(control, &request, fds);
		return;
	}
	for (unsigned i = 0; i < FDS_MAX; i++)
		fd_close(&fds[i]);
	/* -EMSGSIZE: longer than a message, or with more fds than any may have. */
	if (n > 0 || n == -EMSGSIZE)
		refuse(control, &request);
	else
		drop_peer(control);
}

/* Takes the fd over, on failure too. */
static int greet_peer(struct control *control, int fd)
{
	int r = fd_set_nonblock(fd);

	control->peer = fd;
	control->peer_source = r < 0 ? NULL : loop_add_fd(control->loop, fd, EPOLLIN, handle_peer, control);
	if (!control->peer_source) {
		r = r < 0 ? r : -errno;
		fd_close(&control->peer);
		return r;
	}
	if (control->listener_source)
		loop_set_events(control->listener_source, 0);
	control_state_changed(control);
	return 0;
}

static void handle_listener(void *context, uint32_t events)
{
	struct control *control = context;
	int fd, r;

	(void)events;
	if (control->peer >= 0)
		return;
	fd_close(&control->spare);
	fd = accept4(control->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	r = fd < 0 ? 0 : greet_peer(control, fd);
	if (r < 0)
		log_warn("control: a peer is turned away: %s", strerror(-r));
	if (control->peer < 0)
		keep_spare(control);
}

static int get_option(int fd, int option, int *value)
{
	socklen_t length = sizeof(*value);

	return getsockopt(fd, SOL_SOCKET, option, value, &length) < 0 ? -errno : 0;
}

static int listen_on(struct control *control, int fd)
{
	int r = fd_set_nonblock(fd);

	if (r < 0)
		return r;
	control->listener = fd;
	control->listener_source = loop_add_fd(control->loop, fd, EPOLLIN, handle_listener, control);
	if (!control->listener_source)
		return -errno;
	/* A peer that connected before we started is served before the guest runs. */
	handle_listener(control, EPOLLIN);
	return 0;
}

/* A socket that the parent made. Takes the fd over, on failure too. */
static int take_socket(struct control *control, int fd)
{
	int type, listening, r = get_option(fd, SO_TYPE, &type);

	if (r == 0 && type != SOCK_SEQPACKET)
		r = -ESOCKTNOSUPPORT;
	if (r == 0)
		r = get_option(fd, SO_ACCEPTCONN, &listening);
	if (r == 0 && !listening)
		return greet_peer(control, fd);
	if (r == 0)
		r = listen_on(control, fd);
	if (r < 0 && control->listener < 0)
		fd_close(&fd);
	return r;
}

static int make_socket(struct control *control, const char *path)
{
	int fd;

	control->path = strdup(path);
	if (!control->path)
		return -ENOMEM;
	fd = unix_listen(path, SOCK_SEQPACKET, 0600, CONTROL_BACKLOG);
	if (fd < 0) {
		free(control->path);
		control->path = NULL;
		return fd;
	}
	return take_socket(control, fd);
}

int control_create(const char *path, struct loop *loop, const struct control_ops *ops, void *context,
	struct control **out)
{
	struct control *control = calloc(1, sizeof(*control));
	int r;

	if (!control)
		return -ENOMEM;
	control->loop = loop;
	control->ops = ops;
	control->context = context;
	control->listener = control->peer = control->spare = -1;
	for (unsigned i = 0; i < CONTROL_PENDING_MAX; i++)
		control->pending[i].fd = -1;
	if (strncmp(path, "fd:", 3) == 0) {
		r = io_open_arg(path, 0, 0);
		if (r >= 0)
			r = take_socket(control, r);
	} else {
		r = make_socket(control, path);
	}
	if (r < 0)
		goto fail;
	*out = control;
	return 0;
fail:
	control_destroy(control);
	return r;
}

void control_destroy(struct control *control)
{
	if (!control)
		return;
	if (control->peer >= 0)
		close_peer(control);
	loop_remove(control->listener_source);
	fd_close(&control->listener);
	fd_close(&control->spare);
	if (control->path)
		unlink(control->path);
	free(control->path);
	free(control);
}

void control_set_ops(struct control *control, const struct control_ops *ops, void *context)
{
	control->ops = ops;
	control->context = context;
}

void control_state_changed(struct control *control)
{
	struct vmm_message message = {.type = VMM_EVENT_STATE};
	uint64_t exits, guest_cpu_ns;
	enum vmm_state state;

	control->ops->status(control->context, &state, &exits, &guest_cpu_ns);
	message.arg0 = state;
	send_message(control, &message, -1);
}

void control_ended(struct control *control, enum vmm_end end, const char *reason)
{
	struct vmm_message message = {.type = VMM_EVENT_STATE, .arg0 = VMM_STATE_ENDED, .arg1 = end};

	for (unsigned i = 0; i < CONTROL_PENDING_MAX; i++) {
		struct pending *pending = &control->pending[i];

		if (!pending->used || pending->orphaned)
			continue;
		reply(control, pending->type, pending->sequence, -ECONNRESET, -1);
		pending->orphaned = true;
	}
	snprintf(message.text, sizeof(message.text), "%s", reason);
	send_message(control, &message, -1);
}

int control_offer_stream(struct control *control, uint32_t guest_port, uint32_t host_port)
{
	struct vmm_message message = {.type = VMM_EVENT_STREAM, .arg0 = host_port, .arg1 = guest_port};
	int ours = -1, theirs = -1, r;

	if (control->peer < 0)
		return -ECONNREFUSED;
	r = make_stream(&ours, &theirs);
	if (r < 0)
		return r;
	r = send_message(control, &message, theirs);
	fd_close(&theirs);
	if (r < 0)
		fd_close(&ours);
	return r < 0 ? r : ours;
}
