/* SPDX-License-Identifier: Apache-2.0 */
/*
 * virtio-net (virtio 1.2, section 5.1) with one pair of queues. Its host side is an fd that gives and takes
 * one packet a call, each behind a struct virtio_net_hdr_v1, as a tap does; without one the link is down.
 * The features are always the same, so that the fd can be put in place, or replaced, while the guest runs:
 * MAC, STATUS, MRG_RXBUF, and checksums and TCP segmentation both ways. What the driver took of the latter is
 * what the host's side may send.
 *
 * With its link down the device takes what the guest sends and loses it, and receives nothing, as hardware
 * does; what waited at the host side in the meantime is lost when the link comes up.
 *
 * What a misbehaving guest gets: a packet to be sent that is longer than NET_PACKET_MAX or shorter than its
 * Ethernet header, or whose header asks for what was not negotiated, lies outside the packet or cuts it into
 * segments below NET_SEGMENT_MIN: lost and counted. A chain to be sent that is shorter than the header or
 * has a part for the device to write, a receive buffer with a part to be read or smaller than the header:
 * DEVICE_NEEDS_RESET. No buffers to receive into: packets wait at the host, whose queue is bounded. A packet
 * longer than the driver's buffer (without MRG_RXBUF), or than its whole full queue (with it), is lost and
 * counted.
 */
#ifndef VMM_VIRTIO_NET_H
#define VMM_VIRTIO_NET_H

#include "common/loop.h"
#include <linux/if_ether.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

struct virtio_device;

enum {
	NET_QUEUE_SIZE = 256,
	NET_HEADER = 12,			    /* sizeof(struct virtio_net_hdr_v1) */
	NET_PACKET_MAX = ETH_HLEN + 4 + UINT16_MAX, /* with a VLAN tag; without the header */
	NET_SEGMENT_MIN = 8, /* gso_size: what Linux cuts a segment to at least (TCP_MIN_GSO_SIZE) */
	/* After as many packets or bytes, either way, the loop's other work has its turn. */
	NET_ROUND_PACKETS = 128,
	NET_ROUND_BYTES = 1024 * 1024,
	NET_STALE_MAX = 4096, /* packets thrown away at once when the link comes up */
};

/* What the host's side may send with a header that says so. */
enum net_offload {
	NET_OFFLOAD_CSUM = 1 << 0,
	NET_OFFLOAD_TSO4 = 1 << 1,
	NET_OFFLOAD_TSO6 = 1 << 2,
	NET_OFFLOAD_ECN = 1 << 3,
};

/* The host's side. All are called with the device's lock held, on the loop's thread or in create. */
struct net_backend_ops {
	/*
	 * The next packet, header included, cut to the pieces: its bytes; -EAGAIN: none; -EBADMSG: one was
	 * lost; any other error, and 0: the backend is gone.
	 */
	ssize_t (*receive)(int fd, const struct iovec *pieces, int count);
	/* 0; -EAGAIN: no room (EPOLLOUT tells when); -ENODEV: the backend is gone; else: it was not taken. */
	int (*send)(int fd, const struct iovec *pieces, int count);
	/* A set of enum net_offload: each sound one must be possible. 0 or -errno. */
	int (*set_offloads)(int fd, unsigned offloads);
	/* Shows the other side whether anyone is here. May fail silently. */
	void (*set_carrier)(int fd, bool up);
};

struct net_config {
	uint8_t mac[ETH_ALEN];
	int fd; /* taken over, on failure too; non-blocking; -1: none, and the link is down, else it is up */
	const struct net_backend_ops *backend; /* constant */
	struct loop *loop;
};

/* Packets; read without the lock, so they may lag. */
struct net_counts {
	uint64_t sent, received;
	uint64_t lost_sent;	/* by the guest: refused, or not taken by the host's side */
	uint64_t lost_received; /* for the guest: too long for its buffers */
};

/* 0, or -errno: -ENOMEM, -EMFILE, or why the fd cannot be watched or set up. */
int net_create(const struct net_config *config, struct virtio_device **out);

/*
 * Puts fd (non-blocking; taken over, on failure too) in the place of the present backend, which is closed;
 * the link stays as it is. 0; -errno as net_create: then nothing has changed.
 */
int net_attach(struct virtio_device *device, int fd);
/* 0; -ENOTCONN: up, and there is no backend. */
int net_set_link(struct virtio_device *device, bool up);

struct net_counts net_counts(const struct virtio_device *device);

#endif
