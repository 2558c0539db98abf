/* SPDX-License-Identifier: Apache-2.0 */
/* A gibibyte of output: counted to the byte, in bounded memory. (What a sanitized build has freed counts,
 * too.) */
#include "tests/unit/hostctl_sandboxes_fixture.h"

enum { MORE_KIB = 16 * 1024, KEPT = 1024 * 1024, HEAD = KEPT / 2 };
#define GIB (1L << 30)
#define STREAMED (GIB / 8)

static char *const pool_of_one[] = {"--pool", "1", NULL};

/* What was freed, and is kept from use to find errors, counts as used: little of it, then. */
const char *__asan_default_options(void); /* NOLINT(bugprone-reserved-identifier) */

const char *__asan_default_options(void) /* NOLINT(bugprone-reserved-identifier) */
{
	return "quarantine_size_mb=1";
}

/* The most that the daemon ever had in memory. */
static long peak_kib(const struct daemon *daemon)
{
	return daemon_memory_kib(daemon, "VmHWM:");
}

static void expect_counted(struct answer *answer)
{
	const json_t *output = json_object_get(answer->json, "stdout");

	assert_int_equal(answer->status, 200);
	assert_int_equal(json_integer_value(json_object_get(output, "bytes")), GIB);
	assert_int_equal(json_integer_value(json_object_get(output, "dropped")), GIB - KEPT);
	assert_int_equal(json_integer_value(json_object_get(output, "head_bytes")), HEAD);
	assert_int_equal(strlen(json_string_value(json_object_get(output, "data"))), KEPT);
	answer_finish(answer);
}

static void test_of_a_command(void **state)
{
	struct daemon daemon;
	struct answer answer;
	char id[32];
	long before;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	create_sandbox(&daemon, "{}", id);
	await_pool(&daemon, "warm", 1);
	before = peak_kib(&daemon);
	call_sandbox(&daemon, "POST", id, "/run", "{\"argv\":[\"flood\",\"1073741824\"]}", &answer);
	expect_counted(&answer);
	print_message("peak: %ld KiB before, %ld KiB after\n", before, peak_kib(&daemon));
	assert_in_range(peak_kib(&daemon), 0, before + MORE_KIB);
	daemon_stop(&daemon);
}

/* All of it, without a gap. */
static void test_of_a_stream(void **state)
{
	struct agent_output output;
	struct daemon daemon;
	struct stream stream;
	char head[2048];
	uint64_t next = 0;
	long before;

	(void)state;
	daemon_start(&daemon, "boot", pool_of_one);
	before = peak_kib(&daemon);
	assert_int_equal(
		open_stream_at(&daemon, &stream, "/v1/run", "{\"argv\":[\"flood\",\"134217728\"]}", head),
		101);
	expect(&stream, AGENT_STARTED);
	while (next < (uint64_t)STREAMED) {
		expect(&stream, AGENT_STDOUT);
		memcpy(&output, stream.frame.payload, sizeof output);
		assert_int_equal(output.offset, next);
		next += stream.frame.length - sizeof output;
	}
	expect_exit(&stream, AGENT_EXITED, 0);
	assert_int_equal(next, STREAMED);
	print_message("peak: %ld KiB before, %ld KiB after\n", before, peak_kib(&daemon));
	assert_in_range(peak_kib(&daemon), 0, before + MORE_KIB);
	daemon_stop(&daemon);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_of_a_command),
		cmocka_unit_test(test_of_a_stream),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
