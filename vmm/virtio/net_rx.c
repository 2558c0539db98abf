/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To the guest: packets are read straight into its buffers. How long a packet is shows only when it has been
 * read, so enough buffers for the longest are popped before (the window) and what is left of them serves the
 * next packet. When the driver has offered fewer, the packet goes to memory of ours and waits for more.
 */
#include "vmm/virtio/net_parts.h"
#include <errno.h>
#include <stddef.h>
#include <string.h>

/* window */

static void forget_window(struct net_window *window)
{
	window->first = window->count = 0;
	window->first_piece = window->piece_count = 0;
	window->length = 0;
}

/* Moves all to the front when another chain of any length might not fit behind. */
static void make_room(struct net_window *window)
{
	if (window->first + window->count < NET_WINDOW_BUFFERS &&
		window->first_piece + window->piece_count + VIRTQ_SIZE_MAX <= NET_WINDOW_PIECES)
		return;
	memmove(window->buffers, &window->buffers[window->first], window->count * sizeof(window->buffers[0]));
	memmove(window->pieces, &window->pieces[window->first_piece],
		window->piece_count * sizeof(window->pieces[0]));
	window->first = window->first_piece = 0;
}

static void append_buffer(struct net_window *window, const struct virtq_chain *chain)
{
	const struct virtq_bytes *bytes = &chain->writable;

	window->buffers[window->first + window->count++] =
		(struct net_buffer){.head = chain->head, .pieces = bytes->count, .length = bytes->length};
	memcpy(&window->pieces[window->first_piece + window->piece_count], bytes->iov,
		bytes->count * sizeof(bytes->iov[0]));
	window->piece_count += bytes->count;
	window->length += bytes->length;
}

/* The window has as many descriptors as the driver's table: it can offer no more until some come back. */
static bool all_offered(const struct net *net)
{
	return net->window.piece_count >= net->base.queues[NET_RX].size;
}

/* False: the device no longer runs. */
static bool fill_window(struct net *net)
{
	struct net_window *window = &net->window;
	struct virtq_chain chain;

	while (window->length <= NET_FRAME_MAX && !all_offered(net)) {
		int r = virtio_device_pop(&net->base, NET_RX, &chain);

		if (r <= 0)
			return r == 0;
		if (chain.readable.count || chain.writable.length < NET_HEADER) {
			virtio_device_refuse(&net->base, NET_RX, "a buffer to be read, or without room");
			return false;
		}
		make_room(window);
		append_buffer(window, &chain);
	}
	return true;
}

static bool merges(const struct net *net)
{
	return virtio_device_has(&net->base, VIRTIO_NET_F_MRG_RXBUF);
}

/* Where the next packet may go: all of the window, or without MRG_RXBUF its first buffer. */
static struct virtq_bytes next_bytes(struct net *net)
{
	struct net_window *window = &net->window;
	struct virtq_bytes bytes = {.iov = &window->pieces[window->first_piece],
		.count = window->piece_count,
		.length = window->length};

	if (!merges(net) && window->count) {
		bytes.count = window->buffers[window->first].pieces;
		bytes.length = window->buffers[window->first].length;
	}
	return bytes;
}

/* Gives the front buffer back with that many bytes in it. */
static void push_front(struct net *net, uint64_t written)
{
	struct net_window *window = &net->window;
	struct net_buffer *buffer = &window->buffers[window->first];

	virtq_push(&net->base.queues[NET_RX], buffer->head, (uint32_t)written);
	window->first++;
	window->count--;
	window->first_piece += buffer->pieces;
	window->piece_count -= buffer->pieces;
	window->length -= buffer->length;
}

/* packet */

/* Copies bytes into the frame at the window's front, which is long enough. */
static void write_front(struct net *net, uint64_t offset, const void *data, size_t length)
{
	struct virtq_bytes bytes = next_bytes(net), view;
	struct iovec pieces[NET_WINDOW_PIECES];

	/* Only as many pieces as the bytes can lie in: each has one at least. */
	if (bytes.count > offset + length)
		bytes.count = (unsigned)(offset + length);
	view = virtq_bytes_view(&bytes, pieces);
	virtq_bytes_skip(&view, offset);
	virtq_bytes_put(&view, data, length);
}

/* A frame of that length lies at the window's front: completes its header and gives its buffers back. */
static void finish_frame(struct net *net, uint64_t length)
{
	struct net_window *window = &net->window;
	uint16_t buffers = 0;
	uint64_t counted = 0;

	do
		counted += window->buffers[window->first + buffers++].length;
	while (counted < length);
	write_front(net, offsetof(struct virtio_net_hdr_v1, num_buffers), &buffers, sizeof(buffers));
	/* 5.1.6.4.1: a tap says DATA_VALID whatever its offloads are. */
	if (!virtio_device_has(&net->base, VIRTIO_NET_F_GUEST_CSUM))
		write_front(net, offsetof(struct virtio_net_hdr_v1, flags), &(uint8_t){0}, 1);
	for (uint64_t left = length; buffers; buffers--) {
		uint64_t room = window->buffers[window->first].length;
		uint64_t run = left < room ? left : room;

		push_front(net, run);
		left -= run;
	}
	net_count(&net->received);
}

/* MRG_RXBUF only. False: it waits for more buffers. */
static bool deliver_held(struct net *net)
{
	if (net->window.length < net->held_length) {
		if (!all_offered(net))
			return false;
		net_lose(net, &net->lost_received, NET_LOST_LONG);
	} else {
		write_front(net, 0, net->held, net->held_length);
		finish_frame(net, net->held_length);
	}
	net->held_length = 0;
	return true;
}

/*
 * Reads one packet into pieces that hold more than limit, for a longer one shows by a length beyond it. Its
 * length; 0: one was lost; -EAGAIN: none is there.
 */
static ssize_t read_packet(struct net *net, const struct iovec *pieces, unsigned count, uint64_t limit)
{
	ssize_t got = net->backend->receive(net->fd, pieces, (int)count);

	if (got == -EAGAIN) {
		net->waiting = false;
		return got;
	}
	if (got == -EBADMSG || (got > 0 && got < NET_HEADER + ETH_HLEN)) {
		net_lose(net, &net->lost_received, NET_LOST_FAULT);
		return 0;
	}
	if (got <= 0) {
		net_lose_backend(net, (int)got);
		return -EAGAIN;
	}
	if ((uint64_t)got > limit) {
		net_lose(net, &net->lost_received, NET_LOST_LONG);
		return 0;
	}
	return got;
}

/* Into the window, which holds any packet. The three: as receive_one. */
static ssize_t receive_merged(struct net *net)
{
	struct virtq_bytes bytes = next_bytes(net);
	ssize_t got = read_packet(net, bytes.iov, bytes.count, NET_FRAME_MAX);

	if (got > 0)
		finish_frame(net, (uint64_t)got);
	return got;
}

/* Into memory of ours, and on from there when there are buffers for it. */
static ssize_t receive_held(struct net *net)
{
	struct iovec piece = {.iov_base = net->held, .iov_len = NET_HELD_BYTES};
	ssize_t got = read_packet(net, &piece, 1, NET_FRAME_MAX);

	if (got <= 0)
		return got;
	net->held_length = (size_t)got;
	return deliver_held(net) ? got : -EAGAIN;
}

/* Into the first buffer alone. */
static ssize_t receive_single(struct net *net)
{
	struct virtq_bytes bytes = next_bytes(net);
	struct iovec pieces[VIRTQ_SIZE_MAX + 1];
	uint8_t beyond;
	ssize_t got;

	memcpy(pieces, bytes.iov, bytes.count * sizeof(pieces[0]));
	pieces[bytes.count] = (struct iovec){.iov_base = &beyond, .iov_len = sizeof(beyond)};
	got = read_packet(net, pieces, bytes.count + 1, bytes.length);
	if (got > 0)
		finish_frame(net, (uint64_t)got);
	return got;
}

/* One packet, from the backend into the guest. The bytes; 0: one was lost; -EAGAIN: no packet, or no buffers
 * for one. */
static ssize_t receive_one(struct net *net)
{
	if (net->window.count == 0)
		return -EAGAIN;
	if (!merges(net))
		return receive_single(net);
	return net->window.length > NET_FRAME_MAX ? receive_merged(net) : receive_held(net);
}

/* device */

/* As long as there is a packet, and buffers for it. True: it stopped at the round's bounds. */
static bool receive_round(struct net *net)
{
	uint64_t bytes = 0;

	for (unsigned packets = 0; packets < NET_ROUND_PACKETS && bytes < NET_ROUND_BYTES; packets++) {
		ssize_t got;

		if (!fill_window(net))
			return false;
		if (net->held_length && !deliver_held(net))
			return false;
		if (!net->waiting)
			return false;
		got = receive_one(net);
		if (got < 0)
			return false;
		bytes += (uint64_t)got;
	}
	return true;
}

bool net_receive(struct net *net)
{
	struct virtq *queue = &net->base.queues[NET_RX];
	bool more;

	if (!net_is_up(net) || (!net->waiting && !net->held_length))
		return false;
	virtq_no_notify(queue);
	more = receive_round(net);
	virtio_device_publish(&net->base, NET_RX);
	/* The driver is asked to notify only when packets wait for its buffers. */
	if (!more && (net->waiting || net->held_length))
		more = virtq_want_notify(queue);
	return more;
}

void net_receive_reset(struct net *net)
{
	forget_window(&net->window);
	net->held_length = 0;
}
