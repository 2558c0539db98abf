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

int host_link_connect(void)
{
	const struct sockaddr_vm address = {
		.svm_family = AF_VSOCK,
		.svm_port = AGENT_HOST_PORT,
		.svm_cid = VMADDR_CID_HOST,
	};
	int fd = make_socket(), r;

	if (fd < 0)
		return fd;
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0 || errno == EINPROGRESS)
		return fd;
	r = -errno;
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
