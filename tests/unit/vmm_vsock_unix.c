/* SPDX-License-Identifier: Apache-2.0 */
/* vsock on a Unix socket: the line protocol, the socket's path, and a guest that answers or refuses. */
#include "tests/support/unit.h"

#include "tests/support/fake_vsock.h"
#include "vmm/virtio/vsock.h"
#include "vmm/vsock_unix.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum { PORT = 1024 };

struct fixture {
	struct fake_vsock guest;
	struct fake_packet packet;
	struct vsock_unix *host;
	char folder[32];
	char path[64];
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	strcpy(f->folder, "/tmp/vsock-unix-XXXXXX");
	assert_non_null(mkdtemp(f->folder));
	snprintf(f->path, sizeof(f->path), "%s/v", f->folder);
	fake_vsock_init(&f->guest);
	assert_int_equal(vsock_unix_create(f->path, f->guest.driver.loop, &f->host), 0);
	*state = f;
	return 0;
}

static int setup_started(void **state)
{
	struct fixture *f;

	setup(state);
	f = *state;
	assert_int_equal(vsock_unix_attach(f->host, f->guest.device), 0);
	fake_vsock_start(&f->guest, VIRTIO_FEATURES_COMMON);
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	vsock_unix_destroy(f->host);
	fake_vsock_finish(&f->guest);
	assert_int_equal(access(f->path, F_OK), -1); /* unlinked */
	assert_int_equal(rmdir(f->folder), 0);	     /* and nothing else was left there */
	free(f);
	return 0;
}

static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	return address;
}

static int listen_at(const char *path)
{
	struct sockaddr_un address = address_of(path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

static int connect_client(struct fixture *f)
{
	struct sockaddr_un address = address_of(f->path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void say(struct fixture *f, int client, const char *text)
{
	assert_int_equal(send(client, text, strlen(text), MSG_NOSIGNAL), strlen(text));
	fake_driver_run(&f->guest.driver);
}

static void expect_text(int client, const char *text)
{
	char got[64] = "";

	assert_int_equal(read(client, got, sizeof(got) - 1), strlen(text));
	assert_string_equal(got, text);
}

static void expect_nothing(int client)
{
	char byte;

	assert_int_equal(read(client, &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
}

static void expect_closed(int client)
{
	char byte;
	ssize_t got = read(client, &byte, 1);

	assert_true(got == 0 || (got < 0 && errno == ECONNRESET));
}

/* The guest answers the request that is there. */
static uint32_t answer(struct fixture *f, uint16_t op)
{
	uint32_t host_port;

	fake_vsock_expect(&f->guest, VIRTIO_VSOCK_OP_REQUEST, &f->packet);
	host_port = f->packet.header.src_port;
	fake_vsock_send_op(&f->guest, op, f->packet.header.dst_port, host_port);
	return host_port;
}

/* clients */

static void a_client_is_joined(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);
	uint32_t host_port;

	say(f, client, "CONNECT 1024\n");
	expect_nothing(client);
	host_port = answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 1024\n");
	fake_vsock_send_data(&f->guest, PORT, host_port, "from guest", 10);
	expect_text(client, "from guest");
	say(f, client, "to guest");
	fake_vsock_expect(&f->guest, VIRTIO_VSOCK_OP_RW, &f->packet);
	assert_memory_equal(f->packet.data, "to guest", 8);
	close(client);
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, VIRTIO_VSOCK_OP_SHUTDOWN, &f->packet);
}

static void what_follows_the_line_belongs_to_the_guest(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);

	say(f, client, "CONNECT 4294967294\nhello\nCONNECT 7\n");
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	assert_int_equal(f->packet.header.dst_port, 4294967294u);
	expect_text(client, "OK 4294967294\n");
	fake_vsock_expect(&f->guest, VIRTIO_VSOCK_OP_RW, &f->packet);
	assert_int_equal(f->packet.header.len, 16);
	assert_memory_equal(f->packet.data, "hello\nCONNECT 7\n", 16);
	close(client);
}

static void a_line_may_come_byte_by_byte(void **state)
{
	static const char line[] = "CONNECT 7\n";
	struct fixture *f = *state;
	int client = connect_client(f);

	for (unsigned i = 0; line[i]; i++) {
		char byte[2] = {line[i], '\0'};

		fake_vsock_expect_none(&f->guest);
		say(f, client, byte);
	}
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 7\n");
	close(client);
}

static void a_guest_that_refuses_closes_the_client(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);

	say(f, client, "CONNECT 1024\n");
	answer(f, VIRTIO_VSOCK_OP_RST);
	expect_closed(client);
	close(client);
}

static void other_lines_close_the_client(void **state)
{
	static const char *const lines[] = {
		"\n", "CONNECT\n", "CONNECT \n", "CONNECT 4294967295\n", "CONNECT 99999999999999999999\n",
		"CONNECT -1\n", "CONNECT  1\n", "CONNECT 1 \n", "CONNECT 0x10\n", "CONNECT 1\r\n",
		"connect 1\n", "DISCONNECT 1\n",
		"CONNECT 0000000000000000000000000",	/* longer than a line may be, without an end */
		"CONNECT 00000000000000000000001024\n", /* and with one behind the limit */
	};
	struct fixture *f = *state;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		int client = connect_client(f);

		say(f, client, lines[i]);
		expect_closed(client);
		fake_vsock_expect_none(&f->guest);
		close(client);
	}
}

static void a_nul_in_the_line_closes_the_client(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);

	assert_int_equal(send(client, "CONNECT 1\0\n", 11, 0), 11);
	fake_driver_run(&f->guest.driver);
	expect_closed(client);
	close(client);
}

static void the_longest_line_passes(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);
	const char line[] = "CONNECT 00000000000000000001024\n";

	assert_int_equal(strlen(line), VSOCK_UNIX_LINE_MAX);
	say(f, client, line);
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 1024\n");
	close(client);
}

static void clients_that_leave_early_are_forgotten(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);

	say(f, client, "CONN");
	close(client);
	fake_driver_run(&f->guest.driver);
	client = connect_client(f);
	say(f, client, "CONNECT 7\n");
	close(client);
	fake_driver_run(&f->guest.driver);
	fake_vsock_expect(&f->guest, VIRTIO_VSOCK_OP_REQUEST, &f->packet);
	fake_vsock_expect(&f->guest, VIRTIO_VSOCK_OP_RST, &f->packet);
	client = connect_client(f);
	say(f, client, "CONNECT 8\n");
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 8\n");
	close(client);
}

static void clients_wait_until_the_device_is_there(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f);

	say(f, client, "CONNECT 1024\n");
	expect_nothing(client);
	assert_int_equal(vsock_unix_attach(f->host, f->guest.device), 0);
	fake_driver_run(&f->guest.driver);
	expect_nothing(client);
	fake_vsock_start(&f->guest, VIRTIO_FEATURES_COMMON);
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 1024\n");
	close(client);
}

static void clients_that_are_not_joined_are_bounded(void **state)
{
	struct fixture *f = *state;
	int clients[VSOCK_UNIX_CLIENTS_MAX], late;

	for (unsigned i = 0; i < VSOCK_UNIX_CLIENTS_MAX; i++) {
		clients[i] = connect_client(f);
		fake_driver_run(&f->guest.driver);
	}
	late = connect_client(f);
	say(f, late, "CONNECT 9\n");
	fake_vsock_expect_none(&f->guest); /* it waits in the backlog */
	say(f, clients[0], "CONNECT 8\n");
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(clients[0], "OK 8\n"); /* one is joined: there is room */
	fake_driver_run(&f->guest.driver);
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(late, "OK 9\n");
	close(late);
	for (unsigned i = 0; i < VSOCK_UNIX_CLIENTS_MAX; i++)
		close(clients[i]);
}

static void no_fd_for_a_client_is_tried_again(void **state)
{
	struct fixture *f = *state;
	int client = connect_client(f), next = dup(0);
	struct rlimit before, few;

	close(next);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = (struct rlimit){.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	say(f, client, "CONNECT 9\n");		   /* runs the loop: accept fails */
	fake_driver_assert_idle(&f->guest.driver); /* and is not tried at once again */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	fake_vsock_expect_none(&f->guest);
	for (unsigned i = 0; i < 10; i++)
		assert_int_equal(loop_turn(f->guest.driver.loop, i ? 0 : 1000), 0);
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 9\n");
	close(client);
}

static void clients_leave_in_any_order(void **state)
{
	static const unsigned order[] = {1, 0, 3};
	struct fixture *f = *state;
	int clients[4];

	for (unsigned i = 0; i < 4; i++) {
		clients[i] = connect_client(f);
		say(f, clients[i], "CONN");
	}
	for (unsigned i = 0; i < 3; i++) {
		close(clients[order[i]]);
		fake_driver_run(&f->guest.driver);
	}
	say(f, clients[2], "ECT 7\n");
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(clients[2], "OK 7\n");
	close(clients[2]);
}

static void ignore_answer(void *context, int status)
{
	(void)context;
	(void)status;
}

static void a_client_that_the_device_has_no_room_for_is_closed(void **state)
{
	struct fixture *f = *state;
	int client, pairs[VSOCK_CONNECTIONS_MAX][2];

	for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++) {
		assert_int_equal(
			socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pairs[i]), 0);
		assert_int_equal(vsock_connect(f->guest.device, PORT, pairs[i][1], ignore_answer, NULL), 0);
	}
	client = connect_client(f);
	say(f, client, "CONNECT 1\n");
	expect_closed(client);
	close(client);
	for (unsigned i = 0; i < VSOCK_CONNECTIONS_MAX; i++)
		close(pairs[i][0]);
	fake_driver_run(&f->guest.driver);
	while (fake_vsock_receive(&f->guest, &f->packet))
		;
	client = connect_client(f); /* there is room again */
	say(f, client, "CONNECT 1\n");
	answer(f, VIRTIO_VSOCK_OP_RESPONSE);
	expect_text(client, "OK 1\n");
	close(client);
}

static void destroying_in_either_order_is_safe(void **state)
{
	struct fixture *f = *state;
	int reading = connect_client(f), waiting = connect_client(f);

	say(f, reading, "CONN");
	say(f, waiting, "CONNECT 9\n");
	vsock_unix_destroy(f->host);
	f->host = NULL;
	expect_closed(reading);
	expect_nothing(waiting);
	answer(f, VIRTIO_VSOCK_OP_RESPONSE); /* it is the device's */
	expect_text(waiting, "OK 9\n");
	virtio_mmio_destroy(f->guest.driver.mmio);
	f->guest.driver.mmio = NULL;
	expect_closed(waiting);
	close(reading);
	close(waiting);
	vsock_unix_destroy(NULL);
}

/* the guest connects */

static void a_guests_connection_goes_to_its_own_socket(void **state)
{
	struct fixture *f = *state;
	char path[80];
	int listener, fd, accepted;

	assert_int_equal(vsock_unix_accept(f->host, 5000), -ENOENT);
	snprintf(path, sizeof(path), "%s_5000", f->path);
	listener = listen_at(path);
	assert_int_equal(vsock_unix_accept(f->host, 500), -ENOENT);
	fd = vsock_unix_accept(f->host, 5000);
	assert_true(fd >= 0);
	assert_true(fcntl(fd, F_GETFL) & O_NONBLOCK);
	assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	accepted = accept(listener, NULL, NULL);
	assert_true(accepted >= 0);
	close(accepted);
	close(fd);
	close(listener);
	assert_int_equal(vsock_unix_accept(f->host, 5000), -ECONNREFUSED);
	unlink(path);
}

/* the path */

static void a_live_socket_is_not_replaced(void **state)
{
	struct fixture *f = *state;
	struct vsock_unix *other = NULL;

	assert_int_equal(vsock_unix_create(f->path, f->guest.driver.loop, &other), -EADDRINUSE);
	assert_null(other);
	assert_int_equal(access(f->path, F_OK), 0);
}

static void a_stale_socket_is_replaced(void **state)
{
	struct fixture *f = *state;
	char path[80];
	struct vsock_unix *other;
	struct stat status;

	snprintf(path, sizeof(path), "%s/stale", f->folder);
	close(listen_at(path));
	assert_int_equal(access(path, F_OK), 0);
	assert_int_equal(vsock_unix_create(path, f->guest.driver.loop, &other), 0);
	assert_int_equal(stat(path, &status), 0);
	assert_int_equal(status.st_mode, S_IFSOCK | 0600);
	vsock_unix_destroy(other);
	assert_int_equal(access(path, F_OK), -1);
}

static void a_file_that_is_no_socket_is_not_replaced(void **state)
{
	struct fixture *f = *state;
	struct vsock_unix *other = NULL;
	char path[80];

	snprintf(path, sizeof(path), "%s/file", f->folder);
	close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	assert_int_equal(vsock_unix_create(path, f->guest.driver.loop, &other), -EEXIST);
	assert_int_equal(unlink(path), 0);
}

static void bad_paths_are_refused(void **state)
{
	struct fixture *f = *state;
	struct vsock_unix *other = NULL;
	char path[sizeof(((struct sockaddr_un *)0)->sun_path) + 1];

	memset(path, 'x', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0'; /* one byte too long */
	assert_int_equal(vsock_unix_create(path, f->guest.driver.loop, &other), -ENAMETOOLONG);
	assert_int_equal(vsock_unix_create("/nowhere/at/all", f->guest.driver.loop, &other), -ENOENT);
	assert_int_equal(vsock_unix_create("", f->guest.driver.loop, &other), -EINVAL);
	assert_null(other);
	path[sizeof(path) - 2] = '\0'; /* fits, but no port does behind it */
	memcpy(path, f->folder, strlen(f->folder));
	path[strlen(f->folder)] = '/';
	assert_int_equal(vsock_unix_create(path, f->guest.driver.loop, &other), 0);
	assert_int_equal(vsock_unix_accept(other, 1), -ENAMETOOLONG);
	vsock_unix_destroy(other);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup_started, teardown)
#define CASE_BEFORE_START(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(a_client_is_joined),
		CASE(what_follows_the_line_belongs_to_the_guest),
		CASE(a_line_may_come_byte_by_byte),
		CASE(a_guest_that_refuses_closes_the_client),
		CASE(other_lines_close_the_client),
		CASE(a_nul_in_the_line_closes_the_client),
		CASE(the_longest_line_passes),
		CASE(clients_that_leave_early_are_forgotten),
		CASE_BEFORE_START(clients_wait_until_the_device_is_there),
		CASE(clients_that_are_not_joined_are_bounded),
		CASE(no_fd_for_a_client_is_tried_again),
		CASE(clients_leave_in_any_order),
		CASE(a_client_that_the_device_has_no_room_for_is_closed),
		CASE(destroying_in_either_order_is_safe),
		CASE(a_guests_connection_goes_to_its_own_socket),
		CASE(a_live_socket_is_not_replaced),
		CASE(a_stale_socket_is_replaced),
		CASE(a_file_that_is_no_socket_is_not_replaced),
		CASE(bad_paths_are_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
