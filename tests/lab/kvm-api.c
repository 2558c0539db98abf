// What the lab's /dev/kvm must do: its API version, a VM with a vCPU, and a guest without paging that runs in
// its own memory (some versions of QEMU let it run in its host's). Prints "KVM API 12, real mode in its own
// memory" and exits 0, or names what failed and exits 1.
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
	GUEST_ADDRESS = 0x20000, /* of its code, the segment CS: ordinary memory of the host as well */
	GUEST_SIZE = 0x1000,
	GUEST_DATA = 0x800, /* offset in the segment */
	PORT = 0x80,
	ASKED = 0x5a,
	LIMIT_SECONDS = 10,
};

static int complain(const char *what)
{
	perror(what);
	return 1;
}

static int complain_guest(const char *what)
{
	fprintf(stderr, "a guest in real mode %s\n", what);
	return 1;
}

static int set_registers(int vcpu)
{
	struct kvm_sregs special;
	struct kvm_regs general = {.rip = 0, .rflags = 2};
	if (ioctl(vcpu, KVM_GET_SREGS, &special) < 0)
		return -1;
	special.cs.base = GUEST_ADDRESS;
	special.cs.selector = GUEST_ADDRESS >> 4;
	special.ds = special.cs;
	special.ds.type = 3;
	if (ioctl(vcpu, KVM_SET_SREGS, &special) < 0)
		return -1;
	return ioctl(vcpu, KVM_SET_REGS, &general);
}

/* The guest reads a byte of its memory, inverts it there and tells it by a port. */
static int run_real_mode(int kvm, int vm, int vcpu)
{
	static const uint8_t code[] = {
		0xa0, GUEST_DATA & 0xff, GUEST_DATA >> 8,	/* mov al, [DATA] */
		0xf6, 0x16, GUEST_DATA & 0xff, GUEST_DATA >> 8, /* not byte [DATA] */
		0xe6, PORT,					/* out PORT, al */
	};
	int size = ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
	uint8_t *memory = mmap(NULL, GUEST_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (size < 0 || memory == MAP_FAILED)
		return complain("mmap");
	struct kvm_run *run = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
	struct kvm_userspace_memory_region region = {
		.guest_phys_addr = GUEST_ADDRESS,
		.memory_size = GUEST_SIZE,
		.userspace_addr = (uintptr_t)memory,
	};
	if (run == MAP_FAILED || ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) < 0 ||
		set_registers(vcpu) < 0)
		return complain("preparing the guest");
	memcpy(memory, code, sizeof(code));
	memory[GUEST_DATA] = ASKED;
	alarm(LIMIT_SECONDS);
	if (ioctl(vcpu, KVM_RUN, 0) < 0)
		return complain("KVM_RUN");
	if (run->exit_reason != KVM_EXIT_IO || run->io.port != PORT)
		return complain_guest("does not run its own code");
	if (((uint8_t *)run)[run->io.data_offset] != ASKED || memory[GUEST_DATA] != (uint8_t)~ASKED)
		return complain_guest("does not use its own memory");
	return 0;
}

int main(void)
{
	int kvm = open("/dev/kvm", O_RDWR | O_CLOEXEC);
	if (kvm < 0)
		return complain("/dev/kvm");
	int version = ioctl(kvm, KVM_GET_API_VERSION, 0);
	int vm = ioctl(kvm, KVM_CREATE_VM, 0);
	if (vm < 0)
		return complain("KVM_CREATE_VM");
	int vcpu = ioctl(vm, KVM_CREATE_VCPU, 0);
	if (vcpu < 0)
		return complain("KVM_CREATE_VCPU");
	if (run_real_mode(kvm, vm, vcpu))
		return 1;
	printf("KVM API %d, real mode in its own memory\n", version);
	return version == KVM_API_VERSION ? 0 : 1;
}
