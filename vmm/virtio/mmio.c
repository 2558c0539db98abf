/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Queues, on the loop's thread; registers (mmio_registers.c) are on a vCPU's. The lock keeps them apart. All
 * of the device's own code runs on the loop's thread: a reset written by the driver empties the queues at
 * once, and the device's part of it is done before anything else the loop does for the device.
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
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

void mmio_kick(struct virtio_mmio *mmio, unsigned queue)
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
	mmio_count(&mmio->interrupts);
	mmio->machine.interrupt(mmio->machine.context);
}

void mmio_stop_queues(struct virtio_mmio *mmio)
{
	mmio->device->running = false;
	for (unsigned i = 0; i < mmio->device->queue_count; i++)
		mmio->device->queues[i].live = false;
}

void mmio_set_needs_reset(struct virtio_mmio *mmio, const char *reason)
{
	if (!mmio->complained)
		log_warn("%s: the driver is refused until it resets the device", reason);
	mmio->complained = true;
	mmio_stop_queues(mmio);
	if (mmio->status & VIRTIO_CONFIG_S_NEEDS_RESET)
		return;
	mmio->status |= VIRTIO_CONFIG_S_NEEDS_RESET;
	/* 2.1.2: a driver that is up is told by a configuration change. */
	if (mmio->status & VIRTIO_CONFIG_S_DRIVER_OK)
		raise_interrupt(mmio, VIRTIO_MMIO_INT_CONFIG);
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
	mmio_set_needs_reset(from_base(base), reason);
}

static void transport_fault(struct virtio_transport *base, const char *reason)
{
	struct virtio_mmio *mmio = from_base(base);

	mmio->complained = true; /* the machine reports it */
	mmio_set_needs_reset(mmio, reason);
	mmio->machine.fault(mmio->machine.context, reason);
}

static void transport_recall(struct virtio_transport *base, unsigned queue)
{
	mmio_kick(from_base(base), queue);
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

		mmio_count(&mmio->notifies);
		if (device->ops->notify(device, index))
			mmio_kick(mmio, index);
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
		mmio_kick(mmio, i);
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
	mmio_stop_queues(mmio);
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
