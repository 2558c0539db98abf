/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drivers and clients that do anything: random registers, rings, packets and socket calls, on every device.
 * What holds whatever they do: nothing outside guest memory is touched (the sanitizers and the pages around
 * it watch), each connection of the host is answered once, and nothing is left open.
 */
#include "tests/support/unit.h"

#include "common/log.h"
#include "tests/support/fake_vsock.h"
#include "vmm/virtio/balloon.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/rng.h"
#include "vmm/virtio/vsock.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_blk.h>
#include <linux/virtio_mmio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
	STORMS = 1200,
	STEPS = 300,
	HOSTS_MAX = 48,
	PORTS = 6,
	PAIRS = 8,
	DISK_BYTES = 64 * 512,
	AREA = 256 * 1024,
	SPILL = 64
};

struct storm {
	struct fake_driver driver;
	gpa_t area; /* where buffers are */
	uint64_t random;
	int hosts[HOSTS_MAX];
	unsigned count, connects, answers, accepted;
	struct {
		uint32_t guest_port, host_port;
	} pairs[PAIRS]; /* of the latest connections, in a ring */
	unsigned attempts, pair_count;
};

/* SplitMix64: the storms are the same at each run. */
static uint64_t next(struct storm *storm)
{
	uint64_t z = storm->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static uint32_t below(struct storm *storm, uint32_t limit)
{
	return (uint32_t)(next(storm) % limit);
}

static bool one_in(struct storm *storm, uint32_t n)
{
	return below(storm, n) == 0;
}

/* Mostly inside the area, sometimes across its end or anywhere. */
static uint64_t some_address(struct storm *storm)
{
	if (one_in(storm, 40))
		return one_in(storm, 2) ? next(storm) : FAKE_MEMORY - below(storm, SPILL);
	return storm->area + below(storm, AREA / 2);
}

static uint32_t some_length(struct storm *storm)
{
	switch (below(storm, 40)) {
	case 0:
		return 0;
	case 1:
		return (uint32_t)next(storm);
	default:
		return 1 + below(storm, one_in(storm, 4) ? AREA / 2 : 4096);
	}
}

/* sockets */

/* A stream that may be narrow; one end is kept, the other returned. -1: there are enough. */
static int some_socket(struct storm *storm)
{
	int fds[2], small = 1;

	if (storm->count == HOSTS_MAX)
		return -1;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	if (one_in(storm, 2))
		assert_int_equal(setsockopt(fds[1], SOL_SOCKET, SO_SNDBUF, &small, sizeof(small)), 0);
	storm->hosts[storm->count++] = fds[0];
	return fds[1];
}

static int on_accept(void *context, uint32_t guest_port, uint32_t host_port)
{
	int fd = host_port % 3 ? some_socket(context) : -1;

	(void)guest_port;
	return fd >= 0 ? fd : -ECONNREFUSED;
}

static void on_answer(void *context, int status)
{
	struct storm *storm = context;

	assert_true(status == 0 || status == -ECONNREFUSED || status == -ECONNRESET);
	storm->answers++;
	storm->accepted += status == 0;
}

static void remember(struct storm *storm, uint32_t guest_port, uint32_t host_port)
{
	storm->pairs[storm->pair_count % PAIRS].guest_port = guest_port;
	storm->pairs[storm->pair_count++ % PAIRS].host_port = host_port;
}

static void connect_some(struct storm *storm)
{
	int fd = some_socket(storm);
	uint32_t port = below(storm, PORTS);

	if (fd < 0)
		return;
	remember(storm, port, VSOCK_HOST_PORT_FIRST + storm->attempts++);
	if (vsock_connect(storm->driver.device, port, fd, on_answer, storm) == 0)
		storm->connects++;
}

static void use_some_socket(struct storm *storm)
{
	static uint8_t bytes[AREA];
	int *host = &storm->hosts[below(storm, storm->count)];

	switch (below(storm, 8)) {
	case 0:
		(void)shutdown(*host, (int)below(storm, 3));
		break;
	case 1:
		close(*host);
		*host = storm->hosts[--storm->count];
		break;
	case 2:
	case 3:
	case 4:
		(void)!read(*host, bytes, 1 + below(storm, AREA));
		break;
	default:
		(void)send(*host, bytes, 1 + below(storm, AREA / 4), MSG_NOSIGNAL);
		break;
	}
}

/* the driver */

static void bring_up(struct storm *storm)
{
	static const uint64_t features[] = {VIRTIO_FEATURES_COMMON, VIRTIO_FEATURE(VIRTIO_F_VERSION_1)};

	storm->driver.next_free = storm->area + AREA;
	fake_driver_start(&storm->driver, features[below(storm, 2)]);
}

static void some_register(struct storm *storm)
{
	uint64_t value = one_in(storm, 2) ? below(storm, 16) : next(storm);
	uint32_t width = 1u << below(storm, 4), offset = below(storm, VIRTIO_MMIO_WINDOW);

	if (!one_in(storm, 4)) {
		width = 4;
		offset = below(storm, VIRTIO_MMIO_CONFIG / 4) * 4;
	}
	if (one_in(storm, 2))
		virtio_mmio_write(storm->driver.mmio, offset, &value, width);
	else
		virtio_mmio_read(storm->driver.mmio, offset, &value, width);
}

/* The driver's own view of a queue: none before the device has been up. */
static unsigned some_queue(struct storm *storm)
{
	return below(storm, virtio_mmio_queue_count(storm->driver.mmio));
}

static void some_descriptor(struct storm *storm)
{
	struct fake_queue *queue = &storm->driver.queues[some_queue(storm)];

	queue->desc[below(storm, queue->size)] = (struct vring_desc){
		.addr = some_address(storm),
		.len = some_length(storm),
		.flags = (uint16_t)below(storm, one_in(storm, 20) ? 8 : 4),
		.next = (uint16_t)below(storm, queue->size + one_in(storm, 20)),
	};
}

static void some_chain(struct storm *storm)
{
	struct fake_buffer buffers[4];
	unsigned queue = some_queue(storm), count = 1 + below(storm, 4), readable = below(storm, count + 1);

	for (unsigned i = 0; i < count; i++)
		buffers[i] = (struct fake_buffer){.address = some_address(storm),
			.length = some_length(storm),
			.writable = i >= readable};
	fake_driver_offer(&storm->driver, queue, fake_driver_chain(&storm->driver, queue, buffers, count));
}

/* A request as the device wants it, but for its content. */
static void some_request(struct storm *storm)
{
	struct virtio_blk_outhdr header = {
		.type = below(storm, 12), .sector = below(storm, DISK_BYTES / 512 + 4)};
	bool to_disk = header.type == VIRTIO_BLK_T_OUT;
	struct fake_buffer buffers[] = {
		{.address = storm->area, .length = sizeof(header)},
		{.address = storm->area + 4096, .length = 512 * (1 + below(storm, 8)), .writable = !to_disk},
		{.address = storm->area + 2048, .length = 1, .writable = true},
	};

	memcpy(fake_driver_at(&storm->driver, storm->area, sizeof(header)), &header, sizeof(header));
	fake_driver_offer(&storm->driver, 0, fake_driver_chain(&storm->driver, 0, buffers, 3));
}

/* Of a connection that may be there, more often than not; then mostly of a kind that it lives on. */
static struct virtio_vsock_hdr some_header(struct storm *storm)
{
	static const uint16_t ops[] = {VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_RW, VIRTIO_VSOCK_OP_RW,
		VIRTIO_VSOCK_OP_CREDIT_UPDATE, VIRTIO_VSOCK_OP_CREDIT_REQUEST, VIRTIO_VSOCK_OP_RESPONSE,
		VIRTIO_VSOCK_OP_SHUTDOWN, VIRTIO_VSOCK_OP_RST};
	uint32_t guest_port = below(storm, PORTS), host_port = below(storm, PORTS),
		 pair = below(storm, PAIRS);
	uint16_t op = VIRTIO_VSOCK_OP_REQUEST;

	if (!one_in(storm, 5)) {
		guest_port = storm->pairs[pair].guest_port;
		host_port = storm->pairs[pair].host_port;
		op = ops[below(storm, one_in(storm, 6) ? 8 : 6)];
	} else {
		remember(storm, guest_port, host_port);
	}
	if (one_in(storm, 50))
		op = (uint16_t)below(storm, 10);
	return fake_vsock_header(op, guest_port, host_port);
}

static void some_packet(struct storm *storm)
{
	struct virtio_vsock_hdr header = some_header(storm);
	struct fake_buffer buffers[2];
	uint32_t length = 0;

	if (header.op == VIRTIO_VSOCK_OP_RW)
		length = below(storm, one_in(storm, 10) ? AREA / 2 : 16 * 1024);
	header.len = one_in(storm, 500) ? (uint32_t)next(storm) : length;
	header.flags = below(storm, 4);
	header.buf_alloc = below(storm, 8) ? FAKE_BUFFER : below(storm, 5000);
	header.fwd_cnt = one_in(storm, 30) ? below(storm, 30000) : 0;
	memcpy(fake_driver_at(&storm->driver, storm->area, sizeof(header)), &header, sizeof(header));
	buffers[0] = (struct fake_buffer){.address = storm->area, .length = sizeof(header)};
	buffers[1] = (struct fake_buffer){.address = storm->area + 4096, .length = length};
	fake_driver_offer(
		&storm->driver, FAKE_TX, fake_driver_chain(&storm->driver, FAKE_TX, buffers, length ? 2 : 1));
	fake_driver_kick(&storm->driver, FAKE_TX); /* before another overwrites it */
}

static void some_rx_buffers(struct storm *storm)
{
	struct fake_buffer buffer = {.address = storm->area + AREA / 2, .length = 45, .writable = true};

	for (uint32_t left = below(storm, 40); left; left--) {
		buffer.length = one_in(storm, 3) ? 45 + below(storm, 100) : FAKE_RX_BYTES;
		fake_driver_offer(
			&storm->driver, FAKE_RX, fake_driver_chain(&storm->driver, FAKE_RX, &buffer, 1));
	}
}

static struct virtio_device *make_vsock(struct storm *storm)
{
	struct vsock_config config = {
		.cid = FAKE_CID, .loop = storm->driver.loop, .accept = on_accept, .context = storm};
	struct virtio_device *device;

	assert_int_equal(vsock_create(&config, &device), 0);
	return device;
}

/* Whatever the driver has made of the rings, what is saved is taken back. */
static void restore_vsock(struct storm *storm)
{
	assert_int_equal(fake_driver_move(&storm->driver, make_vsock(storm)), 0);
	virtio_mmio_wake(storm->driver.mmio);
}

static void step(struct storm *storm)
{
	uint32_t id = storm->driver.device->id, dice = below(storm, 256);

	if (dice == 0)
		some_register(storm);
	else if (dice == 1)
		bring_up(storm);
	else if (dice == 2)
		some_descriptor(storm);
	else if (dice == 3)
		some_chain(storm);
	else if (dice == 4 && one_in(storm, 4))
		storm->driver.queues[some_queue(storm)].avail->idx = (uint16_t)next(storm);
	else if (dice == 5 && one_in(storm, 4) && id == VIRTIO_ID_VSOCK)
		restore_vsock(storm);
	else if (dice < 30 && id == VIRTIO_ID_VSOCK)
		connect_some(storm);
	else if (dice < 90 && storm->count)
		use_some_socket(storm);
	else if (dice < 130 && id == VIRTIO_ID_VSOCK)
		some_rx_buffers(storm);
	else if (id == VIRTIO_ID_VSOCK)
		some_packet(storm);
	else if (id == VIRTIO_ID_BLOCK)
		some_request(storm);
	else
		some_chain(storm);
	if (one_in(storm, 2))
		fake_driver_kick(&storm->driver, some_queue(storm));
}

static struct virtio_device *some_device(struct storm *storm)
{
	struct blk_config blk = {.id = "storm"};
	struct balloon_config balloon = {.memory = &storm->driver.memory, .target = AREA};
	struct virtio_device *device = NULL;

	switch (below(storm, 8)) {
	case 0:
		assert_int_equal(rng_create(&device), 0);
		break;
	case 1:
		assert_int_equal(balloon_create(&balloon, &device), 0);
		break;
	case 2:
		blk.fd = memfd_create("disk", MFD_CLOEXEC);
		assert_int_equal(ftruncate(blk.fd, DISK_BYTES), 0);
		assert_int_equal(blk_create(&blk, &device), 0);
		break;
	default:
		device = make_vsock(storm);
		break;
	}
	return device;
}

static int next_fd(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

static void weather(struct storm *storm, uint64_t seed)
{
	int fd = next_fd();

	memset(storm, 0, sizeof(*storm));
	storm->random = seed;
	fake_driver_init(&storm->driver);
	fake_driver_attach(&storm->driver, some_device(storm));
	storm->area = fake_driver_alloc(&storm->driver, AREA);
	bring_up(storm);
	for (unsigned i = 0; i < STEPS; i++)
		step(storm);
	while (storm->count)
		close(storm->hosts[--storm->count]);
	fake_driver_run(&storm->driver);
	fake_driver_finish(&storm->driver);
	assert_int_equal(storm->answers, storm->connects);
	assert_int_equal(next_fd(), fd);
}

static void devices_bear_any_storm(void **state)
{
	struct storm *storm = malloc(sizeof(*storm));
	int quiet = open("/dev/null", O_WRONLY | O_CLOEXEC);
	uint64_t accepted = 0;

	(void)state;
	assert_non_null(storm);
	log_set_fd(quiet); /* they complain much */
	for (uint64_t seed = 0; seed < STORMS; seed++) {
		weather(storm, seed);
		accepted += storm->accepted;
	}
	log_set_fd(STDERR_FILENO);
	assert_true(accepted > STORMS / 2); /* it was no lull */
	close(quiet);
	free(storm);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(devices_bear_any_storm)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
