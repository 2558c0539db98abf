/* SPDX-License-Identifier: Apache-2.0 */
/* Between journal.c, which has the database, and those that have its tables. */
#ifndef HOST_CTL_JOURNAL_PRIVATE_H
#define HOST_CTL_JOURNAL_PRIVATE_H

#include "host-ctl/journal/journal.h"
#include <limits.h>
#include <sqlite3.h>
#include <stdbool.h>

enum { JOURNAL_BOOT_ID = 37 };

/* Prepared when first used, kept until the journal is closed. */
enum journal_statement {
	JOURNAL_BEGIN,
	JOURNAL_COMMIT,
	JOURNAL_ROLLBACK,
	JOURNAL_PART_BEGIN,
	JOURNAL_PART_UNDO,
	JOURNAL_PART_END,
	JOURNAL_COUNT_KEYS,
	JOURNAL_COUNT_ANSWERS,
	JOURNAL_FIND_KEY,
	JOURNAL_OLDEST_KEYS,
	JOURNAL_OLDEST_ENDED,
	JOURNAL_OLDEST_ANSWER,
	JOURNAL_ADD_KEY,
	JOURNAL_END_KEY,
	JOURNAL_REMOVE_KEY,
	JOURNAL_GET_ANSWER,
	JOURNAL_ADD_ANSWER,
	JOURNAL_ANSWER_SIZE,
	JOURNAL_REMOVE_ANSWER,
	JOURNAL_PUT_SANDBOX,
	JOURNAL_REMOVE_SANDBOX,
	JOURNAL_READ_SANDBOXES,
	JOURNAL_PUT_COMMAND,
	JOURNAL_REMOVE_COMMAND,
	JOURNAL_REMOVE_COMMANDS_OF,
	JOURNAL_REMOVE_STRAY_COMMANDS,
	JOURNAL_READ_COMMANDS,
	JOURNAL_STATEMENTS
};

/* So many keys are that user's. */
struct journal_share {
	int64_t uid;
	uint64_t keys;
};

struct journal {
	sqlite3 *db;
	sqlite3_stmt *statements[JOURNAL_STATEMENTS];
	int folder; /* locked; -1: not open */
	char path[PATH_MAX], boot[JOURNAL_BOOT_ID];
	struct journal_bounds bounds;
	bool unsynced; /* commits do not wait for the disk */
	bool anew;     /* made in place of a damaged one */
	/* As the tables have it; read anew (counted false) after a rollback. */
	bool counted;
	uint64_t keys, answer_bytes;
	struct journal_share *shares; /* of the keys, of each user that has any */
	size_t share_count, share_room;
	int part_changes; /* of rows, before the part of the transaction that is under way */
	bool failed;	  /* SQLite, in this transaction, in a way that is not one statement's alone */
};

/* Reads journal->keys and the shares. 0 or -errno with *error set. For journal.c. */
int journal_keys_count(struct journal *journal, struct error *error);

/* Ready for its first step, nothing bound. NULL with *error set. */
sqlite3_stmt *journal_statement(struct journal *journal, enum journal_statement which, struct error *error);
/* 1: there is a row; 0: there is none, or none more, and the statement is reset; -errno with *error set. */
int journal_step(struct journal *journal, sqlite3_stmt *statement, struct error *error);
/* Steps a statement that gives no rows. 0 or -errno with *error set. */
int journal_do(struct journal *journal, sqlite3_stmt *statement, struct error *error);

#endif
