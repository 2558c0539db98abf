/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl kill`: ends a command of a sandbox, or sends it a signal. */
#include "common/parse.h"
#include "host-ctl/cli/cmd_command.h"
#include "host-ctl/cli/verbs.h"

#include <string.h>
#include <strings.h>

/* clang-format off */
const char kill_usage[] =
	"usage: host-ctl kill [OPTION...] SANDBOX COMMAND\n"
	"Ends a command of a sandbox with all that it has started. One that has ended stays as it is.\n"
	"\n"
	"  --signal SIGNAL      send that to its process group and do no more: a name, such as INT or SIGTERM, or\n"
	"                       a number from 1 to 64\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { SIGNAL_MAX = 64 /* of Linux */ };

/* 0, or -1: there is none of that name or number. */
static int parse_signal(const char *text, uint64_t *number)
{
	const char *name = strncasecmp(text, "SIG", 3) == 0 ? text + 3 : text;

	if (parse_u64(text, 1, SIGNAL_MAX, number) == 0)
		return 0;
	for (int i = 1; i <= SIGNAL_MAX; i++) {
		const char *known = sigabbrev_np(i);

		if (!known || strcasecmp(known, name) != 0)
			continue;
		*number = (uint64_t)i;
		return 0;
	}
	return -1;
}

static int ask(const struct cmd_command_operands *operands, bool json, const char *rest, const json_t *body)
{
	char path[CMD_COMMAND_PATH];
	struct client_error error;
	json_t *answer;
	int status;

	if (cmd_command_path(path, operands->sandbox, operands->command, rest))
		return CLI_FAILURE;
	if (cli_ask(operands->values[CMD_COMMAND_SOCKET], "POST", path, body, &answer, &error) < 0)
		return cli_fail_client(&error, json);
	status = json ? cli_print_json(answer) : 0;
	json_decref(answer);
	return status;
}

int cmd_kill(int argc, char **argv)
{
	enum { JSON = CMD_COMMAND_OWN, SIGNAL, COUNT };
	static const struct cli_option options[COUNT] = {CMD_COMMAND_OPTIONS, [JSON] = {.name = "json"},
		[SIGNAL] = {.name = "signal", .has_value = true}};
	struct cmd_command_operands operands;
	int status = cmd_command_parse(&operands, options, COUNT, argc, argv);
	char error[CLI_TEXT_MAX];
	uint64_t number;
	json_t *body;

	if (status == 1) {
		fputs(kill_usage, stdout);
		return cli_finish_output();
	}
	if (status)
		return status;
	if (!operands.given[SIGNAL])
		return ask(&operands, operands.given[JSON], "/kill", NULL);
	if (parse_signal(operands.values[SIGNAL], &number)) {
		cli_refuse(error, "--signal wants a name, such as TERM, or a number from 1 to %d, not '%s'",
			SIGNAL_MAX, operands.values[SIGNAL]);
		return cli_fail_usage(argv[0], error);
	}
	body = json_pack("{s:I}", "signal", (json_int_t)number);
	status = ask(&operands, operands.given[JSON], "/signal", body);
	json_decref(body);
	return status;
}
