/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Poses as the guest's agent: connects to the host's port of it again and again, as any process may. Says a
 * line when it has started, one for each kind of thing that came of a try, and "told" when the host said
 * anything. First of all it tries to have one of the agent's own ports: "bound" or "refused".
 */
#include "common/proto_guest.h"
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

enum { PAUSE_MS = 20, NS_PER_MS = 1000000 };

static void say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

static int make_socket(void)
{
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		exit(EXIT_FAILURE);
	return fd;
}

static void try_port(void)
{
	const struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = AGENT_LINK_PORT_FIRST};
	int fd = make_socket();
	bool bound = bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;

	say(bound || errno != EACCES ? "bound" : "refused");
	close(fd);
}

int main(void)
{
	const struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_HOST, .svm_port = AGENT_HOST_PORT};
	const struct timespec pause = {.tv_nsec = (long)PAUSE_MS * NS_PER_MS};
	struct agent_frame_header header = {.length = sizeof(struct agent_hello), .type = AGENT_HELLO};
	struct agent_hello hello = {.version = AGENT_PROTO_VERSION};
	bool stood = false;
	char byte;

	try_port();
	for (;;) {
		int fd = make_socket();

		if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0) {
			if (!stood)
				say("connected");
			stood = true;
			if (write(fd, &header, sizeof(header)) > 0 && write(fd, &hello, sizeof(hello)) > 0 &&
				read(fd, &byte, 1) > 0)
				say("told");
		}
		close(fd);
		nanosleep(&pause, NULL);
	}
}
