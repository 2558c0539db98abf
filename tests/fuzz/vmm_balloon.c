/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile driver before the balloon, and a host that moves its target. Pages that the driver names or
 * reports are zero afterwards or as they were; the device says no more than memory has; and a configuration
 * that the driver writes reads back as it should.
 */
#include "tests/fuzz/support/driver.h"
#include "vmm/virtio/balloon.h"
#include <errno.h>
#include <linux/virtio_balloon.h>
#include <linux/virtio_mmio.h>
#include <string.h>

enum { INFLATE, DEFLATE, REPORTING, LIST_AT = DRIVER_AREA, LIST_MAX = 64, MARK_AT = DRIVER_AREA + 0x8000 };

/* A list of page numbers, which may be any. */
static void step_list(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);
	uint32_t pages[LIST_MAX];
	unsigned count = choice & 31, queue = choice & 0x80 ? DEFLATE : INFLATE;
	struct driver_buffer buffer = {.address = LIST_AT, .length = (count + 1) * sizeof(pages[0])};
	size_t room = sizeof(pages);

	for (unsigned i = 0; i <= count; i++)
		pages[i] = choice & 0x40 ? fuzz_u32(driver->input)
					 : fuzz_u8(driver->input) % (DRIVER_LOW / BALLOON_PAGE + 2);
	memcpy(driver_at(driver, LIST_AT, &room), pages, sizeof(pages));
	if (choice & 0x20)
		buffer.length = driver_some_length(driver);
	driver_offer(driver, queue, driver_chain(driver, queue, &buffer, 1), 1);
	driver_kick(driver, queue);
}

/* Ranges that are free. */
static void step_report(struct driver *driver)
{
	struct driver_buffer buffers[4];
	unsigned count = 1 + fuzz_u8(driver->input) % 4;

	for (unsigned i = 0; i < count; i++)
		buffers[i] = (struct driver_buffer){.address = driver_some_address(driver),
			.length = driver_some_length(driver),
			.writable = true};
	if (driver->device->queue_count <= REPORTING)
		return;
	driver_offer(driver, REPORTING, driver_chain(driver, REPORTING, buffers, count), 1 + count);
	driver_kick(driver, REPORTING);
}

static void step_config(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);
	uint32_t width = 1u << (choice & 3);
	uint64_t value = fuzz_u32(driver->input),
		 offset = (choice >> 2) % (sizeof(struct virtio_balloon_config) + 4);

	virtio_mmio_write(driver->mmio, VIRTIO_MMIO_CONFIG + offset, &value, width);
}

static void check_status(struct driver *driver)
{
	struct balloon_status status = balloon_status(driver->device);

	FUZZ_ASSERT(status.target <= DRIVER_MEMORY && status.actual <= DRIVER_MEMORY);
	FUZZ_ASSERT(status.target % BALLOON_PAGE == 0);
}

static void step_target(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);
	uint64_t bytes = choice & 1 ? fuzz_u64(driver->input) : (uint64_t)(choice >> 1) * BALLOON_PAGE;
	int r = balloon_set_target(driver->device, bytes);

	FUZZ_ASSERT(r == (bytes > DRIVER_MEMORY ? -EINVAL : 0));
	if (r == 0)
		FUZZ_ASSERT(balloon_status(driver->device).target == bytes / BALLOON_PAGE * BALLOON_PAGE);
}

static void step(struct driver *driver)
{
	uint8_t choice = fuzz_u8(driver->input);

	switch (choice & 7) {
	case 0:
	case 1:
		step_list(driver);
		break;
	case 2:
		step_report(driver);
		break;
	case 3:
		step_config(driver);
		break;
	case 4:
		step_target(driver);
		break;
	case 5:
		driver_turn(driver);
		break;
	default:
		driver_step(driver);
		break;
	}
	check_status(driver);
}

/* Only whole pages are given back: every byte of memory is zero, or a page that was not. */
static void check_marks(struct driver *driver)
{
	for (gpa_t page = MARK_AT; page < DRIVER_LOW; page += BALLOON_PAGE) {
		size_t room = BALLOON_PAGE;
		const uint8_t *bytes = driver_at(driver, page, &room);

		FUZZ_ASSERT(memcmp(bytes, bytes + 1, BALLOON_PAGE - 1) == 0);
	}
}

static void set_marks(struct driver *driver)
{
	size_t room = DRIVER_LOW - MARK_AT;

	memset(driver_at(driver, MARK_AT, &room), 0x5a, DRIVER_LOW - MARK_AT);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct balloon_config config = {.target = 0};
	struct virtio_device *device;
	struct driver driver;
	bool marked;

	fuzz_begin();
	driver_init(&driver, &input);
	driver.unwatched = true;
	config.memory = &driver.memory;
	FUZZ_ASSERT(balloon_create(&config, &device) == 0);
	driver_attach(&driver, device);
	marked = fuzz_u8(&input) & 1;
	if (marked)
		set_marks(&driver);
	/* Marks stand as long as the driver itself writes nothing there: then there is no step of any
	 * driver's. */
	while (driver_goes_on(&driver)) {
		if (!marked)
			step(&driver);
		else if (fuzz_u8(&input) & 1)
			step_report(&driver);
		else
			step_list(&driver);
		if (marked && fuzz_one_in(&input, 4))
			driver_bring_up(&driver);
	}
	driver_settle(&driver);
	if (marked)
		check_marks(&driver);
	driver_finish(&driver);
	fuzz_end();
	return 0;
}
