/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/serve/serve_check.h"
#include "common/io.h"
#include "host-ctl/pool/template.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum want {
	WANT_EXECUTABLE = 1 << 0,
	WANT_ELF = 1 << 1,
	ALLOW_BLOCK_DEVICE = 1 << 2,
	WANT_CPIO = 1 << 3,
	WANT_SECTORS = 1 << 4,
};

static const struct check {
	size_t path; /* in the options */
	const char *what, *mend;
	unsigned int wants;
} checks[] = {
	{offsetof(struct serve_options, vmm), "vmm", "name the vmm's executable with --vmm", WANT_EXECUTABLE},
	{offsetof(struct serve_options, kernel), "kernel",
		"name the guest's kernel, a vmlinux, with --kernel", WANT_ELF},
	{offsetof(struct serve_options, initrd), "initrd", "name an initramfs with guest-init with --initrd",
		WANT_CPIO},
	{offsetof(struct serve_options, image), "image", "name a base image with --image",
		ALLOW_BLOCK_DEVICE | WANT_SECTORS},
};
enum { CHECKS = sizeof checks / sizeof checks[0], CPIO_MAGIC = 6 };

static bool begins_as_elf(int fd)
{
	char magic[SELFMAG];

	return pread(fd, magic, SELFMAG, 0) == SELFMAG && !memcmp(magic, ELFMAG, SELFMAG);
}

/* Of the forms that Linux unpacks; kernel-config has no decompressor. */
static bool begins_as_cpio(int fd)
{
	char magic[CPIO_MAGIC];

	return pread(fd, magic, CPIO_MAGIC, 0) == CPIO_MAGIC &&
	       (!memcmp(magic, "070701", CPIO_MAGIC) || !memcmp(magic, "070702", CPIO_MAGIC));
}

/* What is wrong with the file, or NULL; *number: the errno that says why, or 0. */
static const char *find_fault(const struct check *check, const char *path, int *number)
{
	const char *fault = NULL;
	struct stat status;
	int fd;

	*number = 0;
	if (stat(path, &status) < 0) {
		*number = errno;
		return "cannot be found";
	}
	if (S_ISDIR(status.st_mode))
		return "is a folder";
	if (!S_ISREG(status.st_mode) && !(S_ISBLK(status.st_mode) && check->wants & ALLOW_BLOCK_DEVICE))
		return "is not a regular file";
	if (S_ISREG(status.st_mode) && status.st_size == 0)
		return "is empty";
	if (check->wants & WANT_EXECUTABLE && access(path, X_OK) < 0) {
		*number = errno;
		return "cannot be executed";
	}
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		*number = errno;
		return "cannot be read";
	}
	if (check->wants & WANT_ELF && !begins_as_elf(fd))
		fault = "is not an ELF file";
	if (check->wants & WANT_CPIO && !begins_as_cpio(fd))
		fault = "is not an uncompressed cpio archive of the form newc";
	fd_close(&fd);
	return fault;
}

/* As `template build --image` looks at it. What has gone meanwhile is told later. */
static int check_sectors(const char *path, struct error *error)
{
	struct stat status;

	return stat(path, &status) < 0 ? 0 : template_check_image(&status, path, error);
}

static int check_file(const struct check *check, const struct serve_options *options, struct error *error)
{
	const char *path = *(const char *const *)((const char *)options + check->path);
	int number;
	const char *fault = find_fault(check, path, &number);

	if (!fault)
		return check->wants & WANT_SECTORS ? check_sectors(path, error) : 0;
	return error_set(error, ERROR_INVALID, "the %s %s %s%s%s%s: %s", check->what, path, fault,
		number ? " (" : "", number ? strerror(number) : "", number ? ")" : "", check->mend);
}

static int check_kvm(const char *path, struct error *error)
{
	struct stat status = {0};
	int number, fd = stat(path, &status);

	if (fd == 0 && !S_ISCHR(status.st_mode))
		return error_set(error, ERROR_INVALID,
			"the KVM device %s is not a character device: give /dev/kvm with --kvm", path);
	if (fd == 0)
		fd = open(path, O_RDWR | O_CLOEXEC);
	number = fd < 0 ? errno : 0;
	fd_close(&fd);
	if (!number)
		return 0;
	if (number == ENOENT || number == ENODEV || number == ENXIO)
		return error_set(error, ERROR_INVALID,
			"the KVM device %s: there is no such device: load kvm_intel or kvm_amd, or run "
			"`host-ctl doctor`",
			path);
	return error_set(error, ERROR_INVALID,
		"the KVM device %s cannot be opened (%s): be root, or run `host-ctl doctor`", path,
		strerror(number));
}

/* A VM that wants more than that is refused by its vmm; here once, and not at each start. */
static int check_memory(uint64_t wanted, struct error *error)
{
	uint64_t memory = room_host_bytes();

	if (wanted <= memory)
		return 0;
	return error_set(error, ERROR_INVALID,
		"--mem of %" PRIu64 "M for each VM is more than the %" PRIu64
		"M that this host has: give less",
		wanted >> 20, memory >> 20);
}

static int check_serial_directory(const char *path, struct error *error)
{
	struct stat status;

	if (stat(path, &status) < 0)
		return error_set(error, ERROR_INVALID,
			"the folder of serial logs %s cannot be found (%s): make it, or name another with "
			"--serial-dir",
			path, strerror(errno));
	if (!S_ISDIR(status.st_mode))
		return error_set(error, ERROR_INVALID,
			"the folder of serial logs %s is not a folder: name one with --serial-dir", path);
	if (access(path, W_OK | X_OK) < 0)
		return error_set(error, ERROR_INVALID,
			"the folder of serial logs %s cannot be written (%s): name another with --serial-dir",
			path, strerror(errno));
	return 0;
}

int serve_check(const struct serve_options *options, struct error *error)
{
	if (geteuid() != 0)
		return error_set(error, ERROR_DENIED,
			"host-ctl serve runs as uid %u and needs root, to give each VM a uid and a cgroup of "
			"its own: start it as root",
			(unsigned int)geteuid());
	for (int i = 0; i < CHECKS; i++)
		if (check_file(&checks[i], options, error))
			return -1;
	if (check_memory(options->memory_bytes, error))
		return -1;
	if (check_kvm(options->kvm, error))
		return -1;
	return options->serial_directory ? check_serial_directory(options->serial_directory, error) : 0;
}
