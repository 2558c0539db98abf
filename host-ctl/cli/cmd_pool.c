/* SPDX-License-Identifier: Apache-2.0 */
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/pool/pool.h"
#include <string.h>

/* clang-format off */
const char pool_usage[] =
	"usage: host-ctl pool [OPTION...]\n"
	"Shows the daemon's pool of warm VMs, or changes how many it keeps.\n"
	"\n"
	"  --template NAME      the pool of clones of that template (base)\n"
	"  --target N           from now on keep N warm, 0 to 256\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { OPT_TEMPLATE, OPT_TARGET, OPT_JSON, OPT_SOCKET, OPT_HELP, OPT_COUNT };

static const struct cli_option option_table[OPT_COUNT] = {
	[OPT_TEMPLATE] = {.name = "template", .has_value = true},
	[OPT_TARGET] = {.name = "target", .has_value = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

struct query {
	const char *template, *socket; /* NULL: not given */
	uint64_t target;
	bool has_target, json, help;
};

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* Microseconds: 45 us, 950 us, 12.3 ms, 2.0 s. */
static void format_us(char *to, size_t size, long long us)
{
	enum { MILLISECOND = 1000, SECOND = 1000 * MILLISECOND };

	if (us < MILLISECOND)
		snprintf(to, size, "%lld us", us);
	else if (us < SECOND)
		snprintf(to, size, "%.1f ms", (double)us / MILLISECOND);
	else
		snprintf(to, size, "%.1f s", (double)us / SECOND);
}

/* One line for each of the histograms that has counted anything. */
static void print_times(const json_t *times)
{
	static const struct {
		const char *field, *shown;
	} lines[] = {{"claim", "request to VM"}, {"first_byte", "request to output"},
		{"refill_clone", "clone to warm"}, {"refill_boot", "boot to warm"}};
	char half[32], most[32];

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		const json_t *line = json_object_get(times, lines[i].field);

		if (number(line, "count") <= 0)
			continue;
		format_us(half, sizeof(half), number(line, "p50_us"));
		format_us(most, sizeof(most), number(line, "p99_us"));
		printf("%-18s p50 %-9s p99 %-9s of %lld\n", lines[i].shown, half, most,
			number(line, "count"));
	}
}

static void print_summary(const json_t *pool, const struct cli_colours *colours)
{
	long long target = number(pool, "target"), warm = number(pool, "warm");
	const char *failure = json_string_value(json_object_get(pool, "last_failure"));
	const char *held = json_string_value(json_object_get(pool, "held"));
	char clean[CLI_TEXT_MAX];

	printf("warm    %s%lld%s of %lld   starting %lld   busy %lld   queued %lld of %lld\n",
		warm >= target ? colours->good : colours->warn, warm, colours->reset, target,
		number(pool, "starting"), number(pool, "busy"), number(pool, "queued"),
		number(pool, "queue_max"));
	printf("claims  %lld hits   %lld misses, %lld of them served\n", number(pool, "claims_warm"),
		number(pool, "claims_missed"), number(pool, "claims_waited"));
	printf("lost    %lld starts failed   %lld warm VMs died\n", number(pool, "starts_failed"),
		number(pool, "warm_lost"));
	if (held) {
		cli_clean_text(clean, sizeof(clean), held);
		printf("refills wait: %s%s%s\n", colours->warn, clean, colours->reset);
	}
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
		cli_clean_text(id, sizeof(id), cli_text(vm, "id"));
		cli_clean_text(state, sizeof(state), cli_text(vm, "state"));
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
	print_times(json_object_get(pool, "times"));
	print_vms(json_object_get(pool, "vms"), &colours);
	return cli_finish_output();
}

static int set_option(struct query *query, int option, const char *value, char *error)
{
	struct error fault;

	switch (option) {
	case OPT_TEMPLATE:
		query->template = value;
		if (!template_name_check(value, "--template", &fault))
			return 0;
		snprintf(error, CLI_TEXT_MAX, "%s", fault.message);
		return -1;
	case OPT_TARGET:
		query->has_target = true;
		if (!parse_u64(value, 0, POOL_TARGET_MAX, &query->target))
			return 0;
		snprintf(error, CLI_TEXT_MAX, "--target wants a number from 0 to %d, not '%s'",
			POOL_TARGET_MAX, value);
		return -1;
	case OPT_JSON:
		query->json = true;
		return 0;
	case OPT_SOCKET:
		query->socket = value;
		return 0;
	default:
		query->help = true;
		return 0;
	}
}

static int parse(struct query *query, int argc, char **argv, char *error)
{
	struct cli_parser parser;
	const char *value;
	int option;

	cli_parser_init(&parser, option_table, OPT_COUNT, argc, argv);
	while ((option = cli_parser_next(&parser, &value)) >= 0)
		if (set_option(query, option, value, error) < 0)
			return -1;
	if (option == CLI_BAD) {
		snprintf(error, CLI_TEXT_MAX, "%s", parser.error);
		return -1;
	}
	if (parser.next < argc) {
		snprintf(error, CLI_TEXT_MAX, CLI_UNEXPECTED, argv[parser.next]);
		return -1;
	}
	return 0;
}

static int ask(const struct query *query, struct client *client, json_t **pool, struct client_error *error)
{
	char path[64 + TEMPLATE_NAME_MAX] = "/v1/pool";
	json_t *body;
	int r;

	if (query->has_target) {
		body = json_pack("{s:s,s:I}", "template", query->template ? query->template : TEMPLATE_BASE,
			"target", (json_int_t)query->target);
		r = client_call(client, "PUT", path, body, NULL, pool, error);
		json_decref(body);
		return r;
	}
	if (query->template)
		snprintf(path, sizeof(path), "/v1/pool?template=%s", query->template);
	return client_call(client, "GET", path, NULL, NULL, pool, error);
}

static int perform(const struct query *query)
{
	struct client_error error;
	struct client client;
	json_t *pool = NULL;
	int r = client_connect(&client, cli_socket_path(query->socket), CLIENT_QUERY_TIMEOUT_MS, &error);

	if (r < 0)
		return cli_fail_client(&error, query->json);
	r = ask(query, &client, &pool, &error);
	client_finish(&client);
	r = r < 0 ? cli_fail_client(&error, query->json) : print_pool(pool, query->json);
	json_decref(pool);
	return r;
}

int cmd_pool(int argc, char **argv)
{
	struct query query = {0};
	char error[CLI_TEXT_MAX];

	if (parse(&query, argc, argv, error) < 0)
		return cli_fail_usage(argv[0], error);
	if (!query.help)
		return perform(&query);
	fputs(pool_usage, stdout);
	return cli_finish_output();
}
