/* SPDX-License-Identifier: Apache-2.0 */
/* Builds of images, with builders that are played: what they are asked, what they left, how they end. */
#include "tests/unit/hostctl_images_fixture.h"

static void test_facts(void **state)
{
	static const char hash[] = "sha256 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
	static const struct {
		const char *before, *after;
		int wanted;
		size_t packages;
	} cases[] = {
		{"", "", 0, 0},
		{"", "\n", 0, 0},
		{"package python3 3.11.2-1+b1 amd64\npackage a 1 all\n", "\n", 0, 2},
		{"package python3\n", "\n", -1, 0},
		{"", "\nother line\n", -1, 0},
		{"", "0\n", -1, 0},
		{"\n", "\n", -1, 0},
	};
	char id[IMAGE_ID_SIZE], text[512];
	json_t *packages;

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		snprintf(text, sizeof text, "%s%s%s", cases[i].before, hash, cases[i].after);
		assert_int_equal(cmd_image_read_facts(text, id, &packages), cases[i].wanted);
		if (cases[i].wanted)
			continue;
		assert_string_equal(
			id, "sha256-0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef");
		assert_int_equal(json_array_size(packages), cases[i].packages);
		json_decref(packages);
	}
	assert_int_equal(cmd_image_read_facts("", id, &packages), -1);
	assert_int_equal(cmd_image_read_facts("package a 1 all\n", id, &packages), -1);
	assert_int_equal(cmd_image_read_facts("sha256 XY\n", id, &packages), -1);
}

static int build_with(struct fixture *fixture, const char *script, const char *limit, json_t **answer)
{
	char builder[2 * PATH_SIZE], text[1024];
	const struct image_order order = {.builder = builder,
		.name = "python",
		.kind = "debian",
		.source = "python3,x",
		.limit = limit};

	snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
	write_file(fixture->state, "builder", text);
	snprintf(builder, sizeof builder, "%s/builder", fixture->state);
	assert_int_equal(chmod(builder, 0755), 0);
	return cmd_image_build(&fixture->store, &order, answer, &fixture->error);
}

static void test_a_build(void **state)
{
	static const char script[] =
		"[ \"$2 $3 $4 $5\" = '--debian python3,x --limit 1G' ] || exit 1\n"
		"printf 'an image' >$1\n"
		"printf 'package python3 3 all\\nsha256 %s\\n' $(printf '%064d' 0) >$1.facts; echo printed";
	struct fixture *fixture = *state;
	json_t *answer, *source;

	put(fixture, "python", 'a');
	assert_int_equal(build_with(fixture, script, "1G", &answer), 0);
	assert_string_equal(json_string_value(json_object_get(answer, "id")), id_of('0'));
	source = json_object_get(answer, "source");
	assert_string_equal(json_string_value(json_object_get(source, "kind")), "debian");
	assert_string_equal(json_string_value(json_object_get(source, "of")), "python3,x");
	assert_int_equal(json_array_size(json_object_get(answer, "packages")), 1);
	assert_int_equal(json_array_size(json_object_get(answer, "collected")), 1);
	json_decref(answer);
	expect_found(fixture, "python", '0');
	assert_int_equal(count_files(fixture), 2);
}

static void test_builds_that_fail(void **state)
{
	struct fixture *fixture = *state;
	json_t *answer;

	assert_int_equal(build_with(fixture, "printf half >$1; exit 1", NULL, &answer), -1);
	assert_int_equal(fixture->error.kind, ERROR_BUILD_FAILED);
	assert_string_equal(
		fixture->error.message, "the image was not built (the builder's message is above)");
	assert_int_equal(build_with(fixture, "kill -KILL $$", NULL, &answer), -1);
	assert_int_equal(fixture->error.kind, ERROR_BUILD_FAILED);
	assert_int_equal(build_with(fixture, "printf half >$1", NULL, &answer), -1);
	assert_string_equal(fixture->error.message, "the builder has not said what it has made");
	assert_int_equal(
		build_with(fixture, "printf 'sha256 %s\\n' $(printf '%064d' 0) >$1.facts", NULL, &answer),
		-1);
	assert_string_equal(
		fixture->error.message, "cannot bring the image to the disk: No such file or directory");
	assert_int_equal(count_files(fixture), 0);
}

/* A child that builds; its group's and the builder's end is what is waited for. */
static void expect_interrupted(struct fixture *fixture, int first, int second, int wanted)
{
	char marker[2 * PATH_SIZE], script[3 * PATH_SIZE];
	int status, waited = 0;
	pid_t pid;

	snprintf(marker, sizeof marker, "%s/marker", fixture->state);
	/* One that minds no signal but KILL, when there are to be two. */
	snprintf(script, sizeof script, "%s\nmkdir $1.d; echo $$ >%s\nwhile :; do sleep 60; done",
		second ? "trap '' TERM" : "", marker);
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		json_t *answer;

		_exit(build_with(fixture, script, NULL, &answer));
	}
	while (access(marker, F_OK) < 0 && waited++ < WAIT_MS)
		usleep(1000);
	assert_true(waited < WAIT_MS);
	assert_int_equal(kill(pid, first), 0);
	if (second) {
		usleep(100 * 1000);
		assert_int_equal(kill(pid, second), 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), wanted);
	assert_int_equal(count_files(fixture), 0);
	assert_int_equal(unlink(marker), 0);
}

static void test_builds_that_are_interrupted(void **state)
{
	struct fixture *fixture = *state;

	expect_interrupted(fixture, SIGINT, 0, SIGINT);
	expect_interrupted(fixture, SIGTERM, 0, SIGTERM);
	expect_interrupted(fixture, SIGHUP, SIGINT, SIGINT);
}

static void test_no_builder(void **state)
{
	struct fixture *fixture = *state;
	const struct image_order order = {
		.builder = "/none/builder", .name = "python", .kind = "dir", .source = "/"};
	json_t *answer;

	assert_int_equal(cmd_image_build(&fixture->store, &order, &answer, &fixture->error), -1);
	assert_int_equal(fixture->error.kind, ERROR_NOT_FOUND);
	assert_string_equal(
		fixture->error.message, "there is no builder /none/builder: give its path with --builder");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_facts),
		cmocka_unit_test_setup_teardown(test_a_build, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_builds_that_fail, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_builds_that_are_interrupted, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_no_builder, set_up, tear_down),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
