/* SPDX-License-Identifier: Apache-2.0 */
/* The verb that copies a sandbox that runs on: fork. */
#include "common/parse.h"
#include "host-ctl/cli/cmd_spec.h"
#include "host-ctl/cli/verbs.h"

#include <stdio.h>
#include <string.h>

/* clang-format off */
const char fork_usage[] =
	"usage: host-ctl fork [OPTION...] SANDBOX\n"
	"Makes sandboxes that go on from where SANDBOX is: its memory, its files, and what runs in it. Each has a\n"
	"name, an id, and randomness of its own, and SANDBOX runs on. Prints their ids. Those that could not be\n"
	"made are told on standard error, and do not hold up the others.\n"
	"\n"
	"  --count N            how many, 1 to 64 (1)\n"
	"  --name NAME          by which it may be called as well; of several: NAME-1, NAME-2 and so on\n"
	"What is not given is as of SANDBOX; what is, is in place of it:\n"
	"  --metadata KEY=VALUE kept with it; may be repeated\n"
	"  --env NAME=VALUE     a variable of each of its commands; may be repeated\n"
	CMD_SPEC_USAGE_TIMES
	"  --memory SIZE        of the host, the vmm included; at least 96M\n"
	"  --cpu N              hundredths of a processor, 5 or more\n"
	"  --pids N             processes and threads of each of its commands\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { COUNT_MAX = 64 };
enum { OPT_COUNT_OF = CMD_SPEC_OWN, OPT_COUNT };

static const struct cli_option options[OPT_COUNT] = {
	CMD_SPEC_OPTIONS,
	[OPT_COUNT_OF] = {.name = "count", .has_value = true},
};

/* The ids of those that are there; the others are said. CLI_FAILURE when there is one of them. */
static int print_children(json_t *answer)
{
	json_t *child;
	size_t index;
	int status = 0;

	json_array_foreach(json_object_get(answer, "children"), index, child)
	{
		json_t *sandbox = json_object_get(child, "sandbox");
		char text[CLI_TEXT_MAX];

		cli_clean_text(text, sizeof text,
			sandbox ? cli_text(sandbox, "id")
				: cli_text(json_object_get(child, "error"), "message"));
		if (sandbox)
			puts(text);
		else
			status = cli_fail("child %zu: %s", index + 1, text);
	}
	return status;
}

/* With --json all is told on standard output. */
static int check_children(json_t *answer)
{
	json_t *child;
	size_t index;

	json_array_foreach(json_object_get(answer, "children"), index, child)
	{
		if (!json_object_get(child, "sandbox"))
			return CLI_FAILURE;
	}
	return 0;
}

static int ask(const char *id, const char *socket, bool json, const json_t *body)
{
	struct client_error error;
	char path[256];
	json_t *answer;
	int status, printed;

	snprintf(path, sizeof path, "/v1/sandboxes/%s/fork", id);
	if (cli_ask(socket, "POST", path, body, &answer, &error)) {
		cli_fail_client(&error, json);
		return CLI_FAILURE;
	}
	status = json ? check_children(answer) : print_children(answer);
	printed = json ? cli_print_json(answer) : cli_finish_output();
	json_decref(answer);
	return printed ? printed : status;
}

static int set_option(struct cmd_spec *order, int option, const char *value)
{
	uint64_t count;

	if (option != OPT_COUNT_OF)
		return cmd_spec_set(order, option, value);
	if (parse_u64(value, 1, COUNT_MAX, &count) < 0)
		return cli_refuse(
			order->error, "--count wants a number from 1 to %d, not '%s'", COUNT_MAX, value);
	return json_object_set_new(order->body, "count", json_integer((json_int_t)count));
}

/* *id: the sandbox. */
static int parse(struct cmd_spec *order, const char **id, int argc, char **argv)
{
	struct cli_parser parser;
	const char *value;
	int option;

	json_object_set_new(order->body, "count", json_integer(1));
	cli_parser_init(&parser, options, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		if (set_option(order, option, value))
			return -1;
	if (option == CLI_BAD)
		return cli_refuse(order->error, "%s", parser.error);
	if (order->help)
		return 0;
	*id = argv[parser.next];
	if (!*id)
		return cli_refuse(order->error, "a sandbox is expected");
	return argv[parser.next + 1] ? cli_refuse(order->error, CLI_UNEXPECTED, argv[parser.next + 1]) : 0;
}

int cmd_fork(int argc, char **argv)
{
	struct cmd_spec order = {.body = json_object()};
	const char *id = NULL;
	int status;

	if (parse(&order, &id, argc, argv) < 0) {
		status = cli_fail_usage(argv[0], order.error);
	} else if (order.help) {
		fputs(fork_usage, stdout);
		status = cli_finish_output();
	} else if (!cli_is_name(id)) {
		status = cli_fail("%s: that is no sandbox's id or name", id);
	} else {
		status = ask(id, order.socket, order.json, order.body);
	}
	json_decref(order.body);
	return status;
}
