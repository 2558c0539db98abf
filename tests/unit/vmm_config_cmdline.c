/* SPDX-License-Identifier: Apache-2.0 */
/* The kernel's command line: what vmm puts there, and what is left of it for the user. */
#include "tests/unit/vmm_config_fixture.h"

#include <errno.h>
#include <stdio.h>

static void the_kernels_command_line_has_the_users_part_last(void **state)
{
	(void)state;
	struct run run;
	char line[CONFIG_CMDLINE_MAX];

	assert_int_equal(parse(&run, "--kernel", "k"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k quiet 8250.nr_uarts=0");
	assert_int_equal(parse(&run, "--kernel", "k", "--serial", "log", "--cmdline", "root=/dev/vda ro"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k console=ttyS0 root=/dev/vda ro");
}

/* Device N at window N, with the IRQ that the MP table has for it. */
static void without_a_tree_the_kernels_command_line_names_the_devices(void **state)
{
	(void)state;
	struct run run;
	char line[CONFIG_CMDLINE_MAX];

	assert_int_equal(parse(&run, "--kernel", "k", "--boot", "mptable"), 0);
	assert_int_equal(run.config.boot, CONFIG_BOOT_MPTABLE);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(
		line, "panic=-1 reboot=k quiet 8250.nr_uarts=0 virtio_mmio.device=4K@0xd0000000:1");
	assert_int_equal(parse(&run, "--kernel", "k", "--boot=mptable", "--disk", "a", "--disk", "b",
				 "--vsock", "v", "--serial", "-", "--cmdline", "ro"),
		0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k console=ttyS0 virtio_mmio.device=4K@0xd0000000:1 "
				  "virtio_mmio.device=4K@0xd0001000:2 virtio_mmio.device=4K@0xd0002000:3 "
				  "virtio_mmio.device=4K@0xd0003000:5 ro");
	assert_int_equal(parse(&run, "--kernel", "k", "--boot=fdt", "--disk", "a"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k quiet 8250.nr_uarts=0");
}

static void above_the_hole_nothing_is_set_aside_below_it(void **state)
{
	(void)state;
	struct run run;
	char line[CONFIG_CMDLINE_MAX];

	assert_int_equal(parse(&run, "--kernel", "k", "--mem", "3G"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k quiet 8250.nr_uarts=0");
	assert_int_equal(parse(&run, "--kernel", "k", "--mem", "3073M", "--cmdline", "ro"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k quiet 8250.nr_uarts=0 swiotlb=noforce ro");
}

/* What the devices take of it, the user has not. */
static void many_devices_leave_less_of_the_kernels_command_line(void **state)
{
	(void)state;
	static char text[CONFIG_CMDLINE_MAX + 1];
	const char *words[] = {"--kernel", "k", "--boot", "mptable", "--mem", "4G", "--control", "c",
		"--disk", "1", "--disk", "2", "--disk", "3", "--disk", "4", "--disk", "5", "--disk", "6",
		"--disk", "7", "--disk", "8", "--cmdline", text, NULL};
	const char *device = " virtio_mmio.device=4K@0xd0000000:1";
	const size_t room = CONFIG_CMDLINE_MAX - 1 -
			    strlen("panic=-1 reboot=k quiet 8250.nr_uarts=0 swiotlb=noforce ") -
			    10 * strlen(device) - 1; /* one IRQ of two digits */
	char line[CONFIG_CMDLINE_MAX], wanted[CONFIG_ERROR_MAX];
	struct run run;

	memset(text, 'a', sizeof(text) - 1);
	text[room] = '\0';
	assert_int_equal(parse_words(&run, words), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_int_equal(strlen(line), CONFIG_CMDLINE_MAX - 1);
	text[room] = 'a';
	text[room + 1] = '\0';
	assert_int_equal(parse_words(&run, words), -EINVAL);
	snprintf(wanted, sizeof(wanted), "--cmdline of %zu bytes is too long; give at most %zu", room + 1,
		room);
	assert_string_equal(run.error, wanted);
	assert_int_equal(config_kernel_cmdline(&run.config, line), -E2BIG);
	assert_int_equal(strlen(line), CONFIG_CMDLINE_MAX - 1);
}

static void the_kernels_command_line_is_bounded(void **state)
{
	(void)state;
	static char text[CONFIG_CMDLINE_MAX + 1];
	const size_t room = CONFIG_CMDLINE_MAX - 1 - strlen("panic=-1 reboot=k console=ttyS0 ");
	char line[CONFIG_CMDLINE_MAX], wanted[CONFIG_ERROR_MAX];
	struct run run;

	memset(text, 'a', sizeof(text) - 1);
	text[room] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--serial", "-", "--cmdline", text), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_int_equal(strlen(line), CONFIG_CMDLINE_MAX - 1);
	text[room] = 'a';
	text[room + 1] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--serial", "-", "--cmdline", text), -EINVAL);
	snprintf(wanted, sizeof(wanted), "--cmdline of %zu bytes is too long; give at most %zu", room + 1,
		room);
	assert_string_equal(run.error, wanted);
	run.config = (struct config){.serial = "-", .cmdline = text};
	assert_int_equal(config_kernel_cmdline(&run.config, line), -E2BIG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_kernels_command_line_has_the_users_part_last),
		cmocka_unit_test(without_a_tree_the_kernels_command_line_names_the_devices),
		cmocka_unit_test(above_the_hole_nothing_is_set_aside_below_it),
		cmocka_unit_test(many_devices_leave_less_of_the_kernels_command_line),
		cmocka_unit_test(the_kernels_command_line_is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
