/* SPDX-License-Identifier: Apache-2.0 */
/* What a report makes of a trace, and what it calls a change. Needs no vmm. */
#include "tests/support/unit.h"

#include "host-ctl/report/plot.h"
#include "host-ctl/report/report_show.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EVENT(category, name, start, took)                                                                   \
	"{\"name\":\"" name "\",\"cat\":\"" category "\",\"ph\":\"X\",\"ts\":" #start ",\"dur\":" #took      \
	",\"tid\":0}"
#define MARK(name, at)                                                                                       \
	"{\"name\":\"" name "\",\"cat\":\"mark\",\"ph\":\"i\",\"ts\":" #at ",\"tid\":1,\"args\":{}}"
#define ROW(device, register, count, ns)                                                                     \
	"{\"reason\":\"mmio\",\"address\":\"" register "\",\"write\":true,\"device\":\"" device              \
						       "\",\"boot_count\":" #count                           \
						       ",\"boot_handle_ns\":" #ns                            \
						       ",\"boot_guest_ns\":100,\"count\":" #count            \
						       "0,\"handle_ns\":" #ns "0,\"guest_ns\":1000}"

static const char text[] = "{\"traceEvents\":[" EVENT("phase", "outer", 1, 10) "," EVENT("phase", "inner", 2,
	3) "," EVENT("phase", "next", 11, 2) "," MARK("kernel", 20) "," MARK("init", 50) "," MARK("hello",
	90) "," EVENT("initcall", "short", 30, 1) "," EVENT("initcall", "long", 32, 9) "," MARK("end",
	200) "],\"otherData\":{\"format\":1,\"hello_us\":90,\"dropped\":4,"
	     "\"config\":{\"kind\":\"boot\",\"memory\":134217728,\"cpus\":2},\"vmm\":\"1.2\",\"returns\":{"
	     "\"boot\":9,\"total\":90},"
	     "\"exits\":[" ROW("blk", "0xd0000050", 2, 30) "," ROW("vsock", "0xd0001050", 4, 20) "," ROW(
		     "blk", "0xd0000064", 3,
		     10) "],"
			 "\"ioctls\":[{\"name\":\"KVM_RUN\",\"boot_count\":9,\"count\":90},"
			 "{\"name\":\"KVM_CREATE_VM\",\"boot_count\":1,\"boot_ns\":500,\"count\":1,\"ns\":"
			 "500,\"before_run\":1}],"
			 "\"kvm\":[{\"name\":\"pf_fixed\",\"boot\":5,\"total\":50}]}}";

struct loaded {
	struct trace trace;
	struct report report;
};

static void load(struct loaded *loaded, const char *from, bool whole)
{
	char error[TRACE_ERROR_MAX];

	assert_int_equal(trace_parse(&loaded->trace, "t.json", from, strlen(from), error), 0);
	assert_int_equal(report_init(&loaded->report, &loaded->trace, "t.json", whole), 0);
}

static void unload(struct loaded *loaded)
{
	report_finish(&loaded->report);
	trace_finish(&loaded->trace);
}

static void the_boot_ends_at_the_hello(void **state)
{
	const struct report_rows *list;
	struct loaded loaded;
	uint64_t value;

	(void)state;
	load(&loaded, text, false);
	assert_int_equal(loaded.report.end, 90000);
	assert_int_equal(loaded.report.returns, 9);
	assert_int_equal(loaded.report.handle_ns, 60);
	assert_int_equal(loaded.report.guest_ns, 300);
	list = &loaded.report.lists[REPORT_STAGES];
	assert_int_equal(list->count, 3);
	assert_string_equal(list->rows[0].name, "start to kernel");
	assert_string_equal(list->rows[2].name, "init to hello");
	assert_int_equal(list->rows[2].start, 50000);
	assert_int_equal(list->rows[2].ns, 40000);
	assert_true(report_find_counter(&loaded.report, "kvm pf_fixed", &value));
	assert_int_equal(value, 5);
	assert_true(report_find_counter(&loaded.report, "events dropped", &value));
	assert_int_equal(value, 4);
	assert_int_equal(plot_setup_end(&loaded.report), 20000);
	unload(&loaded);
}

static void the_whole_goes_on(void **state)
{
	struct loaded loaded;

	(void)state;
	load(&loaded, text, true);
	assert_int_equal(loaded.report.end, 200000);
	assert_int_equal(loaded.report.returns, 90);
	assert_int_equal(loaded.report.handle_ns, 600);
	assert_int_equal(loaded.report.lists[REPORT_STAGES].count, 4);
	unload(&loaded);
}

static void phases_lie_in_each_other(void **state)
{
	const struct report_rows *list;
	struct loaded loaded;

	(void)state;
	load(&loaded, text, false);
	list = &loaded.report.lists[REPORT_PHASES];
	assert_int_equal(list->count, 3);
	assert_string_equal(list->rows[1].name, "inner");
	assert_int_equal(list->rows[0].depth, 0);
	assert_int_equal(list->rows[1].depth, 1);
	assert_int_equal(list->rows[2].depth, 0);
	unload(&loaded);
}

static void exits_are_summed_by_device(void **state)
{
	const struct report_rows *list;
	struct loaded loaded;

	(void)state;
	load(&loaded, text, false);
	list = &loaded.report.lists[REPORT_DEVICES];
	assert_int_equal(list->count, 2);
	assert_string_equal(list->rows[0].name, "blk");
	assert_int_equal(list->rows[0].count, 5);
	assert_int_equal(list->rows[0].ns, 40);
	assert_int_equal(list->rows[0].guest_ns, 200);
	list = &loaded.report.lists[REPORT_REGISTERS];
	assert_int_equal(list->count, 3);
	assert_string_equal(list->rows[0].detail, "mmio 0xd0001050 write");
	/* KVM_RUN is the guest. */
	assert_int_equal(loaded.report.lists[REPORT_IOCTLS].count, 1);
	assert_int_equal(loaded.report.ioctls, 1);
	assert_int_equal(loaded.report.before_run, 1);
	list = &loaded.report.lists[REPORT_INITCALLS];
	assert_string_equal(list->rows[0].name, "long");
	unload(&loaded);
}

/* The text with one piece in place of another. */
static char *altered(const char *piece, const char *other)
{
	const char *at = strstr(text, piece);
	char *made;

	assert_non_null(at);
	assert_true(asprintf(&made, "%.*s%s%s", (int)(at - text), text, other, at + strlen(piece)) > 0);
	return made;
}

static void changes_are_what_differs(void **state)
{
	char *with = altered(EVENT("phase", "next", 11, 2),
		EVENT("phase", "next", 11, 402) "," EVENT("phase", "small", 12, 3));
	struct loaded before, after;
	struct changes changes;

	(void)state;
	load(&before, text, false);
	load(&after, with, false);
	assert_int_equal(changes_init(&changes, &before.report, &after.report, 10), 0);
	assert_int_equal(changes.count, 2);
	assert_int_equal(changes.large, 1);
	assert_string_equal(changes.changes[0].name, "next");
	assert_string_equal(changes_place_key(&changes.changes[0]), "phases");
	assert_int_equal(changes.changes[0].before, 2000);
	assert_int_equal(changes.changes[0].after, 402000);
	/* New, and too short to count. */
	assert_string_equal(changes.changes[1].name, "small");
	assert_int_equal(changes.changes[1].before, 0);
	assert_true(changes.changes[1].small);
	changes_finish(&changes);
	unload(&before);
	unload(&after);
	free(with);
}

static void a_count_is_never_small(void **state)
{
	char *with = altered("\"boot\":5,", "\"boot\":6,");
	struct loaded before, after;
	struct changes changes;

	(void)state;
	load(&before, text, false);
	load(&after, with, false);
	assert_int_equal(changes_init(&changes, &before.report, &after.report, 1000), 0);
	assert_int_equal(changes.large, 1);
	assert_int_equal(changes.changes[0].unit, CHANGE_COUNT);
	assert_int_equal(changes.changes[0].after, 6);
	changes_finish(&changes);
	unload(&before);
	unload(&after);
	free(with);
}

static void an_empty_trace_is_a_report(void **state)
{
	static const char empty[] = "{\"traceEvents\":[],\"otherData\":{\"format\":1}}";
	char *page = NULL;
	size_t length;
	FILE *to = open_memstream(&page, &length);
	struct loaded loaded;

	(void)state;
	load(&loaded, empty, false);
	assert_int_equal(loaded.report.end, 1);
	report_print(to, &loaded.report, 10);
	report_write_page(to, &loaded.report, 1, NULL);
	assert_int_equal(fclose(to), 0);
	assert_non_null(strstr(page, "the agent never said hello"));
	unload(&loaded);
	free(page);
}

static void ticks_are_round(void **state)
{
	static const struct {
		uint64_t end, step;
		const char *last;
	} cases[] = {{1, 1, "1 ns"}, {12, 1, "12 ns"}, {13, 2, "13 ns"}, {812400000, 100000000, "0.8 s"},
		{2900000, 500000, "2.9 ms"}, {86400000000000, 10000000000000, "86400 s"}};
	char label[SVG_LABEL_MAX];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		assert_int_equal(svg_tick_step(cases[i].end, 12), cases[i].step);
		svg_tick_label(label, cases[i].end, cases[i].step);
		assert_string_equal(label, cases[i].last);
	}
	svg_tick_label(label, 0, 1);
	assert_string_equal(label, "0");
}

static void times_have_a_unit_that_suits(void **state)
{
	static const struct {
		uint64_t ns;
		const char *text;
	} cases[] = {{0, "0 ns"}, {999, "999 ns"}, {1000, "1.0 µs"}, {24010000, "24.01 ms"},
		{1500000000, "1.500 s"}};
	char shown[REPORT_TIME_TEXT];

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		report_format_time(shown, cases[i].ns);
		assert_string_equal(shown, cases[i].text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_boot_ends_at_the_hello),
		cmocka_unit_test(the_whole_goes_on),
		cmocka_unit_test(phases_lie_in_each_other),
		cmocka_unit_test(exits_are_summed_by_device),
		cmocka_unit_test(changes_are_what_differs),
		cmocka_unit_test(a_count_is_never_small),
		cmocka_unit_test(an_empty_trace_is_a_report),
		cmocka_unit_test(ticks_are_round),
		cmocka_unit_test(times_have_a_unit_that_suits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
