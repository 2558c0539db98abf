/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/machine/net_taps.h"
#include "tests/machine/net.h"
#include <fcntl.h>
#include <inttypes.h>
#include <linux/if_tun.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

int net_make_tap(const char *name, uint32_t address, bool keep)
{
	struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
	struct sockaddr_in value = net_address(address, 0), mask = net_address(NET_MASK, 0);
	int tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC),
	    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(request.ifr_name, sizeof(request.ifr_name), "%s", name);
	if (tap < 0 || ioctl(tap, TUNSETIFF, &request) < 0 || ioctl(tap, TUNSETPERSIST, 1UL) < 0)
		die(name);
	memcpy(&request.ifr_addr, &value, sizeof(value));
	if (address && ioctl(fd, SIOCSIFADDR, &request) < 0)
		die("SIOCSIFADDR");
	memcpy(&request.ifr_addr, &mask, sizeof(mask));
	if (address && ioctl(fd, SIOCSIFNETMASK, &request) < 0)
		die("SIOCSIFNETMASK");
	request.ifr_flags = IFF_UP;
	if (ioctl(fd, SIOCSIFFLAGS, &request) < 0)
		die("SIOCSIFFLAGS");
	close(fd);
	if (keep)
		return tap;
	close(tap);
	return NO_FD;
}

/* By netlink, as ip(8) does: the only way while another process has the tap. */
void net_delete_interface(const char *name)
{
	struct {
		struct nlmsghdr header;
		struct ifinfomsg info;
	} request = {
		.header = {.nlmsg_len = sizeof(request),
			.nlmsg_type = RTM_DELLINK,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK},
		.info = {.ifi_index = (int)if_nametoindex(name)},
	};
	char reply[512];
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);

	if (send(fd, &request, sizeof(request), 0) < 0 || recv(fd, reply, sizeof(reply), 0) < 0 ||
		if_nametoindex(name) != 0)
		die("RTM_DELLINK");
	close(fd);
}

struct net_traffic net_read_traffic(const char *name)
{
	FILE *file = fopen("/proc/self/net/dev", "re");
	struct net_traffic traffic = {0};
	char line[512];

	while (file && fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':'), *start = line + strspn(line, " ");

		if (!colon || (size_t)(colon - start) != strlen(name) ||
			memcmp(start, name, strlen(name)) != 0)
			continue;
		(void)sscanf(colon + 1,
			"%" SCNu64 " %" SCNu64 " %*u %*u %*u %*u %*u %*u %" SCNu64 " %" SCNu64,
			&traffic.in_bytes, &traffic.in_packets, &traffic.out_bytes, &traffic.out_packets);
	}
	if (file)
		fclose(file);
	return traffic;
}
