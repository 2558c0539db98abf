/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of a session held against common/proto_guest.h. Each check returns NULL, or a constant sentence that
 * names the fault. Pure: no state, no input but the arguments.
 */
#ifndef HOST_CTL_AGENT_CHECK_H
#define HOST_CTL_AGENT_CHECK_H

#include "common/frame.h"

/* --- from a guest --- */
const char *agent_check_started(const struct frame *frame, uint64_t session);
/* expected: the offset at which the next byte of that stream stands. */
const char *agent_check_output(const struct frame *frame, uint64_t expected);
const char *agent_check_credit(const struct frame *frame, struct agent_credit *credit);
/* output: the bytes of stdout and stderr that came. *exit is set when NULL is returned. */
const char *agent_check_exit(const struct frame *frame, const uint64_t output[2], struct agent_exit *exit);
/* One entry of a CHANGE_LIST, of so many bytes with what is behind it. *change is set when NULL is returned;
 * its path follows it. */
const char *agent_check_change(const uint8_t *bytes, size_t left, struct agent_change *change);
/* count: the entries that came. */
const char *agent_check_changes_end(const struct frame *frame, uint32_t count, struct agent_changes_end *end);
/* text: the agent's words, made printable, or the errno's when it gave none. */
const char *agent_check_error(const struct frame *frame, char *text, size_t size);

/* --- from a client --- */
const char *agent_check_client(const struct frame *frame);

#endif
