/* SPDX-License-Identifier: Apache-2.0 */
/* The hostile guest's driver: what it finds, how it brings a device up, and whether devices still work. */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>

enum {
	MAGIC = 0x74726976,
	STATUS_UP = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK |
		    VIRTIO_CONFIG_S_DRIVER_OK,
	EVENT_IDX = 29,
	IOAPIC_MASKED = 1 << 16,
	IOAPIC_PIN = 0x10,
	RNG_BYTES = 64,
	SECTOR = 512,
	PATTERN_STEP = 7,   /* the disks' byte N is N * 7 */
	TURNS = 1000000000, /* seconds, on a host that is busy with other things */
};

struct device devices[WINDOWS_MAX];
unsigned device_count;
struct ring rings[QUEUES_MAX];
uint8_t arena[1 << 20] __attribute__((aligned(4096)));

static void scan_queues(struct device *device)
{
	for (unsigned i = 0; i < QUEUES_MAX; i++) {
		write32(device->base + VIRTIO_MMIO_QUEUE_SEL, i);
		device->queue_size[i] = (uint16_t)read32(device->base + VIRTIO_MMIO_QUEUE_NUM_MAX);
		if (device->queue_size[i] == 0)
			break;
		device->queues++;
	}
}

void scan_devices(void)
{
	for (unsigned window = 0; window < WINDOWS_MAX; window++) {
		struct device *device = &devices[device_count];

		device->base = WINDOWS_BASE + (uint64_t)window * WINDOW;
		/* That of the serial line is left out. */
		device->pin = window < SERIAL_PIN ? window : window + 1;
		if (read32(device->base) != MAGIC)
			continue;
		device->id = read32(device->base + VIRTIO_MMIO_DEVICE_ID);
		scan_queues(device);
		device_count++;
	}
	if (!find_device(VIRTIO_ID_RNG, NULL))
		fail("no rng");
}

const struct device *find_device(uint32_t id, const struct device *after)
{
	for (unsigned i = after ? (unsigned)(after - devices) + 1 : 0; i < device_count; i++)
		if (devices[i].id == id)
			return &devices[i];
	return NULL;
}

void device_reset(const struct device *device)
{
	write32(device->base + VIRTIO_MMIO_STATUS, 0);
}

static uint32_t offered(const struct device *device, uint32_t half)
{
	write32(device->base + VIRTIO_MMIO_DEVICE_FEATURES_SEL, half);
	return read32(device->base + VIRTIO_MMIO_DEVICE_FEATURES);
}

static void choose(const struct device *device, uint32_t half, uint32_t features)
{
	write32(device->base + VIRTIO_MMIO_DRIVER_FEATURES_SEL, half);
	write32(device->base + VIRTIO_MMIO_DRIVER_FEATURES, features);
}

void device_go(const struct device *device, uint32_t status)
{
	static const struct device *current; /* the rings are one device's at a time */
	uint32_t now = 0;

	if (current && current != device)
		device_reset(current);
	current = device;
	device_reset(device);
	for (uint32_t bit = 1; bit <= VIRTIO_CONFIG_S_FEATURES_OK; bit <<= 1) {
		/* bits in the order that the standard wants: 1, 2, 8, 4 */
		uint32_t next = bit == 4   ? VIRTIO_CONFIG_S_FEATURES_OK
				: bit == 8 ? VIRTIO_CONFIG_S_DRIVER_OK
					   : bit;

		if (!(status & next))
			continue;
		if (next == VIRTIO_CONFIG_S_FEATURES_OK) {
			choose(device, 0, offered(device, 0) & ~(1u << EVENT_IDX));
			choose(device, 1, offered(device, 1));
		}
		now |= next;
		write32(device->base + VIRTIO_MMIO_STATUS, now);
	}
	if (status & VIRTIO_CONFIG_S_FAILED)
		write32(device->base + VIRTIO_MMIO_STATUS, now | VIRTIO_CONFIG_S_FAILED);
}

static void write64(uint64_t address, uint64_t value)
{
	write32(address, (uint32_t)value);
	write32(address + 4, (uint32_t)(value >> 32));
}

void device_set_queue(const struct device *device, unsigned queue, uint32_t size, uint64_t desc,
	uint64_t avail, uint64_t used)
{
	write32(device->base + VIRTIO_MMIO_QUEUE_SEL, queue);
	write32(device->base + VIRTIO_MMIO_QUEUE_NUM, size);
	write64(device->base + VIRTIO_MMIO_QUEUE_DESC_LOW, desc);
	write64(device->base + VIRTIO_MMIO_QUEUE_AVAIL_LOW, avail);
	write64(device->base + VIRTIO_MMIO_QUEUE_USED_LOW, used);
	write32(device->base + VIRTIO_MMIO_QUEUE_READY, 1);
}

void device_up(const struct device *device, unsigned size)
{
	device_go(device, STATUS_UP & ~VIRTIO_CONFIG_S_DRIVER_OK);
	for (unsigned i = 0; i < device->queues; i++) {
		struct ring *ring = &rings[i];

		memset(ring, 0, sizeof(*ring));
		device_set_queue(device, i, device->queue_size[i] < size ? device->queue_size[i] : size,
			(uint64_t)ring->desc, (uint64_t)&ring->avail, (uint64_t)&ring->used);
	}
	write32(device->base + VIRTIO_MMIO_STATUS, STATUS_UP);
}

void device_offer(const struct device *device, unsigned queue, unsigned size, uint16_t head)
{
	struct ring *ring = &rings[queue];

	ring->avail.ring[ring->avail.index % size] = head;
	__atomic_store_n(&ring->avail.index, ring->avail.index + 1, __ATOMIC_RELEASE);
	write32(device->base + VIRTIO_MMIO_QUEUE_NOTIFY, queue);
}

bool await_used(unsigned queue, uint16_t index)
{
	for (unsigned i = 0; i < TURNS; i++) {
		if (__atomic_load_n(&rings[queue].used.index, __ATOMIC_ACQUIRE) == index)
			return true;
		relax();
	}
	return false;
}

bool disk_read(const struct device *disk, uint64_t sector)
{
	struct virtio_blk_outhdr *header = (struct virtio_blk_outhdr *)(arena + SECTOR);
	struct ring *ring = &rings[0];

	device_up(disk, RING_MAX);
	*header = (struct virtio_blk_outhdr){.type = VIRTIO_BLK_T_IN, .sector = sector};
	arena[2 * SECTOR] = 0xff;
	ring->desc[0].address = (uint64_t)header;
	ring->desc[0].length = sizeof(*header);
	ring->desc[0].flags = DESC_NEXT;
	ring->desc[0].next = 1;
	ring->desc[1].address = (uint64_t)arena;
	ring->desc[1].length = SECTOR;
	ring->desc[1].flags = DESC_NEXT | DESC_WRITE;
	ring->desc[1].next = 2;
	ring->desc[2].address = (uint64_t)(arena + 2 * SECTOR);
	ring->desc[2].length = 1;
	ring->desc[2].flags = DESC_WRITE;
	device_offer(disk, 0, disk->queue_size[0], 0);
	return await_used(0, 1) && arena[2 * SECTOR] == VIRTIO_BLK_S_OK;
}

/* Sector 0 of each disk is not written by any attack. */
static void check_disks(void)
{
	const struct device *disk = NULL;

	while ((disk = find_device(VIRTIO_ID_BLOCK, disk))) {
		if (!disk_read(disk, 0))
			fail("a disk does not read");
		for (unsigned i = 0; i < SECTOR; i++)
			if (arena[i] != (uint8_t)(i * PATTERN_STEP))
				fail("a disk reads other bytes");
	}
}

static void check_rng(const struct device *rng)
{
	unsigned zeros = 0;

	device_up(rng, RING_MAX);
	memset(arena, 0, RNG_BYTES);
	rings[0].desc[0].address = (uint64_t)arena;
	rings[0].desc[0].length = RNG_BYTES;
	rings[0].desc[0].flags = DESC_WRITE;
	device_offer(rng, 0, rng->queue_size[0], 0);
	if (!await_used(0, 1) || rings[0].used.ring[0].length != RNG_BYTES)
		fail("rng does not answer");
	for (unsigned i = 0; i < RNG_BYTES; i++)
		zeros += arena[i] == 0;
	if (zeros > RNG_BYTES / 4)
		fail("rng gives zeros");
}

/* rng again, by its line. */
static void check_interrupt(const struct device *rng)
{
	unsigned before = traps[VECTOR_TEST];

	ioapic_write(IOAPIC_PIN + 2 * rng->pin + 1, 0);
	ioapic_write(IOAPIC_PIN + 2 * rng->pin, VECTOR_TEST);
	check_rng(rng);
	for (unsigned i = 0; i < TURNS / 64 && traps[VECTOR_TEST] == before; i++)
		allow_interrupts_briefly();
	if (traps[VECTOR_TEST] == before)
		fail("no interrupt comes");
	write32(rng->base + VIRTIO_MMIO_INTERRUPT_ACK, VIRTIO_MMIO_INT_VRING);
	ioapic_write(IOAPIC_PIN + 2 * rng->pin, VECTOR_TEST | IOAPIC_MASKED);
	device_reset(rng);
}

void check_devices(void)
{
	const struct device *rng = find_device(VIRTIO_ID_RNG, NULL);

	machine_settle();

	for (unsigned i = 0; i < device_count; i++) {
		device_reset(&devices[i]);
		if (read32(devices[i].base + VIRTIO_MMIO_STATUS) != 0)
			fail("a device does not reset");
	}
	check_rng(rng);
	check_interrupt(rng);
	check_disks();
	for (unsigned i = 0; i < device_count; i++)
		device_reset(&devices[i]);
}
