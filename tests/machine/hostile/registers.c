/* SPDX-License-Identifier: Apache-2.0 */
/* Attacks on the registers of devices, one at a time: every register, value and status; configuration;
 * notify. */
#include "tests/machine/hostile/guest.h"
#include <linux/virtio_config.h>
#include <linux/virtio_mmio.h>

enum {
	REGISTERS_END = VIRTIO_MMIO_CONFIG,
	CONFIG_END = 0x140, /* further than any device's configuration reaches */
	UP_TO_FEATURES = VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER | VIRTIO_CONFIG_S_FEATURES_OK,
};

/* The last one needs a reset. */
static const uint32_t states[] = {
	0,
	VIRTIO_CONFIG_S_ACKNOWLEDGE,
	VIRTIO_CONFIG_S_ACKNOWLEDGE | VIRTIO_CONFIG_S_DRIVER,
	UP_TO_FEATURES,
	UP_TO_FEATURES | VIRTIO_CONFIG_S_DRIVER_OK,
	UP_TO_FEATURES | VIRTIO_CONFIG_S_FAILED,
	UP_TO_FEATURES | VIRTIO_CONFIG_S_NEEDS_RESET,
};
enum { STATES = sizeof(states) / sizeof(states[0]) };

static void enter_state(const struct device *device, uint32_t status)
{
	device_go(device, status & ~(uint32_t)VIRTIO_CONFIG_S_NEEDS_RESET);
	if (status & VIRTIO_CONFIG_S_NEEDS_RESET) /* bits taken back */
		write32(device->base + VIRTIO_MMIO_STATUS, VIRTIO_CONFIG_S_ACKNOWLEDGE);
}

/* All values into one register; the status is brought back whenever a write has moved it. */
static void storm_register(const struct device *device, uint32_t status, uint64_t offset)
{
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, !long_run);
	/* All of them where most registers count, and in turn elsewhere. */
	unsigned step = long_run || status == UP_TO_FEATURES ? 1 : 5;

	for (unsigned i = offset / 4 % step; i < count; i += step) {
		write32(device->base + offset, (uint32_t)values[i]);
		if (read32(device->base + VIRTIO_MMIO_STATUS) != status)
			enter_state(device, status);
	}
}

static bool is_written(uint64_t offset)
{
	return offset == VIRTIO_MMIO_QUEUE_NOTIFY || offset == VIRTIO_MMIO_STATUS || long_run ||
	       (offset != VIRTIO_MMIO_MAGIC_VALUE && offset < VIRTIO_MMIO_QUEUE_USED_HIGH + 8);
}

static void every_register(uint64_t seed)
{
	(void)seed;
	for (unsigned i = 0; i < device_count; i++)
		for (unsigned state = 0; state < STATES; state++) {
			enter_state(&devices[i], states[state]);
			for (uint64_t offset = 0; offset < REGISTERS_END; offset += 4) {
				(void)read32(devices[i].base + offset);
				if (is_written(offset))
					storm_register(&devices[i], states[state], offset);
			}
		}
}

/* Every pair of status values, in that order, after a reset. */
static void every_status(uint64_t seed)
{
	(void)seed;
	for (unsigned i = 0; i < device_count; i++)
		for (uint32_t first = 0; first < 256; first += long_run ? 1 : 5)
			for (uint32_t then = 1; then; then = then << 1 & 0xff) {
				device_reset(&devices[i]);
				write32(devices[i].base + VIRTIO_MMIO_STATUS, first);
				write32(devices[i].base + VIRTIO_MMIO_STATUS, first | then);
				write32(devices[i].base + VIRTIO_MMIO_STATUS, then);
			}
}

static void configuration(uint64_t seed)
{
	(void)seed;
	for (unsigned i = 0; i < device_count; i++) {
		const struct device *device = &devices[i];

		for (unsigned up = 0; up < 2; up++) {
			if (up)
				device_up(device, RING_MAX);
			for (uint64_t offset = VIRTIO_MMIO_CONFIG; offset < CONFIG_END; offset++)
				for (unsigned how = 0; how < 8; how++)
					access_memory(
						how, device->base + offset, offset * 0x0101010101010101);
			for (unsigned how = 0; how < 8; how++)
				access_memory(how, device->base + WINDOW - (1u << how % 4), UINT64_MAX);
		}
	}
}

/* Notifications of queues that do not exist, and some that do: all values on rng's device, some on all. */
static void notify(uint64_t seed)
{
	const uint32_t step = long_run ? 1 : 61;

	(void)seed;
	for (unsigned i = 0; i < device_count; i++) {
		const uint64_t address = devices[i].base + VIRTIO_MMIO_QUEUE_NOTIFY;

		for (unsigned up = 0; up < 2; up++) {
			if (up)
				device_up(&devices[i], RING_MAX);
			for (uint32_t value = 0; value < 0x10000; value += value < 16 ? 1 : step)
				write32(address, value | (value % 3 ? 0 : value << 16));
			for (uint32_t value = 0; value < 0x100; value += 13) {
				*(volatile uint8_t *)address = (uint8_t)value;
				*(volatile uint16_t *)address = (uint16_t)value;
				*(volatile uint64_t *)address = (uint64_t)value << 32;
				*(volatile uint32_t *)(address + 2) = value;
			}
		}
	}
}

/* Everything but what ends the VM, into the registers that do. */
static void power(uint64_t seed)
{
	uint64_t values[VALUES_MAX];
	unsigned count = list_values(values, false);

	(void)seed;
	for (unsigned i = 0; i < count; i++) {
		if ((uint32_t)values[i] != 0xff)
			write32(POWEROFF_BASE, (uint32_t)values[i]);
		*(volatile uint8_t *)POWEROFF_BASE = 0xff;
		*(volatile uint16_t *)POWEROFF_BASE = 0xff;
		*(volatile uint64_t *)POWEROFF_BASE = values[i] << 8 | 0xff;
		write32(POWEROFF_BASE + 4 + 4 * i, 0xff);
		write32(POWEROFF_BASE + 1 + i, 0xff);
		*(volatile uint8_t *)PVPANIC_BASE = (uint8_t)(values[i] & ~1ull);
		*(volatile uint16_t *)PVPANIC_BASE = (uint16_t)values[i];
		write32(PVPANIC_BASE, (uint32_t)values[i]);
		*(volatile uint8_t *)(PVPANIC_BASE + 1) = (uint8_t)values[i];
		if ((uint8_t)values[i] != RESET_VALUE)
			out8(RESET_PORT, (uint8_t)values[i]);
		__asm__ volatile("outw %0, %1" : : "a"((uint16_t)RESET_VALUE), "Nd"((uint16_t)RESET_PORT));
	}
}

const struct attack register_attacks[] = {
	{"registers", every_register},
	{"status", every_status},
	{"configuration", configuration},
	{"notify", notify},
	{"power", power},
	{0},
};
