/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control socket: serves common/proto_vmm.h to one peer at a time. Loop's thread only.
 *
 * What a misbehaving peer gets: for a message that breaks the protocol a reply of -EPROTO and the
 * connection's end; for more than CONTROL_PENDING_MAX requests that wait for their end, -EBUSY for those
 * beyond; when it does not read, so that a message to it finds no room, the connection's end. The VM runs on
 * in each case. A request that still waits when its peer is gone is carried out, but nobody is told.
 */
#ifndef VMM_CONTROL_H
#define VMM_CONTROL_H

#include "common/loop.h"
#include "common/proto_vmm.h"
#include "vmm/virtio/balloon.h"
#include <stdbool.h>

enum { CONTROL_PENDING_MAX = 64, CONTROL_BACKLOG = 8 };

/* Called once, on the loop's thread, not from within the function it was given to. status: 0 or -errno. */
typedef void (*control_done_fn)(void *context, int status);

/* What VMM_SAVE asks for, and what came of it. The fds stay the caller's. */
struct control_save {
	uint64_t flags;					/* any */
	int state, memory, disk;			/* disk: -1 without VMM_SAVE_DISK */
	uint64_t state_bytes, memory_bytes, disk_bytes; /* written */
	char *why;					/* VMM_MESSAGE_TEXT bytes, for words after an error */
};

/* What the machine does. All are called on the loop's thread. */
struct control_ops {
	/* state, exits and guest_cpu_ns as VMM_STATUS has them */
	void (*status)(void *context, enum vmm_state *state, uint64_t *exits, uint64_t *guest_cpu_ns);
	/* 0: done will be called when the vCPUs stand; 1: they do already; -errno. */
	int (*pause)(void *context, control_done_fn done, void *done_context);
	/* 0 or -errno. */
	int (*resume)(void *context);
	/* The VM ends; control_ended is called some time later. */
	void (*kill)(void *context);
	/* Joins fd (taken over, on failure too) to a guest's port. 0: done will be called; -errno. */
	int (*connect)(void *context, uint32_t port, int fd, control_done_fn done, void *done_context);
	/* Sets the link; fd (-1: none; taken over, on failure too) becomes the backend before. 0 or -errno.
	 */
	int (*net)(void *context, bool up, int fd);
	/* Sets the target unless it is VMM_BALLOON_ASK, then fills what VMM_BALLOON answers. 0 or -errno. */
	int (*balloon)(void *context, uint64_t target, struct balloon_status *status);
	/* 0 with the bytes written; -errno with words in why. */
	int (*save)(void *context, struct control_save *save);
	/*
	 * Takes fds over on 0, count of them; then done will be called. Or -errno. NULL: it is not in
	 * standby.
	 */
	int (*restore)(void *context, const struct vmm_message *request, const int *fds, unsigned count,
		control_done_fn done, void *done_context);
	/* The peer is gone. NULL: no matter. */
	void (*left)(void *context);
};

struct control;

/*
 * Listens on path, or takes fd:N: a listening SOCK_SEQPACKET socket, or one that is connected already.
 * A path must be free or a socket that nobody listens on. 0, or -errno: -ENAMETOOLONG, -EADDRINUSE (someone
 * listens there), -ENOTSOCK, -ESOCKTNOSUPPORT (another type of socket), -EBADF, -ENOMEM, -EMFILE ...
 */
int control_create(const char *path, struct loop *loop, const struct control_ops *ops, void *context,
	struct control **out);
/* Takes NULL. Unlinks a path that was made. Requests that wait are forgotten: done must not be called later.
 */
void control_destroy(struct control *control);

/* What is asked from now on goes there. */
void control_set_ops(struct control *control, const struct control_ops *ops, void *context);

/* Tells the peer, if there is one, of the VM's present state. */
void control_state_changed(struct control *control);
/* Tells the peer that the VM has ended, how and why. */
void control_ended(struct control *control, enum vmm_end end, const char *reason);

/*
 * The guest connects from guest_port to host_port: makes a stream and sends the peer its end. Returns the
 * other end, a non-blocking fd that is the caller's, or -errno: -ECONNREFUSED when there is no peer.
 */
int control_offer_stream(struct control *control, uint32_t guest_port, uint32_t host_port);

#endif
