/* SPDX-License-Identifier: Apache-2.0 */
/* Sandboxes when there are too many of them, or no room to note them down. */
#include "tests/unit/hostctl_full_disk_fixture.h"
#include "tests/unit/hostctl_sandboxes_fixture.h"

#include <sys/resource.h>

enum { CLIENTS = 1000, VMS = 16, QUEUE = 8 };

static char *const pool_of_one[] = {"--pool", "1", NULL};

static int fds_of(const struct daemon *daemon)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/fd", (int)daemon->pid);
	return count_entries(path, "") - 2;
}

/* The daemon's fds, when it is back to so many or less. */
static void await_fds(const struct daemon *daemon, int wanted)
{
	for (int waited = 0; waited < WAIT_MS && fds_of(daemon) > wanted; waited += POLL_MS)
		sleep_ms(POLL_MS);
	assert_in_range(fds_of(daemon), 1, wanted);
}

static int create_later(const struct daemon *daemon)
{
	int fd = client_open(daemon);

	client_request(fd, "POST", "/v1/sandboxes", "", "{}");
	return fd;
}

struct tally {
	int made, refused;
	char ids[VMS + QUEUE][32];
};

static void take_answer(int fd, struct tally *tally)
{
	static const char refusal[] =
		"no warm VM, and 8 runs wait already (--queue-max): try again later, or raise --pool";
	struct answer answer;

	client_answer(fd, &answer);
	if (answer.status == 201) {
		assert_true(tally->made < VMS + QUEUE);
		snprintf(tally->ids[tally->made++], sizeof tally->ids[0], "%s",
			json_string_value(json_object_get(answer.json, "id")));
	} else {
		assert_int_equal(answer.status, 429);
		assert_string_equal(error_member(&answer, "code"), "exhausted");
		assert_string_equal(error_member(&answer, "message"), refusal);
		tally->refused++;
	}
	answer_finish(&answer);
	close(fd);
}

/* Answers that come, until so many were made and no more come but of those that wait. */
static void take_answers(const struct daemon *daemon, int *fds, struct tally *tally, int made)
{
	for (int waited = 0; waited < WAIT_MS; waited += POLL_MS) {
		for (int i = 0; i < CLIENTS; i++) {
			struct pollfd wait = {.fd = fds[i], .events = POLLIN};

			if (fds[i] < 0 || poll(&wait, 1, 0) != 1)
				continue;
			take_answer(fds[i], tally);
			fds[i] = -1;
		}
		if (tally->made == made &&
			tally->made + tally->refused + pool_number(daemon, "queued") == CLIENTS)
			return;
		sleep_ms(POLL_MS);
	}
	fail_msg("%d were made and %d refused, wanted %d", tally->made, tally->refused, made);
}

/* Those that are gone are forgotten, too. */
static void await_none_known(const struct daemon *daemon)
{
	bool none = false;

	for (int waited = 0; waited < WAIT_MS && !none; waited += POLL_MS) {
		struct answer answer;

		call(daemon, "GET", "/v1/sandboxes?state=gone", NULL, &answer);
		none = !strcmp(answer.body, "{\"sandboxes\":[]}\n");
		answer_finish(&answer);
		sleep_ms(none ? 0 : POLL_MS);
	}
	assert_true(none);
}

/* As many as there is room for, and then as many as may wait; nothing of the others stays. */
static void test_a_thousand_at_once(void **state)
{
	static char *const options[] = {"--pool", "2", "--max-vms", "16", "--queue-max", "8", "--reserve",
		"0", "--keep-ms", "1", NULL};
	static int fds[CLIENTS];
	struct tally tally = {0};
	struct daemon daemon;
	struct answer answer;
	int before, queued;

	(void)state;
	daemon_start(&daemon, "boot", options);
	before = fds_of(&daemon);
	for (int i = 0; i < CLIENTS; i++)
		fds[i] = create_later(&daemon);
	call(&daemon, "GET", "/v1/healthz", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	take_answers(&daemon, fds, &tally, VMS);
	assert_int_equal(pool_number(&daemon, "busy"), VMS);
	queued = (int)pool_number(&daemon, "queued");
	assert_in_range(queued, 0, QUEUE);
	for (int i = 0; i < queued; i++)
		delete_sandbox(&daemon, tally.ids[i]);
	take_answers(&daemon, fds, &tally, VMS + queued);
	assert_int_equal(tally.refused, CLIENTS - VMS - queued);
	for (int i = queued; i < VMS + queued; i++)
		delete_sandbox(&daemon, tally.ids[i]);
	await_pool(&daemon, "warm", 2);
	await_pool(&daemon, "busy", 0);
	await_none_known(&daemon);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 2);
	await_fds(&daemon, before);
	daemon_stop(&daemon);
}

/* One after the other, more than there may be fds: neither a sandbox that is gone has one, nor its command or
 * its operations. */
static void test_what_is_kept_costs_no_fd(void **state)
{
	enum { FILES = 128, ROUNDS = 120 };
	static char *const options[] = {"--pool", "1", "--reserve", "0", NULL};
	struct daemon daemon;
	struct answer answer;
	char id[32];
	int before = 0;

	(void)state;
	daemon_folder(&daemon);
	daemon.files = FILES;
	daemon_launch(&daemon, "boot", options, true);
	for (int i = 0; i < ROUNDS; i++) {
		create_sandbox(&daemon, "{}", id);
		call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"3\"]}", &answer);
		assert_string_equal(member(&answer, "result"), "{\"kind\":\"exited\",\"code\":3}");
		answer_finish(&answer);
		delete_sandbox(&daemon, id);
		if (i > 0)
			continue;
		await_pool(&daemon, "warm", 1);
		before = fds_of(&daemon);
	}
	assert_int_equal(metric(&daemon, "tinderbox_sandboxes{state=\"gone\"} "), ROUNDS);
	await_pool(&daemon, "warm", 1);
	await_fds(&daemon, before);
	/* One that is stopped has no VM, and so none either. */
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_pool(&daemon, "warm", 1);
	await_fds(&daemon, before);
	daemon_stop(&daemon);
}

/* --- a full disk --- */

static void restart(struct daemon *daemon)
{
	kill(daemon->pid, SIGKILL);
	assert_int_equal(daemon_wait(daemon), 128 + SIGKILL);
	daemon_launch(daemon, "boot", pool_of_one, true);
}

static void test_no_room_to_note_it_down(void **state)
{
	char id[32], next[32], last[32], wanted[256];
	struct daemon daemon;
	struct answer answer;

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	create_sandbox(&daemon, "{}", id);
	await_pool(&daemon, "warm", 1);
	fill_disk(&daemon);
	snprintf(wanted, sizeof wanted, "no room for the journal %s/journal.db: free some on its disk",
		daemon.state);
	for (int i = 0; i < 3; i++) {
		/* It has had no effect: its name, too, may be given again. */
		call(&daemon, "POST", "/v1/sandboxes", "{\"name\":\"again\"}", &answer);
		expect_error_answer(&answer, 429, "exhausted", wanted);
		await_pool(&daemon, "busy", 1);
		await_pool(&daemon, "warm", 1);
	}
	/* What needs no note goes on; a command of a sandbox needs one. */
	expect_echo(&daemon);
	call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"exit\",\"3\"]}", &answer);
	expect_error_answer(&answer, 429, "exhausted", wanted);
	call_sandbox(&daemon, "POST", id, "/pause", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	clear_disk(&daemon);
	create_sandbox(&daemon, "{\"name\":\"again\"}", next);
	await_pool(&daemon, "warm", 1);
	create_sandbox(&daemon, "{}", last);
	/* The next daemon knows what is there, and not what is not. */
	restart(&daemon);
	call(&daemon, "GET", "/v1/sandboxes", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 3);
	answer_finish(&answer);
	await_state(&daemon, id, "paused");
	await_state(&daemon, next, "ready");
	await_state(&daemon, last, "ready");
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

static void expect_unnoted_reason(const struct daemon *daemon, const char *id, const char *why)
{
	char wanted[256];

	snprintf(wanted, sizeof wanted, "%s; it has no VM any more, but its deletion is not noted yet", why);
	expect_reason(daemon, id, wanted);
}

/* The VM is ended all the same, and its client is told that the rest is not done. */
static void expect_unnoted(const struct daemon *daemon, const char *id, const char *why)
{
	char wanted[256];

	snprintf(wanted, sizeof wanted,
		"sandbox %s has no VM any more, but that it is deleted could not be noted: no room for the "
		"journal %s/journal.db: free some on its disk, and delete it again",
		id, daemon->state);
	expect_refusal_of(daemon, "DELETE", id, "", NULL, 429, "exhausted", wanted);
	await_state(daemon, id, "failed");
	expect_unnoted_reason(daemon, id, why);
}

static void test_no_room_to_note_a_deletion(void **state)
{
	char asked[32], left[32], stopped[32], brief[32], code[64];
	struct daemon daemon;
	struct answer answer;

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	create_sandbox(&daemon, "{\"name\":\"mine\"}", asked);
	create_sandbox(&daemon, "{}", left);
	create_sandbox(&daemon, "{}", stopped);
	create_sandbox(&daemon, "{\"ttl_ms\":4000}", brief);
	call_sandbox(&daemon, "POST", stopped, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_pool(&daemon, "warm", 1);
	fill_disk(&daemon);
	expect_unnoted(&daemon, asked, "it was deleted");
	expect_unnoted(&daemon, asked, "it was deleted");
	expect_unnoted(&daemon, stopped, "it was deleted");
	call_sandbox(&daemon, "DELETE", left, "?wait=false", NULL, &answer);
	await_operation(&daemon, &answer, "delete", "failed", left, code);
	assert_string_equal(code, "exhausted");
	await_state(&daemon, brief, "failed");
	expect_unnoted_reason(&daemon, brief, "its ttl_ms is over");
	/* None of their VMs is left, and their names are. */
	await_pool(&daemon, "busy", 0);
	assert_int_equal(count_entries(daemon.cgroups, "vm-"), 1);
	call(&daemon, "POST", "/v1/sandboxes", "{\"name\":\"mine\"}", &answer);
	assert_string_equal(error_member(&answer, "code"), "conflict");
	answer_finish(&answer);
	/* Nor did anybody tell the next daemon. */
	restart(&daemon);
	expect_reason(&daemon, asked, "the daemon and its VM ended");
	await_state(&daemon, stopped, "stopped");
	expect_unnoted(&daemon, asked, "the daemon and its VM ended");
	expect_unnoted(&daemon, left, "the daemon and its VM ended");
	/* With room, who asks again gets what there is to get; the other one is not even to be asked for. */
	clear_disk(&daemon);
	delete_sandbox(&daemon, asked);
	await_state(&daemon, asked, "gone");
	await_state(&daemon, left, "gone");
	expect_reason(&daemon, left, "the daemon and its VM ended");
	delete_sandbox(&daemon, stopped);
	create_sandbox(&daemon, "{\"name\":\"mine\"}", brief);
	restart(&daemon);
	await_state(&daemon, brief, "ready");
	call(&daemon, "GET", "/v1/sandboxes", NULL, &answer);
	assert_int_equal(json_array_size(json_object_get(answer.json, "sandboxes")), 1);
	answer_finish(&answer);
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

/* It is tried again by itself, though nothing else is written. */
static void test_a_deletion_is_noted_later(void **state)
{
	struct daemon daemon;
	char id[32], brief[32];

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	create_sandbox(&daemon, "{}", id);
	create_sandbox(&daemon, "{\"ttl_ms\":3000}", brief);
	await_pool(&daemon, "warm", 1);
	fill_disk(&daemon);
	expect_unnoted(&daemon, id, "it was deleted");
	await_state(&daemon, brief, "failed");
	clear_disk(&daemon);
	await_state(&daemon, id, "gone");
	await_state(&daemon, brief, "gone");
	expect_reason(&daemon, id, "it was deleted");
	expect_reason(&daemon, brief, "its ttl_ms is over");
	delete_sandbox(&daemon, id);
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

/* Why it is stopped is not that there was no room once. */
static void test_no_room_to_note_a_start(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32], wanted[256];

	(void)state;
	mount_state(&daemon, "size=600k");
	daemon_launch(&daemon, "boot", pool_of_one, true);
	create_sandbox(&daemon, "{}", id);
	call_sandbox(&daemon, "POST", id, "/stop", "{\"discard_files\":true}", &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	await_pool(&daemon, "warm", 1);
	fill_disk(&daemon);
	snprintf(wanted, sizeof wanted, "no room for the journal %s/journal.db: free some on its disk",
		daemon.state);
	expect_refusal_of(&daemon, "POST", id, "/start", NULL, 429, "exhausted", wanted);
	await_state(&daemon, id, "stopped");
	clear_disk(&daemon);
	expect_reason(&daemon, id, "it was stopped, and its files are gone");
	call_sandbox(&daemon, "POST", id, "/start", NULL, &answer);
	assert_int_equal(answer.status, 200);
	answer_finish(&answer);
	daemon_stop(&daemon);
	unmount_state(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_thousand_at_once),
		cmocka_unit_test(test_what_is_kept_costs_no_fd),
		cmocka_unit_test(test_no_room_to_note_it_down),
		cmocka_unit_test(test_no_room_to_note_a_deletion),
		cmocka_unit_test(test_a_deletion_is_noted_later),
		cmocka_unit_test(test_no_room_to_note_a_start),
	};

	/* One end of each connection is here. */
	setrlimit(RLIMIT_NOFILE, &(struct rlimit){.rlim_cur = 4096, .rlim_max = 4096});
	return cmocka_run_group_tests(tests, NULL, NULL);
}
