/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sessions' leaders that are no processes: the linker puts these in the place of guest-init's spawn_start and
 * of kill(2) and wait4(2). A child is the other ends of its pipes, in the program's hand.
 */
#ifndef TESTS_FUZZ_SUPPORT_FAKE_CHILDREN_H
#define TESTS_FUZZ_SUPPORT_FAKE_CHILDREN_H

#include "tests/fuzz/support/fuzz.h"
#include <sys/types.h>

enum { FAKE_CHILDREN_MAX = 24, FAKE_PID_FIRST = 100000 };

struct fake_child {
	pid_t pid;
	int stdio[3]; /* its own; -1: closed */
	bool ended;   /* and not reaped yet, with */
	int status;   /* as wait(2) has it */
};

struct fake_children {
	struct fake_child children[FAKE_CHILDREN_MAX];
	unsigned count;
	pid_t next_pid;
};

/* From now on spawn_start asks the input what becomes of it. */
void fake_children_init(struct fake_children *children, struct fuzz_input *input);
void fake_children_finish(struct fake_children *children);

/* One of those that have not ended does something: writes, reads, closes or ends. False: there is none. */
bool fake_children_step(struct fake_children *children, struct fuzz_input *input);

#endif
