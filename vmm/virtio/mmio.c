/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Registers on a vCPU's thread, queues on the loop's; the lock keeps them apart. All of the device's own
 * code runs on the loop's thread: a reset written by the driver empties the queues at once, and the
 * device's part of it is done before anything else the loop does for the device.
 *
 * InterruptStatus alone is outside the lock, so that an interrupt handler does not wait for a disk.
 */
#include "vmm/virtio/mmio.h"
#include "common/io.h"
#include "common/log.h"
#include "vmm/trace.h"
#include "vmm/virtio/mmio_parts.h"
#include <errno.h>
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

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

static void count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

static void kick(struct virtio_mmio *mmio, unsigned queue)
{
	/* Fails only when the counter is full: then the loop has yet to see it, which is all we want. */
	(void)eventfd_write(mmio->queues[queue].fd, 1);
}

/*
 * Raises bits of InterruptStatus, and an edge when one of them is new. A bit that still stands belongs to an
 * edge whose handler has yet to acknowledge it, and it looks at the queues after that; the atomic exchange
 * orders our used index before its look.
 */
static void raise_interrupt(struct virtio_mmio *mmio, unsigned bits)
{
	if ((atomic_fetch_or(&mmio->interrupt_status, bits) & bits) == bits)
		return;
	count(&mmio->interrupts);
	mmio->machine.interrupt(mmio->machine.context);
}

static void stop_queues(struct virtio_mmio *mmio)
{
	mmio->device->running = false;
	for (unsigned i = 0; i < mmio->device->queue_count; i++)
		mmio->device->queues[i].live = false;
}

static void set_needs_reset(struct virtio_mmio *mmio, const char *reason)
{
	if (!mmio->complained)
		log_warn("%s: the driver is refused until it resets the device", reason);
	mmio->complained = true;
	stop_queues(mmio);
	if (mmio->status & VIRTIO_CONFIG_S_NEEDS_RESET)
		return;
	mmio->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
	/* 2.1.2: a driver that is up is told by a configuration change. */
	if (mmio->status & VIRTIO_CONFIG_S_DRIVER_OK)
		raise_interrupt(mmio, VIRTIO_MMIO_INT_CONFIG);
}

static void refuse_register(struct virtio_mmio *mmio, const char *what)
{
	char reason[VIRTIO_REASON_MAX];

	snprintf(reason, sizeof(reason), "%s: %s", mmio->device->name, what);
	set_needs_reset(mmio, reason);
}

static void reset(struct virtio_mmio *mmio)
{
	stop_queues(mmio);
	for (unsigned i = 0; i < mmio->device->queue_count; i++)
		virtq_disable(&mmio->device->queues[i]);
	mmio->status = 0;
	mmio->queue_select = 0;
	mmio->device_features_select = 0;
	mmio->driver_features_select = 0;
	mmio->driver_features = 0;
	atomic_store(&mmio->interrupt_status, 0);
	mmio->reset_pending = true;
	kick(mmio, 0);
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
			kick(mmio, i);
	}
}

static void add_status(struct virtio_mmio *mmio, uint32_t bit)
{
	if (bit == VIRTIO_CONFIG_S_FAILED && mmio->status) {
		mmio->status |= bit;
		stop_queues(mmio);
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
	set_needs_reset(mmio, reason);
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

	count(&mmio->reads);
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

	count(&mmio->writes);
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
			kick(mmio, value);
		return;
	}
	pthread_mutex_lock(&mmio->lock);
	write_register(mmio, offset, value);
	pthread_mutex_unlock(&mmio->lock);
}

static struct virtio_mmio *from_base(struct virtio_transport *base)
{
	return (struct virtio_mmio *)base;
}

/* A driver may have set the device up again since: its queues are not those that the reset is about. */
static void reset_device(struct virtio_device *device)
{
	bool running = device->running, live[VIRTIO_QUEUES_MAX] = {false};

	device->running = false;
	for (unsigned i = 0; i < device->queue_count; i++) {
		live[i] = device->queues[i].live;
		device->queues[i].live = false;
	}
	device->ops->reset(device);
	device->running = running;
	for (unsigned i = 0; i < device->queue_count; i++)
		device->queues[i].live = live[i];
}

static void transport_enter(struct virtio_transport *base)
{
	struct virtio_mmio *mmio = from_base(base);

	pthread_mutex_lock(&mmio->lock);
	if (!mmio->reset_pending)
		return;
	mmio->reset_pending = false;
	if (mmio->device->ops->reset)
		reset_device(mmio->device);
}

static void transport_leave(struct virtio_transport *base)
{
	pthread_mutex_unlock(&from_base(base)->lock);
}

static void transport_interrupt(struct virtio_transport *base)
{
	raise_interrupt(from_base(base), VIRTIO_MMIO_INT_VRING);
}

static void transport_config_changed(struct virtio_transport *base)
{
	struct virtio_mmio *mmio = from_base(base);

	mmio->config_generation++;
	if (mmio->device->running)
		raise_interrupt(mmio, VIRTIO_MMIO_INT_CONFIG);
}

static void transport_needs_reset(struct virtio_transport *base, const char *reason)
{
	set_needs_reset(from_base(base), reason);
}

static void transport_fault(struct virtio_transport *base, const char *reason)
{
	struct virtio_mmio *mmio = from_base(base);

	mmio->complained = true; /* the machine reports it */
	set_needs_reset(mmio, reason);
	mmio->machine.fault(mmio->machine.context, reason);
}

static void transport_recall(struct virtio_transport *base, unsigned queue)
{
	kick(from_base(base), queue);
}

static const struct virtio_transport_ops transport_ops = {
	.enter = transport_enter,
	.leave = transport_leave,
	.interrupt = transport_interrupt,
	.config_changed = transport_config_changed,
	.needs_reset = transport_needs_reset,
	.fault = transport_fault,
	.recall = transport_recall,
};

static void on_notify(void *context, uint32_t events)
{
	struct mmio_queue *queue = context;
	struct virtio_mmio *mmio = queue->mmio;
	struct virtio_device *device = mmio->device;
	unsigned index = (unsigned)(queue - mmio->queues);

	(void)events;
	transport_enter(&mmio->base);
	if (device->queues[index].live && !mmio->paused) {
		uint64_t began = trace_begin();

		count(&mmio->notifies);
		if (device->ops->notify(device, index))
			kick(mmio, index);
		trace_notify(began, mmio, index);
	}
	transport_leave(&mmio->base);
}

void virtio_mmio_pause(struct virtio_mmio *mmio)
{
	mmio->paused = true;
}

void virtio_mmio_resume(struct virtio_mmio *mmio)
{
	mmio->paused = false;
	for (unsigned i = 0; i < mmio->device->queue_count; i++)
		kick(mmio, i);
}

/* Edge-triggered: each write wakes the loop anew and the counter is never read, which saves a call a kick. */
static int add_queue(struct virtio_mmio *mmio, unsigned index, struct loop *loop)
{
	struct mmio_queue *queue = &mmio->queues[index];

	queue->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (queue->fd < 0)
		return -errno;
	queue->source = loop_add_fd(loop, queue->fd, EPOLLIN | EPOLLET, on_notify, queue);
	return queue->source ? 0 : -errno;
}

int virtio_mmio_create(struct virtio_device *device, const struct guest_memory *memory, struct loop *loop,
	const struct virtio_machine *machine, struct virtio_mmio **out)
{
	struct virtio_mmio *mmio = calloc(1, sizeof(*mmio));
	int error = -ENOMEM;

	if (!mmio) {
		virtio_device_destroy(device);
		return error;
	}
	mmio->base.ops = &transport_ops;
	mmio->device = device;
	mmio->memory = memory;
	mmio->machine = *machine;
	pthread_mutex_init(&mmio->lock, NULL);
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++)
		mmio->queues[i] = (struct mmio_queue){.mmio = mmio, .fd = -1};
	for (unsigned i = 0; i < device->queue_count; i++) {
		error = add_queue(mmio, i, loop);
		if (error)
			goto fail;
	}
	device->transport = &mmio->base;
	*out = mmio;
	return 0;
fail:
	virtio_mmio_destroy(mmio);
	return error;
}

void virtio_mmio_destroy(struct virtio_mmio *mmio)
{
	if (!mmio)
		return;
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		loop_remove(mmio->queues[i].source);
		fd_close(&mmio->queues[i].fd);
	}
	stop_queues(mmio);
	mmio->device->transport = NULL;
	virtio_device_destroy(mmio->device);
	pthread_mutex_destroy(&mmio->lock);
	free(mmio);
}

unsigned virtio_mmio_queue_count(const struct virtio_mmio *mmio)
{
	return mmio->device->queue_count;
}

int virtio_mmio_notify_fd(const struct virtio_mmio *mmio, unsigned queue)
{
	return queue < mmio->device->queue_count ? mmio->queues[queue].fd : -1;
}

const char *virtio_mmio_name(const struct virtio_mmio *mmio)
{
	return mmio->device->name;
}

struct virtio_mmio_stats virtio_mmio_stats(const struct virtio_mmio *mmio)
{
	return (struct virtio_mmio_stats){
		.reads = atomic_load_explicit(&mmio->reads, memory_order_relaxed),
		.writes = atomic_load_explicit(&mmio->writes, memory_order_relaxed),
		.notifies = atomic_load_explicit(&mmio->notifies, memory_order_relaxed),
		.interrupts = atomic_load_explicit(&mmio->interrupts, memory_order_relaxed),
	};
}
