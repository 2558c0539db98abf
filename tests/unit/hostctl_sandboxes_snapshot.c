/* SPDX-License-Identifier: Apache-2.0 */
/* Templates that are made of sandboxes: what their clones are, what the sandbox is meanwhile, and each that
 * does not come about. */
#include "host-ctl/pool/templates.h"
#include "tests/unit/hostctl_snapshot_fixture.h"

static const json_t *of_template(struct answer *answer, const struct daemon *daemon, const char *object)
{
	call(daemon, "GET", frozen_path, NULL, answer);
	assert_int_equal(answer->status, 200);
	return json_object_get(answer->json, object);
}

/* What is told of it, and what it is not told any more. */
static void expect_about(const struct daemon *daemon, const char *id)
{
	struct answer answer;
	const json_t *snapshot = of_template(&answer, daemon, "snapshot"),
		     *inputs = json_object_get(answer.json, "inputs");

	assert_string_equal(json_string_value(json_object_get(snapshot, "sandbox")), id);
	assert_string_equal(json_string_value(json_object_get(snapshot, "template")), "base");
	assert_true(json_integer_value(json_object_get(snapshot, "pause_us")) > 0);
	assert_int_equal(json_integer_value(json_object_get(inputs, "cid")), 3);
	assert_int_equal(json_array_size(json_object_get(inputs, "run")), 0);
	assert_non_null(json_object_get(inputs, "image"));
	assert_null(json_object_get(inputs, "kernel"));
	assert_null(json_object_get(inputs, "disk_bytes"));
	assert_int_equal(json_integer_value(json_object_get(answer.json, "memory_bytes")), 4096);
	answer_finish(&answer);
}

/* Needs nothing of the sandbox, nor of the daemon that made it. */
static void test_a_template(void **state)
{
	struct daemon daemon;
	char id[32], vm[32], other[32];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	vm_of(&daemon, id, vm);
	expect_lives(&daemon, id, 1);
	snapshot(&daemon, id, "frozen");
	expect_lives(&daemon, id, 2);
	/* Its list of changes goes on. */
	expect_noted(&daemon, id, false);
	vm_of(&daemon, id, other);
	assert_string_equal(vm, other);
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	assert_false(sandbox_has_file(&daemon, id, "copying"));
	expect_none_saved(&daemon, id);
	expect_about(&daemon, id);
	assert_int_equal(metric(&daemon, "tinderbox_snapshots_total "), 1);
	assert_int_equal(metric(&daemon, "tinderbox_snapshots_failed_total "), 0);
	assert_int_equal(metric(&daemon, "tinderbox_copy_pause_seconds_count "), 1);
	expect_clone(&daemon, 2);
	delete_sandbox(&daemon, id);
	expect_clone(&daemon, 2);
	start_again(&daemon);
	expect_clone(&daemon, 2);
	remove_frozen(&daemon);
	finish(&daemon);
}

static void await_warm(const struct daemon *daemon, json_int_t wanted)
{
	json_int_t warm = -1;

	for (int waited = 0; waited < WAIT_MS && warm != wanted; waited += POLL_MS) {
		struct answer answer;

		call(daemon, "GET", "/v1/pool?template=frozen", NULL, &answer);
		warm = json_integer_value(json_object_get(answer.json, "warm"));
		answer_finish(&answer);
		sleep_ms(warm == wanted ? 0 : POLL_MS);
	}
	assert_int_equal(warm, wanted);
}

/* As any other template's: pooled, forked, suspended, saved again; and what is of it holds it. */
static void test_its_sandboxes(void **state)
{
	struct forked forked;
	struct daemon daemon;
	struct answer answer;
	char id[32], clone[32];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	snapshot(&daemon, id, "frozen");
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"frozen\",\"target\":2}");
	await_warm(&daemon, 2);
	create_sandbox(&daemon, of_frozen, clone);
	assert_string_equal(field(&daemon, clone, "warm"), "true");
	expect_noted(&daemon, clone, true);
	fork_sandbox(&daemon, clone, NULL, &forked);
	assert_int_equal(forked.made, 1);
	expect_lives(&daemon, forked.ids[0], 3);
	/* It goes on with its parent's list. */
	expect_noted(&daemon, forked.ids[0], false);
	delete_all(&daemon, &forked);
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"frozen\",\"target\":0}");
	await_vms(&daemon, "frozen", 1);
	call(&daemon, "DELETE", frozen_path, NULL, &answer);
	assert_int_equal(answer.status, 409);
	assert_string_equal(error_member(&answer, "code"), "conflict");
	answer_finish(&answer);
	/* One that was woken has all of its own. */
	suspend(&daemon, clone);
	wake(&daemon, clone);
	expect_lives(&daemon, clone, 4);
	remove_frozen(&daemon);
	snapshot(&daemon, clone, "again");
	expect_lives(&daemon, clone, 5);
	delete_sandbox(&daemon, clone);
	create_sandbox(&daemon, "{\"template\":\"again\"}", clone);
	expect_lives(&daemon, clone, 5);
	delete_sandbox(&daemon, clone);
	await_vms(&daemon, "again", 0);
	succeed(&daemon, "DELETE", "/v1/templates/again", NULL);
	finish(&daemon);
}

/* What runs in it runs on, for who is attached; clones know of no command. */
static void test_what_runs_goes_on(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	struct answer answer;
	char id[32], clone[32];

	(void)state;
	start_one(&daemon, "boot keep-slow:50", "{}", id);
	begin_dialogue(&daemon, id, &command, &stream);
	expect(&stream, AGENT_STDIN_CREDIT);
	snapshot(&daemon, id, "frozen");
	expect_field(&daemon, id, command.id, "attached", "true");
	send_frame(&stream, AGENT_STDIN, "more", 4);
	expect_output(&stream, AGENT_STDOUT, 5, "more");
	close_stream(&stream);
	create_sandbox(&daemon, of_frozen, clone);
	call_sandbox(&daemon, "GET", clone, "/commands", NULL, &answer);
	assert_string_equal(member(&answer, "commands"), "[]");
	answer_finish(&answer);
	delete_sandbox(&daemon, clone);
	delete_sandbox(&daemon, id);
	remove_frozen(&daemon);
	finish(&daemon);
}

/* --- with a disk --- */

static const char on_disk[] = "{\"template\":\"tools\"}";

static void expect_disk(const struct daemon *daemon, const char *parent)
{
	struct answer answer;
	struct stat disk, lower = sandbox_file_status(daemon, parent, "lower");
	const json_t *inputs = of_template(&answer, daemon, "inputs");
	const char *image;
	char path[160], clone[32];

	assert_int_equal(json_integer_value(json_object_get(inputs, "disk_bytes")), 64 << 20);
	/* It stays when the sandbox goes. */
	image = json_string_value(json_object_get(json_object_get(inputs, "image"), "path"));
	snprintf(path, sizeof path, "%s/image", daemon->folder);
	assert_string_equal(image, path);
	answer_finish(&answer);
	templates_path(daemon, "frozen/disk", path);
	assert_int_equal(stat(path, &disk), 0);
	assert_true(disk.st_ino != lower.st_ino && disk.st_nlink == 1);
	assert_int_equal(disk.st_size, 64 << 20);
	assert_int_equal(disk.st_mode & 07777, 0600);
	create_sandbox(daemon, of_frozen, clone);
	assert_int_equal(sandbox_file_status(daemon, clone, "lower").st_ino, disk.st_ino);
	expect_noted(daemon, clone, true);
	ask_sandbox(daemon, clone, "stop", "stopped");
	ask_sandbox(daemon, clone, "start", "ready");
	delete_sandbox(daemon, clone);
}

/* Its disk is one file, of what the parent's guest saw; also of one that was booted from its own disk. */
static void test_disks(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, on_disk, id);
	snapshot(&daemon, id, "frozen");
	expect_disk(&daemon, id);
	remove_frozen(&daemon);
	ask_sandbox(&daemon, id, "stop", "stopped");
	ask_sandbox(&daemon, id, "start", "ready");
	snapshot(&daemon, id, "frozen");
	expect_disk(&daemon, id);
	delete_sandbox(&daemon, id);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	start_again(&daemon);
	create_sandbox(&daemon, of_frozen, id);
	expect_noted(&daemon, id, true);
	delete_sandbox(&daemon, id);
	remove_frozen(&daemon);
	finish(&daemon);
}

/* --- refused before it is touched --- */

static void test_requests_that_are_wrong(void **state)
{
	static const char *const bodies[][2] = {
		{"{}", "name is missing: give the name of a template"},
		{"{\"name\":7}", "name is not a string: give the name of a template"},
		{"{\"name\":\"\"}", "name is empty: give the name of a template"},
		{"{\"name\":\"../x\"}",
			"name is not the name of a template: it has a-z, 0-9, '.', '_' and '-', a "
			"letter or digit first, not '../x'"},
		{"{\"name\":\"x\",\"run\":[]}", "unknown field \"run\" in the request"},
	};
	struct daemon daemon;
	char id[32];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
		expect_refusal_of(
			&daemon, "POST", id, "/snapshot", bodies[i][0], 400, "invalid", bodies[i][1]);
	expect_refusal_of(&daemon, "POST", "sb-0000000000000000", "/snapshot", frozen, 404, "not_found",
		"there is no sandbox sb-0000000000000000");
	expect_refusal_of(&daemon, "POST", id, "/snapshot", "{\"name\":\"base\"}", 409, "conflict",
		"base is the daemon's own, built at its start from what that is told: give another name");
	snapshot(&daemon, id, "frozen");
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 409, "conflict",
		"there is a template frozen already: give another name, or remove that one");
	await_state(&daemon, id, "ready");
	expect_lives(&daemon, id, 2);
	remove_frozen(&daemon);
	finish(&daemon);
}

static void test_of_one_that_does_not_run(void **state)
{
	struct daemon daemon;
	char id[32], message[160];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	ask_sandbox(&daemon, id, "pause", "paused");
	snprintf(message, sizeof message, "sandbox %s is paused, and cannot be copied: resume it", id);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 409, "conflict", message);
	suspend(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is suspended, and cannot be copied: wake it", id);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 409, "conflict", message);
	expect_none_made(&daemon);
	delete_sandbox(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is gone, and cannot be copied", id);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 409, "conflict", message);
	finish(&daemon);
}

/* Where there are none it has no place. */
static void test_without_templates(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	start_sandbox(&daemon, "boot", pool_of_one, id);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 409, "conflict",
		"this daemon has no templates: start it without --cold to build some");
	await_state(&daemon, id, "ready");
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

/* Clones would have another image than what their guest has read. */
static void test_an_image_that_has_changed(void **state)
{
	struct daemon daemon;
	char id[32], message[256];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	write_image(&daemon, 'j');
	snprintf(message, sizeof message,
		"no template can be made of sandbox %s: the image %s/image is not there any more, or has "
		"changed: put it back as it was",
		id, daemon.folder);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 409, "conflict", message);
	expect_none_made(&daemon);
	expect_lives(&daemon, id, 1);
	finish(&daemon);
}

static void expect_no_copy(struct answer *answer, const char *id)
{
	char start[96];

	assert_int_equal(answer->status, 429);
	assert_string_equal(error_member(answer, "code"), "exhausted");
	snprintf(start, sizeof start, "no room for a copy of sandbox %s, which may take ", id);
	assert_int_equal(strncmp(error_member(answer, "message"), start, strlen(start)), 0);
	answer_finish(answer);
}

static void test_no_room(void **state)
{
	char *const options[] = {"--pool", "1", "--disk-reserve", "1024G", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", options);
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "POST", id, "/snapshot", frozen, &answer);
	expect_no_copy(&answer, id);
	expect_none_made(&daemon);
	expect_lives(&daemon, id, 1);
	finish(&daemon);
}

/* What the template takes is there twice for a while, and what one is to take is not there for another. */
static void test_room_for_copies(void **state)
{
	enum { MEMORY_MIB = 64, BESIDE_MIB = 32 };
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32];
	int fd;

	(void)state;
	start_with_templates_and(&daemon, "boot keep-slow:1000", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"mem\":\"64M\",\"disk\":\"64M\"}");
	create_sandbox(&daemon, "{\"template\":\"tools\"}", id);
	create_sandbox(&daemon, "{\"template\":\"tools\"}", other);
	if (leave_room(&daemon, id, MEMORY_MIB + BESIDE_MIB)) {
		call_sandbox(&daemon, "POST", id, "/snapshot", frozen, &answer);
		expect_no_copy(&answer, id);
		expect_lives(&daemon, id, 1);
	}
	if (leave_room(&daemon, id, 2 * MEMORY_MIB + BESIDE_MIB)) {
		fd = begin_snapshot(&daemon, id, frozen);
		await_state(&daemon, id, "copying");
		call_sandbox(&daemon, "POST", other, "/snapshot", "{\"name\":\"x\"}", &answer);
		expect_no_copy(&answer, other);
		client_answer(fd, &answer);
		expect_made(&answer, "frozen");
		answer_finish(&answer);
		remove_frozen(&daemon);
	}
	/* It is, when that is done. */
	snapshot(&daemon, other, "frozen");
	remove_frozen(&daemon);
	delete_sandbox(&daemon, id);
	delete_sandbox(&daemon, other);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

/* --- what does not come about --- */

/* As many as may wait for their turn are under way: one more is not touched. */
static void test_too_many_at_once(void **state)
{
	char ids[TEMPLATES_BUILDS_MAX + 1][32], body[64];
	int fds[TEMPLATES_BUILDS_MAX];
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_with_templates_and(&daemon, "boot keep-slow:3000", pool_of_one);
	for (int i = 0; i <= TEMPLATES_BUILDS_MAX; i++)
		create_sandbox(&daemon, "{}", ids[i]);
	for (int i = 0; i < TEMPLATES_BUILDS_MAX; i++) {
		snprintf(body, sizeof body, "{\"name\":\"frozen-%d\"}", i);
		fds[i] = begin_snapshot(&daemon, ids[i], body);
	}
	await_state(&daemon, ids[TEMPLATES_BUILDS_MAX - 1], "copying");
	call_sandbox(&daemon, "POST", ids[TEMPLATES_BUILDS_MAX], "/snapshot", frozen, &answer);
	assert_int_equal(answer.status, 429);
	assert_non_null(strstr(error_member(&answer, "message"), ", and 8 builds wait already: "));
	answer_finish(&answer);
	expect_lives(&daemon, ids[TEMPLATES_BUILDS_MAX], 1);
	for (int i = 0; i < TEMPLATES_BUILDS_MAX; i++) {
		client_answer(fds[i], &answer);
		assert_int_equal(answer.status, 201);
		answer_finish(&answer);
		snprintf(body, sizeof body, "frozen-%d", i);
		await_vms(&daemon, body, 0);
		snprintf(body, sizeof body, "/v1/templates/frozen-%d", i);
		succeed(&daemon, "DELETE", body, NULL);
	}
	finish(&daemon);
}

static void test_two_at_once(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32], message[160];
	int fd, second;

	(void)state;
	start_one(&daemon, "boot keep-slow:1000", "{}", id);
	create_sandbox(&daemon, "{}", other);
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	snprintf(message, sizeof message, "sandbox %s is copying, and cannot be copied yet", id);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", "{\"name\":\"x\"}", 503, "not_ready", message);
	snprintf(message, sizeof message,
		"a template frozen is being made of sandbox %s already: give another name", id);
	expect_refusal_of(&daemon, "POST", other, "/snapshot", frozen, 409, "conflict", message);
	/* Of two sandboxes they come one after the other. */
	second = begin_snapshot(&daemon, other, "{\"name\":\"again\"}");
	client_answer(fd, &answer);
	expect_made(&answer, "frozen");
	answer_finish(&answer);
	client_answer(second, &answer);
	expect_made(&answer, "again");
	answer_finish(&answer);
	expect_clone(&daemon, 2);
	remove_frozen(&daemon);
	succeed(&daemon, "DELETE", "/v1/templates/again", NULL);
	finish(&daemon);
}

/* It was free when that was looked at. */
static void test_a_name_that_is_taken_meanwhile(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];
	int fd;

	(void)state;
	start_one(&daemon, "boot keep-slow:3000", "{}", id);
	fd = begin_snapshot(&daemon, id, frozen);
	await_state(&daemon, id, "copying");
	succeed(&daemon, "POST", "/v1/templates", frozen);
	client_answer(fd, &answer);
	expect_error_answer(&answer, 409, "conflict",
		"there is a template frozen already: give another name, or remove that one");
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	assert_int_equal(count_templates(&daemon, ".building-"), 0);
	call(&daemon, "GET", frozen_path, NULL, &answer);
	assert_null(json_object_get(answer.json, "snapshot"));
	answer_finish(&answer);
	await_state(&daemon, id, "ready");
	remove_frozen(&daemon);
	finish(&daemon);
}

/* The guest runs on as if nothing had been asked. */
static void test_saves_that_fail(void **state)
{
	static const char *const scripts[][2] = {{"boot hold-status:5", "Input/output error"},
		{"boot hold-garbage", "it broke the agent protocol (HELD that is malformed)"}};
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];

	(void)state;
	start_one(&daemon, "boot keep-refused", "{}", id);
	snprintf(message, sizeof message,
		"sandbox %s could not be saved: writing the snapshot: No space left on device", id);
	expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 429, "exhausted", message);
	expect_none_made(&daemon);
	await_state(&daemon, id, "ready");
	expect_lives(&daemon, id, 1);
	assert_int_equal(metric(&daemon, "tinderbox_snapshots_failed_total "), 1);
	finish(&daemon);
	for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
		start_one(&daemon, scripts[i][0], "{}", id);
		snprintf(message, sizeof message,
			"the guest of sandbox %s did not bring its files to its disk: %s", id, scripts[i][1]);
		expect_refusal_of(&daemon, "POST", id, "/snapshot", frozen, 502, "incomplete", message);
		expect_none_made(&daemon);
		expect_lives(&daemon, id, 1);
		finish(&daemon);
	}
	start_one(&daemon, "boot keep-dies", "{}", id);
	call_sandbox(&daemon, "POST", id, "/snapshot", frozen, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	answer_finish(&answer);
	await_state(&daemon, id, "failed");
	expect_none_made(&daemon);
	finish(&daemon);
}

/* One that cannot note its files would tell of changes that are none. */
static void test_clones_that_fail(void **state)
{
	static const char *const scripts[][2] = {
		{"boot clone-notes:28", "template frozen could not be made: the agent could not note the "
					"guest's files: the guest's "
					"disk is full"},
		{"boot clone-notes-nothing",
			"template frozen could not be made: not ready within 3000 ms: still "
			"waiting for the agent to note the guest's files"},
	};
	char *const options[] = {"--pool", "1", "--boot-timeout-ms", "3000", NULL};
	struct daemon daemon;
	char id[32];

	(void)state;
	for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
		start_with_templates_and(&daemon, scripts[i][0], options);
		create_sandbox(&daemon, "{}", id);
		expect_refusal_of(
			&daemon, "POST", id, "/snapshot", frozen, 422, "build_failed", scripts[i][1]);
		expect_none_made(&daemon);
		expect_lives(&daemon, id, 2);
		finish(&daemon);
	}
	/* One whose root is no overlay has nothing to note. */
	start_one(&daemon, "boot clone-notes:95", "{}", id);
	snapshot(&daemon, id, "frozen");
	expect_clone(&daemon, 2);
	remove_frozen(&daemon);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_template),
		cmocka_unit_test(test_its_sandboxes),
		cmocka_unit_test(test_what_runs_goes_on),
		cmocka_unit_test(test_disks),
		cmocka_unit_test(test_requests_that_are_wrong),
		cmocka_unit_test(test_of_one_that_does_not_run),
		cmocka_unit_test(test_without_templates),
		cmocka_unit_test(test_an_image_that_has_changed),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_room_for_copies),
		cmocka_unit_test(test_too_many_at_once),
		cmocka_unit_test(test_two_at_once),
		cmocka_unit_test(test_a_name_that_is_taken_meanwhile),
		cmocka_unit_test(test_saves_that_fail),
		cmocka_unit_test(test_clones_that_fail),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
