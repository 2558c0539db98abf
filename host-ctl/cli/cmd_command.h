/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of a command in a sandbox share: its path, and the command line SANDBOX COMMAND; or SANDBOX
 * alone, of those that take one. */
#ifndef HOST_CTL_CMD_COMMAND_H
#define HOST_CTL_CMD_COMMAND_H

#include "host-ctl/cli/cli.h"
#include <stdbool.h>

enum {
	CMD_COMMAND_PATH = 256,
	CMD_COMMAND_OPTIONS_MAX = 8,
	/* The first options of each verb; its own come after them. */
	CMD_COMMAND_SOCKET = 0,
	CMD_COMMAND_HELP,
	CMD_COMMAND_OWN,
};

/* For the beginning of a verb's table. */
/* clang-format off */
#define CMD_COMMAND_OPTIONS \
	[CMD_COMMAND_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true}, \
	[CMD_COMMAND_HELP] = {.name = "help", .letter = 'h'}
/* clang-format on */

/* Of a command line, as long as which the texts live. */
struct cmd_command_operands {
	const char *sandbox, *command;
	bool given[CMD_COMMAND_OPTIONS_MAX];
	const char *values[CMD_COMMAND_OPTIONS_MAX]; /* NULL: not given, or one without a value */
};

/*
 * Options and operands, in any order; count: at most CMD_COMMAND_OPTIONS_MAX. 0; 1 when --help was given; or
 * CLI_FAILURE (said).
 */
int cmd_command_parse(struct cmd_command_operands *operands, const struct cli_option *options, size_t count,
	int argc, char **argv);
/* The same with the sandbox alone, which can be one's id or name. */
int cmd_command_parse_sandbox(struct cmd_command_operands *operands, const struct cli_option *options,
	size_t count, int argc, char **argv);

/* /v1/sandboxes/SANDBOX/commands/COMMAND and rest, at most 100 bytes; command empty: what is the sandbox's.
 * 0, or CLI_FAILURE (said): that can be no id or name. */
int cmd_command_path(char path[CMD_COMMAND_PATH], const char *sandbox, const char *command, const char *rest);

#endif
