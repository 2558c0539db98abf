/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/serve/recovery.h"
#include "common/log.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/support/process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Its process is the one that was written down, and is not about to be removed. */
static bool may_live(const struct journal_sandbox *row)
{
	uint64_t ticks;

	return row->state == JOURNAL_SANDBOX_LIVES && row->this_boot &&
	       process_start_time(row->pid, &ticks) == 0 && ticks == row->start_ticks;
}

int recovery_read(struct recovery *recovery, struct journal *journal, struct error *error)
{
	int count = journal_sandboxes_read(journal, recovery->rows, SANDBOXES_MAX, error);

	if (count < 0)
		return count;
	recovery->count = (unsigned int)count;
	for (unsigned int i = 0; i < recovery->count; i++)
		recovery->lives[i] = may_live(&recovery->rows[i]);
	count = journal_commands_read(journal, COMMANDS_ALL_MAX, &recovery->commands, error);
	recovery->command_count = count < 0 ? 0 : count;
	return count < 0 ? count : 0;
}

void recovery_finish(struct recovery *recovery)
{
	for (unsigned int i = 0; i < recovery->count; i++)
		free(recovery->rows[i].spec);
	journal_commands_free(recovery->commands, recovery->command_count);
	recovery->count = 0;
	recovery->commands = NULL;
	recovery->command_count = 0;
}

bool recovery_keeps(const void *context, const char *name)
{
	const struct recovery *recovery = context;

	for (unsigned int i = 0; i < recovery->count; i++)
		if (recovery->lives[i] && !strcmp(recovery->rows[i].vm, name))
			return true;
	return false;
}

/* Those of one that is being deleted go. */
static bool keeps_files(const void *context, const char *id)
{
	const struct recovery *recovery = context;

	for (unsigned int i = 0; i < recovery->count; i++)
		if (recovery->rows[i].state != JOURNAL_SANDBOX_DELETING && !strcmp(recovery->rows[i].id, id))
			return true;
	return false;
}

void recovery_sweep_files(const struct recovery *recovery, const char *state_directory)
{
	sandbox_files_sweep(state_directory, keeps_files, recovery);
}

bool recovery_knows(const struct recovery *recovery, const char *name)
{
	for (unsigned int i = 0; i < recovery->count; i++)
		if (!strcmp(recovery->rows[i].vm, name))
			return true;
	return false;
}

/* Of the template that it was cloned from. */
static struct pool *pool_of(const struct journal_sandbox *row, struct templates *templates)
{
	json_t *spec = json_loads(row->spec, JSON_REJECT_DUPLICATES, NULL);
	const char *name = json_string_value(json_object_get(spec, "template"));
	struct pool *pool = templates_pool_of_found(templates, name ? name : "");

	json_decref(spec);
	return pool;
}

/* NULL: it is not to be had, and nothing is left of it. */
static struct vm *take_back(
	const struct journal_sandbox *row, struct templates *templates, struct cgroup_tree *cgroups)
{
	struct pool *pool = pool_of(row, templates);
	struct vm_found found = {
		.id = row->vm, .pid = row->pid, .start_ticks = row->start_ticks, .slot = row->slot};
	struct vm *vm = NULL;
	struct error error;
	int status;

	if (pool_take_back(pool, &found, row->seat, &vm, &error) == 0)
		return vm;
	log_warn("%s", error.message);
	status = cgroup_end(cgroups, row->vm);
	if (status)
		log_error("cannot remove the leftover cgroup %s: %s", row->vm, strerror(-status));
	return NULL;
}

/* Those of sandboxes that are gone went with them. */
static void restore_commands(struct recovery *recovery, struct sandboxes *sandboxes)
{
	for (int i = 0; i < recovery->command_count; i++) {
		struct journal_command *row = &recovery->commands[i];
		struct error error;
		struct sandbox *sandbox = sandboxes_find(sandboxes, row->sandbox, &error);

		if (sandbox && sandbox->state != SANDBOX_GONE && command_restore(sandbox, row, &error))
			log_error("command %s is lost: %s", row->id, error.message);
	}
}

void recovery_apply(struct recovery *recovery, struct sandboxes *sandboxes, struct templates *templates,
	struct cgroup_tree *cgroups)
{
	unsigned int taken = 0;

	for (unsigned int i = 0; i < recovery->count; i++) {
		const struct journal_sandbox *row = &recovery->rows[i];
		struct vm *vm = recovery->lives[i] ? take_back(row, templates, cgroups) : NULL;
		struct error error;

		taken += vm != NULL;
		if (sandbox_restore(sandboxes, row, vm, &error) == 0)
			continue;
		log_error("sandbox %s is lost: %s", row->id, error.message);
		if (vm)
			vm_end(vm, "its sandbox is lost");
	}
	restore_commands(recovery, sandboxes);
	if (recovery->count)
		log_info("of %u sandboxes that an earlier daemon left, %u are taken back", recovery->count,
			taken);
}
