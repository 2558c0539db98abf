/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a command ended, from the terminal frame or from the JSON result, and the exit status that tells it
 * as shells, timeout(1) and containers do:
 *
 *   exited(n)                     n
 *   signalled(n)                  128 + n
 *   timed out                     124
 *   out of memory, killed         137 (128 + SIGKILL)
 *   failed to start               127 when the command does not exist; 126 when it cannot be executed, or the
 *                                 user or the working directory cannot be had; 125 when the guest failed
 */
#ifndef HOST_CTL_CMD_RESULT_H
#define HOST_CTL_CMD_RESULT_H

#include "common/frame.h"
#include "common/proto_guest.h"
#include "host-ctl/cli/cmd_options.h"
#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum {
	CMD_STATUS_TIMED_OUT = 124,
	CMD_STATUS_FAILED = 125, /* CLI_FAILURE */
	CMD_STATUS_NOT_EXECUTABLE = 126,
	CMD_STATUS_NOT_FOUND = 127,
	CMD_STATUS_SIGNAL = 128,
};

struct cmd_result {
	enum agent_exit_kind kind;
	int code; /* exit status, signal or errno, by kind */
	enum agent_start_step step;
	uint64_t stdout_bytes, stderr_bytes;
};

/* 0, or -EPROTO: not of the struct's size, an unknown kind, or a code that the kind cannot have. */
int cmd_result_from_frame(struct cmd_result *result, const struct frame *frame);
/* From the answer of POST /v1/run. 0 or -EPROTO. */
int cmd_result_from_json(struct cmd_result *result, const json_t *answer);

int cmd_result_status(const struct cmd_result *result);
/* The sentence for people, for the command of the options; empty when the exit status says it all. */
void cmd_result_describe(
	const struct cmd_result *result, const struct cmd_options *options, char *text, size_t size);

#endif
