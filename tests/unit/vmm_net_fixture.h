/* SPDX-License-Identifier: Apache-2.0 */
/* A net device whose backend is one end of a socketpair: a packet is a message, the test has the other end.
 */
#ifndef TESTS_UNIT_VMM_NET_FIXTURE_H
#define TESTS_UNIT_VMM_NET_FIXTURE_H

#include "tests/support/unit.h"

#include "common/io.h"
#include "common/log.h"
#include "tests/support/fake_driver.h"
#include "vmm/virtio/net.h"
#include <errno.h>
#include <linux/virtio_mmio.h>
#include <linux/virtio_net.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	RX = 0,
	TX = 1,
	FRAME_MAX = NET_HEADER + NET_PACKET_MAX,
	BUFFER = 1536, /* as Linux offers them */
	EVERY_OFFLOAD = NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 | NET_OFFLOAD_ECN,
	NEEDS_RESET = 0xf | VIRTIO_CONFIG_S_NEEDS_RESET,
};

/* What the backend was asked for last, and what it answers. */
struct backend {
	unsigned offloads;
	bool carrier;
	int refusal; /* of set_offloads */
	int send_error;
};
static struct backend backend;

struct fixture {
	struct fake_driver driver;
	struct virtio_device *device;
	int peer;
};

static inline ssize_t backend_receive(int fd, const struct iovec *pieces, int count)
{
	struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = (size_t)count};
	ssize_t got = recvmsg(fd, &message, 0);

	return got < 0 ? -errno : got;
}

static inline int backend_send(int fd, const struct iovec *pieces, int count)
{
	struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = (size_t)count};

	if (backend.send_error)
		return backend.send_error;
	if (sendmsg(fd, &message, MSG_NOSIGNAL) >= 0)
		return 0;
	return errno == EPIPE ? -ENODEV : -errno;
}

static inline int backend_set_offloads(int fd, unsigned offloads)
{
	assert_true(fd >= 0);
	if (!backend.refusal)
		backend.offloads = offloads;
	return backend.refusal;
}

static inline void backend_set_carrier(int fd, bool up)
{
	assert_true(fd >= 0);
	backend.carrier = up;
}

static const struct net_backend_ops backend_ops = {
	.receive = backend_receive,
	.send = backend_send,
	.set_offloads = backend_set_offloads,
	.set_carrier = backend_set_carrier,
};

static const uint8_t test_mac[ETH_ALEN] = {0x02, 1, 2, 3, 4, 5};

/* The device's end of a new backend; the other one is *peer. */
static inline int make_backend(int *peer)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
	*peer = pair[1];
	return pair[0];
}

static inline int setup_with(void **state, bool with_backend)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct net_config config = {.fd = -1, .backend = &backend_ops};

	assert_non_null(f);
	log_init("test", LOG_LEVEL_ERROR);
	backend = (struct backend){0};
	fake_driver_init(&f->driver);
	f->peer = -1;
	if (with_backend)
		config.fd = make_backend(&f->peer);
	config.loop = f->driver.loop;
	memcpy(config.mac, test_mac, sizeof(test_mac));
	assert_int_equal(net_create(&config, &f->device), 0);
	fake_driver_attach(&f->driver, f->device);
	*state = f;
	return 0;
}

static inline void start_without(struct fixture *f, uint64_t unwanted)
{
	fake_driver_start(&f->driver, fake_driver_features(&f->driver) & ~unwanted);
	fake_driver_run(&f->driver);
}

static inline int setup(void **state)
{
	setup_with(state, true);
	start_without(*state, 0);
	return 0;
}

static inline int setup_without_backend(void **state)
{
	setup_with(state, false);
	start_without(*state, 0);
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	fake_driver_finish(&f->driver);
	fd_close(&f->peer);
	free(f);
	return 0;
}

static inline uint16_t status_of(struct fixture *f)
{
	uint16_t status;

	virtio_mmio_read(f->driver.mmio, VIRTIO_MMIO_CONFIG + 6, &status, sizeof(status));
	return status;
}

static inline uint32_t generation_of(struct fixture *f)
{
	return fake_driver_read(&f->driver, VIRTIO_MMIO_CONFIG_GENERATION);
}

/* Bytes that differ by number and place. */
static inline void fill(uint8_t *bytes, size_t length, unsigned number)
{
	for (size_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static inline void assert_filled(const uint8_t *bytes, size_t length, unsigned number)
{
	for (size_t i = 0; i < length; i++)
		if (bytes[i] != (uint8_t)(number * 31 + i * 7 + (i >> 8)))
			fail_msg("packet %u differs at %zu", number, i);
}

/* From the guest: offers a packet with that header in one piece, without a notification. */
static inline void offer_packet(
	struct fixture *f, const struct virtio_net_hdr_v1 *header, size_t length, unsigned number)
{
	gpa_t address = fake_driver_alloc(&f->driver, NET_HEADER + length);
	struct fake_buffer buffer = {.address = address, .length = (uint32_t)(NET_HEADER + length)};

	memcpy(fake_driver_at(&f->driver, address, NET_HEADER), header, NET_HEADER);
	fill(fake_driver_at(&f->driver, address + NET_HEADER, length), length, number);
	fake_driver_offer(&f->driver, TX, fake_driver_chain(&f->driver, TX, &buffer, 1));
}

static inline void send_packet(struct fixture *f, size_t length, unsigned number)
{
	offer_packet(f, &(struct virtio_net_hdr_v1){0}, length, number);
	fake_driver_kick(&f->driver, TX);
}

/* At the backend's other end. The bytes with the header; -1: nothing. */
static inline ssize_t peer_take(struct fixture *f, uint8_t frame[FRAME_MAX])
{
	return recv(f->peer, frame, FRAME_MAX, 0);
}

static inline void peer_expect(struct fixture *f, size_t length, unsigned number)
{
	static uint8_t frame[FRAME_MAX];

	assert_int_equal(peer_take(f, frame), NET_HEADER + length);
	assert_filled(frame + NET_HEADER, length, number);
}

static inline void peer_expect_nothing(struct fixture *f)
{
	static uint8_t frame[FRAME_MAX];

	assert_int_equal(peer_take(f, frame), -1);
	assert_int_equal(errno, EAGAIN);
}

/* To the guest: as a tap does, with a header whose num_buffers is nobody's. */
static inline void peer_send(struct fixture *f, size_t length, unsigned number)
{
	static uint8_t frame[FRAME_MAX + 4096];
	struct virtio_net_hdr_v1 header = {.flags = VIRTIO_NET_HDR_F_DATA_VALID, .num_buffers = 0xeeee};

	memcpy(frame, &header, sizeof(header));
	fill(frame + sizeof(header), length, number);
	assert_int_equal(send(f->peer, frame, sizeof(header) + length, 0), sizeof(header) + length);
}

/* A fresh receive buffer of that length; where it is. */
static inline gpa_t offer_buffer(struct fixture *f, uint32_t length)
{
	struct fake_buffer buffer = {
		.address = fake_driver_alloc(&f->driver, length), .length = length, .writable = true};

	fake_driver_offer(&f->driver, RX, fake_driver_chain(&f->driver, RX, &buffer, 1));
	return buffer.address;
}

/* The guest's next packet, out of its buffers, as its driver does it; the length behind the header. */
static inline size_t guest_take(
	struct fixture *f, uint8_t packet[NET_PACKET_MAX], struct virtio_net_hdr_v1 *header)
{
	static uint8_t frame[FRAME_MAX];
	unsigned buffers = 1;
	size_t length = 0;

	for (unsigned i = 0; i < buffers; i++) {
		uint16_t head;
		uint32_t written;

		if (!fake_driver_used(&f->driver, RX, &head, &written)) {
			assert_int_equal(i, 0);
			return 0;
		}
		memcpy(frame + length,
			fake_driver_at(&f->driver, f->driver.queues[RX].desc[head].addr, written), written);
		length += written;
		memcpy(header, frame, sizeof(*header));
		buffers = header->num_buffers;
	}
	assert_true(length > sizeof(*header));
	memcpy(packet, frame + sizeof(*header), length - sizeof(*header));
	return length - sizeof(*header);
}

static inline void guest_expect(struct fixture *f, size_t length, unsigned number, unsigned buffers)
{
	static uint8_t packet[NET_PACKET_MAX];
	struct virtio_net_hdr_v1 header = {.num_buffers = 0};

	assert_int_equal(guest_take(f, packet, &header), length);
	assert_int_equal(header.num_buffers, buffers);
	assert_filled(packet, length, number);
}

static inline void guest_expect_nothing(struct fixture *f)
{
	uint16_t head;
	uint32_t written;

	assert_false(fake_driver_used(&f->driver, RX, &head, &written));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define CASE_WITHOUT_BACKEND(name) cmocka_unit_test_setup_teardown(name, setup_without_backend, teardown)

#endif
