/* SPDX-License-Identifier: Apache-2.0 */
/* `host-ctl diff`: what a sandbox has added, changed and removed against its template. */
#include "host-ctl/cli/cmd_command.h"
#include "host-ctl/cli/verbs.h"
#include "host-ctl/support/text.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* clang-format off */
const char diff_usage[] =
	"usage: host-ctl diff [OPTION...] SANDBOX\n"
	"Lists the files that a sandbox, which is ready, has added (A), changed (C) and removed (D) against its\n"
	"template: a line each, letter and path. Of a folder that was removed nothing else is listed; what is in\n"
	"/tmp and /run is no file of the template's, and is not.\n"
	"\n"
	CLI_USAGE_JSON
	CLI_USAGE_SOCKET
	"\n"
	"On a terminal, bytes that it might take for something else are shown as \\ooo; elsewhere paths are as they\n"
	"are.\n"
	CLI_USAGE_STATUS;
/* clang-format on */

enum { PAGE = 4096, BYTES_PATH_MAX = 4096 };

struct diff {
	const char *sandbox, *socket;
	bool json, on_terminal;
	char after[BYTES_PATH_MAX]; /* the last path; empty: none yet */
	size_t after_length;
	json_t *all; /* of --json: the entries */
	json_int_t skipped;
};

/* --- one entry --- */

/* The bytes of an entry's path. Their number; 0: there are none, or too many. */
static size_t read_path(const json_t *entry, char path[BYTES_PATH_MAX])
{
	const json_t *plain = json_object_get(entry, "path"), *coded = json_object_get(entry, "path_b64");
	size_t length = json_string_length(plain);
	ptrdiff_t decoded;

	if (plain && length < BYTES_PATH_MAX) {
		memcpy(path, json_string_value(plain), length);
		return length;
	}
	length = json_string_length(coded);
	if (!coded || length / 4 * 3 > BYTES_PATH_MAX)
		return 0;
	decoded = text_base64_decode((uint8_t *)path, json_string_value(coded), length);
	return decoded > 0 && decoded < BYTES_PATH_MAX ? (size_t)decoded : 0;
}

/* plain: it is UTF-8, of which the controls alone are odd: C0, DEL, and C1, which is C2 80 to C2 9F. */
static bool is_odd(const char *path, size_t at, bool plain)
{
	unsigned char c = (unsigned char)path[at], before = at ? (unsigned char)path[at - 1] : 0;

	if (c < 0x20 || c == 0x7F || c == '\\')
		return true;
	return c >= 0x80 && (!plain || (before == 0xC2 && c <= 0x9F));
}

static void print_path(const char *path, size_t length, bool plain, bool on_terminal)
{
	for (size_t i = 0; i < length; i++) {
		/* The first byte of a C1 goes with the second. */
		bool leads = plain && i + 1 < length && (unsigned char)path[i] == 0xC2 &&
			     is_odd(path, i + 1, plain);

		if (on_terminal && (leads || is_odd(path, i, plain)))
			printf("\\%03o", (unsigned char)path[i]);
		else
			putchar(path[i]);
	}
}

static void print_entry(const json_t *entry, const char *path, size_t length, bool on_terminal)
{
	const char *kind = cli_text(entry, "kind");

	putchar(!strcmp(kind, "added") ? 'A' : !strcmp(kind, "removed") ? 'D' : 'C');
	putchar(' ');
	print_path(path, length, json_object_get(entry, "path"), on_terminal);
	putchar('\n');
}

/* --- pages --- */

static void page_path(const struct diff *diff, char path[CLIENT_PATH_MAX])
{
	snprintf(path, CLIENT_PATH_MAX, "/v1/sandboxes/%s/changes?limit=%d%s", diff->sandbox, PAGE,
		diff->after_length ? "&after=" : "");
	cli_append_escaped(path, CLIENT_PATH_MAX, diff->after, diff->after_length);
}

/* 0 or -1: that is no page. */
static int take_page(struct diff *diff, const json_t *page)
{
	json_t *entry;
	size_t i;

	json_array_foreach(json_object_get(page, "changes"), i, entry)
	{
		diff->after_length = read_path(entry, diff->after);
		if (!diff->after_length)
			return -1;
		if (!diff->json)
			print_entry(entry, diff->after, diff->after_length, diff->on_terminal);
		else if (json_array_append(diff->all, entry))
			return -1;
	}
	diff->skipped += json_integer_value(json_object_get(page, "skipped"));
	return 0;
}

static int print_all(struct diff *diff)
{
	json_t *whole;
	int status;

	if (diff->skipped)
		cli_fail("%lld files or folders are too deep, or have too long a path, and are not listed",
			(long long)diff->skipped);
	if (!diff->json)
		return cli_finish_output();
	whole = json_pack("{s:O,s:I}", "changes", diff->all, "skipped", diff->skipped);
	status = whole ? cli_print_json(whole) : cli_fail("out of memory");
	json_decref(whole);
	return status;
}

static int print_pages(struct diff *diff)
{
	char path[CLIENT_PATH_MAX];
	struct client_error error;
	bool more = true;
	json_t *page;
	int r;

	while (more) {
		page_path(diff, path);
		if (cli_ask(diff->socket, "GET", path, NULL, &page, &error) < 0)
			return cli_fail_client(&error, diff->json);
		more = json_is_true(json_object_get(page, "more"));
		/* A daemon that has more and tells nothing would have us ask for ever. */
		more = more && json_array_size(json_object_get(page, "changes"));
		r = take_page(diff, page);
		json_decref(page);
		if (r)
			return cli_fail("the daemon's answer makes no sense, or there is no memory for it");
	}
	return print_all(diff);
}

int cmd_diff(int argc, char **argv)
{
	enum { JSON = CMD_COMMAND_OWN, COUNT };
	static const struct cli_option options[COUNT] = {CMD_COMMAND_OPTIONS, [JSON] = {.name = "json"}};
	struct cmd_command_operands operands;
	struct diff diff = {.on_terminal = isatty(STDOUT_FILENO)};
	int status = cmd_command_parse_sandbox(&operands, options, COUNT, argc, argv);

	if (status == 1) {
		fputs(diff_usage, stdout);
		return cli_finish_output();
	}
	if (status)
		return status;
	diff.sandbox = operands.sandbox;
	diff.socket = operands.values[CMD_COMMAND_SOCKET];
	diff.json = operands.given[JSON];
	diff.all = json_array();
	status = print_pages(&diff);
	json_decref(diff.all);
	return status;
}
