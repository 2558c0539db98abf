/* SPDX-License-Identifier: Apache-2.0 */
#include "common/version.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include <errno.h>

/* clang-format off */
const char version_usage[] =
	"usage: host-ctl version [OPTION...]\n"
	"Prints the version of this program and of the daemon, if one runs.\n"
	"\n"
	"  --json               as a JSON object; \"daemon\" is null when none runs\n"
	CLI_USAGE_SOCKET
	"\n"
	"exit status: 0 done, also without a daemon; 125 one runs and cannot be asked.\n";
/* clang-format on */

/* A degraded daemon has a version too: every HTTP status will do. */
static int ask_daemon(const char *socket, json_t **answer, struct client_error *error)
{
	struct client client;
	int status, r = client_connect(&client, socket, CLIENT_QUERY_TIMEOUT_MS, error);

	if (r < 0)
		return r;
	r = client_call(&client, "GET", "/v1/healthz", NULL, &status, answer, error);
	client_finish(&client);
	return r;
}

static int print_version(const struct cli_query *query, const char *daemon)
{
	json_t *object;
	int r;

	if (query->json) {
		object = json_pack("{s:s, s:s?}", "client", TINDERBOX_VERSION, "daemon", daemon);
		r = cli_print_json(object);
		json_decref(object);
		return r;
	}
	printf("host-ctl  " TINDERBOX_VERSION "\n");
	if (daemon)
		printf("daemon    %s\n", daemon);
	else
		printf("daemon    none at %s\n", query->socket);
	return cli_finish_output();
}

int cmd_version(int argc, char **argv)
{
	struct cli_query query;
	struct client_error error;
	json_t *answer = NULL;
	const char *daemon;
	int r = cli_query_parse(&query, argc, argv);

	if (r == 1) {
		fputs(version_usage, stdout);
		return cli_finish_output();
	}
	if (r != 0)
		return r;
	r = ask_daemon(query.socket, &answer, &error);
	if (r < 0 && r != -ENOENT)
		return cli_fail_client(&error, query.json);
	daemon = json_string_value(json_object_get(answer, "version"));
	r = print_version(&query, r == 0 && !daemon ? "unknown" : daemon);
	json_decref(answer);
	return r;
}
