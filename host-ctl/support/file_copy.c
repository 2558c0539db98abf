/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/support/file_copy.h"
#include "common/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { STEP = 64 << 20 /* between two looks at whether it is still wanted */ };

static bool is_stopped(const atomic_bool *stop)
{
	return stop && atomic_load(stop);
}

/* [at, until) of one file to the same place of another. */
static int copy_range(int from, int to, const atomic_bool *stop, off_t at, off_t until)
{
	if (lseek(to, at, SEEK_SET) < 0)
		return -errno;
	while (at < until) {
		const size_t wanted = until - at < STEP ? (size_t)(until - at) : STEP;
		ssize_t sent;

		if (is_stopped(stop))
			return -ECANCELED;
		sent = sendfile(to, from, &at, wanted);
		if (sent < 0 && errno != EINTR)
			return -errno;
		if (sent == 0)
			return -ENODATA; /* it was cut off meanwhile */
	}
	return 0;
}

int file_copy(int from, int to, const atomic_bool *stop)
{
	struct stat status;
	off_t at = 0, until;
	int r;

	if (is_stopped(stop))
		return -ECANCELED;
	/* Where the file system can share the blocks, that is all. */
	if (ioctl(to, FICLONE, from) == 0)
		return 0;
	if (fstat(from, &status) < 0 || ftruncate(to, status.st_size) < 0)
		return -errno;
	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		until = lseek(from, at, SEEK_HOLE);
		if (until < 0)
			return -errno;
		r = copy_range(from, to, stop, at, until);
		if (r < 0)
			return r;
		at = until;
	}
	return errno == ENXIO ? 0 : -errno;
}

bool file_copy_shares(int from, const char *folder)
{
	struct file_clone_range range = {.src_fd = from};
	struct statvfs disk;
	int to = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	bool shares = to >= 0 && fstatvfs(to, &disk) == 0;

	if (shares) {
		range.src_length = disk.f_bsize;
		shares = ioctl(to, FICLONERANGE, &range) == 0;
	}
	fd_close(&to);
	return shares;
}
