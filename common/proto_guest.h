/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The agent protocol: what host-ctl and guest-init say to each other over one vsock stream.
 *
 * A stream is a sequence of frames: an 8-byte header, then `length` bytes of payload. All integers are
 * little-endian. The upgraded form of `POST /v1/run` carries the same frames between client and daemon.
 *
 * Who opens the stream does not matter: guest-init connects to AGENT_HOST_PORT when it is ready (so that
 * nobody polls for it) and again when that stream ended (as it does in a clone), and accepts on
 * AGENT_GUEST_PORT after that. What the stream is for is said by its first frame:
 *
 *   control   host: CONTROL            guest: HELLO, then IDENTITY -> IDENTITY_DONE, HOLD -> HELD ...
 *             (on the stream that guest-init opened, it sends HELLO without being asked)
 *   session   host: NEW or ATTACH      guest: STARTED, STDOUT/STDERR ..., and exactly one EXIT
 *   changes   host: CHANGES            guest: CHANGE_LIST ..., and exactly one CHANGES_END
 *
 * A session outlives its stream. Both sides treat the other as hostile: a frame that breaks a bound or
 * an order below is answered with ERROR (by the guest) and the stream is closed; nothing else changes.
 * An end of file in either direction closes the stream: the session then goes on without a reader.
 * Until IDENTITY was done with status 0, NEW is refused (EPERM): nothing of a user's runs before it.
 * docs/agent-protocol.md has the order of frames, the states and every status of ERROR.
 */
#ifndef COMMON_PROTO_GUEST_H
#define COMMON_PROTO_GUEST_H

#include <stdint.h>

enum {
	AGENT_PROTO_VERSION = 2,
	AGENT_GUEST_PORT = 1024, /* guest-init listens here */
	AGENT_HOST_PORT = 1024,	 /* guest-init connects here (CID 2) when it listens */
	/* ... and from one of these: Linux lets no process have them without CAP_NET_BIND_SERVICE in the
	 * first user namespace (LAST_RESERVED_PORT of af_vsock is 1023). Whoever comes to AGENT_HOST_PORT
	 * from another port is not guest-init. More than one, as a port that was used may not be free yet. */
	AGENT_LINK_PORT_FIRST = 1008,
	AGENT_LINK_PORT_LAST = 1023,

	AGENT_FRAME_HEADER = 8,
	AGENT_FRAME_MAX = 128 * 1024,	/* longest payload of any frame */
	AGENT_DATA_MAX = 64 * 1024,	/* longest data part of STDIN, STDOUT, STDERR */
	AGENT_STRINGS_MAX = 120 * 1024, /* argv, env, cwd and user of NEW together, NULs included */
	AGENT_ARGC_MAX = 4096,
	AGENT_ENVC_MAX = 4096,
	AGENT_STDIN_WINDOW = 256 * 1024,  /* stdin bytes the host may have unacknowledged from the start */
	AGENT_OUTPUT_BUFFER = 256 * 1024, /* output bytes kept for each stream of a session, for ATTACH */
	AGENT_SESSIONS_MAX = 64, /* sessions a guest holds, ended ones that are still readable included */
	AGENT_ENTROPY_BYTES = 64,
	AGENT_HOSTNAME_MAX = 64, /* NUL included */
	AGENT_MACHINE_ID_BYTES = 16,
	AGENT_TEXT_MAX = 4096,		   /* warnings of HELLO, message of ERROR; UTF-8, no NUL */
	AGENT_PATH_MAX = 4095,		   /* bytes of a path in the guest; no NUL */
	AGENT_CHANGES_MAX = 4096,	   /* entries that one CHANGES may ask for */
	AGENT_CHANGES_BYTES_MAX = 1 << 20, /* of their paths; the one that goes over it is the last */
	AGENT_CHANGE_LIST_MAX = 16 * 1024 - AGENT_FRAME_HEADER, /* payload of CHANGE_LIST */
};

enum agent_frame_type {
	/* host to guest: first frames */
	AGENT_CONTROL = 0x01, /* struct agent_control */
	AGENT_NEW = 0x02,     /* struct agent_new + strings */
	AGENT_ATTACH = 0x03,  /* struct agent_attach */
	AGENT_CHANGES = 0x04, /* struct agent_changes + path */
	/* host to guest: control */
	AGENT_IDENTITY = 0x08, /* struct agent_identity */
	AGENT_SHUTDOWN = 0x09, /* struct agent_shutdown; the guest ends, no answer */
	AGENT_BASELINE = 0x0a, /* empty: what CHANGES tells is against the files as they are now */
	AGENT_HOLD = 0x0b,     /* empty: what was written to the files goes to the disk; before a save */
	/* host to guest: session */
	AGENT_STDIN = 0x10,	/* bytes */
	AGENT_STDIN_EOF = 0x11, /* empty; to a tty it types Ctrl-D */
	AGENT_SIGNAL = 0x12,	/* struct agent_signal */
	AGENT_RESIZE = 0x13,	/* struct agent_resize (tty sessions) */
	AGENT_KILL = 0x14,	/* empty: end the whole session, EXIT says killed */

	/* guest to host: control */
	AGENT_HELLO = 0x40,	    /* struct agent_hello + warnings text, a line each */
	AGENT_IDENTITY_DONE = 0x41, /* struct agent_status + text naming the step that failed */
	AGENT_BASELINE_DONE = 0x42, /* struct agent_status, no text; EOPNOTSUPP: the root is no overlay */
	AGENT_HELD = 0x43, /* struct agent_status, no text; EAGAIN: another HOLD is not answered yet */
	/* guest to host: session */
	AGENT_STARTED = 0x50,	   /* struct agent_started: the answer to NEW and to ATTACH */
	AGENT_STDOUT = 0x51,	   /* struct agent_output + bytes */
	AGENT_STDERR = 0x52,	   /* struct agent_output + bytes */
	AGENT_STDIN_CREDIT = 0x53, /* struct agent_credit: that many more stdin bytes may be sent */
	AGENT_EXIT = 0x54,	   /* struct agent_exit: the one terminal frame; then the guest closes */
	AGENT_ERROR = 0x55,	   /* struct agent_status + text; refused, no session was made or changed */
	/* guest to host: changes */
	AGENT_CHANGE_LIST = 0x56, /* one or more of struct agent_change + path */
	AGENT_CHANGES_END =
		0x57, /* struct agent_changes_end: the one terminal frame; then the guest closes */
	/* daemon to API client only, each JSON */
	AGENT_HOST_ERROR = 0x70,    /* the error object: terminal, in place of EXIT or HOST_RESULT */
	AGENT_HOST_RESULT = 0x71,   /* of a build: what was made, terminal */
	AGENT_HOST_PROGRESS = 0x72, /* of a build: {"phase":…} */
	AGENT_HOST_EVENT = 0x73,    /* of the events: one of them */
};

/* The header of every frame. flags and reserved are zero and refused otherwise. */
struct agent_frame_header {
	uint32_t length; /* payload bytes, at most AGENT_FRAME_MAX */
	uint8_t type;	 /* enum agent_frame_type */
	uint8_t flags;
	uint16_t reserved;
};
_Static_assert(sizeof(struct agent_frame_header) == AGENT_FRAME_HEADER, "wire layout");

struct agent_control {
	uint32_t version; /* AGENT_PROTO_VERSION of the host */
	uint32_t reserved;
};
_Static_assert(sizeof(struct agent_control) == 8, "wire layout");

struct agent_hello {
	uint32_t version;
	uint32_t warnings_length; /* bytes of text after the struct, at most AGENT_TEXT_MAX */
	uint64_t boot_ns;	  /* CLOCK_BOOTTIME when the agent began to serve */
	uint8_t boot_id[16];	  /* random, drawn once in each boot: a clone has its template's */
};
_Static_assert(sizeof(struct agent_hello) == 32, "wire layout");

/* What a guest must get before anything of a user's runs. Applied in the order of the fields. */
struct agent_identity {
	uint8_t entropy[AGENT_ENTROPY_BYTES];	    /* credited and mixed in, then the pool is reseeded */
	uint64_t realtime_ns;			    /* CLOCK_REALTIME of the host at sending */
	uint8_t machine_id[AGENT_MACHINE_ID_BYTES]; /* zeros: this machine as it was, its name too */
	char hostname[AGENT_HOSTNAME_MAX];	    /* NUL-terminated; letters, digits, '-' and '.' */
};
_Static_assert(sizeof(struct agent_identity) == 152, "wire layout");

/* status: 0 or a positive Linux errno. */
struct agent_status {
	int32_t status;
	uint32_t text_length; /* bytes of text after the struct, at most AGENT_TEXT_MAX */
};
_Static_assert(sizeof(struct agent_status) == 8, "wire layout");

struct agent_shutdown {
	uint32_t grace_ms; /* between TERM and KILL; at most AGENT_SHUTDOWN_GRACE_MAX_MS */
	uint32_t reserved;
};
_Static_assert(sizeof(struct agent_shutdown) == 8, "wire layout");
enum { AGENT_SHUTDOWN_GRACE_MAX_MS = 60 * 1000 };

enum agent_new_flags {
	AGENT_NEW_STDIN = 1 << 0,	  /* STDIN frames follow; without it stdin is /dev/null */
	AGENT_NEW_TTY = 1 << 1,		  /* a terminal of rows x cols; stderr arrives as stdout */
	AGENT_NEW_KEEP_CHILDREN = 1 << 2, /* do not end the rest of the session's cgroup with its leader */
	AGENT_NEW_KNOWN = (1 << 3) - 1,
};

/*
 * A new session. The struct is followed by strings_length bytes: argc + envc + 2 NUL-terminated strings
 * in the order argv..., env... ("NAME=value"), cwd, user. An empty cwd means the user's home, an empty
 * user means root. argc is at least 1 and argv[0] is not empty; without a '/' it is looked up in the
 * PATH of env. An env without PATH gets AGENT_DEFAULT_PATH, one without HOME the user's home.
 */
#define AGENT_DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
struct agent_new {
	uint64_t session; /* chosen by the host; not zero, not one the guest holds */
	uint32_t flags;	  /* enum agent_new_flags; unknown bits are refused */
	uint32_t argc;
	uint32_t envc;
	uint32_t strings_length;
	uint64_t deadline_ms; /* from the receipt of this frame; 0: none */
	uint64_t memory_max;  /* bytes for the session's cgroup; 0: no limit */
	uint32_t pids_max;    /* 0: no limit */
	uint16_t rows, cols;  /* of the tty */
};
_Static_assert(sizeof(struct agent_new) == 48, "wire layout");

/*
 * Continue a session's output at absolute offsets; the terminal frame comes (again) at the end. An offset
 * that is no longer held is refused (ENODATA), one not yet written too (EINVAL); AGENT_OFFSET_OLDEST is the
 * oldest that is held, and the offset of the first STDOUT or STDERR frame then tells what is missing. A
 * stream that was attached before is closed: the last one wins.
 */
#define AGENT_OFFSET_OLDEST UINT64_MAX
struct agent_attach {
	uint64_t session;
	uint64_t stdout_offset;
	uint64_t stderr_offset;
};
_Static_assert(sizeof(struct agent_attach) == 24, "wire layout");

struct agent_started {
	uint64_t session;
	uint32_t pid;	       /* in the guest */
	uint32_t stdin_credit; /* STDIN bytes that may be sent now; 0 when there is no stdin, or none any more
				*/
	uint64_t stdin_offset; /* STDIN bytes the guest has taken so far: after ATTACH, go on from there */
};
_Static_assert(sizeof(struct agent_started) == 24, "wire layout");

/* Before the bytes of STDOUT and STDERR: where in the session's stream the first byte stands. */
struct agent_output {
	uint64_t offset;
};
_Static_assert(sizeof(struct agent_output) == 8, "wire layout");

struct agent_credit {
	uint32_t bytes;
	uint32_t reserved;
};
_Static_assert(sizeof(struct agent_credit) == 8, "wire layout");

struct agent_signal {
	uint32_t signal; /* 1..64, sent to the leader's process group */
	uint32_t reserved;
};
_Static_assert(sizeof(struct agent_signal) == 8, "wire layout");

struct agent_resize {
	uint16_t rows, cols;
	uint32_t reserved;
};
_Static_assert(sizeof(struct agent_resize) == 8, "wire layout");

enum agent_exit_kind {
	AGENT_EXITED = 1,	   /* code: exit status 0..255 */
	AGENT_SIGNALLED = 2,	   /* code: signal; core: a core was dumped */
	AGENT_TIMED_OUT = 3,	   /* the deadline; code: 0 */
	AGENT_OUT_OF_MEMORY = 4,   /* the kernel's OOM killer ended the leader; code: 9 */
	AGENT_FAILED_TO_START = 5, /* code: errno; step: where */
	AGENT_KILLED = 6,	   /* by a KILL frame or shutdown; code: 0 */
};

enum agent_start_step {
	AGENT_STEP_NONE = 0,
	AGENT_STEP_CGROUP = 1, /* making or setting the session's cgroup */
	AGENT_STEP_PIPES = 2,  /* stdin, stdout, stderr, tty */
	AGENT_STEP_CLONE = 3,
	AGENT_STEP_USER = 4, /* user unknown (ENOENT), or ids not settable */
	AGENT_STEP_CWD = 5,
	AGENT_STEP_EXEC = 6, /* not found, not executable, a directory, ... as execve says */
};

struct agent_exit {
	uint8_t kind; /* enum agent_exit_kind */
	uint8_t core;
	uint16_t step; /* enum agent_start_step */
	int32_t code;
	uint64_t stdout_bytes; /* what the session wrote in all */
	uint64_t stderr_bytes;
	uint64_t wall_us; /* from NEW's receipt to the leader's end */
	uint64_t user_us; /* rusage of the leader and its waited-for children */
	uint64_t system_us;
	uint64_t max_rss_kib;
};
_Static_assert(sizeof(struct agent_exit) == 56, "wire layout");

/*
 * What has become of the guest's files since its baseline. The struct is followed by a path of after_length
 * bytes: only what comes after it is told. Paths are absolute, and come in the order of their names, byte by
 * byte, a folder before what is in it: as strings of bytes in which '/' is the least. No path twice.
 */
struct agent_changes {
	uint32_t limit;	       /* entries, 1 to AGENT_CHANGES_MAX */
	uint32_t after_length; /* 0: from the first on */
};
_Static_assert(sizeof(struct agent_changes) == 8, "wire layout");

enum agent_change_kind {
	AGENT_ADDED = 1,
	AGENT_CHANGED = 2, /* its content or what is known of it; of a folder the latter alone */
	AGENT_REMOVED = 3, /* a folder with all that was in it */
};

/* Of what was removed: mode's type alone, the rest 0. */
struct agent_change {
	uint8_t kind; /* enum agent_change_kind */
	uint8_t reserved;
	uint16_t path_length; /* bytes after the struct, 2 to AGENT_PATH_MAX */
	uint32_t mode;	      /* as stat(2) has it, type and permissions */
	uint32_t uid, gid;
	uint64_t size;
	int64_t modified_ms; /* since 1970 */
};
_Static_assert(sizeof(struct agent_change) == 32, "wire layout");

struct agent_changes_end {
	uint32_t count;	  /* entries that came */
	uint32_t more;	  /* 1: there may be others after the last */
	uint64_t skipped; /* folders and files that are not told: too deep, or with too long a path */
};
_Static_assert(sizeof(struct agent_changes_end) == 16, "wire layout");

#endif
