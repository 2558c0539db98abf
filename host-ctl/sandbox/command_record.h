/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A command's row in the journal (journal_commands.h): there before its client is told that it was created,
 * and before the guest is asked to start it; as it ended some JOURNAL_LAZY_MS after that. What the journal
 * could not take of an end, or of its removal, is written at last (journal_again.h); what a daemon that is
 * killed has not written of an end, the next one finds out from the guest, if that is still there.
 */
#ifndef HOST_CTL_COMMAND_RECORD_H
#define HOST_CTL_COMMAND_RECORD_H

#include "host-ctl/sandbox/command.h"
#include "host-ctl/sandbox/commands.h"

/* Beyond so many rows that are to be written at last, removals are not among them: a journal that takes
 * nothing does not make the daemon grow. The ends of commands are at most the commands that there are. */
enum { COMMAND_RECORDS_UNDONE_MAX = 2 * COMMANDS_ALL_MAX };

/* Writes the state that it is in. 0: command_recorded will be called, unless command_record_forget is
 * before; or -1 with *error set: there is no journal, or no memory. */
int command_record(struct command *command, struct error *error);
/* Nobody waits for the row any more. */
void command_record_forget(struct command *command);
/* Writes how it ended; nobody waits for that. */
void command_record_end(struct command *command);
/* With its sandbox's its row has gone, or is about to: how it ended is not to be written after that. */
void command_record_leave(struct command *command);
/* It is forgotten, and so is its row. */
void command_record_remove(struct command *command);

#endif
