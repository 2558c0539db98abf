/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes of another shape than their template's: booted and counted, and from then on as any other. */
#include "tests/unit/hostctl_snapshot_fixture.h"

static const char other_shape[] = "{\"mem\":\"64M\",\"cpus\":2}";
static const char its_words[] = "--mem\0"
				"64M\0"
				"--cpus\0"
				"2";

static int count_booted(const struct daemon *daemon)
{
	return count_vmms(daemon, its_words, sizeof its_words - 1);
}

static long cold_starts(const struct daemon *daemon)
{
	return metric(daemon, "tinderbox_cold_starts_total ");
}

/* Its VM is what was asked for, and so are its limits; warm VMs are not spent. */
static void test_it_is_booted(void **state)
{
	struct daemon daemon;
	char id[32], same[32];

	(void)state;
	start_one(&daemon, "boot",
		"{\"mem\":\"64M\",\"cpus\":2,\"memory_max\":1099511627776,\"cpu_max\":10000}", id);
	assert_int_equal(count_booted(&daemon), 1);
	assert_int_equal(cold_starts(&daemon), 1);
	assert_string_equal(field(&daemon, id, "mem"), "\"64M\"");
	assert_string_equal(field(&daemon, id, "cpus"), "2");
	assert_string_equal(field(&daemon, id, "cold"), "true");
	assert_string_equal(field(&daemon, id, "warm"), "false");
	/* Of the guest, and 64 MiB; its two processors, and one. */
	assert_string_equal(field(&daemon, id, "memory_max"), "134217728");
	assert_string_equal(field(&daemon, id, "cpu_max"), "300");
	assert_int_equal(pool_number(&daemon, "warm"), 1);
	expect_lives(&daemon, id, 0);
	/* The template's own shape, however it is told, is a clone. */
	create_sandbox(&daemon, "{\"mem\":\"131072K\",\"cpus\":1}", same);
	assert_string_equal(field(&daemon, same, "cold"), "false");
	assert_string_equal(field(&daemon, same, "mem"), "\"128M\"");
	expect_lives(&daemon, same, 1);
	create_sandbox(&daemon, "{}", same);
	assert_string_equal(field(&daemon, same, "mem"), "null");
	assert_string_equal(field(&daemon, same, "cpus"), "null");
	assert_int_equal(cold_starts(&daemon), 1);
	/* One of the two is enough. */
	create_sandbox(&daemon, "{\"cpus\":2}", same);
	assert_string_equal(field(&daemon, same, "cold"), "true");
	assert_int_equal(cold_starts(&daemon), 2);
	finish(&daemon);
}

/* Suspended, woken, forked, taken back, and switched off and on: it has its shape. */
static void test_its_life(void **state)
{
	struct forked forked;
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_one(&daemon, "boot", other_shape, id);
	suspend(&daemon, id);
	expect_saved(&daemon, id, 4);
	wake(&daemon, id);
	expect_lives(&daemon, id, 1);
	fork_sandbox(&daemon, id, NULL, &forked);
	assert_string_equal(field(&daemon, forked.ids[0], "mem"), "\"64M\"");
	assert_string_equal(field(&daemon, forked.ids[0], "cold"), "false");
	expect_lives(&daemon, forked.ids[0], 2);
	start_again(&daemon);
	await_state(&daemon, id, "ready");
	assert_string_equal(field(&daemon, id, "mem"), "\"64M\"");
	assert_string_equal(field(&daemon, id, "cpus"), "2");
	assert_string_equal(field(&daemon, id, "cold"), "true");
	suspend(&daemon, id);
	wake(&daemon, id);
	assert_int_equal(cold_starts(&daemon), 0);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	ask_sandbox(&daemon, id, "start", "ready");
	assert_int_equal(cold_starts(&daemon), 1);
	assert_int_equal(count_booted(&daemon), 1);
	expect_lives(&daemon, id, 0);
	delete_all(&daemon, &forked);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void expect_refusal(
	const struct daemon *daemon, const char *body, int status, const char *code, const char *message)
{
	struct answer answer;

	call(daemon, "POST", "/v1/sandboxes", body, &answer);
	expect_error_answer(&answer, status, code, message);
}

static void forget_the_mark(const struct daemon *daemon)
{
	char path[160];
	json_t *about;

	templates_path(daemon, "tools/template.json", path);
	about = json_load_file(path, 0, NULL);
	assert_non_null(about);
	assert_int_equal(json_object_del(about, "boots"), 0);
	assert_int_equal(json_dump_file(about, path, 0), 0);
	json_decref(about);
}

/* What was prepared in memory, has gone, or may not be what it was, is told so and nothing is started. */
static void test_templates_that_cannot_be_booted(void **state)
{
	static const char on_tools[] = "{\"template\":\"tools\",\"cpus\":2}";
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	call(&daemon, "POST", "/v1/sandboxes", on_tools, &answer);
	assert_int_equal(answer.status, 404);
	assert_string_equal(error_member(&answer, "code"), "not_found");
	answer_finish(&answer);
	call(&daemon, "POST", "/v1/sandboxes", "{\"mem\":\"511G\"}", &answer);
	assert_int_equal(answer.status, 400);
	assert_memory_equal(error_member(&answer, "message"), "mem of 523264M is more than the ", 31);
	answer_finish(&answer);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"run\":[\"echo x\"]}");
	expect_refusal(&daemon, on_tools, 409, "conflict",
		"template tools has what was prepared in its memory, which has one mem and one number of "
		"cpus: build a template of those that are wanted, or one with a disk, which may have any");
	create_sandbox(&daemon, "{\"template\":\"tools\",\"cpus\":1}", id);
	delete_sandbox(&daemon, id);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	create_sandbox(&daemon, on_tools, id);
	assert_string_equal(field(&daemon, id, "cold"), "true");
	delete_sandbox(&daemon, id);
	forget_the_mark(&daemon);
	expect_refusal(&daemon, on_tools, 409, "conflict",
		"template tools is of a daemon that did not note whether its VMs can be booted, as one of "
		"another mem or cpus has to be: build it again");
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	write_image(&daemon, 'j');
	expect_refusal(&daemon, on_tools, 422, "build_failed",
		"cannot load the image of template tools: it has changed since: build the template again");
	assert_int_equal(cold_starts(&daemon), 1);
	await_vms(&daemon, "tools", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

/* A snapshot of one is a template of its shape, whose memory has that alone. */
static void test_a_snapshot_has_its_shape(void **state)
{
	struct daemon daemon;
	char id[32], clone[32];

	(void)state;
	start_one(&daemon, "boot", other_shape, id);
	snapshot(&daemon, id, "frozen");
	expect_lives(&daemon, id, 1);
	create_sandbox(&daemon, "{\"template\":\"frozen\",\"mem\":\"64M\",\"cpus\":2}", clone);
	assert_string_equal(field(&daemon, clone, "cold"), "false");
	expect_lives(&daemon, clone, 1);
	expect_noted(&daemon, clone, true);
	expect_refusal(&daemon, "{\"template\":\"frozen\",\"cpus\":1}", 409, "conflict",
		"template frozen has what was prepared in its memory, which has one mem and one number of "
		"cpus: build a template of those that are wanted, or one with a disk, which may have any");
	assert_int_equal(cold_starts(&daemon), 1);
	delete_sandbox(&daemon, clone);
	delete_sandbox(&daemon, id);
	remove_frozen(&daemon);
	finish(&daemon);
}

static void test_boots_that_fail(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	write_text(daemon.folder, "kernel", "\177ELF exit:1");
	call(&daemon, "POST", "/v1/sandboxes", other_shape, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/sandboxes", NULL, &answer);
	assert_string_equal(member(&answer, "sandboxes"), "[]");
	answer_finish(&answer);
	await_pool(&daemon, "busy", 0);
	/* The pool clones on. */
	assert_int_equal(pool_number(&daemon, "warm"), 1);
	finish(&daemon);
}

static void test_no_place(void **state)
{
	char *const one[] = {"--pool", "0", "--max-vms", "1", "--queue-max", "0", NULL};
	struct daemon daemon;
	char id[32];

	(void)state;
	start_with_templates_and(&daemon, "boot", one);
	create_sandbox(&daemon, other_shape, id);
	expect_refusal(&daemon, other_shape, 429, "exhausted",
		"no place for its VM, and 0 wait for one already (--queue-max): try again later, or raise "
		"--max-vms");
	delete_sandbox(&daemon, id);
	await_pool(&daemon, "busy", 0);
	create_sandbox(&daemon, other_shape, id);
	finish(&daemon);
}

static void await_no_sandbox(const struct daemon *daemon)
{
	bool none = false;

	for (int waited = 0; !none; waited += POLL_MS) {
		struct answer answer;

		assert_true(waited < WAIT_MS);
		call(daemon, "GET", "/v1/sandboxes", NULL, &answer);
		none = !strcmp(member(&answer, "sandboxes"), "[]");
		answer_finish(&answer);
		sleep_ms(none ? 0 : POLL_MS);
	}
}

/* It waits for a VM of its template's shape, and another template has that one's name when there is a place.
 */
static void test_a_template_of_another_shape_meanwhile(void **state)
{
	char *const one[] = {"--pool", "0", "--max-vms", "1", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32];
	int waiting;

	(void)state;
	start_with_templates_and(&daemon, "boot", one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	create_sandbox(&daemon, "{}", id);
	waiting = client_open(&daemon);
	client_request(
		waiting, "POST", "/v1/sandboxes", "", "{\"template\":\"tools\",\"mem\":\"128M\",\"cpus\":1}");
	/* This is answered after it. */
	assert_int_equal(pool_number(&daemon, "warm"), 0);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"mem\":\"64M\"}");
	delete_sandbox(&daemon, id);
	client_answer(waiting, &answer);
	assert_int_equal(answer.status, 503);
	assert_string_equal(error_member(&answer, "code"), "not_ready");
	assert_non_null(strstr(error_member(&answer, "message"), " was replaced just now: try again"));
	answer_finish(&answer);
	close(waiting);
	await_no_sandbox(&daemon);
	await_pool(&daemon, "busy", 0);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	finish(&daemon);
}

/* A daemon without templates boots all of them anyway. */
static void test_without_templates(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, other_shape, id);
	assert_int_equal(count_booted(&daemon), 1);
	assert_int_equal(cold_starts(&daemon), 1);
	expect_refusal(&daemon, "{\"template\":\"tools\",\"cpus\":2}", 404, "not_found",
		"there is no template tools");
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_it_is_booted),
		cmocka_unit_test(test_its_life),
		cmocka_unit_test(test_templates_that_cannot_be_booted),
		cmocka_unit_test(test_a_snapshot_has_its_shape),
		cmocka_unit_test(test_boots_that_fail),
		cmocka_unit_test(test_no_place),
		cmocka_unit_test(test_a_template_of_another_shape_meanwhile),
		cmocka_unit_test(test_without_templates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
