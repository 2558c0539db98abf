/* SPDX-License-Identifier: Apache-2.0 */
/* The value of --restore, and the options that it leaves no room for. */
#include "vmm/config_options.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static const char memory_key[] = ",memory=", pages_key[] = ",pages=", working_set_key[] = ",working-set=";

/* One file of the value: length bytes at text. */
static int take_part(char part[PATH_MAX], const char *text, size_t length, char *error)
{
	if (length == 0)
		return config_refuse(error, "--restore: a file is missing; write DIR or STATE,memory=MEMORY");
	if (length >= PATH_MAX)
		return config_refuse(error,
			"--restore: a path of %zu bytes is too long; give one of at most %d", length,
			PATH_MAX - 1);
	memcpy(part, text, length);
	part[length] = '\0';
	if (config_file_number(part) == -EINVAL)
		return config_refuse(error,
			"--restore: " CONFIG_SHOWN " is not a file descriptor; write fd: and its number",
			part);
	return 0;
}

static int take_folder(struct config_restore *restore, const char *folder, char *error)
{
	int state = snprintf(restore->state, sizeof(restore->state), "%s/state", folder);
	int memory = snprintf(restore->memory, sizeof(restore->memory), "%s/memory", folder);

	if (config_file_number(folder) != -ENOENT)
		return config_refuse(error,
			"--restore " CONFIG_SHOWN ": a folder can't be handed over; write fd:N,memory=fd:M",
			folder);
	if (strchr(folder, ',') != NULL)
		return config_refuse(error,
			"--restore " CONFIG_SHOWN
			": only ,memory= may follow; write DIR or STATE,memory=MEMORY",
			folder);
	if (state >= PATH_MAX || memory >= PATH_MAX)
		return config_refuse(error,
			"--restore: a path of %zu bytes is too long; give one of at most %zu", strlen(folder),
			PATH_MAX - sizeof("/memory"));
	return 0;
}

/* The file behind a key that `text` may have, which is cut off from *length. Without the key: as it was. */
static int take_key(char part[PATH_MAX], const char *text, size_t *length, const char *key, char *error)
{
	const char *found = strstr(text, key), *file;
	size_t rest;

	if (found == NULL || found >= text + *length)
		return 0;
	file = found + strlen(key);
	rest = (size_t)(text + *length - file);
	*length = (size_t)(found - text);
	return take_part(part, file, rest, error);
}

int config_take_restore(
	const struct config_option *option, struct config *config, const char *value, char *error)
{
	struct config_restore *restore = &config->restore;
	const char *key = strstr(value, memory_key), *memory;
	size_t length;

	(void)option;
	restore->wanted = true;
	if (key == NULL)
		return take_folder(restore, value, error);
	memory = key + strlen(memory_key);
	length = strlen(memory);
	/* From the last to the first. */
	if (take_key(restore->working_set, memory, &length, working_set_key, error) < 0 ||
		take_key(restore->pages, memory, &length, pages_key, error) < 0 ||
		take_part(restore->state, value, (size_t)(key - value), error) < 0)
		return -EINVAL;
	return take_part(restore->memory, memory, length, error);
}

int config_check_restore(struct config *config, const unsigned *counts, char *error)
{
	static const char *const names[] = {"kernel", "initrd", "cmdline", "boot"};

	if (!config->restore.wanted)
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (config_was_given(names[i], counts))
			return config_refuse(error,
				"--%s does not go with --restore, whose guest has booted already; leave it "
				"out",
				names[i]);
	if (config->balloon_target != 0)
		return config_refuse(error, "--balloon takes no size with --restore, whose balloon stays "
					    "where it was; leave it out");
	if (!config_was_given("mem", counts))
		config->memory = 0;
	if (!config_was_given("cpus", counts))
		config->cpus = 0;
	return 0;
}

/* From then on it is as if --restore had been given, but for the files. */
int config_check_standby(struct config *config, const unsigned *counts, char *error)
{
	static const char *const names[] = {"kernel", "restore", "initrd", "cmdline", "boot", "disk", "net",
		"vsock", "vsock-cid", "mem", "cpus", "balloon"};

	if (!config->standby)
		return 0;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (config_was_given(names[i], counts))
			return config_refuse(error,
				"--%s does not go with --standby, which is told later what to be; leave it "
				"out",
				names[i]);
	if (config->control == NULL)
		return config_refuse(
			error, "--standby: nobody could tell what to restore; add --control PATH");
	config->restore.wanted = true;
	return 0;
}
