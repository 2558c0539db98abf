/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The upgraded form of a run, seen from the client: frames on the socket, bytes on the standard streams.
 *
 *  - Output goes out byte for byte and in order. A slow reader of it holds up the run, never this memory:
 *    one frame is kept. Standard streams are written without changing their flags, which other processes
 *    share: as much at a time as cannot block.
 *  - Standard input is read when the command's window has room (AGENT_STDIN_WINDOW, then STDIN_CREDIT), at
 *    most CMD_STREAM_INPUT bytes ahead.
 *  - INT, TERM, HUP, QUIT, USR1 and USR2 go to the command, but those that were ignored at our start. A
 *    second INT within CMD_STREAM_KILL_NS asks for the end of the whole session (KILL); the next one leaves
 *    at once, upon which the daemon destroys the VM. Whoever only follows a command says which signals it
 *    leaves by instead (leaving).
 *  - A standard output or error whose reader is gone ends the run as a broken pipe ends any program: SIGPIPE.
 *  - Who attaches late, and does not say where, is told on standard error how much is not shown.
 */
#ifndef HOST_CTL_CMD_STREAM_H
#define HOST_CTL_CMD_STREAM_H

#include "common/frame.h"
#include "host-ctl/cli/client.h"
#include "host-ctl/cli/cmd_result.h"
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CMD_STREAM_INPUT = AGENT_DATA_MAX,
	CMD_STREAM_QUEUE = 128 * 1024, /* bytes that wait for the socket: one input frame and signals */
	CMD_STREAM_WINDOW_MAX = 64 * 1024 * 1024, /* more credit than this is not counted */
	CMD_STREAM_KILL_NS = 2000000000,
};

/* What stands between a client and the standard streams while a command runs. */
struct cmd_stream {
	struct client *client;
	struct frame_reader reader;
	struct frame_queue queue;
	int input, output, error;   /* fds of the standard streams; input -1: none, or ended */
	int signals;		    /* signalfd */
	sigset_t forwarded, before; /* the signals read there; the mask to restore */
	uint32_t window;	    /* input bytes that may be sent */
	uint8_t *input_buffer;
	const uint8_t *pending; /* output not written yet, within the reader's buffer */
	size_t pending_length;
	int pending_fd;
	uint64_t received[2];	 /* bytes of stdout and stderr; where they begin, when it attaches late */
	bool late[2];		 /* their first byte says where they begin; set after init */
	int terminal;		 /* whose size is the command's; -1: none */
	const char *interrupted; /* what is said when we leave by a signal */
	uint64_t first_interrupt_ns;
	unsigned int interrupts;
	sigset_t leaving; /* of those read, these end the run instead of going on; set after init */
	int left_by;	  /* the signal upon which we left */
	bool exited;
	struct cmd_result result;
};

/*
 * Prepares for the frames of a client that has upgraded. The fds and the client stay the caller's; the
 * client's socket becomes non-blocking, the signals above are blocked. input: -1 for none. 0 or -errno.
 */
int cmd_stream_init(struct cmd_stream *stream, struct client *client, int input, int output, int error);
/* After init: tells the command each new size of that terminal. 0 or -errno. */
int cmd_stream_watch_terminal(struct cmd_stream *stream, int terminal);
/* Restores the signal mask. Takes one whose init failed. */
void cmd_stream_finish(struct cmd_stream *stream);

/*
 * Runs until the terminal frame. 0: stream->result is set. Otherwise error is set:
 *   -EPIPE       the reader of an output stream is gone
 *   -EINTR       left at the third interrupt, or by a signal of leaving: stream->left_by says which
 *   -EREMOTEIO   the daemon's error (HOST_ERROR)
 *   -ECONNRESET  the stream ended without a terminal frame
 *   -EPROTO      a frame that may not come, output that does not join on, or output missing at the end
 *   -errno       a standard stream or the socket
 */
int cmd_stream_run(struct cmd_stream *stream, struct client_error *error);

#endif
