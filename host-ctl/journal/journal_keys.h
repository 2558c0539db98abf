/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of idempotency keys: what was asked under one, and what was answered.
 *
 *   none ──begin──▶ BEGUN ──end──▶ ANSWERED ──the bytes are needed──▶ ENDED
 *                     └─forget─▶ none          24 h after begin: none
 *
 * The age of a row of this boot is told by the clock that nobody sets; of an earlier boot by the other, and
 * then a clock that was set back makes it last longer, not shorter. Bounded by journal_bounds: beyond
 * `answer_bytes` the oldest answers go first; beyond `keys` the oldest that is not BEGUN of the uid that has
 * the most, so that no uid loses one while it has no more than `keys` divided by how many uids have any. When
 * all of that one's are BEGUN, a new key is -ENOSPC.
 *
 * Each is called within a transaction, and returns 0 or -errno with *error set, as of journal_begin.
 */
#ifndef HOST_CTL_JOURNAL_KEYS_H
#define HOST_CTL_JOURNAL_KEYS_H

#include "host-ctl/journal/journal.h"
#include <stddef.h>
#include <sys/types.h>

enum {
	JOURNAL_KEY_MAX = 128, /* characters */
	JOURNAL_DIGEST = 16,
	JOURNAL_TYPE_MAX = 64,
	JOURNAL_ANSWER_MAX = 4 * 1024 * 1024, /* a longer one is not kept: the key is ENDED at once */
};

/* A request under a key. */
struct journal_key {
	const char *key, *target; /* such as "POST /v1/run" */
	uid_t uid;
	uint8_t digest[JOURNAL_DIGEST]; /* of its body */
};

struct journal_answer {
	unsigned int status;
	char type[JOURNAL_TYPE_MAX]; /* of its content */
	char *body;		     /* from malloc; NULL: there is none to keep */
	size_t length;
};

enum journal_key_state {
	JOURNAL_KEY_NEW,      /* it was free, and is BEGUN now */
	JOURNAL_KEY_OTHER,    /* another request's */
	JOURNAL_KEY_BEGUN,    /* this request's, without an answer */
	JOURNAL_KEY_ANSWERED, /* *answer is what it was, its body the caller's */
	JOURNAL_KEY_ENDED,    /* it was answered; the answer is not kept */
};

int journal_key_begin(struct journal *journal, const struct journal_key *key, const struct journal_time *now,
	enum journal_key_state *state, struct journal_answer *answer, struct error *error);
/* A key that is not BEGUN any more stays as it is. */
int journal_key_end(
	struct journal *journal, const char *key, const struct journal_answer *answer, struct error *error);
/* Nothing was done under it. */
int journal_key_forget(struct journal *journal, const char *key, struct error *error);

#endif
