/* SPDX-License-Identifier: Apache-2.0 */
/* Commands of an earlier daemon's: what their rows say becomes of them. */
#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/sandbox/command_fetch.h"
#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <stdlib.h>
#include <string.h>

/* Tokens were told by a daemon that is no more; another is to be had as long as one would have been good. */
static void forget_token(struct command_token *token)
{
	*token = (struct command_token){
		.expires_ns = clock_now() + COMMAND_TOKEN_MS * CLOCK_NS_PER_MS, .restored = true};
}

static void take_request(struct command *command, struct journal_command *row)
{
	command->request = (struct run_request){.payload = row->payload.bytes,
		.payload_length = row->payload.length,
		.input = row->input.bytes,
		.input_length = row->input.length,
		.has_input = row->flags & JOURNAL_COMMAND_INPUT,
		.input_streams = row->flags & JOURNAL_COMMAND_STREAMS,
		.has_terminal = row->flags & JOURNAL_COMMAND_TTY,
		.timeout_ms = row->timeout_ms};
	memcpy(command->request.name, row->name, sizeof command->request.name);
	row->payload = row->input = (struct journal_bytes){.bytes = NULL};
}

/* When it ended, by the clock that what is known is kept by. Between two daemons only the wall tells. */
static uint64_t ended_ns(const struct journal_command *row)
{
	const uint64_t now_ms = clock_wall_ms();

	return clock_now() - (now_ms > row->ended_ms ? now_ms - row->ended_ms : 0) * CLOCK_NS_PER_MS;
}

/* How much output there was is known; its guest may still hold it (command_fetch.h). */
static void take_result(struct command *command, const struct journal_command *row)
{
	command->state = COMMAND_ENDED;
	command->ended_ns = ended_ns(row);
	commands_set_clock(command->sandbox);
	command->uncounted = row->flags & JOURNAL_COMMAND_UNCOUNTED;
	command->started = row->exit.kind && row->exit.kind != AGENT_FAILED_TO_START;
	command->result = (struct run_result){.error = row->error,
		.exit = row->exit,
		.by_host = row->flags & JOURNAL_COMMAND_BY_HOST,
		.warm = command->sandbox->warm,
		.queued_us = row->queued_us,
		.first_byte_us = row->first_byte_us,
		.total_us = row->total_us};
	memcpy(command->result.vm, command->sandbox->vm_id, sizeof command->result.vm);
	run_output_begin_at(&command->output[0], row->exit.stdout_bytes);
	run_output_begin_at(&command->output[1], row->exit.stderr_bytes);
	if (command->started && !row->error.kind && (row->exit.stdout_bytes || row->exit.stderr_bytes))
		command_fetch(command);
}

/* Whoever was attached has left with the daemon. */
static int come_back(struct command *command, struct error *error)
{
	const struct sandbox *sandbox = command->sandbox;

	if (command_begin(command))
		return error_set(error, ERROR_INTERNAL, "out of memory or fds for the command");
	command->returns = command->intended = true;
	command->slept = sandbox->state == SANDBOX_SUSPENDED;
	command->doomed = !command->keep;
	if (!sandbox->vm)
		command_sandbox_changed(command);
	return 0;
}

static struct command *make(struct sandbox *sandbox, const struct journal_command *row)
{
	struct command *command = command_make(sandbox);

	if (!command)
		return NULL;
	memcpy(command->id, row->id, sizeof command->id);
	memcpy(command->name, row->name, sizeof command->name);
	command->keep = row->flags & JOURNAL_COMMAND_KEEP;
	command->wakes = row->flags & JOURNAL_COMMAND_WAKES;
	command->timeout_ms = row->timeout_ms;
	command->output_max = row->output_max;
	command->session_id = row->session;
	command->created_ms = row->created_ms;
	command->started_ms = row->started_ms;
	command->ended_ms = row->ended_ms;
	command->has_row = true;
	forget_token(&command->token);
	return command;
}

int command_restore(struct sandbox *sandbox, struct journal_command *row, struct error *error)
{
	struct command *command = make(sandbox, row);

	if (!command)
		return error_set(error, ERROR_INTERNAL, "out of memory for the command");
	/* No new session gets the id of one that its guest may hold. */
	if (sandbox->last_session < row->session)
		sandbox->last_session = row->session;
	commands_add(command);
	if (row->state == JOURNAL_COMMAND_ENDED) {
		take_result(command, row);
		return 0;
	}
	take_request(command, row);
	if (row->state == JOURNAL_COMMAND_STARTED && come_back(command, error)) {
		command_destroy(command);
		return -1;
	}
	return 0;
}
