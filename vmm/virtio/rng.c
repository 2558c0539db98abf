/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/virtio/rng.h"
#include "vmm/virtio/virtio.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

enum { RNG_QUEUE = 0 };

struct rng {
	struct virtio_device base;
};

/* request */

/* Fills the buffer from its start; the bytes written. */
static uint32_t fill(struct virtq_bytes *buffer)
{
	uint32_t filled = 0;

	virtq_bytes_truncate(buffer, RNG_REQUEST_MAX);
	while (buffer->length) {
		ssize_t got = getrandom(buffer->iov->iov_base, buffer->iov->iov_len, 0);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		virtq_bytes_skip(buffer, (uint64_t)got);
		filled += (uint32_t)got;
	}
	return filled;
}

/* device */

static bool notify(struct virtio_device *device, unsigned queue)
{
	struct virtq_chain chain;

	for (unsigned served = 0; served < RNG_QUEUE_SIZE; served++) {
		if (virtio_device_pop(device, queue, &chain) <= 0)
			break;
		if (chain.readable.count) {
			virtio_device_refuse(device, queue, "a buffer that the device may not write");
			break;
		}
		virtq_push(&device->queues[queue], chain.head, fill(&chain.writable));
	}
	virtio_device_publish(device, queue);
	return virtq_want_notify(&device->queues[queue]);
}

/* operations */

static void destroy(struct virtio_device *device)
{
	free(device);
}

static const struct virtio_device_ops rng_ops = {
	.notify = notify,
	.destroy = destroy,
};

/* create */

int rng_create(struct virtio_device **out)
{
	struct rng *rng = calloc(1, sizeof(*rng));

	if (!rng)
		return -ENOMEM;
	rng->base = (struct virtio_device){
		.ops = &rng_ops,
		.name = "rng",
		.id = VIRTIO_ID_RNG,
		.features = VIRTIO_FEATURES_COMMON,
		.queue_count = 1,
	};
	rng->base.queues[RNG_QUEUE].size_max = RNG_QUEUE_SIZE;
	*out = &rng->base;
	return 0;
}
