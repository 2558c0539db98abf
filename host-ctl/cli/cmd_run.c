/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_options.h"
#include "host-ctl/cli/cmd_result.h"
#include "host-ctl/cli/cmd_stream.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/support/text.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)CMD_STATUS_FAILED == (int)CLI_FAILURE, "one status for our own failures");

/* clang-format off */
const char run_usage[] =
	"usage: host-ctl run [OPTION...] [--] CMD ARG...\n"
	"Runs CMD in a fresh VM. Its output, unchanged, is ours; so is its exit status.\n"
	"\n"
	"  -i, --stdin          pass standard input on (without it the command's is /dev/null)\n"
	"  --user USER          run as USER of the guest (root)\n"
	"  --cwd DIR            run in DIR (the user's home)\n"
	"  --env NAME=VALUE     set a variable; may be repeated\n"
	"  --timeout TIME       end it after TIME: 500ms, 10s, 2m, 1h, seconds alone; at most 24h (no limit)\n"
	"  --memory SIZE        limit its memory: bytes, or with K, M, G; at least 64K (no limit)\n"
	"  --pids N             limit its processes (no limit)\n"
	"  --template NAME      in a clone of that template (base; see `host-ctl template`)\n"
	"  --idempotency-key KEY\n"
	"                       run it once, however often this is asked for with KEY within 24 h; the output\n"
	"                       comes at the end, 1 MiB of each stream; with -i at most 64 KiB of standard input\n"
	"  --json               print the result as one JSON object, the output in it; with -i at most 64 KiB of\n"
	"                       standard input\n"
	CLI_USAGE_SOCKET
	"\n"
	"INT, TERM, HUP, QUIT, USR1 and USR2 are passed on. A second INT within 2 s kills all that the command\n"
	"started; the next one leaves at once. Whenever host-ctl leaves, the VM is destroyed.\n"
	"\n"
	"exit status: the command's; 128 + N when signal N ended it; 124 out of time; 137 out of memory or\n"
	"killed; 127 no such command; 126 it cannot be executed, or there is no such user or folder;\n"
	"125 host-ctl, the daemon or the guest failed, the cause on standard error; 141 the reader of the\n"
	"output is gone.\n";
/* clang-format on */

enum { STATUS_INTERRUPTED = 128 + SIGINT, STATUS_BROKEN_PIPE = 128 + SIGPIPE };

static int fail_memory(void)
{
	return cli_fail("out of memory");
}

/* ---- the upgraded form ---- */

/* Ends as a program does that writes to a pipe without a reader; returns where SIGPIPE is ignored. */
static int end_by_broken_pipe(void)
{
	raise(SIGPIPE);
	return STATUS_BROKEN_PIPE;
}

static int tell_result(const struct cmd_result *result, const struct cmd_options *options)
{
	char text[CLI_TEXT_MAX];

	cmd_result_describe(result, options, text, sizeof(text));
	if (text[0])
		cli_fail("%s", text);
	return cmd_result_status(result);
}

static int stream(struct client *client, const struct cmd_options *options)
{
	struct client_error error;
	struct cmd_stream run;
	int r = cmd_stream_init(
		&run, client, options->interactive ? STDIN_FILENO : -1, STDOUT_FILENO, STDERR_FILENO);

	if (r < 0)
		client_error_set(&error, "io", "cannot prepare the run: %s", strerror(-r));
	else
		r = cmd_stream_run(&run, &error);
	/* Before the signals are let through: the daemon learns at once that we leave. */
	client_finish(client);
	cmd_stream_finish(&run);
	if (r == 0)
		return tell_result(&run.result, options);
	if (r == -EPIPE)
		return end_by_broken_pipe();
	cli_fail_client(&error, false);
	return r == -EINTR ? STATUS_INTERRUPTED : CLI_FAILURE;
}

static int cmd_stream_form(const struct cmd_options *options)
{
	struct client client = {.fd = -1};
	struct client_error error;
	json_t *request = cmd_options_request(options, options->interactive, NULL, 0);
	int r;

	if (!request)
		return fail_memory();
	r = client_connect(&client, cli_socket_path(options->socket), -1, &error);
	if (r == 0)
		r = client_upgrade(&client, "/v1/run", request, &error);
	json_decref(request);
	r = r < 0 ? cli_fail_client(&error, false) : stream(&client, options);
	client_finish(&client);
	return r;
}

/* ---- the plain form ---- */

/* All of standard input: bytes read, or -1 (said). */
static ssize_t read_input(char input[RUN_STDIN_MAX + 1])
{
	ssize_t n = io_read_full(STDIN_FILENO, input, RUN_STDIN_MAX + 1);

	if (n < 0)
		cli_fail("cannot read standard input: %s", strerror((int)-n));
	else if (n > RUN_STDIN_MAX)
		cli_fail("standard input is longer than %d bytes, the most that --json and --idempotency-key "
			 "take: run without them",
			RUN_STDIN_MAX);
	return n > RUN_STDIN_MAX ? -1 : n;
}

/* One stream of the answer: written as it was. 0 or an exit status. */
static int print_stream(const json_t *answer, const char *name, int fd)
{
	const json_t *stream = json_object_get(answer, name), *plain = json_object_get(stream, "data");
	const json_t *coded = json_object_get(stream, "data_b64");
	json_int_t dropped = json_integer_value(json_object_get(stream, "dropped"));
	ptrdiff_t length = (ptrdiff_t)json_string_length(plain);
	uint8_t *bytes = NULL;
	int r;

	if (coded) {
		bytes = malloc(json_string_length(coded) + 1);
		if (!bytes)
			return fail_memory();
		length = text_base64_decode(bytes, json_string_value(coded), json_string_length(coded));
	}
	if (length < 0 || (!plain && !coded)) {
		free(bytes);
		return cli_fail("the daemon broke the protocol: %s that makes no sense", name);
	}
	r = io_write_all(fd, coded ? (const void *)bytes : json_string_value(plain), (size_t)length);
	free(bytes);
	if (r == -EPIPE)
		return end_by_broken_pipe();
	if (r < 0)
		return cli_fail("cannot write %s: %s", name, strerror(-r));
	if (dropped > 0)
		cli_fail("%lld bytes from the middle of %s were not kept", (long long)dropped, name);
	return 0;
}

static int print_output(const json_t *answer)
{
	int status = print_stream(answer, "stdout", STDOUT_FILENO);

	return status ? status : print_stream(answer, "stderr", STDERR_FILENO);
}

static int call(const struct cmd_options *options, const json_t *request)
{
	struct client client = {.fd = -1};
	struct client_error error;
	struct cmd_result result;
	json_t *answer = NULL;
	int status, r = client_connect(&client, cli_socket_path(options->socket), -1, &error);

	client.idempotency_key = options->idempotency_key;
	if (r == 0)
		r = client_call(&client, "POST", "/v1/run", request, NULL, &answer, &error);
	client_finish(&client);
	if (r == 0 && cmd_result_from_json(&result, answer) < 0) {
		client_error_set(
			&error, "protocol", "the daemon broke the protocol: a result that makes no sense");
		r = -EPROTO;
	}
	if (r < 0) {
		json_decref(answer);
		return cli_fail_client(&error, options->json);
	}
	status = options->json ? cli_print_json(answer) : print_output(answer);
	json_decref(answer);
	if (status)
		return status;
	return options->json ? cmd_result_status(&result) : tell_result(&result, options);
}

static int run_plain_form(const struct cmd_options *options)
{
	char *input = options->interactive ? malloc(RUN_STDIN_MAX + 1) : NULL;
	ssize_t length = 0;
	json_t *request;
	int status = CLI_FAILURE;

	if (options->interactive && !input)
		return fail_memory();
	if (input)
		length = read_input(input);
	if (length >= 0) {
		request = cmd_options_request(options, false, input, (size_t)length);
		status = request ? call(options, request) : fail_memory();
		json_decref(request);
	}
	free(input);
	return status;
}

int cmd_run(int argc, char **argv)
{
	struct cmd_options options;
	char error[CLI_TEXT_MAX];
	int r = cmd_options_parse(&options, argc, argv, error);

	if (r < 0) {
		r = cli_fail_usage(argv[0], error);
	} else if (options.help) {
		fputs(run_usage, stdout);
		r = cli_finish_output();
	} else {
		r = options.json || options.idempotency_key ? run_plain_form(&options)
							    : cmd_stream_form(&options);
	}
	cmd_options_finish(&options);
	return r;
}
