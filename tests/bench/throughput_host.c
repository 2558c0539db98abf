/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The host's end of the streams of throughput_guest: the same program, whoever carries the bytes.
 *
 *   throughput_host unix:PATH | vsock | tcp:ADDRESS
 *
 * Listens, says "ready" and serves each connection in a process of its own, until it is ended.
 */
#include "tests/bench/throughput.h"
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <linux/vm_sockets.h>

enum { BACKLOG = 64 };

static char chunk[STREAM_CHUNK];

static int serve_echo(int fd)
{
	ssize_t n;
	int error = 0;

	while (!error && (n = read(fd, chunk, sizeof(chunk))) > 0)
		error = write_all(fd, chunk, (size_t)n);
	return error;
}

static int serve(int fd)
{
	struct stream_request request;
	uint64_t total;
	int error = read_all(fd, &request, sizeof(request));

	if (error)
		return error;
	switch (request.op) {
	case STREAM_TO_HOST:
		error = drain(fd, chunk, &total);
		return error ? error : write_all(fd, &total, sizeof(total));
	case STREAM_TO_GUEST:
		return send_for(fd, chunk, request.ms);
	case STREAM_ECHO:
		return serve_echo(fd);
	default:
		return -EPROTO;
	}
}

/* The socket bound to where; -1, with errno. */
static int bind_to(const char *where)
{
	struct sockaddr_vm vm = {.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = STREAM_PORT};
	struct sockaddr_un local = {.sun_family = AF_UNIX};
	struct sockaddr_in tcp = {.sin_family = AF_INET, .sin_port = htons(STREAM_PORT)};
	struct sockaddr *address = (struct sockaddr *)&vm;
	socklen_t length = sizeof(vm);
	int fd;

	if (strncmp(where, "unix:", 5) == 0 && strlen(where + 5) < sizeof(local.sun_path)) {
		memcpy(local.sun_path, where + 5, strlen(where + 5));
		address = (struct sockaddr *)&local;
		length = sizeof(local);
	} else if (strncmp(where, "tcp:", 4) == 0 && inet_pton(AF_INET, where + 4, &tcp.sin_addr) == 1) {
		address = (struct sockaddr *)&tcp;
		length = sizeof(tcp);
	} else if (strcmp(where, "vsock") != 0) {
		errno = EINVAL;
		return -1;
	}
	fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd >= 0 && (bind(fd, address, length) < 0 || listen(fd, BACKLOG) < 0)) {
		close(fd);
		return -1;
	}
	return fd;
}

int main(int argc, char **argv)
{
	int fd = argc == 2 ? bind_to(argv[1]) : -1;

	if (fd < 0) {
		fprintf(stderr, "throughput_host: %s\n",
			argc == 2 ? strerror(errno) : "give one of unix:PATH, vsock, tcp:ADDRESS");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	puts("ready");
	fflush(stdout);
	for (;;) {
		int client = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

		if (client < 0)
			continue;
		if (fork() == 0) {
			int error = serve(client);

			if (error)
				fprintf(stderr, "throughput_host: %s\n", strerror(-error));
			return error != 0;
		}
		close(client);
	}
}
