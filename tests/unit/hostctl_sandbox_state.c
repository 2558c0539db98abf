/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a sandbox's states and verbs, each cell of it. */
#include "tests/support/unit.h"

#include "host-ctl/sandbox/sandbox_state.h"
#include <stdio.h>
#include <string.h>

/* In short: a state's name, "=" where nothing is to be done, "?" not_ready, "!" conflict. */
static const char *const cells[SANDBOX_STATE_COUNT][SANDBOX_VERB_COUNT] = {
	/* pause, resume, suspend, wake, stop, start, delete, exec, copy */
	[SANDBOX_CREATING] = {"?", "?", "?", "?", "?", "?", "deleting", "?", "?"},
	[SANDBOX_READY] = {"pausing", "=", "suspending", "=", "stopping", "=", "deleting", "=", "copying"},
	[SANDBOX_PAUSING] = {"=", "?", "?", "?", "?", "!", "deleting", "?", "?"},
	[SANDBOX_PAUSED] = {"=", "resuming", "suspending", "resuming", "stopping", "!", "deleting",
		"resuming", "!"},
	[SANDBOX_RESUMING] = {"?", "=", "?", "=", "?", "?", "deleting", "=", "?"},
	[SANDBOX_COPYING] = {"?", "?", "?", "?", "?", "?", "deleting", "=", "?"},
	[SANDBOX_SUSPENDING] = {"!", "!", "=", "?", "!", "!", "deleting", "?", "!"},
	[SANDBOX_SUSPENDED] = {"!", "!", "=", "waking", "stopping", "!", "deleting", "waking", "!"},
	[SANDBOX_WAKING] = {"?", "?", "?", "=", "?", "?", "deleting", "=", "?"},
	[SANDBOX_STOPPING] = {"!", "!", "!", "?", "=", "?", "deleting", "!", "!"},
	[SANDBOX_STOPPED] = {"!", "!", "!", "starting", "=", "starting", "deleting", "!", "!"},
	[SANDBOX_STARTING] = {"?", "?", "?", "=", "?", "=", "deleting", "?", "?"},
	[SANDBOX_DELETING] = {"!", "!", "!", "!", "!", "!", "=", "!", "!"},
	[SANDBOX_GONE] = {"!", "!", "!", "!", "!", "!", "=", "!", "!"},
	[SANDBOX_FAILED] = {"!", "!", "!", "!", "!", "!", "deleting", "!", "!"},
};

static const char *const words[SANDBOX_VERB_COUNT] = {"paused", "resumed", "suspended", "woken", "stopped",
	"started", "deleted", "given commands", "copied"};

static void expect_refusal(
	enum sandbox_state state, enum sandbox_verb verb, const struct error *error, enum error_kind kind)
{
	const char *mend = kind == ERROR_NOT_READY ? " yet" : "", *reason = "";
	char message[256];

	if (state == SANDBOX_STOPPED)
		mend = ": start it first";
	if (state == SANDBOX_SUSPENDED || (state == SANDBOX_SUSPENDING && kind == ERROR_CONFLICT))
		mend = ": wake it";
	if (state == SANDBOX_FAILED) {
		mend = ": delete it, and create another";
		reason = " (why it is so)";
	}
	if ((state == SANDBOX_PAUSED || state == SANDBOX_PAUSING) && kind == ERROR_CONFLICT)
		mend = ": resume it";
	snprintf(message, sizeof message, "sandbox sb-1 is %s%s, and cannot be %s%s",
		sandbox_state_name(state), reason, words[verb], mend);
	assert_int_equal(error->kind, kind);
	assert_string_equal(error->message, message);
}

static void test_each_cell(void **state)
{
	(void)state;
	for (int from = 0; from < SANDBOX_STATE_COUNT; from++) {
		for (int verb = 0; verb < SANDBOX_VERB_COUNT; verb++) {
			const char *cell = cells[from][verb];
			enum sandbox_state next = SANDBOX_STATE_COUNT;
			struct error error = {.kind = ERROR_NONE};
			int status = sandbox_state_apply((enum sandbox_state)from, (enum sandbox_verb)verb,
				"sb-1", "why it is so", &next, &error);

			if (*cell == '?' || *cell == '!') {
				assert_int_equal(status, -1);
				expect_refusal((enum sandbox_state)from, (enum sandbox_verb)verb, &error,
					*cell == '?' ? ERROR_NOT_READY : ERROR_CONFLICT);
				continue;
			}
			assert_int_equal(status, 0);
			assert_int_equal(next, *cell == '=' ? from : sandbox_state_of_name(cell));
			/* What a verb may begin is a transition. */
			assert_true(
				(int)next == from || sandbox_state_may_go((enum sandbox_state)from, next));
		}
	}
}

/* --- the table of the documents --- */

static const char manual[] = "docs/sandboxes.md", heading[] = "| | pause |";
static const char *const columns[SANDBOX_VERB_COUNT] = {
	"pause", "resume", "suspend", "wake", "stop", "start", "delete", "exec", "fork, snapshot"};

/* The cells of a line of a table, without the blanks around them; how many. The line is written to. */
static size_t split_row(char *line, char *row[], size_t maximum)
{
	size_t count = 0;
	char *cell;

	strsep(&line, "|");
	while (line && (cell = strsep(&line, "|")) && line) {
		assert_true(count < maximum);
		cell += strspn(cell, " ");
		while (*cell && cell[strlen(cell) - 1] == ' ')
			cell[strlen(cell) - 1] = '\0';
		row[count++] = cell;
	}
	return count;
}

/* "=", an error, or a state, which may depend: "stopping, or `conflict` without a disk". */
static void expect_cell(enum sandbox_state from, enum sandbox_verb verb, const char *cell)
{
	enum sandbox_state next = SANDBOX_STATE_COUNT;
	struct error error = {.kind = ERROR_NONE};
	size_t length = strcspn(cell, ",");
	const char *wanted = "=";
	char word[32];

	if (sandbox_state_apply(from, verb, "sb-1", "", &next, &error))
		wanted = error.kind == ERROR_NOT_READY ? "`not_ready`" : "`conflict`";
	else if (next != from)
		wanted = sandbox_state_name(next);
	assert_true(length < sizeof word);
	snprintf(word, sizeof word, "%.*s", (int)length, cell);
	print_message("# %s, %s: %s\n", sandbox_state_name(from), columns[verb], cell);
	assert_string_equal(word, wanted);
	if (cell[length])
		assert_ptr_equal(strstr(cell, ", or `conflict` "), cell + length);
}

static void test_the_documents_show_it(void **state)
{
	char line[512], name[32], *row[1 + SANDBOX_VERB_COUNT];
	FILE *file = fopen(manual, "re");
	bool found = false;

	(void)state;
	assert_non_null(file);
	while (!found && fgets(line, sizeof line, file))
		found = !strncmp(line, heading, strlen(heading));
	assert_true(found);
	assert_int_equal(split_row(line, row, 1 + SANDBOX_VERB_COUNT), 1 + SANDBOX_VERB_COUNT);
	for (int verb = 0; verb < SANDBOX_VERB_COUNT; verb++)
		assert_string_equal(row[1 + verb], columns[verb]);
	assert_non_null(fgets(line, sizeof line, file));
	for (int from = 0; from < SANDBOX_STATE_COUNT; from++) {
		assert_non_null(fgets(line, sizeof line, file));
		assert_int_equal(split_row(line, row, 1 + SANDBOX_VERB_COUNT), 1 + SANDBOX_VERB_COUNT);
		snprintf(name, sizeof name, "`%s`", sandbox_state_name((enum sandbox_state)from));
		assert_string_equal(row[0], name);
		for (int verb = 0; verb < SANDBOX_VERB_COUNT; verb++)
			expect_cell((enum sandbox_state)from, (enum sandbox_verb)verb, row[1 + verb]);
	}
	/* No state more. */
	assert_non_null(fgets(line, sizeof line, file));
	assert_int_not_equal(line[0], '|');
	fclose(file);
}

/* From each state all others: only these. */
static void test_transitions(void **state)
{
	static const char *const allowed[SANDBOX_STATE_COUNT] = {
		[SANDBOX_CREATING] = "ready deleting gone failed",
		[SANDBOX_READY] = "pausing copying suspending stopping deleting failed",
		[SANDBOX_PAUSING] = "paused ready stopping deleting failed",
		[SANDBOX_PAUSED] = "resuming suspending stopping deleting failed",
		[SANDBOX_RESUMING] = "ready paused stopping deleting failed",
		[SANDBOX_COPYING] = "ready paused stopping deleting failed",
		[SANDBOX_SUSPENDING] = "suspended ready paused stopping deleting failed",
		[SANDBOX_SUSPENDED] = "waking stopping deleting",
		[SANDBOX_WAKING] = "ready suspended stopping deleting failed",
		[SANDBOX_STOPPING] = "stopped ready paused suspended deleting",
		[SANDBOX_STOPPED] = "starting deleting",
		[SANDBOX_STARTING] = "ready stopping stopped deleting",
		[SANDBOX_DELETING] = "gone failed",
		[SANDBOX_GONE] = "",
		[SANDBOX_FAILED] = "deleting",
	};

	(void)state;
	for (int from = 0; from < SANDBOX_STATE_COUNT; from++) {
		for (int to = 0; to < SANDBOX_STATE_COUNT; to++) {
			char list[128], name[32];

			snprintf(list, sizeof list, " %s ", allowed[from]);
			snprintf(name, sizeof name, " %s ", sandbox_state_name((enum sandbox_state)to));
			assert_int_equal(
				sandbox_state_may_go((enum sandbox_state)from, (enum sandbox_state)to),
				strstr(list, name) != NULL);
		}
	}
}

static void test_names(void **state)
{
	(void)state;
	for (int i = 0; i < SANDBOX_STATE_COUNT; i++)
		assert_int_equal(sandbox_state_of_name(sandbox_state_name((enum sandbox_state)i)), i);
	assert_int_equal(sandbox_state_of_name(""), -1);
	assert_int_equal(sandbox_state_of_name("Ready"), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_cell),
		cmocka_unit_test(test_the_documents_show_it),
		cmocka_unit_test(test_transitions),
		cmocka_unit_test(test_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
