/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in a sandbox, with our standard streams: exec and attach; and what they wrote: logs. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_options.h"
#include "host-ctl/cli/cmd_result.h"
#include "host-ctl/cli/cmd_stream.h"
#include "host-ctl/cli/cmd_terminal.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/support/text.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
const char exec_usage[] =
	"usage: host-ctl exec [OPTION...] SANDBOX [--] CMD ARG...\n"
	"Runs CMD in a sandbox, which it wakes. Its output, unchanged, is ours; so is its exit status.\n"
	"\n"
	"  -i, --stdin        pass standard input on (without it the command's is /dev/null)\n"
	"  -t, --tty          it has a terminal, of the size of ours; with -i for a shell\n"
	"  -d, --detach       print its id, and leave it running\n"
	"  --user, --cwd, --env, --timeout, --memory, --pids, --socket: as of `host-ctl run`\n"
	"\n"
	"Signals are passed on as by `host-ctl run`. When host-ctl leaves, what the command started is killed;\n"
	"the sandbox stays. exit status: as of `host-ctl run`.\n";
const char attach_usage[] =
	"usage: host-ctl attach SANDBOX COMMAND [--socket PATH]\n"
	"Follows a command that was left running, from the oldest output that is held in one piece. Standard\n"
	"input is not passed on. When host-ctl leaves, the command goes on, unless it was started otherwise.\n"
	"exit status: the command's.\n";
const char logs_usage[] =
	"usage: host-ctl logs [-f] [--stderr] [--socket PATH] SANDBOX COMMAND\n"
	"Prints what a command wrote, whether it runs or not: its first and last 512 KiB of standard output, or\n"
	"error. With -f, --follow: until it has ended. exit status: 0, whatever the command's.\n";
/* clang-format on */

enum { PATH_SIZE = 256 };

/* /v1/sandboxes/SANDBOX and what comes after it. 0, or CLI_FAILURE (said). */
static int make_path(char path[PATH_SIZE], const char *sandbox, const char *command, const char *rest)
{
	if (!cli_is_name(sandbox) || (command[0] && !cli_is_name(command)))
		return cli_fail("%s %s: that is no id or name", sandbox, command);
	snprintf(path, PATH_SIZE, "/v1/sandboxes/%s%s%s%s", sandbox, command[0] ? "/commands/" : "", command,
		rest);
	return 0;
}

static int call(const char *socket, const char *method, const char *path, const json_t *body, json_t **answer,
	struct client_error *error)
{
	struct client client = {.fd = -1};
	int r = client_connect(&client, cli_socket_path(socket), -1, error);

	*answer = NULL;
	if (r == 0)
		r = client_call(&client, method, path, body, NULL, answer, error);
	client_finish(&client);
	return r;
}

/* --- exec --- */

/* Runs the frames to their end. The exit status. */
static int follow(struct cmd_stream *stream, const struct cmd_options *options)
{
	struct client_error error;
	char text[CLI_TEXT_MAX];
	int r = cmd_stream_run(stream, &error);

	/* Before the signals are let through: the daemon learns at once that we leave. */
	client_finish(stream->client);
	cmd_stream_finish(stream);
	if (r == -EPIPE) {
		raise(SIGPIPE);
		return 128 + SIGPIPE;
	}
	if (r < 0) {
		cli_fail_client(&error, false);
		return r == -EINTR ? 128 + SIGINT : CLI_FAILURE;
	}
	cmd_result_describe(&stream->result, options, text, sizeof text);
	if (text[0])
		cli_fail("%s", text);
	return cmd_result_status(&stream->result);
}

static int fail_prepare(int r)
{
	return cli_fail("cannot prepare the command: %s", strerror(-r));
}

static int run_stream(struct client *client, const struct cmd_options *options)
{
	struct cmd_terminal terminal = {.fd = -1};
	struct cmd_stream stream;
	int r = cmd_stream_init(
		&stream, client, options->interactive ? STDIN_FILENO : -1, STDOUT_FILENO, STDERR_FILENO);

	stream.interrupted = "interrupted; what the command started is killed";
	if (r == 0 && options->terminal)
		r = cmd_stream_watch_terminal(&stream, STDIN_FILENO);
	if (r == 0 && options->terminal && options->interactive)
		r = cmd_terminal_make_raw(&terminal, STDIN_FILENO);
	if (r < 0) {
		cmd_stream_finish(&stream);
		return fail_prepare(r);
	}
	r = follow(&stream, options);
	cmd_terminal_restore(&terminal);
	return r;
}

static json_t *make_request(const struct cmd_options *options)
{
	json_t *request = cmd_options_request(options, options->interactive, NULL, 0);
	struct agent_resize size;

	if (!request || !options->terminal)
		return request;
	cmd_terminal_size(STDIN_FILENO, &size);
	if (json_object_set_new(request, "tty",
		    json_pack("{s:i,s:i}", "rows", (int)size.rows, "cols", (int)size.cols)) == 0)
		return request;
	json_decref(request);
	return NULL;
}

static int run(const struct cmd_options *options, const char *path, const json_t *request)
{
	struct client client = {.fd = -1};
	struct client_error error;
	int r = client_connect(&client, cli_socket_path(options->socket), -1, &error);

	if (r == 0)
		r = client_upgrade(&client, path, request, &error);
	r = r < 0 ? cli_fail_client(&error, false) : run_stream(&client, options);
	client_finish(&client);
	return r;
}

/* Upgrades with a token: 0, or -errno with *error set. */
static int attach(
	struct client *client, const char *socket, const char *path, json_t *body, struct client_error *error)
{
	int r = client_connect(client, cli_socket_path(socket), -1, error);

	if (r == 0)
		r = client_upgrade(client, path, body, error);
	return r;
}

/* Starts a created command, and leaves it. */
static int start_detached(const struct cmd_options *options, const json_t *created)
{
	const char *id = json_string_value(json_object_get(created, "id"));
	struct client client = {.fd = -1};
	struct client_error error;
	char path[PATH_SIZE], clean[CLI_TEXT_MAX];
	json_t *body = json_pack("{s:O}", "token", json_object_get(created, "attach_token"));
	int r;

	if (!id || !body || make_path(path, options->sandbox, id, "/attach")) {
		json_decref(body);
		return cli_fail("the daemon broke the protocol: a command without an id and a token");
	}
	r = attach(&client, options->socket, path, body, &error);
	client_finish(&client);
	json_decref(body);
	if (r < 0)
		return cli_fail_client(&error, false);
	cli_clean_text(clean, sizeof clean, id);
	puts(clean);
	return cli_finish_output();
}

static int run_detached(const struct cmd_options *options, const json_t *request)
{
	struct client_error error;
	char path[PATH_SIZE];
	json_t *created;
	int r;

	if (make_path(path, options->sandbox, "", "/commands"))
		return CLI_FAILURE;
	r = call(options->socket, "POST", path, request, &created, &error);
	r = r < 0 ? cli_fail_client(&error, false) : start_detached(options, created);
	json_decref(created);
	return r;
}

static int exec(const struct cmd_options *options)
{
	json_t *request = make_request(options);
	char path[PATH_SIZE];
	int r = make_path(path, options->sandbox, "", "/run");

	if (!request)
		r = cli_fail("out of memory");
	else if (r == 0)
		r = options->detach ? run_detached(options, request) : run(options, path, request);
	json_decref(request);
	return r;
}

int cmd_exec(int argc, char **argv)
{
	struct cmd_options options;
	char error[CLI_TEXT_MAX];
	int r = cmd_options_parse_exec(&options, argc, argv, error);

	if (r < 0) {
		r = cli_fail_usage(argv[0], error);
	} else if (options.help) {
		fputs(exec_usage, stdout);
		r = cli_finish_output();
	} else {
		r = exec(&options);
	}
	cmd_options_finish(&options);
	return r;
}

/* --- attach and logs: SANDBOX COMMAND --- */

struct operands {
	const char *sandbox, *command, *socket;
	bool is_stderr, follow;
};

/* 0; 1 when --help was given; or CLI_FAILURE (said). */
static int parse_operands(struct operands *operands, bool logs, int argc, char **argv)
{
	enum { SOCKET, HELP, STDERR, FOLLOW };
	static const struct cli_option options[] = {[SOCKET] = {.name = "socket", .has_value = true},
		[HELP] = {.name = "help", .letter = 'h'},
		[STDERR] = {.name = "stderr"},
		[FOLLOW] = {.name = "follow", .letter = 'f'}};
	struct cli_parser parser;
	const char *value, *words[2] = {NULL, NULL};
	int count = 0;

	*operands = (struct operands){.socket = NULL};
	cli_parser_init(&parser, options, logs ? FOLLOW + 1 : STDERR, argc, argv);
	while (parser.next < argc) {
		int option = cli_parser_next(&parser, &value);

		if (option == CLI_BAD) {
			cli_fail_usage(argv[0], parser.error);
			return CLI_FAILURE;
		}
		if (option == SOCKET)
			operands->socket = value;
		if (option == CLI_END && parser.next < argc && count++ < 2)
			words[count - 1] = argv[parser.next++];
		if (count > 2)
			break;
	}
	operands->is_stderr = logs && cli_parser_given(&parser, STDERR);
	operands->follow = logs && cli_parser_given(&parser, FOLLOW);
	if (cli_parser_given(&parser, HELP))
		return 1;
	operands->sandbox = words[0];
	operands->command = words[1];
	if (words[0] && words[1] && count == 2)
		return 0;
	cli_fail_usage(argv[0], "a sandbox and a command in it are expected");
	return CLI_FAILURE;
}

static uint64_t oldest(const json_t *command, const char *stream)
{
	return (uint64_t)json_integer_value(json_object_get(json_object_get(command, stream), "oldest"));
}

/* A token and the offsets to go on from. NULL after a failure (said). */
static json_t *make_attachment(const struct operands *operands, uint64_t from[2])
{
	json_t *command = NULL, *token = NULL, *body = NULL;
	struct client_error error;
	char path[PATH_SIZE];
	int r = make_path(path, operands->sandbox, operands->command, "");

	if (r)
		return NULL;
	r = call(operands->socket, "GET", path, NULL, &command, &error);
	if (r == 0 && make_path(path, operands->sandbox, operands->command, "/token") == 0)
		r = call(operands->socket, "POST", path, NULL, &token, &error);
	if (r == 0) {
		from[0] = oldest(command, "stdout");
		from[1] = oldest(command, "stderr");
		body = json_pack("{s:O,s:I,s:I}", "token", json_object_get(token, "attach_token"),
			"stdout_offset", (json_int_t)from[0], "stderr_offset", (json_int_t)from[1]);
	} else {
		cli_fail_client(&error, false);
	}
	json_decref(command);
	json_decref(token);
	return body;
}

int cmd_attach(int argc, char **argv)
{
	char *name[] = {NULL};
	struct cmd_options options = {.argv = name};
	struct client client = {.fd = -1};
	struct operands operands;
	struct client_error error;
	struct cmd_stream stream;
	char path[PATH_SIZE];
	uint64_t from[2];
	json_t *body;
	int r = parse_operands(&operands, false, argc, argv);

	if (r == 1) {
		fputs(attach_usage, stdout);
		return cli_finish_output();
	}
	if (r || !(body = make_attachment(&operands, from)) ||
		make_path(path, operands.sandbox, operands.command, "/attach"))
		return CLI_FAILURE;
	name[0] = (char *)operands.command;
	r = attach(&client, operands.socket, path, body, &error);
	json_decref(body);
	if (r < 0) {
		client_finish(&client);
		return cli_fail_client(&error, false);
	}
	r = cmd_stream_init(&stream, &client, -1, STDOUT_FILENO, STDERR_FILENO);
	memcpy(stream.received, from, sizeof from);
	stream.interrupted = "interrupted; the command goes on, or not, as it was started";
	return r < 0 ? fail_prepare(r) : follow(&stream, &options);
}

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

/* One answer's worth from an offset on, which moves. 1: there is more to come; 0; or -errno with *error set.
 */
static int print_some(const struct operands *operands, json_int_t *at, struct client_error *error)
{
	char path[PATH_SIZE], rest[96];
	json_t *answer;
	bool more;
	int r;

	snprintf(rest, sizeof rest, "/output?stream=%s&offset=%lld%s",
		operands->is_stderr ? "stderr" : "stdout", (long long)*at,
		operands->follow ? "&wait=true" : "");
	if (make_path(path, operands->sandbox, operands->command, rest))
		return -EINVAL;
	r = call(operands->socket, "GET", path, NULL, &answer, error);
	if (r < 0)
		return r;
	print_output(answer);
	*at = json_integer_value(json_object_get(answer, "next_offset"));
	more = *at < json_integer_value(json_object_get(answer, "bytes")) ||
	       (operands->follow && !json_is_true(json_object_get(answer, "ended")));
	json_decref(answer);
	fflush(stdout);
	return more;
}

/* Where what is held goes on after a gap. 1, or -errno with *error set; 0: there is none. */
static int skip_gap(const struct operands *operands, json_int_t *at, struct client_error *error)
{
	char path[PATH_SIZE];
	json_t *command;
	json_int_t start;
	int r;

	if (make_path(path, operands->sandbox, operands->command, ""))
		return -EINVAL;
	r = call(operands->socket, "GET", path, NULL, &command, error);
	start = (json_int_t)oldest(command, operands->is_stderr ? "stderr" : "stdout");
	json_decref(command);
	if (r < 0 || start <= *at)
		return r;
	cli_fail("the middle was dropped: what follows is from byte %lld on", (long long)start);
	*at = start;
	return 1;
}

int cmd_logs(int argc, char **argv)
{
	struct operands operands;
	char path[PATH_SIZE];
	struct client_error error, gap;
	json_int_t at = 0;
	int r = parse_operands(&operands, true, argc, argv);

	if (r == 1) {
		fputs(logs_usage, stdout);
		return cli_finish_output();
	}
	if (r || make_path(path, operands.sandbox, operands.command, ""))
		return CLI_FAILURE;
	do {
		r = print_some(&operands, &at, &error);
		if (r == -EREMOTEIO && !strcmp(error.code, "conflict") && skip_gap(&operands, &at, &gap) == 1)
			r = 1;
	} while (r == 1);
	return r < 0 ? cli_fail_client(&error, false) : cli_finish_output();
}
