/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_stream.h"
#include "common/io.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_terminal.h"
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Sent on to the command when they come to us. */
static const int forwarded_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/*
 * Blocked and read by signalfd; one that was ignored (nohup, a background job) stays so. A broken pipe is
 * told by write: its signal is blocked, and taken back where it was raised.
 */
static int take_signals(struct cmd_stream *stream)
{
	sigset_t blocked;

	sigemptyset(&stream->forwarded);
	for (size_t i = 0; i < sizeof(forwarded_signals) / sizeof(forwarded_signals[0]); i++) {
		struct sigaction action;

		if (sigaction(forwarded_signals[i], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			sigaddset(&stream->forwarded, forwarded_signals[i]);
	}
	stream->signals = signalfd(-1, &stream->forwarded, SFD_CLOEXEC | SFD_NONBLOCK);
	if (stream->signals < 0)
		return -errno;
	blocked = stream->forwarded;
	sigaddset(&blocked, SIGPIPE);
	return sigprocmask(SIG_BLOCK, &blocked, NULL) < 0 ? -errno : 0;
}

int cmd_stream_init(struct cmd_stream *stream, struct client *client, int input, int output, int error)
{
	int r;

	*stream = (struct cmd_stream){
		.client = client,
		.input = input,
		.output = output,
		.error = error,
		.signals = -1,
		.window = AGENT_STDIN_WINDOW,
		.pending_fd = -1,
		.terminal = -1,
		.interrupted = "interrupted; the command's VM is destroyed",
	};
	sigemptyset(&stream->leaving);
	sigprocmask(SIG_SETMASK, NULL, &stream->before);
	frame_queue_init(&stream->queue, CMD_STREAM_QUEUE);
	r = frame_reader_init(&stream->reader, AGENT_FRAME_MAX);
	if (r < 0)
		return r;
	r = frame_reader_feed(&stream->reader, client->buffer + client->start, client->end - client->start);
	if (r < 0)
		return r;
	client->start = client->end = 0;
	stream->input_buffer = malloc(CMD_STREAM_INPUT);
	if (!stream->input_buffer)
		return -ENOMEM;
	r = fd_set_nonblock(client->fd);
	return r < 0 ? r : take_signals(stream);
}

int cmd_stream_watch_terminal(struct cmd_stream *stream, int terminal)
{
	sigset_t resized;

	stream->terminal = terminal;
	sigaddset(&stream->forwarded, SIGWINCH);
	if (signalfd(stream->signals, &stream->forwarded, 0) < 0)
		return -errno;
	sigemptyset(&resized);
	sigaddset(&resized, SIGWINCH);
	if (sigprocmask(SIG_BLOCK, &resized, NULL) < 0)
		return -errno;
	/* It may have another size by now than the request told. */
	raise(SIGWINCH);
	return 0;
}

void cmd_stream_finish(struct cmd_stream *stream)
{
	fd_close(&stream->signals);
	frame_reader_finish(&stream->reader);
	frame_queue_finish(&stream->queue);
	free(stream->input_buffer);
	stream->input_buffer = NULL;
	sigprocmask(SIG_SETMASK, &stream->before, NULL);
}

/* ---- to the daemon ---- */

static int fail_socket(int r, struct client_error *error)
{
	client_error_set(error, "io", "lost the daemon: %s", strerror(-r));
	return r;
}

static int put(
	struct cmd_stream *stream, uint8_t type, const void *data, size_t length, struct client_error *error)
{
	int r = frame_queue_put(&stream->queue, type, data, length, NULL, 0);

	/* Only signals can find the queue full, when thousands come to a daemon that does not read. */
	return r < 0 && r != -ENOBUFS ? fail_socket(r, error) : 0;
}

static int flush_queue(struct cmd_stream *stream, struct client_error *error)
{
	int r = frame_queue_flush(&stream->queue, stream->client->fd);

	/* What it said before it closed is still to be read. */
	if (r == -EPIPE || r == -ECONNRESET) {
		frame_queue_finish(&stream->queue);
		stream->input = -1;
		return 0;
	}
	return r < 0 ? fail_socket(r, error) : 0;
}

static int read_input(struct cmd_stream *stream, struct client_error *error)
{
	size_t room = stream->window < CMD_STREAM_INPUT ? stream->window : CMD_STREAM_INPUT;
	ssize_t n = read(stream->input, stream->input_buffer, room);
	int r;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n < 0) {
		r = -errno;
		client_error_set(error, "io", "cannot read standard input: %s", strerror(-r));
		return r;
	}
	if (n == 0) {
		stream->input = -1;
		return put(stream, AGENT_STDIN_EOF, NULL, 0, error);
	}
	stream->window -= (uint32_t)n;
	return put(stream, AGENT_STDIN, stream->input_buffer, (size_t)n, error);
}

static int leave(struct cmd_stream *stream, int by, struct client_error *error)
{
	stream->left_by = by;
	client_error_set(error, "incomplete", "%s", stream->interrupted);
	return -EINTR;
}

/* An interrupt of the user's: the command's, then the session's end, then ours. */
static int interrupt(struct cmd_stream *stream, struct client_error *error)
{
	uint64_t now = now_ns();

	if (stream->interrupts == 0 ||
		(stream->interrupts == 1 && now - stream->first_interrupt_ns > CMD_STREAM_KILL_NS)) {
		stream->interrupts = 0;
		stream->first_interrupt_ns = now;
	}
	stream->interrupts++;
	if (stream->interrupts == 1) {
		struct agent_signal signal = {.signal = SIGINT};

		return put(stream, AGENT_SIGNAL, &signal, sizeof(signal), error);
	}
	if (stream->interrupts == 2)
		return put(stream, AGENT_KILL, NULL, 0, error);
	return leave(stream, SIGINT, error);
}

static int resize(struct cmd_stream *stream, struct client_error *error)
{
	struct agent_resize size;

	cmd_terminal_size(stream->terminal, &size);
	return put(stream, AGENT_RESIZE, &size, sizeof(size), error);
}

static int read_signals(struct cmd_stream *stream, struct client_error *error)
{
	struct signalfd_siginfo info;
	int r = 0;

	while (r == 0 && read(stream->signals, &info, sizeof(info)) == sizeof(info)) {
		struct agent_signal signal = {.signal = info.ssi_signo};

		if (info.ssi_signo == SIGINT)
			r = interrupt(stream, error);
		else if (info.ssi_signo == SIGWINCH)
			r = resize(stream, error);
		else if (sigismember(&stream->leaving, (int)info.ssi_signo))
			r = leave(stream, (int)info.ssi_signo, error);
		else
			r = put(stream, AGENT_SIGNAL, &signal, sizeof(signal), error);
	}
	return r;
}

/* ---- from the daemon ---- */

static int fail_protocol(struct client_error *error, const char *what)
{
	client_error_set(error, "protocol", "the daemon broke the protocol: %s", what);
	return -EPROTO;
}

/* Where it begins, of who attached late. */
static void begin_late(struct cmd_stream *stream, bool is_error, uint64_t offset)
{
	if (!stream->late[is_error])
		return;
	stream->late[is_error] = false;
	stream->received[is_error] = offset;
	if (offset > 0)
		cli_fail("the first %llu bytes of standard %s are not shown: `host-ctl logs` has what is "
			 "held of them",
			(unsigned long long)offset, is_error ? "error" : "output");
}

static int take_output(struct cmd_stream *stream, const struct frame *frame, struct client_error *error)
{
	bool is_error = frame->type == AGENT_STDERR;
	struct agent_output output;

	if (frame->length < sizeof(output))
		return fail_protocol(error, "output without its offset");
	memcpy(&output, frame->payload, sizeof(output));
	begin_late(stream, is_error, output.offset);
	if (output.offset != stream->received[is_error])
		return fail_protocol(error, "output that does not join on to what came before");
	stream->pending = frame->payload + sizeof(output);
	stream->pending_length = frame->length - sizeof(output);
	stream->pending_fd = is_error ? stream->error : stream->output;
	stream->received[is_error] += stream->pending_length;
	return 0;
}

static int take_credit(struct cmd_stream *stream, const struct frame *frame, struct client_error *error)
{
	struct agent_credit credit;

	if (frame->length != sizeof(credit))
		return fail_protocol(error, "credit of another size");
	memcpy(&credit, frame->payload, sizeof(credit));
	if (credit.bytes > CMD_STREAM_WINDOW_MAX - stream->window)
		stream->window = CMD_STREAM_WINDOW_MAX;
	else
		stream->window += credit.bytes;
	return 0;
}

static int take_exit(struct cmd_stream *stream, const struct frame *frame, struct client_error *error)
{
	struct cmd_result *result = &stream->result;

	if (cmd_result_from_frame(result, frame) < 0)
		return fail_protocol(error, "a terminal frame that makes no sense");
	/* Of what nothing came before the end, nothing is held. */
	begin_late(stream, false, result->stdout_bytes);
	begin_late(stream, true, result->stderr_bytes);
	/* A child in the background may have written more since; less cannot have been written. */
	if (result->stdout_bytes > stream->received[0] || result->stderr_bytes > stream->received[1])
		return fail_protocol(error, "output is missing before the terminal frame");
	stream->exited = true;
	return 0;
}

static int take_host_error(const struct frame *frame, struct client_error *error)
{
	json_t *object = json_loadb((const char *)frame->payload, frame->length, 0, NULL);
	int r = object ? client_error_parse(error, object) : -EPROTO;

	json_decref(object);
	if (r < 0)
		return fail_protocol(error, "an error frame without an error object");
	error->http_status = 101;
	return -EREMOTEIO;
}

static int take_frame(struct cmd_stream *stream, const struct frame *frame, struct client_error *error)
{
	switch (frame->type) {
	case AGENT_STARTED:
		return frame->length == sizeof(struct agent_started)
			       ? 0
			       : fail_protocol(error, "a start of another size");
	case AGENT_STDOUT:
	case AGENT_STDERR:
		return take_output(stream, frame, error);
	case AGENT_STDIN_CREDIT:
		return take_credit(stream, frame, error);
	case AGENT_EXIT:
		return take_exit(stream, frame, error);
	case AGENT_HOST_ERROR:
		return take_host_error(frame, error);
	default:
		return fail_protocol(error, "a frame that may not come from it");
	}
}

/* Takes whole frames until output is to be written, the command has ended, or bytes are wanting. */
static int take_frames(struct cmd_stream *stream, struct client_error *error)
{
	while (!stream->exited && stream->pending_length == 0) {
		struct frame frame;
		int r = frame_reader_next(&stream->reader, &frame);

		if (r == 0)
			return 0;
		if (r == -ENOMEM)
			return fail_socket(r, error);
		if (r < 0)
			return fail_protocol(error, "a frame header that makes no sense");
		r = take_frame(stream, &frame, error);
		if (r < 0)
			return r;
	}
	return 0;
}

static int read_socket(struct cmd_stream *stream, struct client_error *error)
{
	int r = frame_reader_fill(&stream->reader, stream->client->fd);

	if (r == -EAGAIN)
		return 0;
	if (r < 0 && r != -ECONNRESET)
		return fail_socket(r, error);
	if (r > 0)
		return take_frames(stream, error);
	client_error_set(error, "incomplete", "the daemon closed the stream without a result%s",
		frame_reader_partial(&stream->reader) ? ", within a frame" : "");
	return -ECONNRESET;
}

/* ---- to the standard streams ---- */

static void discard_broken_pipe(void)
{
	struct timespec at_once = {0};
	sigset_t pipe;

	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigtimedwait(&pipe, NULL, &at_once);
}

/* Writes what cannot block now that the fd is writable: a pipe has a page free then, a file takes all. */
static ssize_t write_some(int fd, const uint8_t *data, size_t length)
{
	struct stat stat_buffer;
	mode_t mode = fstat(fd, &stat_buffer) == 0 ? stat_buffer.st_mode : 0;

	if (S_ISSOCK(mode))
		return send(fd, data, length, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (!S_ISREG(mode) && length > PIPE_BUF)
		length = PIPE_BUF;
	return write(fd, data, length);
}

static int write_output(struct cmd_stream *stream, struct client_error *error)
{
	ssize_t n = write_some(stream->pending_fd, stream->pending, stream->pending_length);
	int r;

	if (n < 0 && (errno == EINTR || errno == EAGAIN))
		return 0;
	if (n < 0) {
		r = -errno;
		if (r == -EPIPE)
			discard_broken_pipe();
		client_error_set(error, "io", "cannot write to standard %s: %s",
			stream->pending_fd == stream->error ? "error" : "output", strerror(-r));
		return r;
	}
	stream->pending += n;
	stream->pending_length -= (size_t)n;
	return stream->pending_length ? 0 : take_frames(stream, error);
}

/* ---- the loop ---- */

enum { POLL_SOCKET, POLL_SIGNALS, POLL_INPUT, POLL_OUTPUT, POLL_COUNT };

static void prepare_poll(const struct cmd_stream *stream, struct pollfd poll_fds[POLL_COUNT])
{
	bool waits = frame_queue_length(&stream->queue) > 0;
	bool reads = stream->pending_length == 0;
	bool wants_input = stream->input >= 0 && stream->window > 0 && !waits;

	poll_fds[POLL_SOCKET] = (struct pollfd){
		.fd = reads || waits ? stream->client->fd : -1,
		.events = (short)((reads ? POLLIN : 0) | (waits ? POLLOUT : 0)),
	};
	poll_fds[POLL_SIGNALS] = (struct pollfd){.fd = stream->signals, .events = POLLIN};
	poll_fds[POLL_INPUT] = (struct pollfd){.fd = wants_input ? stream->input : -1, .events = POLLIN};
	poll_fds[POLL_OUTPUT] = (struct pollfd){.fd = reads ? -1 : stream->pending_fd, .events = POLLOUT};
}

static int turn(struct cmd_stream *stream, struct client_error *error)
{
	struct pollfd poll_fds[POLL_COUNT];
	int r = 0;

	prepare_poll(stream, poll_fds);
	if (poll(poll_fds, POLL_COUNT, -1) < 0)
		return errno == EINTR ? 0 : fail_socket(-errno, error);
	if (poll_fds[POLL_SIGNALS].revents)
		r = read_signals(stream, error);
	if (r == 0 && poll_fds[POLL_OUTPUT].revents)
		r = write_output(stream, error);
	if (r == 0 && poll_fds[POLL_INPUT].revents && !stream->exited)
		r = read_input(stream, error);
	/* Hang-up and error are found by the read, after all that came before them. */
	if (r == 0 && poll_fds[POLL_SOCKET].revents && stream->pending_length == 0 && !stream->exited)
		r = read_socket(stream, error);
	if (r == 0)
		r = flush_queue(stream, error);
	return r;
}

int cmd_stream_run(struct cmd_stream *stream, struct client_error *error)
{
	int r = take_frames(stream, error);

	while (r == 0 && !(stream->exited && stream->pending_length == 0))
		r = turn(stream, error);
	return r;
}
