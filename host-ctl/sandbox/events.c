/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/events.h"
#include "host-ctl/support/clock.h"

void events_listen(struct events *events, struct events_listener *listener)
{
	listener->next = events->listeners;
	listener->link = &events->listeners;
	if (listener->next)
		listener->next->link = &listener->next;
	events->listeners = listener;
}

void events_unlisten(struct events_listener *listener)
{
	if (!listener->link)
		return;
	*listener->link = listener->next;
	if (listener->next)
		listener->next->link = listener->link;
	listener->link = NULL;
}

unsigned int events_count_listeners(const struct events *events)
{
	unsigned int count = 0;

	for (const struct events_listener *listener = events->listeners; listener; listener = listener->next)
		count++;
	return count;
}

/* Takes the reference. */
static void publish(struct events *events, json_t *event)
{
	const uint64_t now = clock_wall_ms();

	json_object_set_new(event, "seq", json_integer((json_int_t)++events->sequence));
	json_object_set_new(event, "time_ms", json_integer((json_int_t)now));
	for (struct events_listener *listener = events->listeners; listener; listener = listener->next)
		listener->event(listener, event);
	json_decref(event);
}

void events_tell_sandbox(struct events *events, const struct sandbox *sandbox, enum sandbox_state before)
{
	if (!events->listeners)
		return;
	publish(events,
		json_pack("{s:s,s:s,s:s,s:s,s:o}", "event", "sandbox", "sandbox", sandbox->id, "state",
			sandbox_state_name(sandbox->state), "before", sandbox_state_name(before), "reason",
			sandbox->reason[0] ? json_string(sandbox->reason) : json_null()));
}

void events_tell_command(struct events *events, const struct command *command)
{
	bool ended = command->state == COMMAND_ENDED;

	if (!events->listeners)
		return;
	publish(events,
		json_pack("{s:s,s:s,s:s,s:s,s:o}", "event", "command", "sandbox", command->sandbox->id,
			"command", command->id, "state", ended ? "ended" : "started", "result",
			ended ? json_string(run_result_name(&command->result)) : json_null()));
}
