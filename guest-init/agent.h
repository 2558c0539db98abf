/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent: serves common/proto_guest.h on every stream that is accepted from a listening socket, and on one
 * that guest-init opens itself. It knows nothing of vsock but whom to accept, and nothing of PID 1: it runs
 * as any process, over any stream socket.
 *
 * Bounds: AGENT_STREAMS_MAX streams (one more is told EAGAIN and closed), AGENT_SESSIONS_MAX sessions. Over
 * vsock only the host (CID 2) is accepted.
 */
#ifndef GUEST_INIT_AGENT_H
#define GUEST_INIT_AGENT_H

#include "common/loop.h"
#include "guest-init/identity.h"
#include "guest-init/session.h"
#include "guest-init/stream.h"
#include "guest-init/warnings.h"

enum { AGENT_STREAMS_MAX = AGENT_SESSIONS_MAX + 16, AGENT_STREAMS_READY = 2 };

struct agent_config {
	struct loop *loop;
	int listen_fd;		 /* non-blocking; stays the caller's; -1: none */
	const char *cgroup_root; /* a folder of a mounted cgroup2; NULL: none */
	const struct users_files *users;
	const struct identity_ops *identity;
	void *identity_context;
	/* SHUTDOWN came. */
	void (*shutdown)(void *context, uint32_t grace_ms);
	void *shutdown_context;
	/* Lines for HELLO, the agent's own added; stays the caller's. */
	struct warnings *warnings;
};

/* 0 or -errno. Everything the config points to outlives the agent. All signals are blocked by the caller. */
int agent_create(const struct agent_config *config, struct agent **agent);
/* Takes NULL. Closes every stream, kills every session. */
void agent_destroy(struct agent *agent);

/* A control stream that we open: HELLO is sent when the connection stands. Takes over fd, non-blocking, whose
 * connect(2) was begun; one that fails is a line in the log. 0 or -errno. */
int agent_add_outgoing(struct agent *agent, int fd);

/* Reaps all children that have ended, session leaders or not. True while there are others. On SIGCHLD. */
bool agent_reap(struct agent *agent);

/* No new sessions; those that run will say "killed". The killing is the caller's. */
void agent_stop(struct agent *agent);

/* For stream.c. */
struct loop *agent_loop(struct agent *agent);
bool agent_is_stopping(const struct agent *agent);
/* Acts on one frame; on a bad one the stream is closing or closed after it. */
void agent_handle_frame(struct agent *agent, struct stream *stream, const struct frame *frame);
/* Makes it a control stream and says HELLO. */
void agent_greet(struct agent *agent, struct stream *stream);
void agent_connect_failed(struct agent *agent, int error);

#endif
