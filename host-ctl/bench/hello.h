/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a machine monitor takes until its guest's init says hello: guest-init connects to the host's port
 * HELLO_PORT when it listens, and writes. The time is from before the program is started to its first byte.
 */
#ifndef HOST_CTL_HELLO_H
#define HOST_CTL_HELLO_H

#include <stdint.h>
#include <sys/types.h>

enum { HELLO_PORT = 1024, HELLO_LIMIT_MS = 120 * 1000 };

/* A listening socket, the caller's, or -errno: at a Unix path (vmm --vsock P: at P_1024), which is removed
 * first; of the host's vsock (QEMU with vhost-vsock). */
int hello_listen_unix(const char *path);
int hello_listen_vsock(void);

struct hello {
	pid_t pid; /* 0: it does not run */
	int stream;
	int status; /* as of waitpid, when it has ended by itself */
	uint64_t ns;
};

/*
 * Starts argv[0] (found by PATH), its standard input empty, its output and errors to `output` (-1: ours), and
 * waits for the byte. No signal is blocked in it. 0: it runs, and the stream is open. Otherwise it does not:
 * -errno of the start; -ETIMEDOUT, no byte within HELLO_LIMIT_MS; -ECHILD, it has ended before, as status
 * says; -EINTR, `stop` (-1: none) could be read, which nobody has done.
 */
int hello_start(struct hello *hello, int listener, char *const argv[], int output, int stop);
/* Kills it, waits for its end, closes the stream. Takes one that was never started. */
void hello_end(struct hello *hello);

#endif
