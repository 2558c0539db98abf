/* SPDX-License-Identifier: Apache-2.0 */
/* What is in the journal: the life of an idempotency key, and sandboxes. */
#include "tests/unit/hostctl_journal_fixture.h"

#include "host-ctl/journal/journal_sandboxes.h"
#include <time.h>

enum { DAY = 24 * 60 * 60 };

static void test_key_lives_across_journals(void **state)
{
	struct journal *journal = open_it();

	(void)state;
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "b"), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_BEGUN);
	assert_int_equal(end(journal, "a", "the answer", 10), 0);
	expect_answer(journal, "a", "the answer");
	journal_close(journal);
	journal = open_it();
	expect_answer(journal, "a", "the answer");
	assert_int_equal(begin(journal, "b"), JOURNAL_KEY_BEGUN);
	/* An answer comes once; a key that is not there has none. */
	assert_int_equal(end(journal, "a", "another", 7), 0);
	expect_answer(journal, "a", "the answer");
	assert_int_equal(end(journal, "c", "x", 1), 0);
	assert_int_equal(begin(journal, "c"), JOURNAL_KEY_NEW);
	/* An empty answer is one. */
	assert_int_equal(end(journal, "c", "", 0), 0);
	expect_answer(journal, "c", "");
	journal_close(journal);
}

static void test_forgotten_key_is_free(void **state)
{
	struct journal *journal = open_it();

	(void)state;
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	forget(journal, "a");
	forget(journal, "never there");
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	journal_close(journal);
}

static void test_other_requests_are_told_apart(void **state)
{
	struct journal *journal = open_it();
	struct journal_answer answer;
	struct journal_key key;

	(void)state;
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	for (int ended = 0; ended < 2; ended++) {
		key = key_of("a");
		key.uid = 8;
		assert_int_equal(begin_at(journal, &key, &noon, &answer), JOURNAL_KEY_OTHER);
		key = key_of("a");
		key.target = "POST /v1/templates";
		assert_int_equal(begin_at(journal, &key, &noon, &answer), JOURNAL_KEY_OTHER);
		key = key_of("a");
		key.digest[JOURNAL_DIGEST - 1] = 1;
		assert_int_equal(begin_at(journal, &key, &noon, &answer), JOURNAL_KEY_OTHER);
		assert_null(answer.body);
		assert_int_equal(end(journal, "a", "x", 1), 0);
	}
	/* Keys are bytes: case counts, and a quote is one of them. */
	assert_int_equal(begin(journal, "A"), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "a' OR ''='"), JOURNAL_KEY_NEW);
	journal_close(journal);
}

static void expect_state(
	struct journal *journal, const char *boot, int64_t boot_s, int64_t wall_s, int wanted)
{
	const struct journal_time now = {.boot = boot, .boot_s = boot_s, .wall_s = wall_s};
	const struct journal_key key = key_of("a");
	struct journal_answer answer;

	assert_int_equal(begin_at(journal, &key, &now, &answer), wanted);
	free(answer.body);
}

static void test_key_is_kept_for_a_day_whatever_the_clock(void **state)
{
	struct journal *journal = open_it();

	(void)state;
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	assert_int_equal(end(journal, "a", "x", 1), 0);
	/* Within this boot the wall clock may be set as one likes. */
	expect_state(journal, "this boot", 1000 + DAY - 1, 0, JOURNAL_KEY_ANSWERED);
	expect_state(journal, "this boot", 1000 + DAY - 1, INT64_MAX / 2, JOURNAL_KEY_ANSWERED);
	/* In another one, set back, it makes it last longer. */
	expect_state(journal, "another", 5, 1000000 + DAY - 1, JOURNAL_KEY_ANSWERED);
	expect_state(journal, "another", 5, 0, JOURNAL_KEY_ANSWERED);
	expect_state(journal, "another", 5, 1000000 + DAY, JOURNAL_KEY_NEW);
	expect_state(journal, "another", 4 + DAY, 0, JOURNAL_KEY_BEGUN);
	expect_state(journal, "another", 5 + DAY, 0, JOURNAL_KEY_NEW);
	journal_close(journal);
}

static void test_old_keys_are_swept(void **state)
{
	const struct journal_bounds bounds = {.keys = 6, .answer_bytes = 100};
	const struct journal_time later = {.boot = "this boot", .boot_s = 1000 + DAY, .wall_s = 0};
	struct journal *journal = open_with(&bounds);
	struct journal_answer answer;
	struct journal_key key;
	char name[16];

	(void)state;
	/* None of them is ended: only its age can make one go. */
	for (int i = 0; i < 6; i++) {
		snprintf(name, sizeof name, "k%d", i);
		assert_int_equal(begin(journal, name), JOURNAL_KEY_NEW);
	}
	key = key_of("next");
	assert_int_equal(begin_at(journal, &key, &noon, &answer), -ENOSPC);
	assert_int_equal(begin_at(journal, &key, &later, &answer), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "k0"), JOURNAL_KEY_NEW);
	journal_close(journal);
}

static void test_oldest_keys_make_room(void **state)
{
	const struct journal_bounds bounds = {.keys = 3, .answer_bytes = 100};
	struct journal *journal = open_with(&bounds);
	struct error error;
	struct journal_answer answer;
	enum journal_key_state found;
	const struct journal_key key = key_of("f");

	(void)state;
	assert_int_equal(begin(journal, "under way"), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "b"), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "c"), JOURNAL_KEY_NEW);
	assert_int_equal(end(journal, "c", "x", 1), 0);
	assert_int_equal(end(journal, "b", "x", 1), 0);
	/* The bounds hold for what an earlier daemon wrote, too. */
	journal_close(journal);
	journal = open_with(&bounds);
	assert_int_equal(begin(journal, "d"), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "under way"), JOURNAL_KEY_BEGUN);
	expect_answer(journal, "c", "x");
	assert_int_equal(begin(journal, "e"), JOURNAL_KEY_NEW);
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_key_begin(journal, &key, &noon, &found, &answer, &error), -ENOSPC);
	assert_int_equal(error.kind, ERROR_EXHAUSTED);
	assert_string_equal(error.message, "3 requests with an Idempotency-Key are under way");
	journal_rollback(journal);
	assert_int_equal(begin(journal, "d"), JOURNAL_KEY_BEGUN);
	journal_close(journal);
}

/* A new key of that user, answered. */
static int spend(struct journal *journal, uid_t uid, const char *name, unsigned int number)
{
	char text[32];
	struct journal_key key = key_of(text);
	struct journal_answer answer;
	int state;

	snprintf(text, sizeof text, "%s%u", name, number);
	key.uid = uid;
	state = begin_at(journal, &key, &noon, &answer);
	free(answer.body);
	return state == JOURNAL_KEY_NEW ? end(journal, text, "x", 1) : state;
}

/* What a user has asked for with a key is known for as long as they keep to their share. */
static void test_who_has_the_most_makes_room(void **state)
{
	const struct journal_bounds bounds = {.keys = 12, .answer_bytes = 1000};
	struct journal *journal = open_with(&bounds);

	(void)state;
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(spend(journal, 8, "theirs", i), 0);
	for (unsigned int i = 0; i < 100; i++)
		assert_int_equal(spend(journal, 7, "many", i), 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(spend(journal, 8, "theirs", i), JOURNAL_KEY_ANSWERED);
	assert_int_equal(spend(journal, 7, "many", 92), JOURNAL_KEY_ANSWERED);
	assert_int_equal(spend(journal, 7, "many", 91), 0);
	/* A third one takes their share of who has more than that; an equal one of their own. */
	journal_close(journal);
	journal = open_with(&bounds);
	for (unsigned int i = 0; i < 50; i++)
		assert_int_equal(spend(journal, 9, "third", i), 0);
	for (unsigned int i = 0; i < 4; i++)
		assert_int_equal(spend(journal, 8, "theirs", i), JOURNAL_KEY_ANSWERED);
	for (unsigned int i = 46; i < 50; i++)
		assert_int_equal(spend(journal, 9, "third", i), JOURNAL_KEY_ANSWERED);
	for (unsigned int i = 97; i < 100; i++)
		assert_int_equal(spend(journal, 7, "many", i), JOURNAL_KEY_ANSWERED);
	journal_close(journal);
}

/* Nor does who has the most under way push out another's. */
static void test_nobody_pays_for_what_is_under_way(void **state)
{
	const struct journal_bounds bounds = {.keys = 4, .answer_bytes = 1000};
	struct journal *journal = open_with(&bounds);

	(void)state;
	assert_int_equal(spend(journal, 8, "theirs", 0), 0);
	for (const char *name = "a\0b\0c\0"; *name; name += 2)
		assert_int_equal(begin(journal, name), JOURNAL_KEY_NEW);
	assert_int_equal(begin(journal, "d"), -ENOSPC);
	assert_int_equal(spend(journal, 8, "theirs", 1), -ENOSPC);
	assert_int_equal(spend(journal, 8, "theirs", 0), JOURNAL_KEY_ANSWERED);
	assert_int_equal(end(journal, "b", "x", 1), 0);
	assert_int_equal(spend(journal, 8, "theirs", 1), 0);
	assert_int_equal(spend(journal, 8, "theirs", 0), JOURNAL_KEY_ANSWERED);
	/* One that is forgotten, or whose time is over, is nobody's. */
	forget(journal, "a");
	assert_int_equal(spend(journal, 8, "theirs", 2), 0);
	assert_int_equal(spend(journal, 8, "theirs", 3), 0);
	assert_int_equal(spend(journal, 8, "theirs", 1), JOURNAL_KEY_ANSWERED);
	assert_int_equal(spend(journal, 8, "theirs", 0), 0);
	journal_close(journal);
}

static void test_oldest_answers_make_room(void **state)
{
	const struct journal_bounds bounds = {.keys = 10, .answer_bytes = 10};
	struct journal *journal = open_with(&bounds);
	char *large = calloc(1, JOURNAL_ANSWER_MAX + 1);

	(void)state;
	for (const char *name = "a\0b\0c\0d\0"; *name; name += 2)
		assert_int_equal(begin(journal, name), JOURNAL_KEY_NEW);
	assert_int_equal(end(journal, "a", "12345", 5), 0);
	assert_int_equal(end(journal, "b", "12345", 5), 0);
	expect_answer(journal, "a", "12345");
	assert_int_equal(end(journal, "c", "1", 1), 0);
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_ENDED);
	expect_answer(journal, "b", "12345");
	/* One that is over the bound of one is never kept, and pushes none out. */
	assert_int_equal(end(journal, "d", large, JOURNAL_ANSWER_MAX + 1), 0);
	assert_int_equal(begin(journal, "d"), JOURNAL_KEY_ENDED);
	expect_answer(journal, "b", "12345");
	expect_answer(journal, "c", "1");
	free(large);
	journal_close(journal);
}

static void test_rollback_leaves_nothing(void **state)
{
	const struct journal_bounds bounds = {.keys = 1, .answer_bytes = 100};
	struct journal *journal = open_with(&bounds);
	const struct journal_key key = key_of("a");
	struct journal_answer answer;
	enum journal_key_state found;
	struct error error;

	(void)state;
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_key_begin(journal, &key, &noon, &found, &answer, &error), 0);
	journal_rollback(journal);
	/* Not even in the count. */
	assert_int_equal(begin(journal, "b"), JOURNAL_KEY_NEW);
	journal_close(journal);
	journal = open_it();
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	journal_close(journal);
}

static void test_time_is_the_hosts(void **state)
{
	struct journal *journal = open_it();
	struct journal_time now;
	char boot[64] = "";
	FILE *id = fopen("/proc/sys/kernel/random/boot_id", "re");
	struct timespec clock;

	(void)state;
	assert_non_null(id);
	assert_non_null(fgets(boot, sizeof boot, id));
	fclose(id);
	boot[strcspn(boot, "\n")] = '\0';
	journal_read_time(journal, &now);
	assert_string_equal(now.boot, boot);
	clock_gettime(CLOCK_BOOTTIME, &clock);
	assert_in_range(clock.tv_sec - now.boot_s, 0, 60);
	clock_gettime(CLOCK_REALTIME, &clock);
	assert_in_range(clock.tv_sec - now.wall_s, 0, 60);
	journal_close(journal);
}

/* --- sandboxes --- */

static void put(
	struct journal *journal, const char *id, enum journal_sandbox_state state, uint64_t created_ms)
{
	struct journal_sandbox row = {.state = state,
		.uid = 7,
		.pid = 1234,
		.start_ticks = UINT64_C(1) << 40,
		.slot = 5,
		.seat = -1,
		.created_ms = created_ms,
		.spec = "{\"a\":1}"};
	struct error error;

	snprintf(row.id, sizeof row.id, "%s", id);
	snprintf(row.vm, sizeof row.vm, "vm-%s", id);
	snprintf(row.reason, sizeof row.reason, "why '%s'", id);
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_sandbox_put(journal, &row, &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
}

static void test_sandboxes_are_read_again(void **state)
{
	struct journal *journal = open_it();
	struct journal_sandbox rows[4];
	struct error error;
	char message[256];

	(void)state;
	put(journal, "b", JOURNAL_SANDBOX_LIVES, 20);
	put(journal, "a", JOURNAL_SANDBOX_LIVES, 30);
	put(journal, "c", JOURNAL_SANDBOX_DELETING, 10);
	put(journal, "a", JOURNAL_SANDBOX_FAILED, 30);
	journal_close(journal);
	journal = open_it();
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_sandbox_remove(journal, "c", &error), 0);
	assert_int_equal(journal_sandbox_remove(journal, "never there", &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
	assert_int_equal(journal_sandboxes_read(journal, rows, 4, &error), 2);
	assert_string_equal(rows[0].id, "b");
	assert_int_equal(rows[0].state, JOURNAL_SANDBOX_LIVES);
	assert_string_equal(rows[1].id, "a");
	assert_string_equal(rows[1].vm, "vm-a");
	assert_string_equal(rows[1].reason, "why 'a'");
	assert_string_equal(rows[1].spec, "{\"a\":1}");
	assert_int_equal(rows[1].state, JOURNAL_SANDBOX_FAILED);
	assert_int_equal(rows[1].uid, 7);
	assert_int_equal(rows[1].pid, 1234);
	assert_true(rows[1].start_ticks == UINT64_C(1) << 40);
	assert_int_equal(rows[1].slot, 5);
	assert_int_equal(rows[1].seat, -1);
	assert_int_equal(rows[1].created_ms, 30);
	assert_true(rows[1].this_boot);
	free(rows[0].spec);
	free(rows[1].spec);
	/* Of those that are not read nobody would know anything. */
	assert_int_equal(journal_sandboxes_read(journal, rows, 1, &error), -E2BIG);
	snprintf(message, sizeof message,
		"the journal %s has more than 1 sandboxes, which this host-ctl cannot know: delete some with "
		"the one "
		"that made them",
		file);
	assert_string_equal(error.message, message);
	assert_int_equal(journal_sandboxes_read(journal, rows, 2, &error), 2);
	free(rows[0].spec);
	free(rows[1].spec);
	journal_close(journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(test_key_lives_across_journals),
		WITH_FOLDER(test_forgotten_key_is_free),
		WITH_FOLDER(test_other_requests_are_told_apart),
		WITH_FOLDER(test_key_is_kept_for_a_day_whatever_the_clock),
		WITH_FOLDER(test_old_keys_are_swept),
		WITH_FOLDER(test_oldest_keys_make_room),
		WITH_FOLDER(test_who_has_the_most_makes_room),
		WITH_FOLDER(test_nobody_pays_for_what_is_under_way),
		WITH_FOLDER(test_oldest_answers_make_room),
		WITH_FOLDER(test_rollback_leaves_nothing),
		WITH_FOLDER(test_time_is_the_hosts),
		WITH_FOLDER(test_sandboxes_are_read_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
