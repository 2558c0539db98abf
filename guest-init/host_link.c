/* SPDX-License-Identifier: Apache-2.0 */
#include "guest-init/host_link.h"
#include "common/io.h"
#include "common/proto_guest.h"
#include <errno.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

static int make_socket(void)
{
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int host_link_listen(void)
{
	const struct sockaddr_vm address = {
		.svm_family = AF_VSOCK,
		.svm_port = AGENT_GUEST_PORT,
		.svm_cid = VMADDR_CID_ANY,
	};
	int fd = make_socket(), r;

	if (fd < 0)
		return fd;
	if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	r = -errno;
	fd_close(&fd);
	return r;
}

/* Binds to a port that only the guest's root may have. 0, or -errno: -EADDRINUSE when all are taken. */
static int bind_link(int fd, unsigned turn)
{
	enum { PORTS = AGENT_LINK_PORT_LAST - AGENT_LINK_PORT_FIRST + 1 };
	struct sockaddr_vm address = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY};

	for (unsigned i = 0; i < PORTS; i++) {
		address.svm_port = AGENT_LINK_PORT_FIRST + (turn + i) % PORTS;
		if (bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
			return 0;
		if (errno != EADDRINUSE)
			break;
	}
	return -errno;
}

int host_link_connect(unsigned turn)
{
	const struct sockaddr_vm address = {
		.svm_family = AF_VSOCK,
		.svm_port = AGENT_HOST_PORT,
		.svm_cid = VMADDR_CID_HOST,
	};
	int fd = make_socket(), r;

	if (fd < 0)
		return fd;
	r = bind_link(fd, turn);
	if (r == 0 && connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
		r = -errno;
	if (r == 0 || r == -EINPROGRESS)
		return fd;
	fd_close(&fd);
	return r;
}

int host_link_loopback_up(void)
{
	struct ifreq request = {.ifr_name = "lo"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r = 0;

	if (fd < 0)
		return -errno;
	if (ioctl(fd, SIOCGIFFLAGS, &request) < 0) {
		r = -errno;
	} else {
		request.ifr_flags |= IFF_UP;
		if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
			r = -errno;
	}
	fd_close(&fd);
	return r;
}
