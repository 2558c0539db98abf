/* SPDX-License-Identifier: Apache-2.0 */
/* Room for one more VM: memory by a /proc/meminfo of our own, fds by this process's own limit. */
#include "tests/support/unit.h"

#include "host-ctl/pool/room.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define MIB (UINT64_C(1) << 20)

static const struct vm_source clone_source = {.state = {"state", "state"}, .memory_bytes = 128 * MIB};
static const struct vm_source boot_source = {.kernel = {"kernel", "kernel"}, .memory_bytes = 128 * MIB};

static void begin(struct room *room, char path[32], const char *meminfo)
{
	int fd;

	strcpy(path, "/tmp/tinderbox-unit.XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, meminfo, strlen(meminfo)), strlen(meminfo));
	close(fd);
	room_init(room, -1, 128 * MIB);
	room->meminfo = path;
}

static void end(struct room *room, const char *path)
{
	room_finish(room);
	assert_int_equal(unlink(path), 0);
}

static void test_what_a_vm_is_expected_to_touch(void **state)
{
	struct vm_source large = clone_source;

	(void)state;
	assert_int_equal(room_expected_bytes(&clone_source), 16 * MIB);
	assert_int_equal(room_expected_bytes(&boot_source), 32 * MIB);
	large.memory_bytes = 4096 * MIB;
	assert_int_equal(room_expected_bytes(&large), 256 * MIB);
	large.state.path = NULL;
	assert_int_equal(room_expected_bytes(&large), 1024 * MIB);
}

/* 144 MiB are a clone and the reserve; 143 are a clone that somebody waits for. */
static void test_refills_stop_first(void **state)
{
	struct room room;
	struct error error;
	char path[32];

	(void)state;
	begin(&room, path, "MemTotal: 999999 kB\nMemFree: 5 kB\nMemAvailable:   147456 kB\nBuffers: 1 kB\n");
	assert_int_equal(room_available_bytes(&room), 144 * MIB);
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	assert_int_equal(error.kind, ERROR_NONE);
	assert_int_equal(room_check(&room, &boot_source, false, &error), -1);
	assert_int_equal(room_check(&room, &boot_source, true, &error), 0);
	end(&room, path);
	begin(&room, path, "MemAvailable: 147455 kB\n");
	assert_int_equal(room_check(&room, &clone_source, false, &error), -1);
	assert_int_equal(error.kind, ERROR_EXHAUSTED);
	assert_string_equal(error.message,
		"no room for one more VM: 143 MiB of memory can be had, 0 MiB of it are promised to VMs that "
		"start, 16 MiB are wanted and 128 MiB kept free: let runs end, lower the targets of pools, "
		"give the host or its cgroup more memory, or a smaller --reserve");
	assert_int_equal(room_check(&room, &clone_source, true, &error), 0);
	end(&room, path);
	begin(&room, path, "MemAvailable: 81919 kB\n");
	assert_int_equal(room_check(&room, &clone_source, true, &error), -1);
	assert_non_null(strstr(error.message, "79 MiB of memory can be had"));
	assert_non_null(strstr(error.message, "64 MiB kept free"));
	end(&room, path);
}

static void test_promises_count(void **state)
{
	struct room room;
	struct error error;
	char path[32];

	(void)state;
	begin(&room, path, "MemAvailable: 163840 kB\n");
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	room_enter(&room, 16 * MIB);
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	room_enter(&room, 16 * MIB);
	assert_int_equal(room_check(&room, &clone_source, false, &error), -1);
	assert_non_null(strstr(error.message, "160 MiB of memory can be had, 32 MiB of it are promised"));
	/* Warm, and then gone. */
	room_settle(&room, 16 * MIB);
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	room_leave(&room);
	room_settle(&room, 16 * MIB);
	room_leave(&room);
	assert_int_equal(room.promised_bytes, 0);
	assert_int_equal(room.vms, 0);
	/* More is promised than there is. */
	room_enter(&room, 1024 * MIB);
	assert_int_equal(room_check(&room, &clone_source, true, &error), -1);
	end(&room, path);
}

static void test_what_cannot_be_read_is_no_limit(void **state)
{
	struct room room;
	struct error error;
	char path[32];

	(void)state;
	begin(&room, path, "MemFree: 5 kB\n");
	assert_true(room_available_bytes(&room) == UINT64_MAX);
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	room.meminfo = "/nowhere/meminfo";
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	end(&room, path);
	begin(&room, path, "MemAvailable: 0 kB\n");
	assert_int_equal(room_check(&room, &clone_source, true, &error), -1);
	room.reserve_bytes = 0;
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	end(&room, path);
	memset(&room, 0, sizeof room);
	room_finish(&room);
}

static void limit_files(rlim_t maximum)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = maximum;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void test_fds(void **state)
{
	struct room room;
	struct error error;
	struct rlimit before;
	int fds[64];
	char path[32];

	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	begin(&room, path, "MemAvailable: 999999 kB\n");
	limit_files(ROOM_VM_FDS + ROOM_OTHER_FDS);
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	limit_files(250);
	assert_int_equal(room_check(&room, &clone_source, false, &error), 0);
	limit_files(130);
	assert_int_equal(room_check(&room, &clone_source, false, &error), -1);
	assert_int_equal(error.kind, ERROR_EXHAUSTED);
	assert_int_equal(strncmp(error.message, "no room for one more VM: the daemon may open 1", 46), 0);
	assert_non_null(strstr(error.message, " more files, 16 are wanted and 128 kept free: let runs end"));
	assert_int_equal(room_check(&room, &clone_source, true, &error), 0);
	/* Those that are open count. */
	for (int i = 0; i < 64; i++)
		fds[i] = dup(0);
	for (int i = 0; i < 64; i++)
		assert_true(fds[i] >= 0);
	limit_files(110);
	assert_int_equal(room_check(&room, &clone_source, true, &error), -1);
	assert_non_null(strstr(error.message, "16 are wanted and 32 kept free"));
	for (int i = 0; i < 64; i++)
		close(fds[i]);
	assert_int_equal(room_check(&room, &clone_source, true, &error), 0);
	limit_files(before.rlim_cur);
	end(&room, path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_a_vm_is_expected_to_touch),
		cmocka_unit_test(test_refills_stop_first),
		cmocka_unit_test(test_promises_count),
		cmocka_unit_test(test_what_cannot_be_read_is_no_limit),
		cmocka_unit_test(test_fds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
