/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/journal/journal_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CODE_MAX = 32 };

/* Columns, as all statements have them. */
enum {
	ID,
	SANDBOX,
	STATE,
	FLAGS,
	SESSION,
	TIMEOUT_MS,
	OUTPUT_MAX,
	CREATED_MS,
	STARTED_MS,
	ENDED_MS,
	NAME,
	PAYLOAD,
	INPUT,
	CODE,
	MESSAGE,
	CAUSE,
	VM,
	EXIT,
	QUEUED_US,
	FIRST_BYTE_US,
	TOTAL_US
};

static void bind_text(sqlite3_stmt *statement, int column, const char *text)
{
	sqlite3_bind_text(statement, column + 1, text, -1, SQLITE_STATIC);
}

static void bind_number(sqlite3_stmt *statement, int column, uint64_t number)
{
	sqlite3_bind_int64(statement, column + 1, (sqlite3_int64)number);
}

static void bind_bytes(sqlite3_stmt *statement, int column, const void *bytes, size_t length)
{
	sqlite3_bind_blob(statement, column + 1, length ? bytes : "", (int)length, SQLITE_STATIC);
}

static void bind_end(sqlite3_stmt *statement, const struct journal_command *command)
{
	bool failed = command->error.kind != ERROR_NONE;

	bind_text(statement, CODE, failed ? error_code(command->error.kind) : "");
	bind_text(statement, MESSAGE, failed ? command->error.message : "");
	bind_text(statement, CAUSE, failed ? command->error.cause : "");
	bind_text(statement, VM, failed ? command->error.vm : "");
	bind_bytes(statement, EXIT, &command->exit, sizeof command->exit);
	bind_number(statement, QUEUED_US, command->queued_us);
	bind_number(statement, FIRST_BYTE_US, command->first_byte_us);
	bind_number(statement, TOTAL_US, command->total_us);
}

int journal_command_put(struct journal *journal, const struct journal_command *command, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_PUT_COMMAND, error);

	if (!statement)
		return -EIO;
	bind_text(statement, ID, command->id);
	bind_text(statement, SANDBOX, command->sandbox);
	bind_number(statement, STATE, command->state);
	bind_number(statement, FLAGS, command->flags);
	bind_number(statement, SESSION, command->session);
	bind_number(statement, TIMEOUT_MS, command->timeout_ms);
	bind_number(statement, OUTPUT_MAX, command->output_max);
	bind_number(statement, CREATED_MS, command->created_ms);
	bind_number(statement, STARTED_MS, command->started_ms);
	bind_number(statement, ENDED_MS, command->ended_ms);
	bind_text(statement, NAME, command->name);
	bind_bytes(statement, PAYLOAD, command->payload.bytes, command->payload.length);
	bind_bytes(statement, INPUT, command->input.bytes, command->input.length);
	bind_end(statement, command);
	return journal_do(journal, statement, error);
}

int journal_command_remove(struct journal *journal, const char *id, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_REMOVE_COMMAND, error);

	if (!statement)
		return -EIO;
	bind_text(statement, ID, id);
	return journal_do(journal, statement, error);
}

int journal_commands_remove_of(struct journal *journal, const char *sandbox, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_REMOVE_COMMANDS_OF, error);

	if (!statement)
		return -EIO;
	sqlite3_bind_text(statement, 1, sandbox, -1, SQLITE_STATIC);
	return journal_do(journal, statement, error);
}

/* --- reading --- */

static void read_text(sqlite3_stmt *row, int column, char *text, size_t size)
{
	const char *value = (const char *)sqlite3_column_text(row, column);

	snprintf(text, size, "%s", value ? value : "");
}

static uint64_t read_number(sqlite3_stmt *row, int column)
{
	return (uint64_t)sqlite3_column_int64(row, column);
}

/* 0 or -ENOMEM. */
static int read_bytes(sqlite3_stmt *row, int column, struct journal_bytes *bytes)
{
	const void *value = sqlite3_column_blob(row, column);
	size_t length = (size_t)sqlite3_column_bytes(row, column);

	*bytes = (struct journal_bytes){.bytes = NULL};
	if (!length)
		return 0;
	bytes->bytes = malloc(length);
	if (!bytes->bytes)
		return -ENOMEM;
	memcpy(bytes->bytes, value, length);
	bytes->length = length;
	return 0;
}

static void read_end(sqlite3_stmt *row, struct journal_command *command)
{
	const void *value = sqlite3_column_blob(row, EXIT);
	char code[CODE_MAX];

	if (value && sqlite3_column_bytes(row, EXIT) == sizeof command->exit)
		memcpy(&command->exit, value, sizeof command->exit);
	read_text(row, CODE, code, sizeof code);
	command->error.kind = error_find_kind(code);
	read_text(row, MESSAGE, command->error.message, sizeof command->error.message);
	read_text(row, CAUSE, command->error.cause, sizeof command->error.cause);
	read_text(row, VM, command->error.vm, sizeof command->error.vm);
	command->queued_us = read_number(row, QUEUED_US);
	command->first_byte_us = read_number(row, FIRST_BYTE_US);
	command->total_us = read_number(row, TOTAL_US);
}

/* 0 or -ENOMEM; either way it may be freed. */
static int read_row(sqlite3_stmt *row, struct journal_command *command)
{
	unsigned int state = (unsigned int)sqlite3_column_int(row, STATE);
	int status;

	*command = (struct journal_command){.state = state < JOURNAL_COMMAND_STATES
							     ? (enum journal_command_state)state
							     : JOURNAL_COMMAND_STARTED,
		.flags = (unsigned int)sqlite3_column_int(row, FLAGS),
		.session = read_number(row, SESSION),
		.timeout_ms = read_number(row, TIMEOUT_MS),
		.output_max = (unsigned int)sqlite3_column_int64(row, OUTPUT_MAX),
		.created_ms = read_number(row, CREATED_MS),
		.started_ms = read_number(row, STARTED_MS),
		.ended_ms = read_number(row, ENDED_MS)};
	read_text(row, ID, command->id, sizeof command->id);
	read_text(row, SANDBOX, command->sandbox, sizeof command->sandbox);
	read_text(row, NAME, command->name, sizeof command->name);
	read_end(row, command);
	status = read_bytes(row, PAYLOAD, &command->payload);
	return status ? status : read_bytes(row, INPUT, &command->input);
}

static int fail_memory(struct error *error)
{
	error_set(error, ERROR_INTERNAL, "out of memory for the journal's commands");
	return -ENOMEM;
}

/* So that there is place for one more: 16, and then twice as many. */
static int grow(struct journal_command **commands, size_t count, struct error *error)
{
	struct journal_command *grown;

	if (count && (count < 16 || (count & (count - 1))))
		return 0;
	grown = realloc(*commands, (count ? 2 * count : 16) * sizeof *grown);
	if (!grown)
		return fail_memory(error);
	*commands = grown;
	return 0;
}

static int forget_others(struct journal *journal, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_REMOVE_STRAY_COMMANDS, error);

	return statement ? journal_do(journal, statement, error) : -EIO;
}

int journal_commands_read(
	struct journal *journal, size_t room, struct journal_command **commands, struct error *error)
{
	int status = forget_others(journal, error);
	sqlite3_stmt *row = status ? NULL : journal_statement(journal, JOURNAL_READ_COMMANDS, error);
	size_t count = 0;

	*commands = NULL;
	if (!status)
		status = row ? 1 : -EIO;
	while (status == 1 && count < room) {
		status = journal_step(journal, row, error);
		if (status != 1)
			break;
		status = grow(commands, count, error);
		if (!status)
			status = read_row(row, &(*commands)[count++]) ? fail_memory(error) : 1;
	}
	if (row)
		sqlite3_reset(row);
	if (status >= 0)
		return (int)count;
	journal_commands_free(*commands, (int)count);
	*commands = NULL;
	return status;
}

void journal_commands_free(struct journal_command *commands, int count)
{
	for (int i = 0; i < count; i++) {
		free(commands[i].payload.bytes);
		free(commands[i].input.bytes);
	}
	free(commands);
}
