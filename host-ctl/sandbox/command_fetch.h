/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The output of commands that had ended under an earlier daemon. Their results are in the journal; their
 * output is their guest's to give, as long as that holds their sessions (docs/agent-protocol.md).
 *
 * When the sandbox is ready they are attached to, one after another, read to the end, and let go; what a
 * pause interrupts is begun anew after it. What the guest does not hold, or holds otherwise than the result
 * says, is lost. A guest that takes no stream, or has not told all within COMMAND_FETCH_MS, is asked for
 * nothing more: the rest is lost as well. One that breaks the protocol fails its sandbox, as with any command
 * (command.h).
 */
#ifndef HOST_CTL_COMMAND_FETCH_H
#define HOST_CTL_COMMAND_FETCH_H

#include "host-ctl/sandbox/command.h"

enum {
	COMMAND_FETCH_MS = 10 * 1000, /* for the output of one */
	COMMAND_FETCH_RETRY_MS = 100, /* while the vmm has VM_ASKED_MAX requests to answer */
};

/* That of this command is to be fetched, before it is known as lost (command->fetches). One whose sandbox has
 * no VM, and one for which there is no memory, stay as they are. */
void command_fetch(struct command *command);
/* What is not fetched by now is lost. Takes a sandbox of which nothing is. */
void command_fetch_end(struct sandbox *sandbox);

#endif
