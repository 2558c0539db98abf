/* SPDX-License-Identifier: Apache-2.0 */
/* Between vm.c (life and death), vm_start.c (birth), vm_agent.c and vm_commands.c (the way to a warm VM),
 * vm_build.c (the way to a template), vm_owned.c (what an owner asks) and vm_save.c (that it saves);
 * vm_disk.c: its disk. */
#ifndef HOST_CTL_VM_PRIVATE_H
#define HOST_CTL_VM_PRIVATE_H

#include "host-ctl/vm/vm.h"

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
/* The next step of a VM that has its identity: another stream to the agent, or what a build has after its
 * last command. */
void vm_go_on(struct vm *vm);

/* Sends the next command on the session stream, to PREPARING or REHEARSING. False: there is none left. */
bool vm_command_start(struct vm *vm);
/* Reads what comes of it. When it ends with status 0, the stream is closed and the VM goes on; else it ends.
 */
void vm_command_ready(struct vm *vm);
/* There is a command that was not run yet. */
bool vm_has_commands(const struct vm *vm);

/* One frame on the stream that the agent opened. 0 or -errno: it takes no more. */
int vm_tell_agent(struct vm *vm, uint8_t type, const void *payload, size_t length);

/* A build, after its last command: to PARKING, where the agent notes the files that are its clones' from the
 * first, and brings them to its disk, if it has one; when it has, and VM_PARK_MS later, to PAUSING. */
void vm_park(struct vm *vm);
/* A clone whose guest was saved at work: to NOTING, where the agent notes its files; then it goes on. */
void vm_note(struct vm *vm);
/* What the agent has answered in one of these two. */
void vm_noted(struct vm *vm, const struct frame *frame);
void vm_brought(struct vm *vm, const struct frame *frame);
void vm_pause(struct vm *vm);
/* A build's vmm replied to VMM_PAUSE or VMM_SAVE. */
void vm_build_replied(struct vm *vm, const struct vmm_message *message);

/* The vmm replied to what the owner of an OWNED VM asked. fd: -1, or taken over. */
void vm_owned_replied(struct vm *vm, const struct vmm_message *message, int fd);
/* Asks for it: type and arg0 of the message are the caller's. Returns as vm_ask_stream. */
int vm_ask(
	struct vm *vm, struct vmm_message *message, const int *fds, size_t count, struct vm_request *request);
/* A save has ended, in whichever way: the bounds of its vmm and cgroup are what they were, as soon as they
 * can be. Again when the time of vm->timer is over, of an OWNED one. */
void vm_end_save(struct vm *vm);
/* The longer of the two files of a save. */
uint64_t vm_save_bytes_max(const struct vm *vm);
/* Of a VMM_SAVE; request NULL: forgotten. */
void vm_save_replied(struct vm *vm, const struct vmm_message *message, struct vm_request *request);
/* Opens what the vmm is given of the source's disk, the caller's: the file, and its upper or, of a clone
 * without one, a new one, which vm->upper holds too. Without a disk neither. 0, or -errno with *error set. */
int vm_open_disk(struct vm *vm, int *disk, int *upper, struct error *error);
/* How long a file its vmm may write, from its start on: RLIMIT_FSIZE. That of a save is among them, unless it
 * has a serial log. */
uint64_t vm_file_bytes_max(const struct vm *vm);
/* The same of a vmm that was started before its source was known. 0 or -errno: -EPERM: without
 * CAP_SYS_RESOURCE no VM with a disk is made of one in standby; another has no bound, and no file either. */
int vm_set_file_bytes_max(const struct vm *vm);

/* What the cgroup of such a VM is limited to. */
struct cgroup_limits vm_limits_of(const struct vm_source *source);

bool vm_source_is_clone(const struct vm_source *source);
bool vm_source_has_disk(const struct vm_source *source);
/* Its disk is only read, and what is written goes to an upper. */
bool vm_source_is_cow(const struct vm_source *source);
/* Its vmm is given a working set. */
bool vm_has_working_set(const struct vm *vm);
void vm_socket_path(const struct vm *vm, char path[VM_SOCKET_MAX]);
/* How long a step to a warm VM may take, by what it is made of. */
uint64_t vm_boot_timeout_ms(const struct vm *vm);
/* The time of vm->timer is over. */
void vm_time_is_up(struct vm *vm);
/* Reaps it, if it has ended. */
void vm_process_ended(struct vm *vm);
/* Ends the process and all that came of it, now. */
void vm_kill(struct vm *vm);
/* Frees all that is left. The process is reaped, or was never there. */
void vm_destroy(struct vm *vm);

#endif
