/* SPDX-License-Identifier: Apache-2.0 */
/* What tests/machine/net.c and its guest have in common: addresses, and what both ends of a link do alike. */
#ifndef TESTS_MACHINE_NET_H
#define TESTS_MACHINE_NET_H

#include "tests/machine/devices.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define NET_HOST_ADDRESS UINT32_C(0x0a630001) /* 10.99.0.1 */
#define NET_GUEST_ADDRESS UINT32_C(0x0a630002)
#define NET_MASK UINT32_C(0xffffff00)

enum {
	NET_CHUNK = 64 * 1024,
	NET_PING_MS = 2000,
	NET_SMALL_BYTES = 64,
	NET_SMALL_WINDOW = 64, /* packets on the way at most, so that no queue overflows by itself */
	NET_SMALL_MS = 60000,  /* for a window, on a host busy with other things */
};

static inline struct sockaddr_in net_address(uint32_t address, uint16_t port)
{
	return (struct sockaddr_in){
		.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(address)};
}

static inline bool net_wait(int fd, int limit_ms)
{
	struct pollfd pollfd = {.fd = fd, .events = POLLIN};

	return poll(&pollfd, 1, limit_ms) == 1;
}

static inline uint16_t net_icmp_sum(const void *data, size_t length)
{
	const uint8_t *bytes = data;
	uint32_t sum = 0;

	for (size_t i = 0; i + 1 < length; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	while (sum >> 16)
		sum = (sum & 0xffff) + (sum >> 16);
	return htons((uint16_t)~sum);
}

/* The answer to that echo has come within the limit. */
static inline bool net_await_echo(int fd, const struct icmphdr *sent, int limit_ms)
{
	uint8_t bytes[256];

	while (net_wait(fd, limit_ms)) {
		ssize_t got = recv(fd, bytes, sizeof(bytes), 0);
		struct icmphdr *reply = (struct icmphdr *)(bytes + sizeof(struct iphdr));

		if (got >= (ssize_t)(sizeof(struct iphdr) + sizeof(*reply)) &&
			reply->type == ICMP_ECHOREPLY && reply->un.echo.id == sent->un.echo.id &&
			reply->un.echo.sequence == sent->un.echo.sequence)
			return true;
	}
	return false;
}

/* How many of count echo requests are answered; stops at the first that is not. */
static inline unsigned net_ping(uint32_t address, unsigned count, int limit_ms)
{
	struct sockaddr_in to = net_address(address, 0);
	int fd = socket(AF_INET, SOCK_RAW | SOCK_CLOEXEC, IPPROTO_ICMP);
	unsigned answered = 0;

	for (unsigned i = 0; i < count && answered == i; i++) {
		struct icmphdr echo;

		memset(&echo, 0, sizeof(echo));
		echo.type = ICMP_ECHO;
		echo.un.echo.id = htons((uint16_t)getpid());
		echo.un.echo.sequence = htons((uint16_t)i);
		echo.checksum = net_icmp_sum(&echo, sizeof(echo));
		if (sendto(fd, &echo, sizeof(echo), 0, (struct sockaddr *)&to, sizeof(to)) < 0)
			break;
		answered += net_await_echo(fd, &echo, limit_ms);
	}
	close(fd);
	return answered;
}

/* Numbered packets, a window of them at a time: how many were sent and acknowledged. */
static inline uint64_t net_send_small(int fd, uint64_t count)
{
	uint8_t bytes[NET_SMALL_BYTES];
	uint64_t sent = 0, acknowledged = 0;

	while (acknowledged < count) {
		for (; sent < count && sent < acknowledged + NET_SMALL_WINDOW; sent++) {
			devices_pattern(bytes, sent, sizeof(bytes));
			memcpy(bytes, &sent, sizeof(sent));
			if (send(fd, bytes, sizeof(bytes), 0) != sizeof(bytes))
				return acknowledged;
		}
		if (!net_wait(fd, NET_SMALL_MS) ||
			recv(fd, &acknowledged, sizeof(acknowledged), 0) != sizeof(acknowledged))
			return acknowledged;
	}
	return acknowledged;
}

/* The other end: how many came, whole and in order; fd is bound. Acknowledges half a window at a time. */
static inline uint64_t net_take_small(int fd, uint64_t count)
{
	uint8_t bytes[NET_SMALL_BYTES + 1], wanted[NET_SMALL_BYTES];
	uint64_t came = 0;

	while (came < count && net_wait(fd, NET_SMALL_MS)) {
		struct sockaddr_in from;
		socklen_t length = sizeof(from);

		if (recvfrom(fd, bytes, sizeof(bytes), 0, (struct sockaddr *)&from, &length) !=
			NET_SMALL_BYTES)
			break;
		devices_pattern(wanted, came, sizeof(wanted));
		memcpy(wanted, &came, sizeof(came));
		if (memcmp(bytes, wanted, sizeof(wanted)) != 0)
			break;
		came++;
		if ((came % (NET_SMALL_WINDOW / 2) == 0 || came == count) &&
			sendto(fd, &came, sizeof(came), 0, (struct sockaddr *)&from, length) != sizeof(came))
			break;
	}
	return came;
}

static inline int net_bind_small(uint16_t port)
{
	struct sockaddr_in address = net_address(INADDR_ANY, port);
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A connected socket of the type, or -1. */
static inline int net_connect(int type, uint32_t to, uint16_t port)
{
	struct sockaddr_in address = net_address(to, port);
	int fd = socket(AF_INET, type | SOCK_CLOEXEC, 0);

	if (fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* A stream of the pattern. The bytes that went. */
static inline uint64_t net_send_stream(int fd, uint64_t length)
{
	static uint8_t chunk[NET_CHUNK];
	uint64_t offset = 0;

	while (offset < length) {
		size_t run = length - offset < sizeof(chunk) ? (size_t)(length - offset) : sizeof(chunk);
		ssize_t sent;

		devices_pattern(chunk, offset, run);
		sent = send(fd, chunk, run, MSG_NOSIGNAL);
		if (sent <= 0)
			return offset;
		offset += (uint64_t)sent;
	}
	shutdown(fd, SHUT_WR);
	return offset;
}

/* To the end of the stream: its bytes, and their checksum. */
static inline uint64_t net_take_stream(int fd, uint64_t *sum)
{
	static uint8_t chunk[NET_CHUNK];
	uint64_t bytes = 0;
	ssize_t got;

	*sum = DEVICES_SUM_START;
	while ((got = recv(fd, chunk, sizeof(chunk), 0)) > 0) {
		*sum = devices_sum(*sum, chunk, (size_t)got);
		bytes += (uint64_t)got;
	}
	return bytes;
}

#endif
