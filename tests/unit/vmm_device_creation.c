/* SPDX-License-Identifier: Apache-2.0 */
/* Every allocation of each constructor of the devices fails once: the error is the header's and nothing is
 * left. */
#include "tests/support/unit.h"

#include "tests/support/fail_alloc.h"
#include "tests/support/fake_vsock.h"
#include "vmm/cow.h"
#include "vmm/virtio/balloon.h"
#include "vmm/virtio/blk.h"
#include "vmm/virtio/rng.h"
#include "vmm/virtio/vsock.h"
#include "vmm/vsock_unix.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { ATTEMPTS_MAX = 20 };

/* The lowest free fd: the same before and after, when none leaks. */
static int next_fd(void)
{
	int fd = dup(0);

	assert_true(fd >= 0);
	close(fd);
	return fd;
}

/* A constructor: 0 when it made its thing and destroyed it again. */
typedef int (*make_fn)(void *context);

/* Returns how many allocations were made to fail before it passed. */
static unsigned fail_each(make_fn make, void *context)
{
	int fd = next_fd();

	for (unsigned n = 0; n < ATTEMPTS_MAX; n++) {
		int result;

		fail_alloc(n);
		result = make(context);
		if (!fail_alloc_end()) {
			assert_int_equal(result, 0);
			assert_int_equal(next_fd(), fd);
			return n;
		}
		assert_int_equal(result, -ENOMEM);
		assert_int_equal(next_fd(), fd);
	}
	fail_msg("it never passed");
	return 0;
}

static int make_rng(void *context)
{
	struct virtio_device *device = NULL;
	int error = rng_create(&device);

	(void)context;
	virtio_device_destroy(device);
	return error;
}

static int make_blk(void *context)
{
	struct blk_config config = {.fd = memfd_create("disk", MFD_CLOEXEC), .id = "x"};
	struct virtio_device *device = NULL;
	int error;

	(void)context;
	assert_int_equal(ftruncate(config.fd, 4096), 0);
	error = blk_create(&config, &device);
	virtio_device_destroy(device);
	return error;
}

static int make_cow(void *context)
{
	struct blk_config config = {.id = "x"};
	int lower = memfd_create("lower", MFD_CLOEXEC), upper = memfd_create("upper", MFD_CLOEXEC);
	struct virtio_device *device = NULL;
	int error;

	(void)context;
	assert_int_equal(ftruncate(lower, 4096), 0);
	error = cow_create(lower, upper, &config.disk);
	if (error == 0)
		error = blk_create(&config, &device);
	virtio_device_destroy(device);
	return error;
}

static int make_balloon(void *context)
{
	static const struct guest_memory memory;
	struct balloon_config config = {.memory = &memory};
	struct virtio_device *device = NULL;
	int error = balloon_create(&config, &device);

	(void)context;
	virtio_device_destroy(device);
	return error;
}

static int make_vsock(void *context)
{
	struct vsock_config config = {.cid = 3, .loop = context};
	struct virtio_device *device = NULL;
	int error = vsock_create(&config, &device);

	virtio_device_destroy(device);
	return error;
}

static int make_mmio(void *context)
{
	static const struct guest_memory memory;
	static const struct virtio_machine machine;
	struct virtio_device *device = NULL;
	struct virtio_mmio *mmio = NULL;
	int error = rng_create(&device);

	if (error)
		return error;
	error = virtio_mmio_create(device, &memory, context, &machine, &mmio);
	virtio_mmio_destroy(mmio);
	return error;
}

static int make_vsock_unix(void *context)
{
	static const char path[] = "/tmp/vsock-unix-creation";
	struct vsock_unix *host = NULL;
	int error = vsock_unix_create(path, context, &host);

	vsock_unix_destroy(host);
	assert_int_equal(access(path, F_OK), -1);
	return error;
}

static void constructors_bear_any_allocation_that_fails(void **state)
{
	struct loop *loop = loop_create();

	(void)state;
	assert_int_equal(fail_each(make_rng, NULL), 1);
	assert_int_equal(fail_each(make_blk, NULL), 2);
	assert_int_equal(fail_each(make_cow, NULL), 5);
	assert_int_equal(fail_each(make_balloon, NULL), 1);
	assert_int_equal(fail_each(make_vsock, loop), 1);
	assert_true(fail_each(make_mmio, loop) >= 3);	    /* its own, the device's, the loop's */
	assert_true(fail_each(make_vsock_unix, loop) >= 2); /* its own, the loop's */
	assert_int_equal(loop_turn(loop, 0), 0);
	loop_destroy(loop);
}

/* connections */

static void on_done(void *context, int status)
{
	*(int *)context = status;
}

struct connecting {
	struct fake_vsock guest;
	struct fake_packet packet;
	int status;
};

static int make_connection(void *context)
{
	struct connecting *c = context;
	int fds[2], error;

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	c->status = 1;
	error = vsock_connect(c->guest.device, 1024, fds[1], on_done, &c->status);
	if (error)
		assert_int_equal(c->status, 1); /* done is not called */
	close(fds[0]);
	fake_driver_run(&c->guest.driver);
	while (fake_vsock_receive(&c->guest, &c->packet))
		;
	return error;
}

static struct connecting *start_guest(void)
{
	struct connecting *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	fake_vsock_init(&c->guest);
	fake_vsock_start(&c->guest, VIRTIO_FEATURES_COMMON);
	return c;
}

static void end_guest(struct connecting *c)
{
	fake_vsock_finish(&c->guest);
	free(c);
}

static void a_connection_bears_any_allocation_that_fails(void **state)
{
	struct connecting *c = start_guest();

	(void)state;
	assert_true(fail_each(make_connection, c) >= 2); /* its own, the loop's */
	end_guest(c);
}

static void a_socket_that_cannot_be_watched_is_refused(void **state)
{
	struct connecting *c = start_guest();
	int file = memfd_create("no socket", MFD_CLOEXEC), next = next_fd();

	(void)state;
	c->status = 1;
	assert_int_equal(vsock_connect(c->guest.device, 1024, dup(file), on_done, &c->status), -EPERM);
	assert_int_equal(c->status, 1);
	assert_int_equal(next_fd(), next);
	fake_vsock_expect_none(&c->guest);
	/* the same for what accept returns */
	c->guest.accept_fd = dup(file);
	fake_vsock_send_op(&c->guest, VIRTIO_VSOCK_OP_REQUEST, 77, 5000);
	fake_vsock_expect(&c->guest, VIRTIO_VSOCK_OP_RST, &c->packet);
	assert_int_equal(next_fd(), next);
	close(file);
	end_guest(c);
}

static void no_memory_for_a_guests_connection_resets_it(void **state)
{
	struct connecting *c = start_guest();
	int next = next_fd();

	(void)state;
	for (unsigned n = 0;; n++) {
		int fds[2];

		assert_true(n < ATTEMPTS_MAX);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
		c->guest.accept_fd = fds[1];
		fail_alloc(n);
		fake_vsock_send_op(&c->guest, VIRTIO_VSOCK_OP_REQUEST, 77, 5000);
		close(fds[0]);
		if (!fail_alloc_end())
			break;
		fake_vsock_expect(&c->guest, VIRTIO_VSOCK_OP_RST, &c->packet);
		assert_int_equal(next_fd(), next);
	}
	fake_vsock_expect(&c->guest, VIRTIO_VSOCK_OP_RESPONSE, &c->packet);
	end_guest(c);
}

static void no_memory_to_hold_bytes_resets(void **state)
{
	struct connecting *c = start_guest();
	static uint8_t data[4096];
	uint32_t host_port, sent = 0;
	int fds[2];

	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
	assert_int_equal(vsock_connect(c->guest.device, 1024, fds[1], on_done, &c->status), 0);
	fake_vsock_expect(&c->guest, VIRTIO_VSOCK_OP_REQUEST, &c->packet);
	host_port = c->packet.header.src_port;
	fake_vsock_send_op(&c->guest, VIRTIO_VSOCK_OP_RESPONSE, 1024, host_port);
	fail_alloc(0); /* no packet allocates until the host socket is full */
	do {
		assert_true(sent < 8 * VSOCK_BUFFER);
		fake_vsock_send_data(&c->guest, 1024, host_port, data, sizeof(data));
		sent += sizeof(data);
		c->packet.header.op = VIRTIO_VSOCK_OP_INVALID;
		while (fake_vsock_receive(&c->guest, &c->packet))
			;
	} while (c->packet.header.op != VIRTIO_VSOCK_OP_RST);
	assert_int_equal(fail_alloc_end(), 1);
	assert_true(sent > sizeof(data));
	close(fds[0]);
	end_guest(c);
}

/* A client of the Unix socket when there is no memory for it waits and is tried again. */
static void no_memory_for_a_client_is_borne(void **state)
{
	struct connecting *c = start_guest();
	struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "/tmp/vsock-unix-creation"};
	struct vsock_unix *host;

	(void)state;
	assert_int_equal(vsock_unix_create(address.sun_path, c->guest.driver.loop, &host), 0);
	assert_int_equal(vsock_unix_attach(host, c->guest.device), 0);
	for (unsigned n = 0;; n++) {
		int client = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), failed;
		char byte;

		assert_true(n < ATTEMPTS_MAX);
		assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
		assert_int_equal(send(client, "CONNECT 1\n", 10, MSG_NOSIGNAL), 10);
		fail_alloc(n);
		/* the first turn may wait for the time after which a failed accept is tried again */
		for (unsigned i = 0; i < 10; i++)
			assert_int_equal(loop_turn(c->guest.driver.loop, i ? 0 : 500), 0);
		failed = fail_alloc_end();
		if (failed) {
			assert_true(read(client, &byte, 1) <= 0 && errno != EAGAIN); /* closed */
			close(client);
			continue;
		}
		fake_vsock_expect(&c->guest, VIRTIO_VSOCK_OP_REQUEST, &c->packet);
		close(client);
		break;
	}
	fake_driver_run(&c->guest.driver);
	vsock_unix_destroy(host);
	end_guest(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(constructors_bear_any_allocation_that_fails),
		cmocka_unit_test(a_connection_bears_any_allocation_that_fails),
		cmocka_unit_test(a_socket_that_cannot_be_watched_is_refused),
		cmocka_unit_test(no_memory_for_a_guests_connection_resets_it),
		cmocka_unit_test(no_memory_to_hold_bytes_resets),
		cmocka_unit_test(no_memory_for_a_client_is_borne),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
