/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The resources /v1/sandboxes and /v1/operations.
 *
 *   a transition   operation → asked → ?wait=false: 202 with it
 *                                    → else, when it is over: the sandbox, the receipt, or the error
 *
 * Its operation is planned first, so that whatever is refused was not done.
 *
 * A client that leaves while its create is waited for never learns of the sandbox: it is deleted.
 *
 * GET of an operation with ?wait=true answers when it is over, or after API_LOOK_MS as it is.
 */
#include "host-ctl/api/api_commands.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/support/clock.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { PART_MAX = 80 };

/* A request that waits for its operation. */
struct waiting {
	struct operation_waiter waiter;
	struct api *api;
	struct http_request *request;
	struct operation *operation;
	struct loop_source *timer; /* of one that only looks; else NULL */
	bool creates;		   /* without it nobody would know of the sandbox */
};

static void refuse(struct http_request *request, const struct error *error)
{
	http_reply_error(request, error);
}

/* The one parameter of the query, wait; absent: as *wait is. 0 or -1 with *error set. */
static int parse_wait(const struct http_request *request, bool *wait, struct error *error)
{
	static const char *const parameters[] = {"wait", NULL};
	const char *text = http_query(request, "wait");

	if (http_check_query(request, parameters, error))
		return -1;
	if (!text)
		return 0;
	*wait = !strcmp(text, "true");
	if (*wait || !strcmp(text, "false"))
		return 0;
	return error_set(error, ERROR_INVALID, "wait is true or false, not \"%.32s\"", text);
}

/* --- waiting --- */

/* What a synchronous call answers when its operation is over. */
static void reply_over(struct api *api, struct http_request *request, const struct operation *operation)
{
	struct sandbox *sandbox;
	struct error error;

	if (operation->state == OPERATION_FAILED) {
		refuse(request, &operation->error);
		return;
	}
	sandbox = sandboxes_find(api->sandboxes, operation->sandbox_id, &error);
	if (!sandbox)
		refuse(request, &error);
	else if (operation->kind == OPERATION_DELETE)
		http_reply_json(request, 200, sandbox_receipt_to_json(sandbox));
	else
		http_reply_json(
			request, operation->kind == OPERATION_CREATE ? 201 : 200, sandbox_to_json(sandbox));
}

static struct waiting *waiting_of(struct operation_waiter *waiter)
{
	return (struct waiting *)((char *)waiter - offsetof(struct waiting, waiter));
}

/* No more of it; the request is answered by the caller, or its client has left. */
static void end_waiting(struct waiting *waiting)
{
	operation_leave(&waiting->waiter);
	loop_remove(waiting->timer);
	free(waiting);
}

static void over(struct operation_waiter *waiter, struct operation *operation)
{
	struct waiting *waiting = waiting_of(waiter);
	struct http_request *request = waiting->request;
	struct api *api = waiting->api;

	end_waiting(waiting);
	reply_over(api, request, operation);
}

static void client_left(void *context)
{
	struct waiting *waiting = context;
	struct sandbox *sandbox = waiting->creates ? waiting->operation->sandbox : NULL;
	struct error error;

	end_waiting(waiting);
	if (sandbox)
		sandbox_ask(sandbox, SANDBOX_DELETE, "its client left before it was there", &error);
}

/* NULL without memory; the request is refused then. */
static struct waiting *begin_waiting(struct api *api, struct http_request *request,
	struct operation *operation, void (*told)(struct operation_waiter *, struct operation *))
{
	struct waiting *waiting = calloc(1, sizeof *waiting);
	struct error error;

	if (!waiting) {
		error_set(&error, ERROR_INTERNAL, "out of memory for the request");
		refuse(request, &error);
		return NULL;
	}
	waiting->waiter.over = told;
	waiting->api = api;
	waiting->request = request;
	waiting->operation = operation;
	request->left = client_left;
	request->left_context = waiting;
	operation_wait(operation, &waiting->waiter);
	return waiting;
}

static void wait_for(struct api *api, struct http_request *request, struct operation *operation)
{
	struct waiting *waiting;

	if (operation->state != OPERATION_RUNNING) {
		reply_over(api, request, operation);
		return;
	}
	waiting = begin_waiting(api, request, operation, over);
	if (waiting)
		waiting->creates = operation->kind == OPERATION_CREATE;
}

/* Answers for a transition that was asked for. */
static void follow(struct api *api, struct http_request *request, struct operation *operation,
	struct sandbox *sandbox, bool wait)
{
	operation_follow(operation, sandbox);
	if (wait)
		wait_for(api, request, operation);
	else
		http_reply_json(request, 202, operation_to_json(operation));
}

/* --- the handlers --- */

static struct sandbox *create(struct api *api, const struct http_request *request, struct error *error)
{
	json_t *body = http_body_parse(request, sandbox_spec_fields, error);
	struct sandbox *sandbox = NULL;
	struct sandbox_spec spec;

	if (body && sandbox_spec_parse(&spec, body, error) == 0) {
		sandbox = sandboxes_new(api->sandboxes, &spec, request->peer->uid, error);
		sandbox_spec_finish(&spec);
	}
	json_decref(body);
	return sandbox;
}

void api_sandboxes_post(struct api *api, struct http_request *request)
{
	struct operation *operation = NULL;
	struct sandbox *sandbox = NULL;
	struct error error;
	bool wait = true;

	if (!parse_wait(request, &wait, &error))
		operation = sandboxes_plan_operation(api->sandboxes, NULL, OPERATION_CREATE, &error);
	if (operation)
		sandbox = create(api, request, &error);
	if (sandbox) {
		follow(api, request, operation, sandbox, wait);
		return;
	}
	if (operation)
		operation_cancel(operation);
	refuse(request, &error);
}

/* The query of a list, as it is read. */
struct query {
	struct sandboxes_filter filter;
	json_t *metadata;
	struct error *error;
	int status;
};

/* The key of a parameter metadata.KEY, or NULL. */
static const char *metadata_key(const char *name)
{
	static const char metadata[] = "metadata.";

	return strncmp(name, metadata, sizeof metadata - 1) != 0 ? NULL : name + sizeof metadata - 1;
}

static bool is_twice(const struct query *query, const char *name)
{
	const char *key = metadata_key(name);

	return key ? json_object_get(query->metadata, key) != NULL
		   : (!strcmp(name, "state") && query->filter.state >= 0) ||
			       (!strcmp(name, "template") && query->filter.template);
}

static bool take_parameter(void *context, const char *name, const char *value)
{
	struct query *query = context;

	value = value ? value : "";
	if (is_twice(query, name)) {
		query->status =
			error_set(query->error, ERROR_INVALID, "the parameter %.64s is there twice", name);
	} else if (!strcmp(name, "state")) {
		query->filter.state = sandbox_state_of_name(value);
		if (query->filter.state < 0)
			query->status = error_set(query->error, ERROR_INVALID,
				"state is not that of a sandbox: \"%.32s\"", value);
	} else if (!strcmp(name, "template")) {
		query->filter.template = value;
	} else if (metadata_key(name)) {
		if (json_object_set_new(query->metadata, metadata_key(name), json_string(value)))
			query->status = error_set(
				query->error, ERROR_INVALID, "%.64s is not UTF-8, or no memory", name);
	} else {
		query->status = error_set(query->error, ERROR_INVALID,
			"unknown parameter \"%.64s\": a list takes state, template and metadata.KEY", name);
	}
	return query->status == 0;
}

void api_sandboxes_get(struct api *api, struct http_request *request)
{
	struct error error = {.kind = ERROR_NONE};
	struct query query = {.filter.state = -1, .metadata = json_object(), .error = &error};

	http_each_query(request, take_parameter, &query);
	query.filter.metadata = query.metadata;
	if (query.status)
		refuse(request, &error);
	else
		http_reply_json(request, 200, sandboxes_to_json(api->sandboxes, &query.filter));
	json_decref(query.metadata);
}

void api_sandbox_get(struct api *api, struct http_request *request)
{
	struct error error;
	struct sandbox *sandbox = api_find_sandbox(api, request, &error);

	if (sandbox)
		http_reply_json(request, 200, sandbox_to_json(sandbox));
	else
		refuse(request, &error);
}

/* What is asked of a sandbox. */
struct transition {
	enum sandbox_verb verb;
	enum operation_kind kind;
	const char *reason;
	/* What goes before it, or NULL: 0, or -1 with *error set. */
	int (*prepare)(struct sandbox *sandbox, const struct transition *transition, struct error *error);
	bool discard; /* of a stop */
};

static void ask(struct api *api, struct http_request *request, const struct transition *transition)
{
	struct operation *operation = NULL;
	struct sandbox *sandbox = NULL;
	struct error error;
	bool wait = true;

	if (!parse_wait(request, &wait, &error))
		sandbox = api_find_sandbox(api, request, &error);
	if (sandbox)
		operation = sandboxes_plan_operation(api->sandboxes, sandbox, transition->kind, &error);
	if (!operation) {
		refuse(request, &error);
	} else if ((transition->prepare && transition->prepare(sandbox, transition, &error)) ||
		   sandbox_ask(sandbox, transition->verb, transition->reason, &error)) {
		operation_cancel(operation);
		refuse(request, &error);
	} else {
		follow(api, request, operation, sandbox, wait);
	}
}

void api_sandbox_delete(struct api *api, struct http_request *request)
{
	ask(api, request,
		&(struct transition){
			.verb = SANDBOX_DELETE, .kind = OPERATION_DELETE, .reason = "it was deleted"});
}

void api_sandbox_pause(struct api *api, struct http_request *request)
{
	ask(api, request, &(struct transition){.verb = SANDBOX_PAUSE, .kind = OPERATION_PAUSE});
}

void api_sandbox_resume(struct api *api, struct http_request *request)
{
	ask(api, request, &(struct transition){.verb = SANDBOX_RESUME, .kind = OPERATION_RESUME});
}

void api_sandbox_suspend(struct api *api, struct http_request *request)
{
	ask(api, request, &(struct transition){.verb = SANDBOX_SUSPEND, .kind = OPERATION_SUSPEND});
}

void api_sandbox_wake(struct api *api, struct http_request *request)
{
	ask(api, request, &(struct transition){.verb = SANDBOX_WAKE, .kind = OPERATION_WAKE});
}

/* Without a body nothing is discarded. 0, or -1 with *error set. */
static int parse_discard(const struct http_request *request, bool *discard, struct error *error)
{
	static const char *const fields[] = {"discard_files", NULL};
	json_t *body = request->body_length ? http_body_parse(request, fields, error) : json_object();
	const json_t *given = json_object_get(body, fields[0]);

	*discard = json_is_true(given);
	if (!body)
		return -1;
	if (given && !json_is_boolean(given)) {
		json_decref(body);
		return error_set(error, ERROR_INVALID, "discard_files is not true or false");
	}
	json_decref(body);
	return 0;
}

/* Nothing is lost that nobody has spoken of. */
static int prepare_stop(struct sandbox *sandbox, const struct transition *transition, struct error *error)
{
	const bool discard = transition->discard;
	enum sandbox_state next;

	if (sandbox_check(sandbox, SANDBOX_STOP, &next, error))
		return -1;
	if (sandbox->state == SANDBOX_SUSPENDED && !sandbox->has_files)
		return error_set(error, ERROR_CONFLICT,
			"sandbox %s is suspended, and has no disk to be started from: wake it, or delete it",
			sandbox->id);
	if (next == SANDBOX_STOPPED && discard)
		sandbox_discard_files(sandbox);
	if (next == sandbox->state)
		return 0;
	sandbox->discards = discard;
	if (discard || sandbox->has_files)
		return 0;
	return error_set(error, ERROR_CONFLICT,
		"sandbox %s has its files in its memory, and would lose them: stop it with "
		"\"discard_files\": true "
		"(host-ctl stop --discard-files), or pause it",
		sandbox->id);
}

void api_sandbox_stop(struct api *api, struct http_request *request)
{
	struct transition stop = {.verb = SANDBOX_STOP,
		.kind = OPERATION_STOP,
		.reason = "it was stopped",
		.prepare = prepare_stop};
	struct error error;

	if (parse_discard(request, &stop.discard, &error)) {
		refuse(request, &error);
		return;
	}
	if (stop.discard)
		stop.reason = "it was stopped, and its files are gone";
	ask(api, request, &stop);
}

void api_sandbox_start(struct api *api, struct http_request *request)
{
	ask(api, request, &(struct transition){.verb = SANDBOX_START, .kind = OPERATION_START});
}

/* --- one who only looks --- */

static void shown(struct operation_waiter *waiter, struct operation *operation)
{
	struct waiting *waiting = waiting_of(waiter);
	struct http_request *request = waiting->request;

	end_waiting(waiting);
	http_reply_json(request, 200, operation_to_json(operation));
}

static void look_is_over(void *context)
{
	struct waiting *waiting = context;

	shown(&waiting->waiter, waiting->operation);
}

static void show(struct api *api, struct http_request *request, struct operation *operation, bool wait)
{
	struct waiting *waiting;

	if (!wait || operation->state != OPERATION_RUNNING) {
		http_reply_json(request, 200, operation_to_json(operation));
		return;
	}
	waiting = begin_waiting(api, request, operation, shown);
	if (!waiting)
		return;
	waiting->timer = loop_add_timer(api->loop, look_is_over, waiting);
	/* Without one, it is told how it is now. */
	if (!waiting->timer || loop_set_timer(waiting->timer, API_LOOK_MS * CLOCK_NS_PER_MS) < 0)
		look_is_over(waiting);
}

void api_operation_get(struct api *api, struct http_request *request)
{
	struct operation *operation = NULL;
	struct error error;
	char id[PART_MAX];
	bool wait = false;

	api_path_part(request, 2, id, sizeof id);
	if (!parse_wait(request, &wait, &error))
		operation = sandboxes_find_operation(api->sandboxes, id, &error);
	if (operation)
		show(api, request, operation, wait);
	else
		refuse(request, &error);
}
