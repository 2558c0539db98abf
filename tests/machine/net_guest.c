/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The guest of tests/machine/net.c: PID 1 of a Linux without anything else. Brings eth0 up with its address,
 * then listens on vsock port DEVICES_PORT; a connection is a command line, and an answer of one line (two for
 * udp-take).
 *
 *   echo              all bytes back until the end of the stream
 *   mac               the address of eth0
 *   features          what the driver and the device agreed on, bit 0 first
 *   carrier N         waits for the link to be 0 or 1: what it is
 *   ping COUNT MS     to the host: how many were answered
 *   tcp-take PORT     connects to the host, reads to the end: bytes and checksum
 *   tcp-pour PORT N   connects to the host, sends N bytes of the pattern: how many
 *   udp-take PORT N   "ready", then how many small packets came
 *   udp-pour PORT N   sends small packets to the host: how many were acknowledged
 *   off               ends the machine
 */
#include "tests/machine/net.h"
#include <fcntl.h>
#include <inttypes.h>
#include <linux/vm_sockets.h>
#include <net/if.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <time.h>

enum { BACKLOG = 16, CARRIER_TRIES = 1000, CARRIER_STEP_NS = 10000000 };

static void answer(int fd, const char *text)
{
	char line[DEVICES_LINE_MAX];
	int length = snprintf(line, sizeof(line), "%s\n", text);

	(void)!write(fd, line, (size_t)length);
}

static void answer_number(int fd, uint64_t number)
{
	char text[DEVICES_LINE_MAX];

	snprintf(text, sizeof(text), "%" PRIu64, number);
	answer(fd, text);
}

/* The first line of a file of the interface; empty when it cannot be read. */
static void read_interface(const char *name, char line[DEVICES_LINE_MAX])
{
	char path[DEVICES_LINE_MAX];
	int file;
	ssize_t got = -1;

	snprintf(path, sizeof(path), "/sys/class/net/eth0/%s", name);
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file >= 0) {
		got = read(file, line, DEVICES_LINE_MAX - 1);
		close(file);
	}
	line[got > 0 ? got : 0] = '\0';
	line[strcspn(line, "\n")] = '\0';
}

static int set_address(int fd, struct ifreq *request, unsigned long what, uint32_t address)
{
	struct sockaddr_in value = net_address(address, 0);

	memcpy(&request->ifr_addr, &value, sizeof(value));
	return ioctl(fd, what, request);
}

static int bring_up(void)
{
	struct ifreq request = {.ifr_name = "eth0"};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), r;

	r = set_address(fd, &request, SIOCSIFADDR, NET_GUEST_ADDRESS);
	if (r == 0)
		r = set_address(fd, &request, SIOCSIFNETMASK, NET_MASK);
	request.ifr_flags = IFF_UP;
	if (r == 0)
		r = ioctl(fd, SIOCSIFFLAGS, &request);
	close(fd);
	return r;
}

static void serve_echo(int fd)
{
	static uint8_t chunk[NET_CHUNK];
	ssize_t got;

	while ((got = read(fd, chunk, sizeof(chunk))) > 0)
		if (write(fd, chunk, (size_t)got) != got)
			return;
}

static void serve_carrier(int fd, const char *wanted)
{
	struct timespec step = {.tv_nsec = CARRIER_STEP_NS};
	char line[DEVICES_LINE_MAX] = "";

	for (unsigned i = 0; i < CARRIER_TRIES; i++) {
		read_interface("carrier", line);
		if (strcmp(line, wanted) == 0)
			break;
		nanosleep(&step, NULL);
	}
	answer(fd, line);
}

static void serve_tcp_take(int fd, uint16_t port)
{
	int stream = net_connect(SOCK_STREAM, NET_HOST_ADDRESS, port);
	char text[DEVICES_LINE_MAX];
	uint64_t sum = 0, bytes = stream < 0 ? 0 : net_take_stream(stream, &sum);

	snprintf(text, sizeof(text), "%" PRIu64 " %016" PRIx64, bytes, sum);
	answer(fd, text);
}

static void serve_tcp_pour(int fd, uint16_t port, uint64_t bytes)
{
	int stream = net_connect(SOCK_STREAM, NET_HOST_ADDRESS, port);

	answer_number(fd, stream < 0 ? 0 : net_send_stream(stream, bytes));
}

static void serve_udp_take(int fd, uint16_t port, uint64_t count)
{
	int packets = net_bind_small(port);

	answer(fd, packets < 0 ? "cannot bind" : "ready");
	answer_number(fd, net_take_small(packets, count));
}

static void serve_udp_pour(int fd, uint16_t port, uint64_t count)
{
	answer_number(fd, net_send_small(net_connect(SOCK_DGRAM, NET_HOST_ADDRESS, port), count));
}

static void serve(int fd)
{
	char line[DEVICES_LINE_MAX] = "", word[16] = "", name[32] = "";
	uint64_t number, more = 0;

	for (size_t i = 0; i < sizeof(line) - 1 && read(fd, line + i, 1) == 1 && line[i] != '\n'; i++)
		;
	if (sscanf(line, "%15s %31s %" SCNu64, word, name, &more) < 1)
		return;
	number = strtoull(name, NULL, 10);
	if (strcmp(word, "echo") == 0) {
		serve_echo(fd);
	} else if (strcmp(word, "mac") == 0) {
		read_interface("address", line);
		answer(fd, line);
	} else if (strcmp(word, "features") == 0) {
		read_interface("device/features", line);
		answer(fd, line);
	} else if (strcmp(word, "carrier") == 0) {
		serve_carrier(fd, name);
	} else if (strcmp(word, "ping") == 0) {
		answer_number(fd, net_ping(NET_HOST_ADDRESS, (unsigned)number, (int)more));
	} else if (strcmp(word, "tcp-take") == 0) {
		serve_tcp_take(fd, (uint16_t)number);
	} else if (strcmp(word, "tcp-pour") == 0) {
		serve_tcp_pour(fd, (uint16_t)number, more);
	} else if (strcmp(word, "udp-take") == 0) {
		serve_udp_take(fd, (uint16_t)number, more);
	} else if (strcmp(word, "udp-pour") == 0) {
		serve_udp_pour(fd, (uint16_t)number, more);
	} else if (strcmp(word, "off") == 0) {
		reboot(RB_POWER_OFF);
	} else {
		answer(fd, "what?");
	}
}

/* Tells the host, by a connection that ends at once. */
static void call_host(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = DEVICES_READY_PORT};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)connect(fd, (struct sockaddr *)&address, sizeof(address));
	close(fd);
}

int main(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = DEVICES_PORT};
	int listener;

	(void)mount("dev", "/dev", "devtmpfs", 0, NULL);
	(void)mount("sys", "/sys", "sysfs", 0, NULL);
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	listener = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bring_up() < 0 || bind(listener, (struct sockaddr *)&address, sizeof(address)) < 0 ||
		listen(listener, BACKLOG) < 0)
		reboot(RB_AUTOBOOT); /* no other way to say that this cannot work */
	call_host();
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		if (fd < 0)
			continue;
		if (fork() == 0) {
			close(listener);
			serve(fd);
			_exit(0);
		}
		close(fd);
	}
}
