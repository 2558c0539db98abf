/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_saved.h"
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_files.h"
#include "host-ctl/support/input_file.h"
#include "host-ctl/support/json_file.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/support/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_BYTES = 8, SUM_AT = 32, SUM_DIGITS = VMM_RESTORE_SUM_DIGITS, NS_PER_S = 1000000000 };

/* A source, with the texts that it needs. */
struct restored {
	struct pool_source made;   /* the first, so that a cast is the way from it */
	struct template *template; /* whose memory it lies upon; NULL: a file of its own */
	char memory_sum[SUM_DIGITS + 1];
	char state[PATH_MAX], pages[PATH_MAX], memory[PATH_MAX], image[PATH_MAX], upper[PATH_MAX],
		lower[PATH_MAX];
};

int sandbox_saved_sum(int state, uint64_t *sum)
{
	static const char magic[] = "TNDXSNAP";
	char start[SUM_AT + sizeof *sum];

	if (io_pread_full(state, start, sizeof start, 0) != sizeof start ||
		memcmp(start, magic, MAGIC_BYTES) != 0)
		return -EBADMSG;
	/* Of this host's vmm, and it is little-endian. */
	memcpy(sum, start + SUM_AT, sizeof *sum);
	return 0;
}

json_t *sandbox_saved_describe(const struct vm *vm)
{
	const struct vm_source *source = vm->source;
	struct stat image = {0};

	/* One that is gone is found out when it is wanted. */
	if (stat(source->image.path, &image) < 0)
		image.st_size = 0;
	return json_pack("{s:I,s:I,s:i,s:I,s:{s:s,s:I,s:I}}", "memory_bytes",
		(json_int_t)source->memory_bytes, "disk_bytes", (json_int_t)source->disk_bytes, "cpus",
		(int)source->cpus, "cid", (json_int_t)vm_cid(vm), "image", "path", source->image.name,
		"bytes", (json_int_t)image.st_size, "changed_ns", (json_int_t)input_file_changed_ns(&image));
}

static bool has_bytes(const json_t *image, const struct stat *status)
{
	return json_integer_value(json_object_get(image, "bytes")) == (json_int_t)status->st_size;
}

bool sandbox_saved_is_image(const json_t *image, const struct stat *status)
{
	return has_bytes(image, status) && json_integer_value(json_object_get(image, "changed_ns")) ==
						   (json_int_t)input_file_changed_ns(status);
}

/* Other folders may get links to it, and descriptions that tell that time. */
static bool put_time_back(const json_t *image, const char *path)
{
	const json_int_t changed_ns = json_integer_value(json_object_get(image, "changed_ns"));
	const struct timespec times[2] = {
		{.tv_nsec = UTIME_OMIT}, {.tv_sec = changed_ns / NS_PER_S, .tv_nsec = changed_ns % NS_PER_S}};

	return utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) == 0;
}

bool sandbox_saved_is_own_image(const json_t *image, const char *path, const struct stat *status)
{
	return sandbox_saved_is_image(image, status) ||
	       (status->st_nlink == 1 && has_bytes(image, status) && put_time_back(image, path));
}

static uint64_t number_of(const json_t *object, const char *field)
{
	const json_int_t number = json_integer_value(json_object_get(object, field));

	return number > 0 ? (uint64_t)number : 0;
}

uint64_t sandbox_saved_memory_bytes(const json_t *made)
{
	return number_of(made, "memory_bytes");
}

uint64_t sandbox_saved_disk_bytes(const json_t *made)
{
	return number_of(made, "disk_bytes");
}

static void make_path(const char *state_directory, const char *id, const char *name, char path[PATH_MAX])
{
	sandbox_files_path(state_directory, id, name, path, PATH_MAX);
}

int sandbox_saved_open(const char *state_directory, const char *id)
{
	char path[PATH_MAX];

	make_path(state_directory, id, "", path);
	return state_folder_open_at(AT_FDCWD, path);
}

static bool has(const char *state_directory, const char *id, const char *name)
{
	char path[PATH_MAX];

	make_path(state_directory, id, name, path);
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool sandbox_saved_is_there(const char *state_directory, const char *id)
{
	return has(state_directory, id, SANDBOX_SAVED_STATE);
}

bool sandbox_saved_has_disk(const char *state_directory, const char *id)
{
	return has(state_directory, id, SANDBOX_FILES_UPPER);
}

/* --- its image --- */

static bool is_in_folder(const char *state_directory, const char *path)
{
	char all[PATH_MAX];
	size_t length;

	make_path(state_directory, "", "", all);
	length = strlen(all);
	return !strncmp(path, all, length) && path[length] == '/';
}

/* One that was started has its folder's; what it was made of at first is in what it is booted with. */
static json_t *read_first_image(const char *state_directory, const char *id)
{
	int folder = sandbox_saved_open(state_directory, id);
	const char *kind;
	json_t *about =
		folder < 0 ? NULL : json_file_read(folder, SANDBOX_FILES_BOOT, SANDBOX_SAVED_JSON_MAX, &kind);
	json_t *image = json_incref(json_object_get(about, "image"));

	json_decref(about);
	fd_close(&folder);
	return image;
}

json_t *sandbox_saved_find_image(
	const char *state_directory, const char *id, const json_t *made, struct error *error)
{
	json_t *image = json_incref(json_object_get(made, "image"));
	const char *path = json_string_value(json_object_get(image, "path"));
	struct stat status;

	if (path && is_in_folder(state_directory, path)) {
		json_decref(image);
		image = read_first_image(state_directory, id);
		path = json_string_value(json_object_get(image, "path"));
	}
	if (path && stat(path, &status) == 0 && sandbox_saved_is_image(image, &status))
		return image;
	error_set(error, ERROR_CONFLICT,
		"no template can be made of sandbox %s: the image %.300s is not there any more, or has "
		"changed: put it back as it was",
		id, path ? path : "that it is made of");
	json_decref(image);
	return NULL;
}

/* --- restoring --- */

static void destroy(struct pool_source *source)
{
	struct restored *restored = (struct restored *)source;

	template_drop(restored->template);
	free(restored);
}

/* What is loaded is not read again: all that lies upon it shares its pages. */
static void share_memory(struct restored *restored, struct template *template)
{
	char sum[SUM_DIGITS + 1];
	uint64_t number;

	if (!template || sandbox_saved_sum(template->state, &number))
		return;
	snprintf(sum, sizeof sum, "%016" PRIx64, number);
	if (strcmp(sum, restored->memory_sum) != 0)
		return;
	restored->template = template_take(template);
	restored->made.source.memory = (struct vm_file){template->memory_path, restored->memory};
	restored->made.source.memory_sum = restored->memory_sum;
	restored->made.source.reads_memory = false;
}

static const char *take_about(struct restored *restored, const json_t *about)
{
	struct vm_source *source = &restored->made.source;
	const char *sum = json_string_value(json_object_get(about, "memory_sum"));
	const uint64_t cpus = number_of(about, "cpus"), cid = number_of(about, "cid");

	source->memory_bytes = number_of(about, "memory_bytes");
	source->disk_bytes = number_of(about, "disk_bytes");
	source->cpus = (unsigned int)cpus;
	source->cid = (uint32_t)cid;
	if (number_of(about, "format") != SANDBOX_SAVED_FORMAT)
		return "it is of another version";
	if (!source->memory_bytes || source->memory_bytes > TEMPLATE_MEMORY_MAX || !cpus ||
		cpus > TEMPLATE_CPUS_MAX || cid < TEMPLATE_CID || cid > UINT32_MAX || !sum ||
		strlen(sum) != SUM_DIGITS)
		return "it is damaged";
	memcpy(restored->memory_sum, sum, sizeof restored->memory_sum);
	return NULL;
}

/* A regular file of the folder: 0 with *path set, or -errno; bytes: NULL, or what it has. */
static int find(int folder, const char *name, const char *path, struct vm_file *file, uint64_t *bytes)
{
	struct stat status;

	if (fstatat(folder, name, &status, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode))
		return -EINVAL;
	*file = (struct vm_file){path, path};
	if (bytes)
		*bytes = (uint64_t)status.st_blocks * SANDBOX_FILES_BLOCK;
	return 0;
}

/* What was copied by nobody is where it was, if it is a device. As find; -ESTALE: it has changed since. */
static int find_image(struct restored *restored, int folder, const json_t *about)
{
	const json_t *image = json_object_get(about, "image");
	const char *path = json_string_value(json_object_get(image, "path"));
	int status = find(folder, SANDBOX_FILES_IMAGE, restored->image, &restored->made.source.image, NULL);
	struct stat found;

	if (!status && stat(restored->image, &found) < 0)
		return -errno;
	if (!status)
		return sandbox_saved_is_own_image(image, restored->image, &found) ? 0 : -ESTALE;
	if (status != -ENOENT || !path || stat(path, &found) < 0 || !S_ISBLK(found.st_mode))
		return status;
	snprintf(restored->image, sizeof restored->image, "%s", path);
	restored->made.source.image = (struct vm_file){restored->image, restored->image};
	return sandbox_saved_is_image(image, &found) ? 0 : -ESTALE;
}

/* 0, or -errno with *name of the file that it is of. */
static int find_files(struct restored *restored, int folder, const json_t *about, const char **name)
{
	struct vm_source *source = &restored->made.source;
	int status = find(folder, *name = SANDBOX_SAVED_STATE, restored->state, &source->state, NULL);

	if (!status)
		status = find(folder, *name = SANDBOX_SAVED_MEMORY, restored->memory, &source->memory, NULL);
	if (!status && json_is_true(json_object_get(about, "private")))
		status = find(folder, *name = SANDBOX_SAVED_PAGES, restored->pages, &source->pages,
			&source->pages_bytes);
	if (!status && (*name = SANDBOX_FILES_IMAGE))
		status = find_image(restored, folder, about);
	if (!status && source->disk_bytes)
		status = find(folder, *name = SANDBOX_FILES_LOWER, restored->lower, &source->disk, NULL);
	if (!status && source->disk_bytes)
		status = find(folder, *name = SANDBOX_FILES_UPPER, restored->upper, &source->upper, NULL);
	return status;
}

static void set_paths(struct restored *restored, const char *state_directory, const char *id)
{
	make_path(state_directory, id, SANDBOX_SAVED_STATE, restored->state);
	make_path(state_directory, id, SANDBOX_SAVED_PAGES, restored->pages);
	make_path(state_directory, id, SANDBOX_SAVED_MEMORY, restored->memory);
	make_path(state_directory, id, SANDBOX_FILES_IMAGE, restored->image);
	make_path(state_directory, id, SANDBOX_FILES_UPPER, restored->upper);
	make_path(state_directory, id, SANDBOX_FILES_LOWER, restored->lower);
}

/* 0, or -1 with *error set. */
static int take_folder(struct restored *restored, int folder, const char *id, struct error *error)
{
	const char *kind = NULL, *name = SANDBOX_SAVED_ABOUT, *fault;
	json_t *about = json_file_read(folder, SANDBOX_SAVED_ABOUT, SANDBOX_SAVED_JSON_MAX, &kind);
	int status = 0;

	fault = about ? take_about(restored, about) : "it cannot be read";
	if (!fault)
		status = find_files(restored, folder, about, &name);
	json_decref(about);
	if (status == -ESTALE)
		fault = "it has changed since";
	else if (status)
		fault = status == -EINVAL ? "it is no file" : strerror(-status);
	if (!fault)
		return 0;
	return error_set(error, status == -ESTALE ? ERROR_CONFLICT : ERROR_INTERNAL,
		"sandbox %s cannot be woken: %s, of what was saved of it: %s: put the file back as it was",
		id, name, fault);
}

/* id: of whom the upper is. */
static struct restored *make_source(const char *state_directory, const char *name, const char *id,
	const struct templates *templates, const char *template, struct error *error)
{
	struct restored *restored = calloc(1, sizeof *restored);
	int folder, status;

	if (!restored) {
		error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
		return NULL;
	}
	restored->made =
		(struct pool_source){.source = {.same_machine = true, .held = true, .reads_memory = true},
			.references = 1,
			.destroy = destroy};
	set_paths(restored, state_directory, name);
	folder = sandbox_saved_open(state_directory, name);
	status = folder < 0 ? error_set(error, ERROR_INTERNAL, "sandbox %s cannot be woken: its folder: %s",
				      id, strerror(-folder))
			    : take_folder(restored, folder, id, error);
	fd_close(&folder);
	if (status) {
		destroy(&restored->made);
		return NULL;
	}
	make_path(state_directory, id, SANDBOX_FILES_UPPER, restored->upper);
	if (restored->made.source.pages.path)
		share_memory(restored, templates_loaded(templates, template));
	return restored;
}

struct pool_source *sandbox_saved_source(const char *state_directory, const char *id,
	const struct templates *templates, const char *template, struct error *error)
{
	struct restored *restored = make_source(state_directory, id, id, templates, template, error);

	return restored ? &restored->made : NULL;
}

struct pool_source *sandbox_saved_copy_source(const char *state_directory, const char *folder, const char *id,
	const struct templates *templates, const char *template, struct error *error)
{
	struct restored *restored = make_source(state_directory, folder, id, templates, template, error);

	if (!restored)
		return NULL;
	restored->made.source.same_machine = restored->made.source.held = false;
	return &restored->made;
}

/* --- removing --- */

int sandbox_saved_remove(int folder)
{
	/* Without its state the other is nothing. */
	if (unlinkat(folder, SANDBOX_SAVED_STATE, 0) < 0 && errno != ENOENT)
		return -errno;
	if (unlinkat(folder, SANDBOX_SAVED_PAGES, 0) < 0 && errno != ENOENT)
		return -errno;
	return fsync(folder) < 0 ? -errno : 0;
}

bool sandbox_saved_is_written(const char *state_directory, const char *id)
{
	return has(state_directory, id, SANDBOX_SAVED_STATE SANDBOX_SAVED_NEW);
}

void sandbox_saved_tidy(int folder)
{
	int held[WORKER_FDS_MAX];
	size_t count = 0;
	static const char *const names[] = {SANDBOX_SAVED_STATE SANDBOX_SAVED_NEW,
		SANDBOX_SAVED_PAGES SANDBOX_SAVED_NEW, SANDBOX_SAVED_MEMORY SANDBOX_SAVED_NEW,
		SANDBOX_FILES_IMAGE SANDBOX_SAVED_NEW, SANDBOX_SAVED_ABOUT SANDBOX_SAVED_NEW,
		TEMPLATE_DISK SANDBOX_SAVED_NEW};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		_Static_assert(sizeof names / sizeof names[0] <= WORKER_FDS_MAX, "one place for each");
		/* To lose its name takes no time then. */
		held[count] = openat(folder, names[i], O_PATH | O_CLOEXEC | O_NOFOLLOW);
		count += held[count] >= 0;
		unlinkat(folder, names[i], 0);
	}
	if (count)
		worker_close(held, count);
}

/* --- that it is being copied --- */

int sandbox_saved_mark_copying(int folder)
{
	int fd = openat(folder, SANDBOX_SAVED_COPYING, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int status = fd < 0 ? -errno : 0;

	fd_close(&fd);
	return status;
}

bool sandbox_saved_is_copying(const char *state_directory, const char *id)
{
	return has(state_directory, id, SANDBOX_SAVED_COPYING);
}

void sandbox_saved_end_copying(const char *state_directory, const char *id)
{
	char path[PATH_MAX];

	make_path(state_directory, id, SANDBOX_SAVED_COPYING, path);
	unlink(path);
}
