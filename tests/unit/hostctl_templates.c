/* SPDX-License-Identifier: Apache-2.0 */
/* Templates and the pool on clones of them, with a vmm that only plays. */
#include "tests/unit/hostctl_templates_fixture.h"

enum { IDS_MAX = 1024 };

static char *const pool_of_two[] = {"--pool", "2", NULL};

static void start_with_templates(struct daemon *daemon, const char *script)
{
	start_with_templates_and(daemon, script, pool_of_two);
}

static ino_t template_inode(const struct daemon *daemon)
{
	struct stat status;
	char path[160];

	templates_path(daemon, "base/state", path);
	assert_int_equal(stat(path, &status), 0);
	return status.st_ino;
}

static const char prefaulted[] = "--restore\0fd:5,memory=fd:6,working-set=fd:8";

static void test_the_pool_is_of_clones(void **state)
{
	struct daemon daemon;

	(void)state;
	start_with_templates(&daemon, "boot");
	assert_int_equal(count_clones(&daemon), 2);
	expect_health(&daemon, 200, NULL);
	for (int i = 0; i < 4; i++)
		expect_echo(&daemon);
	await_pool(&daemon, "warm", 2);
	assert_int_equal(count_clones(&daemon), 2);
	daemon_stop(&daemon);
	assert_int_equal(count_templates(&daemon, ""), 3);
	remove_state(&daemon);
}

/* The start writes the kernel anew each time; this one's time is set back to what it was. */
static void keep_kernel(const struct daemon *daemon, bool restore)
{
	static struct stat before;
	char path[96];

	snprintf(path, sizeof path, "%s/kernel", daemon->folder);
	if (restore) {
		const struct timespec times[2] = {before.st_atim, before.st_mtim};

		write_text(daemon->folder, "kernel", "\177ELF boot");
		assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
	} else {
		assert_int_equal(stat(path, &before), 0);
	}
}

static void expect_member(const struct daemon *daemon, const char *name, const char *wanted)
{
	struct answer answer;

	call(daemon, "GET", "/v1/templates/base", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, name), wanted);
	answer_finish(&answer);
}

/* The check's clone reads the first page and writes another; both are recorded, and clones get the file. */
static void test_clones_get_the_working_set_that_was_recorded(void **state)
{
	static char *const without[] = {"--pool", "2", "--no-prefault", NULL};
	static const uint8_t wanted[] = "TNDXWSET\1\0\0\0\40\0\0\0\0\0\0\10\0\0\0\0\1\0\0\0\1\0\0\0"
					"\0\1\0\0\1\0\0\0\0\0\0\0\1\0\0";
	struct daemon daemon;
	uint8_t found[sizeof wanted];
	char path[160];
	int fd;

	(void)state;
	start_with_templates(&daemon, "boot touch");
	assert_int_equal(count_vmms(&daemon, prefaulted, sizeof prefaulted), 2);
	expect_member(&daemon, "working_set", "{\"read_pages\":1,\"runs\":2,\"written_pages\":1}");
	templates_path(&daemon, "base/working-set", path);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(read(fd, found, sizeof found), sizeof found);
	close(fd);
	assert_memory_equal(found, wanted, sizeof wanted);
	expect_echo(&daemon);
	stop(&daemon);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", without, true);
	assert_int_equal(count_vmms(&daemon, prefaulted, sizeof prefaulted), 0);
	assert_int_equal(count_clones(&daemon), 2);
	stop(&daemon);
	daemon_launch(&daemon, "", pool_of_two, true);
	assert_int_equal(count_vmms(&daemon, prefaulted, sizeof prefaulted), 2);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_template_is_built_again_when_its_inputs_changed(void **state)
{
	static char *const more_memory[] = {"--pool", "2", "--mem", "64M", NULL};
	struct daemon daemon;
	ino_t first, second;

	(void)state;
	start_with_templates(&daemon, "boot");
	first = template_inode(&daemon);
	keep_kernel(&daemon, false);
	stop(&daemon);
	keep_kernel(&daemon, true);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_int_equal(count_clones(&daemon), 2);
	assert_true(template_inode(&daemon) == first);
	stop(&daemon);
	daemon_launch(&daemon, "boot", more_memory, true);
	second = template_inode(&daemon);
	assert_true(second != first);
	stop(&daemon);
	write_image(&daemon, 'j');
	daemon_launch(&daemon, "boot", more_memory, true);
	assert_true(template_inode(&daemon) != second);
	assert_int_equal(count_clones(&daemon), 2);
	daemon_stop(&daemon);
	assert_int_equal(count_templates(&daemon, ""), 3);
	remove_state(&daemon);
}

static void test_one_that_cannot_be_loaded_is_built_again(void **state)
{
	struct daemon daemon;
	char path[160];
	ino_t first;

	(void)state;
	start_with_templates(&daemon, "boot");
	first = template_inode(&daemon);
	keep_kernel(&daemon, false);
	stop(&daemon);
	keep_kernel(&daemon, true);
	daemon.keep_kernel = true;
	/* As a vmm does on a CPU of another kind. */
	templates_path(&daemon, "base", path);
	write_text(path, "state", "of another kind");
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_true(template_inode(&daemon) != first);
	assert_int_equal(count_clones(&daemon), 2);
	expect_health(&daemon, 200, NULL);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_failed_build_leaves_nothing_and_the_pool_boots(void **state)
{
	static const struct {
		const char *script, *reason;
	} cases[] = {
		{"boot pause-refused", "template base could not be built: the guest could not be paused: "
				       "Operation already in progress"},
		{"boot save-refused",
			"template base could not be built: the guest could not be saved: no room for the "
			"memory"},
		{"boot baseline-status:28", "template base could not be built: the agent could not note the "
					    "guest's files: the guest's "
					    "disk is full"},
		{"boot baseline-garbage",
			"template base could not be built: the agent did not answer whether it has noted the "
			"guest's files"},
		{"boot restore-exit:1",
			"template base could not be built: the VM could not be set up (vmm: fake vmm: told "
			"not to "
			"restore)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct daemon daemon;

		start_with_templates(&daemon, cases[i].script);
		assert_int_equal(count_clones(&daemon), 0);
		expect_health(&daemon, 200, cases[i].reason);
		expect_echo(&daemon);
		daemon_stop(&daemon);
		assert_int_equal(count_templates(&daemon, ""), 2);
		remove_state(&daemon);
	}
}

static void await_building(const struct daemon *daemon)
{
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		if (count_templates(daemon, ".building-base-") == 1)
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("no build began");
}

static void test_a_daemon_killed_during_a_build_leaves_nothing_for_long(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:2000", pool_of_two, false);
	await_building(&daemon);
	sleep_ms(200);
	assert_int_equal(kill(daemon.pid, SIGKILL), 0);
	assert_int_equal(daemon_wait(&daemon), 128 + SIGKILL);
	assert_int_equal(count_templates(&daemon, "base"), 0);
	assert_int_equal(count_templates(&daemon, ".building-base-"), 1);
	daemon_launch(&daemon, "boot", pool_of_two, true);
	assert_int_equal(count_templates(&daemon, ".building-base-"), 0);
	assert_int_equal(count_clones(&daemon), 2);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_stop_during_a_build_leaves_nothing(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:2000", pool_of_two, false);
	await_building(&daemon);
	daemon_stop(&daemon);
	assert_int_equal(count_templates(&daemon, ""), 2);
	remove_state(&daemon);
}

/* Who comes while base is being built waits for a clone of it. */
static void test_runs_wait_for_the_build(void **state)
{
	struct daemon daemon;

	(void)state;
	daemon_folder(&daemon);
	daemon.templates = true;
	daemon_launch(&daemon, "boot save-slow:300", pool_of_two, false);
	expect_echo(&daemon);
	await_pool(&daemon, "warm", 2);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* --- the API --- */

static void build(const struct daemon *daemon, const char *body)
{
	struct answer answer;

	call(daemon, "POST", "/v1/templates", body, &answer);
	if (answer.status != 200)
		print_message("%s", answer.body);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
}

static long number_at(
	const struct daemon *daemon, const char *path, const char *list, size_t index, const char *name)
{
	struct answer answer;
	long number;

	call(daemon, "GET", path, NULL, &answer);
	assert_int_equal(answer.status, 200);
	number = (long)json_integer_value(
		json_object_get(json_array_get(json_object_get(answer.json, list), index), name));
	answer_finish(&answer);
	return number;
}

static void await_other_pool(const struct daemon *daemon, const char *name, long wanted)
{
	long number = -1;

	for (int waited = 0; waited < WAIT_MS && number != wanted; waited += POLL_MS) {
		number = number_at(daemon, "/v1/pools", "pools", 1, name);
		sleep_ms(number == wanted ? 0 : POLL_MS);
	}
	assert_int_equal(number, wanted);
}

static void test_templates_are_built_listed_used_and_removed(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_with_templates(&daemon, "boot");
	call(&daemon, "POST", "/v1/templates",
		"{\"name\":\"tools\",\"mem\":\"64M\",\"run\":[\"echo one\",\"both\"]}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(
		member(&answer, "stdout"), "{\"data\":\"one\\nout\\n\",\"bytes\":8,\"dropped\":0}");
	assert_string_equal(member(&answer, "stderr"), "{\"data\":\"err\\n\",\"bytes\":4,\"dropped\":0}");
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/templates/tools", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "name"), "\"tools\"");
	assert_string_equal(member(&answer, "loaded"), "true");
	assert_string_equal(member(&answer, "memory_bytes"), "4096");
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/templates", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "templates")), 2);
	answer_finish(&answer);
	/* A miss is a clone made on request. */
	run_command(&daemon, "{\"argv\":[\"echo\",\"a\"],\"template\":\"tools\"}", &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "warm"), "false");
	answer_finish(&answer);
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":1}");
	await_other_pool(&daemon, "warm", 1);
	run_command(&daemon, "{\"argv\":[\"echo\",\"a\"],\"template\":\"tools\"}", &answer);
	assert_string_equal(member(&answer, "warm"), "true");
	answer_finish(&answer);
	remove_template(&daemon, "tools", 409);
	call(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":0}", &answer);
	answer_finish(&answer);
	await_other_pool(&daemon, "warm", 0);
	await_vms(&daemon, "tools", 0);
	remove_template(&daemon, "tools", 200);
	remove_template(&daemon, "tools", 404);
	expect_refused(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\"],\"template\":\"tools\"}",
		"not_found", "there is no template tools: see `host-ctl template list`, or build it");
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* The ids of its VMs, as one text. */
static void list_vms(const struct daemon *daemon, const char *name, char ids[IDS_MAX], const char *generation)
{
	struct answer answer;
	const json_t *vm;
	char path[64];
	size_t i, length = 0;

	snprintf(path, sizeof path, "/v1/pool?template=%s", name);
	call(daemon, "GET", path, NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_string_equal(member(&answer, "generation"), generation);
	ids[0] = '\0';
	json_array_foreach(json_object_get(answer.json, "vms"), i, vm)
	{
		length += (size_t)snprintf(
			ids + length, IDS_MAX - length, "%s ", json_string_value(json_object_get(vm, "id")));
		assert_true(length < IDS_MAX);
	}
	answer_finish(&answer);
}

static void build_again(const struct daemon *daemon, char generation[64])
{
	struct answer answer;

	call(daemon, "POST", "/v1/templates", "{\"name\":\"tools\",\"run\":[\"echo again\"]}", &answer);
	assert_int_equal(answer.status, 200);
	snprintf(generation, 64, "\"%s\"",
		json_string_value(json_object_get(json_object_get(answer.json, "template"), "generation")));
	answer_finish(&answer);
}

/* Who asks after the build's answer gets none of the clones that were warm before. */
static void test_a_rebuilt_template_replaces_its_clones(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char old[IDS_MAX] = "", generation[64], before[64];

	(void)state;
	start_with_templates(&daemon, "boot");
	build_again(&daemon, before);
	call(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":2}", &answer);
	answer_finish(&answer);
	for (int i = 0; i < 3; i++) {
		await_other_pool(&daemon, "warm", 2);
		list_vms(&daemon, "tools", old, before);
		build_again(&daemon, generation);
		assert_string_not_equal(generation, before);
		run_command(&daemon, "{\"argv\":[\"echo\",\"a\"],\"template\":\"tools\"}", &answer);
		assert_int_equal(answer.status, 200);
		assert_null(strstr(old, json_string_value(json_object_get(answer.json, "vm"))));
		answer_finish(&answer);
		memcpy(before, generation, sizeof before);
	}
	await_other_pool(&daemon, "starting", 0);
	await_other_pool(&daemon, "warm", 2);
	/* All warm ones are of the last one, which counts only its own. */
	await_vms(&daemon, "tools", 2);
	list_vms(&daemon, "tools", old, generation);
	assert_int_equal(number_at(&daemon, "/v1/pools", "pools", 1, "warm_lost"), 0);
	call(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":0}", &answer);
	answer_finish(&answer);
	await_vms(&daemon, "tools", 0);
	remove_template(&daemon, "tools", 200);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* What lies on the disk is loaded by the first run on it, which waits for that. */
static void test_templates_come_back_with_the_daemon(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_with_templates(&daemon, "boot");
	build(&daemon, "{\"name\":\"tools\"}");
	stop(&daemon);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", pool_of_two, false);
	call(&daemon, "GET", "/v1/templates/tools", NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"stored\"");
	assert_string_equal(member(&answer, "reason"), "null");
	answer_finish(&answer);
	run_command(&daemon, "{\"argv\":[\"echo\",\"a\"],\"template\":\"tools\"}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/templates/tools", NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"ready\"");
	answer_finish(&answer);
	await_vms(&daemon, "tools", 0);
	remove_template(&daemon, "tools", 200);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* Its builds are not the leftovers of another. */
static void test_a_state_folder_has_one_daemon(void **state)
{
	struct daemon daemon, second;

	(void)state;
	start_with_templates(&daemon, "boot");
	daemon_folder(&second);
	second.templates = true;
	snprintf(second.state, sizeof second.state, "%s", daemon.state);
	write_text(second.folder, "kernel", "boot");
	second.pid = fork();
	if (second.pid == 0)
		daemon_child(&second, STDERR_FILENO, pool_of_two);
	assert_int_equal(daemon_wait(&second), 1);
	remove_folder(second.folder);
	expect_echo(&daemon);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_bad_requests_are_refused_by_name(void **state)
{
	static const struct {
		const char *method, *path, *body, *code, *message;
	} cases[] = {
		{"POST", "/v1/templates", "", "invalid", "the body is empty: send a JSON object"},
		{"POST", "/v1/templates", "[]", "invalid", "the body is not a JSON object"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\n\"name\":\"y\"}", "invalid",
			"the body has a key twice near '\"name\"' (line 2, column 6)"},
		{"POST", "/v1/templates", "{\"name\":\"x\\u0000\"}", "invalid",
			"\\u0000 is not allowed in a string (line 1, column 17): only base64 carries a NUL"},
		{"PUT", "/v1/pool", "{\"target\":1", "invalid",
			"the body is not JSON: '}' expected near end of file (line 1, column 11)"},
		{"POST", "/v1/templates", "{\"nam\":\"x\"}", "invalid",
			"unknown field \"nam\" in the request"},
		{"POST", "/v1/templates", "{\"name\":\"../x\"}", "invalid",
			"name is not the name of a template: it has a-z, 0-9, '.', '_' and '-', a letter or "
			"digit first, not '../x'"},
		{"POST", "/v1/templates", "{\"mem\":\"64M\"}", "invalid",
			"name is missing: give the name of a template"},
		{"POST", "/v1/templates", "{\"name\":7}", "invalid",
			"name is not a string: give the name of a template"},
		{"POST", "/v1/templates", "{\"name\":\"\"}", "invalid",
			"name is empty: give the name of a template"},
		{"POST", "/v1/templates",
			"{\"name\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"}",
			"invalid", "name is 64 bytes long, and the name of a template at most 63"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"mem\":\"31M\"}", "invalid",
			"mem is not a size from 32M to 511G in whole MiB, as a string"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"cpus\":9}", "invalid",
			"cpus is not a whole number from 1 to 8"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"image\":\"\"}", "invalid",
			"image is not an absolute path, nor the name or id of an image"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"image\":\"../image\"}", "invalid",
			"'../image' is not the name of an image: it has a-z, 0-9, '.', '_' and '-', a letter "
			"or digit first, and at most 63 of them"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"image\":\"sha256-0123\"}", "invalid",
			"'sha256-0123' is not the id of an image: that is sha256- and 64 hex digits, of "
			"which "
			"at least the first 8 are given"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"image\":\"base\"}", "not_found",
			"there is no image base: see `host-ctl image ls`, or build it with `host-ctl image "
			"build`"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"image\":\"/none\"}", "invalid",
			"the image /none cannot be found: No such file or directory"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"run\":[\"\"]}", "invalid",
			"run[0] is empty: give a line for the guest's shell"},
		{"POST", "/v1/templates", "{\"name\":\"x\",\"run\":[\"true\",1]}", "invalid",
			"run[1] is not a string: give a line for the guest's shell"},
		{"POST", "/v1/templates", "{\"name\":\"base\"}", "conflict",
			"base is the daemon's own, built at its start from what that is told: give another "
			"name"},
		{"GET", "/v1/templates/none", NULL, "not_found",
			"there is no template none: see `host-ctl template list`, or build it"},
		{"GET", "/v1/templates/..", NULL, "not_found",
			"there is no template ..: see `host-ctl template list`, or build it"},
		{"GET", "/v1/templates/base%00x", NULL, "invalid",
			"the path has a NUL (%00), which no name has"},
		{"DELETE", "/v1/templates/base%00x", NULL, "invalid",
			"the path has a NUL (%00), which no name has"},
		{"GET", "/v1/templates?name=base", NULL, "invalid",
			"/v1/templates takes no parameter \"name\""},
		{"GET", "/v1/pool?templat=base", NULL, "invalid",
			"/v1/pool takes no parameter \"templat\", but for template"},
		{"GET", "/v1/pool?template=base&template=x", NULL, "invalid",
			"the parameter template is there twice"},
		{"GET", "/v1/pool?template", NULL, "invalid", "the parameter template has no value"},
		{"GET", "/v1/pool?template=", NULL, "invalid", "the parameter template has no value"},
		{"GET", "/v1/pool?template=none", NULL, "not_found",
			"there is no template none: see `host-ctl template list`, or build it"},
		{"PUT", "/v1/templates", NULL, "method_not_allowed",
			"/v1/templates takes POST and GET, not PUT"},
		{"PUT", "/v1/pool", "{\"template\":\"base\"}", "invalid",
			"target is not a whole number from 0 to 256"},
		{"PUT", "/v1/pool", "{\"template\":\"none\",\"target\":1}", "not_found",
			"there is no template none: see `host-ctl template list`, or build it"},
		{"DELETE", "/v1/templates/base", NULL, "conflict",
			"base is the daemon's own and stays: it is built again at a start when its files or "
			"sizes are others; to have no VM of it, set its target to 0"},
		{"PUT", "/v1/pool", "{\"template\":\"base\",\"target\":256}", "invalid",
			"target 256, with the 0 of other pools, is more than the 128 VMs that this daemon "
			"may "
			"have at once: give less, or start it with a larger --max-vms"},
	};
	struct daemon daemon;

	(void)state;
	start_with_templates(&daemon, "boot");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		expect_refused(&daemon, cases[i].method, cases[i].path, cases[i].body, cases[i].code,
			cases[i].message);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_pool_is_of_clones),
		cmocka_unit_test(test_clones_get_the_working_set_that_was_recorded),
		cmocka_unit_test(test_a_template_is_built_again_when_its_inputs_changed),
		cmocka_unit_test(test_one_that_cannot_be_loaded_is_built_again),
		cmocka_unit_test(test_a_failed_build_leaves_nothing_and_the_pool_boots),
		cmocka_unit_test(test_a_daemon_killed_during_a_build_leaves_nothing_for_long),
		cmocka_unit_test(test_a_stop_during_a_build_leaves_nothing),
		cmocka_unit_test(test_runs_wait_for_the_build),
		cmocka_unit_test(test_templates_are_built_listed_used_and_removed),
		cmocka_unit_test(test_a_rebuilt_template_replaces_its_clones),
		cmocka_unit_test(test_templates_come_back_with_the_daemon),
		cmocka_unit_test(test_a_state_folder_has_one_daemon),
		cmocka_unit_test(test_bad_requests_are_refused_by_name),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
