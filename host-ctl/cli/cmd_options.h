/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of `host-ctl run`, and the body of POST /v1/run made from it. */
#ifndef HOST_CTL_CMD_OPTIONS_H
#define HOST_CTL_CMD_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Strings are those of the command line and live as long as it. */
struct cmd_options {
	bool help;
	bool interactive; /* -i: standard input is the command's */
	bool json;	  /* the plain form: the result as JSON on standard output */
	const char *socket, *user, *cwd, *template; /* NULL: not given */
	const char *idempotency_key; /* the plain form, the output at its end; NULL: not given */
	uint64_t timeout_ms, memory_max, pids_max; /* 0: not given */
	const char **env;			   /* NAME=VALUE, each name once */
	size_t env_count;
	bool terminal, detach; /* of exec */
	const char *sandbox;   /* the same */
	char **argv;	       /* the command */
	size_t argc;
};

/*
 * 0; -EINVAL with a sentence in error (CLI_TEXT_MAX bytes); -ENOMEM. Finish the options in every case.
 * With help set nothing else was checked.
 */
int cmd_options_parse(struct cmd_options *options, int argc, char **argv, char *error);
/* The same for `host-ctl exec`, whose first operand is the sandbox. */
int cmd_options_parse_exec(struct cmd_options *options, int argc, char **argv, char *error);
void cmd_options_finish(struct cmd_options *options);

/*
 * The request's body: a new reference, or NULL without memory. argv and env go as strings where all of them
 * are UTF-8 and in base64 where one is not. input: standard input of the plain form, or NULL.
 */
json_t *cmd_options_request(
	const struct cmd_options *options, bool stream_input, const void *input, size_t input_length);

#endif
