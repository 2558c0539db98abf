/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The device tree that describes the machine of layout.h to the guest. What is the processor's own (CPUs,
 * interrupt controllers) is in fdt_<machine>.c.
 */
#ifndef VMM_FDT_H
#define VMM_FDT_H

#include "vmm/memory.h"
#include <stdbool.h>

enum {
	FDT_SIZE_MAX = 16 * 1024,   /* enough for LAYOUT_CPUS_MAX and LAYOUT_VIRTIO_MAX */
	FDT_PHANDLE_INTERRUPTS = 1, /* the controller that devices raise their lines at */
	FDT_PHANDLE_SYSCON = 2,
	FDT_ADDRESS_CELLS = 2,
	FDT_SIZE_CELLS = 2,
};

struct fdt_config {
	unsigned cpus;	       /* 1..LAYOUT_CPUS_MAX */
	unsigned virtio_count; /* 0..LAYOUT_VIRTIO_MAX; number N at LAYOUT_VIRTIO(N), pin layout_pin(0, N,
				  serial) */
	bool serial; /* there is a serial line: its pin is left free. It has no node: Linux knows it */
};

/*
 * Writes the tree into buffer (8-byte aligned, size bytes, a multiple of 8); *length is what it takes.
 * 0, -EINVAL (a count or an alignment), or -ENOSPC (the buffer is too small).
 */
int fdt_write(const struct fdt_config *config, void *buffer, size_t size, size_t *length);

/*
 * Adds cpus/ and the interrupt controllers to a tree being written (libfdt's sequential writing, within the
 * root node); the one that devices use is FDT_PHANDLE_INTERRUPTS. 0 or libfdt's negative error.
 */
int fdt_add_processors(void *tree, const struct fdt_config *config);
/* The cells of `interrupts` for a device's edge-triggered line. */
enum { FDT_INTERRUPT_CELLS = 2 };
void fdt_interrupt_cells(unsigned pin, uint32_t cells[FDT_INTERRUPT_CELLS]);

/* Begins the node name@base with `compatible` and a `reg` of one range. 0 or libfdt's negative error. */
int fdt_begin_device(void *tree, const char *name, const char *compatible, gpa_t base, uint64_t size);

#endif
