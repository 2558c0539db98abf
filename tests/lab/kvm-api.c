// Opens /dev/kvm, checks its API version and that a VM and a vCPU can be made.
// Prints "KVM API 12" and exits 0, or names the call that failed and exits 1.
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <sys/ioctl.h>

static int complain(const char *what)
{
	perror(what);
	return 1;
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
	if (ioctl(vm, KVM_CREATE_VCPU, 0) < 0)
		return complain("KVM_CREATE_VCPU");
	printf("KVM API %d\n", version);
	return version == KVM_API_VERSION ? 0 : 1;
}
