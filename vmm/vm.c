/* SPDX-License-Identifier: Apache-2.0 */
/* Sets a VM up and takes it down: one table of steps, in an order that has its reasons. */
#include "vmm/vm.h"
#include "common/io.h"
#include "common/log.h"
#include "vmm/boot_x86_64.h"
#include "vmm/mptable_x86_64.h"
#include "vmm/trace.h"
#include "vmm/virtio/mmio.h"
#include "vmm/vm_snapshot.h"
#include "vmm/vm_trace.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/sysinfo.h>
#include <unistd.h>

static int fail_step(const char *what, int r)
{
	log_error("%s: %s", what, strerror(-r));
	return r;
}

/* What a VM in standby has already is not made again: here, and in the steps for KVM and the control socket.
 */
static int set_up_loop(struct vm *vm)
{
	if (vm->loop)
		return 0;
	vm->loop = loop_create();
	vm->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	vm->halt = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (!vm->loop || vm->wake < 0 || vm->halt < 0)
		return fail_step("cannot make the event loop", -errno);
	return 0;
}

static int set_up_memory(struct vm *vm)
{
	char error[CONFIG_ERROR_MAX];
	struct sysinfo host;
	int r;

	if (sysinfo(&host) < 0)
		return fail_step("cannot ask for the host's memory", -errno);
	r = config_check_memory(vm->config, (uint64_t)host.totalram * host.mem_unit, error);
	if (r < 0) {
		log_error("%s", error);
		return r;
	}
	r = guest_memory_init(&vm->memory, vm->config->memory);
	if (r < 0) {
		config_explain_memory(vm->config, error);
		log_error("%s", error);
	}
	return r;
}

static int load(struct vm *vm)
{
	return vm->snapshot ? vm_restore_memory(vm) : vm_load(vm);
}

static int prefault_working_set(struct vm *vm)
{
	return vm->snapshot ? vm_restore_working_set(vm) : 0;
}

static int open_kvm(struct vm *vm)
{
	char error[KVM_ERROR_MAX];
	int r = vm->kvm.fd >= 0 ? 0 : kvm_open(vm->config->kvm, &vm->kvm, error);

	if (r < 0)
		log_error("%s", error);
	return r;
}

static int check_cpus(struct vm *vm)
{
	/* There is no KVM that has none. */
	unsigned most = vm->config->cpus > 1 ? kvm_vcpus_max(&vm->kvm) : 1;

	if (vm->config->cpus <= most)
		return 0;
	log_error("--cpus %u is more than the %u that KVM has on this host; give fewer", vm->config->cpus,
		most);
	return -EINVAL;
}

static int ask_features(struct vm *vm)
{
	int r = check_cpus(vm);

	if (r < 0)
		return r;
	r = vcpu_features_create(&vm->kvm, &vm->features);
	if (r < 0)
		return fail_step("cannot ask for the processor's features", r);
	return vm->snapshot ? vm_restore_compare(vm) : 0;
}

static int create_vm(struct vm *vm)
{
	if (vm->fd >= 0)
		return 0;
	vm->fd = kvm_create_vm(&vm->kvm);
	return vm->fd < 0 ? fail_step("KVM_CREATE_VM", vm->fd) : 0;
}

static int add_memory(struct vm *vm)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < vm->memory.count; i++) {
		const struct guest_region *region = &vm->memory.regions[i];

		r = kvm_set_memory(vm->fd, i, region->base, region->size, region->host);
	}
	if (r == 0)
		r = kvm_set_tss(vm->fd, LAYOUT_TSS_BASE);
	return r < 0 ? fail_step("KVM refused the guest's memory", r) : 0;
}

static int split_irqchip(struct vm *vm)
{
	int r = kvm_split_irqchip(vm->fd, config_count_pins(vm->config));

	return r < 0 ? fail_step("KVM_CAP_SPLIT_IRQCHIP", r) : 0;
}

/* The first enters where the kernel begins; the others wait until it starts them (INIT, SIPI). */
static int set_up_vcpu(struct vm *vm, struct vcpu *vcpu)
{
	int r = vcpu_set_features(vcpu, vm->features, vm->config->cpus);

	return r == 0 && vcpu->id == 0 ? vcpu_set_entry(vcpu, vm->entry) : r;
}

/* One of a snapshot is filled when all else is there. */
static int add_vcpu(struct vm *vm)
{
	unsigned id = vm->vcpu_count, cpus = vm->config->cpus;
	int r = vcpu_init(&vm->vcpus[id], &vm->kvm, vm->fd, id, &vm->vcpu_machine);

	if (r == 0) {
		vm->vcpu_count++;
		r = vm->snapshot ? 0 : set_up_vcpu(vm, &vm->vcpus[id]);
	}
	if (r < 0)
		log_error("--cpus %u: KVM refused CPU %u: %s; %s", cpus, id, strerror(-r),
			cpus > 1 ? "give fewer, or free memory on the host"
				 : "free memory on the host, or see `host-ctl doctor`");
	return r;
}

static int add_vcpus(struct vm *vm)
{
	int r = vcpu_install_kick();

	if (r < 0)
		return fail_step("cannot take a signal for the vCPUs", r);
	while (r == 0 && vm->vcpu_count < vm->config->cpus)
		r = add_vcpu(vm);
	return r;
}

static void read_ioapic(void *context, uint64_t offset, void *data, uint32_t length)
{
	ioapic_read(context, offset, data, length);
}

static void write_ioapic(void *context, uint64_t offset, const void *data, uint32_t length)
{
	ioapic_write(context, offset, data, length);
}

static const struct bus_ops ioapic_bus_ops = {.read = read_ioapic, .write = write_ioapic};

static void end_by_irq(void *context, const char *reason)
{
	vm_end(context, VMM_END_KVM, reason);
}

static int add_interrupts(struct vm *vm)
{
	unsigned pins = config_count_pins(vm->config);
	int r = irq_init(&vm->irq, pins, end_by_irq, vm);

	if (r == 0)
		r = ioapic_init(&vm->ioapic, pins, &irq_ioapic_ops, &vm->irq);
	if (r == 0)
		r = bus_add(&vm->mmio, LAYOUT_IOAPIC_BASE, LAYOUT_IOAPIC_SIZE, &ioapic_bus_ops, &vm->ioapic,
			"ioapic");
	if (r == 0 && vm->config->boot == CONFIG_BOOT_MPTABLE)
		vm->ioapic.id = mptable_ioapic_id(vm->config->cpus);
	if (r < 0)
		return fail_step("cannot make the interrupt controller", r);
	return vm->snapshot ? vm_restore_ioapic(vm) : 0;
}

static void read_serial(void *context, uint64_t offset, void *data, uint32_t length)
{
	serial_read(context, offset, data, length);
}

static void write_serial(void *context, uint64_t offset, const void *data, uint32_t length)
{
	/* A byte of a divisor is not told from text: it is no line's end. */
	if (trace_is_on() && offset == 0 && length == 1)
		trace_add_byte(trace_active, *(const uint8_t *)data);
	serial_write(context, offset, data, length);
}

static const struct bus_ops serial_ops = {.read = read_serial, .write = write_serial};

static void raise_serial(void *context)
{
	struct vm *vm = context;

	ioapic_raise(&vm->ioapic, LAYOUT_SERIAL_PIN);
}

static void handle_serial_input(void *context, uint32_t events)
{
	struct vm *vm = context;
	uint8_t bytes[SERIAL_FIFO];
	ssize_t n = read(vm->files->serial_in, bytes, sizeof(bytes));

	(void)events;
	if (n > 0) {
		serial_input(&vm->serial, bytes, (size_t)n);
	} else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
		loop_remove(vm->serial_source);
		vm->serial_source = NULL;
	}
}

static int add_serial(struct vm *vm)
{
	int r;

	if (vm->files->serial_out < 0)
		return 0;
	vm->serial.out = vm->files->serial_out;
	vm->serial.interrupt = vm->halt;
	if (vm->config->serial_max != 0)
		serial_bound(&vm->serial, vm->config->serial_max);
	serial_connect(&vm->serial, raise_serial, vm);
	r = bus_add(&vm->ports, LAYOUT_SERIAL_PORT, LAYOUT_SERIAL_PORTS, &serial_ops, &vm->serial, "serial");
	if (r < 0)
		return fail_step("cannot add the serial port", r);
	/* A file cannot be waited for: then there is no input. */
	if (vm->files->serial_in >= 0)
		vm->serial_source =
			loop_add_fd(vm->loop, vm->files->serial_in, EPOLLIN, handle_serial_input, vm);
	return 0;
}

static int add_devices(struct vm *vm)
{
	int r = ends_add(&vm->ends, &vm->ports, &vm->mmio);

	if (r < 0)
		return fail_step("cannot add the power registers", r);
	r = vm_add_devices(vm);
	if (r == 0 && vm->snapshot)
		r = vm_restore_serial(vm);
	return r == 0 && vm->snapshot ? vm_restore_devices(vm) : r;
}

static int attach_notifications(struct vm *vm, const struct vm_device *device)
{
	unsigned queues = virtio_mmio_queue_count(device->mmio);
	int r = 0;

	for (unsigned queue = 0; r == 0 && queue < queues; queue++)
		r = kvm_add_ioeventfd(vm->fd, LAYOUT_VIRTIO(device->number) + VIRTIO_MMIO_QUEUE_NOTIFY, queue,
			virtio_mmio_notify_fd(device->mmio, queue));
	return r;
}

static int attach_events(struct vm *vm)
{
	int r = 0;

	for (unsigned i = 0; r == 0 && i < vm->device_count; i++)
		r = attach_notifications(vm, &vm->devices[i]);
	if (r == 0)
		r = irq_attach(&vm->irq, vm->fd);
	return r < 0 ? fail_step("KVM refused an eventfd", r) : 0;
}

static int restore_cpus(struct vm *vm)
{
	vm->asleep = vm->snapshot != NULL;
	return vm->snapshot ? vm_restore_cpus(vm) : 0;
}

static int open_control_for(struct vm *vm, const struct control_ops *ops)
{
	const char *path = vm->config->control;
	int r = path ? control_create(path, vm->loop, ops, vm, &vm->control) : 0;

	switch (r) {
	case 0:
		break;
	case -EADDRINUSE:
		log_error("--control %s: another process listens there; end it or give another path", path);
		break;
	case -EEXIST:
		log_error("--control %s: there is a file that is no socket; give another path", path);
		break;
	case -ESOCKTNOSUPPORT:
	case -ENOTSOCK:
		log_error("--control %s is not a SOCK_SEQPACKET socket; hand over one that listens", path);
		break;
	default:
		log_error("--control %s cannot be used: %s; give another path", path, strerror(-r));
	}
	return r;
}

static int open_control(struct vm *vm)
{
	if (!vm->control)
		return open_control_for(vm, &vm_control_ops);
	control_set_ops(vm->control, &vm_control_ops, vm);
	return 0;
}

static int open_stats(struct vm *vm)
{
	bool wanted = vm->config->stats || vm->config->trace.wanted;
	int r = vm_trace_attach(vm);

	/* KVM's own counters are a bonus: kernels before 5.14 have none. */
	for (unsigned i = 0; wanted && i < vm->vcpu_count; i++)
		vm->vcpus[i].stats = kvm_open_stats(vm->vcpus[i].fd);
	return r < 0 ? fail_step("cannot add the port for marks", r) : 0;
}

/*
 * What is wrong with files is said before KVM is asked. In KVM: memory slots right after the VM, while
 * nothing of it is in use (later each waits for an RCU grace period), then the interrupt controller, then
 * vCPUs; what stands on KVM's buses and routes comes last. A guest out of a snapshot is put in place of one
 * that boots; its vCPUs come after all that they could notice.
 */
static const struct {
	const char *name;
	int (*run)(struct vm *vm); /* 0, or -errno when it has said why */
} steps[] = {
	{"loop", set_up_loop},
	{"map memory", set_up_memory},
	{"load", load},
	{"working set", prefault_working_set},
	{"open kvm", open_kvm},
	{"features", ask_features},
	{"create vm", create_vm},
	{"memory slots", add_memory},
	{"irqchip", split_irqchip},
	{"vcpus", add_vcpus},
	{"ioapic", add_interrupts},
	{"serial", add_serial},
	{"devices", add_devices},
	{"eventfds", attach_events},
	{"restore", restore_cpus},
	{"kvm stats", open_stats},
	{"control", open_control},
};

static void end_by_guest(void *context, enum vmm_end end, const char *reason)
{
	vm_end(context, end, reason);
}

static void wake_loop(void *context)
{
	const struct vm *vm = context;

	eventfd_write(vm->wake, 1);
}

static void init(struct vm *vm, const struct config *config)
{
	vm->config = config;
	stats_note(&vm->stats, STATS_PROCESS);
	vm->wake = vm->halt = vm->fd = vm->kvm.fd = vm->base.fd = vm->pagemap = -1;
	vm->ends = (struct ends){.end = end_by_guest, .context = vm};
	vm->vcpu_machine = (struct vcpu_machine){
		.ports = &vm->ports,
		.mmio = &vm->mmio,
		.stats = &vm->stats,
		.context = vm,
		.end = end_by_guest,
		.stands = wake_loop,
	};
	pthread_mutex_init(&vm->end_lock, NULL);
	bus_init(&vm->ports);
	bus_init(&vm->mmio);
	serial_init(&vm->serial, -1, -1);
}

/* What KVM lacks is asked for only when something has failed. */
static void explain_kvm(const struct vm *vm)
{
	char error[KVM_ERROR_MAX];

	if (vm->kvm.fd >= 0 && kvm_explain(&vm->kvm, vm->config->kvm, error) < 0)
		log_error("%s", error);
}

int vm_create(const struct config *config, struct files *files, struct vm_snapshot *snapshot, struct vm **out)
{
	struct boot_state entry;
	struct vm *vm = *out ? *out : calloc(1, sizeof(*vm));
	int r = 0;

	if (!vm)
		return fail_step("cannot make a VM", -ENOMEM);
	if (!*out)
		init(vm, config);
	vm->files = files;
	vm->entry = &entry;
	vm->snapshot = snapshot;
	for (size_t i = 0; r == 0 && i < sizeof(steps) / sizeof(steps[0]); i++) {
		uint64_t began = trace_begin();

		r = steps[i].run(vm);
		stats_note_step(&vm->stats, steps[i].name);
		trace_phase(began, steps[i].name);
	}
	vm->entry = NULL;
	vm->snapshot = NULL;
	if (r < 0)
		goto fail;
	stats_note(&vm->stats, STATS_SET_UP);
	vm_answer(vm, 0);
	*out = vm;
	return 0;
fail:
	explain_kvm(vm);
	vm_answer(vm, r);
	vm_destroy(vm);
	*out = NULL;
	return r;
}

static int run_early(struct vm *vm, const char *name, int (*run)(struct vm *vm))
{
	uint64_t began = trace_begin();
	int r = run(vm);

	trace_phase(began, name);
	return r;
}

int vm_prepare(const struct config *config, const struct control_ops *ops, struct vm_standby *standby,
	struct vm **out)
{
	struct vm *vm = calloc(1, sizeof(*vm));
	int r;

	if (!vm)
		return fail_step("cannot make a VM", -ENOMEM);
	init(vm, config);
	vm->state = VMM_STATE_STANDBY;
	r = run_early(vm, "loop", set_up_loop);
	if (r == 0)
		r = run_early(vm, "open kvm", open_kvm);
	if (r == 0)
		r = run_early(vm, "create vm", create_vm);
	/* From here on it is asked. */
	vm->standby = standby;
	if (r == 0)
		r = open_control_for(vm, ops);
	if (r == 0) {
		*out = vm;
		return 0;
	}
	vm->standby = NULL;
	explain_kvm(vm);
	vm_destroy(vm);
	return r;
}

void vm_destroy(struct vm *vm)
{
	if (!vm)
		return;
	for (unsigned i = 0; i < vm->vcpu_count; i++)
		vcpu_finish(&vm->vcpus[i]);
	vm_remove_devices(vm);
	control_destroy(vm->control);
	vcpu_features_destroy(vm->features);
	serial_finish(&vm->serial);
	irq_finish(&vm->irq);
	ioapic_finish(&vm->ioapic);
	loop_destroy(vm->loop);
	fd_close(&vm->fd);
	kvm_close(&vm->kvm);
	guest_memory_finish(&vm->memory);
	fd_close(&vm->pagemap);
	fd_close(&vm->wake);
	fd_close(&vm->halt);
	bus_finish(&vm->ports);
	bus_finish(&vm->mmio);
	pthread_mutex_destroy(&vm->end_lock);
	free(vm->standby);
	free(vm);
}
