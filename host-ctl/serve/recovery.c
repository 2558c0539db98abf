/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/serve/recovery.h"
#include "common/io.h"
#include "common/log.h"
#include "host-ctl/sandbox/commands.h"
#include "host-ctl/serve/state_claim.h"
#include "host-ctl/support/process.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

/* Its process is the one that was written down. */
static bool is_there(const struct journal_sandbox *row)
{
	uint64_t ticks;

	return row->this_boot && process_start_time(row->pid, &ticks) == 0 && ticks == row->start_ticks;
}

/* And is not about to be removed. */
static bool may_live(const struct journal_sandbox *row)
{
	return row->state == JOURNAL_SANDBOX_LIVES && is_there(row);
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

/* The cgroup of v2, from the root of its mount, that holds the process's own. False: not known. */
static bool read_parent_cgroup(pid_t pid, char cgroup[PATH_MAX])
{
	char path[32], text[2 * PATH_MAX], *start, *end;
	int fd;
	ssize_t length;

	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	length = fd < 0 ? -1 : io_read_full(fd, text, sizeof text - 1);
	fd_close(&fd);
	text[length > 0 ? length : 0] = '\0';
	start = !strncmp(text, "0::", 3) ? text : strstr(text, "\n0::");
	start = start ? strchr(start, '/') : NULL;
	if (!start)
		return false;
	start[strcspn(start, "\n")] = '\0';
	end = strrchr(start, '/');
	*end = '\0';
	return snprintf(cgroup, PATH_MAX, "%s", start) < PATH_MAX;
}

/* Where the cgroups are mounted that the root is of. */
static void find_mount(const char *cgroup_root, char mount[PATH_MAX])
{
	char parent[PATH_MAX];
	struct statfs fs;

	if (!realpath(cgroup_root, mount))
		mount[0] = '\0';
	snprintf(parent, sizeof parent, "%s", mount);
	while (strlen(dirname(parent)) > 1 && statfs(parent, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC)
		snprintf(mount, PATH_MAX, "%s", parent);
}

static int fail_elsewhere(const struct journal_sandbox *row, const char *cgroup_root, struct error *error)
{
	char mount[PATH_MAX], cgroup[PATH_MAX], root[2 * PATH_MAX];

	if (!read_parent_cgroup(row->pid, cgroup)) {
		error_set(error, ERROR_CONFLICT,
			"the VM of sandbox %s (pid %d), which an earlier daemon left, is not in the cgroup "
			"root "
			"%.128s: start with the --cgroup-root that it had, or end it",
			row->id, (int)row->pid, cgroup_root);
		return -EBUSY;
	}
	find_mount(cgroup_root, mount);
	snprintf(root, sizeof root, "%s%s", mount, cgroup);
	error_set(error, ERROR_CONFLICT,
		"the VM of sandbox %s (pid %d) and others that an earlier daemon left are not in the cgroup "
		"root "
		"%.96s: start with --cgroup-root %.200s",
		row->id, (int)row->pid, cgroup_root, root);
	state_claim_add_end(error, root);
	return -EBUSY;
}

int recovery_check(const struct recovery *recovery, const struct cgroup_tree *cgroups,
	const char *cgroup_root, struct error *error)
{
	for (unsigned int i = 0; i < recovery->count; i++) {
		const struct journal_sandbox *row = &recovery->rows[i];
		int group = cgroup_open(cgroups, row->vm);

		if (group < 0 && is_there(row))
			return fail_elsewhere(row, cgroup_root, error);
		fd_close(&group);
	}
	return 0;
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
