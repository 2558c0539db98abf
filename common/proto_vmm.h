/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control protocol between host-ctl and one vmm: fixed-size messages on a SOCK_SEQPACKET Unix socket.
 *
 * The daemon binds and listens on the VM's named socket itself and hands the listening fd over
 * (`vmm --control fd:N`), so the vmm needs no right to any folder, the daemon can connect before the vmm
 * has even started, and a later daemon finds the VM again by name. The vmm serves one peer at a time;
 * the next one waits in the backlog until the first is gone.
 *
 * The vmm speaks first on a new connection: an EVENT_STATE with its present state. A request is answered by
 * exactly one message of the same type and sequence number with VMM_REPLY set. Events have sequence 0 and may
 * come between a request and its reply. A message of another size, an unknown type or a reserved field that
 * is not zero gets a reply with -EPROTO, and the vmm closes the connection; the VM runs on.
 */
#ifndef COMMON_PROTO_VMM_H
#define COMMON_PROTO_VMM_H

#include <stdint.h>

enum { VMM_PROTO_VERSION = 1, VMM_MESSAGE_TEXT = 192, VMM_STATUS_MIN = -4095 /* the errors of Linux */ };

enum vmm_message_type {
	/* requests */
	VMM_CONNECT =
		1, /* arg0: guest vsock port. Reply: status; with 0 one end of a socketpair (SCM_RIGHTS) */
	VMM_PAUSE = 2, /* stop the vCPUs; replied to when they stand */
	VMM_RESUME = 3,
	VMM_STATUS = 4, /* Reply: arg0 enum vmm_state, arg1 exits since the start, arg2 guest boot CPU ns */
	VMM_KILL = 5,	/* end the VM now; the reply is followed by EVENT_STATE ended */
	/*
	 * arg0: enum vmm_link. With one fd (SCM_RIGHTS), a tap: it becomes the net device's backend in place
	 * of the one before. Reply: status; -ENODEV: no net device; -ENOTCONN: up, and there is no backend.
	 */
	VMM_NET = 6,
	/*
	 * arg0: the balloon's target in bytes, or VMM_BALLOON_ASK. Replied to at once; the guest moves there
	 * by itself. Reply: arg0 target, arg1 what the guest has given up by now, arg2 what it reported free
	 * since the start (all bytes); -ENODEV: no balloon; -EINVAL: more than the guest's memory.
	 */
	VMM_BALLOON = 7,
	/*
	 * Of a paused VM: its state and its memory into the two fds (SCM_RIGHTS, in this order): regular
	 * files or memfds, open for writing, empty, not one and the same. Nothing else is served meanwhile,
	 * and nothing is synced. arg0: flags. With VMM_SAVE_PRIVATE of memory only what differs from the
	 * memory that the VM was restored from. With VMM_SAVE_DISK a third fd, as the others and not one of
	 * them: into it what the guest sees of its one copy-on-write disk, lower and upper in one, which is
	 * the lower of whoever is restored from this state, under a new upper.
	 * Reply: arg0 bytes of state, arg1 of memory, arg2 of the disk, holes left out.
	 * -EBUSY: it is not paused; -ENODEV: it has no copy-on-write disk, or more than one; any other error:
	 * text says why, and the files are empty. The VM stays paused, and can go on, whatever came of it.
	 */
	VMM_SAVE = 8,
	/*
	 * Of a vmm in standby (--standby), once: what it is to be. fds (SCM_RIGHTS, in this order): state,
	 * memory, with VMM_RESTORE_WORKING_SET a working set, with VMM_RESTORE_PAGES what VMM_SAVE_PRIVATE
	 * wrote (memory is then what it lies upon), then at most VMM_RESTORE_DISKS_MAX files of disks. arg0:
	 * the guest's vsock address; arg1: flags, with VMM_RESTORE_PAUSED it stands until VMM_RESUME; arg2:
	 * which disks are read-only, a bit each; arg3: which are copy-on-write: of these, the lower file is
	 * followed by the upper; text: empty, or with VMM_RESTORE_PAGES the checksum of that memory as
	 * whoever sealed it knows it, in VMM_RESTORE_SUM_DIGITS hexadecimal digits: then it is not read.
	 * Replied to before the guest runs; after an error, which standard error explains, the vmm ends with
	 * the status of one whose files were refused. -EALREADY: it is not in standby.
	 */
	VMM_RESTORE = 9,

	/* events */
	VMM_EVENT_STATE = 64, /* arg0: enum vmm_state; when ended, arg1: enum vmm_end, text: the reason */
	/* The guest connected to host port arg0 from its port arg1; one end of a socketpair (SCM_RIGHTS). */
	VMM_EVENT_STREAM = 65,

	VMM_REPLY = 0x80, /* or'ed to the request's type */
};

enum { VMM_SAVE_PRIVATE = 1, VMM_SAVE_DISK = 2, VMM_SAVE_FDS_MAX = 3 };

enum {
	VMM_RESTORE_WORKING_SET = 1,
	VMM_RESTORE_PAGES = 2,
	VMM_RESTORE_PAUSED = 4,
	VMM_RESTORE_SUM_DIGITS = 16,
	VMM_RESTORE_DISKS_MAX = 4,
	VMM_RESTORE_FDS_MAX = 4 + VMM_RESTORE_DISKS_MAX
};

enum vmm_link { VMM_LINK_DOWN = 0, VMM_LINK_UP = 1 };
#define VMM_BALLOON_ASK UINT64_MAX

enum vmm_state {
	VMM_STATE_STARTING = 0,
	VMM_STATE_RUNNING = 1,
	VMM_STATE_PAUSED = 2,
	VMM_STATE_ENDED = 3,
	VMM_STATE_STANDBY = 4, /* waits for VMM_RESTORE; ends when its peer leaves */
};

/* How a VM ended. Also the exit status of the vmm process. */
enum vmm_end {
	VMM_END_POWEROFF = 0,	  /* the guest powered off */
	VMM_END_SETUP = 1,	  /* a file, KVM or the host refused; no guest instruction ran */
	VMM_END_USAGE = 2,	  /* the command line */
	VMM_END_PANIC = 3,	  /* the guest's kernel panicked (pvpanic) */
	VMM_END_REBOOT = 4,	  /* the guest asked for a reset (port 0x64) */
	VMM_END_TRIPLE_FAULT = 5, /* KVM_EXIT_SHUTDOWN */
	VMM_END_GUEST_FAULT = 6,  /* the guest did what the machine does not bear (named in the text) */
	VMM_END_KVM = 7,	  /* KVM_RUN failed or an internal error */
	VMM_END_KILLED = 8,	  /* VMM_KILL, SIGTERM or SIGINT */
	VMM_END_COUNT
};

/* One message; both directions. Native byte order: it never leaves the host. */
struct vmm_message {
	uint32_t type;
	uint32_t sequence; /* chosen by the requester, not zero */
	int32_t status;	   /* replies: 0 or -errno, not below VMM_STATUS_MIN */
	uint32_t reserved; /* zero */
	uint64_t arg0, arg1, arg2, arg3;
	char text[VMM_MESSAGE_TEXT]; /* NUL-terminated words for people */
};
_Static_assert(sizeof(struct vmm_message) == 48 + VMM_MESSAGE_TEXT, "wire layout");

#endif
