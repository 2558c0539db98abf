/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's agent that says what a sound one may say, to host-ctl, by whichever stream and in any order. */
#ifndef TESTS_FUZZ_SUPPORT_FAKE_GUEST_H
#define TESTS_FUZZ_SUPPORT_FAKE_GUEST_H

#include <stddef.h>
#include <stdint.h>

struct fake_guest {
	int agent, session; /* its ends of the two streams, the caller's; -1: none, and nothing is sent */
	uint64_t offset[2]; /* that a well-formed frame of stdout, stderr has next */
};

/* A frame of which `fill` bytes follow what is given. What does not fit in the stream is lost. */
void fake_guest_send(int fd, uint8_t type, const void *payload, size_t length, size_t fill);

/* text: bytes of it. */
void fake_guest_hello(const struct fake_guest *guest, size_t text);
void fake_guest_status(int fd, uint8_t type, int32_t status, size_t text);
/* A new session: offsets begin anew. */
void fake_guest_started(struct fake_guest *guest);
void fake_guest_output(struct fake_guest *guest, int which, size_t length);
void fake_guest_exit(const struct fake_guest *guest, uint8_t kind, int32_t code);

#endif
