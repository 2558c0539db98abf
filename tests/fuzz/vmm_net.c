/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile driver before the network device, and a host's side that gives and takes packets, refuses them,
 * is full, goes away and is replaced. What reaches the host's side is sound: a header, an Ethernet header
 * behind it, within the bound, and only offloads that were negotiated.
 */
#include "tests/fuzz/support/driver.h"
#include "vmm/virtio/net.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_net.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { RX, TX, HEADER_AT = DRIVER_AREA, DATA_AT = DRIVER_AREA + 0x1000, PACKETS_MAX = 64 };
_Static_assert(sizeof(struct virtio_net_hdr_v1) == NET_HEADER, "wire layout");

/* The backend's functions know only an fd, so what they share with the target is the process's. */
static struct {
	struct driver driver;
	int side;	   /* the eventfd that is the host's side: readable while packets wait. -1: none */
	unsigned waiting;  /* packets */
	uint8_t answer;	   /* to what is sent */
	unsigned offloads; /* that were set last */
} now;

/* the host's side */

static size_t copy_out(const struct iovec *pieces, int count, const uint8_t *data, size_t length)
{
	size_t done = 0;

	for (int i = 0; i < count && done < length; i++) {
		size_t part = pieces[i].iov_len < length - done ? pieces[i].iov_len : length - done;

		memcpy(pieces[i].iov_base, data + done, part);
		done += part;
	}
	return done;
}

/* A packet whose length, and whose header's content, the input says. */
static ssize_t receive(int fd, const struct iovec *pieces, int count)
{
	static uint8_t packet[NET_HEADER + NET_PACKET_MAX];
	struct virtio_net_hdr_v1 header = {.num_buffers = 0};
	uint8_t choice;
	size_t length;
	uint64_t counter;

	FUZZ_ASSERT(fd >= 0 && count > 0);
	if (now.waiting == 0) {
		(void)!read(fd, &counter, sizeof(counter));
		return -EAGAIN;
	}
	now.waiting--;
	choice = fuzz_u8(now.driver.input);
	if (choice == 0xff)
		return -EIO;
	if (choice == 0xfe)
		return -EBADMSG;
	if (choice == 0xfd)
		return 0;
	length = NET_HEADER + (choice & 1 ? fuzz_u16(now.driver.input) + (choice >> 4) : choice);
	if (length > sizeof(packet))
		length = sizeof(packet);
	if (choice & 2)
		fuzz_take(now.driver.input, &header, sizeof(header));
	memcpy(packet, &header, sizeof(header));
	copy_out(pieces, count, packet, length);
	return (ssize_t)length;
}

static void check_sent(const struct virtio_net_hdr_v1 *header, uint64_t length)
{
	const struct virtio_device *device = now.driver.device;
	uint8_t gso = header->gso_type & ~(unsigned)VIRTIO_NET_HDR_GSO_ECN;

	FUZZ_ASSERT(length >= NET_HEADER + ETH_HLEN && length <= NET_HEADER + NET_PACKET_MAX);
	if (header->flags & VIRTIO_NET_HDR_F_NEEDS_CSUM) {
		FUZZ_ASSERT(virtio_device_has(device, VIRTIO_NET_F_CSUM));
		FUZZ_ASSERT(NET_HEADER + (uint64_t)header->csum_start + header->csum_offset + 2 <= length);
	}
	if (gso == VIRTIO_NET_HDR_GSO_NONE)
		return;
	FUZZ_ASSERT(gso == VIRTIO_NET_HDR_GSO_TCPV4 || gso == VIRTIO_NET_HDR_GSO_TCPV6);
	FUZZ_ASSERT(virtio_device_has(
		device, gso == VIRTIO_NET_HDR_GSO_TCPV4 ? VIRTIO_NET_F_HOST_TSO4 : VIRTIO_NET_F_HOST_TSO6));
	FUZZ_ASSERT(!(header->gso_type & VIRTIO_NET_HDR_GSO_ECN) ||
		    virtio_device_has(device, VIRTIO_NET_F_HOST_ECN));
	FUZZ_ASSERT(header->gso_size >= NET_SEGMENT_MIN);
}

static int send_packet(int fd, const struct iovec *pieces, int count)
{
	struct virtio_net_hdr_v1 header = {.flags = 0};
	uint64_t length = 0;
	size_t have = 0;

	FUZZ_ASSERT(fd >= 0 && count > 0);
	for (int i = 0; i < count; i++) {
		size_t part =
			sizeof(header) - have < pieces[i].iov_len ? sizeof(header) - have : pieces[i].iov_len;

		memcpy((uint8_t *)&header + have, pieces[i].iov_base, part);
		have += part;
		length += pieces[i].iov_len;
	}
	FUZZ_ASSERT(have == sizeof(header));
	check_sent(&header, length);
	switch (now.answer) {
	case 1:
		return -EAGAIN;
	case 2:
		return -ENODEV;
	case 3:
		return -EINVAL;
	default:
		return 0;
	}
}

static int set_offloads(int fd, unsigned offloads)
{
	FUZZ_ASSERT(fd >= 0);
	FUZZ_ASSERT(!(offloads &
		      ~(unsigned)(NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 | NET_OFFLOAD_ECN)));
	now.offloads = offloads;
	return 0;
}

static void set_carrier(int fd, bool up)
{
	FUZZ_ASSERT(fd >= 0);
	(void)up;
}

static const struct net_backend_ops backend = {
	.receive = receive, .send = send_packet, .set_offloads = set_offloads, .set_carrier = set_carrier};

/* Both ends are the same eventfd: the device's, and ours to make it readable. */
static int make_side(void)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	FUZZ_ASSERT(fd >= 0);
	if (now.side >= 0)
		close(now.side);
	now.side = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	now.waiting = 0;
	FUZZ_ASSERT(now.side >= 0);
	return fd;
}

static void step_host(void)
{
	uint8_t choice = fuzz_u8(now.driver.input);
	int r;

	switch (choice & 7) {
	case 0:
		FUZZ_ASSERT(net_attach(now.driver.device, make_side()) == 0);
		break;
	case 1:
		r = net_set_link(now.driver.device, choice >> 7);
		FUZZ_ASSERT(r == 0 || (r == -ENOTCONN && choice >> 7));
		break;
	case 2:
		now.answer = choice >> 3 & 3;
		break;
	default:
		now.waiting += 1 + (choice >> 3);
		if (now.waiting > PACKETS_MAX)
			now.waiting = PACKETS_MAX;
		if (now.side >= 0)
			FUZZ_ASSERT(eventfd_write(now.side, 1) == 0);
		break;
	}
}

/* the guest's side */

static void step_packet(void)
{
	static const uint8_t gso_types[] = {VIRTIO_NET_HDR_GSO_NONE, VIRTIO_NET_HDR_GSO_TCPV4,
		VIRTIO_NET_HDR_GSO_TCPV6, VIRTIO_NET_HDR_GSO_UDP};
	uint8_t choice = fuzz_u8(now.driver.input), shape = fuzz_u8(now.driver.input);
	struct virtio_net_hdr_v1 header = {.flags = choice & 1, .gso_type = gso_types[choice >> 1 & 3]};
	struct driver_buffer buffers[3] = {{.address = HEADER_AT, .length = sizeof(header)},
		{.address = DATA_AT, .length = driver_some_length(&now.driver)},
		{.address = driver_some_address(&now.driver), .length = driver_some_length(&now.driver)}};
	size_t room = sizeof(header);

	if (choice & 8)
		header.gso_type |= VIRTIO_NET_HDR_GSO_ECN;
	if (header.gso_type != VIRTIO_NET_HDR_GSO_NONE) {
		header.gso_size = fuzz_u8(now.driver.input);
		header.hdr_len = 54;
	}
	if (header.flags) {
		header.csum_start = fuzz_u8(now.driver.input);
		header.csum_offset = choice & 16 ? fuzz_u16(now.driver.input) : 16;
	}
	if (choice == 0xff)
		fuzz_take(now.driver.input, &header, sizeof(header));
	memcpy(driver_at(&now.driver, HEADER_AT, &room), &header, sizeof(header));
	if (shape & 4) { /* header and packet in one */
		buffers[0].length = sizeof(header) + buffers[1].length;
		buffers[1] = buffers[2];
	}
	driver_offer(
		&now.driver, TX, driver_chain(&now.driver, TX, buffers, 1 + shape % 3), 1 + (shape >> 5));
	driver_kick(&now.driver, TX);
}

static void step_rx_buffers(void)
{
	uint8_t choice = fuzz_u8(now.driver.input);
	struct driver_buffer buffers[2] = {{.address = DATA_AT + 0x4000, .length = 1526, .writable = true},
		{.address = DATA_AT + 0x6000, .length = driver_some_length(&now.driver), .writable = true}};

	if (choice & 2)
		buffers[0].length = NET_HEADER + (choice >> 2);
	driver_offer(
		&now.driver, RX, driver_chain(&now.driver, RX, buffers, 1 + (choice & 1)), 1 + (choice >> 3));
	driver_kick(&now.driver, RX);
}

static void step(void)
{
	uint8_t choice = fuzz_u8(now.driver.input);

	switch (choice & 7) {
	case 0:
	case 1:
		step_packet();
		break;
	case 2:
		step_rx_buffers();
		break;
	case 3:
	case 4:
		step_host();
		break;
	case 5:
		driver_turn(&now.driver);
		break;
	default:
		driver_step(&now.driver);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz_input input = fuzz_open(data, size);
	struct net_config config = {.mac = {2, 0, 0, 0, 0, 1}, .fd = -1, .backend = &backend};
	struct virtio_device *device;

	fuzz_begin();
	memset(&now, 0, sizeof(now));
	now.side = -1;
	driver_init(&now.driver, &input);
	/* Receive buffers are held: what the driver writes over their descriptors later does not count. */
	now.driver.unwatched = true;
	config.loop = now.driver.loop;
	if (fuzz_u8(&input) & 1)
		config.fd = make_side();
	FUZZ_ASSERT(net_create(&config, &device) == 0);
	driver_attach(&now.driver, device);
	while (driver_goes_on(&now.driver))
		step();
	now.answer = 0; /* else a full side would hold the rest up for ever, as it may */
	driver_settle(&now.driver);
	driver_finish(&now.driver);
	if (now.side >= 0)
		close(now.side);
	fuzz_end();
	return 0;
}
