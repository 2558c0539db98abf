/* SPDX-License-Identifier: Apache-2.0 */
#include "vmm/tap.h"
#include "common/io.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { TAP_FLAGS = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR };

/* FNV-1a, to spread names over addresses: no checksum. */
#define SPREAD_START UINT64_C(0xcbf29ce484222325)
#define SPREAD_PRIME UINT64_C(0x100000001b3)

/* backend */

static ssize_t receive_packet(int fd, const struct iovec *pieces, int count)
{
	ssize_t got;

	do
		got = readv(fd, pieces, count);
	while (got < 0 && errno == EINTR);
	if (got >= 0)
		return got;
	switch (errno) {
	case EFAULT: /* the packet is gone, the tap is not */
	case EINVAL:
	case ENOMEM:
		return -EBADMSG;
	default:
		return -errno;
	}
}

static int send_packet(int fd, const struct iovec *pieces, int count)
{
	ssize_t sent;

	do
		sent = writev(fd, pieces, count);
	while (sent < 0 && errno == EINTR);
	if (sent >= 0)
		return 0;
	/* EIO is an interface that is down. */
	return errno == EBADFD ? -ENODEV : -errno;
}

static int set_offloads(int fd, unsigned offloads)
{
	unsigned long flags = 0;

	if (offloads & NET_OFFLOAD_CSUM)
		flags |= TUN_F_CSUM;
	if (offloads & NET_OFFLOAD_TSO4)
		flags |= TUN_F_TSO4;
	if (offloads & NET_OFFLOAD_TSO6)
		flags |= TUN_F_TSO6;
	if (offloads & NET_OFFLOAD_ECN)
		flags |= TUN_F_TSO_ECN;
	return ioctl(fd, TUNSETOFFLOAD, flags) < 0 ? -errno : 0;
}

static void set_carrier(int fd, bool up)
{
	int carrier = up;

	(void)ioctl(fd, TUNSETCARRIER, &carrier);
}

const struct net_backend_ops tap_backend = {
	.receive = receive_packet,
	.send = send_packet,
	.set_offloads = set_offloads,
	.set_carrier = set_carrier,
};

/* set-up */

static int get_interface(int fd, struct ifreq *request)
{
	memset(request, 0, sizeof(*request));
	if (ioctl(fd, TUNGETIFF, request) == 0)
		return 0;
	/* What other drivers answer to an ioctl that they do not know differs. */
	return errno == EBADF || errno == EBADFD ? -errno : -ENOTTY;
}

/* The header of every packet is struct virtio_net_hdr_v1. */
static int set_header(int fd)
{
	int size = NET_HEADER, little_endian = 1;

	if (ioctl(fd, TUNSETVNETHDRSZ, &size) < 0 || ioctl(fd, TUNSETVNETLE, &little_endian) < 0)
		return -EOPNOTSUPP;
	if (set_offloads(fd, NET_OFFLOAD_CSUM | NET_OFFLOAD_TSO4 | NET_OFFLOAD_TSO6 | NET_OFFLOAD_ECN) < 0)
		return -EOPNOTSUPP;
	return set_offloads(fd, 0);
}

int tap_adopt(int fd)
{
	struct ifreq request;
	int mode, r = get_interface(fd, &request);

	if (r < 0)
		return r;
	if (!(request.ifr_flags & IFF_TAP))
		return -ENOTTY;
	if ((request.ifr_flags & TAP_FLAGS) != TAP_FLAGS)
		return -EPROTOTYPE;
	mode = fcntl(fd, F_GETFL);
	if (mode < 0)
		return -errno;
	if ((mode & O_ACCMODE) != O_RDWR)
		return -EACCES;
	r = set_header(fd);
	return r < 0 ? r : fd_set_nonblock(fd);
}

/* Joins a new fd to the interface. A name that was free makes one, which is not persistent: it goes again. */
static int join(int fd, const char *name)
{
	struct ifreq request = {.ifr_flags = TAP_FLAGS};
	int r;

	memcpy(request.ifr_name, name, strlen(name));
	if (ioctl(fd, TUNSETIFF, &request) < 0)
		return -errno;
	r = get_interface(fd, &request);
	if (r < 0)
		return r;
	return request.ifr_flags & IFF_PERSIST ? tap_adopt(fd) : -ENODEV;
}

int tap_open(const char *name, int *out)
{
	int fd, r;

	if (strlen(name) >= IFNAMSIZ)
		return -ENODEV;
	fd = open(TAP_DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENODEV ? -ENXIO : -errno;
	r = if_nametoindex(name) ? join(fd, name) : -ENODEV;
	if (r < 0) {
		fd_close(&fd);
		return r;
	}
	*out = fd;
	return 0;
}

int tap_name(int fd, char name[IFNAMSIZ])
{
	struct ifreq request;
	int r = get_interface(fd, &request);

	if (r == 0)
		memcpy(name, request.ifr_name, IFNAMSIZ);
	return r;
}

static uint64_t spread(uint64_t sum, const char *text)
{
	/* with the NUL, so that "ab" and "c" are not "a" and "bc" */
	for (size_t i = 0; i <= strlen(text); i++)
		sum = (sum ^ (uint8_t)text[i]) * SPREAD_PRIME;
	return sum;
}

void tap_derive_mac(const char *name, const char *host, uint8_t mac[ETH_ALEN])
{
	uint64_t sum = spread(spread(SPREAD_START, name), host);

	sum ^= sum >> 32;
	memcpy(mac, &sum, ETH_ALEN);
	mac[0] = (uint8_t)((mac[0] & 0xfc) | 0x02); /* one station, administered locally */
}
