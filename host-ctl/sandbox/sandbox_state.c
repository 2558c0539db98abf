/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_state.h"

#include <string.h>

#define TO(state) (1u << (state))

static const struct {
	const char *name;
	unsigned int next; /* that it may go to, by whatever cause */
} states[SANDBOX_STATE_COUNT] = {
	[SANDBOX_CREATING] = {"creating",
		TO(SANDBOX_READY) | TO(SANDBOX_DELETING) | TO(SANDBOX_GONE) | TO(SANDBOX_FAILED)},
	[SANDBOX_READY] = {"ready", TO(SANDBOX_PAUSING) | TO(SANDBOX_COPYING) | TO(SANDBOX_SUSPENDING) |
					    TO(SANDBOX_STOPPING) | TO(SANDBOX_DELETING) | TO(SANDBOX_FAILED)},
	[SANDBOX_PAUSING] = {"pausing", TO(SANDBOX_PAUSED) | TO(SANDBOX_READY) | TO(SANDBOX_STOPPING) |
						TO(SANDBOX_DELETING) | TO(SANDBOX_FAILED)},
	[SANDBOX_PAUSED] = {"paused", TO(SANDBOX_RESUMING) | TO(SANDBOX_SUSPENDING) | TO(SANDBOX_STOPPING) |
					      TO(SANDBOX_DELETING) | TO(SANDBOX_FAILED)},
	[SANDBOX_RESUMING] = {"resuming", TO(SANDBOX_READY) | TO(SANDBOX_PAUSED) | TO(SANDBOX_STOPPING) |
						  TO(SANDBOX_DELETING) | TO(SANDBOX_FAILED)},
	[SANDBOX_COPYING] = {"copying", TO(SANDBOX_READY) | TO(SANDBOX_PAUSED) | TO(SANDBOX_STOPPING) |
						TO(SANDBOX_DELETING) | TO(SANDBOX_FAILED)},
	[SANDBOX_SUSPENDING] = {"suspending", TO(SANDBOX_SUSPENDED) | TO(SANDBOX_READY) | TO(SANDBOX_PAUSED) |
						      TO(SANDBOX_STOPPING) | TO(SANDBOX_DELETING) |
						      TO(SANDBOX_FAILED)},
	[SANDBOX_SUSPENDED] = {"suspended", TO(SANDBOX_WAKING) | TO(SANDBOX_STOPPING) | TO(SANDBOX_DELETING)},
	[SANDBOX_WAKING] = {"waking", TO(SANDBOX_READY) | TO(SANDBOX_SUSPENDED) | TO(SANDBOX_STOPPING) |
					      TO(SANDBOX_DELETING) | TO(SANDBOX_FAILED)},
	[SANDBOX_STOPPING] = {"stopping", TO(SANDBOX_STOPPED) | TO(SANDBOX_READY) | TO(SANDBOX_PAUSED) |
						  TO(SANDBOX_SUSPENDED) | TO(SANDBOX_DELETING)},
	[SANDBOX_STOPPED] = {"stopped", TO(SANDBOX_STARTING) | TO(SANDBOX_DELETING)},
	[SANDBOX_STARTING] = {"starting",
		TO(SANDBOX_READY) | TO(SANDBOX_STOPPING) | TO(SANDBOX_STOPPED) | TO(SANDBOX_DELETING)},
	[SANDBOX_DELETING] = {"deleting", TO(SANDBOX_GONE) | TO(SANDBOX_FAILED)},
	[SANDBOX_GONE] = {"gone", 0},
	[SANDBOX_FAILED] = {"failed", TO(SANDBOX_DELETING)},
};

struct rule {
	enum error_kind refusal; /* ERROR_NONE: it is legal */
	enum sandbox_state next;
};

#define GO(state)                                                                                            \
	{                                                                                                    \
		.next = (state)                                                                              \
	}
#define NOT_YET                                                                                              \
	{                                                                                                    \
		.refusal = ERROR_NOT_READY                                                                   \
	}
#define CONFLICT                                                                                             \
	{                                                                                                    \
		.refusal = ERROR_CONFLICT                                                                    \
	}

static const struct rule rules[SANDBOX_STATE_COUNT][SANDBOX_VERB_COUNT] = {
	[SANDBOX_CREATING] = {[SANDBOX_PAUSE] = NOT_YET,
		[SANDBOX_RESUME] = NOT_YET,
		[SANDBOX_SUSPEND] = NOT_YET,
		[SANDBOX_WAKE] = NOT_YET,
		[SANDBOX_STOP] = NOT_YET,
		[SANDBOX_START] = NOT_YET,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = NOT_YET,
		[SANDBOX_COPY] = NOT_YET},
	[SANDBOX_READY] = {[SANDBOX_PAUSE] = GO(SANDBOX_PAUSING),
		[SANDBOX_RESUME] = GO(SANDBOX_READY),
		[SANDBOX_SUSPEND] = GO(SANDBOX_SUSPENDING),
		[SANDBOX_WAKE] = GO(SANDBOX_READY),
		[SANDBOX_STOP] = GO(SANDBOX_STOPPING),
		[SANDBOX_START] = GO(SANDBOX_READY),
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = GO(SANDBOX_READY),
		[SANDBOX_COPY] = GO(SANDBOX_COPYING)},
	[SANDBOX_PAUSING] = {[SANDBOX_PAUSE] = GO(SANDBOX_PAUSING),
		[SANDBOX_RESUME] = NOT_YET,
		[SANDBOX_SUSPEND] = NOT_YET,
		[SANDBOX_WAKE] = NOT_YET,
		[SANDBOX_STOP] = NOT_YET,
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = NOT_YET,
		[SANDBOX_COPY] = NOT_YET},
	[SANDBOX_PAUSED] = {[SANDBOX_PAUSE] = GO(SANDBOX_PAUSED),
		[SANDBOX_RESUME] = GO(SANDBOX_RESUMING),
		[SANDBOX_SUSPEND] = GO(SANDBOX_SUSPENDING),
		[SANDBOX_WAKE] = GO(SANDBOX_RESUMING),
		[SANDBOX_STOP] = GO(SANDBOX_STOPPING),
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = GO(SANDBOX_RESUMING),
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_RESUMING] = {[SANDBOX_PAUSE] = NOT_YET,
		[SANDBOX_RESUME] = GO(SANDBOX_RESUMING),
		[SANDBOX_SUSPEND] = NOT_YET,
		[SANDBOX_WAKE] = GO(SANDBOX_RESUMING),
		[SANDBOX_STOP] = NOT_YET,
		[SANDBOX_START] = NOT_YET,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = GO(SANDBOX_RESUMING),
		[SANDBOX_COPY] = NOT_YET},
	[SANDBOX_COPYING] = {[SANDBOX_PAUSE] = NOT_YET,
		[SANDBOX_RESUME] = NOT_YET,
		[SANDBOX_SUSPEND] = NOT_YET,
		[SANDBOX_WAKE] = NOT_YET,
		[SANDBOX_STOP] = NOT_YET,
		[SANDBOX_START] = NOT_YET,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = GO(SANDBOX_COPYING),
		[SANDBOX_COPY] = NOT_YET},
	[SANDBOX_SUSPENDING] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = GO(SANDBOX_SUSPENDING),
		[SANDBOX_WAKE] = NOT_YET,
		[SANDBOX_STOP] = CONFLICT,
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = NOT_YET,
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_SUSPENDED] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = GO(SANDBOX_SUSPENDED),
		[SANDBOX_WAKE] = GO(SANDBOX_WAKING),
		[SANDBOX_STOP] = GO(SANDBOX_STOPPING),
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = GO(SANDBOX_WAKING),
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_WAKING] = {[SANDBOX_PAUSE] = NOT_YET,
		[SANDBOX_RESUME] = NOT_YET,
		[SANDBOX_SUSPEND] = NOT_YET,
		[SANDBOX_WAKE] = GO(SANDBOX_WAKING),
		[SANDBOX_STOP] = NOT_YET,
		[SANDBOX_START] = NOT_YET,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = GO(SANDBOX_WAKING),
		[SANDBOX_COPY] = NOT_YET},
	[SANDBOX_STOPPING] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = CONFLICT,
		[SANDBOX_WAKE] = NOT_YET,
		[SANDBOX_STOP] = GO(SANDBOX_STOPPING),
		[SANDBOX_START] = NOT_YET,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = CONFLICT,
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_STOPPED] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = CONFLICT,
		[SANDBOX_WAKE] = GO(SANDBOX_STARTING),
		[SANDBOX_STOP] = GO(SANDBOX_STOPPED),
		[SANDBOX_START] = GO(SANDBOX_STARTING),
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = CONFLICT,
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_STARTING] = {[SANDBOX_PAUSE] = NOT_YET,
		[SANDBOX_RESUME] = NOT_YET,
		[SANDBOX_SUSPEND] = NOT_YET,
		[SANDBOX_WAKE] = GO(SANDBOX_STARTING),
		[SANDBOX_STOP] = NOT_YET,
		[SANDBOX_START] = GO(SANDBOX_STARTING),
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = NOT_YET,
		[SANDBOX_COPY] = NOT_YET},
	[SANDBOX_DELETING] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = CONFLICT,
		[SANDBOX_WAKE] = CONFLICT,
		[SANDBOX_STOP] = CONFLICT,
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = CONFLICT,
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_GONE] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = CONFLICT,
		[SANDBOX_WAKE] = CONFLICT,
		[SANDBOX_STOP] = CONFLICT,
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_GONE),
		[SANDBOX_EXEC] = CONFLICT,
		[SANDBOX_COPY] = CONFLICT},
	[SANDBOX_FAILED] = {[SANDBOX_PAUSE] = CONFLICT,
		[SANDBOX_RESUME] = CONFLICT,
		[SANDBOX_SUSPEND] = CONFLICT,
		[SANDBOX_WAKE] = CONFLICT,
		[SANDBOX_STOP] = CONFLICT,
		[SANDBOX_START] = CONFLICT,
		[SANDBOX_DELETE] = GO(SANDBOX_DELETING),
		[SANDBOX_EXEC] = CONFLICT,
		[SANDBOX_COPY] = CONFLICT},
};

static const char *const verbs[SANDBOX_VERB_COUNT] = {
	[SANDBOX_PAUSE] = "paused",
	[SANDBOX_RESUME] = "resumed",
	[SANDBOX_SUSPEND] = "suspended",
	[SANDBOX_WAKE] = "woken",
	[SANDBOX_STOP] = "stopped",
	[SANDBOX_START] = "started",
	[SANDBOX_DELETE] = "deleted",
	[SANDBOX_EXEC] = "given commands",
	[SANDBOX_COPY] = "copied",
};

/* What to do about a conflict; empty: nothing helps. */
static const char *mend_of(enum sandbox_state state)
{
	if (state == SANDBOX_STOPPED)
		return ": start it first";
	if (state == SANDBOX_SUSPENDED || state == SANDBOX_SUSPENDING)
		return ": wake it";
	if (state == SANDBOX_FAILED)
		return ": delete it, and create another";
	if (state == SANDBOX_PAUSED || state == SANDBOX_PAUSING)
		return ": resume it";
	return "";
}

int sandbox_state_apply(enum sandbox_state state, enum sandbox_verb verb, const char *id, const char *reason,
	enum sandbox_state *next, struct error *error)
{
	const struct rule *rule = &rules[state][verb];
	bool tells = state == SANDBOX_FAILED && reason[0];

	*next = rule->next;
	if (!rule->refusal)
		return 0;
	return error_set(error, rule->refusal, "sandbox %s is %s%s%.300s%s, and cannot be %s%s", id,
		states[state].name, tells ? " (" : "", tells ? reason : "", tells ? ")" : "", verbs[verb],
		rule->refusal == ERROR_NOT_READY ? " yet" : mend_of(state));
}

bool sandbox_state_may_go(enum sandbox_state from, enum sandbox_state to)
{
	return states[from].next & TO(to);
}

const char *sandbox_state_name(enum sandbox_state state)
{
	return states[state].name;
}

int sandbox_state_of_name(const char *name)
{
	for (int i = 0; i < SANDBOX_STATE_COUNT; i++)
		if (!strcmp(states[i].name, name))
			return i;
	return -1;
}
