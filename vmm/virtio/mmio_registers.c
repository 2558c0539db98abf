/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers, on a vCPU's thread: what the driver reads and writes, and the order in which it may. What
 * breaks it is refused, and the device needs a reset then.
 */
#include "vmm/virtio/mmio_parts.h"
#include <errno.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <string.h>

enum {
	MMIO_MAGIC = 0x74726976, /* "virt" */
	MMIO_VERSION = 2,
	MMIO_VENDOR = 0x58444e54, /* "TNDX" */
	REGISTER_BYTES = 4,
};
#define NO_SHARED_MEMORY UINT32_MAX /* SHMLen and SHMBase of a region that does not exist (4.2.2) */

/*
 * 2.1 and 3.1.1: one bit at a time, in this order.
 *
 *   0 -> ACKNOWLEDGE -> DRIVER -> FEATURES_OK -> DRIVER_OK     any but 0 -> FAILED     any -> 0 (reset)
 */
static const struct {
	uint8_t bit, after;
} status_order[] = {
	{VIRTIO_CONFIG_S_ACKNOWLEDGE, 0},
	{VIRTIO_CONFIG_S_DRIVER, VIRTIO_CONFIG_S_ACKNOWLEDGE},
	{VIRTIO_CONFIG_S_FEATURES_OK, VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER},
	{VIRTIO_CONFIG_S_DRIVER_OK,
		VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK},
};

static void refuse_register(struct virtio_mmio *mmio, const char *what)
{
	char reason[VIRTIO_REASON_MAX];

	snprintf(reason, sizeof(reason), "%s: %s", mmio->device->name, what);
	mmio_set_needs_reset(mmio, reason);
}

static void reset(struct virtio_mmio *mmio)
{
	mmio_stop_queues(mmio);
	for (unsigned i = 0; i < mmio->device->queue_count; i++)
		virtq_disable(&mmio->device->queues[i]);
	mmio->status = 0;
	mmio->queue_select = 0;
	mmio->device_features_select = 0;
	mmio->driver_features_select = 0;
	mmio->driver_features = 0;
	atomic_store(&mmio->interrupt_status, 0);
	mmio->reset_pending = true;
	mmio_kick(mmio, 0);
}

/* 3.1.1 step 5: FEATURES_OK stays clear when we cannot live with what the driver chose. */
bool mmio_features_acceptable(const struct virtio_mmio *mmio)
{
	return !(mmio->driver_features & ~mmio->device->features) &&
	       (mmio->driver_features & VIRTIO_FEATURE(VIRTIO_F_VERSION_1));
}

/* Each queue is looked at once: a driver may have filled it before. */
static void start(struct virtio_mmio *mmio)
{
	struct virtio_device *device = mmio->device;

	device->driver_features = mmio->driver_features;
	device->running = true;
	for (unsigned i = 0; i < device->queue_count; i++) {
		virtq_start(&device->queues[i]);
		if (device->queues[i].live)
			mmio_kick(mmio, i);
	}
}

static void add_status(struct virtio_mmio *mmio, uint32_t bit)
{
	if (bit == VIRTIO_CONFIG_S_FAILED && mmio->status) {
		mmio->status |= bit;
		mmio_stop_queues(mmio);
		return;
	}
	for (size_t i = 0; i < sizeof(status_order) / sizeof(status_order[0]); i++) {
		if (status_order[i].bit != bit || status_order[i].after != mmio->status)
			continue;
		if (bit == VIRTIO_CONFIG_S_FEATURES_OK && !mmio_features_acceptable(mmio))
			return;
		mmio->status |= bit;
		if (bit == VIRTIO_CONFIG_S_DRIVER_OK)
			start(mmio);
		return;
	}
	refuse_register(mmio, "status bits out of order");
}

static void write_status(struct virtio_mmio *mmio, uint32_t value)
{
	if (value == 0) {
		reset(mmio);
		return;
	}
	if (mmio->status & (VIRTIO_CONFIG_S_NEEDS_RESET | VIRTIO_CONFIG_S_FAILED))
		return;
	if (mmio->status & ~value)
		refuse_register(mmio, "status bits cleared without a reset");
	else if (value != mmio->status)
		add_status(mmio, value & ~mmio->status);
}

/* NULL: the driver selected a queue that does not exist. */
static struct virtq *selected(struct virtio_mmio *mmio)
{
	if (mmio->queue_select >= mmio->device->queue_count)
		return NULL;
	return &mmio->device->queues[mmio->queue_select];
}

static bool setting_up(const struct virtio_mmio *mmio)
{
	return (mmio->status & VIRTIO_CONFIG_S_FEATURES_OK) &&
	       !(mmio->status &
		       (VIRTIO_CONFIG_S_DRIVER_OK | VIRTIO_CONFIG_S_FAILED | VIRTIO_CONFIG_S_NEEDS_RESET));
}

static const char *enable_failure(int error)
{
	switch (error) {
	case -EBUSY:
		return "enabled twice";
	case -EFAULT:
		return "a ring lies outside memory";
	default:
		return "wrong size or alignment";
	}
}

static void write_queue_ready(struct virtio_mmio *mmio, uint32_t value)
{
	struct virtq *queue = selected(mmio);
	char reason[VIRTIO_REASON_MAX];
	int error;

	if (!queue)
		return;
	if (value == 0) {
		virtq_disable(queue);
		return;
	}
	if (!setting_up(mmio)) {
		refuse_register(mmio, "a queue enabled outside of set-up");
		return;
	}
	error = virtq_enable(
		queue, mmio->memory, mmio->driver_features & VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX));
	if (error == 0)
		return;
	snprintf(reason, sizeof(reason), "%s: queue %u: %s", mmio->device->name, mmio->queue_select,
		enable_failure(error));
	mmio_set_needs_reset(mmio, reason);
}

static void set_half(uint64_t *value, uint32_t half, bool high)
{
	if (high)
		*value = (*value & UINT32_MAX) | (uint64_t)half << 32;
	else
		*value = (*value & ~(uint64_t)UINT32_MAX) | half;
}

/* QueueNum and the addresses of the selected queue; 4.2.2.2: never of one that is enabled. */
static void write_queue(struct virtio_mmio *mmio, uint64_t offset, uint32_t value)
{
	struct virtq *queue = selected(mmio);

	if (!queue)
		return;
	if (!setting_up(mmio) || queue->ready) {
		refuse_register(mmio, "a queue changed outside of its set-up");
		return;
	}
	switch (offset) {
	case VIRTIO_MMIO_QUEUE_NUM:
		queue->size = value > UINT16_MAX ? 0 : (uint16_t)value; /* 0 is refused when enabled */
		break;
	case VIRTIO_MMIO_QUEUE_DESC_LOW:
	case VIRTIO_MMIO_QUEUE_DESC_HIGH:
		set_half(&queue->desc_address, value, offset == VIRTIO_MMIO_QUEUE_DESC_HIGH);
		break;
	case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
	case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
		set_half(&queue->avail_address, value, offset == VIRTIO_MMIO_QUEUE_AVAIL_HIGH);
		break;
	case VIRTIO_MMIO_QUEUE_USED_LOW:
	case VIRTIO_MMIO_QUEUE_USED_HIGH:
		set_half(&queue->used_address, value, offset == VIRTIO_MMIO_QUEUE_USED_HIGH);
		break;
	}
}

/* Between DRIVER and FEATURES_OK only. */
static void write_driver_features(struct virtio_mmio *mmio, uint32_t value)
{
	if (mmio->status != (VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER))
		refuse_register(mmio, "features chosen at the wrong time");
	else if (mmio->driver_features_select <= 1)
		set_half(&mmio->driver_features, value, mmio->driver_features_select);
}

static void write_register(struct virtio_mmio *mmio, uint64_t offset, uint32_t value)
{
	switch (offset) {
	case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
		mmio->device_features_select = value;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
		mmio->driver_features_select = value;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES:
		write_driver_features(mmio, value);
		break;
	case VIRTIO_MMIO_QUEUE_SEL:
		mmio->queue_select = value;
		break;
	case VIRTIO_MMIO_QUEUE_NUM:
	case VIRTIO_MMIO_QUEUE_DESC_LOW:
	case VIRTIO_MMIO_QUEUE_DESC_HIGH:
	case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
	case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
	case VIRTIO_MMIO_QUEUE_USED_LOW:
	case VIRTIO_MMIO_QUEUE_USED_HIGH:
		write_queue(mmio, offset, value);
		break;
	case VIRTIO_MMIO_QUEUE_READY:
		write_queue_ready(mmio, value);
		break;
	case VIRTIO_MMIO_STATUS:
		write_status(mmio, value);
		break;
	default:
		break;
	}
}

static uint32_t read_register(struct virtio_mmio *mmio, uint64_t offset)
{
	const struct virtq *queue = selected(mmio);

	switch (offset) {
	case VIRTIO_MMIO_MAGIC_VALUE:
		return MMIO_MAGIC;
	case VIRTIO_MMIO_VERSION:
		return MMIO_VERSION;
	case VIRTIO_MMIO_DEVICE_ID:
		return mmio->device->id;
	case VIRTIO_MMIO_VENDOR_ID:
		return MMIO_VENDOR;
	case VIRTIO_MMIO_DEVICE_FEATURES:
		if (mmio->device_features_select > 1)
			return 0;
		return (uint32_t)(mmio->device->features >> (32 * mmio->device_features_select));
	case VIRTIO_MMIO_QUEUE_NUM_MAX:
		return queue ? queue->size_max : 0;
	case VIRTIO_MMIO_QUEUE_READY:
		return queue && queue->ready;
	case VIRTIO_MMIO_STATUS:
		return mmio->status;
	case VIRTIO_MMIO_SHM_LEN_LOW:
	case VIRTIO_MMIO_SHM_LEN_HIGH:
	case VIRTIO_MMIO_SHM_BASE_LOW:
	case VIRTIO_MMIO_SHM_BASE_HIGH:
		return NO_SHARED_MEMORY;
	case VIRTIO_MMIO_CONFIG_GENERATION:
		return mmio->config_generation;
	default:
		return 0;
	}
}

static void read_config(struct virtio_mmio *mmio, uint64_t offset, uint8_t *data, uint32_t length)
{
	const struct virtio_device *device = mmio->device;
	uint64_t room;

	if (offset >= device->config_length)
		return;
	room = device->config_length - offset;
	pthread_mutex_lock(&mmio->lock);
	memcpy(data, (const uint8_t *)device->config + offset, room < length ? room : length);
	pthread_mutex_unlock(&mmio->lock);
}

static void write_config(struct virtio_mmio *mmio, uint64_t offset, const void *data, uint32_t length)
{
	struct virtio_device *device = mmio->device;

	if (!device->ops->write_config || offset >= device->config_length ||
		length > device->config_length - offset)
		return;
	pthread_mutex_lock(&mmio->lock);
	device->ops->write_config(device, (uint32_t)offset, data, length);
	pthread_mutex_unlock(&mmio->lock);
}

void virtio_mmio_read(struct virtio_mmio *mmio, uint64_t offset, void *data, uint32_t length)
{
	uint32_t value;

	mmio_count(&mmio->reads);
	memset(data, 0, length);
	if (offset >= VIRTIO_MMIO_CONFIG) {
		read_config(mmio, offset - VIRTIO_MMIO_CONFIG, data, length);
		return;
	}
	if (length != REGISTER_BYTES)
		return;
	if (offset == VIRTIO_MMIO_INTERRUPT_STATUS) {
		value = atomic_load(&mmio->interrupt_status);
	} else {
		pthread_mutex_lock(&mmio->lock);
		value = read_register(mmio, offset);
		pthread_mutex_unlock(&mmio->lock);
	}
	memcpy(data, &value, sizeof(value));
}

void virtio_mmio_write(struct virtio_mmio *mmio, uint64_t offset, const void *data, uint32_t length)
{
	uint32_t value;

	mmio_count(&mmio->writes);
	if (offset >= VIRTIO_MMIO_CONFIG)
		write_config(mmio, offset - VIRTIO_MMIO_CONFIG, data, length);
	if (length != REGISTER_BYTES || offset >= VIRTIO_MMIO_CONFIG)
		return;
	memcpy(&value, data, sizeof(value));
	if (offset == VIRTIO_MMIO_INTERRUPT_ACK) {
		atomic_fetch_and(&mmio->interrupt_status, ~value);
		return;
	}
	/* For a machine that has not bound the eventfd: the loop's thread does the work all the same. */
	if (offset == VIRTIO_MMIO_QUEUE_NOTIFY) {
		if (value < mmio->device->queue_count)
			mmio_kick(mmio, value);
		return;
	}
	pthread_mutex_lock(&mmio->lock);
	write_register(mmio, offset, value);
	pthread_mutex_unlock(&mmio->lock);
}
