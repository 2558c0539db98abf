/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/virtio/virtio.h"
#include <errno.h>
#include <stdio.h>

void virtio_device_enter(struct virtio_device *device)
{
	if (device->transport)
		device->transport->ops->enter(device->transport);
}

void virtio_device_leave(struct virtio_device *device)
{
	if (device->transport)
		device->transport->ops->leave(device->transport);
}

static const char *pop_failure(int error)
{
	switch (error) {
	case -EOVERFLOW:
		return "available index is further ahead than the queue is long";
	case -EFAULT:
		return "a buffer lies outside memory";
	default:
		return "malformed descriptor chain";
	}
}

int virtio_device_pop(struct virtio_device *device, unsigned queue, struct virtq_chain *chain)
{
	int result = virtq_pop(&device->queues[queue], chain);
	char reason[VIRTIO_REASON_MAX];

	if (result >= 0)
		return result;
	if (result != -EOVERFLOW) {
		virtio_device_refuse(device, queue, pop_failure(result));
		return result;
	}
	snprintf(reason, sizeof(reason), "%s: queue %u: %s", device->name, queue, pop_failure(result));
	device->transport->ops->fault(device->transport, reason);
	return result;
}

void virtio_device_publish(struct virtio_device *device, unsigned queue)
{
	if (virtq_publish(&device->queues[queue]))
		device->transport->ops->interrupt(device->transport);
}

void virtio_device_config_changed(struct virtio_device *device)
{
	if (device->transport)
		device->transport->ops->config_changed(device->transport);
}

void virtio_device_refuse(struct virtio_device *device, unsigned queue, const char *why)
{
	char reason[VIRTIO_REASON_MAX];

	snprintf(reason, sizeof(reason), "%s: queue %u: %s", device->name, queue, why);
	device->transport->ops->needs_reset(device->transport, reason);
}

void virtio_device_recall(struct virtio_device *device, unsigned queue)
{
	if (device->transport)
		device->transport->ops->recall(device->transport, queue);
}

void virtio_device_destroy(struct virtio_device *device)
{
	if (device)
		device->ops->destroy(device);
}
