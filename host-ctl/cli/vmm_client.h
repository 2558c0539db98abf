/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer of one vmm's control socket (common/proto_vmm.h), for people who run vmm alone: one request at a
 * time, each answer waited for with a bound. What answers may be no vmm: every message is checked.
 *
 * Every function that takes an error fills it when it fails: a code, and a sentence that names the socket,
 * the cause and the mend. The codes: "no_vm" (nothing there, or the VM has ended), "denied", "busy"
 * (retryable: the vmm serves another peer, or asks to be asked later), "protocol" (no vmm, or another
 * version of it), "invalid", "io".
 */
#ifndef HOST_CTL_VMM_CLIENT_H
#define HOST_CTL_VMM_CLIENT_H

#include "common/proto_vmm.h"
#include "host-ctl/cli/client.h"

enum {
	VMM_CLIENT_GREETING_MS = 2 * 1000, /* a vmm that is free greets at once */
	VMM_CLIENT_REPLY_MS = 10 * 1000,
};

struct vmm_client {
	const char *path; /* for errors; the caller's */
	int fd;		  /* -1: not connected */
	uint32_t sequence;
	unsigned int reply_ms;	  /* VMM_CLIENT_REPLY_MS, or what the caller sets */
	struct vmm_message state; /* the last EVENT_STATE; the first is the greeting */
};

/* 0, or -1: the client is finished already. */
int vmm_client_connect(struct vmm_client *client, const char *path, struct client_error *error);
/* Takes one that is finished. */
void vmm_client_finish(struct vmm_client *client);

/*
 * Sends a request (its sequence is set here), with `count` fds that stay the caller's, and waits for its
 * reply as long as client->reply_ms; an fd that comes with it is closed. 0 and *reply, whose status may be
 * an error of the vmm's; -1: there is no reply.
 */
int vmm_client_ask(struct vmm_client *client, struct vmm_message *request, const int *fds, size_t count,
	struct vmm_message *reply, struct client_error *error);

/* Waits until the VM has ended: client->state then says how. 0 or -1. */
int vmm_client_await_end(struct vmm_client *client, struct client_error *error);

#endif
