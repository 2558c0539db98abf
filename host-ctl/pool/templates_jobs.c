/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What templates are built and loaded, and when.
 *
 * Invariants: a job is begun from the loop only (work). Before an owner is told of an end, its lane is free
 * and everything has its new state, for telling may bring the next request.
 */
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/pool/templates_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static bool is_base(const char *name)
{
	return !strcmp(name, TEMPLATE_BASE);
}

static bool has(const struct templates_lane *lane, const char *name)
{
	return lane->job && !strcmp(lane->name, name);
}

bool templates_is_loading(const struct templates *templates, const char *name)
{
	const struct named_pool *entry = templates_entry(templates, name);

	return has(&templates->loads, name) || (entry && entry->load_due);
}

const char *templates_busy_with(const struct templates *templates)
{
	return templates->builds.job ? templates->builds.name : templates->base_due ? TEMPLATE_BASE : NULL;
}

void templates_schedule(struct templates *templates)
{
	if (!templates->stopping)
		loop_set_timer(templates->work, 1);
}

/* --- faults and tries --- */

const json_t *templates_fault(const struct templates *templates, const char *name)
{
	return json_object_get(templates->faults, name);
}

static void note_fault(struct templates *templates, const char *name, const struct error *error)
{
	json_object_set_new(templates->faults, name,
		json_pack("{s:s,s:b,s:I}", "reason", error->message, "damaged",
			error->kind == ERROR_BUILD_FAILED, "at_ms",
			(json_int_t)(clock_now() / CLOCK_NS_PER_MS)));
}

static void try_again_later(struct templates *templates)
{
	uint64_t delay = templates->retry_ms ? templates->retry_ms : TEMPLATES_RETRY_MIN_MS;

	templates->retry_ms = delay < TEMPLATES_RETRY_MAX_MS / 2 ? 2 * delay : TEMPLATES_RETRY_MAX_MS;
	loop_set_timer(templates->retry, delay * CLOCK_NS_PER_MS);
}

static void try_again(void *context)
{
	struct templates *templates = context;

	if (templates->stopping)
		return;
	templates->base_due = !pool_has_template(templates->pools[0].pool) &&
			      !has(&templates->builds, TEMPLATE_BASE) &&
			      !has(&templates->loads, TEMPLATE_BASE);
	for (unsigned int i = 1; i < templates->pool_count; i++) {
		struct named_pool *entry = &templates->pools[i];

		if (pool_target(entry->pool) && !pool_has_template(entry->pool))
			entry->load_due = !has(&templates->loads, entry->name);
	}
	templates_schedule(templates);
}

/* --- the end of a job --- */

static void succeed(struct templates *templates, const char *name, struct template *template)
{
	struct named_pool *entry = templates_entry(templates, name);

	json_object_del(templates->faults, name);
	templates->retry_ms = 0;
	if (is_base(name))
		templates->failure[0] = '\0';
	if (!entry)
		return;
	entry->load_due = false;
	pool_set_template(entry->pool, template);
	pool_start(entry->pool);
}

/* Without base its pool boots. */
static void fail_base(struct templates *templates, bool load, const struct error *error)
{
	if (load) {
		templates->base_due = true;
		return;
	}
	snprintf(templates->failure, sizeof templates->failure, "%s", error->message);
	log_warn("the pool boots its VMs: %s", error->message);
	pool_start(templates->pools[0].pool);
	try_again_later(templates);
}

/* Whoever waits for it is refused; the pool goes, unless it has VMs or is to have some. */
static void fail_load(struct templates *templates, const char *name, const struct error *error)
{
	struct named_pool *entry = templates_entry(templates, name);

	note_fault(templates, name, error);
	if (!entry)
		return;
	pool_fail(entry->pool, error);
	entry = templates_entry(templates, name);
	if (!entry || entry->load_due)
		return;
	if (pool_target(entry->pool))
		try_again_later(templates);
	else if (pool_is_empty(entry->pool) && !pool_is_queued(entry->pool))
		templates_drop_pool(templates, entry);
}

/* template NULL: *error says why not. */
static void end_job(struct templates_lane *lane, struct template *template, const struct error *error)
{
	struct templates *templates = lane->templates;
	const struct templates_request request = lane->request;
	char name[TEMPLATE_NAME_MAX];

	memcpy(name, lane->name, sizeof name);
	lane->job = NULL;
	lane->request = (struct templates_request){0};
	room_settle(&templates->room, lane->promised);
	room_leave(&templates->room);
	if (!template)
		log_warn("%s", error->message);
	if (template && !templates->stopping)
		succeed(templates, name, template);
	else if (!templates->stopping && is_base(name))
		fail_base(templates, lane->loads, error);
	else if (!templates->stopping && lane->loads)
		fail_load(templates, name, error);
	templates_schedule(templates);
	if (request.events)
		request.events->done(request.context, template, error);
	templates_note_emptied(templates);
}

static void job_done(void *context, struct template *template, const struct error *error)
{
	end_job(context, template, error);
}

static void job_output(void *context, bool is_stderr, const void *bytes, size_t length)
{
	const struct templates_request *request = &((const struct templates_lane *)context)->request;

	if (request->events && request->events->output)
		request->events->output(request->context, is_stderr, bytes, length);
}

static bool job_has_room(void *context)
{
	const struct templates_request *request = &((const struct templates_lane *)context)->request;

	return !request->events || !request->events->has_room || request->events->has_room(request->context);
}

static void job_progress(void *context, enum template_phase phase, unsigned int command)
{
	const struct templates_request *request = &((const struct templates_lane *)context)->request;

	if (request->events && request->events->progress)
		request->events->progress(request->context, phase, command);
}

static const struct template_events job_events = {
	.output = job_output, .has_room = job_has_room, .progress = job_progress, .done = job_done};

/* --- the begin of a job --- */

/* What the request does not say is as of base. */
static void set_source(struct templates_lane *lane)
{
	const struct templates_config *config = &lane->templates->config;
	const struct templates_request *request = &lane->request;
	struct vm_source *source = &lane->source;

	*source = config->source;
	if (!request->events)
		return;
	if (request->image)
		source->image = (struct vm_file){request->image, request->image};
	if (request->memory_bytes)
		source->memory_bytes = request->memory_bytes;
	if (request->cpus)
		source->cpus = request->cpus;
	source->disk_bytes = request->disk_bytes;
	templates_set_boot(lane->templates, source);
	snprintf(lane->size, sizeof lane->size, "%lluM", (unsigned long long)(source->memory_bytes >> 20));
	source->size = lane->size;
}

static int start_job(struct templates_lane *lane, struct error *error)
{
	struct templates *templates = lane->templates;
	const struct template_order order = {.name = lane->name,
		.source = &lane->source,
		.commands = lane->request.commands,
		.count = lane->request.count,
		.rehearsals = templates->config.source.rehearsals,
		.slot = TEMPLATES_SLOT + lane->loads,
		.room = &templates->room,
		.mkfs = templates->config.mkfs,
		.saved = lane->request.saved};
	const bool makes = order.saved != NULL;

	if (lane->request.events && room_check(&templates->room, &lane->source, true, error))
		return -ENOMEM;
	log_info("%s template %s", lane->loads ? "loading" : makes ? "making" : "building", lane->name);
	return (lane->loads ? template_fetch
		: makes	    ? template_make
			    : template_build)(
		&templates->store, &templates->config.vm, &order, &job_events, lane, &lane->job, error);
}

/* request NULL: our own. What fails at once ends as a job does. */
static void begin(struct templates_lane *lane, const char *name, const struct templates_request *request)
{
	struct error error;

	snprintf(lane->name, sizeof lane->name, "%s", name);
	lane->request = request ? *request : (struct templates_request){0};
	set_source(lane);
	lane->promised = room_expected_bytes(&lane->source);
	room_enter(&lane->templates->room, lane->promised);
	if (request && request->events->progress)
		request->events->progress(request->context, TEMPLATE_BOOTING, 0);
	if (start_job(lane, &error))
		end_job(lane, NULL, &error);
}

static void begin_load(struct templates *templates)
{
	for (unsigned int i = 0; i < templates->pool_count; i++) {
		struct named_pool *entry = &templates->pools[i];

		if (!entry->load_due || has(&templates->builds, entry->name))
			continue;
		entry->load_due = false;
		begin(&templates->loads, entry->name, NULL);
		return;
	}
}

static struct templates_request take_waiting(struct templates *templates, unsigned int i)
{
	const struct templates_request request = templates->waiting[i];

	templates->waiting_count--;
	memmove(&templates->waiting[i], &templates->waiting[i + 1],
		(templates->waiting_count - i) * sizeof request);
	return request;
}

static void begin_build(struct templates *templates)
{
	struct templates_request request;

	if (templates->base_due) {
		templates->base_due = false;
		begin(&templates->builds, TEMPLATE_BASE, NULL);
	} else if (templates->waiting_count && !has(&templates->loads, templates->waiting[0].name)) {
		request = take_waiting(templates, 0);
		begin(&templates->builds, request.name, &request);
	}
}

/* One of each a turn. */
static void work(void *context)
{
	struct templates *templates = context;

	if (!templates->stopping && !templates->loads.job)
		begin_load(templates);
	if (!templates->stopping && !templates->builds.job)
		begin_build(templates);
}

/* --- for the API --- */

int templates_check_memory(uint64_t wanted, struct error *error)
{
	uint64_t host = room_host_bytes();

	if (wanted <= host)
		return 0;
	return error_set(error, ERROR_INVALID,
		"mem of %lluM is more than the %lluM that this host has: give less",
		(unsigned long long)(wanted >> 20), (unsigned long long)(host >> 20));
}

/* What would be refused when its turn comes is refused now. */
static int check_request(
	struct templates *templates, const struct templates_request *request, struct error *error)
{
	struct templates_lane trial = {.templates = templates, .request = *request};
	json_t *inputs;

	set_source(&trial);
	if (templates_check_memory(trial.source.memory_bytes, error))
		return -1;
	inputs = template_inputs(
		&templates->config.vm, &trial.source, request->commands, request->count, error);
	json_decref(inputs);
	return inputs ? room_check(&templates->room, &trial.source, true, error) : -1;
}

/* False: it is there already. */
static bool add_name(json_t *names, const char *name)
{
	for (size_t i = 0; i < json_array_size(names); i++)
		if (!strcmp(json_string_value(json_array_get(names, i)), name))
			return false;
	json_array_append_new(names, json_string(name));
	return true;
}

/* One that takes no other's name wants a place of its own; builds that are not done have theirs. */
static int check_place(
	const struct templates *templates, const char *name, unsigned int ahead, struct error *error)
{
	json_t *names = template_store_names(&templates->store, error);
	bool fits;

	if (!names)
		return -1;
	add_name(names, TEMPLATE_BASE);
	if (templates->builds.job)
		add_name(names, templates->builds.name);
	for (unsigned int i = 0; i < templates->waiting_count; i++)
		add_name(names, templates->waiting[i].name);
	fits = !add_name(names, name) || json_array_size(names) + ahead <= TEMPLATES_MAX;
	json_decref(names);
	if (fits)
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"there are %d templates already, those that are being built included, and no more than that "
		"are kept: remove one that is not used",
		TEMPLATES_MAX);
}

/* What no request can change: 0, or -1 with *error set. */
static int check_name(const struct templates *templates, const char *name, struct error *error)
{
	if (templates->config.cold)
		return error_set(error, ERROR_CONFLICT,
			"this daemon has no templates: start it without --cold to build some");
	if (is_base(name))
		return error_set(error, ERROR_CONFLICT,
			"%s is the daemon's own, built at its start from what that is told: give another "
			"name",
			TEMPLATE_BASE);
	if (templates->stopping)
		return error_set(error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	return 0;
}

static int check_queue(
	const struct templates *templates, const char *name, unsigned int ahead, struct error *error)
{
	if (templates->waiting_count + ahead < TEMPLATES_BUILDS_MAX)
		return 0;
	return error_set(error, ERROR_EXHAUSTED,
		"template %s is being built, and %d builds wait already: try again when some are done",
		templates_busy_with(templates) ? templates_busy_with(templates) : name, TEMPLATES_BUILDS_MAX);
}

static void enqueue(struct templates *templates, const struct templates_request *request)
{
	templates->waiting[templates->waiting_count++] = *request;
	templates_schedule(templates);
}

int templates_build(struct templates *templates, const struct templates_request *request, struct error *error)
{
	if (check_name(templates, request->name, error) || check_request(templates, request, error) ||
		check_place(templates, request->name, 0, error) ||
		check_queue(templates, request->name, 0, error))
		return -1;
	enqueue(templates, request);
	return 0;
}

/* It is built, or made, or will be. */
static bool is_coming(const struct templates *templates, const char *name)
{
	bool comes = has(&templates->builds, name);

	for (unsigned int i = 0; i < templates->waiting_count && !comes; i++)
		comes = !strcmp(templates->waiting[i].name, name);
	return comes;
}

int templates_check_new(
	const struct templates *templates, const char *name, unsigned int ahead, struct error *error)
{
	if (check_name(templates, name, error))
		return -1;
	if (is_coming(templates, name))
		return error_set(error, ERROR_CONFLICT,
			"a template %s is being made already: give another name", name);
	if (template_store_has(&templates->store, name))
		return error_set(error, ERROR_CONFLICT,
			"there is a template %s already: give another name, or remove that one", name);
	return check_place(templates, name, ahead, error) || check_queue(templates, name, ahead, error) ? -1
													: 0;
}

int templates_make(struct templates *templates, const struct templates_request *request, struct error *error)
{
	struct templates_lane trial = {.templates = templates, .request = *request};

	set_source(&trial);
	if (templates_check_new(templates, request->name, 0, error) ||
		room_check(&templates->room, &trial.source, true, error))
		return -1;
	enqueue(templates, request);
	return 0;
}

const struct vm_config *templates_vm_config(const struct templates *templates)
{
	return &templates->config.vm;
}

void templates_cancel(struct templates *templates, const void *context, const char *cause)
{
	struct templates_request request;
	struct error error;

	if (templates->builds.job && templates->builds.request.context == context) {
		template_job_cancel(templates->builds.job, cause);
		return;
	}
	for (unsigned int i = 0; i < templates->waiting_count; i++) {
		if (templates->waiting[i].context != context)
			continue;
		request = take_waiting(templates, i);
		error_set(&error, ERROR_BUILD_FAILED, "template %s could not be %s: %s", request.name,
			request.saved ? "made" : "built", cause);
		request.events->done(request.context, NULL, &error);
		return;
	}
}

void templates_continue(struct templates *templates, const void *context)
{
	if (templates->builds.job && templates->builds.request.context == context)
		template_job_continue(templates->builds.job);
}

/* --- life --- */

int templates_jobs_init(struct templates *templates)
{
	struct loop *loop = templates->config.vm.loop;

	templates->builds.templates = templates->loads.templates = templates;
	templates->loads.loads = true;
	templates->work = loop_add_timer(loop, work, templates);
	templates->retry = loop_add_timer(loop, try_again, templates);
	templates->faults = json_object();
	return templates->work && templates->retry && templates->faults ? 0 : -ENOMEM;
}

void templates_jobs_finish(struct templates *templates)
{
	loop_remove(templates->work);
	loop_remove(templates->retry);
	json_decref(templates->faults);
}

/* Is what the disk has of base what would be built now? */
static bool base_is_right(struct templates *templates)
{
	struct error error;
	json_t *about = NULL, *wanted;
	int folder = -1;
	bool right;

	if (template_store_read(&templates->store, TEMPLATE_BASE, &folder, &about, &error)) {
		if (error.kind != ERROR_NOT_FOUND)
			log_warn("%s", error.message);
		return false;
	}
	wanted = template_inputs(&templates->config.vm, &templates->config.source, NULL, 0, &error);
	right = wanted && json_equal(wanted, json_object_get(about, "inputs"));
	if (!right)
		log_info("template %s is of other files or another size", TEMPLATE_BASE);
	json_decref(wanted);
	json_decref(about);
	fd_close(&folder);
	return right;
}

void templates_jobs_start(struct templates *templates)
{
	templates->pools[0].load_due = base_is_right(templates);
	templates->base_due = !templates->pools[0].load_due;
	templates_schedule(templates);
}

void templates_jobs_stop(struct templates *templates)
{
	struct error error;

	if (templates->loads.job)
		template_job_cancel(templates->loads.job, "the daemon is stopping");
	if (templates->builds.job)
		template_job_cancel(templates->builds.job, "the daemon is stopping");
	error_set(&error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	while (templates->waiting_count) {
		const struct templates_request request = take_waiting(templates, 0);

		request.events->done(request.context, NULL, &error);
	}
}
