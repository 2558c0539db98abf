/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The journal: what the daemon has promised and must know again after its end, however that came. It is
 * STATE-DIR/journal.db, SQLite in WAL mode, mode 0600; a commit that was acknowledged is on the disk, unless
 * it was said that it need not (journal_set_synced).
 *
 *   journal_begin ──▶ rows are read and written (journal_keys.h) ──▶ journal_commit
 *                                         └── any failure ────────▶ journal_rollback: as if never begun
 *
 * Of several who share one, each has a part: its failure, unless it is the journal's, is its own.
 *
 * One daemon has it: a lock on the folder, and SQLite's own, for as long as it is open. A damaged file is
 * moved aside, to journal.db.damaged-TIME, with a line in the log: what it had promised is not known any
 * more. Before a new one is made, in place of a damaged one or of none, the files of sandboxes, which only
 * that one can have known, are moved aside too, to sandboxes.lost-TIME: whatever an open journal does not
 * know is nobody's.
 *
 * Not bound to a thread, but for one at a time: the daemon's loop uses it by journal_queue.h.
 */
#ifndef HOST_CTL_JOURNAL_H
#define HOST_CTL_JOURNAL_H

#include "host-ctl/support/error.h"
#include <stdbool.h>
#include <stdint.h>

enum {
	JOURNAL_SCHEMA = 4,			 /* the version that this program writes */
	JOURNAL_KEYS_MAX = 65536,		 /* rows of idempotency keys */
	JOURNAL_ANSWERS_MAX = 256 * 1024 * 1024, /* bytes of their answers */
	JOURNAL_KEEP_S = 24 * 60 * 60,		 /* of a key */
};

struct journal;

struct journal_bounds {
	uint64_t keys, answer_bytes;
};

/* The present, by the clock that people set and by the one that nobody does. */
struct journal_time {
	const char *boot; /* id of the host's boot, to which boot_s belongs; the journal's */
	int64_t boot_s;	  /* CLOCK_BOOTTIME */
	int64_t wall_s;	  /* CLOCK_REALTIME */
};

/*
 * Opens or makes the one of that folder, which is made when it is missing. bounds: NULL for those above.
 * 0 with *journal the caller's; or -errno with *error set, a sentence with its mend:
 *   -EBUSY    another daemon has the folder
 *   -ENOTSUP  a newer program's
 *   -ENOSPC   no room on the disk (ERROR_EXHAUSTED)
 *   -EROFS, -EACCES, -ENOMEM, -EIO and of other system calls
 */
int journal_open(struct journal **journal, const char *state_directory, const struct journal_bounds *bounds,
	struct error *error);
/* Whether a file of that name is there, whatever it holds, unless that is nothing. True if it cannot be
 * known: then journal_open says why. */
bool journal_is_there(const char *state_directory);
/* What was there was damaged: it is moved aside, and this one is new. */
bool journal_is_anew(const struct journal *journal);
/* Takes NULL. */
void journal_close(struct journal *journal);

/*
 * Whether commits wait for the disk from now on; at first they do. One that does not is there after the
 * process's end, but perhaps not after the host's; one that does brings those before it to the disk as well.
 * Not within a transaction. 0 or -errno with *error set.
 */
int journal_set_synced(struct journal *journal, bool synced, struct error *error);

void journal_read_time(const struct journal *journal, struct journal_time *time);

/*
 * 0 or -errno with *error set; besides the above -EUCLEAN: the file was damaged while it is in use.
 * A commit that fails has rolled back.
 */
int journal_begin(struct journal *journal, struct error *error);
int journal_commit(struct journal *journal, struct error *error);
void journal_rollback(struct journal *journal);

/*
 * What comes between the two is a part of the transaction; there are no parts of parts. journal_part_undo
 * ends it as well, as if it had not begun, and the transaction goes on. Each 0, or -errno with *error set (of
 * the latter as it is, when the journal itself has failed in this part): then only journal_rollback may come.
 */
int journal_part_begin(struct journal *journal, struct error *error);
int journal_part_end(struct journal *journal, struct error *error);
int journal_part_undo(struct journal *journal, struct error *error);

#endif
