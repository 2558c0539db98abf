/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The MP table that describes the machine of layout.h to kernels that read no device tree: Intel's
 * MultiProcessor Specification, version 1.4, chapter 4. It tells of the processors, of an ISA bus, of the
 * IOAPIC, and which of its pins each device's line is; where the devices are stands on the kernel's command
 * line.
 *
 * A guest gets this or the tree, never both: Linux would count every processor twice.
 */
#ifndef VMM_MPTABLE_X86_64_H
#define VMM_MPTABLE_X86_64_H

#include "vmm/memory.h"
#include <stdbool.h>

enum {
	MPTABLE_DEVICES_MAX = 15, /* IRQ 1 to 15 of the bus; Linux takes no device with IRQ 0. One less with a
				     serial line */
	MPTABLE_SIZE_MAX = 512,	  /* enough for LAYOUT_CPUS_MAX and MPTABLE_DEVICES_MAX */
};

/* The pin of device 0, which is also its IRQ; the others follow (layout_pin). */
enum { MPTABLE_FIRST_PIN = 1 };

struct mptable_config {
	unsigned cpus;	    /* 1..LAYOUT_CPUS_MAX; their local APICs have the ids 0, 1, ... */
	unsigned devices;   /* 0..MPTABLE_DEVICES_MAX, less one with a serial line */
	bool serial;	    /* there is a serial line: at IRQ and pin LAYOUT_SERIAL_PIN */
	uint32_t signature; /* CPUID leaf 1, EAX and EDX */
	uint32_t features;
};

/* What the IOAPIC's id register must read: the first id that no local APIC has. */
unsigned mptable_ioapic_id(unsigned cpus);

/*
 * Writes the floating pointer structure and the table behind it into buffer (size bytes), for guest address
 * `address` (a multiple of 16, below 4 GiB); *length is what both take.
 * 0, -EINVAL (a count or the address), or -ENOSPC (the buffer is too small).
 */
int mptable_write(
	const struct mptable_config *config, gpa_t address, void *buffer, size_t size, size_t *length);

#endif
