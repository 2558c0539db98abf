/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/mounts.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#define STAGING "/.tinderbox"
#define BASE STAGING "/base"
#define PRIVATE STAGING "/private"
#define NEW_ROOT STAGING "/root"

enum stage { STAGE_EARLY, STAGE_BASE, STAGE_PRIVATE, STAGE_OVERLAY, STAGE_LATE };

/* What may stand for a row's source: the table cannot know a device's name. */
static const char from_root[] = "root", from_upper[] = "upper";

static const struct row {
	enum stage stage;
	const char *source, *target, *type;
	unsigned long flags;
	const char *data;
} table[] = {
	{STAGE_EARLY, "proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	{STAGE_EARLY, "sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
	{STAGE_EARLY, "devtmpfs", "/dev", "devtmpfs", MS_NOSUID, "mode=0755"},
	{STAGE_BASE, from_root, BASE, "erofs", MS_RDONLY, NULL},
	{STAGE_BASE, from_root, BASE, "ext4", MS_RDONLY,
		NULL}, /* a foreign image; tried when it is no erofs */
	{STAGE_PRIVATE, from_upper, PRIVATE, "tmpfs", 0, "mode=0755"},
	{STAGE_PRIVATE, from_upper, PRIVATE, "ext4", MS_NOATIME, NULL},
	{STAGE_OVERLAY, "overlay", NEW_ROOT, "overlay", 0,
		"lowerdir=" BASE ",upperdir=" PRIVATE "/upper,workdir=" PRIVATE "/work"},
	{STAGE_LATE, "devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "gid=5,mode=620,ptmxmode=666"},
	{STAGE_LATE, "tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"},
	{STAGE_LATE, "tmpfs", "/run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755"},
	{STAGE_LATE, "tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"},
	{STAGE_LATE, "cgroup2", MOUNTS_CGROUP_ROOT, "cgroup2", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL},
};

enum { ROWS = sizeof(table) / sizeof(table[0]) };

/* 0 or -errno. A target that is missing is made: any tree can be a root. */
static int mount_row(const struct row *row, const char *source)
{
	mkdir(row->target, 0755);
	return mount(source, row->target, row->type, row->flags, row->data) < 0 ? -errno : 0;
}

static void mount_stage(enum stage stage, struct warnings *warnings)
{
	for (int i = 0; i < ROWS; i++) {
		const struct row *row = &table[i];
		int r = row->stage == stage ? mount_row(row, row->source) : 0;

		/* DEVTMPFS_MOUNT kernels and test hosts have some of them mounted already. */
		if (r < 0 && r != -EBUSY)
			warnings_add(warnings, "mount: %s on %s: %s", row->type, row->target, strerror(-r));
	}
}

/* The first row of a stage that takes this source. tmpfs: only the row of that type. */
static int mount_first(enum stage stage, const char *source)
{
	int r = -ENODEV;

	for (int i = 0; i < ROWS; i++) {
		bool wants_device = strcmp(table[i].type, "tmpfs") != 0;

		if (table[i].stage != stage || wants_device != (source[0] == '/'))
			continue;
		r = mount_row(&table[i], source);
		/* Only "no such file system on it" is worth another type. */
		if (r != -EINVAL && r != -ENODEV)
			break;
	}
	return r;
}

void mounts_early(struct warnings *warnings)
{
	mount_stage(STAGE_EARLY, warnings);
}

void mounts_late(struct warnings *warnings)
{
	mount_stage(STAGE_LATE, warnings);
	/* What programs expect to find under these names. */
	if (symlink("/proc/self/fd", "/dev/fd") < 0 && errno != EEXIST)
		warnings_add(warnings, "cannot make /dev/fd: %s", strerror(errno));
	symlink("/proc/self/fd/0", "/dev/stdin");
	symlink("/proc/self/fd/1", "/dev/stdout");
	symlink("/proc/self/fd/2", "/dev/stderr");
}

/* ---- emptying the initramfs ---- */

static int remove_entry(int fd, const char *name, dev_t device, int depth);

static int empty_folder(int fd, dev_t device, int depth)
{
	DIR *entries = layers_read_folder(fd);
	struct dirent *entry;
	int result = 0;

	if (!entries)
		return -errno;
	while ((entry = readdir(entries))) {
		int r = 0;

		if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
			r = remove_entry(fd, entry->d_name, device, depth);
		if (result == 0)
			result = r;
	}
	closedir(entries);
	return result;
}

static int remove_entry(int fd, const char *name, dev_t device, int depth)
{
	struct stat st;
	int below, r = 0;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return -errno;
	if (st.st_dev != device)
		return 0; /* a mount point */
	if (!S_ISDIR(st.st_mode))
		return unlinkat(fd, name, 0) < 0 ? -errno : 0;
	if (depth >= MOUNTS_DEPTH_MAX)
		return -ELOOP;
	below = openat(fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (below < 0)
		return -errno;
	r = empty_folder(below, device, depth + 1);
	fd_close(&below);
	if (r == 0 && unlinkat(fd, name, AT_REMOVEDIR) < 0 && errno != EBUSY && errno != ENOTEMPTY)
		r = -errno;
	return r;
}

int mounts_empty_folder(int fd)
{
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	return empty_folder(fd, st.st_dev, 0);
}

/* Only ever what lives in memory and came from the initramfs. */
static bool is_initramfs(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == 0 && (fs.f_type == RAMFS_MAGIC || fs.f_type == TMPFS_MAGIC);
}

/* ---- the root ---- */

static int mount_root(const struct options *options, struct warnings *warnings)
{
	int r;

	mkdir(STAGING, 0700);
	r = mount_first(STAGE_BASE, options->root);
	if (r < 0) {
		warnings_add(warnings, "root: no base at %s (%s): the initramfs stays the root",
			options->root, strerror(-r));
		return r;
	}
	r = mount_first(STAGE_PRIVATE, options->upper);
	if (r < 0) {
		warnings_add(warnings, "root: no private layer on %s (%s): the initramfs stays the root",
			options->upper, strerror(-r));
		return r;
	}
	mkdir(PRIVATE "/upper", 0755);
	mkdir(PRIVATE "/work", 0755);
	r = mount_first(STAGE_OVERLAY, "/overlay");
	if (r < 0)
		warnings_add(warnings, "root: no overlay (%s): the initramfs stays the root", strerror(-r));
	return r;
}

/* What the agent reads of them, once they are out of everybody's sight. */
static void open_layers(struct layers *layers, struct warnings *warnings)
{
	layers->upper = open(PRIVATE "/upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	layers->lower = open(BASE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	layers->store = open(PRIVATE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (layers->upper >= 0 && layers->lower >= 0 && layers->store >= 0)
		return;
	warnings_add(warnings, "root: its layers cannot be read: %s", strerror(errno));
	fd_close(&layers->upper);
	fd_close(&layers->lower);
	fd_close(&layers->store);
}

static void unmount_root(void)
{
	umount2(NEW_ROOT, MNT_DETACH);
	umount2(PRIVATE, MNT_DETACH);
	umount2(BASE, MNT_DETACH);
}

static void move_early(struct warnings *warnings)
{
	for (int i = 0; i < ROWS; i++) {
		char target[sizeof(NEW_ROOT) + 16];

		if (table[i].stage != STAGE_EARLY)
			continue;
		snprintf(target, sizeof(target), "%s%s", NEW_ROOT, table[i].target);
		mkdir(target, 0755);
		if (mount(table[i].target, target, NULL, MS_MOVE, NULL) < 0)
			warnings_add(warnings, "mount: cannot move %s: %s", table[i].target, strerror(errno));
	}
}

bool mounts_root(const struct options *options, struct warnings *warnings, struct layers *layers)
{
	int initramfs;

	*layers = (struct layers){.upper = -1, .lower = -1, .store = -1};
	if (strcmp(options->root, "none") == 0)
		return false;
	if (mount_root(options, warnings) < 0) {
		unmount_root();
		return false;
	}
	open_layers(layers, warnings);
	initramfs = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	move_early(warnings);
	/* The first mount of all cannot be moved or unmounted, so the new root is moved over it. */
	if (chdir(NEW_ROOT) < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0 ||
		chdir("/") < 0)
		warnings_add(warnings, "root: cannot move to the new root: %s", strerror(errno));
	/* Now that nothing can want it back: its memory. */
	else if (initramfs >= 0 && is_initramfs(initramfs))
		mounts_empty_folder(initramfs);
	fd_close(&initramfs);
	return true;
}
