/* SPDX-License-Identifier: Apache-2.0 */
/* The verb that copies a sandbox that runs on: fork. */
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
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
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { COUNT_MAX = 64 };
enum { OPT_COUNT_OF, OPT_NAME, OPT_JSON, OPT_SOCKET, OPT_HELP, OPT_COUNT };

static const struct cli_option options[OPT_COUNT] = {
	[OPT_COUNT_OF] = {.name = "count", .has_value = true},
	[OPT_NAME] = {.name = "name", .has_value = true, .not_empty = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
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

static int run(struct cli_parser *parser, const char *const values[OPT_COUNT], json_t *body)
{
	const char *verb = parser->argv[0], *id = parser->argv[parser->next];
	uint64_t count = 1;

	if (!id)
		return cli_fail_usage(verb, "a sandbox is expected");
	if (parser->argv[parser->next + 1])
		return cli_fail_unexpected(verb, parser->argv[parser->next + 1]);
	if (values[OPT_COUNT_OF] && parse_u64(values[OPT_COUNT_OF], 1, COUNT_MAX, &count) < 0)
		return cli_fail_usage(verb, "--count wants a number from 1 to 64");
	if (!cli_is_name(id))
		return cli_fail("%s: that is no sandbox's id or name", id);
	json_object_set_new(body, "count", json_integer((json_int_t)count));
	if (values[OPT_NAME] && json_object_set_new(body, "name", json_string(values[OPT_NAME])))
		return cli_fail_usage(verb, "--name is not UTF-8");
	return ask(id, values[OPT_SOCKET], cli_parser_given(parser, OPT_JSON), body);
}

int cmd_fork(int argc, char **argv)
{
	const char *values[OPT_COUNT] = {NULL}, *value;
	struct cli_parser parser;
	json_t *body;
	int option, status;

	cli_parser_init(&parser, options, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		values[option] = value;
	if (option == CLI_BAD)
		return cli_fail_usage(argv[0], parser.error);
	if (cli_parser_given(&parser, OPT_HELP)) {
		fputs(fork_usage, stdout);
		return cli_finish_output();
	}
	body = json_object();
	status = run(&parser, values, body);
	json_decref(body);
	return status;
}
