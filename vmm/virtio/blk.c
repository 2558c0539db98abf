/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chain is one request. Its header is copied and parsed, its last writable byte is the status, and what
 * is between goes from or to the file without a copy of ours. Drivers may cut the parts into descriptors as
 * they like (2.7.4).
 */
#include "vmm/virtio/blk.h"
#include "common/io.h"
#include "common/log.h"
#include "vmm/virtio/virtio.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLK_QUEUE = 0 };

enum blk_failure { BLK_READ, BLK_WRITE, BLK_FLUSH, BLK_FAILURES };

struct blk {
	struct virtio_device base;
	struct virtio_blk_config config;
	int fd;
	bool read_only;
	char id[BLK_ID_BYTES];
	bool logged[BLK_FAILURES];
	unsigned syncs; /* in this round */
};

/* One request, checked: readable and writable are its data, header and status taken off. */
struct blk_request {
	uint32_t type;
	uint64_t sector;
	struct virtq_bytes *readable, *writable;
};

/* request */

static uint8_t host_failed(struct blk *blk, enum blk_failure kind, int error)
{
	static const char *const names[] = {
		[BLK_READ] = "read", [BLK_WRITE] = "write", [BLK_FLUSH] = "flush"};

	if (!blk->logged[kind])
		log_error("blk: %s: %s", names[kind], strerror(-error));
	blk->logged[kind] = true;
	return VIRTIO_BLK_S_IOERR;
}

/* Moves all the bytes; what is left of them tells how far it came. 0 or -errno. */
static int transfer(int fd, struct virtq_bytes *bytes, uint64_t offset, bool to_disk)
{
	while (bytes->length) {
		ssize_t moved = to_disk ? pwritev(fd, bytes->iov, (int)bytes->count, (off_t)offset)
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

/* The range is whole sectors inside the disk; *offset in bytes. */
static bool range_valid(const struct blk *blk, uint64_t sector, uint64_t length, uint64_t *offset)
{
	uint64_t sectors = length / BLK_SECTOR;

	if (length == 0 || length % BLK_SECTOR || length > BLK_REQUEST_MAX)
		return false;
	if (sector > blk->config.capacity || sectors > blk->config.capacity - sector)
		return false;
	*offset = sector * BLK_SECTOR;
	return true;
}

static uint8_t serve_in(struct blk *blk, const struct blk_request *request)
{
	uint64_t offset;
	int error;

	if (request->readable->length ||
		!range_valid(blk, request->sector, request->writable->length, &offset))
		return VIRTIO_BLK_S_IOERR;
	error = transfer(blk->fd, request->writable, offset, false);
	return error ? host_failed(blk, BLK_READ, error) : VIRTIO_BLK_S_OK;
}

static uint8_t sync_disk(struct blk *blk)
{
	blk->syncs++;
	return fdatasync(blk->fd) < 0 ? host_failed(blk, BLK_FLUSH, -errno) : VIRTIO_BLK_S_OK;
}

static uint8_t serve_out(struct blk *blk, const struct blk_request *request)
{
	uint64_t offset;
	int error;

	if (blk->read_only || request->writable->length ||
		!range_valid(blk, request->sector, request->readable->length, &offset))
		return VIRTIO_BLK_S_IOERR;
	error = transfer(blk->fd, request->readable, offset, true);
	if (error)
		return host_failed(blk, BLK_WRITE, error);
	/* 5.2.6.2: without FLUSH the driver takes a write that is done for one that is stable. */
	return virtio_device_has(&blk->base, VIRTIO_BLK_F_FLUSH) ? VIRTIO_BLK_S_OK : sync_disk(blk);
}

static uint8_t serve_flush(struct blk *blk, const struct blk_request *request)
{
	if (!virtio_device_has(&blk->base, VIRTIO_BLK_F_FLUSH))
		return VIRTIO_BLK_S_UNSUPP;
	if (request->readable->length || request->writable->length)
		return VIRTIO_BLK_S_IOERR;
	return sync_disk(blk);
}

static uint8_t serve_get_id(struct blk *blk, const struct blk_request *request)
{
	if (request->readable->length || virtq_bytes_put(request->writable, blk->id, sizeof(blk->id)) < 0)
		return VIRTIO_BLK_S_IOERR;
	return VIRTIO_BLK_S_OK;
}

static uint8_t serve(struct blk *blk, const struct blk_request *request)
{
	switch (request->type) {
	case VIRTIO_BLK_T_IN:
		return serve_in(blk, request);
	case VIRTIO_BLK_T_OUT:
		return serve_out(blk, request);
	case VIRTIO_BLK_T_FLUSH:
		return serve_flush(blk, request);
	case VIRTIO_BLK_T_GET_ID:
		return serve_get_id(blk, request);
	default:
		return VIRTIO_BLK_S_UNSUPP;
	}
}

/* Serves the chain and gives it back. The bytes it asked for; -EPROTO: no room for a status. */
static int64_t serve_chain(struct blk *blk, struct virtq_chain *chain)
{
	struct blk_request request = {.readable = &chain->readable, .writable = &chain->writable};
	uint64_t asked = chain->readable.length + chain->writable.length;
	uint8_t *status = virtq_bytes_cut_last(&chain->writable);
	uint64_t room = chain->writable.length, written;
	struct virtio_blk_outhdr header;

	if (!status)
		return -EPROTO;
	if (virtq_bytes_take(&chain->readable, &header, sizeof(header)) < 0) {
		*status = VIRTIO_BLK_S_IOERR;
	} else {
		request.type = header.type;
		request.sector = header.sector;
		*status = serve(blk, &request);
	}
	/* 2.7.8.2: bytes from the start without a gap, so the status counts when all before it was filled. */
	written = room - chain->writable.length;
	virtq_push(
		&blk->base.queues[BLK_QUEUE], chain->head, (uint32_t)(written == room ? room + 1 : written));
	return (int64_t)asked;
}

/* device */

static bool notify(struct virtio_device *device, unsigned queue)
{
	struct blk *blk = (struct blk *)device;
	struct virtq *virtq = &device->queues[queue];
	struct virtq_chain chain;
	int64_t bytes = 0;

	virtq_no_notify(virtq);
	blk->syncs = 0;
	for (unsigned served = 0; served < BLK_QUEUE_SIZE; served++) {
		int64_t asked;

		if (bytes >= BLK_ROUND_BYTES || blk->syncs >= BLK_ROUND_SYNCS)
			break;
		if (virtio_device_pop(device, queue, &chain) <= 0)
			break;
		asked = serve_chain(blk, &chain);
		if (asked < 0) {
			virtio_device_refuse(device, queue, "a request without room for its status");
			break;
		}
		bytes += asked;
	}
	virtio_device_publish(device, queue);
	return virtq_want_notify(virtq);
}

/* operations */

static void destroy(struct virtio_device *device)
{
	struct blk *blk = (struct blk *)device;

	fd_close(&blk->fd);
	free(blk);
}

static const struct virtio_device_ops blk_ops = {
	.notify = notify,
	.destroy = destroy,
};

/* create */

/* The file's length in *length; errors as blk_create's. */
static int check_file(const struct blk_config *config, uint64_t *length)
{
	int flags = fcntl(config->fd, F_GETFL);
	struct stat status;
	off_t end;

	if (flags < 0 || fstat(config->fd, &status) < 0)
		return -errno;
	if (!S_ISREG(status.st_mode) && !S_ISBLK(status.st_mode))
		return -ENOTBLK;
	if ((flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
		return -EACCES;
	if (!config->read_only && (flags & O_ACCMODE) != O_RDWR)
		return -EACCES;
	end = lseek(config->fd, 0, SEEK_END); /* for a block device st_size is 0 */
	if (end < 0)
		return -errno;
	if (end == 0 || end % BLK_SECTOR)
		return -EINVAL;
	*length = (uint64_t)end;
	return 0;
}

int blk_create(const struct blk_config *config, struct virtio_device **out)
{
	struct blk *blk = calloc(1, sizeof(*blk));
	int fd = config->fd, error = -ENOMEM;
	uint64_t length = 0;

	if (!blk)
		goto fail;
	error = check_file(config, &length);
	if (error)
		goto fail;
	blk->fd = fd;
	blk->read_only = config->read_only;
	if (config->id)
		memcpy(blk->id, config->id, strnlen(config->id, sizeof(blk->id)));
	blk->config.capacity = length / BLK_SECTOR;
	blk->config.size_max = BLK_SEGMENT_MAX;
	blk->config.seg_max = BLK_SEGMENTS_MAX;
	blk->config.blk_size = BLK_SECTOR;
	blk->base = (struct virtio_device){
		.ops = &blk_ops,
		.name = "blk",
		.id = VIRTIO_ID_BLOCK,
		.features = VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(VIRTIO_BLK_F_SIZE_MAX) |
			    VIRTIO_FEATURE(VIRTIO_BLK_F_SEG_MAX) | VIRTIO_FEATURE(VIRTIO_BLK_F_BLK_SIZE) |
			    VIRTIO_FEATURE(config->read_only ? VIRTIO_BLK_F_RO : VIRTIO_BLK_F_FLUSH),
		.config = &blk->config,
		.config_length = sizeof(blk->config),
		.queue_count = 1,
	};
	blk->base.queues[BLK_QUEUE].size_max = BLK_QUEUE_SIZE;
	*out = &blk->base;
	return 0;
fail:
	fd_close(&fd);
	free(blk);
	return error;
}
