/* SPDX-License-Identifier: Apache-2.0 */
#ifdef __x86_64__
#include "guest-init/clone.h"
#include <linux/sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>

#ifndef SYS_clone3
#define SYS_clone3 435
#endif

/*
 * The child returns from the system call on another stack, where no return address is: so the call into its
 * function is made here. Both registers it needs are the child's own copies.
 */
int clone_vfork(int cgroup_fd, void (*child)(void *context), void *context)
{
	_Alignas(16) char stack[CLONE_STACK_BYTES];
	struct clone_args args = {
		.flags = CLONE_VM | CLONE_VFORK | CLONE_CLEAR_SIGHAND,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)stack,
		.stack_size = sizeof(stack),
	};
	long result;

	if (cgroup_fd >= 0) {
		args.flags |= CLONE_INTO_CGROUP;
		args.cgroup = (uint64_t)cgroup_fd;
	}
	__asm__ volatile("syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "mov %[context], %%rdi\n\t"
			 "call *%[child]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(result)
			 : "a"((long)SYS_clone3), "D"(&args),
			 "S"(sizeof(args)), [child] "r"(child), [context] "r"(context)
			 : "rcx", "r11", "memory", "cc");
	return (int)result;
}
#endif
