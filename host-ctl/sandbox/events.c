/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/events.h"
#include "host-ctl/support/clock.h"

void events_listen(struct events *events, struct events_listener *listener)
{
	list_add(&events->listeners, &listener->entry);
}

void events_unlisten(struct events_listener *listener)
{
	list_remove(&listener->entry);
}

unsigned int events_count_listeners(const struct events *events)
{
	unsigned int count = 0;

	for (const struct list_entry *entry = events->listeners.first; entry; entry = entry->next)
		count++;
	return count;
}

/* Takes the reference. */
static void publish(struct events *events, json_t *event)
{
	const uint64_t now = clock_wall_ms();

	json_object_set_new(event, "seq", json_integer((json_int_t)++events->sequence));
	json_object_set_new(event, "time_ms", json_integer((json_int_t)now));
	for (struct list_entry *entry = events->listeners.first; entry; entry = entry->next) {
		struct events_listener *listener = (struct events_listener *)entry;

		listener->event(listener, event);
	}
	json_decref(event);
}

void events_tell_sandbox(struct events *events, const struct sandbox *sandbox, enum sandbox_state before)
{
	if (!events->listeners.first)
		return;
	publish(events,
		json_pack("{s:s,s:s,s:s,s:s,s:o}", "event", "sandbox", "sandbox", sandbox->id, "state",
			sandbox_state_name(sandbox->state), "before", sandbox_state_name(before), "reason",
			sandbox->reason[0] ? json_string(sandbox->reason) : json_null()));
}

void events_tell_command(struct events *events, const struct command *command)
{
	bool ended = command->state == COMMAND_ENDED;

	if (!events->listeners.first)
		return;
	publish(events,
		json_pack("{s:s,s:s,s:s,s:s,s:o}", "event", "command", "sandbox", command->sandbox->id,
			"command", command->id, "state", ended ? "ended" : "started", "result",
			ended ? json_string(run_result_name(&command->result)) : json_null()));
}

void events_tell_template(
	struct events *events, const char *sandbox, const char *template, const struct error *error)
{
	if (!events->listeners.first)
		return;
	publish(events, json_pack("{s:s,s:s,s:s,s:s,s:o}", "event", "template", "sandbox", sandbox,
				"template", template, "state", error ? "failed" : "made", "reason",
				error ? json_string(error->message) : json_null()));
}
