/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl template`: start environments that are built once and cloned for each run. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_build.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/pool/template.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* clang-format off */
const char template_usage[] =
	"usage: host-ctl template build NAME [OPTION...]\n"
	"       host-ctl template list|ls|show NAME|rm NAME [OPTION...]\n"
	"Builds, lists and removes templates: guests that were booted and prepared once, and from which\n"
	"`host-ctl run --template NAME` and `host-ctl pool --template NAME --target N` clone theirs.\n"
	"\n"
	"  --image IMAGE        a path, or an image of `host-ctl image`, by name or id (the daemon's)\n"
	"  --mem SIZE           memory, such as 256M (the daemon's)\n"
	"  --cpus N             processors, 1 to 8 (the daemon's)\n"
	"  --disk SIZE          files are on a disk of that size, such as 10G, not in memory: 16M to 1024G\n"
	"  --run 'LINE'         a line for the guest's shell, run before the guest is saved; may be repeated,\n"
	"                       one by one; one that fails fails the build\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	"What the lines write goes to standard output and error as it comes; with --json it is in the\n"
	"answer, its first and last 512 KiB. A build that is interrupted, such as by Ctrl-C, leaves nothing.\n"
	"A build waits for those before it. One of a name that is there replaces it when it is done: runs that\n"
	"come after it get the new one. A template that is `stored` is loaded by the first run on it; `show`\n"
	"says why one is `damaged`. `base` is the daemon's own. One that is in use is not removed: its pool\n"
	"must keep none (`host-ctl pool --template NAME --target 0`), its runs and sandboxes must be gone.\n"
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { OPT_IMAGE, OPT_MEM, OPT_CPUS, OPT_DISK, OPT_RUN, OPT_JSON, OPT_SOCKET, OPT_HELP, OPT_COUNT };

static const struct cli_option option_table[OPT_COUNT] = {
	[OPT_IMAGE] = {.name = "image", .has_value = true},
	[OPT_MEM] = {.name = "mem", .has_value = true},
	[OPT_CPUS] = {.name = "cpus", .has_value = true},
	[OPT_DISK] = {.name = "disk", .has_value = true},
	[OPT_RUN] = {.name = "run", .has_value = true, .repeats = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

struct action {
	const char *name, *method;
	const char *other; /* the word that images have for it; or NULL */
	bool named, builds;
	int (*print)(const json_t *answer); /* for people */
};

static int print_build(const json_t *answer);
static int print_list(const json_t *answer);
static int print_template(const json_t *template);
static int print_nothing(const json_t *answer);

static const struct action actions[] = {
	{.name = "build", .method = "POST", .named = true, .builds = true, .print = print_build},
	{.name = "list", .other = "ls", .method = "GET", .print = print_list},
	{.name = "show", .method = "GET", .named = true, .print = print_template},
	{.name = "rm", .method = "DELETE", .named = true, .print = print_nothing},
};

struct order {
	const struct action *action; /* NULL: not given */
	const char *name;	     /* the same */
	const char *socket;
	bool json, help;
	json_t *body; /* of a build */
};

/* --- the command line --- */

static int set_body(struct order *order, const char *field, json_t *value, char *error)
{
	if (json_object_set_new(order->body, field, value) < 0)
		return cli_refuse(error, "--%s is not UTF-8, or there is no memory", field);
	return 0;
}

/* Without a slash it is a file that is here, or else the name or id of an image. */
static int set_image(struct order *order, const char *value, char *error)
{
	char path[PATH_MAX];
	struct stat status;

	if (!strchr(value, '/') &&
		(stat(value, &status) < 0 || !(S_ISREG(status.st_mode) || S_ISBLK(status.st_mode))))
		return set_body(order, "image", json_string(value), error);
	/* The daemon stands in another folder. */
	if (!realpath(value, path))
		return cli_refuse(error, "--image: there is no %s", value);
	return set_body(order, "image", json_string(path), error);
}

static int set_cpus(struct order *order, const char *value, char *error)
{
	char *end;
	long cpus = strtol(value, &end, 10);

	if (*end || end == value)
		return cli_refuse(error, "--cpus wants a number, not '%s'", value);
	return set_body(order, "cpus", json_integer(cpus), error);
}

static int set_option(struct order *order, int option, const char *value, char *error)
{
	switch (option) {
	case OPT_IMAGE:
		return set_image(order, value, error);
	case OPT_MEM:
		return set_body(order, "mem", json_string(value), error);
	case OPT_CPUS:
		return set_cpus(order, value, error);
	case OPT_DISK:
		return set_body(order, "disk", json_string(value), error);
	case OPT_RUN:
		if (!json_object_get(order->body, "run") && set_body(order, "run", json_array(), error))
			return -1;
		if (json_array_append_new(json_object_get(order->body, "run"), json_string(value)) < 0)
			return cli_refuse(error, "--run is not UTF-8");
		return 0;
	case OPT_JSON:
		order->json = true;
		return 0;
	case OPT_SOCKET:
		order->socket = value;
		return 0;
	default:
		order->help = true;
		return 0;
	}
}

static int set_action(struct order *order, const char *name, char *error)
{
	for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
		if (!strcmp(actions[i].name, name) || (actions[i].other && !strcmp(actions[i].other, name)))
			order->action = &actions[i];
	return order->action ? 0 : cli_refuse(error, "build, list, show or rm is expected, not '%s'", name);
}

static int add_operand(struct order *order, const char *text, char *error)
{
	if (!order->action)
		return set_action(order, text, error);
	if (order->name)
		return cli_refuse(error, CLI_UNEXPECTED, text);
	order->name = text;
	return 0;
}

/* Options and operands in any order. */
static int parse(struct order *order, int argc, char **argv, char *error)
{
	struct cli_parser parser;
	const char *value;

	cli_parser_init(&parser, option_table, OPT_COUNT, argc, argv);
	while (parser.next < argc) {
		int option = cli_parser_next(&parser, &value);

		if (option == CLI_BAD)
			return cli_refuse(error, "%s", parser.error);
		if (option >= 0 ? set_option(order, option, value, error)
				: parser.next < argc && add_operand(order, argv[parser.next++], error))
			return -1;
	}
	return 0;
}

static int check(const struct order *order, char *error)
{
	struct error fault;

	if (order->action->named && !order->name)
		return cli_refuse(error, "a template's name is expected after %s", order->action->name);
	if (!order->action->named && order->name)
		return cli_refuse(error, CLI_UNEXPECTED, order->name);
	if (!order->action->builds && json_object_size(order->body))
		return cli_refuse(error, "only build takes --image, --mem, --cpus, --disk and --run");
	if (order->name && template_name_check(order->name, "NAME", &fault))
		return cli_refuse(error, "%s", fault.message);
	return 0;
}

/* --- answers --- */

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

static const json_t *input(const json_t *template, const char *name)
{
	return json_object_get(json_object_get(template, "inputs"), name);
}

static int print_list(const json_t *answer)
{
	struct cli_colours colours = cli_colours_for(stdout);
	const json_t *list = json_object_get(answer, "templates"), *template;
	char time[CLI_TIME_MAX], name[CLI_TEXT_MAX], state[CLI_TEXT_MAX];
	size_t i;

	printf("%s%-20s %-10s %6s %5s %10s %5s  %s%s\n", colours.bold, "TEMPLATE", "STATE", "MEM", "CPUS",
		"SAVED", "VMS", "BUILT", colours.reset);
	json_array_foreach(list, i, template)
	{
		cli_format_time(number(template, "created_ms"), time);
		cli_clean_text(name, sizeof name, cli_text(template, "name"));
		cli_clean_text(state, sizeof state, cli_text(template, "state"));
		printf("%-20s %-10s %5lldM %5lld %6lld KiB %5lld  %s\n", name, state,
			(long long)json_integer_value(input(template, "memory_bytes")) >> 20,
			(long long)json_integer_value(input(template, "cpus")),
			(number(template, "memory_bytes") + number(template, "state_bytes")) >> 10,
			number(template, "vms"), time);
	}
	return cli_finish_output();
}

static void print_state(const json_t *template)
{
	char shown[CLI_TEXT_MAX];

	cli_clean_text(shown, sizeof shown, cli_text(template, "name"));
	printf("name    %s\n", shown);
	cli_clean_text(shown, sizeof shown, cli_text(template, "state"));
	printf("state   %s, %lld VMs\n", shown, number(template, "vms"));
	cli_clean_text(shown, sizeof shown, cli_text(template, "reason"));
	if (strcmp(shown, "-") != 0)
		printf("reason  %s\n", shown);
}

static int print_template(const json_t *template)
{
	const json_t *snapshot = json_object_get(template, "snapshot"), *line;
	char time[CLI_TIME_MAX], shown[CLI_TEXT_MAX];
	size_t i;

	print_state(template);
	if (!json_object_get(template, "inputs"))
		return cli_finish_output();
	cli_format_time(number(template, "created_ms"), time);
	cli_clean_text(shown, sizeof shown, cli_text(template, "generation"));
	printf("%s   %s in %lld ms, generation %s\n", snapshot ? "saved" : "built", time,
		number(template, "build_ms"), shown);
	if (snapshot) {
		cli_clean_text(shown, sizeof shown, cli_text(snapshot, "sandbox"));
		printf("of      sandbox %s\n", shown);
	}
	cli_clean_text(shown, sizeof shown, cli_text(input(template, "image"), "path"));
	printf("image   %s\nmem     %lld MiB, %lld KiB saved\ncpus    %lld\n", shown,
		(long long)json_integer_value(input(template, "memory_bytes")) >> 20,
		number(template, "memory_bytes") >> 10,
		(long long)json_integer_value(input(template, "cpus")));
	if (input(template, "disk_bytes"))
		printf("disk    %lld MiB\n",
			(long long)json_integer_value(input(template, "disk_bytes")) >> 20);
	json_array_foreach(input(template, "run"), i, line)
	{
		cli_clean_text(shown, sizeof shown, json_string_value(line));
		printf("run     %s\n", shown);
	}
	return cli_finish_output();
}

static int print_build(const json_t *answer)
{
	const json_t *template = json_object_get(answer, "template");

	fprintf(stderr, "template %s is built: %lld KiB saved in %lld ms\n", cli_text(template, "name"),
		number(template, "memory_bytes") >> 10, number(template, "build_ms"));
	return cli_finish_output();
}

static int print_nothing(const json_t *answer)
{
	(void)answer;
	return 0;
}

/* A build, with what its commands write as it comes. */
static int follow(struct order *order, struct client *client, json_t **answer, struct client_error *error)
{
	int r = client_upgrade(client, "/v1/templates", order->body, error);

	return r < 0 ? r : cmd_build_follow(client, order->body, answer, error);
}

static int perform(struct order *order)
{
	const struct action *action = order->action;
	char path[64 + TEMPLATE_NAME_MAX] = "/v1/templates";
	struct client client = {.fd = -1};
	struct client_error error;
	json_t *answer = NULL;
	int r;

	if (action->builds && json_object_set_new(order->body, "name", json_string(order->name)) < 0)
		return cli_fail("out of memory");
	if (action->named && !action->builds)
		snprintf(path, sizeof path, "/v1/templates/%s", order->name);
	r = client_connect(&client, cli_socket_path(order->socket),
		action->builds ? -1 : CLIENT_QUERY_TIMEOUT_MS, &error);
	if (r == 0 && action->builds && !order->json)
		r = follow(order, &client, &answer, &error);
	else if (r == 0)
		r = client_call(&client, action->method, path, action->builds ? order->body : NULL, NULL,
			&answer, &error);
	client_finish(&client);
	if (r < 0)
		r = cli_fail_client(&error, order->json);
	else
		r = order->json ? cli_print_json(answer) : action->print(answer);
	json_decref(answer);
	return r;
}

int cmd_template(int argc, char **argv)
{
	struct order order = {.body = json_object()};
	char error[CLI_TEXT_MAX] = "build, list, show or rm is expected";
	int r = parse(&order, argc, argv, error);

	if (r == 0 && order.help) {
		fputs(template_usage, stdout);
		r = cli_finish_output();
	} else if (r < 0 || !order.action || check(&order, error) < 0) {
		r = cli_fail_usage(argv[0], error);
	} else {
		r = perform(&order);
	}
	json_decref(order.body);
	return r;
}
