/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: what is in it after any end, its refusals, and the life of an idempotency key. */
#include "tests/support/fail_alloc.h"
#include "tests/support/unit.h"

#include "host-ctl/journal_keys.h"
#include "host-ctl/journal_private.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { DAY = 24 * 60 * 60, KILLS = 40, KILL_US = 30000, PAGE = 4096 };

static const struct journal_time noon = {.boot = "this boot", .boot_s = 1000, .wall_s = 1000000};

static char folder[64], file[96];

static int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/tinderbox-journal.XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof file, "%s/journal.db", folder);
	return 0;
}

/* How many entries begin so. */
static int count_files(const char *prefix)
{
	DIR *listing = opendir(folder);
	struct dirent *entry;
	int count = 0;

	while ((entry = readdir(listing)))
		count += !strncmp(entry->d_name, prefix, strlen(prefix)) && entry->d_name[0] != '.';
	closedir(listing);
	return count;
}

static int remove_folder(void **state)
{
	DIR *listing = opendir(folder);
	struct dirent *entry;

	(void)state;
	while ((entry = readdir(listing)))
		unlinkat(dirfd(listing), entry->d_name, 0);
	closedir(listing);
	return rmdir(folder);
}

static struct journal *open_with(const struct journal_bounds *bounds)
{
	struct journal *journal = NULL;
	struct error error = {.message = ""};
	int status = journal_open(&journal, folder, bounds, &error);

	if (status)
		fail_msg("cannot open: %d %s", status, error.message);
	return journal;
}

static struct journal *open_it(void)
{
	return open_with(NULL);
}

static void refuse_open(int wanted, const char *words)
{
	struct journal *journal = NULL;
	struct error error = {.message = ""};
	char sentence[ERROR_MESSAGE_MAX];

	assert_int_equal(journal_open(&journal, folder, NULL, &error), wanted);
	assert_null(journal);
	snprintf(sentence, sizeof sentence, words, folder);
	assert_string_equal(error.message, sentence);
}

static struct journal_key key_of(const char *name)
{
	return (struct journal_key){.key = name, .target = "POST /v1/run", .uid = 7, .digest = {1, 2, 3}};
}

/* In a transaction of its own. The state, or -errno. */
static int begin_at(struct journal *journal, const struct journal_key *key, const struct journal_time *now,
	struct journal_answer *answer)
{
	struct error error;
	enum journal_key_state state = JOURNAL_KEY_NEW;
	int status = journal_begin(journal, &error);

	if (!status)
		status = journal_key_begin(journal, key, now, &state, answer, &error);
	if (status) {
		journal_rollback(journal);
		return status;
	}
	status = journal_commit(journal, &error);
	return status ? status : (int)state;
}

static int begin(struct journal *journal, const char *name)
{
	const struct journal_key key = key_of(name);
	struct journal_answer answer;
	int state = begin_at(journal, &key, &noon, &answer);

	free(answer.body);
	return state;
}

static int end(struct journal *journal, const char *name, const char *text, size_t length)
{
	struct journal_answer answer = {
		.status = 201, .type = "text/x", .body = (char *)text, .length = length};
	struct error error;
	int status = journal_begin(journal, &error);

	if (!status)
		status = journal_key_end(journal, name, &answer, &error);
	if (status) {
		journal_rollback(journal);
		return status;
	}
	return journal_commit(journal, &error);
}

static void forget(struct journal *journal, const char *name)
{
	struct error error;

	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_key_forget(journal, name, &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
}

static void expect_answer(struct journal *journal, const char *name, const char *text)
{
	const struct journal_key key = key_of(name);
	struct journal_answer answer;

	assert_int_equal(begin_at(journal, &key, &noon, &answer), JOURNAL_KEY_ANSWERED);
	assert_int_equal(answer.status, 201);
	assert_string_equal(answer.type, "text/x");
	assert_int_equal(answer.length, strlen(text));
	assert_string_equal(answer.body, text);
	free(answer.body);
}

/* --- keys --- */

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

/* --- the file --- */

static void test_only_the_owner_may_read_it(void **state)
{
	struct journal *journal = open_it();
	struct stat about;

	(void)state;
	begin(journal, "a");
	assert_int_equal(stat(file, &about), 0);
	assert_int_equal(about.st_mode & 07777, 0600);
	strcat(file, "-wal");
	assert_int_equal(stat(file, &about), 0);
	assert_int_equal(about.st_mode & 07777, 0600);
	journal_close(journal);
}

static void test_second_daemon_is_refused(void **state)
{
	struct journal *journal = open_it();

	(void)state;
	refuse_open(-EBUSY, "the state folder %s is in use by another host-ctl serve: stop it first, or give "
			    "this one its "
			    "own with --state-dir");
	journal_close(journal);
	journal_close(open_it());
}

static void execute(const char *sql)
{
	sqlite3 *db = NULL;

	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
	assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void test_newer_one_is_refused_and_kept(void **state)
{
	struct journal *journal = open_it();

	(void)state;
	begin(journal, "a");
	journal_close(journal);
	execute("PRAGMA user_version=2");
	refuse_open(-ENOTSUP, "the journal %s/journal.db is of a newer host-ctl (its version is 2, this one "
			      "knows 1): start "
			      "that one, or give another --state-dir");
	execute("PRAGMA user_version=1");
	journal = open_it();
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_BEGUN);
	journal_close(journal);
}

static void test_another_program_holds_it(void **state)
{
	sqlite3 *db = NULL;
	int status = -1;

	(void)state;
	journal_close(open_it());
	assert_int_equal(sqlite3_open(file, &db), SQLITE_OK);
	assert_int_equal(
		sqlite3_exec(db, "PRAGMA locking_mode=EXCLUSIVE; BEGIN EXCLUSIVE", NULL, NULL, NULL), 0);
	/* POSIX locks are a process's own: asked from another. */
	if (fork() == 0) {
		struct journal *journal;
		struct error error;

		_exit(journal_open(&journal, folder, NULL, &error) == -EBUSY &&
					strstr(error.message, "is in use by another program: end that")
				? 0
				: 1);
	}
	wait(&status);
	assert_int_equal(status, 0);
	sqlite3_close(db);
}

static void write_file(const void *bytes, size_t length, off_t at, int flags)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);

	assert_true(fd >= 0);
	assert_int_equal(pwrite(fd, bytes, length, at), length);
	close(fd);
}

/* It is moved aside, and a new one takes its place. */
static void expect_moved_aside(void)
{
	struct journal *journal = open_it();

	assert_int_equal(count_files("journal.db.damaged-"), 1);
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	journal_close(journal);
	journal = open_it();
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_BEGUN);
	journal_close(journal);
	assert_int_equal(count_files("journal.db.damaged-"), 1);
	remove_folder(NULL);
	assert_int_equal(mkdir(folder, 0700), 0);
}

static void make_one(void)
{
	struct journal *journal = open_it();
	char name[16];

	for (int i = 0; i < 200; i++) {
		snprintf(name, sizeof name, "a%d", i);
		assert_int_equal(begin(journal, i ? name : "a"), JOURNAL_KEY_NEW);
	}
	journal_close(journal);
	assert_int_equal(count_files("journal.db"), 1);
}

static void test_damaged_one_is_moved_aside(void **state)
{
	static const char text[PAGE] = "this is no database, whoever says so";
	static const char zeros[PAGE];

	(void)state;
	write_file(text, sizeof text, 0, O_TRUNC);
	expect_moved_aside();
	execute("CREATE TABLE foreign_one (a)");
	expect_moved_aside();
	execute("PRAGMA application_id=1413630513; PRAGMA user_version=1");
	expect_moved_aside();
	for (off_t page = 0; page < 4; page++) {
		make_one();
		write_file(text, sizeof text, page * PAGE, 0);
		expect_moved_aside();
		make_one();
		write_file(zeros, sizeof zeros, page * PAGE, 0);
		expect_moved_aside();
	}
	make_one();
	assert_int_equal(truncate(file, 3 * PAGE), 0);
	expect_moved_aside();
}

static void test_empty_file_is_a_new_one(void **state)
{
	struct journal *journal;

	(void)state;
	write_file("", 0, 0, 0);
	journal = open_it();
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	journal_close(journal);
	assert_int_equal(count_files("journal.db.damaged-"), 0);
}

static void test_damage_while_it_is_used(void **state)
{
	static const char text[PAGE] = "no page of a tree";
	struct journal *journal;
	struct error error = {.message = ""};
	char wanted[ERROR_MESSAGE_MAX];

	(void)state;
	make_one();
	journal = open_with(&(struct journal_bounds){.keys = 1000, .answer_bytes = 1000});
	/* What the check has read would still be whole. */
	sqlite3_db_release_memory(journal->db);
	for (off_t page = 1; page < 8; page++)
		write_file(text, sizeof text, page * PAGE, 0);
	assert_int_equal(journal_begin(journal, &error), -EUCLEAN);
	snprintf(wanted, sizeof wanted,
		"the journal %s is damaged (database disk image is malformed): start the daemon anew, which "
		"moves it "
		"aside",
		file);
	assert_string_equal(error.message, wanted);
	assert_int_equal(error.kind, ERROR_INTERNAL);
	journal_close(journal);
	expect_moved_aside();
}

static void test_link_is_not_followed(void **state)
{
	char target[80];

	(void)state;
	snprintf(target, sizeof target, "%s/elsewhere", folder);
	assert_int_equal(symlink(target, file), 0);
	refuse_open(-ELOOP, "cannot open the journal %s/journal.db: Too many levels of symbolic links: name "
			    "a folder that can be "
			    "written with --state-dir");
	assert_int_equal(access(target, F_OK), -1);
}

static void test_folder_that_cannot_be_made(void **state)
{
	char kept[sizeof folder];

	(void)state;
	memcpy(kept, folder, sizeof kept);
	strcpy(folder, "/proc/nowhere");
	refuse_open(-ENOENT, "cannot make the folder of the journal %s/journal.db: No such file or "
			     "directory: name a folder that can be "
			     "written with --state-dir");
	memcpy(folder, kept, sizeof kept);
}

static void test_no_memory(void **state)
{
	struct journal *journal = NULL;
	struct error error;

	(void)state;
	fail_alloc(0);
	assert_int_equal(journal_open(&journal, folder, NULL, &error), -ENOMEM);
	assert_int_equal(fail_alloc_end(), 1);
	assert_null(journal);
	journal = open_it();
	begin(journal, "a");
	end(journal, "a", "x", 1);
	fail_alloc(0);
	assert_int_equal(begin(journal, "a"), -ENOMEM);
	assert_int_equal(fail_alloc_end(), 1);
	expect_answer(journal, "a", "x");
	journal_close(journal);
}

/* --- a disk of its own --- */

static void mount_disk(const char *options, unsigned long flags)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
		print_message("needs root\n");
		skip();
	}
	assert_int_equal(mount("journal", folder, "tmpfs", flags, options), 0);
}

static void unmount_disk(void)
{
	assert_int_equal(umount2(folder, MNT_DETACH), 0);
}

static void test_full_disk(void **state)
{
	struct journal *journal;
	struct error error;
	struct journal_answer answer = {.status = 200, .type = "text/x", .length = 400 * 1024};
	char wanted[ERROR_MESSAGE_MAX];

	(void)state;
	mount_disk("size=400k", 0);
	answer.body = calloc(1, answer.length);
	journal = open_it();
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_NEW);
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_key_end(journal, "a", &answer, &error), 0);
	assert_int_equal(journal_commit(journal, &error), -ENOSPC);
	assert_int_equal(error.kind, ERROR_EXHAUSTED);
	snprintf(wanted, sizeof wanted, "no room for the journal %s: free some on its disk", file);
	assert_string_equal(error.message, wanted);
	/* What was acknowledged holds; what fits goes on. */
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_BEGUN);
	assert_int_equal(end(journal, "a", "small", 5), 0);
	journal_close(journal);
	journal = open_it();
	expect_answer(journal, "a", "small");
	journal_close(journal);
	free(answer.body);
	unmount_disk();
}

static void test_no_room_for_a_new_one(void **state)
{
	char path[96];
	static const char block[PAGE];
	int fd;

	(void)state;
	mount_disk("size=64k", 0);
	snprintf(path, sizeof path, "%s/ballast", folder);
	fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	while (write(fd, block, sizeof block) > 0)
		;
	close(fd);
	refuse_open(-ENOSPC, "no room for the journal %s/journal.db: free some on its disk");
	unlink(path);
	journal_close(open_it());
	unmount_disk();
}

static void test_read_only_disk(void **state)
{
	static const char words[] = "the journal %s/journal.db is on a read-only file system: make that "
				    "writable, or give another "
				    "--state-dir";

	(void)state;
	mount_disk("size=1m", 0);
	journal_close(open_it());
	assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	refuse_open(-EROFS, words);
	assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT, NULL), 0);
	unlink(file);
	assert_int_equal(mount(NULL, folder, NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
	refuse_open(-EROFS, words);
	unmount_disk();
}

/* --- ends --- */

/* Says each row that was acknowledged: its number, and then the same with the top bit once it is ended. */
static void write_rows(int to, unsigned int first)
{
	struct journal *journal = open_it();
	char name[32];

	for (unsigned int i = first;; i++) {
		unsigned int said = i | 0x80000000u;

		snprintf(name, sizeof name, "row-%u", i);
		if (begin(journal, name) != JOURNAL_KEY_NEW || write(to, &i, sizeof i) != sizeof i)
			_exit(1);
		if (end(journal, name, name, strlen(name)) || write(to, &said, sizeof said) != sizeof said)
			_exit(1);
	}
}

/* One that writes, or that still opens it. The row after the last that was told; *ended: so is that one. */
static unsigned int kill_a_writer(unsigned int first, bool writes, bool *ended)
{
	const struct timespec pause = {.tv_nsec = 1000L * (1 + rand() % KILL_US)};
	unsigned int last = first, said;
	int pipes[2], status;
	pid_t child;

	*ended = false;
	assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
	child = fork();
	if (child == 0)
		write_rows(pipes[1], first);
	close(pipes[1]);
	if (writes)
		assert_int_equal(read(pipes[0], &said, sizeof said), sizeof said);
	nanosleep(&pause, NULL);
	kill(child, SIGKILL);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status));
	while (read(pipes[0], &said, sizeof said) == sizeof said) {
		last = (said & 0x7fffffffu) + 1;
		*ended = said >> 31;
	}
	close(pipes[0]);
	return last;
}

static void test_what_was_acknowledged_is_there(void **state)
{
	unsigned int next = 0, rows = 0;
	bool ended;

	(void)state;
	srand(1);
	for (int i = 0; i < KILLS; i++) {
		unsigned int after = kill_a_writer(next, i % 4, &ended);
		struct journal *journal = open_it();
		char name[32];

		for (unsigned int row = next; row < after; row++) {
			snprintf(name, sizeof name, "row-%u", row);
			if (row + 1 < after || ended)
				expect_answer(journal, name, name);
			else
				assert_in_range(
					begin(journal, name), JOURNAL_KEY_BEGUN, JOURNAL_KEY_ANSWERED);
		}
		rows += after - next;
		/* At most one more may be there, of which nobody was told. */
		snprintf(name, sizeof name, "row-%u", after + 1);
		assert_int_equal(begin(journal, name), JOURNAL_KEY_NEW);
		journal_close(journal);
		next = after + 2;
	}
	print_message("%u rows acknowledged before %d kills\n", rows, KILLS);
	assert_true(rows > KILLS);
	assert_int_equal(count_files("journal.db.damaged-"), 0);
}

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(test_key_lives_across_journals),
		WITH_FOLDER(test_forgotten_key_is_free),
		WITH_FOLDER(test_other_requests_are_told_apart),
		WITH_FOLDER(test_key_is_kept_for_a_day_whatever_the_clock),
		WITH_FOLDER(test_old_keys_are_swept),
		WITH_FOLDER(test_oldest_keys_make_room),
		WITH_FOLDER(test_oldest_answers_make_room),
		WITH_FOLDER(test_rollback_leaves_nothing),
		WITH_FOLDER(test_time_is_the_hosts),
		WITH_FOLDER(test_only_the_owner_may_read_it),
		WITH_FOLDER(test_second_daemon_is_refused),
		WITH_FOLDER(test_newer_one_is_refused_and_kept),
		WITH_FOLDER(test_another_program_holds_it),
		WITH_FOLDER(test_damaged_one_is_moved_aside),
		WITH_FOLDER(test_empty_file_is_a_new_one),
		WITH_FOLDER(test_damage_while_it_is_used),
		WITH_FOLDER(test_link_is_not_followed),
		WITH_FOLDER(test_folder_that_cannot_be_made),
		WITH_FOLDER(test_no_memory),
		WITH_FOLDER(test_full_disk),
		WITH_FOLDER(test_no_room_for_a_new_one),
		WITH_FOLDER(test_read_only_disk),
		WITH_FOLDER(test_what_was_acknowledged_is_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
