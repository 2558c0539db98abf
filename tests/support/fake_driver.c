/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/unit.h"

#include "tests/support/fake_driver.h"
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, HEAP_START = 0x10000, IDLE_TURNS = 4, IDLE_MS = 40 };

static void on_interrupt(void *context)
{
	struct fake_driver *driver = context;

	driver->interrupts++;
}

static void on_fault(void *context, const char *reason)
{
	struct fake_driver *driver = context;

	driver->faults++;
	snprintf(driver->reason, sizeof(driver->reason), "%s", reason);
}

void fake_driver_init(struct fake_driver *driver)
{
	uint8_t *map = mmap(
		NULL, FAKE_MEMORY + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	assert_ptr_not_equal(map, MAP_FAILED);
	assert_int_equal(mprotect(map + PAGE, FAKE_MEMORY, PROT_READ | PROT_WRITE), 0);
	*driver = (struct fake_driver){
		.memory = {.regions = {{.base = 0, .size = FAKE_MEMORY, .host = map + PAGE}}, .count = 1},
		.loop = loop_create(),
		.next_free = HEAP_START,
	};
	assert_non_null(driver->loop);
}

void fake_driver_attach(struct fake_driver *driver, struct virtio_device *device)
{
	struct virtio_machine machine = {.context = driver, .interrupt = on_interrupt, .fault = on_fault};

	driver->device = device;
	assert_int_equal(
		virtio_mmio_create(device, &driver->memory, driver->loop, &machine, &driver->mmio), 0);
}

void fake_driver_finish(struct fake_driver *driver)
{
	virtio_mmio_destroy(driver->mmio);
	loop_destroy(driver->loop);
	munmap(driver->memory.regions[0].host - PAGE, FAKE_MEMORY + 2 * PAGE);
}

uint32_t fake_driver_read(struct fake_driver *driver, uint64_t offset)
{
	uint32_t value = 0xdeadbeef;

	virtio_mmio_read(driver->mmio, offset, &value, sizeof(value));
	return value;
}

void fake_driver_write(struct fake_driver *driver, uint64_t offset, uint32_t value)
{
	virtio_mmio_write(driver->mmio, offset, &value, sizeof(value));
}

uint32_t fake_driver_status(struct fake_driver *driver)
{
	return fake_driver_read(driver, VIRTIO_MMIO_STATUS);
}

uint64_t fake_driver_features(struct fake_driver *driver)
{
	uint64_t features;

	fake_driver_write(driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 1);
	features = (uint64_t)fake_driver_read(driver, VIRTIO_MMIO_DEVICE_FEATURES) << 32;
	fake_driver_write(driver, VIRTIO_MMIO_DEVICE_FEATURES_SEL, 0);
	return features | fake_driver_read(driver, VIRTIO_MMIO_DEVICE_FEATURES);
}

static void add_status(struct fake_driver *driver, uint32_t bit)
{
	fake_driver_write(driver, VIRTIO_MMIO_STATUS, fake_driver_status(driver) | bit);
}

void fake_driver_negotiate(struct fake_driver *driver, uint64_t features)
{
	fake_driver_write(driver, VIRTIO_MMIO_STATUS, 0);
	memset(driver->queues, 0, sizeof(driver->queues));
	add_status(driver, VIRTIO_CONFIG_S_ACKNOWLEDGE);
	add_status(driver, VIRTIO_CONFIG_S_DRIVER);
	fake_driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	fake_driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(features >> 32));
	fake_driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
	fake_driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)features);
	add_status(driver, VIRTIO_CONFIG_S_FEATURES_OK);
}

static void write_address(struct fake_driver *driver, uint64_t low, uint64_t high, gpa_t address)
{
	fake_driver_write(driver, low, (uint32_t)address);
	fake_driver_write(driver, high, (uint32_t)(address >> 32));
}

void fake_driver_place_queue(struct fake_driver *driver, unsigned index, uint16_t size)
{
	struct fake_queue *queue = &driver->queues[index];
	size_t desc = size * sizeof(*queue->desc), avail = 6 + size * 2u, used = 6 + size * 8u;

	*queue = (struct fake_queue){
		.size = size,
		.desc_address = fake_driver_alloc(driver, desc),
		.avail_address = fake_driver_alloc(driver, avail),
		.used_address = fake_driver_alloc(driver, used),
	};
	queue->desc = fake_driver_at(driver, queue->desc_address, desc);
	queue->avail = fake_driver_at(driver, queue->avail_address, avail);
	queue->used = fake_driver_at(driver, queue->used_address, used);
	fake_driver_write(driver, VIRTIO_MMIO_QUEUE_SEL, index);
	fake_driver_write(driver, VIRTIO_MMIO_QUEUE_NUM, size);
	write_address(driver, VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_DESC_HIGH, queue->desc_address);
	write_address(
		driver, VIRTIO_MMIO_QUEUE_AVAIL_LOW, VIRTIO_MMIO_QUEUE_AVAIL_HIGH, queue->avail_address);
	write_address(driver, VIRTIO_MMIO_QUEUE_USED_LOW, VIRTIO_MMIO_QUEUE_USED_HIGH, queue->used_address);
}

void fake_driver_start(struct fake_driver *driver, uint64_t features)
{
	fake_driver_negotiate(driver, features);
	for (unsigned i = 0; i < virtio_mmio_queue_count(driver->mmio); i++) {
		fake_driver_write(driver, VIRTIO_MMIO_QUEUE_SEL, i);
		fake_driver_place_queue(
			driver, i, (uint16_t)fake_driver_read(driver, VIRTIO_MMIO_QUEUE_NUM_MAX));
		fake_driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 1);
	}
	add_status(driver, VIRTIO_CONFIG_S_DRIVER_OK);
	assert_int_equal(fake_driver_status(driver), 0xf);
}

gpa_t fake_driver_alloc(struct fake_driver *driver, size_t length)
{
	gpa_t address = (driver->next_free + 15) & ~(gpa_t)15;

	assert_true(address + length <= FAKE_MEMORY);
	driver->next_free = address + length;
	memset(driver->memory.regions[0].host + address, 0, length);
	return address;
}

void *fake_driver_at(struct fake_driver *driver, gpa_t address, size_t length)
{
	assert_true(address <= FAKE_MEMORY && length <= FAKE_MEMORY - address);
	return driver->memory.regions[0].host + address;
}

uint16_t fake_driver_chain(
	struct fake_driver *driver, unsigned index, const struct fake_buffer *buffers, unsigned count)
{
	struct fake_queue *queue = &driver->queues[index];
	uint16_t head = queue->next_desc;

	for (unsigned i = 0; i < count; i++) {
		struct vring_desc *desc = &queue->desc[queue->next_desc];

		queue->next_desc = (uint16_t)((queue->next_desc + 1) % queue->size);
		*desc = (struct vring_desc){
			.addr = buffers[i].address,
			.len = buffers[i].length,
			.flags = (uint16_t)((buffers[i].writable ? VRING_DESC_F_WRITE : 0) |
					    (i + 1 < count ? VRING_DESC_F_NEXT : 0)),
			.next = i + 1 < count ? queue->next_desc : 0,
		};
	}
	return head;
}

void fake_driver_offer(struct fake_driver *driver, unsigned index, uint16_t head)
{
	struct fake_queue *queue = &driver->queues[index];

	queue->avail->ring[queue->avail->idx % queue->size] = head;
	/* Release: entry and descriptors are written before the index that shows them. */
	__atomic_store_n(&queue->avail->idx, (uint16_t)(queue->avail->idx + 1), __ATOMIC_RELEASE);
}

void fake_driver_run(struct fake_driver *driver)
{
	/* One turn may make work for the next, so a few idle ones end it; none waits. */
	for (unsigned turn = 0; turn < IDLE_TURNS; turn++)
		assert_int_equal(loop_turn(driver->loop, 0), 0);
}

void fake_driver_kick(struct fake_driver *driver, unsigned index)
{
	fake_driver_write(driver, VIRTIO_MMIO_QUEUE_NOTIFY, index);
	fake_driver_run(driver);
}

void fake_driver_assert_idle(struct fake_driver *driver)
{
	struct timespec before, after;
	int64_t elapsed;

	fake_driver_run(driver);
	clock_gettime(CLOCK_MONOTONIC, &before);
	assert_int_equal(loop_turn(driver->loop, IDLE_MS), 0);
	clock_gettime(CLOCK_MONOTONIC, &after);
	elapsed = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
	assert_true(elapsed >= IDLE_MS - 5);
}

bool fake_driver_used(struct fake_driver *driver, unsigned index, uint16_t *head, uint32_t *written)
{
	struct fake_queue *queue = &driver->queues[index];
	const struct vring_used_elem *element = &queue->used->ring[queue->seen_used % queue->size];

	if (queue->seen_used == queue->used->idx)
		return false;
	queue->seen_used++;
	*head = (uint16_t)element->id;
	*written = element->len;
	return true;
}

bool fake_driver_must_kick(struct fake_driver *driver, unsigned index)
{
	struct fake_queue *queue = &driver->queues[index];
	uint16_t event;

	memcpy(&event, &queue->used->ring[queue->size], sizeof(event));
	return vring_need_event(event, queue->avail->idx, (uint16_t)(queue->avail->idx - 1));
}

void fake_driver_set_used_event(struct fake_driver *driver, unsigned index, uint16_t event)
{
	struct fake_queue *queue = &driver->queues[index];

	queue->avail->ring[queue->size] = event;
}

int fake_driver_move(struct fake_driver *driver, struct virtio_device *next)
{
	static uint8_t bytes[FAKE_STATE_MAX];
	struct state_writer writer;

	state_writer_init(&writer, bytes, sizeof(bytes));
	virtio_mmio_drain(driver->mmio);
	virtio_mmio_save(driver->mmio, &writer);
	assert_int_equal(writer.error, 0);
	return fake_driver_load(driver, next, bytes, writer.length);
}

int fake_driver_load(
	struct fake_driver *driver, struct virtio_device *next, const uint8_t *bytes, size_t length)
{
	struct state_reader reader;

	virtio_mmio_destroy(driver->mmio);
	fake_driver_attach(driver, next);
	state_reader_init(&reader, bytes, length);
	virtio_mmio_load(driver->mmio, &reader);
	return state_reader_finish(&reader);
}
