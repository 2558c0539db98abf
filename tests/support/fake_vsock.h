/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest's side of vsock on a fake driver: rx buffers like Linux's, packets as a test wants them, and a
 * stream that keeps the credit rules.
 */
#ifndef TESTS_SUPPORT_FAKE_VSOCK_H
#define TESTS_SUPPORT_FAKE_VSOCK_H

#include "tests/support/fake_driver.h"
#include <linux/virtio_vsock.h>

enum {
	FAKE_CID = 42,
	FAKE_RX_BYTES = 3776, /* Linux 6.1: one page less what a socket buffer needs */
	FAKE_RX = 0,
	FAKE_TX = 1,
	FAKE_EVENT = 2,
	FAKE_BUFFER = 256 * 1024, /* buf_alloc of the guest */
};

struct fake_vsock {
	struct fake_driver driver;
	struct virtio_device *device;
	gpa_t tx_header, tx_data;
	gpa_t rx_buffers[128];
	bool rx_held; /* used buffers are not offered again by themselves */

	int accept_fd; /* what the host answers the next guest connection with */
	uint32_t accepted_port, accepted_from;
	unsigned accepts;
};

struct fake_packet {
	struct virtio_vsock_hdr header;
	uint8_t data[FAKE_RX_BYTES];
};

/* A device with cid FAKE_CID, not started. */
void fake_vsock_init(struct fake_vsock *guest);
void fake_vsock_finish(struct fake_vsock *guest);
/* Up, with rx buffers; the event queue stays empty. */
void fake_vsock_start(struct fake_vsock *guest, uint64_t features);
/* Offers that many rx buffers, each once. */
void fake_vsock_offer_rx(struct fake_vsock *guest, unsigned first, unsigned count);

/* Sends a packet just as it is, with length bytes of data behind it; the device has done all it can then. */
void fake_vsock_send(
	struct fake_vsock *guest, const struct virtio_vsock_hdr *header, const void *data, size_t length);
/* The same, of that kind, on a connection, with a buf_alloc of FAKE_BUFFER and fwd_cnt of 0. */
void fake_vsock_send_op(struct fake_vsock *guest, uint16_t op, uint32_t guest_port, uint32_t host_port);
void fake_vsock_send_data(
	struct fake_vsock *guest, uint32_t guest_port, uint32_t host_port, const void *data, size_t length);
struct virtio_vsock_hdr fake_vsock_header(uint16_t op, uint32_t guest_port, uint32_t host_port);

/* The next packet to the guest. False: none. */
bool fake_vsock_receive(struct fake_vsock *guest, struct fake_packet *packet);
/* It must be there, of that op. */
void fake_vsock_expect(struct fake_vsock *guest, uint16_t op, struct fake_packet *packet);
void fake_vsock_expect_none(struct fake_vsock *guest);

#endif
