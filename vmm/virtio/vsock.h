/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-vsock (virtio 1.2, section 5.10), stream sockets only, host side in user space. Each connection is
 * joined to one non-blocking host stream socket; bytes flow under the credit rules of 5.10.6.3, so that a
 * slow reader on either side holds back its own connection only. A half-close passes both ways.
 *
 * What a misbehaving guest gets: a packet for a connection that does not exist, a wrong CID, type or op: RST.
 * A packet longer than VSOCK_PACKET_MAX, bytes beyond the credit it was given, or after it said that it sends
 * no more, or a packet that does not fit the connection's state: RST and the stream is closed. More than
 * VSOCK_CONNECTIONS_MAX connections: RST. More than VSOCK_RESETS_MAX of its packets to be answered by RST
 * while it offers no rx buffers: its tx queue stands until it does. A malformed chain (also: a tx packet
 * shorter than its header says, an rx buffer without room for a header and a byte): DEVICE_NEEDS_RESET, and
 * all connections end as on a reset.
 *
 * What the guest sent before it closed, reset or vanished still goes to the host socket, for as long as that
 * takes; such a connection counts until then. A guest that never answers a full shutdown keeps its
 * connection's place: it harms itself only.
 */
#ifndef VMM_VIRTIO_VSOCK_H
#define VMM_VIRTIO_VSOCK_H

#include "common/loop.h"
#include <stdint.h>

struct virtio_device;

enum {
	VSOCK_QUEUE_SIZE = 128,
	VSOCK_CONNECTIONS_MAX = 256,
	VSOCK_BUFFER = 256 * 1024,    /* buf_alloc: bytes from the guest we hold for each connection */
	VSOCK_PACKET_MAX = 64 * 1024, /* payload of one packet, either way */
	VSOCK_RESETS_MAX = 128,	      /* RSTs without a connection that wait for an rx buffer */
};

/*
 * Host ports of vsock_connect: counted up from here to the last one and around again, so that none comes back
 * while a guest may still know its last use. Services on host ports that guests connect to lie below.
 */
#define VSOCK_HOST_PORT_FIRST UINT32_C(0x40000000)
#define VSOCK_HOST_PORT_LAST UINT32_C(0xfffffffe)

struct vsock_config {
	uint32_t cid; /* of the guest; 3 or more, not 0xffffffff */
	struct loop *loop;
	/*
	 * The guest connects from guest_port to host_port: return a non-blocking stream socket for it
	 * (ownership passes), or -errno for a reset. Called on the loop's thread with the device's lock held:
	 * it must not call back into the device. NULL: every one is reset.
	 */
	int (*accept)(void *context, uint32_t guest_port, uint32_t host_port);
	void *context;
};

/* 0, -EINVAL (cid), -ENOMEM. */
int vsock_create(const struct vsock_config *config, struct virtio_device **out);

/*
 * Opens a connection to a guest's port and joins it to fd (a non-blocking stream socket; taken over, on
 * failure too). done is called once, on the loop's thread and with the device's lock held, so it must not
 * call back into the device: 0 when the guest accepted (before any of its bytes reach fd, which is still open
 * then), -ECONNREFUSED when it reset (also: nobody listens), -ECONNRESET when the device was reset or
 * destroyed or fd's peer left meanwhile. A request made before the guest's driver is up waits for it. Returns
 * 0, or -EMFILE (VSOCK_CONNECTIONS_MAX), -ENOMEM, or why fd cannot be watched (epoll_ctl(2)): done is not
 * called then. Loop's thread only.
 */
int vsock_connect(struct virtio_device *device, uint32_t guest_port, int fd,
	void (*done)(void *context, int status), void *context);

#endif
