/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_snapshot.h"
#include "common/io.h"
#include "host-ctl/sandbox/events.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandboxes_private.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/state_folder.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sandbox_snapshot {
	struct list_entry entry; /* of all snapshots */
	struct sandboxes *all;
	struct sandbox_copy copy;
	struct sandbox *parent; /* while it is copied; else NULL */
	/* Of the parent, which may be gone. */
	char id[SANDBOX_ID_MAX], template[TEMPLATE_NAME_MAX];
	struct vm_source shape; /* its sizes alone */
	char folder[SANDBOX_ID_MAX], name[TEMPLATE_NAME_MAX];
	json_t *image;		     /* as of sandbox_saved_find_image */
	int image_held;		     /* nobody removes it from the store of images; -1: it is in none */
	struct template_saved saved; /* of the templates, from `makes` on */
	bool makes;
	struct sandbox_files_need need;
	uint64_t promised_bytes; /* of the host's disk */
	uint64_t began_ns, began_ms;
	struct error error;		/* why it was not copied; kind ERROR_NONE: it was */
	struct loop_source *timer;	/* the next step */
	sandbox_snapshot_done_fn *done; /* NULL: nobody waits */
	void *context;
};

/* --- its end --- */

static void destroy(struct sandbox_snapshot *snapshot)
{
	struct sandbox_files ignored;

	if (snapshot->parent)
		sandbox_copy_leave(snapshot->parent);
	fd_close(&snapshot->saved.folder);
	fd_close(&snapshot->image_held);
	sandbox_files_remove(snapshot->all->config.state_directory, snapshot->folder, &ignored);
	sandboxes_settle_disk(snapshot->all, &snapshot->promised_bytes, snapshot->promised_bytes);
	list_remove(&snapshot->entry);
	loop_remove(snapshot->timer);
	json_decref(snapshot->saved.about);
	json_decref(snapshot->image);
	free(snapshot);
}

void sandbox_snapshots_finish(struct sandboxes *all)
{
	for (struct list_entry *entry = all->snapshots.first, *next; entry; entry = next) {
		next = entry->next;
		destroy((struct sandbox_snapshot *)entry);
	}
}

static json_t *describe(const struct sandbox_snapshot *snapshot)
{
	struct error ignored;
	json_t *template = template_to_json(snapshot->all->config.templates, snapshot->name, &ignored);

	return json_pack("{s:I,s:o}", "pause_us", (json_int_t)snapshot->copy.pause_us, "template", template);
}

/* error: NULL, or why there is no template. */
static void finish(struct sandbox_snapshot *snapshot, const struct error *error)
{
	const struct sandboxes_config *config = &snapshot->all->config;
	sandbox_snapshot_done_fn *done = snapshot->done;
	void *context = snapshot->context;
	const struct error why = error ? *error : (struct error){.kind = ERROR_NONE};
	json_t *answer = done && !error ? describe(snapshot) : NULL;

	*(error ? &config->metrics->snapshots_failed : &config->metrics->snapshots) += 1;
	events_tell_template(config->events, snapshot->id, snapshot->name, error);
	destroy(snapshot);
	if (done)
		done(context, answer, error ? &why : NULL);
}

void sandbox_snapshot_leave(struct sandbox_snapshot *snapshot)
{
	snapshot->done = NULL;
	/* What is copied still is let go when it is; what waits for its turn is over from within. */
	if (snapshot->makes)
		templates_cancel(snapshot->all->config.templates, snapshot, "the client has left");
}

/* --- the template --- */

static void made(void *context, struct template *template, const struct error *error)
{
	finish(context, template ? NULL : error);
}

static const struct template_events events = {.done = made};

/* All but the working set: the caller's, NULL without memory. */
static json_t *make_about(const struct sandbox_snapshot *snapshot)
{
	const struct vm_config *config = templates_vm_config(snapshot->all->config.templates);
	json_t *inputs = template_inputs_of_saved(config, &snapshot->shape, snapshot->image);

	return json_pack("{s:i,s:s,s:o,s:I,s:I,s:I,s:I,s:{s:s,s:s,s:I},s:o}", "format", TEMPLATE_FORMAT,
		"name", snapshot->name, "generation", template_new_generation(), "created_ms",
		(json_int_t)snapshot->began_ms, "build_ms",
		(json_int_t)((clock_now() - snapshot->began_ns) / CLOCK_NS_PER_MS), "state_bytes",
		(json_int_t)snapshot->copy.state_bytes, "memory_bytes",
		(json_int_t)snapshot->copy.memory_bytes, TEMPLATE_SNAPSHOT, "sandbox", snapshot->id,
		"template", snapshot->template, "pause_us", (json_int_t)snapshot->copy.pause_us, "inputs",
		inputs);
}

/* 0, or -1 with *error set. */
static int make(struct sandbox_snapshot *snapshot, struct error *error)
{
	const struct sandboxes_config *config = &snapshot->all->config;
	const struct templates_request request = {.name = snapshot->name,
		.memory_bytes = snapshot->shape.memory_bytes,
		.disk_bytes = snapshot->shape.disk_bytes,
		.cpus = snapshot->shape.cpus,
		.saved = &snapshot->saved,
		.events = &events,
		.context = snapshot};

	snapshot->saved.about = make_about(snapshot);
	if (!snapshot->saved.about)
		return error_set(error, ERROR_INTERNAL, "out of memory for the template");
	snapshot->saved.folder = sandbox_saved_open(config->state_directory, snapshot->folder);
	if (snapshot->saved.folder < 0)
		return error_set(error, ERROR_INTERNAL,
			"what was saved of sandbox %s, %.300s/" STATE_FOLDER_SANDBOXES
			"/%s, cannot be opened: %s",
			snapshot->id, config->state_directory, snapshot->folder,
			strerror(-snapshot->saved.folder));
	if (templates_make(config->templates, &request, error))
		return -1;
	snapshot->makes = true;
	return 0;
}

static void go_on(void *context)
{
	struct sandbox_snapshot *snapshot = context;
	struct error error = snapshot->error;

	if (!error.kind && !snapshot->done)
		error_set(&error, ERROR_INCOMPLETE, "template %s could not be made: the client has left",
			snapshot->name);
	if (error.kind || make(snapshot, &error))
		finish(snapshot, &error);
}

/* From within anything. */
static void copied(struct sandbox_copy *copy, const struct error *error)
{
	struct sandbox_snapshot *snapshot =
		(struct sandbox_snapshot *)((char *)copy - offsetof(struct sandbox_snapshot, copy));

	if (error)
		snapshot->error = *error;
	sandboxes_settle_disk(snapshot->all, &snapshot->promised_bytes, snapshot->need.written);
	snapshot->parent = NULL;
	loop_set_timer(snapshot->timer, 1);
}

/* --- the beginning --- */

static void take_shape(struct sandbox_snapshot *snapshot, const json_t *about)
{
	snapshot->shape = (struct vm_source){.memory_bytes = sandbox_saved_memory_bytes(about),
		.disk_bytes = sandbox_saved_disk_bytes(about),
		.cpus = (unsigned int)json_integer_value(json_object_get(about, "cpus")),
		.cid = (uint32_t)json_integer_value(json_object_get(about, "cid"))};
	snapshot->saved.memory_bytes = snapshot->shape.memory_bytes;
	snapshot->saved.disk_bytes = snapshot->shape.disk_bytes;
}

/* That it may be made, by those that are on their way to the templates as well. */
static int check_new(const struct sandbox_snapshot *snapshot, struct error *error)
{
	const struct sandboxes *all = snapshot->all;
	unsigned int ahead = 0;

	for (const struct list_entry *entry = all->snapshots.first; entry; entry = entry->next) {
		const struct sandbox_snapshot *other = (const struct sandbox_snapshot *)entry;

		if (other != snapshot && !strcmp(other->name, snapshot->name))
			return error_set(error, ERROR_CONFLICT,
				"a template %s is being made of sandbox %s already: give another name",
				snapshot->name, other->id);
		ahead += other != snapshot && !other->makes;
	}
	return templates_check_new(all->config.templates, snapshot->name, ahead, error);
}

static int check_room(struct sandbox_snapshot *snapshot, struct error *error)
{
	const struct sandboxes_config *config = &snapshot->all->config;

	sandbox_files_copy_need(
		config->state_directory, snapshot->id, snapshot->shape.memory_bytes, &snapshot->need);
	return sandbox_files_check_copy(config->state_directory, snapshot->id, &snapshot->need,
		config->disk_reserve_bytes, snapshot->all->disk_promised, error);
}

static int begin(struct sandbox_snapshot *snapshot, struct sandbox *parent, sandbox_snapshot_hold_fn *hold,
	struct error *error)
{
	const struct sandboxes_config *config = &snapshot->all->config;
	enum sandbox_state next;

	snapshot->timer = loop_add_timer(config->loop, go_on, snapshot);
	if (!snapshot->timer || sandbox_copy_name(snapshot->folder))
		return error_set(error, ERROR_INTERNAL, "out of memory for the template");
	if (sandbox_check(parent, SANDBOX_COPY, &next, error) || check_new(snapshot, error))
		return -1;
	if (!parent->made)
		return error_set(error, ERROR_CONFLICT,
			"sandbox %s was made by an older daemon, and cannot be saved", parent->id);
	take_shape(snapshot, parent->made);
	snapshot->image = sandbox_saved_find_image(config->state_directory, parent->id, parent->made, error);
	if (!snapshot->image || check_room(snapshot, error))
		return -1;
	sandboxes_promise_disk(
		snapshot->all, &snapshot->promised_bytes, snapshot->need.written + snapshot->need.twice);
	snapshot->image_held =
		hold(config->state_directory, json_string_value(json_object_get(snapshot->image, "path")));
	snapshot->copy = (struct sandbox_copy){.folder = snapshot->folder, .flat = true, .copied = copied};
	/* Before: copied() clears it. */
	snapshot->parent = parent;
	if (sandbox_copy(parent, &snapshot->copy, error) == 0)
		return 0;
	snapshot->parent = NULL;
	return -1;
}

struct sandbox_snapshot *sandbox_snapshot_begin(struct sandbox *parent, const char *name,
	sandbox_snapshot_hold_fn *hold, sandbox_snapshot_done_fn *done, void *context, struct error *error)
{
	struct sandbox_snapshot *snapshot = calloc(1, sizeof *snapshot);

	if (!snapshot) {
		error_set(error, ERROR_INTERNAL, "out of memory for the template");
		return NULL;
	}
	snapshot->all = parent->all;
	snapshot->image_held = snapshot->saved.folder = -1;
	snapshot->began_ns = clock_now();
	snapshot->began_ms = clock_wall_ms();
	snapshot->done = done;
	snapshot->context = context;
	memcpy(snapshot->id, parent->id, sizeof snapshot->id);
	memcpy(snapshot->template, parent->spec.template, sizeof snapshot->template);
	snprintf(snapshot->name, sizeof snapshot->name, "%s", name);
	list_add(&parent->all->snapshots, &snapshot->entry);
	if (!begin(snapshot, parent, hold, error))
		return snapshot;
	destroy(snapshot);
	return NULL;
}
