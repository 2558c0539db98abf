/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Entry by Linux's 64-bit boot protocol (Documentation/x86/boot.rst, zero-page.rst): what is written into
 * guest memory before the first instruction, and the state the first vCPU starts in.
 *
 * All of it lies below 640 KiB:
 *
 *   0x1000  descriptor table, then the kernel's command line (2 KiB)
 *   0x2000  boot_params
 *   0x3000  page tables: one PML4, one PDPT, up to three page directories of 2 MiB pages
 *   0x8000  setup_data: a seed for the random generator, and the device tree
 *  0x9fc00  MP table (1 KiB, reserved in the memory map when there is one)
 */
#ifndef VMM_BOOT_X86_64_H
#define VMM_BOOT_X86_64_H

#include "vmm/fdt.h"
#include "vmm/initrd.h"
#include "vmm/memory.h"

#define BOOT_GDT 0x1000ull
#define BOOT_CMDLINE 0x1800ull
#define BOOT_PARAMS 0x2000ull
#define BOOT_PAGE_TABLES 0x3000ull
#define BOOT_SETUP_DATA 0x8000ull
#define BOOT_MPTABLE 0x9fc00ull	    /* the last KiB of what a PC calls base memory: where it is looked for */
#define BOOT_LOW_END 0xa0000ull	    /* memory below the hole of the PC */
#define BOOT_HIGH_START 0x100000ull /* memory above it: kernel, initrd */

enum {
	BOOT_CMDLINE_MAX = 2048, /* NUL included */
	BOOT_SEED_MAX = 64,
	BOOT_MPTABLE_MAX = BOOT_LOW_END - BOOT_MPTABLE,
	/* selectors that the protocol fixes */
	BOOT_CS = 0x10,
	BOOT_DS = 0x18,
	BOOT_TR = 0x20,
};

struct boot_config {
	gpa_t entry;	      /* of the kernel, physical */
	const char *cmdline;  /* as a whole */
	struct initrd initrd; /* size 0: none */
	const void *tree;     /* flattened device tree */
	size_t tree_size;     /* 0: none */
	const void *mptable;  /* as mptable_write made it for BOOT_MPTABLE */
	size_t mptable_size;  /* 0: none */
	const void *seed;     /* random bytes for the guest alone */
	size_t seed_size;     /* 0: none */
};

/* A segment register with its hidden part; the fields have the names and the meaning of KVM's. */
struct boot_segment {
	uint64_t base;
	uint32_t limit;
	uint16_t selector;
	uint8_t type, present, dpl, db, s, l, g;
};

/* Everything that is not named is as after reset; interrupts are off. */
struct boot_state {
	uint64_t rip, rsi, rflags;
	uint64_t cr0, cr3, cr4, efer;
	uint64_t gdt_base;
	uint16_t gdt_limit;
	struct boot_segment code; /* cs */
	struct boot_segment data; /* ds, es, ss, fs, gs */
	struct boot_segment task; /* tr */
};

/*
 * Writes descriptor table, page tables (identity, all of memory below its hole), boot_params with the memory
 * map, command line, setup_data and MP table into memory (from guest_memory_init, at least BOOT_HIGH_START +
 * 1 page, fresh) and says how to enter. 0; -E2BIG (command line, seed, tree or MP table over its bound),
 * -EINVAL (entry or initrd outside of memory below the hole), -EFAULT (memory is too small, or above
 * LAYOUT_MEMORY_MAX).
 */
int boot_write(const struct guest_memory *memory, const struct boot_config *config, struct boot_state *state);

#endif
