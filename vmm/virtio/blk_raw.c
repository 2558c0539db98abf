/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/blk_disk.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ZEROS = 16 * 1024 }; /* bytes written at once */

struct blk_raw {
	struct blk_disk base;
	int fd;
};

/* files */

int blk_file_transfer(int fd, struct virtq_bytes *bytes, uint64_t offset, bool to_file)
{
	while (bytes->length) {
		ssize_t moved = to_file ? pwritev(fd, bytes->iov, (int)bytes->count, (off_t)offset)
					: preadv(fd, bytes->iov, (int)bytes->count, (off_t)offset);

		if (moved < 0 && errno == EINTR)
			continue;
		if (moved < 0)
			return -errno;
		if (moved == 0)
			return -EIO; /* the file has been cut */
		virtq_bytes_skip(bytes, (uint64_t)moved);
		offset += (uint64_t)moved;
	}
	return 0;
}

/* 0, -EOPNOTSUPP: not with this file or range (a block device bears whole blocks of its own only), or -errno.
 */
static int allocate(int fd, int mode, uint64_t offset, uint64_t length)
{
	int r;

	do
		r = fallocate(fd, mode | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)length);
	while (r < 0 && errno == EINTR);
	if (r == 0)
		return 0;
	return errno == EINVAL || errno == ENOSYS ? -EOPNOTSUPP : -errno;
}

static int write_zeros(int fd, uint64_t offset, uint64_t length)
{
	const uint8_t zeros[ZEROS] = {0};

	while (length) {
		size_t piece = length < sizeof(zeros) ? length : sizeof(zeros);
		int r = io_pwrite_all(fd, zeros, piece, offset);

		if (r < 0)
			return r;
		offset += piece;
		length -= piece;
	}
	return 0;
}

int blk_file_zero(int fd, uint64_t offset, uint64_t length, bool unmap)
{
	int r = unmap ? allocate(fd, FALLOC_FL_PUNCH_HOLE, offset, length) : -EOPNOTSUPP;

	if (r == -EOPNOTSUPP)
		r = allocate(fd, FALLOC_FL_ZERO_RANGE, offset, length);
	return r == -EOPNOTSUPP ? write_zeros(fd, offset, length) : r;
}

int blk_file_discard(int fd, uint64_t offset, uint64_t length)
{
	int r = allocate(fd, FALLOC_FL_PUNCH_HOLE, offset, length);

	return r == -EOPNOTSUPP ? 0 : r;
}

int blk_file_size(int fd, uint64_t *size)
{
	struct stat status;
	off_t end;

	if (fstat(fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
		return -ENOTBLK;
	end = S_ISREG(status.st_mode) ? status.st_size : lseek(fd, 0, SEEK_END);
	if (end < 0)
		return -errno;
	*size = (uint64_t)end;
	return 0;
}

/* operations */

static int fd_of(struct blk_disk *disk)
{
	return ((struct blk_raw *)disk)->fd;
}

static int read_raw(struct blk_disk *disk, struct virtq_bytes *bytes, uint64_t offset)
{
	return blk_file_transfer(fd_of(disk), bytes, offset, false);
}

static int write_raw(struct blk_disk *disk, struct virtq_bytes *bytes, uint64_t offset)
{
	return blk_file_transfer(fd_of(disk), bytes, offset, true);
}

static int zero_raw(struct blk_disk *disk, uint64_t offset, uint64_t length, bool unmap)
{
	return blk_file_zero(fd_of(disk), offset, length, unmap);
}

static int discard_raw(struct blk_disk *disk, uint64_t offset, uint64_t length)
{
	return blk_file_discard(fd_of(disk), offset, length);
}

static int flush_raw(struct blk_disk *disk)
{
	return fdatasync(fd_of(disk)) < 0 ? -errno : 0;
}

static void destroy_raw(struct blk_disk *disk)
{
	struct blk_raw *raw = (struct blk_raw *)disk;

	fd_close(&raw->fd);
	free(raw);
}

static const struct blk_disk_ops raw_ops = {
	.read = read_raw,
	.write = write_raw,
	.zero = zero_raw,
	.discard = discard_raw,
	.flush = flush_raw,
	.destroy = destroy_raw,
};

/* create */

static int check_file(int fd, bool read_only, uint64_t *length)
{
	int flags = fcntl(fd, F_GETFL), r;

	if (flags < 0)
		return -errno;
	r = blk_file_size(fd, length);
	if (r < 0)
		return r;
	if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	if (!read_only && (flags & O_ACCMODE) != O_RDWR)
		return -EACCES;
	return *length == 0 || *length % BLK_SECTOR ? -EINVAL : 0;
}

int blk_raw_create(int fd, bool read_only, struct blk_disk **out)
{
	struct blk_raw *raw = calloc(1, sizeof(*raw));
	uint64_t length = 0;
	int error = raw ? check_file(fd, read_only, &length) : -ENOMEM;

	if (error) {
		fd_close(&fd);
		free(raw);
		return error;
	}
	*raw = (struct blk_raw){.base = {.ops = &raw_ops, .size = length}, .fd = fd};
	*out = &raw->base;
	return 0;
}
