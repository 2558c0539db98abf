/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_save.h"
#include "common/io.h"
#include "host-ctl/sandbox/sandbox_files.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/support/file_copy.h"
#include "host-ctl/support/json_file.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/support/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char state_new[] = SANDBOX_SAVED_STATE SANDBOX_SAVED_NEW,
		  pages_new[] = SANDBOX_SAVED_PAGES SANDBOX_SAVED_NEW,
		  memory_new[] = SANDBOX_SAVED_MEMORY SANDBOX_SAVED_NEW,
		  image_new[] = SANDBOX_FILES_IMAGE SANDBOX_SAVED_NEW,
		  about_new[] = SANDBOX_SAVED_ABOUT SANDBOX_SAVED_NEW,
		  disk_new[] = TEMPLATE_DISK SANDBOX_SAVED_NEW;

void sandbox_save_init(struct sandbox_save *save, const char *state_directory, const char *id,
	const char *template, json_t *made)
{
	*save = (struct sandbox_save){.made = json_incref(made),
		.base_state = -1,
		.base_memory = -1,
		.own = -1,
		.folder = -1,
		.state = -1,
		.memory = -1,
		.disk = -1,
		.disk_bytes = sandbox_saved_disk_bytes(made)};
	snprintf(save->state_directory, sizeof save->state_directory, "%.3800s", state_directory);
	snprintf(save->id, sizeof save->id, "%s", id);
	snprintf(save->name, sizeof save->name, "%s", id);
	snprintf(save->template, sizeof save->template, "%s", template);
}

void sandbox_save_know_base(struct sandbox_save *save, const struct vm_source *source)
{
	if (!source->state.path)
		return;
	save->base_state = open(source->state.path, O_RDONLY | O_CLOEXEC);
	save->base_memory = open(source->memory.path, O_RDONLY | O_CLOEXEC);
}

static int fail(struct sandbox_save *save, const char *what, int status)
{
	const bool full = error_is_of_full_disk(status) || status == -EFBIG;

	return error_set(&save->error, full ? ERROR_EXHAUSTED : ERROR_INTERNAL,
		"sandbox %s cannot be saved in %.256s/" STATE_FOLDER_SANDBOXES ": %s: %s", save->id,
		save->state_directory, what, strerror(-status));
}

/* That of a sandbox, or of a copy; made if it is not there. */
static int open_folder(struct sandbox_save *save, const char *name, int *folder)
{
	int state = state_folder_open(save->state_directory, &save->error), all;

	if (state < 0)
		return -1;
	all = state_folder_open_in(state, save->state_directory, STATE_FOLDER_SANDBOXES, &save->error);
	fd_close(&state);
	if (all < 0)
		return -1;
	if (mkdirat(all, name, 0700) < 0 && errno != EEXIST) {
		int status = -errno;

		fd_close(&all);
		return fail(save, "its folder", status);
	}
	fd_close(&all);
	*folder = sandbox_saved_open(save->state_directory, name);
	return *folder < 0 ? fail(save, "its folder", *folder) : 0;
}

int sandbox_save_make_copy(struct sandbox_save *save, const char *name, bool flat)
{
	int status;

	save->error.kind = ERROR_NONE;
	save->flat = flat;
	snprintf(save->name, sizeof save->name, "%s", name);
	if (open_folder(save, save->id, &save->own))
		return -1;
	status = sandbox_saved_mark_copying(save->own);
	return status ? fail(save, "the note that it is copied", status) : 0;
}

/* A new one; whatever was there goes. */
static int open_new(int folder, const char *name)
{
	int fd;

	unlinkat(folder, name, 0);
	fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	return fd < 0 ? -errno : fd;
}

int sandbox_save_open(struct sandbox_save *save, bool whole)
{
	save->error.kind = ERROR_NONE;
	save->whole = whole;
	save->wants_whole = false;
	fd_close(&save->state);
	fd_close(&save->memory);
	fd_close(&save->disk);
	if (save->folder < 0 && open_folder(save, save->name, &save->folder))
		return -1;
	sandbox_saved_tidy(save->folder);
	save->state = open_new(save->folder, state_new);
	if (save->state < 0)
		return fail(save, "its state", save->state);
	save->memory = open_new(save->folder, whole ? memory_new : pages_new);
	if (save->memory < 0)
		return fail(save, "its memory", save->memory);
	if (!save->flat || !save->disk_bytes)
		return 0;
	save->disk = open_new(save->folder, disk_new);
	return save->disk < 0 ? fail(save, "its disk", save->disk) : 0;
}

/* --- what they lie upon --- */

static bool is_sum_of(int state, uint64_t sum)
{
	uint64_t other;

	return state >= 0 && sandbox_saved_sum(state, &other) == 0 && other == sum;
}

/* By which an image is known (sandbox_boot.h). */
static int copy_time(int from, int to)
{
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}};
	struct stat status;

	if (fstat(from, &status) < 0)
		return -errno;
	times[1] = status.st_mtim;
	return futimens(to, times) < 0 ? -errno : 0;
}

static bool is_copy(const struct sandbox_save *save)
{
	return save->own >= 0;
}

/* A copy of an open file under that name. 0 or -errno. */
static int copy_to(const struct sandbox_save *save, int from, const char *name)
{
	int to = open_new(save->folder, name);
	int status = to < 0 ? to : file_copy(from, to, NULL);

	if (!status)
		status = copy_time(from, to);
	if (!status && !is_copy(save) && fsync(to) < 0)
		status = -errno;
	fd_close(&to);
	return status;
}

/* The same by a link, where that can be. */
static int link_or_copy(const struct sandbox_save *save, int from, const char *name)
{
	char path[TEMPLATE_FD_PATH];

	snprintf(path, sizeof path, "/proc/self/fd/%d", from);
	unlinkat(save->folder, name, 0);
	if (linkat(AT_FDCWD, path, save->folder, name, AT_SYMLINK_FOLLOW) == 0)
		return 0;
	/* It has no name any more, is in another file system, or has as many names as it may. */
	return copy_to(save, from, name);
}

/* Of the sandbox's own folder, for a copy. 1: it is there; 0: not; or -errno. */
static int take_own(const struct sandbox_save *save, const char *name, const char *new_name)
{
	int from = openat(save->own, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), status;

	if (from < 0)
		return errno == ENOENT ? 0 : -errno;
	status = link_or_copy(save, from, new_name);
	fd_close(&from);
	return status ? status : 1;
}

static int own_folder(const struct sandbox_save *save)
{
	return is_copy(save) ? save->own : save->folder;
}

/* The sandbox's own, of an earlier save. */
static bool has_own(const struct sandbox_save *save, uint64_t sum)
{
	const char *kind, *own;
	json_t *about = json_file_read(own_folder(save), SANDBOX_SAVED_ABOUT, SANDBOX_SAVED_JSON_MAX, &kind);
	char digits[VMM_RESTORE_SUM_DIGITS + 1];
	bool same;

	snprintf(digits, sizeof digits, "%016" PRIx64, sum);
	own = json_string_value(json_object_get(about, "memory_sum"));
	same = own && !strcmp(own, digits) && faccessat(own_folder(save), SANDBOX_SAVED_MEMORY, F_OK, 0) == 0;
	json_decref(about);
	return same;
}

/* Its template's, in that one's folder, which cannot become another's while it is open. 1: it is that; 0:
 * not; or -errno. */
static int take_template(const struct sandbox_save *save, uint64_t sum)
{
	char path[PATH_MAX + 2 * TEMPLATE_NAME_MAX];
	int folder, state, memory, status = 0;

	snprintf(
		path, sizeof path, "%s/" STATE_FOLDER_TEMPLATES "/%s", save->state_directory, save->template);
	folder = state_folder_open_at(AT_FDCWD, path);
	if (folder < 0)
		return 0;
	state = openat(folder, "state", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	memory = openat(folder, "memory", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (memory >= 0 && is_sum_of(state, sum)) {
		status = link_or_copy(save, memory, memory_new);
		status = status ? status : 1;
	}
	fd_close(&memory);
	fd_close(&state);
	fd_close(&folder);
	return status;
}

/* 0, or -1 with save->error set. */
static int find_base(struct sandbox_save *save, uint64_t sum)
{
	int status = 0;

	if (save->whole)
		return 0;
	if (has_own(save, sum))
		status = is_copy(save) ? take_own(save, SANDBOX_SAVED_MEMORY, memory_new) : 1;
	if (!status)
		status = take_template(save, sum);
	if (!status && save->base_memory >= 0 && is_sum_of(save->base_state, sum)) {
		status = copy_to(save, save->base_memory, memory_new);
		status = status ? status : 1;
	}
	save->wants_whole = status == 0;
	return status < 0 ? fail(save, "the memory that it lies upon", status) : 0;
}

/* --- its image --- */

static int take_image(struct sandbox_save *save)
{
	const json_t *image = json_object_get(save->made, "image");
	const char *path = json_string_value(json_object_get(image, "path"));
	struct stat status;
	int fd, r;

	if (faccessat(save->folder, SANDBOX_FILES_IMAGE, F_OK, 0) == 0)
		return 0;
	r = is_copy(save) ? take_own(save, SANDBOX_FILES_IMAGE, image_new) : 0;
	if (r)
		return r < 0 ? fail(save, "its image", r) : 0;
	fd = open(path ? path : "", O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status) < 0) {
		r = -errno;
	} else if (!sandbox_saved_is_image(image, &status)) {
		fd_close(&fd);
		return error_set(&save->error, ERROR_CONFLICT,
			"sandbox %s cannot be saved: the image %.256s has changed since it was made: put it "
			"back as it was",
			save->id, path);
	} else {
		r = S_ISBLK(status.st_mode) ? 0 : link_or_copy(save, fd, image_new);
	}
	fd_close(&fd);
	return r ? fail(save, "its image", r) : 0;
}

/* --- its disk, of a copy --- */

static int copy_upper(const struct sandbox_save *save)
{
	int from = openat(save->own, SANDBOX_FILES_UPPER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), to, status;

	if (from < 0)
		return errno == ENOENT ? 0 : -errno;
	to = open_new(save->folder, SANDBOX_FILES_UPPER);
	status = to < 0 ? to : file_copy(from, to, NULL);
	fd_close(&to);
	fd_close(&from);
	return status;
}

/* The vmm has flushed it before it saved, and its guest stands. */
static int take_disk(struct sandbox_save *save)
{
	int status = copy_upper(save);

	if (!status && (status = take_own(save, SANDBOX_FILES_LOWER, SANDBOX_FILES_LOWER)) >= 0)
		status = take_own(save, SANDBOX_FILES_BOOT, SANDBOX_FILES_BOOT);
	return status < 0 ? fail(save, "its disk", status) : 0;
}

/* --- to the disk --- */

static int write_about(const struct sandbox_save *save, uint64_t sum)
{
	char digits[VMM_RESTORE_SUM_DIGITS + 1];
	json_t *about = json_deep_copy(save->made);
	int status;

	snprintf(digits, sizeof digits, "%016" PRIx64, sum);
	if (!about || json_object_set_new(about, "format", json_integer(SANDBOX_SAVED_FORMAT)) ||
		json_object_set_new(about, "private", json_boolean(!save->whole)) ||
		json_object_set_new(about, "memory_sum", json_string(digits)))
		status = -ENOMEM;
	else if (is_copy(save))
		status = json_file_put(save->folder, about_new, about);
	else
		status = json_file_write(save->folder, about_new, about);
	json_decref(about);
	return status;
}

/* What one that was forked has of its parent, nobody has brought to the disk; else it is there. */
static int sync_kept(int folder, const char *name)
{
	int status = state_folder_sync(folder, name);

	return status == -ENOENT ? 0 : status;
}

/* Its folder, and those of all sandboxes, may be new: their names. */
static int sync_names(const struct sandbox_save *save)
{
	int above = openat(save->folder, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int status = above < 0 ? -errno : state_folder_sync(above, ".");

	if (!status)
		status = state_folder_sync(above, "..");
	fd_close(&above);
	return status;
}

/* What its guest has written is on the disk: the vmm flushes before it saves. But not its name. */
static int sync_all(const struct sandbox_save *save)
{
	int status = fsync(save->state) < 0 || fsync(save->memory) < 0 ? -errno : sync_names(save);

	if (!status && !save->whole)
		status = sync_kept(save->folder, SANDBOX_SAVED_MEMORY);
	return status ? status : sync_kept(save->folder, SANDBOX_FILES_IMAGE);
}

/* There may be none of it. */
static int rename_new(int folder, const char *from, const char *to)
{
	return renameat(folder, from, folder, to) < 0 && errno != ENOENT ? -errno : 0;
}

/* Another memory is to have the name: first nothing says any more whose it is, on the disk as well, for what
 * were saved upon it later would be upon another's. */
static int forget_memory(int folder)
{
	if (unlinkat(folder, SANDBOX_SAVED_ABOUT, 0) < 0)
		return errno == ENOENT ? 0 : -errno;
	return fsync(folder) < 0 ? -errno : 0;
}

static int give_names(struct sandbox_save *save)
{
	const int folder = save->folder;
	int status = faccessat(folder, memory_new, F_OK, 0) == 0 ? forget_memory(folder) : 0;

	if (!status)
		status = rename_new(folder, memory_new, SANDBOX_SAVED_MEMORY);
	if (!status)
		status = rename_new(folder, image_new, SANDBOX_FILES_IMAGE);
	if (!status)
		status = rename_new(folder, about_new, SANDBOX_SAVED_ABOUT);
	if (!status)
		status = rename_new(folder, pages_new, SANDBOX_SAVED_PAGES);
	if (!status)
		status = rename_new(folder, disk_new, TEMPLATE_DISK);
	if (!status && !is_copy(save) && fsync(folder) < 0)
		status = -errno;
	if (!status)
		status = rename_new(folder, state_new, SANDBOX_SAVED_STATE);
	save->is_there = !status;
	return !status && !is_copy(save) && fsync(folder) < 0 ? -errno : status;
}

void sandbox_save_work(struct sandbox_save *save)
{
	uint64_t sum;
	int status = sandbox_saved_sum(save->state, &sum);

	save->error.kind = ERROR_NONE;
	if (status) {
		fail(save, "what the vmm wrote is no state", status);
		return;
	}
	if (!save->flat && (find_base(save, sum) || save->wants_whole || take_image(save) ||
				   (is_copy(save) && take_disk(save))))
		return;
	status = save->flat ? 0 : write_about(save, sum);
	if (!status && !is_copy(save))
		status = sync_all(save);
	if (!status)
		status = give_names(save);
	if (status)
		fail(save, "bringing it to the disk", status);
}

int sandbox_save_undo(struct sandbox_save *save)
{
	if (save->folder < 0)
		return 0;
	sandbox_saved_tidy(save->folder);
	if (!save->is_there)
		return 0;
	save->is_there = false;
	return sandbox_saved_remove(save->folder);
}

void sandbox_save_finish(struct sandbox_save *save)
{
	const int files[] = {save->base_state, save->base_memory, save->state, save->memory, save->disk};

	if (save->folder >= 0)
		sandbox_saved_tidy(save->folder);
	/* Whoever closes a large one last waits for its room to be given back. */
	worker_close(files, sizeof files / sizeof files[0]);
	save->base_state = save->base_memory = save->state = save->memory = save->disk = -1;
	fd_close(&save->folder);
	if (is_copy(save))
		sandbox_saved_end_copying(save->state_directory, save->id);
	fd_close(&save->own);
	json_decref(save->made);
	save->made = NULL;
}
