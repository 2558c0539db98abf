/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/journal/journal_sandboxes.h"
#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/journal/journal_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Columns, as all statements have them. */
enum { ID, VM, STATE, UID, PID, START_TICKS, SLOT, SEAT, CREATED_MS, SPEC, REASON, BOOT };

static void bind_text(sqlite3_stmt *statement, int column, const char *text)
{
	sqlite3_bind_text(statement, column + 1, text, -1, SQLITE_STATIC);
}

static void bind_number(sqlite3_stmt *statement, int column, uint64_t number)
{
	sqlite3_bind_int64(statement, column + 1, (sqlite3_int64)number);
}

int journal_sandbox_put(struct journal *journal, const struct journal_sandbox *sandbox, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_PUT_SANDBOX, error);

	if (!statement)
		return -EIO;
	bind_text(statement, ID, sandbox->id);
	bind_text(statement, VM, sandbox->vm);
	bind_number(statement, STATE, sandbox->state);
	bind_number(statement, UID, sandbox->uid);
	bind_number(statement, PID, (uint64_t)sandbox->pid);
	bind_number(statement, START_TICKS, sandbox->start_ticks);
	bind_number(statement, SLOT, sandbox->slot);
	sqlite3_bind_int(statement, SEAT + 1, sandbox->seat);
	bind_number(statement, CREATED_MS, sandbox->created_ms);
	bind_text(statement, SPEC, sandbox->spec);
	bind_text(statement, REASON, sandbox->reason);
	bind_text(statement, BOOT, journal->boot);
	return journal_do(journal, statement, error);
}

int journal_sandbox_remove(struct journal *journal, const char *id, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_REMOVE_SANDBOX, error);
	int status;

	if (!statement)
		return -EIO;
	bind_text(statement, ID, id);
	status = journal_do(journal, statement, error);
	return status ? status : journal_commands_remove_of(journal, id, error);
}

static void read_text(sqlite3_stmt *row, int column, char *text, size_t size)
{
	const char *value = (const char *)sqlite3_column_text(row, column);

	snprintf(text, size, "%s", value ? value : "");
}

/* 0 or -ENOMEM. */
static int read_row(const struct journal *journal, sqlite3_stmt *row, struct journal_sandbox *sandbox)
{
	const char *spec = (const char *)sqlite3_column_text(row, SPEC);
	const char *boot = (const char *)sqlite3_column_text(row, BOOT);
	int state = sqlite3_column_int(row, STATE);

	*sandbox = (struct journal_sandbox){.state = state < JOURNAL_SANDBOX_STATES
							     ? (enum journal_sandbox_state)state
							     : JOURNAL_SANDBOX_FAILED,
		.uid = (uid_t)sqlite3_column_int64(row, UID),
		.pid = (pid_t)sqlite3_column_int64(row, PID),
		.start_ticks = (uint64_t)sqlite3_column_int64(row, START_TICKS),
		.slot = (unsigned int)sqlite3_column_int64(row, SLOT),
		.seat = sqlite3_column_int(row, SEAT),
		.created_ms = (uint64_t)sqlite3_column_int64(row, CREATED_MS),
		.spec = strdup(spec ? spec : ""),
		.this_boot = boot && !strcmp(boot, journal->boot)};
	read_text(row, ID, sandbox->id, sizeof sandbox->id);
	read_text(row, VM, sandbox->vm, sizeof sandbox->vm);
	read_text(row, REASON, sandbox->reason, sizeof sandbox->reason);
	return sandbox->spec ? 0 : -ENOMEM;
}

/* Of one that is not read nothing would be known, its files least of all. */
static int fail_too_many(const struct journal *journal, size_t room, struct error *error)
{
	error_set(error, ERROR_INTERNAL,
		"the journal %.256s has more than %zu sandboxes, which this host-ctl cannot know: delete "
		"some with "
		"the one that made them",
		journal->path, room);
	return -E2BIG;
}

int journal_sandboxes_read(
	struct journal *journal, struct journal_sandbox *sandboxes, size_t room, struct error *error)
{
	sqlite3_stmt *row = journal_statement(journal, JOURNAL_READ_SANDBOXES, error);
	size_t count = 0;
	int status = row ? 1 : -EIO;

	while (status == 1) {
		status = journal_step(journal, row, error);
		if (status != 1)
			break;
		if (count == room) {
			status = fail_too_many(journal, room, error);
			break;
		}
		if (read_row(journal, row, &sandboxes[count]) == 0) {
			count++;
			continue;
		}
		error_set(error, ERROR_INTERNAL, "out of memory for the journal's sandboxes");
		status = -ENOMEM;
	}
	if (row)
		sqlite3_reset(row);
	if (status >= 0)
		return (int)count;
	while (count)
		free(sandboxes[--count].spec);
	return status;
}
