/* SPDX-License-Identifier: Apache-2.0 */
/* A guest with vsock and the host's end of the stream in question. Its tests: vmm_vsock.c, _rules.c, _end.c.
 */
#ifndef TESTS_UNIT_VMM_VSOCK_FIXTURE_H
#define TESTS_UNIT_VMM_VSOCK_FIXTURE_H

#include "tests/support/unit.h"

#include "tests/support/fake_vsock.h"
#include "vmm/virtio/vsock.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_mmio.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { NOT_CALLED = 1, GUEST_PORT = 1024, HOST_PORT = 5000, CLIENT_PORT = 77 };
enum {
	OP_REQUEST = VIRTIO_VSOCK_OP_REQUEST,
	OP_RESPONSE = VIRTIO_VSOCK_OP_RESPONSE,
	OP_RST = VIRTIO_VSOCK_OP_RST,
	OP_SHUTDOWN = VIRTIO_VSOCK_OP_SHUTDOWN,
	OP_RW = VIRTIO_VSOCK_OP_RW,
	OP_CREDIT_UPDATE = VIRTIO_VSOCK_OP_CREDIT_UPDATE,
	OP_CREDIT_REQUEST = VIRTIO_VSOCK_OP_CREDIT_REQUEST
};
#define FEATURES VIRTIO_FEATURES_COMMON
#define ALL_DOWN (VIRTIO_VSOCK_SHUTDOWN_RCV | VIRTIO_VSOCK_SHUTDOWN_SEND)

struct fixture {
	struct fake_vsock guest;
	struct fake_packet packet;
	int host; /* our end of the stream */
	int status;
	unsigned calls;
	uint32_t host_port; /* of the last connection the host made */
};

static inline void on_done(void *context, int status)
{
	struct fixture *f = context;

	f->status = status;
	f->calls++;
}

static inline int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	fake_vsock_init(&f->guest);
	f->host = -1;
	f->status = NOT_CALLED;
	*state = f;
	return 0;
}

static inline int setup_started(void **state)
{
	setup(state);
	fake_vsock_start(&((struct fixture *)*state)->guest, FEATURES);
	return 0;
}

static inline int teardown(void **state)
{
	struct fixture *f = *state;

	fake_vsock_finish(&f->guest);
	if (f->host >= 0)
		close(f->host);
	free(f);
	return 0;
}

/* A stream; f->host is one end, the other is returned. */
static inline int make_pair(struct fixture *f)
{
	int fds[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	if (f->host >= 0)
		close(f->host);
	f->host = fds[0];
	return fds[1];
}

static inline void start_connect(struct fixture *f)
{
	f->status = NOT_CALLED;
	f->calls = 0;
	assert_int_equal(vsock_connect(f->guest.device, GUEST_PORT, make_pair(f), on_done, f), 0);
	fake_driver_run(&f->guest.driver);
	assert_int_equal(f->calls, 0);
}

static inline void expect_request(struct fixture *f)
{
	fake_vsock_expect(&f->guest, OP_REQUEST, &f->packet);
	f->host_port = f->packet.header.src_port;
}

/* A connection that the host made and the guest accepted. */
static inline void establish(struct fixture *f)
{
	start_connect(f);
	expect_request(f);
	fake_vsock_send_op(&f->guest, OP_RESPONSE, GUEST_PORT, f->host_port);
	assert_int_equal(f->calls, 1);
	assert_int_equal(f->status, 0);
}

static inline void expect_end_of_stream(struct fixture *f)
{
	char byte;

	assert_int_equal(read(f->host, &byte, 1), 0);
}

static inline void expect_open(struct fixture *f)
{
	char byte;

	assert_int_equal(read(f->host, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

static inline void send_shutdown(struct fixture *f, uint32_t flags)
{
	struct virtio_vsock_hdr header = fake_vsock_header(OP_SHUTDOWN, GUEST_PORT, f->host_port);

	header.flags = flags;
	fake_vsock_send(&f->guest, &header, NULL, 0);
}

static inline void expect_reset_of(struct fixture *f, uint32_t guest_port, uint32_t host_port)
{
	fake_vsock_expect(&f->guest, OP_RST, &f->packet);
	assert_int_equal(f->packet.header.dst_port, guest_port);
	assert_int_equal(f->packet.header.src_port, host_port);
	fake_vsock_expect_none(&f->guest);
}

/* The device gives way to one that is restored from its record, and does not run yet. */
static inline void restore(struct fixture *f)
{
	struct fake_driver *driver = &f->guest.driver;
	struct vsock_config config = {.cid = FAKE_CID, .loop = driver->loop};

	assert_int_equal(vsock_create(&config, &f->guest.device), 0);
	assert_int_equal(fake_driver_move(driver, f->guest.device), 0);
}

static inline void wake(struct fixture *f)
{
	virtio_mmio_wake(f->guest.driver.mmio);
	fake_driver_run(&f->guest.driver);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_started, teardown)
#define CASE_BEFORE_START(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
