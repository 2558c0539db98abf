/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of the client verbs, the request made from it, and the exit status of every result. */
#include "tests/support/unit.h"

#include "host-ctl/cli/cli.h"
#include "host-ctl/cli/cmd_options.h"
#include "host-ctl/cli/cmd_result.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { ARGS_MAX = 12 };

static int count(char *const *argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	return argc;
}

/* ---- exec ---- */

static void exec_takes_a_sandbox_first(void **state)
{
	static const struct {
		const char *argv[ARGS_MAX];
		const char *error;
	} cases[] = {
		{{"exec"}, "a sandbox is expected, and a command"},
		{{"exec", "box"}, "no command is given"},
		{{"exec", "box", "--"}, "no command is given"},
		{{"exec", "-itx", "box", "sh"}, "unknown option '-itx'"},
		{{"exec", "-itt", "box", "sh"}, "--tty is given twice"},
		{{"exec", "--template", "t", "box", "sh"}, "exec takes no --template"},
		{{"exec", "--json", "box", "sh"}, "exec takes no --json"},
		{{"exec", "--idempotency-key", "k", "box", "sh"}, "exec takes no --idempotency-key"},
		{{"exec", "-d", "-i", "box", "sh"},
			"-d leaves nobody to pass standard input on, which -i asks for: leave out one"},
	};
	const char *good[] = {"exec", "-it", "box", "--", "sh", "-c", NULL};
	struct cmd_options options;
	char error[CLI_TEXT_MAX] = "";

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char **argv = (char **)cases[i].argv;

		assert_int_equal(cmd_options_parse_exec(&options, count(argv), argv, error), -EINVAL);
		assert_string_equal(error, cases[i].error);
		cmd_options_finish(&options);
	}
	assert_int_equal(cmd_options_parse_exec(&options, 6, (char **)good, error), 0);
	assert_true(options.interactive && options.terminal && !options.detach);
	assert_string_equal(options.sandbox, "box");
	assert_int_equal(options.argc, 2);
	assert_string_equal(options.argv[1], "-c");
	cmd_options_finish(&options);
}

/* ---- wrong command lines ---- */

static void wrong_command_lines_are_named(void **state)
{
	(void)state;
	static const struct {
		const char *argv[ARGS_MAX];
		const char *error;
	} cases[] = {
		{{"run"}, "no command is given"},
		{{"run", "--"}, "no command is given"},
		{{"run", "-i"}, "no command is given"},
		{{"run", "--nonsense", "ls"}, "unknown option '--nonsense'"},
		{{"run", "--us", "agent", "ls"}, "unknown option '--us'"},
		{{"run", "-x", "ls"}, "unknown option '-x'"},
		{{"run", "-ii", "ls"}, "--stdin is given twice"},
		{{"run", "-it", "ls"}, "unknown option '-it'"},
		{{"run", "-i", "-i", "ls"}, "--stdin is given twice"},
		{{"run", "-i", "--stdin", "ls"}, "--stdin is given twice"},
		{{"run", "--user", "a", "--user", "b", "ls"}, "--user is given twice"},
		{{"run", "--user"}, "--user needs a value"},
		{{"run", "--json=yes", "ls"}, "--json takes no value"},
		{{"run", "--user=", "ls"}, "--user is empty"},
		{{"run", "--user", "\xff", "ls"}, "--user is not UTF-8"},
		{{"run", "--cwd", "tmp", "ls"}, "--cwd wants an absolute path, not 'tmp'"},
		{{"run", "--cwd", "/\xff", "ls"}, "--cwd is not UTF-8"},
		{{"run", "--env", "PATH", "ls"}, "--env wants NAME=VALUE, not 'PATH'"},
		{{"run", "--env", "=x", "ls"}, "--env wants NAME=VALUE, not '=x'"},
		{{"run", "--env", "A=1", "--env", "A=2", "ls"}, "--env gives A twice"},
		{{"run", "--timeout", "soon", "ls"},
			"--timeout wants 1ms to 24h, such as 10s or 500ms, not 'soon'"},
		{{"run", "--timeout", "0", "ls"},
			"--timeout wants 1ms to 24h, such as 10s or 500ms, not '0'"},
		{{"run", "--timeout", "25h", "ls"},
			"--timeout wants 1ms to 24h, such as 10s or 500ms, not '25h'"},
		{{"run", "--memory", "lots", "ls"},
			"--memory wants a size of at least 64K, such as 64M, not 'lots'"},
		{{"run", "--memory", "65535", "ls"},
			"--memory wants a size of at least 64K, such as 64M, not '65535'"},
		{{"run", "--idempotency-key", "", "ls"},
			"--idempotency-key wants 1 to 128 printable ASCII characters"},
		{{"run", "--idempotency-key", "a\nb", "ls"},
			"--idempotency-key wants 1 to 128 printable ASCII characters"},
		{{"run", "--idempotency-key", "a ", "ls"}, "--idempotency-key begins or ends with a space"},
		{{"run", "--pids", "0", "ls"}, "--pids wants a number from 1 to 4194304, not '0'"},
		{{"run", "--pids", "4194305", "ls"},
			"--pids wants a number from 1 to 4194304, not '4194305'"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char **argv = (char **)cases[i].argv;
		char error[CLI_TEXT_MAX] = "";
		struct cmd_options options;

		assert_int_equal(cmd_options_parse(&options, count(argv), argv, error), -EINVAL);
		assert_string_equal(error, cases[i].error);
		cmd_options_finish(&options);
	}
}

static void options_end_where_the_command_begins(void **state)
{
	(void)state;
	static const struct {
		const char *argv[ARGS_MAX];
		const char *first;
		size_t argc;
		bool interactive, json;
	} cases[] = {
		{{"run", "ls", "--json"}, "ls", 2, false, false},
		{{"run", "-i", "--", "--json", "-i"}, "--json", 2, true, false},
		{{"run", "--json", "--", "--"}, "--", 1, false, true},
		{{"run", "-", "x"}, "-", 2, false, false},
		{{"run", "--", ""}, "", 1, false, false},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char **argv = (char **)cases[i].argv;
		char error[CLI_TEXT_MAX] = "";
		struct cmd_options options;

		assert_int_equal(cmd_options_parse(&options, count(argv), argv, error), 0);
		assert_string_equal(options.argv[0], cases[i].first);
		assert_int_equal(options.argc, cases[i].argc);
		assert_int_equal(options.interactive, cases[i].interactive);
		assert_int_equal(options.json, cases[i].json);
		cmd_options_finish(&options);
	}
}

static void help_needs_no_command(void **state)
{
	(void)state;
	char *argv[] = {"run", "--help", NULL}, error[CLI_TEXT_MAX] = "";
	struct cmd_options options;

	assert_int_equal(cmd_options_parse(&options, 2, argv, error), 0);
	assert_true(options.help);
	cmd_options_finish(&options);
}

static void durations_have_units_and_bounds(void **state)
{
	(void)state;
	enum { DAY_MS = 24 * 60 * 60 * 1000 };
	static const struct {
		const char *text;
		int result;
		uint64_t ms;
	} cases[] = {
		{"1ms", 0, 1},
		{"10", 0, 10000},
		{"10s", 0, 10000},
		{"2m", 0, 120000},
		{"24h", 0, DAY_MS},
		{"86400000ms", 0, DAY_MS},
		{"1d", 0, DAY_MS},
		{"86400001ms", -ERANGE, 0},
		{"2d", -ERANGE, 0},
		{"25h", -ERANGE, 0},
		{"0s", -ERANGE, 0},
		{"99999999999999999999999999s", -ERANGE, 0},
		{"18446744073709551615s", -ERANGE, 0},
		{"", -EINVAL, 0},
		{"s", -EINVAL, 0},
		{"-1s", -EINVAL, 0},
		{"1.5s", -EINVAL, 0},
		{"1w", -EINVAL, 0},
		{"1 s", -EINVAL, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ms = 0;

		assert_int_equal(cli_parse_duration(cases[i].text, DAY_MS, &ms), cases[i].result);
		assert_int_equal(ms, cases[i].ms);
	}
}

static void control_characters_are_replaced(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to;
	} cases[] = {
		{"plain", "plain"},
		{"a\033[31mb\n", "a?[31mb?"},
		{"\x7f", "?"},
		{"\xc3\xa9", "\xc3\xa9"},
		{"\xc2\x9b"
		 "31m",
			"??31m"},
		{"\xc2\xa0", "\xc2\xa0"},
	};
	char to[32], small[4];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cli_clean_text(to, sizeof(to), cases[i].from);
		assert_string_equal(to, cases[i].to);
	}
	cli_clean_text(small, sizeof(small), "longer");
	assert_string_equal(small, "lon");
}

static void the_socket_is_the_options_or_the_environments(void **state)
{
	(void)state;

	unsetenv("TINDERBOX_SOCKET");
	assert_string_equal(cli_socket_path(NULL), CLIENT_SOCKET_DEFAULT);
	setenv("TINDERBOX_SOCKET", "", 1);
	assert_string_equal(cli_socket_path(NULL), CLIENT_SOCKET_DEFAULT);
	setenv("TINDERBOX_SOCKET", "/tmp/x", 1);
	assert_string_equal(cli_socket_path(NULL), "/tmp/x");
	assert_string_equal(cli_socket_path("/tmp/y"), "/tmp/y");
	unsetenv("TINDERBOX_SOCKET");
}

/* ---- the request ---- */

static void requests_say_what_was_given_and_no_more(void **state)
{
	(void)state;
	static const struct {
		const char *argv[ARGS_MAX];
		bool streams;
		const char *input;
		size_t input_length;
		const char *json;
	} cases[] = {
		{{"run", "ls", "-l"}, false, NULL, 0, "{\"argv\":[\"ls\",\"-l\"]}"},
		{{"run", "ls"}, true, NULL, 0, "{\"argv\":[\"ls\"],\"stdin_stream\":true}"},
		{{"run", "ls"}, false, "hi", 2, "{\"argv\":[\"ls\"],\"stdin\":\"hi\"}"},
		{{"run", "ls"}, false, "", 0, "{\"argv\":[\"ls\"],\"stdin\":\"\"}"},
		{{"run", "ls"}, false, "\xff\0", 2, "{\"argv\":[\"ls\"],\"stdin_b64\":\"/wA=\"}"},
		/* One that is not UTF-8 takes all of them to base64. */
		{{"run", "ls", "\xff"}, false, NULL, 0, "{\"argv_b64\":[\"bHM=\",\"/w==\"]}"},
		{{"run", "--env", "A=1", "--env", "AB=x=y", "ls"}, false, NULL, 0,
			"{\"argv\":[\"ls\"],\"env\":{\"A\":\"1\",\"AB\":\"x=y\"}}"},
		{{"run", "--env", "A=\xff", "--env", "B=", "ls"}, false, NULL, 0,
			"{\"argv\":[\"ls\"],\"env_b64\":[\"QT3/\",\"Qj0=\"]}"},
		{{"run", "--user", "agent", "--cwd", "/tmp", "--timeout", "1500ms", "ls"}, false, NULL, 0,
			"{\"argv\":[\"ls\"],\"cwd\":\"/tmp\",\"user\":\"agent\",\"timeout_ms\":1500}"},
		{{"run", "--memory=64M", "--pids=7", "ls"}, false, NULL, 0,
			"{\"argv\":[\"ls\"],\"memory_max\":67108864,\"pids_max\":7}"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char **argv = (char **)cases[i].argv;
		char error[CLI_TEXT_MAX] = "", *text;
		struct cmd_options options;
		json_t *request;

		assert_int_equal(cmd_options_parse(&options, count(argv), argv, error), 0);
		request = cmd_options_request(
			&options, cases[i].streams, cases[i].input, cases[i].input_length);
		text = json_dumps(request, JSON_COMPACT);
		assert_string_equal(text, cases[i].json);
		free(text);
		json_decref(request);
		cmd_options_finish(&options);
	}
}

/* ---- results ---- */

static void every_result_has_its_exit_status(void **state)
{
	(void)state;
	char *argv[] = {"cmd", NULL};
	const struct cmd_options options = {.user = "ann", .cwd = "/none", .argv = argv, .argc = 1};
	static const struct {
		const char *json;
		int status;
		const char *text;
	} cases[] = {
		{"{\"kind\":\"exited\",\"code\":0}", 0, ""},
		{"{\"kind\":\"exited\",\"code\":255}", 255, ""},
		{"{\"kind\":\"signalled\",\"signal\":9,\"core\":false}", 137, ""},
		{"{\"kind\":\"signalled\",\"signal\":15,\"core\":false}", 143, ""},
		{"{\"kind\":\"timed_out\",\"by\":\"guest\"}", 124,
			"timed out: cmd did not end in time and was ended"},
		{"{\"kind\":\"out_of_memory\"}", 137, "out of memory: cmd was ended"},
		{"{\"kind\":\"killed\"}", 137, "killed: cmd was ended"},
		{"{\"kind\":\"failed_to_start\",\"errno\":2,\"step\":\"exec\"}", 127,
			"failed to start: cmd: No such file or directory (step: exec)"},
		{"{\"kind\":\"failed_to_start\",\"errno\":13,\"step\":\"exec\"}", 126,
			"failed to start: cmd: Permission denied (step: exec)"},
		{"{\"kind\":\"failed_to_start\",\"errno\":8,\"step\":\"exec\"}", 126,
			"failed to start: cmd: Exec format error (step: exec)"},
		{"{\"kind\":\"failed_to_start\",\"errno\":2,\"step\":\"user\"}", 126,
			"failed to start: ann: no such user in the guest (step: user)"},
		{"{\"kind\":\"failed_to_start\",\"errno\":2,\"step\":\"cwd\"}", 126,
			"failed to start: /none: No such file or directory (step: cwd)"},
		{"{\"kind\":\"failed_to_start\",\"errno\":11,\"step\":\"clone\"}", 125,
			"failed to start: cmd: Resource temporarily unavailable (step: clone)"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *answer = json_pack("{s:o}", "result", json_loads(cases[i].json, 0, NULL));
		char text[CLI_TEXT_MAX];
		struct cmd_result result;

		assert_int_equal(cmd_result_from_json(&result, answer), 0);
		assert_int_equal(cmd_result_status(&result), cases[i].status);
		cmd_result_describe(&result, &options, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
		json_decref(answer);
	}
}

static void senseless_results_are_refused(void **state)
{
	(void)state;
	static const char *const cases[] = {
		"{}",
		"{\"result\":7}",
		"{\"result\":{}}",
		"{\"result\":{\"kind\":\"won\"}}",
		"{\"result\":{\"kind\":\"exited\"}}",
		"{\"result\":{\"kind\":\"exited\",\"code\":\"0\"}}",
		"{\"result\":{\"kind\":\"exited\",\"code\":256}}",
		"{\"result\":{\"kind\":\"exited\",\"code\":-1}}",
		"{\"result\":{\"kind\":\"signalled\",\"signal\":0}}",
		"{\"result\":{\"kind\":\"signalled\",\"signal\":65}}",
		"{\"result\":{\"kind\":\"failed_to_start\",\"errno\":0,\"step\":\"exec\"}}",
		"{\"result\":{\"kind\":\"failed_to_start\",\"errno\":2}}",
		"{\"result\":{\"kind\":\"failed_to_start\",\"errno\":2,\"step\":\"landing\"}}",
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		json_t *answer = json_loads(cases[i], 0, NULL);
		struct cmd_result result;

		assert_non_null(answer);
		assert_int_equal(cmd_result_from_json(&result, answer), -EPROTO);
		json_decref(answer);
	}
}

static void terminal_frames_are_checked(void **state)
{
	(void)state;
	struct agent_exit exit = {.kind = AGENT_EXITED, .code = 3, .stdout_bytes = 5};
	struct frame frame = {.type = AGENT_EXIT, .length = sizeof(exit), .payload = (uint8_t *)&exit};
	struct cmd_result result;

	assert_int_equal(cmd_result_from_frame(&result, &frame), 0);
	assert_int_equal(cmd_result_status(&result), 3);
	assert_int_equal(result.stdout_bytes, 5);
	exit.code = 256;
	assert_int_equal(cmd_result_from_frame(&result, &frame), -EPROTO);
	exit = (struct agent_exit){.kind = 0};
	assert_int_equal(cmd_result_from_frame(&result, &frame), -EPROTO);
	exit = (struct agent_exit){.kind = AGENT_KILLED + 1};
	assert_int_equal(cmd_result_from_frame(&result, &frame), -EPROTO);
	exit = (struct agent_exit){.kind = AGENT_FAILED_TO_START, .code = 2, .step = AGENT_STEP_EXEC + 1};
	assert_int_equal(cmd_result_from_frame(&result, &frame), -EPROTO);
	exit = (struct agent_exit){.kind = AGENT_OUT_OF_MEMORY, .code = 9};
	assert_int_equal(cmd_result_from_frame(&result, &frame), 0);
	assert_int_equal(cmd_result_status(&result), 128 + SIGKILL);
	frame.length--;
	assert_int_equal(cmd_result_from_frame(&result, &frame), -EPROTO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exec_takes_a_sandbox_first),
		cmocka_unit_test(wrong_command_lines_are_named),
		cmocka_unit_test(options_end_where_the_command_begins),
		cmocka_unit_test(help_needs_no_command),
		cmocka_unit_test(durations_have_units_and_bounds),
		cmocka_unit_test(control_characters_are_replaced),
		cmocka_unit_test(the_socket_is_the_options_or_the_environments),
		cmocka_unit_test(requests_say_what_was_given_and_no_more),
		cmocka_unit_test(every_result_has_its_exit_status),
		cmocka_unit_test(senseless_results_are_refused),
		cmocka_unit_test(terminal_frames_are_checked),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
