/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <string.h>

/* One whose row is being written is its creator's alone: it may not come to be. */
static bool is_known(const struct command *command)
{
	return !command->created;
}

struct command *commands_find(const struct sandbox *sandbox, const char *id, struct error *error)
{
	struct command *command = sandbox->commands;

	while (command && (!is_known(command) || strcmp(command->id, id) != 0))
		command = command->next;
	if (!command)
		error_set(error, ERROR_NOT_FOUND, "sandbox %s has no command %.64s", sandbox->id, id);
	return command;
}

struct command *commands_find_token(const struct sandboxes *sandboxes, const char *token)
{
	for (struct sandbox *sandbox = sandboxes->first; sandbox; sandbox = sandbox->next)
		for (struct command *command = sandbox->commands; command; command = command->next)
			if (command_token_check(&command->token, token) != TOKEN_WRONG)
				return command;
	return NULL;
}

json_t *commands_to_json(const struct sandbox *sandbox)
{
	json_t *list = json_array();

	for (struct command *command = sandbox->commands; command; command = command->next)
		if (is_known(command))
			json_array_append_new(list, command_to_json(command));
	return json_pack("{s:o}", "commands", list);
}

static bool is_stale(const struct command *command)
{
	return command->state == COMMAND_CREATED && !command->holders &&
	       clock_now() > command->token.expires_ns;
}

/* Of one sandbox, one that gives way; NULL: none does. */
static struct command *find_over(const struct sandbox *sandbox)
{
	struct command *command = sandbox->commands;

	while (command && (command->state != COMMAND_ENDED || command->holders))
		command = command->next;
	for (struct command *other = sandbox->commands; other && !command; other = other->next)
		if (is_stale(other))
			command = other;
	return command;
}

/* The same, of the oldest sandbox that has one. */
static struct command *find_over_anywhere(const struct sandboxes *all)
{
	struct command *command = NULL;

	for (struct sandbox *sandbox = all->first; sandbox && !command; sandbox = sandbox->next)
		command = find_over(sandbox);
	return command;
}

int commands_make_room(struct sandbox *sandbox, struct error *error)
{
	bool full = sandbox->command_count >= COMMANDS_MAX;
	struct command *command;

	if (!full && sandbox->all->command_count < COMMANDS_ALL_MAX)
		return 0;
	command = full ? find_over(sandbox) : find_over_anywhere(sandbox->all);
	if (command) {
		command_destroy(command);
		return 0;
	}
	if (full)
		return error_set(error, ERROR_EXHAUSTED, "sandbox %s has %d commands that have not ended",
			sandbox->id, COMMANDS_MAX);
	return error_set(
		error, ERROR_EXHAUSTED, "there are %d commands that have not ended", COMMANDS_ALL_MAX);
}

void commands_add(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;

	command->previous = sandbox->last_command;
	*(sandbox->last_command ? &sandbox->last_command->next : &sandbox->commands) = command;
	sandbox->last_command = command;
	sandbox->command_count++;
	sandbox->all->command_count++;
}

static uint64_t held(const struct command *command)
{
	return command->output[0].capacity + command->output[1].capacity;
}

void commands_trim(struct command *command)
{
	uint64_t before = held(command);

	if (!command->output_max)
		return;
	run_output_trim(&command->output[0], command->output_max);
	run_output_trim(&command->output[1], command->output_max);
	if (command->state == COMMAND_ENDED)
		command->sandbox->all->output_bytes -= before - held(command);
}

void commands_remove(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;

	*(command->previous ? &command->previous->next : &sandbox->commands) = command->next;
	*(command->next ? &command->next->previous : &sandbox->last_command) = command->previous;
	sandbox->command_count--;
	sandbox->all->command_count--;
	if (command->state == COMMAND_ENDED)
		sandbox->all->output_bytes -= held(command);
}

static struct command *find_oldest_output(const struct sandboxes *all)
{
	struct command *oldest = NULL;

	for (struct sandbox *sandbox = all->first; sandbox; sandbox = sandbox->next)
		for (struct command *command = sandbox->commands; command; command = command->next)
			if (command->state == COMMAND_ENDED && held(command) &&
				(!oldest || command->ended_ms < oldest->ended_ms))
				oldest = command;
	return oldest;
}

void commands_note_ended(struct command *command)
{
	struct sandboxes *all = command->sandbox->all;
	struct command *oldest;

	all->output_bytes += held(command);
	while (all->output_bytes > COMMANDS_OUTPUT_MAX && (oldest = find_oldest_output(all))) {
		all->output_bytes -= held(oldest);
		oldest->discarded = true;
		run_output_drop(&oldest->output[0]);
		run_output_drop(&oldest->output[1]);
	}
	commands_set_clock(command->sandbox);
}

/* --- their time --- */

static uint64_t left_ms(const struct command *command)
{
	const uint64_t keep_ms = command->sandbox->all->config.keep_commands_ms;
	const uint64_t passed_ms = (clock_now() - command->ended_ns) / CLOCK_NS_PER_MS;

	return passed_ms < keep_ms ? keep_ms - passed_ms : 0;
}

void commands_set_clock(struct sandbox *sandbox)
{
	const uint64_t keep_ms = sandbox->all->config.keep_commands_ms;
	uint64_t least_ms = UINT64_MAX;

	for (struct command *command = sandbox->commands; command && keep_ms; command = command->next) {
		const uint64_t left = left_ms(command);

		/* One that somebody reads is looked at again when nobody does. */
		if (command->state == COMMAND_ENDED && (left || !command->holders) && left < least_ms)
			least_ms = left;
	}
	if (least_ms == UINT64_MAX)
		least_ms = 0;
	else if (!least_ms)
		least_ms = 1;
	sandbox_set_clock(sandbox, SANDBOX_CLOCK_COMMANDS, least_ms);
}

void commands_forget_old(struct sandbox *sandbox)
{
	struct command *command = sandbox->commands;

	while (command) {
		struct command *next = command->next;

		if (command->state == COMMAND_ENDED && !command->holders && !left_ms(command))
			command_destroy(command);
		command = next;
	}
	commands_set_clock(sandbox);
}

void commands_sleep(struct sandbox *sandbox)
{
	struct command *command = sandbox->commands;

	/* Whoever is told of one that ends by it may remove others. */
	while (command) {
		bool goes = command->state == COMMAND_RUNNING || command->state == COMMAND_CONNECTING;

		if (goes)
			command_sleep(command);
		command = goes ? sandbox->commands : command->next;
	}
}

bool commands_are_under_way(const struct sandbox *sandbox)
{
	const struct command *command = sandbox->commands;

	while (command && command->state != COMMAND_CONNECTING &&
		(command->state != COMMAND_RUNNING || command->session.state != SESSION_STARTING))
		command = command->next;
	return command;
}

void commands_destroy(struct sandbox *sandbox)
{
	while (sandbox->commands)
		command_destroy(sandbox->commands);
}
