/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/support/driver.h"
#include <linux/virtio_mmio.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* The linker's names (--wrap). */
ssize_t __real_getrandom(void *buffer, size_t length, unsigned flags);
ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags);
ssize_t __real_preadv(int fd, const struct iovec *pieces, int count, off_t offset);
ssize_t __wrap_preadv(int fd, const struct iovec *pieces, int count, off_t offset);
ssize_t __real_pwritev(int fd, const struct iovec *pieces, int count, off_t offset);
ssize_t __wrap_pwritev(int fd, const struct iovec *pieces, int count, off_t offset);
ssize_t __real_readv(int fd, const struct iovec *pieces, int count);
ssize_t __wrap_readv(int fd, const struct iovec *pieces, int count);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);

enum { PAGE = 4096, BLOCK = 64, AVAIL_OFFSET = 0x800, USED_OFFSET = 0x1000, EDGE = 64 };

/* Of the process: mapping it anew for each input would cost more than the input. */
static struct {
	uint8_t *low, *high;
	uint8_t before[DRIVER_MEMORY], allowed[DRIVER_MEMORY];
} host;

/* memory */

static uint8_t *map_guarded(size_t size)
{
	uint8_t *map = mmap(NULL, size + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	FUZZ_ASSERT(map != MAP_FAILED);
	FUZZ_ASSERT(mprotect(map + PAGE, size, PROT_READ | PROT_WRITE) == 0);
	return map + PAGE;
}

/* Where in `before` and `allowed` a pointer into guest memory belongs. */
static size_t index_of(const void *pointer)
{
	const uint8_t *byte = pointer;

	if (byte >= host.low && byte < host.low + DRIVER_LOW)
		return (size_t)(byte - host.low);
	FUZZ_ASSERT(byte >= host.high && byte < host.high + DRIVER_HIGH);
	return DRIVER_LOW + (size_t)(byte - host.high);
}

static uint8_t *byte_at(size_t index)
{
	return index < DRIVER_LOW ? host.low + index : host.high + (index - DRIVER_LOW);
}

void *driver_at(struct driver *driver, gpa_t address, size_t *length)
{
	for (unsigned i = 0; i < driver->memory.count; i++) {
		const struct guest_region *region = &driver->memory.regions[i];

		if (address < region->base || address - region->base >= region->size)
			continue;
		if (*length > region->size - (address - region->base))
			*length = region->size - (address - region->base);
		return region->host + (address - region->base);
	}
	return NULL;
}

/* the host's kernel */

/* It answers EFAULT where a device of ours would die: so what it is given is looked at before. */
static void check_piece(const void *pointer, size_t length)
{
	const struct {
		const uint8_t *start;
		size_t size;
	} regions[] = {{host.low, DRIVER_LOW}, {host.high, DRIVER_HIGH}};
	const uint8_t *first = pointer, *end = first + length;

	for (unsigned i = 0; i < 2 && length && regions[i].start; i++) {
		const uint8_t *from = regions[i].start, *to = from + regions[i].size;

		FUZZ_ASSERT(end <= from - PAGE || first >= to + PAGE || (first >= from && end <= to));
	}
}

static void check_pieces(const struct iovec *pieces, size_t count)
{
	for (size_t i = 0; i < count; i++)
		check_piece(pieces[i].iov_base, pieces[i].iov_len);
}

ssize_t __wrap_getrandom(void *buffer, size_t length, unsigned flags)
{
	check_piece(buffer, length);
	return __real_getrandom(buffer, length, flags);
}

ssize_t __wrap_preadv(int fd, const struct iovec *pieces, int count, off_t offset)
{
	check_pieces(pieces, (size_t)count);
	return __real_preadv(fd, pieces, count, offset);
}

ssize_t __wrap_pwritev(int fd, const struct iovec *pieces, int count, off_t offset)
{
	check_pieces(pieces, (size_t)count);
	return __real_pwritev(fd, pieces, count, offset);
}

ssize_t __wrap_readv(int fd, const struct iovec *pieces, int count)
{
	check_pieces(pieces, (size_t)count);
	return __real_readv(fd, pieces, count);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
	check_pieces(message->msg_iov, message->msg_iovlen);
	return __real_sendmsg(fd, message, flags);
}

/* the machine */

static void on_interrupt(void *context)
{
	struct driver *driver = context;

	driver->interrupts++;
}

static void on_fault(void *context, const char *reason)
{
	struct driver *driver = context;

	FUZZ_ASSERT(reason[0] != '\0' && strlen(reason) < VIRTIO_REASON_MAX);
	driver->faults++;
}

void driver_init(struct driver *driver, struct fuzz_input *input)
{
	if (!host.low) {
		host.low = map_guarded(DRIVER_LOW);
		host.high = map_guarded(DRIVER_HIGH);
	}
	memset(host.low, 0, DRIVER_LOW);
	memset(host.high, 0, DRIVER_HIGH);
	*driver = (struct driver){
		.input = input,
		.memory = {.regions = {{.base = 0, .size = DRIVER_LOW, .host = host.low},
				   {.base = DRIVER_HIGH_BASE, .size = DRIVER_HIGH, .host = host.high}},
			.count = 2},
		.loop = loop_create(),
	};
	FUZZ_ASSERT(driver->loop);
	for (unsigned i = 0; i < VIRTIO_QUEUES_MAX; i++) {
		uint8_t *rings = host.low + i * DRIVER_RING_STRIDE;

		driver->rings[i] = (struct driver_ring){
			.size = 1,
			.desc = (struct vring_desc *)(void *)rings,
			.avail = (struct vring_avail *)(void *)(rings + AVAIL_OFFSET),
			.used = (struct vring_used *)(void *)(rings + USED_OFFSET),
		};
	}
}

void driver_attach(struct driver *driver, struct virtio_device *device)
{
	struct virtio_machine machine = {.context = driver, .interrupt = on_interrupt, .fault = on_fault};

	driver->device = device;
	FUZZ_ASSERT(virtio_mmio_create(device, &driver->memory, driver->loop, &machine, &driver->mmio) == 0);
}

bool driver_goes_on(const struct driver *driver)
{
	return fuzz_left(driver->input) > 0 && driver->faults == 0;
}

void driver_settle(struct driver *driver)
{
	fuzz_settle(driver->loop);
	FUZZ_ASSERT(!driver->faults || !driver->device->running);
}

void driver_finish(struct driver *driver)
{
	virtio_mmio_destroy(driver->mmio);
	loop_destroy(driver->loop);
}

/* registers */

void driver_write(struct driver *driver, uint64_t offset, uint32_t value)
{
	virtio_mmio_write(driver->mmio, offset, &value, sizeof(value));
}

uint32_t driver_read(struct driver *driver, uint64_t offset)
{
	uint32_t value = UINT32_MAX;

	virtio_mmio_read(driver->mmio, offset, &value, sizeof(value));
	return value;
}

static void write_address(struct driver *driver, uint64_t low, gpa_t address)
{
	driver_write(driver, low, (uint32_t)address);
	driver_write(driver, low + 4, (uint32_t)(address >> 32)); /* the high halves follow the low ones */
}

static void place_queue(struct driver *driver, unsigned index, uint16_t size)
{
	gpa_t address = (gpa_t)index * DRIVER_RING_STRIDE;
	struct driver_ring *ring = &driver->rings[index];

	memset(host.low + address, 0, DRIVER_RING_STRIDE);
	ring->size = size;
	ring->next_desc = 0;
	driver_write(driver, VIRTIO_MMIO_QUEUE_SEL, index);
	driver_write(driver, VIRTIO_MMIO_QUEUE_NUM, size);
	write_address(driver, VIRTIO_MMIO_QUEUE_DESC_LOW, address);
	write_address(driver, VIRTIO_MMIO_QUEUE_AVAIL_LOW, address + AVAIL_OFFSET);
	write_address(driver, VIRTIO_MMIO_QUEUE_USED_LOW, address + USED_OFFSET);
	driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void choose_features(struct driver *driver, uint64_t features)
{
	driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1);
	driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)(features >> 32));
	driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0);
	driver_write(driver, VIRTIO_MMIO_DRIVER_FEATURES, (uint32_t)features);
}

/* All that the device has, the least, or some of them. */
static uint64_t some_features(struct driver *driver)
{
	uint64_t least = VIRTIO_FEATURE(VIRTIO_F_VERSION_1);

	switch (fuzz_below(driver->input, 4)) {
	case 0:
	case 1:
		return driver->device->features;
	case 2:
		return least;
	default:
		return least | (driver->device->features & fuzz_u64(driver->input));
	}
}

static uint16_t some_size(struct driver *driver, unsigned queue)
{
	uint16_t size = driver->device->queues[queue].size_max;
	uint8_t choice = fuzz_u8(driver->input);

	if (choice % 4)
		return size;
	choice >>= 2;
	return choice < 8 ? (uint16_t)(1u << choice) : choice;
}

void driver_bring_up(struct driver *driver)
{
	uint32_t status = VIRTIO_CONFIG_S_ACKNOWLEDGE;

	driver_write(driver, VIRTIO_MMIO_STATUS, 0);
	driver_write(driver, VIRTIO_MMIO_STATUS, status);
	driver_write(driver, VIRTIO_MMIO_STATUS, status |= VIRTIO_CONFIG_S_DRIVER);
	choose_features(driver, some_features(driver));
	driver_write(driver, VIRTIO_MMIO_STATUS, status |= VIRTIO_CONFIG_S_FEATURES_OK);
	for (unsigned i = 0; i < driver->device->queue_count; i++)
		place_queue(driver, i, some_size(driver, i));
	driver_write(driver, VIRTIO_MMIO_STATUS, status | VIRTIO_CONFIG_S_DRIVER_OK);
}

/* what the input chooses */

gpa_t driver_some_address(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);
	gpa_t page = (gpa_t)(choice >> 3) * PAGE; /* 32 of them: the whole low region */

	switch (choice & 7) {
	case 0:
		return DRIVER_LOW - fuzz_below(driver->input, EDGE);
	case 1:
		return DRIVER_HIGH_BASE + DRIVER_HIGH - fuzz_below(driver->input, EDGE);
	case 2:
		return DRIVER_HIGH_BASE + fuzz_u16(driver->input);
	case 3:
		return choice & 8 ? fuzz_u64(driver->input) : page + fuzz_u16(driver->input);
	default:
		return DRIVER_AREA | page;
	}
}

uint32_t driver_some_length(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);

	switch (choice >> 5) {
	case 0:
		return choice;
	case 1:
		return fuzz_u16(driver->input);
	case 2:
		return fuzz_u32(driver->input);
	case 3:
		return 1u << (choice & 31);
	default:
		return 512u * (1 + (choice & 31));
	}
}

static unsigned some_queue(struct driver *driver)
{
	return fuzz_below(driver->input, driver->device->queue_count);
}

/* rings */

uint16_t driver_chain(
	struct driver *driver, unsigned queue, const struct driver_buffer *buffers, unsigned count)
{
	struct driver_ring *ring = &driver->rings[queue];
	uint16_t head = ring->next_desc;

	for (unsigned i = 0; i < count; i++) {
		struct vring_desc *desc = &ring->desc[ring->next_desc];

		ring->next_desc = (uint16_t)((ring->next_desc + 1) % ring->size);
		*desc = (struct vring_desc){
			.addr = buffers[i].address,
			.len = buffers[i].length,
			.flags = (uint16_t)((buffers[i].writable ? VRING_DESC_F_WRITE : 0) |
					    (i + 1 < count ? VRING_DESC_F_NEXT : 0)),
			.next = ring->next_desc,
		};
	}
	return head;
}

void driver_offer(struct driver *driver, unsigned queue, uint16_t head, unsigned times)
{
	struct driver_ring *ring = &driver->rings[queue];

	for (unsigned i = 0; i < times; i++)
		ring->avail->ring[ring->avail->idx++ % ring->size] = head;
}

void driver_kick(struct driver *driver, unsigned queue)
{
	int fd = virtio_mmio_notify_fd(driver->mmio, queue);

	if (fd >= 0)
		FUZZ_ASSERT(eventfd_write(fd, 1) == 0);
}

/* what may change */

/* Marks bytes of guest memory; what lies outside of it is not the device's to reach, and is skipped. */
static void allow(struct driver *driver, gpa_t address, uint64_t length)
{
	size_t part = length;
	uint8_t *pointer = driver_at(driver, address, &part);

	if (pointer && length)
		memset(host.allowed + index_of(pointer), 1, part);
}

static void allow_queue(struct driver *driver, const struct virtq *queue)
{
	uint64_t used_bytes = sizeof(*queue->used) + 8ull * queue->size + 2;

	if (!queue->ready)
		return;
	memset(host.allowed + index_of(queue->used), 1, used_bytes);
	for (unsigned i = 0; i < queue->size; i++)
		if (queue->desc[i].flags & VRING_DESC_F_WRITE)
			allow(driver, queue->desc[i].addr, queue->desc[i].len);
}

/* True when no descriptor and no entry of an available ring may be written over by the device. */
static bool stands_fast(const struct virtq *queue)
{
	if (!queue->ready)
		return true;
	return !memchr(host.allowed + index_of(queue->desc), 1, queue->size * sizeof(*queue->desc)) &&
	       !memchr(host.allowed + index_of(queue->avail), 1, sizeof(*queue->avail) + 2u * queue->size);
}

/* False: whatever the device writes, it may. */
static bool watch(struct driver *driver)
{
	if (driver->unwatched)
		return false;
	memset(host.allowed, 0, sizeof(host.allowed));
	for (unsigned i = 0; i < driver->device->queue_count; i++)
		allow_queue(driver, &driver->device->queues[i]);
	for (unsigned i = 0; i < driver->device->queue_count; i++)
		if (!stands_fast(&driver->device->queues[i]))
			return false;
	memcpy(host.before, host.low, DRIVER_LOW);
	memcpy(host.before + DRIVER_LOW, host.high, DRIVER_HIGH);
	return true;
}

static void check_block(size_t block)
{
	for (size_t i = block; i < block + BLOCK; i++)
		FUZZ_ASSERT(host.allowed[i] || host.before[i] == *byte_at(i));
}

void driver_turn(struct driver *driver)
{
	bool watched = watch(driver);

	fuzz_turn(driver->loop);
	for (size_t block = 0; watched && block < DRIVER_MEMORY; block += BLOCK)
		if (memcmp(host.before + block, byte_at(block), BLOCK) != 0)
			check_block(block);
}

/* steps */

static void step_register(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);
	uint64_t offset = fuzz_below(driver->input, VIRTIO_MMIO_CONFIG / 4) * 4, value;
	uint32_t width = 4;

	if (choice & 2) {
		width = 1u << (choice >> 6);
		offset = fuzz_below(driver->input, VIRTIO_MMIO_WINDOW - 8);
	}
	value = choice & 4 ? fuzz_u64(driver->input) : fuzz_u8(driver->input);
	if (choice & 1)
		virtio_mmio_write(driver->mmio, offset, &value, width);
	else
		virtio_mmio_read(driver->mmio, offset, &value, width);
}

static void step_chain(struct driver *driver)
{
	uint8_t shape = fuzz_u8(driver->input);
	unsigned queue = some_queue(driver), count = 1 + shape % DRIVER_CHAIN_MAX;
	unsigned readable = (shape >> 3) % (count + 1);
	struct driver_buffer buffers[DRIVER_CHAIN_MAX];

	for (unsigned i = 0; i < count; i++)
		buffers[i] = (struct driver_buffer){.address = driver_some_address(driver),
			.length = driver_some_length(driver),
			.writable = i >= readable};
	driver_offer(driver, queue, driver_chain(driver, queue, buffers, count),
		shape & 0x80 ? 1 + fuzz_u8(driver->input) % driver->rings[queue].size : 1);
}

static void step_descriptor(struct driver *driver)
{
	struct driver_ring *ring = &driver->rings[some_queue(driver)];
	uint8_t flags = fuzz_u8(driver->input), index = fuzz_u8(driver->input) % VIRTQ_SIZE_MAX;
	struct vring_desc *desc = &ring->desc[index];

	desc->addr = driver_some_address(driver);
	desc->len = driver_some_length(driver);
	desc->flags = flags & 0x80 ? fuzz_u16(driver->input) : flags & 3;
	desc->next = fuzz_u8(driver->input);
}

/* The rings' own fields: indices, entries, flags, events. */
static void step_ring(struct driver *driver)
{
	unsigned queue = some_queue(driver);
	struct driver_ring *ring = &driver->rings[queue];
	uint16_t value = fuzz_u16(driver->input);

	switch (fuzz_below(driver->input, 6)) {
	case 0:
		driver_offer(driver, queue, value, 1);
		break;
	case 1:
		ring->avail->idx = value;
		break;
	case 2:
		ring->avail->idx = (uint16_t)(ring->avail->idx + value % (2 * ring->size));
		break;
	case 3:
		ring->avail->flags = value;
		break;
	case 4:
		ring->avail->ring[ring->size] = value; /* used_event */
		break;
	default:
		ring->used->idx = value;
		break;
	}
}

/* A queue moved or resized, at the right time or not. */
static void step_queue(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);
	unsigned queue = some_queue(driver);

	driver_write(driver, VIRTIO_MMIO_QUEUE_SEL, queue);
	if (choice & 1)
		driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 0);
	if (choice & 2)
		driver_write(driver, VIRTIO_MMIO_QUEUE_NUM, fuzz_u8(driver->input));
	if (choice & 4)
		write_address(driver, VIRTIO_MMIO_QUEUE_DESC_LOW, driver_some_address(driver));
	if (choice & 8)
		write_address(driver, VIRTIO_MMIO_QUEUE_AVAIL_LOW, driver_some_address(driver));
	if (choice & 16)
		write_address(driver, VIRTIO_MMIO_QUEUE_USED_LOW, driver_some_address(driver));
	if (choice & 32)
		driver_write(driver, VIRTIO_MMIO_QUEUE_READY, 1);
}

static void step_memory(struct driver *driver)
{
	gpa_t address = driver_some_address(driver);
	size_t length = fuzz_u8(driver->input), room = length;
	const uint8_t *bytes = fuzz_bytes(driver->input, &length);
	void *to = driver_at(driver, address, &room);

	if (to && length)
		memcpy(to, bytes, length < room ? length : room);
}

/* Up to before DRIVER_OK: what comes next finds a device that is half set up. */
static void step_half_up(struct driver *driver)
{
	static const uint8_t order[] = {0, 1, 3, 11, 15};
	unsigned last = fuzz_below(driver->input, sizeof(order));

	for (unsigned i = 0; i <= last; i++) {
		driver_write(driver, VIRTIO_MMIO_STATUS, order[i]);
		if (order[i] == 3)
			choose_features(driver, some_features(driver));
	}
}

void driver_step(struct driver *driver)
{
	static void (*const steps[])(struct driver * driver) = {driver_turn, step_chain, driver_bring_up,
		step_register, step_descriptor, step_ring, step_queue, step_memory, step_half_up};
	uint8_t choice = fuzz_u8(driver->input);

	if (choice < 0xc0)
		steps[choice % (sizeof(steps) / sizeof(steps[0]))](driver);
	else if (choice < 0xe0)
		driver_write(driver, VIRTIO_MMIO_QUEUE_NOTIFY, choice & 7);
	else
		driver_kick(driver, choice & 7);
}
