/* SPDX-License-Identifier: Apache-2.0 */
/* The body of POST /v1/run: what is refused and how, and the NEW frame that comes of it. */
#include "tests/support/unit.h"

#include "common/frame.h"
#include "host-ctl/run/run_request.h"
#include "host-ctl/support/text.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void expect_refused(const char *body, bool upgraded, enum error_kind kind, const char *message)
{
	struct run_request request;
	struct error error;

	assert_int_equal(run_request_parse(&request, body, strlen(body), upgraded, &error), -1);
	assert_string_equal(error.message, message);
	assert_int_equal(error.kind, kind);
	assert_null(request.payload);
	assert_null(request.input);
}

static void test_refusals(void **state)
{
	static const struct {
		const char *body, *message;
	} cases[] = {
		{"", "the body is empty: send a JSON object"},
		{"{\"argv\":[\"a\"]} x",
			"the body is not JSON: end of file expected near 'x' (line 1, column 16)"},
		{" ", "the body is not JSON: '[' or '{' expected near end of file (line 1, column 1)"},
		{"[]", "the body is not a JSON object"},
		{"{}", "argv is missing: name the command to run"},
		{"{\"argv\":\"a\"}", "argv is not a list of strings"},
		{"{\"argv\":[]}", "argv is empty: name the command to run"},
		{"{\"argv_b64\":[]}", "argv_b64 is empty: name the command to run"},
		{"{\"argv\":[\"\"]}", "argv[0] is empty: name the command to run"},
		{"{\"argv\":[\"a\",null]}", "argv[1] is not a string"},
		{"{\"argv\":[\"a\"],\"argv\":[\"b\"]}",
			"the body has a key twice near '\"argv\"' (line 1, column 20)"},
		{"{\"argv\":[\"a\\u0000\"]}",
			"\\u0000 is not allowed in a string (line 1, column 18): only base64 carries a NUL"},
		{"{\"argv\":[\"a\"],\n\"\\u0000\":1}",
			"\\u0000 is not allowed in a string (line 2, column 8): only base64 carries a NUL"},
		{"{\"argv\":[\"a\"],\"tty\":true}", "unknown field \"tty\" in the request"},
		{"{\"argv\":[\"a\"],\"argv_b64\":[\"YQ==\"]}",
			"argv and argv_b64 exclude each other: give one"},
		{"{\"argv\":[\"a\"],\"env\":{},\"env_b64\":[]}",
			"env and env_b64 exclude each other: give one"},
		{"{\"argv\":[\"a\"],\"stdin\":\"\",\"stdin_b64\":\"\"}",
			"stdin and stdin_b64 exclude each other: give one"},
		{"{\"argv_b64\":[\"YQ\"]}", "argv_b64[0] is not base64"},
		{"{\"argv_b64\":[\"YWE=\",\"Y===\"]}", "argv_b64[1] is not base64"},
		{"{\"argv_b64\":[\"AGE=\"]}", "argv_b64[0] holds a NUL byte"},
		{"{\"argv\":[\"a\"],\"env\":[]}", "env is not an object of strings"},
		{"{\"argv\":[\"a\"],\"env\":{\"\":\"x\"}}",
			"env has the name \"\": a name is not empty and has no '='"},
		{"{\"argv\":[\"a\"],\"env\":{\"A=B\":\"x\"}}",
			"env has the name \"A=B\": a name is not empty and has no '='"},
		{"{\"argv\":[\"a\"],\"env\":{\"A\":1}}", "env.A is not a string"},
		{"{\"argv\":[\"a\"],\"env_b64\":[\"QQ==\"]}", "env_b64[0] is not NAME=value"},
		{"{\"argv\":[\"a\"],\"env_b64\":[\"QT1i\",\"PUE=\"]}", "env_b64[1] is not NAME=value"},
		{"{\"argv\":[\"a\"],\"cwd\":\"tmp\"}", "cwd is not an absolute path: tmp"},
		{"{\"argv\":[\"a\"],\"cwd\":1}", "cwd is not a string"},
		{"{\"argv\":[\"a\"],\"user\":\"\"}", "user is empty or longer than 64 bytes"},
		{"{\"argv\":[\"a\"],\"stdin\":1}", "stdin is not a string"},
		{"{\"argv\":[\"a\"],\"stdin_b64\":\"%\"}", "stdin_b64 is not base64"},
		{"{\"argv\":[\"a\"],\"stdin_stream\":1}", "stdin_stream is not true or false"},
		{"{\"argv\":[\"a\"],\"stdin_stream\":true}",
			"stdin_stream needs the upgraded form (Upgrade: tinderbox-frames)"},
		{"{\"argv\":[\"a\"],\"timeout_ms\":0}",
			"timeout_ms is not a whole number from 1 to 86400000"},
		{"{\"argv\":[\"a\"],\"timeout_ms\":86400001}",
			"timeout_ms is not a whole number from 1 to 86400000"},
		{"{\"argv\":[\"a\"],\"timeout_ms\":1.5}",
			"timeout_ms is not a whole number from 1 to 86400000"},
		{"{\"argv\":[\"a\"],\"memory_max\":-1}",
			"memory_max is not a whole number from 65536 to 9223372036854775807"},
		{"{\"argv\":[\"a\"],\"pids_max\":\"1\"}", "pids_max is not a whole number from 1 to 4194304"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		expect_refused(cases[i].body, false, ERROR_INVALID, cases[i].message);
	expect_refused("{\"argv\":[\"a\"],\"stdin_stream\":true,\"stdin\":\"x\"}", true, ERROR_INVALID,
		"stdin_stream excludes stdin and stdin_b64: send it as frames");
}

/* "{"argv":[" then `count` times `entry`, then the end. The caller frees it. */
static char *long_body(const char *start, const char *entry, size_t count, const char *end)
{
	char *body = malloc(strlen(start) + count * (strlen(entry) + 1) + strlen(end) + 1), *at = body;

	assert_non_null(body);
	at += sprintf(at, "%s", start);
	for (size_t i = 0; i < count; i++)
		at += sprintf(at, "%s%s", i ? "," : "", entry);
	sprintf(at, "%s", end);
	return body;
}

static void test_limits(void **state)
{
	struct run_request request;
	struct error error;
	char *body = long_body("{\"argv\":[", "\"a\"", AGENT_ARGC_MAX, "]}");

	(void)state;
	assert_int_equal(run_request_parse(&request, body, strlen(body), false, &error), 0);
	run_request_finish(&request);
	free(body);
	body = long_body("{\"argv\":[", "\"a\"", AGENT_ARGC_MAX + 1, "]}");
	expect_refused(body, false, ERROR_TOO_LARGE, "argv has 4097 entries, the limit is 4096");
	free(body);
	/* 1920 times 63 bytes and a NUL are 120 KiB; cwd and user are two bytes more. */
	body = long_body("{\"argv\":[", "\"123456789012345678901234567890123456789012345678901234567890123\"",
		1920, "]}");
	expect_refused(body, false, ERROR_TOO_LARGE,
		"argv, env, cwd and user together are over the limit of 122880 bytes");
	free(body);
}

static void test_input_limit(void **state)
{
	struct run_request request;
	struct error error;
	char *body = malloc(RUN_STDIN_MAX + 64);
	int at = sprintf(body, "{\"argv\":[\"a\"],\"stdin\":\"");

	(void)state;
	memset(body + at, 'x', RUN_STDIN_MAX);
	strcpy(body + at + RUN_STDIN_MAX, "\"}");
	assert_int_equal(run_request_parse(&request, body, strlen(body), false, &error), 0);
	assert_int_equal(request.input_length, RUN_STDIN_MAX);
	run_request_finish(&request);
	strcpy(body + at + RUN_STDIN_MAX, "x\"}");
	expect_refused(body, false, ERROR_TOO_LARGE,
		"stdin is over the limit of 65536 bytes: stream it over the upgraded form (host-ctl run -i)");
	free(body);
}

/* What the guest's own parser makes of the payload. */
static void test_payload(void **state)
{
	const char *body =
		"{\"argv\":[\"ls\",\"-l\",\"\"],\"env\":{\"A\":\"b=c\"},\"cwd\":\"/tmp\",\"user\":\"agent\","
		"\"stdin\":\"hi\",\"timeout_ms\":5,\"memory_max\":65536,\"pids_max\":7}";
	const char strings[] = "ls\0-l\0\0A=b=c\0/tmp\0agent";
	struct run_request request;
	struct agent_new_view view;
	struct frame frame = {.type = AGENT_NEW};
	struct error error;
	const char *why;

	(void)state;
	assert_int_equal(run_request_parse(&request, body, strlen(body), false, &error), 0);
	frame.payload = request.payload;
	frame.length = (uint32_t)request.payload_length;
	assert_int_equal(frame_parse_new(&frame, &view, &why), 0);
	assert_int_equal(view.fixed.session, RUN_SESSION);
	assert_int_equal(view.fixed.flags, AGENT_NEW_STDIN);
	assert_int_equal(view.fixed.argc, 3);
	assert_int_equal(view.fixed.envc, 1);
	assert_int_equal(view.fixed.deadline_ms, 5);
	assert_int_equal(view.fixed.memory_max, 65536);
	assert_int_equal(view.fixed.pids_max, 7);
	assert_int_equal(view.fixed.strings_length, sizeof strings);
	assert_memory_equal(view.strings, strings, sizeof strings);
	assert_int_equal(request.timeout_ms, 5);
	assert_int_equal(request.input_length, 2);
	assert_memory_equal(request.input, "hi", 2);
	assert_string_equal(request.name, "ls");
	run_request_finish(&request);
}

/* Bytes that JSON cannot hold; and the least request of all. */
static void test_base64_and_defaults(void **state)
{
	const char *body = "{\"argv_b64\":[\"/w==\",\"\"],\"env_b64\":[\"Qf89\"]}";
	const char strings[] = "\xff\0\0A\xff=\0\0";
	struct run_request request;
	struct error error;

	(void)state;
	assert_int_equal(run_request_parse(&request, body, strlen(body), false, &error), 0);
	assert_int_equal(request.payload_length, sizeof(struct agent_new) + sizeof strings);
	assert_memory_equal(request.payload + sizeof(struct agent_new), strings, sizeof strings);
	assert_string_equal(request.name, "?");
	assert_false(request.has_input);
	assert_int_equal(request.timeout_ms, 0);
	run_request_finish(&request);
	body = "{\"argv\":[\"a\"],\"stdin_stream\":true}";
	assert_int_equal(run_request_parse(&request, body, strlen(body), true, &error), 0);
	assert_true(request.has_input);
	assert_true(request.input_streams);
	run_request_finish(&request);
}

/* Every prefix of a good body is refused without a crash, and every single byte changed is one or the other.
 */
static void test_mutations(void **state)
{
	const char *good =
		"{\"argv\":[\"a\",\"\\u00e9\"],\"env\":{\"A\":\"b\"},\"cwd\":\"/\",\"stdin_b64\":\"YQ==\"}";
	size_t length = strlen(good);
	struct run_request request;
	struct error error;
	char *copy = malloc(length);

	(void)state;
	assert_non_null(copy);
	for (size_t i = 0; i < length; i++) {
		memcpy(copy, good, i);
		assert_int_equal(run_request_parse(&request, copy, i, false, &error), -1);
		for (int bit = 0; bit < 8; bit++) {
			memcpy(copy, good, length);
			copy[i] = (char)(copy[i] ^ 1 << bit);
			if (!run_request_parse(&request, copy, length, false, &error))
				run_request_finish(&request);
		}
	}
	free(copy);
}

static void test_base64(void **state)
{
	static const struct {
		const char *plain, *coded;
	} pairs[] = {{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"}, {"foob", "Zm9vYg=="},
		{"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"}};
	static const char *const bad[] = {"Z", "Zg",
		"Zg=", "Z===", "====", "Zg==Zg==", "Zm8=Zm8=", "Zh==", "Zm9=", "Zm 8", "Zm9_", "=Zm9"};
	uint8_t bytes[16];
	char text[16];

	(void)state;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
		size_t length = strlen(pairs[i].plain);

		text_base64_encode(text, pairs[i].plain, length);
		assert_string_equal(text, pairs[i].coded);
		assert_int_equal(text_base64_length(length), strlen(text));
		assert_int_equal(text_base64_decode(bytes, text, strlen(text)), length);
		assert_memory_equal(bytes, pairs[i].plain, length);
	}
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		assert_int_equal(text_base64_decode(bytes, bad[i], strlen(bad[i])), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_input_limit),
		cmocka_unit_test(test_payload),
		cmocka_unit_test(test_base64_and_defaults),
		cmocka_unit_test(test_mutations),
		cmocka_unit_test(test_base64),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
