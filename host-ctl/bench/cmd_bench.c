/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl bench`: times of this machine, for who runs VMs on it. */
#include "common/parse.h"
#include "host-ctl/bench/bench.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/support/built_file.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
const char bench_usage[] =
	"usage: host-ctl bench boot|restore|run [OPTION...] [--] [PROGRAM ARG...]\n"
	"Measures on this machine: median, spread, and of two kinds, which take turns, the ratio with how sure\n"
	"it is.\n"
	"\n"
	"  boot                 vmm's start to its guest's hello, without a daemon; with -b also of that kind\n"
	"  restore              the same of a guest that is restored, and of one that boots\n"
	"  run                  of the daemon's warm VMs: a request to PROGRAM's first byte of output, and\n"
	"                       posix_spawn of the same program here (/bin/busybox echo here)\n"
	"\n"
	"  -n, --rounds N       measure each N times, 1 to 10000 (20; run: 200)\n"
	"  -a, --first OPTIONS  more options for vmm, with spaces between (boot, restore)\n"
	"  -b, --second OPTIONS a second kind of boot with these, to compare\n"
	"  --vmm PATH, --kernel PATH, --initrd PATH, --image PATH\n"
	"                       in place of those of the build, or of " BUILT_FILE_LIBRARY "\n"
	"  --mem SIZE           memory of the guest (128M)\n"
	"  --template NAME      run: in clones of that template (base)\n"
	"  --here PATH          run: where PROGRAM's file is on this host, if elsewhere than in the guest\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { VM_ROUNDS = 20, RUN_ROUNDS = 200 };

static const struct kind {
	const char *name;
	size_t rounds;
	int (*measure)(struct bench_call *call);
} kinds[] = {
	{"boot", VM_ROUNDS, bench_boot},
	{"restore", VM_ROUNDS, bench_restore},
	{"run", RUN_ROUNDS, bench_run},
};

enum {
	OPT_ROUNDS,
	OPT_FIRST,
	OPT_SECOND,
	OPT_VMM,
	OPT_KERNEL,
	OPT_INITRD,
	OPT_IMAGE,
	OPT_MEM,
	OPT_TEMPLATE,
	OPT_HERE,
	OPT_JSON,
	OPT_SOCKET,
	OPT_HELP,
	OPT_COUNT
};

static const struct cli_option option_table[OPT_COUNT] = {
	[OPT_ROUNDS] = {.name = "rounds", .letter = 'n', .has_value = true},
	[OPT_FIRST] = {.name = "first", .letter = 'a', .has_value = true},
	[OPT_SECOND] = {.name = "second", .letter = 'b', .has_value = true},
	[OPT_VMM] = {.name = "vmm", .has_value = true, .not_empty = true},
	[OPT_KERNEL] = {.name = "kernel", .has_value = true, .not_empty = true},
	[OPT_INITRD] = {.name = "initrd", .has_value = true, .not_empty = true},
	[OPT_IMAGE] = {.name = "image", .has_value = true, .not_empty = true},
	[OPT_MEM] = {.name = "mem", .has_value = true, .not_empty = true},
	[OPT_TEMPLATE] = {.name = "template", .has_value = true, .not_empty = true},
	[OPT_HERE] = {.name = "here", .has_value = true, .not_empty = true},
	[OPT_JSON] = {.name = "json"},
	[OPT_SOCKET] = {.name = "socket", .has_value = true, .not_empty = true},
	[OPT_HELP] = {.name = "help", .letter = 'h'},
};

struct line {
	const char *values[OPT_COUNT]; /* NULL: not given */
	bool json, help;
	const struct kind *kind;
	char **program;
};

int bench_fail(struct bench_call *call, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(call->error, sizeof(call->error), format, arguments);
	va_end(arguments);
	return -1;
}

/* ---- the command line ---- */

static int find_kind(struct line *line, const char *name, char *error)
{
	if (!name)
		return cli_refuse(error, "what to measure is expected: boot, restore or run");
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, name) != 0)
			continue;
		line->kind = &kinds[i];
		return 0;
	}
	return cli_refuse(error, "'%s' is none of boot, restore and run", name);
}

/* An option of another kind would change nothing. */
static int check_kind(const struct line *line, char *error)
{
	static const int of_run[] = {OPT_TEMPLATE, OPT_HERE, OPT_SOCKET};
	static const int of_vmm[] = {
		OPT_FIRST, OPT_SECOND, OPT_VMM, OPT_KERNEL, OPT_INITRD, OPT_IMAGE, OPT_MEM};
	bool run = line->kind->measure == bench_run;
	const int *others = run ? of_vmm : of_run;
	size_t count = run ? sizeof(of_vmm) / sizeof(of_vmm[0]) : sizeof(of_run) / sizeof(of_run[0]);

	for (size_t i = 0; i < count; i++)
		if (line->values[others[i]])
			return cli_refuse(
				error, "%s takes no --%s", line->kind->name, option_table[others[i]].name);
	if (line->kind->measure == bench_restore && line->values[OPT_SECOND])
		return cli_refuse(error, "restore takes no --second: it is compared with a boot");
	if (!run && line->program[0])
		return cli_refuse(error, CLI_UNEXPECTED, line->program[0]);
	return 0;
}

static int parse(struct line *line, int argc, char **argv, char *error)
{
	struct cli_parser parser;
	const char *value;
	int option, r;

	*line = (struct line){.kind = kinds};
	cli_parser_init(&parser, option_table, OPT_COUNT, argc, argv);
	/* What to measure may stand before its options, and mostly does. */
	for (int operands = 0; operands < 2; operands++) {
		while ((option = cli_parser_next(&parser, &value)) >= 0)
			line->values[option] = value ? value : "";
		if (option == CLI_BAD)
			return cli_refuse(error, "%s", parser.error);
		line->help = line->values[OPT_HELP];
		if (line->help)
			return 0;
		r = operands == 0 ? find_kind(line, cli_parser_operand(&parser), error) : 0;
		if (r < 0)
			return r;
	}
	line->json = line->values[OPT_JSON];
	line->program = argv + parser.next;
	return check_kind(line, error);
}

static int take_rounds(const struct line *line, size_t *rounds, char *error)
{
	const char *text = line->values[OPT_ROUNDS];
	uint64_t number = line->kind->rounds;

	if (text && parse_u64(text, 1, SERIES_ROUNDS_MAX, &number) < 0)
		return cli_refuse(error, "--rounds takes a number from 1 to %d", SERIES_ROUNDS_MAX);
	*rounds = (size_t)number;
	return 0;
}

/* ---- the call ---- */

static char *const default_program[] = {"/bin/busybox", "echo", "here", NULL};

static void fill_call(struct bench_call *call, const struct line *line)
{
	static const struct {
		int option;
		const char *built;
	} files[] = {{OPT_VMM, "vmm/vmm"}, {OPT_KERNEL, "kernel/vmlinux-up"},
		{OPT_INITRD, "images/initramfs.cpio"}, {OPT_IMAGE, "images/base.erofs"}};
	const char **paths[] = {&call->vmm, &call->kernel, &call->initrd, &call->image};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		built_file_find(call->found[i], files[i].built);
		*paths[i] = line->values[files[i].option] ? line->values[files[i].option] : call->found[i];
	}
	call->memory = line->values[OPT_MEM] ? line->values[OPT_MEM] : "128M";
	call->options[0] = line->values[OPT_FIRST];
	call->options[1] = line->values[OPT_SECOND];
	call->socket = cli_socket_path(line->values[OPT_SOCKET]);
	call->template = line->values[OPT_TEMPLATE];
	call->here = line->values[OPT_HERE];
	call->argv = line->program[0] ? line->program : (char **)default_program;
}

static int fail_call(const struct bench_call *call, bool json)
{
	struct client_error error;

	client_error_set(&error, "io", "%s", call->error);
	return cli_fail_client(&error, json);
}

static int show(const struct bench_call *call, bool json)
{
	json_t *object;
	int r;

	if (!json)
		return series_print(stdout, &call->series) < 0 ? cli_fail("out of memory")
							       : cli_finish_output();
	object = series_to_json(&call->series);
	r = object ? cli_print_json(object) : cli_fail("out of memory");
	json_decref(object);
	return r;
}

static int measure(struct bench_call *call, const struct line *line)
{
	size_t count = line->kind->measure == bench_boot && !call->options[1] ? 1 : 2;
	int r;

	if (series_init(&call->series, count, call->rounds) < 0)
		return cli_fail("out of memory");
	r = line->kind->measure(call) < 0 ? fail_call(call, line->json) : show(call, line->json);
	series_finish(&call->series);
	return r;
}

int cmd_bench(int argc, char **argv)
{
	struct bench_call *call = calloc(1, sizeof(*call));
	char error[CLI_TEXT_MAX];
	struct line line;
	int r;

	if (!call)
		return cli_fail("out of memory");
	r = parse(&line, argc, argv, error);
	if (r == 0 && !line.help)
		r = take_rounds(&line, &call->rounds, error);
	if (r < 0) {
		r = cli_fail_usage(argv[0], error);
	} else if (line.help) {
		fputs(bench_usage, stdout);
		r = cli_finish_output();
	} else {
		fill_call(call, &line);
		r = measure(call, &line);
	}
	free(call);
	return r;
}
