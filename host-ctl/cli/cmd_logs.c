/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl logs`: what a command wrote. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_command.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const char logs_usage[] =
	"usage: host-ctl logs [OPTION...] SANDBOX COMMAND\n"
	"Prints what a command has written so far, whether it runs or not: its first and last 512 KiB. What is\n"
	"missing is told on standard error.\n"
	"\n"
	"  --stderr             its errors (its output)\n"
	"  -f, --follow         go on until it has ended\n"
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { OPT_STDERR = CMD_COMMAND_OWN, OPT_FOLLOW, OPT_COUNT };

static const struct cli_option logs_options[OPT_COUNT] = {
	CMD_COMMAND_OPTIONS,
	[OPT_STDERR] = {.name = "stderr"},
	[OPT_FOLLOW] = {.name = "follow", .letter = 'f'},
};

/* Of one stream of a command. */
struct reading {
	const struct cmd_command_operands *operands;
	const char *stream;
	bool follow, has_gap;
	json_int_t at;	/* of the next byte */
	json_int_t end; /* where it ends without --follow: what was there when it began; -1: not known yet */
};

/* The bytes of one answer. */
static void print_output(const json_t *answer)
{
	const json_t *plain = json_object_get(answer, "data"), *coded = json_object_get(answer, "data_b64");
	uint8_t *bytes = coded ? malloc(json_string_length(coded) + 1) : NULL;
	ptrdiff_t length =
		bytes ? text_base64_decode(bytes, json_string_value(coded), json_string_length(coded)) : 0;

	if (plain)
		fwrite(json_string_value(plain), 1, json_string_length(plain), stdout);
	else if (length > 0)
		fwrite(bytes, 1, (size_t)length, stdout);
	free(bytes);
}

static int ask(const struct reading *reading, const char *rest, json_t **answer, struct client_error *error)
{
	char path[CMD_COMMAND_PATH];

	*answer = NULL;
	if (cmd_command_path(path, reading->operands->sandbox, reading->operands->command, rest))
		return -EINVAL;
	return cli_ask(reading->operands->values[CMD_COMMAND_SOCKET], "GET", path, NULL, answer, error);
}

/* One answer's worth. 1: there is more to come; 0; or -errno with *error set. */
static int print_some(struct reading *reading, struct client_error *error)
{
	json_int_t bytes;
	char rest[96];
	json_t *answer;
	bool more;
	int r;

	snprintf(rest, sizeof rest, "/output?stream=%s&offset=%lld%s", reading->stream,
		(long long)reading->at, reading->follow ? "&wait=true" : "");
	r = ask(reading, rest, &answer, error);
	if (r < 0)
		return r;
	print_output(answer);
	bytes = json_integer_value(json_object_get(answer, "bytes"));
	if (reading->end < 0)
		reading->end = bytes;
	reading->at = json_integer_value(json_object_get(answer, "next_offset"));
	more = reading->follow ? reading->at < bytes || !json_is_true(json_object_get(answer, "ended"))
			       : reading->at < reading->end;
	json_decref(answer);
	fflush(stdout);
	return more;
}

/*
 * Goes on where what is held does, after *error said that at this place nothing is. At the first gap what is
 * there by now is the end, or the newest bytes of who writes fast would never be seen; at a later one it is
 * not, or there would be none. As print_some.
 */
static int skip_gap(struct reading *reading, struct client_error *error)
{
	const json_t *stream;
	json_t *command;
	json_int_t start;
	int r = ask(reading, "", &command, error);

	if (r < 0)
		return r;
	stream = json_object_get(command, reading->stream);
	start = json_integer_value(json_object_get(stream, "oldest"));
	if (!reading->has_gap)
		reading->end = json_integer_value(json_object_get(stream, "bytes"));
	json_decref(command);
	if (start <= reading->at)
		return -EREMOTEIO;
	cli_fail("%lld bytes of standard %s, from byte %lld on, were not kept",
		(long long)(start - reading->at), strcmp(reading->stream, "stderr") ? "output" : "error",
		(long long)reading->at);
	reading->has_gap = true;
	reading->at = start;
	return reading->follow || start < reading->end;
}

int cmd_logs(int argc, char **argv)
{
	struct cmd_command_operands operands;
	struct reading reading = {.operands = &operands, .end = -1};
	struct client_error error;
	char path[CMD_COMMAND_PATH];
	int r = cmd_command_parse(&operands, logs_options, OPT_COUNT, argc, argv);

	if (r == 1) {
		fputs(logs_usage, stdout);
		return cli_finish_output();
	}
	if (r || cmd_command_path(path, operands.sandbox, operands.command, ""))
		return CLI_FAILURE;
	reading.follow = operands.given[OPT_FOLLOW];
	reading.stream = operands.given[OPT_STDERR] ? "stderr" : "stdout";
	do {
		r = print_some(&reading, &error);
		if (r == -EREMOTEIO && !strcmp(error.code, "conflict"))
			r = skip_gap(&reading, &error);
	} while (r == 1);
	return r < 0 ? cli_fail_client(&error, false) : cli_finish_output();
}
