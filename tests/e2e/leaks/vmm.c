/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/e2e/leaks/leak.h"
#include "vmm/virtio/vsock.h"

int __real_vsock_connect(struct virtio_device *device, uint32_t guest_port, int fd,
	void (*done)(void *context, int status), void *context);
int __wrap_vsock_connect(struct virtio_device *device, uint32_t guest_port, int fd,
	void (*done)(void *context, int status), void *context);

int __wrap_vsock_connect(struct virtio_device *device, uint32_t guest_port, int fd,
	void (*done)(void *context, int status), void *context)
{
	leak();
	return __real_vsock_connect(device, guest_port, fd, done, context);
}
