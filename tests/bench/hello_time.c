/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long from a machine monitor's exec until its guest's init says hello: guest-init connects to the host's
 * port 1024 when it listens.
 *
 *   hello_time [--stop FILE] vsock|unix:PATH COMMAND ARG...
 *
 * Listens, starts the command, waits for the first byte of the first connection, prints the nanoseconds in
 * between, and kills the command. --stop writes "0" to FILE when the byte has come, before the command is
 * killed: a trace of the kernel stops there. Exit status 0, or 1 when no byte came within HELLO_LIMIT_MS or
 * the command ended before.
 */
#include "common/io.h"
#include "host-ctl/bench/hello.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int fail(const char *what, int error)
{
	fprintf(stderr, "hello_time: %s: %s\n", what, error == ECHILD ? "it ended before" : strerror(error));
	return 1;
}

static int listen_at(const char *where)
{
	if (strcmp(where, "vsock") == 0)
		return hello_listen_vsock();
	return strncmp(where, "unix:", 5) == 0 ? hello_listen_unix(where + 5) : -EINVAL;
}

static int time_hello(char **argv, int stop)
{
	struct hello hello;
	int listener = listen_at(argv[0]), r;

	if (listener < 0)
		return fail(argv[0], -listener);
	r = hello_start(&hello, listener, argv + 1, -1, -1);
	if (r == 0 && stop >= 0 && write(stop, "0", 1) != 1)
		perror("hello_time: --stop");
	fd_close(&listener);
	if (r < 0)
		return fail(argv[1], -r);
	hello_end(&hello);
	printf("%llu\n", (unsigned long long)hello.ns);
	return 0;
}

int main(int argc, char **argv)
{
	int stop = -1, r;

	argv++;
	if (argc > 3 && strcmp(argv[0], "--stop") == 0) {
		stop = open(argv[1], O_WRONLY | O_CLOEXEC);
		if (stop < 0)
			return fail(argv[1], errno);
		argv += 2;
		argc -= 2;
	}
	if (argc < 3) {
		fprintf(stderr, "usage: hello_time [--stop FILE] vsock|unix:PATH COMMAND ARG...\n");
		return 2;
	}
	r = time_hello(argv, stop);
	fd_close(&stop);
	return r;
}
