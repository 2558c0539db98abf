/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What makes a clone's start short: the working set that is in place before its guest runs, and the vmm that
 * is in standby before it is wanted. TAP. Usage: standby VMM FOLDER-OF-GUESTS
 */
#include "common/io.h"
#include "common/working_set.h"
#include "tests/machine/snapshot_vm.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY = 16 << 20, WORKING_SET_PAGES = 100, TRACE_TEXT_MAX = 4 << 20 };

/* --- working sets --- */

static int make_working_set(uint64_t memory_bytes, uint64_t page)
{
	struct working_set *set = calloc(1, sizeof(*set));
	int fd = memfd_create("working-set", 0);

	if (fd < 0 || !set) {
		perror("working set");
		exit(1);
	}
	set->memory_bytes = memory_bytes;
	for (int kind = 0; kind < WORKING_SET_KINDS; kind++)
		for (uint64_t i = 0; i < WORKING_SET_PAGES; i++)
			working_set_add(set, (enum working_set_kind)kind, page + i);
	if (working_set_write(fd, set) < 0)
		perror("working set");
	free(set);
	return fd;
}

static void test_working_set(struct suite *suite, const struct snapshot_files *files)
{
	int good = make_working_set(MEMORY, 256), bad = make_working_set(2 * MEMORY, 256);
	struct machine machine;

	if (snapshot_vm_restore_with(suite, files, good, &machine)) {
		suite_report(suite, machine_gets_on(&machine), "a guest with a working set goes on",
			"it does not");
		kill(machine.pid, SIGTERM);
		machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
	}
	if (snapshot_vm_restore_with(suite, files, bad, &machine))
		machine_expect_end(suite, &machine, "another memory's working set", VMM_END_SETUP,
			"is of a memory of 33554432 bytes, not 16777216; leave working-set= out, or have it "
			"recorded "
			"again");
	fd_close(&good);
	fd_close(&bad);
}

/* --- standby --- */

static void test_standby_goes_on(struct suite *suite, const struct snapshot_files *files, int working_set)
{
	struct vmm_message order = {.arg0 = 3, .arg1 = VMM_RESTORE_WORKING_SET}, reply;
	const int fds[] = {files->state, files->memory, working_set};
	struct machine machine;

	if (!snapshot_vm_stand_by(suite, NULL, &machine))
		return;
	suite_report(suite, !machine_ask(&machine, VMM_PAUSE, &reply) && reply.status == -EBUSY,
		"a vmm in standby refuses what a VM is asked", "status %d", reply.status);
	suite_report(suite, snapshot_vm_order(&machine, &order, fds, 3) == 0 && machine_gets_on(&machine),
		"and restores what it is told to", "it does not");
	suite_report(suite, snapshot_vm_order(&machine, &order, fds, 3) == -EALREADY, "once", "again");
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
}

static void test_standby_is_held(struct suite *suite, const struct snapshot_files *files)
{
	struct vmm_message order = {.arg0 = 3, .arg1 = VMM_RESTORE_PAUSED}, reply = {.arg0 = 0};
	const int fds[] = {files->state, files->memory};
	struct machine machine;

	if (!snapshot_vm_stand_by(suite, NULL, &machine))
		return;
	suite_report(suite,
		snapshot_vm_order(&machine, &order, fds, 2) == 0 &&
			machine_ask(&machine, VMM_STATUS, &reply) && reply.arg0 == VMM_STATE_PAUSED,
		"one that is told to hold its guest does", "state %d", (int)reply.arg0);
	suite_report(suite,
		machine_ask(&machine, VMM_RESUME, &reply) && !reply.status && machine_gets_on(&machine),
		"and lets it run when it is told to", "status %d", reply.status);
	kill(machine.pid, SIGTERM);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
}

/* The trace of one that was in standby: of that, and of the restore after it. */
static void test_standby_is_traced(struct suite *suite, const struct snapshot_files *files)
{
	static const char *const words[] = {
		"\"kind\":\"standby\"", "\"name\":\"standby\"", "\"name\":\"resume\"", "\"hello_us\":null"};
	char path[] = "/tmp/standby-trace.XXXXXX", *text = calloc(1, TRACE_TEXT_MAX);
	const char *const options[] = {"--trace", path, NULL};
	struct vmm_message order = {.arg0 = 3};
	const int fds[] = {files->state, files->memory};
	int fd = mkstemp(path);
	struct machine machine;

	if (fd >= 0 && text && snapshot_vm_stand_by(suite, options, &machine)) {
		suite_report(suite,
			snapshot_vm_order(&machine, &order, fds, 2) == 0 && machine_gets_on(&machine),
			"a traced vmm in standby restores", "it does not");
		kill(machine.pid, SIGTERM);
		machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by SIGTERM");
		fd_close(&fd);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		if (fd >= 0 && io_read_full(fd, text, TRACE_TEXT_MAX - 1) < 0)
			text[0] = '\0';
		for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
			suite_report(
				suite, strstr(text, words[i]) != NULL, words[i], "it is not in the trace");
	}
	fd_close(&fd);
	unlink(path);
	free(text);
}

/* Its file is opened when the order comes. */
static void test_standby_cannot_be_traced(struct suite *suite, const struct snapshot_files *files)
{
	static const char *const options[] = {"--trace", "/nowhere/x", NULL};
	struct vmm_message order = {.arg0 = 3};
	const int fds[] = {files->state, files->memory};
	struct machine machine;

	if (!snapshot_vm_stand_by(suite, options, &machine))
		return;
	suite_report(suite, snapshot_vm_order(&machine, &order, fds, 2) == -ENOENT,
		"one whose trace has no folder refuses its order", "it does not");
	machine_expect_end(suite, &machine, "and ends", VMM_END_SETUP,
		"--trace /nowhere/x is in a folder that does not exist; check the path");
}

static void expect_order_refused(struct suite *suite, struct vmm_message order, const int *fds,
	unsigned count, int status, const char *name, const char *line)
{
	struct machine machine;
	int r;

	if (!snapshot_vm_stand_by(suite, NULL, &machine))
		return;
	r = snapshot_vm_order(&machine, &order, fds, count);
	suite_report(suite, r == status, name, "status %d", r);
	machine_expect_end(suite, &machine, name, VMM_END_SETUP, line);
}

static void test_orders_refused(struct suite *suite, const struct snapshot_files *files, int working_set)
{
	static const char none[] =
		"is no order to restore; send VMM_RESTORE as docs/control-protocol.md has it";
	const int fds[] = {files->state, files->memory, working_set};
	const int swapped[] = {files->memory, files->state};

	expect_order_refused(
		suite, (struct vmm_message){.arg0 = 2}, fds, 2, -EINVAL, "an address of others", none);
	expect_order_refused(
		suite, (struct vmm_message){.arg0 = UINT32_MAX}, fds, 2, -EINVAL, "an address of all", none);
	expect_order_refused(
		suite, (struct vmm_message){.arg0 = 3, .arg1 = 8}, fds, 2, -EINVAL, "an unknown flag", none);
	expect_order_refused(suite, (struct vmm_message){.arg0 = 3, .arg1 = VMM_RESTORE_WORKING_SET}, fds, 2,
		-EINVAL, "a working set that is not there", none);
	expect_order_refused(suite, (struct vmm_message){.arg0 = 3, .arg2 = 2}, fds, 3, -EINVAL,
		"a disk that is not there", none);
	expect_order_refused(suite, (struct vmm_message){.arg0 = 3, .arg3 = 1}, fds, 2, -EINVAL,
		"an upper that is not there", none);
	expect_order_refused(suite, (struct vmm_message){.arg0 = 3, .arg3 = 1}, fds, 3, -EINVAL,
		"an upper without its lower", none);
	expect_order_refused(suite, (struct vmm_message){.arg0 = 3}, swapped, 2, -EFBIG,
		"a state that is none",
		"--restore (state) cannot be read: File too large; give the state file of a snapshot");
	expect_order_refused(suite, (struct vmm_message){.arg0 = 4}, fds, 2, -EINVAL, "another address",
		"the guest has the vsock address 3; give --vsock-cid 3");
	expect_order_refused(suite, (struct vmm_message){.arg0 = 3, .arg2 = 1}, fds, 3, -EINVAL,
		"a disk that was not there", "has 48 bytes, not a multiple of 512; pad it to whole sectors");
}

static void test_standby_ends(struct suite *suite)
{
	struct vmm_message reply;
	struct machine machine;

	if (!snapshot_vm_stand_by(suite, NULL, &machine))
		return;
	fd_close(&machine.control);
	machine_expect_end(suite, &machine, "a vmm in standby that is left alone", VMM_END_KILLED,
		"ended in standby: nobody is left at the control socket");
	if (!snapshot_vm_stand_by(suite, NULL, &machine))
		return;
	suite_report(suite, machine_ask(&machine, VMM_KILL, &reply), "it is told to end", "status %d",
		reply.status);
	machine_expect_end(suite, &machine, "and ends", VMM_END_KILLED, "ended by the control socket");
}

static void test_clones(struct suite *suite)
{
	int working_set = make_working_set(MEMORY, 256);
	struct snapshot_files files;
	struct machine machine;

	if (machine_start(suite, "state", NULL, true, &machine) && machine_gets_on(&machine) &&
		snapshot_vm_take(suite, &machine, "a guest to clone", &files)) {
		test_working_set(suite, &files);
		test_standby_goes_on(suite, &files, working_set);
		test_standby_is_held(suite, &files);
		test_standby_is_traced(suite, &files);
		test_standby_cannot_be_traced(suite, &files);
		test_orders_refused(suite, &files, working_set);
		snapshot_files_close(&files);
	}
	test_standby_ends(suite);
	fd_close(&working_set);
}

int main(int argc, char *argv[])
{
	struct suite suite = {0};

	if (!suite_begin(&suite, argc, argv))
		return 2;
	test_clones(&suite);
	return suite_end(&suite);
}
