/* SPDX-License-Identifier: Apache-2.0 */
/* Templates that are made of sandboxes of a whole daemon: asked for, read, and what is in the state folder.
 */
#ifndef TESTS_UNIT_HOSTCTL_SNAPSHOT_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_SNAPSHOT_FIXTURE_H

#include "tests/unit/hostctl_fork_fixture.h"

static const char frozen[] = "{\"name\":\"frozen\"}", of_frozen[] = "{\"template\":\"frozen\"}",
		  frozen_path[] = "/v1/templates/frozen";

/* One was made of it, as it was answered. */
static inline void expect_made(const struct answer *answer, const char *name)
{
	const json_t *template = json_object_get(answer->json, "template");

	assert_int_equal(answer->status, 201);
	assert_int_equal(json_object_size(answer->json), 2);
	assert_true(json_integer_value(json_object_get(answer->json, "pause_us")) > 0);
	assert_string_equal(json_string_value(json_object_get(template, "name")), name);
	assert_string_equal(json_string_value(json_object_get(template, "state")), "ready");
}

static inline void snapshot(const struct daemon *daemon, const char *id, const char *name)
{
	struct answer answer;
	char body[96];

	snprintf(body, sizeof body, "{\"name\":\"%s\"}", name);
	call_sandbox(daemon, "POST", id, "/snapshot", body, &answer);
	expect_made(&answer, name);
	answer_finish(&answer);
}

static inline int begin_snapshot(const struct daemon *daemon, const char *id, const char *body)
{
	return begin_with(daemon, id, "snapshot", body);
}

/* Nothing of one is there, nor half of it. */
static inline void expect_none_made(const struct daemon *daemon)
{
	struct answer answer;

	call(daemon, "GET", frozen_path, NULL, &answer);
	assert_int_equal(answer.status, 404);
	answer_finish(&answer);
	assert_int_equal(count_folders(daemon, "fk-"), 0);
	assert_int_equal(count_templates(daemon, ".building-"), 0);
	assert_int_equal(count_templates(daemon, "frozen"), 0);
}

/* Whether its guest has noted its files since it was restored. */
static inline void expect_noted(const struct daemon *daemon, const char *id, bool noted)
{
	struct answer answer;

	call_sandbox(daemon, "POST", id, "/run", "{\"argv\":[\"noted\"]}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(
		member(&answer, "stdout"), noted ? "{\"data\":\"yes\\n\",\"bytes\":4,\"dropped\":0}"
						 : "{\"data\":\"no\\n\",\"bytes\":3,\"dropped\":0}");
	answer_finish(&answer);
}

/* A sandbox of it goes on from there. */
static inline void expect_clone(const struct daemon *daemon, int lives)
{
	char id[32];

	create_sandbox(daemon, of_frozen, id);
	expect_lives(daemon, id, lives);
	expect_noted(daemon, id, true);
	delete_sandbox(daemon, id);
}

static inline void remove_frozen(const struct daemon *daemon)
{
	await_vms(daemon, "frozen", 0);
	succeed(daemon, "DELETE", frozen_path, NULL);
}

#endif
