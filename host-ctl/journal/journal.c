/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Facts about SQLite: in WAL mode with locking_mode=EXCLUSIVE the index of the log is in our own memory, so
 * that no shared file can be cut under us; synchronous=FULL syncs the log at each commit, NORMAL
 * when it is written into the database, every 1000 pages; application_id and
 * user_version are written within the transaction that makes the tables.
 */
#include "host-ctl/journal/journal.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/journal/journal_private.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/state_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define FILE_NAME "journal.db"
#define APPLICATION_ID 1413630513 /* "TBJ1" */
#define SCHEMA_VERSION 4
#define SYNCED "PRAGMA synchronous=FULL"
#define UNSYNCED "PRAGMA synchronous=NORMAL"
#define TEXT_OF(number) TEXT_OF_VALUE(number)
#define TEXT_OF_VALUE(number) #number

enum { NAME_BYTES = 96, VALUE_MAX = 16 };

_Static_assert(SCHEMA_VERSION == JOURNAL_SCHEMA, "as SQL's text has it");

/* Step n makes version n + 1 of version n. */
static const char *const schema[JOURNAL_SCHEMA] = {
	"CREATE TABLE keys (sequence INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, uid INTEGER NOT NULL,"
	" target TEXT NOT NULL, digest BLOB NOT NULL, boot TEXT NOT NULL, boot_s INTEGER NOT NULL,"
	" wall_s INTEGER NOT NULL, ended INTEGER NOT NULL DEFAULT 0) STRICT;"
	"CREATE TABLE answers (sequence INTEGER PRIMARY KEY, status INTEGER NOT NULL, type TEXT NOT NULL,"
	" body BLOB NOT NULL) STRICT;",
	"CREATE TABLE sandboxes (id TEXT PRIMARY KEY, vm TEXT NOT NULL, state INTEGER NOT NULL, uid INTEGER "
	"NOT NULL,"
	" pid INTEGER NOT NULL, start_ticks INTEGER NOT NULL, slot INTEGER NOT NULL, seat INTEGER NOT NULL,"
	" created_ms INTEGER NOT NULL, spec TEXT NOT NULL, reason TEXT NOT NULL, boot TEXT NOT NULL) STRICT;",
	"CREATE TABLE commands (id TEXT PRIMARY KEY, sandbox TEXT NOT NULL, state INTEGER NOT NULL,"
	" flags INTEGER NOT NULL, session INTEGER NOT NULL, timeout_ms INTEGER NOT NULL,"
	" output_max INTEGER NOT NULL, created_ms INTEGER NOT NULL, started_ms INTEGER NOT NULL, ended_ms "
	"INTEGER NOT NULL,"
	" name TEXT NOT NULL, payload BLOB NOT NULL, input BLOB NOT NULL, code TEXT NOT NULL,"
	" message TEXT NOT NULL, cause TEXT NOT NULL, vm TEXT NOT NULL, exit BLOB NOT NULL,"
	" queued_us INTEGER NOT NULL, first_byte_us INTEGER NOT NULL, total_us INTEGER NOT NULL) STRICT;"
	"CREATE INDEX commands_of ON commands (sandbox);",
	"CREATE INDEX keys_of ON keys (uid, ended);",
};

static const char *const texts[JOURNAL_STATEMENTS] = {
	[JOURNAL_BEGIN] = "BEGIN IMMEDIATE",
	[JOURNAL_COMMIT] = "COMMIT",
	[JOURNAL_ROLLBACK] = "ROLLBACK",
	[JOURNAL_PART_BEGIN] = "SAVEPOINT part",
	[JOURNAL_PART_UNDO] = "ROLLBACK TO part",
	[JOURNAL_PART_END] = "RELEASE part",
	[JOURNAL_COUNT_KEYS] = "SELECT uid, count(*) FROM keys GROUP BY uid",
	[JOURNAL_COUNT_ANSWERS] = "SELECT coalesce(sum(length(body)), 0) FROM answers",
	[JOURNAL_FIND_KEY] =
		"SELECT sequence, boot, boot_s, wall_s, uid, target, digest, ended FROM keys WHERE key = ?",
	[JOURNAL_OLDEST_KEYS] = "SELECT sequence, boot, boot_s, wall_s FROM keys ORDER BY sequence LIMIT ?",
	[JOURNAL_OLDEST_ENDED] =
		"SELECT sequence FROM keys WHERE uid = ? AND ended = 1 ORDER BY sequence LIMIT 1",
	[JOURNAL_OLDEST_ANSWER] = "SELECT sequence FROM answers ORDER BY sequence LIMIT 1",
	[JOURNAL_ADD_KEY] = ("INSERT INTO keys (key, uid, target, digest, boot, boot_s, wall_s)"
			     " VALUES (?, ?, ?, ?, ?, ?, ?)"),
	[JOURNAL_END_KEY] = "UPDATE keys SET ended = 1 WHERE key = ? AND NOT ended RETURNING sequence",
	[JOURNAL_REMOVE_KEY] = "DELETE FROM keys WHERE sequence = ? RETURNING uid",
	[JOURNAL_GET_ANSWER] = "SELECT status, type, body FROM answers WHERE sequence = ?",
	[JOURNAL_ADD_ANSWER] = "INSERT INTO answers (sequence, status, type, body) VALUES (?, ?, ?, ?)",
	[JOURNAL_ANSWER_SIZE] = "SELECT length(body) FROM answers WHERE sequence = ?",
	[JOURNAL_REMOVE_ANSWER] = "DELETE FROM answers WHERE sequence = ?",
	[JOURNAL_PUT_SANDBOX] =
		"INSERT OR REPLACE INTO sandboxes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
	[JOURNAL_REMOVE_SANDBOX] = "DELETE FROM sandboxes WHERE id = ?",
	[JOURNAL_READ_SANDBOXES] = "SELECT * FROM sandboxes ORDER BY created_ms, id",
	[JOURNAL_PUT_COMMAND] = ("INSERT OR REPLACE INTO commands VALUES"
				 " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"),
	[JOURNAL_REMOVE_COMMAND] = "DELETE FROM commands WHERE id = ?",
	[JOURNAL_REMOVE_COMMANDS_OF] = "DELETE FROM commands WHERE sandbox = ?",
	[JOURNAL_REMOVE_STRAY_COMMANDS] =
		"DELETE FROM commands WHERE sandbox NOT IN (SELECT id FROM sandboxes)",
	[JOURNAL_READ_COMMANDS] = "SELECT * FROM commands ORDER BY created_ms, rowid",
};

/* --- failures --- */

static bool is_damage(int code)
{
	return (code & 0xff) == SQLITE_CORRUPT || (code & 0xff) == SQLITE_NOTADB;
}

/* What it says cannot be done by one statement, and says nothing about the next. */
static bool is_of_statement(int code)
{
	return (code & 0xff) == SQLITE_CONSTRAINT || (code & 0xff) == SQLITE_TOOBIG ||
	       (code & 0xff) == SQLITE_MISMATCH;
}

static int fail_no_room(const struct journal *journal, struct error *error)
{
	error_set(error, ERROR_EXHAUSTED, "no room for the journal %.256s: free some on its disk",
		journal->path);
	return -ENOSPC;
}

static int fail_read_only(const struct journal *journal, struct error *error)
{
	error_set(error, ERROR_INTERNAL,
		"the journal %.256s is on a read-only file system: make that writable, or give another "
		"--state-dir",
		journal->path);
	return -EROFS;
}

/* Of a system call. */
static int fail_system(const struct journal *journal, int status, const char *what, struct error *error)
{
	if (error_is_of_full_disk(status))
		return fail_no_room(journal, error);
	if (status == -EROFS)
		return fail_read_only(journal, error);
	error_set(error, ERROR_INTERNAL,
		"cannot %s the journal %.256s: %s: name a folder that can be written with --state-dir", what,
		journal->path, strerror(-status));
	return status;
}

/* Of SQLite. */
static int fail_database(struct journal *journal, struct error *error)
{
	int code = sqlite3_extended_errcode(journal->db), system = sqlite3_system_errno(journal->db);

	journal->failed = journal->failed || !is_of_statement(code);
	if (is_damage(code)) {
		error_set(error, ERROR_INTERNAL,
			"the journal %.256s is damaged (%s): start the daemon anew, which moves it aside",
			journal->path, sqlite3_errmsg(journal->db));
		return -EUCLEAN;
	}
	switch (code & 0xff) {
	case SQLITE_FULL:
		return fail_no_room(journal, error);
	case SQLITE_READONLY:
		return fail_read_only(journal, error);
	case SQLITE_NOMEM:
		error_set(error, ERROR_INTERNAL, "out of memory for the journal");
		return -ENOMEM;
	case SQLITE_BUSY:
		error_set(error, ERROR_INTERNAL, "the journal %.256s is in use by another program: end that",
			journal->path);
		return -EBUSY;
	case SQLITE_IOERR:
	case SQLITE_CANTOPEN:
		return fail_system(journal, system ? -system : -EIO, "use", error);
	default:
		error_set(error, ERROR_INTERNAL, "bug: the journal %.256s: %s", journal->path,
			sqlite3_errmsg(journal->db));
		return -EIO;
	}
}

/* --- statements --- */

sqlite3_stmt *journal_statement(struct journal *journal, enum journal_statement which, struct error *error)
{
	sqlite3_stmt **statement = &journal->statements[which];

	if (!*statement && sqlite3_prepare_v3(journal->db, texts[which], -1, SQLITE_PREPARE_PERSISTENT,
				   statement, NULL) != SQLITE_OK) {
		fail_database(journal, error);
		return NULL;
	}
	sqlite3_reset(*statement);
	sqlite3_clear_bindings(*statement);
	return *statement;
}

int journal_step(struct journal *journal, sqlite3_stmt *statement, struct error *error)
{
	int code = sqlite3_step(statement), status = 0;

	if (code == SQLITE_ROW)
		return 1;
	if (code != SQLITE_DONE)
		status = fail_database(journal, error);
	sqlite3_reset(statement);
	return status;
}

int journal_do(struct journal *journal, sqlite3_stmt *statement, struct error *error)
{
	int status = journal_step(journal, statement, error);

	sqlite3_reset(statement);
	return status < 0 ? status : 0;
}

static int do_statement(struct journal *journal, enum journal_statement which, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, which, error);

	return statement ? journal_do(journal, statement, error) : -EIO;
}

/* --- transactions --- */

static int read_count(
	struct journal *journal, enum journal_statement which, uint64_t *count, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, which, error);
	int status = statement ? journal_step(journal, statement, error) : -EIO;

	if (status < 0)
		return status;
	*count = (uint64_t)sqlite3_column_int64(statement, 0);
	sqlite3_reset(statement);
	return 0;
}

static int execute(struct journal *journal, const char *text, struct error *error)
{
	return sqlite3_exec(journal->db, text, NULL, NULL, NULL) == SQLITE_OK ? 0
									      : fail_database(journal, error);
}

int journal_set_synced(struct journal *journal, bool synced, struct error *error)
{
	int status = 0;

	if (synced == journal->unsynced)
		status = execute(journal, synced ? SYNCED : UNSYNCED, error);
	journal->unsynced = status ? journal->unsynced : !synced;
	return status;
}

/* 0, or -errno with *error set: then nothing is known of them. */
static int count(struct journal *journal, struct error *error)
{
	int status = journal_keys_count(journal, error);

	if (!status)
		status = read_count(journal, JOURNAL_COUNT_ANSWERS, &journal->answer_bytes, error);
	journal->counted = !status;
	return status;
}

int journal_begin(struct journal *journal, struct error *error)
{
	int status = do_statement(journal, JOURNAL_BEGIN, error);

	journal->failed = false;
	if (status || journal->counted)
		return status;
	status = count(journal, error);
	if (status)
		journal_rollback(journal);
	return status;
}

int journal_commit(struct journal *journal, struct error *error)
{
	int status = do_statement(journal, JOURNAL_COMMIT, error);

	if (status)
		journal_rollback(journal);
	return status;
}

void journal_rollback(struct journal *journal)
{
	struct error error;

	journal->counted = false;
	/* SQLite may have done it already, for want of room or memory. */
	if (!sqlite3_get_autocommit(journal->db) && do_statement(journal, JOURNAL_ROLLBACK, &error))
		log_error("%s", error.message);
}

int journal_part_begin(struct journal *journal, struct error *error)
{
	journal->part_changes = sqlite3_total_changes(journal->db);
	return do_statement(journal, JOURNAL_PART_BEGIN, error);
}

int journal_part_end(struct journal *journal, struct error *error)
{
	return do_statement(journal, JOURNAL_PART_END, error);
}

int journal_part_undo(struct journal *journal, struct error *error)
{
	int status;

	/* Of a full disk and the like SQLite may have ended the transaction by itself. */
	if (journal->failed || sqlite3_get_autocommit(journal->db))
		return -EIO;
	status = do_statement(journal, JOURNAL_PART_UNDO, error);
	if (!status)
		status = do_statement(journal, JOURNAL_PART_END, error);
	if (status || sqlite3_total_changes(journal->db) == journal->part_changes)
		return status;
	return count(journal, error);
}

void journal_read_time(const struct journal *journal, struct journal_time *time)
{
	const uint64_t second = 1000 * CLOCK_NS_PER_MS;

	time->boot = journal->boot;
	time->boot_s = (int64_t)(clock_read(CLOCK_BOOTTIME) / second);
	time->wall_s = (int64_t)(clock_read(CLOCK_REALTIME) / second);
}

/* --- the file --- */

/* The number, or the text, of a statement's only row. */
static int read_value(
	struct journal *journal, const char *query, int *number, char text[VALUE_MAX], struct error *error)
{
	sqlite3_stmt *statement = NULL;
	int status = 0;

	if (sqlite3_prepare_v2(journal->db, query, -1, &statement, NULL) != SQLITE_OK ||
		sqlite3_step(statement) != SQLITE_ROW)
		status = fail_database(journal, error);
	else if (number)
		*number = sqlite3_column_int(statement, 0);
	else
		snprintf(text, VALUE_MAX, "%s", (const char *)sqlite3_column_text(statement, 0));
	sqlite3_finalize(statement);
	return status;
}

static int fail_damaged(const struct journal *journal, const char *how, struct error *error)
{
	error_set(error, ERROR_INTERNAL, "the journal %.256s is damaged: %s", journal->path, how);
	return -EUCLEAN;
}

/* One of ours of a version that we know, or a new one without anything in it. */
static int check_kind(struct journal *journal, int *version, struct error *error)
{
	int id = 0, tables = 0;
	int status = read_value(journal, "PRAGMA application_id", &id, NULL, error);

	if (!status)
		status = read_value(journal, "PRAGMA user_version", version, NULL, error);
	if (!status)
		status = read_value(journal, "SELECT count(*) FROM sqlite_schema", &tables, NULL, error);
	if (status)
		return status;
	if (id != APPLICATION_ID && (id || *version || tables))
		return fail_damaged(journal, "it is another program's database", error);
	if (id == APPLICATION_ID && (*version < 1 || !tables))
		return fail_damaged(journal, "it has no tables", error);
	if (*version <= JOURNAL_SCHEMA)
		return 0;
	error_set(error, ERROR_INTERNAL,
		"the journal %.256s is of a newer host-ctl (its version is %d, this one knows %d): start "
		"that one",
		journal->path, *version, JOURNAL_SCHEMA);
	return -ENOTSUP;
}

static int check_whole(struct journal *journal, struct error *error)
{
	char first[VALUE_MAX];
	int status = read_value(journal, "PRAGMA quick_check(1)", NULL, first, error);

	if (!status && strcmp(first, "ok") != 0)
		status = fail_damaged(journal, "its pages do not fit together", error);
	return status;
}

static int make_schema(struct journal *journal, int version, struct error *error)
{
	int status = execute(journal, "BEGIN IMMEDIATE", error);

	for (; !status && version < JOURNAL_SCHEMA; version++)
		status = execute(journal, schema[version], error);
	if (!status)
		status = execute(journal,
			"PRAGMA application_id=" TEXT_OF(APPLICATION_ID) "; PRAGMA user_version=" TEXT_OF(
				SCHEMA_VERSION) "; COMMIT",
			error);
	return status;
}

static int set_up(struct journal *journal, struct error *error)
{
	char mode[VALUE_MAX];
	int version = 0;
	int status = execute(journal,
		"PRAGMA locking_mode=EXCLUSIVE;" SYNCED "; PRAGMA temp_store=MEMORY;"
		"PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON",
		error);

	if (!status)
		status = check_kind(journal, &version, error);
	if (!status)
		status = read_value(journal, "PRAGMA journal_mode=WAL", NULL, mode, error);
	if (!status && strcmp(mode, "wal") != 0)
		return fail_read_only(journal, error);
	if (!status)
		status = check_whole(journal, error);
	return status || version == JOURNAL_SCHEMA ? status : make_schema(journal, version, error);
}

static void close_database(struct journal *journal)
{
	for (int i = 0; i < JOURNAL_STATEMENTS; i++) {
		sqlite3_finalize(journal->statements[i]);
		journal->statements[i] = NULL;
	}
	sqlite3_close(journal->db);
	journal->db = NULL;
}

static int open_database(struct journal *journal, struct error *error)
{
	/* SQLite would make it for everybody to read, and open one read-only that cannot be written. */
	int fd = openat(journal->folder, FILE_NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600), status;

	if (fd < 0)
		return fail_system(journal, -errno, "open", error);
	/* Before SQLite has its locks, which the close of any fd of the file would give up. */
	fd_close(&fd);
	if (sqlite3_open_v2(journal->path, &journal->db,
		    SQLITE_OPEN_READWRITE | SQLITE_OPEN_FULLMUTEX | SQLITE_OPEN_EXRESCODE, NULL) == SQLITE_OK)
		status = set_up(journal, error);
	else if (journal->db)
		status = fail_database(journal, error);
	else
		status = fail_system(journal, -ENOMEM, "open", error);
	if (status)
		close_database(journal);
	return status;
}

/* What only a journal that is damaged, or gone, knew: before there is another, which the next start would
 * take for the one that knew it, and remove it all. */
static int put_sandboxes_aside(const struct journal *journal, struct error *error)
{
	char aside[STATE_FOLDER_ASIDE_MAX];
	int status = state_folder_put_aside(journal->folder, STATE_FOLDER_SANDBOXES, aside);

	if (error_is_of_full_disk(status) || status == -EROFS)
		return fail_system(journal, status, "use", error);
	if (status < 0) {
		error_set(error, ERROR_INTERNAL,
			"whose the files in " STATE_FOLDER_SANDBOXES " beside the journal %.256s are, is not "
			"known any more, and they cannot be moved aside: %s: move them",
			journal->path, strerror(-status));
		return status;
	}
	if (status > 0)
		log_error("whose the files in " STATE_FOLDER_SANDBOXES " beside the journal %s are, only the "
			  "one that is damaged or gone knew: they are in %s there now",
			journal->path, aside);
	return 0;
}

/* The log goes with it: together they may still be read by hand. */
static int put_aside(const struct journal *journal, struct error *error)
{
	char name[NAME_BYTES], log[NAME_BYTES], when[32];
	const time_t now = time(NULL);
	struct tm parts;

	gmtime_r(&now, &parts);
	strftime(when, sizeof when, "%Y%m%dT%H%M%SZ", &parts);
	snprintf(name, sizeof name, FILE_NAME ".damaged-%s", when);
	snprintf(log, sizeof log, FILE_NAME ".damaged-%s-wal", when);
	if (renameat(journal->folder, FILE_NAME, journal->folder, name) < 0)
		return fail_system(journal, -errno, "move aside", error);
	if (renameat(journal->folder, FILE_NAME "-wal", journal->folder, log) < 0 && errno != ENOENT)
		return fail_system(journal, -errno, "move aside the log of", error);
	log_error("the journal %s is damaged: it is %s now, beside a new one. Requests with an "
		  "Idempotency-Key from "
		  "before may be run again",
		journal->path, name);
	return 0;
}

static int open_folder(struct journal *journal, const char *path, struct error *error)
{
	int status;

	if (snprintf(journal->path, sizeof journal->path, "%s/" FILE_NAME, path) >= (int)sizeof journal->path)
		return fail_system(journal, -ENAMETOOLONG, "open", error);
	if (mkdir(path, 0755) < 0 && errno != EEXIST)
		return fail_system(journal, -errno, "make the folder of", error);
	journal->folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (journal->folder < 0)
		return fail_system(journal, -errno, "open the folder of", error);
	status = state_folder_lock(journal->folder);
	if (status == 0)
		return 0;
	if (status != -EWOULDBLOCK)
		return fail_system(journal, status, "lock the folder of", error);
	error_set(error, ERROR_INTERNAL,
		"the state folder %s is in use by another host-ctl serve: stop it first, or give this one "
		"its own with --state-dir, and another --uid-base",
		path);
	return -EBUSY;
}

static int read_boot(struct journal *journal, struct error *error)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t length = fd < 0 ? -errno : io_read_full(fd, journal->boot, sizeof journal->boot - 1);

	fd_close(&fd);
	if (length == sizeof journal->boot - 1)
		return 0;
	error_set(error, ERROR_INTERNAL, "cannot read the id of the host's boot: is /proc mounted?");
	return length < 0 ? (int)length : -EIO;
}

int journal_open(struct journal **result, const char *state_directory, const struct journal_bounds *bounds,
	struct error *error)
{
	struct journal *journal = calloc(1, sizeof *journal);
	int status;

	if (!journal) {
		error_set(error, ERROR_INTERNAL, "out of memory for the journal");
		return -ENOMEM;
	}
	journal->folder = -1;
	journal->bounds = bounds ? *bounds
				 : (struct journal_bounds){
					   .keys = JOURNAL_KEYS_MAX, .answer_bytes = JOURNAL_ANSWERS_MAX};
	status = open_folder(journal, state_directory, error);
	if (!status)
		status = read_boot(journal, error);
	if (!status && !journal_is_there(state_directory))
		status = put_sandboxes_aside(journal, error);
	if (!status)
		status = open_database(journal, error);
	if (status == -EUCLEAN) {
		status = put_sandboxes_aside(journal, error);
		if (!status)
			status = put_aside(journal, error);
		journal->anew = !status;
		if (!status)
			status = open_database(journal, error);
	}
	if (status) {
		journal_close(journal);
		return status;
	}
	*result = journal;
	return 0;
}

bool journal_is_there(const char *state_directory)
{
	char path[PATH_MAX];
	struct stat status;

	return snprintf(path, sizeof path, "%s/" FILE_NAME, state_directory) >= (int)sizeof path ||
	       (lstat(path, &status) == 0 ? !S_ISREG(status.st_mode) || status.st_size > 0 : errno != ENOENT);
}

bool journal_is_anew(const struct journal *journal)
{
	return journal->anew;
}

void journal_close(struct journal *journal)
{
	if (!journal)
		return;
	if (journal->db)
		close_database(journal);
	fd_close(&journal->folder);
	free(journal->shares);
	free(journal);
}
