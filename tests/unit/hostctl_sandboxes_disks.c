/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a sandbox whose template has a disk: what is in it, when it comes and goes. */
#include "tests/unit/hostctl_sandboxes_disks_fixture.h"

static void test_its_files_go_with_it(void **state)
{
	struct daemon daemon;
	char path[160], id[32], other[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	create_sandbox(&daemon, on_it, other);
	expect_files(&daemon, id);
	expect_files(&daemon, other);
	assert_true(sandbox_file_status(&daemon, id, "upper").st_blocks > 0);
	expect_receipt(&daemon, id, 5, bytes_of(&daemon, id));
	expect_files(&daemon, other);
	delete_sandbox(&daemon, other);
	/* Nor is their common folder left. */
	snprintf(path, sizeof path, "%s/sandboxes", daemon.state);
	assert_int_equal(access(path, F_OK), -1);
	/* Without a disk there is nothing of the kind. */
	create_sandbox(&daemon, "{}", id);
	assert_false(sandbox_has_file(&daemon, id, ""));
	expect_receipt(&daemon, id, 1, 0);
	finish(&daemon);
}

static void test_one_that_cannot_be_kept_is_none(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char path[160], message[512];

	(void)state;
	start_with_disk(&daemon);
	snprintf(path, sizeof path, "%s/sandboxes", daemon.state);
	write_text(daemon.state, "sandboxes", "in the way");
	snprintf(message, sizeof message,
		"cannot open the state folder %s: Not a directory: name a folder that can be written with "
		"--state-dir",
		path);
	call(&daemon, "POST", "/v1/sandboxes", on_it, &answer);
	expect_error_answer(&answer, 500, "internal", message);
	assert_int_equal(unlink(path), 0);
	finish(&daemon);
}

/* What the template has on its disk is all that it has: it is booted from that, with an upper of its own. */
static void test_one_of_another_shape(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct stat upper;
	char path[160], id[32];
	json_t *about;

	(void)state;
	start_with_templates_and(&daemon, "boot", pool_of_one);
	succeed(&daemon, "POST", "/v1/templates",
		"{\"name\":\"tools\",\"disk\":\"64M\",\"run\":[\"echo x\"]}");
	create_sandbox(&daemon, "{\"template\":\"tools\",\"mem\":\"64M\",\"cpus\":2}", id);
	call_sandbox(&daemon, "GET", id, "", NULL, &answer);
	assert_string_equal(member(&answer, "cold"), "true");
	answer_finish(&answer);
	expect_files(&daemon, id);
	expect_echo_in(&daemon, id);
	sandbox_file(&daemon, id, "boot.json", path);
	about = json_load_file(path, 0, NULL);
	assert_int_equal(json_integer_value(json_object_get(about, "cpus")), 2);
	assert_int_equal(json_integer_value(json_object_get(about, "memory_bytes")), 64 * 1024 * 1024);
	json_decref(about);
	upper = sandbox_file_status(&daemon, id, "upper");
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	call_sandbox(&daemon, "POST", id, "/start", NULL, &answer);
	assert_string_equal(member(&answer, "state"), "\"ready\"");
	answer_finish(&answer);
	expect_boots(&daemon, id, &upper, 1);
	/* And afresh, from the template, when they are given up. */
	stop_sandbox(&daemon, id, "{\"discard_files\":true}", "it was stopped, and its files are gone");
	assert_false(sandbox_has_file(&daemon, id, ""));
	call_sandbox(&daemon, "POST", id, "/start", NULL, &answer);
	assert_string_equal(member(&answer, "cold"), "true");
	answer_finish(&answer);
	expect_files(&daemon, id);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* --- the host's disk --- */

static void test_there_is_room_to_be_kept(void **state)
{
	static char *const options[] = {"--pool", "1", "--disk-reserve", "1048576G", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], start[256], end[384];
	const char *message;

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	stop_sandbox(&daemon, id, NULL, "it was stopped");
	terminate(&daemon);
	daemon_launch(&daemon, "", options, true);
	snprintf(start, sizeof start, "no room for the disk of one more sandbox: ");
	snprintf(end, sizeof end,
		" MiB are left where the state folder %s is, and 1073741824 MiB are kept free "
		"(--disk-reserve): delete sandboxes or templates, free some of that disk, or name a folder "
		"on "
		"another with --state-dir",
		daemon.state);
	/* The second time its template is loaded, and no VM is spent. */
	for (int i = 0; i < 2; i++) {
		call(&daemon, "POST", "/v1/sandboxes", on_it, &answer);
		assert_int_equal(answer.status, 429);
		assert_string_equal(error_member(&answer, "code"), "exhausted");
		message = error_member(&answer, "message");
		assert_memory_equal(message, start, strlen(start));
		assert_string_equal(strstr(message, " MiB are left"), end);
		answer_finish(&answer);
	}
	/* Neither without a disk, nor with one that is there already. */
	create_sandbox(&daemon, "{}", start);
	ask_sandbox(&daemon, id, "start", "ready");
	delete_sandbox(&daemon, id);
	delete_sandbox(&daemon, start);
	finish(&daemon);
}

static void remove_damaged(const struct daemon *daemon)
{
	DIR *listing = opendir(daemon->state);
	struct dirent *entry;

	assert_non_null(listing);
	while ((entry = readdir(listing)))
		if (!strncmp(entry->d_name, "journal.db.damaged", strlen("journal.db.damaged")))
			assert_int_equal(unlinkat(dirfd(listing), entry->d_name, 0), 0);
	closedir(listing);
}

/* Nobody knows whose they are: they are not lost with the journal. */
static void test_a_damaged_journal_leaves_them(void **state)
{
	struct daemon daemon;
	char path[160], aside[256], id[32];
	DIR *listing;
	struct dirent *entry;

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	terminate(&daemon);
	write_text(daemon.state, "journal.db", "this is no journal, and never was one; so it is put aside");
	snprintf(path, sizeof path, "%s/journal.db-wal", daemon.state);
	unlink(path);
	daemon_launch(&daemon, "", pool_of_one, true);
	assert_false(sandbox_has_file(&daemon, id, ""));
	aside[0] = '\0';
	listing = opendir(daemon.state);
	assert_non_null(listing);
	while ((entry = readdir(listing)))
		if (!strncmp(entry->d_name, "sandboxes.lost-", strlen("sandboxes.lost-")))
			snprintf(aside, sizeof aside, "%s/%.64s", daemon.state, entry->d_name);
	closedir(listing);
	assert_string_not_equal(aside, "");
	snprintf(path, sizeof path, "%.110s/%.40s", aside, id);
	assert_int_equal(count_entries(path, ""), NAMES);
	remove_folder(path);
	assert_int_equal(rmdir(aside), 0);
	remove_damaged(&daemon);
	finish(&daemon);
}

static void test_the_next_daemon_knows_them(void **state)
{
	struct daemon daemon;
	char path[160], id[32];

	(void)state;
	start_with_disk(&daemon);
	create_sandbox(&daemon, on_it, id);
	flush_rows(&daemon, id);
	kill_daemon(&daemon);
	daemon.keep_kernel = true;
	/* What no row tells of. */
	sandbox_file(&daemon, "sb-0123456789abcdef", "", path);
	assert_int_equal(mkdir(path, 0700), 0);
	write_text(path, "upper", "left");
	daemon_launch(&daemon, "", pool_of_one, true);
	await_state(&daemon, id, "ready");
	assert_false(sandbox_has_file(&daemon, "sb-0123456789abcdef", ""));
	expect_files(&daemon, id);
	expect_receipt(&daemon, id, 5, bytes_of(&daemon, id));
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_its_files_go_with_it),
		cmocka_unit_test(test_one_that_cannot_be_kept_is_none),
		cmocka_unit_test(test_one_of_another_shape),
		cmocka_unit_test(test_there_is_room_to_be_kept),
		cmocka_unit_test(test_a_damaged_journal_leaves_them),
		cmocka_unit_test(test_the_next_daemon_knows_them),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
