/* SPDX-License-Identifier: Apache-2.0 */
/* What happens to sandboxes and commands, and what is made of the former, told to all who listen, at once and
 * in order. Nobody is waited for.
 */
#ifndef HOST_CTL_EVENTS_H
#define HOST_CTL_EVENTS_H

#include "host-ctl/sandbox/command.h"
#include "host-ctl/support/list.h"

/* Part of its owner's memory, which stays until events_unlisten. */
struct events_listener {
	struct list_entry entry;
	/* event: an object, the publisher's. It neither adds nor removes a listener. */
	void (*event)(struct events_listener *listener, json_t *event);
};

struct events {
	struct list listeners;
	uint64_t sequence; /* of the last one */
};

void events_listen(struct events *events, struct events_listener *listener);
/* Takes one that does not listen. */
void events_unlisten(struct events_listener *listener);
unsigned int events_count_listeners(const struct events *events);

/* {"seq","time_ms","event":"sandbox","sandbox","state","before","reason"} */
void events_tell_sandbox(struct events *events, const struct sandbox *sandbox, enum sandbox_state before);
/* {"seq","time_ms","event":"command","sandbox","command","state","result"}: when it was started, and when it
 * has ended. */
void events_tell_command(struct events *events, const struct command *command);

/* {"seq","time_ms","event":"template","sandbox","template","state","reason"}: of a sandbox's guest one was
 * made, or, with an error (else NULL), could not be. */
void events_tell_template(
	struct events *events, const char *sandbox, const char *template, const struct error *error);

#endif
