/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long from a machine monitor's exec until its guest's init says hello: guest-init connects to the host's
 * port 1024 when it listens.
 *
 *   hello_time vsock|unix:PATH COMMAND ARG...
 *
 * Listens, starts the command, waits for the first byte of the first connection, prints the nanoseconds in
 * between, and kills the command. Exit status 0, or 1 when no byte came within HELLO_LIMIT_MS or the command
 * ended before.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <linux/vm_sockets.h>

enum { HELLO_PORT = 1024, HELLO_LIMIT_MS = 120 * 1000 };

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (unsigned long long)now.tv_sec * 1000000000 + (unsigned long long)now.tv_nsec;
}

static int listen_vsock(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = HELLO_PORT};
	int fd = socket(AF_VSOCK, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
		return -errno;
	return fd;
}

static int listen_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	unlink(path);
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 1) < 0)
		return -errno;
	return fd;
}

/* 0, -errno, or -ETIMEDOUT: the byte did not come. */
static int await_byte(int listener)
{
	struct pollfd wait = {.fd = listener, .events = POLLIN};
	char byte;

	if (poll(&wait, 1, HELLO_LIMIT_MS) != 1)
		return -ETIMEDOUT;
	wait.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (wait.fd < 0)
		return -errno;
	if (poll(&wait, 1, HELLO_LIMIT_MS) != 1)
		return -ETIMEDOUT;
	return read(wait.fd, &byte, 1) == 1 ? 0 : -ECONNRESET;
}

static int fail(const char *what, int error)
{
	fprintf(stderr, "hello_time: %s: %s\n", what, strerror(error));
	return 1;
}

int main(int argc, char **argv)
{
	extern char **environ;
	unsigned long long start, end;
	int listener, r;
	pid_t pid;

	if (argc < 3) {
		fprintf(stderr, "usage: hello_time vsock|unix:PATH COMMAND ARG...\n");
		return 2;
	}
	listener = strcmp(argv[1], "vsock") == 0       ? listen_vsock()
		   : strncmp(argv[1], "unix:", 5) == 0 ? listen_unix(argv[1] + 5)
						       : -EINVAL;
	if (listener < 0)
		return fail(argv[1], -listener);
	start = now_ns();
	r = posix_spawnp(&pid, argv[2], NULL, NULL, argv + 2, environ);
	if (r != 0)
		return fail(argv[2], r);
	r = await_byte(listener);
	end = now_ns();
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (r < 0)
		return fail("the guest's hello", -r);
	printf("%llu\n", end - start);
	return 0;
}
