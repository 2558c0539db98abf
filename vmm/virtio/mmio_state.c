/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transport and its device in a snapshot. No vCPU runs meanwhile. Devices serve a request whole or not at
 * all, and in order, so one index says of a queue how far it came: what was taken and not given back (buffers
 * that net holds ready) will be taken again.
 */
#include "vmm/virtio/mmio_parts.h"
#include <errno.h>
#include <linux/virtio_mmio.h>

enum {
	STATUS_END = VIRTIO_CONFIG_S_NEEDS_RESET | VIRTIO_CONFIG_S_FAILED,
	INTERRUPTS = VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG,
};

struct virtio_identity virtio_mmio_identity(const struct virtio_mmio *mmio)
{
	return (struct virtio_identity){
		.id = mmio->device->id,
		.features = mmio->device->features,
		.config = mmio->device->config,
		.config_length = mmio->device->config_length,
		.own_state = mmio->device->ops->load != NULL,
	};
}

/*
 * A queue that more waits in gets on by a chain at least each round, and holds VIRTQ_SIZE_MAX at most. Only a
 * device that writes over the rings adds to them meanwhile.
 */
void virtio_mmio_drain(struct virtio_mmio *mmio)
{
	struct virtio_device *device = mmio->device;
	bool more = true;

	virtio_device_enter(device);
	for (unsigned round = 0; more && round < VIRTQ_SIZE_MAX; round++) {
		more = false;
		for (unsigned i = 0; i < device->queue_count; i++)
			if (device->queues[i].live && device->ops->notify(device, i))
				more = true;
	}
	virtio_device_leave(device);
}

static void put_queue(struct state_writer *state, const struct virtq *queue)
{
	state_put_u16(state, queue->size);
	state_put_u64(state, queue->desc_address);
	state_put_u64(state, queue->avail_address);
	state_put_u64(state, queue->used_address);
	state_put_bool(state, queue->ready);
	state_put_u16(state, queue->next_used);
}

void virtio_mmio_save(struct virtio_mmio *mmio, struct state_writer *state)
{
	const struct virtio_device *device = mmio->device;

	virtio_device_enter(mmio->device);
	state_put_u32(state, mmio->status);
	state_put_u32(state, atomic_load(&mmio->interrupt_status));
	state_put_u32(state, mmio->queue_select);
	state_put_u32(state, mmio->device_features_select);
	state_put_u32(state, mmio->driver_features_select);
	state_put_u64(state, mmio->driver_features);
	state_put_u32(state, mmio->config_generation);
	state_put_u32(state, device->queue_count);
	for (unsigned i = 0; i < device->queue_count; i++)
		put_queue(state, &device->queues[i]);
	if (device->ops->save)
		device->ops->save(device, state);
	virtio_device_leave(mmio->device);
}

static bool status_exists(uint32_t status)
{
	static const uint32_t steps[] = {0, VIRTIO_CONFIG_S_ACKNOWLEDGE,
		VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER,
		VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK,
		VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |
			VIRTIO_CONFIG_S_DRIVER_OK};

	for (unsigned i = 0; i < sizeof(steps) / sizeof(steps[0]); i++)
		if ((status & ~(uint32_t)STATUS_END) == steps[i])
			return true;
	return false;
}

static void get_registers(struct virtio_mmio *mmio, struct state_reader *state)
{
	uint32_t interrupts;

	mmio->status = state_get_u32(state);
	interrupts = state_get_u32(state);
	atomic_store(&mmio->interrupt_status, interrupts);
	mmio->queue_select = state_get_u32(state);
	mmio->device_features_select = state_get_u32(state);
	mmio->driver_features_select = state_get_u32(state);
	mmio->driver_features = state_get_u64(state);
	mmio->config_generation = state_get_u32(state);
	if (!status_exists(mmio->status) || (interrupts & ~(uint32_t)INTERRUPTS) ||
		((mmio->status & VIRTIO_CONFIG_S_FEATURES_OK) && !mmio_features_acceptable(mmio)))
		state_refuse(state);
}

/* The rings are looked up anew, by the rules for a driver's. */
static void get_queue(struct virtio_mmio *mmio, struct virtq *queue, struct state_reader *state)
{
	uint16_t used;
	bool ready;

	queue->size = state_get_u16(state);
	queue->desc_address = state_get_u64(state);
	queue->avail_address = state_get_u64(state);
	queue->used_address = state_get_u64(state);
	ready = state_get_bool(state);
	used = state_get_u16(state);
	if (!ready || state->error)
		return;
	if (virtq_enable(
		    queue, mmio->memory, mmio->driver_features & VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX)) < 0)
		state_refuse(state);
	else
		virtq_continue(queue, used);
}

static bool driver_runs(const struct virtio_mmio *mmio)
{
	return (mmio->status & VIRTIO_CONFIG_S_DRIVER_OK) && !(mmio->status & STATUS_END);
}

void virtio_mmio_load(struct virtio_mmio *mmio, struct state_reader *state)
{
	struct virtio_device *device = mmio->device;

	virtio_device_enter(device);
	get_registers(mmio, state);
	if (state_get_u32(state) != device->queue_count)
		state_refuse(state);
	for (unsigned i = 0; i < device->queue_count; i++)
		get_queue(mmio, &device->queues[i], state);
	if (!state->error && driver_runs(mmio)) {
		device->driver_features = mmio->driver_features;
		device->running = true;
		for (unsigned i = 0; i < device->queue_count; i++)
			device->queues[i].live = device->queues[i].ready;
	}
	if (device->ops->load)
		device->ops->load(device, state);
	virtio_device_leave(device);
}

/*
 * What was pending in eventfds is not in a snapshot: so each queue is looked at, and the line is raised once,
 * with the cause in InterruptStatus before it. A driver that finds nothing is used to that.
 */
void virtio_mmio_wake(struct virtio_mmio *mmio)
{
	struct virtio_device *device = mmio->device;

	virtio_device_enter(device);
	for (unsigned i = 0; i < device->queue_count; i++)
		if (device->queues[i].live)
			mmio_kick(mmio, i);
	if (device->running)
		atomic_fetch_or(&mmio->interrupt_status, VIRTIO_MMIO_INT_VRING);
	if (atomic_load(&mmio->interrupt_status)) {
		mmio_count(&mmio->interrupts);
		mmio->machine.interrupt(mmio->machine.context);
	}
	virtio_device_leave(device);
}
