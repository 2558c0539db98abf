/* SPDX-License-Identifier: Apache-2.0 */
/* Between fake_vmm.c, which plays vmm and agent, fake_session.c, which plays a run's command, fake_held.c,
 * which keeps sessions for who attaches to them, fake_disk.c and fake_saved.c. */
#ifndef TESTS_FAKE_VMM_FAKE_VMM_H
#define TESTS_FAKE_VMM_FAKE_VMM_H

#include "common/frame.h"
#include "common/proto_vmm.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SCRIPT_MAX = 256, CHUNK = 32 * 1024 };
/* Ids of sessions below are the daemon's own. */
enum { USERS_FIRST = 1 << 20 };

struct fake {
	int control, agent, session, listener, kernel; /* kernel: or the state file */
	bool restored, paused, away; /* away: from a daemon that ended, and not yet with the next */
	uint64_t memory;	     /* bytes of the guest */
	/* holds: it stands until it is let run; is_saved: it is restored from what its owner had saved. */
	bool holds, is_saved, is_owned;
	bool noted; /* its files, since it was booted or restored */
	/* Of a second disk that is copy-on-write; -1: none. is_flat: the lower is what another's guest saw.
	 */
	int lower, upper;
	bool is_flat;
	uint64_t sum; /* of the memory that it lies upon */
	char script[SCRIPT_MAX];
	uint64_t offset[2]; /* what the session wrote */
	/* Of the session, as NEW has it. */
	uint64_t id, memory_max;
	uint32_t pids_max;
	uint16_t rows, cols;
	struct fake_held *held; /* of the session */
};

/* The script has this word. */
bool fake_told(const struct fake *fake, const char *word);
/* The number after "word:", or -1. */
long fake_told_number(const struct fake *fake, const char *word);
void fake_pause_ms(long milliseconds);
/* For tests, who find it by await_mark: this thread has come there, and stays a while. At most 15 bytes. */
void fake_mark(const char *name);
_Noreturn void fake_fail(const char *what);
/* Says how it ends, and does. */
_Noreturn void fake_end(struct fake *fake, enum vmm_end how, const char *reason);
/* The next frame, in the reader's memory. False: the daemon closed the stream. */
bool fake_read_frame(int fd, struct frame_reader *reader, struct frame *frame);

void fake_put_started(struct fake *fake);
/* Takes NEW on the session's stream, plays the command that it names, and closes the stream. */
void fake_serve_session(struct fake *fake);

/* Until there is one on the control socket, or its end. BASELINE and HOLD on the agent's stream are answered.
 */
void fake_await_request(struct fake *fake);
/* Takes CHANGES on the session's stream, tells them, and closes it. */
void fake_tell_changes(struct fake *fake);

/* --- its second disk --- */

/* The argument after a name; NULL: there is none. */
const char *fake_option_value(int argc, char **argv, const char *name);
/* As a vmm does: the upper is this one's alone, empty, and can be as large as the lower and what describes
 * it. */
void fake_use_upper(struct fake *fake, int lower, int upper);
/* The second --disk: fd:N of a boot that is built, fd:N,cow=fd:M of a clone, or of a boot with an upper of
 * its own, or with what a VM left. */
void fake_take_disk(struct fake *fake, int argc, char **argv);
/* What its guest sees of the disk, into an empty file. */
void fake_flatten(const struct fake *fake, int disk);

/* --- what is saved, and restored --- */

/* How often its guest was saved, that of its template among it. */
uint64_t fake_lives(void);

/* To the files of a SAVE, two or with VMM_SAVE_DISK three; the reply is filled in. */
void fake_save(
	struct fake *fake, const struct vmm_message *request, struct vmm_message *reply, const int *fds);
/* From the state, fake->kernel, and what lies beside it; pages: -1: none. sum: as of RESTORE. */
void fake_restore(struct fake *fake, int memory, int pages, const char *sum);

/* --- what is kept of a session --- */

/* All of them, to a state and back from it; one that runs reads on, and puts out what it reads. */
void fake_save_held(int fd);
void fake_restore_held(const struct fake *fake, int fd, off_t at);

/* The VM is paused, or runs; until it is told, it runs. */
void fake_stand(bool now);
/* As NEW has it. */
void fake_hold(struct fake *fake, bool has_input);
/* Output: kept, and sent to who is attached. */
void fake_put(struct fake *fake, int type, const void *data, size_t length);
/* The next frame of whoever is attached, and of who attaches next: it does not return without one. */
void fake_take_frame(struct fake *fake, struct frame_reader *reader, struct frame *frame);
/* The same, for so long at most, and without waiting for anybody to attach. False: there was none. */
bool fake_try_frame(struct fake *fake, struct frame_reader *reader, struct frame *frame, long milliseconds);
/* Sends EXIT, and serves whoever attaches later, until the session gives way to others. */
void fake_put_exit(struct fake *fake, const struct agent_exit *ending);
/* An ATTACH frame comes on the stream fake->session, which is another's after that, or closed. */
void fake_attach(struct fake *fake);

#endif
