/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/sandbox/sandbox_fork.h"
#include "host-ctl/sandbox/sandbox_private.h"
#include "host-ctl/sandbox/sandbox_saved.h"
#include "host-ctl/sandbox/sandboxes_private.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

const char *const sandbox_fork_fields[] = {"count", "name", "metadata", "env", "ttl_ms", "ttl_action", "idle",
	"memory_max", "cpu_max", "pids_max", NULL};

enum child_state {
	CHILD_PLANNED,
	CHILD_MADE,   /* its folder is, or is being made */
	CHILD_LOADS,  /* CREATING */
	CHILD_LIVES,  /* it was READY */
	CHILD_REFUSED /* error says why */
};

struct child {
	struct sandbox_watcher watcher;
	struct sandbox_fork *fork;
	enum child_state state;
	struct sandbox_spec spec;
	struct sandbox *sandbox; /* from LOADS on, held; NULL: there is none, or no more */
	struct error error;
};

struct sandbox_fork {
	struct list_entry entry; /* of all forks */
	struct sandboxes *all;
	struct sandbox_copy copy;
	struct sandbox *parent; /* while it is copied; else NULL */
	char folder[SANDBOX_ID_MAX], template[TEMPLATE_NAME_MAX];
	json_t *made; /* what the parent's VM is made of */
	uid_t uid;
	struct error error; /* why there is nothing of it; kind ERROR_NONE: there is */
	bool has_disk;
	/* What one copy of that takes of the host's disk, and what of it is promised to this fork. */
	uint64_t copy_bytes, promised_bytes;
	/* Of the worker, while there is one. */
	struct child *works;	/* whose folder it makes; NULL: there is none */
	struct sandbox *making; /* that is to be */
	struct error work_error;
	struct loop_source *timer;  /* the next step */
	sandbox_fork_done_fn *done; /* NULL: nobody waits */
	void *context;
	unsigned int count;
	struct child children[FORK_CHILDREN_MAX];
};

/* From the loop: who calls is in the midst of something. */
static void go_on_later(struct sandbox_fork *fork)
{
	loop_set_timer(fork->timer, 1);
}

static void refuse(struct child *child, const struct error *error)
{
	child->state = CHILD_REFUSED;
	child->error = *error;
}

/* --- room for its copies --- */

/* 0: there is room for so many copies beside those that are promised; or -1 with *error set. */
static int check_room(const struct sandbox_fork *fork, unsigned int copies, struct error *error)
{
	const struct sandboxes_config *config = &fork->all->config;

	if (!fork->has_disk)
		return 0;
	return sandbox_files_check_room_for(config->state_directory, config->disk_reserve_bytes,
		fork->all->disk_promised + copies * fork->copy_bytes, error);
}

static void settle(struct sandbox_fork *fork, uint64_t bytes)
{
	sandboxes_settle_disk(fork->all, &fork->promised_bytes, bytes);
}

/* --- its end --- */

/* Of a child that is, or was, in the registry: it is nobody's here. */
static void let_go(struct child *child)
{
	if (!child->sandbox)
		return;
	sandbox_unwatch(&child->watcher);
	sandbox_release(child->sandbox);
	child->sandbox = NULL;
}

static void destroy(struct sandbox_fork *fork)
{
	struct sandbox_files ignored;

	if (fork->parent)
		sandbox_copy_leave(fork->parent);
	for (unsigned int i = 0; i < fork->count; i++) {
		let_go(&fork->children[i]);
		sandbox_spec_finish(&fork->children[i].spec);
	}
	sandbox_files_remove(fork->all->config.state_directory, fork->folder, &ignored);
	settle(fork, fork->promised_bytes);
	list_remove(&fork->entry);
	loop_remove(fork->timer);
	json_decref(fork->made);
	free(fork);
}

void sandbox_forks_finish(struct sandboxes *all)
{
	while (all->forks.first)
		destroy((struct sandbox_fork *)all->forks.first);
}

static json_t *describe(const struct sandbox_fork *fork)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < fork->count; i++) {
		const struct child *child = &fork->children[i];

		json_array_append_new(
			list, child->state == CHILD_LIVES
				      ? json_pack("{s:o}", "sandbox", sandbox_to_json(child->sandbox))
				      : error_to_json(&child->error));
	}
	return json_pack("{s:I,s:o}", "pause_us", (json_int_t)fork->copy.pause_us, "children", list);
}

/* Nobody knows of them. */
static void delete_children(struct sandbox_fork *fork)
{
	struct error error;

	for (unsigned int i = 0; i < fork->count; i++)
		if (fork->children[i].sandbox)
			sandbox_ask(fork->children[i].sandbox, SANDBOX_DELETE,
				"its client left before it was there", &error);
}

static void finish(struct sandbox_fork *fork)
{
	sandbox_fork_done_fn *done = fork->done;
	const struct error error = fork->error;
	void *context = fork->context;
	json_t *answer = NULL;

	if (!done)
		delete_children(fork);
	else if (!error.kind)
		answer = describe(fork);
	destroy(fork);
	if (done)
		done(context, answer, error.kind ? &error : NULL);
}

void sandbox_fork_leave(struct sandbox_fork *fork)
{
	fork->done = NULL;
	go_on_later(fork);
}

/* --- a child --- */

static void note_end(struct child *child)
{
	const struct sandbox *sandbox = child->sandbox;
	struct error error = sandbox->error;

	if (!error.kind)
		error_set(&error, sandbox->state == SANDBOX_FAILED ? ERROR_GUEST_LOST : ERROR_CONFLICT,
			"sandbox %s is %s%s%.300s", sandbox->id, sandbox_state_name(sandbox->state),
			sandbox->reason[0] ? ": " : "", sandbox->reason);
	refuse(child, &error);
}

static void changed(struct sandbox_watcher *watcher, struct sandbox *sandbox)
{
	struct child *child = (struct child *)watcher;

	if (child->state != CHILD_LOADS || sandbox->state == SANDBOX_CREATING)
		return;
	if (sandbox->state == SANDBOX_READY)
		child->state = CHILD_LIVES;
	else
		note_end(child);
	go_on_later(child->fork);
}

static int refuse_place(const struct pool *pool, struct error *error)
{
	return error_set(error, ERROR_EXHAUSTED,
		"no place for its VM: all %u are in use (--max-vms): delete sandboxes, or raise it",
		pool_places_max(pool));
}

/* Whoever has taken its place meanwhile may keep it for ever, and the asker waits for all children. */
static int check_place(const struct sandboxes_config *config, struct error *error)
{
	const struct pool *pool = templates_own_pool(config->templates);

	return pool_open_places(pool) ? 0 : refuse_place(pool, error);
}

static void begin_child(struct child *child, struct sandbox *sandbox)
{
	struct sandbox_fork *fork = child->fork;
	const struct sandboxes_config *config = &fork->all->config;
	struct pool_source *source;
	struct sandbox_files ignored;
	struct error error = fork->work_error;
	int status = error.kind ? -1 : 0;

	source = status ? NULL
			: sandbox_saved_copy_source(config->state_directory, fork->folder, sandbox->id,
				  config->templates, fork->template, &error);
	status = !source || check_place(config, &error) ||
		 sandboxes_check_new(fork->all, &sandbox->spec, &error) ||
		 sandbox_begin_fork(sandbox, source, &error);
	pool_source_drop(source);
	if (status) {
		sandbox_files_remove(config->state_directory, sandbox->id, &ignored);
		sandbox_destroy(sandbox);
		refuse(child, &error);
		return;
	}
	child->state = CHILD_LOADS;
	child->sandbox = sandbox;
	sandbox_hold(sandbox);
	sandbox_watch(sandbox, &child->watcher);
}

/* By a worker. */
static void make_folder(void *context)
{
	struct sandbox_fork *fork = context;
	const struct sandboxes_config *config = &fork->all->config;

	fork->work_error.kind = ERROR_NONE;
	/* The parent's may have grown before it stood, and the disk is not the daemon's alone. */
	if (fork->has_disk &&
		sandbox_files_check_room_for(config->state_directory, config->disk_reserve_bytes,
			sandbox_files_copy_bytes(config->state_directory, fork->folder), &fork->work_error))
		return;
	/* Its row brings them to the disk as well, and with it waits the journal of all: then little is left.
	 */
	if (sandbox_files_copy(config->state_directory, fork->folder, fork->making->id, &fork->work_error) ==
			0 &&
		fork->has_disk)
		sandbox_files_sync(config->state_directory, fork->making->id, &fork->work_error);
}

static void folder_made(void *context);

/* The next one that is planned. Without anybody to be told none is made. */
static void plan_next(struct sandbox_fork *fork)
{
	for (unsigned int i = 0; i < fork->count && !fork->works; i++) {
		struct child *child = &fork->children[i];
		struct error error;

		if (child->state != CHILD_PLANNED)
			continue;
		error_set(&error, ERROR_INTERNAL, "out of memory for the sandbox");
		fork->making =
			fork->done ? sandbox_make_fork(fork->all, &child->spec, fork->uid, fork->made) : NULL;
		if (fork->making && !sandboxes_begin_work(fork->all, make_folder, folder_made, fork)) {
			child->state = CHILD_MADE;
			fork->works = child;
			continue;
		}
		if (fork->making)
			sandbox_destroy(fork->making);
		refuse(child, &error);
	}
}

/* The daemon is stopping: files of the others are not made for nothing. */
static void refuse_planned(struct sandbox_fork *fork, const struct error *error)
{
	for (unsigned int i = 0; i < fork->count; i++)
		if (fork->children[i].state == CHILD_PLANNED)
			refuse(&fork->children[i], error);
}

static void folder_made(void *context)
{
	struct sandbox_fork *fork = context;
	struct sandboxes *all = fork->all;
	struct child *child = fork->works;

	fork->works = NULL;
	settle(fork, fork->copy_bytes);
	begin_child(child, fork->making);
	if (child->state == CHILD_REFUSED && child->error.kind == ERROR_NOT_READY)
		refuse_planned(fork, &child->error);
	plan_next(fork);
	go_on_later(fork);
	sandboxes_end_work(all);
}

/* --- from step to step --- */

/* It was never READY. */
static void delete_failed(struct child *child)
{
	struct error error;

	if (child->sandbox && child->sandbox->state == SANDBOX_FAILED)
		sandbox_ask(child->sandbox, SANDBOX_DELETE, child->error.message, &error);
	let_go(child);
}

static void go_on(void *context)
{
	struct sandbox_fork *fork = context;
	bool over = true;

	if (fork->parent)
		return;
	/* What waits for a place would wait for nobody. */
	if (!fork->done)
		delete_children(fork);
	if (!fork->error.kind)
		plan_next(fork);
	for (unsigned int i = 0; i < fork->count; i++) {
		struct child *child = &fork->children[i];

		if (child->state == CHILD_REFUSED)
			delete_failed(child);
		over = over && child->state >= CHILD_LIVES;
	}
	if (fork->error.kind ? !fork->works : over)
		finish(fork);
}

static void copied(struct sandbox_copy *copy, const struct error *error)
{
	struct sandbox_fork *fork =
		(struct sandbox_fork *)((char *)copy - offsetof(struct sandbox_fork, copy));

	if (error)
		fork->error = *error;
	fork->parent = NULL;
	settle(fork, fork->copy_bytes);
	go_on_later(fork);
}

/* --- the beginning --- */

/* What a child is asked to be: its parent's, but for what the fields say. 0, or -1 with *error set. */
static int make_spec(struct sandbox_spec *spec, const struct sandbox *parent,
	const struct sandbox_fork_order *order, unsigned int number, struct error *error)
{
	json_t *body = sandbox_spec_to_json(&parent->spec), *value;
	const char *key, *name;
	void *next;
	int status;

	json_object_foreach_safe(body, next, key, value)
	{
		if (json_is_null(value))
			json_object_del(body, key);
	}
	json_object_del(body, "name");
	json_object_update(body, order->fields);
	json_object_del(body, "count");
	name = json_string_value(json_object_get(body, "name"));
	if (name && order->count > 1)
		json_object_set_new(body, "name", json_sprintf("%s-%u", name, number));
	status = body ? sandbox_spec_parse(spec, body, error)
		      : error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	json_decref(body);
	return status;
}

/* What can be told of each child before: 0, or -1 with *error set, when none of them can be. */
static int plan(struct sandbox_fork *fork, struct sandbox *parent, const struct sandbox_fork_order *order,
	struct error *error)
{
	const struct pool *pool = templates_own_pool(fork->all->config.templates);
	unsigned int places = pool_open_places(pool), planned = 0;

	for (unsigned int i = 0; i < order->count; i++) {
		struct child *child = &fork->children[i];

		*child = (struct child){.watcher.changed = changed, .fork = fork};
		if (make_spec(&child->spec, parent, order, i + 1, error))
			return -1;
		fork->count++;
		if (planned >= places)
			refuse_place(pool, &child->error);
		/* One copy is the fork's own. */
		if (planned >= places || sandboxes_check_new(fork->all, &child->spec, &child->error) ||
			check_room(fork, planned + 2, &child->error))
			child->state = CHILD_REFUSED;
		else
			planned++;
	}
	if (planned) {
		sandboxes_promise_disk(fork->all, &fork->promised_bytes, (planned + 1) * fork->copy_bytes);
		return 0;
	}
	*error = fork->children[0].error;
	return -1;
}

static int begin(struct sandbox_fork *fork, struct sandbox *parent, const struct sandbox_fork_order *order,
	struct error *error)
{
	const struct sandboxes_config *config = &fork->all->config;
	enum sandbox_state next;

	fork->timer = loop_add_timer(config->loop, go_on, fork);
	if (!fork->timer || sandbox_copy_name(fork->folder))
		return error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
	if (sandbox_check(parent, SANDBOX_COPY, &next, error) || plan(fork, parent, order, error))
		return -1;
	fork->copy = (struct sandbox_copy){.folder = fork->folder, .copied = copied};
	/* Before: copied() clears it. */
	fork->parent = parent;
	if (sandbox_copy(parent, &fork->copy, error) == 0)
		return 0;
	fork->parent = NULL;
	return -1;
}

struct sandbox_fork *sandbox_fork_begin(struct sandbox *parent, const struct sandbox_fork_order *order,
	sandbox_fork_done_fn *done, void *context, struct error *error)
{
	struct sandbox_fork *fork = calloc(1, sizeof *fork);

	if (!fork) {
		error_set(error, ERROR_INTERNAL, "out of memory for the sandbox");
		return NULL;
	}
	fork->all = parent->all;
	fork->made = json_incref(parent->made);
	fork->uid = order->uid;
	fork->has_disk = parent->has_files;
	if (fork->has_disk)
		fork->copy_bytes = sandbox_files_copy_bytes(fork->all->config.state_directory, parent->id);
	fork->done = done;
	fork->context = context;
	memcpy(fork->template, parent->spec.template, sizeof fork->template);
	list_add(&parent->all->forks, &fork->entry);
	if (!begin(fork, parent, order, error))
		return fork;
	destroy(fork);
	return NULL;
}
