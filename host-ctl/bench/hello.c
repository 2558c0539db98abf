/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/bench/hello.h"
#include "common/io.h"
#include "host-ctl/support/clock.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/vm_sockets.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int listen_at(int family, const void *address, socklen_t length)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), r = fd < 0 ? -errno : 0;

	if (r == 0 && (bind(fd, address, length) < 0 || listen(fd, 1) < 0))
		r = -errno;
	if (r < 0)
		fd_close(&fd);
	return r < 0 ? r : fd;
}

int hello_listen_unix(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	if (strlen(path) >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, strlen(path) + 1);
	unlink(path);
	return listen_at(AF_UNIX, &address, sizeof(address));
}

int hello_listen_vsock(void)
{
	struct sockaddr_vm address = {
		.svm_family = AF_VSOCK, .svm_cid = VMADDR_CID_ANY, .svm_port = HELLO_PORT};

	return listen_at(AF_VSOCK, &address, sizeof(address));
}

static int start(struct hello *hello, char *const argv[], int output)
{
	posix_spawn_file_actions_t actions;
	posix_spawnattr_t attributes;
	sigset_t none;
	int r = posix_spawn_file_actions_init(&actions);

	if (r != 0)
		return -r;
	r = posix_spawnattr_init(&attributes);
	if (r != 0) {
		posix_spawn_file_actions_destroy(&actions);
		return -r;
	}
	sigemptyset(&none);
	r = posix_spawnattr_setsigmask(&attributes, &none);
	if (r == 0)
		r = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
	if (r == 0)
		r = posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (r == 0 && output >= 0)
		r = posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
	if (r == 0 && output >= 0)
		r = posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
	hello->ns = clock_now();
	if (r == 0)
		r = posix_spawnp(&hello->pid, argv[0], &actions, &attributes, argv, environ);
	posix_spawnattr_destroy(&attributes);
	posix_spawn_file_actions_destroy(&actions);
	if (r != 0)
		hello->pid = 0;
	return -r;
}

/* Until fd can be read. 0, -ETIMEDOUT; -EINTR or -ECHILD when that comes first. */
static int await(int fd, int process, int stop)
{
	struct pollfd waits[] = {{.fd = fd, .events = POLLIN}, {.fd = process, .events = POLLIN},
		{.fd = stop, .events = POLLIN}};
	int r;

	do
		r = poll(waits, sizeof(waits) / sizeof(waits[0]), HELLO_LIMIT_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r == 0 ? -ETIMEDOUT : -errno;
	/* Who is called off by the keyboard is so with what it has started. */
	if (waits[2].revents)
		return -EINTR;
	return waits[0].revents ? 0 : -ECHILD;
}

static int await_byte(struct hello *hello, int listener, int process, int stop)
{
	char byte;
	int r = await(listener, process, stop);

	if (r == 0) {
		hello->stream = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
		r = hello->stream < 0 ? -errno : await(hello->stream, process, stop);
	}
	if (r == 0 && recv(hello->stream, &byte, 1, 0) != 1)
		r = -ECHILD; /* closed: there is no guest any more */
	if (r == 0)
		hello->ns = clock_now() - hello->ns;
	return r;
}

/* Those of earlier guests, which were killed. */
static void drain(int listener)
{
	struct pollfd wait = {.fd = listener, .events = POLLIN};

	while (poll(&wait, 1, 0) == 1) {
		int stale = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

		if (stale < 0)
			return;
		fd_close(&stale);
	}
}

int hello_start(struct hello *hello, int listener, char *const argv[], int output, int stop)
{
	int process, r;

	*hello = (struct hello){.stream = -1};
	drain(listener);
	r = start(hello, argv, output);
	if (r < 0)
		return r;
	process = (int)syscall(SYS_pidfd_open, hello->pid, 0);
	r = process < 0 ? -errno : await_byte(hello, listener, process, stop);
	fd_close(&process);
	if (r < 0)
		hello_end(hello);
	return r;
}

void hello_end(struct hello *hello)
{
	fd_close(&hello->stream);
	if (hello->pid <= 0)
		return;
	/* One that has ended by itself keeps its own status. */
	if (waitpid(hello->pid, &hello->status, WNOHANG) == 0) {
		kill(hello->pid, SIGKILL);
		while (waitpid(hello->pid, &hello->status, 0) < 0 && errno == EINTR)
			;
	}
	hello->pid = 0;
}
