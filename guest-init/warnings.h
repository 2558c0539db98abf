/* SPDX-License-Identifier: Apache-2.0 */
/* What is missing in this guest, said once in the log and again to every host that asks (HELLO). */
#ifndef GUEST_INIT_WARNINGS_H
#define GUEST_INIT_WARNINGS_H

#include "common/proto_guest.h"
#include <stddef.h>

struct warnings {
	char text[AGENT_TEXT_MAX]; /* lines, each with its newline; not NUL-terminated */
	size_t length;
};

/* Logs a line and keeps it; lines beyond AGENT_TEXT_MAX are only logged. */
void warnings_add(struct warnings *warnings, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
