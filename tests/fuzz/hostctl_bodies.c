/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of all requests that have one, by their own handlers. What a handler asks the rest of the daemon
 * for is caught by the linker, held against the bounds that docs/api.md gives, and refused; so whatever the
 * body was, there is one answer, it is JSON, and nothing is left. A body that is refused has asked for
 * nothing.
 */
#include "common/frame.h"
#include "host-ctl/api/api_commands.h"
#include "host-ctl/sandbox/command_record.h"
#include "host-ctl/sandbox/sandbox_fork.h"
#include "host-ctl/sandbox/sandbox_snapshot.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "tests/fuzz/support/fuzz.h"
#include <stdlib.h>
#include <string.h>

/* Of the second byte. */
enum {
	SHAPE_UPGRADED = 1 << 0,
	SHAPE_FILES = 1 << 1, /* the sandbox has a disk */
	SHAPE_RUNS = 1 << 2,  /* the command does */
	SHAPE_STATE_SHIFT = 3,
	SHAPE_STATES = 4,
};

enum { PATH_ROOM = 128 };

static const enum sandbox_state states[SHAPE_STATES] = {
	SANDBOX_READY, SANDBOX_PAUSED, SANDBOX_SUSPENDED, SANDBOX_STOPPED};
/* Good for one attachment to a command that does not run yet. */
static const char token[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";

static struct {
	struct sandboxes all;
	struct sandbox sandbox;
	struct command command;
	unsigned int asked;   /* for something, with all of the body known to be sound */
	unsigned int answers; /* of the request */
	enum error_kind kind; /* of the answer */
} fuzz;

/* --- what is asked for --- */

/* A sound request goes no further. */
static int refuse(struct error *error)
{
	fuzz.asked++;
	return error_set(error, ERROR_NOT_READY, "asked for");
}

static bool is_size(uint64_t bytes, uint64_t minimum, uint64_t maximum)
{
	return bytes == 0 || (bytes >= minimum && bytes <= maximum && bytes % (1024 * 1024) == 0);
}

struct pool *__wrap_templates_pool(struct templates *templates, const char *name, struct error *error);
struct pool *__wrap_templates_pool(struct templates *templates, const char *name, struct error *error)
{
	(void)templates;
	/* Whether it is a name at all is for the store to say. */
	FUZZ_ASSERT(!name || (name[0] != '\0' && strlen(name) < RUN_TEMPLATE_MAX));
	refuse(error);
	return NULL;
}

struct pool *__wrap_templates_set_target(
	struct templates *templates, const char *name, unsigned int target, struct error *error);
struct pool *__wrap_templates_set_target(
	struct templates *templates, const char *name, unsigned int target, struct error *error)
{
	(void)templates;
	FUZZ_ASSERT(template_name_is_valid(name) && target <= POOL_TARGET_MAX);
	refuse(error);
	return NULL;
}

int __wrap_templates_build(
	struct templates *templates, const struct templates_request *request, struct error *error);
int __wrap_templates_build(
	struct templates *templates, const struct templates_request *request, struct error *error)
{
	(void)templates;
	FUZZ_ASSERT(template_name_is_valid(request->name) && request->cpus <= TEMPLATE_CPUS_MAX);
	FUZZ_ASSERT(is_size(request->memory_bytes, TEMPLATE_MEMORY_MIN, TEMPLATE_MEMORY_MAX));
	FUZZ_ASSERT(is_size(request->disk_bytes, TEMPLATE_DISK_MIN, TEMPLATE_DISK_MAX));
	FUZZ_ASSERT(!request->image || request->image[0] == '/');
	FUZZ_ASSERT(request->count <= TEMPLATE_COMMANDS_MAX);
	for (unsigned int i = 0; i < request->count; i++)
		FUZZ_ASSERT(request->commands[i][0] != '\0');
	return refuse(error);
}

static void drop_nulls(json_t *object)
{
	const char *key;
	json_t *value;
	void *next;

	json_object_foreach_safe(object, next, key, value)
	{
		if (json_is_null(value))
			json_object_del(object, key);
	}
}

/* As it is told, it is taken again, for the same. */
static void check_told(const struct sandbox_spec *spec)
{
	json_t *told = sandbox_spec_to_json(spec), *again;
	struct sandbox_spec second;
	struct error error;

	FUZZ_ASSERT(told);
	drop_nulls(told);
	FUZZ_ASSERT(sandbox_spec_parse(&second, told, &error) == 0);
	again = sandbox_spec_to_json(&second);
	FUZZ_ASSERT(again);
	drop_nulls(again);
	FUZZ_ASSERT(json_equal(told, again));
	sandbox_spec_finish(&second);
	json_decref(again);
	json_decref(told);
}

struct sandbox *__wrap_sandboxes_new(
	struct sandboxes *all, struct sandbox_spec *spec, uid_t uid, struct error *error);
struct sandbox *__wrap_sandboxes_new(
	struct sandboxes *all, struct sandbox_spec *spec, uid_t uid, struct error *error)
{
	(void)all;
	(void)uid;
	FUZZ_ASSERT(!spec->name[0] || (template_name_is_valid(spec->name) && strncmp(spec->name, "sb-", 3)));
	FUZZ_ASSERT(template_name_is_valid(spec->template));
	FUZZ_ASSERT(json_object_size(spec->metadata) <= SANDBOX_METADATA_MAX);
	FUZZ_ASSERT(json_object_size(spec->env) <= SANDBOX_ENV_MAX);
	FUZZ_ASSERT(spec->ttl_ms <= SANDBOX_TTL_MAX_MS && spec->idle_after_ms <= SANDBOX_TTL_MAX_MS);
	FUZZ_ASSERT(spec->ttl_action <= SANDBOX_IDLE_SUSPEND && spec->idle_action <= SANDBOX_IDLE_SUSPEND);
	FUZZ_ASSERT(is_size(spec->memory_bytes, TEMPLATE_MEMORY_MIN, TEMPLATE_MEMORY_MAX));
	FUZZ_ASSERT(spec->cpus <= TEMPLATE_CPUS_MAX);
	FUZZ_ASSERT(spec->memory_max == 0 ||
		    (spec->memory_max >= SANDBOX_MEMORY_MIN && spec->memory_max <= INT64_MAX));
	FUZZ_ASSERT(
		spec->cpu_max == 0 || (spec->cpu_max >= SANDBOX_CPU_MIN && spec->cpu_max <= SANDBOX_CPU_MAX));
	FUZZ_ASSERT(spec->pids_max <= RUN_PIDS_MAX);
	check_told(spec);
	refuse(error);
	return NULL;
}

static bool is_field_of_a_fork(const char *key)
{
	const char *const *field = sandbox_fork_fields;

	while (*field && strcmp(*field, key) != 0)
		field++;
	return *field != NULL;
}

struct sandbox_fork *__wrap_sandbox_fork_begin(struct sandbox *parent, const struct sandbox_fork_order *order,
	sandbox_fork_done_fn *done, void *context, struct error *error);
struct sandbox_fork *__wrap_sandbox_fork_begin(struct sandbox *parent, const struct sandbox_fork_order *order,
	sandbox_fork_done_fn *done, void *context, struct error *error)
{
	const char *key;
	json_t *value;

	(void)done;
	(void)context;
	FUZZ_ASSERT(parent == &fuzz.sandbox && order->count >= 1 && order->count <= FORK_CHILDREN_MAX);
	FUZZ_ASSERT(json_is_object(order->fields));
	json_object_foreach(order->fields, key, value)
	{
		FUZZ_ASSERT(is_field_of_a_fork(key));
	}
	refuse(error);
	return NULL;
}

struct sandbox_snapshot *__wrap_sandbox_snapshot_begin(struct sandbox *parent, const char *name,
	sandbox_snapshot_hold_fn *hold, sandbox_snapshot_done_fn *done, void *context, struct error *error);
struct sandbox_snapshot *__wrap_sandbox_snapshot_begin(struct sandbox *parent, const char *name,
	sandbox_snapshot_hold_fn *hold, sandbox_snapshot_done_fn *done, void *context, struct error *error)
{
	(void)hold;
	(void)done;
	(void)context;
	FUZZ_ASSERT(parent == &fuzz.sandbox && template_name_is_valid(name));
	refuse(error);
	return NULL;
}

/* --- the one sandbox, and the one command in it --- */

struct sandbox *__wrap_sandboxes_find(const struct sandboxes *all, const char *id, struct error *error);
struct sandbox *__wrap_sandboxes_find(const struct sandboxes *all, const char *id, struct error *error)
{
	(void)all;
	(void)id;
	(void)error;
	return &fuzz.sandbox;
}

struct command *__wrap_commands_find(const struct sandbox *sandbox, const char *id, struct error *error);
struct command *__wrap_commands_find(const struct sandbox *sandbox, const char *id, struct error *error)
{
	(void)sandbox;
	(void)id;
	(void)error;
	return &fuzz.command;
}

struct command *__wrap_commands_find_token(const struct sandboxes *sandboxes, const char *text);
struct command *__wrap_commands_find_token(const struct sandboxes *sandboxes, const char *text)
{
	(void)sandboxes;
	(void)text;
	return NULL;
}

int __wrap_sandbox_check(
	const struct sandbox *sandbox, enum sandbox_verb verb, enum sandbox_state *next, struct error *error);
int __wrap_sandbox_check(
	const struct sandbox *sandbox, enum sandbox_verb verb, enum sandbox_state *next, struct error *error)
{
	(void)error;
	*next = sandbox->state;
	if (verb == SANDBOX_STOP && sandbox->state != SANDBOX_STOPPED)
		*next = SANDBOX_STOPPING;
	return 0;
}

int __wrap_sandbox_ask(
	struct sandbox *sandbox, enum sandbox_verb verb, const char *reason, struct error *error);
int __wrap_sandbox_ask(
	struct sandbox *sandbox, enum sandbox_verb verb, const char *reason, struct error *error)
{
	FUZZ_ASSERT(sandbox == &fuzz.sandbox && (verb != SANDBOX_STOP || reason));
	/* Nothing is lost that nobody has spoken of. */
	FUZZ_ASSERT(verb != SANDBOX_STOP || sandbox->has_files || sandbox->discards ||
		    sandbox->state == SANDBOX_STOPPED);
	return refuse(error);
}

void __wrap_sandbox_discard_files(struct sandbox *sandbox);
void __wrap_sandbox_discard_files(struct sandbox *sandbox)
{
	FUZZ_ASSERT(sandbox->state == SANDBOX_STOPPED);
	fuzz.asked++;
}

void __wrap_sandbox_hold(struct sandbox *sandbox);
void __wrap_sandbox_hold(struct sandbox *sandbox)
{
	sandbox->users++;
}

void __wrap_sandbox_release(struct sandbox *sandbox);
void __wrap_sandbox_release(struct sandbox *sandbox)
{
	FUZZ_ASSERT(sandbox->users > 0);
	sandbox->users--;
}

/* What its guest would get. */
static void check_new(const struct command *command)
{
	const struct run_request *request = &command->request;
	const struct frame frame = {
		.type = AGENT_NEW, .payload = request->payload, .length = (uint32_t)request->payload_length};
	struct agent_new_view view;
	const char *why;

	FUZZ_ASSERT(command->state == COMMAND_CREATED && command->sandbox == &fuzz.sandbox);
	FUZZ_ASSERT(request->payload && request->payload_length <= AGENT_FRAME_MAX);
	FUZZ_ASSERT(frame_parse_new(&frame, &view, &why) == 0);
	FUZZ_ASSERT(view.fixed.pids_max >= 1 && view.fixed.pids_max <= fuzz.sandbox.spec.pids_max);
	FUZZ_ASSERT(request->input_length <= RUN_STDIN_MAX);
	FUZZ_ASSERT(command->output_max == 0 ||
		    (command->output_max >= COMMAND_OUTPUT_MIN &&
			    command->output_max <= RUN_OUTPUT_HEAD + RUN_OUTPUT_TAIL));
}

int __wrap_command_record(struct command *command, struct error *error);
int __wrap_command_record(struct command *command, struct error *error)
{
	check_new(command);
	return refuse(error);
}

int __wrap_command_start(struct command *command, struct error *error);
int __wrap_command_start(struct command *command, struct error *error)
{
	if (command != &fuzz.command)
		check_new(command);
	return refuse(error);
}

int __wrap_command_input(struct command *command, const struct frame *frame, const char **why);
int __wrap_command_input(struct command *command, const struct frame *frame, const char **why)
{
	struct agent_signal signal;

	(void)why;
	FUZZ_ASSERT(command == &fuzz.command);
	fuzz.asked++;
	switch (frame->type) {
	case AGENT_SIGNAL:
		FUZZ_ASSERT(frame->length == sizeof signal);
		memcpy(&signal, frame->payload, sizeof signal);
		FUZZ_ASSERT(signal.signal >= 1 && signal.signal <= 64);
		break;
	case AGENT_STDIN:
		FUZZ_ASSERT(frame->payload && frame->length >= 1 && frame->length <= AGENT_DATA_MAX);
		break;
	default:
		FUZZ_ASSERT(frame->type == AGENT_STDIN_EOF && frame->length == 0);
	}
	return 0;
}

void __wrap_command_kill(struct command *command);
void __wrap_command_kill(struct command *command)
{
	FUZZ_ASSERT(command == &fuzz.command);
	fuzz.asked++;
}

json_t *__wrap_command_to_json(const struct command *command);
json_t *__wrap_command_to_json(const struct command *command)
{
	FUZZ_ASSERT(command == &fuzz.command);
	return json_object();
}

/* --- the answer --- */

/* As http.c makes it, which counts it too. */
void __wrap_http_reply_error(struct http_request *request, const struct error *error);
void __wrap_http_reply_error(struct http_request *request, const struct error *error)
{
	json_t *told = error_to_json(error);

	(void)request;
	FUZZ_ASSERT(told && error->kind != ERROR_NONE && error->kind != ERROR_INTERNAL);
	FUZZ_ASSERT(error->message[0] != '\0' && strlen(error->message) < ERROR_MESSAGE_MAX);
	json_decref(told);
	fuzz.answers++;
	fuzz.kind = error->kind;
}

static void take_answer(void *context, const struct http_answer *answer)
{
	json_t *body;

	(void)context;
	FUZZ_ASSERT(answer->body && answer->status >= 200 && answer->status < 300);
	body = json_loadb(answer->body, answer->length, 0, NULL);
	FUZZ_ASSERT(json_is_object(body));
	json_decref(body);
	free(answer->body);
	fuzz.answers++;
	fuzz.kind = ERROR_NONE;
}

/* --- the request --- */

/* All that may have a body. A new one comes last, for inputs know them by their numbers. */
static const struct {
	const char *method, *path;
} requests[] = {
	{"POST", "/v1/run"},
	{"PUT", "/v1/pool"},
	{"POST", "/v1/templates"},
	{"POST", "/v1/sandboxes"},
	{"POST", "/v1/sandboxes/*/pause"},
	{"POST", "/v1/sandboxes/*/resume"},
	{"POST", "/v1/sandboxes/*/suspend"},
	{"POST", "/v1/sandboxes/*/wake"},
	{"POST", "/v1/sandboxes/*/stop"},
	{"POST", "/v1/sandboxes/*/start"},
	{"POST", "/v1/sandboxes/*/fork"},
	{"POST", "/v1/sandboxes/*/run"},
	{"POST", "/v1/sandboxes/*/commands"},
	{"POST", "/v1/sandboxes/*/commands/*/token"},
	{"POST", "/v1/sandboxes/*/commands/*/attach"},
	{"POST", "/v1/sandboxes/*/commands/*/kill"},
	{"POST", "/v1/sandboxes/*/commands/*/signal"},
	{"POST", "/v1/sandboxes/*/commands/*/stdin"},
	{"POST", "/v1/sandboxes/*/snapshot"},
};
enum { REQUESTS = sizeof requests / sizeof requests[0] };

static const struct api_route *find_route(unsigned int number)
{
	const struct api_route *route, *found = NULL;

	for (size_t i = 0; (route = api_route_at(i)) != NULL && !found; i++)
		if (!strcmp(route->method, requests[number].method) &&
			!strcmp(route->path, requests[number].path))
			found = route;
	FUZZ_ASSERT(found);
	return found;
}

/* None is forgotten here. */
static void check_requests(void)
{
	const struct api_route *route;
	size_t count = 0;

	for (size_t i = 0; (route = api_route_at(i)) != NULL; i++)
		count += !strcmp(route->method, "POST") || !strcmp(route->method, "PUT");
	FUZZ_ASSERT(count == REQUESTS);
}

/* With an id for each part that may be any. */
static void make_path(char path[PATH_ROOM], const char *form)
{
	size_t i = 0;

	for (; form[i]; i++) {
		FUZZ_ASSERT(i < PATH_ROOM - 1);
		path[i] = form[i] == '*' ? 'x' : form[i];
	}
	path[i] = '\0';
}

static void set_up(unsigned int shape)
{
	fuzz.asked = fuzz.answers = 0;
	memset(&fuzz.all, 0, sizeof fuzz.all);
	memset(&fuzz.sandbox, 0, sizeof fuzz.sandbox);
	memset(&fuzz.command, 0, sizeof fuzz.command);
	fuzz.sandbox.all = &fuzz.all;
	memcpy(fuzz.sandbox.id, "sb-x", sizeof "sb-x");
	fuzz.sandbox.state = states[shape >> SHAPE_STATE_SHIFT & (SHAPE_STATES - 1)];
	fuzz.sandbox.has_files = shape & SHAPE_FILES;
	fuzz.sandbox.spec.env = json_pack("{s:s}", "OF_THE_SANDBOX", "x");
	fuzz.sandbox.spec.pids_max = 32;
	memcpy(fuzz.command.id, "cmd-x", sizeof "cmd-x");
	fuzz.command.sandbox = &fuzz.sandbox;
	fuzz.command.fd = -1;
	fuzz.command.state = shape & SHAPE_RUNS ? COMMAND_RUNNING : COMMAND_CREATED;
	if (shape & SHAPE_RUNS)
		return;
	memcpy(fuzz.command.token.text, token, sizeof token);
	fuzz.command.token.expires_ns = UINT64_MAX;
}

static void handle(const struct api_route *route, struct fuzz_input *input, bool upgraded)
{
	static const struct http_peer peer = {.uid = 1000, .gid = 1000, .pid = 1, .allowed = true};
	size_t length = fuzz_left(input);
	char path[PATH_ROOM];
	struct api api = {.sandboxes = &fuzz.all, .state_directory = "/nonexistent"};
	struct http_request request = {.method = route->method,
		.path = path,
		.peer = &peer,
		.body = length ? (char *)(uintptr_t)input->at : NULL,
		.body_length = length,
		.wants_upgrade = upgraded,
		.answered = take_answer,
		.query = json_object()};
	struct error error;

	make_path(path, route->path);
	FUZZ_ASSERT(request.query && api_handler.check(&api, &request, &error) == 0);
	FUZZ_ASSERT(request.route == route);
	api_handler.handle(&api, &request);
	json_decref(request.query);
}

static void check_end(void)
{
	FUZZ_ASSERT(fuzz.answers == 1);
	FUZZ_ASSERT(fuzz.kind != ERROR_NOT_READY || fuzz.asked > 0);
	FUZZ_ASSERT((fuzz.kind != ERROR_INVALID && fuzz.kind != ERROR_TOO_LARGE) || fuzz.asked == 0);
	FUZZ_ASSERT(!fuzz.sandbox.commands && fuzz.sandbox.command_count == 0 && fuzz.all.command_count == 0);
	FUZZ_ASSERT(fuzz.sandbox.users == 0 && fuzz.command.holders == 0 && !fuzz.sandbox.watchers.first);
	json_decref(fuzz.sandbox.spec.env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	const struct api_route *route = find_route(fuzz_u8(&input) % REQUESTS);
	unsigned int shape = fuzz_u8(&input);

	fuzz_begin();
	check_requests();
	set_up(shape);
	handle(route, &input, shape & SHAPE_UPGRADED);
	check_end();
	fuzz_end();
	return 0;
}
