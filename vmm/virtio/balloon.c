/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of pages is copied, sorted and given back in runs: Linux takes pages one by one and names them in
 * the reverse order, so that what lies side by side rarely comes side by side. A report is given back piece
 * by piece; how far it came is kept, and the chain goes back to the queue's head, when the round is over
 * first.
 *
 * The driver writes "actual" and "poison_val" on a vCPU's thread; all else is the loop's.
 */
#include "vmm/virtio/balloon.h"
#include "common/log.h"
#include "common/sort.h"
#include "vmm/virtio/virtio.h"
#include <errno.h>
#include <linux/virtio_balloon.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { BALLOON_INFLATE = 0, BALLOON_DEFLATE = 1, BALLOON_REPORTING = 2, BALLOON_QUEUES };

struct balloon {
	struct virtio_device base;
	struct virtio_balloon_config config;
	const struct guest_memory *memory;
	uint64_t reported; /* bytes */
	uint64_t done;	   /* bytes of the report at the queue's head */
	bool logged;
	unsigned round_calls;
	uint64_t round_bytes;
	uint32_t pfns[BALLOON_REQUEST_PFNS]; /* of the request that is served */
};

/* request */

/* Adjacent pages in host memory; length 0: none. */
struct run {
	uint8_t *start;
	uint64_t length;
};

/* The bytes given back. */
static uint64_t discard(struct balloon *balloon, void *start, uint64_t length)
{
	int64_t discarded = guest_memory_discard(balloon->memory, start, length);

	balloon->round_calls++;
	if (discarded < 0) {
		if (!balloon->logged)
			log_error("balloon: memory cannot be given back: %s", strerror((int)-discarded));
		balloon->logged = true;
		return 0;
	}
	balloon->round_bytes += (uint64_t)discarded;
	return (uint64_t)discarded;
}

static int compare_pfns(const void *a, const void *b)
{
	uint32_t left = *(const uint32_t *)a, right = *(const uint32_t *)b;

	return (left > right) - (left < right);
}

/* The page goes into the run, or begins the next one. */
static void add_page(struct balloon *balloon, struct run *run, uint8_t *page)
{
	if (run->length && page == run->start + run->length - BALLOON_PAGE)
		return; /* named twice */
	if (run->length && page == run->start + run->length) {
		run->length += BALLOON_PAGE;
		return;
	}
	if (run->length)
		discard(balloon, run->start, run->length);
	*run = (struct run){.start = page, .length = BALLOON_PAGE};
}

static void inflate(struct balloon *balloon, struct virtq_bytes *list)
{
	size_t count = list->length / sizeof(balloon->pfns[0]);
	struct run run = {0};

	if (count > BALLOON_REQUEST_PFNS)
		count = BALLOON_REQUEST_PFNS;
	if (count == 0 || virtq_bytes_take(list, balloon->pfns, count * sizeof(balloon->pfns[0])) < 0)
		return;
	sort_items(balloon->pfns, count, sizeof(balloon->pfns[0]), compare_pfns);
	for (size_t i = 0; i < count; i++) {
		gpa_t address = (gpa_t)balloon->pfns[i] << VIRTIO_BALLOON_PFN_SHIFT;
		void *page;

		if (guest_memory_pointer(balloon->memory, address, BALLOON_PAGE, &page) == 0)
			add_page(balloon, &run, page);
	}
	if (run.length)
		discard(balloon, run.start, run.length);
}

static bool round_is_over(const struct balloon *balloon)
{
	return balloon->round_calls >= BALLOON_ROUND_CALLS || balloon->round_bytes >= BALLOON_ROUND_BYTES;
}

/* 5.5.6.7.2: a reported page must hold the driver's pattern afterwards, or be as it was. */
static bool may_discard_reports(const struct balloon *balloon)
{
	return !virtio_device_has(&balloon->base, VIRTIO_BALLOON_F_PAGE_POISON) ||
	       balloon->config.poison_val == 0;
}

/* Goes on with the report at the queue's head. True: it is done. */
static bool serve_report(struct balloon *balloon, struct virtq_bytes *ranges)
{
	virtq_bytes_truncate(ranges, guest_memory_size(balloon->memory));
	/* The driver may have changed the chain since we began. */
	virtq_bytes_skip(ranges, balloon->done < ranges->length ? balloon->done : ranges->length);
	while (ranges->length && may_discard_reports(balloon) && !round_is_over(balloon)) {
		uint64_t room = BALLOON_ROUND_BYTES - balloon->round_bytes;
		uint64_t length = ranges->iov->iov_len < room ? ranges->iov->iov_len : room;

		balloon->reported += discard(balloon, ranges->iov->iov_base, length);
		balloon->done += length;
		virtq_bytes_skip(ranges, length);
	}
	if (ranges->length && may_discard_reports(balloon))
		return false;
	balloon->done = 0;
	return true;
}

/* The chain is one of the queue's kind. */
static bool check_direction(unsigned queue, const struct virtq_chain *chain)
{
	return queue == BALLOON_REPORTING ? chain->readable.count == 0 : chain->writable.count == 0;
}

/* False: the chain is to be gone on with, and no other before it. */
static bool serve(struct balloon *balloon, unsigned queue, struct virtq_chain *chain)
{
	if (queue == BALLOON_REPORTING && !serve_report(balloon, &chain->writable)) {
		virtq_unpop(&balloon->base.queues[queue]);
		return false;
	}
	if (queue == BALLOON_INFLATE)
		inflate(balloon, &chain->readable);
	/* BALLOON_DEFLATE: pages come back when they are touched. */
	virtq_push(&balloon->base.queues[queue], chain->head, 0);
	return true;
}

/* device */

static bool notify(struct virtio_device *device, unsigned queue)
{
	struct balloon *balloon = (struct balloon *)device;
	struct virtq *virtq = &device->queues[queue];
	struct virtq_chain chain;

	virtq_no_notify(virtq);
	balloon->round_calls = 0;
	balloon->round_bytes = 0;
	for (unsigned served = 0; served < BALLOON_QUEUE_SIZE && !round_is_over(balloon); served++) {
		if (virtio_device_pop(device, queue, &chain) <= 0)
			break;
		if (!check_direction(queue, &chain)) {
			virtio_device_refuse(device, queue, "a part of the wrong direction");
			break;
		}
		if (!serve(balloon, queue, &chain))
			break;
	}
	virtio_device_publish(device, queue);
	return virtq_want_notify(virtq);
}

/* operations */

static void reset(struct virtio_device *device)
{
	/* What the driver wrote stays: it may have written again since. */
	((struct balloon *)device)->done = 0;
}

static void write_config(struct virtio_device *device, uint32_t offset, const void *data, uint32_t length)
{
	struct balloon *balloon = (struct balloon *)device;

	/* All of a field: drivers write it in one access (4.2.2.2). */
	if (length != sizeof(uint32_t))
		return;
	if (offset == offsetof(struct virtio_balloon_config, actual))
		memcpy(&balloon->config.actual, data, length);
	else if (offset == offsetof(struct virtio_balloon_config, poison_val))
		memcpy(&balloon->config.poison_val, data, length);
}

static void save(const struct virtio_device *device, struct state_writer *state)
{
	const struct balloon *balloon = (const struct balloon *)device;

	state_put_u32(state, balloon->config.num_pages);
	state_put_u32(state, balloon->config.actual);
	state_put_u32(state, balloon->config.poison_val);
	state_put_u64(state, balloon->done);
}

/* "actual" is what the driver says, whatever that is. */
static void load(struct virtio_device *device, struct state_reader *state)
{
	struct balloon *balloon = (struct balloon *)device;
	uint64_t memory = guest_memory_size(balloon->memory);

	balloon->config.num_pages = state_get_u32(state);
	balloon->config.actual = state_get_u32(state);
	balloon->config.poison_val = state_get_u32(state);
	balloon->done = state_get_u64(state);
	if (balloon->config.num_pages > memory / BALLOON_PAGE || balloon->done > memory)
		state_refuse(state);
}

static void destroy(struct virtio_device *device)
{
	free(device);
}

static const struct virtio_device_ops balloon_ops = {
	.notify = notify,
	.reset = reset,
	.write_config = write_config,
	.save = save,
	.load = load,
	.destroy = destroy,
};

int balloon_set_target(struct virtio_device *device, uint64_t bytes)
{
	struct balloon *balloon = (struct balloon *)device;

	if (bytes > guest_memory_size(balloon->memory))
		return -EINVAL;
	virtio_device_enter(device);
	balloon->config.num_pages = (uint32_t)(bytes / BALLOON_PAGE);
	virtio_device_config_changed(device);
	virtio_device_leave(device);
	return 0;
}

struct balloon_status balloon_status(struct virtio_device *device)
{
	struct balloon *balloon = (struct balloon *)device;
	uint64_t memory = guest_memory_size(balloon->memory);
	struct balloon_status status;

	virtio_device_enter(device);
	status = (struct balloon_status){
		.target = (uint64_t)balloon->config.num_pages * BALLOON_PAGE,
		.actual = (uint64_t)balloon->config.actual * BALLOON_PAGE,
		.reported = balloon->reported,
	};
	virtio_device_leave(device);
	if (status.actual > memory)
		status.actual = memory;
	return status;
}

/* create */

int balloon_create(const struct balloon_config *config, struct virtio_device **out)
{
	struct balloon *balloon = calloc(1, sizeof(*balloon));
	int error = -ENOMEM;

	if (!balloon)
		return error;
	balloon->memory = config->memory;
	balloon->base = (struct virtio_device){
		.ops = &balloon_ops,
		.name = "balloon",
		.id = VIRTIO_ID_BALLOON,
		.features = VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(VIRTIO_BALLOON_F_DEFLATE_ON_OOM) |
			    VIRTIO_FEATURE(VIRTIO_BALLOON_F_PAGE_POISON) |
			    VIRTIO_FEATURE(VIRTIO_BALLOON_F_REPORTING),
		.config = &balloon->config,
		.config_length = sizeof(balloon->config),
		.queue_count = BALLOON_QUEUES,
	};
	for (unsigned i = 0; i < BALLOON_QUEUES; i++)
		balloon->base.queues[i].size_max = BALLOON_QUEUE_SIZE;
	error = balloon_set_target(&balloon->base, config->target);
	if (error) {
		free(balloon);
		return error;
	}
	*out = &balloon->base;
	return 0;
}
