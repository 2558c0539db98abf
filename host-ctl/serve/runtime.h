/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a daemon owns in the file system: the runtime folder with one control socket a VM, the API's socket,
 * and a lock for each (serve.lock in the folder, SOCKET.lock), so that a second daemon is refused and a dead
 * one's leavings are removed.
 *
 * A lock's file goes when the daemon ends in order; one that was killed leaves it to the next. Only who holds
 * the lock removes the file, and holding it means that the path still names the file that is locked: so who
 * opened it before it went, and locks it after, finds that out and begins anew, and no two hold "the" lock.
 */
#ifndef HOST_CTL_RUNTIME_H
#define HOST_CTL_RUNTIME_H

#include "host-ctl/support/error.h"
#include "host-ctl/vm/vm.h"
#include <limits.h>
#include <stdbool.h>
#include <sys/types.h>

struct runtime {
	int folder_lock, socket_lock, listener;
	const char *folder, *socket;
	char sockets[PATH_MAX]; /* folder of the control sockets */
	bool has_sockets;
};

/*
 * Makes folder (mode 0755) and takes its lock, and that of the socket's path. The texts outlive the runtime.
 * 0, or -errno with *error set: -EBUSY in use by another daemon (named by its pid), -ENAMETOOLONG, or of the
 * system call.
 */
int runtime_open(struct runtime *runtime, const char *folder, const char *socket, struct error *error);
/* Removes from the folder of control sockets what keep does not want; keep NULL: all. 0, or -errno with
 * *error set. */
int runtime_sweep(const struct runtime *runtime, bool (*keep)(const void *context, const char *name),
	const void *context, struct error *error);
/* Listens on the socket, mode 0660, owned by group; a dead one is replaced. 0, or -errno with *error set. */
int runtime_listen(struct runtime *runtime, gid_t group, struct error *error);
/* Removes the socket, the folder of control sockets and the files of the locks, and gives these up. */
void runtime_close(struct runtime *runtime);

#endif
