/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One chain is one request. Its header is copied and parsed, its last writable byte is the status, and what
 * is between goes from or to the disk without a copy of ours. Drivers may cut the parts into descriptors as
 * they like (2.7.4). Where the bytes are is the disk's business (blk_disk.h).
 */
#include "vmm/virtio/blk.h"
#include "common/log.h"
#include "vmm/virtio/blk_disk.h"
#include "vmm/virtio/virtio.h"
#include <errno.h>
#include <linux/virtio_blk.h>
#include <stdlib.h>
#include <string.h>

enum { BLK_QUEUE = 0 };

#define BLK_WRITABLE_FEATURES                                                                                \
	(VIRTIO_FEATURE(VIRTIO_BLK_F_FLUSH) | VIRTIO_FEATURE(VIRTIO_BLK_F_DISCARD) |                         \
		VIRTIO_FEATURE(VIRTIO_BLK_F_WRITE_ZEROES))

enum blk_failure { BLK_READ, BLK_WRITE, BLK_FLUSH, BLK_DISCARD, BLK_ZERO, BLK_FAILURES };

struct blk {
	struct virtio_device base;
	struct virtio_blk_config config;
	struct blk_disk *disk;
	bool read_only;
	char id[BLK_ID_BYTES];
	bool logged[BLK_FAILURES];
	/* in this round */
	uint64_t bytes;
	unsigned syncs;
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
	static const char *const names[] = {[BLK_READ] = "read",
		[BLK_WRITE] = "write",
		[BLK_FLUSH] = "flush",
		[BLK_DISCARD] = "discard",
		[BLK_ZERO] = "write-zeroes"};

	if (!blk->logged[kind])
		log_error("blk: %s: %s", names[kind], strerror(-error));
	blk->logged[kind] = true;
	return VIRTIO_BLK_S_IOERR;
}

/* The range is whole sectors inside the disk; *offset in bytes. */
static bool range_valid(
	const struct blk *blk, uint64_t sector, uint64_t length, uint64_t most, uint64_t *offset)
{
	uint64_t sectors = length / BLK_SECTOR;

	if (length == 0 || length % BLK_SECTOR || length > most)
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
		!range_valid(blk, request->sector, request->writable->length, BLK_REQUEST_MAX, &offset))
		return VIRTIO_BLK_S_IOERR;
	error = blk->disk->ops->read(blk->disk, request->writable, offset);
	return error ? host_failed(blk, BLK_READ, error) : VIRTIO_BLK_S_OK;
}

static uint8_t sync_disk(struct blk *blk)
{
	int error = blk->disk->ops->flush(blk->disk);

	blk->syncs++;
	return error ? host_failed(blk, BLK_FLUSH, error) : VIRTIO_BLK_S_OK;
}

/* 5.2.6.2: without FLUSH the driver takes a change that is done for one that is stable. */
static uint8_t end_change(struct blk *blk)
{
	return virtio_device_has(&blk->base, VIRTIO_BLK_F_FLUSH) ? VIRTIO_BLK_S_OK : sync_disk(blk);
}

static uint8_t serve_out(struct blk *blk, const struct blk_request *request)
{
	uint64_t offset;
	int error;

	if (blk->read_only || request->writable->length ||
		!range_valid(blk, request->sector, request->readable->length, BLK_REQUEST_MAX, &offset))
		return VIRTIO_BLK_S_IOERR;
	error = blk->disk->ops->write(blk->disk, request->readable, offset);
	return error ? host_failed(blk, BLK_WRITE, error) : end_change(blk);
}

static uint8_t serve_flush(struct blk *blk, const struct blk_request *request)
{
	if (!virtio_device_has(&blk->base, VIRTIO_BLK_F_FLUSH))
		return VIRTIO_BLK_S_UNSUPP;
	if (request->readable->length || request->writable->length)
		return VIRTIO_BLK_S_IOERR;
	return sync_disk(blk);
}

/* Ranges of a discard or a write-zeroes, checked: nothing is done before all of them are. */
struct blk_ranges {
	unsigned count;
	struct {
		uint64_t offset, length;
		bool unmap;
	} of[BLK_DISCARD_RANGES];
};

/* VIRTIO_BLK_S_OK, or what the request ends with (5.2.6.2). */
static uint8_t take_range(struct blk *blk, const struct virtio_blk_discard_write_zeroes *range, uint64_t most,
	uint32_t flags, struct blk_ranges *ranges)
{
	uint64_t length = (uint64_t)range->num_sectors * BLK_SECTOR, offset;

	if (range->flags & ~flags)
		return VIRTIO_BLK_S_UNSUPP;
	if (!range_valid(blk, range->sector, length, most, &offset))
		return VIRTIO_BLK_S_IOERR;
	ranges->of[ranges->count].offset = offset;
	ranges->of[ranges->count].length = length;
	ranges->of[ranges->count].unmap = range->flags & VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP;
	ranges->count++;
	return VIRTIO_BLK_S_OK;
}

static uint8_t take_ranges(struct blk *blk, const struct blk_request *request, unsigned count_max,
	uint64_t most, uint32_t flags, struct blk_ranges *ranges)
{
	struct virtio_blk_discard_write_zeroes range;
	uint64_t length = request->readable->length;
	uint8_t status = VIRTIO_BLK_S_OK;

	memset(ranges, 0, sizeof(*ranges));
	if (blk->read_only || request->writable->length || length == 0 || length % sizeof(range) ||
		length / sizeof(range) > count_max)
		return VIRTIO_BLK_S_IOERR;
	while (status == VIRTIO_BLK_S_OK && virtq_bytes_take(request->readable, &range, sizeof(range)) == 0)
		status = take_range(blk, &range, most, flags, ranges);
	return status;
}

static uint8_t serve_discard(struct blk *blk, const struct blk_request *request)
{
	struct blk_ranges ranges;
	uint8_t status;

	if (!virtio_device_has(&blk->base, VIRTIO_BLK_F_DISCARD))
		return VIRTIO_BLK_S_UNSUPP;
	status = take_ranges(blk, request, BLK_DISCARD_RANGES, BLK_DISCARD_MAX, 0, &ranges);
	if (status != VIRTIO_BLK_S_OK)
		return status;
	blk->syncs++;
	for (unsigned i = 0; i < ranges.count; i++) {
		int error = blk->disk->ops->discard(blk->disk, ranges.of[i].offset, ranges.of[i].length);

		if (error)
			return host_failed(blk, BLK_DISCARD, error);
	}
	return end_change(blk);
}

static uint8_t serve_write_zeroes(struct blk *blk, const struct blk_request *request)
{
	struct blk_ranges ranges;
	uint8_t status;
	int error;

	if (!virtio_device_has(&blk->base, VIRTIO_BLK_F_WRITE_ZEROES))
		return VIRTIO_BLK_S_UNSUPP;
	status = take_ranges(blk, request, 1, BLK_ZEROES_MAX, VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP, &ranges);
	if (status != VIRTIO_BLK_S_OK)
		return status;
	blk->bytes += ranges.of[0].length;
	error = blk->disk->ops->zero(blk->disk, ranges.of[0].offset, ranges.of[0].length, ranges.of[0].unmap);
	return error ? host_failed(blk, BLK_ZERO, error) : end_change(blk);
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
	case VIRTIO_BLK_T_DISCARD:
		return serve_discard(blk, request);
	case VIRTIO_BLK_T_WRITE_ZEROES:
		return serve_write_zeroes(blk, request);
	default:
		return VIRTIO_BLK_S_UNSUPP;
	}
}

/* Serves the chain and gives it back. 0; -EPROTO: no room for a status. */
static int serve_chain(struct blk *blk, struct virtq_chain *chain)
{
	struct blk_request request = {.readable = &chain->readable, .writable = &chain->writable};
	uint8_t *status = virtq_bytes_cut_last(&chain->writable);
	uint64_t room = chain->writable.length, written;
	struct virtio_blk_outhdr header;

	if (!status)
		return -EPROTO;
	blk->bytes += chain->readable.length + chain->writable.length + 1;
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
	return 0;
}

/* device */

static bool notify(struct virtio_device *device, unsigned queue)
{
	struct blk *blk = (struct blk *)device;
	struct virtq *virtq = &device->queues[queue];
	struct virtq_chain chain;

	virtq_no_notify(virtq);
	blk->bytes = 0;
	blk->syncs = 0;
	for (unsigned served = 0; served < BLK_QUEUE_SIZE; served++) {
		if (blk->bytes >= BLK_ROUND_BYTES || blk->syncs >= BLK_ROUND_SYNCS)
			break;
		if (virtio_device_pop(device, queue, &chain) <= 0)
			break;
		if (serve_chain(blk, &chain) < 0) {
			virtio_device_refuse(device, queue, "a request without room for its status");
			break;
		}
	}
	virtio_device_publish(device, queue);
	return virtq_want_notify(virtq);
}

/* operations */

static void destroy(struct virtio_device *device)
{
	struct blk *blk = (struct blk *)device;

	blk->disk->ops->destroy(blk->disk);
	free(blk);
}

static void save(const struct virtio_device *device, struct state_writer *state)
{
	const struct blk *blk = (const struct blk *)device;

	blk->disk->ops->save(blk->disk, state);
}

static void load(struct virtio_device *device, struct state_reader *state)
{
	struct blk *blk = (struct blk *)device;

	blk->disk->ops->load(blk->disk, state);
}

static const struct virtio_device_ops blk_ops = {
	.notify = notify,
	.destroy = destroy,
};

/* Of a disk whose content a snapshot knows. */
static const struct virtio_device_ops blk_saved_ops = {
	.notify = notify,
	.save = save,
	.load = load,
	.destroy = destroy,
};

/* create */

static void set_config(struct blk *blk)
{
	struct virtio_blk_config *config = &blk->config;

	config->capacity = blk->disk->size / BLK_SECTOR;
	config->size_max = BLK_SEGMENT_MAX;
	config->seg_max = BLK_SEGMENTS_MAX;
	config->blk_size = BLK_SECTOR;
	if (blk->read_only)
		return;
	config->max_discard_sectors = BLK_DISCARD_MAX / BLK_SECTOR;
	config->max_discard_seg = BLK_DISCARD_RANGES;
	config->discard_sector_alignment = BLK_DISCARD_ALIGNMENT / BLK_SECTOR;
	config->max_write_zeroes_sectors = BLK_ZEROES_MAX / BLK_SECTOR;
	config->max_write_zeroes_seg = 1;
	config->write_zeroes_may_unmap = 1;
}

int blk_create(const struct blk_config *config, struct virtio_device **out)
{
	struct blk_disk *disk = config->disk;
	int error = disk ? 0 : blk_raw_create(config->fd, config->read_only, &disk);
	struct blk *blk;

	if (error)
		return error;
	blk = calloc(1, sizeof(*blk));
	if (!blk) {
		disk->ops->destroy(disk);
		return -ENOMEM;
	}
	blk->disk = disk;
	blk->read_only = config->read_only;
	if (config->id)
		memcpy(blk->id, config->id, strnlen(config->id, sizeof(blk->id)));
	set_config(blk);
	blk->base = (struct virtio_device){
		.ops = disk->ops->load ? &blk_saved_ops : &blk_ops,
		.name = "blk",
		.id = VIRTIO_ID_BLOCK,
		.features = VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(VIRTIO_BLK_F_SIZE_MAX) |
			    VIRTIO_FEATURE(VIRTIO_BLK_F_SEG_MAX) | VIRTIO_FEATURE(VIRTIO_BLK_F_BLK_SIZE) |
			    (config->read_only ? VIRTIO_FEATURE(VIRTIO_BLK_F_RO) : BLK_WRITABLE_FEATURES),
		.config = &blk->config,
		.config_length = sizeof(blk->config),
		.queue_count = 1,
	};
	blk->base.queues[BLK_QUEUE].size_max = BLK_QUEUE_SIZE;
	*out = &blk->base;
	return 0;
}

int blk_copy(struct virtio_device *device, int to, uint64_t *written)
{
	struct blk *blk = (struct blk *)device;

	*written = 0;
	return blk->disk->ops->copy ? blk->disk->ops->copy(blk->disk, to, written) : -EOPNOTSUPP;
}
