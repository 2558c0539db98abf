/* SPDX-License-Identifier: Apache-2.0 */
/* Suspend and wake: what is on the disk meanwhile, what is kept, and what is refused. */
#include "tests/unit/hostctl_suspend_fixture.h"

enum { CYCLES = 5, STARTS = 20 };

static void start_one(struct daemon *daemon, const char *script, const char *body, char id[32])
{
	start_with_templates_and(daemon, script, pool_of_one);
	create_sandbox(daemon, body, id);
}

/* Its memory is the template's, by another name, however often it is suspended. */
static void test_cycles(void **state)
{
	struct daemon daemon;
	struct stat memory;
	char id[32], path[160], vm[32], other[32];

	(void)state;
	start_one(&daemon, "boot", "{\"name\":\"web\",\"memory_max\":134217728}", id);
	templates_path(&daemon, "base/memory", path);
	assert_int_equal(stat(path, &memory), 0);
	for (int i = 1; i <= CYCLES; i++) {
		expect_lives(&daemon, id, i);
		vm_of(&daemon, id, vm);
		suspend(&daemon, id);
		await_pool(&daemon, "warm", 1);
		assert_int_equal(pool_number(&daemon, "busy"), 0);
		assert_int_equal(count_entries(daemon.cgroups, "vm-"), 1);
		expect_saved(&daemon, id, 5);
		assert_true(sandbox_has_file(&daemon, id, "pages"));
		assert_true(sandbox_file_status(&daemon, id, "memory").st_ino == memory.st_ino);
		ask_sandbox(&daemon, id, "suspend", "suspended");
		wake(&daemon, id);
		ask_sandbox(&daemon, id, "wake", "ready");
		vm_of(&daemon, id, other);
		assert_string_not_equal(vm, other);
		assert_int_equal(pool_number(&daemon, "busy"), 1);
	}
	expect_lives(&daemon, "web", CYCLES + 1);
	assert_string_equal(field(&daemon, id, "memory_max"), "134217728");
	delete_sandbox(&daemon, id);
	assert_false(sandbox_has_file(&daemon, id, ""));
	finish(&daemon);
}

/* One that was booted has all of its memory to save, the first time. */
static void test_of_one_that_was_booted(void **state)
{
	struct daemon daemon;
	char id[32];

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	expect_lives(&daemon, id, 0);
	suspend(&daemon, id);
	expect_saved(&daemon, id, 4);
	wake(&daemon, id);
	expect_lives(&daemon, id, 1);
	suspend(&daemon, id);
	expect_saved(&daemon, id, 5);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
}

/* Any legal way: from a pause, from the disk, and after a stop. */
static void test_wake_takes_each_way(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], message[256];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	ask_sandbox(&daemon, id, "pause", "paused");
	ask_sandbox(&daemon, id, "wake", "ready");
	ask_sandbox(&daemon, id, "pause", "paused");
	suspend(&daemon, id);
	snprintf(message, sizeof message, "sandbox %s is suspended, and cannot be resumed: wake it", id);
	expect_refusal_of(&daemon, "POST", id, "/resume", NULL, 409, "conflict", message);
	snprintf(message, sizeof message,
		"sandbox %s is suspended, and has no disk to be started from: wake it, or delete it", id);
	expect_refusal_of(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", 409, "conflict", message);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	assert_false(sandbox_has_file(&daemon, id, ""));
	snprintf(message, sizeof message, "sandbox %s is stopped, and cannot be suspended: start it first",
		id);
	expect_refusal_of(&daemon, "POST", id, "/suspend", NULL, 409, "conflict", message);
	ask_sandbox(&daemon, id, "wake", "ready");
	expect_lives(&daemon, id, 1);
	finish(&daemon);
}

static void test_a_command_wakes_it(void **state)
{
	struct daemon daemon;
	char id[32], message[256];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	suspend(&daemon, id);
	snprintf(message, sizeof message,
		"sandbox %s is suspended, and the command does not wake it: wake it first", id);
	expect_refusal_of(&daemon, "POST", id, "/run", "{\"argv\":[\"lives\"],\"wake\":false}", 409,
		"conflict", message);
	expect_lives(&daemon, id, 2);
	await_state(&daemon, id, "ready");
	expect_none_saved(&daemon, id);
	finish(&daemon);
}

/* It takes nothing before it is attached to again. */
static void put_input(const struct daemon *daemon, const char *id, const char *command, const char *body)
{
	int status = 429;

	for (int waited = 0; waited < WAIT_MS && status == 429; waited += POLL_MS) {
		struct answer answer;

		call_command(daemon, "POST", id, command, "/stdin", body, &answer);
		status = answer.status;
		answer_finish(&answer);
		sleep_ms(status == 429 ? POLL_MS : 0);
	}
	assert_int_equal(status, 200);
}

static void await_output(const struct daemon *daemon, const char *id, const char *command, const char *wanted)
{
	char last[128] = "";

	for (int waited = 0; waited < WAIT_MS && strcmp(last, wanted) != 0; waited += POLL_MS) {
		struct answer answer;

		call_command(daemon, "GET", id, command, "/output", NULL, &answer);
		snprintf(last, sizeof last, "%.120s", member(&answer, "data"));
		answer_finish(&answer);
		sleep_ms(strcmp(last, wanted) ? POLL_MS : 0);
	}
	assert_string_equal(last, wanted);
}

/* What runs goes on, is the same command, and has lost nothing. */
static void test_what_runs_goes_on(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	struct answer answer;
	char id[32], sleeper[32];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	begin_dialogue(&daemon, id, &command, &stream);
	close_stream(&stream);
	start_detached(&daemon, id,
		"{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\",\"timeout_ms\":60000}", sleeper);
	for (int i = 0; i < 3; i++) {
		suspend(&daemon, id);
		expect_field(&daemon, id, command.id, "state", "\"running\"");
		await_output(&daemon, id, command.id, "\"first\"");
		wake(&daemon, id);
	}
	put_input(&daemon, id, command.id, "{\"data\":\" second\",\"eof\":true}");
	await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":0}");
	await_output(&daemon, id, command.id, "\"first second\"");
	expect_field(&daemon, id, sleeper, "state", "\"running\"");
	call_command(&daemon, "POST", id, sleeper, "/kill", NULL, &answer);
	answer_finish(&answer);
	await_result(&daemon, id, sleeper, "{\"kind\":\"killed\"}");
	/* What has ended is what it was, also for the next daemon. */
	suspend(&daemon, id);
	await_output(&daemon, id, command.id, "\"first second\"");
	start_again(&daemon);
	await_state(&daemon, id, "suspended");
	wake(&daemon, id);
	await_output(&daemon, id, command.id, "\"first second\"");
	expect_field(&daemon, id, sleeper, "result", "{\"kind\":\"killed\"}");
	finish(&daemon);
}

/* What is about to start when it is suspended starts, at the latest when it is woken. */
static void test_what_starts_meanwhile(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	for (int i = 0; i < STARTS; i++) {
		create_command(&daemon, id, "{\"argv\":[\"exit\",\"7\"],\"on_detach\":\"keep\"}", &command);
		assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
		suspend(&daemon, id);
		wake(&daemon, id);
		close_stream(&stream);
		await_result(&daemon, id, command.id, "{\"kind\":\"exited\",\"code\":7}");
	}
	finish(&daemon);
}

/* A guest that is slow to begin what it was handed is given the time for that, and saved with it. */
static void test_what_is_on_its_way(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_one(&daemon, "boot new-slow:400", "{}", id);
	for (int i = 0; i < 3; i++) {
		create_command(
			&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", &command);
		assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
		close_stream(&stream);
		sleep_ms(100); /* so that it is handed over, as a rule */
		suspend(&daemon, id);
		expect_field(&daemon, id, command.id, "state", "\"running\"");
		wake(&daemon, id);
		expect_field(&daemon, id, command.id, "state", "\"running\"");
	}
	finish(&daemon);
}

/* For no longer than it may take; then whether it has run is not known. */
static void test_what_never_arrives(void **state)
{
	struct daemon daemon;
	struct answer answer;
	struct command command;
	struct stream stream;
	char id[32];

	(void)state;
	start_one(&daemon, "boot new-slow:60000", "{}", id);
	create_command(&daemon, id, "{\"argv\":[\"started-sleep\"],\"on_detach\":\"keep\"}", &command);
	assert_int_equal(attach(&daemon, id, &command, "", &stream), 101);
	close_stream(&stream);
	sleep_ms(100);
	suspend(&daemon, id);
	wake(&daemon, id);
	await_field(&daemon, id, command.id, "state", "\"ended\"");
	get_command(&daemon, id, command.id, &answer);
	assert_string_equal(json_string_value(json_object_get(json_object_get(answer.json, "error"), "code")),
		"incomplete");
	answer_finish(&answer);
	finish(&daemon);
}

/* Who only reads stays attached; who writes is in the way. */
static void test_clients_that_are_attached(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream reads, writes;
	struct answer answer;
	char id[32], read_by[32], message[320];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	begin_dialogue(&daemon, id, &command, &writes);
	snprintf(message, sizeof message,
		"sandbox %s cannot be suspended while a client is attached to command %s, which reads what "
		"that sends: let it end its input, or detach",
		id, command.id);
	expect_refusal_of(&daemon, "POST", id, "/suspend", NULL, 409, "conflict", message);
	await_state(&daemon, id, "ready");
	close_stream(&writes);
	start_followed(&daemon, &reads, id, "{\"argv\":[\"started-sleep\"]}", read_by);
	/* Until the daemon has seen that the other left. */
	await_field(&daemon, id, command.id, "attached", "false");
	suspend(&daemon, id);
	expect_field(&daemon, id, read_by, "attached", "true");
	wake(&daemon, id);
	call_command(&daemon, "POST", id, read_by, "/kill", NULL, &answer);
	answer_finish(&answer);
	expect_exit(&reads, AGENT_KILLED, 0);
	close_stream(&reads);
	/* One who comes while it sleeps is told what may be sent when it has woken. */
	suspend(&daemon, id);
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, ",\"stdout_offset\":5", &writes), 101);
	expect(&writes, AGENT_STARTED);
	wake(&daemon, id);
	expect(&writes, AGENT_STDIN_CREDIT);
	send_frame(&writes, AGENT_STDIN, "more", 4);
	expect_output(&writes, AGENT_STDOUT, 5, "more");
	close_stream(&writes);
	finish(&daemon);
}

/* What comes while it is saved would be in no save: it waits, or whoever sends it is told. */
static void test_what_is_sent_while_it_is_saved(void **state)
{
	struct daemon daemon;
	struct command command;
	struct stream stream;
	struct answer answer;
	char id[32], message[320];

	(void)state;
	start_one(&daemon, "boot keep-slow:1500", "{}", id);
	begin_dialogue(&daemon, id, &command, &stream);
	close_stream(&stream);
	await_field(&daemon, id, command.id, "attached", "false");
	call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, ",\"stdout_offset\":5", &stream), 101);
	expect(&stream, AGENT_STARTED);
	send_frame(&stream, AGENT_STDIN, "more", 4);
	call_command(&daemon, "POST", id, command.id, "/signal", "{\"signal\":10}", &answer);
	assert_int_equal(answer.status, 503);
	assert_string_equal(error_member(&answer, "code"), "not_ready");
	snprintf(message, sizeof message,
		"command %s takes nothing while sandbox %s is being suspended: wake that, and try again",
		command.id, id);
	assert_string_equal(error_member(&answer, "message"), message);
	answer_finish(&answer);
	await_state(&daemon, id, "suspended");
	wake(&daemon, id);
	expect(&stream, AGENT_STDIN_CREDIT);
	expect_output(&stream, AGENT_STDOUT, 5, "more");
	close_stream(&stream);
	finish(&daemon);
	/* The same when it is not suspended after all. */
	start_one(&daemon, "boot keep-slow:1500 keep-refused", "{}", id);
	begin_dialogue(&daemon, id, &command, &stream);
	close_stream(&stream);
	await_field(&daemon, id, command.id, "attached", "false");
	call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
	assert_int_equal(answer.status, 202);
	answer_finish(&answer);
	renew_token(&daemon, id, &command);
	assert_int_equal(attach(&daemon, id, &command, ",\"stdout_offset\":5", &stream), 101);
	expect(&stream, AGENT_STARTED);
	send_frame(&stream, AGENT_STDIN, "more", 4);
	expect_output(&stream, AGENT_STDOUT, 5, "more");
	await_state(&daemon, id, "ready");
	close_stream(&stream);
	finish(&daemon);
}

/* A save that fails leaves the guest as it was. */
static void test_saves_that_fail(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], same[32], code[64], message[320];

	(void)state;
	start_one(&daemon, "boot keep-refused", "{}", id);
	snprintf(message, sizeof message,
		"sandbox %s could not be saved: writing the snapshot: No space left on device", id);
	expect_refusal_of(&daemon, "POST", id, "/suspend", NULL, 429, "exhausted", message);
	await_state(&daemon, id, "ready");
	expect_none_saved(&daemon, id);
	expect_lives(&daemon, id, 1);
	ask_sandbox(&daemon, id, "pause", "paused");
	expect_refusal_of(&daemon, "POST", id, "/suspend", NULL, 429, "exhausted", message);
	await_state(&daemon, id, "paused");
	ask_sandbox(&daemon, id, "resume", "ready");
	call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
	await_operation(&daemon, &answer, "suspend", "failed", same, code);
	assert_string_equal(code, "exhausted");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_vmms_that_end(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	/* Before all is written it is lost, */
	start_one(&daemon, "boot keep-dies", "{}", id);
	call_sandbox(&daemon, "POST", id, "/suspend", NULL, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	answer_finish(&answer);
	await_state(&daemon, id, "failed");
	expect_reason(&daemon, id, "its VM ended: KVM failed: while it saved");
	expect_none_saved(&daemon, id);
	delete_sandbox(&daemon, id);
	finish(&daemon);
	/* and after that not needed. */
	start_one(&daemon, "boot keep-panic", "{}", id);
	suspend(&daemon, id);
	expect_saved(&daemon, id, 5);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	finish(&daemon);
}

/* What cannot be restored stays suspended, and is woken when it can. */
static void test_wakes_that_fail(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], path[192], aside[224], message[320];

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	suspend(&daemon, id);
	sandbox_file(&daemon, id, "pages", path);
	snprintf(aside, sizeof aside, "%s.aside", path);
	assert_int_equal(rename(path, aside), 0);
	snprintf(message, sizeof message,
		"sandbox %s cannot be woken: pages, of what was saved of it: No such file or directory: put "
		"the "
		"file back as it was",
		id);
	expect_refusal_of(&daemon, "POST", id, "/wake", NULL, 500, "internal", message);
	await_state(&daemon, id, "suspended");
	/* One of another memory is refused by the vmm. */
	write_text(daemon.state, "other", "TNDXPAGE and nothing that is right");
	snprintf(message, sizeof message, "%s/other", daemon.state);
	assert_int_equal(rename(message, path), 0);
	call_sandbox(&daemon, "POST", id, "/wake", NULL, &answer);
	assert_int_equal(answer.status, 502);
	assert_string_equal(error_member(&answer, "code"), "guest_lost");
	assert_non_null(strstr(error_member(&answer, "message"), "the pages lie upon another memory"));
	answer_finish(&answer);
	await_state(&daemon, id, "suspended");
	assert_string_equal(field(&daemon, id, "vm"), "null");
	expect_refusal_of(&daemon, "POST", id, "/run", "{\"argv\":[\"a\"],\"wake\":false}", 409, "conflict",
		(snprintf(message, sizeof message,
			 "sandbox %s is suspended, and the command does not wake it: wake it first", id),
			message));
	assert_int_equal(rename(aside, path), 0);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	finish(&daemon);
}

/* What its memory has of its image lies upon that, as its files do. */
static void test_an_image_that_has_changed(void **state)
{
	const struct timespec other = {.tv_sec = 1000000000};
	struct timespec before;
	struct daemon daemon;
	char id[32], path[192], copy[200], message[320];
	int fd;

	(void)state;
	start_one(&daemon, "boot", "{}", id);
	suspend(&daemon, id);
	sandbox_file(&daemon, id, "image", path);
	before = sandbox_file_status(&daemon, id, "image").st_mtim;
	assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){other, other}, 0), 0);
	snprintf(message, sizeof message,
		"sandbox %s cannot be woken: image, of what was saved of it: it has changed since: put the "
		"file back "
		"as it was",
		id);
	expect_refusal_of(&daemon, "POST", id, "/wake", NULL, 409, "conflict", message);
	await_state(&daemon, id, "suspended");
	assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){before, before}, 0), 0);
	wake(&daemon, id);
	expect_lives(&daemon, id, 2);
	/* In a copy of the folder it is the folder's alone, and the time is that of the copying. */
	suspend(&daemon, id);
	snprintf(copy, sizeof copy, "%s.copy", path);
	fd = open(copy, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, sandbox_file_status(&daemon, id, "image").st_size), 0);
	close(fd);
	assert_int_equal(rename(copy, path), 0);
	assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){other, other}, 0), 0);
	wake(&daemon, id);
	expect_lives(&daemon, id, 3);
	/* So that links to it, as forks make them, are of what was described. */
	assert_int_equal(sandbox_file_status(&daemon, id, "image").st_mtim.tv_sec, before.tv_sec);
	assert_int_equal(sandbox_file_status(&daemon, id, "image").st_mtim.tv_nsec, before.tv_nsec);
	suspend(&daemon, id);
	assert_int_equal(truncate(path, 1), 0);
	expect_refusal_of(&daemon, "POST", id, "/wake", NULL, 409, "conflict", message);
	finish(&daemon);
}

/* One that dies as soon as it runs was not woken; what was saved is good still. */
static void test_guests_that_die_of_it(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];

	(void)state;
	start_one(&daemon, "boot wake-panic", "{}", id);
	suspend(&daemon, id);
	for (int i = 0; i < 2; i++) {
		call_sandbox(&daemon, "POST", id, "/wake", NULL, &answer);
		assert_int_equal(answer.status, 502);
		assert_string_equal(error_member(&answer, "code"), "guest_lost");
		assert_non_null(strstr(error_member(&answer, "message"), "when it was woken"));
		answer_finish(&answer);
		/* Its row says so before anybody is told. */
		assert_int_equal(row_state(&daemon, id), JOURNAL_SANDBOX_SUSPENDED);
		await_state(&daemon, id, "suspended");
		expect_saved(&daemon, id, 5);
	}
	start_again(&daemon);
	await_state(&daemon, id, "suspended");
	delete_sandbox(&daemon, id);
	assert_false(sandbox_has_file(&daemon, id, ""));
	finish(&daemon);
}

static void test_no_place_for_its_vm(void **state)
{
	char *const one[] = {"--pool", "0", "--max-vms", "1", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32], other[32], same[32], code[64];

	(void)state;
	start_with_templates_and(&daemon, "boot", one);
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	/* Its place is another's, */
	create_sandbox(&daemon, "{}", other);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	await_state(&daemon, id, "waking");
	delete_sandbox(&daemon, other);
	await_operation(&daemon, &answer, "wake", "done", same, code);
	assert_string_equal(code, "none");
	expect_lives(&daemon, id, 2);
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

static void test_it_is_deleted(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], code[64];

	(void)state;
	start_one(&daemon, "boot keep-slow:800", "{}", id);
	/* On its way, */
	call_sandbox(&daemon, "POST", id, "/suspend?wait=false", NULL, &answer);
	delete_sandbox(&daemon, id);
	assert_false(sandbox_has_file(&daemon, id, ""));
	await_operation(&daemon, &answer, "suspend", "failed", id, code);
	assert_string_equal(code, "conflict");
	/* there, */
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "DELETE", id, "", NULL, &answer);
	assert_int_equal(answer.status, 200);
	assert_int_equal(
		json_integer_value(json_object_get(json_object_get(answer.json, "removed"), "files")), 5);
	assert_string_equal(member(&answer, "verified"), "true");
	answer_finish(&answer);
	assert_false(sandbox_has_file(&daemon, id, ""));
	/* and on its way back. */
	create_sandbox(&daemon, "{}", id);
	suspend(&daemon, id);
	call_sandbox(&daemon, "POST", id, "/wake?wait=false", NULL, &answer);
	answer_finish(&answer);
	delete_sandbox(&daemon, id);
	assert_false(sandbox_has_file(&daemon, id, ""));
	finish(&daemon);
}

static void test_idleness(void **state)
{
	static const char idle[] = "{\"idle\":{\"after_ms\":200,\"action\":\"suspend\"}}";
	struct daemon daemon;
	char id[32];

	(void)state;
	start_one(&daemon, "boot", idle, id);
	await_state(&daemon, id, "suspended");
	expect_lives(&daemon, id, 2);
	await_state(&daemon, id, "suspended");
	wake(&daemon, id);
	ask_sandbox(&daemon, id, "pause", "paused");
	await_state(&daemon, id, "suspended");
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

/* What fails is not tried again at once: it would write to a full disk without end. */
static void test_idleness_on_a_full_disk(void **state)
{
	static const char idle[] = "{\"idle\":{\"after_ms\":100,\"action\":\"suspend\"}}";
	struct daemon daemon;
	char id[32];

	(void)state;
	start_one(&daemon, "boot keep-slow:1000 keep-refused", idle, id);
	await_state(&daemon, id, "suspending");
	await_state(&daemon, id, "ready");
	for (int waited = 0; waited < 1500; waited += 50) {
		assert_string_equal(field(&daemon, id, "state"), "\"ready\"");
		sleep_ms(50);
	}
	delete_sandbox(&daemon, id);
	finish(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cycles),
		cmocka_unit_test(test_of_one_that_was_booted),
		cmocka_unit_test(test_wake_takes_each_way),
		cmocka_unit_test(test_a_command_wakes_it),
		cmocka_unit_test(test_what_runs_goes_on),
		cmocka_unit_test(test_what_starts_meanwhile),
		cmocka_unit_test(test_what_is_on_its_way),
		cmocka_unit_test(test_what_never_arrives),
		cmocka_unit_test(test_clients_that_are_attached),
		cmocka_unit_test(test_what_is_sent_while_it_is_saved),
		cmocka_unit_test(test_saves_that_fail),
		cmocka_unit_test(test_vmms_that_end),
		cmocka_unit_test(test_wakes_that_fail),
		cmocka_unit_test(test_an_image_that_has_changed),
		cmocka_unit_test(test_guests_that_die_of_it),
		cmocka_unit_test(test_no_place_for_its_vm),
		cmocka_unit_test(test_it_is_deleted),
		cmocka_unit_test(test_idleness),
		cmocka_unit_test(test_idleness_on_a_full_disk),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
