/* SPDX-License-Identifier: Apache-2.0 */
/* What is in guest memory before the first instruction. Needs no KVM. */
#include "common/log.h"
#include "vmm/boot_x86_64.h"
#include "vmm/elf.h"
#include "vmm/fdt.h"
#include "vmm/initrd.h"
#include "vmm/mptable_x86_64.h"
#include "vmm/trace.h"
#include "vmm/vm.h"
#include <cpuid.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

enum { SEED_BYTES = 32 };
_Static_assert((int)SEED_BYTES <= (int)BOOT_SEED_MAX, "the seed fits");

struct payload {
	struct elf_image kernel;
	struct initrd initrd;
	char cmdline[CONFIG_CMDLINE_MAX];
	_Alignas(8) uint8_t tree[FDT_SIZE_MAX];
	size_t tree_size;
	uint8_t mptable[BOOT_MPTABLE_MAX];
	size_t mptable_size;
	uint8_t seed[SEED_BYTES];
};

static int load_files(struct vm *vm, struct payload *payload)
{
	char why[INITRD_WHY_MAX > (int)ELF_WHY_MAX ? INITRD_WHY_MAX : ELF_WHY_MAX];
	uint64_t began = trace_begin();
	int r = elf_load(vm->files->kernel, &vm->memory, &payload->kernel, why);

	trace_phase(began, "kernel");
	if (r < 0) {
		log_error("--kernel %s %s", vm->config->kernel, why);
		return r;
	}
	if (vm->files->initrd < 0)
		return 0;
	began = trace_begin();
	r = initrd_load(vm->files->initrd, &vm->memory, payload->kernel.end, &payload->initrd, why);
	trace_phase(began, "initrd");
	if (r < 0)
		log_error("--initrd %s %s", vm->config->initrd, why);
	return r;
}

static int write_tree(const struct config *config, struct payload *payload)
{
	struct fdt_config tree = {.cpus = config->cpus,
		.virtio_count = config_count_devices(config),
		.serial = config->serial != NULL};

	return fdt_write(&tree, payload->tree, sizeof(payload->tree), &payload->tree_size);
}

static int write_mptable(const struct config *config, struct payload *payload)
{
	struct mptable_config table = {.cpus = config->cpus,
		.devices = config_count_devices(config),
		.serial = config->serial != NULL};
	unsigned ignored;

	/* KVM shows the guest the host's. */
	__cpuid(1, table.signature, ignored, ignored, table.features);
	return mptable_write(
		&table, BOOT_MPTABLE, payload->mptable, sizeof(payload->mptable), &payload->mptable_size);
}

static int describe(const struct vm *vm, struct payload *payload)
{
	int r = vm->config->boot == CONFIG_BOOT_MPTABLE ? write_mptable(vm->config, payload)
							: write_tree(vm->config, payload);

	if (r == 0)
		r = config_kernel_cmdline(vm->config, payload->cmdline);
	/* A short read is possible for more than 256 bytes only. */
	if (r == 0 && getrandom(payload->seed, sizeof(payload->seed), 0) < 0)
		r = -errno;
	if (r < 0)
		log_error("cannot describe the machine to the guest: %s", strerror(-r));
	return r;
}

static int write_boot(struct vm *vm, const struct payload *payload)
{
	struct boot_config boot = {
		.entry = payload->kernel.entry,
		.cmdline = payload->cmdline,
		.initrd = payload->initrd,
		.tree = payload->tree,
		.tree_size = payload->tree_size,
		.mptable = payload->mptable,
		.mptable_size = payload->mptable_size,
		.seed = payload->seed,
		.seed_size = sizeof(payload->seed),
	};
	int r = boot_write(&vm->memory, &boot, vm->entry);

	if (r < 0)
		log_error("cannot prepare the kernel's start in guest memory: %s", strerror(-r));
	return r;
}

int vm_load(struct vm *vm)
{
	struct payload payload = {.initrd = {0}};
	int r = load_files(vm, &payload);
	uint64_t began = trace_begin();

	if (r == 0)
		r = describe(vm, &payload);
	trace_phase(began, "describe");
	began = trace_begin();
	if (r == 0)
		r = write_boot(vm, &payload);
	trace_phase(began, "boot data");
	explicit_bzero(payload.seed, sizeof(payload.seed));
	return r;
}
