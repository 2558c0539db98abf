/* SPDX-License-Identifier: Apache-2.0 */
/* Between vm.c (life and death) and vm_agent.c (the way to a warm VM). */
#ifndef HOST_CTL_VM_PRIVATE_H
#define HOST_CTL_VM_PRIVATE_H

#include "host-ctl/vm.h"

/* A transition of the picture in vm.h; one that is not in it is a bug, is logged, and ends the VM. */
void vm_move(struct vm *vm, enum vm_state next);

/* Reads what the vmm says. */
void vm_control_ready(struct vm *vm);
/* Reads what the agent says on the stream it opened. */
void vm_agent_ready(struct vm *vm, uint32_t events);
/* Adopts the connected session stream: CONNECTING to WARM. fd becomes the VM's. */
void vm_set_session(struct vm *vm, int fd);

#endif
