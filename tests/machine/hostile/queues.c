/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on queues: rings where none may be, malformed chains, queues changed while live, resets under load.
 */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>

enum {
	SET_UP = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK,
	UP = SET_UP | VIRTIO_CONFIG_S_DRIVER_OK,
	DESC_INDIRECT = 4,
	FILLED = 32, /* chains in a queue that is filled */
	BUFFER = 4096,
	SECTOR = 512,
	STORMS = 40,
	PARTS = 3, /* of a ring */
	VSOCK_CID = 3,
	VSOCK_HEADER = 44,
	VSOCK_REQUEST = 1,
};

/* --- rings where none may be --- */

/* One part of the ring at the address, the others where they belong. */
static void ring_at(const struct device *device, unsigned queue, unsigned part, uint64_t address)
{
	struct ring *ring = &rings[queue];
	uint64_t at[PARTS] = {(uint64_t)ring->desc, (uint64_t)&ring->avail, (uint64_t)&ring->used};

	at[part] = address;
	device_go(device, SET_UP);
	device_set_queue(device, queue, 2, at[0], at[1], at[2]);
	write32(device->base + VIRTIO_MMIO_STATUS, UP);
	write32(device->base + VIRTIO_MMIO_QUEUE_NOTIFY, queue);
}

static bool is_memory(uint64_t address)
{
	return address < memory_end;
}

/* Where the guest itself lies is another attack's matter, for what is there counts as a ring. */
static void rings_outside(uint64_t seed)
{
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, false);

	(void)seed;
	values[count++] = UINT64_MAX;
	values[count++] = UINT64_MAX - 15;
	for (unsigned i = 0; i < device_count; i++)
		for (unsigned queue = 0; queue < devices[i].queues; queue++)
			for (unsigned k = 0; k < count; k++)
				if (!is_memory(values[k] + 32))
					ring_at(&devices[i], queue, (k + queue) % PARTS, values[k] & ~15ull);
}

/* Up to the last byte of memory and one further, for each part and size. */
static void rings_at_the_end(uint64_t seed)
{
	static const uint32_t entry[PARTS] = {16, 2, 8}, extra[PARTS] = {0, 6, 6}, align[PARTS] = {16, 2, 4};
	const struct device *rng = find_device(VIRTIO_ID_RNG, NULL);

	(void)seed;
	for (unsigned part = 0; part < PARTS; part++)
		for (uint32_t size = 1; size <= rng->queue_size[0]; size *= 2)
			for (unsigned over = 0; over < 2; over++) {
				uint64_t bytes = (size * entry[part] + extra[part] + align[part] - 1) &
						 ~(align[part] - 1);
				uint64_t at[PARTS] = {(uint64_t)rings[0].desc, (uint64_t)&rings[0].avail,
					(uint64_t)&rings[0].used};

				memset((void *)(memory_end - bytes), 0, bytes);
				at[part] = memory_end - bytes + over * align[part];
				device_go(rng, SET_UP);
				device_set_queue(rng, 0, size, at[0], at[1], at[2]);
				write32(rng->base + VIRTIO_MMIO_STATUS, UP);
				write32(rng->base + VIRTIO_MMIO_QUEUE_NOTIFY, 0);
			}
}

/* --- queues filled as their device wants them --- */

static void set_desc(struct ring *ring, unsigned index, uint64_t address, uint32_t length, uint16_t flags)
{
	ring->desc[index].address = address;
	ring->desc[index].length = length;
	ring->desc[index].flags = flags;
	ring->desc[index].next = (uint16_t)(index + 1);
}

static void make_disk_request(struct ring *ring, unsigned index, uint32_t type, uint64_t sector)
{
	struct virtio_blk_outhdr *header = (struct virtio_blk_outhdr *)arena + index;

	*header = (struct virtio_blk_outhdr){.type = type, .sector = sector};
	set_desc(ring, 3 * index, (uint64_t)header, sizeof(*header), DESC_NEXT);
	set_desc(ring, 3 * index + 1, (uint64_t)(arena + 0x10000), 16 * SECTOR,
		DESC_NEXT | (type == VIRTIO_BLK_T_IN ? DESC_WRITE : 0));
	set_desc(ring, 3 * index + 2, (uint64_t)(arena + 0x8000 + index), 1, DESC_WRITE);
}

/* A packet that asks for a connection to a port of the host, a new one each time. */
static void make_vsock_packet(struct ring *ring, unsigned index, uint16_t op, uint32_t port)
{
	uint8_t *packet = arena + 64 * (uint64_t)index;
	const uint64_t cids[2] = {VSOCK_CID, 2};
	const uint32_t ports[2] = {port, 1024 + index};
	const uint16_t kind[2] = {1, op};

	memset(packet, 0, VSOCK_HEADER);
	memcpy(packet, cids, sizeof(cids));
	memcpy(packet + 16, ports, sizeof(ports));
	memcpy(packet + 28, kind, sizeof(kind));
	set_desc(ring, index, (uint64_t)packet, VSOCK_HEADER, 0);
}

static bool device_writes(const struct device *device, unsigned queue)
{
	switch (device->id) {
	case VIRTIO_ID_VSOCK:
	case VIRTIO_ID_NET:
		return queue != 1;
	case VIRTIO_ID_BALLOON:
		return queue > 2; /* reports; the others are read */
	default:
		return true;
	}
}

/* The number of chains that are in the table then, at heads 0, step, 2 * step, ... */
static unsigned fill_table(const struct device *device, unsigned queue, struct ring *ring, unsigned *step)
{
	unsigned size = device->queue_size[queue], count = size < FILLED ? size : FILLED;

	*step = 1;
	if (device->id == VIRTIO_ID_BLOCK) {
		*step = 3;
		count = size / 3 < FILLED ? size / 3 : FILLED;
	}
	for (unsigned i = 0; i < count; i++)
		if (device->id == VIRTIO_ID_BLOCK)
			make_disk_request(
				ring, i, i % 4 == 1 ? VIRTIO_BLK_T_OUT : VIRTIO_BLK_T_IN, 8 + 16 * i % 64);
		else if (device->id == VIRTIO_ID_VSOCK && queue == 1)
			make_vsock_packet(ring, i, VSOCK_REQUEST, 7000 + i);
		else
			set_desc(ring, i, (uint64_t)(arena + 0x20000 + (uint64_t)i * BUFFER), BUFFER,
				device_writes(device, queue) ? DESC_WRITE : 0);
	return count;
}

/* Fills every queue and shows it, without waiting. The device must be up. */
static void offer_all(const struct device *device)
{
	for (unsigned queue = 0; queue < device->queues; queue++) {
		struct ring *ring = &rings[queue];
		unsigned step, count = fill_table(device, queue, ring, &step);
		unsigned shown = (uint16_t)(ring->avail.index - ring->used.index);

		/* Further ahead than the ring is long would end the VM. */
		if (shown + count > device->queue_size[queue])
			continue;
		for (unsigned i = 0; i < count; i++)
			ring->avail.ring[(ring->avail.index + i) % device->queue_size[queue]] =
				(uint16_t)(i * step);
		__atomic_store_n(&ring->avail.index, ring->avail.index + count, __ATOMIC_RELEASE);
		write32(device->base + VIRTIO_MMIO_QUEUE_NOTIFY, queue);
	}
}

/* --- rings over each other --- */

/* Where the parts begin, and how far apart the queues are: of 16 entries, which take 256, 38 and 134 bytes.
 */
static const struct {
	uint16_t desc, avail, used, stride;
} overlaps[] = {
	{0, 0x100, 0x200, 0}, /* first: whole rings, shared by the queues */
	{0, 0x100, 0x200, 0x100},
	{0, 0, 0, 0},
	{0, 0x100, 0x100, 0x400},
	{0, 0x100, 0x100, 0},
	{0, 0x102, 0x100, 0x400},
	{0, 0x100, 0x104, 0x400},
	{0, 0x080, 0x040, 0x400},
	{0, 0x000, 0x200, 0x400},
	{0, 0x200, 0x000, 0x400},
	{0, 0x1ee, 0x200, 0x400},
	{0x10, 0, 4, 4},
};
enum { OVERLAPS = sizeof(overlaps) / sizeof(overlaps[0]), OVERLAP_BYTES = 0x300 };

static void overlap(const struct device *device, unsigned how, uint8_t *base)
{
	struct ring *whole = &rings[0];

	device_go(device, SET_UP);
	for (unsigned queue = 0; queue < device->queues; queue++) {
		uint8_t *at = base + (size_t)queue * overlaps[how].stride;
		unsigned step;

		(void)fill_table(device, queue, whole, &step);
		memset(at, 0, OVERLAP_BYTES);
		memcpy(at + overlaps[how].desc, whole->desc, 16 * sizeof(whole->desc[0]));
		device_set_queue(device, queue, 16, (uint64_t)(at + overlaps[how].desc),
			(uint64_t)(at + overlaps[how].avail), (uint64_t)(at + overlaps[how].used));
	}
	write32(device->base + VIRTIO_MMIO_STATUS, UP);
	for (unsigned queue = 0; queue < device->queues; queue++) {
		uint8_t *at = base + (size_t)queue * overlaps[how].stride;

		*(volatile uint16_t *)(at + overlaps[how].avail + 2) = 5;
		write32(device->base + VIRTIO_MMIO_QUEUE_NOTIFY, queue);
	}
	for (unsigned queue = 0; queue < device->queues; queue++)
		(void)read32(device->base + VIRTIO_MMIO_STATUS);
}

/* What a device writes may count as an index that no ring has, which ends the VM: one way for each seed. */
static void rings_overlap(uint64_t seed)
{
	for (unsigned i = 0; i < device_count; i++)
		overlap(&devices[i], seed % OVERLAPS, arena + 0x80000);
}

static void touch(uint64_t address, uint64_t b, uint64_t c)
{
	(void)b;
	(void)c;
	(void)*(volatile uint8_t *)address;
}

/* Rings in page tables that the processor walks: entries become what devices write. */
static void rings_in_tables(uint64_t seed)
{
	(void)seed;
	for (unsigned i = 0; i < device_count; i++) {
		overlap(&devices[i], i % 2, (uint8_t *)spare_tables);
		for (unsigned entry = 0; entry < 3 * 512; entry += 8) {
			uint64_t span = 2ull << 20;

			__asm__ volatile("mov %%cr3, %%rax; mov %%rax, %%cr3" : : : "rax", "memory");
			probe(touch, SPARE_TABLES_START + entry * span, 0, 0);
		}
		device_reset(&devices[i]);
		map_again();
	}
}

/* --- malformed chains --- */

struct chain {
	uint64_t address[2]; /* 0: none */
	uint32_t length[2];
	uint16_t flags[2], next;
	uint16_t head;
};

static void offer_chain(const struct device *device, unsigned queue, const struct chain *chain)
{
	struct ring *ring = &rings[queue];

	for (unsigned i = 0; i < 2; i++)
		set_desc(ring, i, chain->address[i], chain->length[i], chain->flags[i]);
	ring->desc[1].next = chain->next;
	device_offer(device, queue, device->queue_size[queue], chain->head);
	if (read32(device->base + VIRTIO_MMIO_STATUS) != UP ||
		(uint16_t)(ring->avail.index - ring->used.index) >= device->queue_size[queue] / 2)
		device_up(device, RING_MAX);
}

/*
 * The guest's own memory, where no device may write. Whatever length goes with it: the device may read a
 * descriptor while it is rewritten, and see the address of one chain with the length of the next.
 */
static bool is_itself(uint64_t address)
{
	bool in_arena = address >= (uint64_t)arena && address < (uint64_t)arena + sizeof(arena) / 2;

	return address < (uint64_t)own_memory_end && !in_arena;
}

/* Buffers at the borders, of every length at a border. */
static void offer_borders(const struct device *device, unsigned queue)
{
	static const uint32_t lengths[] = {0, 1, 16, 44, 0x7fffffff, 0xffffffff};
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, !long_run);

	for (unsigned i = 0; i < count; i++) {
		const uint32_t length = lengths[i % (sizeof(lengths) / sizeof(lengths[0]))];
		const uint16_t way = device_writes(device, queue) ? DESC_WRITE : 0;
		const struct chain chain = {.address = {(uint64_t)arena, values[i]},
			.length = {16, length},
			.flags = {DESC_NEXT, way}};
		const struct chain alone = {
			.address = {values[i], 0}, .length = {length, 0}, .flags = {way, 0}};

		if (is_itself(values[i]))
			continue;
		offer_chain(device, queue, &chain);
		offer_chain(device, queue, &alone);
	}
}

static void chains(uint64_t seed)
{
	static const struct chain malformed[] = {
		{.address = {(uint64_t)arena, (uint64_t)arena},
			.length = {16, 16},
			.flags = {DESC_NEXT, DESC_NEXT}},
		{.address = {(uint64_t)arena, (uint64_t)arena},
			.length = {16, 16},
			.flags = {DESC_WRITE | DESC_NEXT, 0}},
		{.address = {(uint64_t)arena, 0}, .length = {16, 16}, .flags = {DESC_INDIRECT, 0}},
		{.address = {(uint64_t)arena, 0},
			.length = {16, 16},
			.flags = {DESC_INDIRECT | DESC_NEXT, 0}},
		{.address = {(uint64_t)arena, 0}, .length = {16, 16}, .flags = {0xffff, 0}},
		{.address = {(uint64_t)arena, (uint64_t)arena},
			.length = {16, 16},
			.flags = {DESC_NEXT, DESC_NEXT},
			.next = 0xffff},
		{.address = {(uint64_t)arena, (uint64_t)arena},
			.length = {16, 16},
			.flags = {DESC_NEXT, DESC_NEXT},
			.next = RING_MAX},
		{.head = RING_MAX},
		{.head = 0xffff},
		{.head = 0x8000},
	};

	(void)seed;
	for (unsigned i = 0; i < device_count; i++) {
		device_up(&devices[i], RING_MAX);
		for (unsigned queue = 0; queue < devices[i].queues; queue++) {
			for (size_t k = 0; k < sizeof(malformed) / sizeof(malformed[0]); k++)
				offer_chain(&devices[i], queue, &malformed[k]);
			offer_borders(&devices[i], queue);
		}
	}
}

/* --- while live --- */

static void change_live(const struct device *device, unsigned queue, unsigned how)
{
	switch (how % 7) {
	case 0: /* moved */
		write32(device->base + VIRTIO_MMIO_QUEUE_SEL, queue);
		write32(device->base + VIRTIO_MMIO_QUEUE_DESC_LOW, (uint32_t)(uint64_t)arena);
		break;
	case 1: /* resized */
		write32(device->base + VIRTIO_MMIO_QUEUE_SEL, queue);
		write32(device->base + VIRTIO_MMIO_QUEUE_NUM, 1);
		break;
	case 2: /* enabled twice */
		write32(device->base + VIRTIO_MMIO_QUEUE_SEL, queue);
		write32(device->base + VIRTIO_MMIO_QUEUE_READY, 1);
		break;
	case 3: /* switched off, and set up elsewhere */
		write32(device->base + VIRTIO_MMIO_QUEUE_SEL, queue);
		write32(device->base + VIRTIO_MMIO_QUEUE_READY, 0);
		device_set_queue(device, queue, 4, (uint64_t)(arena + 0x90000), (uint64_t)(arena + 0x91000),
			(uint64_t)(arena + 0x92000));
		break;
	case 4: /* other features */
		write32(device->base + VIRTIO_MMIO_DRIVER_FEATURES_SEL, how & 1);
		write32(device->base + VIRTIO_MMIO_DRIVER_FEATURES, how & 2 ? UINT32_MAX : 0);
		break;
	case 5: /* status bits taken back, or failed */
		write32(device->base + VIRTIO_MMIO_STATUS, how & 1 ? UP | VIRTIO_CONFIG_S_FAILED : SET_UP);
		break;
	default: /* the ring itself */
		memset(&rings[queue], 0xff, sizeof(rings[queue].desc));
	}
}

static void live(uint64_t seed)
{
	(void)seed;
	for (unsigned i = 0; i < device_count; i++)
		for (unsigned storm = 0; storm < (long_run ? 20 : 2) * 14; storm++) {
			device_up(&devices[i], RING_MAX);
			offer_all(&devices[i]);
			for (unsigned queue = 0; queue < devices[i].queues; queue++)
				change_live(&devices[i], queue, storm);
			offer_all(&devices[i]);
		}
}

/* A reset while requests are in flight, and the same memory in use again at once. */
static void resets(uint64_t seed)
{
	(void)seed;
	for (unsigned storm = 0; storm < (long_run ? 10 : 1) * STORMS; storm++)
		for (unsigned i = 0; i < device_count; i++) {
			device_up(&devices[i], RING_MAX);
			offer_all(&devices[i]);
			for (unsigned k = 0; k < storm % 8; k++)
				device_reset(&devices[i]);
		}
}

/* --- without end --- */

static void flood_kicks(void)
{
	const struct device *rng = find_device(VIRTIO_ID_RNG, NULL);

	for (;;) {
		device_up(rng, RING_MAX);
		for (unsigned i = 0; i < 2000; i++) {
			rings[0].desc[0].address = (uint64_t)arena;
			rings[0].desc[0].length = BUFFER;
			rings[0].desc[0].flags = DESC_WRITE;
			/* Never further ahead than the ring is long, which would end the VM. */
			if ((uint16_t)(rings[0].avail.index - rings[0].used.index) < rng->queue_size[0] / 2)
				device_offer(rng, 0, rng->queue_size[0], 0);
			write32(rng->base + VIRTIO_MMIO_QUEUE_NOTIFY, 0);
		}
	}
}

static void flood_registers(void)
{
	for (;;)
		for (unsigned i = 0; i < device_count; i++) {
			(void)read32(devices[i].base + VIRTIO_MMIO_QUEUE_NUM_MAX);
			device_reset(&devices[i]);
		}
}

static void flood_all(void)
{
	for (;;)
		for (unsigned i = 0; i < device_count; i++) {
			device_up(&devices[i], RING_MAX);
			offer_all(&devices[i]);
		}
}

static void flood_serial(void)
{
	for (;;)
		say("hostile: flood\n");
}

static void flood_strings(void)
{
	for (;;) {
		uint64_t count = 4096;
		const uint8_t *from = arena;

		__asm__ volatile("rep outsb" : "+S"(from), "+c"(count) : "d"(SERIAL_PORT) : "memory");
	}
}

static void flood(uint64_t seed)
{
	static void (*const floods[])(void) = {
		flood_kicks, flood_registers, flood_all, flood_serial, flood_strings};

	floods[seed % (sizeof(floods) / sizeof(floods[0]))]();
}

const struct attack queue_attacks[] = {
	{"rings-outside", rings_outside},
	{"rings-at-the-end", rings_at_the_end},
	{"rings-overlap", rings_overlap},
	{"rings-in-tables", rings_in_tables},
	{"chains", chains},
	{"live", live},
	{"resets", resets},
	{"flood", flood},
	{"feed", feed},
	{0},
};
