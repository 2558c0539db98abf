/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the guest: one chain is one packet. Its header is copied and checked, and the copy goes out before the
 * guest's own pages, so what the host's kernel reads of it is what was checked.
 */
#include "vmm/virtio/net_parts.h"
#include <errno.h>
#include <string.h>

/* 5.1.6.2: is this type of segmentation among the features that the driver took? */
static bool segmentation_negotiated(const struct virtio_device *device, uint8_t gso_type)
{
	if ((gso_type & VIRTIO_NET_HDR_GSO_ECN) && !virtio_device_has(device, VIRTIO_NET_F_HOST_ECN))
		return false;
	switch (gso_type & ~VIRTIO_NET_HDR_GSO_ECN) {
	case VIRTIO_NET_HDR_GSO_TCPV4:
		return virtio_device_has(device, VIRTIO_NET_F_HOST_TSO4);
	case VIRTIO_NET_HDR_GSO_TCPV6:
		return virtio_device_has(device, VIRTIO_NET_F_HOST_TSO6);
	default:
		return false;
	}
}

static bool checksum_valid(
	const struct virtio_device *device, const struct virtio_net_hdr_v1 *header, uint64_t length)
{
	return virtio_device_has(device, VIRTIO_NET_F_CSUM) &&
	       (uint64_t)header->csum_start + header->csum_offset + sizeof(uint16_t) <= length;
}

/* Leaves in the header only what was checked. length: of the packet behind it. */
static bool check_header(
	const struct virtio_device *device, struct virtio_net_hdr_v1 *header, uint64_t length)
{
	if (length < ETH_HLEN || length > NET_PACKET_MAX)
		return false;
	header->num_buffers = 0;
	header->flags &= VIRTIO_NET_HDR_F_NEEDS_CSUM; /* others are to be ignored */
	if (header->flags && !checksum_valid(device, header, length))
		return false;
	if (!header->flags)
		header->csum_start = header->csum_offset = 0;
	if (header->gso_type == VIRTIO_NET_HDR_GSO_NONE) {
		header->hdr_len = header->gso_size = 0;
		return true;
	}
	return header->flags && segmentation_negotiated(device, header->gso_type) &&
	       header->gso_size >= NET_SEGMENT_MIN && header->hdr_len <= length;
}

/* 0; -EAGAIN: not now; -ENODEV: the backend has gone. */
static int send_packet(struct net *net, struct virtio_net_hdr_v1 *header, const struct virtq_bytes *packet)
{
	struct iovec pieces[1 + VIRTQ_SIZE_MAX] = {{.iov_base = header, .iov_len = sizeof(*header)}};
	int r;

	if (!check_header(&net->base, header, packet->length)) {
		net_lose(net, &net->lost_sent, NET_LOST_HEADER);
		return 0;
	}
	memcpy(&pieces[1], packet->iov, packet->count * sizeof(pieces[1]));
	r = net->backend->send(net->fd, pieces, 1 + (int)packet->count);
	if (r == -EAGAIN || r == -ENODEV)
		return r;
	if (r < 0)
		net_lose(net, &net->lost_sent, NET_LOST_REFUSED);
	else
		net_count(&net->sent);
	return 0;
}

/* True: the chain is to be given back; false: it waits, or the device no longer runs. */
static bool serve_chain(struct net *net, struct virtq_chain *chain)
{
	struct virtio_net_hdr_v1 header;
	int r = 0;

	if (chain->writable.count || virtq_bytes_take(&chain->readable, &header, sizeof(header)) < 0) {
		virtio_device_refuse(&net->base, NET_TX, "a packet without a header, or to be written");
		return false;
	}
	if (net_is_up(net))
		r = send_packet(net, &header, &chain->readable);
	if (r == -EAGAIN) {
		virtq_unpop(&net->base.queues[NET_TX]);
		net_block(net);
		return false;
	}
	if (r < 0)
		net_lose_backend(net, r);
	return true;
}

bool net_send(struct net *net)
{
	struct virtq *queue = &net->base.queues[NET_TX];
	struct virtq_chain chain;
	uint64_t bytes = 0;

	if (net->blocked)
		return false;
	virtq_no_notify(queue);
	for (unsigned packets = 0; packets < NET_ROUND_PACKETS && bytes < NET_ROUND_BYTES; packets++) {
		if (virtio_device_pop(&net->base, NET_TX, &chain) <= 0)
			break;
		bytes += chain.readable.length;
		if (!serve_chain(net, &chain))
			break;
		virtq_push(queue, chain.head, 0);
	}
	virtio_device_publish(&net->base, NET_TX);
	return !net->blocked && virtq_want_notify(queue);
}
