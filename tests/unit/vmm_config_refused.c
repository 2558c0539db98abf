/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of vmm: the exact words of what is refused. */
#include "tests/unit/vmm_config_fixture.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

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
	{{"--kernel", "k", "--mem", "1T"}, "--mem 1T is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--mem", "16777216T"}, "--mem 16777216T is out of range; choose 16M to 511G"},
	{{"--kernel", "k", "--cmdline", "a\nb"}, "--cmdline has a line break; write all of it in one line"},
	{{"--kernel", "k", "--cmdline", "a\r"}, "--cmdline has a line break; write all of it in one line"},
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
	{{"--kernel", "k", "--balloon=1"},
		"--balloon 1 is not a multiple of 4K, the size of a page; round it up or down"},
	{{"--kernel", "k", "--balloon=4097"},
		"--balloon 4097 is not a multiple of 4K, the size of a page; round it up or down"},
	{{"--kernel", "k", "--balloon=2T"},
		"--balloon wants more than the 128M of --mem; give less, or more memory"},
	{{"--balloon=65540K", "--kernel", "k", "--mem", "64M"},
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
	{{"--restore", "s,memory=m,pages="},
		"--restore: a file is missing; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "s,memory=,pages=p,working-set=w"},
		"--restore: a file is missing; write DIR or STATE,memory=MEMORY"},
	{{"--restore", "s,memory=m,pages=fd:"},
		"--restore: fd: is not a file descriptor; write fd: and its number"},
	{{"--restore", "s,memory=fd:4,pages=fd:4"},
		"fd:4 is given to both --restore and --restore; open one for each"},
	{{"--restore", "d,pages=p"},
		"--restore d,pages=p: only ,memory= may follow; write DIR or STATE,memory=MEMORY"},
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
	{{"--kernel", "k", "--disk", ",ro"},
		"--disk: ,ro has no file; write --disk FILE[,ro|,cow=FILE][,id=ID]"},
	{{"--kernel", "k", "--disk", "d,rw"},
		"--disk d: \"rw\" is not known; write ,ro or ,cow=FILE, and ,id=ID"},
	{{"--kernel", "k", "--disk", "d,"},
		"--disk d: \"\" is not known; write ,ro or ,cow=FILE, and ,id=ID"},
	{{"--kernel", "k", "--disk", "d,id="}, "--disk d: the id is empty; write ,id=ID or leave it out"},
	{{"--kernel", "k", "--disk", "d,id=,ro"}, "--disk d: the id is empty; write ,id=ID or leave it out"},
	{{"--kernel", "k", "--disk", "d,id"},
		"--disk d: \"id\" is not known; write ,ro or ,cow=FILE, and ,id=ID"},
	{{"--kernel", "k", "--disk", "d,ro,ro"}, "--disk d: ro is given twice; give it once"},
	{{"--kernel", "k", "--disk", "d,id=a,ro,id=b"}, "--disk d: id is given twice; give it once"},
	{{"--kernel", "k", "--disk", "d,cow=u,cow=v"}, "--disk d: cow is given twice; give it once"},
	{{"--kernel", "k", "--disk", "d,cow=u,ro"}, "--disk d: ro and cow do not go together; leave one out"},
	{{"--kernel", "k", "--disk", "d,ro,cow=u"}, "--disk d: ro and cow do not go together; leave one out"},
	{{"--kernel", "k", "--disk", "d,cow="}, "--disk d: ,cow= has no file; write ,cow=PATH or ,cow=fd:N"},
	{{"--kernel", "k", "--disk", "d,cow"},
		"--disk d: \"cow\" is not known; write ,ro or ,cow=FILE, and ,id=ID"},
	{{"--kernel", "k", "--disk", "d,cow=fd:x"},
		"--disk: fd:x is not a file descriptor; write fd: and its number"},
	{{"--kernel", "k", "--disk", "d,id=123456789012345678901"},
		"--disk d: an id of 21 bytes is too long; give at most 20"},
	/* the bound of the serial line */
	{{"--kernel", "k", "--serial", "log", "--serial-max", "4095"},
		"--serial-max 4095 is out of range; choose 4K to 1024G"},
	{{"--kernel", "k", "--serial", "log", "--serial-max", "1025G"},
		"--serial-max 1025G is out of range; choose 4K to 1024G"},
	{{"--kernel", "k", "--serial", "log", "--serial-max", "much"},
		"--serial-max much is not a size; write a number with K, M or G, such as 4M"},
	/* contradictions */
	{{"--kernel", "k", "--serial-max", "4M"}, "--serial-max is of no use alone; add --serial PATH"},
	{{"--kernel", "k", "--serial", "none", "--serial-max", "4M"},
		"--serial-max is of no use alone; add --serial PATH"},
	{{"--kernel", "k", "--vsock-cid", "4"},
		"--vsock-cid is of no use alone; add --vsock PATH or --control PATH"},
	{{"--kernel", "fd:3", "--initrd", "fd:3"},
		"fd:3 is given to both --kernel and --initrd; open one for each"},
	{{"--kernel", "k", "--disk", "fd:5,ro", "--disk", "fd:05,ro"},
		"fd:5 is given to both --disk and --disk; open one for each"},
	{{"--kernel", "k", "--disk", "fd:5,cow=fd:5"},
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
	memcpy(path, "d,cow=", 6);
	path[6 + 256] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--disk", path), -EINVAL);
	assert_string_equal(run.error,
		"--disk: an upper file's path of 256 bytes is too long; give one of at most 255, or fd:N");
	path[6 + 255] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--disk", path), 0);
	memset(path, 'p', sizeof(path) - 1);
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
		cmocka_unit_test(refusals_say_what_and_how),
		cmocka_unit_test(long_paths_are_refused),
		cmocka_unit_test(long_texts_leave_the_sentence_whole),
		cmocka_unit_test(paths_of_a_snapshot_are_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
