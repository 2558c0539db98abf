/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/kvm.h"
#include "common/io.h"
#include "vmm/trace.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum { API_VERSION = 12, STATS_MAX = 512 /* counters of one file */, STAT_NAME_MAX = 64 };

/* What the machine cannot do without. */
static const struct needed {
	int number;
	bool silent; /* nothing else that comes before the guest would tell that it is missing */
	const char *name, *what;
} needed[] = {
	{KVM_CAP_USER_MEMORY, false, "KVM_CAP_USER_MEMORY", "guest memory from user space"},
	{KVM_CAP_SPLIT_IRQCHIP, false, "KVM_CAP_SPLIT_IRQCHIP", "local APICs without an i8259"},
	{KVM_CAP_IRQ_ROUTING, true, "KVM_CAP_IRQ_ROUTING", "interrupt routes"},
	{KVM_CAP_IRQFD, false, "KVM_CAP_IRQFD", "interrupts by eventfd"},
	{KVM_CAP_IOEVENTFD, false, "KVM_CAP_IOEVENTFD", "notifications by eventfd"},
	{KVM_CAP_IMMEDIATE_EXIT, true, "KVM_CAP_IMMEDIATE_EXIT", "vCPUs that can be stopped"},
	{KVM_CAP_EXT_CPUID, false, "KVM_CAP_EXT_CPUID", "the guest's CPUID"},
};

int kvm_call_value(int fd, unsigned long request, unsigned long value)
{
	uint64_t began = trace_begin();
	int r = ioctl(fd, request, value);

	r = r < 0 ? -errno : r;
	trace_ioctl(began, request, value, r);
	return r;
}

int kvm_call(int fd, unsigned long request, void *argument)
{
	return kvm_call_value(fd, request, (unsigned long)argument);
}

static const char *open_advice(const char *path, int error)
{
	switch (error) {
	case -ENOENT:
		if (strcmp(path, KVM_DEVICE) != 0)
			return "check the path, which is usually " KVM_DEVICE;
		__attribute__((fallthrough));
	case -ENXIO:
	case -ENODEV:
		return "load the module kvm_intel or kvm_amd, or switch virtualization on in the firmware";
	case -EACCES:
	case -EPERM:
		return "join the group of the device (usually kvm), or run as root";
	case -EBADF:
	case -EINVAL:
		return "hand over /dev/kvm opened for reading and writing";
	default:
		return "see `host-ctl doctor`";
	}
}

static int check_capabilities(const struct kvm *kvm, const char *path, bool silent, char *error)
{
	for (size_t i = 0; i < sizeof(needed) / sizeof(needed[0]); i++) {
		if (needed[i].silent != silent || kvm_has_capability(kvm, needed[i].number))
			continue;
		snprintf(error, KVM_ERROR_MAX,
			"--kvm: %s lacks %s (%s): a host kernel of 4.11 or newer with "
			"hardware virtualization is needed; `host-ctl doctor` explains",
			path, needed[i].name, needed[i].what);
		return -EOPNOTSUPP;
	}
	return 0;
}

int kvm_explain(const struct kvm *kvm, const char *path, char *error)
{
	return check_capabilities(kvm, path, false, error);
}

static int check_version(const struct kvm *kvm, const char *path, char *error)
{
	int version = kvm_call_value(kvm->fd, KVM_GET_API_VERSION, 0);

	if (version < 0) {
		snprintf(error, KVM_ERROR_MAX, "--kvm: %s is not KVM: give /dev/kvm", path);
		return -ENOTTY;
	}
	if (version != API_VERSION) {
		snprintf(error, KVM_ERROR_MAX,
			"--kvm: %s speaks version %d of the KVM API, not %d: use another host kernel", path,
			version, API_VERSION);
		return -EPROTO;
	}
	return 0;
}

int kvm_open(const char *path, struct kvm *kvm, char *error)
{
	int r;

	*kvm = (struct kvm){.fd = -1};
	r = io_open_arg(path, O_RDWR, 0);
	if (r < 0) {
		snprintf(error, KVM_ERROR_MAX, "--kvm: cannot open %s: %s: %s; `host-ctl doctor` explains",
			path, strerror(-r), open_advice(path, r));
		return r;
	}
	kvm->fd = r;
	r = check_version(kvm, path, error);
	if (r == 0)
		r = check_capabilities(kvm, path, true, error);
	if (r < 0)
		goto fail;
	r = kvm_call_value(kvm->fd, KVM_GET_VCPU_MMAP_SIZE, 0);
	if (r < 0) {
		snprintf(error, KVM_ERROR_MAX, "--kvm: KVM_GET_VCPU_MMAP_SIZE on %s: %s", path, strerror(-r));
		goto fail;
	}
	kvm->run_size = (size_t)r;
	return 0;
fail:
	kvm_close(kvm);
	return r;
}

void kvm_close(struct kvm *kvm)
{
	fd_close(&kvm->fd);
}

bool kvm_has_capability(const struct kvm *kvm, int capability)
{
	return kvm_call_value(kvm->fd, KVM_CHECK_EXTENSION, (unsigned long)capability) > 0;
}

int kvm_create_vm(const struct kvm *kvm)
{
	return kvm_call_value(kvm->fd, KVM_CREATE_VM, 0);
}

int kvm_set_memory(int vm, uint32_t slot, uint64_t address, uint64_t size, void *host)
{
	struct kvm_userspace_memory_region region = {
		.slot = slot,
		.guest_phys_addr = address,
		.memory_size = size,
		.userspace_addr = (uintptr_t)host,
	};

	return kvm_call(vm, KVM_SET_USER_MEMORY_REGION, &region);
}

int kvm_set_tss(int vm, uint64_t address)
{
	return kvm_call_value(vm, KVM_SET_TSS_ADDR, address);
}

int kvm_split_irqchip(int vm, unsigned pins)
{
	struct kvm_enable_cap cap = {.cap = KVM_CAP_SPLIT_IRQCHIP, .args = {pins}};

	return kvm_call(vm, KVM_ENABLE_CAP, &cap);
}

unsigned kvm_vcpus_max(const struct kvm *kvm)
{
	int r = kvm_call_value(kvm->fd, KVM_CHECK_EXTENSION, KVM_CAP_MAX_VCPUS);

	return r < 0 ? 0 : (unsigned)r;
}

int kvm_create_vcpu(int vm, unsigned id)
{
	return kvm_call_value(vm, KVM_CREATE_VCPU, id);
}

int kvm_map_run(const struct kvm *kvm, int vcpu, struct kvm_run **run)
{
	void *mapped = mmap(NULL, kvm->run_size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);

	if (mapped == MAP_FAILED)
		return -errno;
	*run = mapped;
	return 0;
}

void kvm_unmap_run(const struct kvm *kvm, struct kvm_run *run)
{
	if (run)
		munmap(run, kvm->run_size);
}

int kvm_run_vcpu(int vcpu)
{
	/* A trace has it in two halves: see vcpu.c. */
	int r = ioctl(vcpu, KVM_RUN, 0);

	return r < 0 ? -errno : r;
}

int kvm_add_ioeventfd(int vm, uint64_t address, uint32_t match, int eventfd)
{
	struct kvm_ioeventfd request = {
		.datamatch = match,
		.addr = address,
		.len = sizeof(match),
		.fd = eventfd,
		.flags = KVM_IOEVENTFD_FLAG_DATAMATCH,
	};

	return kvm_call(vm, KVM_IOEVENTFD, &request);
}

int kvm_add_irqfd(int vm, uint32_t gsi, int eventfd)
{
	struct kvm_irqfd request = {.fd = (uint32_t)eventfd, .gsi = gsi};

	return kvm_call(vm, KVM_IRQFD, &request);
}

int kvm_set_routes(int vm, const struct kvm_route *routes, unsigned count)
{
	union {
		struct kvm_irq_routing table;
		char room[sizeof(struct kvm_irq_routing) +
			  KVM_ROUTES_MAX * sizeof(struct kvm_irq_routing_entry)];
	} request = {.table = {.nr = count}};

	if (count > KVM_ROUTES_MAX)
		return -E2BIG;
	for (unsigned i = 0; i < count; i++)
		request.table.entries[i] = (struct kvm_irq_routing_entry){
			.gsi = routes[i].gsi,
			.type = KVM_IRQ_ROUTING_MSI,
			.u.msi.address_lo = (uint32_t)routes[i].address,
			.u.msi.address_hi = (uint32_t)(routes[i].address >> 32),
			.u.msi.data = routes[i].data,
		};
	return kvm_call(vm, KVM_SET_GSI_ROUTING, &request.table);
}

int kvm_open_stats(int vm_or_vcpu)
{
	return kvm_call_value(vm_or_vcpu, KVM_GET_STATS_FD, 0);
}

int kvm_read_stat(int stats, const char *name, uint64_t *value)
{
	struct kvm_stats_header head;
	union {
		struct kvm_stats_desc desc;
		char bytes[sizeof(struct kvm_stats_desc) + STAT_NAME_MAX];
	} entry;

	if (io_pread_full(stats, &head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
		head.name_size > STAT_NAME_MAX || head.num_desc > STATS_MAX)
		return -EIO;
	for (uint32_t i = 0; i < head.num_desc; i++) {
		size_t size = sizeof(entry.desc) + head.name_size;

		if (io_pread_full(stats, &entry, size, (off_t)head.desc_offset + (off_t)(i * size)) !=
			(ssize_t)size)
			return -EIO;
		if (strncmp(entry.desc.name, name, head.name_size) != 0)
			continue;
		if (io_pread_full(stats, value, sizeof(*value),
			    (off_t)head.data_offset + (off_t)entry.desc.offset) != (ssize_t)sizeof(*value))
			return -EIO;
		return 0;
	}
	return -ENOENT;
}
