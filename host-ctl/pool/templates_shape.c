/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a VM is booted from that is to have another shape than its template: that one's image and, if it has
 * one, its disk, each held open, so that whatever becomes of their names does not touch the VM. What is in
 * the template's memory is of one size and one number of processors, and is not had.
 */
#include "common/io.h"
#include "host-ctl/pool/templates_private.h"
#include "host-ctl/support/input_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct shaped {
	struct pool_source made; /* the first, so that a cast is the way from it */
	int image, disk;
	char size[24], image_path[TEMPLATE_FD_PATH], disk_path[TEMPLATE_FD_PATH];
	char image_name[PATH_MAX], disk_name[TEMPLATE_NAME_MAX + 32];
};

static void destroy(struct pool_source *source)
{
	struct shaped *shaped = (struct shaped *)source;

	fd_close(&shaped->image);
	fd_close(&shaped->disk);
	free(shaped);
}

static uint64_t number(const json_t *inputs, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(inputs, name));
}

/* Its lines, or what ran when it was saved, may have left something in its memory alone. */
static int check_boots(const json_t *about, const char *name, struct error *error)
{
	const json_t *boots = json_object_get(about, TEMPLATE_BOOTS);

	if (json_is_true(boots))
		return 0;
	if (!boots && !json_object_get(about, TEMPLATE_SNAPSHOT))
		return error_set(error, ERROR_CONFLICT,
			"template %s is of a daemon that did not note whether its VMs can be booted, as "
			"one of another mem or cpus has to be: build it again",
			name);
	return error_set(error, ERROR_CONFLICT,
		"template %s has what was prepared in its memory, which has one mem and one number of cpus: "
		"build a template of those that are wanted, or one with a disk, which may have any",
		name);
}

/* status: of an open, or what is wrong besides; kind: that it is no such file, or NULL. Returns -1. */
static int refuse_file(const char *what, const char *name, int status, const char *kind, struct error *error)
{
	const bool ours = status == -ENOMEM || status == -EMFILE || status == -ENFILE;

	return error_set(error, ours ? ERROR_INTERNAL : ERROR_BUILD_FAILED,
		"cannot load the %s of template %s: %s%s%s", what, name, kind ? "it is " : "",
		status == -ESTALE ? "it has changed since"
		: kind		  ? kind
				  : strerror(-status),
		ours ? "" : ": build the template again");
}

/* was: as inputs.image has it; NULL: whatever it is. */
static int open_image(
	struct shaped *shaped, const char *name, const json_t *was, const char *path, struct error *error)
{
	const char *kind = NULL;
	struct stat status;

	shaped->image = input_file_open(AT_FDCWD, path, 0, INPUT_IMAGE, &status, &kind);
	if (shaped->image < 0)
		return refuse_file("image", name, shaped->image, kind, error);
	if (was && !template_is_image(was, &status))
		return refuse_file("image", name, -ESTALE, NULL, error);
	snprintf(shaped->image_path, sizeof shaped->image_path, "/proc/self/fd/%d", shaped->image);
	snprintf(shaped->image_name, sizeof shaped->image_name, "%s", path);
	shaped->made.source.image = (struct vm_file){shaped->image_path, shaped->image_name};
	return 0;
}

/* Without one: nothing. */
static int open_disk(
	struct shaped *shaped, const json_t *inputs, int folder, const char *name, struct error *error)
{
	struct vm_source *source = &shaped->made.source;
	const uint64_t bytes = number(inputs, "disk_bytes");
	const char *kind = NULL;
	struct stat status;

	if (!bytes)
		return 0;
	shaped->disk = input_file_open(folder, TEMPLATE_DISK, O_NOFOLLOW, INPUT_FILE, &status, &kind);
	if (shaped->disk < 0)
		return refuse_file("disk", name, shaped->disk, kind, error);
	if ((uint64_t)status.st_size != bytes)
		return refuse_file("disk", name, -ESTALE, NULL, error);
	snprintf(shaped->disk_path, sizeof shaped->disk_path, "/proc/self/fd/%d", shaped->disk);
	snprintf(shaped->disk_name, sizeof shaped->disk_name, "(the disk of template %s)", name);
	source->disk = (struct vm_file){shaped->disk_path, shaped->disk_name};
	source->disk_bytes = bytes;
	source->new_upper = true;
	return 0;
}

/* What base is, or would be, made of. */
static int take_base(struct shaped *shaped, const struct templates *templates, struct error *error)
{
	return open_image(shaped, TEMPLATE_BASE, NULL, templates->config.source.image.path, error);
}

static int take_stored(
	struct shaped *shaped, const struct templates *templates, const char *name, struct error *error)
{
	const json_t *inputs, *image;
	json_t *about = NULL;
	int folder = -1, status;

	if (template_store_read(&templates->store, name, &folder, &about, error))
		return -1;
	inputs = json_object_get(about, "inputs");
	image = json_object_get(inputs, "image");
	status = check_boots(about, name, error);
	if (!status)
		status = open_image(
			shaped, name, image, json_string_value(json_object_get(image, "path")), error);
	if (!status)
		status = open_disk(shaped, inputs, folder, name, error);
	fd_close(&folder);
	json_decref(about);
	return status;
}

/* What it has of itself: 0, or -1 with *error set, as of check_loadable. */
static int read_shape(const struct templates *templates, const char *name, struct templates_shape *shape,
	struct error *error)
{
	const struct vm_source *base = &templates->config.source;
	json_t *about = NULL;
	int folder = -1;

	if (!strcmp(name, TEMPLATE_BASE)) {
		*shape = (struct templates_shape){base->memory_bytes, base->cpus};
		return 0;
	}
	if (templates->store.folder < 0)
		return error_set(error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	if (template_store_read(&templates->store, name, &folder, &about, error))
		return -1;
	shape->memory_bytes = number(json_object_get(about, "inputs"), "memory_bytes");
	shape->cpus = (unsigned int)number(json_object_get(about, "inputs"), "cpus");
	fd_close(&folder);
	json_decref(about);
	return 0;
}

/* A kernel for so many processors may not be there. */
static int check_inputs(
	const struct templates *templates, const struct vm_source *source, struct error *error)
{
	json_t *inputs = template_inputs(&templates->config.vm, source, NULL, 0, error);

	json_decref(inputs);
	return inputs ? 0 : -1;
}

static int fill(struct shaped *shaped, const struct templates *templates, const char *name,
	const struct templates_shape *shape, struct error *error)
{
	struct vm_source *source = &shaped->made.source;

	*shaped = (struct shaped){.made = {.references = 1, .destroy = destroy}, .image = -1, .disk = -1};
	source->memory_bytes = shape->memory_bytes;
	source->cpus = shape->cpus;
	snprintf(shaped->size, sizeof shaped->size, "%lluM", (unsigned long long)(shape->memory_bytes >> 20));
	source->size = shaped->size;
	templates_set_boot(templates, source);
	if (strcmp(name, TEMPLATE_BASE) ? take_stored(shaped, templates, name, error)
					: take_base(shaped, templates, error))
		return -1;
	return check_inputs(templates, source, error);
}

int templates_shape_source(const struct templates *templates, const char *name,
	const struct templates_shape *wanted, struct pool_source **source, struct error *error)
{
	struct templates_shape own = {0}, shape = *wanted;
	struct shaped *shaped;

	*source = NULL;
	if (read_shape(templates, name, &own, error))
		return -1;
	shape.memory_bytes = shape.memory_bytes ? shape.memory_bytes : own.memory_bytes;
	shape.cpus = shape.cpus ? shape.cpus : own.cpus;
	if (shape.memory_bytes == own.memory_bytes && shape.cpus == own.cpus)
		return 0;
	if (templates_check_memory(shape.memory_bytes, error))
		return -1;
	shaped = malloc(sizeof *shaped);
	if (!shaped)
		return error_set(error, ERROR_INTERNAL, "out of memory for the VM");
	if (fill(shaped, templates, name, &shape, error)) {
		destroy(&shaped->made);
		return -1;
	}
	*source = &shaped->made;
	return 0;
}
