/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From which port guest-init comes to the host. socket(2), bind(2) and connect(2) are this test's own: those
 * of a kernel in which some ports are taken.
 */
#include "tests/support/unit.h"

#include "common/io.h"
#include "common/proto_guest.h"
#include "guest-init/host_link.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

enum { PORTS = AGENT_LINK_PORT_LAST - AGENT_LINK_PORT_FIRST + 1, LAST_RESERVED_PORT = 1023 };

static struct {
	bool taken[PORTS];
	int error; /* of bind; 0: as the ports are */
	int connect_error;
	unsigned bound, binds, connects; /* bound: the port of the last one */
	struct sockaddr_vm to;
	int fd;
} machine;

int __wrap_socket(int domain, int type, int protocol);
int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length);
int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length);

int __wrap_socket(int domain, int type, int protocol)
{
	assert_int_equal(domain, AF_VSOCK);
	assert_int_equal(type, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_int_equal(protocol, 0);
	machine.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	return machine.fd;
}

int __wrap_bind(int fd, const struct sockaddr *address, socklen_t length)
{
	struct sockaddr_vm vm;

	assert_int_equal(fd, machine.fd);
	assert_int_equal(length, sizeof(vm));
	memcpy(&vm, address, sizeof(vm));
	assert_int_equal(vm.svm_family, AF_VSOCK);
	assert_int_equal(vm.svm_cid, VMADDR_CID_ANY);
	assert_in_range(vm.svm_port, AGENT_LINK_PORT_FIRST, AGENT_LINK_PORT_LAST);
	machine.binds++;
	errno = machine.error ? machine.error : EADDRINUSE;
	if (machine.error || machine.taken[vm.svm_port - AGENT_LINK_PORT_FIRST])
		return -1;
	machine.bound = vm.svm_port;
	return 0;
}

int __wrap_connect(int fd, const struct sockaddr *address, socklen_t length)
{
	assert_int_equal(fd, machine.fd);
	assert_int_equal(length, sizeof(machine.to));
	memcpy(&machine.to, address, sizeof(machine.to));
	machine.connects++;
	errno = machine.connect_error;
	return machine.connect_error ? -1 : 0;
}

static int reset(void **state)
{
	(void)state;
	memset(&machine, 0, sizeof(machine));
	machine.connect_error = EINPROGRESS;
	machine.fd = -1;
	return 0;
}

/* Connects, from that port. */
static void expect_port(unsigned turn, unsigned port)
{
	int fd = host_link_connect(turn);

	assert_true(fd >= 0);
	assert_int_equal(fd, machine.fd);
	assert_int_equal(machine.bound, port);
	assert_int_equal(machine.to.svm_cid, VMADDR_CID_HOST);
	assert_int_equal(machine.to.svm_port, AGENT_HOST_PORT);
	fd_close(&fd);
}

/* -errno, and the socket is closed. */
static void expect_failure(int error, unsigned binds, unsigned connects)
{
	assert_int_equal(host_link_connect(0), -error);
	assert_int_equal(machine.binds, binds);
	assert_int_equal(machine.connects, connects);
	assert_int_equal(fcntl(machine.fd, F_GETFD), -1);
}

static void only_root_has_the_ports(void **state)
{
	(void)state;
	assert_true(AGENT_LINK_PORT_FIRST > 0 && AGENT_LINK_PORT_FIRST <= AGENT_LINK_PORT_LAST);
	assert_in_range(AGENT_LINK_PORT_LAST, AGENT_LINK_PORT_FIRST, LAST_RESERVED_PORT);
}

static void each_turn_has_the_next_port(void **state)
{
	(void)state;
	for (unsigned turn = 0; turn < 2 * PORTS; turn++)
		expect_port(turn, AGENT_LINK_PORT_FIRST + turn % PORTS);
	expect_port(UINT32_MAX, AGENT_LINK_PORT_FIRST + UINT32_MAX % PORTS);
	machine.connect_error = 0; /* stands at once */
	expect_port(1, AGENT_LINK_PORT_FIRST + 1);
}

static void a_port_that_is_taken_is_passed_over(void **state)
{
	(void)state;
	machine.taken[0] = machine.taken[1] = machine.taken[PORTS - 1] = true;
	expect_port(0, AGENT_LINK_PORT_FIRST + 2);
	expect_port(PORTS - 1, AGENT_LINK_PORT_FIRST + 2);
	expect_port(PORTS - 2, AGENT_LINK_PORT_LAST - 1);
}

static void failures_say_why_and_leave_nothing(void **state)
{
	(void)state;
	memset(machine.taken, true, sizeof(machine.taken));
	expect_failure(EADDRINUSE, PORTS, 0);
	reset(NULL);
	machine.error = EACCES; /* no other port would do */
	expect_failure(EACCES, 1, 0);
	reset(NULL);
	machine.connect_error = ENODEV;
	expect_failure(ENODEV, 1, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(only_root_has_the_ports, reset),
		cmocka_unit_test_setup(each_turn_has_the_next_port, reset),
		cmocka_unit_test_setup(a_port_that_is_taken_is_passed_over, reset),
		cmocka_unit_test_setup(failures_say_why_and_leave_nothing, reset),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
