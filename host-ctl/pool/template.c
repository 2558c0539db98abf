/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/template.h"
#include "common/io.h"
#include "common/parse.h"
#include "common/version.h"
#include "host-ctl/support/file_copy.h"
#include "host-ctl/support/input_file.h"
#include "host-ctl/support/worker.h"
#include "host-ctl/vm/footprint.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GENERATION_BYTES = 8, BLOCK = 512 /* of st_blocks, and a sector of an image */, FAULT_MAX = 96 };

static const char working_set[] = "working-set";

bool template_name_is_valid(const char *name)
{
	static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	static const char others[] = "abcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t length = strlen(name);

	return length > 0 && length < TEMPLATE_NAME_MAX && strchr(first, name[0]) &&
	       strspn(name, others) == length;
}

int template_name_check(const char *name, const char *what, struct error *error)
{
	size_t length = strlen(name);

	if (!length)
		return error_set(error, ERROR_INVALID, "%s is empty: give the name of a template", what);
	if (length >= TEMPLATE_NAME_MAX)
		return error_set(error, ERROR_INVALID,
			"%s is %zu bytes long, and the name of a template at most %d", what, length,
			TEMPLATE_NAME_MAX - 1);
	if (!template_name_is_valid(name))
		return error_set(error, ERROR_INVALID,
			"%s is not the name of a template: it has a-z, 0-9, '.', '_' and '-', a letter or "
			"digit "
			"first, not '%s'",
			what, name);
	return 0;
}

int template_name_read(json_t *body, const char *field, const char **name, struct error *error)
{
	json_t *value = json_object_get(body, field);

	*name = json_string_value(value);
	if (!value)
		return error_set(error, ERROR_INVALID, "%s is missing: give the name of a template", field);
	if (!*name)
		return error_set(
			error, ERROR_INVALID, "%s is not a string: give the name of a template", field);
	return template_name_check(*name, field, error);
}

int template_memory_read(const json_t *body, const char *field, uint64_t *bytes, struct error *error)
{
	const json_t *value = json_object_get(body, field);
	const char *text = json_string_value(value);

	if (!value || (text && !parse_size(text, TEMPLATE_MEMORY_MIN, TEMPLATE_MEMORY_MAX, bytes) &&
			      *bytes % TEMPLATE_MEMORY_UNIT == 0))
		return 0;
	return error_set(
		error, ERROR_INVALID, "%s is not a size from 32M to 511G in whole MiB, as a string", field);
}

struct template *template_take(struct template *template)
{
	template->references++;
	return template;
}

void template_drop(struct template *template)
{
	if (!template || --template->references)
		return;
	worker_close((const int[]){template->state, template->memory, template->disk}, 3);
	fd_close(&template->image);
	fd_close(&template->working_set);
	json_decref(template->about);
	free(template);
}

json_t *template_new_generation(void)
{
	unsigned char random[GENERATION_BYTES];
	char text[2 * GENERATION_BYTES + 1];

	if (getrandom(random, sizeof random, 0) != sizeof random)
		return NULL;
	for (size_t i = 0; i < sizeof random; i++)
		snprintf(text + 2 * i, 3, "%02x", random[i]);
	return json_string(text);
}

/* --- loading --- */

uint64_t template_loaded_bytes(int folder)
{
	static const char *const names[] = {"state", "memory", working_set};
	struct stat status;
	uint64_t bytes = 0;

	/* The holes take nothing. */
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (fstatat(folder, names[i], &status, AT_SYMLINK_NOFOLLOW) == 0)
			bytes += (uint64_t)status.st_blocks * BLOCK;
	return bytes;
}

/* What the loading of one file has come to. */
struct loading {
	struct template *template;
	int folder;
	char fault[FAULT_MAX]; /* empty, or what is wrong with the file, of which its errno tells less */
};

static int note_kind(struct loading *loading, const char *kind)
{
	snprintf(loading->fault, sizeof loading->fault, "it is %s", kind);
	return -EINVAL;
}

static int note_size(struct loading *loading, const struct stat *status, uint64_t bytes)
{
	snprintf(loading->fault, sizeof loading->fault, "it has %llu bytes, not %llu",
		(unsigned long long)status->st_size, (unsigned long long)bytes);
	return -EINVAL;
}

/* bytes: what it must have; 0: any number. */
static int load_file(struct loading *loading, const char *name, uint64_t bytes, int *memory)
{
	struct stat status;
	const char *kind;
	int from = input_file_open(loading->folder, name, O_NOFOLLOW, INPUT_FILE, &status, &kind), r;

	if (from < 0)
		return kind ? note_kind(loading, kind) : from;
	if (bytes && (uint64_t)status.st_size != bytes) {
		fd_close(&from);
		return note_size(loading, &status, bytes);
	}
	*memory = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	r = *memory < 0 ? -errno : file_copy(from, *memory, NULL);
	/* Nobody else may open it by way of /proc. */
	if (!r && fchmod(*memory, 0400) < 0)
		r = -errno;
	fd_close(&from);
	return r;
}

static int load_optional(struct loading *loading, const char *name, int *memory)
{
	int r = load_file(loading, name, 0, memory);

	return r == -ENOENT ? 0 : r;
}

bool template_is_image(const json_t *image, const struct stat *status)
{
	return json_integer_value(json_object_get(image, "bytes")) == (json_int_t)status->st_size &&
	       json_integer_value(json_object_get(image, "changed_ns")) ==
		       (json_int_t)input_file_changed_ns(status);
}

/* What the guest has in its memory of the image must still be true of it. */
static int open_image(struct loading *loading, const char *path)
{
	struct template *template = loading->template;
	const json_t *was = json_object_get(json_object_get(template->about, "inputs"), "image");
	struct stat status;
	const char *kind;

	template->image = input_file_open(AT_FDCWD, path ? path : "", 0, INPUT_IMAGE, &status, &kind);
	if (template->image < 0)
		return kind ? note_kind(loading, kind) : template->image;
	if (!template_is_image(was, &status)) {
		snprintf(loading->fault, sizeof loading->fault, "it has changed since");
		return -ESTALE;
	}
	return 0;
}

/* What the guest has in its memory of the disk must be true of it too: nobody writes to it. */
static int open_disk(struct loading *loading, uint64_t bytes)
{
	struct stat status;
	const char *kind;
	int fd = input_file_open(loading->folder, TEMPLATE_DISK, O_NOFOLLOW, INPUT_FILE, &status, &kind);

	if (fd < 0)
		return kind ? note_kind(loading, kind) : fd;
	loading->template->disk = fd;
	return (uint64_t)status.st_size == bytes ? 0 : note_size(loading, &status, bytes);
}

static void set_disk(struct template *template, uint64_t bytes)
{
	snprintf(template->disk_path, TEMPLATE_FD_PATH, "/proc/self/fd/%d", template->disk);
	snprintf(
		template->disk_name, sizeof template->disk_name, "(the disk of template %s)", template->name);
	template->source.disk = (struct vm_file){template->disk_path, template->disk_name};
	template->source.disk_bytes = bytes;
}

static void set_working_set(struct template *template)
{
	snprintf(template->working_set_path, TEMPLATE_FD_PATH, "/proc/self/fd/%d", template->working_set);
	snprintf(template->working_set_name, sizeof template->working_set_name,
		"(the working set of template %s)", template->name);
	template->source.working_set =
		(struct vm_file){template->working_set_path, template->working_set_name};
}

static void set_source(struct template *template, unsigned int rehearsals, const char *image)
{
	json_t *inputs = json_object_get(template->about, "inputs"), *cid = json_object_get(inputs, "cid");

	snprintf(template->state_path, TEMPLATE_FD_PATH, "/proc/self/fd/%d", template->state);
	snprintf(template->memory_path, TEMPLATE_FD_PATH, "/proc/self/fd/%d", template->memory);
	snprintf(template->image_path, TEMPLATE_FD_PATH, "/proc/self/fd/%d", template->image);
	snprintf(template->state_name, sizeof template->state_name, "(the state of template %s)",
		template->name);
	snprintf(template->memory_name, sizeof template->memory_name, "(the memory of template %s)",
		template->name);
	template->source = (struct vm_source){.image = {template->image_path, image},
		.state = {template->state_path, template->state_name},
		.memory = {template->memory_path, template->memory_name},
		.memory_bytes = (uint64_t)json_integer_value(json_object_get(inputs, "memory_bytes")),
		.cpus = (unsigned int)json_integer_value(json_object_get(inputs, "cpus")),
		.cid = cid ? (uint32_t)json_integer_value(cid) : TEMPLATE_CID,
		.rehearsals = rehearsals,
		.notes = json_object_get(template->about, TEMPLATE_SNAPSHOT) != NULL};
	if (template->working_set >= 0)
		set_working_set(template);
	if (template->disk >= 0)
		set_disk(template, (uint64_t)json_integer_value(json_object_get(inputs, "disk_bytes")));
}

/* 0, or -errno with *step, which file it was. */
static int load_files(struct loading *loading, const char *image, const char **step)
{
	struct template *template = loading->template;
	const json_t *inputs = json_object_get(template->about, "inputs");
	uint64_t bytes = (uint64_t)json_integer_value(json_object_get(inputs, "memory_bytes"));
	uint64_t disk_bytes = (uint64_t)json_integer_value(json_object_get(inputs, "disk_bytes"));
	int r;

	*step = "state";
	r = load_file(loading, "state", 0, &template->state);
	if (!r && (*step = "memory"))
		r = load_file(loading, "memory", bytes, &template->memory);
	if (!r && (*step = "working set"))
		r = load_optional(loading, working_set, &template->working_set);
	if (!r && (*step = "image"))
		r = open_image(loading, image);
	if (!r && disk_bytes && (*step = "disk"))
		r = open_disk(loading, disk_bytes);
	return r;
}

int template_load(int folder, const char *name, json_t *about, unsigned int rehearsals, struct template **out,
	struct error *error)
{
	struct template *template = calloc(1, sizeof *template);
	struct loading loading = {.template = template, .folder = folder};
	const char *image = json_string_value(
		json_object_get(json_object_get(json_object_get(about, "inputs"), "image"), "path"));
	const char *step;
	int r;

	if (!template) {
		json_decref(about);
		error_set(error, ERROR_INTERNAL, "out of memory for template %s", name);
		return -ENOMEM;
	}
	*template = (struct template){.references = 1,
		.about = about,
		.state = -1,
		.memory = -1,
		.image = -1,
		.working_set = -1,
		.disk = -1};
	snprintf(template->name, sizeof template->name, "%s", name);
	r = load_files(&loading, image, &step);
	if (r) {
		error_set(error,
			r == -ENOMEM || r == -EMFILE || r == -ENFILE ? ERROR_INTERNAL : ERROR_BUILD_FAILED,
			"cannot load the %s of template %s: %s%s", step, name,
			loading.fault[0] ? loading.fault : strerror(-r),
			loading.fault[0] ? ": build the template again" : "");
		template_drop(template);
		return r;
	}
	set_source(template, rehearsals, image);
	*out = template;
	return 0;
}

int template_seal(struct template *template)
{
	const int seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

	if (fcntl(template->state, F_ADD_SEALS, seals) < 0 || fcntl(template->memory, F_ADD_SEALS, seals) < 0)
		return -errno;
	return template->working_set >= 0 && fcntl(template->working_set, F_ADD_SEALS, seals) < 0 ? -errno
												  : 0;
}

/* --- recording --- */

static int write_copy(int folder, const struct working_set *set)
{
	int fd = openat(folder, working_set, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600), r;

	if (fd < 0)
		return -errno;
	r = working_set_write(fd, set);
	if (r)
		unlinkat(folder, working_set, 0);
	fd_close(&fd);
	return r;
}

static json_t *describe(const struct working_set *set)
{
	return json_pack("{s:I,s:I,s:i}", "written_pages", (json_int_t)set->kinds[WORKING_SET_WRITTEN].pages,
		"read_pages", (json_int_t)set->kinds[WORKING_SET_READ].pages, "runs",
		(int)(set->kinds[WORKING_SET_WRITTEN].count + set->kinds[WORKING_SET_READ].count));
}

int template_record(struct template *template, pid_t pid, int folder)
{
	struct working_set *set = malloc(sizeof *set);
	int fd = -1, r = set ? footprint_record(pid, template->memory, set) : -ENOMEM;

	if (!r)
		fd = memfd_create(working_set, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (!r && (fd < 0 || fchmod(fd, 0400) < 0))
		r = -errno;
	if (!r)
		r = working_set_write(fd, set);
	if (!r && folder >= 0)
		r = write_copy(folder, set);
	if (!r) {
		json_object_set_new(template->about, "working_set", describe(set));
		template->working_set = fd;
		set_working_set(template);
	} else {
		fd_close(&fd);
	}
	free(set);
	return r;
}

/* --- inputs --- */

int template_check_image(const struct stat *status, const char *path, struct error *error)
{
	const char *kind = input_file_fault(status, INPUT_IMAGE);

	if (kind)
		return error_set(error, ERROR_INVALID,
			"the image %s is %s: give a raw disk image, as a file or a block device", path, kind);
	if (S_ISREG(status->st_mode) && status->st_size == 0)
		return error_set(error, ERROR_INVALID, "the image %s is empty: give a raw disk image", path);
	if (S_ISREG(status->st_mode) && status->st_size % BLOCK)
		return error_set(error, ERROR_INVALID,
			"the image %s has %lld bytes, not a multiple of %d: pad it to whole sectors", path,
			(long long)status->st_size, BLOCK);
	return 0;
}

static int add_file(json_t *inputs, const char *what, const char *path, struct error *error)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return error_set(
			error, ERROR_INVALID, "the %s %s cannot be found: %s", what, path, strerror(errno));
	if (!strcmp(what, "image") && template_check_image(&status, path, error))
		return -1;
	return json_object_set_new(inputs, what,
		json_pack("{s:s,s:I,s:I}", "path", path, "bytes", (json_int_t)status.st_size, "changed_ns",
			(json_int_t)input_file_changed_ns(&status)));
}

json_t *template_inputs(const struct vm_config *config, const struct vm_source *source,
	const char *const *commands, unsigned int count, struct error *error)
{
	json_t *list = json_array(), *inputs;
	int r = 0;

	for (unsigned int i = 0; i < count; i++)
		r |= json_array_append_new(list, json_string(commands[i]));
	inputs = json_pack("{s:I,s:i,s:b,s:s,s:o}", "memory_bytes", (json_int_t)source->memory_bytes, "cpus",
		(int)source->cpus, "serial", config->serial_directory != NULL, "version", TINDERBOX_VERSION,
		"run", list);
	error_set(error, ERROR_INTERNAL, "out of memory for a template");
	if (inputs && source->disk_bytes)
		r |= json_object_set_new(inputs, "disk_bytes", json_integer((json_int_t)source->disk_bytes));
	if (inputs && !r)
		r = add_file(inputs, "vmm", config->vmm, error) ||
		    add_file(inputs, "kernel", source->kernel.path, error) ||
		    add_file(inputs, "initrd", source->initrd.path, error) ||
		    add_file(inputs, "image", source->image.path, error);
	if (!r && inputs) {
		error->kind = ERROR_NONE;
		return inputs;
	}
	json_decref(inputs);
	return NULL;
}

json_t *template_inputs_of_saved(
	const struct vm_config *config, const struct vm_source *source, json_t *image)
{
	json_t *inputs = json_pack("{s:I,s:i,s:I,s:b,s:s,s:[],s:O}", "memory_bytes",
		(json_int_t)source->memory_bytes, "cpus", (int)source->cpus, "cid", (json_int_t)source->cid,
		"serial", config->serial_directory != NULL, "version", TINDERBOX_VERSION, "run", "image",
		image);

	if (inputs && source->disk_bytes &&
		json_object_set_new(inputs, "disk_bytes", json_integer((json_int_t)source->disk_bytes))) {
		json_decref(inputs);
		inputs = NULL;
	}
	return inputs;
}
