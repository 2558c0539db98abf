/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The registers of the transport against a second account of them, written from mmio.h and from chapters 2, 3
 * and 4.2 of virtio 1.2: after each access both must read the same.
 */
#include "tests/fuzz/support/driver.h"
#include <linux/virtio_mmio.h>
#include <stdlib.h>
#include <string.h>

enum {
	QUEUES = 2,
	QUEUE_SIZE = 8,
	CONFIG_BYTES = 10,
	DEVICE_ID = 42,
	MAGIC = 0x74726976,
	REGISTERS = VIRTIO_MMIO_CONFIG,
	ACK = VIRTIO_CONFIG_S_ACKNOWLEDGE,
	DRIVER = VIRTIO_CONFIG_S_DRIVER,
	FEATURES_OK = VIRTIO_CONFIG_S_FEATURES_OK,
	DRIVER_OK = VIRTIO_CONFIG_S_DRIVER_OK,
	FAILED = VIRTIO_CONFIG_S_FAILED,
	NEEDS_RESET = VIRTIO_CONFIG_S_NEEDS_RESET,
};
#define FEATURES (VIRTIO_FEATURES_COMMON | VIRTIO_FEATURE(5))

/* What the driver has made of a queue. */
struct model_queue {
	uint32_t size;
	uint64_t desc, avail, used;
	bool ready;
};

struct model {
	uint32_t status, select, device_select, driver_select;
	uint64_t features;
	struct model_queue queues[QUEUES];
	unsigned resets; /* that the device must hear of */
};

/* Serves one chain a call: gives it back, keeps it, or refuses it, in turn as the input says. */
struct device {
	struct virtio_device base;
	struct fuzz_input *input;
	struct model *model;
	uint8_t config[CONFIG_BYTES];
	unsigned resets;
	bool gone;
};

struct fuzz {
	struct driver driver;
	struct device *device;
	struct model model;
};

/* the device */

static bool notify(struct virtio_device *base, unsigned queue)
{
	struct device *device = (struct device *)base;
	uint8_t choice = fuzz_u8(device->input);
	struct virtq_chain chain;

	FUZZ_ASSERT(queue < QUEUES && base->running && base->queues[queue].live);
	FUZZ_ASSERT(device->model->status & DRIVER_OK);
	FUZZ_ASSERT(base->driver_features == device->model->features);
	virtq_no_notify(&base->queues[queue]);
	if (virtio_device_pop(base, queue, &chain) <= 0)
		return virtq_want_notify(&base->queues[queue]);
	FUZZ_ASSERT(chain.head < base->queues[queue].size);
	FUZZ_ASSERT(chain.readable.count + chain.writable.count <= base->queues[queue].size);
	FUZZ_ASSERT(chain.readable.length + chain.writable.length > 0);
	if (choice == 0xff) {
		virtio_device_refuse(base, queue, "the input says so");
		device->model->status |= NEEDS_RESET;
	} else if (choice & 1) {
		virtq_push(&base->queues[queue], chain.head, (uint32_t)chain.writable.length);
	}
	virtio_device_publish(base, queue);
	return virtq_want_notify(&base->queues[queue]);
}

static void reset(struct virtio_device *base)
{
	struct device *device = (struct device *)base;

	FUZZ_ASSERT(!base->queues[0].live && !base->queues[1].live);
	device->resets++;
}

static void destroy(struct virtio_device *base)
{
	free(base);
}

static const struct virtio_device_ops ops = {.notify = notify, .reset = reset, .destroy = destroy};

static struct device *make_device(struct fuzz *fuzz)
{
	struct device *device = calloc(1, sizeof(*device));

	FUZZ_ASSERT(device);
	device->input = fuzz->driver.input;
	device->model = &fuzz->model;
	device->base = (struct virtio_device){.ops = &ops,
		.name = "fuzz",
		.id = DEVICE_ID,
		.features = FEATURES,
		.config = device->config,
		.config_length = CONFIG_BYTES,
		.queue_count = QUEUES};
	for (unsigned i = 0; i < CONFIG_BYTES; i++)
		device->config[i] = (uint8_t)(0xc0 + i);
	for (unsigned i = 0; i < QUEUES; i++)
		device->base.queues[i].size_max = QUEUE_SIZE;
	return device;
}

/* what a write means */

static void refuse(struct model *model)
{
	model->status |= NEEDS_RESET;
}

static bool may_set_up(const struct model *model)
{
	return (model->status & ~(uint32_t)FEATURES_OK) == (ACK | DRIVER) && (model->status & FEATURES_OK);
}

static void write_status(struct model *model, uint32_t value)
{
	uint32_t before = model->status, added = value & ~before;
	bool in_order = (added == ACK && before == 0) || (added == DRIVER && before == ACK) ||
			(added == FEATURES_OK && before == (ACK | DRIVER)) ||
			(added == DRIVER_OK && before == (ACK | DRIVER | FEATURES_OK)) ||
			(added == FAILED && before != 0);

	if (value == 0) {
		unsigned resets = model->resets + 1;

		*model = (struct model){.resets = resets};
		return;
	}
	if (before & (FAILED | NEEDS_RESET) || value == before)
		return;
	if ((before & ~value) || !in_order) {
		refuse(model);
		return;
	}
	/* Features that we do not offer, or not the modern interface: the bit stays clear. */
	if (added == FEATURES_OK &&
		((model->features & ~FEATURES) || !(model->features & VIRTIO_FEATURE(VIRTIO_F_VERSION_1))))
		return;
	model->status |= added;
}

static bool is_inside(uint64_t address, uint64_t length)
{
	if (address >= DRIVER_HIGH_BASE)
		return address - DRIVER_HIGH_BASE < DRIVER_HIGH &&
		       length <= DRIVER_HIGH - (address - DRIVER_HIGH_BASE);
	return address < DRIVER_LOW && length <= DRIVER_LOW - address;
}

static bool may_enable(const struct model_queue *queue)
{
	return queue->size && queue->size <= QUEUE_SIZE && !(queue->size & (queue->size - 1)) &&
	       queue->desc % 16 == 0 && queue->avail % 2 == 0 && queue->used % 4 == 0 &&
	       is_inside(queue->desc, 16ull * queue->size) &&
	       is_inside(queue->avail, 6 + 2ull * queue->size) &&
	       is_inside(queue->used, 6 + 8ull * queue->size);
}

static void write_ready(struct model *model, struct model_queue *queue, uint32_t value)
{
	if (value == 0)
		*queue = (struct model_queue){.size = 0};
	else if (!may_set_up(model) || queue->ready || !may_enable(queue))
		refuse(model);
	else
		queue->ready = true;
}

static void set_half(uint64_t *value, bool high, uint32_t half)
{
	if (high)
		*value = (uint32_t)*value | (uint64_t)half << 32;
	else
		*value = (*value >> 32 << 32) | half;
}

static void write_queue(struct model *model, struct model_queue *queue, uint64_t offset, uint32_t value)
{
	if (!may_set_up(model) || queue->ready)
		refuse(model);
	else if (offset == VIRTIO_MMIO_QUEUE_NUM)
		queue->size = value;
	else if (offset <= VIRTIO_MMIO_QUEUE_DESC_HIGH)
		set_half(&queue->desc, offset == VIRTIO_MMIO_QUEUE_DESC_HIGH, value);
	else if (offset <= VIRTIO_MMIO_QUEUE_AVAIL_HIGH)
		set_half(&queue->avail, offset == VIRTIO_MMIO_QUEUE_AVAIL_HIGH, value);
	else
		set_half(&queue->used, offset == VIRTIO_MMIO_QUEUE_USED_HIGH, value);
}

static void model_write(struct model *model, uint64_t offset, uint32_t value)
{
	struct model_queue *queue = model->select < QUEUES ? &model->queues[model->select] : NULL;

	switch (offset) {
	case VIRTIO_MMIO_STATUS:
		write_status(model, value);
		break;
	case VIRTIO_MMIO_DEVICE_FEATURES_SEL:
		model->device_select = value;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES_SEL:
		model->driver_select = value;
		break;
	case VIRTIO_MMIO_DRIVER_FEATURES:
		if (model->status != (ACK | DRIVER))
			refuse(model);
		else if (model->driver_select < 2)
			set_half(&model->features, model->driver_select, value);
		break;
	case VIRTIO_MMIO_QUEUE_SEL:
		model->select = value;
		break;
	case VIRTIO_MMIO_QUEUE_READY:
		if (queue)
			write_ready(model, queue, value);
		break;
	case VIRTIO_MMIO_QUEUE_NUM:
	case VIRTIO_MMIO_QUEUE_DESC_LOW:
	case VIRTIO_MMIO_QUEUE_DESC_HIGH:
	case VIRTIO_MMIO_QUEUE_AVAIL_LOW:
	case VIRTIO_MMIO_QUEUE_AVAIL_HIGH:
	case VIRTIO_MMIO_QUEUE_USED_LOW:
	case VIRTIO_MMIO_QUEUE_USED_HIGH:
		if (queue)
			write_queue(model, queue, offset, value);
		break;
	}
}

/* what a read gives */

static uint32_t model_read(const struct model *model, uint64_t offset)
{
	bool exists = model->select < QUEUES;

	switch (offset) {
	case VIRTIO_MMIO_MAGIC_VALUE:
		return MAGIC;
	case VIRTIO_MMIO_VERSION:
		return 2;
	case VIRTIO_MMIO_DEVICE_ID:
		return DEVICE_ID;
	case VIRTIO_MMIO_DEVICE_FEATURES:
		return model->device_select < 2 ? (uint32_t)(FEATURES >> (32 * model->device_select)) : 0;
	case VIRTIO_MMIO_QUEUE_NUM_MAX:
		return exists ? QUEUE_SIZE : 0;
	case VIRTIO_MMIO_QUEUE_READY:
		return exists && model->queues[model->select].ready;
	case VIRTIO_MMIO_STATUS:
		return model->status;
	case VIRTIO_MMIO_SHM_LEN_LOW:
	case VIRTIO_MMIO_SHM_LEN_HIGH:
	case VIRTIO_MMIO_SHM_BASE_LOW:
	case VIRTIO_MMIO_SHM_BASE_HIGH:
		return UINT32_MAX;
	default:
		return 0; /* what can only be written reads as zero, and so does what does not exist */
	}
}

/* All registers but the vendor's word and those that tell of interrupts. */
static void compare(struct fuzz *fuzz)
{
	const struct virtio_device *device = &fuzz->device->base;
	uint32_t interrupts = driver_read(&fuzz->driver, VIRTIO_MMIO_INTERRUPT_STATUS);

	for (uint64_t offset = 0; offset < REGISTERS; offset += 4)
		if (offset != VIRTIO_MMIO_VENDOR_ID && offset != VIRTIO_MMIO_INTERRUPT_STATUS)
			FUZZ_ASSERT(driver_read(&fuzz->driver, offset) == model_read(&fuzz->model, offset));
	FUZZ_ASSERT(!(interrupts & ~(uint32_t)(VIRTIO_MMIO_INT_VRING | VIRTIO_MMIO_INT_CONFIG)));
	FUZZ_ASSERT(!interrupts || fuzz->driver.interrupts);
	FUZZ_ASSERT(
		device->running == ((fuzz->model.status & (DRIVER_OK | FAILED | NEEDS_RESET)) == DRIVER_OK));
	for (unsigned i = 0; i < QUEUES; i++)
		FUZZ_ASSERT(device->queues[i].ready == fuzz->model.queues[i].ready &&
			    (!device->queues[i].live || (device->running && device->queues[i].ready)));
}

/* A malformed chain makes the device refuse: that the model cannot know, so it is told. */
static void learn_refusal(struct fuzz *fuzz)
{
	uint32_t status = driver_read(&fuzz->driver, VIRTIO_MMIO_STATUS);

	if (fuzz->model.status & DRIVER_OK)
		fuzz->model.status |= status & NEEDS_RESET;
}

/* steps */

static void step_write(struct fuzz *fuzz, uint64_t offset, uint64_t value, uint32_t width)
{
	virtio_mmio_write(fuzz->driver.mmio, offset, &value, width);
	if (width == 4)
		model_write(&fuzz->model, offset, (uint32_t)value);
}

/* 4.2.2.1: the device's own bytes, by any width; beyond them zero. */
static void step_read(struct fuzz *fuzz, uint64_t offset, uint32_t width)
{
	uint8_t got[8], wanted[8] = {0};

	memset(got, 0xee, sizeof(got));
	virtio_mmio_read(fuzz->driver.mmio, offset, got, width);
	for (uint64_t i = 0; i < width && offset >= REGISTERS; i++)
		if (offset - REGISTERS + i < CONFIG_BYTES)
			wanted[i] = fuzz->device->config[offset - REGISTERS + i];
	if (offset >= REGISTERS || width != 4)
		FUZZ_ASSERT(memcmp(got, wanted, width) == 0);
	for (uint32_t i = width; i < sizeof(got); i++)
		FUZZ_ASSERT(got[i] == 0xee);
}

static void step_access(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->driver.input);
	uint64_t offset = fuzz_below(fuzz->driver.input, REGISTERS / 4) * 4;
	uint32_t width = 4;

	if (choice & 2) {
		width = 1u << (choice >> 6);
		offset = fuzz_below(fuzz->driver.input, VIRTIO_MMIO_WINDOW - 8);
	}
	if (choice & 1)
		step_read(fuzz, offset, width);
	else
		step_write(fuzz, offset,
			choice & 4 ? fuzz_u64(fuzz->driver.input) : fuzz_u8(fuzz->driver.input), width);
}

static void step_address(struct fuzz *fuzz)
{
	static const uint16_t registers[] = {
		VIRTIO_MMIO_QUEUE_DESC_LOW, VIRTIO_MMIO_QUEUE_AVAIL_LOW, VIRTIO_MMIO_QUEUE_USED_LOW};
	uint64_t offset = registers[fuzz_below(fuzz->driver.input, 3)];
	gpa_t address = driver_some_address(&fuzz->driver);

	step_write(fuzz, offset, (uint32_t)address, 4);
	step_write(fuzz, offset + 4, address >> 32, 4);
}

/* A write that often is the right one next. */
static void step_likely(struct fuzz *fuzz)
{
	static const struct {
		uint16_t offset;
		uint32_t value;
	} likely[] = {{VIRTIO_MMIO_STATUS, 0}, {VIRTIO_MMIO_STATUS, 1}, {VIRTIO_MMIO_STATUS, 3},
		{VIRTIO_MMIO_STATUS, 11}, {VIRTIO_MMIO_STATUS, 15}, {VIRTIO_MMIO_DRIVER_FEATURES_SEL, 1},
		{VIRTIO_MMIO_DRIVER_FEATURES, 1}, {VIRTIO_MMIO_DRIVER_FEATURES_SEL, 0},
		{VIRTIO_MMIO_QUEUE_SEL, 0}, {VIRTIO_MMIO_QUEUE_SEL, 1}, {VIRTIO_MMIO_QUEUE_NUM, 8},
		{VIRTIO_MMIO_QUEUE_NUM, 1}, {VIRTIO_MMIO_QUEUE_READY, 1}, {VIRTIO_MMIO_QUEUE_READY, 0},
		{VIRTIO_MMIO_INTERRUPT_ACK, 3}, {VIRTIO_MMIO_QUEUE_NOTIFY, 0}};
	unsigned which = fuzz_below(fuzz->driver.input, sizeof(likely) / sizeof(likely[0]));

	step_write(fuzz, likely[which].offset, likely[which].value, 4);
}

/* The first of a queue's descriptors, where the program has put them; offered. */
static void step_chain(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->driver.input);
	struct virtq *queue = &fuzz->device->base.queues[choice & 1];
	uint16_t index = (choice >> 1) & 7;

	if (!queue->ready)
		return;
	queue->desc[index % queue->size] = (struct vring_desc){.addr = driver_some_address(&fuzz->driver),
		.len = driver_some_length(&fuzz->driver),
		.flags = (uint16_t)(fuzz_u8(fuzz->driver.input) % 8),
		.next = (uint16_t)(choice >> 5)};
	queue->avail->ring[queue->avail->idx % queue->size] = index;
	queue->avail->idx =
		(uint16_t)(queue->avail->idx + (choice >> 4 == 15 ? fuzz_u8(fuzz->driver.input) : 1));
	queue->avail->ring[queue->size] = fuzz_u8(fuzz->driver.input);
	driver_kick(&fuzz->driver, choice & 1);
}

static void step(struct fuzz *fuzz)
{
	uint8_t choice = fuzz_u8(fuzz->driver.input);

	switch (choice & 7) {
	case 0:
	case 1:
	case 2:
		step_likely(fuzz);
		break;
	case 3:
		step_address(fuzz);
		break;
	case 4:
		step_chain(fuzz);
		break;
	case 5:
		driver_turn(&fuzz->driver);
		learn_refusal(fuzz);
		break;
	default:
		step_access(fuzz);
		break;
	}
	compare(fuzz);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct fuzz fuzz = {.device = NULL};

	fuzz_begin();
	driver_init(&fuzz.driver, &input);
	fuzz.device = make_device(&fuzz);
	driver_attach(&fuzz.driver, &fuzz.device->base);
	while (driver_goes_on(&fuzz.driver))
		step(&fuzz);
	driver_settle(&fuzz.driver);
	learn_refusal(&fuzz);
	compare(&fuzz);
	FUZZ_ASSERT(fuzz.device->resets <= fuzz.model.resets);
	FUZZ_ASSERT((fuzz.device->resets > 0) == (fuzz.model.resets > 0));
	driver_finish(&fuzz.driver);
	fuzz_end();
	return 0;
}
