/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/options.h"
#include <stdio.h>
#include <string.h>

static const char prefix[] = "tinderbox.";

static void set_value(char value[OPTIONS_VALUE_MAX], const char *word, const char *text, size_t length,
	const char *keyword, struct warnings *warnings)
{
	if (length >= OPTIONS_VALUE_MAX ||
		(text[0] != '/' && (length != strlen(keyword) || memcmp(text, keyword, length) != 0))) {
		warnings_add(warnings, "command line: %.64s: neither a device nor %s", word, keyword);
		return;
	}
	memcpy(value, text, length);
	value[length] = '\0';
}

static void parse_word(const char *word, size_t length, struct options *options, struct warnings *warnings)
{
	const char *text = memchr(word, '=', length);
	size_t name = text ? (size_t)(text - word) : length;
	size_t value = text ? length - name - 1 : 0;

	if (name == strlen("root") && memcmp(word, "root", name) == 0 && text)
		set_value(options->root, "tinderbox.root", text + 1, value, "none", warnings);
	else if (name == strlen("upper") && memcmp(word, "upper", name) == 0 && text)
		set_value(options->upper, "tinderbox.upper", text + 1, value, "tmpfs", warnings);
	else
		warnings_add(warnings, "command line: unknown option tinderbox.%.*s",
			name < 64 ? (int)name : 64, word);
}

void options_parse(const char *cmdline, struct options *options, struct warnings *warnings)
{
	*options = (struct options){.root = "/dev/vda", .upper = "tmpfs"};
	while (*cmdline) {
		size_t length = strcspn(cmdline, " \n");

		if (length > strlen(prefix) && strncmp(cmdline, prefix, strlen(prefix)) == 0)
			parse_word(cmdline + strlen(prefix), length - strlen(prefix), options, warnings);
		cmdline += length + strspn(cmdline + length, " \n");
	}
}
