/* SPDX-License-Identifier: Apache-2.0 */
/* Files of templates that are not what they are to be: images that a client names, and what is in the state
 * folder. None of them holds the daemon up. */
#include "tests/unit/hostctl_templates_fixture.h"

#include "host-ctl/support/input_file.h"
#include <limits.h>
#include <sys/mount.h>

static void put_pipe(const char *path)
{
	unlink(path);
	assert_int_equal(mkfifo(path, 0600), 0);
}

static void put_socket(const char *path)
{
	int fd = unix_listen(path, SOCK_STREAM, 0600, 1);

	assert_true(fd >= 0);
	close(fd);
}

static void path_in(const struct daemon *daemon, const char *name, char path[160])
{
	snprintf(path, 160, "%s/%s", daemon->folder, name);
}

/* --- images --- */

static void expect_opened(const char *path, enum input_kind kind, int wanted, const char *wanted_fault)
{
	struct stat status;
	const char *fault;
	int fd = input_file_open(AT_FDCWD, path, O_NOFOLLOW, kind, &status, &fault);

	assert_int_equal(fd < 0 ? fd : 0, wanted);
	if (wanted_fault)
		assert_string_equal(fault, wanted_fault);
	else
		assert_null(fault);
	if (fd >= 0)
		close(fd);
}

static void test_what_is_no_file_is_not_opened(void **state)
{
	char folder[] = "/tmp/tinderbox-files.XXXXXX", path[64];

	(void)state;
	assert_non_null(mkdtemp(folder));
	write_text(folder, "file", "text");
	snprintf(path, sizeof path, "%s/file", folder);
	expect_opened(path, INPUT_FILE, 0, NULL);
	expect_opened(path, INPUT_IMAGE, 0, NULL);
	snprintf(path, sizeof path, "%s/none", folder);
	expect_opened(path, INPUT_FILE, -ENOENT, NULL);
	snprintf(path, sizeof path, "%s/pipe", folder);
	put_pipe(path);
	expect_opened(path, INPUT_FILE, -EINVAL, "a named pipe");
	snprintf(path, sizeof path, "%s/socket", folder);
	put_socket(path);
	expect_opened(path, INPUT_IMAGE, -EINVAL, "a socket");
	snprintf(path, sizeof path, "%s/link", folder);
	assert_int_equal(symlink("file", path), 0);
	expect_opened(path, INPUT_FILE, -EINVAL, "a symbolic link, which is not followed");
	expect_opened(folder, INPUT_IMAGE, -EINVAL, "a folder");
	expect_opened("/dev/null", INPUT_IMAGE, -EINVAL, "a character device");
	remove_folder(folder);
}

static void expect_image_refused(const struct daemon *daemon, const char *path, const char *end)
{
	char body[256], message[512];

	snprintf(body, sizeof body, "{\"name\":\"x\",\"image\":\"%s\"}", path);
	snprintf(message, sizeof message, "the image %s %s", path, end);
	expect_refused(daemon, "POST", "/v1/templates", body, "invalid", message);
}

static void test_what_is_no_image_is_refused_at_once(void **state)
{
	static const char mend[] = ": give a raw disk image, as a file or a block device";
	static char path[160], end[128], body[PATH_MAX + 64];
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	path_in(&daemon, "pipe", path);
	put_pipe(path);
	snprintf(end, sizeof end, "is a named pipe%s", mend);
	expect_image_refused(&daemon, path, end);
	path_in(&daemon, "socket", path);
	put_socket(path);
	snprintf(end, sizeof end, "is a socket%s", mend);
	expect_image_refused(&daemon, path, end);
	snprintf(end, sizeof end, "is a folder%s", mend);
	expect_image_refused(&daemon, daemon.folder, end);
	snprintf(end, sizeof end, "is a character device%s", mend);
	expect_image_refused(&daemon, "/dev/null", end);
	path_in(&daemon, "odd", path);
	write_text(daemon.folder, "odd", "odd");
	expect_image_refused(&daemon, path, "has 3 bytes, not a multiple of 512: pad it to whole sectors");
	write_text(daemon.folder, "odd", "");
	expect_image_refused(&daemon, path, "is empty: give a raw disk image");
	snprintf(body, sizeof body, "{\"name\":\"x\",\"image\":\"/%0*d\"}", PATH_MAX - 1, 0);
	expect_refused(&daemon, "POST", "/v1/templates", body, "invalid",
		"image is a path of 4096 bytes, the limit is 4095");
	expect_echo(&daemon);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

/* It was an image when it was asked for, and is a pipe when its turn comes. */
static void test_an_image_that_becomes_a_pipe(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char path[160], body[256], message[256];
	int first, second;

	(void)state;
	start_with_templates_and(&daemon, "boot save-slow:1500", pool_of_one);
	path_in(&daemon, "image", path);
	path_in(&daemon, "other", body);
	assert_int_equal(link(path, body), 0);
	path_in(&daemon, "other", path);
	snprintf(body, sizeof body, "{\"name\":\"second\",\"image\":\"%s\"}", path);
	first = client_open(&daemon);
	client_request(first, "POST", "/v1/templates", "", "{\"name\":\"tools\"}");
	for (int waited = 0; count_templates(&daemon, ".building-tools") != 1; waited += POLL_MS) {
		assert_true(waited < WAIT_MS);
		sleep_ms(POLL_MS);
	}
	second = client_open(&daemon);
	client_request(second, "POST", "/v1/templates", "", body);
	/* It waits now: this is answered after it. */
	expect_echo(&daemon);
	put_pipe(path);
	client_answer(first, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	client_answer(second, &answer);
	snprintf(message, sizeof message,
		"the image %s is a named pipe: give a raw disk image, as a file or a block device", path);
	assert_string_equal(error_member(&answer, "message"), message);
	assert_string_equal(error_member(&answer, "code"), "invalid");
	answer_finish(&answer);
	close(first);
	close(second);
	expect_echo(&daemon);
	finish(&daemon);
}

/* --- the state folder --- */

static void expect_damaged(const struct daemon *daemon, const char *name, const char *reason)
{
	char body[128];

	snprintf(body, sizeof body, "{\"argv\":[\"echo\"],\"template\":\"%s\"}", name);
	expect_refused(daemon, "POST", "/v1/run", body, "build_failed", reason);
	expect_state(daemon, name, "damaged", reason);
}

static void build_named(const struct daemon *daemon, const char *name)
{
	char body[256];

	snprintf(body, sizeof body, "{\"name\":\"%s\",\"image\":\"%s/other\"}", name, daemon->folder);
	succeed(daemon, "POST", "/v1/templates", body);
}

static void remove_named(const struct daemon *daemon, const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "/v1/templates/%s", name);
	succeed(daemon, "DELETE", path, NULL);
}

static void test_pipes_in_the_state_folder(void **state)
{
	static const struct {
		const char *name, *file, *reason;
	} cases[] = {
		{"a", "a/template.json",
			"template a cannot be used: its template.json is a named pipe: build it again"},
		{"b", "b/state",
			"cannot load the state of template b: it is a named pipe: build the template again"},
		{"c", "c/memory",
			"cannot load the memory of template c: it is a named pipe: build the template again"},
		{"d", "d/working-set",
			"cannot load the working set of template d: it is a named pipe: build the template "
			"again"},
		{"e", NULL,
			"cannot load the image of template e: it is a named pipe: build the template again"},
	};
	struct daemon daemon;
	char path[160];

	(void)state;
	start_with_templates_and(&daemon, "boot touch", pool_of_one);
	path_in(&daemon, "image", path);
	write_text(daemon.folder, "other", "");
	path_in(&daemon, "other", path);
	assert_int_equal(truncate(path, 512), 0);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		build_named(&daemon, cases[i].name);
	stop(&daemon);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (cases[i].file)
			templates_path(&daemon, cases[i].file, path);
		else
			path_in(&daemon, "other", path);
		put_pipe(path);
	}
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", pool_of_one, true);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		expect_damaged(&daemon, cases[i].name, cases[i].reason);
	expect_echo(&daemon);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		remove_named(&daemon, cases[i].name);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_a_memory_of_another_size(void **state)
{
	struct daemon daemon;
	char path[160];

	(void)state;
	start_with_stored(&daemon, NULL);
	templates_path(&daemon, "tools/memory", path);
	assert_int_equal(truncate(path, 4096), 0);
	daemon_launch(&daemon, "", pool_of_one, true);
	expect_damaged(&daemon, "tools",
		"cannot load the memory of template tools: it has 4096 bytes, not 134217728: build the "
		"template again");
	finish(&daemon);
}

/* value NULL: the member is taken away. */
static void set_member(const char *path, const char *object, const char *name, const char *value)
{
	json_t *about = json_load_file(path, 0, NULL);
	json_t *at = object[0] ? json_object_get(about, object) : about;

	assert_non_null(at);
	if (!strcmp(name, "changed_ns"))
		at = json_object_get(at, "image");
	if (value)
		assert_int_equal(json_object_set_new(at, name, json_loads(value, JSON_DECODE_ANY, NULL)), 0);
	else
		assert_int_equal(json_object_del(at, name), 0);
	assert_int_equal(json_dump_file(about, path, 0), 0);
	json_decref(about);
}

#define CPUS "cpus in its template.json is not a whole number from 1 to 8: build it again"
#define MEMORY "memory_bytes in its template.json is not from 32M to 511G in whole MiB: build it again"
#define CID "cid in its template.json is not a vsock address of a guest: build it again"
#define IMAGE "image in its template.json is not whole: build it again"

static void test_what_a_description_may_say(void **state)
{
	static const struct {
		const char *object, *name, *value, *fault;
	} cases[] = {
		{"inputs", "cpus", "0", CPUS},
		{"inputs", "cpus", "9", CPUS},
		{"inputs", "cpus", "4294967297", CPUS},
		{"inputs", "cpus", "\"1\"", CPUS},
		{"inputs", "cpus", NULL, CPUS},
		{"inputs", "memory_bytes", "-134217728", MEMORY},
		{"inputs", "memory_bytes", "32505856", MEMORY},
		{"inputs", "memory_bytes", "549755813888", MEMORY},
		{"inputs", "memory_bytes", "134217729", MEMORY},
		{"inputs", "memory_bytes", "134217728.0", MEMORY},
		{"inputs", "memory_bytes", NULL, MEMORY},
		{"inputs", "cid", "2", CID},
		{"inputs", "cid", "4294967295", CID},
		{"inputs", "cid", "\"3\"", CID},
		{"inputs", "image", NULL, IMAGE},
		{"inputs", "image", "{\"path\":\"image\",\"bytes\":512,\"changed_ns\":1}", IMAGE},
		{"inputs", "changed_ns", "\"1\"", IMAGE},
		{"", "inputs", NULL, CPUS},
		{"", "inputs", "[]", CPUS},
		{"", "generation", NULL, "generation in its template.json is not a string: build it again"},
	};
	struct daemon daemon;
	char path[160], reason[256];

	(void)state;
	start_with_stored(&daemon, NULL);
	daemon_launch(&daemon, "", pool_of_one, true);
	templates_path(&daemon, "tools/template.json", path);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		json_t *right = json_load_file(path, 0, NULL);

		set_member(path, cases[i].object, cases[i].name, cases[i].value);
		snprintf(reason, sizeof reason, "template tools cannot be used: %s", cases[i].fault);
		expect_damaged(&daemon, "tools", reason);
		assert_int_equal(json_dump_file(right, path, 0), 0);
		json_decref(right);
	}
	expect_state(&daemon, "tools", "stored", NULL);
	finish(&daemon);
}

/* --- its folder --- */

static void test_a_folder_of_others_is_damaged(void **state)
{
	static const char reason_owner[] =
		"template tools cannot be used: its folder is uid 1000's, who could replace what VMs are "
		"made "
		"of: give it to uid 0 (chown) if you trust what is in it, or build it again";
	static const char reason_mode[] =
		"template tools cannot be used: its folder has mode 0770, so that others could replace what "
		"VMs are made of: take that from them (chmod go-w) if you trust what is in it, or build it "
		"again";
	struct daemon daemon;
	char path[160];

	(void)state;
	start_with_stored(&daemon, NULL);
	daemon_launch(&daemon, "", pool_of_one, true);
	templates_path(&daemon, "tools", path);
	assert_int_equal(chown(path, 1000, (gid_t)-1), 0);
	expect_damaged(&daemon, "tools", reason_owner);
	assert_int_equal(chown(path, 0, (gid_t)-1), 0);
	assert_int_equal(chmod(path, 0770), 0);
	expect_damaged(&daemon, "tools", reason_mode);
	assert_int_equal(chmod(path, 0750), 0);
	expect_state(&daemon, "tools", "stored", NULL);
	finish(&daemon);
}

static void put_folders(const struct daemon *daemon)
{
	static const char *const names[] = {"tools/more", "tools/more/inner", "tools/more/inner/deep"};
	char path[160], link[200];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		templates_path(daemon, names[i], path);
		assert_int_equal(mkdir(path, 0700), 0);
		write_text(path, "file", "text");
		snprintf(link, sizeof link, "%s/link", path);
		assert_int_equal(symlink(daemon->folder, link), 0);
	}
}

/* No template has any; they go with it all the same, and what links in them name stays. */
static void test_folders_in_it_go_with_it(void **state)
{
	struct daemon daemon;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	put_folders(&daemon);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	assert_int_equal(count_templates(&daemon, ".building"), 0);
	put_folders(&daemon);
	succeed(&daemon, "DELETE", "/v1/templates/tools", NULL);
	assert_int_equal(count_templates(&daemon, ".building"), 0);
	expect_echo(&daemon);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

static void test_what_is_mounted_in_it_stays(void **state)
{
	struct daemon daemon;
	char path[160], message[512], file[200];

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates", "{\"name\":\"tools\"}");
	templates_path(&daemon, "tools/more", path);
	assert_int_equal(mkdir(path, 0700), 0);
	if (mount("none", path, "tmpfs", 0, "size=1m") < 0) {
		finish(&daemon);
		skip();
	}
	write_text(path, "file", "text");
	templates_path(&daemon, "", path);
	snprintf(message, sizeof message,
		"template tools is put aside, but %s/.building-tools-removed cannot be removed: "
		"Directory not empty: remove it by hand",
		path);
	expect_refused(&daemon, "DELETE", "/v1/templates/tools", NULL, "internal", message);
	templates_path(&daemon, ".building-tools-removed/more", path);
	snprintf(file, sizeof file, "%s/file", path);
	assert_int_equal(access(file, F_OK), 0);
	/* Whoever looks at all mounts at this moment, such as a daemon of the host, keeps it busy. */
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	/* The next start does that. */
	stop(&daemon);
	daemon.keep_kernel = true;
	daemon_launch(&daemon, "", pool_of_one, true);
	assert_int_equal(count_templates(&daemon, ".building"), 0);
	daemon_stop(&daemon);
	remove_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_no_file_is_not_opened),
		cmocka_unit_test(test_what_is_no_image_is_refused_at_once),
		cmocka_unit_test(test_an_image_that_becomes_a_pipe),
		cmocka_unit_test(test_pipes_in_the_state_folder),
		cmocka_unit_test(test_a_memory_of_another_size),
		cmocka_unit_test(test_what_a_description_may_say),
		cmocka_unit_test(test_a_folder_of_others_is_damaged),
		cmocka_unit_test(test_folders_in_it_go_with_it),
		cmocka_unit_test(test_what_is_mounted_in_it_stays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
