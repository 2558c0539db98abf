/* SPDX-License-Identifier: Apache-2.0 */
/* The verb that makes a template of a sandbox that runs on: snapshot. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"

#include <stdio.h>

/* clang-format off */
const char snapshot_usage[] =
	"usage: host-ctl snapshot [OPTION...] SANDBOX NAME\n"
	"Makes a template NAME of SANDBOX as it is: its memory, its files, and what runs in it, which runs on in\n"
	"each VM of the template. Each has a name, an id and randomness of its own, and SANDBOX runs on. Returns\n"
	"when the template is there.\n"
	"\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { OPT_JSON, OPT_SOCKET, OPT_HELP, OPT_COUNT };
enum { OPERANDS = 2 };

static const struct cli_option options[OPT_COUNT] = {
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

static int print_made(const char *id, json_t *answer)
{
	char template[CLI_TEXT_MAX];

	cli_clean_text(template, sizeof template, cli_text(json_object_get(answer, "template"), "name"));
	fprintf(stderr, "template %s is made: sandbox %s stood for %lld ms\n", template, id,
		(long long)json_integer_value(json_object_get(answer, "pause_us")) / 1000);
	return cli_finish_output();
}

static int ask(const char *id, const char *socket, bool json, const json_t *body)
{
	struct client_error error;
	char path[256];
	json_t *answer;
	int printed;

	snprintf(path, sizeof path, "/v1/sandboxes/%s/snapshot", id);
	if (cli_ask(socket, "POST", path, body, &answer, &error)) {
		cli_fail_client(&error, json);
		return CLI_FAILURE;
	}
	printed = json ? cli_print_json(answer) : print_made(id, answer);
	json_decref(answer);
	return printed;
}

/* The command line as it was read. */
struct order {
	const char *operands[OPERANDS]; /* the sandbox, and the name of the template */
	unsigned int count;
	const char *socket;
	bool json, help;
};

/* 0, or CLI_FAILURE (said). Options may follow operands. */
static int parse(struct order *order, int argc, char **argv)
{
	struct cli_parser parser;
	const char *value, *operand;
	int option;

	cli_parser_init(&parser, options, OPT_COUNT, argc, argv);
	do {
		while ((option = cli_parser_next(&parser, &value)) >= 0)
			order->socket = option == OPT_SOCKET ? value : order->socket;
		if (option == CLI_BAD)
			return cli_fail_usage(argv[0], parser.error);
		operand = cli_parser_operand(&parser);
		if (operand && order->count == OPERANDS)
			return cli_fail_unexpected(argv[0], operand);
		if (operand)
			order->operands[order->count++] = operand;
	} while (operand);
	order->json = cli_parser_given(&parser, OPT_JSON);
	order->help = cli_parser_given(&parser, OPT_HELP);
	if (order->help)
		return 0;
	if (order->count < OPERANDS)
		return cli_fail_usage(
			argv[0], order->count ? "the name of the template is expected"
					      : "a sandbox is expected, and the name of the template");
	return cli_is_name(order->operands[0])
		       ? 0
		       : cli_fail("%s: that is no sandbox's id or name", order->operands[0]);
}

int cmd_snapshot(int argc, char **argv)
{
	struct order order = {.count = 0};
	int status = parse(&order, argc, argv);
	json_t *body;

	if (status)
		return status;
	if (order.help) {
		fputs(snapshot_usage, stdout);
		return cli_finish_output();
	}
	body = json_pack("{s:s}", "name", order.operands[1]);
	if (!body)
		return cli_fail_usage(argv[0], "the name of the template is not UTF-8");
	status = ask(order.operands[0], order.socket, order.json, body);
	json_decref(body);
	return status;
}
