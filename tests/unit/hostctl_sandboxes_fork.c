/* SPDX-License-Identifier: Apache-2.0 */
/* Forks: what children are, what their parent is meanwhile, and each that does not come about. */
#include "tests/unit/hostctl_fork_fixture.h"

/* All that they lie upon is the template's; and they are forked and suspended as any other. */
static void test_children(void **state)
{
	struct forked forked, again;
	struct daemon daemon;
	struct stat memory;
	char id[32], path[160], vm[32], other[32];

	(void)state;
	start_one(&daemon, "boot", "{\"name\":\"web\",\"env\":{\"A\":\"1\"},\"pids_max\":50}", id);
	templates_path(&daemon, "base/memory", path);
	assert_int_equal(stat(path, &memory), 0);
	vm_of(&daemon, id, vm);
	expect_lives(&daemon, id, 1);
	fork_sandbox(&daemon, "web", "{\"count\":3,\"name\":\"try\",\"pids_max\":60}", &forked);
	assert_int_equal(forked.made, 3);
	assert_true(pause_us(&forked) > 0);
	expect_lives(&daemon, id, 2);
	vm_of(&daemon, id, other);
	assert_string_equal(vm, other);
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	assert_int_equal(count_folders(&daemon, "sb-"), 4);
	assert_false(sandbox_has_file(&daemon, id, "copying"));
	for (unsigned int i = 0; i < forked.made; i++) {
		snprintf(path, sizeof path, "\"try-%u\"", i + 1);
		assert_string_equal(field(&daemon, forked.ids[i], "name"), path);
		assert_string_equal(field(&daemon, forked.ids[i], "env"), "[\"A\"]");
		assert_string_equal(field(&daemon, forked.ids[i], "pids_max"), "60");
		vm_of(&daemon, forked.ids[i], other);
		assert_string_not_equal(vm, other);
		expect_lives(&daemon, forked.ids[i], 2);
		expect_none_saved(&daemon, forked.ids[i]);
		assert_true(sandbox_file_status(&daemon, forked.ids[i], "memory").st_ino == memory.st_ino);
	}
	suspend(&daemon, "try-1");
	fork_sandbox(&daemon, "try-2", "{\"count\":2}", &again);
	assert_int_equal(again.made, 2);
	expect_lives(&daemon, again.ids[1], 3);
	assert_string_equal(field(&daemon, again.ids[0], "name"), "null");
	wake(&daemon, "try-1");
	expect_lives(&daemon, "try-1", 3);
	delete_all(&daemon, &again);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, id);
	assert_int_equal(count_folders(&daemon, ""), 0);
	finish(&daemon);
}

/* One that was booted lies upon nothing: its children have all of its memory. */
static void test_of_one_that_was_booted(void **state)
{
	struct forked forked;
	struct daemon daemon;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	expect_lives(&daemon, id, 0);
	fork_sandbox(&daemon, id, NULL, &forked);
	assert_int_equal(forked.made, 1);
	expect_lives(&daemon, id, 1);
	expect_lives(&daemon, forked.ids[0], 1);
	suspend(&daemon, forked.ids[0]);
	expect_saved(&daemon, forked.ids[0], 5);
	wake(&daemon, forked.ids[0]);
	expect_lives(&daemon, forked.ids[0], 2);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

/* Who is attached stays so, with nothing lost either way; children know of no command. */
static void test_what_runs_goes_on(void **state)
{
	struct forked forked;
	struct daemon daemon;
	struct command command;
	struct stream stream;
	struct answer answer;
	char id[32];

	(void)state;
	start_one(&daemon, "boot keep-slow:50", "{}", id);
	begin_dialogue(&daemon, id, &command, &stream);
	expect(&stream, AGENT_STDIN_CREDIT);
	fork_sandbox(&daemon, id, "{\"count\":2}", &forked);
	assert_int_equal(forked.made, 2);
	expect_field(&daemon, id, command.id, "attached", "true");
	send_frame(&stream, AGENT_STDIN, "more", 4);
	expect_output(&stream, AGENT_STDOUT, 5, "more");
	close_stream(&stream);
	call_sandbox(&daemon, "GET", forked.ids[0], "/commands", NULL, &answer);
	assert_string_equal(member(&answer, "commands"), "[]");
	answer_finish(&answer);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_of_one_that_stands(void **state)
{
	struct daemon daemon;
	char id[32], message[160];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	ask_sandbox(&daemon, id, "pause", "paused");
	/* Its guest cannot be told: what ran in the children would draw the same random numbers. */
	snprintf(message, sizeof message, "sandbox %s is paused, and cannot be copied: resume it", id);
	expect_refusal_of(&daemon, "POST", id, "/fork", NULL, 409, "conflict", message);
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	suspend(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is suspended, and cannot be copied: wake it", id);
	expect_refusal_of(&daemon, "POST", id, "/fork", NULL, 409, "conflict", message);
	finish(&daemon);
}

static void test_requests_that_are_wrong(void **state)
{
	static const char *const bodies[][2] = {
		{"{\"count\":0}", "count is not a whole number from 1 to 64"},
		{"{\"count\":65}", "count is not a whole number from 1 to 64"},
		{"{\"count\":\"2\"}", "count is not a whole number from 1 to 64"},
		{"{\"template\":\"base\"}", "unknown field \"template\" in the request"},
		{"{\"ttl_ms\":0}",
			"ttl_ms is not a whole number of milliseconds from 1 to 2592000000 (30 days)"},
	};
	struct daemon daemon;
	char id[32];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++)
		expect_refusal_of(&daemon, "POST", id, "/fork", bodies[i][0], 400, "invalid", bodies[i][1]);
	expect_refusal_of(&daemon, "POST", "sb-0000000000000000", "/fork", NULL, 404, "not_found",
		"there is no sandbox sb-0000000000000000");
	await_state(&daemon, id, "ready");
	expect_lives(&daemon, id, 1);
	finish(&daemon);
}

static void test_places_and_names(void **state)
{
	static const char full[] =
		"no place for its VM: all 4 are in use (--max-vms): delete sandboxes, or raise it";
	char *const few[] = {"--pool", "1", "--max-vms", "4", NULL};
	struct forked forked, more;
	struct daemon daemon;
	char id[32], other[32], message[160];

	(void)state;
	start_with_templates_and(&daemon, "boot", few);
	create_sandbox(&daemon, "{}", id);
	create_sandbox(&daemon, "{\"name\":\"y-1\"}", other);
	/* A warm VM gives way; the others are told at once. */
	await_pool(&daemon, "warm", 1);
	fork_sandbox(&daemon, id, "{\"count\":4,\"name\":\"y\"}", &forked);
	assert_int_equal(forked.made, 2);
	snprintf(message, sizeof message, "the name y-1 is that of sandbox %s", other);
	expect_child_error(&forked, 0, "conflict", message);
	expect_child_error(&forked, 3, "exhausted", full);
	expect_refusal_of(&daemon, "POST", id, "/fork", "{\"count\":2}", 429, "exhausted", full);
	delete_sandbox(&daemon, forked.ids[0]);
	forked.ids[0][0] = '\0';
	fork_sandbox(&daemon, id, "{\"count\":1}", &more);
	assert_int_equal(more.made, 1);
	delete_all(&daemon, &more);
	snprintf(message, sizeof message, "the name y-1 is that of sandbox %s", other);
	expect_refusal_of(&daemon, "POST", id, "/fork", "{\"name\":\"y-1\"}", 409, "conflict", message);
	answer_finish(&forked.answer);
	finish(&daemon);
}

/* Their places are taken while they are on their way: nobody waits for what may never come. */
static void test_places_that_are_taken_meanwhile(void **state)
{
	char *const few[] = {"--pool", "0", "--max-vms", "3", NULL};
	struct forked forked;
	struct daemon daemon;
	char id[32], other[32];
	int fd;

	(void)state;
	start_with_templates_and(&daemon, "boot keep-slow:700", few);
	create_sandbox(&daemon, "{}", id);
	fd = begin_fork(&daemon, id, "{\"count\":2}");
	await_state(&daemon, id, "copying");
	create_sandbox(&daemon, "{}", other);
	client_answer(fd, &forked.answer);
	close(fd);
	read_fork(&forked);
	assert_int_equal(forked.made, 1);
	expect_child_error(&forked, 1, "exhausted",
		"no place for its VM: all 3 are in use (--max-vms): delete sandboxes, or raise it");
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	/* Its own and the child's; of one without a disk that was never saved there is none. */
	assert_int_equal(count_folders(&daemon, "sb-"), 2);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, other);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* The guest runs on as if nothing had been asked. */
static void test_saves_that_fail(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];

	(void)state;
	start_one(&daemon, "boot keep-refused", "{}", id);
	snprintf(message, sizeof message,
		"sandbox %s could not be saved: writing the snapshot: No space left on device", id);
	expect_refusal_of(&daemon, "POST", id, "/fork", "{\"count\":2}", 429, "exhausted", message);
	await_state(&daemon, id, "ready");
	expect_lives(&daemon, id, 1);
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	finish(&daemon);
	start_one(&daemon, "boot keep-dies", "{}", id);
	call_sandbox(&daemon, "POST", id, "/fork", NULL, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	answer_finish(&answer);
	await_state(&daemon, id, "failed");
	assert_int_equal(count_folders(&daemon, "fk-"), 0);
	finish(&daemon);
}

static void test_children_that_die(void **state)
{
	struct forked forked;
	struct daemon daemon;
	char id[32];

	(void)state;
	start_one(&daemon, "boot wake-panic", "{}", id);
	expect_lives(&daemon, id, 1);
	fork_sandbox(&daemon, id, "{\"count\":2}", &forked);
	assert_int_equal(forked.refused, 2);
	answer_finish(&forked.answer);
	expect_lives(&daemon, id, 2);
	assert_int_equal(count_folders(&daemon, ""), 3);
	await_pool(&daemon, "busy", 1);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* --- with a disk --- */

static const char on_disk[] = "{\"template\":\"tools\"}";

static void start_with_disk(struct daemon *daemon, const char *script, char id[32])
{
	start_with_templates_and(daemon, script, pool_of_one);
	succeed(daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"64M\"}");
	create_sandbox(daemon, on_disk, id);
}

static void finish_disk(struct daemon *daemon)
{
	await_vms(daemon, "tools", 0);
	succeed(daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(daemon);
}

/* Each has an upper of its own, with what the parent's had. */
static void test_disks(void **state)
{
	struct forked forked;
	struct daemon daemon;
	struct stat upper, copy;
	char id[32];

	(void)state;
	start_with_disk(&daemon, "boot", id);
	fork_sandbox(&daemon, id, "{\"count\":2}", &forked);
	assert_int_equal(forked.made, 2);
	upper = sandbox_file_status(&daemon, id, "upper");
	for (unsigned int i = 0; i < forked.made; i++) {
		const char *child = forked.ids[i];

		copy = sandbox_file_status(&daemon, child, "upper");
		assert_true(copy.st_ino != upper.st_ino && copy.st_nlink == 1);
		assert_int_equal(copy.st_size, upper.st_size);
		assert_true(copy.st_blocks <= upper.st_blocks + 64);
		assert_true(sandbox_file_status(&daemon, child, "lower").st_ino ==
			    sandbox_file_status(&daemon, id, "lower").st_ino);
		expect_lives(&daemon, child, 2);
	}
	/* Its VM is lost: it is booted from its own disk. */
	start_again(&daemon);
	await_state(&daemon, forked.ids[0], "ready");
	ask_sandbox(&daemon, forked.ids[0], "stop", "stopped");
	ask_sandbox(&daemon, forked.ids[0], "start", "ready");
	suspend(&daemon, forked.ids[1]);
	wake(&daemon, forked.ids[1]);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, id);
	finish_disk(&daemon);
}

/* A guest that does not bring its files to its disk is not copied, and runs on. */
static void test_guests_that_do_not_hold(void **state)
{
	static const char *const scripts[][2] = {{"boot hold-status:5", "Input/output error"},
		{"boot hold-garbage", "it broke the agent protocol (HELD that is malformed)"}};
	struct daemon daemon;
	char id[32], message[256];

	(void)state;
	for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
		start_with_disk(&daemon, scripts[i][0], id);
		snprintf(message, sizeof message,
			"the guest of sandbox %s did not bring its files to its disk: %s", id, scripts[i][1]);
		expect_refusal_of(&daemon, "POST", id, "/fork", NULL, 502, "incomplete", message);
		await_state(&daemon, id, "ready");
		expect_lives(&daemon, id, 1);
		assert_int_equal(count_folders(&daemon, "fk-"), 0);
		delete_sandbox(&daemon, id);
		finish_disk(&daemon);
	}
}

/* --- room for copies --- */

enum { UPPER_MIB = 64, MIB_SHIFT = 20 };

/* What its guest would have written. */
static void fill_upper(const struct daemon *daemon, const char *id)
{
	static char bytes[1 << MIB_SHIFT];
	char path[160];
	int fd;

	memset(bytes, 'u', sizeof bytes);
	sandbox_file(daemon, id, "upper", path);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	for (off_t at = 1; at <= UPPER_MIB; at++)
		assert_int_equal(pwrite(fd, bytes, sizeof bytes, at << MIB_SHIFT), sizeof bytes);
	close(fd);
}

static void start_with_large_disk(struct daemon *daemon, const char *script)
{
	start_with_templates_and(daemon, script, pool_of_one);
	succeed(daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"disk\":\"128M\"}");
}

static void expect_no_room(const char *code, const char *message)
{
	static const char start[] = "no room for the disk of one more sandbox: ";

	assert_string_equal(code, "exhausted");
	assert_memory_equal(message, start, sizeof start - 1);
	assert_non_null(strstr(message, ", copies of it want "));
	assert_non_null(strstr(message, "(--disk-reserve): delete sandboxes or templates"));
}

/* One copy is the fork's own, and each child has one. */
static void test_room_for_copies(void **state)
{
	struct forked forked;
	struct daemon daemon;
	struct answer answer;
	const json_t *error;
	char id[32];
	bool counts;

	(void)state;
	start_with_large_disk(&daemon, "boot");
	create_sandbox(&daemon, on_disk, id);
	fill_upper(&daemon, id);
	/* For none: its parent is not touched. */
	counts = leave_room(&daemon, id, UPPER_MIB + UPPER_MIB / 2);
	if (counts) {
		call_sandbox(&daemon, "POST", id, "/fork", NULL, &answer);
		assert_int_equal(answer.status, 429);
		expect_no_room(error_member(&answer, "code"), error_member(&answer, "message"));
		answer_finish(&answer);
		assert_int_equal(count_folders(&daemon, "fk-"), 0);
		expect_lives(&daemon, id, 1);
	}
	/* For one of two. */
	leave_room(&daemon, id, 2 * UPPER_MIB + UPPER_MIB / 2);
	fork_sandbox(&daemon, id, "{\"count\":2}", &forked);
	assert_int_equal(forked.refused, counts ? 1 : 0);
	if (counts) {
		error = json_object_get(
			json_array_get(json_object_get(forked.answer.json, "children"), 1), "error");
		expect_no_room(json_string_value(json_object_get(error, "code")),
			json_string_value(json_object_get(error, "message")));
	}
	assert_int_equal(count_folders(&daemon, "sb-"), 1 + (int)forked.made);
	delete_all(&daemon, &forked);
	/* Without a reserve nothing is counted. */
	start_again(&daemon);
	await_state(&daemon, id, "ready");
	delete_sandbox(&daemon, id);
	finish_disk(&daemon);
}

/* What one fork is to write is not there for another. */
static void test_room_of_two_forks(void **state)
{
	struct forked forked;
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32];
	bool counts;
	int fd;

	(void)state;
	start_with_large_disk(&daemon, "boot keep-slow:1500");
	create_sandbox(&daemon, on_disk, id);
	create_sandbox(&daemon, on_disk, other);
	fill_upper(&daemon, id);
	fill_upper(&daemon, other);
	counts = leave_room(&daemon, id, 3 * UPPER_MIB);
	await_state(&daemon, other, "ready");
	fd = begin_fork(&daemon, id, NULL);
	await_state(&daemon, id, "copying");
	call_sandbox(&daemon, "POST", other, "/fork", NULL, &answer);
	assert_int_equal(answer.status, counts ? 429 : 201);
	if (counts)
		expect_no_room(error_member(&answer, "code"), error_member(&answer, "message"));
	answer_finish(&answer);
	client_answer(fd, &forked.answer);
	close(fd);
	read_fork(&forked);
	assert_int_equal(forked.made, 1);
	delete_all(&daemon, &forked);
	/* And when that is over it is: its copies went with the child, a moment after. */
	for (int waited = 0, status = 429; status == 429; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		call_sandbox(&daemon, "POST", other, "/fork", NULL, &forked.answer);
		status = forked.answer.status;
		if (status == 429)
			answer_finish(&forked.answer);
		sleep_ms(status == 429 ? POLL_MS : 0);
	}
	read_fork(&forked);
	assert_int_equal(forked.made, 1);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, id);
	delete_sandbox(&daemon, other);
	finish_disk(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_children),
		cmocka_unit_test(test_of_one_that_was_booted),
		cmocka_unit_test(test_what_runs_goes_on),
		cmocka_unit_test(test_of_one_that_stands),
		cmocka_unit_test(test_requests_that_are_wrong),
		cmocka_unit_test(test_places_and_names),
		cmocka_unit_test(test_places_that_are_taken_meanwhile),
		cmocka_unit_test(test_saves_that_fail),
		cmocka_unit_test(test_children_that_die),
		cmocka_unit_test(test_disks),
		cmocka_unit_test(test_guests_that_do_not_hold),
		cmocka_unit_test(test_room_for_copies),
		cmocka_unit_test(test_room_of_two_forks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
