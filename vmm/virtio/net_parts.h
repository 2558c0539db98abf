/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of net: the device, and what its two directions offer each other. */
#ifndef VMM_VIRTIO_NET_PARTS_H
#define VMM_VIRTIO_NET_PARTS_H

#include "vmm/virtio/net.h"
#include "vmm/virtio/virtio.h"
#include <linux/virtio_net.h>
#include <stdatomic.h>

enum {
	NET_RX = 0,
	NET_TX = 1,
	NET_FRAME_MAX = NET_HEADER + NET_PACKET_MAX,
	NET_HELD_BYTES = NET_FRAME_MAX + 1, /* a longer one shows */
	NET_WINDOW_BUFFERS = 2 * VIRTQ_SIZE_MAX,
	NET_WINDOW_PIECES = 4 * VIRTQ_SIZE_MAX,
};
_Static_assert((int)NET_HEADER == (int)sizeof(struct virtio_net_hdr_v1), "5.1.6");

/* Why a packet is lost; each is logged once. */
enum net_loss { NET_LOST_HEADER, NET_LOST_REFUSED, NET_LOST_LONG, NET_LOST_FAULT, NET_LOSSES };

struct net_buffer {
	uint16_t head;
	unsigned pieces;
	uint64_t length;
};

/* Receive buffers that were popped and not used yet, in their order, and their pieces in a row. */
struct net_window {
	struct net_buffer buffers[NET_WINDOW_BUFFERS];
	struct iovec pieces[NET_WINDOW_PIECES];
	unsigned first, count;		   /* of buffers */
	unsigned first_piece, piece_count; /* of pieces */
	uint64_t length;		   /* bytes of all */
};

struct net {
	struct virtio_device base;
	struct virtio_net_config config;
	const struct net_backend_ops *backend;
	struct loop *loop;
	int fd; /* -1: none */
	struct loop_source *source;
	bool started; /* the driver's choice of offloads is set; until a reset */
	bool waiting; /* packets may wait at the backend: no edge will tell of them */
	bool blocked; /* the backend takes no more: an edge will tell when */
	bool logged[NET_LOSSES];

	struct net_window window;
	uint8_t *held;	    /* NET_HELD_BYTES: a packet for which there are too few buffers yet */
	size_t held_length; /* 0: none */

	atomic_uint_fast64_t sent, received, lost_sent, lost_received;
};

/* net.c */
static inline bool net_is_up(const struct net *net)
{
	return net->config.status & VIRTIO_NET_S_LINK_UP;
}
/* The backend does not exist any more: without it from now on. */
void net_lose_backend(struct net *net, int error);
/* The backend takes no more now: net_send is called again when it does. */
void net_block(struct net *net);
/* One packet less for the counter's direction. */
void net_lose(struct net *net, atomic_uint_fast64_t *counter, enum net_loss why);
static inline void net_count(atomic_uint_fast64_t *counter)
{
	atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* net_rx.c: serves what it may in one round; true: there is more. */
bool net_receive(struct net *net);
/* The driver is gone: forgets its buffers and what was held for it. */
void net_receive_reset(struct net *net);

/* net_tx.c: as net_receive. */
bool net_send(struct net *net);

#endif
