/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The devices of the machine, in the one table below; their order (enum config_device) is that of their
 * windows and pins.
 */
#include "common/log.h"
#include "vmm/cow.h"
#include "vmm/mptable_x86_64.h"
#include "vmm/tap.h"
#include "vmm/virtio/balloon.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/mmio.h"
#include "vmm/virtio/net.h"
#include "vmm/virtio/rng.h"
#include "vmm/virtio/virtio.h"
#include "vmm/virtio/vsock.h"
#include "vmm/vm.h"
#include "vmm/vm_trace.h"
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static int create_disk(struct vm *vm, unsigned index, struct virtio_device **out)
{
	const struct config_disk *disk = &vm->config->disks[index];
	struct blk_config config = {
		.fd = vm->files->disks[index], .read_only = disk->read_only, .id = disk->id};
	int upper = vm->files->uppers[index], r = 0;

	vm->files->disks[index] = vm->files->uppers[index] = -1;
	if (upper >= 0)
		r = cow_create(config.fd, upper, &config.disk);
	if (r == 0)
		r = blk_create(&config, out);
	if (r < 0)
		log_error("--disk %s cannot be used: %s; give another file", disk->path, strerror(-r));
	if (r == 0 && upper >= 0) {
		vm->cow = *out;
		vm->cow_count++;
	}
	return r;
}

/* As given, or made of the tap's name and the host's; without a tap, any. 0 or -errno. */
static int choose_mac(const struct config_net *net, int tap, uint8_t mac[ETH_ALEN])
{
	char name[IFNAMSIZ] = "", host[HOST_NAME_MAX + 1] = "";
	int r = 0;

	if (net->has_mac) {
		memcpy(mac, net->mac, ETH_ALEN);
		return 0;
	}
	if (tap >= 0)
		r = tap_name(tap, name);
	else if (getrandom(name, sizeof(name) - 1, 0) < 0)
		r = -errno;
	if (r == 0 && gethostname(host, sizeof(host) - 1) < 0)
		r = -errno;
	if (r == 0)
		tap_derive_mac(name, host, mac);
	return r;
}

static int create_net(struct vm *vm, unsigned index, struct virtio_device **out)
{
	struct net_config config = {.fd = vm->files->tap, .backend = &tap_backend, .loop = vm->loop};
	int r = choose_mac(&vm->config->net, config.fd, config.mac);

	(void)index;
	if (r == 0) {
		vm->files->tap = -1;
		r = net_create(&config, out);
	}
	if (r < 0)
		log_error("--net: cannot make the device: %s", strerror(-r));
	else
		vm->net = *out;
	return r;
}

/*
 * A guest's connection: to the Unix socket beside --vsock, or else to whoever holds the control socket. The
 * first one is the agent's and ends the boot.
 */
static int accept_stream(void *context, uint32_t guest_port, uint32_t host_port)
{
	struct vm *vm = context;
	bool first = vm->stats.moments[STATS_BOOTED] == 0;
	int r = -ECONNREFUSED;

	if (first) {
		stats_note(&vm->stats, STATS_BOOTED);
		vm_collect_stats(vm, &vm->stats.booted);
		vm_trace_hello(vm);
	}
	if (vm->vsock_unix)
		r = vsock_unix_accept(vm->vsock_unix, host_port);
	if (r < 0 && vm->control)
		r = control_offer_stream(vm->control, guest_port, host_port);
	if (first)
		vm_trace_greeted(vm);
	return r;
}

static int listen_vsock(struct vm *vm)
{
	const char *path = vm->config->vsock;
	int r = vsock_unix_create(path, vm->loop, &vm->vsock_unix);

	switch (r) {
	case 0:
		break;
	case -EADDRINUSE:
		log_error("--vsock %s: another process listens there; end it or give another path", path);
		break;
	case -EEXIST:
		log_error("--vsock %s: there is a file that is no socket; give another path", path);
		break;
	default:
		log_error("--vsock %s: cannot listen there: %s; give another path", path, strerror(-r));
	}
	return r;
}

static int create_vsock(struct vm *vm, unsigned index, struct virtio_device **out)
{
	struct vsock_config config = {
		.cid = vm->config->vsock_cid, .loop = vm->loop, .accept = accept_stream, .context = vm};
	int r = vm->config->vsock ? listen_vsock(vm) : 0;

	(void)index;
	if (r < 0)
		return r;
	r = vsock_create(&config, out);
	if (r < 0) {
		log_error("cannot make a vsock device with CID %u: %s", config.cid, strerror(-r));
		return r;
	}
	vm->vsock = *out;
	r = vm->vsock_unix ? vsock_unix_attach(vm->vsock_unix, vm->vsock) : 0;
	if (r < 0) {
		log_error("--vsock %s: cannot listen there: %s; give another path", vm->config->vsock,
			strerror(-r));
		vm->vsock = NULL;
		virtio_device_destroy(*out);
	}
	return r;
}

static int create_rng(struct vm *vm, unsigned index, struct virtio_device **out)
{
	int r = rng_create(out);

	(void)vm;
	(void)index;
	if (r < 0)
		log_error("cannot make an rng device: %s", strerror(-r));
	return r;
}

static int create_balloon(struct vm *vm, unsigned index, struct virtio_device **out)
{
	struct balloon_config config = {.memory = &vm->memory, .target = vm->config->balloon_target};
	int r = balloon_create(&config, out);

	(void)index;
	if (r < 0)
		log_error("cannot make a balloon: %s", strerror(-r));
	else
		vm->balloon = *out;
	return r;
}

/* Each logs why it fails. */
static int (*const create_kind[CONFIG_DEVICE_KINDS])(
	struct vm *vm, unsigned index, struct virtio_device **out) = {
	[CONFIG_DEVICE_DISK] = create_disk,
	[CONFIG_DEVICE_NET] = create_net,
	[CONFIG_DEVICE_VSOCK] = create_vsock,
	[CONFIG_DEVICE_RNG] = create_rng,
	[CONFIG_DEVICE_BALLOON] = create_balloon,
};

_Static_assert((int)CONFIG_DISKS_MAX + 4 <= (int)LAYOUT_VIRTIO_MAX, "every device has a window");
_Static_assert((int)LAYOUT_VIRTIO_MAX + (int)MPTABLE_FIRST_PIN + 1 <= (int)IOAPIC_PINS_MAX,
	"every device and the serial line have a pin");
_Static_assert((int)CONFIG_DISKS_MAX + 4 <= (int)MPTABLE_DEVICES_MAX, "every device has an IRQ");
_Static_assert((int)LAYOUT_VIRTIO_MAX <= (int)STATS_DEVICES_MAX, "every device is counted");
_Static_assert((int)LAYOUT_VIRTIO_MAX + 3 <= (int)BUS_WINDOWS_MAX, "every device is on the bus");

static void raise_line(void *context)
{
	struct vm_device *device = context;

	ioapic_raise(&device->vm->ioapic, device->pin);
}

static void end_by_fault(void *context, const char *reason)
{
	struct vm_device *device = context;

	vm_end(device->vm, VMM_END_GUEST_FAULT, reason);
}

static void read_window(void *context, uint64_t offset, void *data, uint32_t length)
{
	virtio_mmio_read(context, offset, data, length);
}

static void write_window(void *context, uint64_t offset, const void *data, uint32_t length)
{
	virtio_mmio_write(context, offset, data, length);
}

static const struct bus_ops window_ops = {.read = read_window, .write = write_window};

static int add_device(struct vm *vm, struct virtio_device *virtio)
{
	struct vm_device *device = &vm->devices[vm->device_count];
	struct virtio_machine machine = {.context = device, .interrupt = raise_line, .fault = end_by_fault};
	int r;

	*device = (struct vm_device){
		.vm = vm, .number = vm->device_count, .pin = config_pin(vm->config, vm->device_count)};
	r = virtio_mmio_create(virtio, &vm->memory, vm->loop, &machine, &device->mmio);
	if (r == 0) {
		vm->device_count++;
		r = bus_add(&vm->mmio, LAYOUT_VIRTIO(device->number), VIRTIO_MMIO_WINDOW, &window_ops,
			device->mmio, virtio_mmio_name(device->mmio));
	}
	if (r < 0)
		log_error("cannot add device %u: %s", device->number, strerror(-r));
	return r;
}

static int add_kind(struct vm *vm, enum config_device kind)
{
	unsigned count = config_count_devices_of(vm->config, kind);

	for (unsigned i = 0; i < count; i++) {
		struct virtio_device *virtio;
		int r = create_kind[kind](vm, i, &virtio);

		if (r == 0)
			r = add_device(vm, virtio);
		if (r < 0)
			return r;
	}
	return 0;
}

int vm_add_devices(struct vm *vm)
{
	int r = 0;

	for (unsigned kind = 0; r == 0 && kind < CONFIG_DEVICE_KINDS; kind++)
		r = add_kind(vm, (enum config_device)kind);
	return r;
}

void vm_remove_devices(struct vm *vm)
{
	/* Streams that are being opened end now, and say so to whoever asked for them. */
	vm->vsock = NULL;
	vm->net = NULL;
	vm->balloon = NULL;
	vm->cow = NULL;
	vm->cow_count = 0;
	while (vm->device_count > 0)
		virtio_mmio_destroy(vm->devices[--vm->device_count].mmio);
	vsock_unix_destroy(vm->vsock_unix);
	vm->vsock_unix = NULL;
}
