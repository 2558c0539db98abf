/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/cli.h"
#include "host-ctl/verbs.h"
#include <string.h>

const char pool_usage[] =
	"usage: host-ctl pool [--json] [--socket PATH]\n"
	"Shows the daemon's pool of warm VMs.\n"
	"\n"
	"  --json         the answer of GET /v1/pool as it is\n"
	"  --socket PATH  the daemon's socket ($TINDERBOX_SOCKET, " CLIENT_SOCKET_DEFAULT ")\n";

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name)
{
	const char *value = json_string_value(json_object_get(object, name));

	return value ? value : "-";
}

static void print_summary(const json_t *pool, const struct cli_colours *colours)
{
	long long target = number(pool, "target"), warm = number(pool, "warm");
	const char *failure = json_string_value(json_object_get(pool, "last_failure"));
	char clean[CLI_TEXT_MAX];

	printf("warm    %s%lld%s of %lld   starting %lld   busy %lld   queued %lld of %lld\n",
		warm >= target ? colours->good : colours->warn, warm, colours->reset, target,
		number(pool, "starting"), number(pool, "busy"), number(pool, "queued"),
		number(pool, "queue_max"));
	printf("claims  %lld warm   %lld waited\n", number(pool, "claims_warm"),
		number(pool, "claims_waited"));
	printf("lost    %lld starts failed   %lld warm VMs died\n", number(pool, "starts_failed"),
		number(pool, "warm_lost"));
	if (failure) {
		cli_clean_text(clean, sizeof(clean), failure);
		printf("last failure: %s%s%s\n", colours->bad, clean, colours->reset);
	}
}

/* Milliseconds as people read them: 950 ms, 12.3 s, 5 min, 3 h. */
static void format_ms(char *to, size_t size, long long ms)
{
	enum { SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE };

	if (ms < SECOND)
		snprintf(to, size, "%lld ms", ms);
	else if (ms < 2 * MINUTE)
		snprintf(to, size, "%.1f s", (double)ms / SECOND);
	else if (ms < 2 * HOUR)
		snprintf(to, size, "%lld min", ms / MINUTE);
	else
		snprintf(to, size, "%lld h", ms / HOUR);
}

static void print_vms(const json_t *vms, const struct cli_colours *colours)
{
	char age[32], boot[32], id[64], state[32];
	const json_t *vm;
	size_t i;

	if (json_array_size(vms) == 0)
		return;
	printf("\n%s%-18s %-9s %8s %9s %9s%s\n", colours->bold, "VM", "STATE", "PID", "AGE", "BOOT",
		colours->reset);
	json_array_foreach(vms, i, vm)
	{
		format_ms(age, sizeof(age), number(vm, "age_ms"));
		format_ms(boot, sizeof(boot), number(vm, "boot_ms"));
		cli_clean_text(id, sizeof(id), text(vm, "id"));
		cli_clean_text(state, sizeof(state), text(vm, "state"));
		printf("%-18s %-9s %8lld %9s %9s\n", id, state, number(vm, "pid"), age,
			json_is_integer(json_object_get(vm, "boot_ms")) && number(vm, "boot_ms") > 0 ? boot
												     : "-");
	}
}

static int print_pool(const json_t *pool, bool json)
{
	struct cli_colours colours = cli_colours_for(stdout);

	if (json)
		return cli_print_json(pool);
	print_summary(pool, &colours);
	print_vms(json_object_get(pool, "vms"), &colours);
	return cli_finish_output();
}

int cmd_pool(int argc, char **argv)
{
	struct cli_query query;
	struct client_error error;
	struct client client;
	json_t *pool = NULL;
	int r = cli_query_parse(&query, argc, argv);

	if (r == 1) {
		fputs(pool_usage, stdout);
		return cli_finish_output();
	}
	if (r != 0)
		return r;
	r = client_connect(&client, query.socket, CLIENT_QUERY_TIMEOUT_MS, &error);
	if (r < 0)
		return cli_fail_client(&error, query.json);
	r = client_call(&client, "GET", "/v1/pool", NULL, NULL, &pool, &error);
	client_finish(&client);
	r = r < 0 ? cli_fail_client(&error, query.json) : print_pool(pool, query.json);
	json_decref(pool);
	return r;
}
