/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of a run that need no daemon: frames of a guest, kept output, last words, causes, errors, options. */
#include "tests/support/unit.h"

#include "host-ctl/run/run_output.h"
#include "host-ctl/serve/serve_options.h"
#include "host-ctl/support/error.h"
#include "host-ctl/support/tail.h"
#include "host-ctl/vm/agent_check.h"
#include "host-ctl/vm/cause.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct frame make_frame(uint8_t type, const void *payload, size_t length)
{
	return (struct frame){.type = type, .payload = payload, .length = (uint32_t)length};
}

static const char *check_exit(const struct agent_exit *ending, size_t length)
{
	const uint64_t output[2] = {10, 20};
	struct frame frame = make_frame(AGENT_EXIT, ending, length);
	struct agent_exit copy;

	return agent_check_exit(&frame, output, &copy);
}

static void test_exit_frames(void **state)
{
	const struct agent_exit good = {
		.kind = AGENT_EXITED, .code = 255, .stdout_bytes = 10, .stderr_bytes = 20};
	struct agent_exit bad;

	(void)state;
	assert_null(check_exit(&good, sizeof good));
	assert_string_equal(check_exit(&good, sizeof good - 1), "EXIT of a wrong length");
	for (int kind = 0; kind < 256; kind++) {
		bad = good;
		bad.kind = (uint8_t)kind;
		bad.code = 1;
		if (kind >= AGENT_EXITED && kind <= AGENT_KILLED)
			assert_null(check_exit(&bad, sizeof bad));
		else
			assert_string_equal(check_exit(&bad, sizeof bad), "EXIT of an unknown kind");
	}
	bad = good;
	bad.core = 2;
	assert_string_equal(check_exit(&bad, sizeof bad), "EXIT with a field out of range");
	bad = good;
	bad.step = AGENT_STEP_EXEC + 1;
	assert_string_equal(check_exit(&bad, sizeof bad), "EXIT with a field out of range");
	bad = good;
	bad.stdout_bytes = 9;
	assert_string_equal(check_exit(&bad, sizeof bad), "EXIT that counts less output than came");
	bad = good;
	bad.stderr_bytes = 19;
	assert_string_equal(check_exit(&bad, sizeof bad), "EXIT that counts less output than came");
}

static void test_exit_codes(void **state)
{
	static const struct {
		uint8_t kind;
		int32_t code;
	} out_of_range[] = {{AGENT_EXITED, -1}, {AGENT_EXITED, 256}, {AGENT_SIGNALLED, 0},
		{AGENT_SIGNALLED, 65}, {AGENT_FAILED_TO_START, 0}, {AGENT_FAILED_TO_START, 4096}};

	(void)state;
	for (size_t i = 0; i < sizeof out_of_range / sizeof out_of_range[0]; i++) {
		const struct agent_exit bad = {.kind = out_of_range[i].kind,
			.code = out_of_range[i].code,
			.stdout_bytes = 10,
			.stderr_bytes = 20};

		assert_string_equal(check_exit(&bad, sizeof bad), "EXIT with a code out of range");
	}
}

static void test_output_frames(void **state)
{
	static uint8_t payload[sizeof(struct agent_output) + AGENT_DATA_MAX + 1];
	const uint64_t offset = 5;
	struct frame frame;

	(void)state;
	memcpy(payload, &offset, sizeof offset);
	frame = make_frame(AGENT_STDOUT, payload, 9);
	assert_null(agent_check_output(&frame, 5));
	assert_string_equal(agent_check_output(&frame, 4), "output at a wrong offset");
	assert_string_equal(agent_check_output(&frame, 6), "output at a wrong offset");
	frame.length = 8;
	assert_string_equal(agent_check_output(&frame, 5), "output of a wrong length");
	frame.length = sizeof payload - 1;
	assert_null(agent_check_output(&frame, 5));
	frame.length = sizeof payload;
	assert_string_equal(agent_check_output(&frame, 5), "output of a wrong length");
}

static void test_error_frames(void **state)
{
	struct {
		struct agent_status status;
		char text[8];
	} payload = {{1, 8}, "a\nb\x1b[0m\xff"};
	struct frame frame = make_frame(AGENT_ERROR, &payload, sizeof payload);
	char text[64];

	(void)state;
	assert_null(agent_check_error(&frame, text, sizeof text));
	assert_string_equal(text, "a?b?[0m?");
	payload.status.text_length = 9;
	assert_string_equal(
		agent_check_error(&frame, text, sizeof text), "ERROR with a text of a wrong length");
	payload.status = (struct agent_status){-1, 8};
	assert_string_equal(agent_check_error(&frame, text, sizeof text), "ERROR with a status out of range");
	payload.status = (struct agent_status){1, 0};
	frame.length = 8;
	assert_null(agent_check_error(&frame, text, sizeof text));
	assert_string_equal(text, "Operation not permitted");
	frame.length = 7;
	assert_string_equal(agent_check_error(&frame, text, sizeof text), "ERROR of a wrong length");
}

static void expect_json(json_t *value, const char *wanted)
{
	char *text = json_dumps(value, JSON_COMPACT);

	assert_string_equal(text, wanted);
	free(text);
	json_decref(value);
}

static void test_output_json(void **state)
{
	struct run_output output = {0};

	(void)state;
	expect_json(run_output_to_json(&output, 0), "{\"data\":\"\",\"bytes\":0,\"dropped\":0}");
	expect_json(
		run_output_to_json(&output, 3), "{\"data\":\"\",\"bytes\":3,\"dropped\":3,\"head_bytes\":0}");
	run_output_add(&output, "a\0\xc3\xa9", 4);
	expect_json(
		run_output_to_json(&output, 4), "{\"data\":\"a\\u0000\xc3\xa9\",\"bytes\":4,\"dropped\":0}");
	run_output_add(&output, "\xff", 1);
	expect_json(run_output_to_json(&output, 5), "{\"data_b64\":\"YQDDqf8=\",\"bytes\":5,\"dropped\":0}");
	expect_json(run_output_to_json(&output, UINT64_MAX),
		"{\"data_b64\":\"YQDDqf8=\",\"bytes\":9223372036854775807,\"dropped\":9223372036854775807,"
		"\"head_bytes\":5}");
	run_output_finish(&output);
}

/* Whatever the sizes of the parts, the head is the first bytes and the tail the last ones. */
static void test_output_parts(void **state)
{
	static const size_t parts[] = {1, 4095, 65536, 65521, RUN_OUTPUT_TAIL, 3 * RUN_OUTPUT_TAIL + 17};
	const size_t total = 4 * 1024 * 1024 + 123;
	uint8_t *data = malloc(total);

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < total; i++)
		data[i] = (uint8_t)('a' + (i * 31 + i / 977) % 26);
	for (size_t p = 1; p < sizeof parts / sizeof parts[0]; p++) {
		struct run_output output = {0};
		json_t *object;
		const char *text;

		for (size_t at = 0; at < total; at += parts[p])
			run_output_add(&output, data + at, total - at < parts[p] ? total - at : parts[p]);
		object = run_output_to_json(&output, total);
		text = json_string_value(json_object_get(object, "data"));
		assert_int_equal(strlen(text), RUN_OUTPUT_HEAD + RUN_OUTPUT_TAIL);
		assert_memory_equal(text, data, RUN_OUTPUT_HEAD);
		assert_memory_equal(text + RUN_OUTPUT_HEAD, data + total - RUN_OUTPUT_TAIL, RUN_OUTPUT_TAIL);
		assert_int_equal(json_integer_value(json_object_get(object, "dropped")),
			total - RUN_OUTPUT_HEAD - RUN_OUTPUT_TAIL);
		json_decref(object);
		run_output_finish(&output);
	}
	free(data);
}

/* The same, cut at its end, however much there was: offsets are those of what was written. */
static void test_output_trimmed(void **state)
{
	enum { MAXIMUM = 5001, HEAD = MAXIMUM / 2, TAIL = MAXIMUM - HEAD };
	static const size_t totals[] = {1, MAXIMUM, MAXIMUM + 1, 2 * MAXIMUM, RUN_OUTPUT_HEAD + 1,
		RUN_OUTPUT_HEAD + RUN_OUTPUT_TAIL, 2 * RUN_OUTPUT_HEAD + 4099, 4 * RUN_OUTPUT_HEAD};
	const size_t most = 4 * RUN_OUTPUT_HEAD;
	uint8_t *data = malloc(most);

	(void)state;
	assert_non_null(data);
	for (size_t i = 0; i < most; i++)
		data[i] = (uint8_t)('a' + (i * 31 + i / 977) % 26);
	for (size_t t = 0; t < sizeof totals / sizeof totals[0]; t++) {
		const size_t total = totals[t], oldest = total > MAXIMUM ? total - TAIL : 0;
		struct run_output output = {0};
		const uint8_t *bytes;

		for (size_t at = 0; at < total; at += 4099)
			run_output_add(&output, data + at, total - at < 4099 ? total - at : 4099);
		run_output_trim(&output, MAXIMUM);
		assert_int_equal(output.total, total);
		assert_int_equal(output.length, total > MAXIMUM ? MAXIMUM : total);
		assert_int_equal(run_output_oldest(&output), oldest);
		assert_int_equal(run_output_peek(&output, oldest, &bytes), total - oldest);
		assert_memory_equal(bytes, data + oldest, total - oldest);
		if (oldest) {
			assert_int_equal(output.capacity, MAXIMUM);
			assert_int_equal(run_output_peek(&output, 1, &bytes), HEAD - 1);
			assert_memory_equal(bytes, data + 1, HEAD - 1);
		}
		if (oldest > HEAD)
			assert_int_equal(run_output_peek(&output, HEAD, &bytes), -ENODATA);
		run_output_finish(&output);
	}
	free(data);
}

static void test_tail(void **state)
{
	struct tail tail = {.length = 0};
	char text[64];

	(void)state;
	tail_format(&tail, text, sizeof text);
	assert_string_equal(text, "");
	tail_add(&tail, "first\nsec", 9);
	tail_add(&tail, "ond\x1b\n", 5);
	tail_format(&tail, text, sizeof text);
	assert_string_equal(text, "first; second?");
	for (int i = 0; i < 100; i++)
		tail_add(&tail, "a line of some length\n", 22);
	tail_add(&tail, "the end\n", 8);
	tail_format(&tail, text, sizeof text);
	assert_string_equal(text, "a line of some length; a line of some length; the end");
	tail_format(&tail, text, 4);
	assert_true(strlen(text) < 4);
}

/* The vmm's words stand beside its reason once, and under one name. */
static void test_words_of_causes(void **state)
{
	static const struct {
		const char *words, *reason, *cause;
	} cases[] = {
		{"", "", "ended"},
		{"fake: x", "", "ended (vmm: fake: x)"},
		{"vmm: error: x", "", "ended (vmm: error: x)"},
		{"vmm: info: asked for a reset", "asked for a reset", "ended"},
		{"vmm: warning: w; vmm: info: reset", "reset", "ended (vmm: warning: w)"},
		{"vmm: info: no reset", "reset", "ended (vmm: info: no reset)"},
		{"xvmm: info: reset", "reset", "ended (vmm: xvmm: info: reset)"},
		{"reset", "reset", "ended (vmm: reset)"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char words[64], cause[64] = "ended", cut[12] = "ended";

		snprintf(words, sizeof words, "%s", cases[i].words);
		cause_add_words(cause, sizeof cause, words, cases[i].reason);
		assert_string_equal(cause, cases[i].cause);
		snprintf(words, sizeof words, "%s", cases[i].words);
		cause_add_words(cut, sizeof cut, words, cases[i].reason);
		assert_memory_equal(cut, cases[i].cause, strlen(cut));
	}
}

static void test_ends_of_causes(void **state)
{
	static const struct {
		const char *end, *reason, *cause;
	} cases[] = {
		{"the guest powered off", "", "the guest powered off"},
		{"the guest powered off", "the guest powered off", "the guest powered off"},
		{"it panicked", "it panicked in vain", "it panicked in vain"},
		{"it panicked", "pvpanic", "it panicked: pvpanic"},
		{"it panicked", "it pan", "it panicked: it pan"},
	};
	char cause[64], cut[8];

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		cause_set_end(cause, sizeof cause, cases[i].end, cases[i].reason);
		assert_string_equal(cause, cases[i].cause);
		cause_set_end(cut, sizeof cut, cases[i].end, cases[i].reason);
		assert_int_equal(strlen(cut), sizeof cut - 1);
		assert_memory_equal(cut, cases[i].cause, sizeof cut - 1);
	}
}

static void test_files_of_causes(void **state)
{
	static const char *const names[] = {"/k", "/long/path"};
	static const struct {
		const char *text, *named;
	} cases[] = {
		{"", ""},
		{"--kernel: fd:3 is odd", "--kernel: /k is odd"},
		{"fd:4,ro fd:3", "/long/path,ro /k"},
		{"fd:2 fd:5 fd:34 fd: fd:-3", "fd:2 fd:5 fd:34 fd: fd:-3"},
		{"fd:99999999999999999999999", "fd:99999999999999999999999"},
		{"1234567890123456789012345 fd:4", "1234567890123456789012345 /long"},
		{"\n", "?"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char text[32];

		snprintf(text, sizeof text, "%s", cases[i].text);
		cause_name_files(text, sizeof text, 3, names, 2);
		assert_string_equal(text, cases[i].named);
	}
}

static void test_error_json(void **state)
{
	struct error error;

	(void)state;
	error_set(&error, ERROR_GUEST_LOST, "it %s\n", "died");
	expect_json(error_to_json(&error), "{\"error\":{\"code\":\"guest_lost\",\"message\":\"it died?\","
					   "\"retryable\":false,\"detail\":null}}");
	snprintf(error.vm, sizeof error.vm, "vm-1");
	error.kind = ERROR_EXHAUSTED;
	expect_json(error_to_json(&error), "{\"error\":{\"code\":\"exhausted\",\"message\":\"it died?\","
					   "\"retryable\":true,\"detail\":{\"vm\":\"vm-1\"}}}");
	assert_int_equal(error_http_status(ERROR_EXHAUSTED), 429);
}

static void test_option_refusals(void **state)
{
	static const struct {
		const char *option, *value, *message;
	} cases[] = {
		{"--pool", "257", "--pool wants a number from 0 to 256, not '257'"},
		{"--pool", "-1", "--pool wants a number from 0 to 256, not '-1'"},
		{"--pool", "x", "--pool wants a number from 0 to 256, not 'x'"},
		{"--max-vms", "0", "--max-vms wants a number from 1 to 256, not '0'"},
		{"--max-vms", "1", "--max-vms 1 is less than --pool 2"},
		{"--queue-max", "4097", "--queue-max wants a number from 0 to 4096, not '4097'"},
		{"--starts", "0", "--starts wants a number from 1 to 64, not '0'"},
		{"--mem", "31M", "--mem wants a size from 32M to 511G in whole MiB, not '31M'"},
		{"--mem", "0", "--mem wants a size from 32M to 511G in whole MiB, not '0'"},
		{"--mem", "-1", "--mem wants a size from 32M to 511G in whole MiB, not '-1'"},
		{"--mem", "1.5G", "--mem wants a size from 32M to 511G in whole MiB, not '1.5G'"},
		{"--mem", "40001K", "--mem wants a size from 32M to 511G in whole MiB, not '40001K'"},
		{"--mem", "512G", "--mem wants a size from 32M to 511G in whole MiB, not '512G'"},
		{"--cpus", "0", "--cpus wants a number from 1 to 8, not '0'"},
		{"--cpus", "9", "--cpus wants a number from 1 to 8, not '9'"},
		{"--cpus", "1.5", "--cpus wants a number from 1 to 8, not '1.5'"},
		{"--cpus", "-1", "--cpus wants a number from 1 to 8, not '-1'"},
		{"--cpus", "", "--cpus wants a number from 1 to 8, not ''"},
		{"--uid-base", "0", "--uid-base wants a number from 1 to 2147483647, not '0'"},
		{"--boot-timeout-ms", "99", "--boot-timeout-ms wants a number from 100 to 3600000, not '99'"},
		{"--rehearsals", "9", "--rehearsals wants a number from 0 to 8, not '9'"},
		{"--limits", "none", "--limits wants required or available, not 'none'"},
		{"--group", "no-such-group", "--group: there is no group 'no-such-group'"},
		{"--ready-fd", "1000000", "--ready-fd 1000000 is not an open fd"},
		{"--vmm", "", "--vmm is empty: give a path"},
		{"extra", NULL, "'extra' is not expected here"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *argv[] = {"serve", (char *)cases[i].option, (char *)cases[i].value, NULL};
		struct serve_options options;
		char error[SERVE_ERROR_MAX];

		assert_int_equal(serve_options_parse(&options, cases[i].value ? 3 : 2, argv, error), -1);
		assert_string_equal(error, cases[i].message);
	}
}

static void test_option_defaults(void **state)
{
	char *argv[] = {"serve", "--mem", "256M", NULL};
	struct serve_options options;
	char error[SERVE_ERROR_MAX];

	(void)state;
	unsetenv("TINDERBOX_SOCKET");
	assert_int_equal(serve_options_parse(&options, 3, argv, error), 0);
	assert_string_equal(options.socket, "/run/tinderbox/host-ctl.sock");
	assert_string_equal(options.cgroup_root, "/sys/fs/cgroup/tinderbox");
	assert_int_equal(options.memory_bytes, 256 << 20);
	assert_int_equal(options.target, 2);
	assert_int_equal(options.queue_max, 64);
	assert_int_equal(options.rehearsals, 1);
	assert_int_equal(options.cpus, 1);
	assert_true(options.limits_required);
	assert_int_equal(options.ready_fd, -1);
}

/* The kernel that is found fits the processors; one that is named is taken. */
static void test_option_cpus(void **state)
{
	static const struct {
		char *cpus, *kernel;
		const char *name;
	} cases[] = {
		{"1", NULL, "/vmlinux-up"},
		{"2", NULL, "/vmlinux-smp"},
		{"8", NULL, "/vmlinux-smp"},
		{"8", "/some/vmlinux", "/vmlinux"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char *argv[] = {"serve", "--cpus", cases[i].cpus, "--kernel", cases[i].kernel, NULL};
		struct serve_options options;
		char error[SERVE_ERROR_MAX];

		assert_int_equal(serve_options_parse(&options, cases[i].kernel ? 5 : 3, argv, error), 0);
		assert_int_equal(options.cpus, cases[i].cpus[0] - '0');
		assert_string_equal(strrchr(options.kernel, '/'), cases[i].name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_exit_frames),
		cmocka_unit_test(test_exit_codes),
		cmocka_unit_test(test_output_frames),
		cmocka_unit_test(test_error_frames),
		cmocka_unit_test(test_output_json),
		cmocka_unit_test(test_output_parts),
		cmocka_unit_test(test_output_trimmed),
		cmocka_unit_test(test_tail),
		cmocka_unit_test(test_words_of_causes),
		cmocka_unit_test(test_ends_of_causes),
		cmocka_unit_test(test_files_of_causes),
		cmocka_unit_test(test_error_json),
		cmocka_unit_test(test_option_refusals),
		cmocka_unit_test(test_option_defaults),
		cmocka_unit_test(test_option_cpus),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
