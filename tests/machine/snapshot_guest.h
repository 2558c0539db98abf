/* SPDX-License-Identifier: Apache-2.0 */
/* What snapshot_linux.c and its guest agree on. */
#ifndef TESTS_MACHINE_SNAPSHOT_GUEST_H
#define TESTS_MACHINE_SNAPSHOT_GUEST_H

enum {
	SNAPSHOT_PORT = 1024,	    /* the guest listens; a connection is one command line and its answer */
	SNAPSHOT_READY_PORT = 2000, /* where it connects when it does */
	SNAPSHOT_LINE_MAX = 512,
	SNAPSHOT_NAP_MS = 50,
};

/*
 * The answer to "report": the nonce; of the workers the rounds done and failures seen by those that check
 * memory, that nap (a failure: awake too early), that check the disk; how often the monotonic clock went
 * back; what ended the read of the stream that was told to "hold" (-1: it still reads, 0: its end, else an
 * errno); monotonic clock and boot time in ns.
 */
#define SNAPSHOT_REPORT                                                                                      \
	"nonce %" PRIu64 " memory %" PRIu64 " %" PRIu64 " naps %" PRIu64 " %" PRIu64 " disk %" PRIu64        \
	" %" PRIu64 " back %" PRIu64 " held %d clock %" PRIu64 " %" PRIu64 "\n"

#endif
