/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/journal/journal_keys.h"
#include "host-ctl/journal/journal_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	SWEEP = 8,  /* old rows removed with each new one */
	SHARES = 8, /* users that there is room for at first */
	/* columns of the rows that are looked at */
	SEQUENCE = 0,
	BOOT,
	BOOT_S,
	WALL_S,
	UID,
	TARGET,
	DIGEST,
	ENDED,
};

/* --- whose they are --- */

static struct journal_share *find_share(const struct journal *journal, int64_t uid)
{
	for (size_t i = 0; i < journal->share_count; i++)
		if (journal->shares[i].uid == uid)
			return &journal->shares[i];
	return NULL;
}

/* So many more. 0, or -ENOMEM with *error set. */
static int note_share(struct journal *journal, int64_t uid, uint64_t keys, struct error *error)
{
	struct journal_share *share = find_share(journal, uid);

	if (!share && journal->share_count == journal->share_room) {
		size_t room = journal->share_room ? 2 * journal->share_room : SHARES;
		struct journal_share *shares = realloc(journal->shares, room * sizeof *shares);

		if (!shares) {
			error_set(error, ERROR_INTERNAL, "out of memory for the journal");
			return -ENOMEM;
		}
		journal->shares = shares;
		journal->share_room = room;
	}
	if (!share) {
		share = &journal->shares[journal->share_count++];
		*share = (struct journal_share){.uid = uid};
	}
	share->keys += keys;
	journal->keys += keys;
	return 0;
}

/* One less. */
static void forget_share(struct journal *journal, int64_t uid)
{
	struct journal_share *share = find_share(journal, uid);

	journal->keys--;
	if (share && --share->keys == 0)
		*share = journal->shares[--journal->share_count];
}

/* There are keys. Of several the one of that uid, whose share is to be larger by one. */
static const struct journal_share *find_largest(const struct journal *journal, int64_t uid)
{
	const struct journal_share *largest = &journal->shares[0];

	for (size_t i = 1; i < journal->share_count; i++) {
		const struct journal_share *share = &journal->shares[i];

		if (share->keys + (share->uid == uid) > largest->keys + (largest->uid == uid))
			largest = share;
	}
	return largest;
}

int journal_keys_count(struct journal *journal, struct error *error)
{
	sqlite3_stmt *row = journal_statement(journal, JOURNAL_COUNT_KEYS, error);
	int status = row ? journal_step(journal, row, error) : -EIO;

	journal->keys = 0;
	journal->share_count = 0;
	while (status == 1) {
		status = note_share(
			journal, sqlite3_column_int64(row, 0), (uint64_t)sqlite3_column_int64(row, 1), error);
		if (!status)
			status = journal_step(journal, row, error);
	}
	if (row)
		sqlite3_reset(row);
	return status;
}

/* --- rows --- */

static bool is_over(sqlite3_stmt *row, const struct journal_time *now)
{
	const char *boot = (const char *)sqlite3_column_text(row, BOOT);

	if (boot && !strcmp(boot, now->boot))
		return now->boot_s - sqlite3_column_int64(row, BOOT_S) >= JOURNAL_KEEP_S;
	return now->wall_s - sqlite3_column_int64(row, WALL_S) >= JOURNAL_KEEP_S;
}

static bool is_same(sqlite3_stmt *row, const struct journal_key *key)
{
	const char *target = (const char *)sqlite3_column_text(row, TARGET);
	const void *digest = sqlite3_column_blob(row, DIGEST);

	return sqlite3_column_int64(row, UID) == (int64_t)key->uid && target &&
	       !strcmp(target, key->target) && sqlite3_column_bytes(row, DIGEST) == JOURNAL_DIGEST &&
	       !memcmp(digest, key->digest, JOURNAL_DIGEST);
}

/* Steps a statement for one row. 1, 0 or -errno. */
static int step_with(struct journal *journal, sqlite3_stmt **statement, enum journal_statement which,
	int64_t number, struct error *error)
{
	*statement = journal_statement(journal, which, error);
	if (!*statement)
		return -EIO;
	if (sqlite3_bind_parameter_count(*statement))
		sqlite3_bind_int64(*statement, 1, number);
	return journal_step(journal, *statement, error);
}

static int remove_answer(struct journal *journal, int64_t sequence, struct error *error)
{
	sqlite3_stmt *statement;
	int status = step_with(journal, &statement, JOURNAL_ANSWER_SIZE, sequence, error);

	if (status <= 0)
		return status;
	journal->answer_bytes -= (uint64_t)sqlite3_column_int64(statement, 0);
	sqlite3_reset(statement);
	return step_with(journal, &statement, JOURNAL_REMOVE_ANSWER, sequence, error);
}

static int remove_key(struct journal *journal, int64_t sequence, struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int status = remove_answer(journal, sequence, error);

	if (!status)
		status = step_with(journal, &statement, JOURNAL_REMOVE_KEY, sequence, error);
	if (status <= 0)
		return status;
	forget_share(journal, sqlite3_column_int64(statement, 0));
	sqlite3_reset(statement);
	return 0;
}

/* Some of those whose time is over, if they are the oldest. */
static int sweep(struct journal *journal, const struct journal_time *now, struct error *error)
{
	int64_t over[SWEEP];
	size_t count = 0;
	sqlite3_stmt *row;
	int status = step_with(journal, &row, JOURNAL_OLDEST_KEYS, SWEEP, error);

	for (; status == 1; status = journal_step(journal, row, error))
		if (is_over(row, now))
			over[count++] = sqlite3_column_int64(row, SEQUENCE);
	for (size_t i = 0; i < count && !status; i++)
		status = remove_key(journal, over[i], error);
	return status;
}

/* The key that is the oldest answered one of whoever has the most, with the new one counted as uid's: so it
 * is nobody's who has no more than an equal share. */
static int make_room(struct journal *journal, uid_t uid, struct error *error)
{
	sqlite3_stmt *row;
	int status = 0;

	while (!status && journal->keys >= journal->bounds.keys) {
		const struct journal_share *largest = find_largest(journal, uid);
		int64_t oldest;

		status = step_with(journal, &row, JOURNAL_OLDEST_ENDED, largest->uid, error);
		if (status == 0) {
			error_set(error, ERROR_EXHAUSTED,
				"%llu requests with an Idempotency-Key are under way",
				(unsigned long long)largest->keys);
			return -ENOSPC;
		}
		if (status < 0)
			return status;
		oldest = sqlite3_column_int64(row, 0);
		sqlite3_reset(row);
		status = remove_key(journal, oldest, error);
	}
	return status;
}

static int add_key(struct journal *journal, const struct journal_key *key, const struct journal_time *now,
	struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_ADD_KEY, error);
	int status;

	if (!statement)
		return -EIO;
	sqlite3_bind_text(statement, 1, key->key, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 2, key->uid);
	sqlite3_bind_text(statement, 3, key->target, -1, SQLITE_STATIC);
	sqlite3_bind_blob(statement, 4, key->digest, sizeof key->digest, SQLITE_STATIC);
	sqlite3_bind_text(statement, 5, now->boot, -1, SQLITE_STATIC);
	sqlite3_bind_int64(statement, 6, now->boot_s);
	sqlite3_bind_int64(statement, 7, now->wall_s);
	status = journal_do(journal, statement, error);
	return status ? status : note_share(journal, key->uid, 1, error);
}

/* 1: *state and *answer are set; 0: there is no answer; -errno. */
static int read_answer(struct journal *journal, int64_t sequence, enum journal_key_state *state,
	struct journal_answer *answer, struct error *error)
{
	sqlite3_stmt *row;
	int status = step_with(journal, &row, JOURNAL_GET_ANSWER, sequence, error);

	if (status <= 0)
		return status;
	answer->status = (unsigned int)sqlite3_column_int(row, 0);
	snprintf(answer->type, sizeof answer->type, "%s", (const char *)sqlite3_column_text(row, 1));
	answer->length = (size_t)sqlite3_column_bytes(row, 2);
	answer->body = malloc(answer->length + 1);
	if (answer->body && answer->length)
		memcpy(answer->body, sqlite3_column_blob(row, 2), answer->length);
	sqlite3_reset(row);
	if (!answer->body) {
		error_set(error, ERROR_INTERNAL, "out of memory for the kept answer");
		return -ENOMEM;
	}
	answer->body[answer->length] = '\0';
	*state = JOURNAL_KEY_ANSWERED;
	return 1;
}

static int find_key(struct journal *journal, const char *key, sqlite3_stmt **row, struct error *error)
{
	*row = journal_statement(journal, JOURNAL_FIND_KEY, error);
	if (!*row)
		return -EIO;
	sqlite3_bind_text(*row, 1, key, -1, SQLITE_STATIC);
	return journal_step(journal, *row, error);
}

int journal_key_begin(struct journal *journal, const struct journal_key *key, const struct journal_time *now,
	enum journal_key_state *state, struct journal_answer *answer, struct error *error)
{
	sqlite3_stmt *row;
	int64_t sequence;
	bool over, same, ended;
	int status = find_key(journal, key->key, &row, error);

	*answer = (struct journal_answer){.status = 0};
	if (status < 0)
		return status;
	if (status == 1) {
		sequence = sqlite3_column_int64(row, SEQUENCE);
		over = is_over(row, now);
		same = is_same(row, key);
		ended = sqlite3_column_int(row, ENDED);
		sqlite3_reset(row);
		if (!over) {
			*state = same ? ended ? JOURNAL_KEY_ENDED : JOURNAL_KEY_BEGUN : JOURNAL_KEY_OTHER;
			status = same && ended ? read_answer(journal, sequence, state, answer, error) : 0;
			return status < 0 ? status : 0;
		}
		status = remove_key(journal, sequence, error);
		if (status)
			return status;
	}
	*state = JOURNAL_KEY_NEW;
	status = sweep(journal, now, error);
	if (!status)
		status = make_room(journal, key->uid, error);
	return status ? status : add_key(journal, key, now, error);
}

static int add_answer(
	struct journal *journal, int64_t sequence, const struct journal_answer *answer, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_ADD_ANSWER, error);
	int status;

	if (!statement)
		return -EIO;
	sqlite3_bind_int64(statement, 1, sequence);
	sqlite3_bind_int(statement, 2, (int)answer->status);
	sqlite3_bind_text(statement, 3, answer->type, -1, SQLITE_STATIC);
	sqlite3_bind_blob64(statement, 4, answer->length ? answer->body : "", answer->length, SQLITE_STATIC);
	status = journal_do(journal, statement, error);
	if (!status)
		journal->answer_bytes += answer->length;
	return status;
}

static int shed_answers(struct journal *journal, struct error *error)
{
	sqlite3_stmt *row;
	int status = 0;

	while (!status && journal->answer_bytes > journal->bounds.answer_bytes) {
		int64_t oldest;

		status = step_with(journal, &row, JOURNAL_OLDEST_ANSWER, 0, error);
		if (status <= 0)
			return status;
		oldest = sqlite3_column_int64(row, 0);
		sqlite3_reset(row);
		status = remove_answer(journal, oldest, error);
	}
	return status;
}

int journal_key_end(
	struct journal *journal, const char *key, const struct journal_answer *answer, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_END_KEY, error);
	int64_t sequence;
	int status;

	if (!statement)
		return -EIO;
	sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC);
	status = journal_step(journal, statement, error);
	if (status <= 0)
		return status;
	sequence = sqlite3_column_int64(statement, 0);
	sqlite3_reset(statement);
	if (!answer->body || answer->length > JOURNAL_ANSWER_MAX)
		return 0;
	status = add_answer(journal, sequence, answer, error);
	return status ? status : shed_answers(journal, error);
}

int journal_key_forget(struct journal *journal, const char *key, struct error *error)
{
	sqlite3_stmt *row;
	int64_t sequence;
	int status = find_key(journal, key, &row, error);

	if (status <= 0)
		return status;
	sequence = sqlite3_column_int64(row, SEQUENCE);
	sqlite3_reset(row);
	return remove_key(journal, sequence, error);
}
