/* SPDX-License-Identifier: Apache-2.0 */
/* Traces that are read, and those that are refused, each in its words. Needs no vmm. */
#include "tests/support/unit.h"

#include "host-ctl/report/trace.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define AGAIN "; make it again with vmm --trace"
#define CUT ": make it again with vmm --trace, to a disk with room"
#define DATA "\"otherData\":{\"format\":1}"
#define EVENTS(events) "{\"traceEvents\":[" events "]," DATA "}"
#define OTHER(data) "{\"traceEvents\":[],\"otherData\":{\"format\":1," data "}}"
#define EXIT                                                                                                 \
	"{\"name\":\"mmio\",\"cat\":\"exit\",\"ph\":\"X\",\"ts\":9500.000,\"dur\":3.2,\"pid\":1,\"tid\":1,"  \
	"\"args\":{"                                                                                         \
	"\"guest_us\":7400.5,\"address\":\"0xfec00000\",\"write\":true,\"device\":\"ioapic\"}}"

static int parse(struct trace *trace, const char *text, char error[TRACE_ERROR_MAX])
{
	return trace_parse(trace, "t.json", text, strlen(text), error);
}

/* ---- what is read ---- */

static void events_keep_what_they_say(void **state)
{
	static const char text[] = EVENTS(
		"{\"name\":\"vmm\",\"ph\":\"M\",\"pid\":1,\"tid\":0,\"args\":{\"name\":\"x\"}}," EXIT ","
		"{\"name\":\"config\",\"cat\":\"phase\",\"ph\":\"X\",\"ts\":1.25,\"dur\":21,\"pid\":1,"
		"\"tid\":0},"
		"{\"name\":\"hello\",\"cat\":\"mark\",\"ph\":\"i\",\"s\":\"p\",\"ts\":24010,\"pid\":1,"
		"\"tid\":0,\"args\":{}},"
		"{\"name\":\"port\",\"cat\":\"exit\",\"ph\":\"X\",\"ts\":9,\"dur\":1,\"tid\":1,\"args\":{"
		"\"port\":\"0x61\",\"write\":false}},"
		"{\"name\":\"x\",\"cat\":\"another\",\"ph\":\"X\",\"ts\":-1,\"tid\":0}");
	char error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	assert_int_equal(parse(&trace, text, error), 0);
	assert_int_equal(trace.event_count, 4);
	/* In the order of their starts. */
	assert_int_equal(trace.events[0].kind, TRACE_PHASE);
	assert_int_equal(trace.events[0].start, 1250);
	assert_int_equal(trace.events[0].duration, 21000);
	assert_string_equal(trace.names[trace.events[1].name], "nobody");
	assert_string_equal(trace.names[trace.events[1].detail], "port 0x61 read");
	assert_string_equal(trace.names[trace.events[2].name], "ioapic");
	assert_string_equal(trace.names[trace.events[2].detail], "mmio 0xfec00000 write");
	assert_int_equal(trace.events[2].guest, 7400500);
	assert_int_equal(trace.events[2].lane, 1);
	assert_int_equal(trace.events[3].duration, 0);
	trace_finish(&trace);
}

static void totals_keep_what_they_say(void **state)
{
	static const char text[] =
		OTHER("\"returns\":{\"boot\":3,\"total\":4},\"hello_us\":24010.0,\"dropped\":2,"
		      "\"config\":{\"kind\":\"boot\",\"memory\":134217728,\"cpus\":1},\"command\":[\"vmm\","
		      "\"--cmdline\",\"a b\"],"
		      "\"exits\":[{\"reason\":\"mmio\",\"address\":\"0xd0000050\",\"write\":true,\"device\":"
		      "\"blk\",\"boot_count\":5,"
		      "\"boot_handle_ns\":6,\"boot_guest_ns\":7,\"count\":8,\"handle_ns\":9,\"guest_ns\":10},"
		      "{\"reason\":\"interrupted\",\"device\":null,\"boot_count\":0,\"count\":1}],"
		      "\"ioctls\":[{\"name\":\"KVM_CREATE_VM\",\"boot_count\":1,\"boot_ns\":160,\"count\":1,"
		      "\"ns\":160,\"before_run\":1}],"
		      "\"irqs\":[{\"device\":\"blk\",\"pin\":2,\"boot_count\":1,\"count\":3}],"
		      "\"kvm\":[{\"name\":\"pf_fixed\",\"boot\":11,\"total\":12}],\"process\":[{\"name\":"
		      "\"faults\",\"boot\":1,\"total\":2}],"
		      "\"memory\":{\"page\":4096,\"block\":1048576,\"touched\":7,\"regions\":[{\"address\":"
		      "\"0x100000000\",\"size\":2097152,"
		      "\"touched\":[3,4]}]}");
	char error[TRACE_ERROR_MAX];
	const struct trace_row *row;
	struct trace trace;

	(void)state;
	assert_int_equal(parse(&trace, text, error), 0);
	assert_true(trace.has_hello);
	assert_int_equal(trace.hello, 24010000);
	assert_int_equal(trace.dropped, 2);
	assert_string_equal(trace.command, "vmm --cmdline 'a b'");
	assert_int_equal(trace.lists[TRACE_EXITS].count, 2);
	row = &trace.lists[TRACE_EXITS].rows[0];
	assert_string_equal(trace.names[row->name], "blk");
	assert_string_equal(trace.names[row->detail], "mmio 0xd0000050 write");
	assert_string_equal(trace.names[row->reason], "mmio");
	assert_int_equal(row->count[TRACE_BOOT], 5);
	assert_int_equal(row->count[TRACE_ALL], 8);
	assert_int_equal(row->ns[TRACE_BOOT], 6);
	assert_int_equal(row->guest_ns[TRACE_ALL], 10);
	assert_string_equal(trace.names[trace.lists[TRACE_EXITS].rows[1].name], "interrupted");
	assert_int_equal(trace.lists[TRACE_IOCTLS].rows[0].before_run, 1);
	assert_string_equal(trace.names[trace.lists[TRACE_IRQS].rows[0].detail], "pin 2");
	assert_int_equal(trace.lists[TRACE_COUNTERS].count, 2);
	assert_string_equal(trace.names[trace.lists[TRACE_COUNTERS].rows[1].name], "process faults");
	assert_int_equal(trace.regions[0].address, 0x100000000);
	assert_int_equal(trace.blocks[1], 4);
	trace_finish(&trace);
}

static void names_become_printable(void **state)
{
	static const char text[] = EVENTS("{\"name\":\"\\u001b[31m\\u202e\\u00e9<b>\",\"cat\":\"mark\","
					  "\"ph\":\"i\",\"ts\":1,\"tid\":0}");
	char error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	assert_int_equal(parse(&trace, text, error), 0);
	assert_string_equal(trace.names[trace.events[0].name], "?[31m?"
							       "?"
							       "?"
							       "?"
							       "?<b>");
	trace_finish(&trace);
}

/* ---- what is refused ---- */

static void each_fault_has_its_words(void **state)
{
	static const struct {
		const char *text, *error;
	} cases[] = {
		{"", "t.json: it is empty" AGAIN},
		{"[]", "t.json: line 1: it is no trace: no JSON object begins here" AGAIN},
		{"\n\nx", "t.json: line 3: it is no trace: no JSON object begins here" AGAIN},
		{"{", "t.json: it ends in the middle, in line 1; it was cut off" CUT},
		{"{\"traceEvents\":[" EXIT ",\n",
			"t.json: it ends in the middle, in line 2; it was cut off" CUT},
		{"{\"traceEvents\":[{\"name\":\"x",
			"t.json: it ends in the middle, in line 1; it was cut off" CUT},
		{"{\"traceEvents\":[\n\n{\"ts\":NaN}]}", "t.json: line 3: invalid token near 'NaN'" AGAIN},
		{"{\"traceEvents\":[{\"ts\":1e999}]}",
			"t.json: line 1: real number overflow near '1e999'" AGAIN},
		{"{\"traceEvents\":[{\"ts\":1,\"ts\":2}]}",
			"t.json: line 1: duplicate object key near '\"ts\"'" AGAIN},
		{"{\"traceEvents\":[{}{}]}", "t.json: event 1 has no ph or no name" AGAIN},
		{"{\"traceEvents\":[" EXIT EXIT "]}",
			"t.json: line 1: a ',' or ']' is missing between two events" AGAIN},
		{"{\"traceEvents\":{}}", "t.json: line 1: traceEvents is no array" AGAIN},
		{"{\"traceEvents\":[],\"traceEvents\":[]}", "t.json: line 1: traceEvents comes twice" AGAIN},
		{"{\"traceEvents\" []}", "t.json: line 1: a ':' is missing" AGAIN},
		{"{traceEvents:[]}", "t.json: line 1: the name of a member is expected" AGAIN},
		{"{\"traceEvents\":[]}", "t.json: it is no trace of vmm: it has no otherData" AGAIN},
		{"{" DATA "}", "t.json: it is no trace of vmm: it has no traceEvents" AGAIN},
		{"{" DATA "," DATA "}", "t.json: line 1: otherData comes twice" AGAIN},
		{EVENTS("") "x", "t.json: line 1: something follows the trace" AGAIN},
		{EVENTS("1"), "t.json: event 1 is no object" AGAIN},
		{EVENTS(EXIT ",{\"ph\":\"X\"}"), "t.json: event 2 has no ph or no name" AGAIN},
		{EVENTS("{\"name\":\"x\",\"cat\":\"phase\",\"ph\":\"X\",\"ts\":-1,\"dur\":1,\"tid\":0}"),
			"t.json: event 1 has a ts that is no time from 0 us to 24 h" AGAIN},
		{EVENTS("{\"name\":\"x\",\"cat\":\"phase\",\"ph\":\"X\",\"ts\":86400000001,\"dur\":1,\"tid\":"
			"0}"),
			"t.json: event 1 has a ts that is no time from 0 us to 24 h" AGAIN},
		{EVENTS("{\"name\":\"x\",\"cat\":\"phase\",\"ph\":\"X\",\"ts\":1,\"dur\":\"1\",\"tid\":0}"),
			"t.json: event 1 has a dur that is no time from 0 us to 24 h" AGAIN},
		{EVENTS("{\"name\":\"x\",\"cat\":\"exit\",\"ph\":\"X\",\"ts\":1,\"dur\":1,\"tid\":1,\"args\":"
			"{\"guest_us\":-2}}"),
			"t.json: event 1 has a guest_us that is no time from 0 us to 24 h" AGAIN},
		{EVENTS("{\"name\":\"x\",\"cat\":\"phase\",\"ph\":\"X\",\"ts\":1,\"dur\":1,\"tid\":-1}"),
			"t.json: event 1 has a tid that is no number of a thread" AGAIN},
		{"{\"traceEvents\":[],\"otherData\":{}}",
			"t.json: it is no trace of vmm: otherData has no format" AGAIN},
		{"{\"traceEvents\":[],\"otherData\":{\"format\":2}}",
			"t.json: its format is 2, and this host-ctl reads 1; take the host-ctl that belongs "
			"to its vmm"},
		{OTHER("\"dropped\":-1"), "t.json: otherData: dropped is no whole number from 0 on" AGAIN},
		{OTHER("\"hello_us\":-1"), "t.json: otherData: hello_us is no time from 0 us to 24 h" AGAIN},
		{OTHER("\"exits\":{}"), "t.json: otherData: exits is no array of at most 16384 rows" AGAIN},
		{OTHER("\"exits\":[1]"), "t.json: otherData: exits: a row is no object" AGAIN},
		{OTHER("\"exits\":[{}]"), "t.json: otherData: exits: reason is no string" AGAIN},
		{OTHER("\"ioctls\":[{\"name\":\"x\",\"count\":1.5}]"),
			"t.json: otherData: ioctls: count is no whole number from 0 on" AGAIN},
		{OTHER("\"ioctls\":[{\"name\":\"x\",\"ns\":9000000000000000000}]"),
			"t.json: otherData: ioctls: a total is no number that can be" AGAIN},
		{OTHER("\"ioctls\":[{\"name\":\"x\",\"before_run\":9000000000000000000}]"),
			"t.json: otherData: ioctls: a total is no number that can be" AGAIN},
		{OTHER("\"exits\":[{\"reason\":\"x\",\"count\":281474976710656}]"),
			"t.json: otherData: exits: a total is no number that can be" AGAIN},
		{OTHER("\"memory\":{\"page\":0}"),
			"t.json: otherData: memory: block is no size from a page to 1 GiB" AGAIN},
		{OTHER("\"memory\":{\"page\":4096,\"block\":8192,\"regions\":[{\"address\":\"12\"}]}"),
			"t.json: otherData: memory: address is no hexadecimal number" AGAIN},
		{OTHER("\"memory\":{\"page\":4096,\"block\":8192,\"regions\":[{\"address\":\"0x0\","
		       "\"touched\":[3]}]}"),
			"t.json: otherData: memory: touched is no number of pages of a block" AGAIN},
	};
	char error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(parse(&trace, cases[i].text, error), -1);
		assert_string_equal(error, cases[i].error);
		trace_finish(&trace);
	}
}

/* Each byte that is cut off is noticed, and nothing is read behind the end (ASan looks). */
static void any_cut_is_refused(void **state)
{
	static const char text[] = EVENTS(EXIT "," EXIT);
	char error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	for (size_t length = 0; length + 1 < sizeof(text); length++) {
		char *copy = malloc(length ? length : 1);

		assert_non_null(copy);
		memcpy(copy, text, length);
		assert_int_equal(trace_parse(&trace, "t.json", copy, length, error), -1);
		assert_true(strncmp(error, "t.json: ", 8) == 0 && error[8]);
		trace_finish(&trace);
		free(copy);
	}
}

static void deep_json_is_refused(void **state)
{
	enum { DEEP = 100000 };
	static const char head[] = "{\"traceEvents\":[";
	char *text = malloc(sizeof(head) + DEEP), error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	assert_non_null(text);
	memcpy(text, head, sizeof(head));
	memset(text + sizeof(head) - 1, '[', DEEP);
	text[sizeof(head) - 1 + DEEP] = '\0';
	assert_int_equal(parse(&trace, text, error), -1);
	assert_string_equal(error, "t.json: line 1: maximum parsing depth reached near '['" AGAIN);
	trace_finish(&trace);
	free(text);
}

/* A value as long as it may be is read, a byte more is refused, before a tree is made of what follows. */
static void long_values_are_refused(void **state)
{
	static const struct {
		const char *before, *after;
		int limit;
		const char *error;
	} cases[] = {
		{"{\"traceEvents\":[", "]," DATA "}", TRACE_EVENT_MAX,
			"t.json: line 1: a value has more than the 65536 bytes that are read" AGAIN},
		{"{\"x\":", ",\"traceEvents\":[]," DATA "}", TRACE_MEMBER_MAX,
			"t.json: line 1: a value has more than the 33554432 bytes that are read" AGAIN},
	};
	char error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		for (int more = 0; more < 2; more++) {
			/* A string is no tree: it is quick to make. */
			int length = cases[i].limit + more - 2;
			char *text;

			assert_true(asprintf(&text, "%s\"%*s\"%s", cases[i].before, length, "",
					    cases[i].after) > 0);
			assert_int_equal(parse(&trace, text, error), i == 1 && !more ? 0 : -1);
			assert_string_equal(error, more	    ? cases[i].error
						   : i == 1 ? ""
							    : "t.json: event 1 is no object" AGAIN);
			trace_finish(&trace);
			free(text);
		}
	}
}

static void more_names_than_are_kept(void **state)
{
	char *text, error[TRACE_ERROR_MAX];
	size_t length;
	FILE *to = open_memstream(&text, &length);
	struct trace trace;

	(void)state;
	fputs("{\"traceEvents\":[", to);
	for (int i = 0; i <= TRACE_NAMES_MAX; i++)
		fprintf(to, "%s{\"name\":\"%d\",\"cat\":\"mark\",\"ph\":\"i\",\"ts\":1,\"tid\":0}",
			i ? "," : "", i);
	fputs("]," DATA "}", to);
	assert_int_equal(fclose(to), 0);
	assert_int_equal(parse(&trace, text, error), -1);
	assert_string_equal(error, "t.json: it has more than the 65536 different names that are kept" AGAIN);
	trace_finish(&trace);
	free(text);
}

/* ---- files ---- */

static void a_file_that_is_none(void **state)
{
	char folder[] = "/tmp/hostctl-trace.XXXXXX", path[64], wanted[TRACE_ERROR_MAX],
	     error[TRACE_ERROR_MAX];
	struct trace trace;

	(void)state;
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/t", folder);
	assert_int_equal(trace_load(&trace, path, error), -1);
	snprintf(wanted, sizeof(wanted), "%s: cannot read it: No such file or directory; check the path",
		path);
	assert_string_equal(error, wanted);
	assert_int_equal(trace_load(&trace, folder, error), -1);
	snprintf(wanted, sizeof(wanted), "%s: it is a folder; give the file that vmm --trace wrote", folder);
	assert_string_equal(error, wanted);
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(trace_load(&trace, path, error), -1);
	snprintf(
		wanted, sizeof(wanted), "%s: it is a named pipe; give the file that vmm --trace wrote", path);
	assert_string_equal(error, wanted);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(rmdir(folder), 0);
}

static void a_file_too_large(void **state)
{
	char path[] = "/tmp/hostctl-trace.XXXXXX", wanted[TRACE_ERROR_MAX], error[TRACE_ERROR_MAX];
	int fd = mkstemp(path);
	struct trace trace;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)TRACE_FILE_MAX + 1), 0);
	assert_int_equal(trace_load(&trace, path, error), -1);
	snprintf(wanted, sizeof(wanted),
		"%s: it has more than the 512 MiB that are read; trace a shorter time", path);
	assert_string_equal(error, wanted);
	close(fd);
	unlink(path);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(events_keep_what_they_say),
		cmocka_unit_test(totals_keep_what_they_say),
		cmocka_unit_test(names_become_printable),
		cmocka_unit_test(each_fault_has_its_words),
		cmocka_unit_test(any_cut_is_refused),
		cmocka_unit_test(deep_json_is_refused),
		cmocka_unit_test(long_values_are_refused),
		cmocka_unit_test(more_names_than_are_kept),
		cmocka_unit_test(a_file_that_is_none),
		cmocka_unit_test(a_file_too_large),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
