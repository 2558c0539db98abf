/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_options.h"
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/client.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/support/text.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum {
	OPT_STDIN,
	OPT_USER,
	OPT_CWD,
	OPT_ENV,
	OPT_TIMEOUT,
	OPT_MEMORY,
	OPT_PIDS,
	OPT_TEMPLATE,
	OPT_KEY,
	OPT_JSON,
	OPT_SOCKET,
	OPT_HELP,
	OPT_TTY, /* of exec alone, as are the rest */
	OPT_DETACH,
	OPT_COUNT
};

static const struct cli_option run_option_table[OPT_COUNT] = {
	[OPT_STDIN] = {.name = "stdin", .letter = 'i'},
	[OPT_USER] = {.name = "user", .has_value = true},
	[OPT_CWD] = {.name = "cwd", .has_value = true},
	[OPT_ENV] = {.name = "env", .has_value = true, .repeats = true},
	[OPT_TIMEOUT] = {.name = "timeout", .has_value = true},
	[OPT_MEMORY] = {.name = "memory", .has_value = true},
	[OPT_PIDS] = {.name = "pids", .has_value = true},
	[OPT_TEMPLATE] = {.name = "template", .has_value = true},
	[OPT_KEY] = {.name = "idempotency-key", .has_value = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
	[OPT_TTY] = {.name = "tty", .letter = 't'},
	[OPT_DETACH] = {.name = "detach", .letter = 'd'},
};

__attribute__((format(printf, 2, 3))) static int refuse(char *error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, CLI_TEXT_MAX, format, arguments);
	va_end(arguments);
	return -EINVAL;
}

static bool is_utf8(const char *text)
{
	json_t *string = json_string(text);

	json_decref(string);
	return string != NULL;
}

/* Room for it is there: options->env has as many entries as the command line, and ends with NULL. */
static int add_env(struct cmd_options *options, const char *entry, char *error)
{
	const char *equals = strchr(entry, '=');
	size_t length = equals ? (size_t)(equals - entry) + 1 : 0;

	if (length < 2)
		return refuse(error, "--env wants NAME=VALUE, not '%s'", entry);
	for (const char **seen = options->env; *seen; seen++)
		if (strncmp(*seen, entry, length) == 0)
			return refuse(error, "--env gives %.*s twice", (int)length - 1, entry);
	options->env[options->env_count++] = entry;
	return 0;
}

static int set_text(const char **to, const char *name, const char *value, char *error)
{
	if (!value[0])
		return refuse(error, "--%s is empty", name);
	if (!is_utf8(value))
		return refuse(error, "--%s is not UTF-8", name);
	*to = value;
	return 0;
}

static int set_key(struct cmd_options *options, const char *value, char *error)
{
	size_t length = strlen(value), printable = 0;

	while (value[printable] >= ' ' && value[printable] <= '~')
		printable++;
	if (length < 1 || length > CLIENT_KEY_MAX || printable < length)
		return refuse(
			error, "--idempotency-key wants 1 to %d printable ASCII characters", CLIENT_KEY_MAX);
	/* HTTP would drop them, and it would be another key. */
	if (value[0] == ' ' || value[length - 1] == ' ')
		return refuse(error, "--idempotency-key begins or ends with a space");
	options->idempotency_key = value;
	return 0;
}

static int set_option(struct cmd_options *options, int option, const char *value, char *error)
{
	switch (option) {
	case OPT_STDIN:
		options->interactive = true;
		return 0;
	case OPT_JSON:
		options->json = true;
		return 0;
	case OPT_HELP:
		options->help = true;
		return 0;
	case OPT_TTY:
		options->terminal = true;
		return 0;
	case OPT_DETACH:
		options->detach = true;
		return 0;
	case OPT_SOCKET:
		options->socket = value;
		return 0;
	case OPT_TEMPLATE:
		return set_text(&options->template, "template", value, error);
	case OPT_USER:
		return set_text(&options->user, "user", value, error);
	case OPT_KEY:
		return set_key(options, value, error);
	case OPT_CWD:
		if (value[0] != '/')
			return refuse(error, "--cwd wants an absolute path, not '%s'", value);
		return set_text(&options->cwd, "cwd", value, error);
	case OPT_ENV:
		return add_env(options, value, error);
	case OPT_TIMEOUT:
		if (cli_parse_duration(value, RUN_TIMEOUT_MAX_MS, &options->timeout_ms) < 0)
			return refuse(
				error, "--timeout wants 1ms to 24h, such as 10s or 500ms, not '%s'", value);
		return 0;
	case OPT_MEMORY:
		if (parse_size(value, RUN_MEMORY_MIN, INT64_MAX, &options->memory_max) < 0)
			return refuse(error, "--memory wants a size of at least %dK, such as 64M, not '%s'",
				RUN_MEMORY_MIN / 1024, value);
		return 0;
	default:
		if (parse_u64(value, 1, RUN_PIDS_MAX, &options->pids_max) < 0)
			return refuse(
				error, "--pids wants a number from 1 to %d, not '%s'", RUN_PIDS_MAX, value);
		return 0;
	}
}

/* The options; parser->next is the first operand. */
static int parse_options(struct cmd_options *options, struct cli_parser *parser, size_t count, int argc,
	char **argv, char *error)
{
	const char *value;
	int option, r;

	*options = (struct cmd_options){0};
	options->env = calloc((size_t)argc + 1, sizeof(*options->env));
	if (!options->env) {
		refuse(error, "out of memory");
		return -ENOMEM;
	}
	cli_parser_init(parser, run_option_table, count, argc, argv);
	while ((option = cli_parser_next(parser, &value)) >= 0) {
		r = set_option(options, option, value, error);
		if (r < 0)
			return r;
	}
	return option == CLI_BAD ? refuse(error, "%s", parser->error) : 0;
}

static int take_command(struct cmd_options *options, int next, int argc, char **argv, char *error)
{
	options->argv = argv + next;
	options->argc = (size_t)(argc - next);
	if (options->argc == 0 && !options->help)
		return refuse(error, "no command is given");
	return 0;
}

int cmd_options_parse(struct cmd_options *options, int argc, char **argv, char *error)
{
	struct cli_parser parser;
	int r = parse_options(options, &parser, OPT_TTY, argc, argv, error);

	return r < 0 ? r : take_command(options, parser.next, argc, argv, error);
}

int cmd_options_parse_exec(struct cmd_options *options, int argc, char **argv, char *error)
{
	struct cli_parser parser;
	int r = parse_options(options, &parser, OPT_COUNT, argc, argv, error);

	if (r < 0 || options->help)
		return r;
	if (options->template || options->json || options->idempotency_key)
		return refuse(error, "exec takes no --%s",
			options->json	    ? "json"
			: options->template ? "template"
					    : "idempotency-key");
	if (options->detach && options->interactive)
		return refuse(error, "-d leaves nobody to pass standard input on, which -i asks for: leave "
				     "out one");
	if (parser.next == argc)
		return refuse(error, "a sandbox is expected, and a command");
	options->sandbox = argv[parser.next++];
	if (parser.next < argc && strcmp(argv[parser.next], "--") == 0)
		parser.next++;
	return take_command(options, parser.next, argc, argv, error);
}

void cmd_options_finish(struct cmd_options *options)
{
	free(options->env);
	options->env = NULL;
	options->env_count = 0;
}

/* ---- the request ---- */

/* Sets name to an array of the strings, encoded or not. 0 or -1. */
static int set_strings(json_t *object, const char *name, char *const *strings, size_t count, bool encoded)
{
	json_t *array = json_array();
	int r = 0;

	for (size_t i = 0; i < count && r == 0; i++)
		r = json_array_append_new(array, encoded ? text_base64_to_json(strings[i], strlen(strings[i]))
							 : json_string(strings[i]));
	if (r < 0) {
		json_decref(array);
		return r;
	}
	return json_object_set_new(object, name, array);
}

static bool all_utf8(char *const *strings, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (!is_utf8(strings[i]))
			return false;
	return true;
}

static int set_env(json_t *object, const struct cmd_options *options)
{
	char *const *strings = (char *const *)options->env;
	json_t *env;
	int r = 0;

	if (options->env_count == 0)
		return 0;
	if (!all_utf8(strings, options->env_count))
		return set_strings(object, "env_b64", strings, options->env_count, true);
	env = json_object();
	for (size_t i = 0; i < options->env_count && r == 0; i++) {
		const char *equals = strchr(strings[i], '=');
		char *name = strndup(strings[i], (size_t)(equals - strings[i]));

		r = name ? json_object_set_new(env, name, json_string(equals + 1)) : -1;
		free(name);
	}
	if (r < 0) {
		json_decref(env);
		return r;
	}
	return json_object_set_new(object, "env", env);
}

static int set_input(json_t *object, bool stream, const void *input, size_t length)
{
	json_t *text;

	if (stream)
		return json_object_set_new(object, "stdin_stream", json_true());
	if (!input)
		return 0;
	text = json_stringn(input, length);
	if (text)
		return json_object_set_new(object, "stdin", text);
	return json_object_set_new(object, "stdin_b64", text_base64_to_json(input, length));
}

static int set_number(json_t *object, const char *name, uint64_t value)
{
	return value ? json_object_set_new(object, name, json_integer((json_int_t)value)) : 0;
}

static int set_string(json_t *object, const char *name, const char *value)
{
	return value ? json_object_set_new(object, name, json_string(value)) : 0;
}

json_t *cmd_options_request(
	const struct cmd_options *options, bool stream_input, const void *input, size_t input_length)
{
	json_t *object = json_object();
	bool plain = all_utf8(options->argv, options->argc);

	if (set_strings(object, plain ? "argv" : "argv_b64", options->argv, options->argc, !plain) < 0 ||
		set_env(object, options) < 0 || set_string(object, "cwd", options->cwd) < 0 ||
		set_string(object, "user", options->user) < 0 ||
		set_string(object, "template", options->template) < 0 ||
		set_input(object, stream_input, input, input_length) < 0 ||
		set_number(object, "timeout_ms", options->timeout_ms) < 0 ||
		set_number(object, "memory_max", options->memory_max) < 0 ||
		set_number(object, "pids_max", options->pids_max) < 0) {
		json_decref(object);
		return NULL;
	}
	return object;
}
