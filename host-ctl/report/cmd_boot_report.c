/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl boot-report`: what a trace of vmm says, or what differs between two. */
#include "common/io.h"
#include "common/parse.h"
#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/report/report_show.h"
#include "host-ctl/support/text.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* clang-format off */
const char boot_report_usage[] =
	"usage: host-ctl boot-report [OPTION...] FILE [FILE2]\n"
	"Shows where the time of a boot went, from a trace that `vmm --trace FILE` wrote: phases, marks, exits,\n"
	"ioctls, interrupts, memory, from vmm's start to the agent's hello. With a second trace: what changed.\n"
	"\n"
	"  --html PAGE          write a page with pictures to PAGE, or to standard output (-), in place of text\n"
	"  --top N              show N rows of a list, 1 to 1000 (10); the page has all\n"
	"  --bound PERCENT      call a time changed when it differs by more, 0 to 1000 (10); counts always are\n"
	"  --whole              all of the trace, also what came after the hello\n"
	"  --json               the report, or {\"before\", \"after\", \"changes\"}, as a JSON object\n"
	"\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { FILES_MAX = 2, BOUND_MAX = 1000 };

struct call {
	const char *files[FILES_MAX], *page; /* NULL: no page */
	char shown[FILES_MAX][PATH_MAX];     /* the files, fit to be shown */
	size_t count;
	uint64_t top, bound;
	bool whole, json, help;
	struct trace traces[FILES_MAX];
	struct report reports[FILES_MAX];
	struct changes changes;
};

/* ---- the command line ---- */

static int take_operand(struct call *call, char *operand, char *error)
{
	if (call->count == FILES_MAX)
		return cli_refuse(error, CLI_UNEXPECTED, operand);
	call->files[call->count] = operand;
	text_copy_printable(call->shown[call->count], PATH_MAX, operand, strlen(operand));
	call->count++;
	return 0;
}

static int take_number(const char *option, const char *value, uint64_t minimum, uint64_t maximum,
	uint64_t *number, char *error)
{
	if (parse_u64(value, minimum, maximum, number) < 0)
		return cli_refuse(error, "%s takes a number from %llu to %llu", option,
			(unsigned long long)minimum, (unsigned long long)maximum);
	return 0;
}

enum { OPT_HTML, OPT_TOP, OPT_BOUND, OPT_WHOLE, OPT_JSON, OPT_HELP, OPT_COUNT };

static int take_option(struct call *call, int option, const char *value, char *error)
{
	switch (option) {
	case OPT_HTML:
		call->page = value;
		return 0;
	case OPT_TOP:
		return take_number("--top", value, 1, REPORT_TOP_MAX, &call->top, error);
	case OPT_BOUND:
		return take_number("--bound", value, 0, BOUND_MAX, &call->bound, error);
	case OPT_WHOLE:
		call->whole = true;
		return 0;
	case OPT_JSON:
		call->json = true;
		return 0;
	default:
		call->help = true;
		return 0;
	}
}

/* 0, or -1 with the sentence in error. */
static int parse(struct call *call, int argc, char **argv, char *error)
{
	static const struct cli_option options[OPT_COUNT] = {
		[OPT_HTML] = {.name = "html", .has_value = true, .not_empty = true},
		[OPT_TOP] = {.name = "top", .has_value = true},
		[OPT_BOUND] = {.name = "bound", .has_value = true},
		[OPT_WHOLE] = {.name = "whole"},
		[OPT_JSON] = {.name = "json"},
		[OPT_HELP] = {.name = "help", .letter = 'h'},
	};
	struct cli_parser parser;
	const char *value;
	char *operand = NULL;
	int option, r = 0;

	cli_parser_init(&parser, options, OPT_COUNT, argc, argv);
	do {
		while (r == 0 && (option = cli_parser_next(&parser, &value)) >= 0)
			r = take_option(call, option, value, error);
		if (r == 0 && option == CLI_BAD)
			return cli_refuse(error, "%s", parser.error);
		operand = r == 0 ? cli_parser_operand(&parser) : NULL;
		if (operand)
			r = take_operand(call, operand, error);
	} while (r == 0 && operand);
	if (r < 0 || call->help)
		return r;
	if (call->count == 0)
		return cli_refuse(error, "a trace is expected, as vmm --trace FILE writes it");
	if (call->json && call->page && strcmp(call->page, "-") == 0)
		return cli_refuse(
			error, "--json and --html - both want standard output: give the page a file");
	return 0;
}

/* ---- the page ---- */

/* A page that took the place of a trace would be a loss. */
static bool is_trace(const struct call *call)
{
	struct stat page, file;

	if (stat(call->page, &page) < 0)
		return false;
	for (size_t i = 0; i < call->count; i++)
		if (stat(call->files[i], &file) == 0 && file.st_dev == page.st_dev &&
			file.st_ino == page.st_ino)
			return true;
	return false;
}

static int fail_page(const struct call *call, int error)
{
	const char *mend = error == ENOSPC || error == EDQUOT  ? "make room, or give a file elsewhere"
			   : error == EACCES || error == EPERM ? "give one that you may write"
							       : "give another file";

	return cli_fail("cannot write %s: %s; %s", call->page, strerror(error), mend);
}

/* All of it to fd, which is closed. 0 or -errno. */
static int write_text(int fd, const char *text, size_t length)
{
	int r = io_write_all(fd, text, length);

	/* Where a file system tells only now that it had no room. */
	if (close(fd) < 0 && errno != EINTR && r == 0)
		r = -errno;
	return r;
}

/* What is no regular file (a device, a named pipe) is written as it is: a rename would take its place. */
static int write_in_place(const struct call *call, const char *text, size_t length)
{
	int fd = open(call->page, O_WRONLY | O_CLOEXEC | O_NOCTTY), r;

	if (fd < 0)
		return fail_page(call, errno);
	r = write_text(fd, text, length);
	return r < 0 ? fail_page(call, -r) : 0;
}

/* Under a name of its own first: PAGE is what it was, or whole. */
static int write_file(const struct call *call, const char *text, size_t length)
{
	struct stat status;
	char path[PATH_MAX];
	const int flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
	int fd, r;

	if (stat(call->page, &status) == 0 && !S_ISREG(status.st_mode))
		return write_in_place(call, text, length);
	if (snprintf(path, sizeof(path), "%s.%d.tmp", call->page, (int)getpid()) >= (int)sizeof(path))
		return fail_page(call, ENAMETOOLONG);
	fd = open(path, flags, 0666);
	/* Of a process with this number that was killed. */
	if (fd < 0 && errno == EEXIST && unlink(path) == 0)
		fd = open(path, flags, 0666);
	if (fd < 0)
		return fail_page(call, errno);
	r = write_text(fd, text, length);
	if (r == 0 && rename(path, call->page) < 0)
		r = -errno;
	if (r < 0)
		unlink(path);
	return r < 0 ? fail_page(call, -r) : 0;
}

static int write_page(struct call *call)
{
	char *text = NULL;
	size_t length = 0;
	FILE *to = open_memstream(&text, &length);
	int r;

	if (!to)
		return cli_fail("out of memory");
	report_write_page(to, call->reports, call->count, call->count == FILES_MAX ? &call->changes : NULL);
	if (fclose(to) != 0) {
		r = cli_fail("out of memory");
	} else if (strcmp(call->page, "-") == 0) {
		fwrite(text, 1, length, stdout);
		r = cli_finish_output();
	} else {
		r = write_file(call, text, length);
	}
	free(text);
	return r;
}

/* ---- the verb ---- */

/* 0 or CLI_FAILURE (said). */
static int load(struct call *call)
{
	char error[TRACE_ERROR_MAX];
	int r = 0;

	for (size_t i = 0; i < call->count; i++) {
		if (trace_load(&call->traces[i], call->files[i], error) < 0)
			return cli_fail("%s", error);
		/* Where one has no hello, it is all of both: a boot is not compared with a whole trace. */
		call->whole = call->whole || !call->traces[i].has_hello;
	}
	for (size_t i = 0; r == 0 && i < call->count; i++)
		r = report_init(&call->reports[i], &call->traces[i], call->shown[i], call->whole);
	if (r < 0)
		return cli_fail("out of memory");
	/* A device has one colour in both. */
	call->reports[1].palette = &call->reports[0];
	if (call->count == FILES_MAX)
		r = changes_init(&call->changes, &call->reports[0], &call->reports[1], (unsigned)call->bound);
	return r < 0 ? cli_fail("out of memory") : 0;
}

static int show(struct call *call)
{
	bool two = call->count == FILES_MAX;
	json_t *object;
	int r = call->page ? write_page(call) : 0;

	if (r || (call->page && !call->json))
		return r;
	if (call->json) {
		object = two ? changes_to_json(&call->changes) : report_to_json(&call->reports[0]);
		r = object ? cli_print_json(object) : cli_fail("out of memory");
		json_decref(object);
		return r;
	}
	if (two)
		report_print_changes(stdout, &call->changes, call->top);
	else
		report_print(stdout, &call->reports[0], call->top);
	return cli_finish_output();
}

static int run(struct call *call, int argc, char **argv)
{
	char error[CLI_TEXT_MAX];
	int r;

	if (parse(call, argc, argv, error) < 0)
		return cli_fail_usage(argv[0], error);
	if (call->help) {
		fputs(boot_report_usage, stdout);
		return cli_finish_output();
	}
	if (call->page && is_trace(call))
		return cli_fail("%s is the trace itself; give the page another file", call->page);
	r = load(call);
	return r ? r : show(call);
}

int cmd_boot_report(int argc, char **argv)
{
	struct call *call = calloc(1, sizeof(*call));
	int r;

	if (!call)
		return cli_fail("out of memory");
	call->top = REPORT_TOP;
	call->bound = CHANGES_BOUND;
	r = run(call, argc, argv);
	changes_finish(&call->changes);
	for (size_t i = 0; i < FILES_MAX; i++) {
		report_finish(&call->reports[i]);
		trace_finish(&call->traces[i]);
	}
	free(call);
	return r;
}
