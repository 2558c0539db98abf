/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon refuses to start with: each file that no VM could start from, in exact words. */
#include "tests/unit/hostctl_fixture.h"

#include "host-ctl/serve_check.h"

#define REAL_VMM "build/vmm/vmm"

enum { ROOM = 128 };

/* Files of every kind in a folder of their own, and options that are all in order. */
struct place {
	char folder[64], kernel[ROOM], text[ROOM], empty[ROOM], none[ROOM];
	struct serve_options options;
};

static void set_up(struct place *place)
{
	if (geteuid() != 0) {
		print_message("needs root\n");
		skip();
	}
	*place = (struct place){.folder = "/tmp/tinderbox-check.XXXXXX"};
	assert_non_null(mkdtemp(place->folder));
	write_text(place->folder, "kernel", "\177ELF and more");
	write_text(place->folder, "text", "no kernel");
	write_text(place->folder, "empty", "");
	snprintf(place->kernel, ROOM, "%s/kernel", place->folder);
	snprintf(place->text, ROOM, "%s/text", place->folder);
	snprintf(place->empty, ROOM, "%s/empty", place->folder);
	snprintf(place->none, ROOM, "%s/none", place->folder);
	place->options = (struct serve_options){.vmm = FAKE_VMM,
		.kernel = place->kernel,
		.initrd = place->text,
		.image = place->text,
		.kvm = "/dev/null",
		.serial_directory = place->folder};
}

/* With the path, exactly "start path end"; without it, nothing is wrong. */
static void refuses(
	const struct place *place, const char **option, const char *path, const char *start, const char *end)
{
	const char *kept = *option;
	struct error error;
	char wanted[512];

	*option = path;
	assert_int_equal(serve_check(&place->options, &error), -1);
	snprintf(wanted, sizeof wanted, "%s %s%s", start, path, end);
	assert_string_equal(error.message, wanted);
	*option = kept;
	assert_int_equal(serve_check(&place->options, &error), 0);
}

static void test_files(void **state)
{
	struct place place;
	struct serve_options *options = &place.options;

	(void)state;
	set_up(&place);
	refuses(&place, &options->vmm, place.none, "the vmm",
		" cannot be found (No such file or directory): name the vmm's executable with --vmm");
	refuses(&place, &options->vmm, "/dev/null", "the vmm",
		" is not a regular file: name the vmm's executable with --vmm");
	refuses(&place, &options->vmm, place.text, "the vmm",
		" cannot be executed (Permission denied): name the vmm's executable with --vmm");
	refuses(&place, &options->kernel, place.none, "the kernel",
		" cannot be found (No such file or directory): name the guest's kernel, a vmlinux, with "
		"--kernel");
	refuses(&place, &options->kernel, place.text, "the kernel",
		" is not an ELF file: name the guest's kernel, a vmlinux, with --kernel");
	refuses(&place, &options->initrd, place.folder, "the initrd",
		" is a folder: name an initramfs with guest-init with --initrd");
	refuses(&place, &options->image, place.empty, "the image",
		" is empty: name a base image with --image");
	remove_folder(place.folder);
}

static void test_devices_and_folders(void **state)
{
	struct place place;
	struct serve_options *options = &place.options;

	(void)state;
	set_up(&place);
	refuses(&place, &options->kvm, place.none, "the KVM device",
		": there is no such device: load kvm_intel or kvm_amd, or run `host-ctl doctor`");
	refuses(&place, &options->kvm, place.text, "the KVM device",
		" is not a character device: give /dev/kvm with --kvm");
	refuses(&place, &options->serial_directory, place.none, "the folder of serial logs",
		" cannot be found (No such file or directory): make it, or name another with --serial-dir");
	refuses(&place, &options->serial_directory, place.text, "the folder of serial logs",
		" is not a folder: name one with --serial-dir");
	remove_folder(place.folder);
}

static void test_only_root_serves(void **state)
{
	struct place place;
	struct error error;
	int status;

	(void)state;
	set_up(&place);
	assert_int_equal(seteuid(65534), 0);
	status = serve_check(&place.options, &error);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(status, -1);
	assert_string_equal(error.message,
		"host-ctl serve runs as uid 65534 and needs root, to give each VM a uid and a cgroup of its "
		"own: start it as root");
	remove_folder(place.folder);
}

/* The daemon itself ends at once, and leaves nothing. */
static void test_the_daemon_does_not_start(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	write_text(daemon.folder, "kernel", "no kernel");
	fflush(NULL);
	daemon.pid = fork();
	assert_true(daemon.pid >= 0);
	if (daemon.pid == 0)
		daemon_child(&daemon, STDERR_FILENO, NULL);
	assert_int_equal(daemon_wait(&daemon), 1);
	assert_int_equal(access(daemon.cgroups, F_OK), -1);
	assert_int_equal(access(daemon.socket, F_OK), -1);
	remove_folder(daemon.folder);
}

/* A file that only the vmm finds fault with is told by its path, though the vmm knows it by a number. */
static void test_causes_name_paths(void **state)
{
	static char *const options[] = {"--pool", "1", NULL};
	struct daemon daemon;
	char wanted[256];

	(void)state;
	daemon_folder(&daemon);
	daemon.vmm = REAL_VMM;
	write_text(daemon.folder, "image", "image");
	snprintf(wanted, sizeof wanted,
		"the VM could not be set up (vmm: error: --disk %s/image has 5 bytes, not a multiple of 512; "
		"pad it to whole sectors)",
		daemon.folder);
	daemon_launch(&daemon, "boot", options, false);
	await_failure(&daemon, wanted);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_devices_and_folders),
		cmocka_unit_test(test_only_root_serves),
		cmocka_unit_test(test_the_daemon_does_not_start),
		cmocka_unit_test(test_causes_name_paths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
