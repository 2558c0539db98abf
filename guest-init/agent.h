/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: serves common/proto_guest.h on every stream that is accepted from a listening socket, and on one
 * that guest-init opens itself. It knows nothing of vsock but whom to accept, and nothing of PID 1: it runs
 * as any process, over any stream socket.
 *
 * Bounds: AGENT_STREAMS_MAX streams (one more is told EAGAIN and closed), AGENT_SESSIONS_MAX sessions, one
 * walk through the changes; in one turn AGENT_REAP_MAX ends of processes and CGROUP_SWEEP_MAX groups. Over
 * vsock only the host (CID 2) is accepted.
 *
 * An identity is for one machine. When the stream that we opened ends, this may be a clone of the guest that
 * had it: NEW is refused until IDENTITY comes again. One with another machine id forgets the sessions that
 * were before it: in the child of a fork, what runs goes on, but the commands are the parent's.
 */
#ifndef GUEST_INIT_AGENT_H
#define GUEST_INIT_AGENT_H

#include "common/loop.h"
#include "guest-init/identity.h"
#include "guest-init/layers.h"
#include "guest-init/link.h"
#include "guest-init/session.h"
#include "guest-init/stream.h"
#include "guest-init/warnings.h"

enum {
	AGENT_STREAMS_MAX = AGENT_SESSIONS_MAX + 16,
	AGENT_STREAMS_READY = 2,
	AGENT_REAP_MAX = 64, /* children reaped in one turn of the loop */
};

struct agent_config {
	struct loop *loop;
	int listen_fd;		 /* non-blocking; stays the caller's; -1: none */
	const char *cgroup_root; /* a folder of a mounted cgroup2; NULL: none */
	const struct users_files *users;
	const struct identity_ops *identity;
	void *identity_context;
	const struct layers *layers; /* of the root, for CHANGES; NULL: it is no overlay */
	/* Opens the agent's own control stream (link.h); NULL: it has none. */
	int (*connect)(unsigned turn);
	/* SHUTDOWN came. */
	void (*shutdown)(void *context, uint32_t grace_ms);
	void *shutdown_context;
	/* No child is left, as was found after reaping; or NULL. May be called again while none is. */
	void (*childless)(void *context);
	void *childless_context;
	/* Lines for HELLO, the agent's own added; stays the caller's. */
	struct warnings *warnings;
};

/* 0 or -errno. Everything the config points to outlives the agent. All signals are blocked by the caller. */
int agent_create(const struct agent_config *config, struct agent **agent);
/* Takes NULL. Closes every stream, kills every session. */
void agent_destroy(struct agent *agent);

/* Opens the agent's own control stream, once, when it may be spoken to: HELLO is sent when the connection
 * stands. One that fails is a line in the log; one that ends later is opened again. 0 or -errno. */
int agent_open_link(struct agent *agent);
/* For link.c: takes over fd, non-blocking, whose connect(2) was begun. 0 or -errno. */
int agent_add_outgoing(struct agent *agent, int fd);

/*
 * Reaps children that have ended, session leaders or not: AGENT_REAP_MAX of them, for a guest can make them
 * faster than they are reaped. The loop comes back for the others by itself, after it has served what else
 * waits: a SIGCHLD stands for all that had ended when it was read, so none may come for those. On SIGCHLD.
 */
void agent_reap(struct agent *agent);

/* No new sessions; those that run will say "killed". The killing is the caller's. */
void agent_stop(struct agent *agent);

/* For stream.c. */
struct loop *agent_loop(struct agent *agent);
bool agent_is_stopping(const struct agent *agent);
/* Acts on one frame; on a bad one the stream is closing or closed after it. */
void agent_handle_frame(struct agent *agent, struct stream *stream, const struct frame *frame);
/* Makes it a control stream and says HELLO. */
void agent_greet(struct agent *agent, struct stream *stream);
/* The stream that we opened: it stands, could not be opened, ended. */
void agent_connected(struct agent *agent);
void agent_connect_failed(struct agent *agent, int error);
void agent_link_ended(struct agent *agent);

#endif
