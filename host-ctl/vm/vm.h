/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One VM: a vmm process in its own cgroup, its control socket, and the agent in its guest.
 *
 *             EVENT_STATE      EVENT_STREAM       HELLO         IDENTITY_DONE     CONNECT replied
 *   LAUNCHED ────────────▶ BOOTING ──────▶ HELLO ──────▶ IDENTITY ──────▶ CONNECTING ──────▶ WARM
 *       │                     │              │               │              ▲    │ rehearsals    │ vm_take
 *       │                     │              │               │         EXIT │    ▼ left          ▼ vm_own
 *       │                     │              │               │            REHEARSING       BUSY or OWNED
 *       ├─────────────────────┴──────────────┴───────────────┴─────────────────┴─────────────────┤
 *       ▼   vm_end, boot time-out, the process died, the guest broke the protocol                │
 *     ENDING ◀───────────────────────────────────────────────────────────────────────────────────┘
 *       │   process reaped (`ended` is called), cgroup gone, session released (`gone` is called)
 *       ▼
 *     freed
 *
 * A process in standby (standby.h) is there before its VM: STANDBY ──vm_adopt──▶ LAUNCHED, or ENDING.
 *
 * A clone (struct vm_source) goes the same way: after its restore the agent opens its stream again and
 * greets. One that is held waits before that, restored, and nothing of its guest has run:
 *
 *   LAUNCHED ──EVENT_STATE paused, `held` is called──▶ HELD ──vm_let_run──▶ BOOTING
 *
 * One whose guest was saved at work (vm_source.notes) has it note its files first, as they are then:
 *
 *   IDENTITY ──▶ NOTING ──BASELINE_DONE──▶ CONNECTING
 *
 * A VM that is started with a struct vm_build is to become a template, and never warm:
 *
 *   IDENTITY ──▶ CONNECTING ──▶ PREPARING or REHEARSING, back for each command; after the last
 *            ──▶ PARKING ──BASELINE_DONE, with a disk HELD, VM_PARK_MS──▶ PAUSING ──replied──▶ SAVING
 * ──replied, `saved` is called──▶ ENDING
 *
 * A rehearsal is a small command of the daemon's own, run the way that a user's will be: what it reads and
 * touches, in guest and vmm, a user's command finds in memory. One that does not exit with status 0 is a
 * start that failed.
 *
 * A VM that was BUSY or OWNED only ever goes to ENDING: it is never handed out twice. Nothing of a user's
 * reaches a guest before IDENTITY_DONE. A BUSY one has one session and ends with it. An OWNED one stays until
 * its owner, or something else, ends it: the owner asks for as many streams to the agent as it wants, and has
 * the guest paused and resumed (vm_owned.c).
 *
 * The guest and, to a degree, the vmm are hostile: a message of a wrong size, type or order, or an unasked
 * byte on a warm session stream, ends that VM with the cause named; nothing else is touched. What they send
 * is bounded by VM_CONTROL_BURST messages a turn, AGENT_FRAME_MAX a frame, TAIL_BYTES of log, VM_WARNINGS_MAX
 * lines of warnings, VM_STRAYS_MAX streams that nobody wants, and VM_SERIAL_MAX bytes of a serial log. What
 * they send as a stream is one, and no call on it waits.
 */
#ifndef HOST_CTL_VM_H
#define HOST_CTL_VM_H

#include "common/frame.h"
#include "common/loop.h"
#include "common/proto_vmm.h"
#include "host-ctl/support/tail.h"
#include "host-ctl/vm/cgroup.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
	VM_ID_MAX = 24,
	VM_CAUSE_MAX = 640,
	VM_SOCKET_MAX = 108,		       /* path of a control socket, NUL included: sun_path */
	VM_MEMORY_OVERHEAD = 64 * 1024 * 1024, /* of the cgroup's limit, over the guest's memory */
	VM_CPU_QUOTA_US = 100 * 1000,	       /* one CPU: for each vCPU, and one for the devices */
	/* A refill gives way to the runs it is not for. */
	VM_WEIGHT_REFILL = 10,
	VM_WEIGHT = 100,
	VM_PIDS_MAX = 64,   /* threads of one vmm */
	VM_FILES_MAX = 128, /* open fds of one vmm */
	VM_CONTROL_BURST = 16,
	VM_ASKED_MAX = 32,	   /* requests of an owner's that the vmm has not answered */
	VM_STRAYS_MAX = 1024,	   /* streams that a guest opens to ports where nobody is */
	VM_WARNINGS_MAX = 32,	   /* lines of a HELLO that are logged */
	VM_ERRORS_MAX = 64 * 1024, /* a pipe of it, read after the end of the process */
	/* Bytes of a serial log; what comes later is dropped, by the vmm (--serial-max). A vmm that its guest
	 * has taken over is held to what it may write of any one file: as much as the longest, such as its
	 * disk. */
	VM_SERIAL_MAX = 4 * 1024 * 1024,
	VM_BOOT_TIMEOUT_MS = 30 * 1000,
	VM_READ_BYTES_PER_MS = 32 * 1024, /* by which that is longer for what has to be read of a slow disk */
	/* After a save, between looks whether its cgroup's memory can be bounded as before, and how many:
	 * then it is, whatever comes of it. */
	VM_NARROW_MS = 100,
	VM_NARROW_TRIES = 6000,
	VM_GROUP_RETRY_MS = 100, /* between tries to remove a cgroup, where its events cannot be watched */
	VM_EXIT_GRACE_MS = 2000, /* for a vmm whose streams have ended to exit, and so say why */
	/* Between a build's last command and its pause: what the guest still does, each clone would do again.
	 */
	VM_PARK_MS = 100,
	VM_STATE_FILE_MAX = 1024 * 1024, /* as the vmm has it */
	VM_SLOTS = 258,			 /* of pools, and those of a build and a load */
};

enum vm_state {
	VM_STANDBY,
	VM_LAUNCHED,
	VM_HELD,
	VM_BOOTING,
	VM_HELLO,
	VM_IDENTITY,
	VM_NOTING,
	VM_CONNECTING,
	VM_PREPARING,
	VM_REHEARSING,
	VM_PARKING,
	VM_PAUSING,
	VM_SAVING,
	VM_WARM,
	VM_BUSY,
	VM_OWNED,
	VM_ENDING,
	VM_STATE_COUNT
};

/* What all VMs of a daemon share; outlives them. */
struct vm_config {
	const char *vmm, *kvm;	      /* paths */
	const char *serial_directory; /* NULL: no serial port */
	const char *socket_directory; /* of control sockets */
	const char *upper_directory;  /* in whose file system the uppers of disks are */
	uid_t uid_base; /* VM in slot n runs as uid_base + n; one from standby as uid_base + VM_SLOTS + m */
	uint64_t boot_timeout_ms;
	bool no_prefault; /* working sets are not used */
	struct cgroup_tree *cgroups;
	struct loop *loop;
	struct standby *standby; /* NULL: none */
};

/* A file that the vmm is given open for reading. */
struct vm_file {
	const char *path; /* to open; NULL: there is none */
	const char *name; /* for people; often the path */
};

/* What a VM is made of: a boot (kernel, initrd) or a clone (state, memory) and its image. Outlives the VM. */
struct vm_source {
	struct vm_file kernel, initrd, image, state, memory;
	struct vm_file working_set; /* of a clone; may be none */
	/* The guest's files are on it; may be none. A boot writes to it, unless it has an upper, or a new
	 * one; of a clone it is the lower of one, whose upper is the VM's own. */
	struct vm_file disk;
	/* Of the disk, may be none: an upper that is there already and has no other VM. A clone gets it in
	 * place of a new one. */
	struct vm_file upper;
	/* Of a clone, may be none: what lies upon its memory, as vm_ask_save wrote it with private_only. */
	struct vm_file pages;
	/* With pages: the checksum of memory, which is sealed, in VMM_RESTORE_SUM_DIGITS digits; then it is
	 * not read for that. NULL: it is. */
	const char *memory_sum;
	bool new_upper;	  /* of a boot: its disk is only read, and its upper is a new one, as a clone's */
	const char *size; /* of a boot's memory, as the vmm takes it: "128M" */
	uint64_t memory_bytes, disk_bytes;
	uint64_t pages_bytes; /* of the host's memory that its pages take */
	/* Of a clone: its memory is a file that nobody vouches for, and is read whole before it runs. */
	bool reads_memory;
	unsigned int cpus;
	uint32_t cid;		 /* 0: one of its own */
	unsigned int rehearsals; /* sample commands before a VM counts as warm */
	bool same_machine;	 /* of a clone: it goes on as the machine that it was, by name and id */
	bool held;		 /* of a clone: it does not run before vm_let_run */
	/* Of a clone: what its guest tells as changed (AGENT_CHANGES) is against its files as it finds them.
	 */
	bool notes;
};

/* What a VM that is to become a template does before it is saved. Outlives the VM. */
struct vm_build {
	const char *const *commands; /* lines for /bin/sh -c, run one by one; one that fails ends the VM */
	unsigned int count;
	uint64_t command_timeout_ms;
	int state, memory; /* empty files, open for writing; the caller's */
	void *context;
	/* What a command wrote. */
	void (*output)(void *context, bool is_stderr, const void *bytes, size_t length);
	/* False: no output is taken until vm_build_continue. May be NULL. */
	bool (*has_room)(void *context);
	/* A command begins, the first is 1; 0: the last has ended, and it will be saved. May be NULL. */
	void (*step)(void *context, unsigned int command);
	/* Both files hold all of it. Then the VM ends. */
	void (*saved)(void *context, uint64_t state_bytes, uint64_t memory_bytes);
};

struct vm;

/* Called from the loop, never from within a call of vm_*. */
struct vm_events {
	void (*held)(void *context, struct vm *vm); /* of a source that is; else it may be NULL */
	void (*warm)(void *context, struct vm *vm);
	/* The process is reaped; vm_cause says how it ended. */
	void (*ended)(void *context, struct vm *vm);
	/* Nothing of it is left; the memory is freed after the call. */
	void (*gone)(void *context, struct vm *vm);
};

/* The session of a BUSY VM, its owner's. All are called from the loop. */
struct vm_session_events {
	void (*ready)(void *context, uint32_t events); /* of the session's fd */
	void (*ended)(void *context);		       /* the process is reaped */
	void (*alarm)(void *context);		       /* the time of vm_set_alarm is over */
};

/* What its owner asks of an OWNED VM's vmm: in the owner's memory until it is answered or forgotten, or the
 * VM ended. */
struct vm_request {
	/* status: 0 or -errno; fd: a stream's end that does not block and becomes the callee's, or -1. */
	void (*replied)(struct vm_request *request, int status, int fd);
};

/* What a guest that stands has, written into files (vm_ask_save). */
struct vm_save {
	struct vm_request request; /* replied is called with fd -1, and then there is */
	/* Of status 0: what was written, without holes; the last of vm_ask_save_whole. */
	uint64_t state_bytes, memory_bytes, disk_bytes;
	char words[VMM_MESSAGE_TEXT + 1]; /* of another: the vmm's, printable; may be empty */
};

/* The owner of an OWNED VM. Called from the loop. */
struct vm_owner_events {
	/* The process is reaped, and vm_cause says how it ended. Nothing that was asked is answered any more.
	 */
	void (*ended)(void *context);
	/* Nothing of it is left, its memory included. */
	void (*gone)(void *context);
	/* The vmm says whether the guest stands; also once at first when it was taken back. */
	void (*stands)(void *context, bool paused);
	/* One that was taken back: its agent takes commands again. */
	void (*identified)(void *context);
};

struct vm_asked {
	uint32_t type, sequence;    /* 0: the place is free */
	struct vm_request *request; /* NULL: forgotten */
};

struct vm {
	char id[VM_ID_MAX];
	unsigned int slot;
	enum vm_state state;
	pid_t pid;
	uint64_t started_ns, warm_ns; /* CLOCK_MONOTONIC; 0: not yet */
	bool reaped;
	bool booted;		  /* was warm once */
	bool was_busy;		  /* a run had it */
	bool killed;		  /* by us, before it said how it ended */
	bool retired;		  /* by us, for no fault of its own */
	bool ready;		  /* in standby: it waits for what to restore */
	bool found;		  /* of an earlier daemon's, and so no child of ours */
	bool greeted, identified; /* its agent said hello, and has its identity */
	bool blocked;		  /* a build's output has no room */
	bool running;		  /* one that was held was let run */
	bool saves;		  /* its owner has asked for that */
	bool noted;		  /* a build's guest has noted its files */
	bool parked;		  /* and has them on its disk, if it has one: nothing more is asked of it */
	bool mistaken;		  /* a stream that is not the agent's came to the agent's port */
	char cause[VM_CAUSE_MAX];

	const struct vm_config *config;
	bool *seat; /* from standby: set to false when all is gone; NULL: it was not */
	const struct vm_source *source;
	const struct vm_build *build; /* NULL: it becomes warm */
	const struct vm_events *events;
	void *context;
	const struct vm_session_events *session_events;
	void *session_context;
	const struct vm_owner_events *owner; /* NULL: nobody owns it */
	void *owner_context;
	struct vm_asked asked[VM_ASKED_MAX];
	struct vm_request shutdown; /* the stream for it, of vm_shut_down... */
	uint32_t grace_ms;	    /* ...and its order */

	uint64_t memory_bytes; /* of the guest; 0: of one that was taken back, not told yet */
	/* From a save on: what its bounds were before; 0: they are as they were. */
	uint64_t former_group_bytes, former_file_bytes;
	unsigned int narrowings; /* that were too early, since the last save */

	int pidfd, control, agent, session, errors, group, group_events;
	int upper; /* of a clone's disk, a file without a name, by O_PATH: the lock on it is the vmm's alone
		    */
	struct loop_source *pidfd_source, *control_source, *agent_source, *session_source, *errors_source;
	struct loop_source *group_source, *timer;
	struct loop_task release;
	struct frame_reader agent_reader, session_reader; /* the latter for a rehearsal */
	unsigned int prepared, rehearsed, strays;
	uint64_t command_output[2]; /* bytes of stdout, stderr of the present command */
	uint32_t sequence;
	struct tail tail;
	bool said_ended;		    /* EVENT_STATE ended came, with */
	uint64_t said_end;		    /* enum vmm_end */
	char said_reason[VMM_MESSAGE_TEXT]; /* and its text */
};

struct vm_order {
	const struct vm_source *source;
	const struct vm_build *build; /* NULL: a VM that becomes warm */
	unsigned int slot;	      /* a number no living VM has */
	bool awaited;		      /* a client waits for it: it boots with the full share of the CPUs */
};

/* Launches a VM. *out is set on 0. On failure -errno, *error says what failed, and nothing is left. */
int vm_start(const struct vm_config *config, const struct vm_order *order, const struct vm_events *events,
	void *context, struct vm **out, struct error *error);

/*
 * A vmm without a VM, under the uid of that number: *seat becomes false when nothing is left of it. As
 * vm_start; when it is ready, vm->ready.
 */
int vm_stand_by(const struct vm_config *config, unsigned int user, bool *seat, const struct vm_events *events,
	void *context, struct vm **out, struct error *error);
/* Makes a ready one the clone of an order. 0; or -errno with *error set: it ends, as its former owner's. */
int vm_adopt(struct vm *vm, const struct vm_order *order, const struct vm_events *events, void *context,
	struct error *error);

/* HELD to BOOTING. Takes one that is ending. */
void vm_let_run(struct vm *vm);
/* WARM to BUSY: the session's fd (vm->session) is the caller's to read and write until vm_release. */
void vm_take(struct vm *vm, const struct vm_session_events *events, void *context);
/* Which events of the session's fd are reported. 0 or -errno. */
int vm_watch_session(struct vm *vm, uint32_t events);
/* One alarm, for the session of a BUSY VM; it does not outlast that state. */
void vm_set_alarm(struct vm *vm, uint64_t milliseconds);
/* The end of a session: the VM ends, whatever state it is in. cause: why, or NULL for a used VM's usual end.
 * Its process is killed at the end of the loop's round, behind the answer that was given before this call. */
void vm_release(struct vm *vm, const char *cause);

/*
 * A stream of it ended when it should not have. The vmm is given VM_EXIT_GRACE_MS to end by itself, so that
 * its own reason is known; then it is killed (vm->killed) and cause holds.
 */
void vm_lose(struct vm *vm, const char *cause);

/*
 * WARM to OWNED. *stream is a stream to the agent that is open already, and the caller's. The VM ends by
 * vm_end or by itself; either way `ended` and then `gone` are called.
 */
void vm_own(struct vm *vm, const struct vm_owner_events *events, void *context, int *stream);
/*
 * A VM that an earlier daemon left, its process known by pid and time of start, in its cgroup and with its
 * control socket: OWNED from the first. seat: as of vm_stand_by, taken; NULL: it has none. 0; or -errno with
 * *error set, -ESRCH: its process is not there; what is left of it is the caller's to remove.
 */
struct vm_found {
	const char *id;
	pid_t pid;
	uint64_t start_ticks;
	unsigned int slot;
	bool *seat;
};
int vm_take_back(const struct vm_config *config, const struct vm_found *found, const struct vm_events *events,
	void *context, struct vm **out, struct error *error);
/*
 * Gives one that was taken back its owner. Its agent comes to us by itself, at the latest some seconds after
 * it runs, at once when a stream to it is asked for; until it was given its identity, as the machine that it
 * is, it takes no command.
 */
void vm_set_owner(struct vm *vm, const struct vm_owner_events *events, void *context);

/* Of an OWNED VM: whether its agent takes commands. */
bool vm_is_identified(const struct vm *vm);

/* Of an OWNED VM. 0: request->replied will be called, unless the VM ends; -EAGAIN: VM_ASKED_MAX wait;
 * -ENOTCONN: it is ending. */
int vm_ask_stream(struct vm *vm, struct vm_request *request);
int vm_ask_pause(struct vm *vm, struct vm_request *request);
int vm_ask_resume(struct vm *vm, struct vm_request *request);
/*
 * Its guest stands: its state and memory are written into two empty files (fds, the caller's, open for
 * writing, which may be closed after the call); with private_only of memory what differs from the memory that
 * it was made of. Nothing is synced, and the guest stands on, so that it may be asked again. Meanwhile the
 * vmm answers nothing else, and its bounds (cgroup, RLIMIT_FSIZE) have room for these files; they end in its
 * cgroup's page cache. However a save ends, the bounds are by themselves what they were, that of memory when
 * what it has lets it: who keeps the files and lets the guest run on has them brought to the disk, and out of
 * the page cache. As vm_ask_stream; also -EPERM: without CAP_SYS_RESOURCE no vmm with a serial log is
 * let write so much;
 * -EINVAL: how much memory the guest has is not known (vm_know_memory). Replied with -EBUSY: it does not
 * stand; -ENODATA: it was booted, and so all of its memory differs; -ENOSPC and others, with words.
 */
int vm_ask_save(struct vm *vm, int state, int memory, bool private_only, struct vm_save *save);
/*
 * The same of all of its memory, whatever it was made of, and of what its guest sees of its disk, as one
 * file: the state is of a VM that has that file as the lower of a new disk. disk: -1 where it has none;
 * disk_bytes: how long a file that is, by which its bounds are wider too.
 */
struct vm_save_files {
	int state, memory, disk;
	uint64_t disk_bytes;
};
int vm_ask_save_whole(struct vm *vm, const struct vm_save_files *files, struct vm_save *save);
/* Of one that was taken back: its guest's; and what its cgroup is bounded to, 0: as its guest's is. It is so
 * again, as after a save, if an earlier daemon ended in one. */
void vm_know_memory(struct vm *vm, uint64_t bytes, uint64_t most);
/* Has its guest end as a machine does that is switched off: TERM to all processes, after the grace KILL, then
 * the power. The guest need not obey: whoever asks sets a time, and then calls vm_end. A guest that cannot be
 * told is ended at once. A VM that is ending already is left to that. */
void vm_shut_down(struct vm *vm, uint32_t grace_ms);
/* replied will not be called: a stream that still comes is closed. Takes what was never asked, or answered.
 */
void vm_forget(struct vm *vm, const struct vm_request *request);
/* Narrower limits for its cgroup: of memory in bytes, vmm included, and of the CPU in hundredths of one; 0:
 * as it is. What is more than it has becomes what it has. 0 or -errno. */
int vm_limit(struct vm *vm, uint64_t *memory_bytes, unsigned int *cpu_hundredths);

/* The vsock address of its guest, which is part of what a save has of it. */
uint32_t vm_cid(const struct vm *vm);
/* It has a disk of its own, that is not lost with it if it is given a name in time. */
bool vm_has_upper(const struct vm *vm);
/* Gives the upper and the lower of that disk, and its image if it can be, names in a folder of the same file
 * system. 0 or -errno: -EXDEV: the folder is in another, or the template is; -ENOENT: the template's file is
 * removed; -EEXIST. */
int vm_link_disk(const struct vm *vm, int folder, const char *upper, const char *lower, const char *image);

/* After `gone`: neither its cgroup nor its control socket is there. */
bool vm_left_nothing(const struct vm_config *config, const char *id);

/* Kills the VM, unless it is dying already. cause as above. A BUSY VM's session stays its owner's. */
void vm_end(struct vm *vm, const char *cause);

/* The same, for no fault of its own. */
void vm_retire(struct vm *vm, const char *cause);

/* There is room again for a build's output. Takes any VM. */
void vm_build_continue(struct vm *vm);

/* How it ended, for people: what the vmm's exit status means and its last words. Final after `ended`. */
const char *vm_cause(const struct vm *vm);
/* "starting", "warm", "busy", "owned" or "ending". */
const char *vm_state_name(const struct vm *vm);
/* True while it may still become warm. */
bool vm_is_starting(const struct vm *vm);

#endif
