/* SPDX-License-Identifier: Apache-2.0 */
/* The value of --trace: a file, and how far it goes. */
#include "vmm/config_options.h"
#include <errno.h>
#include <string.h>

static const char until_key[] = ",until=";

/* What follows the last ",until=", if that is the last part; else the path has it. */
static int take_until(struct config_trace *trace, const char *value, size_t *length, char *error)
{
	const char *comma = strrchr(value, ',');

	*length = strlen(value);
	if (comma == NULL || strncmp(comma, until_key, strlen(until_key)) != 0)
		return 0;
	*length = (size_t)(comma - value);
	comma += strlen(until_key);
	trace->until_hello = strcmp(comma, "hello") == 0;
	if (!trace->until_hello && strcmp(comma, "end") != 0)
		return config_refuse(
			error, "--trace: until=" CONFIG_SHOWN " is not known; choose hello or end", comma);
	return 0;
}

int config_take_trace(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	struct config_trace *trace = &config->trace;
	size_t length;

	trace->wanted = true;
	if (take_until(trace, value, &length, error) < 0)
		return -EINVAL;
	if (length == 0)
		return config_refuse(error, "--trace: the file is missing; write --trace %s", option->value);
	if (length >= CONFIG_TRACE_MAX)
		return config_refuse(error,
			"--trace: a path of %zu bytes is too long; give one of at most %d", length,
			CONFIG_TRACE_MAX - 1);
	memcpy(trace->file, value, length);
	if (config_file_number(trace->file) == -EINVAL)
		return config_refuse(error,
			"--trace: " CONFIG_SHOWN " is not a file descriptor; write fd: and its number",
			trace->file);
	return 0;
}
