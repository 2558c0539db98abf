/* SPDX-License-Identifier: Apache-2.0 */
/* Between command.c (life and readers) and command_run.c (what happens while it runs). */
#ifndef HOST_CTL_COMMAND_PRIVATE_H
#define HOST_CTL_COMMAND_PRIVATE_H

#include "host-ctl/sandbox/command.h"

/* Its result is there, but for times and places. Any state but ENDED. */
void command_end(struct command *command, const struct run_result *result);
/* The same, for an error. */
void command_fail(struct command *command, enum error_kind kind, const char *message, const char *cause);

/* One with an id and random bytes, known to nobody. NULL without memory. */
struct command *command_make(struct sandbox *sandbox);
/* To WAKING: it counts as running, and follows its sandbox. 0, or -ENOMEM: nothing was done. */
int command_begin(struct command *command);
/* Its row is written; or, with an error (else NULL), it is not. */
void command_recorded(struct command *command, const struct error *error);
/* There is more output, or it has ended: whoever waits is told, which neither adds nor removes one. */
void command_tell(struct command *command);

/* A READY sandbox: to CONNECTING, and on. */
void command_connect(struct command *command);
/* Its clock: in that phase from now on. */
void command_set_phase(struct command *command, enum command_phase phase, uint64_t milliseconds);
/* The time of the phase is over. */
void command_time_is_up(struct command *command);
/* The sandbox went into another state. */
void command_sandbox_changed(struct command *command);
/* Its sandbox is suspended: its guest keeps its session, and it is attached to again when that is ready. What
 * the guest has sent is read before. Takes one in any state. */
void command_sleep(struct command *command);
/* A stream to the agent came, or did not. */
void command_stream_replied(struct command *command, int status, int fd);

#endif
