/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/files.h"
#include "common/io.h"
#include "vmm/config_options.h"
#include "vmm/cow.h"
#include "vmm/reason.h"
#include "vmm/tap.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/blk_disk.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What of a file is asked for, and the words for it. */
struct purpose {
	const char *option;
	int flags;
	const char *access; /* "for reading" */
	const char *mend;   /* when that is refused */
};

static const struct purpose kernel_purpose = {
	"kernel", O_RDONLY | O_NONBLOCK, "for reading", "change its mode or owner"};
static const struct purpose initrd_purpose = {
	"initrd", O_RDONLY | O_NONBLOCK, "for reading", "change its mode or owner"};
static const struct purpose restore_purpose = {
	"restore", O_RDONLY | O_NONBLOCK, "for reading", "change its mode or owner"};
static const struct purpose shared_disk_purpose = {
	"disk", O_RDONLY | O_NONBLOCK, "for reading", "change its mode or owner"};
static const struct purpose private_disk_purpose = {
	"disk", O_RDWR | O_NONBLOCK, "for reading and writing", "add ,ro or change its mode or owner"};
static const struct purpose upper_purpose = {"disk", O_RDWR | O_CREAT | O_NONBLOCK, "for reading and writing",
	"change its mode or owner, or give another ,cow="};
static const struct purpose serial_purpose = {
	"serial", O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY, "for writing", "change its mode or owner"};
static const struct purpose stats_purpose = {
	"stats", O_WRONLY | O_CREAT | O_NOCTTY, "for writing", "change its mode or owner"};

enum { FILE_MODE = 0600 };

static int explain_open(const struct purpose *purpose, const char *file, int r, char *error)
{
	switch (r) {
	case -ENOENT:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--%s " CONFIG_SHOWN " does not exist; check the path", purpose->option, file);
	case -EACCES:
	case -EPERM:
	case -EROFS:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--%s " CONFIG_SHOWN " may not be opened %s (%s); %s", purpose->option, file,
			purpose->access, strerror(-r), purpose->mend);
	case -EBADF:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--%s " CONFIG_SHOWN " is not open; have the parent process pass it on",
			purpose->option, file);
	default:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--%s " CONFIG_SHOWN " cannot be opened %s (%s); give another file", purpose->option,
			file, purpose->access, strerror(-r));
	}
}

/* An inherited file was opened by somebody else: does it allow what is needed? */
static int check_access(const struct purpose *purpose, const char *file, int fd, char *error)
{
	int have = fcntl(fd, F_GETFL), want = purpose->flags & O_ACCMODE;

	if (have < 0)
		return explain_open(purpose, file, -errno, error);
	if (have & O_PATH)
		return explain_open(purpose, file, -EBADF, error);
	have &= O_ACCMODE;
	if (have == O_RDWR || have == want)
		return 0;
	return explain_open(purpose, file, -EACCES, error);
}

static int open_file(const struct purpose *purpose, const char *file, int *fd, char *error)
{
	int r = io_open_arg(file, purpose->flags, FILE_MODE);

	if (r < 0)
		return explain_open(purpose, file, r, error);
	*fd = r;
	return config_file_number(file) < 0 ? 0 : check_access(purpose, file, r, error);
}

/* What blk_create would refuse with a number only. */
static int check_disk(const char *file, int fd, char *error)
{
	uint64_t size;
	int r = blk_file_size(fd, &size);

	if (r == -ENOTBLK)
		return reason_set(error, FILES_ERROR_MAX, r,
			"--disk " CONFIG_SHOWN
			" is neither a regular file nor a block device; give a raw disk image",
			file);
	if (r < 0)
		return explain_open(&shared_disk_purpose, file, r, error);
	if (size == 0)
		return reason_set(error, FILES_ERROR_MAX, -EINVAL,
			"--disk " CONFIG_SHOWN " is empty; give it at least one sector of %d bytes", file,
			BLK_SECTOR);
	if (size % BLK_SECTOR != 0)
		return reason_set(error, FILES_ERROR_MAX, -EINVAL,
			"--disk " CONFIG_SHOWN
			" has %llu bytes, not a multiple of %d; pad it to whole sectors",
			file, (unsigned long long)size, BLK_SECTOR);
	return 0;
}

static const char *upper_refusal(int r)
{
	switch (r) {
	case -ENOTBLK:
		return "is no regular file; give a file";
	case -EACCES:
		return "is open for appending only; have the parent process open it for reading and writing";
	case -EFBIG:
		return "would be larger than a file may be; give a smaller disk";
	case -EMEDIUMTYPE:
		return "is not the upper file of a disk; give an empty or a new one";
	case -ESTALE:
		return "belongs to another lower file, or to this one before it was changed; give the one it "
		       "was "
		       "made over";
	case -EBADMSG:
		return "is damaged or was cut; give a copy or a new one";
	case -EBUSY:
		return "is in use by another VM or disk; give each its own";
	default:
		return NULL;
	}
}

static int check_upper(const struct config_disk *disk, int lower, int upper, char *error)
{
	int r = cow_check(lower, upper);
	const char *refusal = upper_refusal(r);

	if (r == 0)
		return 0;
	if (refusal)
		return reason_set(error, FILES_ERROR_MAX, r,
			"--disk " CONFIG_SHOWN ",cow=" CONFIG_SHOWN ": it %s", disk->path, disk->upper,
			refusal);
	return reason_set(error, FILES_ERROR_MAX, r,
		"--disk " CONFIG_SHOWN ",cow=" CONFIG_SHOWN " cannot be used (%s); give other files",
		disk->path, disk->upper, strerror(-r));
}

static int open_disk(const struct config_disk *disk, int *fd, int *upper, char *error)
{
	bool cow = disk->upper[0] != '\0';
	int r = open_file(
		disk->read_only || cow ? &shared_disk_purpose : &private_disk_purpose, disk->path, fd, error);

	if (r == 0)
		r = check_disk(disk->path, *fd, error);
	if (r == 0 && cow)
		r = open_file(&upper_purpose, disk->upper, upper, error);
	return r == 0 && cow ? check_upper(disk, *fd, *upper, error) : r;
}

/* TUNSETIFF's refusals; user: who would own the tap. */
static int explain_tap(const char *tap, int r, char *error)
{
	unsigned user = geteuid();

	switch (r) {
	case -ENODEV:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN
			" does not exist; make it: ip tuntap add %s mode tap user %u, ip link set %s up",
			tap, tap, user, tap);
	case -EPERM:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN " belongs to another user; make it anew for this one: ip "
			"tuntap add %s mode tap user %u",
			tap, tap, user);
	case -EBUSY:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN " is in use by another process; end it or give another tap",
			tap);
	case -EINVAL:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN
			" is not a tap with a single queue; give one made by ip tuntap add NAME mode tap",
			tap);
	case -ENOENT:
	case -ENXIO:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN ": there is no " TAP_DEVICE "; load the module tun", tap);
	case -EACCES:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN ": " TAP_DEVICE
			" may not be opened (%s); change its mode, or hand a tap over as fd:N",
			tap, strerror(-r));
	default:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN " cannot be used (%s); give another tap", tap, strerror(-r));
	}
}

/* The same for one that the parent opened. */
static int explain_inherited_tap(const char *tap, int r, char *error)
{
	switch (r) {
	case -EBADF:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN " is not open; have the parent process pass it on", tap);
	case -ENOTTY:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN " is not a tap; have the parent process open " TAP_DEVICE
			" and name one by TUNSETIFF",
			tap);
	case -EBADFD:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN
			" has no interface (any more); have the parent process name one by TUNSETIFF",
			tap);
	case -EPROTOTYPE:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN
			" lacks IFF_VNET_HDR or IFF_NO_PI; have the parent process set both by TUNSETIFF",
			tap);
	case -EACCES:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN
			" is not open for reading and writing; have the parent process open it for both",
			tap);
	default:
		return reason_set(error, FILES_ERROR_MAX, r,
			"--net " CONFIG_SHOWN " cannot be used (%s); give another tap", tap, strerror(-r));
	}
}

static int open_tap(const char *tap, int *fd, char *error)
{
	int r, number = config_file_number(tap);

	if (number < 0) {
		r = tap_open(tap, fd);
		return r < 0 ? explain_tap(tap, r, error) : 0;
	}
	*fd = io_open_arg(tap, 0, 0);
	r = *fd < 0 ? *fd : tap_adopt(*fd);
	return r < 0 ? explain_inherited_tap(tap, r, error) : 0;
}

static int open_serial(const char *file, struct files *files, char *error)
{
	if (file == NULL)
		return 0;
	if (strcmp(file, "-") != 0)
		return open_file(&serial_purpose, file, &files->serial_out, error);
	files->serial_in = STDIN_FILENO;
	files->serial_out = STDOUT_FILENO;
	return 0;
}

static int open_stats(const struct config *config, struct files *files, char *error)
{
	if (!config->stats)
		return 0;
	if (config->stats_file != NULL)
		return open_file(&stats_purpose, config->stats_file, &files->stats, error);
	files->stats = STDERR_FILENO;
	return 0;
}

/* Nothing is made or refused yet: trace_file_open does that. */
static void look_at_trace(const char *file, struct files *files)
{
	int number = config_file_number(file);

	if (file[0] == '\0')
		return;
	files->trace = number < 0 ? open(file, O_PATH | O_CLOEXEC) : fcntl(number, F_DUPFD_CLOEXEC, 0);
}

static int open_guest(const struct config *config, struct files *files, char *error)
{
	int r = 0;

	if (config->restore.wanted) {
		const struct config_restore *restore = &config->restore;

		r = open_file(&restore_purpose, restore->state, &files->restore_state, error);
		if (r == 0)
			r = open_file(&restore_purpose, restore->memory, &files->restore_memory, error);
		if (r == 0 && restore->working_set[0] != '\0')
			r = open_file(&restore_purpose, restore->working_set, &files->working_set, error);
		if (r == 0 && restore->pages[0] != '\0')
			r = open_file(&restore_purpose, restore->pages, &files->pages, error);
		return r;
	}
	r = open_file(&kernel_purpose, config->kernel, &files->kernel, error);
	if (r == 0 && config->initrd != NULL)
		r = open_file(&initrd_purpose, config->initrd, &files->initrd, error);
	return r;
}

/* One of the files, with what it is given for. */
struct given {
	const char *option, *file;
	int fd;
	bool writes;
	struct stat status;
};

enum { GIVEN_MAX = 9 + 2 * CONFIG_DISKS_MAX };

static bool is_same(const struct stat *a, const struct stat *b)
{
	if (S_ISBLK(a->st_mode) && S_ISBLK(b->st_mode))
		return a->st_rdev == b->st_rdev;
	return S_ISREG(a->st_mode) && a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* An output that the parent opened may be part of its own log. */
static bool is_inherited(const struct given *given)
{
	return strcmp(given->file, "-") == 0 || config_file_number(given->file) >= 0;
}

/* What one of the two writes the other would read, or write as well. */
static bool clash(const struct given *a, const struct given *b)
{
	bool outputs = strcmp(a->option, "serial") == 0 && strcmp(b->option, "stats") == 0;

	if ((!a->writes && !b->writes) || !is_same(&a->status, &b->status))
		return false;
	return !outputs || (!is_inherited(a) && !is_inherited(b));
}

static unsigned list_given(const struct config *config, const struct files *files, struct given *given)
{
	const struct config_restore *restore = &config->restore;
	const struct given others[] = {
		{"kernel", config->kernel, files->kernel, false, {0}},
		{"initrd", config->initrd, files->initrd, false, {0}},
		{"restore", restore->state, files->restore_state, false, {0}},
		{"restore", restore->memory, files->restore_memory, false, {0}},
		{"restore", restore->working_set, files->working_set, false, {0}},
		{"restore", restore->pages, files->pages, false, {0}},
		{"serial", config->serial, files->serial_out, true, {0}},
		{"stats", config->stats_file, config->stats_file ? files->stats : -1, true, {0}},
		{"trace", config->trace.file, files->trace, true, {0}},
	};
	unsigned count = 0;

	for (unsigned i = 0; i < config->disk_count; i++) {
		const struct config_disk *disk = &config->disks[i];
		bool cow = files->uppers[i] >= 0;

		given[count++] =
			(struct given){"disk", disk->path, files->disks[i], !disk->read_only && !cow, {0}};
		if (cow)
			given[count++] = (struct given){"disk", disk->upper, files->uppers[i], true, {0}};
	}
	for (unsigned i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (others[i].fd >= 0)
			given[count++] = others[i];
	return count;
}

static int check_distinct(const struct config *config, const struct files *files, char *error)
{
	struct given given[GIVEN_MAX];
	unsigned count = list_given(config, files, given), writers = 0;

	for (unsigned i = 0; i < count; i++)
		writers += given[i].writes;
	if (writers == 0)
		return 0;
	for (unsigned i = 0; i < count; i++) {
		if (fstat(given[i].fd, &given[i].status) < 0)
			return reason_set(error, FILES_ERROR_MAX, -errno,
				"--%s " CONFIG_SHOWN " cannot be examined (%s); give another file",
				given[i].option, given[i].file, strerror(errno));
		for (unsigned j = 0; j < i; j++)
			if (clash(&given[j], &given[i]))
				return reason_set(error, FILES_ERROR_MAX, -ENOTUNIQ,
					"--%s " CONFIG_SHOWN " and --%s " CONFIG_SHOWN
					" are the same file, and it would be written to; give each its own",
					given[j].option, given[j].file, given[i].option, given[i].file);
	}
	return 0;
}

static void forget_all(struct files *files)
{
	memset(files, -1, sizeof(*files)); /* each is an int of -1 */
}

int files_open(const struct config *config, struct files *files, char *error)
{
	int r;

	forget_all(files);
	r = open_guest(config, files, error);
	for (unsigned i = 0; r == 0 && i < config->disk_count; i++)
		r = open_disk(&config->disks[i], &files->disks[i], &files->uppers[i], error);
	if (r == 0 && config->net.tap[0] != '\0')
		r = open_tap(config->net.tap, &files->tap, error);
	if (r == 0)
		r = open_serial(config->serial, files, error);
	if (r == 0)
		r = open_stats(config, files, error);
	look_at_trace(config->trace.file, files);
	if (r == 0)
		r = check_distinct(config, files, error);
	if (r < 0)
		files_close(files);
	return r;
}

int files_begin_stats(const struct config *config, const struct files *files, char *error)
{
	const char *file = config->stats_file;
	struct stat status;

	if (file == NULL || config_file_number(file) >= 0)
		return 0;
	if (fstat(files->stats, &status) < 0 || (S_ISREG(status.st_mode) && ftruncate(files->stats, 0) < 0))
		return explain_open(&stats_purpose, file, -errno, error);
	return 0;
}

static void close_file(int *fd)
{
	if (*fd > STDERR_FILENO)
		fd_close(fd);
	*fd = -1;
}

void files_close(struct files *files)
{
	close_file(&files->kernel);
	close_file(&files->initrd);
	close_file(&files->restore_state);
	close_file(&files->restore_memory);
	close_file(&files->working_set);
	close_file(&files->pages);
	for (unsigned i = 0; i < CONFIG_DISKS_MAX; i++) {
		close_file(&files->disks[i]);
		close_file(&files->uppers[i]);
	}
	close_file(&files->tap);
	close_file(&files->serial_in);
	close_file(&files->serial_out);
	close_file(&files->stats);
	close_file(&files->trace);
}
