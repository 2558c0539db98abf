/* SPDX-License-Identifier: Apache-2.0 */
/* Daemons that are killed and started again, and what they know of their sandboxes. */
#ifndef TESTS_UNIT_HOSTCTL_RECOVERY_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_RECOVERY_FIXTURE_H

#include "tests/unit/hostctl_attach_fixture.h"
#include <sqlite3.h>

static char *const pool_of_two[] = {"--pool", "2", NULL};

static inline void kill_daemon(struct daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	assert_int_equal(daemon_wait(daemon), 128 + SIGKILL);
}

static inline void restart(struct daemon *daemon)
{
	kill_daemon(daemon);
	daemon_launch(daemon, "boot", pool_of_two, true);
}

/* The text of one field of a sandbox; static until the next call. */
static inline const char *field(const struct daemon *daemon, const char *id, const char *name)
{
	static char text[4096];
	struct answer answer;

	call_sandbox(daemon, "GET", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	snprintf(text, sizeof text, "%s", member(&answer, name));
	answer_finish(&answer);
	return text;
}

static inline long pid_of_vm(const struct daemon *daemon, const char *vm)
{
	struct answer answer;
	const json_t *one;
	long pid = -1;
	size_t i;

	call(daemon, "GET", "/v1/pool", NULL, &answer);
	json_array_foreach(json_object_get(answer.json, "vms"), i, one)
	{
		if (!strcmp(json_string_value(json_object_get(one, "id")), vm))
			pid = (long)json_integer_value(json_object_get(one, "pid"));
	}
	answer_finish(&answer);
	return pid;
}

static inline void vm_of(const struct daemon *daemon, const char *id, char vm[32])
{
	snprintf(vm, 32, "%.31s", field(daemon, id, "vm") + 1);
	vm[strcspn(vm, "\"")] = '\0';
}

/* An end is written some time later; but before what is promised after it. */
static inline void flush_rows(const struct daemon *daemon, const char *id)
{
	struct command command;

	create_command(daemon, id, "{\"argv\":[\"exit\",\"0\"]}", &command);
}

/* A sandbox of a daemon whose vmm plays so, and a command in it that was started and whose client left. */
static inline void start_left(
	struct daemon *daemon, const char *script, const char *body, char id[32], struct command *command)
{
	struct stream stream;

	start_sandbox(daemon, script, pool_of_two, id);
	start_attached(daemon, id, body, command, &stream);
	close_stream(&stream);
}

/* That of a daemon that has ended. */
static inline sqlite3 *open_journal(const struct daemon *daemon)
{
	char path[128];
	sqlite3 *db;

	snprintf(path, sizeof path, "%s/journal.db", daemon->state);
	assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
	return db;
}

/* A statement on it. */
static inline void change_journal(const struct daemon *daemon, const char *statement)
{
	sqlite3 *db = open_journal(daemon);

	assert_int_equal(sqlite3_exec(db, statement, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

#endif
