/* SPDX-License-Identifier: Apache-2.0 */
/* What a template may be besides ready, and how it gets so: its folder, the disk, the host's memory, tries.
 */
#include "tests/unit/hostctl_templates_fixture.h"

#include "host-ctl/pool/template_store.h"
#include "host-ctl/support/state_folder.h"
#include <sys/mount.h>

/* --- folders --- */

/* It is not followed, neither to be read nor to be removed. */
static void test_links_are_not_followed(void **state)
{
	struct daemon daemon;
	char link[160], target[160], file[200], message[512];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	templates_path(&daemon, "tools", link);
	snprintf(target, sizeof target, "%s.target", daemon.folder);
	assert_int_equal(mkdir(target, 0700), 0);
	write_text(target, "template.json", "{\"format\": 1, \"name\": \"tools\"}");
	assert_int_equal(symlink(target, link), 0);
	snprintf(message, sizeof message,
		"template tools cannot be used: %s is a symbolic link, which is not followed, not a folder: "
		"remove it, or build it again",
		link);
	expect_state(&daemon, "tools", "damaged", message);
	expect_refused(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\"],\"template\":\"tools\"}",
		"build_failed", message);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	assert_int_equal(access(link, F_OK), -1);
	snprintf(file, sizeof file, "%s/template.json", target);
	assert_int_equal(access(file, F_OK), 0);
	/* A build takes its place. */
	assert_int_equal(symlink(target, link), 0);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	expect_state(&daemon, "tools", "ready", NULL);
	assert_int_equal(access(file, F_OK), 0);
	assert_int_equal(count_templates(&daemon, ".building"), 0);
	remove_folder(target);
	finish(&daemon);
}

static void make_template(const struct daemon *daemon, const char *name, const char *description)
{
	char path[160];

	templates_path(daemon, name, path);
	assert_int_equal(mkdir(path, 0700), 0);
	if (description)
		write_text(path, "template.json", description);
}

/* They are named, are no template to run in, and can be removed. */
static void test_damaged_descriptions_are_named(void **state)
{
	static const struct {
		const char *name, *description, *reason;
	} cases[] = {
		{"newer", "{\"format\": 2, \"name\": \"newer\"}",
			"template newer cannot be used: its template.json is damaged or of another version: "
			"build it again"},
		{"other", "{\"format\": 1, \"name\": \"tools\"}",
			"template other cannot be used: its template.json is that of a template of another "
			"name: name its folder so again, or build it again"},
		{"torn", "{\"format\": 1, \"na",
			"template torn cannot be used: its template.json is damaged or of another version: "
			"build it again"},
		{"zero", NULL, "template zero cannot be used: its template.json is missing: build it again"},
	};
	struct daemon daemon;
	struct answer answer;
	json_t *list;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	stop(&daemon);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		make_template(&daemon, cases[i].name, cases[i].description);
	daemon_launch(&daemon, "boot", pool_of_one, true);
	call(&daemon, "GET", "/v1/templates", NULL, &answer);
	assert_int_equal(answer.status, 200);
	list = json_object_get(answer.json, "templates");
	assert_int_equal(json_array_size(list), 5);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		const json_t *one = json_array_get(list, i + 1);
		char path[64], body[128];
		struct answer refusal;

		assert_string_equal(json_string_value(json_object_get(one, "state")), "damaged");
		assert_string_equal(json_string_value(json_object_get(one, "reason")), cases[i].reason);
		assert_true(json_is_false(json_object_get(one, "loaded")));
		snprintf(body, sizeof body, "{\"argv\":[\"echo\",\"x\"],\"template\":\"%s\"}", cases[i].name);
		run_command(&daemon, body, &refusal);
		assert_string_equal(error_member(&refusal, "code"), "build_failed");
		assert_string_equal(error_member(&refusal, "message"), cases[i].reason);
		answer_finish(&refusal);
		snprintf(path, sizeof path, "/v1/templates/%s", cases[i].name);
		call(&daemon, "GET", path, NULL, &refusal);
		assert_string_equal(member(&refusal, "state"), "\"damaged\"");
		answer_finish(&refusal);
		remove_template(&daemon, cases[i].name, 200);
	}
	answer_finish(&answer);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* Nothing beside the templates is looked at, let alone told of, whatever is asked for. */
static void test_a_path_is_no_name(void **state)
{
	static const char *const paths[] = {
		"../templates", "../journal.db", "base/state", "/", ".", "..", "BASE"};
	struct daemon daemon;
	char body[128], message[128];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
		snprintf(body, sizeof body, "{\"argv\":[\"echo\"],\"template\":\"%s\"}", paths[i]);
		snprintf(message, sizeof message,
			"there is no template %s: see `host-ctl template list`, or build it", paths[i]);
		expect_refused(&daemon, "POST", "/v1/run", body, "not_found", message);
	}
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* Folders of that number of templates. */
static void make_numbered(const struct daemon *daemon, unsigned int first, unsigned int end)
{
	char name[16];

	for (unsigned int i = first; i < end; i++) {
		snprintf(name, sizeof name, "t%03u", i);
		make_template(daemon, name, NULL);
	}
}

/* What GET /v1/templates has: base and these, each once, in order. */
static void expect_listed(const struct daemon *daemon, unsigned int count)
{
	struct answer answer;
	json_t *list;
	char name[16];

	call(daemon, "GET", "/v1/templates", NULL, &answer);
	assert_int_equal(answer.status, 200);
	list = json_object_get(answer.json, "templates");
	assert_int_equal(json_array_size(list), count + 1);
	for (unsigned int i = 0; i <= count; i++) {
		snprintf(name, sizeof name, i ? "t%03u" : "base", i - 1);
		assert_string_equal(
			json_string_value(json_object_get(json_array_get(list, i), "name")), name);
	}
	answer_finish(&answer);
}

/* All are listed, however many there are; when there are as many as may be, a build is told so. */
static void test_as_many_as_may_be(void **state)
{
	struct daemon daemon;
	char message[160], name[16];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	make_numbered(&daemon, 0, 64);
	expect_listed(&daemon, 64);
	make_numbered(&daemon, 64, TEMPLATES_MAX - 1);
	expect_listed(&daemon, TEMPLATES_MAX - 1);
	snprintf(message, sizeof message,
		"there are %d templates already, those that are being built included, and no more than that "
		"are kept: remove one that is not used",
		TEMPLATES_MAX);
	expect_refused(&daemon, "POST", "/v1/templates", "{\"name\":\"more\"}", "exhausted", message);
	/* One that takes another's place needs none. */
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"t000\"}");
	expect_state(&daemon, "t000", "ready", NULL);
	remove_template(&daemon, "t001", 200);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"more\"}");
	expect_refused(&daemon, "POST", "/v1/templates", "{\"name\":\"t001\"}", "exhausted", message);
	/* What somebody has put there beyond that is shown all the same. */
	remove_template(&daemon, "more", 200);
	make_numbered(&daemon, 1, 2);
	make_numbered(&daemon, TEMPLATES_MAX - 1, TEMPLATES_MAX + 8);
	expect_listed(&daemon, TEMPLATES_MAX + 8);
	for (unsigned int i = 0; i < TEMPLATES_MAX + 8; i++) {
		snprintf(name, sizeof name, "t%03u", i);
		remove_template(&daemon, name, 200);
	}
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void expect_folder_refused(const char *path, uid_t owner, mode_t mode, const char *end)
{
	struct error error;
	char message[512];

	assert_int_equal(chown(path, owner, (gid_t)-1), 0);
	assert_int_equal(chmod(path, mode), 0);
	assert_int_equal(state_folder_open(path, &error), -EPERM);
	snprintf(message, sizeof message, "the state folder %s %s", path, end);
	assert_string_equal(error.message, message);
}

static void test_a_state_folder_of_others_is_refused(void **state)
{
	char path[] = "/tmp/tinderbox-state.XXXXXX";
	struct error error;
	int fd;

	(void)state;
	if (geteuid() != 0)
		skip();
	assert_non_null(mkdtemp(path));
	expect_folder_refused(path, 1000, 0755,
		"is uid 1000's, who could replace what VMs are made of: give it to uid 0 (chown), or name "
		"another with --state-dir");
	expect_folder_refused(path, 0, 0777,
		"has mode 0777, so that others could replace what VMs are made of: take that from them "
		"(chmod go-w), or name another with --state-dir");
	expect_folder_refused(path, 0, 0770,
		"has mode 0770, so that others could replace what VMs are made of: take that from them "
		"(chmod go-w), or name another with --state-dir");
	assert_int_equal(chmod(path, 0750), 0);
	fd = state_folder_open(path, &error);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(rmdir(path), 0);
	/* Made when missing, but for what is above it. */
	fd = state_folder_open(path, &error);
	assert_true(fd >= 0);
	close(fd);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(state_folder_open("/none/x", &error), -ENOENT);
	assert_string_equal(error.message,
		"cannot make the state folder /none/x: No such file or directory: name a folder that can be "
		"written with --state-dir");
}

static void fill(const char *folder)
{
	static const char page[4096];
	char path[200];
	int fd;

	snprintf(path, sizeof path, "%s/filler", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, page, sizeof page) > 0)
		;
	assert_int_equal(errno, ENOSPC);
	close(fd);
}

static void test_a_full_disk_is_named(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char message[512];

	(void)state;
	daemon_folder(&daemon);
	assert_int_equal(mkdir(daemon.state, 0755), 0);
	if (mount("none", daemon.state, "tmpfs", 0, "size=8m,mode=755") < 0) {
		rmdir(daemon.state);
		remove_folder(daemon.folder);
		skip();
	}
	daemon.templates = true;
	daemon_launch(&daemon, "boot", pool_of_one, true);
	fill(daemon.state);
	call(&daemon, "POST", "/v1/templates", "{\"name\":\"x\"}", &answer);
	assert_string_equal(error_member(&answer, "code"), "build_failed");
	snprintf(message, sizeof message,
		": the disk of %s/templates is full: free some of it, or name a folder on another with "
		"--state-dir",
		daemon.state);
	assert_non_null(strstr(error_member(&answer, "message"), message));
	answer_finish(&answer);
	assert_int_equal(count_templates(&daemon, ""), 3);
	daemon_stop(&daemon);
	assert_int_equal(umount(daemon.state), 0);
	assert_int_equal(rmdir(daemon.state), 0);
}

/* It is told as it was when the vmm wrote, though there is room when the build has ended. */
static void test_a_disk_that_was_full_is_named(void **state)
{
	struct daemon daemon;
	char message[512];

	(void)state;
	start_with_templates_and(&daemon, "boot save-full", pool_of_one);
	snprintf(message, sizeof message,
		"template x could not be built: the guest could not be saved: writing the snapshot: No "
		"space left on device: the disk of %s/templates is full: free some of it, or name a folder "
		"on "
		"another with --state-dir",
		daemon.state);
	expect_refused(&daemon, "POST", "/v1/templates", "{\"name\":\"x\"}", "build_failed", message);
	assert_int_equal(count_templates(&daemon, ""), 2);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* --- loads --- */

/* The one that cannot be loaded is told of by name, to whoever waits for it and in its state. */
static void test_what_cannot_be_loaded_is_damaged(void **state)
{
	static const char reason[] =
		"template tools could not be loaded: the VM could not be set up (vmm: fake "
		"vmm: the state is none: Invalid argument)";
	struct daemon daemon;
	char path[160];

	(void)state;
	start_with_stored(&daemon, NULL);
	templates_path(&daemon, "tools", path);
	write_text(path, "state", "of another kind");
	daemon_launch(&daemon, "", pool_of_one, true);
	expect_state(&daemon, "tools", "stored", NULL);
	/* The second is told at once. */
	for (int i = 0; i < 2; i++)
		expect_refused(&daemon, "POST", "/v1/run", "{\"argv\":[\"echo\"],\"template\":\"tools\"}",
			"build_failed", reason);
	expect_state(&daemon, "tools", "damaged", reason);
	expect_refused(&daemon, "GET", "/v1/pool?template=tools", NULL, "not_found",
		"template tools has no pool yet: give it one with a target, or run something on it");
	expect_health(&daemon, 200, NULL);
	/* What is built again is not. */
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	expect_state(&daemon, "tools", "ready", NULL);
	finish(&daemon);
}

/* An image that changes takes its templates with it; its reason is kept with the pool that has a target. */
static void test_a_target_on_what_cannot_be_loaded(void **state)
{
	static const char reason[] = "cannot load the memory of template tools: No such file or directory";
	struct daemon daemon;
	char path[160];

	(void)state;
	start_with_stored(&daemon, NULL);
	templates_path(&daemon, "tools/memory", path);
	assert_int_equal(unlink(path), 0);
	daemon_launch(&daemon, "", pool_of_one, true);
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":1}");
	for (int waited = 0;; waited += POLL_MS) {
		struct answer answer;
		const char *last;
		bool there;

		call(&daemon, "GET", "/v1/pool?template=tools", NULL, &answer);
		last = json_string_value(json_object_get(answer.json, "last_failure"));
		there = last && !strcmp(last, reason);
		answer_finish(&answer);
		if (there)
			break;
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	/* The other pool serves. */
	expect_health(&daemon, 200, reason);
	expect_echo(&daemon);
	succeed(&daemon, "PUT", "/v1/pool", "{\"target\":0}");
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	await_vms(&daemon, "tools", 1);
	succeed(&daemon, "PUT", "/v1/pool", "{\"template\":\"tools\",\"target\":0}");
	await_vms(&daemon, "tools", 0);
	finish(&daemon);
}

static void test_without_room_it_stays_on_the_disk(void **state)
{
	static char *const options[] = {"--pool", "1", "--reserve", "511G", NULL};
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_with_stored(&daemon, options);
	run_command(&daemon, "{\"argv\":[\"echo\"],\"template\":\"tools\"}", &answer);
	assert_string_equal(error_member(&answer, "code"), "exhausted");
	assert_memory_equal(error_member(&answer, "message"), "no room for template tools: ", 28);
	answer_finish(&answer);
	call(&daemon, "GET", "/v1/templates/tools", NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"stored\"");
	assert_memory_equal(member(&answer, "reason"), "\"no room for template tools: ", 29);
	answer_finish(&answer);
	finish(&daemon);
}

/* --- base --- */

static void test_base_is_tried_again(void **state)
{
	struct daemon daemon;
	char kernel[96];

	(void)state;
	start_with_templates_and(&daemon, "boot save-refused", pool_of_one);
	assert_int_equal(count_clones(&daemon), 0);
	expect_health(&daemon, 200,
		"template base could not be built: the guest could not be saved: no room for the memory");
	snprintf(kernel, sizeof kernel, "%s", daemon.folder);
	write_text(kernel, "kernel", "\177ELF boot");
	for (int waited = 0; count_clones(&daemon) != 1; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	await_pool(&daemon, "warm", 1);
	expect_state(&daemon, "base", "ready", NULL);
	expect_echo(&daemon);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* What no later try could do is not to be tried again. */
static void test_more_memory_than_the_host_has(void **state)
{
	struct daemon daemon;
	struct answer answer;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	call(&daemon, "POST", "/v1/templates", "{\"name\":\"x\",\"mem\":\"511G\"}", &answer);
	assert_string_equal(error_member(&answer, "code"), "invalid");
	assert_memory_equal(error_member(&answer, "message"), "mem of 523264M is more than the ", 32);
	answer_finish(&answer);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged_descriptions_are_named),
		cmocka_unit_test(test_a_path_is_no_name),
		cmocka_unit_test(test_as_many_as_may_be),
		cmocka_unit_test(test_links_are_not_followed),
		cmocka_unit_test(test_a_state_folder_of_others_is_refused),
		cmocka_unit_test(test_a_full_disk_is_named),
		cmocka_unit_test(test_a_disk_that_was_full_is_named),
		cmocka_unit_test(test_what_cannot_be_loaded_is_damaged),
		cmocka_unit_test(test_a_target_on_what_cannot_be_loaded),
		cmocka_unit_test(test_without_room_it_stays_on_the_disk),
		cmocka_unit_test(test_base_is_tried_again),
		cmocka_unit_test(test_more_memory_than_the_host_has),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
