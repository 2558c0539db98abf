/* SPDX-License-Identifier: Apache-2.0 */
/* The journal's file: what is in it after any end, and each way in which it can be wrong. */
#include "tests/support/fail_alloc.h"
#include "tests/unit/hostctl_journal_fixture.h"

#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/journal/journal_private.h"
#include "host-ctl/journal/journal_sandboxes.h"
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <time.h>

enum { KILLS = 40, KILL_US = 30000, PAGE = 4096 };

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
			    "own with --state-dir, and another --uid-base");
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
	execute("PRAGMA user_version=5");
	refuse_open(-ENOTSUP, "the journal %s/journal.db is of a newer host-ctl (its version is 5, this one "
			      "knows 4): start that "
			      "one");
	execute("PRAGMA user_version=4");
	journal = open_it();
	assert_int_equal(begin(journal, "a"), JOURNAL_KEY_BEGUN);
	journal_close(journal);
}

/* What the first version wrote is read, and goes on in the present one. */
static void test_older_one_is_brought_up(void **state)
{
	static const char *const steps[] = {"DROP INDEX keys_of; DROP TABLE commands; PRAGMA user_version=2",
		"DROP INDEX keys_of; PRAGMA user_version=3", "PRAGMA user_version=4"};
	struct journal *journal = open_it();
	struct journal_sandbox row;
	struct journal_command *commands;
	struct error error;

	(void)state;
	begin(journal, "a");
	journal_close(journal);
	execute("DROP INDEX keys_of; DROP TABLE commands; DROP TABLE sandboxes; PRAGMA user_version=1");
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		journal = open_it();
		assert_int_equal(begin(journal, "a"), JOURNAL_KEY_BEGUN);
		assert_int_equal(journal_sandboxes_read(journal, &row, 1, &error), 0);
		assert_int_equal(journal_commands_read(journal, 1, &commands, &error), 0);
		journal_close(journal);
		execute(steps[i]);
	}
	assert_int_equal(count_files("journal.db.damaged-"), 0);
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

/* One whose only entry has that name. */
static void make_sandboxes(const char *name)
{
	char path[128];

	snprintf(path, sizeof path, "%s/sandboxes", folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/sandboxes/%s", folder, name);
	assert_int_equal(mkdir(path, 0700), 0);
}

/* Folders that begin so and have an entry of that name, which goes. */
static int take_out(const char *prefix, const char *name)
{
	DIR *listing = opendir(folder);
	struct dirent *entry;
	char path[512];
	int count = 0;

	while ((entry = readdir(listing))) {
		if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
			continue;
		snprintf(path, sizeof path, "%s/%s", entry->d_name, name);
		if (unlinkat(dirfd(listing), path, AT_REMOVEDIR) == 0) {
			assert_int_equal(unlinkat(dirfd(listing), entry->d_name, AT_REMOVEDIR), 0);
			count++;
		}
	}
	closedir(listing);
	return count;
}

/* Before there is a new journal, which the next start would believe, that has no sandbox. */
static void test_what_only_it_knew_is_moved_aside(void **state)
{
	static const char text[] = "this is no database, whoever says so";
	char path[128];

	(void)state;
	/* There is none, or nothing in it; */
	make_sandboxes("sb-1");
	journal_close(open_it());
	assert_int_equal(count_files("sandboxes"), 1);
	assert_int_equal(unlink(file), 0);
	make_sandboxes("sb-2");
	write_file("", 0, 0, 0);
	journal_close(open_it());
	/* to one that is sound they are as they are; */
	make_sandboxes("sb-3");
	journal_close(open_it());
	assert_int_equal(take_out("sandboxes.lost-", "sb-1"), 1);
	assert_int_equal(take_out("sandboxes.lost-", "sb-2"), 1);
	assert_int_equal(count_files("sandboxes.lost-"), 0);
	/* and it is damaged. A folder in which nothing is, is none. */
	write_file(text, sizeof text, 0, O_TRUNC);
	journal_close(open_it());
	assert_int_equal(count_files("journal.db.damaged-"), 1);
	assert_int_equal(take_out("sandboxes.lost-", "sb-3"), 1);
	make_sandboxes("sb-4");
	assert_int_equal(rmdir((snprintf(path, sizeof path, "%s/sandboxes/sb-4", folder), path)), 0);
	assert_int_equal(unlink(file), 0);
	journal_close(open_it());
	assert_int_equal(count_files("sandboxes"), 0);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(test_only_the_owner_may_read_it),
		WITH_FOLDER(test_second_daemon_is_refused),
		WITH_FOLDER(test_newer_one_is_refused_and_kept),
		WITH_FOLDER(test_older_one_is_brought_up),
		WITH_FOLDER(test_another_program_holds_it),
		WITH_FOLDER(test_damaged_one_is_moved_aside),
		WITH_FOLDER(test_empty_file_is_a_new_one),
		WITH_FOLDER(test_what_only_it_knew_is_moved_aside),
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
