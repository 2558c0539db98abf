/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/stream.h"
#include "common/io.h"
#include "common/log.h"
#include "guest-init/agent.h"
#include "guest-init/changes.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

static void set_events(struct stream *stream, uint32_t events)
{
	if (stream->events == events)
		return;
	stream->events = events;
	if (loop_set_events(stream->source, events) < 0)
		stream_close(stream);
}

/* At the guest's end, what was sent would be lost with the guest: close then waits until the host has it all.
 */
static void linger(const struct stream *stream)
{
	const struct linger linger = {.l_onoff = 1, .l_linger = STREAM_LINGER_S};

	setsockopt(stream->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

void stream_close(struct stream *stream)
{
	if (stream->fd < 0)
		return;
	if (stream->exit_queued && agent_is_stopping(stream->agent))
		linger(stream);
	loop_remove(stream->source);
	stream->source = NULL;
	fd_close(&stream->fd);
	/* A usual one is kept for the next stream: nothing is allocated on the way to a command. */
	if (stream->reader.capacity > FRAME_READER_START)
		frame_reader_finish(&stream->reader);
	stream->reader.start = stream->reader.end = 0;
	frame_queue_finish(&stream->queue);
	if (stream->session && stream->session->reader == &stream->link)
		session_detach(stream->session);
	stream->session = NULL;
	changes_end(stream->changes);
	stream->changes = NULL;
	stream->awaits_held = false;
	if (stream->outgoing)
		agent_link_ended(stream->agent);
}

bool stream_send(struct stream *stream, uint8_t type, const void *head, size_t head_length, const void *tail,
	size_t tail_length)
{
	if (frame_queue_put(&stream->queue, type, head, head_length, tail, tail_length) == 0)
		return true;
	stream_close(stream);
	return false;
}

void stream_refuse(struct stream *stream, int error, const char *text)
{
	struct agent_status status = {.status = error, .text_length = (uint32_t)strlen(text)};

	log_info("a stream is refused: %s (%s)", text, strerror(error));
	if (stream_send(stream, AGENT_ERROR, &status, sizeof(status), text, status.text_length))
		stream->kind = STREAM_CLOSING;
}

static void session_ready(void *context)
{
	stream_pump(context);
}

/* What is left of a frame would come from a ring that now serves another reader: no way but to close. */
static void session_replaced(void *context)
{
	stream_close(context);
}

void stream_bind(struct stream *stream, struct session *session)
{
	stream->session = session;
	stream->kind = STREAM_SESSION;
}

/* ---- out ---- */

/* Next data frame; false when no output waits. stdout and stderr take turns. */
static bool start_flight(struct stream *stream)
{
	struct stream_flight *flight = &stream->flight;
	struct agent_frame_header header = {0};
	struct agent_output output;
	struct iovec iov[2];

	for (int i = 0; i < SESSION_OUTPUTS; i++) {
		flight->which = stream->turn;
		stream->turn = stream->turn == SESSION_STDOUT ? SESSION_STDERR : SESSION_STDOUT;
		flight->data_left = session_peek(stream->session, flight->which, iov);
		if (flight->data_left > 0)
			break;
	}
	if (flight->data_left == 0)
		return false;
	if (flight->data_left > STREAM_DATA_MAX)
		flight->data_left = STREAM_DATA_MAX;
	header.length = (uint32_t)(sizeof(output) + flight->data_left);
	header.type = flight->which == SESSION_STDOUT ? AGENT_STDOUT : AGENT_STDERR;
	output.offset = stream->session->out[flight->which].taken;
	memcpy(flight->head, &header, sizeof(header));
	memcpy(flight->head + sizeof(header), &output, sizeof(output));
	flight->head_left = sizeof(flight->head);
	return true;
}

/* Accounts for what sendmsg took of the flight. */
static void advance_flight(struct stream *stream, size_t sent)
{
	struct stream_flight *flight = &stream->flight;
	size_t head = sent < flight->head_left ? sent : flight->head_left;

	flight->head_left -= head;
	flight->data_left -= sent - head;
	if (sent > head)
		session_take(stream->session, flight->which, sent - head);
}

/* 0: the frame is out; 1: the stream is full; -errno. */
static int send_flight(struct stream *stream)
{
	struct stream_flight *flight = &stream->flight;

	while (flight->head_left > 0 || flight->data_left > 0) {
		struct iovec iov[3];
		struct msghdr message = {.msg_iov = iov, .msg_iovlen = 3};
		ssize_t n;

		iov[0].iov_base = flight->head + sizeof(flight->head) - flight->head_left;
		iov[0].iov_len = flight->head_left;
		session_peek(stream->session, flight->which, &iov[1]);
		/* More may have come since the header was made: it belongs to the next frame. */
		if (iov[1].iov_len > flight->data_left)
			iov[1].iov_len = flight->data_left;
		if (iov[2].iov_len > flight->data_left - iov[1].iov_len)
			iov[2].iov_len = flight->data_left - iov[1].iov_len;
		n = sendmsg(stream->fd, &message, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 1 : -errno;
		advance_flight(stream, (size_t)n);
	}
	return 0;
}

/* Queues or starts what goes next. False when there is nothing. */
static bool next_out(struct stream *stream)
{
	struct session *session = stream->session;
	struct agent_credit credit = {0};

	if (stream->kind != STREAM_SESSION || stream->exit_queued)
		return false;
	credit.bytes = session_take_credit(session);
	if (credit.bytes > 0)
		return stream_send(stream, AGENT_STDIN_CREDIT, &credit, sizeof(credit), NULL, 0);
	if (start_flight(stream))
		return true;
	if (!session_is_over(session))
		return false;
	stream->exit_queued = true;
	if (!stream_send(stream, AGENT_EXIT, &session->exit, sizeof(session->exit), NULL, 0))
		return false;
	/* What the host still sends is not read: an ERROR could come after EXIT, the terminal frame. */
	stream->kind = STREAM_CLOSING;
	return true;
}

/* What is found next of the changes, or their end. */
static void tell_changes(struct stream *stream)
{
	struct agent_changes_end end;
	uint8_t list[STREAM_LIST_MAX];
	size_t length;
	int r = changes_fill(stream->changes, list, sizeof(list), &length, &end);

	if (length > 0 && !stream_send(stream, AGENT_CHANGE_LIST, list, length, NULL, 0))
		return;
	if (r == 1)
		return;
	changes_end(stream->changes);
	stream->changes = NULL;
	if (r < 0)
		stream_refuse(stream, -r, STREAM_CHANGES_FAILED);
	else if (stream_send(stream, AGENT_CHANGES_END, &end, sizeof(end), NULL, 0))
		stream->kind = STREAM_CLOSING;
}

void stream_pump(struct stream *stream)
{
	int r;

	if (stream->fd < 0 || stream->connecting)
		return;
	do {
		r = send_flight(stream);
		if (r == 0)
			r = frame_queue_flush(&stream->queue, stream->fd);
	} while (r == 0 && next_out(stream));
	if (stream->fd < 0)
		return;
	if (r == 0 && stream->kind == STREAM_CHANGES) {
		tell_changes(stream);
		/* The loop comes back here when it is free, and there is room. */
		r = 1;
	}
	if (stream->fd < 0)
		return;
	if (r < 0 || (r == 0 && (stream->exit_queued || stream->kind == STREAM_CLOSING))) {
		stream_close(stream);
		return;
	}
	set_events(stream, (stream->kind == STREAM_CLOSING ? 0 : EPOLLIN) | (r == 1 ? EPOLLOUT : 0));
}

/* ---- in ---- */

static void read_frames(struct stream *stream)
{
	struct frame frame;
	int r = frame_reader_fill(&stream->reader, stream->fd);

	if (r == -EAGAIN)
		return;
	if (r <= 0) {
		stream_close(stream);
		return;
	}
	while (stream->fd >= 0 && stream->kind != STREAM_CLOSING) {
		r = frame_reader_next(&stream->reader, &frame);
		if (r == 0)
			break;
		if (r < 0)
			stream_refuse(
				stream, r == -ENOMEM ? ENOMEM : EPROTO, "a frame's header is not valid");
		else
			agent_handle_frame(stream->agent, stream, &frame);
	}
	stream_pump(stream);
}

static void finish_connect(struct stream *stream)
{
	int error = 0;
	socklen_t length = sizeof(error);

	if (getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
		error = errno;
	if (error != 0) {
		agent_connect_failed(stream->agent, error);
		stream_close(stream);
		return;
	}
	stream->connecting = false;
	agent_connected(stream->agent);
	agent_greet(stream->agent, stream);
	stream_pump(stream);
}

static void stream_ready(void *context, uint32_t events)
{
	struct stream *stream = context;

	if (stream->connecting)
		finish_connect(stream);
	else if (events & EPOLLERR || (events & EPOLLHUP && !(events & EPOLLIN)))
		stream_close(stream);
	else if (events & EPOLLIN && stream->kind != STREAM_CLOSING)
		read_frames(stream);
	else
		stream_pump(stream);
}

int stream_init(struct stream *stream)
{
	*stream = (struct stream){.fd = -1};
	return frame_reader_init(&stream->reader, AGENT_FRAME_MAX);
}

void stream_finish(struct stream *stream)
{
	stream_close(stream);
	frame_reader_finish(&stream->reader);
}

int stream_open(struct stream *stream, struct agent *agent, int fd, bool connecting)
{
	struct frame_reader reader = stream->reader;
	int r;

	*stream = (struct stream){
		.agent = agent,
		.fd = fd,
		.kind = STREAM_FRESH,
		.outgoing = connecting,
		.connecting = connecting,
		.events = connecting ? EPOLLOUT : EPOLLIN,
		.reader = reader,
		.link = {.ready = session_ready, .replaced = session_replaced, .context = stream},
	};
	frame_queue_init(&stream->queue, STREAM_QUEUE_MAX);
	r = reader.buffer ? 0 : frame_reader_init(&stream->reader, AGENT_FRAME_MAX);
	if (r < 0)
		goto fail;
	stream->source = loop_add_fd(agent_loop(agent), fd, stream->events, stream_ready, stream);
	if (stream->source)
		return 0;
	r = -errno;
fail:
	stream_close(stream);
	return r;
}
