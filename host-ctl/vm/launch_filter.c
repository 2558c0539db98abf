/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/vm/launch_filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#ifdef __x86_64__
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#else
#error "which AUDIT_ARCH_* is this?"
#endif

enum {
	X32_FIRST =
		0x40000000, /* calls of the x32 ABI have this bit; other architectures have none so large */
	NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS |
		     CLONE_NEWCGROUP,
};

#define FIELD(name) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, name))
#define RETURN(value) BPF_STMT(BPF_RET | BPF_K, value)
#define REFUSE(error) RETURN(SECCOMP_RET_ERRNO | (error))
/* The next statement is for this call only. */
#define CALL(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 1)
#define DENY(name) CALL(name), REFUSE(EPERM)
/* The low half of the first argument: it is an int, or flags that lie there. Then the decision is final. */
#define ONLY_UNIX(name)                                                                                      \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 4), FIELD(args[0]),                               \
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0), REFUSE(EPERM), RETURN(SECCOMP_RET_ALLOW)
#define NO_FLAGS(name, flags)                                                                                \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##name, 0, 4), FIELD(args[0]),                               \
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, flags, 0, 1), REFUSE(EPERM), RETURN(SECCOMP_RET_ALLOW)

static const struct sock_filter program[] = {
	FIELD(arch),
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
	RETURN(SECCOMP_RET_KILL_PROCESS),
	FIELD(nr),
	BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_FIRST, 0, 1),
	RETURN(SECCOMP_RET_KILL_PROCESS),

	ONLY_UNIX(socket),
	ONLY_UNIX(socketpair),

	/* Flags of clone3 lie in memory, where they cannot be looked at; libraries then use clone. */
	CALL(clone3),
	REFUSE(ENOSYS),
	NO_FLAGS(clone, NAMESPACES),
	DENY(unshare),
	DENY(setns),

	DENY(mount),
	DENY(umount2),
	DENY(pivot_root),
	DENY(chroot),
	DENY(open_tree),
	DENY(move_mount),
	DENY(fsopen),
	DENY(fspick),
	DENY(fsconfig),
	DENY(fsmount),
	DENY(open_by_handle_at),

	DENY(ptrace),
	DENY(process_vm_readv),
	DENY(process_vm_writev),
	DENY(pidfd_getfd),
	DENY(kcmp),

	DENY(bpf),
	DENY(perf_event_open),
	DENY(userfaultfd),
	DENY(io_uring_setup),
	DENY(add_key),
	DENY(request_key),
	DENY(keyctl),
	DENY(init_module),
	DENY(finit_module),
	DENY(delete_module),
	DENY(kexec_load),
	DENY(kexec_file_load),

	RETURN(SECCOMP_RET_ALLOW),
};

int launch_filter_install(void)
{
	struct sock_fprog filter = {
		.len = sizeof program / sizeof program[0], .filter = (struct sock_filter *)program};

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) < 0 ? -errno : 0;
}
