/* SPDX-License-Identifier: Apache-2.0 */
/* Between vm.c (life and death), vm_agent.c and vm_rehearsal.c (the way to a warm VM). */
#ifndef HOST_CTL_VM_PRIVATE_H
#define HOST_CTL_VM_PRIVATE_H

#include "host-ctl/vm.h"

/* A transition of the picture in vm.h; one that is not in it is a bug, is logged, and ends the VM. */
void vm_move(struct vm *vm, enum vm_state next);

/* Reads what the vmm says. */
void vm_control_ready(struct vm *vm);
/* Reads what the agent says on the stream it opened. */
void vm_agent_ready(struct vm *vm, uint32_t events);
/* Asks the vmm for a stream to the agent: to CONNECTING. */
void vm_connect_session(struct vm *vm);
/* Closes the session stream of a VM that is not BUSY. */
void vm_close_session(struct vm *vm);
/* Sends the sample command on the session stream. 0 or -errno. */
int vm_rehearsal_start(struct vm *vm);
/* Reads what comes of it. When it ends with status 0, the stream is closed and the next one asked for; else
 * the VM ends. */
void vm_rehearsal_ready(struct vm *vm);

#endif
