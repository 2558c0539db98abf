/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CPUs, local APIC and IOAPIC as Linux's arch/x86/kernel/devicetree.c reads them: the `reg` of a CPU is its
 * APIC id, the controllers are known by the names of Intel's CE4100.
 */
#include "vmm/fdt.h"
#include "vmm/layout.h"
#include <libfdt.h>
#include <stdio.h>

enum { FDT_NAME_MAX = 32 };

/* The second cell of an interrupt is an index into a table of that file, not the generic flags. */
enum { FDT_X86_EDGE_RISING = 3 };

void fdt_interrupt_cells(unsigned pin, uint32_t cells[FDT_INTERRUPT_CELLS])
{
	cells[0] = pin;
	cells[1] = FDT_X86_EDGE_RISING;
}

static int add_cpu(void *tree, unsigned number)
{
	char name[FDT_NAME_MAX];
	int r;

	snprintf(name, sizeof(name), "cpu@%x", number);
	r = fdt_begin_node(tree, name);
	if (r == 0)
		r = fdt_property_string(tree, "device_type", "cpu");
	if (r == 0)
		r = fdt_property_u32(tree, "reg", number);
	return r == 0 ? fdt_end_node(tree) : r;
}

static int add_cpus(void *tree, unsigned cpus)
{
	int r = fdt_begin_node(tree, "cpus");

	if (r == 0)
		r = fdt_property_u32(tree, "#address-cells", 1);
	if (r == 0)
		r = fdt_property_u32(tree, "#size-cells", 0);
	for (unsigned i = 0; r == 0 && i < cpus; i++)
		r = add_cpu(tree, i);
	return r == 0 ? fdt_end_node(tree) : r;
}

/* Begins an interrupt controller. */
static int begin_controller(void *tree, const char *name, const char *compatible, gpa_t base, uint64_t size)
{
	int r = fdt_begin_device(tree, name, compatible, base, size);

	if (r == 0)
		r = fdt_property(tree, "interrupt-controller", NULL, 0);
	if (r == 0)
		r = fdt_property_u32(tree, "#interrupt-cells", FDT_INTERRUPT_CELLS);
	return r;
}

int fdt_add_processors(void *tree, const struct fdt_config *config)
{
	int r = add_cpus(tree, config->cpus);

	if (r == 0)
		r = begin_controller(
			tree, "lapic", "intel,ce4100-lapic", LAYOUT_LAPIC_BASE, LAYOUT_LAPIC_SIZE);
	if (r == 0)
		r = fdt_end_node(tree);
	if (r == 0)
		r = begin_controller(
			tree, "ioapic", "intel,ce4100-ioapic", LAYOUT_IOAPIC_BASE, LAYOUT_IOAPIC_SIZE);
	if (r == 0)
		r = fdt_property_u32(tree, "phandle", FDT_PHANDLE_INTERRUPTS);
	return r == 0 ? fdt_end_node(tree) : r;
}
