/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of commands in sandboxes: what a later daemon needs to know one again, to attach to its session in the
 * guest, and to tell its result.
 *
 *   none ──▶ CREATED ──▶ STARTED ──▶ ENDED ──▶ none, also with its sandbox
 *     └─────────────────────▲
 *
 * STARTED is written before the guest is asked, so it may have begun. None of it waits for the disk
 * (journal_queue.h): the end of the daemon loses nothing that was committed, and that of the host ends the
 * VMs too, so that there is nothing to attach to.
 *
 * But for the last, these are called within a transaction, and return 0 or -errno with *error set, as of
 * journal_begin.
 */
#ifndef HOST_CTL_JOURNAL_COMMANDS_H
#define HOST_CTL_JOURNAL_COMMANDS_H

#include "common/proto_guest.h"
#include "host-ctl/journal/journal.h"
#include <stdbool.h>
#include <stddef.h>

enum { JOURNAL_COMMAND_ID = 24, JOURNAL_COMMAND_SANDBOX = 24, JOURNAL_COMMAND_NAME = 128 };

enum journal_command_state {
	JOURNAL_COMMAND_CREATED,
	JOURNAL_COMMAND_STARTED,
	JOURNAL_COMMAND_ENDED,
	JOURNAL_COMMAND_STATES
};

enum journal_command_flags {
	JOURNAL_COMMAND_KEEP = 1 << 0,	  /* on_detach */
	JOURNAL_COMMAND_WAKES = 1 << 1,	  /* a paused sandbox */
	JOURNAL_COMMAND_INPUT = 1 << 2,	  /* stdin is not /dev/null */
	JOURNAL_COMMAND_STREAMS = 1 << 3, /* and comes as frames */
	JOURNAL_COMMAND_TTY = 1 << 4,
	JOURNAL_COMMAND_BY_HOST = 1 << 5,   /* timed out, and the host had to enforce it */
	JOURNAL_COMMAND_UNCOUNTED = 1 << 6, /* it may have written more than `exit` counts */
};

/* Bytes, from malloc when they were read. */
struct journal_bytes {
	uint8_t *bytes;
	size_t length;
};

struct journal_command {
	char id[JOURNAL_COMMAND_ID], sandbox[JOURNAL_COMMAND_SANDBOX];
	enum journal_command_state state;
	unsigned int flags;
	uint64_t session; /* in the guest; 0: none yet */
	unsigned int output_max;
	uint64_t timeout_ms, created_ms, started_ms, ended_ms;
	char name[JOURNAL_COMMAND_NAME]; /* argv[0], for people */
	struct journal_bytes payload;	 /* CREATED: of its NEW frame */
	struct journal_bytes input;	 /* not ENDED: stdin that came with the request */
	struct error error;		 /* ENDED: kind ERROR_NONE: there is an exit */
	struct agent_exit exit;		 /* ENDED; of an error, the bytes that were written */
	uint64_t queued_us, first_byte_us, total_us;
};

/* One that is new, or in place of what was there of that id. */
int journal_command_put(struct journal *journal, const struct journal_command *command, struct error *error);
int journal_command_remove(struct journal *journal, const char *id, struct error *error);
/* All of a sandbox's. */
int journal_commands_remove_of(struct journal *journal, const char *sandbox, struct error *error);

/* All of sandboxes that have a row, the oldest first, at most `room`; the others are removed. *commands: the
 * caller's, to be given to journal_commands_free. How many, or -errno with *error set. */
int journal_commands_read(
	struct journal *journal, size_t room, struct journal_command **commands, struct error *error);
void journal_commands_free(struct journal_command *commands, int count);

#endif
