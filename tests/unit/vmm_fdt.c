/* SPDX-License-Identifier: Apache-2.0 */
/* The device tree, read back by libfdt as Linux reads it. */
#include "tests/support/unit.h"

#include "vmm/fdt.h"
#include "vmm/layout.h"
#include <errno.h>
#include <libfdt.h>
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

struct tree {
	alignas(8) uint8_t bytes[FDT_SIZE_MAX];
	size_t length;
};

static void write_tree_of(struct tree *tree, const struct fdt_config *config)
{
	memset(tree, 0xa5, sizeof(*tree));
	assert_int_equal(fdt_write(config, tree->bytes, sizeof(tree->bytes), &tree->length), 0);
	assert_int_equal(fdt_check_full(tree->bytes, tree->length), 0);
}

static void write_tree(struct tree *tree, unsigned cpus, unsigned virtio_count)
{
	const struct fdt_config config = {.cpus = cpus, .virtio_count = virtio_count};

	write_tree_of(tree, &config);
}

static int node_at(const struct tree *tree, const char *path)
{
	int node = fdt_path_offset(tree->bytes, path);

	if (node < 0)
		print_error("%s: %s\n", path, fdt_strerror(node));
	assert_true(node >= 0);
	return node;
}

static void check_cells(
	const struct tree *tree, int node, const char *name, const uint32_t *cells, unsigned count)
{
	int length = 0;
	const fdt32_t *value = fdt_getprop(tree->bytes, node, name, &length);

	assert_non_null(value);
	assert_int_equal(length, count * 4);
	for (unsigned i = 0; i < count; i++)
		assert_int_equal(fdt32_to_cpu(value[i]), cells[i]);
}

#define check_property(tree, node, name, ...)                                                                \
	check_cells(tree, node, name, (const uint32_t[]){__VA_ARGS__},                                       \
		sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static void check_compatible(const struct tree *tree, int node, const char *name)
{
	assert_int_equal(fdt_node_check_compatible(tree->bytes, node, name), 0);
}

static unsigned count_children(const struct tree *tree, int parent)
{
	unsigned count = 0;
	int node;

	fdt_for_each_subnode(node, tree->bytes, parent) count++;
	return count;
}

static void the_root_says_how_to_read_the_rest(void **state)
{
	(void)state;
	struct tree tree;
	int ioapic;

	write_tree(&tree, 1, 3);
	assert_int_equal(fdt_address_cells(tree.bytes, 0), 2);
	assert_int_equal(fdt_size_cells(tree.bytes, 0), 2);
	ioapic = node_at(&tree, "/ioapic@fec00000");
	check_property(&tree, 0, "interrupt-parent", fdt_get_phandle(tree.bytes, ioapic));
	/* x86 takes memory from boot_params, and Linux 6.1 stops at a memory node (BUG) */
	assert_int_equal(fdt_path_offset(tree.bytes, "/memory"), -FDT_ERR_NOTFOUND);
	assert_int_equal(fdt_num_mem_rsv(tree.bytes), 0);
}

static void every_processor_has_its_apic_id(void **state)
{
	(void)state;
	struct tree tree;

	for (unsigned cpus = 1; cpus <= LAYOUT_CPUS_MAX; cpus++) {
		int parent;

		write_tree(&tree, cpus, 0);
		parent = node_at(&tree, "/cpus");
		assert_int_equal(count_children(&tree, parent), cpus);
		assert_int_equal(fdt_address_cells(tree.bytes, parent), 1);
		check_property(&tree, parent, "#size-cells", 0);
		for (unsigned i = 0; i < cpus; i++) {
			char path[32];
			int node;

			snprintf(path, sizeof(path), "/cpus/cpu@%x", i);
			node = node_at(&tree, path);
			check_property(&tree, node, "reg", i);
			assert_string_equal(fdt_getprop(tree.bytes, node, "device_type", NULL), "cpu");
		}
	}
}

static void the_interrupt_controllers_are_where_the_machine_has_them(void **state)
{
	(void)state;
	struct tree tree;
	int node;

	write_tree(&tree, 1, 1);
	node = node_at(&tree, "/lapic@fee00000");
	check_compatible(&tree, node, "intel,ce4100-lapic");
	check_property(&tree, node, "reg", 0, LAYOUT_LAPIC_BASE, 0, LAYOUT_LAPIC_SIZE);
	node = node_at(&tree, "/ioapic@fec00000");
	check_compatible(&tree, node, "intel,ce4100-ioapic");
	check_property(&tree, node, "reg", 0, LAYOUT_IOAPIC_BASE, 0, LAYOUT_IOAPIC_SIZE);
	check_property(&tree, node, "#interrupt-cells", 2);
	assert_non_null(fdt_getprop(tree.bytes, node, "interrupt-controller", NULL));
}

static void every_device_has_its_window_and_pin(void **state)
{
	(void)state;
	struct tree tree;

	for (unsigned count = 0; count <= LAYOUT_VIRTIO_MAX; count++) {
		unsigned found = 0;
		int node = -1;

		write_tree(&tree, 1, count);
		while ((node = fdt_node_offset_by_compatible(tree.bytes, node, "virtio,mmio")) >= 0) {
			char path[32], wanted[32];

			assert_int_equal(fdt_parent_offset(tree.bytes, node), 0);
			check_property(
				&tree, node, "reg", 0, (uint32_t)LAYOUT_VIRTIO(found), 0, VIRTIO_MMIO_WINDOW);
			check_property(&tree, node, "interrupts", found, 3 /* edge rising */);
			assert_int_equal(fdt_get_path(tree.bytes, node, path, sizeof(path)), 0);
			snprintf(wanted, sizeof(wanted), "/virtio@%llx", LAYOUT_VIRTIO(found));
			assert_string_equal(path, wanted);
			found++;
		}
		assert_int_equal(found, count);
	}
}

static void a_serial_line_has_pin_4_to_itself(void **state)
{
	(void)state;
	const struct fdt_config config = {.cpus = 1, .virtio_count = LAYOUT_VIRTIO_MAX, .serial = true};
	struct tree tree;
	unsigned found = 0;
	int node = -1;

	write_tree_of(&tree, &config);
	while ((node = fdt_node_offset_by_compatible(tree.bytes, node, "virtio,mmio")) >= 0) {
		check_property(&tree, node, "interrupts", found < 4 ? found : found + 1, 3 /* edge rising */);
		found++;
	}
	assert_int_equal(found, LAYOUT_VIRTIO_MAX);
}

static void power_off_and_panic_have_their_registers(void **state)
{
	(void)state;
	struct tree tree;
	int syscon, poweroff, pvpanic;

	write_tree(&tree, 1, 0);
	syscon = node_at(&tree, "/syscon@d0100000");
	check_compatible(&tree, syscon, "syscon");
	check_property(&tree, syscon, "reg", 0, LAYOUT_POWEROFF_BASE, 0, LAYOUT_POWEROFF_SIZE);
	check_property(&tree, syscon, "reg-io-width", 4);
	poweroff = node_at(&tree, "/poweroff");
	check_compatible(&tree, poweroff, "syscon-poweroff");
	check_property(&tree, poweroff, "regmap", fdt_get_phandle(tree.bytes, syscon));
	check_property(&tree, poweroff, "offset", LAYOUT_POWEROFF_OFFSET);
	check_property(&tree, poweroff, "value", LAYOUT_POWEROFF_VALUE);
	pvpanic = node_at(&tree, "/pvpanic@d0101000");
	check_compatible(&tree, pvpanic, "qemu,pvpanic-mmio");
	check_property(&tree, pvpanic, "reg", 0, LAYOUT_PVPANIC_BASE, 0, LAYOUT_PVPANIC_SIZE);
}

/* No register lies in memory or within another device. */
static void no_two_devices_overlap(void **state)
{
	(void)state;
	struct tree tree;
	uint64_t bases[LAYOUT_VIRTIO_MAX + 8], ends[LAYOUT_VIRTIO_MAX + 8];
	unsigned count = 0;
	int node;

	write_tree(&tree, LAYOUT_CPUS_MAX, LAYOUT_VIRTIO_MAX);
	fdt_for_each_subnode(node, tree.bytes, 0)
	{
		const fdt64_t *reg = fdt_getprop(tree.bytes, node, "reg", NULL);

		if (reg == NULL)
			continue;
		bases[count] = fdt64_ld(reg);
		ends[count] = bases[count] + fdt64_ld(reg + 1);
		assert_true(bases[count] >= GUEST_HOLE_START && ends[count] <= LAYOUT_IDENTITY_MAP_BASE);
		for (unsigned i = 0; i < count; i++)
			assert_true(ends[count] <= bases[i] || ends[i] <= bases[count]);
		count++;
	}
	assert_int_equal(count, LAYOUT_VIRTIO_MAX + 4);
}

static void impossible_machines_are_refused(void **state)
{
	(void)state;
	static const struct fdt_config configs[] = {
		{.cpus = 0, .virtio_count = 1},
		{.cpus = LAYOUT_CPUS_MAX + 1, .virtio_count = 1},
		{.cpus = 1, .virtio_count = LAYOUT_VIRTIO_MAX + 1},
		{.cpus = UINT32_MAX, .virtio_count = 0},
		{.cpus = 1, .virtio_count = UINT32_MAX},
	};
	const struct fdt_config sound = {.cpus = 1};
	struct tree tree;

	for (size_t i = 0; i < sizeof(configs) / sizeof(configs[0]); i++)
		assert_int_equal(
			fdt_write(&configs[i], tree.bytes, sizeof(tree.bytes), &tree.length), -EINVAL);
	for (unsigned shift = 1; shift < 8; shift++)
		assert_int_equal(
			fdt_write(&sound, tree.bytes + shift, sizeof(tree.bytes) - 8, &tree.length), -EINVAL);
}

/* Each size up to the one needed; ASan watches the end of the buffer. */
static void a_small_buffer_is_refused(void **state)
{
	(void)state;
	const struct fdt_config config = {.cpus = 2, .virtio_count = 2};
	struct tree tree;
	size_t needed;

	write_tree(&tree, config.cpus, config.virtio_count);
	needed = tree.length;
	for (size_t size = 0; size < needed; size += 8) {
		uint8_t *buffer = test_malloc(size + 1);
		size_t length = 4711;

		assert_int_equal(fdt_write(&config, buffer, size, &length), -ENOSPC);
		assert_int_equal(length, 4711);
		test_free(buffer);
	}
}

static void the_largest_machine_fits(void **state)
{
	(void)state;
	struct tree tree;

	write_tree(&tree, LAYOUT_CPUS_MAX, LAYOUT_VIRTIO_MAX);
	assert_true(tree.length <= FDT_SIZE_MAX / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_root_says_how_to_read_the_rest),
		cmocka_unit_test(every_processor_has_its_apic_id),
		cmocka_unit_test(the_interrupt_controllers_are_where_the_machine_has_them),
		cmocka_unit_test(every_device_has_its_window_and_pin),
		cmocka_unit_test(a_serial_line_has_pin_4_to_itself),
		cmocka_unit_test(power_off_and_panic_have_their_registers),
		cmocka_unit_test(no_two_devices_overlap),
		cmocka_unit_test(impossible_machines_are_refused),
		cmocka_unit_test(a_small_buffer_is_refused),
		cmocka_unit_test(the_largest_machine_fits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
