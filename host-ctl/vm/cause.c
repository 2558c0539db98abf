/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/cause.h"
#include "common/io.h"
#include "host-ctl/support/input_file.h"
#include "host-ctl/support/tail.h"
#include "host-ctl/support/text.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How log lines of the vmm begin. */
#define NAME "vmm: "
static const char *const starts[] = {NAME "error: ", NAME "warning: ", NAME "info: "};
enum { STARTS = sizeof starts / sizeof starts[0], CONSOLE_WORDS_MAX = 256 };

/* Whether text, of `length` bytes, ends so. */
static bool ends_with(const char *text, size_t length, const char *end)
{
	size_t wanted = strlen(end);

	return length >= wanted && !memcmp(text + length - wanted, end, wanted);
}

static void drop_repeated(char *words, const char *reason)
{
	size_t length = strlen(words);

	if (!reason[0] || !ends_with(words, length, reason))
		return;
	length -= strlen(reason);
	for (int i = 0; i < STARTS; i++) {
		size_t before = length - strlen(starts[i]);

		if (!ends_with(words, length, starts[i]))
			continue;
		if (before == 0)
			words[0] = '\0';
		else if (ends_with(words, before, "; "))
			words[before - 2] = '\0';
		return;
	}
}

void cause_set_end(char *cause, size_t size, const char *end, const char *reason)
{
	bool told = !strncmp(reason, end, strlen(end));

	snprintf(cause, size, "%s%s%s", told ? "" : end, told || !reason[0] ? "" : ": ", reason);
}

void cause_add_words(char *cause, size_t size, char *words, const char *reason)
{
	size_t length = strlen(cause);

	drop_repeated(words, reason);
	if (!words[0])
		return;
	if (strncmp(words, NAME, strlen(NAME)) == 0)
		words += strlen(NAME);
	snprintf(cause + length, size - length, " (" NAME "%s)", words);
}

/* Its last lines. What another put in its place is no log. */
static void read_console(const char *path, char *words, size_t size)
{
	const char *fault;
	struct stat status;
	struct tail tail = {.length = 0};
	int fd = input_file_open(AT_FDCWD, path, O_NOFOLLOW, INPUT_FILE, &status, &fault);
	ssize_t length = -1;

	if (fd >= 0)
		length = pread(fd, tail.bytes, TAIL_BYTES,
			status.st_size > TAIL_BYTES ? status.st_size - TAIL_BYTES : 0);
	fd_close(&fd);
	tail.length = length > 0 ? (size_t)length : 0;
	tail_format(&tail, words, size);
}

void cause_add_console(char *cause, size_t size, const char *path)
{
	char words[CONSOLE_WORDS_MAX] = "";
	size_t length = strlen(cause);

	if (path)
		read_console(path, words, sizeof words);
	if (!path)
		snprintf(cause + length, size - length,
			" (is --initrd one with guest-init? `serve --serial-dir DIR` keeps what the guest "
			"said)");
	else
		snprintf(cause + length, size - length, " (%s%s: see %s)",
			words[0] ? "the guest said last: " : "the guest said nothing", words, path);
}

/* The name that the text begins with as fd:N, with *used its length; or NULL. */
static const char *find_name(
	const char *text, unsigned int first, const char *const *names, unsigned int count, size_t *used)
{
	unsigned long number;
	char *end;

	if (strncmp(text, "fd:", 3) != 0 || text[3] < '0' || text[3] > '9')
		return NULL;
	number = strtoul(text + 3, &end, 10);
	*used = (size_t)(end - text);
	return number >= first && number - first < count ? names[number - first] : NULL;
}

void cause_name_files(
	char *text, size_t size, unsigned int first, const char *const *names, unsigned int count)
{
	char *copy = strdup(text);
	size_t at = 0, used;

	/* Without memory the numbers stay. */
	for (const char *from = copy; from && *from && at < size - 1; from += used) {
		const char *name = find_name(from, first, names, count, &used);

		used = name ? used : 1;
		at += (size_t)snprintf(
			text + at, size - at, "%.*s", name ? (int)strlen(name) : 1, name ? name : from);
	}
	free(copy);
	text_make_printable(text);
}
