/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock (virtio 1.2, section 5.10), stream sockets only, host side in user space. Each connection is
 * joined to one non-blocking host stream socket; bytes flow under the credit rules of 5.10.6.3, so that a
 * slow reader on either side holds back its own connection only.
 *
 * What a misbehaving guest gets: a packet for a connection that does not exist, a wrong CID, type or op: RST.
 * Bytes beyond the credit it was given: RST and the stream is closed. More than VSOCK_CONNECTIONS_MAX
 * connections: RST. A malformed chain: DEVICE_NEEDS_RESET.
 */
#ifndef VMM_VIRTIO_VSOCK_H
#define VMM_VIRTIO_VSOCK_H

#include "common/loop.h"
#include <stdint.h>

struct virtio_device;

enum {
	VSOCK_QUEUE_SIZE = 128,
	VSOCK_CONNECTIONS_MAX = 256,
	VSOCK_BUFFER = 128 * 1024,    /* buf_alloc: bytes from the guest we hold for each connection */
	VSOCK_PACKET_MAX = 64 * 1024, /* payload of one packet, either way */
};

struct vsock_config {
	uint32_t cid; /* of the guest; 3 or more, not 0xffffffff */
	struct loop *loop;
	/*
	 * The guest connects to host_port: return a non-blocking stream socket for it (ownership passes), or
	 * -errno for a reset. Called on the loop's thread with the device's lock held: it must not call back
	 * into the device.
	 */
	int (*accept)(void *context, uint32_t host_port);
	void *context;
};

/* 0, -EINVAL (cid), -ENOMEM. */
int vsock_create(const struct vsock_config *config, struct virtio_device **out);

/*
 * Opens a connection to a guest's port and joins it to fd (a non-blocking stream socket; taken over, on
 * failure too). done is called once, on the loop's thread: 0 when the guest accepted, -ECONNREFUSED when it
 * reset (also: nobody listens), -ECONNRESET when the device was reset or destroyed meanwhile. A request made
 * before the guest's driver is up waits for it. Returns 0, or -EMFILE (VSOCK_CONNECTIONS_MAX), -ENOMEM: done
 * is not called then. Loop's thread only.
 */
int vsock_connect(struct virtio_device *device, uint32_t guest_port, int fd,
	void (*done)(void *context, int status), void *context);

#endif
