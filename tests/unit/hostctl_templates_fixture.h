/* SPDX-License-Identifier: Apache-2.0 */
/* A daemon with a template "tools" on its disk, and what state that is in. */
#ifndef TESTS_UNIT_HOSTCTL_TEMPLATES_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_TEMPLATES_FIXTURE_H

#include "tests/unit/hostctl_fixture.h"

static char *const pool_of_one[] = {"--pool", "1", NULL};

static inline void expect_state(
	const struct daemon *daemon, const char *name, const char *wanted, const char *reason)
{
	struct answer answer;
	char path[64];

	snprintf(path, sizeof path, "/v1/templates/%s", name);
	call(daemon, "GET", path, NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(json_string_value(json_object_get(answer.json, "state")), wanted);
	if (reason)
		assert_string_equal(json_string_value(json_object_get(answer.json, "reason")), reason);
	answer_finish(&answer);
}

static inline void stop(struct daemon *daemon)
{
	assert_int_equal(kill(daemon->pid, SIGTERM), 0);
	assert_int_equal(daemon_wait(daemon), 0);
}

static inline void remove_template(const struct daemon *daemon, const char *name, int wanted)
{
	char path[128];
	struct answer answer;

	snprintf(path, sizeof path, "/v1/templates/%s", name);
	call(daemon, "DELETE", path, NULL, &answer);
	assert_int_equal(answer.status, wanted);
	answer_finish(&answer);
}

/* Built by one daemon, and on the disk of the next, which this starts. */
static inline void start_with_stored(struct daemon *daemon, char *const *options)
{
	start_with_templates_and(daemon, "boot", pool_of_one);
	succeed(daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	stop(daemon);
	daemon->keep_kernel = true;
	if (options)
		daemon_launch(daemon, "", options, false);
}

static inline void finish(struct daemon *daemon)
{
	succeed(daemon, "DELETE", "/v1/templates/tools", NULL);
	daemon_stop(daemon);
	remove_state(daemon);
}

#endif
