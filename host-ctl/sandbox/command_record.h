/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's row in the journal (journal_commands.h): there before its client is told that it was created,
 * and before the guest is asked to start it; as it ended some JOURNAL_LAZY_MS after that. What is not written
 * of an end is found out from the guest by the next daemon.
 */
#ifndef HOST_CTL_COMMAND_RECORD_H
#define HOST_CTL_COMMAND_RECORD_H

#include "host-ctl/sandbox/command.h"

/* Writes the state that it is in. 0: command_recorded will be called, unless command_record_forget is
 * before; or -1 with *error set: there is no journal, or no memory. */
int command_record(struct command *command, struct error *error);
/* Nobody waits for the row any more. */
void command_record_forget(struct command *command);
/* Writes how it ended; nobody waits for that. */
void command_record_end(struct command *command);
/* It is forgotten, and so is its row. */
void command_record_remove(struct command *command);

#endif
