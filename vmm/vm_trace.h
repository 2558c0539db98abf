/* SPDX-License-Identifier: Apache-2.0 */
/* --trace of a VM: what its trace is about, and when it is written. Without --trace these do nothing. */
#ifndef VMM_VM_TRACE_H
#define VMM_VM_TRACE_H

#include <stdint.h>

struct config;
struct vm;

/*
 * For a process that was started at `began` (trace_clock; 0: not known) with this command line, which must
 * outlive it. 0, or -ENOMEM, logged.
 */
int vm_trace_start(const struct config *config, uint64_t began, uint64_t cpu);
/* In set-up: the guest's port for marks, and what is needed to tell its memory. 0 or -errno of bus_add. */
int vm_trace_attach(struct vm *vm);
/* The guest's first stream has come. Loop's thread. */
void vm_trace_hello(struct vm *vm);
/* That stream is with whoever takes it: a trace that ends there is written now. */
void vm_trace_greeted(struct vm *vm);
/* The VM has ended. */
void vm_trace_end(struct vm *vm);

#endif
