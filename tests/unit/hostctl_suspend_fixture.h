/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes that are suspended and woken, with a vmm that only plays, and what is in their folders. */
#ifndef TESTS_UNIT_HOSTCTL_SUSPEND_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_SUSPEND_FIXTURE_H

#include "host-ctl/journal/journal_sandboxes.h"
#include "tests/unit/hostctl_recovery_fixture.h"
#include "tests/unit/hostctl_sandbox_files.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

/* Files of its folder, by their number. */
static inline void expect_saved(const struct daemon *daemon, const char *id, int files)
{
	char path[192];

	sandbox_file(daemon, id, "", path);
	assert_int_equal(count_entries(path, "") - 2, files);
	assert_int_equal(sandbox_file_status(daemon, id, "").st_mode & 07777, 0700);
	assert_true(sandbox_has_file(daemon, id, "state"));
	assert_true(sandbox_has_file(daemon, id, "memory"));
	assert_true(sandbox_has_file(daemon, id, "image"));
	assert_true(sandbox_has_file(daemon, id, "saved.json"));
}

/* It cannot be restored: nothing is there that it was, and nothing half. */
static inline void expect_none_saved(const struct daemon *daemon, const char *id)
{
	static const char *const names[] = {
		"state", "pages", "state.new", "pages.new", "memory.new", "image.new", "saved.json.new"};

	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		assert_false(sandbox_has_file(daemon, id, names[i]));
}

/* How often its guest was saved, that of its template among it. */
static inline void expect_lives(const struct daemon *daemon, const char *id, int lives)
{
	struct answer answer;
	char wanted[96];

	call_sandbox(daemon, "POST", id, "/run", "{\"argv\":[\"lives\"]}", &answer);
	assert_int_equal(answer.status, 200);
	snprintf(wanted, sizeof wanted, "{\"data\":\"%d\\n\",\"bytes\":%d,\"dropped\":0}", lives,
		lives < 10 ? 2 : 3);
	assert_string_equal(member(&answer, "stdout"), wanted);
	answer_finish(&answer);
}

static inline void suspend(const struct daemon *daemon, const char *id)
{
	ask_sandbox(daemon, id, "suspend", "suspended");
	assert_string_equal(field(daemon, id, "vm"), "null");
	assert_string_equal(field(daemon, id, "reason"), "null");
}

static inline void wake(const struct daemon *daemon, const char *id)
{
	ask_sandbox(daemon, id, "wake", "ready");
	expect_none_saved(daemon, id);
}

static inline void terminate(struct daemon *daemon)
{
	assert_int_equal(kill(daemon->pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(daemon), 0);
	daemon->keep_kernel = true;
}

/* The next one, after a kill. */
static inline void start_again(struct daemon *daemon)
{
	kill_daemon(daemon);
	daemon->keep_kernel = true;
	daemon_launch(daemon, "", pool_of_one, true);
}

/* What sandboxes that were not deleted leave. */
static inline void remove_saved(const struct daemon *daemon)
{
	char path[192];
	DIR *listing;
	struct dirent *entry;

	snprintf(path, sizeof path, "%s/sandboxes", daemon->state);
	listing = opendir(path);
	while (listing && (entry = readdir(listing))) {
		if (entry->d_name[0] == '.')
			continue;
		sandbox_file(daemon, entry->d_name, "", path);
		remove_folder(path);
	}
	if (listing)
		closedir(listing);
	snprintf(path, sizeof path, "%s/sandboxes", daemon->state);
	rmdir(path);
}

/* As the journal of a daemon has it that runs: by a copy, for it has the only lock. */
static inline int row_state(const struct daemon *daemon, const char *id)
{
	char command[512], path[160], query[128];
	sqlite3_stmt *row = NULL;
	int state = -1;
	sqlite3 *db;

	snprintf(command, sizeof command, "cd %s && cp journal.db copy.db && cp journal.db-wal copy.db-wal",
		daemon->state);
	assert_int_equal(system(command), 0);
	snprintf(path, sizeof path, "%s/copy.db", daemon->state);
	snprintf(query, sizeof query, "SELECT state FROM sandboxes WHERE id = '%.40s'", id);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	assert_int_equal(sqlite3_prepare_v2(db, query, -1, &row, NULL), SQLITE_OK);
	if (sqlite3_step(row) == SQLITE_ROW)
		state = sqlite3_column_int(row, 0);
	sqlite3_finalize(row);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
	snprintf(command, sizeof command, "rm -f %s/copy.db*", daemon->state);
	assert_int_equal(system(command), 0);
	return state;
}

/* The cgroup of a VM cannot be removed, so that something is left of it when its process is reaped... */
static inline void hold_group(const struct daemon *daemon, const char *vm)
{
	char path[192];

	snprintf(path, sizeof path, "%s/%.32s/held", daemon->cgroups, vm);
	assert_int_equal(mkdir(path, 0755), 0);
}

/* ...until now: whoever watches it sees a process come and go. */
static inline void release_group(const struct daemon *daemon, const char *vm)
{
	char path[192];
	int status = -1;
	pid_t pid;

	snprintf(path, sizeof path, "%s/%.32s/held", daemon->cgroups, vm);
	assert_int_equal(rmdir(path), 0);
	snprintf(path, sizeof path, "%s/%.32s/cgroup.procs", daemon->cgroups, vm);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		int fd = open(path, O_WRONLY | O_CLOEXEC);

		_exit(fd < 0 || write(fd, "0", 1) != 1);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* It stays in that state for so long. */
static inline void expect_stays(
	const struct daemon *daemon, const char *id, const char *state, int milliseconds)
{
	for (int waited = 0; waited < milliseconds; waited += POLL_MS) {
		assert_string_equal(field(daemon, id, "state"), state);
		sleep_ms(POLL_MS);
	}
}

/* Its VM has a name: it is there, and is being woken. */
static inline void await_vm(const struct daemon *daemon, const char *id, char vm[32])
{
	for (int waited = 0; !strcmp(field(daemon, id, "vm"), "null"); waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	vm_of(daemon, id, vm);
}

static inline void finish(struct daemon *daemon)
{
	daemon_stop(daemon);
	remove_saved(daemon);
	remove_state(daemon);
}

#endif
