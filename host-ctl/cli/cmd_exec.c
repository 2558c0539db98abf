/* SPDX-License-Identifier: Apache-2.0 */
/* Commands in a sandbox, with our standard streams: exec and attach. */
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_command.h"
#include "host-ctl/cli/cmd_options.h"
#include "host-ctl/cli/cmd_result.h"
#include "host-ctl/cli/cmd_stream.h"
#include "host-ctl/cli/cmd_terminal.h"
#include "host-ctl/cli/verbs.h"

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
	"  -i, --stdin          pass standard input on (without it the command's is /dev/null)\n"
	"  -t, --tty            it has a terminal, of the size of ours; with -i for a shell\n"
	"  -d, --detach         print its id, and leave it running; not with -i\n"
	"  --user, --cwd, --env, --timeout, --memory, --pids, --socket\n"
	"                       as of `host-ctl run`\n"
	"\n"
	"Signals are passed on as by `host-ctl run`. When host-ctl leaves, what the command started is killed;\n"
	"the sandbox stays.\n"
	"\n"
	"exit status: as of `host-ctl run`; with -d 0 when it was told to start.\n";
const char attach_usage[] =
	"usage: host-ctl attach [OPTION...] SANDBOX COMMAND\n"
	"Follows a command that was left running, or one that has ended, as if it were ours. One that was only\n"
	"created, by another client of the API, it starts. Standard input is not passed on. When host-ctl\n"
	"leaves, the command goes on, unless it was started otherwise. It leaves at HUP, TERM and QUIT: when\n"
	"its terminal goes, and at Ctrl-\\. Other signals are passed on as by `host-ctl run`: INT (Ctrl-C) to\n"
	"the command, and a second one within 2 s ends all that it started.\n"
	"\n"
	"  --stdout-offset N    begin at that byte of its output (the oldest from which on nothing is missing;\n"
	"                       how many are before it is told on standard error)\n"
	"  --stderr-offset N    the same of its errors\n"
	CLI_USAGE_SOCKET
	"\n"
	"exit status: as of `host-ctl run`; 128 and the signal by which it left.\n";
/* clang-format on */

/* --- exec --- */

/* Runs the frames to their end. The exit status. */
static int follow(struct cmd_stream *stream, struct cmd_terminal *terminal, const struct cmd_options *options)
{
	struct client_error error;
	char text[CLI_TEXT_MAX];
	int r = cmd_stream_run(stream, &error);

	/* Before the signals are let through, and before a word: the daemon learns at once that we leave, and
	 * the terminal is as it was. */
	client_finish(stream->client);
	cmd_terminal_restore(terminal);
	cmd_stream_finish(stream);
	if (r == -EPIPE) {
		raise(SIGPIPE);
		return 128 + SIGPIPE;
	}
	if (r < 0) {
		cli_fail_client(&error, false);
		return r == -EINTR ? 128 + stream->left_by : CLI_FAILURE;
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
	return follow(&stream, &terminal, options);
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

/* One that could not be started: nobody will know of it. */
static void forget(const char *socket, const char *sandbox, const char *command)
{
	struct client_error ignored;
	json_t *answer = NULL;
	char path[CMD_COMMAND_PATH];

	if (cmd_command_path(path, sandbox, command, "") == 0)
		cli_ask(socket, "DELETE", path, NULL, &answer, &ignored);
	json_decref(answer);
}

/* Starts a created command, and leaves it. */
static int start_detached(const struct cmd_options *options, const json_t *created)
{
	const char *id = json_string_value(json_object_get(created, "id"));
	struct client client = {.fd = -1};
	struct client_error error;
	char path[CMD_COMMAND_PATH], clean[CLI_TEXT_MAX];
	json_t *body = json_pack("{s:O}", "token", json_object_get(created, "attach_token"));
	int r;

	if (!id || !body || cmd_command_path(path, options->sandbox, id, "/attach")) {
		json_decref(body);
		return cli_fail("the daemon broke the protocol: a command without an id and a token");
	}
	r = attach(&client, options->socket, path, body, &error);
	client_finish(&client);
	json_decref(body);
	/* Otherwise it may have started. */
	if (r == -EREMOTEIO)
		forget(options->socket, options->sandbox, id);
	if (r < 0)
		return cli_fail_client(&error, false);
	cli_clean_text(clean, sizeof clean, id);
	puts(clean);
	r = cli_finish_output();
	return r ? cli_fail("the command runs all the same: it is %s of %s", clean, options->sandbox) : 0;
}

static int run_detached(const struct cmd_options *options, const json_t *request)
{
	struct client_error error;
	char path[CMD_COMMAND_PATH];
	json_t *created;
	int r;

	if (cmd_command_path(path, options->sandbox, "", "/commands"))
		return CLI_FAILURE;
	r = cli_ask(options->socket, "POST", path, request, &created, &error);
	r = r < 0 ? cli_fail_client(&error, false) : start_detached(options, created);
	json_decref(created);
	return r;
}

static int exec(const struct cmd_options *options)
{
	json_t *request;
	char path[CMD_COMMAND_PATH];
	int r;

	if (options->terminal && options->interactive && !isatty(STDIN_FILENO))
		return cli_fail_usage(
			"exec", "standard input is not a terminal, which -it needs: leave out -t, or -i");
	request = make_request(options);
	r = cmd_command_path(path, options->sandbox, "", "/run");
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

/* --- attach --- */

enum { OPT_STDOUT_OFFSET = CMD_COMMAND_OWN, OPT_STDERR_OFFSET, OPT_COUNT };

static const struct cli_option attach_options[OPT_COUNT] = {
	CMD_COMMAND_OPTIONS,
	[OPT_STDOUT_OFFSET] = {.name = "stdout-offset", .has_value = true},
	[OPT_STDERR_OFFSET] = {.name = "stderr-offset", .has_value = true},
};

/* Of stdout and stderr, as in a cmd_stream. */
struct beginning {
	uint64_t at[2];
	bool late[2];
};

/* The offset that option gives, if it does. 0, or CLI_FAILURE (said). */
static int set_offset(
	const struct cmd_command_operands *operands, int option, json_t *body, struct beginning *beginning)
{
	static const char *const fields[] = {"stdout_offset", "stderr_offset"};
	const char *text = operands->values[option];
	int i = option - OPT_STDOUT_OFFSET;
	char error[CLI_TEXT_MAX];

	beginning->late[i] = !text;
	if (!text)
		return 0;
	if (parse_u64(text, 0, INT64_MAX, &beginning->at[i]) < 0) {
		snprintf(error, sizeof error, "--%s wants a number of bytes, not '%s'",
			attach_options[option].name, text);
		return cli_fail_usage("attach", error);
	}
	return json_object_set_new(body, fields[i], json_integer((json_int_t)beginning->at[i]))
		       ? cli_fail("out of memory")
		       : 0;
}

/* Asks for a token, which the body takes. 0, or CLI_FAILURE (said). */
static int set_token(const struct cmd_command_operands *operands, json_t *body)
{
	struct client_error error;
	json_t *token = NULL;
	char path[CMD_COMMAND_PATH];
	int r;

	if (cmd_command_path(path, operands->sandbox, operands->command, "/token"))
		return CLI_FAILURE;
	r = cli_ask(operands->values[CMD_COMMAND_SOCKET], "POST", path, NULL, &token, &error);
	if (r == 0 && json_object_set(body, "token", json_object_get(token, "attach_token"))) {
		client_error_set(&error, "protocol", "the daemon broke the protocol: no token");
		r = -EPROTO;
	}
	json_decref(token);
	return r < 0 ? cli_fail_client(&error, false) : 0;
}

/* The command is not ours: what ends us, or takes our terminal, does not end it. Of the keyboard that is
 * Ctrl-\. */
static void set_leaving(struct cmd_stream *stream)
{
	static const int signals[] = {SIGTERM, SIGHUP, SIGQUIT};

	for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++)
		sigaddset(&stream->leaving, signals[i]);
	stream->interrupted = "left; the command goes on, or not, as it was started";
}

/* What the daemon knows of the command: for words about its end. NULL: it does not tell. */
static json_t *ask_info(const struct cmd_command_operands *operands)
{
	struct client_error ignored;
	json_t *info = NULL;
	char path[CMD_COMMAND_PATH];

	if (cmd_command_path(path, operands->sandbox, operands->command, "") == 0)
		cli_ask(operands->values[CMD_COMMAND_SOCKET], "GET", path, NULL, &info, &ignored);
	return info;
}

/* name: what the command is called in words about its end. */
static int attach_stream(const struct cmd_command_operands *operands, const char *name, json_t *body,
	const struct beginning *beginning)
{
	char *argv[] = {(char *)name, NULL};
	const struct cmd_options options = {.argv = argv};
	struct cmd_terminal terminal = {.fd = -1};
	struct client client = {.fd = -1};
	struct client_error error;
	struct cmd_stream stream;
	char path[CMD_COMMAND_PATH];
	int r;

	if (cmd_command_path(path, operands->sandbox, operands->command, "/attach"))
		return CLI_FAILURE;
	r = attach(&client, operands->values[CMD_COMMAND_SOCKET], path, body, &error);
	if (r < 0) {
		client_finish(&client);
		return cli_fail_client(&error, false);
	}
	r = cmd_stream_init(&stream, &client, -1, STDOUT_FILENO, STDERR_FILENO);
	memcpy(stream.received, beginning->at, sizeof stream.received);
	memcpy(stream.late, beginning->late, sizeof stream.late);
	set_leaving(&stream);
	return r < 0 ? fail_prepare(r) : follow(&stream, &terminal, &options);
}

int cmd_attach(int argc, char **argv)
{
	struct beginning beginning = {.at = {0, 0}};
	struct cmd_command_operands operands;
	const char *program;
	json_t *body, *info;
	int r = cmd_command_parse(&operands, attach_options, OPT_COUNT, argc, argv);

	if (r == 1) {
		fputs(attach_usage, stdout);
		return cli_finish_output();
	}
	if (r)
		return r;
	body = json_object();
	if (set_offset(&operands, OPT_STDOUT_OFFSET, body, &beginning) ||
		set_offset(&operands, OPT_STDERR_OFFSET, body, &beginning) || set_token(&operands, body)) {
		json_decref(body);
		return CLI_FAILURE;
	}
	info = ask_info(&operands);
	program = json_string_value(json_object_get(info, "argv0"));
	r = attach_stream(&operands, program ? program : operands.command, body, &beginning);
	json_decref(info);
	json_decref(body);
	return r;
}
