/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/unit.h"

#include "tests/support/fake_vsock.h"
#include "vmm/virtio/vsock.h"
#include <errno.h>
#include <string.h>

static int on_accept(void *context, uint32_t guest_port, uint32_t host_port)
{
	struct fake_vsock *guest = context;
	int fd = guest->accept_fd;

	guest->accepts++;
	guest->accepted_port = host_port;
	guest->accepted_from = guest_port;
	guest->accept_fd = -ECONNREFUSED;
	return fd;
}

void fake_vsock_init(struct fake_vsock *guest)
{
	struct vsock_config config = {.cid = FAKE_CID, .accept = on_accept, .context = guest};

	memset(guest, 0, sizeof(*guest));
	fake_driver_init(&guest->driver);
	guest->accept_fd = -ECONNREFUSED;
	config.loop = guest->driver.loop;
	assert_int_equal(vsock_create(&config, &guest->device), 0);
	fake_driver_attach(&guest->driver, guest->device);
	guest->tx_header = fake_driver_alloc(&guest->driver, sizeof(struct virtio_vsock_hdr));
	guest->tx_data = fake_driver_alloc(&guest->driver, 2 * VSOCK_BUFFER);
	for (unsigned i = 0; i < 128; i++)
		guest->rx_buffers[i] = fake_driver_alloc(&guest->driver, FAKE_RX_BYTES);
}

void fake_vsock_finish(struct fake_vsock *guest)
{
	fake_driver_finish(&guest->driver);
}

void fake_vsock_offer_rx(struct fake_vsock *guest, unsigned first, unsigned count)
{
	struct fake_queue *queue = &guest->driver.queues[FAKE_RX];

	for (unsigned i = first; i < first + count; i++) {
		queue->desc[i] = (struct vring_desc){
			.addr = guest->rx_buffers[i], .len = FAKE_RX_BYTES, .flags = VRING_DESC_F_WRITE};
		fake_driver_offer(&guest->driver, FAKE_RX, (uint16_t)i);
	}
}

void fake_vsock_start(struct fake_vsock *guest, uint64_t features)
{
	fake_driver_start(&guest->driver, features);
	fake_vsock_offer_rx(guest, 0, guest->rx_held ? 0 : 128);
	fake_driver_kick(&guest->driver, FAKE_RX);
}

struct virtio_vsock_hdr fake_vsock_header(uint16_t op, uint32_t guest_port, uint32_t host_port)
{
	return (struct virtio_vsock_hdr){
		.src_cid = FAKE_CID,
		.dst_cid = 2,
		.src_port = guest_port,
		.dst_port = host_port,
		.type = VIRTIO_VSOCK_TYPE_STREAM,
		.op = op,
		.buf_alloc = FAKE_BUFFER,
	};
}

void fake_vsock_send(
	struct fake_vsock *guest, const struct virtio_vsock_hdr *header, const void *data, size_t length)
{
	struct fake_buffer buffers[2] = {
		{.address = guest->tx_header, .length = sizeof(*header)},
		{.address = guest->tx_data, .length = (uint32_t)length},
	};
	uint16_t head;
	uint32_t written;

	memcpy(fake_driver_at(&guest->driver, guest->tx_header, sizeof(*header)), header, sizeof(*header));
	if (length)
		memcpy(fake_driver_at(&guest->driver, guest->tx_data, length), data, length);
	head = fake_driver_chain(&guest->driver, FAKE_TX, buffers, length ? 2 : 1);
	fake_driver_offer(&guest->driver, FAKE_TX, head);
	fake_driver_kick(&guest->driver, FAKE_TX);
	while (fake_driver_used(&guest->driver, FAKE_TX, &head, &written))
		assert_int_equal(written, 0);
}

void fake_vsock_send_op(struct fake_vsock *guest, uint16_t op, uint32_t guest_port, uint32_t host_port)
{
	struct virtio_vsock_hdr header = fake_vsock_header(op, guest_port, host_port);

	fake_vsock_send(guest, &header, NULL, 0);
}

void fake_vsock_send_data(
	struct fake_vsock *guest, uint32_t guest_port, uint32_t host_port, const void *data, size_t length)
{
	struct virtio_vsock_hdr header = fake_vsock_header(VIRTIO_VSOCK_OP_RW, guest_port, host_port);

	header.len = (uint32_t)length;
	fake_vsock_send(guest, &header, data, length);
}

bool fake_vsock_receive(struct fake_vsock *guest, struct fake_packet *packet)
{
	uint16_t head;
	uint32_t written;

	if (!fake_driver_used(&guest->driver, FAKE_RX, &head, &written))
		return false;
	assert_true(written >= sizeof(packet->header) && written <= FAKE_RX_BYTES);
	memcpy(packet, fake_driver_at(&guest->driver, guest->rx_buffers[head], written), written);
	assert_int_equal(packet->header.len, written - sizeof(packet->header));
	if (!guest->rx_held) {
		fake_driver_offer(&guest->driver, FAKE_RX, head);
		/* as a driver does: only when the device wants to know */
		if (!(guest->device->driver_features & VIRTIO_FEATURE(VIRTIO_RING_F_EVENT_IDX)) ||
			fake_driver_must_kick(&guest->driver, FAKE_RX))
			fake_driver_kick(&guest->driver, FAKE_RX);
	}
	return true;
}

void fake_vsock_expect(struct fake_vsock *guest, uint16_t op, struct fake_packet *packet)
{
	assert_true(fake_vsock_receive(guest, packet));
	assert_int_equal(packet->header.op, op);
}

void fake_vsock_expect_none(struct fake_vsock *guest)
{
	struct fake_packet packet;

	assert_false(fake_vsock_receive(guest, &packet));
}
