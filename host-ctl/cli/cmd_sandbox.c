/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that make, change and end sandboxes: create, pause, resume, stop, start, rm. */
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/sandbox/sandbox_spec.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const char create_usage[] =
	"usage: host-ctl create [OPTION...]\n"
	"Makes a sandbox, a VM that stays with its files until it is removed, and prints its id.\n"
	"\n"
	"  --name NAME          by which it may be called as well\n"
	"  --template NAME      of which it is a clone (base)\n"
	"  --metadata KEY=VALUE kept with it; may be repeated\n"
	"  --env NAME=VALUE     a variable of each of its commands; may be repeated\n"
	"  --ttl TIME           it is removed after TIME: 90s, 10m, 2h, 7d, seconds alone; at most 30d (never)\n"
	"  --idle-kill TIME     it is removed when nothing ran in it for TIME\n"
	"  --idle-pause TIME    it is paused then\n"
	"  --memory SIZE        of the host, the vmm included; at least 96M (the template's)\n"
	"  --cpu N              hundredths of a processor, 5 or more (the template's)\n"
	"  --pids N             processes and threads of each of its commands (no limit)\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
const char sandbox_verb_usage[] =
	"usage: host-ctl pause|resume|start|rm [OPTION...] SANDBOX...\n"
	"       host-ctl stop [--discard-files] [OPTION...] SANDBOX...\n"
	"pause: its processors stand, its memory stays. resume: they go on. stop: its commands are told to end,\n"
	"and its VM is switched off; its files stay if its template has a disk, else they are gone, which\n"
	"--discard-files agrees to. start: it has a new VM, under its id, that boots from its files, or is one of\n"
	"its template. rm: it is removed with all that is in it, which is done when the verb is. With several,\n"
	"one that fails does not hold up the others.\n"
	"\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { DAY_MS = 24 * 60 * 60 * 1000 };

enum {
	OPT_NAME,
	OPT_TEMPLATE,
	OPT_METADATA,
	OPT_ENV,
	OPT_TTL,
	OPT_IDLE_KILL,
	OPT_IDLE_PAUSE,
	OPT_MEMORY,
	OPT_CPU,
	OPT_PIDS,
	OPT_JSON,
	OPT_SOCKET,
	OPT_HELP,
	OPT_COUNT
};

static const struct cli_option create_options[OPT_COUNT] = {
	[OPT_NAME] = {.name = "name", .has_value = true, .not_empty = true},
	[OPT_TEMPLATE] = {.name = "template", .has_value = true, .not_empty = true},
	[OPT_METADATA] = {.name = "metadata", .has_value = true, .repeats = true},
	[OPT_ENV] = {.name = "env", .has_value = true, .repeats = true},
	[OPT_TTL] = {.name = "ttl", .has_value = true},
	[OPT_IDLE_KILL] = {.name = "idle-kill", .has_value = true},
	[OPT_IDLE_PAUSE] = {.name = "idle-pause", .has_value = true},
	[OPT_MEMORY] = {.name = "memory", .has_value = true},
	[OPT_CPU] = {.name = "cpu", .has_value = true},
	[OPT_PIDS] = {.name = "pids", .has_value = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

struct order {
	json_t *body;
	const char *socket;
	bool json, help;
	char error[CLI_TEXT_MAX];
};

__attribute__((format(printf, 2, 3))) static int refuse(struct order *order, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(order->error, sizeof order->error, format, arguments);
	va_end(arguments);
	return -1;
}

static int set_text(struct order *order, int option, const char *value)
{
	const char *name = create_options[option].name;

	if (json_object_set_new(order->body, name, json_string(value)) < 0)
		return refuse(order, "--%s is not UTF-8, or there is no memory", name);
	return 0;
}

static int set_pair(struct order *order, int option, const char *pair)
{
	const char *name = create_options[option].name, *equals = strchr(pair, '=');
	json_t *object = json_object_get(order->body, name);
	char *key;
	int status;

	if (!equals || equals == pair)
		return refuse(order, "--%s wants NAME=VALUE, not '%s'", name, pair);
	if (!object && json_object_set_new(order->body, name, object = json_object()) < 0)
		return refuse(order, "no memory for --%s", name);
	key = strndup(pair, (size_t)(equals - pair));
	if (json_object_get(object, key)) {
		free(key);
		return refuse(order, "--%s gives %.*s twice", name, (int)(equals - pair), pair);
	}
	status = key ? json_object_set_new(object, key, json_string(equals + 1)) : -1;
	free(key);
	return status ? refuse(order, "--%s is not UTF-8, or there is no memory", name) : 0;
}

static int set_time(struct order *order, int option, json_t *object, const char *field, const char *value)
{
	uint64_t milliseconds;

	if (cli_parse_duration(value, SANDBOX_TTL_MAX_MS, &milliseconds) < 0)
		return refuse(order, "--%s wants 1ms to %dd, such as 90s, 10m or 2h, not '%s'",
			create_options[option].name, (int)(SANDBOX_TTL_MAX_MS / DAY_MS), value);
	return json_object_set_new(object, field, json_integer((json_int_t)milliseconds));
}

static int set_idle(struct order *order, int option, const char *action, const char *value)
{
	json_t *idle = json_pack("{s:s}", "action", action);

	if (json_object_get(order->body, "idle")) {
		json_decref(idle);
		return refuse(order, "give one of --idle-kill and --idle-pause");
	}
	if (json_object_set_new(order->body, "idle", idle) < 0)
		return refuse(order, "no memory");
	return set_time(order, option, idle, "after_ms", value);
}

static int set_memory(struct order *order, const char *value)
{
	uint64_t bytes;

	if (parse_size(value, SANDBOX_MEMORY_MIN, INT64_MAX, &bytes) < 0)
		return refuse(order, "--memory wants a size of at least %dM, such as 128M, not '%s'",
			SANDBOX_MEMORY_MIN >> 20, value);
	return json_object_set_new(order->body, "memory_max", json_integer((json_int_t)bytes));
}

static int set_number(
	struct order *order, int option, const char *field, uint64_t least, uint64_t most, const char *value)
{
	uint64_t number;

	if (parse_u64(value, least, most, &number) < 0)
		return refuse(order, "--%s wants a number from %llu to %llu, not '%s'",
			create_options[option].name, (unsigned long long)least, (unsigned long long)most,
			value);
	return json_object_set_new(order->body, field, json_integer((json_int_t)number));
}

static int set_option(struct order *order, int option, const char *value)
{
	switch (option) {
	case OPT_NAME:
	case OPT_TEMPLATE:
		return set_text(order, option, value);
	case OPT_METADATA:
	case OPT_ENV:
		return set_pair(order, option, value);
	case OPT_TTL:
		return set_time(order, option, order->body, "ttl_ms", value);
	case OPT_IDLE_KILL:
		return set_idle(order, option, "kill", value);
	case OPT_IDLE_PAUSE:
		return set_idle(order, option, "pause", value);
	case OPT_MEMORY:
		return set_memory(order, value);
	case OPT_CPU:
		return set_number(order, option, "cpu_max", SANDBOX_CPU_MIN, SANDBOX_CPU_MAX, value);
	case OPT_PIDS:
		return set_number(order, option, "pids_max", 1, RUN_PIDS_MAX, value);
	case OPT_JSON:
		order->json = true;
		return 0;
	case OPT_SOCKET:
		order->socket = value;
		return 0;
	default:
		order->help = true;
		return 0;
	}
}

static int parse_create(struct order *order, int argc, char **argv)
{
	struct cli_parser parser;
	const char *value;
	int option;

	cli_parser_init(&parser, create_options, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		if (set_option(order, option, value))
			return -1;
	if (option == CLI_BAD)
		return refuse(order, "%s", parser.error);
	return parser.next < argc ? refuse(order, CLI_UNEXPECTED, argv[parser.next]) : 0;
}

/* One request; the answer is the caller's, NULL after a failure (said). */
static json_t *call(const char *socket, bool json, const char *method, const char *path, const json_t *body)
{
	struct client_error error;
	json_t *answer;

	if (cli_ask(socket, method, path, body, &answer, &error) == 0)
		return answer;
	cli_fail_client(&error, json);
	return NULL;
}

static int create(const struct order *order)
{
	json_t *sandbox = call(order->socket, order->json, "POST", "/v1/sandboxes", order->body);
	char id[CLI_TEXT_MAX];
	int status;

	if (!sandbox)
		return CLI_FAILURE;
	cli_clean_text(id, sizeof id, cli_text(sandbox, "id"));
	if (order->json) {
		status = cli_print_json(sandbox);
	} else {
		puts(id);
		status = cli_finish_output();
	}
	/* Who cannot be told of it by its id is told here, or it would stay unknown. */
	if (status)
		cli_fail("the sandbox is there all the same: `host-ctl rm %s` removes it", id);
	json_decref(sandbox);
	return status;
}

int cmd_create(int argc, char **argv)
{
	struct order order = {.body = json_object()};
	int status;

	if (parse_create(&order, argc, argv) < 0) {
		status = cli_fail_usage(argv[0], order.error);
	} else if (order.help) {
		fputs(create_usage, stdout);
		status = cli_finish_output();
	} else {
		status = create(&order);
	}
	json_decref(order.body);
	return status;
}

/* --- what takes sandboxes and nothing else --- */

/* body: NULL, or of the request. */
static int ask_one(const char *verb, const char *id, const char *socket, bool json, const json_t *body)
{
	bool removes = !strcmp(verb, "rm");
	char path[256];
	json_t *answer;
	int status = 0;

	snprintf(path, sizeof path, "/v1/sandboxes/%s%s%s", id, removes ? "" : "/", removes ? "" : verb);
	answer = call(socket, json, removes ? "DELETE" : "POST", path, body);
	if (!answer)
		return CLI_FAILURE;
	if (json)
		status = cli_print_json(answer);
	else if (removes && !json_is_true(json_object_get(answer, "verified")))
		status = cli_fail("%s: something of it may be left", id);
	json_decref(answer);
	return status;
}

/*
 * The next operand joins those before it, from argv[1] on, where all has been read: nothing is asked of the
 * daemon before the whole command line is known to be sound. False after the last.
 */
static bool take_sandbox(struct cli_parser *parser, int *count)
{
	char *operand = cli_parser_operand(parser);

	if (operand)
		parser->argv[++*count] = operand;
	return operand;
}

/* 0, or CLI_FAILURE (said): one of them cannot be a name. */
static int check_sandboxes(char *const *sandboxes, int count)
{
	for (int i = 0; i < count; i++)
		if (!cli_is_name(sandboxes[i]))
			return cli_fail("%s: that is no sandbox's id or name", sandboxes[i]);
	return 0;
}

int cmd_sandbox_verb(int argc, char **argv)
{
	enum { JSON, SOCKET, HELP, DISCARD };
	static const struct cli_option options[] = {[JSON] = {.name = "json"},
		[SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
		[HELP] = {.name = "help", .letter = 'h'},
		[DISCARD] = {.name = "discard-files"}};
	struct cli_parser parser;
	const char *value, *socket = NULL;
	json_t *body = NULL;
	int option, count = 0, status = 0;

	cli_parser_init(&parser, options, strcmp(argv[0], "stop") ? DISCARD : DISCARD + 1, argc, argv);
	do {
		while ((option = cli_parser_next(&parser, &value)) >= 0)
			if (option == SOCKET)
				socket = value;
	} while (option == CLI_END && take_sandbox(&parser, &count));
	if (option == CLI_BAD)
		return cli_fail_usage(argv[0], parser.error);
	if (cli_parser_given(&parser, HELP)) {
		fputs(sandbox_verb_usage, stdout);
		return cli_finish_output();
	}
	if (!count)
		return cli_fail_usage(argv[0], "a sandbox is expected");
	if (check_sandboxes(argv + 1, count))
		return CLI_FAILURE;
	if (cli_parser_given(&parser, DISCARD))
		body = json_pack("{s:b}", "discard_files", 1);
	for (int i = 1; i <= count; i++)
		if (ask_one(argv[0], argv[i], socket, cli_parser_given(&parser, JSON), body))
			status = CLI_FAILURE;
	json_decref(body);
	return status;
}
