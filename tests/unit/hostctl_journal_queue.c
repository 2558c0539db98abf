/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of the journal: those that do not wait for the disk, or for anybody; what fails for whom; and those
 * that are asked for again. */
#include "tests/unit/hostctl_journal_fixture.h"

#include "host-ctl/journal/journal_again.h"
#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/journal/journal_private.h"
#include "host-ctl/support/clock.h"
#include <sys/resource.h>

/* --- when --- */

enum { SYNC_NORMAL = 1, SYNC_FULL = 2 };

struct noted {
	struct journal_job job;
	int synchronous;     /* while it worked */
	unsigned int commit; /* of which it was part */
	bool done;
};

static unsigned int commits;
static sqlite3 *hooked;

static int count_commit(void *context)
{
	(void)context;
	commits++;
	return 0;
}

static int note(struct journal *journal, struct journal_job *job, struct error *error)
{
	struct noted *noted = (struct noted *)job;
	sqlite3_stmt *statement;

	(void)error;
	if (hooked != journal->db)
		sqlite3_commit_hook(hooked = journal->db, count_commit, NULL);
	assert_int_equal(sqlite3_prepare_v2(journal->db, "PRAGMA synchronous", -1, &statement, NULL), 0);
	assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
	noted->synchronous = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	noted->commit = commits;
	return journal_commands_remove_of(journal, "sb-1", error);
}

static void is_done(struct journal_job *job)
{
	assert_int_equal(job->error.kind, ERROR_NONE);
	((struct noted *)job)->done = true;
}

static struct noted job_of(bool unsynced, bool lazy)
{
	return (struct noted){.job = {.work = note, .done = is_done, .unsynced = unsynced, .lazy = lazy}};
}

static void await(struct loop *loop, const struct noted *noted)
{
	while (!noted->done)
		assert_true(loop_turn(loop, 10000) >= 0);
}

static void test_sync_when_asked_for(void **state)
{
	struct loop *loop = loop_create();
	struct journal_queue *queue = journal_queue_create(loop, open_it());
	struct noted first = job_of(true, false), second = job_of(true, false), third = job_of(false, false);
	struct noted fourth = job_of(true, false);

	(void)state;
	hooked = NULL;
	/* Alone; then two of one commit, of which one wants it. */
	journal_queue_put(queue, &first.job);
	journal_queue_put(queue, &second.job);
	journal_queue_put(queue, &third.job);
	await(loop, &third);
	journal_queue_put(queue, &fourth.job);
	await(loop, &fourth);
	assert_int_equal(first.synchronous, SYNC_NORMAL);
	assert_int_equal(second.synchronous, SYNC_FULL);
	assert_int_equal(third.synchronous, SYNC_FULL);
	assert_int_equal(second.commit, third.commit);
	assert_int_equal(fourth.synchronous, SYNC_NORMAL);
	journal_queue_destroy(queue);
	loop_destroy(loop);
}

static void test_lazy_jobs(void **state)
{
	struct loop *loop = loop_create();
	struct journal_queue *queue = journal_queue_create(loop, open_it());
	struct noted lazy = job_of(true, true), urgent = job_of(true, false);
	struct noted alone = job_of(true, true), last = job_of(true, true);
	uint64_t began;

	(void)state;
	hooked = NULL;
	journal_queue_put(queue, &lazy.job);
	journal_queue_put(queue, &urgent.job);
	await(loop, &urgent);
	assert_true(lazy.done);
	assert_int_equal(lazy.commit, urgent.commit);
	began = clock_now();
	journal_queue_put(queue, &alone.job);
	await(loop, &alone);
	assert_true(clock_now() - began >= JOURNAL_LAZY_MS * CLOCK_NS_PER_MS);
	/* What still waits at the end is done. */
	journal_queue_put(queue, &last.job);
	journal_queue_destroy(queue);
	assert_true(last.done);
	loop_destroy(loop);
}

/* --- what fails --- */

/* Begins a key, and then fails or not. */
struct keying {
	struct journal_job job;
	const char *key;
	int (*then)(struct journal *journal, struct error *error);
	enum journal_key_state found;
	struct error end;
	bool done;
};

static int begin_and_fail(struct journal *journal, struct journal_job *job, struct error *error)
{
	struct keying *keying = (struct keying *)job;
	const struct journal_key key = key_of(keying->key);
	struct journal_answer answer;
	int status = journal_key_begin(journal, &key, &noon, &keying->found, &answer, error);

	if (status)
		return status;
	free(answer.body);
	return keying->then ? keying->then(journal, error) : 0;
}

static void keyed(struct journal_job *job)
{
	struct keying *keying = (struct keying *)job;

	keying->end = job->error;
	keying->done = true;
}

static struct keying keying_of(const char *key, int (*then)(struct journal *journal, struct error *error))
{
	return (struct keying){.job = {.work = begin_and_fail, .done = keyed}, .key = key, .then = then};
}

static int fail_by_itself(struct journal *journal, struct error *error)
{
	(void)journal;
	error_set(error, ERROR_NOT_READY, "of its own");
	return -EIO;
}

/* SQLite refuses the statement. */
static int fail_as_a_statement(struct journal *journal, struct error *error)
{
	sqlite3_stmt *statement = journal_statement(journal, JOURNAL_ADD_KEY, error);

	sqlite3_bind_text(statement, 1, "without a user", -1, SQLITE_STATIC);
	return journal_do(journal, statement, error);
}

static int fill_up(struct journal *journal, struct error *error)
{
	static uint8_t bytes[100000];
	const struct journal_command row = {
		.id = "cmd-1", .sandbox = "sb-1", .payload = {.bytes = bytes, .length = sizeof bytes}};

	assert_int_equal(sqlite3_exec(journal->db, "PRAGMA max_page_count=1", NULL, NULL, NULL), SQLITE_OK);
	return journal_command_put(journal, &row, error);
}

/* The last ones are of one commit. */
static void put_all(struct loop *loop, struct journal_queue *queue, struct keying *all, size_t count)
{
	for (size_t i = 0; i < count; i++)
		journal_queue_put(queue, &all[i].job);
	while (!all[count - 1].done)
		assert_true(loop_turn(loop, 10000) >= 0);
}

static void test_a_job_that_fails(void **state)
{
	const struct journal_bounds bounds = {.keys = 4, .answer_bytes = 100};
	struct loop *loop = loop_create();
	struct journal_queue *queue = journal_queue_create(loop, open_with(&bounds));
	struct keying all[] = {keying_of("first", NULL), keying_of("a", NULL), keying_of("b", fail_by_itself),
		keying_of("c", NULL), keying_of("d", fail_as_a_statement), keying_of("e", NULL),
		keying_of("too many", NULL)};
	const size_t count = sizeof all / sizeof all[0];
	struct journal *journal;

	(void)state;
	put_all(loop, queue, all, count);
	assert_int_equal(all[2].end.kind, ERROR_NOT_READY);
	assert_string_equal(all[2].end.message, "of its own");
	assert_int_equal(all[4].end.kind, ERROR_INTERNAL);
	assert_non_null(strstr(all[4].end.message, "NOT NULL constraint failed: keys.uid"));
	/* Those that failed do not count: the four others are as many as there may be. */
	assert_string_equal(all[6].end.message, "4 requests with an Idempotency-Key are under way");
	for (size_t i = 0; i < count; i++)
		if (i != 2 && i != 4 && i != 6)
			assert_int_equal(all[i].end.kind, ERROR_NONE);
	assert_null(journal_queue_error(queue));
	journal_queue_destroy(queue);
	loop_destroy(loop);
	journal = open_it();
	for (const char *key = "a\0c\0e\0"; *key; key += 2)
		assert_int_equal(begin(journal, key), JOURNAL_KEY_BEGUN);
	for (const char *key = "b\0d\0"; *key; key += 2)
		assert_int_equal(begin(journal, key), JOURNAL_KEY_NEW);
	journal_close(journal);
}

static void test_a_journal_that_fails(void **state)
{
	struct loop *loop = loop_create();
	struct journal_queue *queue = journal_queue_create(loop, open_it());
	struct keying all[] = {keying_of("first", NULL), keying_of("a", NULL), keying_of("b", fail_by_itself),
		keying_of("c", fill_up), keying_of("d", NULL)};
	char wanted[160];
	struct journal *journal;

	(void)state;
	put_all(loop, queue, all, sizeof all / sizeof all[0]);
	assert_int_equal(all[0].end.kind, ERROR_NONE);
	snprintf(wanted, sizeof wanted, "no room for the journal %s: free some on its disk", file);
	for (size_t i = 1; i < sizeof all / sizeof all[0]; i++) {
		assert_int_equal(all[i].end.kind, ERROR_EXHAUSTED);
		assert_string_equal(all[i].end.message, wanted);
	}
	assert_string_equal(journal_queue_error(queue)->message, wanted);
	journal_queue_destroy(queue);
	loop_destroy(loop);
	journal = open_it();
	assert_int_equal(begin(journal, "first"), JOURNAL_KEY_BEGUN);
	for (const char *key = "a\0b\0c\0d\0"; *key; key += 2)
		assert_int_equal(begin(journal, key), JOURNAL_KEY_NEW);
	journal_close(journal);
}

/* --- again --- */

/* One that is kept until it is done. */
struct lasting {
	struct journal_lasting lasting;
	struct journal_again *again;
	unsigned int failures; /* to come */
	unsigned int works, dropped;
	bool done;
};

static int work_at_last(struct journal *journal, struct journal_job *job, struct error *error)
{
	struct lasting *one = (struct lasting *)journal_lasting_of(job);

	one->works++;
	return one->failures ? fail_by_itself(journal, error) : 0;
}

static void worked(struct journal_job *job)
{
	struct lasting *one = (struct lasting *)journal_lasting_of(job);

	one->done = !job->error.kind;
	if (one->done) {
		journal_again_taken(one->again);
		return;
	}
	one->failures--;
	journal_again_keep(one->again, &one->lasting);
}

static void dropped(struct journal_lasting *lasting)
{
	((struct lasting *)lasting)->dropped++;
}

static struct lasting lasting_of(struct journal_again *again, unsigned int failures)
{
	return (struct lasting){.lasting = {.job = {.work = work_at_last, .done = worked}, .drop = dropped},
		.again = again,
		.failures = failures};
}

static void await_last(struct loop *loop, const bool *done)
{
	while (!*done)
		assert_true(loop_turn(loop, 10000) >= 0);
}

static void test_again(void **state)
{
	struct loop *loop = loop_create();
	struct journal_queue *queue = journal_queue_create(loop, open_it());
	struct journal_again again;
	struct lasting alone = lasting_of(&again, 1), with = lasting_of(&again, 1);
	struct lasting other = lasting_of(&again, 0), never = lasting_of(&again, UINT_MAX);
	uint64_t began = clock_now();

	(void)state;
	assert_int_equal(journal_again_init(&again, loop, queue), 0);
	/* By the clock... */
	journal_queue_put(queue, &alone.lasting.job);
	await_last(loop, &alone.done);
	assert_true(clock_now() - began >= JOURNAL_AGAIN_MIN_MS * CLOCK_NS_PER_MS);
	assert_int_equal(alone.works, 2);
	/* ...or when another is taken. */
	began = clock_now();
	journal_queue_put(queue, &with.lasting.job);
	while (with.failures)
		assert_true(loop_turn(loop, 10000) >= 0);
	assert_int_equal(again.count, 1);
	journal_queue_put(queue, &other.lasting.job);
	await_last(loop, &with.done);
	assert_true(clock_now() - began < JOURNAL_AGAIN_MIN_MS * CLOCK_NS_PER_MS);
	assert_int_equal(again.count, 0);
	/* One that is taken back is not asked for. */
	assert_false(journal_again_forget(&again, &never.lasting));
	journal_again_keep(&again, &never.lasting);
	assert_true(journal_again_forget(&again, &never.lasting));
	assert_int_equal(again.count, 0);
	journal_again_keep(&again, &never.lasting);
	journal_queue_destroy(queue);
	assert_int_equal(never.works + never.dropped, 0);
	journal_again_finish(&again);
	assert_int_equal(never.dropped, 1);
	loop_destroy(loop);
}

/* Without more of them there is no worker. */
static void allow_fds(bool allowed)
{
	struct rlimit limit;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = allowed ? limit.rlim_max : 0;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* Where the daemon waits for the disk itself, a job has failed again before it was put. */
static void test_again_without_threads(void **state)
{
	struct loop *loop = loop_create();
	struct journal_queue *queue = journal_queue_create(loop, open_it());
	struct journal_again again;
	struct lasting never = lasting_of(&again, UINT_MAX);

	(void)state;
	assert_int_equal(journal_again_init(&again, loop, queue), 0);
	allow_fds(false);
	journal_queue_put(queue, &never.lasting.job);
	assert_int_equal(never.works, 1);
	journal_again_taken(&again);
	assert_int_equal(never.works, 2);
	allow_fds(true);
	journal_queue_destroy(queue);
	journal_again_finish(&again);
	assert_int_equal(never.dropped, 1);
	loop_destroy(loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(test_sync_when_asked_for),
		WITH_FOLDER(test_lazy_jobs),
		WITH_FOLDER(test_a_job_that_fails),
		WITH_FOLDER(test_a_journal_that_fails),
		WITH_FOLDER(test_again),
		WITH_FOLDER(test_again_without_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
