/* SPDX-License-Identifier: Apache-2.0 */
#include "common/io.h"
#include "host-ctl/pool/templates_private.h"
#include "host-ctl/support/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert((int)METRICS_POOLS_MAX >= TEMPLATES_POOLS_MAX && (int)METRICS_LABEL_MAX >= TEMPLATE_NAME_MAX,
	"every pool is counted under its name");

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
	return !templates->builds.job && !templates->loads.job &&
	       standby_is_empty(templates->config.vm.standby);
}

void templates_note_emptied(struct templates *templates)
{
	if (templates->stopping && templates_are_empty(templates))
		templates->emptied(templates->context);
}

static void pool_emptied(void *context)
{
	templates_note_emptied(context);
}

static struct named_pool *add_pool(struct templates *templates, const char *name)
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

	*entry = (struct named_pool){0};
	if (metrics)
		entry->pool = pool_create(
			&pool_config, metrics, base ? pool_full : other_pool_full, pool_emptied, templates);
	if (!metrics || !entry->pool) {
		metrics_remove_pool(metrics);
		return NULL;
	}
	snprintf(entry->name, sizeof entry->name, "%s", name);
	templates->pool_count++;
	return entry;
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
	if (templates_jobs_init(templates) || !add_pool(templates, TEMPLATE_BASE))
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
	pool_slots_finish(&templates->slots);
	standby_destroy(templates->config.vm.standby);
	template_store_close(&templates->store);
	room_finish(&templates->room);
	templates_jobs_finish(templates);
	free(templates);
}

int templates_start(struct templates *templates)
{
	if (templates->config.cold)
		return pool_start(templates->pools[0].pool);
	if (templates->config.vm.standby)
		standby_start(templates->config.vm.standby);
	templates_jobs_start(templates);
	return 0;
}

void templates_stop(struct templates *templates)
{
	templates->stopping = true;
	templates_jobs_stop(templates);
	/* Each reports when it is empty; the last one finds all so. */
	if (templates->config.vm.standby)
		standby_stop(templates->config.vm.standby);
	for (unsigned int i = 0; i < templates->pool_count; i++)
		pool_stop(templates->pools[i].pool);
}

/* --- pools, by name --- */

struct named_pool *templates_entry(const struct templates *templates, const char *name)
{
	for (unsigned int i = 0; i < templates->pool_count; i++)
		if (!strcmp(templates->pools[i].name, name))
			return (struct named_pool *)&templates->pools[i];
	return NULL;
}

struct pool *templates_pool_of_found(struct templates *templates, const char *name)
{
	struct named_pool *entry = templates_entry(templates, name);

	if (!entry && template_name_is_valid(name) && templates->pool_count < TEMPLATES_POOLS_MAX)
		entry = add_pool(templates, name);
	return entry ? entry->pool : templates->pools[0].pool;
}

struct pool *templates_own_pool(const struct templates *templates)
{
	return templates->pools[0].pool;
}

struct template *templates_loaded(const struct templates *templates, const char *name)
{
	struct template *found = template_store_find(&templates->store, name);

	return found;
}

void templates_set_boot(const struct templates *templates, struct vm_source *source)
{
	const struct templates_config *config = &templates->config;

	source->initrd = config->source.initrd;
	source->kernel = config->source.kernel;
	if (source->cpus > 1)
		source->kernel = (struct vm_file){config->kernel_smp, config->kernel_smp};
}

void templates_drop_pool(struct templates *templates, struct named_pool *entry)
{
	metrics_remove_pool(pool_metrics(entry->pool));
	pool_destroy(entry->pool);
	*entry = templates->pools[--templates->pool_count];
}

/* Is it on the disk, and not known to be damaged? */
static int check_loadable(const struct templates *templates, const char *name, struct error *error)
{
	const json_t *fault = templates_fault(templates, name);
	uint64_t at_ms = (uint64_t)json_integer_value(json_object_get(fault, "at_ms"));
	json_t *about;
	int folder;

	error_set(error, ERROR_NOT_FOUND,
		"there is no template %.64s: see `host-ctl template list`, or build it", name);
	if (templates->store.folder < 0)
		return -1;
	if (json_is_true(json_object_get(fault, "damaged")) &&
		clock_now() / CLOCK_NS_PER_MS < at_ms + TEMPLATES_FAULT_MS)
		return error_set(
			error, ERROR_BUILD_FAILED, "%s", json_string_value(json_object_get(fault, "reason")));
	if (template_store_read(&templates->store, name, &folder, &about, error))
		return -1;
	fd_close(&folder);
	json_decref(about);
	return 0;
}

struct pool *templates_pool(struct templates *templates, const char *name, struct error *error)
{
	const char *wanted = name ? name : TEMPLATE_BASE;
	struct named_pool *entry = templates_entry(templates, wanted);
	struct template *template;

	if (entry && (entry == templates->pools || pool_has_template(entry->pool)))
		return entry->pool;
	template = template_store_find(&templates->store, wanted);
	if (!template && !templates_is_loading(templates, wanted) && check_loadable(templates, wanted, error))
		return NULL;
	if (!entry && templates->pool_count < TEMPLATES_POOLS_MAX)
		entry = add_pool(templates, wanted);
	if (!entry) {
		error_set(error, ERROR_EXHAUSTED,
			"there are %u pools already, or no memory for one more: remove a template that is "
			"not used",
			templates->pool_count);
		return NULL;
	}
	if (template) {
		pool_set_template(entry->pool, template);
		pool_start(entry->pool);
	} else if (!templates_is_loading(templates, wanted)) {
		entry->load_due = true;
		templates_schedule(templates);
	}
	return entry->pool;
}

struct pool *templates_find_pool(const struct templates *templates, const char *name, struct error *error)
{
	const struct named_pool *entry = templates_entry(templates, name);
	json_t *about;

	if (entry)
		return entry->pool;
	about = template_to_json(templates, name, error);
	if (about)
		error_set(error, ERROR_NOT_FOUND,
			"template %.64s has no pool yet: give it one with a target, or run something on it",
			name);
	json_decref(about);
	return NULL;
}

static unsigned int other_targets(const struct templates *templates, const char *name)
{
	unsigned int sum = 0;

	for (unsigned int i = 0; i < templates->pool_count; i++)
		if (strcmp(templates->pools[i].name, name) != 0)
			sum += pool_target(templates->pools[i].pool);
	return sum;
}

struct pool *templates_set_target(
	struct templates *templates, const char *name, unsigned int target, struct error *error)
{
	unsigned int others = other_targets(templates, name);
	struct pool *pool;

	if (target && target + others > templates->config.vms_max) {
		error_set(error, ERROR_INVALID,
			"target %u, with the %u of other pools, is more than the %u VMs that this daemon may "
			"have at "
			"once: give less, or start it with a larger --max-vms",
			target, others, templates->config.vms_max);
		return NULL;
	}
	pool = templates_pool(templates, name, error);
	if (pool)
		pool_set_target(pool, target);
	return pool;
}

/* --- removal --- */

static int refuse_use(const char *name, const struct pool *pool, struct error *error)
{
	struct metrics_gauges now;

	pool_read_gauges(pool, &now);
	return error_set(error, ERROR_CONFLICT,
		"template %s is in use: its pool has the target %u, %u VMs are of it, %u of these of "
		"sandboxes, %u runs wait: set the target to 0, delete its sandboxes (GET "
		"/v1/sandboxes?template=%s), and let the runs end",
		name, now.target, now.warm + now.starting + now.busy + now.ending, pool_count_owned(pool),
		now.queued, name);
}

int templates_remove(struct templates *templates, const char *name, struct error *error)
{
	struct named_pool *entry = templates_entry(templates, name);
	bool built = templates->builds.job && !strcmp(templates->builds.name, name);

	if (entry == templates->pools && templates->store.folder >= 0)
		return error_set(error, ERROR_CONFLICT,
			"%s is the daemon's own and stays: it is built again at a start when its files or "
			"sizes are "
			"others; to have no VM of it, set its target to 0",
			name);
	if (built || templates_is_loading(templates, name))
		return error_set(error, ERROR_NOT_READY, "template %s is being %s: try again when it is done",
			name, built ? "built" : "loaded");
	if (entry && (pool_target(entry->pool) || pool_is_queued(entry->pool) || !pool_is_empty(entry->pool)))
		return refuse_use(name, entry->pool, error);
	if (templates->store.folder < 0)
		return error_set(error, ERROR_NOT_FOUND, "there is no template %.64s", name);
	if (template_store_remove(&templates->store, name, error))
		return -1;
	json_object_del(templates->faults, name);
	if (entry)
		templates_drop_pool(templates, entry);
	return 0;
}
