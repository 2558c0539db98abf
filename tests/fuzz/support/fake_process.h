/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A vmm that is no process: the linker puts these in the place of host-ctl's launch_start and cgroup_*, and
 * of waitid(2). The program has the vmm's ends of everything that it was launched with.
 *
 * A line of log that says "bug:" fails the input: so host-ctl reports transitions that it does not allow.
 */
#ifndef TESTS_FUZZ_SUPPORT_FAKE_PROCESS_H
#define TESTS_FUZZ_SUPPORT_FAKE_PROCESS_H

#include "tests/fuzz/support/fuzz.h"

enum { FAKE_PROCESS_PID = 100000 };

struct fake_process {
	struct fuzz_input *input;
	bool refused; /* a cgroup, or the launch */
	bool launched, ended;
	int code, status;     /* of the end, as waitid(2) has them */
	int listener, errors; /* what it got; -1: closed */
	int end_event;	      /* the eventfd behind what host-ctl takes for a pidfd */
};

void fake_process_init(struct fake_process *process, struct fuzz_input *input);
void fake_process_finish(struct fake_process *process);

/* It ends so; nothing when it has ended. Its fds are closed. */
void fake_process_end(struct fake_process *process, int code, int status);

#endif
