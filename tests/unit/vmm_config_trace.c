/* SPDX-License-Identifier: Apache-2.0 */
/* The value of --trace, and what it does to the kernel's command line. */
#include "tests/unit/vmm_config_fixture.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define USE "--trace FILE[,until=hello|end]"

static const struct {
	const char *value, *file;
	bool until_hello;
} values[] = {
	{"t", "t", false},
	{"t,until=end", "t", false},
	{"t,until=hello", "t", true},
	{"fd:7,until=hello", "fd:7", true},
	{"a,b,until=hello", "a,b", true},
	/* Not the last part: a path has it. */
	{"a,until=x,b", "a,until=x,b", false},
};

static void a_file_and_how_far(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
		struct run run;

		assert_int_equal(parse(&run, "--kernel", "k", "--trace", values[i].value), 0);
		assert_true(run.config.trace.wanted);
		assert_string_equal(run.config.trace.file, values[i].file);
		assert_int_equal(run.config.trace.until_hello, values[i].until_hello);
	}
}

static const struct {
	const char *value, *error;
} refusals[] = {
	{"", "--trace needs a value; write " USE},
	{",until=hello", "--trace: the file is missing; write " USE},
	{"t,until=", "--trace: until= is not known; choose hello or end"},
	{"t,until=never", "--trace: until=never is not known; choose hello or end"},
	{"t,until=HELLO", "--trace: until=HELLO is not known; choose hello or end"},
	{"fd:", "--trace: fd: is not a file descriptor; write fd: and its number"},
	{"fd:x", "--trace: fd:x is not a file descriptor; write fd: and its number"},
};

static void refusals_say_what_and_how(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++) {
		struct run run;

		assert_int_equal(parse(&run, "--kernel", "k", "--trace", refusals[i].value), -EINVAL);
		assert_string_equal(run.error, refusals[i].error);
	}
}

static void a_path_has_room_for_the_name_beside_it(void **state)
{
	char *path = malloc(CONFIG_TRACE_MAX + 1), wanted[CONFIG_ERROR_MAX];
	struct run run;

	(void)state;
	assert_non_null(path);
	memset(path, 'x', CONFIG_TRACE_MAX);
	path[CONFIG_TRACE_MAX] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--trace", path), -EINVAL);
	snprintf(wanted, sizeof(wanted), "--trace: a path of %d bytes is too long; give one of at most %d",
		CONFIG_TRACE_MAX, CONFIG_TRACE_MAX - 1);
	assert_string_equal(run.error, wanted);
	path[CONFIG_TRACE_MAX - 1] = '\0';
	assert_int_equal(parse(&run, "--kernel", "k", "--trace", path), 0);
	free(path);
}

static void it_goes_with_every_kind_of_start_once(void **state)
{
	struct run run;

	(void)state;
	assert_int_equal(parse(&run, "--restore", "d", "--trace", "t"), 0);
	assert_int_equal(parse(&run, "--standby", "--control", "c", "--trace", "t"), 0);
	assert_int_equal(parse(&run, "--kernel", "k", "--trace", "t", "--trace", "u"), -EINVAL);
	assert_string_equal(run.error, "--trace is given twice; give it once");
	assert_int_equal(parse(&run, "--kernel", "fd:7", "--trace", "fd:7"), -EINVAL);
	assert_string_equal(run.error, "fd:7 is given to both --kernel and --trace; open one for each");
}

/* Without it the line is as it was. */
static void the_kernel_gets_the_word(void **state)
{
	char line[CONFIG_CMDLINE_MAX];
	struct run run;

	(void)state;
	assert_int_equal(parse(&run, "--kernel", "k", "--cmdline", "a=b", "--trace", "t"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k quiet 8250.nr_uarts=0 tinderbox_trace=1 a=b");
	assert_int_equal(parse(&run, "--kernel", "k", "--cmdline", "a=b"), 0);
	assert_int_equal(config_kernel_cmdline(&run.config, line), 0);
	assert_string_equal(line, "panic=-1 reboot=k quiet 8250.nr_uarts=0 a=b");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_and_how_far),
		cmocka_unit_test(refusals_say_what_and_how),
		cmocka_unit_test(a_path_has_room_for_the_name_beside_it),
		cmocka_unit_test(it_goes_with_every_kind_of_start_once),
		cmocka_unit_test(the_kernel_gets_the_word),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
