/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/pool/template_build.h"
#include "common/io.h"
#include "common/log.h"
#include "common/version.h"
#include "host-ctl/pool/template_disk.h"
#include "host-ctl/support/clock.h"
#include "host-ctl/support/file_sum.h"
#include "host-ctl/support/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct template_job {
	struct template_store *store;
	const struct vm_config *config;
	const struct template_events *events;
	void *context;
	char name[TEMPLATE_NAME_MAX];
	unsigned int slot, rehearsals;
	const struct room *room;
	bool loading;			   /* no build: it is on the disk */
	const struct template_saved *from; /* no build: of this; else NULL */
	bool saving, saved, checked;
	char folder_name[TEMPLATE_FOLDER_MAX];
	int folder, disk;
	char disk_path[TEMPLATE_FD_PATH];
	const char *mkfs;
	json_t *about;
	struct vm_source source; /* of the build: a boot with the address that all clones keep */
	struct vm_build build;
	struct vm *vm;
	struct template *template;
	uint64_t started_ns;
	struct error error;
	/* Of the worker, while there is one: nobody else looks at these, nor changes what it reads. */
	int work_status;
	struct error work_error;
	struct template *work_template;
	char work_cause[TEMPLATE_DISK_CAUSE_MAX];
	const char *work_name;
	pid_t recorded_pid; /* 0: no working set is being recorded */
	/* Of the worker that reads the disk beside the clone that checks, while there is one; and sum_stop of
	 * the one that copies what was saved, before. */
	bool sums;
	atomic_bool sum_stop;
	int sum_status;
	uint64_t sum;
	char wanted_sum[FILE_SUM_DIGITS + 1]; /* of one that is loaded; empty: it has noted none */
};

const char *template_phase_name(enum template_phase phase)
{
	static const char *const names[TEMPLATE_PHASE_COUNT] = {
		[TEMPLATE_WAITING] = "waiting",
		[TEMPLATE_BOOTING] = "booting",
		[TEMPLATE_RUNNING] = "running",
		[TEMPLATE_SAVING] = "saving",
		[TEMPLATE_CHECKING] = "checking",
		[TEMPLATE_STORING] = "storing",
	};

	return names[phase];
}

static void tell(const struct template_job *job, enum template_phase phase, unsigned int command)
{
	if (job->events->progress)
		job->events->progress(job->context, phase, command);
}

static const char *done_word(const struct template_job *job)
{
	return job->loading ? "loaded" : job->from ? "made" : "built";
}

static void abandon(struct template_job *job)
{
	if (job->folder_name[0])
		template_store_abandon(job->store, job->folder_name);
	job->folder_name[0] = '\0';
}

static void free_job(struct template_job *job)
{
	fd_close(&job->build.state);
	fd_close(&job->build.memory);
	fd_close(&job->disk);
	fd_close(&job->folder);
	abandon(job);
	template_drop(job->template);
	json_decref(job->about);
	free(job);
}

static void finish(struct template_job *job)
{
	struct template *template = job->error.kind ? NULL : job->template;

	if (template)
		log_info("template %s is ready: %s in %llu ms", job->name, done_word(job),
			(unsigned long long)((clock_now() - job->started_ns) / CLOCK_NS_PER_MS));
	/* Whoever is told finds nothing left. */
	abandon(job);
	job->events->done(job->context, template, &job->error);
	free_job(job);
}

/* status: of a write of ours, or 0: then it is in the words of the vmm, which writes while it saves. A guest
 * has no say in it. Asked afterwards the disk would tell of another moment. */
static bool disk_is_full(const struct template_job *job, int status, const char *cause)
{
	if (job->loading)
		return false;
	if (status)
		return error_is_of_full_disk(status);
	return job->saving && !job->saved &&
	       (strstr(cause, strerror(ENOSPC)) || strstr(cause, strerror(EDQUOT)));
}

static void set_failed(struct template_job *job, int status, const char *cause)
{
	if (job->error.kind)
		return;
	if (disk_is_full(job, status, cause))
		error_set(&job->error, ERROR_BUILD_FAILED,
			"template %s could not be %s: %.200s: the disk of %.128s is full: free some of it, "
			"or name a folder on another with --state-dir",
			job->name, done_word(job), cause, job->store->path);
	else
		error_set(&job->error, ERROR_BUILD_FAILED, "template %s could not be %s: %s", job->name,
			done_word(job), cause);
}

static void set_failed_status(struct template_job *job, int status)
{
	set_failed(job, status, strerror(-status));
}

/* --- the VMs --- */

static void go_on_if_settled(struct template_job *job);

/* A pid that is another's by now has not mapped the template. */
static void record(void *context)
{
	struct template_job *job = context;

	job->work_status = template_record(job->template, job->recorded_pid, job->loading ? -1 : job->folder);
}

static void recorded(void *context)
{
	struct template_job *job = context;

	job->recorded_pid = 0;
	if (job->work_status)
		log_warn("template %s: no working set: %s", job->name, strerror(-job->work_status));
	if (job->vm)
		vm_end(job->vm, "it was to check its template");
	go_on_if_settled(job);
}

static int begin_record(struct template_job *job, const struct vm *vm)
{
	int status;

	job->recorded_pid = vm->pid;
	status = worker_start(job->config->loop, record, recorded, job);
	if (!status)
		return 0;
	job->recorded_pid = 0;
	log_warn("template %s: no working set: %s", job->name, strerror(-status));
	return status;
}

static void vm_warm(void *context, struct vm *vm)
{
	struct template_job *job = context;

	job->checked = true;
	log_debug("template %s: a clone was warm after %llu us", job->name,
		(unsigned long long)((vm->warm_ns - vm->started_ns) / CLOCK_NS_PER_US));
	/* The VM stays while what it has touched is looked at. */
	if (job->template->working_set >= 0 || begin_record(job, vm))
		vm_end(vm, "it was to check its template");
}

static void vm_ended(void *context, struct vm *vm)
{
	struct template_job *job = context;

	if (!(job->template ? job->checked : job->saved))
		set_failed(job, 0, vm_cause(vm));
	/* What comes of it is not wanted any more. */
	if (job->error.kind)
		atomic_store(&job->sum_stop, true);
}

static int start_vm(struct template_job *job, const struct vm_source *source, const struct vm_build *build);

/* --- its disk --- */

static void sum_disk(void *context)
{
	struct template_job *job = context;

	job->sum_status = file_sum(job->template->disk, &job->sum_stop, &job->sum);
}

static void format_sum(uint64_t sum, char digits[FILE_SUM_DIGITS + 1])
{
	snprintf(digits, FILE_SUM_DIGITS + 1, "%0*" PRIx64, FILE_SUM_DIGITS, sum);
}

/* NULL: it is what it was; else what is not, in text. */
static const char *disk_fault(const struct template_job *job, char text[VM_CAUSE_MAX])
{
	char digits[FILE_SUM_DIGITS + 1];

	if (job->sum_status)
		return strerror(-job->sum_status);
	format_sum(job->sum, digits);
	if (!job->wanted_sum[0] || !strcmp(digits, job->wanted_sum))
		return NULL;
	snprintf(text, VM_CAUSE_MAX,
		"it was changed since, or is damaged: its checksum is %s, not %s: build the template again",
		digits, job->wanted_sum);
	return text;
}

static void summed(void *context)
{
	struct template_job *job = context;
	char text[VM_CAUSE_MAX];
	const char *fault = disk_fault(job, text);

	job->sums = false;
	if (fault && !job->error.kind)
		error_set(&job->error, ERROR_BUILD_FAILED, "cannot load the disk of template %s: %s",
			job->name, fault);
	if (fault && job->vm)
		vm_end(job->vm, "the disk of its template is not what it was");
	go_on_if_settled(job);
}

/* Read beside the start of the clone that checks, so that it takes no time but where that is over first. One
 * that an older daemon has built has noted no checksum: nothing is read. */
static int begin_sum(struct template_job *job)
{
	const char *wanted = json_string_value(json_object_get(job->template->about, TEMPLATE_DISK_SUM));
	int status;

	if (job->template->disk < 0 || (job->loading && !wanted))
		return 0;
	snprintf(job->wanted_sum, sizeof job->wanted_sum, "%s", wanted ? wanted : "");
	status = worker_start(job->config->loop, sum_disk, summed, job);
	job->sums = !status;
	return status;
}

static void load(void *context)
{
	struct template_job *job = context;

	job->work_status = template_load(job->folder, job->name, json_incref(job->about), job->rehearsals,
		&job->work_template, &job->work_error);
}

static void loaded(void *context)
{
	struct template_job *job = context;

	job->template = job->work_template;
	job->work_template = NULL;
	if (job->work_status && !job->error.kind)
		job->error = job->work_error;
	if (job->error.kind || start_vm(job, &job->template->source, NULL)) {
		finish(job);
		return;
	}
	job->work_status = begin_sum(job);
	if (!job->work_status)
		return;
	set_failed_status(job, job->work_status);
	vm_end(job->vm, "its template cannot be checked");
}

/* Loads it, if there is room, and has a clone of it started. */
static int begin_check(struct template_job *job)
{
	int status;

	if (room_check_bytes(job->room, job->name, template_loaded_bytes(job->folder), &job->error))
		return -ENOMEM;
	status = worker_start(job->config->loop, load, loaded, job);
	if (status)
		set_failed_status(job, status);
	else
		tell(job, TEMPLATE_CHECKING, 0);
	return status;
}

static void give_name(void *context)
{
	struct template_job *job = context;

	job->work_status = template_store_name(job->store, job->folder_name, job->name, job->from != NULL);
}

static void named(void *context)
{
	struct template_job *job = context;

	if (job->work_status == -EEXIST && job->from) {
		error_set(&job->error, ERROR_CONFLICT,
			"there is a template %s by now: give another name, or remove that one", job->name);
	} else if (job->work_status) {
		set_failed_status(job, job->work_status);
	} else {
		/* A cancel came too late: it has its name. */
		job->error.kind = ERROR_NONE;
		job->folder_name[0] = '\0';
		template_store_add(job->store, job->template);
	}
	finish(job);
}

static void store(void *context)
{
	struct template_job *job = context;

	job->work_status = template_store_write(job->folder, job->template);
}

static void stored(void *context)
{
	struct template_job *job = context;
	int status = job->work_status;

	if (!status && !job->error.kind)
		status = worker_start(job->config->loop, give_name, named, job);
	if (status)
		set_failed_status(job, status);
	if (job->error.kind)
		finish(job);
}

static void conclude(struct template_job *job)
{
	char digits[FILE_SUM_DIGITS + 1];
	int status = template_seal(job->template);

	if (!job->loading && job->template->disk >= 0) {
		format_sum(job->sum, digits);
		json_object_set_new(job->template->about, TEMPLATE_DISK_SUM, json_string(digits));
	}
	if (!status && job->loading) {
		template_store_add(job->store, job->template);
		finish(job);
		return;
	}
	if (!status)
		status = worker_start(job->config->loop, store, stored, job);
	if (!status) {
		tell(job, TEMPLATE_STORING, 0);
		return;
	}
	set_failed_status(job, status);
	finish(job);
}

/* One VM is gone: the next step. */
static void go_on(struct template_job *job)
{
	if (!job->error.kind && job->template)
		conclude(job);
	else if (job->error.kind || begin_check(job))
		finish(job);
}

/* Each of its VM and the workers beside that calls this when it is over. */
static void go_on_if_settled(struct template_job *job)
{
	if (!job->vm && !job->recorded_pid && !job->sums)
		go_on(job);
}

static void vm_gone(void *context, struct vm *vm)
{
	struct template_job *job = context;

	(void)vm;
	job->vm = NULL;
	go_on_if_settled(job);
}

static const struct vm_events vm_events = {.warm = vm_warm, .ended = vm_ended, .gone = vm_gone};

static int start_vm(struct template_job *job, const struct vm_source *source, const struct vm_build *build)
{
	const struct vm_order order = {.source = source, .build = build, .slot = job->slot, .awaited = true};

	return vm_start(job->config, &order, &vm_events, job, &job->vm, &job->error);
}

/* --- the build --- */

static void take_output(void *context, bool is_stderr, const void *bytes, size_t length)
{
	struct template_job *job = context;

	if (job->events->output)
		job->events->output(job->context, is_stderr, bytes, length);
}

static bool has_room(void *context)
{
	const struct template_job *job = context;

	return !job->events->has_room || job->events->has_room(job->context);
}

static void step(void *context, unsigned int command)
{
	struct template_job *job = context;

	job->saving = !command;
	tell(job, command ? TEMPLATE_RUNNING : TEMPLATE_SAVING, command);
}

static void saved(void *context, uint64_t state_bytes, uint64_t memory_bytes)
{
	struct template_job *job = context;

	job->saved = true;
	json_object_set_new(job->about, "state_bytes", json_integer((json_int_t)state_bytes));
	json_object_set_new(job->about, "memory_bytes", json_integer((json_int_t)memory_bytes));
	json_object_set_new(job->about, "build_ms",
		json_integer((json_int_t)((clock_now() - job->started_ns) / CLOCK_NS_PER_MS)));
}

static struct template_job *create(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct error *error)
{
	struct template_job *job = calloc(1, sizeof *job);

	if (!job) {
		error_set(error, ERROR_INTERNAL, "out of memory for template %s", order->name);
		return NULL;
	}
	*job = (struct template_job){.store = store,
		.config = config,
		.events = events,
		.context = context,
		.slot = order->slot,
		.rehearsals = order->rehearsals,
		.room = order->room,
		.folder = -1,
		.disk = -1,
		.mkfs = order->mkfs,
		.build = {.commands = order->commands,
			.count = order->count,
			.command_timeout_ms = TEMPLATE_COMMAND_TIMEOUT_MS,
			.state = -1,
			.memory = -1,
			.context = job,
			.output = take_output,
			.has_room = has_room,
			.step = step,
			.saved = saved},
		.started_ns = clock_now()};
	snprintf(job->name, sizeof job->name, "%s", order->name);
	return job;
}

static int open_files(struct template_job *job)
{
	int status = template_store_begin(job->store, job->name, job->folder_name, &job->folder);

	if (status)
		return status;
	job->build.state = openat(job->folder, "state", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	job->build.memory = openat(job->folder, "memory", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (job->build.state < 0 || job->build.memory < 0)
		return -errno;
	if (!job->source.disk_bytes)
		return 0;
	job->disk = openat(job->folder, TEMPLATE_DISK, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	snprintf(job->disk_path, sizeof job->disk_path, "/proc/self/fd/%d", job->disk);
	job->source.disk = (struct vm_file){job->disk_path, "(the disk of the template)"};
	return job->disk < 0 ? -errno : 0;
}

static void make_disk(void *context)
{
	struct template_job *job = context;

	job->work_status = template_disk_make(job->disk, job->source.disk_bytes, job->mkfs, job->work_cause);
}

static void disk_made(void *context)
{
	struct template_job *job = context;

	if (job->work_status)
		set_failed(job, job->work_status, job->work_cause);
	if (job->error.kind || start_vm(job, &job->source, &job->build))
		finish(job);
}

/* The disk takes a while. */
static int begin_build(struct template_job *job)
{
	int status;

	if (job->disk < 0)
		return start_vm(job, &job->source, &job->build);
	status = worker_start(job->config->loop, make_disk, disk_made, job);
	if (status)
		set_failed_status(job, status);
	return status;
}

int template_build(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct template_job **out, struct error *error)
{
	struct template_job *job = create(store, config, order, events, context, error);
	json_t *inputs = NULL;
	int status;

	if (job)
		inputs = template_inputs(config, order->source, order->commands, order->count, error);
	if (!inputs) {
		free(job);
		return -EINVAL;
	}
	job->source = *order->source;
	job->source.cid = TEMPLATE_CID;
	/* What its lines prepare is in its memory, or on the disk. */
	job->about = json_pack("{s:i,s:s,s:o,s:I,s:b,s:o}", "format", TEMPLATE_FORMAT, "name", job->name,
		"generation", template_new_generation(), "created_ms", (json_int_t)clock_wall_ms(),
		TEMPLATE_BOOTS, (int)(!order->count || order->source->disk_bytes), "inputs", inputs);
	status = job->about ? open_files(job) : -ENOMEM;
	if (status)
		set_failed_status(job, status);
	else
		status = begin_build(job);
	if (status) {
		*error = job->error;
		free_job(job);
		return status;
	}
	*out = job;
	return 0;
}

/* --- of a guest that was saved --- */

static void take_files(void *context)
{
	struct template_job *job = context;

	job->work_status = template_files_take(job->from, job->folder, &job->sum_stop, &job->work_name);
}

static void files_taken(void *context)
{
	struct template_job *job = context;
	const int status = job->work_status;

	if (status) {
		snprintf(job->work_cause, sizeof job->work_cause, "copying its %s: %s", job->work_name,
			status == -EBADMSG ? "it has another size than it was saved with"
					   : strerror(-status));
		set_failed(job, status, job->work_cause);
	}
	if (job->error.kind || begin_check(job))
		finish(job);
}

int template_make(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct template_job **out, struct error *error)
{
	struct template_job *job = create(store, config, order, events, context, error);
	int status = job ? 0 : -ENOMEM;

	if (!job)
		return status;
	job->from = order->saved;
	job->about = json_incref(order->saved->about);
	status = template_store_begin(job->store, job->name, job->folder_name, &job->folder);
	if (!status)
		status = worker_start(config->loop, take_files, files_taken, job);
	if (!status) {
		*out = job;
		return 0;
	}
	set_failed_status(job, status);
	*error = job->error;
	free_job(job);
	return status;
}

int template_fetch(struct template_store *store, const struct vm_config *config,
	const struct template_order *order, const struct template_events *events, void *context,
	struct template_job **out, struct error *error)
{
	struct template_job *job = create(store, config, order, events, context, error);
	int status =
		job ? template_store_read(store, order->name, &job->folder, &job->about, error) : -ENOMEM;

	if (!status) {
		job->loading = true;
		status = begin_check(job);
		if (status)
			*error = job->error;
	}
	if (!status)
		*out = job;
	else if (job)
		free_job(job);
	return status;
}

void template_job_cancel(struct template_job *job, const char *cause)
{
	set_failed(job, 0, cause);
	atomic_store(&job->sum_stop, true);
	if (job->vm)
		vm_end(job->vm, cause);
}

void template_job_continue(struct template_job *job)
{
	if (job->vm)
		vm_build_continue(job->vm);
}

const struct vm *template_job_vm(const struct template_job *job)
{
	return job->vm;
}
