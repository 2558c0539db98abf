/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_files.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/support/file_copy.h"
#include "host-ctl/support/input_file.h"
#include "host-ctl/support/json_file.h"
#include "host-ctl/support/state_folder.h"
#include "host-ctl/support/worker.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MIB_SHIFT = 20, SHARED_TRIAL_BYTES = 1 << 20 };

void sandbox_files_path(
	const char *state_directory, const char *id, const char *name, char *path, size_t size)
{
	snprintf(path, size, "%.3800s/" STATE_FOLDER_SANDBOXES "%s%.64s%s%.64s", state_directory,
		id[0] ? "/" : "", id, name[0] ? "/" : "", name);
}

/* An existing one; -errno. */
static int open_all(const char *state_directory)
{
	char path[PATH_MAX];

	sandbox_files_path(state_directory, "", "", path, sizeof path);
	return state_folder_open_at(AT_FDCWD, path);
}

/* Of one that is empty. */
static void remove_all(const char *state_directory)
{
	char path[PATH_MAX];

	sandbox_files_path(state_directory, "", "", path, sizeof path);
	rmdir(path);
}

static int refuse_room(
	const char *state_directory, uint64_t reserve, uint64_t wanted, uint64_t left, struct error *error)
{
	char copies[64] = "";

	if (wanted)
		snprintf(copies, sizeof copies, "copies of it want %llu MiB of these, ",
			(unsigned long long)((wanted + (UINT64_C(1) << MIB_SHIFT) - 1) >> MIB_SHIFT));
	return error_set(error, ERROR_EXHAUSTED,
		"no room for the disk of one more sandbox: %llu MiB are left where the state folder %.256s "
		"is, %sand "
		"%llu MiB are kept free (--disk-reserve): delete sandboxes or templates, free some of that "
		"disk, or name a folder on another with --state-dir",
		(unsigned long long)(left >> MIB_SHIFT), state_directory, copies,
		(unsigned long long)(reserve >> MIB_SHIFT));
}

/* Beside the reserve, if there is one; *left: what the host's disk has. What cannot be asked is no limit. */
static bool has_room(const char *state_directory, uint64_t reserve, uint64_t wanted, uint64_t *left)
{
	struct statvfs disk;

	if (!reserve || statvfs(state_directory, &disk) < 0)
		return true;
	*left = (uint64_t)disk.f_bavail * disk.f_frsize;
	return *left > reserve && *left - reserve > wanted;
}

int sandbox_files_check_room_for(
	const char *state_directory, uint64_t reserve, uint64_t wanted, struct error *error)
{
	uint64_t left = 0;

	error->kind = ERROR_NONE;
	if (has_room(state_directory, reserve, wanted, &left))
		return 0;
	return refuse_room(state_directory, reserve, wanted, left, error);
}

int sandbox_files_check_room(const char *state_directory, uint64_t reserve, struct error *error)
{
	return sandbox_files_check_room_for(state_directory, reserve, 0, error);
}

uint64_t sandbox_files_copy_bytes(const char *state_directory, const char *id)
{
	char path[PATH_MAX];
	struct stat status;
	uint64_t bytes = 0;
	int upper;

	sandbox_files_path(state_directory, id, SANDBOX_FILES_UPPER, path, sizeof path);
	upper = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	sandbox_files_path(state_directory, id, "", path, sizeof path);
	if (upper >= 0 && fstat(upper, &status) == 0 && !file_copy_shares(upper, path))
		bytes = (uint64_t)status.st_blocks * SANDBOX_FILES_BLOCK;
	fd_close(&upper);
	return bytes;
}

/* What a file of its folder takes; 0: there is none. */
static uint64_t bytes_of(const char *state_directory, const char *id, const char *name)
{
	char path[PATH_MAX];
	struct stat status;

	sandbox_files_path(state_directory, id, name, path, sizeof path);
	return lstat(path, &status) < 0 ? 0 : (uint64_t)status.st_blocks * SANDBOX_FILES_BLOCK;
}

/* Copies of files in there take no room. */
static bool shares_blocks(const char *state_directory)
{
	int file = open(state_directory, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	bool shares = file >= 0 && ftruncate(file, SHARED_TRIAL_BYTES) == 0 &&
		      file_copy_shares(file, state_directory);

	fd_close(&file);
	return shares;
}

void sandbox_files_copy_need(
	const char *state_directory, const char *id, uint64_t memory_bytes, struct sandbox_files_need *need)
{
	const uint64_t disk_bytes = bytes_of(state_directory, id, SANDBOX_FILES_UPPER) +
				    bytes_of(state_directory, id, SANDBOX_FILES_LOWER);

	need->written = memory_bytes + disk_bytes;
	need->twice = memory_bytes > disk_bytes ? memory_bytes : disk_bytes;
	if (shares_blocks(state_directory))
		need->twice = 0;
}

int sandbox_files_check_copy(const char *state_directory, const char *id,
	const struct sandbox_files_need *need, uint64_t reserve, uint64_t promised, struct error *error)
{
	const uint64_t most = need->written + need->twice;
	uint64_t left = 0;

	if (has_room(state_directory, reserve, promised + most, &left))
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"no room for a copy of sandbox %s, which may take %llu MiB: %llu MiB are left where the "
		"state folder %.200s is, other copies may take %llu MiB of these, and %llu MiB are kept free "
		"(--disk-reserve): delete sandboxes or templates, or free some of that disk",
		id, (unsigned long long)(most >> MIB_SHIFT), (unsigned long long)(left >> MIB_SHIFT),
		state_directory, (unsigned long long)(promised >> MIB_SHIFT),
		(unsigned long long)(reserve >> MIB_SHIFT));
}

/* --- keeping --- */

/* What the links do not tell of it. */
static json_t *describe(const struct vm_source *source, const struct stat *image)
{
	return json_pack("{s:i,s:I,s:i,s:I,s:{s:s,s:I,s:I}}", "format", SANDBOX_FILES_FORMAT, "memory_bytes",
		(json_int_t)source->memory_bytes, "cpus", (int)source->cpus, "disk_bytes",
		(json_int_t)source->disk_bytes, "image", "path", source->image.name, "bytes",
		(json_int_t)image->st_size, "changed_ns", (json_int_t)input_file_changed_ns(image));
}

static int write_description(int folder, const struct vm_source *source)
{
	struct stat image;
	json_t *about;
	int status;

	if (stat(source->image.path, &image) < 0)
		return -errno;
	about = describe(source, &image);
	status = about ? json_file_put(folder, SANDBOX_FILES_BOOT, about) : -ENOMEM;
	json_decref(about);
	return status;
}

static int make_one(int all, const char *id, const struct vm *vm)
{
	int folder, status;

	if (mkdirat(all, id, 0700) < 0)
		return -errno;
	folder = state_folder_open_at(all, id);
	status = folder < 0 ? folder
			    : vm_link_disk(vm, folder, SANDBOX_FILES_UPPER, SANDBOX_FILES_LOWER,
				      SANDBOX_FILES_IMAGE);
	if (!status)
		status = write_description(folder, vm->source);
	fd_close(&folder);
	return status;
}

int sandbox_files_keep(const char *state_directory, const char *id, const struct vm *vm, struct error *error)
{
	struct sandbox_files ignored;
	int state = state_folder_open(state_directory, error), all, status;

	if (state < 0)
		return -1;
	all = state_folder_open_in(state, state_directory, STATE_FOLDER_SANDBOXES, error);
	fd_close(&state);
	if (all < 0)
		return -1;
	status = make_one(all, id, vm);
	fd_close(&all);
	if (!status)
		return 0;
	sandbox_files_remove(state_directory, id, &ignored);
	if (status == -ENOENT)
		return error_set(error, ERROR_NOT_READY,
			"the template of sandbox %s was replaced just now: try again", id);
	return error_set(error, error_is_of_full_disk(status) ? ERROR_EXHAUSTED : ERROR_INTERNAL,
		"the disk of sandbox %s cannot be kept in %.400s/%s: %s", id, state_directory,
		STATE_FOLDER_SANDBOXES, strerror(-status));
}

/* Of one without a disk there is none. */
static int copy_upper(int from, int to)
{
	int upper = openat(from, SANDBOX_FILES_UPPER, O_RDONLY | O_CLOEXEC | O_NOFOLLOW), copy, status;

	if (upper < 0)
		return errno == ENOENT ? 0 : -errno;
	copy = openat(to, SANDBOX_FILES_UPPER, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	status = copy < 0 ? -errno : file_copy(upper, copy, NULL);
	fd_close(&copy);
	fd_close(&upper);
	return status;
}

static int copy_one(int all, const char *from_name, const char *id)
{
	static const char *const links[] = {SANDBOX_FILES_LOWER, SANDBOX_FILES_IMAGE, SANDBOX_FILES_BOOT,
		SANDBOX_SAVED_MEMORY, SANDBOX_SAVED_ABOUT};
	int from = state_folder_open_at(all, from_name), to, status;

	if (from < 0)
		return from;
	to = mkdirat(all, id, 0700) < 0 ? -errno : state_folder_open_at(all, id);
	status = to < 0 ? to : copy_upper(from, to);
	for (size_t i = 0; !status && i < sizeof links / sizeof links[0]; i++)
		if (linkat(from, links[i], to, links[i], 0) < 0 && errno != ENOENT)
			status = -errno;
	fd_close(&to);
	fd_close(&from);
	return status;
}

int sandbox_files_copy(const char *state_directory, const char *from, const char *id, struct error *error)
{
	struct sandbox_files ignored;
	int all = open_all(state_directory);
	int status = all < 0 ? all : copy_one(all, from, id);

	fd_close(&all);
	if (!status)
		return 0;
	sandbox_files_remove(state_directory, id, &ignored);
	return error_set(error, error_is_of_full_disk(status) ? ERROR_EXHAUSTED : ERROR_INTERNAL,
		"the files of sandbox %s cannot be made in %.400s/%s: %s", id, state_directory,
		STATE_FOLDER_SANDBOXES, strerror(-status));
}

/* An image in another file system has no name here. */
static int sync_image(int folder)
{
	int status = state_folder_sync(folder, SANDBOX_FILES_IMAGE);

	return status == -ENOENT ? 0 : status;
}

/* Lower was brought to the disk when it was made; an image that a fork has copied was not. */
static int sync_one(int all, const char *id)
{
	int folder = state_folder_open_at(all, id);
	int status = folder < 0 ? folder : state_folder_sync(folder, SANDBOX_FILES_UPPER);

	if (!status)
		status = state_folder_sync(folder, SANDBOX_FILES_BOOT);
	if (!status)
		status = sync_image(folder);
	if (!status && fsync(folder) < 0)
		status = -errno;
	fd_close(&folder);
	return status;
}

int sandbox_files_sync(const char *state_directory, const char *id, struct error *error)
{
	int all = open_all(state_directory);
	int status = all < 0 ? all : sync_one(all, id);

	if (!status)
		status = state_folder_sync(all, ".");
	if (!status)
		status = state_folder_sync(AT_FDCWD, state_directory);
	fd_close(&all);
	if (!status || status == -ENOENT)
		return 0;
	return error_set(error, error_is_of_full_disk(status) ? ERROR_EXHAUSTED : ERROR_INTERNAL,
		"the disk of sandbox %s cannot be brought to the host's, in %.400s/%s: %s", id,
		state_directory, STATE_FOLDER_SANDBOXES, strerror(-status));
}

bool sandbox_files_are_there(const char *state_directory, const char *id)
{
	char path[PATH_MAX];

	sandbox_files_path(state_directory, id, "", path, sizeof path);
	return faccessat(AT_FDCWD, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* --- removing --- */

/* The room of a file is given back when it is closed, which takes a while: all of them by one worker. */
struct removal {
	struct sandbox_files *removed;
	int fds[WORKER_FDS_MAX];
	size_t count;
};

static void give_back(struct removal *removal)
{
	if (removal->count)
		worker_close(removal->fds, removal->count);
	removal->count = 0;
}

static int remove_file(int folder, const char *name, struct removal *removal)
{
	struct stat status;
	int fd = openat(folder, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	if (unlinkat(folder, name, 0) < 0) {
		int r = -errno;

		fd_close(&fd);
		return r;
	}
	removal->removed->count++;
	if (fstat(fd, &status) < 0 || status.st_nlink > 0) {
		fd_close(&fd);
		return 0;
	}
	removal->removed->bytes += (uint64_t)status.st_blocks * SANDBOX_FILES_BLOCK;
	if (removal->count == WORKER_FDS_MAX)
		give_back(removal);
	removal->fds[removal->count++] = fd;
	return 0;
}

/* folder: an fd, taken over. */
static int empty(int folder, struct sandbox_files *removed)
{
	struct removal removal = {.removed = removed};
	DIR *listing = fdopendir(folder);
	struct dirent *entry;
	int status = 0;

	if (!listing) {
		status = -errno;
		fd_close(&folder);
		return status;
	}
	while ((entry = readdir(listing))) {
		int r = entry->d_name[0] == '.' ? 0 : remove_file(dirfd(listing), entry->d_name, &removal);

		status = status ? status : r;
	}
	closedir(listing);
	give_back(&removal);
	return status;
}

static int remove_one(int all, const char *id, struct sandbox_files *removed)
{
	int folder = state_folder_open_at(all, id), status;

	if (folder < 0)
		return folder == -ENOENT ? 0 : folder;
	status = empty(folder, removed);
	if (unlinkat(all, id, AT_REMOVEDIR) < 0 && !status)
		status = -errno;
	return status;
}

int sandbox_files_remove(const char *state_directory, const char *id, struct sandbox_files *removed)
{
	int all = open_all(state_directory), status;

	*removed = (struct sandbox_files){0};
	if (all < 0)
		return all == -ENOENT ? 0 : all;
	status = remove_one(all, id, removed);
	if (status)
		log_error("cannot remove what is left of sandbox %s in %s: %s", id, state_directory,
			strerror(-status));
	fd_close(&all);
	remove_all(state_directory);
	return status;
}

void sandbox_files_sweep(
	const char *state_directory, bool (*keep)(const void *context, const char *id), const void *context)
{
	int all = open_all(state_directory);
	DIR *listing = all < 0 ? NULL : fdopendir(all);
	struct sandbox_files ignored = {0};
	struct dirent *entry;

	if (!listing)
		fd_close(&all);
	while (listing && (entry = readdir(listing)))
		if (entry->d_name[0] != '.' && !keep(context, entry->d_name) &&
			!remove_one(dirfd(listing), entry->d_name, &ignored))
			log_warn("removed the files of sandbox %s, which an earlier daemon left",
				entry->d_name);
	if (listing)
		closedir(listing);
	remove_all(state_directory);
}
