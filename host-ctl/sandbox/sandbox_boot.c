/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_boot.h"
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_files.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/support/json_file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sandbox_boot {
	struct pool_source made; /* the first, so that a cast is the way from it */
	char size[24], upper[PATH_MAX], lower[PATH_MAX], image[PATH_MAX];
};

static void destroy(struct pool_source *source)
{
	free((struct sandbox_boot *)source);
}

static bool is_within(json_int_t number, uint64_t minimum, uint64_t maximum)
{
	return number > 0 && (uint64_t)number >= minimum && (uint64_t)number <= maximum;
}

/* NULL with *error set. */
static json_t *read_description(const char *state_directory, const char *id, struct error *error)
{
	int folder = sandbox_saved_open(state_directory, id);
	const char *kind = NULL, *fault = "it cannot be read";
	char path[PATH_MAX];
	json_t *about =
		folder < 0 ? NULL : json_file_read(folder, SANDBOX_FILES_BOOT, SANDBOX_SAVED_JSON_MAX, &kind);

	sandbox_files_path(state_directory, id, SANDBOX_FILES_BOOT, path, sizeof path);
	fd_close(&folder);
	if (json_integer_value(json_object_get(about, "format")) == SANDBOX_FILES_FORMAT &&
		is_within(json_integer_value(json_object_get(about, "memory_bytes")), TEMPLATE_MEMORY_MIN,
			TEMPLATE_MEMORY_MAX) &&
		is_within(json_integer_value(json_object_get(about, "disk_bytes")), TEMPLATE_DISK_MIN,
			TEMPLATE_DISK_MAX) &&
		is_within(json_integer_value(json_object_get(about, "cpus")), 1, TEMPLATE_CPUS_MAX))
		return about;
	if (about)
		fault = "it is another's, or damaged";
	error_set(error, ERROR_INTERNAL, "what sandbox %s is booted with, %.400s, cannot be used: %s%s", id,
		path, kind ? "it is " : "", kind ? kind : fault);
	json_decref(about);
	return NULL;
}

/* Its guest's files lie upon it. */
static int find_image(struct sandbox_boot *boot, const char *state_directory, const char *id,
	const json_t *about, struct error *error)
{
	const json_t *image = json_object_get(about, "image");
	const char *path = json_string_value(json_object_get(image, "path"));
	const char *fault = NULL;
	struct stat status;
	bool is_own;

	sandbox_files_path(state_directory, id, SANDBOX_FILES_IMAGE, boot->image, sizeof boot->image);
	is_own = access(boot->image, F_OK) == 0;
	if (!is_own)
		snprintf(boot->image, sizeof boot->image, "%s", path ? path : "");
	if (stat(boot->image, &status) < 0)
		fault = strerror(errno);
	else if (!(is_own ? sandbox_saved_is_own_image(image, boot->image, &status)
			  : sandbox_saved_is_image(image, &status)))
		fault = "it has changed since";
	if (!fault)
		return 0;
	return error_set(error, ERROR_CONFLICT,
		"the files of sandbox %s lie upon the image %.300s: %s: put it back as it was; or stop the "
		"sandbox with \"discard_files\": true, and it starts without them",
		id, boot->image, fault);
}

static void set_source(struct sandbox_boot *boot, const char *state_directory, const char *id,
	const json_t *about, const struct templates *templates)
{
	const uint64_t bytes = (uint64_t)json_integer_value(json_object_get(about, "memory_bytes"));

	sandbox_files_path(state_directory, id, SANDBOX_FILES_UPPER, boot->upper, sizeof boot->upper);
	sandbox_files_path(state_directory, id, SANDBOX_FILES_LOWER, boot->lower, sizeof boot->lower);
	snprintf(boot->size, sizeof boot->size, "%lluM", (unsigned long long)(bytes >> 20));
	boot->made.source = (struct vm_source){.image = {boot->image, boot->image},
		.disk = {boot->lower, boot->lower},
		.upper = {boot->upper, boot->upper},
		.size = boot->size,
		.memory_bytes = bytes,
		.disk_bytes = (uint64_t)json_integer_value(json_object_get(about, "disk_bytes")),
		.cpus = (unsigned int)json_integer_value(json_object_get(about, "cpus"))};
	templates_set_boot(templates, &boot->made.source);
}

struct pool_source *sandbox_boot_source(
	const char *state_directory, const char *id, const struct templates *templates, struct error *error)
{
	struct sandbox_boot *boot = calloc(1, sizeof *boot);
	json_t *about = NULL;

	if (!boot)
		error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	else
		about = read_description(state_directory, id, error);
	if (about && find_image(boot, state_directory, id, about, error)) {
		json_decref(about);
		about = NULL;
	}
	if (!about) {
		free(boot);
		return NULL;
	}
	set_source(boot, state_directory, id, about, templates);
	json_decref(about);
	boot->made.references = 1;
	boot->made.destroy = destroy;
	return &boot->made;
}
