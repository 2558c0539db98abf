/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/run/run_request.h"
#include "host-ctl/http/http_body.h"
#include "host-ctl/support/text.h"

#include <stdlib.h>
#include <string.h>

/* A request while it is read: strings are appended to the payload in the order of struct agent_new. */
struct parser {
	struct run_request *request;
	struct agent_new fixed;
	size_t at, room; /* strings written; bytes there are for them */
	json_t *root;
	enum run_form form;
	struct error *error;
};

static const char *const fields[] = {"argv", "argv_b64", "env", "env_b64", "cwd", "user", "stdin",
	"stdin_b64", "stdin_stream", "timeout_ms", "memory_max", "pids_max", "template", NULL};
static const char *const command_fields[] = {"argv", "argv_b64", "env", "env_b64", "cwd", "user", "stdin",
	"stdin_b64", "stdin_stream", "timeout_ms", "memory_max", "pids_max", "tty", "on_detach", "wake",
	"output_max", NULL};
static const char *const tty_fields[] = {"rows", "cols", NULL};

static int refuse_both(struct parser *parser, const char *one, const char *other)
{
	if (!json_object_get(parser->root, one) || !json_object_get(parser->root, other))
		return 0;
	return error_set(parser->error, ERROR_INVALID, "%s and %s exclude each other: give one", one, other);
}

/* --- strings of the payload --- */

static char *strings(struct parser *parser)
{
	return (char *)parser->request->payload + sizeof parser->fixed;
}

static int reserve(struct parser *parser, size_t length)
{
	if (length <= parser->room - parser->at)
		return 0;
	return error_set(parser->error, ERROR_TOO_LARGE,
		"argv, env, cwd and user together are over the limit of %d bytes", AGENT_STRINGS_MAX);
}

static int append(struct parser *parser, const char *text, size_t length)
{
	if (reserve(parser, length + 1))
		return -1;
	memcpy(strings(parser) + parser->at, text, length);
	parser->at += length;
	strings(parser)[parser->at++] = '\0';
	return 0;
}

static int append_base64(
	struct parser *parser, const char *text, size_t length, const char *field, size_t index)
{
	ptrdiff_t decoded;

	if (reserve(parser, length / 4 * 3 + 1))
		return -1;
	decoded = text_base64_decode((uint8_t *)strings(parser) + parser->at, text, length);
	if (decoded < 0)
		return error_set(parser->error, ERROR_INVALID, "%s[%zu] is not base64", field, index);
	if (memchr(strings(parser) + parser->at, '\0', (size_t)decoded))
		return error_set(parser->error, ERROR_INVALID, "%s[%zu] holds a NUL byte", field, index);
	parser->at += (size_t)decoded;
	strings(parser)[parser->at++] = '\0';
	return 0;
}

/* A list of strings, plain or base64. The number of entries, or -1. */
static int append_list(struct parser *parser, json_t *list, const char *field, bool base64, size_t maximum)
{
	size_t index;
	json_t *entry;

	if (!json_is_array(list))
		return error_set(parser->error, ERROR_INVALID, "%s is not a list of strings", field);
	if (json_array_size(list) > maximum)
		return error_set(parser->error, ERROR_TOO_LARGE, "%s has %zu entries, the limit is %zu",
			field, json_array_size(list), maximum);
	json_array_foreach(list, index, entry)
	{
		const char *text = json_string_value(entry);
		size_t length = json_string_length(entry);

		if (!text)
			return error_set(
				parser->error, ERROR_INVALID, "%s[%zu] is not a string", field, index);
		if (base64 ? append_base64(parser, text, length, field, index) : append(parser, text, length))
			return -1;
	}
	return (int)json_array_size(list);
}

static int parse_argv(struct parser *parser)
{
	bool base64 = json_object_get(parser->root, "argv_b64") != NULL;
	const char *field = base64 ? "argv_b64" : "argv";
	json_t *list = json_object_get(parser->root, field);
	int count;

	if (!list)
		return error_set(parser->error, ERROR_INVALID, "argv is missing: name the command to run");
	count = append_list(parser, list, field, base64, AGENT_ARGC_MAX);
	if (count < 0)
		return -1;
	if (count == 0)
		return error_set(parser->error, ERROR_INVALID, "%s is empty: name the command to run", field);
	if (!strings(parser)[0])
		return error_set(
			parser->error, ERROR_INVALID, "%s[0] is empty: name the command to run", field);
	parser->fixed.argc = (uint32_t)count;
	text_copy_printable(parser->request->name, sizeof parser->request->name, strings(parser),
		strlen(strings(parser)));
	return 0;
}

static int check_env_entries(struct parser *parser, const char *start, int count)
{
	const char *entry = start;

	for (int i = 0; i < count; i++, entry += strlen(entry) + 1)
		if (entry[0] == '=' || !strchr(entry, '='))
			return error_set(parser->error, ERROR_INVALID, "env_b64[%d] is not NAME=value", i);
	return 0;
}

static int append_variable(struct parser *parser, const char *name, json_t *value)
{
	size_t length = strlen(name);

	if (!length || strchr(name, '='))
		return error_set(parser->error, ERROR_INVALID,
			"env has the name \"%.64s\": a name is not empty and has no '='", name);
	if (!json_is_string(value))
		return error_set(parser->error, ERROR_INVALID, "env.%.64s is not a string", name);
	if (append(parser, name, length))
		return -1;
	strings(parser)[parser->at - 1] = '=';
	return append(parser, json_string_value(value), json_string_length(value));
}

static int parse_env(struct parser *parser)
{
	json_t *coded = json_object_get(parser->root, "env_b64"),
	       *plain = json_object_get(parser->root, "env");
	size_t start = parser->at;
	const char *name;
	json_t *value;
	int count;

	if (coded) {
		count = append_list(parser, coded, "env_b64", true, AGENT_ENVC_MAX);
		if (count < 0 || check_env_entries(parser, strings(parser) + start, count))
			return -1;
		parser->fixed.envc = (uint32_t)count;
		return 0;
	}
	if (plain && !json_is_object(plain))
		return error_set(parser->error, ERROR_INVALID, "env is not an object of strings");
	if (json_object_size(plain) > AGENT_ENVC_MAX)
		return error_set(parser->error, ERROR_TOO_LARGE, "env has %zu entries, the limit is %d",
			json_object_size(plain), AGENT_ENVC_MAX);
	parser->fixed.envc = (uint32_t)json_object_size(plain);
	json_object_foreach(plain, name, value) if (append_variable(parser, name, value)) return -1;
	return 0;
}

/* cwd or user: a string that may be absent, which the payload holds as empty. */
static int parse_text(struct parser *parser, const char *field, size_t maximum, bool absolute)
{
	json_t *value = json_object_get(parser->root, field);
	const char *text = json_string_value(value);

	if (!value)
		return append(parser, "", 0);
	if (!text)
		return error_set(parser->error, ERROR_INVALID, "%s is not a string", field);
	if (!text[0] || json_string_length(value) > maximum)
		return error_set(
			parser->error, ERROR_INVALID, "%s is empty or longer than %zu bytes", field, maximum);
	if (absolute && text[0] != '/')
		return error_set(
			parser->error, ERROR_INVALID, "%s is not an absolute path: %.64s", field, text);
	return append(parser, text, json_string_length(value));
}

/* --- stdin and numbers --- */

static int too_much_input(struct parser *parser, const char *field)
{
	return error_set(parser->error, ERROR_TOO_LARGE,
		"%s is over the limit of %d bytes: stream it over the upgraded form (host-ctl run -i)", field,
		RUN_STDIN_MAX);
}

static int keep_input(struct parser *parser, const char *field, json_t *value, bool base64)
{
	struct run_request *request = parser->request;
	size_t length = json_string_length(value);
	ptrdiff_t decoded;

	if (!json_is_string(value))
		return error_set(parser->error, ERROR_INVALID, "%s is not a string", field);
	if (length > (base64 ? text_base64_length(RUN_STDIN_MAX) : RUN_STDIN_MAX))
		return too_much_input(parser, field);
	request->has_input = true;
	request->input = malloc(length ? length : 1);
	if (!request->input)
		return error_set(parser->error, ERROR_INTERNAL, "out of memory");
	if (!base64) {
		memcpy(request->input, json_string_value(value), length);
		request->input_length = length;
		return 0;
	}
	decoded = text_base64_decode(request->input, json_string_value(value), length);
	if (decoded < 0)
		return error_set(parser->error, ERROR_INVALID, "%s is not base64", field);
	if (decoded > RUN_STDIN_MAX)
		return too_much_input(parser, field);
	request->input_length = (size_t)decoded;
	return 0;
}

static int parse_input(struct parser *parser)
{
	json_t *plain = json_object_get(parser->root, "stdin"),
	       *coded = json_object_get(parser->root, "stdin_b64"),
	       *stream = json_object_get(parser->root, "stdin_stream");

	if (stream && !json_is_boolean(stream))
		return error_set(parser->error, ERROR_INVALID, "stdin_stream is not true or false");
	if (json_is_true(stream)) {
		if (parser->form == RUN_PLAIN)
			return error_set(parser->error, ERROR_INVALID,
				"stdin_stream needs the upgraded form (Upgrade: tinderbox-frames)");
		if (plain || coded)
			return error_set(parser->error, ERROR_INVALID,
				"stdin_stream excludes stdin and stdin_b64: send it as frames");
		parser->request->has_input = parser->request->input_streams = true;
		return 0;
	}
	if (plain)
		return keep_input(parser, "stdin", plain, false);
	return coded ? keep_input(parser, "stdin_b64", coded, true) : 0;
}

/* A whole number within bounds; absent: 0. */
static int parse_number(
	struct parser *parser, const char *field, uint64_t minimum, uint64_t maximum, uint64_t *number)
{
	json_t *value = json_object_get(parser->root, field);

	*number = 0;
	if (!value)
		return 0;
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		(uint64_t)json_integer_value(value) < minimum ||
		(uint64_t)json_integer_value(value) > maximum)
		return error_set(parser->error, ERROR_INVALID, "%s is not a whole number from %llu to %llu",
			field, (unsigned long long)minimum, (unsigned long long)maximum);
	*number = (uint64_t)json_integer_value(value);
	return 0;
}

static int parse_terminal(struct parser *parser)
{
	json_t *tty = json_object_get(parser->root, "tty");
	unsigned int rows, cols;

	if (!tty)
		return 0;
	if (!json_is_object(tty))
		return error_set(parser->error, ERROR_INVALID, "tty is not an object of rows and cols");
	if (http_body_check_fields(tty, tty_fields, parser->error) ||
		http_body_number(tty, "rows", 1, RUN_TTY_MAX, &rows, parser->error) ||
		http_body_number(tty, "cols", 1, RUN_TTY_MAX, &cols, parser->error))
		return -1;
	parser->request->has_terminal = true;
	parser->fixed.rows = (uint16_t)rows;
	parser->fixed.cols = (uint16_t)cols;
	return 0;
}

static int parse_numbers(struct parser *parser)
{
	uint64_t pids;

	if (parse_number(parser, "timeout_ms", 1, RUN_TIMEOUT_MAX_MS, &parser->request->timeout_ms) ||
		parse_number(parser, "memory_max", RUN_MEMORY_MIN, INT64_MAX, &parser->fixed.memory_max) ||
		parse_number(parser, "pids_max", 1, RUN_PIDS_MAX, &pids))
		return -1;
	parser->fixed.pids_max = (uint32_t)pids;
	parser->fixed.deadline_ms = parser->request->timeout_ms;
	return 0;
}

static int parse_template(struct parser *parser)
{
	json_t *value = json_object_get(parser->root, "template");
	const char *text = json_string_value(value);

	if (!value)
		return 0;
	if (!text || !text[0] || json_string_length(value) >= RUN_TEMPLATE_MAX)
		return error_set(parser->error, ERROR_INVALID, "template is not a name of 1 to %d bytes",
			RUN_TEMPLATE_MAX - 1);
	memcpy(parser->request->template, text, strlen(text) + 1);
	return 0;
}

static int parse_fields(struct parser *parser)
{
	struct run_request *request = parser->request;

	if (refuse_both(parser, "argv", "argv_b64") || refuse_both(parser, "env", "env_b64") ||
		refuse_both(parser, "stdin", "stdin_b64") || parse_argv(parser) || parse_env(parser) ||
		parse_text(parser, "cwd", RUN_CWD_MAX, true) ||
		parse_text(parser, "user", RUN_USER_MAX, false) || parse_input(parser) ||
		parse_terminal(parser) || parse_numbers(parser) || parse_template(parser))
		return -1;
	parser->fixed.session = RUN_SESSION;
	parser->fixed.flags =
		(request->has_input ? AGENT_NEW_STDIN : 0u) | (request->has_terminal ? AGENT_NEW_TTY : 0u);
	parser->fixed.strings_length = (uint32_t)parser->at;
	memcpy(request->payload, &parser->fixed, sizeof parser->fixed);
	request->payload_length = sizeof parser->fixed + parser->at;
	return 0;
}

int run_request_take(
	struct run_request *request, json_t *root, size_t room, enum run_form form, struct error *error)
{
	struct parser parser = {.request = request, .root = root, .form = form, .error = error};
	int status;

	*request = (struct run_request){0};
	/* Its NULs included; cwd and user may be absent. */
	parser.room = room + 2 < AGENT_STRINGS_MAX ? room + 2 : AGENT_STRINGS_MAX;
	request->payload = calloc(1, sizeof parser.fixed + parser.room);
	status = request->payload ? parse_fields(&parser) : error_set(error, ERROR_INTERNAL, "out of memory");
	if (status)
		run_request_finish(request);
	return status;
}

json_t *run_request_load(const char *body, size_t length, enum run_form form, struct error *error)
{
	return http_body_load(body, length, form == RUN_COMMAND ? command_fields : fields, error);
}

int run_request_parse(
	struct run_request *request, const char *body, size_t length, bool upgraded, struct error *error)
{
	enum run_form form = upgraded ? RUN_UPGRADED : RUN_PLAIN;
	json_t *root = run_request_load(body, length, form, error);
	int status;

	*request = (struct run_request){0};
	if (!root)
		return -1;
	/* No string is longer here than in the JSON, quotes for its NUL included. */
	status = run_request_take(request, root, length, form, error);
	json_decref(root);
	return status;
}

void run_request_limit_pids(struct run_request *request, uint32_t pids_max)
{
	struct agent_new fixed;

	memcpy(&fixed, request->payload, sizeof fixed);
	if (pids_max && (!fixed.pids_max || fixed.pids_max > pids_max))
		fixed.pids_max = pids_max;
	memcpy(request->payload, &fixed, sizeof fixed);
}

void run_request_finish(struct run_request *request)
{
	free(request->payload);
	free(request->input);
	*request = (struct run_request){0};
}
