/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of a whole daemon: made, asked, and what is expected of them. */
#ifndef TESTS_UNIT_HOSTCTL_SANDBOXES_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_SANDBOXES_FIXTURE_H

#include "tests/unit/hostctl_stream_fixture.h"

enum { SANDBOX_PATH_MAX = 256 };

/* One that was created with this body; its id. */
static inline void create_sandbox(const struct daemon *daemon, const char *body, char id[32])
{
	struct answer answer;

	call(daemon, "POST", "/v1/sandboxes", body, &answer);
	assert_int_equal(answer.status, 201);
	snprintf(id, 32, "%s", json_string_value(json_object_get(answer.json, "id")));
	assert_string_equal(member(&answer, "state"), "\"ready\"");
	answer_finish(&answer);
}

/* A daemon whose vmm plays so, and the sandbox in it. */
static inline void start_sandbox(struct daemon *daemon, const char *script, char *const *options, char id[32])
{
	daemon_start(daemon, script, options);
	create_sandbox(daemon, "{}", id);
}

/* A request to a sandbox; rest: of the path, after the id. */
static inline void call_sandbox(const struct daemon *daemon, const char *method, const char *id,
	const char *rest, const char *body, struct answer *answer)
{
	char path[SANDBOX_PATH_MAX + 64];

	snprintf(path, sizeof path, "/v1/sandboxes/%.40s%s", id, rest);
	call(daemon, method, path, body, answer);
}

static inline void expect_error_answer(
	struct answer *answer, int status, const char *code, const char *message)
{
	assert_int_equal(answer->status, status);
	assert_string_equal(error_member(answer, "code"), code);
	assert_string_equal(error_member(answer, "message"), message);
	answer_finish(answer);
}

static inline void expect_refusal_of(const struct daemon *daemon, const char *method, const char *id,
	const char *rest, const char *body, int status, const char *code, const char *message)
{
	struct answer answer;

	call_sandbox(daemon, method, id, rest, body, &answer);
	expect_error_answer(&answer, status, code, message);
}

/* Waits until it is in that state. */
static inline void await_state(const struct daemon *daemon, const char *id, const char *wanted)
{
	char last[64] = "";

	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		struct answer answer;

		call_sandbox(daemon, "GET", id, "", NULL, &answer);
		assert_int_equal(answer.status, 200);
		snprintf(last, sizeof last, "%s", json_string_value(json_object_get(answer.json, "state")));
		answer_finish(&answer);
		if (!strcmp(last, wanted))
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("sandbox %s stayed %s, wanted %s", id, last, wanted);
}

static inline void expect_reason(const struct daemon *daemon, const char *id, const char *reason)
{
	struct answer answer;

	call_sandbox(daemon, "GET", id, "", NULL, &answer);
	assert_string_equal(json_string_value(json_object_get(answer.json, "reason")), reason);
	answer_finish(&answer);
}

/* Threads of that process that have marked themselves so (fake_mark). */
static inline int count_marked(long pid, const char *name)
{
	char path[64];
	DIR *listing;
	struct dirent *entry;
	int count = 0;

	snprintf(path, sizeof path, "/proc/%ld/task", pid);
	listing = opendir(path);
	while (listing && (entry = readdir(listing))) {
		char file[sizeof path + sizeof entry->d_name + 8], line[32] = "";
		FILE *comm;

		snprintf(file, sizeof file, "%s/%s/comm", path, entry->d_name);
		comm = entry->d_name[0] == '.' ? NULL : fopen(file, "re");
		if (!comm)
			continue;
		if (fgets(line, sizeof line, comm))
			line[strcspn(line, "\n")] = '\0';
		count += !strcmp(line, name);
		fclose(comm);
	}
	if (listing)
		closedir(listing);
	return count;
}

/* Waits until so many threads of the daemon's VMs have come there: what was asked of the daemon has reached a
 * guest. */
static inline void await_mark(const struct daemon *daemon, const char *name, int wanted)
{
	int found = 0;

	for (int waited = 0; waited < WAIT_MS && found != wanted; waited += POLL_MS) {
		struct answer answer;
		const json_t *vm;
		size_t i;

		call(daemon, "GET", "/v1/pool", NULL, &answer);
		found = 0;
		json_array_foreach(json_object_get(answer.json, "vms"), i, vm)
		{
			found += count_marked((long)json_integer_value(json_object_get(vm, "pid")), name);
		}
		answer_finish(&answer);
		sleep_ms(found == wanted ? 0 : POLL_MS);
	}
	assert_int_equal(found, wanted);
}

/* What takes no body, and the state that comes of it. */
static inline void ask_sandbox(
	const struct daemon *daemon, const char *id, const char *verb, const char *wanted)
{
	struct answer answer;
	char rest[64];

	snprintf(rest, sizeof rest, "/%s", verb);
	call_sandbox(daemon, "POST", id, rest, NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(json_string_value(json_object_get(answer.json, "state")), wanted);
	answer_finish(&answer);
}

/* Waits until the operation of a 202 is over; the code of its error, or "none". */
static inline void await_operation(const struct daemon *daemon, struct answer *created, const char *kind,
	const char *wanted, char id[32], char code[64])
{
	const json_t *operation = json_object_get(created->json, "operation");
	char path[SANDBOX_PATH_MAX];
	struct answer answer;
	const char *now = "";

	assert_int_equal(created->status, 202);
	assert_string_equal(json_string_value(json_object_get(operation, "kind")), kind);
	snprintf(id, 32, "%s", json_string_value(json_object_get(operation, "sandbox")));
	snprintf(path, sizeof path, "/v1/operations/%s", json_string_value(json_object_get(operation, "id")));
	answer_finish(created);
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		call(daemon, "GET", path, NULL, &answer);
		assert_int_equal(answer.status, 200);
		operation = json_object_get(answer.json, "operation");
		now = json_string_value(json_object_get(operation, "state"));
		if (strcmp(now, "running") != 0)
			break;
		answer_finish(&answer);
		sleep_ms(POLL_MS);
	}
	assert_string_equal(now, wanted);
	now = json_string_value(json_object_get(json_object_get(operation, "error"), "code"));
	snprintf(code, 64, "%s", now ? now : "none");
	answer_finish(&answer);
}

static inline void delete_sandbox(const struct daemon *daemon, const char *id)
{
	struct answer answer;

	call_sandbox(daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "verified"), "true");
	answer_finish(&answer);
}

#endif
