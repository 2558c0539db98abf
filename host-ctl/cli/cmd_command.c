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

int cmd_command_parse(struct cmd_command_operands *operands, const struct cli_option *options, size_t count,
	int argc, char **argv)
{
	const char *value, *words[2] = {NULL, NULL};
	struct cli_parser parser;
	int found = 0;

	*operands = (struct cmd_command_operands){.sandbox = NULL};
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
		if (parser.next == argc || found++ == 2)
			break;
		words[found - 1] = cli_parser_operand(&parser);
	}
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
