/* SPDX-License-Identifier: Apache-2.0 */
/* What the daemon refuses to start with: each file that no VM could start from, in exact words. */
#include "tests/unit/hostctl_fixture.h"

#include "host-ctl/serve/runtime.h"
#include "host-ctl/serve/serve_check.h"
#include "host-ctl/vm/cgroup.h"
#include <inttypes.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#define REAL_VMM "build/vmm/vmm"

enum { ROOM = 128 };

/* Files of every kind in a folder of their own, and options that are all in order. */
struct place {
	char folder[64], kernel[ROOM], initrd[ROOM], image[ROOM], text[ROOM], empty[ROOM], none[ROOM];
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
	write_text(place->folder, "initrd", "070701 and more");
	write_text(place->folder, "image", "");
	write_text(place->folder, "text", "no kernel");
	write_text(place->folder, "empty", "");
	snprintf(place->kernel, ROOM, "%s/kernel", place->folder);
	snprintf(place->initrd, ROOM, "%s/initrd", place->folder);
	snprintf(place->image, ROOM, "%s/image", place->folder);
	assert_int_equal(truncate(place->image, 512), 0);
	snprintf(place->text, ROOM, "%s/text", place->folder);
	snprintf(place->empty, ROOM, "%s/empty", place->folder);
	snprintf(place->none, ROOM, "%s/none", place->folder);
	place->options = (struct serve_options){.vmm = FAKE_VMM,
		.kernel = place->kernel,
		.initrd = place->initrd,
		.image = place->image,
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
	static const char *const starts[] = {
		"# README", "07070", "070707", "\037\213\010gzip", "\050\265\057\375zstd", "\3757zXZ"};
	struct place place;
	struct serve_options *options = &place.options;
	struct error error;

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
	/* The guests' kernels have no decompressor. */
	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
		write_text(place.folder, "text", starts[i]);
		refuses(&place, &options->initrd, place.text, "the initrd",
			" is not an uncompressed cpio archive of the form newc: name an initramfs with "
			"guest-init "
			"with --initrd");
	}
	write_text(place.folder, "text", "070702 and more");
	options->initrd = place.text;
	assert_int_equal(serve_check(options, &error), 0);
	refuses(&place, &options->image, place.text, "the image",
		" has 15 bytes, not a multiple of 512: pad it to whole sectors");
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

static void test_memory(void **state)
{
	struct sysinfo host;
	struct place place;
	struct error error;
	char wanted[512];
	uint64_t memory;

	(void)state;
	set_up(&place);
	assert_int_equal(sysinfo(&host), 0);
	memory = (uint64_t)host.totalram * host.mem_unit >> 20 << 20;
	place.options.memory_bytes = memory;
	assert_int_equal(serve_check(&place.options, &error), 0);
	place.options.memory_bytes = memory + (1 << 20);
	assert_int_equal(serve_check(&place.options, &error), -1);
	snprintf(wanted, sizeof wanted,
		"--mem of %" PRIu64 "M for each VM is more than the %" PRIu64
		"M that this host has: give less",
		(memory >> 20) + 1, memory >> 20);
	assert_string_equal(error.message, wanted);
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

static void refuses_runtime(const char *folder, const char *socket, const char *wanted)
{
	struct runtime runtime;
	struct error error;
	int status = runtime_open(&runtime, folder, socket, &error);

	if (!status)
		status = runtime_listen(&runtime, getegid(), &error);
	assert_true(status < 0);
	assert_string_equal(error.message, wanted);
	runtime_close(&runtime);
}

#define MEND_FOLDER ": name a folder that can be made and written with --runtime-dir"
#define MEND_SOCKET ": give a path in a folder that can be written with --socket"

static void test_folders_and_sockets(void **state)
{
	char wanted[512], path[2 * ROOM], lock[2 * ROOM];
	struct place place;

	(void)state;
	set_up(&place);
	snprintf(wanted, sizeof wanted, "cannot open the lock %s/serve.lock: Not a directory" MEND_FOLDER,
		place.text);
	refuses_runtime(place.text, "/nosuch/x.sock", wanted);
	snprintf(path, sizeof path, "%s/folder", place.none);
	snprintf(wanted, sizeof wanted,
		"cannot make the runtime folder %s: No such file or directory" MEND_FOLDER, path);
	refuses_runtime(path, "/nosuch/x.sock", wanted);
	refuses_runtime(place.folder, "/nosuch/x.sock",
		"cannot open the lock /nosuch/x.sock.lock: No such file or directory" MEND_SOCKET);
	snprintf(wanted, sizeof wanted,
		"the socket %s is a file of another kind: remove it, or give another --socket", place.text);
	refuses_runtime(place.folder, place.text, wanted);
	/* Nothing stays of who was refused. */
	snprintf(lock, sizeof lock, "%s.lock", place.text);
	assert_int_equal(access(lock, F_OK), -1);
	snprintf(lock, sizeof lock, "%s/serve.lock", place.folder);
	assert_int_equal(access(lock, F_OK), -1);
	remove_folder(place.folder);
}

/* By this very process, which holds the locks all the same. */
static void test_what_is_in_use_is_named(void **state)
{
	struct place place, other;
	struct runtime first, second;
	struct error error;
	char socket[ROOM], message[512];

	(void)state;
	set_up(&place);
	set_up(&other);
	snprintf(socket, ROOM, "%s/socket", place.folder);
	assert_int_equal(runtime_open(&first, place.folder, socket, &error), 0);
	assert_int_equal(runtime_open(&second, place.folder, other.none, &error), -EBUSY);
	snprintf(message, sizeof message,
		"the runtime folder %s is in use by a running host-ctl serve (pid %d): stop it first, or "
		"give "
		"this one its own with --runtime-dir, and another --uid-base",
		place.folder, (int)getpid());
	assert_string_equal(error.message, message);
	assert_int_equal(runtime_open(&second, other.folder, socket, &error), -EBUSY);
	snprintf(message, sizeof message,
		"the socket %s is in use by a running host-ctl serve (pid %d): stop it first, or give this "
		"one "
		"its own with --socket, and another --uid-base",
		socket, (int)getpid());
	assert_string_equal(error.message, message);
	/* Who was refused has removed no lock of the first one's. */
	assert_int_equal(runtime_open(&second, other.folder, socket, &error), -EBUSY);
	runtime_close(&first);
	assert_int_equal(runtime_open(&second, other.folder, socket, &error), 0);
	runtime_close(&second);
	remove_folder(place.folder);
	remove_folder(other.folder);
}

/* A disk that takes only the first byte. */
static void test_a_full_disk(void **state)
{
	const struct rlimit one = {.rlim_cur = 1, .rlim_max = RLIM_INFINITY};
	struct rlimit kept;
	struct runtime runtime;
	struct error error;
	struct place place;
	char wanted[512];
	int status;

	(void)state;
	set_up(&place);
	signal(SIGXFSZ, SIG_IGN);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &kept), 0);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &one), 0);
	status = runtime_open(&runtime, place.folder, place.none, &error);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &kept), 0);
	assert_int_equal(status, -ENOSPC);
	snprintf(wanted, sizeof wanted,
		"cannot write the lock %s/serve.lock: No space left on device" MEND_FOLDER, place.folder);
	assert_string_equal(error.message, wanted);
	remove_folder(place.folder);
}

static void refuses_cgroup_root(const char *path)
{
	struct cgroup_tree tree;
	struct error error;
	char wanted[512];

	snprintf(wanted, sizeof wanted,
		"cgroup root %s is not on cgroup v2: `host-ctl doctor` says why, or name a folder of a "
		"cgroup v2 mount with --cgroup-root",
		path);
	assert_true(cgroup_tree_open(&tree, path, false, &error) < 0);
	assert_string_equal(error.message, wanted);
	assert_true(cgroup_tree_check(path, false, &error) < 0);
	assert_string_equal(error.message, wanted);
}

/* A folder that was there stays, be it empty; one that was made for it goes. */
static void test_no_cgroups(void **state)
{
	struct place place;
	char path[2 * ROOM];

	(void)state;
	set_up(&place);
	refuses_cgroup_root("/proc");
	snprintf(path, sizeof path, "%s/none", place.none);
	refuses_cgroup_root(path);
	refuses_cgroup_root(place.none);
	assert_int_equal(access(place.none, F_OK), -1);
	assert_int_equal(mkdir(place.none, 0755), 0);
	refuses_cgroup_root(place.none);
	assert_int_equal(rmdir(place.none), 0);
	remove_folder(place.folder);
}

/* Of the folder above the path. */
static bool lacks_a_controller(const char *path)
{
	static const char *const needed[] = {"cpu", "memory", "pids"};
	char file[2 * ROOM + 32], text[512] = " ", name[16];
	bool lacks = false;
	FILE *offered;

	snprintf(file, sizeof file, "%.*s/cgroup.controllers", (int)(strrchr(path, '/') - path), path);
	offered = fopen(file, "re");
	assert_non_null(offered);
	if (fgets(text + 1, sizeof text - 2, offered))
		text[strcspn(text, "\n")] = ' ';
	fclose(offered);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof name, " %s ", needed[i]);
		lacks = lacks || !strstr(text, name);
	}
	return lacks;
}

/* Beside a cgroup and in one: both would do, and neither is made. */
static void test_a_place_for_cgroups(void **state)
{
	struct error error;
	char mount[64], path[2 * ROOM];

	(void)state;
	if (!find_cgroups(mount, sizeof mount))
		skip();
	snprintf(path, sizeof path, "%s/tinderbox-check-%d", mount, (int)getpid());
	assert_int_equal(cgroup_tree_check(path, false, &error), 0);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(cgroup_tree_check(path, false, &error), 0);
	snprintf(path + strlen(path), sizeof path - strlen(path), "/inner");
	assert_int_equal(cgroup_tree_check(path, false, &error), 0);
	assert_int_equal(access(path, F_OK), -1);
	/* A new cgroup gives its children what it was given itself: not all of the three, before somebody has
	 * turned them on for it. */
	if (lacks_a_controller(path))
		assert_int_equal(cgroup_tree_check(path, true, &error), -ENOTSUP);
	else
		assert_int_equal(cgroup_tree_check(path, true, &error), 0);
	*strrchr(path, '/') = '\0';
	assert_int_equal(rmdir(path), 0);
}

/* A start that is refused for want of them has made no folder either. */
static void test_the_daemon_makes_nothing_without_cgroups(void **state)
{
	struct daemon daemon;
	char path[ROOM];

	(void)state;
	daemon_folder(&daemon);
	write_text(daemon.folder, "kernel", "\177ELF boot");
	snprintf(daemon.cgroups, sizeof daemon.cgroups, "%.80s/none", daemon.folder);
	daemon.templates = true;
	fflush(NULL);
	daemon.pid = fork();
	assert_true(daemon.pid >= 0);
	if (daemon.pid == 0)
		daemon_child(&daemon, STDERR_FILENO, NULL);
	assert_int_equal(daemon_wait(&daemon), 1);
	assert_int_equal(access(daemon.state, F_OK), -1);
	assert_int_equal(access(daemon.cgroups, F_OK), -1);
	assert_int_equal(access(daemon.socket, F_OK), -1);
	snprintf(path, sizeof path, "%.80s/vm", daemon.folder);
	assert_int_equal(access(path, F_OK), -1);
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
	snprintf(wanted, sizeof wanted,
		"the VM could not be set up (vmm: error: --kernel %s/kernel is truncated in its ELF header; "
		"copy it "
		"again)",
		daemon.folder);
	daemon_launch(&daemon, "boot", options, false);
	await_failure(&daemon, wanted);
	daemon_stop(&daemon);
}

/* Holds the lock of that file as a child of a killed daemon's does, which has inherited it, for so long. */
static pid_t hold_lock(const char *path, pid_t written, long milliseconds)
{
	int lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	pid_t child;

	assert_true(lock >= 0);
	dprintf(lock, "%d\n", (int)written);
	assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
	child = fork();
	if (child == 0) {
		sleep_ms(milliseconds);
		_exit(0);
	}
	close(lock);
	return child;
}

static void test_lock_of_a_killed_daemons_child(void **state)
{
	char folder[] = "/tmp/tinderbox-unit.XXXXXX", lock[64], socket[64], wanted[256];
	struct runtime runtime;
	struct error error;
	pid_t dead = fork(), child;

	(void)state;
	if (dead == 0)
		_exit(0);
	assert_int_equal(waitpid(dead, NULL, 0), dead);
	assert_non_null(mkdtemp(folder));
	snprintf(lock, sizeof lock, "%s/serve.lock", folder);
	snprintf(socket, sizeof socket, "%s/socket", folder);
	child = hold_lock(lock, dead, 100);
	assert_int_equal(runtime_open(&runtime, folder, socket, &error), 0);
	runtime_close(&runtime);
	assert_int_equal(waitpid(child, NULL, 0), child);
	/* One that lives is not waited for. */
	child = hold_lock(lock, getpid(), 60 * 1000);
	assert_int_equal(runtime_open(&runtime, folder, socket, &error), -EBUSY);
	snprintf(wanted, sizeof wanted,
		"the runtime folder %s is in use by a running host-ctl serve (pid %d): stop it first, or "
		"give this one its own with --runtime-dir, and another --uid-base",
		folder, (int)getpid());
	assert_string_equal(error.message, wanted);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	remove_folder(folder);
}

/* Removes the file in a moment, as a daemon that ends does; with another it is then one that has just
 * started. */
static pid_t remove_lock(const char *path, bool another)
{
	pid_t child = fork();
	int lock;

	if (child)
		return child;
	sleep_ms(50);
	if (unlink(path) < 0)
		_exit(1);
	if (another) {
		lock = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		dprintf(lock, "%d\n", (int)getpid());
		if (flock(lock, LOCK_EX | LOCK_NB) < 0)
			_exit(1);
		sleep_ms(60 * 1000);
	}
	_exit(0);
}

/* Who waits for a lock whose file is removed meanwhile gets the lock of the one that is there, or none. */
static void test_a_lock_that_goes(void **state)
{
	char folder[] = "/tmp/tinderbox-unit.XXXXXX", lock[64], socket[64], wanted[256];
	struct stat held, named;
	struct runtime runtime;
	struct error error;
	pid_t dead = fork(), child, ending;

	(void)state;
	if (dead == 0)
		_exit(0);
	assert_int_equal(waitpid(dead, NULL, 0), dead);
	assert_non_null(mkdtemp(folder));
	snprintf(lock, sizeof lock, "%s/serve.lock", folder);
	snprintf(socket, sizeof socket, "%s/socket", folder);
	child = hold_lock(lock, dead, 200);
	ending = remove_lock(lock, false);
	assert_int_equal(runtime_open(&runtime, folder, socket, &error), 0);
	assert_int_equal(fstat(runtime.folder_lock, &held), 0);
	assert_int_equal(stat(lock, &named), 0);
	assert_int_equal(held.st_ino, named.st_ino);
	runtime_close(&runtime);
	assert_int_equal(access(lock, F_OK), -1);
	assert_int_equal(waitpid(child, NULL, 0), child);
	assert_int_equal(waitpid(ending, NULL, 0), ending);

	child = hold_lock(lock, dead, 200);
	ending = remove_lock(lock, true);
	assert_int_equal(runtime_open(&runtime, folder, socket, &error), -EBUSY);
	snprintf(wanted, sizeof wanted,
		"the runtime folder %s is in use by a running host-ctl serve (pid %d): stop it first, or "
		"give this one its own with --runtime-dir, and another --uid-base",
		folder, (int)ending);
	assert_string_equal(error.message, wanted);
	assert_int_equal(access(lock, F_OK), 0);
	kill(ending, SIGKILL);
	waitpid(ending, NULL, 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	remove_folder(folder);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_devices_and_folders),
		cmocka_unit_test(test_memory),
		cmocka_unit_test(test_only_root_serves),
		cmocka_unit_test(test_the_daemon_does_not_start),
		cmocka_unit_test(test_folders_and_sockets),
		cmocka_unit_test(test_what_is_in_use_is_named),
		cmocka_unit_test(test_a_full_disk),
		cmocka_unit_test(test_no_cgroups),
		cmocka_unit_test(test_a_place_for_cgroups),
		cmocka_unit_test(test_the_daemon_makes_nothing_without_cgroups),
		cmocka_unit_test(test_causes_name_paths),
		cmocka_unit_test(test_lock_of_a_killed_daemons_child),
		cmocka_unit_test(test_a_lock_that_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
