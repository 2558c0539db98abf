/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of vmm: what is accepted, the exact words of what is refused, and --help. */
#include "tests/support/unit.h"

#include "common/proto_vmm.h"
#include "common/version.h"
#include "vmm/config.h"
#include "vmm/layout.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { WORDS_MAX = 40 };

struct run {
	struct config config;
	char error[CONFIG_ERROR_MAX];
};

/* words: after the program's name, up to NULL. */
static int parse_words(struct run *run, const char *const *words)
{
	char *argv[WORDS_MAX + 2] = {(char *)(uintptr_t) "vmm"};
	int argc = 1;

	while (words[argc - 1] != NULL && argc <= WORDS_MAX) {
		argv[argc] = (char *)(uintptr_t)words[argc - 1];
		argc++;
	}
	memset(run, 0x5a, sizeof(*run));
	run->error[0] = '\0';
	return config_parse(argc, argv, &run->config, run->error);
}

#define parse(run, ...) parse_words(run, (const char *const[]){__VA_ARGS__, NULL})

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

	assert_int_equal(parse(&run, "--kernel", "fd:3", "--initrd", "fd:4", "--cmdline", "-- a b", "--disk",
				 "base.img,ro,id=base", "--disk", "fd:5", "--vsock", "v.sock", "--vsock-cid",
				 "4294967294", "--mem", "511G", "--cpus", "1", "--serial", "-", "--control",
				 "fd:6", "--stats=fd:7", "--log-level", "debug"),
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

/* What stands at the bounds is accepted; each bound's other side is in the table of refusals. */
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
	assert_int_equal(parse(&run, "--kernel", "k", "--disk", "1", "--disk", "2", "--disk", "3", "--disk",
				 "4", "--disk", "5", "--disk", "6", "--disk", "7", "--disk", "8"),
		0);
	assert_int_equal(run.config.disk_count, CONFIG_DISKS_MAX);
}

static const struct {
	const char *words[WORDS_MAX];
	const char *error;
} refusals[] = {
	/* unknown, repeated, without a value */
	{{"--kernel", "k", "--network", "tap0"}, "--network is not an option; vmm --help lists them"},
	{{"--kern", "k"}, "--kern is not an option; vmm --help lists them"},
	{{"--kernel2=k"}, "--kernel2=k is not an option; vmm --help lists them"},
	{{"vmlinux"}, "vmlinux is not an option; vmm --help lists them"},
	{{"-h"}, "-h is not an option; vmm --help lists them"},
	{{"--"}, "-- is not an option; vmm --help lists them"},
	{{""}, " is not an option; vmm --help lists them"},
	{{"--kernel", "k", "--kernel", "k"}, "--kernel is given twice; give it once"},
	{{"--kernel", "k", "--mem", "16M", "--mem=16M"}, "--mem is given twice; give it once"},
	{{"--kernel", "k", "--stats", "--stats=f"}, "--stats is given twice; give it once"},
	{{"--kernel", "k", "--disk", "1", "--disk", "2", "--disk", "3", "--disk", "4", "--disk", "5",
		 "--disk", "6", "--disk", "7", "--disk", "8", "--disk", "9"},
		"--disk is given more than 8 times; a VM has no more of them"},
	{{"--kernel"}, "--kernel needs a value; write --kernel PATH|fd:N"},
	{{"--kernel="}, "--kernel needs a value; write --kernel PATH|fd:N"},
	{{"--kernel", ""}, "--kernel needs a value; write --kernel PATH|fd:N"},
	{{"--kernel", "--initrd", "i"}, "--kernel needs a value; write --kernel PATH|fd:N"},
	{{"--kernel", "k", "--mem", "--cpus=1"}, "--mem needs a value; write --mem SIZE"},
	{{"--kernel", "k", "--stats="}, "--stats needs a value; write --stats=PATH|fd:N"},
	{{"--help=x"}, "--help takes no value; write it alone"},
	{{"--version=1"}, "--version takes no value; write it alone"},
	{{"--mem", "64M"}, "--kernel is missing; write --kernel PATH with an uncompressed vmlinux"},
	{{NULL}, "--kernel is missing; write --kernel PATH with an uncompressed vmlinux"},
	/* memory */
	{{"--kernel", "k", "--mem", "8M"}, "--mem 8M is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "16383K"}, "--mem 16383K is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "0"}, "--mem 0 is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "15M"}, "--mem 15M is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "523265M"}, "--mem 523265M is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "512G"}, "--mem 512G is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "16777216G"}, "--mem 16777216G is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "99999999999999999999G"},
		"--mem 99999999999999999999G is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "17000K"}, "--mem 17000K is not a multiple of 1M; round it up or down"},
	{{"--kernel", "k", "--mem", "3145729K"},
		"--mem 3145729K is not a multiple of 1M; round it up or down"},
	{{"--kernel", "k", "--mem", "1.5G"},
		"--mem 1.5G is not a size; write a number with K, M or G, such as 128M"},
	{{"--kernel", "k", "--mem", "6g"},
		"--mem 6g is not a size; write a number with K, M or G, such as 128M"},
	{{"--kernel", "k", "--mem", " 6G"},
		"--mem  6G is not a size; write a number with K, M or G, such as 128M"},
	{{"--kernel", "k", "--mem", "G"},
		"--mem G is not a size; write a number with K, M or G, such as 128M"},
	{{"--kernel", "k", "--mem", "20000001"},
		"--mem 20000001 is not a multiple of 1M; round it up or down"},
	{{"--kernel", "k", "--mem", "128MB"},
		"--mem 128MB is not a size; write a number with K, M or G, such as 128M"},
	{{"--kernel", "k", "--mem", "-1"},
		"--mem -1 is not a size; write a number with K, M or G, such as 128M"},
	/* balloon */
	{{"--kernel", "k", "--balloon=1.5G"},
		"--balloon 1.5G is not a size; write a number with K, M or G, such as 32M"},
	{{"--kernel", "k", "--balloon="}, "--balloon needs a value; write --balloon=SIZE"},
	{{"--kernel", "k", "--balloon", "32M"},
		"32M is not an option; as the value of --balloon write --balloon=32M"},
	{{"--kernel", "k", "--balloon", "--balloon"}, "--balloon is given twice; give it once"},
	{{"--kernel", "k", "--balloon=129M"},
		"--balloon wants more than the 128M of --mem; give less, or more memory"},
	{{"--balloon=65537K", "--kernel", "k", "--mem", "64M"},
		"--balloon wants more than the 64M of --mem; give less, or more memory"},
	{{"--kernel", "k", "--balloon=99999999999999999999G"},
		"--balloon wants more than the 128M of --mem; give less, or more memory"},
	/* the machine's description */
	{{"--restore", "d", "--kernel", "k"},
		"--kernel does not go with --restore, whose guest has booted already; leave it out"},
	{{"--restore", "d", "--initrd", "i"},
		"--initrd does not go with --restore, whose guest has booted already; leave it out"},
	{{"--restore", "d", "--cmdline", "c"},
		"--cmdline does not go with --restore, whose guest has booted already; leave it out"},
	{{"--restore", "d", "--boot", "fdt"},
		"--boot does not go with --restore, whose guest has booted already; leave it out"},
	{{"--restore", "d", "--balloon=16M"},
		"--balloon takes no size with --restore, whose balloon stays where it was; leave it out"},
	{{"--restore", "d", "--restore", "d"}, "--restore is given twice; give it once"},
	{{"--restore"}, "--restore needs a value; write --restore DIR|STATE,memory=MEMORY"},
	{{"--restore", "d,ro"}, "--restore d,ro: only ,memory= may follow; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "fd:3"}, "--restore fd:3: a folder can't be handed over; write fd:N,memory=fd:M"},
	{{"--restore", "s,memory="}, "--restore: a file is missing; write DIR or STATE,memory=MEMORY"},
	{{"--restore", ",memory=m"}, "--restore: a file is missing; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "fd:x,memory=m"},
		"--restore: fd:x is not a file descriptor; write fd: and its number"},
	{{"--restore", "s,memory=fd:"}, "--restore: fd: is not a file descriptor; write fd: and its number"},
	{{"--standby"}, "--standby: nobody could tell what to restore; add --control PATH"},
	{{"--standby", "--control", "c", "--restore", "d"},
		"--restore does not go with --standby, which is told later what to be; leave it out"},
	{{"--standby", "--control", "c", "--disk", "d"},
		"--disk does not go with --standby, which is told later what to be; leave it out"},
	{{"--standby", "--control", "c", "--mem", "64M"},
		"--mem does not go with --standby, which is told later what to be; leave it out"},
	{{"--standby", "--control", "c", "--kernel", "k"},
		"--kernel does not go with --standby, which is told later what to be; leave it out"},
	{{"--restore", "s,memory=m,working-set="},
		"--restore: a file is missing; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "s,memory=,working-set=w"},
		"--restore: a file is missing; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "s,memory=m,working-set=fd:-1"},
		"--restore: fd:-1 is not a file descriptor; write fd: and its number"},
	{{"--restore", "d,working-set=w"},
		"--restore d,working-set=w: only ,memory= may follow; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "fd:3,memory=fd:4,working-set=fd:4"},
		"fd:4 is given to both --restore and --restore; open one for each"},
	{{"--restore", "fd:3,memory=fd:3"},
		"fd:3 is given to both --restore and --restore; open one for each"},
	{{"--kernel", "k", "--paused"}, "--paused: nobody could resume the guest; add --control PATH"},
	{{"--kernel", "k", "--boot", "acpi"}, "--boot acpi is not known; choose fdt|mptable"},
	{{"--kernel", "k", "--boot", "MPTABLE"}, "--boot MPTABLE is not known; choose fdt|mptable"},
	{{"--kernel", "k", "--boot", "fdt,mptable"}, "--boot fdt,mptable is not known; choose fdt|mptable"},
	{{"--kernel", "k", "--boot"}, "--boot needs a value; write --boot fdt|mptable"},
	{{"--kernel", "k", "--boot", "fdt", "--boot", "mptable"}, "--boot is given twice; give it once"},
	/* other numbers */
	{{"--kernel", "k", "--cpus", "0"}, "--cpus 0 is out of range; choose 1 to 8"},
	{{"--kernel", "k", "--cpus", "9"}, "--cpus 9 is out of range; choose 1 to 8"},
	{{"--kernel", "k", "--cpus", "18446744073709551617"},
		"--cpus 18446744073709551617 is out of range; choose 1 to 8"},
	{{"--kernel", "k", "--cpus", "1.5"}, "--cpus 1.5 is not a number; write decimal digits"},
	{{"--kernel", "k", "--cpus", "-1"}, "--cpus -1 is not a number; write decimal digits"},
	{{"--kernel", "k", "--cpus", "+1"}, "--cpus +1 is not a number; write decimal digits"},
	{{"--kernel", "k", "--cpus", " 1"}, "--cpus  1 is not a number; write decimal digits"},
	{{"--kernel", "k", "--cpus", "0x2"}, "--cpus 0x2 is not a number; write decimal digits"},
	{{"--kernel", "k", "--cpus", ""}, "--cpus needs a value; write --cpus N"},
	{{"--kernel", "k", "--cpus="}, "--cpus needs a value; write --cpus N"},
	{{"--kernel", "k", "--cpus", "2", "--cpus", "2"}, "--cpus is given twice; give it once"},
	{{"--kernel", "k", "--cpus", "one"}, "--cpus one is not a number; write decimal digits"},
	{{"--kernel", "k", "--vsock", "v", "--vsock-cid", "2"},
		"--vsock-cid 2 is out of range; choose 3 to 4294967294"},
	{{"--kernel", "k", "--vsock", "v", "--vsock-cid", "4294967295"},
		"--vsock-cid 4294967295 is out of range; choose 3 to 4294967294"},
	{{"--kernel", "k", "--vsock", "v", "--vsock-cid", "0x3"},
		"--vsock-cid 0x3 is not a number; write decimal digits"},
	{{"--kernel", "k", "--log-level", "loud"},
		"--log-level loud is not known; choose error|warn|info|debug"},
	/* files */
	{{"--kernel", "fd:x"}, "--kernel: fd:x is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--initrd", "fd:"},
		"--initrd: fd: is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--initrd", "fd:-1"},
		"--initrd: fd:-1 is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--serial", "fd:2147483648"},
		"--serial: fd:2147483648 is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--disk", "fd:a,ro"},
		"--disk: fd:a is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--control", "fd:a"},
		"--control: fd:a is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--kvm", "fd:a"},
		"--kvm: fd:a is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--stats=fd:a"},
		"--stats: fd:a is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--vsock", "fd:5"}, "--vsock: fd:5 is not a path; a socket is made there"},
	/* parts of a disk */
	{{"--kernel", "k", "--disk", ",ro"}, "--disk: ,ro has no file; write --disk PATH|fd:N[,ro][,id=ID]"},
	{{"--kernel", "k", "--disk", "d,rw"}, "--disk d: \"rw\" is not known; write ,ro or ,id=ID or both"},
	{{"--kernel", "k", "--disk", "d,"}, "--disk d: \"\" is not known; write ,ro or ,id=ID or both"},
	{{"--kernel", "k", "--disk", "d,id="}, "--disk d: \"id=\" is not known; write ,ro or ,id=ID or both"},
	{{"--kernel", "k", "--disk", "d,ro,ro"}, "--disk d: ro is given twice; give it once"},
	{{"--kernel", "k", "--disk", "d,id=a,ro,id=b"}, "--disk d: id is given twice; give it once"},
	{{"--kernel", "k", "--disk", "d,id=123456789012345678901"},
		"--disk d: an id of 21 bytes is too long; give at most 20"},
	/* contradictions */
	{{"--kernel", "k", "--vsock-cid", "4"},
		"--vsock-cid is of no use alone; add --vsock PATH or --control PATH"},
	{{"--kernel", "fd:3", "--initrd", "fd:3"},
		"fd:3 is given to both --kernel and --initrd; open one for each"},
	{{"--kernel", "k", "--disk", "fd:5,ro", "--disk", "fd:05,ro"},
		"fd:5 is given to both --disk and --disk; open one for each"},
	{{"--kernel", "k", "--stats=fd:9", "--disk", "fd:9"},
		"fd:9 is given to both --stats and --disk; open one for each"},
	{{"--kernel", "k", "--vsock", "s", "--control", "s"},
		"--vsock and --control are both s; give each a path of its own"},
};

static void refusals_say_what_and_how(void **state)
{
	(void)state;

	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		struct run run;

		assert_int_equal(parse_words(&run, refusals[i].words), -EINVAL);
		assert_string_equal(run.error, refusals[i].error);
	}
}

static void long_paths_are_refused(void **state)
{
	(void)state;
	static char path[PATH_MAX + 8];
	struct run run;

	memset(path, 'p', sizeof(path) - 1);
	assert_int_equal(parse(&run, "--kernel", "k", "--disk", path), -EINVAL);
	assert_string_equal(run.error, "--disk: a path of 4103 bytes is too long; give one of at most 4095");
	path[CONFIG_SOCKET_MAX + 1] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--control", path), -EINVAL);
	assert_string_equal(run.error,
		"--control: a path of 108 bytes is too long for a socket; give one of at most 107");
	path[CONFIG_VSOCK_MAX + 1] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--vsock", path), -EINVAL);
	assert_string_equal(
		run.error, "--vsock: a path of 97 bytes is too long for a socket; give one of at most 96");
}

static void long_texts_leave_the_sentence_whole(void **state)
{
	(void)state;
	static char path[PATH_MAX];
	struct run run;

	memset(path, 'x', sizeof(path) - 1);
	assert_int_equal(parse(&run, path), -EINVAL);
	assert_int_equal(strlen(run.error), 96 + strlen(" is not an option; vmm --help lists them"));
}

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
				  "virtio_mmio.device=4K@0xd0003000:4 ro");
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
	"\n  --disk PATH|fd:N[,ro][,id=ID]      -         at most 8 times\n",
	"\n  --vsock PATH                       -         path of at most 96 bytes\n",
	"\n  --vsock-cid N                      3         3 to 4294967294\n",
	"\n  --mem SIZE                         128M      16M to 511G\n",
	"\n  --cpus N                           1         1 to 8\n",
	"\n  --serial -|none|PATH|fd:N          none      -\n",
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

static void paths_of_a_snapshot_are_bounded(void **state)
{
	(void)state;
	static char folder[PATH_MAX + 16], files[2 * PATH_MAX + 32];
	static struct run run;

	for (size_t length = PATH_MAX - 8; length < PATH_MAX + 2; length++) {
		memset(folder, 'a', length);
		folder[length] = '\0';
		assert_int_equal(parse(&run, "--restore", folder),
			length + strlen("/memory") < PATH_MAX ? 0 : -EINVAL);
		snprintf(files, sizeof(files), "%s,memory=m", folder);
		assert_int_equal(parse(&run, "--restore", files), length < PATH_MAX ? 0 : -EINVAL);
		snprintf(files, sizeof(files), "s,memory=m,working-set=%s", folder);
		assert_int_equal(parse(&run, "--restore", files), length < PATH_MAX ? 0 : -EINVAL);
		snprintf(files, sizeof(files), "s,memory=%s", folder);
		assert_int_equal(parse(&run, "--restore", files), length < PATH_MAX ? 0 : -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_a_kernel_gives_the_defaults),
		cmocka_unit_test(a_balloon_needs_no_size),
		cmocka_unit_test(every_option_is_taken),
		cmocka_unit_test(a_value_may_follow_an_equals_sign),
		cmocka_unit_test(bounds_are_included),
		cmocka_unit_test(refusals_say_what_and_how),
		cmocka_unit_test(long_paths_are_refused),
		cmocka_unit_test(long_texts_leave_the_sentence_whole),
		cmocka_unit_test(the_kernels_command_line_has_the_users_part_last),
		cmocka_unit_test(without_a_tree_the_kernels_command_line_names_the_devices),
		cmocka_unit_test(above_the_hole_nothing_is_set_aside_below_it),
		cmocka_unit_test(many_devices_leave_less_of_the_kernels_command_line),
		cmocka_unit_test(the_kernels_command_line_is_bounded),
		cmocka_unit_test(more_memory_than_the_host_has_is_refused),
		cmocka_unit_test(a_guest_has_one_to_eight_cpus),
		cmocka_unit_test(help_and_version_end_the_parsing),
		cmocka_unit_test(a_snapshot_takes_a_kernels_place),
		cmocka_unit_test(a_standby_waits_for_all_but_its_socket),
		cmocka_unit_test(paths_of_a_snapshot_are_bounded),
		cmocka_unit_test(help_shows_options_defaults_limits_and_statuses),
		cmocka_unit_test(help_shows_every_exit_status),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
