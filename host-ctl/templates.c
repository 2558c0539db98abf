/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/templates.h"
#include "common/io.h"
#include "common/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)METRICS_POOLS_MAX >= TEMPLATES_POOLS_MAX && (int)METRICS_LABEL_MAX >= TEMPLATE_NAME_MAX,
	"every pool is counted under its name");

struct named_pool {
	char name[TEMPLATE_NAME_MAX];
	struct pool *pool;
};

struct templates {
	struct templates_config config;
	struct metrics *metrics;
	struct template_store store;
	struct pool_slots slots;
	struct room room;
	uint64_t job_promised;			      /* of the host's memory */
	struct named_pool pools[TEMPLATES_POOLS_MAX]; /* the first is base's */
	unsigned int pool_count;
	struct template_job *job;
	struct vm_source job_source;
	char job_size[24];		  /* of its memory, as the vmm takes it */
	struct templates_request request; /* events NULL: the job is our own */
	bool job_is_fetch, stopping;
	char job_name[TEMPLATE_NAME_MAX];
	json_t *to_fetch; /* names of the disk, base not among them */
	char failure[VM_CAUSE_MAX];
	void (*full)(void *context);
	void (*emptied)(void *context);
	void *context;
};

static void pool_full(void *context)
{
	struct templates *templates = context;

	templates->full(templates->context);
}

static void other_pool_full(void *context)
{
	(void)context;
}

bool templates_are_empty(const struct templates *templates)
{
	for (unsigned int i = 0; i < templates->pool_count; i++)
		if (!pool_is_empty(templates->pools[i].pool))
			return false;
	return !templates->job && standby_is_empty(templates->config.vm.standby);
}

static void pool_emptied(void *context)
{
	struct templates *templates = context;

	if (templates->stopping && templates_are_empty(templates))
		templates->emptied(templates->context);
}

static struct pool *add_pool(struct templates *templates, const char *name)
{
	const struct templates_config *config = &templates->config;
	bool base = templates->pool_count == 0;
	const struct pool_config pool_config = {.target = base ? config->target : 0,
		.starts_max = config->starts_max,
		.queue_max = config->queue_max,
		.slots = &templates->slots,
		.room = &templates->room,
		.vm = &config->vm,
		.cold = base ? &config->source : NULL};
	struct named_pool *entry = &templates->pools[templates->pool_count];
	struct metrics_pool *metrics = metrics_add_pool(templates->metrics, name);

	if (metrics)
		entry->pool = pool_create(
			&pool_config, metrics, base ? pool_full : other_pool_full, pool_emptied, templates);
	if (!metrics || !entry->pool) {
		metrics_remove_pool(metrics);
		return NULL;
	}
	snprintf(entry->name, sizeof entry->name, "%s", name);
	templates->pool_count++;
	return entry->pool;
}

struct templates *templates_create(const struct templates_config *config, struct metrics *metrics,
	void (*full)(void *context), void (*emptied)(void *context), void *context, struct error *error)
{
	struct templates *templates = calloc(1, sizeof *templates);

	error_set(error, ERROR_INTERNAL, "out of memory for the pool");
	if (!templates)
		return NULL;
	templates->config = *config;
	templates->metrics = metrics;
	templates->store.folder = -1;
	templates->slots.maximum = config->vms_max;
	room_init(&templates->room, config->vm.cgroups->fd, config->reserve_bytes);
	templates->full = full;
	templates->emptied = emptied;
	templates->context = context;
	if (!add_pool(templates, TEMPLATE_BASE))
		goto fail;
	if (!config->cold && config->standby && !config->vm.serial_directory) {
		templates->config.vm.standby =
			standby_create(&templates->config.vm, config->standby, pool_emptied, templates);
		if (!templates->config.vm.standby)
			goto fail;
	}
	if (!config->cold && template_store_open(&templates->store, config->state_directory, error))
		goto fail;
	return templates;
fail:
	templates_destroy(templates);
	return NULL;
}

void templates_destroy(struct templates *templates)
{
	if (!templates)
		return;
	for (unsigned int i = 0; i < templates->pool_count; i++)
		pool_destroy(templates->pools[i].pool);
	standby_destroy(templates->config.vm.standby);
	template_store_close(&templates->store);
	room_finish(&templates->room);
	json_decref(templates->to_fetch);
	free(templates);
}

/* --- jobs --- */

static struct pool *find_pool(const struct templates *templates, const char *name)
{
	for (unsigned int i = 0; i < templates->pool_count; i++)
		if (!strcmp(templates->pools[i].name, name))
			return templates->pools[i].pool;
	return NULL;
}

static bool is_base(const char *name)
{
	return !strcmp(name, TEMPLATE_BASE);
}

static void fetch_next(struct templates *templates);
static void base_failed(struct templates *templates, const struct error *error);

static void leave_room(struct templates *templates)
{
	room_settle(&templates->room, templates->job_promised);
	room_leave(&templates->room);
}

static void job_done(void *context, struct template *template, const struct error *error)
{
	struct templates *templates = context;
	const struct templates_request request = templates->request;
	struct pool *pool = find_pool(templates, templates->job_name);
	bool base = is_base(templates->job_name);

	templates->job = NULL;
	leave_room(templates);
	templates->request = (struct templates_request){0};
	if (request.events)
		request.events->done(request.context, template, error);
	if (templates->stopping) {
		pool_emptied(templates);
		return;
	}
	if (template && pool)
		pool_set_template(pool, template);
	if (!template)
		log_warn("%s", error->message);
	if (base && template) {
		templates->failure[0] = '\0';
		pool_start(pool);
	} else if (base) {
		base_failed(templates, error);
	}
	fetch_next(templates);
}

static void job_output(void *context, bool is_stderr, const void *bytes, size_t length)
{
	const struct templates *templates = context;

	if (templates->request.events && templates->request.events->output)
		templates->request.events->output(templates->request.context, is_stderr, bytes, length);
}

static bool job_has_room(void *context)
{
	const struct templates_request *request = &((const struct templates *)context)->request;

	return !request->events || !request->events->has_room || request->events->has_room(request->context);
}

static void job_progress(void *context, enum template_phase phase, unsigned int command)
{
	const struct templates_request *request = &((const struct templates *)context)->request;

	if (request->events && request->events->progress)
		request->events->progress(request->context, phase, command);
}

static const struct template_events job_events = {
	.output = job_output, .has_room = job_has_room, .progress = job_progress, .done = job_done};

static int begin_job(struct templates *templates, const char *name, bool fetch, struct error *error)
{
	const struct template_order order = {.name = name,
		.source = &templates->job_source,
		.commands = templates->request.commands,
		.count = templates->request.count,
		.rehearsals = templates->config.source.rehearsals,
		.slot = TEMPLATES_SLOT};
	int status;

	snprintf(templates->job_name, sizeof templates->job_name, "%s", name);
	templates->job_is_fetch = fetch;
	if (!templates->request.events)
		templates->job_source = templates->config.source;
	templates->job_promised = room_expected_bytes(&templates->job_source);
	room_enter(&templates->room, templates->job_promised);
	if (!fetch)
		log_info("building template %s", name);
	status = (fetch ? template_fetch : template_build)(&templates->store, &templates->config.vm, &order,
		&job_events, templates, &templates->job, error);
	if (status)
		leave_room(templates);
	return status;
}

/* Without base its pool boots. */
static void base_failed(struct templates *templates, const struct error *error)
{
	struct error again;

	if (templates->job_is_fetch) {
		if (begin_job(templates, TEMPLATE_BASE, false, &again) == 0)
			return;
		error = &again;
	}
	snprintf(templates->failure, sizeof templates->failure, "%s", error->message);
	log_warn("the pool boots its VMs: %s", error->message);
	pool_start(templates->pools[0].pool);
}

static void fetch_next(struct templates *templates)
{
	struct error error;

	while (!templates->job && json_array_size(templates->to_fetch)) {
		json_t *name = json_incref(json_array_get(templates->to_fetch, 0));
		int status;

		json_array_remove(templates->to_fetch, 0);
		status = is_base(json_string_value(name))
				 ? -EEXIST
				 : begin_job(templates, json_string_value(name), true, &error);
		if (status && status != -EEXIST)
			log_warn("%s", error.message);
		json_decref(name);
		if (!status)
			return;
	}
}

/* Is what the disk has of base what would be built now? */
static bool base_is_right(struct templates *templates)
{
	struct error error;
	json_t *about = NULL, *wanted;
	int folder = -1;
	bool right;

	if (template_store_read(&templates->store, TEMPLATE_BASE, &folder, &about, &error))
		return false;
	wanted = template_inputs(&templates->config.vm, &templates->config.source, NULL, 0, &error);
	right = wanted && json_equal(wanted, json_object_get(about, "inputs"));
	if (!right)
		log_info("template %s is of other files or another size", TEMPLATE_BASE);
	json_decref(wanted);
	json_decref(about);
	fd_close(&folder);
	return right;
}

int templates_start(struct templates *templates)
{
	struct error error;
	bool fetch;

	if (templates->config.cold)
		return pool_start(templates->pools[0].pool);
	if (templates->config.vm.standby)
		standby_start(templates->config.vm.standby);
	templates->to_fetch = template_store_names(&templates->store);
	fetch = base_is_right(templates);
	if (begin_job(templates, TEMPLATE_BASE, fetch, &error)) {
		log_warn("%s", error.message);
		base_failed(templates, &error);
	}
	return 0;
}

void templates_stop(struct templates *templates)
{
	templates->stopping = true;
	if (templates->job)
		template_job_cancel(templates->job, "the daemon is stopping");
	/* Each reports when it is empty; the last one finds all so. */
	if (templates->config.vm.standby)
		standby_stop(templates->config.vm.standby);
	for (unsigned int i = 0; i < templates->pool_count; i++)
		pool_stop(templates->pools[i].pool);
}

/* --- for the API --- */

struct pool *templates_base_pool(struct templates *templates)
{
	return templates->pools[0].pool;
}

/* On the disk, and to be loaded. */
static bool is_coming(const struct templates *templates, const char *name)
{
	const json_t *item;
	size_t i;

	if (templates->job && templates->job_is_fetch && !strcmp(templates->job_name, name))
		return true;
	json_array_foreach(templates->to_fetch, i, item)
	{
		if (!strcmp(json_string_value(item), name))
			return true;
	}
	return false;
}

struct pool *templates_pool(struct templates *templates, const char *name, struct error *error)
{
	const char *wanted = name ? name : TEMPLATE_BASE;
	struct pool *pool = find_pool(templates, wanted);
	struct template *template;

	if (pool)
		return pool;
	template = template_store_find(&templates->store, wanted);
	if (!template && is_coming(templates, wanted)) {
		error_set(error, ERROR_NOT_READY,
			"template %.64s is being loaded from the disk: try again in a moment", wanted);
		return NULL;
	}
	if (!template) {
		error_set(error, ERROR_NOT_FOUND,
			"there is no template %.64s: see `host-ctl template list`, or build it", wanted);
		return NULL;
	}
	if (templates->pool_count < TEMPLATES_POOLS_MAX)
		pool = add_pool(templates, wanted);
	if (!pool) {
		error_set(error, ERROR_EXHAUSTED, "there are %u pools already, or no memory for one more",
			templates->pool_count);
		return NULL;
	}
	pool_set_template(pool, template);
	pool_start(pool);
	return pool;
}

static int refuse_busy(const struct templates *templates, struct error *error)
{
	return error_set(error, ERROR_CONFLICT,
		"template %s is being %s, and one is made at a time: try again when it is done",
		templates->job_name, templates->job_is_fetch ? "loaded" : "built");
}

static void set_job_source(struct templates *templates, const struct templates_request *request)
{
	struct vm_source *source = &templates->job_source;

	*source = templates->config.source;
	if (request->image)
		source->image = (struct vm_file){request->image, request->image};
	if (request->memory_bytes)
		source->memory_bytes = request->memory_bytes;
	if (request->cpus)
		source->cpus = request->cpus;
	if (source->cpus > 1)
		source->kernel = (struct vm_file){templates->config.kernel_smp, templates->config.kernel_smp};
	snprintf(templates->job_size, sizeof templates->job_size, "%lluM",
		(unsigned long long)(source->memory_bytes >> 20));
	source->size = templates->job_size;
}

int templates_build(struct templates *templates, const struct templates_request *request, struct error *error)
{
	if (templates->config.cold)
		return error_set(error, ERROR_CONFLICT,
			"this daemon has no templates: start it without --cold to build some");
	if (is_base(request->name))
		return error_set(error, ERROR_CONFLICT,
			"%s is the daemon's own, built at its start from what that is told: give another "
			"name",
			TEMPLATE_BASE);
	if (templates->stopping)
		return error_set(error, ERROR_NOT_READY, "the daemon is stopping: try again when it is back");
	if (templates->job)
		return refuse_busy(templates, error);
	set_job_source(templates, request);
	if (room_check(&templates->room, &templates->job_source, true, error))
		return -1;
	templates->request = *request;
	if (begin_job(templates, request->name, false, error) == 0)
		return 0;
	templates->request = (struct templates_request){0};
	return -1;
}

void templates_cancel(struct templates *templates, const void *context, const char *cause)
{
	if (templates->job && templates->request.context == context)
		template_job_cancel(templates->job, cause);
}

void templates_continue(struct templates *templates, const void *context)
{
	if (templates->job && templates->request.context == context)
		template_job_continue(templates->job);
}

static struct named_pool *entry_of(struct templates *templates, const char *name)
{
	for (unsigned int i = 0; i < templates->pool_count; i++)
		if (!strcmp(templates->pools[i].name, name))
			return &templates->pools[i];
	return NULL;
}

static int refuse_use(const char *name, const struct pool *pool, struct error *error)
{
	struct metrics_gauges now;

	pool_read_gauges(pool, &now);
	return error_set(error, ERROR_CONFLICT,
		"template %s is in use: its pool has the target %u, %u VMs are of it, %u runs wait: set the "
		"target to 0 and let the runs end",
		name, now.target, now.warm + now.starting + now.busy + now.ending, now.queued);
}

int templates_remove(struct templates *templates, const char *name, struct error *error)
{
	struct named_pool *entry = entry_of(templates, name);
	struct metrics_gauges now = {0};
	int status;

	if (templates->job && !strcmp(templates->job_name, name))
		return refuse_busy(templates, error);
	if (entry)
		pool_read_gauges(entry->pool, &now);
	if (entry && (entry == templates->pools || now.target || now.queued || !pool_is_empty(entry->pool)))
		return refuse_use(name, entry->pool, error);
	status = templates->store.folder < 0 ? -ENOENT : template_store_remove(&templates->store, name);
	if (status == -ENOENT)
		return error_set(error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	if (status)
		return error_set(
			error, ERROR_INTERNAL, "cannot remove template %.64s: %s", name, strerror(-status));
	if (entry) {
		metrics_remove_pool(pool_metrics(entry->pool));
		pool_destroy(entry->pool);
		*entry = templates->pools[--templates->pool_count];
	}
	return 0;
}

json_t *template_to_json(const struct templates *templates, const char *name, struct error *error)
{
	const struct template *loaded = template_store_find(&templates->store, name);
	json_t *about = NULL;
	int folder = -1, status = -ENOENT;

	error_set(error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	if (templates->store.folder >= 0 && template_name_is_valid(name))
		status = template_store_read(&templates->store, name, &folder, &about, error);
	fd_close(&folder);
	if (status)
		return NULL;
	json_object_set_new(about, "loaded", json_boolean(loaded != NULL));
	json_object_set_new(about, "vms", json_integer(loaded ? loaded->vms : 0));
	return about;
}

json_t *templates_to_json(const struct templates *templates, struct error *error)
{
	json_t *list = json_array(), *names, *name;
	size_t i;

	names = templates->store.folder >= 0 ? template_store_names(&templates->store) : json_array();
	json_array_foreach(names, i, name)
	{
		json_t *about = template_to_json(templates, json_string_value(name), error);

		/* One that is damaged is there all the same. */
		if (!about)
			about = json_pack(
				"{s:O,s:b,s:s}", "name", name, "loaded", 0, "fault", error->message);
		json_array_append_new(list, about);
	}
	json_decref(names);
	if (!list)
		error_set(error, ERROR_INTERNAL, "out of memory for the list");
	return list ? json_pack("{s:o}", "templates", list) : NULL;
}

json_t *templates_pools_to_json(const struct templates *templates)
{
	json_t *list = json_array();

	for (unsigned int i = 0; i < templates->pool_count; i++)
		json_array_append_new(list, pool_to_json(templates->pools[i].pool));
	return json_pack("{s:o}", "pools", list);
}

void templates_read_gauges(const struct templates *templates, struct metrics_gauges *gauges)
{
	struct metrics_gauges one;

	*gauges = (struct metrics_gauges){0};
	for (unsigned int i = 0; i < templates->pool_count; i++) {
		pool_read_gauges(templates->pools[i].pool, &one);
		gauges->target += one.target;
		gauges->warm += one.warm;
		gauges->starting += one.starting;
		gauges->busy += one.busy;
		gauges->ending += one.ending;
		gauges->queued += one.queued;
	}
}

const char *templates_ill_reason(const struct templates *templates)
{
	for (unsigned int i = 0; i < templates->pool_count; i++) {
		const char *reason = pool_ill_reason(templates->pools[i].pool);

		if (reason)
			return reason;
	}
	return templates->failure[0] ? templates->failure : NULL;
}
