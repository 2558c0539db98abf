/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl image`: the images that templates are built from. It works on the store itself, as root, with a
 * daemon or without. */
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_image_build.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/support/state_folder.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define IMAGE_LIBRARY "/usr/lib/tinderbox"

/* clang-format off */
const char image_usage[] =
	"usage: host-ctl image build NAME SOURCE [OPTION...]\n"
	"       host-ctl image ls|list|show NAME|rm NAME|gc [OPTION...]\n"
	"Builds, lists and removes images, of which `host-ctl template build --image NAME` makes templates. One\n"
	"is known by its name and by the sha256 of its content, sha256-…, of which the first 8 digits are enough.\n"
	"A SOURCE is one of:\n"
	"\n"
	"  --from-dir DIR       the files of a folder, on its file system\n"
	"  --from-tar FILE      of a tar archive, plain or packed by gzip, bzip2, xz or zstd\n"
	"  --debian LIST        of Debian packages, and of those that they need: names, divided by commas, or a\n"
	"                       file with one a line. From this host's apt sources, verified by apt; none is\n"
	"                       installed, no script of theirs runs. base-files and busybox-static are always\n"
	"                       among them\n"
	"  --from-image FILE    an erofs that is there already\n"
	"\n"
	"  --limit SIZE         bound of the files together (8G)\n"
	"  --state-dir DIR      as of `host-ctl serve` (" STATE_FOLDER_DEFAULT ")\n"
	"  --builder PATH       the program that builds (rootfs/build-image of the build tree that host-ctl\n"
	"                       stands in, or else in " IMAGE_LIBRARY ")\n"
	CLI_USAGE_JSON
	"\n"
	"`build` prints the id. Devices and sockets of a source are left out; what of it leads out of it leads\n"
	"nowhere. A build that fails or is interrupted leaves nothing. A name that is there moves to the new\n"
	"image; `rm` of a name that is not its image's only one takes the name alone. An image that a template\n"
	"on the disk was or is being built from is not removed (`conflict`). One that has no name and that\n"
	"nothing uses is removed by the next `build` or `rm`, or by `gc`.\n"
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum {
	OPT_DIR,
	OPT_TAR,
	OPT_DEBIAN,
	OPT_IMAGE,
	OPT_LIMIT,
	OPT_STATE,
	OPT_BUILDER,
	OPT_JSON,
	OPT_HELP,
	OPT_COUNT
};

static const struct cli_option option_table[OPT_COUNT] = {
	[OPT_DIR] = {.name = "from-dir", .has_value = true},
	[OPT_TAR] = {.name = "from-tar", .has_value = true},
	[OPT_DEBIAN] = {.name = "debian", .has_value = true},
	[OPT_IMAGE] = {.name = "from-image", .has_value = true},
	[OPT_LIMIT] = {.name = "limit", .has_value = true},
	[OPT_STATE] = {.name = "state-dir", .has_value = true},
	[OPT_BUILDER] = {.name = "builder", .has_value = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

/* What the builder calls them. */
static const char *const kinds[] = {
	[OPT_DIR] = "dir", [OPT_TAR] = "tar", [OPT_DEBIAN] = "debian", [OPT_IMAGE] = "image"};

struct order {
	const struct action *action; /* NULL: not given */
	const char *name;	     /* the same */
	const char *state_directory, *values[OPT_COUNT];
	char source[PATH_MAX], builder[PATH_MAX];
	unsigned int sources; /* that were given */
	int kind;	      /* of the last one */
	bool json, help;
};

/* perform: 0; -1 with *error set; or the number of a signal that has ended it. */
struct action {
	const char *name;
	const char *other; /* the word that templates have for it; or NULL */
	bool named;
	int (*perform)(const struct order *order, const struct image_store *store, json_t **answer,
		struct error *error);
	int (*print)(const json_t *answer); /* for people */
};

static int build(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error);
static int list(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error);
static int show(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error);
static int rm(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error);
static int gc(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error);
static int print_build(const json_t *answer);
static int print_list(const json_t *answer);
static int print_image(const json_t *image);
static int print_collected(const json_t *answer);

static const struct action actions[] = {
	{.name = "build", .named = true, .perform = build, .print = print_build},
	{.name = "ls", .other = "list", .perform = list, .print = print_list},
	{.name = "show", .named = true, .perform = show, .print = print_image},
	{.name = "rm", .named = true, .perform = rm, .print = print_collected},
	{.name = "gc", .perform = gc, .print = print_collected},
};

/* --- the command line --- */

static void set_option(struct order *order, int option, const char *value)
{
	order->values[option] = value;
	if (option <= OPT_IMAGE) {
		order->sources++;
		order->kind = option;
	}
	order->json |= option == OPT_JSON;
	order->help |= option == OPT_HELP;
}

static int add_operand(struct order *order, const char *text, char *error)
{
	if (order->action && order->name)
		return cli_refuse(error, CLI_UNEXPECTED, text);
	if (order->action) {
		order->name = text;
		return 0;
	}
	for (size_t i = 0; i < sizeof actions / sizeof actions[0]; i++)
		if (!strcmp(actions[i].name, text) || (actions[i].other && !strcmp(actions[i].other, text)))
			order->action = &actions[i];
	return order->action ? 0 : cli_refuse(error, "build, ls, show, rm or gc is expected, not %s", text);
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
		if (option >= 0)
			set_option(order, option, value);
		else if (parser.next < argc && add_operand(order, argv[parser.next++], error))
			return -1;
	}
	return 0;
}

/* A path becomes whole, for it is told later too; a list stays. */
static int set_source(struct order *order, char *error)
{
	const char *value = order->values[order->kind];

	if (order->kind != OPT_DEBIAN && !realpath(value, order->source))
		return cli_refuse(error, "there is no %s", value);
	if (order->kind == OPT_DEBIAN && !value[0])
		return cli_refuse(error, "--debian wants names of packages, or a file with one a line");
	if (order->kind == OPT_DEBIAN)
		snprintf(order->source, sizeof order->source, "%s", value);
	return 0;
}

static int check(struct order *order, char *error)
{
	bool builds = order->action->perform == build;

	if (order->action->named && !order->name)
		return cli_refuse(error, "an image's name is expected after %s", order->action->name);
	if (!order->action->named && order->name)
		return cli_refuse(error, CLI_UNEXPECTED, order->name);
	if (!builds && (order->sources || order->values[OPT_LIMIT] || order->values[OPT_BUILDER]))
		return cli_refuse(error, "only build takes a source, --limit and --builder");
	if (builds && !image_name_is_valid(order->name))
		return cli_refuse(error,
			"an image's name has a-z, 0-9, '.', '_' and '-', a letter or digit first, at most 63 "
			"of "
			"them, and does not begin with " IMAGE_ID_PREFIX ", unlike %s",
			order->name);
	if (builds && order->sources != 1)
		return cli_refuse(
			error, "one of --from-dir, --from-tar, --debian and --from-image is expected");
	return builds ? set_source(order, error) : 0;
}

/* --- the actions --- */

/* Of build/host-ctl/host-ctl: rootfs/build-image beside build. */
static void find_builder(char builder[PATH_MAX])
{
	char folder[PATH_MAX - 32];
	ssize_t length = readlink("/proc/self/exe", folder, sizeof folder - 1);

	folder[length > 0 ? length : 0] = '\0';
	for (int i = 0; i < 3; i++) {
		char *slash = strrchr(folder, '/');

		if (slash)
			*slash = '\0';
	}
	snprintf(builder, PATH_MAX, "%s/rootfs/build-image", folder);
	if (access(builder, X_OK) < 0)
		snprintf(builder, PATH_MAX, IMAGE_LIBRARY "/rootfs/build-image");
}

static int build(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error)
{
	const char *given = order->values[OPT_BUILDER];
	char builder[PATH_MAX];
	const struct image_order wanted = {.builder = given ? given : builder,
		.name = order->name,
		.kind = kinds[order->kind],
		.source = order->source,
		.limit = order->values[OPT_LIMIT]};

	find_builder(builder);
	return cmd_image_build(store, &wanted, answer, error);
}

static int list(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error)
{
	(void)order;
	*answer = image_store_list(store, error);
	return *answer ? 0 : -1;
}

static int show(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error)
{
	char id[IMAGE_ID_SIZE];

	if (image_store_find(store, order->name, id, error))
		return -1;
	*answer = image_store_describe(store, id, error);
	return *answer ? 0 : -1;
}

/* Adds what is unused by now. */
static int collect(const struct image_store *store, json_t *answer, struct error *error)
{
	json_t *collected = json_array();

	if (!answer || json_object_set_new(answer, "collected", collected))
		return error_set(error, ERROR_INTERNAL, "out of memory");
	return image_store_collect(store, collected, error);
}

static int rm(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error)
{
	bool removed;

	if (image_store_remove(store, order->name, &removed, error))
		return -1;
	*answer = json_pack("{s:s,s:b}", "removed", order->name, "image_removed", removed);
	return collect(store, *answer, error);
}

static int gc(
	const struct order *order, const struct image_store *store, json_t **answer, struct error *error)
{
	(void)order;
	*answer = json_object();
	return collect(store, *answer, error);
}

/* --- answers --- */

static long long number(const json_t *object, const char *name)
{
	return json_integer_value(json_object_get(object, name));
}

/* The first of a list, and whether there are more. */
static void format_list(const json_t *list, char *to, size_t size)
{
	const char *first = json_string_value(json_array_get(list, 0));

	if (json_array_size(list) > 1)
		snprintf(to, size, "%s +%zu", first, json_array_size(list) - 1);
	else
		snprintf(to, size, "%s", first ? first : "-");
}

static int print_list(const json_t *answer)
{
	struct cli_colours colours = cli_colours_for(stdout);
	const json_t *list = json_object_get(answer, "images"), *image;
	char time[CLI_TIME_MAX], names[CLI_TEXT_MAX], users[CLI_TEXT_MAX], kind[CLI_TEXT_MAX];
	size_t i;

	printf("%s%-20s %-19s %10s %-7s %-16s  %s%s\n", colours.bold, "IMAGE", "ID", "SIZE", "SOURCE",
		"USED BY", "BUILT", colours.reset);
	json_array_foreach(list, i, image)
	{
		cli_format_time(number(image, "created_ms"), time);
		format_list(json_object_get(image, "names"), names, sizeof names);
		format_list(json_object_get(image, "used_by"), users, sizeof users);
		cli_clean_text(kind, sizeof kind, cli_text(json_object_get(image, "source"), "kind"));
		printf("%-20s %-19.19s %6lld KiB %-7s %-16s  %s\n", names, cli_text(image, "id"),
			number(image, "bytes") >> 10, kind, users, time);
	}
	return cli_finish_output();
}

static void print_strings(const char *label, const json_t *list)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(list, i, entry)
	{
		printf("%-8s%s\n", label, json_string_value(entry));
	}
}

static int print_image(const json_t *image)
{
	const json_t *source = json_object_get(image, "source"), *package;
	char time[CLI_TIME_MAX], of[CLI_TEXT_MAX], shown[CLI_TEXT_MAX];
	size_t i;

	cli_format_time(number(image, "created_ms"), time);
	cli_clean_text(shown, sizeof shown, cli_text(source, "kind"));
	cli_clean_text(of, sizeof of, cli_text(source, "of"));
	printf("id      %s\nsize    %lld KiB\nsource  %s: %s\nbuilt   %s\n", cli_text(image, "id"),
		number(image, "bytes") >> 10, shown, of, time);
	print_strings("name", json_object_get(image, "names"));
	print_strings("used by", json_object_get(image, "used_by"));
	json_array_foreach(json_object_get(image, "packages"), i, package)
	{
		cli_clean_text(shown, sizeof shown, cli_text(package, "name"));
		cli_clean_text(of, sizeof of, cli_text(package, "version"));
		printf("package %s %s\n", shown, of);
	}
	return cli_finish_output();
}

static int print_collected(const json_t *answer)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(answer, "collected"), i, entry)
	{
		fprintf(stderr, "collected %s\n", json_string_value(entry));
	}
	return 0;
}

static int print_build(const json_t *answer)
{
	fprintf(stderr, "image %s: %lld KiB\n", cli_text(answer, "id"), number(answer, "bytes") >> 10);
	print_collected(answer);
	printf("%s\n", cli_text(answer, "id"));
	return cli_finish_output();
}

/* --- the verb --- */

static int fail(const struct error *error, bool json)
{
	json_t *object = json ? error_to_json(error) : NULL;

	if (object)
		cli_print_json(object);
	json_decref(object);
	return cli_fail("%s: %s", error_code(error->kind), error->message);
}

static int perform(const struct order *order)
{
	const char *given = order->values[OPT_STATE], *state = given ? given : STATE_FOLDER_DEFAULT;
	struct image_store store;
	struct error error = {.kind = ERROR_NONE};
	json_t *answer = NULL;
	/* Only a build makes what is missing. */
	int r = order->action->perform == build ? image_store_open(&store, state, &error)
						: image_store_open_to_read(&store, state, &error);

	if (!r) {
		r = order->action->perform(order, &store, &answer, &error);
		image_store_close(&store);
	}
	if (r > 0) {
		/* All is tidied up: now it is as if the signal had come to one that does not mind. */
		signal(r, SIG_DFL);
		raise(r);
	}
	if (r)
		r = fail(&error, order->json);
	else
		r = order->json ? cli_print_json(answer) : order->action->print(answer);
	json_decref(answer);
	return r;
}

int cmd_image(int argc, char **argv)
{
	struct order order = {.action = NULL};
	char error[CLI_TEXT_MAX] = "build, ls, show, rm or gc is expected";
	int r = parse(&order, argc, argv, error);

	if (r == 0 && order.help) {
		fputs(image_usage, stdout);
		return cli_finish_output();
	}
	if (r < 0 || !order.action || check(&order, error) < 0)
		return cli_fail_usage(argv[0], error);
	return perform(&order);
}
