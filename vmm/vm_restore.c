/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Restoring. All records are found first, so that a file that lacks one is refused before anything is made;
 * then each part takes its own.
 */
#include "common/log.h"
#include "vmm/config_options.h"
#include "vmm/cpuid_x86_64.h"
#include "vmm/prefault.h"
#include "vmm/vcpu_state_x86_64.h"
#include "vmm/virtio/mmio.h"
#include "vmm/virtio/virtio.h"
#include "vmm/vm_snapshot.h"
#include <errno.h>
#include <inttypes.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_ids.h>
#include <linux/virtio_net.h>
#include <linux/virtio_vsock.h>
#include <stdlib.h>
#include <string.h>

struct vm_snapshot {
	uint8_t *data; /* the state file; the readers below read it */
	const char *state_name, *memory_name;
	int memory_fd;
	struct snapshot_memory memory;
	struct working_set *working_set; /* NULL: none */
	struct vm_shape shape;
	struct state_reader clock, vcpus[LAYOUT_CPUS_MAX], ioapic, serial, devices[LAYOUT_VIRTIO_MAX];
};

/* --- before KVM is touched --- */

static int refuse_record(const struct vm_snapshot *snapshot, const char *what)
{
	log_error("--restore %s: what it says of the %s is not possible; take another snapshot",
		snapshot->state_name, what);
	return -EBADMSG;
}

static int find_records(struct vm_snapshot *snapshot, struct state_reader *records)
{
	struct state_reader machine;

	state_get_record(records, SNAPSHOT_MACHINE, &machine);
	vm_shape_get(&machine, &snapshot->shape);
	if (state_reader_finish(&machine) < 0)
		return refuse_record(snapshot, "machine");
	state_get_record(records, SNAPSHOT_CLOCK, &snapshot->clock);
	for (unsigned i = 0; i < snapshot->shape.cpus; i++)
		state_get_record(records, SNAPSHOT_VCPU, &snapshot->vcpus[i]);
	state_get_record(records, SNAPSHOT_IOAPIC, &snapshot->ioapic);
	state_get_record(records, SNAPSHOT_SERIAL, &snapshot->serial);
	for (unsigned i = 0; i < snapshot->shape.device_count; i++)
		state_get_record(records, SNAPSHOT_DEVICE, &snapshot->devices[i]);
	return state_reader_finish(records) < 0 ? refuse_record(snapshot, "order of its records") : 0;
}

static int read_state(struct vm_snapshot *snapshot, int fd)
{
	char why[SNAPSHOT_WHY_MAX];
	struct state_reader records;
	size_t length;
	int r = snapshot_read_file(fd, &snapshot->data, &length);

	if (r < 0) {
		log_error("--restore %s cannot be read: %s; give the state file of a snapshot",
			snapshot->state_name, strerror(-r));
		return r;
	}
	r = snapshot_parse(snapshot->data, length, &snapshot->memory, &records, why);
	if (r < 0) {
		log_error("--restore %s %s; %s", snapshot->state_name, why,
			r == -EINVAL	? "give the state file of a snapshot"
			: r == -ENOTSUP ? "use the vmm that wrote it"
					: "copy it again, or take another snapshot");
		return r;
	}
	return find_records(snapshot, &records);
}

static uint64_t memory_of(const struct vm_shape *shape)
{
	uint64_t size = 0;

	for (unsigned i = 0; i < shape->region_count; i++)
		size += shape->regions[i].size;
	return size;
}

/* The memory must be as guest_memory_init would lay it out. */
static bool layout_exists(const struct vm_shape *shape)
{
	uint64_t size = memory_of(shape);
	uint64_t first = size < GUEST_HOLE_START ? size : GUEST_HOLE_START;

	if (size < LAYOUT_MEMORY_MIN || size > LAYOUT_MEMORY_MAX || size % CONFIG_MEMORY_UNIT != 0)
		return false;
	if (shape->regions[0].base != 0 || shape->regions[0].size != first)
		return false;
	return shape->region_count == (size > first ? 2u : 1u) &&
	       (size == first || shape->regions[1].base == GUEST_HOLE_END);
}

/* What was given must be the snapshot's; what was not is taken from there. */
static int complete_config(const struct vm_snapshot *snapshot, struct config *config)
{
	const struct vm_shape *shape = &snapshot->shape;
	char has[CONFIG_SIZE_TEXT], given[CONFIG_SIZE_TEXT];

	if (!layout_exists(shape))
		return refuse_record(snapshot, "memory");
	if (config->memory != 0 && config->memory != memory_of(shape)) {
		config_format_size(memory_of(shape), has);
		config_format_size(config->memory, given);
		log_error("--mem %s does not go with --restore %s, whose guest has %s; leave it out", given,
			snapshot->state_name, has);
		return -EINVAL;
	}
	if (config->cpus != 0 && config->cpus != shape->cpus) {
		log_error("--cpus %u does not go with --restore %s, whose guest has %u; leave it out",
			config->cpus, snapshot->state_name, shape->cpus);
		return -EINVAL;
	}
	if (shape->serial != (config->serial != NULL)) {
		log_error("--restore %s is of a machine %s; %s --serial", snapshot->state_name,
			shape->serial ? "with a serial line" : "without a serial line",
			shape->serial ? "give" : "leave out");
		return -EINVAL;
	}
	config->memory = memory_of(shape);
	config->cpus = shape->cpus;
	config->boot = shape->boot;
	if (config_count_devices(config) == shape->device_count)
		return 0;
	log_error("--restore %s is of a machine with %u device%s, and this one has %u; give the same --disk, "
		  "--net, --vsock or --control, and --balloon",
		snapshot->state_name, shape->device_count, shape->device_count == 1 ? "" : "s",
		config_count_devices(config));
	return -EINVAL;
}

static int check_memory(const struct vm_snapshot *snapshot)
{
	char why[SNAPSHOT_WHY_MAX];
	int r = snapshot_memory_check(
		snapshot->memory_fd, &snapshot->memory, memory_of(&snapshot->shape), why);

	if (r < 0)
		log_error("--restore: %s %s; give the memory file that was saved with %s",
			snapshot->memory_name, why, snapshot->state_name);
	return r;
}

static int read_working_set(struct vm_snapshot *snapshot, const struct config *config, int fd)
{
	char why[WORKING_SET_WHY_MAX];
	int r = fd < 0 ? 0 : working_set_read(fd, memory_of(&snapshot->shape), &snapshot->working_set, why);

	if (r < 0)
		log_error("--restore: %s %s; leave working-set= out, or have it recorded again",
			config->restore.working_set, why);
	return r;
}

int vm_snapshot_open(struct config *config, const struct files *files, struct vm_snapshot **out)
{
	struct vm_snapshot *snapshot = calloc(1, sizeof(*snapshot));
	int r;

	if (!snapshot) {
		log_error("--restore: %s", strerror(ENOMEM));
		return -ENOMEM;
	}
	snapshot->state_name = config->restore.state;
	snapshot->memory_name = config->restore.memory;
	snapshot->memory_fd = files->restore_memory;
	r = read_state(snapshot, files->restore_state);
	if (r == 0)
		r = complete_config(snapshot, config);
	if (r == 0)
		r = read_working_set(snapshot, config, files->working_set);
	if (r == 0)
		r = check_memory(snapshot);
	if (r < 0)
		vm_snapshot_close(snapshot);
	else
		*out = snapshot;
	return r;
}

void vm_snapshot_close(struct vm_snapshot *snapshot)
{
	if (!snapshot)
		return;
	free(snapshot->working_set);
	free(snapshot->data);
	free(snapshot);
}

/* --- steps --- */

int vm_restore_memory(struct vm *vm)
{
	int r = snapshot_memory_map(&vm->memory, vm->snapshot->memory_fd);

	if (r < 0)
		log_error("--restore: %s cannot be mapped: %s; give a file that can be read",
			vm->snapshot->memory_name, strerror(-r));
	return r;
}

/* What lacks of it comes later, page by page: no reason to refuse the VM. */
int vm_restore_working_set(struct vm *vm)
{
	const struct working_set *set = vm->snapshot->working_set;
	int r = set ? prefault(&vm->memory, set) : 0;

	if (r < 0)
		log_warn("--restore: the working set is not in place from the start: %s%s", strerror(-r),
			r == -EINVAL ? "; Linux 5.14 can do that" : "");
	return 0;
}

/* The state of a vCPU out of its record; the caller frees it. NULL: logged. */
static struct vcpu_state *get_vcpu(const struct vm_snapshot *snapshot, unsigned i)
{
	struct state_reader reader = snapshot->vcpus[i];
	struct vcpu_state *state = calloc(1, sizeof(*state));

	if (!state) {
		log_error("--restore: %s", strerror(ENOMEM));
		return NULL;
	}
	vcpu_state_get(&reader, state);
	if (state_reader_finish(&reader) == 0 && state->id == i)
		return state;
	(void)refuse_record(snapshot, "CPUs");
	free(state);
	return NULL;
}

static int compare_vcpu(const struct vm *vm, unsigned i)
{
	struct vcpu_state *state = get_vcpu(vm->snapshot, i);
	char why[VCPU_STATE_WHY_MAX];
	int r;

	if (!state)
		return -EBADMSG;
	r = vcpu_state_compare_cpu(state, vm->features, vm->snapshot->shape.cpus, why);
	if (r < 0)
		log_error("--restore %s %s; restore it on a host like the one it was taken on",
			vm->snapshot->state_name, why);
	free(state);
	return r;
}

int vm_restore_compare(struct vm *vm)
{
	char why[VCPU_STATE_WHY_MAX];
	int r = vcpu_state_check_kvm(&vm->kvm, why);

	if (r < 0)
		log_error("--restore: %s", why);
	for (unsigned i = 0; r == 0 && i < vm->snapshot->shape.cpus; i++)
		r = compare_vcpu(vm, i);
	return r;
}

int vm_restore_ioapic(struct vm *vm)
{
	ioapic_load(&vm->ioapic, &vm->snapshot->ioapic);
	return state_reader_finish(&vm->snapshot->ioapic) < 0 ? refuse_record(vm->snapshot, "IOAPIC") : 0;
}

int vm_restore_serial(struct vm *vm)
{
	serial_load(&vm->serial, &vm->snapshot->serial);
	return state_reader_finish(&vm->snapshot->serial) < 0 ? refuse_record(vm->snapshot, "serial line")
							      : 0;
}

/* --- devices --- */

static const char *kind_of(uint32_t id)
{
	switch (id) {
	case VIRTIO_ID_NET:
		return "a net device";
	case VIRTIO_ID_BLOCK:
		return "a disk";
	case VIRTIO_ID_RNG:
		return "a random generator";
	case VIRTIO_ID_BALLOON:
		return "a balloon";
	case VIRTIO_ID_VSOCK:
		return "a vsock device";
	default:
		return "another device";
	}
}

static int explain_disk(
	unsigned number, const struct vm_device_identity *was, const struct virtio_identity *is)
{
	uint64_t had, has;

	if ((was->features ^ is->features) & VIRTIO_FEATURE(VIRTIO_BLK_F_RO)) {
		log_error("--restore: disk %u was %s; %s ,ro", number,
			was->features & VIRTIO_FEATURE(VIRTIO_BLK_F_RO) ? "read-only" : "writable",
			was->features & VIRTIO_FEATURE(VIRTIO_BLK_F_RO) ? "give it with" : "leave out its");
		return -EINVAL;
	}
	memcpy(&had, was->config, sizeof(had));
	memcpy(&has, is->config, sizeof(has));
	if (was->features == is->features && had != has)
		log_error("--restore: disk %u had %" PRIu64 " bytes and has %" PRIu64
			  " here; give the one of the snapshot",
			number, had * BLK_SECTOR, has * BLK_SECTOR);
	else
		log_error("--restore: disk %u is not made the same way; use the vmm that took the snapshot",
			number);
	return -EINVAL;
}

/* What the device refused is the disk, not the record: true, and said. Disks come first. */
static bool explain_content(const struct vm *vm, unsigned number, const struct state_reader *reader)
{
	bool cow = vm->config->disks[number].upper[0] != '\0';

	if (cow)
		log_error("--restore: disk %u has not the content that it had; give its lower file, and with "
			  ",cow= "
			  "its upper as it was then or a copy of that",
			number);
	else if (reader->error == 0)
		log_error(
			"--restore: disk %u had an upper file; give that or a copy of it with ,cow=", number);
	return cow || reader->error == 0;
}

static int explain_vsock(const struct vm_device_identity *was)
{
	uint64_t cid;

	memcpy(&cid, was->config, sizeof(cid));
	log_error("--restore: the guest has the vsock address %" PRIu64 "; give --vsock-cid %" PRIu64, cid,
		cid);
	return -EINVAL;
}

static int check_mac(const struct vm *vm, const struct vm_device_identity *was)
{
	const uint8_t *mac = was->config;

	if (!vm->config->net.has_mac || memcmp(vm->config->net.mac, mac, ETH_ALEN) == 0)
		return 0;
	log_error("--restore: the guest has the MAC address %02x:%02x:%02x:%02x:%02x:%02x; leave mac= out",
		mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
	return -EINVAL;
}

/* A device may have no configuration at all. */
static bool same_config(const struct vm_device_identity *was, const struct virtio_identity *is)
{
	return was->config_length == is->config_length &&
	       (is->config_length == 0 || memcmp(was->config, is->config, is->config_length) == 0);
}

static int check_device(const struct vm *vm, unsigned i, const struct vm_device_identity *was)
{
	struct virtio_identity is = virtio_mmio_identity(vm->devices[i].mmio);
	bool same = was->features == is.features && was->config_length == is.config_length;

	if (was->id != is.id) {
		log_error("--restore: device %u was %s and is %s here; give the same ones in the same order",
			i, kind_of(was->id), kind_of(is.id));
		return -EINVAL;
	}
	if (is.id == VIRTIO_ID_VSOCK && same && !same_config(was, &is))
		return explain_vsock(was);
	/* A disk's own state is of its content; its configuration must be the same. */
	if (same && ((is.own_state && is.id != VIRTIO_ID_BLOCK) || same_config(was, &is)))
		return is.id == VIRTIO_ID_NET ? check_mac(vm, was) : 0;
	if (is.id == VIRTIO_ID_BLOCK && was->config_length == is.config_length)
		return explain_disk(i, was, &is); /* disks come first */
	log_error("--restore: %s (device %u) is not made the same way; use the vmm that took the snapshot",
		kind_of(is.id), i);
	return -EINVAL;
}

static int restore_device(struct vm *vm, unsigned i)
{
	struct state_reader *reader = &vm->snapshot->devices[i];
	struct vm_device_identity was = {.id = 0};
	int r;

	vm_identity_get(reader, &was);
	r = reader->error ? 0 : check_device(vm, i, &was);
	if (r < 0)
		return r;
	virtio_mmio_load(vm->devices[i].mmio, reader);
	if (state_reader_finish(reader) < 0 && was.id == VIRTIO_ID_BLOCK && explain_content(vm, i, reader))
		return -EBADMSG;
	if (state_reader_finish(reader) < 0) {
		log_error(
			"--restore %s: what it says of %s (device %u) is not possible; take another snapshot",
			vm->snapshot->state_name, kind_of(was.id), i);
		return -EBADMSG;
	}
	return 0;
}

int vm_restore_devices(struct vm *vm)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < vm->device_count; i++)
		r = restore_device(vm, i);
	return r;
}

/* --- CPUs and time --- */

static int restore_vcpu(struct vm *vm, unsigned i, uint64_t now, char *why)
{
	struct vcpu_state *state = get_vcpu(vm->snapshot, i);
	int r;

	if (!state)
		return -EBADMSG;
	r = vcpu_state_restore(&vm->kvm, vm->vcpus[i].fd, now, state, why);
	if (r < 0)
		log_error("--restore %s: CPU %u: %s", vm->snapshot->state_name, i, why);
	free(state);
	return r;
}

int vm_restore_cpus(struct vm *vm)
{
	uint64_t clock = state_get_u64(&vm->snapshot->clock), now;
	char why[VCPU_STATE_WHY_MAX];
	int r;

	if (state_reader_finish(&vm->snapshot->clock) < 0)
		return refuse_record(vm->snapshot, "clock");
	r = vcpu_state_set_clock(vm->fd, clock, why);
	if (r < 0)
		log_error("--restore %s: %s", vm->snapshot->state_name, why);
	now = vcpu_state_now();
	for (unsigned i = 0; r == 0 && i < vm->vcpu_count; i++)
		r = restore_vcpu(vm, i, now, why);
	return r;
}
