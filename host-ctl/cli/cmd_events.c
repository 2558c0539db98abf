/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl events`: what happens to sandboxes and commands, and what is made of them, a line each, until we
 * are ended. */
#include "common/frame.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* clang-format off */
const char events_usage[] =
	"usage: host-ctl events [OPTION...]\n"
	"Prints what happens to sandboxes and their commands from now on, a line each, until it is ended.\n"
	"\n"
	"  --sandbox SANDBOX    only of that one\n"
	"  --json               each as a JSON object\n"
	CLI_USAGE_SOCKET
	"\n"
	"exit status: 125 when the events end, the cause on standard error.\n";
/* clang-format on */

static const char *text(const json_t *event, const char *name)
{
	const char *value = json_string_value(json_object_get(event, name));

	return value ? value : "";
}

static int print_event(const json_t *event)
{
	time_t seconds = (time_t)(json_integer_value(json_object_get(event, "time_ms")) / 1000);
	char line[CLI_TEXT_MAX], clean[CLI_TEXT_MAX], at[16] = "";
	struct tm parts;

	if (!strcmp(text(event, "event"), "lost")) {
		printf("%lld events were lost: this reader was too slow\n",
			(long long)json_integer_value(json_object_get(event, "count")));
		return cli_finish_output();
	}
	if (localtime_r(&seconds, &parts))
		strftime(at, sizeof at, "%H:%M:%S", &parts);
	/* One has a command, or a template, or neither. */
	snprintf(line, sizeof line, "%s %s %s%s %s %s%s", at, text(event, "sandbox"), text(event, "command"),
		text(event, "template"), text(event, "state"), text(event, "result"), text(event, "reason"));
	cli_clean_text(clean, sizeof clean, line);
	puts(clean);
	return cli_finish_output();
}

/* One frame: 0, or CLI_FAILURE (said). */
static int take_frame(const struct frame *frame, bool json)
{
	json_t *object = json_loadb((const char *)frame->payload, frame->length, 0, NULL);
	struct client_error error;
	int status;

	if (object && frame->type == AGENT_HOST_EVENT)
		status = json ? cli_print_json(object) : print_event(object);
	else if (object && client_error_parse(&error, object) == 0)
		status = cli_fail_client(&error, json);
	else
		status = cli_fail("the daemon broke the protocol: a frame that is no event");
	json_decref(object);
	return status;
}

static int follow(struct client *client, bool json)
{
	struct frame_reader reader;
	struct frame frame;
	int status = frame_reader_init(&reader, AGENT_FRAME_MAX), failed = 0;

	if (status == 0)
		status = frame_reader_feed(
			&reader, client->buffer + client->start, client->end - client->start);
	while (status >= 0 && !failed) {
		status = frame_reader_next(&reader, &frame);
		if (status > 0)
			failed = take_frame(&frame, json);
		else if (status == 0 && frame_reader_fill(&reader, client->fd) <= 0)
			status = -1;
	}
	frame_reader_finish(&reader);
	return failed ? failed : cli_fail("the daemon closed the stream of events");
}

enum { OPT_SANDBOX, OPT_JSON, OPT_SOCKET, OPT_HELP, OPT_COUNT };

static const struct cli_option options[OPT_COUNT] = {
	[OPT_SANDBOX] = {.name = "sandbox", .has_value = true, .not_empty = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

static int run(const char *const values[OPT_COUNT], bool json)
{
	char path[32 + CLI_NAME_MAX] = "/v1/events";
	struct client client = {.fd = -1};
	struct client_error error;
	int r;

	if (values[OPT_SANDBOX] && !cli_is_name(values[OPT_SANDBOX]))
		return cli_fail("%s: that is no sandbox's id or name", values[OPT_SANDBOX]);
	if (values[OPT_SANDBOX])
		snprintf(path, sizeof path, "/v1/events?sandbox=%s", values[OPT_SANDBOX]);
	r = client_connect(&client, cli_socket_path(values[OPT_SOCKET]), -1, &error);
	if (r == 0)
		r = client_upgrade(&client, path, NULL, &error);
	r = r < 0 ? cli_fail_client(&error, json) : follow(&client, json);
	client_finish(&client);
	return r;
}

int cmd_events(int argc, char **argv)
{
	const char *values[OPT_COUNT] = {NULL}, *value;
	struct cli_parser parser;
	int option;

	cli_parser_init(&parser, options, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		values[option] = value;
	if (option == CLI_BAD)
		return cli_fail_usage(argv[0], parser.error);
	if (cli_parser_given(&parser, OPT_HELP)) {
		fputs(events_usage, stdout);
		return cli_finish_output();
	}
	if (parser.next < argc)
		return cli_fail_unexpected(argv[0], argv[parser.next]);
	return run(values, cli_parser_given(&parser, OPT_JSON));
}
