/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl ls`: the sandboxes, or those that fit. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"

#include <string.h>
#include <time.h>

/* clang-format off */
const char ls_usage[] =
	"usage: host-ctl ls [OPTION...]\n"
	"Lists the sandboxes: all but those that are gone, or those that fit what is asked for.\n"
	"\n"
	"  --state STATE        such as ready, paused, suspended, stopped, failed or gone\n"
	"  --template NAME      clones of it\n"
	"  --metadata KEY=VALUE with that; may be repeated\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

static const char *colour_of(const char *state, const struct cli_colours *colours)
{
	if (!strcmp(state, "ready"))
		return colours->good;
	return strcmp(state, "failed") ? colours->dim : colours->bad;
}

static void print_sandbox(const json_t *sandbox, const struct cli_colours *colours)
{
	const long long now = (long long)time(NULL) * 1000;
	const long long expires = json_integer_value(json_object_get(sandbox, "expires_ms"));
	char age[CLI_TIME_MAX], left[CLI_TIME_MAX] = "-", id[64], name[80], state[32], template[80],
				reason[CLI_TEXT_MAX];

	cli_format_span(now - json_integer_value(json_object_get(sandbox, "created_ms")), age);
	if (expires)
		cli_format_span(expires - now, left);
	cli_clean_text(id, sizeof id, cli_text(sandbox, "id"));
	cli_clean_text(name, sizeof name, cli_text(sandbox, "name"));
	cli_clean_text(state, sizeof state, cli_text(sandbox, "state"));
	cli_clean_text(template, sizeof template, cli_text(sandbox, "template"));
	cli_clean_text(reason, sizeof reason, cli_text(sandbox, "reason"));
	printf("%-20s %-16s %s%-10s%s %-14s %5s %5s  %s\n", id, name, colour_of(state, colours), state,
		colours->reset, template, age, left, reason);
}

static int print_list(const json_t *answer)
{
	const struct cli_colours colours = cli_colours_for(stdout);
	const json_t *sandbox;
	size_t i;

	printf("%s%-20s %-16s %-10s %-14s %5s %5s  %s%s\n", colours.bold, "SANDBOX", "NAME", "STATE",
		"TEMPLATE", "AGE", "LEFT", "REASON", colours.reset);
	json_array_foreach(json_object_get(answer, "sandboxes"), i, sandbox)
	{
		print_sandbox(sandbox, &colours);
	}
	return cli_finish_output();
}

enum { OPT_STATE, OPT_TEMPLATE, OPT_METADATA, OPT_JSON, OPT_SOCKET, OPT_HELP, OPT_COUNT };

static const struct cli_option ls_options[OPT_COUNT] = {
	[OPT_STATE] = {.name = "state", .has_value = true, .not_empty = true},
	[OPT_TEMPLATE] = {.name = "template", .has_value = true, .not_empty = true},
	[OPT_METADATA] = {.name = "metadata", .has_value = true, .repeats = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

struct listing {
	const char *socket;
	bool json, help;
	char path[CLIENT_PATH_MAX];
	char error[CLI_TEXT_MAX];
};

/* prefix and name make the parameter's name. */
static int add_filter(
	struct listing *listing, const char *prefix, const char *name, size_t length, const char *value)
{
	char *path = listing->path;
	size_t size = sizeof listing->path, have = strlen(path);

	snprintf(path + have, size - have, "%c%s", strchr(path, '?') ? '&' : '?', prefix);
	cli_append_escaped(path, size, name, length);
	have = strlen(path);
	snprintf(path + have, size - have, "=");
	cli_append_escaped(path, size, value, strlen(value));
	if (strlen(path) + 4 <= size)
		return 0;
	snprintf(listing->error, sizeof listing->error, "that is too much to be asked for");
	return -1;
}

static int add_metadata(struct listing *listing, const char *pair)
{
	const char *equals = strchr(pair, '=');

	if (equals && equals != pair)
		return add_filter(listing, "metadata.", pair, (size_t)(equals - pair), equals + 1);
	snprintf(listing->error, sizeof listing->error, "--metadata wants NAME=VALUE, not '%s'", pair);
	return -1;
}

static int set_listing(struct listing *listing, int option, const char *value)
{
	switch (option) {
	case OPT_STATE:
		return add_filter(listing, "state", "", 0, value);
	case OPT_TEMPLATE:
		return add_filter(listing, "template", "", 0, value);
	case OPT_METADATA:
		return add_metadata(listing, value);
	case OPT_SOCKET:
		listing->socket = value;
		return 0;
	case OPT_JSON:
		listing->json = true;
		return 0;
	default:
		listing->help = true;
		return 0;
	}
}

static int parse_ls(struct listing *listing, int argc, char **argv)
{
	struct cli_parser parser;
	const char *value;
	int option;

	*listing = (struct listing){.path = "/v1/sandboxes"};
	cli_parser_init(&parser, ls_options, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		if (set_listing(listing, option, value))
			return -1;
	if (option == CLI_BAD)
		snprintf(listing->error, sizeof listing->error, "%s", parser.error);
	else if (parser.next < argc)
		snprintf(listing->error, sizeof listing->error, CLI_UNEXPECTED, argv[parser.next]);
	return listing->error[0] ? -1 : 0;
}

int cmd_ls(int argc, char **argv)
{
	struct listing listing;
	struct client_error error;
	json_t *answer;
	int status;

	if (parse_ls(&listing, argc, argv) < 0)
		return cli_fail_usage(argv[0], listing.error);
	if (listing.help) {
		fputs(ls_usage, stdout);
		return cli_finish_output();
	}
	if (cli_ask(listing.socket, "GET", listing.path, NULL, &answer, &error) < 0)
		return cli_fail_client(&error, listing.json);
	status = listing.json ? cli_print_json(answer) : print_list(answer);
	json_decref(answer);
	return status;
}
