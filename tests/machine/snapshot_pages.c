/* SPDX-License-Identifier: Apache-2.0 */
/*
 * VMs that are saved by what differs from the memory they came from: any number of times, as one that is
 * woken and as many that are forked; and what is refused. TAP. Usage: snapshot_pages VMM FOLDER-OF-GUESTS
 */
#include "common/io.h"
#include "tests/machine/snapshot_vm.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	CYCLES = 20,
	CHILDREN = 20,
	MEMORY = 16 << 20,
	PAGE = 4096,
	HEADER = 4096, /* of the pages' file, with maps of so little memory */
	BASE_SUM = 32, /* where a state has the checksum of the memory */
	CID = 3,
};

static const char *const paused[] = {"--paused", NULL};

/* --- files --- */

static uint8_t *map(int fd, size_t *length)
{
	struct stat status = {.st_size = 0};
	uint8_t *bytes;

	(void)fstat(fd, &status);
	*length = (size_t)status.st_size;
	bytes = mmap(NULL, *length, PROT_READ, MAP_PRIVATE, fd, 0);
	if (bytes == MAP_FAILED) {
		perror("mmap");
		exit(1);
	}
	return bytes;
}

static bool same_file(int a, int b)
{
	size_t first_length, second_length;
	uint8_t *first = map(a, &first_length), *second = map(b, &second_length);
	bool same = first_length == second_length && memcmp(first, second, first_length) == 0;

	munmap(first, first_length);
	munmap(second, second_length);
	return same;
}

/* Bytes of the pages' file by comparing two whole memories. */
static size_t expected_bytes(int base, int memory)
{
	static const uint8_t zeros[PAGE];
	size_t length, bytes = HEADER;
	uint8_t *was = map(base, &length), *is = map(memory, &length);

	for (size_t at = 0; at < length; at += PAGE)
		if (memcmp(was + at, is + at, PAGE) != 0 && memcmp(is + at, zeros, PAGE) != 0)
			bytes += PAGE;
	munmap(was, length);
	munmap(is, length);
	return bytes;
}

static size_t size_of(int fd)
{
	struct stat status = {.st_size = 0};

	(void)fstat(fd, &status);
	return (size_t)status.st_size;
}

/* A file of its own with the same bytes, but one; sealed if `from` is. */
static int copy_with(int from, off_t where, uint8_t flip)
{
	int fd = memfd_create("copy", MFD_ALLOW_SEALING), seals = fcntl(from, F_GET_SEALS);
	size_t length;
	uint8_t *bytes = map(from, &length), byte = bytes[where] ^ flip;

	if (fd < 0 || io_pwrite_all(fd, bytes, length, 0) < 0 || pwrite(fd, &byte, 1, where) != 1 ||
		fcntl(fd, F_ADD_SEALS, seals) < 0) {
		perror("copy");
		exit(1);
	}
	munmap(bytes, length);
	return fd;
}

/* --- VMs --- */

static bool make_base(struct suite *suite, struct snapshot_files *base)
{
	struct snapshot_files none;
	struct vmm_message reply = {.status = 0};
	struct machine machine;

	if (!machine_start(suite, "churn", NULL, true, &machine))
		return false;
	if (!machine_gets_on(&machine)) {
		machine_expect_end(suite, &machine, "the guest that changes memory runs", -1, "");
		return false;
	}
	machine_ask(&machine, VMM_PAUSE, &reply);
	suite_report(suite,
		snapshot_vm_save_as(&machine, VMM_SAVE_PRIVATE, &none, &reply) == -ENODATA &&
			strstr(reply.text, "the VM has booted: its memory lies upon no other; save it whole"),
		"a VM that has booted has no private pages", "status %d: %s", reply.status, reply.text);
	suite_report(suite, size_of(none.state) == 0 && size_of(none.memory) == 0, "and its files stay empty",
		"%zu and %zu bytes", size_of(none.state), size_of(none.memory));
	snapshot_files_close(&none);
	suite_report(suite,
		snapshot_vm_save_as(&machine, 4, &none, &reply) == -EINVAL &&
			strstr(reply.text, "there is no such flag"),
		"a flag that nobody knows", "status %d: %s", reply.status, reply.text);
	snapshot_files_close(&none);
	suite_report(suite,
		snapshot_vm_save_as(&machine, VMM_SAVE_DISK, &none, &reply) == -ENODEV &&
			strstr(reply.text, "the VM has 0 copy-on-write disks, not one"),
		"a disk that there is not", "status %d: %s", reply.status, reply.text);
	snapshot_files_close(&none);
	return snapshot_vm_take(suite, &machine, "a memory to lie upon", base);
}

static void end(struct suite *suite, struct machine *machine, const char *name)
{
	kill(machine->pid, SIGTERM);
	machine_expect_end(suite, machine, name, VMM_END_KILLED, "ended by SIGTERM");
}

/* Without a word when all is well. */
static void drop(struct machine *machine)
{
	char output[MACHINE_OUTPUT_MAX];

	kill(machine->pid, SIGKILL);
	machine_finish(machine, output);
}

/* Both forms of one moment. */
static bool save_both(struct machine *machine, struct snapshot_files *whole, struct snapshot_files *private)
{
	struct vmm_message reply;

	return snapshot_vm_save_as(machine, 0, whole, &reply) == 0 &&
	       snapshot_vm_save_as(machine, VMM_SAVE_PRIVATE, private, &reply) == 0 &&
	       reply.arg1 == size_of(private->memory);
}

static bool await_paused(struct machine *machine)
{
	struct vmm_message event;

	return machine_await_state(machine, VMM_STATE_PAUSED, &event);
}

/*
 * A clone of the base is saved and restored again and again; each generation's memory is the last one's, page
 * by page, and its file has what differs from the base and no more.
 */
static void test_cycles(struct suite *suite, const struct snapshot_files *base, struct snapshot_files *last)
{
	struct snapshot_files whole = {-1, -1, -1}, private = whole, again, again_private;
	struct vmm_message reply;
	struct machine machine;
	size_t bytes = 0, wanted = 0;
	bool same = true, identical = true, ok = true;
	int i = 0;

	if (!snapshot_vm_restore(suite, base, paused, &machine) || !await_paused(&machine))
		return;
	for (; ok && i < CYCLES; i++) {
		ok = machine_ask(&machine, VMM_RESUME, &reply) && machine_gets_on(&machine) &&
		     machine_ask(&machine, VMM_PAUSE, &reply);
		snapshot_files_close(&whole);
		snapshot_files_close(&private);
		ok = ok && save_both(&machine, &whole, &private);
		drop(&machine);
		bytes = size_of(private.memory);
		wanted = expected_bytes(base->memory, whole.memory);
		/* As a fork has it, and as a file on a disk. */
		if (i % 2 == 0)
			snapshot_files_seal(&private);
		ok = ok && bytes == wanted &&
		     snapshot_vm_restore_upon(suite, base->memory, &private, paused, &machine) &&
		     await_paused(&machine) && save_both(&machine, &again, &again_private);
		same = ok && same_file(whole.memory, again.memory);
		identical = ok && same_file(private.memory, again_private.memory);
		ok = same && identical;
		snapshot_files_close(&again);
		snapshot_files_close(&again_private);
	}
	suite_report(suite, ok, "20 cycles of private pages, and the guest finds its memory as it left it",
		"cycle %d: %zu bytes, %zu wanted, memory %d, pages %d", i, bytes, wanted, same, identical);
	printf("# %zu bytes of private pages, %zu of state; memory has %d\n", bytes, size_of(private.state),
		MEMORY);
	suite_report(suite, machine_ask(&machine, VMM_RESUME, &reply) && machine_gets_on(&machine),
		"and goes on in the end", "it does not");
	end(suite, &machine, "and ends");
	snapshot_files_close(&whole);
	*last = private;
}

/* One that goes on, and many of its moment that share its pages. */
static void test_fork(struct suite *suite, const struct snapshot_files *base)
{
	struct machine parent, children[CHILDREN];
	struct snapshot_files files = {-1, -1, -1};
	struct vmm_message reply = {.status = 0};
	int started = 0, run = 0;
	bool ok;

	if (!snapshot_vm_restore(suite, base, NULL, &parent))
		return;
	ok = machine_gets_on(&parent) && machine_ask(&parent, VMM_PAUSE, &reply) &&
	     snapshot_vm_save_as(&parent, VMM_SAVE_PRIVATE, &files, &reply) == 0 &&
	     machine_ask(&parent, VMM_RESUME, &reply);
	suite_report(suite, ok, "a fork: the parent is saved and goes on", "status %d: %s", reply.status,
		reply.text);
	snapshot_files_seal(&files);
	while (ok && started < CHILDREN &&
		snapshot_vm_restore_upon(suite, base->memory, &files, NULL, &children[started]))
		started++;
	snapshot_files_close(&files);
	for (int i = 0; i < started; i++)
		run += machine_gets_on(&children[i]);
	suite_report(suite, run == CHILDREN, "and each of 20 children runs", "%d of %d do", run, started);
	suite_report(suite, machine_gets_on(&parent), "and so does the parent", "it does not");
	/* A child can be a parent. */
	ok = started > 0 && machine_ask(&children[0], VMM_PAUSE, &reply) &&
	     snapshot_vm_save_as(&children[0], VMM_SAVE_PRIVATE, &files, &reply) == 0;
	for (int i = 0; i < started; i++)
		drop(&children[i]);
	ok = ok && snapshot_vm_restore_upon(suite, base->memory, &files, NULL, &children[0]) &&
	     machine_gets_on(&children[0]);
	suite_report(suite, ok, "and a child's child", "status %d: %s", reply.status, reply.text);
	if (ok)
		end(suite, &children[0], "which ends");
	end(suite, &parent, "and the parent ends");
	snapshot_files_close(&files);
}

/* --- refused --- */

static void expect_refused(
	struct suite *suite, int base, const struct snapshot_files *files, const char *name, const char *line)
{
	struct machine machine;

	if (snapshot_vm_restore_upon(suite, base, files, NULL, &machine))
		machine_expect_end(suite, &machine, name, VMM_END_SETUP, line);
}

static void expect_pages_refused(struct suite *suite, int base, const struct snapshot_files *files,
	off_t where, const char *name, const char *line)
{
	struct snapshot_files changed = {.state = files->state};

	changed.memory = copy_with(files->memory, where, 1);
	expect_refused(suite, base, &changed, name, line);
	fd_close(&changed.memory);
}

static void test_refused(
	struct suite *suite, const struct snapshot_files *base, const struct snapshot_files *files)
{
	int other = copy_with(base->memory, 5 << 20, 1);
	struct snapshot_files cut = {.state = files->state}, whole = {.state = base->state};
	struct machine machine;

	if (snapshot_vm_restore(suite, files, NULL, &machine))
		machine_expect_end(suite, &machine, "private pages without what they lie upon", VMM_END_SETUP,
			"is of a VM that was saved by what differs from another memory; give pages=");
	whole.memory = files->memory;
	expect_refused(suite, base->memory, &whole, "pages upon a memory that is whole",
		"is of a VM that was saved whole; leave out pages=");
	expect_refused(suite, other, files, "another memory under the pages, sealed or not",
		"is damaged, or not the one that lies under this state: its checksum is another; give the "
		"memory that the VM of fd:");
	expect_pages_refused(suite, base->memory, files, 0, "no pages",
		"is not a file of private pages; give the pages that were saved with fd:");
	expect_pages_refused(suite, base->memory, files, 8, "pages of another version",
		"has version 0 of the format and this vmm knows version 1");
	expect_pages_refused(suite, base->memory, files, 100, "maps that are damaged",
		"the checksum of its maps is another");
	expect_pages_refused(suite, base->memory, files, HEADER + 5, "a page that is damaged",
		"the checksum of its pages is another");
	cut.memory = copy_with(files->memory, 0, 0);
	expect_refused(suite, cut.memory, files, "a memory of another size under the pages",
		" bytes, not 16777216; give the memory that the VM of fd:");
	if (ftruncate(cut.memory, (off_t)size_of(files->memory) - PAGE) < 0)
		perror("ftruncate");
	expect_refused(suite, base->memory, &cut, "pages that were cut off", " bytes, not ");
	fd_close(&cut.memory);
	fd_close(&other);
}

/* --- standby --- */

static void expect_order(struct suite *suite, struct vmm_message order, const int *fds, unsigned count,
	int status, const char *name, const char *line)
{
	struct machine machine;
	int r;

	if (!snapshot_vm_stand_by(suite, NULL, &machine))
		return;
	r = snapshot_vm_order(&machine, &order, fds, count);
	suite_report(suite, r == status && (r < 0 || machine_gets_on(&machine)), name, "status %d", r);
	if (r < 0)
		machine_expect_end(suite, &machine, name, VMM_END_SETUP, line);
	else
		end(suite, &machine, "and it ends");
}

static void tell_sum(struct vmm_message *order, uint64_t sum)
{
	snprintf(order->text, sizeof(order->text), "%016llx", (unsigned long long)sum);
}

/* Whoever has sealed the memory says which it is, so that nobody needs to read it. */
static void test_standby(
	struct suite *suite, const struct snapshot_files *base, const struct snapshot_files *files)
{
	const int fds[] = {files->state, base->memory, files->memory};
	struct vmm_message order = {.arg0 = CID, .arg1 = VMM_RESTORE_PAGES};
	uint64_t sum = 0;

	if (pread(files->state, &sum, sizeof(sum), BASE_SUM) != sizeof(sum))
		perror("state");
	expect_order(suite, order, fds, 3, 0, "in standby: a memory that nobody vouches for is read", "");
	tell_sum(&order, sum);
	expect_order(suite, order, fds, 3, 0, "and one that is vouched for is taken", "");
	tell_sum(&order, sum + 1);
	expect_order(suite, order, fds, 3, -EINVAL, "and one that is another is refused",
		"(memory) is not the one that lies under this state: its checksum is ");
	order = (struct vmm_message){.arg0 = CID};
	tell_sum(&order, sum);
	expect_order(suite, order, fds, 2, -EINVAL, "a checksum without pages", "is no order to restore");
	order = (struct vmm_message){.arg0 = CID, .arg1 = VMM_RESTORE_PAGES, .text = "0123456789abcdeg"};
	expect_order(suite, order, fds, 3, -EINVAL, "a checksum that is none", "is no order to restore");
	memset(order.text, 'f', sizeof(order.text));
	expect_order(suite, order, fds, 3, -EINVAL, "a checksum without an end", "is no order to restore");
	order = (struct vmm_message){.arg0 = CID, .arg1 = VMM_RESTORE_PAGES};
	expect_order(suite, order, fds, 2, -EINVAL, "pages that are not there", "is no order to restore");
}

int main(int argc, char *argv[])
{
	struct snapshot_files base, last = {-1, -1, -1};
	struct suite suite = {0};

	if (!suite_begin(&suite, argc, argv))
		return 2;
	if (make_base(&suite, &base)) {
		snapshot_files_seal(&base);
		test_cycles(&suite, &base, &last);
		test_fork(&suite, &base);
		test_refused(&suite, &base, &last);
		test_standby(&suite, &base, &last);
		snapshot_files_close(&base);
		snapshot_files_close(&last);
	}
	return suite_end(&suite);
}
