/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/command_record.h"
#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)JOURNAL_COMMAND_ID >= (int)COMMAND_ID_MAX &&
		       (int)JOURNAL_COMMAND_SANDBOX >= (int)SANDBOX_ID_MAX &&
		       (int)JOURNAL_COMMAND_NAME >= (int)RUN_NAME_MAX,
	"what is written is read again");

/* A change that is under way, with all that it needs. */
struct command_writing {
	struct journal_job job;
	struct journal_command row;
	struct command *waits; /* NULL: nobody */
};

static int put(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_command_put(journal, &((struct command_writing *)job)->row, error);
}

static int take_out(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_command_remove(journal, ((struct command_writing *)job)->row.id, error);
}

static void free_writing(struct command_writing *writing)
{
	free(writing->row.payload.bytes);
	free(writing->row.input.bytes);
	free(writing);
}

static void written(struct journal_job *job)
{
	struct command_writing *writing = (struct command_writing *)job;
	struct command *command = writing->waits;
	struct error error = job->error;

	free_writing(writing);
	if (!command)
		return;
	command->writing = NULL;
	command_recorded(command, error.kind ? &error : NULL);
}

/* 0 or -ENOMEM. */
static int copy(struct journal_bytes *bytes, const uint8_t *from, size_t length)
{
	if (!length)
		return 0;
	bytes->bytes = malloc(length);
	if (!bytes->bytes)
		return -ENOMEM;
	memcpy(bytes->bytes, from, length);
	bytes->length = length;
	return 0;
}

static unsigned int flags_of(const struct command *command)
{
	const struct run_request *request = &command->request;

	return (command->keep ? JOURNAL_COMMAND_KEEP : 0u) | (command->wakes ? JOURNAL_COMMAND_WAKES : 0u) |
	       (request->has_input ? JOURNAL_COMMAND_INPUT : 0u) |
	       (request->input_streams ? JOURNAL_COMMAND_STREAMS : 0u) |
	       (request->has_terminal ? JOURNAL_COMMAND_TTY : 0u) |
	       (command->result.by_host ? JOURNAL_COMMAND_BY_HOST : 0u) |
	       (command->uncounted ? JOURNAL_COMMAND_UNCOUNTED : 0u);
}

/* 0 or -ENOMEM. */
static int fill_request(struct journal_command *row, const struct command *command)
{
	const struct run_request *request = &command->request;

	if (command->state == COMMAND_ENDED)
		return 0;
	if (command->state == COMMAND_CREATED &&
		copy(&row->payload, request->payload, request->payload_length))
		return -ENOMEM;
	return copy(&row->input, request->input, request->input_length);
}

static void fill_result(struct journal_command *row, const struct run_result *result)
{
	row->error = result->error;
	row->exit = result->exit;
	row->queued_us = result->queued_us;
	row->first_byte_us = result->first_byte_us;
	row->total_us = result->total_us;
}

/* NULL without memory. */
static struct command_writing *make(const struct command *command)
{
	struct command_writing *writing = calloc(1, sizeof *writing);

	if (!writing)
		return NULL;
	writing->job = (struct journal_job){.unsynced = true, .work = put, .done = written};
	writing->row = (struct journal_command){.state = JOURNAL_COMMAND_STARTED,
		.flags = flags_of(command),
		.session = command->session_id,
		.timeout_ms = command->timeout_ms,
		.output_max = command->output_max,
		.created_ms = command->created_ms,
		.started_ms = command->started_ms,
		.ended_ms = command->ended_ms};
	memcpy(writing->row.id, command->id, sizeof command->id);
	memcpy(writing->row.sandbox, command->sandbox->id, sizeof command->sandbox->id);
	memcpy(writing->row.name, command->name, sizeof command->name);
	if (command->state == COMMAND_CREATED)
		writing->row.state = JOURNAL_COMMAND_CREATED;
	if (command->state == COMMAND_ENDED) {
		writing->row.state = JOURNAL_COMMAND_ENDED;
		fill_result(&writing->row, &command->result);
	}
	if (fill_request(&writing->row, command) == 0)
		return writing;
	free_writing(writing);
	return NULL;
}

int command_record(struct command *command, struct error *error)
{
	const struct sandboxes_config *config = &command->sandbox->all->config;
	struct command_writing *writing;

	command_record_forget(command);
	if (!config->journal) {
		*error = *config->journal_error;
		return -1;
	}
	writing = make(command);
	if (!writing)
		return error_set(error, ERROR_INTERNAL, "out of memory for the command");
	writing->waits = command;
	command->writing = writing;
	command->has_row = true;
	journal_queue_put(config->journal, &writing->job);
	return 0;
}

void command_record_forget(struct command *command)
{
	if (command->writing)
		command->writing->waits = NULL;
	command->writing = NULL;
}

/* With its sandbox's row those of its commands have gone, and none may come after it. */
static bool is_recorded(const struct command *command)
{
	return command->has_row && command->sandbox->recorded && command->sandbox->all->config.journal;
}

static void put_lazily(const struct command *command, struct command_writing *writing)
{
	writing->job.lazy = true;
	journal_queue_put(command->sandbox->all->config.journal, &writing->job);
}

void command_record_end(struct command *command)
{
	struct command_writing *writing = is_recorded(command) ? make(command) : NULL;

	if (writing)
		put_lazily(command, writing);
}

void command_record_remove(struct command *command)
{
	struct command_writing *writing = is_recorded(command) ? make(command) : NULL;

	command->has_row = false;
	if (!writing)
		return;
	writing->job.work = take_out;
	put_lazily(command, writing);
}
