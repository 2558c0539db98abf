/* SPDX-License-Identifier: Apache-2.0 */
/* The bounds of a VM after a save: a cgroup that is a folder of plain files, and no process. */
#include "tests/support/unit.h"

#include "common/io.h"
#include "host-ctl/vm/vm_private.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Of as many digits each, for a file that is written keeps what is behind. */
enum { BOUND = 3000000, WIDE = 7000000 };

struct group {
	char folder[64];
	struct cgroup_tree tree;
	struct vm_config config;
	struct vm_source source;
	struct vm vm;
};

static void put(const struct group *g, const char *name, const char *text)
{
	int fd = openat(g->vm.group, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	assert_true(fd >= 0);
	assert_int_equal(io_write_all(fd, text, strlen(text)), 0);
	fd_close(&fd);
}

static void put_number(const struct group *g, const char *name, uint64_t number)
{
	char text[32];

	snprintf(text, sizeof text, "%llu", (unsigned long long)number);
	put(g, name, text);
}

static uint64_t bound(const struct group *g)
{
	uint64_t bytes = 0;

	assert_int_equal(cgroup_memory(&g->tree, g->vm.group, &bytes), 0);
	return bytes;
}

/* As the kernel tells it, the first lines. */
static void use(const struct group *g, uint64_t current, uint64_t file, uint64_t shmem, uint64_t dirty)
{
	char text[160];

	put_number(g, "memory.current", current);
	snprintf(text, sizeof text,
		"anon 1\nfile %llu\nkernel 2\nshmem %llu\nfile_dirty %llu\nfile_writeback 5\n",
		(unsigned long long)file, (unsigned long long)shmem, (unsigned long long)dirty);
	put(g, "memory.stat", text);
}

static int set_up(void **state)
{
	struct group *g = calloc(1, sizeof *g);

	assert_non_null(g);
	snprintf(g->folder, sizeof g->folder, "/tmp/tinderbox-unit.XXXXXX");
	assert_non_null(mkdtemp(g->folder));
	g->tree = (struct cgroup_tree){.fd = -1, .limits = true};
	g->config = (struct vm_config){.cgroups = &g->tree, .loop = loop_create()};
	assert_non_null(g->config.loop);
	g->vm = (struct vm){.state = VM_OWNED,
		.config = &g->config,
		.source = &g->source,
		.saves = true,
		.control = -1,
		.group = open(g->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
	assert_true(g->vm.group >= 0);
	g->vm.timer = loop_add_timer(g->config.loop, NULL, NULL);
	assert_non_null(g->vm.timer);
	put_number(g, "memory.max", WIDE);
	*state = g;
	return 0;
}

static int tear_down(void **state)
{
	static const char *const names[] = {"memory.max", "memory.current", "memory.stat"};
	struct group *g = *state;

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		unlinkat(g->vm.group, names[i], 0);
	fd_close(&g->vm.group);
	loop_remove(g->vm.timer);
	loop_destroy(g->config.loop);
	assert_int_equal(rmdir(g->folder), 0);
	free(g);
	return 0;
}

static void test_what_it_cannot_be_without(void **state)
{
	struct group *g = *state;
	uint64_t bytes;

	use(g, 1000, 600, 100, 50);
	assert_int_equal(cgroup_memory_held(&g->tree, g->vm.group, &bytes), 0);
	assert_int_equal(bytes, 1000 - (600 - 100 - 50 - 5));
	/* More in files of memory than in the page cache there cannot be: nothing is free then. */
	use(g, 1000, 100, 600, 0);
	assert_int_equal(cgroup_memory_held(&g->tree, g->vm.group, &bytes), 0);
	assert_int_equal(bytes, 1000);
	unlinkat(g->vm.group, "memory.stat", 0);
	assert_int_equal(cgroup_memory_held(&g->tree, g->vm.group, &bytes), -ENOENT);
	g->tree.limits = false;
	assert_int_equal(cgroup_memory_held(&g->tree, g->vm.group, &bytes), 0);
	assert_int_equal(bytes, 0);
}

/* The kernel would end the vmm for the page cache that is left. */
static void test_the_bound_waits_for_the_page_cache(void **state)
{
	struct group *g = *state;

	g->vm.former_group_bytes = BOUND;
	use(g, BOUND + 1000, 900, 800, 0);
	vm_end_save(&g->vm);
	assert_false(g->vm.saves);
	assert_int_equal(bound(g), WIDE);
	use(g, BOUND + 1000, 900, 0, 895);
	vm_time_is_up(&g->vm);
	assert_int_equal(bound(g), WIDE);
	assert_int_equal(g->vm.state, VM_OWNED);
	use(g, BOUND, 0, 0, 0);
	vm_time_is_up(&g->vm);
	assert_int_equal(bound(g), BOUND);
	assert_int_equal(g->vm.former_group_bytes, 0);
	/* Then it is over. */
	put_number(g, "memory.max", WIDE);
	vm_time_is_up(&g->vm);
	assert_int_equal(bound(g), WIDE);
}

static void test_it_does_not_wait_for_ever(void **state)
{
	struct group *g = *state;

	g->vm.former_group_bytes = BOUND;
	use(g, WIDE, 0, 0, 0);
	for (int i = 0; i < VM_NARROW_TRIES; i++)
		vm_end_save(&g->vm);
	assert_int_equal(bound(g), WIDE);
	vm_end_save(&g->vm);
	assert_int_equal(bound(g), BOUND);
}

/* Its daemon was killed as it saved. */
static void test_one_that_was_taken_back(void **state)
{
	struct group *g = *state;
	const uint64_t guest = 64 << 20;

	use(g, 1, 0, 0, 0);
	vm_know_memory(&g->vm, guest, BOUND);
	assert_int_equal(g->vm.memory_bytes, guest);
	/* It may be at work on a save still. */
	assert_int_not_equal(bound(g), BOUND);
	vm_end_save(&g->vm);
	assert_int_equal(bound(g), BOUND);
	put_number(g, "memory.max", 300000000);
	vm_know_memory(&g->vm, guest, 0);
	vm_end_save(&g->vm);
	assert_int_equal(bound(g), guest + VM_MEMORY_OVERHEAD);
	/* A bound that is narrower stays. */
	put_number(g, "memory.max", 100000000);
	vm_know_memory(&g->vm, guest, 0);
	assert_int_equal(bound(g), 100000000);
	/* So does one of a guest of which nothing is known. */
	put_number(g, "memory.max", 900000000);
	vm_know_memory(&g->vm, 0, 0);
	assert_int_equal(bound(g), 900000000);
}

/* A VM that ends has other uses for its timer, and its cgroup goes. */
static void test_one_that_ends(void **state)
{
	struct group *g = *state;

	g->vm.former_group_bytes = BOUND;
	use(g, 1, 0, 0, 0);
	g->vm.state = VM_ENDING;
	vm_end_save(&g->vm);
	assert_int_equal(bound(g), WIDE);
}

/* A save whose reply is waited for. */
struct asked {
	struct vm_save save;
	int replies, status;
};

static void replied(struct vm_request *request, int status, int fd)
{
	struct asked *asked = (struct asked *)request;

	assert_int_equal(fd, -1);
	asked->replies++;
	asked->status = status;
}

/* What is asked for on the control socket, with its files: their number. */
static size_t take_request(int socket, struct vmm_message *message)
{
	int fds[IO_FDS_MAX];
	size_t count = IO_FDS_MAX;

	assert_int_equal(io_receive_fds(socket, message, sizeof *message, fds, &count), sizeof *message);
	for (size_t i = 0; i < count; i++)
		fd_close(&fds[i]);
	return count;
}

/* What its vmm writes of the disk is in its cgroup's page cache, too. */
static void test_a_whole_save_has_room_for_the_disk(void **state)
{
	/* Of as many digits as any bound of this test. */
	const uint64_t former = 3000000000, disk_bytes = UINT64_C(1) << 30;
	struct group *g = *state;
	struct asked asked = {.save.request.replied = replied};
	struct vm_save_files files = {.disk_bytes = disk_bytes};
	struct vmm_message message;
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	g->vm.control = pair[0];
	g->vm.saves = false;
	g->vm.memory_bytes = 64 << 20;
	put_number(g, "memory.max", former);
	use(g, 1, 0, 0, 0);
	files.state = files.memory = files.disk = g->vm.group;
	assert_int_equal(vm_ask_save_whole(&g->vm, &files, &asked.save), 0);
	assert_int_equal(bound(g), former + vm_save_bytes_max(&g->vm) + disk_bytes);
	assert_int_equal(take_request(pair[1], &message), 3);
	assert_int_equal(message.type, VMM_SAVE);
	assert_int_equal(message.arg0, VMM_SAVE_DISK);
	/* One at a time. */
	assert_int_equal(vm_ask_save_whole(&g->vm, &files, &asked.save), -EAGAIN);
	message = (struct vmm_message){
		.type = VMM_SAVE | VMM_REPLY, .sequence = message.sequence, .arg0 = 1, .arg1 = 2, .arg2 = 3};
	vm_owned_replied(&g->vm, &message, -1);
	assert_true(asked.replies == 1 && asked.status == 0);
	assert_true(
		asked.save.state_bytes == 1 && asked.save.memory_bytes == 2 && asked.save.disk_bytes == 3);
	assert_int_equal(bound(g), former);
	/* Without a disk there are two files. */
	files.disk = -1;
	assert_int_equal(vm_ask_save_whole(&g->vm, &files, &asked.save), 0);
	assert_int_equal(bound(g), former + vm_save_bytes_max(&g->vm));
	assert_int_equal(take_request(pair[1], &message), 2);
	assert_int_equal(message.arg0, 0);
	fd_close(&pair[0]);
	fd_close(&pair[1]);
	g->vm.control = -1;
}

/* What is read of a slow disk before the guest runs may take its time. */
static void test_time_to_read_what_was_saved(void **state)
{
	struct group *g = *state;

	g->config.boot_timeout_ms = VM_BOOT_TIMEOUT_MS;
	g->source.memory_bytes = UINT64_C(4) << 30;
	assert_int_equal(vm_boot_timeout_ms(&g->vm), 30000);
	/* Whoever it will be: also of a fork's children. */
	g->source.reads_memory = true;
	assert_int_equal(vm_boot_timeout_ms(&g->vm), 30000 + (4 << 20) / 32);
	g->source.pages_bytes = 64 << 20;
	assert_int_equal(vm_boot_timeout_ms(&g->vm), 30000 + (4 << 20) / 32 + 2048);
	/* Of a template that is loaded only what lies upon it. */
	g->source.reads_memory = false;
	g->source.memory_sum = "0123456789abcdef";
	assert_int_equal(vm_boot_timeout_ms(&g->vm), 30000 + 2048);
}

#define WITH_GROUP(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_GROUP(test_what_it_cannot_be_without),
		WITH_GROUP(test_the_bound_waits_for_the_page_cache),
		WITH_GROUP(test_it_does_not_wait_for_ever),
		WITH_GROUP(test_one_that_was_taken_back),
		WITH_GROUP(test_one_that_ends),
		WITH_GROUP(test_a_whole_save_has_room_for_the_disk),
		WITH_GROUP(test_time_to_read_what_was_saved),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
