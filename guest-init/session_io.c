/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "guest-init/session.h"
#include "guest-init/tty.h"
#include <errno.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum {
	CREDIT_WORTH = AGENT_STDIN_WINDOW / 4, /* a STDIN_CREDIT frame for this much */
	DISCARD_BYTES = 4096,
};

uint64_t session_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void tell_reader(struct session *session)
{
	if (session->reader)
		session->reader->ready(session->reader->context);
}

/* ---- output ---- */

void session_close_output(struct session_output *output)
{
	loop_remove(output->source);
	output->source = NULL;
	fd_close(&output->fd);
}

/* Bytes that may come now: what the reader still needs is not overwritten. */
static size_t output_room(const struct session_output *output)
{
	uint64_t room = RING_SIZE;

	if (output->session->reader)
		room -= output->ring.end - output->taken;
	if (room > output->limit - output->ring.end)
		room = output->limit - output->ring.end;
	return room < AGENT_DATA_MAX ? (size_t)room : AGENT_DATA_MAX;
}

static bool wants_more(const struct session *session)
{
	return session->state == SESSION_RUNNING || session->state == SESSION_ENDING;
}

/* One read. False when there is nothing more to get now. */
static bool read_output(struct session_output *output)
{
	size_t room = output_room(output);
	ssize_t n;

	if (output->fd < 0 || room == 0)
		return false;
	n = ring_read(&output->ring, output->fd, room);
	if (n > 0)
		return true;
	if (n == -EAGAIN && wants_more(output->session))
		return false;
	/* The end; or, while draining, somebody else has read what was there: what we have is all. */
	if (n != -EAGAIN)
		session_close_output(output);
	if (!wants_more(output->session))
		output->limit = output->ring.end;
	return false;
}

/* Children that outlive their leader: what they write is read, so that they do not wait or die of it. */
static void discard_output(struct session_output *output)
{
	char bytes[DISCARD_BYTES];
	ssize_t n = read(output->fd, bytes, sizeof(bytes));

	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		session_close_output(output);
}

static void pause_when_full(struct session_output *output)
{
	if (output->session->state == SESSION_ENDED || output_room(output) > 0)
		return;
	/* Not by an empty event mask: the hang-up of a pipe cannot be masked, and would spin. */
	loop_remove(output->source);
	output->source = NULL;
}

static void output_ready(void *context, uint32_t events)
{
	struct session_output *output = context;
	struct session *session = output->session;

	(void)events;
	if (session->state == SESSION_ENDED) {
		discard_output(output);
		return;
	}
	read_output(output);
	session_pump(session);
	tell_reader(session);
	pause_when_full(output);
}

/* 0 or -errno. */
int session_watch_output(struct session_output *output)
{
	output->source =
		loop_add_fd(output->session->sessions->loop, output->fd, EPOLLIN, output_ready, output);
	return output->source ? 0 : -errno;
}

/* Reads on where there is room again; ends the drain when all is in. */
void session_pump(struct session *session)
{
	bool complete = session->state == SESSION_DRAINING;

	for (int i = 0; i < SESSION_OUTPUTS; i++) {
		struct session_output *output = &session->out[i];

		while (session->state == SESSION_DRAINING && read_output(output))
			;
		complete = complete && output->ring.end == output->limit;
		if (output->fd >= 0 && !output->source && session->state != SESSION_DRAINING &&
			output_room(output) > 0 && session_watch_output(output) < 0)
			session_close_output(output);
	}
	if (complete)
		session_finish_drain(session);
}

size_t session_peek(struct session *session, enum session_stream stream, struct iovec iov[2])
{
	struct session_output *output = &session->out[stream];

	return ring_span(&output->ring, output->taken, AGENT_DATA_MAX, iov);
}

void session_take(struct session *session, enum session_stream stream, size_t length)
{
	session->out[stream].taken += length;
	session_pump(session);
}

/* ---- input ---- */

void session_close_input(struct session *session)
{
	struct session_input *in = &session->in;

	loop_remove(in->source);
	in->source = NULL;
	in->waiting = false;
	fd_close(&in->fd);
	in->written = in->ring.end;
}

static void input_ready(void *context, uint32_t events);

/* 0 or -errno: EPOLLOUT is waited for, or not. */
static int wait_for_room(struct session *session, bool wait)
{
	struct session_input *in = &session->in;

	if (in->waiting == wait)
		return 0;
	in->waiting = wait;
	if (in->source)
		return loop_set_events(in->source, wait ? EPOLLOUT : 0);
	in->source = loop_add_fd(session->sessions->loop, in->fd, EPOLLOUT, input_ready, session);
	return in->source ? 0 : -errno;
}

/* False when it must wait. A terminal has no end of file: there it is typed. */
static bool end_input(struct session *session)
{
	static const char eof = TTY_EOF;

	if ((session->flags & AGENT_NEW_TTY) && write(session->in.fd, &eof, 1) < 0 && errno == EAGAIN &&
		wait_for_room(session, true) == 0)
		return false;
	session_close_input(session);
	return true;
}

/* Writes what waits; closes the pipe at its end, and when nobody reads it any more. */
static void flush_input(struct session *session)
{
	struct session_input *in = &session->in;

	while (in->fd >= 0 && in->written < in->ring.end) {
		ssize_t n = ring_write(&in->ring, in->written, in->fd);

		if (n > 0) {
			in->written += (uint64_t)n;
			continue;
		}
		if (n == -EAGAIN && wait_for_room(session, true) == 0)
			return;
		session_close_input(session);
	}
	if (in->fd >= 0 && in->eof && !end_input(session))
		return;
	if (in->fd >= 0 && wait_for_room(session, false) < 0)
		session_close_input(session);
}

static void input_ready(void *context, uint32_t events)
{
	struct session *session = context;

	if (events & (EPOLLERR | EPOLLHUP))
		session_close_input(session);
	flush_input(session);
	tell_reader(session);
}

/* Past the ring when nothing waits in it: the common case copies nothing. Returns the bytes that went. */
static size_t write_through(struct session_input *in, const void *data, size_t length)
{
	ssize_t n = 0;

	if (in->fd >= 0 && in->written == in->ring.end)
		n = write(in->fd, data, length);
	if (n <= 0)
		return 0;
	ring_skip(&in->ring, (uint64_t)n);
	in->written += (uint64_t)n;
	return (size_t)n;
}

int session_put_stdin(struct session *session, const void *data, size_t length, const char **why)
{
	struct session_input *in = &session->in;
	size_t done;

	*why = "STDIN: this session has no stdin, or it was ended";
	if (!in->open || in->eof)
		return -EPROTO;
	*why = "STDIN: more than the window";
	if (length > in->allowed - in->ring.end)
		return -EPROTO;
	done = write_through(in, data, length);
	if (in->fd < 0) {
		ring_skip(&in->ring, length);
		in->written = in->ring.end;
		return 0;
	}
	if (done < length) {
		ring_put(&in->ring, (const uint8_t *)data + done, length - done);
		flush_input(session);
	}
	return 0;
}

int session_end_stdin(struct session *session, const char **why)
{
	*why = "STDIN_EOF: this session has no stdin, or it was ended";
	if (!session->in.open || session->in.eof)
		return -EPROTO;
	session->in.eof = true;
	flush_input(session);
	return 0;
}

uint32_t session_take_credit(struct session *session)
{
	struct session_input *in = &session->in;
	uint64_t credit = in->written + AGENT_STDIN_WINDOW - in->allowed;

	if (!in->open || in->eof || credit < CREDIT_WORTH)
		return 0;
	in->allowed += credit;
	return (uint32_t)credit;
}

/* ---- the reader ---- */

static int check_offset(const struct session_output *output, uint64_t *offset, const char **why)
{
	if (*offset == AGENT_OFFSET_OLDEST)
		*offset = ring_oldest(&output->ring);
	*why = "ATTACH: output at this offset is no longer held";
	if (*offset < ring_oldest(&output->ring))
		return -ENODATA;
	*why = "ATTACH: output at this offset is not yet written";
	return *offset > output->ring.end ? -EINVAL : 0;
}

int session_attach(struct session *session, const struct session_reader *reader, uint64_t stdout_offset,
	uint64_t stderr_offset, const char **why)
{
	const struct session_reader *before = session->reader;
	int r = check_offset(&session->out[SESSION_STDOUT], &stdout_offset, why);

	if (r == 0)
		r = check_offset(&session->out[SESSION_STDERR], &stderr_offset, why);
	if (r < 0)
		return r;
	session->reader = reader;
	session->out[SESSION_STDOUT].taken = stdout_offset;
	session->out[SESSION_STDERR].taken = stderr_offset;
	session->in.allowed = session->in.written + AGENT_STDIN_WINDOW;
	if (before)
		before->replaced(before->context);
	return 0;
}

void session_detach(struct session *session)
{
	session->reader = NULL;
	session_pump(session);
}
