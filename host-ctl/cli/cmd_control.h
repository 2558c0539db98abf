/* SPDX-License-Identifier: Apache-2.0 */
/* What the actions of `host-ctl control` share; for cmd_control*.c alone. */
#ifndef HOST_CTL_CMD_CONTROL_H
#define HOST_CTL_CMD_CONTROL_H

#include "host-ctl/cli/vmm_client.h"
#include <jansson.h>
#include <stdbool.h>

enum { CONTROL_OPERANDS_MAX = 4 };

struct control_call {
	struct vmm_client client;
	struct client_error error;
	bool json;
	const char *operands[CONTROL_OPERANDS_MAX]; /* after SOCKET: the action, and what it is given */
	size_t count;
};

/* 0 and a reply that is no error, or -1 and call->error. As vmm_client_ask. */
int control_ask(struct control_call *call, uint32_t type, uint64_t arg0, const int *fds, size_t count,
	struct vmm_message *reply);

/* Prints it, taken over, as a line of JSON; NULL: there was no memory. The exit status. */
int control_print_object(json_t *object);

/* `save DIR`. The exit status, or -1 with call->error. */
int control_save(struct control_call *call);

#endif
