/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile snapshot: the first byte chooses whose record the next bytes are, and for a device the rest is
 * its driver's program. Whatever is accepted is saved as the same bytes again.
 */
#include "tests/fuzz/support/driver.h"
#include "vmm/checksum.h"
#include "vmm/snapshot.h"
#include "vmm/vcpu_state_x86_64.h"
#include "vmm/virtio/balloon.h"
#include "vmm/virtio/net.h"
#include "vmm/virtio/rng.h"
#include "vmm/virtio/vsock.h"
#include "vmm/vm_snapshot.h"
#include <stdlib.h>
#include <string.h>

enum {
	PINS = 5,
	RECORD_MAX = 64 * 1024,
	DEVICE_BYTES = 256, /* more than any device's record has */
	CID = 3,
};

/* The bytes in front of the reader's end must be what the writer has. */
static void assert_same(const struct state_reader *reader, const struct state_writer *writer)
{
	FUZZ_ASSERT(writer->error == 0 && writer->length == reader->length);
	FUZZ_ASSERT(memcmp(writer->data, reader->data, writer->length) == 0);
}

static void fuzz_file(struct state_reader *reader, uint8_t *copy)
{
	char why[SNAPSHOT_WHY_MAX] = "";
	struct snapshot_memory memory;
	struct state_reader records;
	uint64_t sum;

	if (reader->length < SNAPSHOT_CHECKSUM)
		return;
	/* An enemy can make the checksum right. */
	memcpy(copy, reader->data, reader->length);
	sum = checksum(copy, reader->length - SNAPSHOT_CHECKSUM);
	memcpy(copy + reader->length - SNAPSHOT_CHECKSUM, &sum, sizeof(sum));
	if (snapshot_parse(copy, reader->length, &memory, &records, why) < 0)
		FUZZ_ASSERT(why[0] != '\0');
	else
		FUZZ_ASSERT(records.length + SNAPSHOT_HEADER + SNAPSHOT_CHECKSUM == reader->length);
}

static void fuzz_shape(struct state_reader *reader, struct state_writer *writer)
{
	struct vm_shape shape;

	vm_shape_get(reader, &shape);
	if (state_reader_finish(reader) < 0)
		return;
	vm_shape_put(writer, &shape);
	assert_same(reader, writer);
}

static void fuzz_vcpu(struct state_reader *reader, struct state_writer *writer)
{
	struct vcpu_state *state = calloc(1, sizeof(*state));

	FUZZ_ASSERT(state);
	vcpu_state_get(reader, state);
	if (state_reader_finish(reader) == 0) {
		vcpu_state_put(writer, state);
		assert_same(reader, writer);
	}
	free(state);
}

static void ignore_route(void *context, unsigned pin, uint64_t address, uint32_t data)
{
	(void)context;
	(void)address;
	(void)data;
	FUZZ_ASSERT(pin < PINS);
}

static void ignore_raise(void *context, unsigned pin)
{
	(void)context;
	FUZZ_ASSERT(pin < PINS);
}

static void fuzz_ioapic(struct state_reader *reader, struct state_writer *writer)
{
	static const struct ioapic_ops ops = {.route = ignore_route, .raise = ignore_raise};
	struct ioapic ioapic;

	FUZZ_ASSERT(ioapic_init(&ioapic, PINS, &ops, NULL) == 0);
	ioapic_load(&ioapic, reader);
	if (state_reader_finish(reader) == 0) {
		ioapic_save(&ioapic, writer);
		assert_same(reader, writer);
		for (unsigned pin = 0; pin < PINS; pin++)
			ioapic_raise(&ioapic, pin);
	}
	ioapic_finish(&ioapic);
}

static void fuzz_serial(struct state_reader *reader, struct state_writer *writer)
{
	struct serial serial;
	uint8_t byte;

	serial_init(&serial, -1, -1);
	serial_load(&serial, reader);
	if (state_reader_finish(reader) == 0) {
		serial_save(&serial, writer);
		assert_same(reader, writer);
		for (int i = 0; i < 2 * SERIAL_FIFO; i++)
			serial_read(&serial, 0, &byte, 1);
	}
	serial_finish(&serial);
}

static struct virtio_device *make_device(struct driver *driver, unsigned kind)
{
	struct vsock_config vsock = {.cid = CID, .loop = driver->loop};
	struct balloon_config balloon = {.memory = &driver->memory};
	struct net_config net = {.fd = -1, .loop = driver->loop};
	struct virtio_device *device = NULL;

	switch (kind) {
	case 0:
		FUZZ_ASSERT(rng_create(&device) == 0);
		break;
	case 1:
		FUZZ_ASSERT(vsock_create(&vsock, &device) == 0);
		break;
	case 2:
		FUZZ_ASSERT(balloon_create(&balloon, &device) == 0);
		break;
	default:
		FUZZ_ASSERT(net_create(&net, &device) == 0);
	}
	return device;
}

/* The device's record ends where it says that it does; what follows is the driver's program. */
static void fuzz_device(struct fuzz_input *input, struct state_writer *writer, unsigned kind)
{
	size_t length = fuzz_below(input, DEVICE_BYTES);
	const uint8_t *bytes = fuzz_bytes(input, &length);
	struct state_reader reader;
	struct driver driver;

	driver_init(&driver, input);
	/* The rings are where the record says: nobody here knows which bytes the device may change. */
	driver.unwatched = true;
	driver_attach(&driver, make_device(&driver, kind));
	state_reader_init(&reader, bytes, length);
	virtio_mmio_load(driver.mmio, &reader);
	if (state_reader_finish(&reader) == 0) {
		virtio_mmio_save(driver.mmio, writer);
		FUZZ_ASSERT(writer->error == 0 && writer->length == length);
		virtio_mmio_wake(driver.mmio);
		while (driver_goes_on(&driver))
			driver_step(&driver);
		virtio_mmio_drain(driver.mmio);
	}
	driver_settle(&driver);
	driver_finish(&driver);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	unsigned kind = fuzz_below(&input, 9);
	size_t length = fuzz_left(&input) < RECORD_MAX ? fuzz_left(&input) : RECORD_MAX;
	uint8_t *copy = malloc(RECORD_MAX);
	struct state_writer writer;
	struct state_reader reader;

	fuzz_begin();
	FUZZ_ASSERT(copy);
	state_writer_init(&writer, copy, RECORD_MAX);
	state_reader_init(&reader, input.at, length);
	switch (kind) {
	case 0:
		fuzz_file(&reader, copy);
		break;
	case 1:
		fuzz_shape(&reader, &writer);
		break;
	case 2:
		fuzz_vcpu(&reader, &writer);
		break;
	case 3:
		fuzz_ioapic(&reader, &writer);
		break;
	case 4:
		fuzz_serial(&reader, &writer);
		break;
	default:
		fuzz_device(&input, &writer, kind - 5);
	}
	free(copy);
	fuzz_end();
	return 0;
}
