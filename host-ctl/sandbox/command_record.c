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
	struct journal_lasting lasting;
	struct journal_command row;
	struct sandboxes *all;
	struct command *waits; /* its `writing` is this; NULL: nobody */
	struct command *ended; /* its `ending` is this: the row is to be as it ended; NULL: no more */
	bool is_first;	       /* without it there is no row */
};

static struct command_writing *writing_of(struct journal_job *job)
{
	return (struct command_writing *)journal_lasting_of(job);
}

static int put(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_command_put(journal, &writing_of(job)->row, error);
}

static int take_out(struct journal *journal, struct journal_job *job, struct error *error)
{
	return journal_command_remove(journal, writing_of(job)->row.id, error);
}

static void drop(struct command_writing *writing)
{
	if (writing->ended)
		writing->ended->ending = NULL;
	free(writing->row.payload.bytes);
	free(writing->row.input.bytes);
	free(writing);
}

static void drop_lasting(struct journal_lasting *lasting)
{
	drop((struct command_writing *)lasting);
}

/* How one ended, while it is known; and that one is not any more. A row that stays for want of a place among
 * those is a command that the next daemon knows, as if nobody had removed it. */
static bool must_be_written(const struct command_writing *writing)
{
	return writing->ended || (writing->lasting.job.work == take_out &&
					 writing->all->again.count < COMMAND_RECORDS_UNDONE_MAX);
}

static void written(struct journal_job *job)
{
	struct command_writing *writing = writing_of(job);
	struct sandboxes *all = writing->all;
	struct command *command = writing->waits;
	struct error error = job->error;

	if (command) {
		command->writing = NULL;
		if (error.kind && writing->is_first)
			command->has_row = false;
	}
	journal_again_settle(&all->again, &writing->lasting, must_be_written(writing));
	if (command)
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

/* remove: the row is to go, so nothing of the request is wanted. NULL without memory. */
static struct command_writing *make(const struct command *command, bool remove)
{
	struct command_writing *writing = calloc(1, sizeof *writing);

	if (!writing)
		return NULL;
	writing->lasting = (struct journal_lasting){
		.job = {.unsynced = true, .work = put, .done = written}, .drop = drop_lasting};
	writing->all = command->sandbox->all;
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
	if (remove)
		writing->lasting.job.work = take_out;
	if (remove || fill_request(&writing->row, command) == 0)
		return writing;
	drop(writing);
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
	writing = make(command, false);
	if (!writing)
		return error_set(error, ERROR_INTERNAL, "out of memory for the command");
	writing->waits = command;
	writing->is_first = !command->has_row;
	command->writing = writing;
	command->has_row = true;
	journal_queue_put(config->journal, &writing->lasting.job);
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
	writing->lasting.job.lazy = true;
	journal_queue_put(command->sandbox->all->config.journal, &writing->lasting.job);
}

void command_record_end(struct command *command)
{
	struct command_writing *writing = is_recorded(command) ? make(command, false) : NULL;

	if (!writing)
		return;
	writing->ended = command;
	command->ending = writing;
	put_lazily(command, writing);
}

void command_record_leave(struct command *command)
{
	struct command_writing *writing = command->ending;

	if (!writing)
		return;
	command->ending = NULL;
	writing->ended = NULL;
	if (journal_again_forget(&writing->all->again, &writing->lasting))
		drop(writing);
}

void command_record_remove(struct command *command)
{
	struct command_writing *writing;

	/* It is not to be written after this. */
	command_record_leave(command);
	writing = is_recorded(command) ? make(command, true) : NULL;
	command->has_row = false;
	if (writing)
		put_lazily(command, writing);
}
