/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The disk of a VM, on which its guest's files are: a raw one that a build writes to, or a clone's, whose
 * lower is the template's and whose upper (docs/disks.md) is a new file, or one that its source names.
 *
 * Invariant: the daemon keeps no copy of the descriptor that the vmm has of an upper, for the lock on it
 * would last as long as that.
 */
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/vm/vm_private.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum {
	BLOCK = 4096, /* of an upper */
	DISK_BYTES_A_BIT = BLOCK,
	UPPER_ENDS = 2 * BLOCK, /* its header, and what its bitmap is rounded up by */
	FD_PATH = 32,
};

/* The same file by another open file description, which has no lock. -errno on failure. */
static int hold(int fd)
{
	char path[FD_PATH];
	int held;

	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	held = open(path, O_PATH | O_CLOEXEC);
	return held < 0 ? -errno : held;
}

/* fd: of open, or -1 with errno set. 0 or -errno. */
static int take_upper(struct vm *vm, int *upper, int fd)
{
	*upper = fd;
	if (fd < 0)
		return -errno;
	fd_close(&vm->upper);
	vm->upper = hold(fd);
	return vm->upper < 0 ? vm->upper : 0;
}

static int open_known_upper(struct vm *vm, int *upper, struct error *error)
{
	const struct vm_file *file = &vm->source->upper;
	int status = take_upper(vm, upper, open(file->path, O_RDWR | O_CLOEXEC));

	if (status)
		error_set(error, ERROR_INTERNAL, "cannot open the disk %.400s: %s", file->name,
			strerror(-status));
	return status;
}

/* Without a name: nothing of it is left when nobody has it open. */
static int open_upper(struct vm *vm, int *upper, struct error *error)
{
	const char *folder = vm->config->upper_directory;
	int status = take_upper(vm, upper, open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));

	if (status == -EOPNOTSUPP || status == -EISDIR)
		error_set(error, ERROR_INTERNAL,
			"cannot make a disk in %.400s: its file system has no files without a name "
			"(O_TMPFILE): name a "
			"folder on another, such as ext4 or xfs, with --state-dir",
			folder);
	else if (status)
		error_set(
			error, ERROR_INTERNAL, "cannot make a disk in %.400s: %s", folder, strerror(-status));
	return status;
}

int vm_open_disk(struct vm *vm, int *disk, int *upper, struct error *error)
{
	const struct vm_source *source = vm->source;
	bool cow = vm_source_is_cow(source);
	int status;

	if (!vm_source_has_disk(source))
		return 0;
	*disk = open(source->disk.path, (cow ? O_RDONLY : O_RDWR) | O_CLOEXEC);
	if (*disk >= 0 && source->upper.path)
		return open_known_upper(vm, upper, error);
	if (*disk >= 0)
		return cow ? open_upper(vm, upper, error) : 0;
	status = -errno;
	error_set(error, ERROR_INTERNAL, "cannot open the disk %.400s: %s", source->disk.name,
		strerror(-status));
	return status;
}

bool vm_has_upper(const struct vm *vm)
{
	return vm->upper >= 0;
}

static int link_to(const char *path, int folder, const char *name)
{
	return linkat(AT_FDCWD, path, folder, name, AT_SYMLINK_FOLLOW) < 0 ? -errno : 0;
}

int vm_link_disk(const struct vm *vm, int folder, const char *upper, const char *lower, const char *image)
{
	char path[FD_PATH];
	int status;

	snprintf(path, sizeof path, "/proc/self/fd/%d", vm->upper);
	status = link_to(path, folder, upper);
	if (!status)
		status = link_to(vm->source->disk.path, folder, lower);
	/* An image elsewhere has only its own name. */
	if (!status && link_to(vm->source->image.path, folder, image))
		log_debug("%s: its image %s gets no other name", vm->id, vm->source->image.name);
	return status;
}

uint64_t vm_file_bytes_max(const struct vm *vm)
{
	const struct vm_source *source = vm->source;
	uint64_t bytes = VM_SERIAL_MAX, upper;

	if (vm->build)
		bytes += source->memory_bytes;
	else if (!vm->config->serial_directory)
		bytes = vm_save_bytes_max(vm);
	if (!vm_source_has_disk(source))
		return bytes;
	upper = UPPER_ENDS + source->disk_bytes / DISK_BYTES_A_BIT / 8 + source->disk_bytes;
	return upper > bytes ? upper : bytes;
}

int vm_set_file_bytes_max(const struct vm *vm)
{
	const uint64_t bytes = vm_file_bytes_max(vm);
	const struct rlimit limit = {.rlim_cur = bytes, .rlim_max = bytes};

	/* Not reaped, so the pid is its own. */
	if (prlimit(vm->pid, RLIMIT_FSIZE, &limit, NULL) == 0)
		return 0;
	/* Without a disk there is no file that it could write to before it is asked for a save. */
	return errno == EPERM && !vm_source_has_disk(vm->source) ? 0 : -errno;
}
