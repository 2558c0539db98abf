/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of commands in the journal. */
#include "tests/unit/hostctl_journal_fixture.h"

#include "host-ctl/journal/journal_commands.h"
#include "host-ctl/journal/journal_sandboxes.h"

static void put(struct journal *journal, const struct journal_command *row)
{
	struct error error;

	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_command_put(journal, row, &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
}

static void put_sandbox(struct journal *journal, const char *id)
{
	struct journal_sandbox row = {.spec = (char *)"{}"};
	struct error error;

	snprintf(row.id, sizeof row.id, "%s", id);
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_sandbox_put(journal, &row, &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
}

static int read_all(struct journal *journal, size_t room, struct journal_command **rows)
{
	struct error error;

	return journal_commands_read(journal, room, rows, &error);
}

static void test_rows_come_back(void **state)
{
	static const struct journal_command rows[] = {
		{.id = "cmd-1",
			.sandbox = "sb-1",
			.state = JOURNAL_COMMAND_CREATED,
			.flags = JOURNAL_COMMAND_KEEP | JOURNAL_COMMAND_INPUT,
			.timeout_ms = 5,
			.output_max = 6,
			.created_ms = 10,
			.name = "one",
			.payload = {(uint8_t *)"pay\0load", 8},
			.input = {(uint8_t *)"in", 2}},
		{.id = "cmd-2",
			.sandbox = "sb-1",
			.state = JOURNAL_COMMAND_STARTED,
			.session = (UINT64_C(1) << 62) + 1,
			.created_ms = 11,
			.started_ms = 12,
			.name = "two"},
		{.id = "cmd-3",
			.sandbox = "sb-1",
			.state = JOURNAL_COMMAND_ENDED,
			.flags = JOURNAL_COMMAND_BY_HOST,
			.created_ms = 11,
			.ended_ms = 14,
			.name = "three",
			.exit = {.kind = AGENT_TIMED_OUT, .stdout_bytes = 7, .wall_us = 8},
			.total_us = 9},
		{.id = "cmd-4",
			.sandbox = "sb-1",
			.state = JOURNAL_COMMAND_ENDED,
			.created_ms = 13,
			.name = "four",
			.error = {.kind = ERROR_GUEST_LOST, .message = "m", .cause = "c", .vm = "vm-1"}},
	};
	enum { COUNT = sizeof rows / sizeof rows[0] };
	struct journal *journal = open_it();
	struct journal_command *read;

	(void)state;
	put_sandbox(journal, "sb-1");
	for (size_t i = 0; i < COUNT; i++)
		put(journal, &rows[i]);
	journal_close(journal);
	journal = open_it();
	assert_int_equal(read_all(journal, 100, &read), COUNT);
	for (size_t i = 0; i < COUNT; i++) {
		assert_string_equal(read[i].id, rows[i].id);
		assert_string_equal(read[i].sandbox, "sb-1");
		assert_string_equal(read[i].name, rows[i].name);
		assert_int_equal(read[i].state, rows[i].state);
		assert_int_equal(read[i].flags, rows[i].flags);
		assert_true(read[i].session == rows[i].session);
		assert_int_equal(read[i].timeout_ms, rows[i].timeout_ms);
		assert_int_equal(read[i].output_max, rows[i].output_max);
		assert_int_equal(read[i].created_ms, rows[i].created_ms);
		assert_int_equal(read[i].started_ms, rows[i].started_ms);
		assert_int_equal(read[i].ended_ms, rows[i].ended_ms);
		assert_int_equal(read[i].total_us, rows[i].total_us);
		assert_memory_equal(&read[i].exit, &rows[i].exit, sizeof rows[i].exit);
		assert_int_equal(read[i].error.kind, rows[i].error.kind);
		assert_string_equal(read[i].error.message, rows[i].error.message);
		assert_string_equal(read[i].error.cause, rows[i].error.cause);
		assert_string_equal(read[i].error.vm, rows[i].error.vm);
	}
	assert_int_equal(read[0].payload.length, 8);
	assert_memory_equal(read[0].payload.bytes, "pay\0load", 8);
	assert_memory_equal(read[0].input.bytes, "in", 2);
	assert_null(read[1].payload.bytes);
	journal_commands_free(read, COUNT);
	/* No more than there is room for: the oldest. */
	assert_int_equal(read_all(journal, 2, &read), 2);
	assert_string_equal(read[1].id, "cmd-2");
	journal_commands_free(read, 2);
	journal_close(journal);
}

static void test_many_rows(void **state)
{
	enum { COUNT = 200 };
	struct journal_command row = {.sandbox = "sb-1"}, *read;
	struct journal *journal = open_it();
	struct error error;

	(void)state;
	put_sandbox(journal, "sb-1");
	assert_int_equal(journal_begin(journal, &error), 0);
	for (unsigned int i = 0; i < COUNT; i++) {
		snprintf(row.id, sizeof row.id, "cmd-%u", i);
		row.created_ms = i;
		assert_int_equal(journal_command_put(journal, &row, &error), 0);
	}
	assert_int_equal(journal_commit(journal, &error), 0);
	assert_int_equal(read_all(journal, 4096, &read), COUNT);
	for (unsigned int i = 0; i < COUNT; i++)
		assert_int_equal(read[i].created_ms, i);
	journal_commands_free(read, COUNT);
	journal_close(journal);
}

static void test_rows_change_and_go(void **state)
{
	struct journal_command row = {.id = "cmd-1", .sandbox = "sb-1"}, *read;
	struct journal *journal = open_it();
	struct error error;

	(void)state;
	put_sandbox(journal, "sb-1");
	put_sandbox(journal, "sb-2");
	put(journal, &row);
	row.state = JOURNAL_COMMAND_STARTED;
	put(journal, &row);
	snprintf(row.id, sizeof row.id, "cmd-2");
	put(journal, &row);
	snprintf(row.sandbox, sizeof row.sandbox, "sb-2");
	snprintf(row.id, sizeof row.id, "cmd-3");
	put(journal, &row);
	/* Of a sandbox that nobody knows. */
	snprintf(row.sandbox, sizeof row.sandbox, "sb-3");
	snprintf(row.id, sizeof row.id, "cmd-4");
	put(journal, &row);
	assert_int_equal(read_all(journal, 100, &read), 3);
	assert_int_equal(read[0].state, JOURNAL_COMMAND_STARTED);
	journal_commands_free(read, 3);
	assert_int_equal(journal_begin(journal, &error), 0);
	assert_int_equal(journal_command_remove(journal, "cmd-2", &error), 0);
	assert_int_equal(journal_sandbox_remove(journal, "sb-2", &error), 0);
	assert_int_equal(journal_commit(journal, &error), 0);
	assert_int_equal(read_all(journal, 100, &read), 1);
	assert_string_equal(read[0].id, "cmd-1");
	journal_commands_free(read, 1);
	journal_close(journal);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		WITH_FOLDER(test_rows_come_back),
		WITH_FOLDER(test_many_rows),
		WITH_FOLDER(test_rows_change_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
