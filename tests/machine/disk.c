/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copy-on-write disks before Linux (devices_guest.c): ext4 on one, killed while it writes; a host that is
 * full; discards and zeros; snapshots and clones. TAP. Usage: disk VMM KERNEL INITRAMFS, as root, with
 * e2fsprogs.
 */
#include "common/io.h"
#include "tests/machine/devices.h"
#include "tests/machine/snapshot_vm.h"
#include "vmm/cow.h"
#include "vmm/virtio/blk_disk.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
	FOLDER_MAX = 32,
	PATH_SIZE = 64,
	CHUNK = 64 * 1024,
	FS_BYTES = 16 << 20,
	PLAIN_BYTES = 4 << 20,
	KILLS = 4,
	PUTS = 3, /* synced files before each kill */
	FLOOD_MS = 400,
	ROOM_MAX = 128 * 1024, /* of an upper whose blocks were all discarded: header and bitmap, and slack */
};

struct test {
	struct suite suite;
	const char *initramfs;
	char folder[FOLDER_MAX];
	char fs[PATH_SIZE], plain[PATH_SIZE]; /* lower files: an ext4, and zeros */
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* files */

static void name_file(const struct test *test, const char *name, char path[PATH_SIZE])
{
	snprintf(path, PATH_SIZE, "%s/%s", test->folder, name);
}

static int open_or_die(const char *path, int flags)
{
	int fd = open(path, flags | O_CLOEXEC, 0600);

	if (fd < 0)
		die(path);
	return fd;
}

static void make_file(const char *path, off_t size)
{
	int fd = open_or_die(path, O_RDWR | O_CREAT | O_TRUNC);

	if (ftruncate(fd, size) < 0)
		die(path);
	close(fd);
}

/* Its exit status; 127: there is none. */
static int run(const char *const argv[])
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, STDIN_FILENO);
		dup2(null, STDOUT_FILENO);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (pid < 0 || waitpid(pid, &status, 0) < 0)
		die(argv[0]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static uint64_t sum_file(const char *path)
{
	static uint8_t chunk[CHUNK];
	int fd = open_or_die(path, O_RDONLY);
	uint64_t sum = DEVICES_SUM_START;
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) > 0)
		sum = devices_sum(sum, chunk, (size_t)got);
	close(fd);
	return sum;
}

static uint64_t room_of(const char *path)
{
	struct stat status = {.st_blocks = 0};

	if (stat(path, &status) < 0)
		die(path);
	return (uint64_t)status.st_blocks * 512;
}

/* The disk as a file of its own; 0 or -errno. */
static int flatten(const char *lower, const char *upper, const char *to)
{
	static uint8_t chunk[CHUNK];
	int fd = open_or_die(to, O_RDWR | O_CREAT | O_TRUNC);
	struct blk_disk *disk;
	int r = cow_create(open_or_die(lower, O_RDONLY), open_or_die(upper, O_RDWR), &disk);

	for (uint64_t at = 0; r == 0 && at < disk->size; at += sizeof(chunk)) {
		struct iovec piece = {.iov_base = chunk, .iov_len = sizeof(chunk)};
		struct virtq_bytes bytes = {.iov = &piece, .count = 1, .length = sizeof(chunk)};

		r = disk->ops->read(disk, &bytes, at);
		if (r == 0)
			r = io_pwrite_all(fd, chunk, sizeof(chunk), at);
	}
	if (r == 0)
		disk->ops->destroy(disk);
	close(fd);
	return r;
}

/* the guest */

static const char *const *options_of(
	const struct test *test, bool boots, const char *lower, const char *upper)
{
	static char disk[2 * PATH_SIZE + 8];
	static const char *options[8];
	int n = 0;

	if (upper)
		snprintf(disk, sizeof(disk), "%s,cow=%s", lower, upper);
	else
		snprintf(disk, sizeof(disk), "%s", lower);
	options[n++] = "--disk";
	options[n++] = disk;
	if (boots) {
		options[n++] = "--initrd";
		options[n++] = test->initramfs;
	}
	options[n] = NULL;
	return options;
}

static bool boot(struct test *test, const char *lower, const char *upper, struct machine *machine)
{
	char output[MACHINE_OUTPUT_MAX];
	int ready;

	if (!machine_start(
		    &test->suite, test->suite.guests, options_of(test, true, lower, upper), true, machine))
		return false;
	ready = snapshot_vm_await_stream(machine, DEVICES_READY_PORT);
	if (ready >= 0) {
		close(ready);
		return true;
	}
	kill(machine->pid, SIGKILL);
	machine_finish(machine, output);
	suite_report(&test->suite, false, "Linux boots", "no word from it; vmm said: %s", output);
	return false;
}

/* What the guest answers to a command is that line. */
static bool answers(struct machine *machine, const char *command, const char *wanted, char *answer)
{
	if (!snapshot_vm_command(machine, DEVICES_PORT, command, answer, DEVICES_LINE_MAX))
		return false;
	answer[strcspn(answer, "\n")] = '\0';
	return strcmp(answer, wanted) == 0;
}

static void expect_answer(
	struct test *test, struct machine *machine, const char *name, const char *command, const char *wanted)
{
	char answer[DEVICES_LINE_MAX] = "";
	bool ok = answers(machine, command, wanted, answer);

	suite_report(&test->suite, ok, name, "\"%.20s\" was answered \"%s\" instead of \"%s\"", command,
		answer, wanted);
}

static bool expect_files(struct machine *machine, int count, char *answer)
{
	char command[DEVICES_LINE_MAX];

	snprintf(command, sizeof(command), "whole %d\n", count);
	return answers(machine, command, "whole", answer);
}

static bool put_file(struct machine *machine, int number, char *answer)
{
	char command[DEVICES_LINE_MAX];

	snprintf(command, sizeof(command), "put %d\n", number);
	return answers(machine, command, "synced", answer);
}

static void end(struct machine *machine, char *output)
{
	kill(machine->pid, SIGKILL);
	machine_finish(machine, output);
}

/* killed while it writes */

/* Boots, finds the synced files, syncs more and is killed in the middle of what it does not sync. */
static bool live_once(struct test *test, const char *upper, int had, char *answer)
{
	char output[MACHINE_OUTPUT_MAX];
	struct machine machine;
	int fd = -1;
	bool ok;

	if (!boot(test, test->fs, upper, &machine))
		return false;
	ok = answers(&machine, "mount /dev/vda\n", "mounted", answer) && expect_files(&machine, had, answer);
	for (int i = 1; ok && i <= PUTS; i++)
		ok = put_file(&machine, had + i, answer);
	if (ok) {
		fd = snapshot_vm_connect(&machine, DEVICES_PORT);
		ok = fd >= 0 && io_write_all(fd, "flood 0\n", 8) == 0;
		usleep(FLOOD_MS * 1000);
	}
	end(&machine, output);
	fd_close(&fd);
	return ok;
}

static void test_kills(struct test *test)
{
	char upper[PATH_SIZE], flat[PATH_SIZE], answer[DEVICES_LINE_MAX] = "";
	const char *const fsck[] = {"e2fsck", "-fy", flat, NULL};
	uint64_t before = sum_file(test->fs);
	bool ok = true;
	int kills, r, status = -1;

	name_file(test, "kills", upper);
	name_file(test, "flat", flat);
	for (kills = 0; ok && kills < KILLS; kills++)
		ok = live_once(test, upper, kills * PUTS, answer);
	suite_report(&test->suite, ok, "synced files are there after a SIGKILL, each time",
		"after %d kills: %s", kills - 1, answer);
	r = flatten(test->fs, upper, flat);
	if (r == 0)
		status = run(fsck);
	/* 1: the journal was replayed, and nothing else is said to have been wrong but counts */
	suite_report(&test->suite, status == 0 || status == 1, "the file system is whole after its journal",
		"the disk: %s; e2fsck ends with %d", strerror(-r), status);
	suite_report(&test->suite, sum_file(test->fs) == before, "the lower file is as it was", "it differs");
	unlink(flat);
	unlink(upper);
}

/* a host that is full */

static void resize(const char *folder, unsigned long flags, const char *size)
{
	if (mount("tmpfs", folder, "tmpfs", flags, size) < 0)
		die(folder);
}

static unsigned count_lines(const char *output, const char *line)
{
	unsigned count = 0;

	for (const char *at = output; (at = strstr(at, line)); at += strlen(line))
		count++;
	return count;
}

/* What "sum" answers of a disk of the pattern, or of zeros. */
static void wanted_sum(bool zeros, char text[DEVICES_LINE_MAX])
{
	static uint8_t chunk[CHUNK];
	uint64_t sum = DEVICES_SUM_START;

	memset(chunk, 0, sizeof(chunk));
	for (uint64_t at = 0; at < PLAIN_BYTES; at += sizeof(chunk)) {
		if (!zeros)
			devices_pattern(chunk, at, sizeof(chunk));
		sum = devices_sum(sum, chunk, sizeof(chunk));
	}
	snprintf(text, DEVICES_LINE_MAX, "%d %016" PRIx64, PLAIN_BYTES, sum);
}

static void test_full_host(struct test *test)
{
	char folder[PATH_SIZE], upper[PATH_SIZE], sum[DEVICES_LINE_MAX], output[MACHINE_OUTPUT_MAX];
	static const char line[] = "blk: write: No space left on device";
	struct machine machine;

	name_file(test, "full", folder);
	name_file(test, "full/upper", upper);
	if (mkdir(folder, 0700) < 0)
		die(folder);
	resize(folder, 0, "size=2m");
	if (boot(test, test->plain, upper, &machine)) {
		expect_answer(test, &machine, "a full host is an I/O error to the guest", "fill /dev/vda\n",
			"/dev/vda: EIO");
		resize(folder, MS_REMOUNT, "size=32m");
		expect_answer(test, &machine, "with room again it writes", "fill /dev/vda\n", "filled");
		wanted_sum(false, sum);
		expect_answer(test, &machine, "and reads what it wrote", "sum /dev/vda\n", sum);
		end(&machine, output);
		suite_report(&test->suite, count_lines(output, line) == 1, "and that is said once",
			"said: %s", output);
	}
	if (umount2(folder, MNT_DETACH) < 0)
		die(folder);
	rmdir(folder);
}

/* discards and zeros */

static void test_discard(struct test *test)
{
	char upper[PATH_SIZE], sum[DEVICES_LINE_MAX], output[MACHINE_OUTPUT_MAX];
	struct machine machine;

	name_file(test, "discard", upper);
	if (!boot(test, test->plain, upper, &machine))
		return;
	expect_answer(test, &machine, "a disk is filled", "fill /dev/vda\n", "filled");
	suite_report(&test->suite, room_of(upper) >= PLAIN_BYTES, "and takes room", "%" PRIu64 " bytes",
		room_of(upper));
	expect_answer(test, &machine, "a disk is discarded", "discard /dev/vda\n", "done");
	suite_report(&test->suite, room_of(upper) <= ROOM_MAX, "and gives the room back", "%" PRIu64 " bytes",
		room_of(upper));
	expect_answer(test, &machine, "a disk is filled again", "fill /dev/vda\n", "filled");
	expect_answer(test, &machine, "zeros are written to all of it", "zero /dev/vda\n", "done");
	wanted_sum(true, sum);
	expect_answer(test, &machine, "and read", "sum /dev/vda\n", sum);
	end(&machine, output);
	unlink(upper);
}

/* snapshots */

static void expect_refused(struct test *test, const struct snapshot_files *files, const char *name,
	const char *lower, const char *upper, const char *line)
{
	struct machine machine;

	if (snapshot_vm_restore(&test->suite, files, options_of(test, false, lower, upper), &machine))
		machine_expect_end(&test->suite, &machine, name, VMM_END_SETUP, line);
}

/* In standby, as the daemon has it done. */
static bool order(
	struct test *test, const struct snapshot_files *files, const char *upper, struct machine *machine)
{
	struct vmm_message request = {.arg0 = 3, .arg3 = 1};
	int fds[] = {
		files->state, files->memory, open_or_die(test->fs, O_RDONLY), open_or_die(upper, O_RDWR)};
	bool ok = snapshot_vm_stand_by(&test->suite, NULL, machine) &&
		  snapshot_vm_order(machine, &request, fds, 4) == 0;

	close(fds[2]);
	close(fds[3]);
	return ok;
}

static void test_snapshot(struct test *test)
{
	char upper[PATH_SIZE], copy[PATH_SIZE], fresh[PATH_SIZE], answer[DEVICES_LINE_MAX] = "";
	const char *const cp[] = {"cp", "--sparse=always", upper, copy, NULL};
	char output[MACHINE_OUTPUT_MAX];
	struct snapshot_files files;
	struct machine machine;
	bool ok;

	name_file(test, "mounted", upper);
	name_file(test, "copy", copy);
	name_file(test, "fresh", fresh);
	if (!boot(test, test->fs, upper, &machine))
		return;
	ok = answers(&machine, "mount /dev/vda\n", "mounted", answer);
	for (int i = 1; ok && i <= PUTS; i++)
		ok = put_file(&machine, i, answer);
	suite_report(&test->suite, ok, "a guest has its disk mounted", "%s", answer);
	if (!ok || !snapshot_vm_take(&test->suite, &machine, "it is saved", &files))
		return;
	if (run(cp) != 0)
		die(copy);
	expect_refused(test, &files, "an empty upper is not that of the snapshot", test->fs, fresh,
		"--restore: disk 0 has not the content that it had; give its lower file, and with ,cow= its "
		"upper "
		"as it was then or a copy of that");
	expect_refused(test, &files, "a lower without its upper is not the disk", test->fs, NULL,
		"--restore: disk 0 had an upper file; give that or a copy of it with ,cow=");
	if (order(test, &files, copy, &machine)) {
		ok = expect_files(&machine, PUTS, answer);
		for (int i = 1; ok && i <= PUTS; i++)
			ok = put_file(&machine, PUTS + i, answer) && expect_files(&machine, PUTS + i, answer);
		suite_report(&test->suite, ok, "it goes on with a copy of its upper", "%s", answer);
	} else {
		suite_report(&test->suite, false, "it goes on with a copy of its upper", "no order");
	}
	end(&machine, output);
	snapshot_files_close(&files);
	unlink(upper);
	unlink(copy);
	unlink(fresh);
}

/* saved with its disk, while it is at work */

/* A host that has no room for the disk: the files are empty, and it goes on. */
static void expect_no_room(struct test *test, struct machine *machine)
{
	char folder[PATH_SIZE], name[PATH_SIZE];
	struct vmm_message reply = {.status = 0};
	struct snapshot_files files;
	struct stat state, memory;

	name_file(test, "little", folder);
	name_file(test, "little/disk", name);
	snapshot_files_make(&files);
	if (mkdir(folder, 0700) < 0)
		die(folder);
	resize(folder, 0, "size=64k");
	files.disk = open_or_die(name, O_RDWR | O_CREAT);
	suite_report(&test->suite,
		snapshot_vm_save_into(machine, VMM_SAVE_DISK, &files, &reply) == -ENOSPC &&
			strcmp(reply.text, "copying the disk: No space left on device") == 0,
		"a host without room for the disk says so", "status %d: %s", reply.status, reply.text);
	suite_report(&test->suite,
		fstat(files.state, &state) == 0 && fstat(files.memory, &memory) == 0 && state.st_size == 0 &&
			memory.st_size == 0 && lseek(files.disk, 0, SEEK_END) == 0,
		"and all files are empty", "one is not");
	snapshot_files_close(&files);
	if (umount2(folder, MNT_DETACH) < 0)
		die(folder);
	rmdir(folder);
}

/* A clone has the files as they were, upon the file of the disk and an upper of its own. */
static void expect_clone(struct test *test, const struct snapshot_files *files)
{
	char upper[PATH_SIZE], lower[PATH_SIZE], answer[DEVICES_LINE_MAX] = "", output[MACHINE_OUTPUT_MAX];
	struct machine machine;
	bool ok;

	name_file(test, "clone", upper);
	snprintf(lower, sizeof(lower), "fd:%d", files->disk);
	expect_refused(test, files, "the lower that it had is not its disk any more", test->fs, upper,
		"--restore: disk 0 has not the content that it had");
	unlink(upper);
	if (!snapshot_vm_restore(&test->suite, files, options_of(test, false, lower, upper), &machine))
		exit(1);
	ok = expect_files(&machine, PUTS, answer);
	for (int i = 1; ok && i <= PUTS; i++)
		ok = put_file(&machine, PUTS + i, answer) && expect_files(&machine, PUTS + i, answer);
	suite_report(&test->suite, ok, "what lies upon the copy of its disk goes on", "%s", answer);
	end(&machine, output);
	unlink(upper);
}

static void test_copied_disk(struct test *test)
{
	char upper[PATH_SIZE], answer[DEVICES_LINE_MAX] = "", output[MACHINE_OUTPUT_MAX];
	struct vmm_message reply = {.status = 0};
	struct snapshot_files files = {-1, -1, -1};
	struct machine machine;
	bool ok;

	name_file(test, "copied", upper);
	if (!boot(test, test->fs, upper, &machine))
		return;
	ok = answers(&machine, "mount /dev/vda\n", "mounted", answer);
	for (int i = 1; ok && i <= PUTS; i++)
		ok = put_file(&machine, i, answer);
	ok = ok && machine_ask(&machine, VMM_PAUSE, &reply);
	expect_no_room(test, &machine);
	ok = ok && snapshot_vm_save_as(&machine, VMM_SAVE_DISK, &files, &reply) == 0 && reply.arg2 > 0 &&
	     reply.arg2 < FS_BYTES && lseek(files.disk, 0, SEEK_END) == FS_BYTES &&
	     machine_ask(&machine, VMM_RESUME, &reply) && put_file(&machine, PUTS + 1, answer) &&
	     expect_files(&machine, PUTS + 1, answer);
	suite_report(&test->suite, ok, "a guest at work is saved with its disk, and goes on", "%d, %s: %s",
		reply.status, reply.text, answer);
	if (ok)
		expect_clone(test, &files);
	end(&machine, output);
	snapshot_files_close(&files);
	unlink(upper);
}

/* A template on a raw disk, which it has mounted: its clones have uppers of their own over that. */
static bool make_template(struct test *test, const char *disk, struct snapshot_files *files)
{
	const char *const cp[] = {"cp", "--sparse=always", test->fs, disk, NULL};
	char answer[DEVICES_LINE_MAX] = "";
	struct machine machine;
	bool ok = true;

	if (run(cp) != 0)
		die(disk);
	if (!boot(test, disk, NULL, &machine))
		return false;
	ok = answers(&machine, "mount /dev/vda\n", "mounted", answer);
	for (int i = 1; ok && i <= PUTS; i++)
		ok = put_file(&machine, i, answer);
	suite_report(&test->suite, ok, "a template has its disk mounted", "%s", answer);
	return ok && snapshot_vm_take(&test->suite, &machine, "a template is saved", files);
}

static void test_clones(struct test *test)
{
	char disk[PATH_SIZE], uppers[2][PATH_SIZE], answer[DEVICES_LINE_MAX] = "", output[MACHINE_OUTPUT_MAX];
	struct snapshot_files files;
	struct machine machines[2];
	uint64_t before;
	bool ok = true;

	name_file(test, "template", disk);
	name_file(test, "first", uppers[0]);
	name_file(test, "second", uppers[1]);
	if (!make_template(test, disk, &files))
		return;
	before = sum_file(disk);
	for (int i = 0; i < 2; i++)
		if (!snapshot_vm_restore(
			    &test->suite, &files, options_of(test, false, disk, uppers[i]), &machines[i]))
			exit(1);
	for (int i = 0; ok && i < 2 * PUTS; i++)
		ok = put_file(&machines[i % 2], PUTS + 1 + i / 2, answer);
	ok = ok && put_file(&machines[0], 2 * PUTS + 1, answer) &&
	     expect_files(&machines[0], 2 * PUTS + 1, answer) && expect_files(&machines[1], 2 * PUTS, answer);
	suite_report(&test->suite, ok, "clones have disks of their own", "%s", answer);
	suite_report(&test->suite, !expect_files(&machines[1], 2 * PUTS + 1, answer),
		"and see nothing of each other", "%s", answer);
	for (int i = 0; i < 2; i++)
		end(&machines[i], output);
	suite_report(&test->suite, sum_file(disk) == before, "over one lower file, which is as it was",
		"it differs");
	expect_refused(test, &files, "an upper that has blocks is not what the template had", disk, uppers[0],
		"--restore: disk 0 has not the content that it had");
	for (int i = 0; i < 2; i++)
		unlink(uppers[i]);
	snapshot_files_close(&files);
	unlink(disk);
}

static void make_lowers(struct test *test)
{
	const char *const mkfs[] = {
		"mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", test->fs, NULL};

	snprintf(test->folder, sizeof(test->folder), "/tmp/disk-XXXXXX");
	if (!mkdtemp(test->folder))
		die(test->folder);
	name_file(test, "fs", test->fs);
	name_file(test, "plain", test->plain);
	make_file(test->fs, FS_BYTES);
	make_file(test->plain, PLAIN_BYTES);
	if (run(mkfs) != 0)
		die("mkfs.ext4");
}

int main(int argc, char *argv[])
{
	struct test test = {.suite = {.memory = "64M"}};

	if (argc != 4) {
		fprintf(stderr, "usage: disk VMM KERNEL INITRAMFS\n");
		return 2;
	}
	test.suite.vmm = argv[1];
	test.suite.guests = argv[2];
	test.initramfs = argv[3];
	make_lowers(&test);
	test_kills(&test);
	test_full_host(&test);
	test_discard(&test);
	test_snapshot(&test);
	test_copied_disk(&test);
	test_clones(&test);
	unlink(test.fs);
	unlink(test.plain);
	rmdir(test.folder);
	return suite_end(&test.suite);
}
