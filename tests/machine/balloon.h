/* SPDX-License-Identifier: Apache-2.0 */
/* What tests/machine/balloon.c and its guest agree on. */
#ifndef TESTS_MACHINE_BALLOON_H
#define TESTS_MACHINE_BALLOON_H

enum {
	BALLOON_GUEST_PORT = 2000, /* of the host: the guest connects, and is told what to do there */
	BALLOON_LINE_MAX = 128,
};

#endif
