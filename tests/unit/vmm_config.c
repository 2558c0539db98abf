/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of vmm: what is accepted, and --help. */
#include "tests/unit/vmm_config_fixture.h"

#include "common/proto_vmm.h"
#include "common/version.h"
#include "vmm/layout.h"
#include <errno.h>
#include <stdio.h>

static void only_a_kernel_gives_the_defaults(void **state)
{
	(void)state;
	struct run run;

	assert_int_equal(parse(&run, "--kernel", "vmlinux"), 0);
	assert_int_equal(run.config.action, CONFIG_RUN);
	assert_string_equal(run.config.kernel, "vmlinux");
	assert_null(run.config.initrd);
	assert_null(run.config.cmdline);
	assert_int_equal(run.config.disk_count, 0);
	assert_null(run.config.vsock);
	assert_int_equal(run.config.vsock_cid, CONFIG_CID_DEFAULT);
	assert_int_equal(run.config.memory, CONFIG_MEMORY_DEFAULT);
	assert_int_equal(run.config.cpus, 1);
	assert_int_equal(run.config.boot, CONFIG_BOOT_FDT);
	assert_null(run.config.serial);
	assert_null(run.config.control);
	assert_string_equal(run.config.kvm, "/dev/kvm");
	assert_false(run.config.stats);
	assert_int_equal(run.config.log_level, LOG_LEVEL_INFO);
	assert_false(config_has_vsock(&run.config));
}

static void a_balloon_needs_no_size(void **state)
{
	struct run run;

	(void)state;
	assert_int_equal(parse(&run, "--kernel", "k"), 0);
	assert_false(run.config.balloon);
	assert_int_equal(parse(&run, "--kernel", "k", "--balloon"), 0);
	assert_true(run.config.balloon);
	assert_int_equal(run.config.balloon_target, 0);
	assert_int_equal(parse(&run, "--balloon=64M", "--kernel", "k", "--mem", "64M"), 0);
	assert_true(run.config.balloon);
	assert_int_equal(run.config.balloon_target, 64 << 20);
}

static void every_option_is_taken(void **state)
{
	(void)state;
	struct run run;

	assert_int_equal(
		parse(&run, "--kernel", "fd:3", "--initrd", "fd:4", "--cmdline", "-- a b", "--disk",
			"base.img,ro,id=base", "--disk", "fd:5", "--vsock", "v.sock", "--vsock-cid",
			"4294967294", "--mem", "511G", "--cpus", "1", "--serial", "-", "--serial-max", "1M",
			"--control", "fd:6", "--stats=fd:7", "--log-level", "debug"),
		0);
	assert_string_equal(run.config.kernel, "fd:3");
	assert_string_equal(run.config.initrd, "fd:4");
	assert_string_equal(run.config.cmdline, "-- a b");
	assert_int_equal(run.config.disk_count, 2);
	assert_string_equal(run.config.disks[0].path, "base.img");
	assert_string_equal(run.config.disks[0].id, "base");
	assert_true(run.config.disks[0].read_only);
	assert_string_equal(run.config.disks[1].path, "fd:5");
	assert_string_equal(run.config.disks[1].id, "");
	assert_false(run.config.disks[1].read_only);
	assert_string_equal(run.config.vsock, "v.sock");
	assert_int_equal(run.config.vsock_cid, UINT32_MAX - 1);
	assert_int_equal(run.config.memory, LAYOUT_MEMORY_MAX);
	assert_string_equal(run.config.serial, "-");
	assert_int_equal(run.config.serial_max, 1 << 20);
	assert_string_equal(run.config.control, "fd:6");
	assert_true(run.config.stats);
	assert_string_equal(run.config.stats_file, "fd:7");
	assert_int_equal(run.config.log_level, LOG_LEVEL_DEBUG);
}

static void a_value_may_follow_an_equals_sign(void **state)
{
	(void)state;
	struct run run;

	assert_int_equal(
		parse(&run, "--kernel=a=b", "--mem=16M", "--serial=none", "--stats", "--vsock=--initrd"), 0);
	assert_string_equal(run.config.kernel, "a=b");
	assert_int_equal(run.config.memory, LAYOUT_MEMORY_MIN);
	assert_null(run.config.serial);
	assert_true(run.config.stats);
	assert_null(run.config.stats_file);
	assert_string_equal(run.config.vsock, "--initrd");
}

/* What stands at the bounds is accepted; each bound's other side is in vmm_config_refused.c. */
static void bounds_are_included(void **state)
{
	(void)state;
	struct run run;
	char path[CONFIG_SOCKET_MAX + 1];

	memset(path, 'p', sizeof(path));
	path[CONFIG_SOCKET_MAX] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--control", path, "--vsock-cid", "3"), 0);
	path[CONFIG_VSOCK_MAX] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--vsock", path), 0);
	assert_int_equal(parse(&run, "--kernel", "k", "--mem", "16384K"), 0);
	assert_int_equal(parse(&run, "--kernel", "k", "--mem", "3145728K"), 0);
	assert_int_equal(run.config.memory, GUEST_HOLE_START);
	assert_int_equal(parse(&run, "--kernel", "k", "--mem", "3073M"), 0);
	assert_int_equal(run.config.memory, GUEST_HOLE_START + (1 << 20));
	assert_int_equal(parse(&run, "--kernel", "k", "--disk", "d,id=12345678901234567890"), 0);
	assert_string_equal(run.config.disks[0].id, "12345678901234567890");
	assert_string_equal(run.config.disks[0].upper, "");
	assert_int_equal(
		parse(&run, "--kernel", "k", "--disk", "d,cow=u/x", "--disk", "fd:3,id=i,cow=fd:4"), 0);
	assert_string_equal(run.config.disks[0].path, "d");
	assert_string_equal(run.config.disks[0].upper, "u/x");
	assert_false(run.config.disks[0].read_only);
	assert_string_equal(run.config.disks[1].path, "fd:3");
	assert_string_equal(run.config.disks[1].upper, "fd:4");
	assert_string_equal(run.config.disks[1].id, "i");
	assert_int_equal(parse(&run, "--kernel", "k", "--disk", "1", "--disk", "2", "--disk", "3", "--disk",
				 "4", "--disk", "5", "--disk", "6", "--disk", "7", "--disk", "8"),
		0);
	assert_int_equal(run.config.disk_count, CONFIG_DISKS_MAX);
}

static void more_memory_than_the_host_has_is_refused(void **state)
{
	(void)state;
	struct run run;

	assert_int_equal(parse(&run, "--kernel", "k", "--mem", "3G"), 0);
	assert_int_equal(config_check_memory(&run.config, 3ull << 30, run.error), 0);
	assert_int_equal(config_check_memory(&run.config, (3ull << 30) - 4096, run.error), -ENOMEM);
	assert_string_equal(run.error, "--mem 3G is more than the 3071M that this host has; give less");
	assert_int_equal(config_check_memory(&run.config, 1ull << 30, run.error), -ENOMEM);
	assert_string_equal(run.error, "--mem 3G is more than the 1G that this host has; give less");
	config_explain_memory(&run.config, run.error);
	assert_string_equal(run.error,
		"--mem 3G is more than this process may map; raise the limit of address space (ulimit -v), "
		"set vm.overcommit_memory to 0, or give less");
}

static void a_guest_has_one_to_eight_cpus(void **state)
{
	(void)state;
	struct run run;

	for (unsigned cpus = 1; cpus <= LAYOUT_CPUS_MAX; cpus++) {
		char value[] = {(char)('0' + cpus), '\0'};

		assert_int_equal(parse(&run, "--kernel", "k", "--cpus", value), 0);
		assert_int_equal(run.config.cpus, cpus);
	}
}

static void help_and_version_end_the_parsing(void **state)
{
	(void)state;
	struct run run;

	assert_int_equal(parse(&run, "--mem", "64M", "--help", "--nonsense"), 0);
	assert_int_equal(run.config.action, CONFIG_HELP);
	assert_int_equal(parse(&run, "--version", "--help"), 0);
	assert_int_equal(run.config.action, CONFIG_VERSION);
	assert_int_equal(parse(&run, "--nonsense", "--help"), -EINVAL);
}

static const char *const help_lines[] = {
	"\n  --kernel PATH|fd:N                 -         -\n",
	"\n  --disk FILE[,ro|,cow=FILE][,id=ID] -         at most 8 times\n",
	"\n  --vsock PATH                       -         path of at most 96 bytes\n",
	"\n  --vsock-cid N                      3         3 to 4294967294\n",
	"\n  --mem SIZE                         128M      16M to 511G\n",
	"\n  --cpus N                           1         1 to 8\n",
	"\n  --serial -|none|PATH|fd:N          none      -\n",
	"\n  --serial-max SIZE                  -         4K to 1024G\n",
	"\n  --control PATH|fd:N                -         path of at most 107 bytes\n",
	"\n  --kvm PATH|fd:N                    /dev/kvm  -\n",
	"\n  --stats[=PATH|fd:N]                -         -\n",
	"\n  --log-level error|warn|info|debug  info      -\n",
	"\n  2  the command line is wrong\n",
	"\n  8  ended from outside",
	"panic=-1 reboot=k",
	"at most 2047 bytes",
};

static void help_shows_options_defaults_limits_and_statuses(void **state)
{
	(void)state;
	static char text[CONFIG_HELP_MAX];
	size_t longest = 0;

	config_help(text);
	for (size_t i = 0; i < sizeof(help_lines) / sizeof(help_lines[0]); i++)
		assert_non_null(strstr(text, help_lines[i]));
	assert_true(strlen(text) < CONFIG_HELP_MAX - 1);
	for (const char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
		if (strcspn(line, "\n") > longest)
			longest = strcspn(line, "\n");
	assert_in_range(longest, 1, 110);
	config_version(text);
	assert_string_equal(text, "vmm (Tinderbox) " TINDERBOX_VERSION "\n");
}

/* Every status of enum vmm_end has its line, and no other has one. */
static void help_shows_every_exit_status(void **state)
{
	(void)state;
	static char text[CONFIG_HELP_MAX];
	const char *line;
	unsigned count = 0;

	config_help(text);
	line = strstr(text, "\nexit status\n");
	assert_non_null(line);
	for (line += strlen("\nexit status\n"); *line != '\0'; line += strcspn(line, "\n") + 1, count++) {
		unsigned number = 0;
		char first = '\0';

		assert_int_equal(sscanf(line, "  %u  %c", &number, &first), 2);
		assert_int_equal(number, count);
		assert_int_not_equal(first, '(');
	}
	assert_int_equal(count, VMM_END_COUNT);
}

static void a_snapshot_takes_a_kernels_place(void **state)
{
	(void)state;
	static struct run run;

	assert_int_equal(parse(&run, "--restore", "folder"), 0);
	assert_true(run.config.restore.wanted);
	assert_string_equal(run.config.restore.state, "folder/state");
	assert_string_equal(run.config.restore.memory, "folder/memory");
	assert_null(run.config.kernel);
	assert_int_equal(run.config.memory, 0); /* the snapshot's */
	assert_int_equal(run.config.cpus, 0);
	assert_false(run.config.paused);
	assert_int_equal(parse(&run, "--restore", "s,memory=fd:4", "--mem", "64M", "--cpus", "2", "--balloon",
				 "--paused", "--control", "c"),
		0);
	assert_string_equal(run.config.restore.state, "s");
	assert_string_equal(run.config.restore.memory, "fd:4");
	assert_string_equal(run.config.restore.working_set, "");
	assert_int_equal(run.config.memory, 64 << 20);
	assert_int_equal(run.config.cpus, 2);
	assert_true(run.config.balloon && run.config.paused);
	assert_int_equal(parse(&run, "--restore", "s,memory=m,working-set=w"), 0);
	assert_string_equal(run.config.restore.state, "s");
	assert_string_equal(run.config.restore.memory, "m");
	assert_string_equal(run.config.restore.working_set, "w");
	assert_string_equal(run.config.restore.pages, "");
	assert_int_equal(run.config.base_sum, 0);
	assert_int_equal(parse(&run, "--restore", "s,memory=m,pages=fd:5,working-set=w"), 0);
	assert_string_equal(run.config.restore.memory, "m");
	assert_string_equal(run.config.restore.pages, "fd:5");
	assert_string_equal(run.config.restore.working_set, "w");
	assert_int_equal(parse(&run, "--restore", "s,memory=m,pages=p"), 0);
	assert_string_equal(run.config.restore.memory, "m");
	assert_string_equal(run.config.restore.pages, "p");
	assert_string_equal(run.config.restore.working_set, "");
}

static void a_standby_waits_for_all_but_its_socket(void **state)
{
	(void)state;
	static struct run run;

	assert_int_equal(parse(&run, "--standby", "--control", "c", "--kvm", "fd:4", "--paused"), 0);
	assert_true(run.config.standby && run.config.restore.wanted && run.config.paused);
	assert_string_equal(run.config.restore.state, "");
	assert_null(run.config.kernel);
	assert_int_equal(run.config.memory, 0); /* the snapshot's */
	assert_int_equal(run.config.cpus, 0);
	assert_int_equal(run.config.disk_count, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_kernel_gives_the_defaults),
		cmocka_unit_test(a_balloon_needs_no_size),
		cmocka_unit_test(every_option_is_taken),
		cmocka_unit_test(a_value_may_follow_an_equals_sign),
		cmocka_unit_test(bounds_are_included),
		cmocka_unit_test(more_memory_than_the_host_has_is_refused),
		cmocka_unit_test(a_guest_has_one_to_eight_cpus),
		cmocka_unit_test(help_and_version_end_the_parsing),
		cmocka_unit_test(a_snapshot_takes_a_kernels_place),
		cmocka_unit_test(a_standby_waits_for_all_but_its_socket),
		cmocka_unit_test(help_shows_options_defaults_limits_and_statuses),
		cmocka_unit_test(help_shows_every_exit_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
