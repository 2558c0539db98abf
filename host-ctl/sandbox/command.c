/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/command.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/sandbox/command_private.h"
#include "host-ctl/sandbox/command_record.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/sandbox/events.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

/* --- creation --- */

static void changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	(void)sandbox;
	command_sandbox_changed((struct command *)((char *)watcher - offsetof(struct command, watcher)));
}

static void stream_replied(struct vm_request *request, int status, int fd)
{
	command_stream_replied(
		(struct command *)((char *)request - offsetof(struct command, stream)), status, fd);
}

/* The sandbox's variables, where the body does not set them. One with env_b64 has set them all. */
static int add_env(const struct sandbox *sandbox, json_t *body)
{
	json_t *env = json_object_get(body, "env");

	if (json_object_get(body, "env_b64") || !json_object_size(sandbox->spec.env))
		return 0;
	if (!env)
		return json_object_set(body, "env", sandbox->spec.env);
	/* What is no object is refused later. */
	return json_is_object(env) ? json_object_update_missing(env, sandbox->spec.env) : 0;
}

/* An absent one: fallback. */
static int parse_bool(const json_t *body, const char *field, bool fallback, bool *value, struct error *error)
{
	const json_t *given = json_object_get(body, field);

	*value = given ? json_is_true(given) : fallback;
	if (!given || json_is_boolean(given))
		return 0;
	return error_set(error, ERROR_INVALID, "%s is not true or false", field);
}

static int parse_detach(const json_t *body, bool *keep, struct error *error)
{
	const json_t *given = json_object_get(body, "on_detach");
	const char *text = given ? json_string_value(given) : "keep";

	*keep = text && !strcmp(text, "keep");
	if (*keep || (text && !strcmp(text, "kill")))
		return 0;
	return error_set(error, ERROR_INVALID, "on_detach is not \"keep\" or \"kill\"");
}

static int parse_output(json_t *body, unsigned int *maximum, struct error *error)
{
	*maximum = 0;
	if (!json_object_get(body, "output_max"))
		return 0;
	return http_body_number(
		body, "output_max", COMMAND_OUTPUT_MIN, RUN_OUTPUT_HEAD + RUN_OUTPUT_TAIL, maximum, error);
}

static int parse(struct command *command, json_t *body, size_t length, struct error *error)
{
	if (parse_detach(body, &command->keep, error) ||
		parse_bool(body, "wake", true, &command->wakes, error) ||
		parse_output(body, &command->output_max, error))
		return -1;
	if (add_env(command->sandbox, body))
		return error_set(error, ERROR_INTERNAL, "out of memory for the command");
	if (run_request_take(&command->request, body, length + SANDBOX_ENV_BYTES, RUN_COMMAND, error))
		return -1;
	run_request_limit_pids(&command->request, command->sandbox->spec.pids_max);
	return 0;
}

/* What it does not need is given back: it may wait for long. */
static void shrink(struct run_request *request)
{
	uint8_t *payload = realloc(request->payload, request->payload_length);

	if (payload)
		request->payload = payload;
}

/* True: there was one. */
static bool tell_creator(struct command *command, const struct error *error)
{
	void (*created)(struct command * command, const struct error *error) = command->created;

	command->created = NULL;
	if (created)
		created(command, error);
	return created != NULL;
}

void command_recorded(struct command *command, const struct error *error)
{
	if (tell_creator(command, error))
		return;
	if (error) {
		command_fail(command, error->kind, error->message, error->cause);
		return;
	}
	command->intended = true;
	if (command->sandbox->state == SANDBOX_READY)
		command_connect(command);
}

struct command *command_make(struct sandbox *sandbox)
{
	struct command *command = calloc(1, sizeof *command);
	unsigned char random[8];

	if (!command || getrandom(random, sizeof random, 0) != sizeof random ||
		command_token_make(&command->token, COMMAND_TOKEN_MS)) {
		free(command);
		return NULL;
	}
	snprintf(command->id, sizeof command->id, "cmd-%02x%02x%02x%02x%02x%02x%02x%02x", random[0],
		random[1], random[2], random[3], random[4], random[5], random[6], random[7]);
	command->sandbox = sandbox;
	command->fd = -1;
	command->watcher.changed = changed;
	command->stream.replied = stream_replied;
	command->created_ms = clock_wall_ms();
	return command;
}

struct command *command_create(struct sandbox *sandbox, json_t *body, size_t length, struct error *error)
{
	struct command *command = command_make(sandbox);

	if (!command) {
		error_set(error, ERROR_INTERNAL, "out of memory for the command");
		return NULL;
	}
	if (parse(command, body, length, error) || commands_make_room(sandbox, error)) {
		run_request_finish(&command->request);
		free(command);
		return NULL;
	}
	shrink(&command->request);
	command->timeout_ms = command->request.timeout_ms;
	memcpy(command->name, command->request.name, sizeof command->name);
	commands_add(command);
	return command;
}

/* All that it holds but its output and result. */
static void release(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;

	sandbox_unwatch(&command->watcher);
	command_record_forget(command);
	if (command->state == COMMAND_CONNECTING && sandbox->vm)
		vm_forget(sandbox->vm, &command->stream);
	loop_remove(command->source);
	loop_remove(command->timer);
	command->source = command->timer = NULL;
	fd_close(&command->fd);
	session_finish(&command->session);
	run_request_finish(&command->request);
	if (!command->counted)
		return;
	command->counted = false;
	sandbox->running--;
	sandbox_release(sandbox);
}

void command_destroy(struct command *command)
{
	release(command);
	command_record_remove(command);
	commands_remove(command);
	run_output_finish(&command->output[0]);
	run_output_finish(&command->output[1]);
	free(command);
}

/* --- the end --- */

static uint64_t since_us(const struct command *command, uint64_t then)
{
	return then > command->asked_ns ? (then - command->asked_ns) / CLOCK_NS_PER_US : 0;
}

static void fill_times(struct command *command, struct run_result *result)
{
	memcpy(result->vm, command->sandbox->vm_id, sizeof result->vm);
	result->warm = command->sandbox->warm;
	result->queued_us = since_us(command, command->running_ns);
	result->first_byte_us = since_us(command, command->first_byte_ns);
	result->total_us = command->asked_ns ? since_us(command, clock_now()) : 0;
	if (result->exit.stdout_bytes < command->output[0].total)
		result->exit.stdout_bytes = command->output[0].total;
	if (result->exit.stderr_bytes < command->output[1].total)
		result->exit.stderr_bytes = command->output[1].total;
}

/* One line: the record of who ran what where and how it ended. */
static void log_end(const struct command *command)
{
	const struct run_result *result = &command->result;

	log_info("command %s sandbox=%s vm=%s argv0=\"%s\" result=%s code=%d total_us=%llu stdout=%llu "
		 "stderr=%llu",
		command->id, command->sandbox->id, command->sandbox->vm_id, command->name,
		run_result_name(result), (int)result->exit.code, (unsigned long long)result->total_us,
		(unsigned long long)command->output[0].total, (unsigned long long)command->output[1].total);
	if (result->error.kind)
		log_warn("command %s: %s", command->id, result->error.message);
}

void command_end(struct command *command, const struct run_result *result)
{
	struct command_reader *reader = command->reader;

	command->result = *result;
	fill_times(command, &command->result);
	command->uncounted = command->returns && result->error.kind;
	release(command);
	if (!command->holders)
		commands_trim(command);
	command->state = COMMAND_ENDED;
	command->ended_ms = clock_wall_ms();
	command->ended_ns = clock_now();
	sandbox_suspension_look(command->sandbox);
	command_record_end(command);
	log_end(command);
	run_result_count(&command->result, command->sandbox->all->config.metrics);
	commands_note_ended(command);
	events_tell_command(command->sandbox->all->config.events, command);
	command_tell(command);
	command->reader = NULL;
	tell_creator(command, NULL);
	if (reader)
		reader->events->ended(reader->context);
}

void command_fail(struct command *command, enum error_kind kind, const char *message, const char *cause)
{
	struct run_result result = {.by_host = false};

	error_set(&result.error, kind, "%s", message);
	snprintf(result.error.vm, sizeof result.error.vm, "%s", command->sandbox->vm_id);
	snprintf(result.error.cause, sizeof result.error.cause, "%s", cause);
	command_end(command, &result);
}

/* --- its start --- */

static void timer_fired(void *context)
{
	command_time_is_up(context);
}

static int check_start(const struct command *command, struct error *error)
{
	const struct sandbox *sandbox = command->sandbox;

	if (command->state != COMMAND_CREATED)
		return error_set(error, ERROR_CONFLICT, "command %s was started before", command->id);
	if (command->created)
		return error_set(error, ERROR_NOT_READY, "command %s is being created", command->id);
	if (sandbox->running >= COMMANDS_RUNNING_MAX)
		return error_set(error, ERROR_EXHAUSTED, "%u commands run in sandbox %s: wait for some",
			sandbox->running, sandbox->id);
	if ((sandbox->state == SANDBOX_PAUSED || sandbox->state == SANDBOX_SUSPENDED) && !command->wakes)
		return error_set(error, ERROR_CONFLICT,
			"sandbox %s is %s, and the command does not wake it: %s it first", sandbox->id,
			sandbox_state_name(sandbox->state),
			sandbox->state == SANDBOX_PAUSED ? "resume" : "wake");
	return 0;
}

int command_begin(struct command *command)
{
	struct sandbox *sandbox = command->sandbox;

	command->timer = loop_add_timer(sandbox->all->config.loop, timer_fired, command);
	if (!command->timer)
		return -ENOMEM;
	command->state = COMMAND_WAKING;
	command->asked_ns = clock_now();
	command->counted = true;
	sandbox->running++;
	sandbox_hold(sandbox);
	sandbox_watch(sandbox, &command->watcher);
	return 0;
}

/* As if it had never been asked to start. */
static void unbegin(struct command *command)
{
	sandbox_unwatch(&command->watcher);
	loop_remove(command->timer);
	command->timer = NULL;
	command->state = COMMAND_CREATED;
	command->counted = false;
	command->sandbox->running--;
	sandbox_release(command->sandbox);
}

int command_start(struct command *command, struct error *error)
{
	struct sandbox *sandbox = command->sandbox;

	if (check_start(command, error))
		return -1;
	if (command_begin(command))
		return error_set(error, ERROR_INTERNAL, "out of memory or fds for the command");
	command->session_id = ++sandbox->last_session;
	command->started_ms = clock_wall_ms();
	if (sandbox_ask(sandbox, SANDBOX_EXEC, NULL, error) || command_record(command, error)) {
		command->started_ms = 0;
		unbegin(command);
		return -1;
	}
	events_tell_command(sandbox->all->config.events, command);
	return 0;
}

/* --- who is attached --- */

void command_attach(struct command *command, struct command_reader *reader)
{
	struct command_reader *before = command->reader;

	command->reader = command->state == COMMAND_ENDED ? NULL : reader;
	if (before)
		before->events->replaced(before->context);
	session_continue(&command->session);
}

void command_detach(struct command *command, const struct command_reader *reader)
{
	if (command->reader != reader)
		return;
	command->reader = NULL;
	if (command->state == COMMAND_ENDED)
		return;
	if (!command->keep)
		command_kill(command);
	else
		session_continue(&command->session);
}

void command_hold(struct command *command)
{
	command->holders++;
	sandbox_hold(command->sandbox);
}

void command_drop(struct command *command)
{
	/* Whoever read it may not have had all until now. */
	if (--command->holders == 0 && command->state == COMMAND_ENDED) {
		commands_trim(command);
		commands_set_clock(command->sandbox);
	}
	sandbox_release(command->sandbox);
}

void command_wait(struct command *command, struct command_waiter *waiter)
{
	list_add(&command->waiters, &waiter->entry);
}

void command_leave(struct command_waiter *waiter)
{
	list_remove(&waiter->entry);
}

void command_tell(struct command *command)
{
	for (struct list_entry *entry = command->waiters.first; entry; entry = entry->next) {
		struct command_waiter *waiter = (struct command_waiter *)entry;

		waiter->news(waiter);
	}
}

void command_read_on(struct command *command)
{
	session_continue(&command->session);
}

struct agent_started command_started(const struct command *command)
{
	const struct session *session = &command->session;
	bool takes = command->state == COMMAND_RUNNING && !session->input_ended;

	return (struct agent_started){.session = command->session_id,
		.pid = command->pid,
		.stdin_credit = takes ? (uint32_t)session->credit : 0,
		.stdin_offset = command->input};
}

int command_input(struct command *command, const struct frame *frame, const char **why)
{
	int status;

	if (command->state == COMMAND_CREATED || command->state == COMMAND_ENDED)
		return -ENOTCONN;
	if (frame->type == AGENT_KILL && !frame->length && command->phase < COMMAND_IS_KILLED) {
		command_set_phase(command, COMMAND_IS_KILLED, 0);
		loop_set_timer(command->timer, 1);
		return 0;
	}
	/* What one that comes back takes, its guest has still to say; and what is sent to a guest that is
	 * being saved is nowhere to be kept. */
	if (command->state != COMMAND_RUNNING || command->sandbox->state == SANDBOX_SUSPENDING ||
		(command->returns && command->session.state == SESSION_STARTING))
		return -EAGAIN;
	status = session_input(&command->session, frame, why);
	if (!status && frame->type == AGENT_STDIN)
		command->input += frame->length;
	return status;
}

void command_kill(struct command *command)
{
	const struct frame kill = {.type = AGENT_KILL};
	const struct run_result killed = {.exit = {.kind = AGENT_KILLED}};
	const char *why;

	if (command->state == COMMAND_ENDED || command->phase == COMMAND_DIES ||
		command->phase == COMMAND_IS_LOST)
		return;
	/* In the guest it runs. */
	if (command->returns && command->state != COMMAND_RUNNING) {
		command->doomed = true;
		return;
	}
	if (command->state != COMMAND_RUNNING) {
		command_end(command, &killed);
		return;
	}
	/* When its queue is full of input, its time will tell. */
	session_input(&command->session, &kill, &why);
	command->unbounded = true;
	command_set_phase(command, COMMAND_DIES, COMMAND_KILL_MS);
	session_continue(&command->session);
}
