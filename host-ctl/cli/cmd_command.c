/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli/cmd_command.h"

int cmd_command_path(char path[CMD_COMMAND_PATH], const char *sandbox, const char *command, const char *rest)
{
	if (!cli_is_name(sandbox) || (command[0] && !cli_is_name(command)))
		return cli_fail("%s %s: that is no id or name", sandbox, command);
	snprintf(path, CMD_COMMAND_PATH, "/v1/sandboxes/%s%s%s%s", sandbox, command[0] ? "/commands/" : "",
		command, rest);
	return 0;
}

/* Options and at most `most` operands; *found: how many there are, one more of too many. 0, or CLI_FAILURE
 * (said). */
static int parse(struct cmd_command_operands *operands, const struct cli_option *options, size_t count,
	const char **words, int most, int *found, int argc, char **argv)
{
	struct cli_parser parser;
	const char *value;

	*operands = (struct cmd_command_operands){.sandbox = NULL};
	*found = 0;
	cli_parser_init(&parser, options, count, argc, argv);
	for (;;) {
		int option = cli_parser_next(&parser, &value);

		if (option == CLI_BAD)
			return cli_fail_usage(argv[0], parser.error);
		if (option >= 0) {
			operands->given[option] = true;
			operands->values[option] = value;
			continue;
		}
		if (parser.next == argc)
			return 0;
		words[*found] = cli_parser_operand(&parser);
		if ((*found)++ == most)
			return 0;
	}
}

int cmd_command_parse(struct cmd_command_operands *operands, const struct cli_option *options, size_t count,
	int argc, char **argv)
{
	const char *words[3] = {NULL, NULL, NULL};
	int found;

	if (parse(operands, options, count, words, 2, &found, argc, argv))
		return CLI_FAILURE;
	if (operands->given[CMD_COMMAND_HELP])
		return 1;
	operands->sandbox = words[0];
	operands->command = words[1];
	if (found == 2 && words[1][0])
		return 0;
	if (found == 2)
		return cli_fail_usage(argv[0], "the command's id is empty");
	return cli_fail_usage(argv[0], "a sandbox and a command in it are expected");
}

int cmd_command_parse_sandbox(struct cmd_command_operands *operands, const struct cli_option *options,
	size_t count, int argc, char **argv)
{
	const char *words[2] = {NULL, NULL};
	int found;

	if (parse(operands, options, count, words, 1, &found, argc, argv))
		return CLI_FAILURE;
	if (operands->given[CMD_COMMAND_HELP])
		return 1;
	operands->sandbox = words[0];
	if (!found)
		return cli_fail_usage(argv[0], "a sandbox is expected");
	if (found > 1)
		return cli_fail_unexpected(argv[0], words[1]);
	return cli_is_name(words[0]) ? 0 : cli_fail("%s: that is no sandbox's id or name", words[0]);
}
