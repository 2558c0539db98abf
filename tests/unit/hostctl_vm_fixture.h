/* SPDX-License-Identifier: Apache-2.0 */
/* A place to start VMs in without a daemon, with tests/fake-vmm in place of the vmm. */
#ifndef TESTS_UNIT_HOSTCTL_VM_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_VM_FIXTURE_H

#include "tests/unit/hostctl_fixture.h"

#include "common/loop.h"
#include "host-ctl/vm/vm.h"

static inline int count_fds(void)
{
	return count_entries("/proc/self/fd", "");
}

/* A place to start VMs in, and what must be there again after each start. */
struct place {
	struct daemon daemon; /* its folders only */
	struct cgroup_tree cgroups;
	struct vm_config config;
	struct vm_source source;
	struct vm_order order;
	char kernel[96], initrd[96], image[96];
	int fds;
};

static inline void place_init(struct place *place)
{
	struct error error;

	*place = (struct place){
		.config = {
			.vmm = FAKE_VMM, .kvm = "/dev/null", .uid_base = 700000, .boot_timeout_ms = WAIT_MS}};
	daemon_folder(&place->daemon);
	write_text(place->daemon.folder, "kernel", "boot");
	snprintf(place->kernel, sizeof place->kernel, "%s/kernel", place->daemon.folder);
	snprintf(place->initrd, sizeof place->initrd, "%s/initrd", place->daemon.folder);
	snprintf(place->image, sizeof place->image, "%s/image", place->daemon.folder);
	place->source = (struct vm_source){.kernel = {place->kernel, place->kernel},
		.initrd = {place->initrd, place->initrd},
		.image = {place->image, place->image},
		.size = "128M",
		.memory_bytes = 128 << 20,
		.cpus = 1};
	place->order = (struct vm_order){.source = &place->source};
	place->config.socket_directory = place->daemon.folder;
	place->config.cgroups = &place->cgroups;
	assert_int_equal(cgroup_tree_open(&place->cgroups, place->daemon.cgroups, false, &error), 0);
	place->config.loop = loop_create();
	assert_non_null(place->config.loop);
	place->fds = count_fds();
}

static inline void place_check(const struct place *place)
{
	assert_int_equal(loop_turn(place->config.loop, 0), 0);
	assert_int_equal(count_fds(), place->fds);
	assert_int_equal(count_entries(place->daemon.cgroups, "vm-"), 0);
	assert_int_equal(count_entries(place->daemon.folder, "vm-"), 0);
}

static inline void place_finish(struct place *place)
{
	loop_destroy(place->config.loop);
	cgroup_tree_close(&place->cgroups);
	remove_folder(place->daemon.folder);
	assert_int_equal(rmdir(place->daemon.cgroups), 0);
}

#endif
