/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl ps`: the commands of a sandbox. */
#include "host-ctl/cli/cmd_command.h"
#include "host-ctl/cli/verbs.h"

#include <string.h>
#include <time.h>

/* clang-format off */
const char ps_usage[] =
	"usage: host-ctl ps [OPTION...] SANDBOX\n"
	"Lists the commands of a sandbox that are known: those that run, and those that have ended, with how. OUT\n"
	"and ERR are the bytes that they have written.\n"
	"\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { DESCRIPTION_MAX = CLI_TEXT_MAX + 24 };

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* "exited 0", "signalled 9", "timed_out", or the code of an error; "-": it has not ended. */
static void describe_end(const json_t *command, char text[DESCRIPTION_MAX])
{
	static const char *const numbers[] = {"code", "signal"};
	const json_t *result = json_object_get(command, "result"), *value = NULL;
	char kind[CLI_TEXT_MAX];

	cli_clean_text(kind, sizeof kind,
		json_is_object(result) ? cli_text(result, "kind")
				       : cli_text(json_object_get(command, "error"), "code"));
	for (size_t i = 0; !value && i < sizeof numbers / sizeof numbers[0]; i++)
		value = json_object_get(result, numbers[i]);
	if (value)
		snprintf(text, DESCRIPTION_MAX, "%s %lld", kind, (long long)json_integer_value(value));
	else
		snprintf(text, DESCRIPTION_MAX, "%s", kind);
}

static void print_command(const json_t *command, const struct cli_colours *colours)
{
	const long long now = (long long)time(NULL) * 1000, started = number(command, "started_ms");
	char id[CLI_TEXT_MAX], state[CLI_TEXT_MAX], end[DESCRIPTION_MAX], name[CLI_TEXT_MAX],
		age[CLI_TIME_MAX];
	const char *colour;

	cli_format_span(now - (started ? started : number(command, "created_ms")), age);
	cli_clean_text(id, sizeof id, cli_text(command, "id"));
	cli_clean_text(state, sizeof state, cli_text(command, "state"));
	cli_clean_text(name, sizeof name, cli_text(command, "argv0"));
	describe_end(command, end);
	colour = !strcmp(state, "running") ? colours->good : colours->dim;
	printf("%-20s %s%-8s%s %-16s %5s %10lld %10lld  %s\n", id, colour, state, colours->reset, end, age,
		number(json_object_get(command, "stdout"), "bytes"),
		number(json_object_get(command, "stderr"), "bytes"), name);
}

static int print_list(const json_t *answer)
{
	const struct cli_colours colours = cli_colours_for(stdout);
	const json_t *command;
	size_t i;

	printf("%s%-20s %-8s %-16s %5s %10s %10s  %s%s\n", colours.bold, "COMMAND", "STATE", "END", "AGE",
		"OUT", "ERR", "PROGRAM", colours.reset);
	json_array_foreach(json_object_get(answer, "commands"), i, command)
	{
		print_command(command, &colours);
	}
	return cli_finish_output();
}

int cmd_ps(int argc, char **argv)
{
	enum { JSON = CMD_COMMAND_OWN, COUNT };
	static const struct cli_option options[COUNT] = {CMD_COMMAND_OPTIONS, [JSON] = {.name = "json"}};
	struct cmd_command_operands operands;
	char path[CMD_COMMAND_PATH];
	struct client_error error;
	json_t *answer;
	int status = cmd_command_parse_sandbox(&operands, options, COUNT, argc, argv);

	if (status == 1) {
		fputs(ps_usage, stdout);
		return cli_finish_output();
	}
	if (status || cmd_command_path(path, operands.sandbox, "", "/commands"))
		return CLI_FAILURE;
	if (cli_ask(operands.values[CMD_COMMAND_SOCKET], "GET", path, NULL, &answer, &error) < 0)
		return cli_fail_client(&error, operands.given[JSON]);
	status = operands.given[JSON] ? cli_print_json(answer) : print_list(answer);
	json_decref(answer);
	return status;
}
