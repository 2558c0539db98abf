/* SPDX-License-Identifier: Apache-2.0 */
/* The verbs that make, change and end sandboxes: create, pause, resume, suspend, wake, stop, start, rm. */
#include "host-ctl/cli/cmd_spec.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/pool/template.h"

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
	CMD_SPEC_USAGE_TIMES
	"  --mem SIZE           memory of its VM, such as 256M; one unlike its template's is booted, not cloned\n"
	"  --cpus N             processors of its VM, 1 to 8; the same\n"
	"  --memory SIZE        of the host, the vmm included; at least 96M (the template's)\n"
	"  --cpu N              hundredths of a processor, 5 or more (the template's)\n"
	"  --pids N             processes and threads of each of its commands (no limit)\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
const char sandbox_verb_usage[] =
	"usage: host-ctl pause|resume|suspend|wake|start|rm [OPTION...] SANDBOX...\n"
	"       host-ctl stop [--discard-files] [OPTION...] SANDBOX...\n"
	"pause: its processors stand, its memory stays. resume: they go on. suspend: all of it is put on the\n"
	"disk, and its memory is the host's again. wake: it is ready again, resumed, restored or started, as it\n"
	"takes; what ran when it was paused or suspended goes on. stop: its commands are told to end,\n"
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

enum { OPT_TEMPLATE = CMD_SPEC_OWN, OPT_MEM, OPT_CPUS, OPT_COUNT };

static const struct cli_option create_options[OPT_COUNT] = {
	CMD_SPEC_OPTIONS,
	[OPT_TEMPLATE] = {.name = "template", .has_value = true, .not_empty = true},
	[OPT_MEM] = {.name = "mem", .has_value = true, .not_empty = true},
	[OPT_CPUS] = {.name = "cpus", .has_value = true},
};

static int set_option(struct cmd_spec *order, int option, const char *value)
{
	switch (option) {
	case OPT_TEMPLATE:
	case OPT_MEM:
		return cmd_spec_set_text(order, create_options[option].name, value);
	case OPT_CPUS:
		return cmd_spec_set_number(
			order, create_options[option].name, "cpus", 1, TEMPLATE_CPUS_MAX, value);
	default:
		return cmd_spec_set(order, option, value);
	}
}

static int parse_create(struct cmd_spec *order, int argc, char **argv)
{
	struct cli_parser parser;
	const char *value;
	int option;

	cli_parser_init(&parser, create_options, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		if (set_option(order, option, value))
			return -1;
	if (option == CLI_BAD)
		return cli_refuse(order->error, "%s", parser.error);
	return parser.next < argc ? cli_refuse(order->error, CLI_UNEXPECTED, argv[parser.next]) : 0;
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

static int create(const struct cmd_spec *order)
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
	struct cmd_spec order = {.body = json_object()};
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
