/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's addresses: where memory ends and what answers where. The device tree and the bus are both
 * made from these, so that they cannot differ. What the boot code puts into memory is in boot_x86_64.h.
 *
 *   0x0000_0000  memory, up to GUEST_HOLE_START
 *   0xd000_0000  virtio-mmio windows, one after another; layout_pin says where they interrupt
 *   0xd010_0000  registers by which the guest ends
 *   0xfec0_0000  IOAPIC
 *   0xfee0_0000  local APIC (in the kernel)
 *   0xfffb_c000  pages that KVM wants on Intel
 * 0x1_0000_0000  the rest of memory, from GUEST_HOLE_END on
 */
#ifndef VMM_LAYOUT_H
#define VMM_LAYOUT_H

#include "vmm/memory.h"
#include "vmm/virtio/mmio.h"
#include <stdbool.h>

#define LAYOUT_PAGE 4096ull

/*
 * Memory, a multiple of a page. The least is what a kernel without most of ours' drivers runs in, and guests
 * that are not Linux. The most ends, with the hole, at 2^39: the physical addresses that the narrowest
 * processors with nested paging have, and what one entry of a top page table maps.
 */
#define LAYOUT_MEMORY_MIN (16ull << 20)
#define LAYOUT_MEMORY_MAX ((1ull << 39) - (GUEST_HOLE_END - GUEST_HOLE_START))

enum { LAYOUT_CPUS_MAX = 8, LAYOUT_VIRTIO_MAX = 16 /* windows, and pins of the IOAPIC */ };

#define LAYOUT_VIRTIO_BASE 0xd0000000ull
#define LAYOUT_VIRTIO(index) (LAYOUT_VIRTIO_BASE + (uint64_t)(index)*VIRTIO_MMIO_WINDOW)

/* syscon-poweroff: a 32-bit register; writing LAYOUT_POWEROFF_VALUE to it powers off, other values do
 * nothing; reads as zero. */
#define LAYOUT_POWEROFF_BASE 0xd0100000ull
#define LAYOUT_POWEROFF_SIZE 0x1000ull
enum { LAYOUT_POWEROFF_OFFSET = 0, LAYOUT_POWEROFF_VALUE = 0x0ff };

/* qemu,pvpanic-mmio: one byte; reads the events that are understood, a write says which has come. */
#define LAYOUT_PVPANIC_BASE 0xd0101000ull
#define LAYOUT_PVPANIC_SIZE 2ull

#define LAYOUT_IOAPIC_BASE 0xfec00000ull
#define LAYOUT_IOAPIC_SIZE 0x1000ull
#define LAYOUT_LAPIC_BASE 0xfee00000ull
#define LAYOUT_LAPIC_SIZE 0x1000ull

/* One page and three pages that real mode on Intel needs: where KVM has the first when nobody says otherwise
 * (KVM_SET_IDENTITY_MAP_ADDR), and the three for KVM_SET_TSS_ADDR. */
#define LAYOUT_IDENTITY_MAP_BASE 0xfffbc000ull
#define LAYOUT_TSS_BASE 0xfffbd000ull

_Static_assert(LAYOUT_VIRTIO_BASE >= GUEST_HOLE_START && LAYOUT_TSS_BASE + 3 * LAYOUT_PAGE <= GUEST_HOLE_END,
	"all of this lies in the hole of memory");

/* I/O ports */
enum {
	LAYOUT_SERIAL_PORT = 0x3f8, /* 8250; absent when there is no serial line */
	LAYOUT_SERIAL_PORTS = 8,
	LAYOUT_SERIAL_PIN =
		4, /* of the IOAPIC: the IRQ that a PC has for this port, which drivers take for granted */
	LAYOUT_RESET_PORT = 0x64, /* LAYOUT_RESET_VALUE resets; reads as an idle keyboard controller: 0 */
	LAYOUT_RESET_VALUE = 0xfe,
};

/* The pin of a device, when that of device 0 is `first`. A serial line has its own, which the others leave
 * out. */
static inline unsigned layout_pin(unsigned first, unsigned device, bool serial)
{
	unsigned pin = first + device;

	return serial && pin >= LAYOUT_SERIAL_PIN ? pin + 1 : pin;
}

#endif
