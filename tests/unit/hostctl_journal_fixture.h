/* SPDX-License-Identifier: Apache-2.0 */
/* A journal in a folder of its own, and one idempotency key after another in it. */
#ifndef TESTS_UNIT_HOSTCTL_JOURNAL_FIXTURE_H
#define TESTS_UNIT_HOSTCTL_JOURNAL_FIXTURE_H

#include "tests/support/unit.h"

#include "host-ctl/journal/journal_keys.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const struct journal_time noon = {.boot = "this boot", .boot_s = 1000, .wall_s = 1000000};

static char folder[64], file[96];

static inline int make_folder(void **state)
{
	(void)state;
	snprintf(folder, sizeof folder, "/tmp/tinderbox-journal.XXXXXX");
	assert_non_null(mkdtemp(folder));
	snprintf(file, sizeof file, "%s/journal.db", folder);
	return 0;
}

/* How many entries begin so. */
static inline int count_files(const char *prefix)
{
	DIR *listing = opendir(folder);
	struct dirent *entry;
	int count = 0;

	while ((entry = readdir(listing)))
		count += !strncmp(entry->d_name, prefix, strlen(prefix)) && entry->d_name[0] != '.';
	closedir(listing);
	return count;
}

static inline int remove_folder(void **state)
{
	DIR *listing = opendir(folder);
	struct dirent *entry;

	(void)state;
	while ((entry = readdir(listing)))
		unlinkat(dirfd(listing), entry->d_name, 0);
	closedir(listing);
	return rmdir(folder);
}

static inline struct journal *open_with(const struct journal_bounds *bounds)
{
	struct journal *journal = NULL;
	struct error error = {.message = ""};
	int status = journal_open(&journal, folder, bounds, &error);

	if (status)
		fail_msg("cannot open: %d %s", status, error.message);
	return journal;
}

static inline struct journal *open_it(void)
{
	return open_with(NULL);
}

static inline void refuse_open(int wanted, const char *words)
{
	struct journal *journal = NULL;
	struct error error = {.message = ""};
	char sentence[ERROR_MESSAGE_MAX];

	assert_int_equal(journal_open(&journal, folder, NULL, &error), wanted);
	assert_null(journal);
	snprintf(sentence, sizeof sentence, words, folder);
	assert_string_equal(error.message, sentence);
}

static inline struct journal_key key_of(const char *name)
{
	return (struct journal_key){.key = name, .target = "POST /v1/run", .uid = 7, .digest = {1, 2, 3}};
}

/* In a transaction of its own. The state, or -errno. */
static inline int begin_at(struct journal *journal, const struct journal_key *key,
	const struct journal_time *now, struct journal_answer *answer)
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

static inline int begin(struct journal *journal, const char *name)
{
	const struct journal_key key = key_of(name);
	struct journal_answer answer;
	int state = begin_at(journal, &key, &noon, &answer);

	free(answer.body);
	return state;
}

static inline int end(struct journal *journal, const char *name, const char *text, size_t length)
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

static inline void forget(struct journal *journal, const char *name)
{
	struct error error;

	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_key_forget(journal, name, &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
}

static inline void expect_answer(struct journal *journal, const char *name, const char *text)
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

#define WITH_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

#endif
