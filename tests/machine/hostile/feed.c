/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A disk that keeps itself busy. Its requests read sectors over the ring they stand in: each such sector has
 * the next state of the ring, with more requests, the last of which reads the next sector. 65536 is a
 * multiple of what a sector adds to the index, so that it goes round for ever, while the guest sleeps.
 */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_blk.h>
#include <linux/virtio_config.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_mmio.h>

enum {
	SET_UP = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK,
	UP = SET_UP | VIRTIO_CONFIG_S_DRIVER_OK,
	SECTOR = 512,
	SIZE = 64,		 /* of the queue */
	STATES = 0x10000 / SIZE, /* and sectors */
	FIRST_SECTOR = 128,	 /* the disk has these for us */
	FEEDER = 0,
	WRITER = 3,
	READER = 6, /* heads */
};

/* What a sector holds, and what lies in memory. */
struct state {
	struct virtio_blk_outhdr header; /* of the request that reads the next state */
	uint16_t flags, index, ring[SIZE], used_event;
	uint8_t rest[SECTOR - sizeof(struct virtio_blk_outhdr) - 2 * (SIZE + 3)];
};
_Static_assert(sizeof(struct state) == SECTOR, "a state is a sector");

static struct state *state_now = (struct state *)(arena + 0x4000);
static struct virtio_blk_outhdr *header_out = (struct virtio_blk_outhdr *)(arena + 0x6000);

static void make_state(struct state *state, unsigned number)
{
	memset(state, 0, sizeof(*state));
	state->header.type = VIRTIO_BLK_T_IN;
	state->header.sector = FIRST_SECTOR + (number + 1) % STATES;
	state->index = (uint16_t)(SIZE * (number + 1));
	for (unsigned i = 0; i < SIZE; i++)
		state->ring[i] = i == SIZE - 1 ? FEEDER : READER;
}

static void make_chain(
	struct ring *ring, unsigned head, const void *header, void *data, uint32_t length, bool read)
{
	const uint64_t at[3] = {(uint64_t)header, (uint64_t)data, (uint64_t)(arena + 0x7000 + head)};
	const uint32_t lengths[3] = {sizeof(struct virtio_blk_outhdr), length, 1};

	for (unsigned i = 0; i < 3; i++) {
		ring->desc[head + i].address = at[i];
		ring->desc[head + i].length = lengths[i];
		ring->desc[head + i].flags =
			(uint16_t)((i < 2 ? DESC_NEXT : 0) | (i == 2 || (i == 1 && read) ? DESC_WRITE : 0));
		ring->desc[head + i].next = (uint16_t)(head + i + 1);
	}
}

static const struct device *find_writable_disk(void)
{
	const struct device *disk = find_device(VIRTIO_ID_BLOCK, NULL);

	return find_device(VIRTIO_ID_BLOCK, disk); /* the second one */
}

/* All by one request. */
static void write_states(const struct device *disk)
{
	struct state *states = (struct state *)(arena + 0x10000);

	device_up(disk, SIZE);
	for (unsigned i = 0; i < STATES; i++)
		make_state(&states[i], i);
	*header_out = (struct virtio_blk_outhdr){.type = VIRTIO_BLK_T_OUT, .sector = FIRST_SECTOR};
	make_chain(&rings[0], WRITER, header_out, states, STATES * SECTOR, false);
	device_offer(disk, 0, SIZE, WRITER);
	if (!await_used(0, 1) || arena[0x7000 + WRITER] != VIRTIO_BLK_S_OK)
		fail("the disk takes no sectors");
}

void feed(uint64_t seed)
{
	const struct device *disk = find_writable_disk();

	(void)seed;
	write_states(disk);
	device_go(disk, SET_UP);
	memset(&rings[0], 0, sizeof(rings[0]));
	make_chain(&rings[0], FEEDER, &state_now->header, state_now, SECTOR, true);
	header_out->type = VIRTIO_BLK_T_GET_ID;
	make_chain(&rings[0], READER, header_out, arena + 0x8000, 20, true);
	make_state(state_now, STATES - 1); /* its index is 0: nothing to do yet */
	device_set_queue(disk, 0, SIZE, (uint64_t)rings[0].desc, (uint64_t)&state_now->flags,
		(uint64_t)&rings[0].used);
	write32(disk->base + VIRTIO_MMIO_STATUS, UP);
	state_now->header.sector = FIRST_SECTOR + 1;
	*(volatile uint16_t *)&state_now->index = SIZE;
	write32(disk->base + VIRTIO_MMIO_QUEUE_NOTIFY, 0);
	say("hostile: fed\n");
	sleep_for_ever();
}
