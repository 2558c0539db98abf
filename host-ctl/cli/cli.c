/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cli.h"
#include "common/parse.h"
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void cli_parser_init(
	struct cli_parser *parser, const struct cli_option *options, size_t count, int argc, char **argv)
{
	*parser = (struct cli_parser){
		.options = options,
		.count = count,
		.argc = argc,
		.argv = argv,
		.next = 1,
	};
}

__attribute__((format(printf, 2, 3))) static int refuse(struct cli_parser *parser, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(parser->error, sizeof(parser->error), format, arguments);
	va_end(arguments);
	return CLI_BAD;
}

/* The option that an argument names; its value after '=' if it has one. -1: none does. */
static int find_option(const struct cli_parser *parser, const char *argument, const char **value)
{
	const char *name = argument + 2, *equals = strchr(argument, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);

	for (size_t i = 0; i < parser->count; i++) {
		const struct cli_option *option = &parser->options[i];

		if (argument[1] != '-') {
			if (option->letter && argument[1] == option->letter && argument[2] == '\0')
				return (int)i;
		} else if (strlen(option->name) == length && memcmp(option->name, name, length) == 0) {
			*value = equals ? equals + 1 : NULL;
			return (int)i;
		}
	}
	return -1;
}

/* The option of that letter, without a value; or -1. */
static int find_letter(const struct cli_parser *parser, char letter)
{
	for (size_t i = 0; i < parser->count; i++)
		if (parser->options[i].letter == letter && !parser->options[i].has_value)
			return (int)i;
	return -1;
}

/* Several letters behind one dash, such as -it: each is an option without a value. */
static bool is_cluster(const struct cli_parser *parser, const char *argument)
{
	if (argument[0] != '-' || argument[1] == '-' || strlen(argument) < 3)
		return false;
	for (const char *letter = argument + 1; *letter; letter++)
		if (find_letter(parser, *letter) < 0)
			return false;
	return true;
}

static int take_letter(struct cli_parser *parser)
{
	int index = find_letter(parser, *parser->cluster++);

	/* is_cluster has looked. */
	if (index < 0)
		return CLI_BAD;
	if (cli_parser_given(parser, index) && !parser->options[index].repeats)
		return refuse(parser, "--%s is given twice", parser->options[index].name);
	parser->given |= 1ULL << index;
	return index;
}

int cli_parser_next(struct cli_parser *parser, const char **value)
{
	const char *argument = parser->next < parser->argc ? parser->argv[parser->next] : NULL;
	const struct cli_option *option;
	int index;

	*value = NULL;
	if (parser->cluster && *parser->cluster)
		return take_letter(parser);
	if (argument && !parser->ended && is_cluster(parser, argument)) {
		parser->next++;
		parser->cluster = argument + 1;
		return take_letter(parser);
	}
	if (!argument || parser->ended || argument[0] != '-' || argument[1] == '\0')
		return CLI_END;
	parser->next++;
	parser->ended = strcmp(argument, "--") == 0;
	if (parser->ended)
		return CLI_END;
	index = find_option(parser, argument, value);
	if (index < 0)
		return refuse(parser, "unknown option '%s'", argument);
	option = &parser->options[index];
	if (cli_parser_given(parser, index) && !option->repeats)
		return refuse(parser, "--%s is given twice", option->name);
	parser->given |= 1ULL << index;
	if (!option->has_value)
		return *value ? refuse(parser, "--%s takes no value", option->name) : index;
	if (!*value && parser->next == parser->argc)
		return refuse(parser, "--%s needs a value", option->name);
	if (!*value)
		*value = parser->argv[parser->next++];
	return option->not_empty && !**value ? refuse(parser, "--%s is empty", option->name) : index;
}

char *cli_parser_operand(struct cli_parser *parser)
{
	return parser->next < parser->argc ? parser->argv[parser->next++] : NULL;
}

bool cli_parser_given(const struct cli_parser *parser, int index)
{
	return parser->given >> index & 1;
}

int cli_parse_duration(const char *text, uint64_t maximum_ms, uint64_t *milliseconds)
{
	static const struct {
		const char *suffix;
		uint64_t ms;
	} units[] = {{"ms", 1}, {"s", 1000}, {"m", 60 * 1000}, {"h", 60 * 60 * 1000},
		{"d", 24 * 60 * 60 * 1000}, {"", 1000}};
	size_t digits = strspn(text, "0123456789");
	char number[24];
	uint64_t value;
	int r;

	if (digits == 0)
		return -EINVAL;
	if (digits >= sizeof(number))
		return -ERANGE;
	memcpy(number, text, digits);
	number[digits] = '\0';
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(text + digits, units[i].suffix) != 0)
			continue;
		r = parse_u64(number, 1, maximum_ms / units[i].ms, &value);
		if (r == 0)
			*milliseconds = value * units[i].ms;
		return r;
	}
	return -EINVAL;
}

int cli_query_parse(struct cli_query *query, int argc, char **argv)
{
	enum { JSON, SOCKET, HELP };
	static const struct cli_option options[] = {
		[JSON] = {.name = "json"},
		[SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
		[HELP] = {.name = "help", .letter = 'h'},
	};
	struct cli_parser parser;
	const char *value;
	int option;

	*query = (struct cli_query){0};
	cli_parser_init(&parser, options, sizeof(options) / sizeof(options[0]), argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0) {
		if (option == JSON)
			query->json = true;
		else if (option == SOCKET)
			query->socket = value;
	}
	if (option == CLI_BAD)
		return cli_fail_usage(argv[0], parser.error);
	if (parser.next < argc)
		return cli_fail_unexpected(argv[0], argv[parser.next]);
	query->socket = cli_socket_path(query->socket);
	return cli_parser_given(&parser, HELP) ? 1 : 0;
}

const char *cli_socket_path(const char *option)
{
	const char *path = option ? option : getenv("TINDERBOX_SOCKET");

	return path && path[0] ? path : CLIENT_SOCKET_DEFAULT;
}

bool cli_is_name(const char *text)
{
	static const char characters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
	size_t length = strspn(text, characters);

	return length && length <= CLI_NAME_MAX && !text[length];
}

void cli_clean_text(char *to, size_t size, const char *from)
{
	size_t n = 0;

	for (; from[n] && n + 1 < size; n++) {
		unsigned char c = (unsigned char)from[n];
		/* U+0080..U+009F are C2 80..C2 9F in UTF-8. */
		bool c1 = n > 0 && (unsigned char)from[n - 1] == 0xC2 && c >= 0x80 && c <= 0x9F;

		to[n] = c < 0x20 || c == 0x7F || c1 ? '?' : (char)c;
		if (c1)
			to[n - 1] = '?';
	}
	to[n] = '\0';
}

void cli_append_escaped(char *to, size_t size, const char *text, size_t length)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

	for (size_t i = 0, have = strlen(to); i < length && have + 4 <= size; i++, have = strlen(to)) {
		unsigned char c = (unsigned char)text[i];

		snprintf(to + have, size - have, strchr(plain, c) ? "%c" : "%%%02X", c);
	}
}

void cli_format_span(long long ms, char to[CLI_TIME_MAX])
{
	enum {
		SECOND_MS = 1000,
		MINUTE_MS = 60 * SECOND_MS,
		HOUR_MS = 60 * MINUTE_MS,
		DAY_MS = 24 * HOUR_MS
	};
	static const struct {
		long long ms;
		char unit;
	} units[] = {{DAY_MS, 'd'}, {HOUR_MS, 'h'}, {MINUTE_MS, 'm'}, {SECOND_MS, 's'}};
	size_t i = 0;

	if (ms < 0)
		ms = 0;
	while (i < 3 && ms < 2 * units[i].ms)
		i++;
	snprintf(to, CLI_TIME_MAX, "%lld%c", ms / units[i].ms, units[i].unit);
}

void cli_format_time(long long ms, char to[CLI_TIME_MAX])
{
	time_t seconds = (time_t)(ms / 1000);
	struct tm parts;

	if (!ms || !localtime_r(&seconds, &parts) || !strftime(to, CLI_TIME_MAX, "%Y-%m-%d %H:%M", &parts))
		snprintf(to, CLI_TIME_MAX, "-");
}

int cli_fail(const char *format, ...)
{
	char line[2 * CLI_TEXT_MAX + 256], clean[sizeof(line)];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	cli_clean_text(clean, sizeof(clean), line);
	fprintf(stderr, "host-ctl: %s\n", clean);
	return CLI_FAILURE;
}

int cli_refuse(char *error, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(error, CLI_TEXT_MAX, format, arguments);
	va_end(arguments);
	return -1;
}

int cli_fail_usage(const char *verb, const char *error)
{
	return cli_fail("%s: %s (see `host-ctl help %s`)", verb, error, verb);
}

int cli_fail_unexpected(const char *verb, const char *operand)
{
	return cli_fail("%s: " CLI_UNEXPECTED " (see `host-ctl help %s`)", verb, operand, verb);
}

int cli_fail_client(const struct client_error *error, bool json)
{
	char detail[CLI_TEXT_MAX];
	json_t *object;

	if (json) {
		object = client_error_json(error);
		if (object)
			cli_print_json(object);
		json_decref(object);
	}
	client_error_detail(error, detail, sizeof(detail));
	/* A refusal of the daemon's is told by its code; ours need none. */
	return cli_fail("%s%s%s%s%s%s", error->http_status ? error->code : "", error->http_status ? ": " : "",
		error->message, detail[0] ? " (" : "", detail, detail[0] ? ")" : "");
}

int cli_ask(const char *socket, const char *method, const char *path, const json_t *body, json_t **answer,
	struct client_error *error)
{
	struct client client = {.fd = -1};
	int r = client_connect(&client, cli_socket_path(socket), -1, error);

	*answer = NULL;
	if (r == 0)
		r = client_call(&client, method, path, body, NULL, answer, error);
	client_finish(&client);
	return r;
}

const char *cli_text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value && value[0] ? value : "-";
}

int cli_finish_output(void)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	return cli_fail("cannot write to standard output: %s", strerror(errno));
}

int cli_print_json(const json_t *value)
{
	if (json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY) == 0)
		putchar('\n');
	return cli_finish_output();
}

struct cli_colours cli_colours_for(FILE *stream)
{
	const char *terminal = getenv("TERM");

	if (getenv("NO_COLOR") || !terminal || strcmp(terminal, "dumb") == 0 || !isatty(fileno(stream)))
		return (struct cli_colours){"", "", "", "", "", ""};
	return (struct cli_colours){
		.good = "\033[32m",
		.warn = "\033[33m",
		.bad = "\033[31m",
		.dim = "\033[2m",
		.bold = "\033[1m",
		.reset = "\033[0m",
	};
}
