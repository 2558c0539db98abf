/* SPDX-License-Identifier: Apache-2.0 */
/* Between fake_vmm.c, which plays vmm and agent, and fake_session.c, which plays a run's command. */
#ifndef TESTS_FAKE_VMM_FAKE_VMM_H
#define TESTS_FAKE_VMM_FAKE_VMM_H

#include "common/frame.h"
#include "common/proto_vmm.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SCRIPT_MAX = 256, CHUNK = 32 * 1024 };

struct fake {
	int control, agent, session, listener, kernel; /* kernel: or the state file */
	bool restored, paused;
	uint64_t memory; /* bytes of a guest that boots */
	char script[SCRIPT_MAX];
	uint64_t offset[2];
	/* Of the session, as NEW has it. */
	uint64_t id, memory_max;
	uint32_t pids_max;
};

/* The script has this word. */
bool fake_told(const struct fake *fake, const char *word);
/* The number after "word:", or -1. */
long fake_told_number(const struct fake *fake, const char *word);
void fake_pause_ms(long milliseconds);
_Noreturn void fake_fail(const char *what);
/* Says how it ends, and does. */
_Noreturn void fake_end(struct fake *fake, enum vmm_end how, const char *reason);
/* The daemon closed the stream that this thread serves. */
_Noreturn void fake_end_stream(void);
/* The next frame, in the reader's memory. */
void fake_read_frame(int fd, struct frame_reader *reader, struct frame *frame);

void fake_put_started(struct fake *fake);
/* Takes NEW on the session's stream, plays the command that it names, and closes the stream. */
void fake_serve_session(struct fake *fake);

#endif
