/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A trace, of whoever wrote it. What is refused is refused in words; what is accepted is reported in every
 * form, alone and beside itself: nothing differs then. The page has no element but its own.
 */
#include "host-ctl/report/report_show.h"
#include "tests/fuzz/support/fuzz.h"
#include <stdlib.h>
#include <string.h>

static void check_page(const struct report *report, const struct changes *changes)
{
	struct report both[2] = {*report, *report};
	char *text = NULL;
	size_t length = 0;
	FILE *to = open_memstream(&text, &length);

	FUZZ_ASSERT(to);
	report_write_page(to, both, changes ? 2 : 1, changes);
	FUZZ_ASSERT(fclose(to) == 0);
	FUZZ_ASSERT(!strstr(text, "<script") && !strstr(text, "<img") && !strchr(text, '\x1b'));
	free(text);
}

/* For a terminal: no byte that it would act upon. */
static void check_words(const struct report *report, const struct changes *changes)
{
	char *text = NULL;
	size_t length = 0;
	FILE *to = open_memstream(&text, &length);

	FUZZ_ASSERT(to);
	report_print(to, report, REPORT_TOP);
	report_print_changes(to, changes, REPORT_TOP);
	FUZZ_ASSERT(fclose(to) == 0);
	for (size_t i = 0; i < length; i++)
		FUZZ_ASSERT((text[i] >= ' ' && text[i] <= '~') || text[i] == '\n');
	free(text);
}

static void check_report(const struct trace *trace, bool whole)
{
	struct changes changes;
	struct report report;
	json_t *object;

	FUZZ_ASSERT(report_init(&report, trace, "t.json", whole) == 0);
	FUZZ_ASSERT(report.end > 0);
	check_page(&report, NULL);
	object = report_to_json(&report);
	FUZZ_ASSERT(object);
	json_decref(object);
	FUZZ_ASSERT(changes_init(&changes, &report, &report, CHANGES_BOUND) == 0);
	FUZZ_ASSERT(changes.count == 0);
	check_page(&report, &changes);
	check_words(&report, &changes);
	changes_finish(&changes);
	report_finish(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char error[TRACE_ERROR_MAX] = "";
	struct trace trace;

	fuzz_begin();
	if (trace_parse(&trace, "t.json", (const char *)data, size, error) == 0) {
		FUZZ_ASSERT(error[0] == '\0' && trace.event_count <= TRACE_EVENTS_MAX &&
			    trace.name_count <= TRACE_NAMES_MAX);
		for (size_t i = 0; i < trace.name_count; i++)
			for (const char *c = trace.names[i]; *c; c++)
				FUZZ_ASSERT(*c >= ' ' && *c <= '~');
		check_report(&trace, false);
		check_report(&trace, true);
	} else {
		FUZZ_ASSERT(strncmp(error, "t.json: ", 8) == 0 && strlen(error) < TRACE_ERROR_MAX);
	}
	trace_finish(&trace);
	fuzz_end();
	return 0;
}
