/* SPDX-License-Identifier: Apache-2.0 */
/* Forks of a whole daemon: asked for, read, and what is in the state folder. */
#ifndef TESTS_UNIT_HOSTCTL_FORK_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_FORK_FIXTURE_H

#include "host-ctl/support/file_copy.h"
#include "tests/unit/hostctl_suspend_fixture.h"

#include <sys/statvfs.h>

enum { CHILDREN_MAX = 8 };

/* A fork as it was answered. */
struct forked {
	struct answer answer;
	unsigned int made, refused;
	char ids[CHILDREN_MAX][32];
};

static inline void read_fork(struct forked *forked)
{
	json_t *child;
	size_t i;

	assert_int_equal(forked->answer.status, 201);
	forked->made = forked->refused = 0;
	json_array_foreach(json_object_get(forked->answer.json, "children"), i, child)
	{
		const json_t *sandbox = json_object_get(child, "sandbox");

		assert_int_equal(json_object_size(child), 1);
		if (!sandbox) {
			assert_non_null(json_object_get(child, "error"));
			forked->refused++;
			continue;
		}
		assert_string_equal(json_string_value(json_object_get(sandbox, "state")), "ready");
		snprintf(forked->ids[forked->made++], 32, "%s",
			json_string_value(json_object_get(sandbox, "id")));
	}
}

static inline void fork_sandbox(
	const struct daemon *daemon, const char *id, const char *body, struct forked *forked)
{
	call_sandbox(daemon, "POST", id, "/fork", body, &forked->answer);
	read_fork(forked);
}

static inline long pause_us(const struct forked *forked)
{
	return (long)json_integer_value(json_object_get(forked->answer.json, "pause_us"));
}

/* The message of the nth child's error, whose code is that. */
static inline void expect_child_error(
	const struct forked *forked, size_t child, const char *code, const char *message)
{
	const json_t *error = json_object_get(
		json_array_get(json_object_get(forked->answer.json, "children"), child), "error");

	assert_string_equal(json_string_value(json_object_get(error, "code")), code);
	assert_string_equal(json_string_value(json_object_get(error, "message")), message);
}

static inline void delete_all(const struct daemon *daemon, struct forked *forked)
{
	for (unsigned int i = 0; i < forked->made; i++) {
		delete_sandbox(daemon, forked->ids[i]);
		assert_false(sandbox_has_file(daemon, forked->ids[i], ""));
	}
	answer_finish(&forked->answer);
}

/* Folders of sandboxes, or of forks. */
static inline int count_folders(const struct daemon *daemon, const char *prefix)
{
	char path[160];

	snprintf(path, sizeof path, "%s/sandboxes", daemon->state);
	return count_entries(path, prefix);
}

static inline void start_one(struct daemon *daemon, const char *script, const char *body, char id[32])
{
	start_with_templates_and(daemon, script, pool_of_one);
	create_sandbox(daemon, body, id);
}

/* What is to be done with it is asked for: who asked gets its answer from the fd. */
static inline int begin_with(const struct daemon *daemon, const char *id, const char *what, const char *body)
{
	char path[SANDBOX_PATH_MAX];
	int fd = client_open(daemon);

	snprintf(path, sizeof path, "/v1/sandboxes/%s/%s", id, what);
	client_request(fd, "POST", path, "", body);
	return fd;
}

static inline int begin_fork(const struct daemon *daemon, const char *id, const char *body)
{
	return begin_with(daemon, id, "fork", body);
}

/* The next daemon keeps free all but so much of what is left now. False: copies take no room here. */
static inline bool leave_room(struct daemon *daemon, const char *id, unsigned int mib)
{
	char path[160], reserve[32];
	char *const options[] = {"--pool", "1", "--disk-reserve", reserve, NULL};
	struct statvfs disk;
	bool shares;
	int fd;

	kill_daemon(daemon);
	daemon->keep_kernel = true;
	sandbox_file(daemon, id, "upper", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	shares = file_copy_shares(fd, daemon->state);
	close(fd);
	assert_int_equal(statvfs(daemon->state, &disk), 0);
	snprintf(reserve, sizeof reserve, "%lluM",
		(unsigned long long)(((uint64_t)disk.f_bavail * disk.f_frsize >> 20) - mib));
	daemon_launch(daemon, "", options, true);
	await_state(daemon, id, "ready");
	return !shares;
}

#endif
