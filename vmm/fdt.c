/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine-independent part of the tree, written in order by libfdt. There are no memory and chosen nodes:
 * x86 takes both from boot_params.
 */
#include "vmm/fdt.h"
#include "vmm/layout.h"
#include <errno.h>
#include <libfdt.h>
#include <stdio.h>

enum { FDT_NAME_MAX = 32 };

static int add_reg(void *tree, gpa_t base, uint64_t size)
{
	fdt64_t range[2] = {cpu_to_fdt64(base), cpu_to_fdt64(size)};

	_Static_assert(sizeof(range) == 4 * (FDT_ADDRESS_CELLS + FDT_SIZE_CELLS), "cells of the root node");
	return fdt_property(tree, "reg", range, sizeof(range));
}

int fdt_begin_device(void *tree, const char *name, const char *compatible, gpa_t base, uint64_t size)
{
	char unit[FDT_NAME_MAX];
	int r;

	snprintf(unit, sizeof(unit), "%s@%llx", name, (unsigned long long)base);
	r = fdt_begin_node(tree, unit);
	if (r == 0)
		r = fdt_property_string(tree, "compatible", compatible);
	if (r == 0)
		r = add_reg(tree, base, size);
	return r;
}

static int add_virtio(void *tree, unsigned number, unsigned pin)
{
	uint32_t cells[FDT_INTERRUPT_CELLS];
	int r = fdt_begin_device(tree, "virtio", "virtio,mmio", LAYOUT_VIRTIO(number), VIRTIO_MMIO_WINDOW);

	fdt_interrupt_cells(pin, cells);
	for (unsigned i = 0; i < FDT_INTERRUPT_CELLS; i++)
		cells[i] = cpu_to_fdt32(cells[i]);
	if (r == 0)
		r = fdt_property(tree, "interrupts", cells, sizeof(cells));
	return r == 0 ? fdt_end_node(tree) : r;
}

/* The register that syscon-poweroff writes to. */
static int add_syscon(void *tree)
{
	int r = fdt_begin_device(tree, "syscon", "syscon", LAYOUT_POWEROFF_BASE, LAYOUT_POWEROFF_SIZE);

	if (r == 0)
		r = fdt_property_u32(tree, "reg-io-width", 4);
	if (r == 0)
		r = fdt_property_u32(tree, "phandle", FDT_PHANDLE_SYSCON);
	return r == 0 ? fdt_end_node(tree) : r;
}

static int add_poweroff(void *tree)
{
	int r = fdt_begin_node(tree, "poweroff");

	if (r == 0)
		r = fdt_property_string(tree, "compatible", "syscon-poweroff");
	if (r == 0)
		r = fdt_property_u32(tree, "regmap", FDT_PHANDLE_SYSCON);
	if (r == 0)
		r = fdt_property_u32(tree, "offset", LAYOUT_POWEROFF_OFFSET);
	if (r == 0)
		r = fdt_property_u32(tree, "value", LAYOUT_POWEROFF_VALUE);
	return r == 0 ? fdt_end_node(tree) : r;
}

static int add_pvpanic(void *tree)
{
	int r = fdt_begin_device(
		tree, "pvpanic", "qemu,pvpanic-mmio", LAYOUT_PVPANIC_BASE, LAYOUT_PVPANIC_SIZE);

	return r == 0 ? fdt_end_node(tree) : r;
}

static int add_root_properties(void *tree)
{
	int r = fdt_property_string(tree, "compatible", "tinderbox,microvm");

	if (r == 0)
		r = fdt_property_u32(tree, "#address-cells", FDT_ADDRESS_CELLS);
	if (r == 0)
		r = fdt_property_u32(tree, "#size-cells", FDT_SIZE_CELLS);
	if (r == 0)
		r = fdt_property_u32(tree, "interrupt-parent", FDT_PHANDLE_INTERRUPTS);
	return r;
}

static int add_root(void *tree, const struct fdt_config *config)
{
	int r = fdt_begin_node(tree, "");

	if (r == 0)
		r = add_root_properties(tree);
	if (r == 0)
		r = fdt_add_processors(tree, config);
	for (unsigned i = 0; r == 0 && i < config->virtio_count; i++)
		r = add_virtio(tree, i, layout_pin(0, i, config->serial));
	if (r == 0)
		r = add_syscon(tree);
	if (r == 0)
		r = add_poweroff(tree);
	if (r == 0)
		r = add_pvpanic(tree);
	return r == 0 ? fdt_end_node(tree) : r;
}

int fdt_write(const struct fdt_config *config, void *buffer, size_t size, size_t *length)
{
	int r;

	if (config->cpus == 0 || config->cpus > LAYOUT_CPUS_MAX || config->virtio_count > LAYOUT_VIRTIO_MAX ||
		(uintptr_t)buffer % 8 != 0)
		return -EINVAL;
	r = fdt_create(buffer, size > FDT_SIZE_MAX ? FDT_SIZE_MAX : (int)size);
	if (r == 0)
		r = fdt_finish_reservemap(buffer);
	if (r == 0)
		r = add_root(buffer, config);
	if (r == 0)
		r = fdt_finish(buffer);
	if (r < 0) /* all else is checked above: libfdt can only have run out of room */
		return -ENOSPC;
	*length = fdt_totalsize(buffer);
	return 0;
}
