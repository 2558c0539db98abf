/* SPDX-License-Identifier: Apache-2.0 */
/* The forms of a report, and of two beside each other: for the terminal, as a page, as JSON. */
#ifndef HOST_CTL_REPORT_SHOW_H
#define HOST_CTL_REPORT_SHOW_H

#include "host-ctl/report/changes.h"
#include "host-ctl/report/report.h"
#include <jansson.h>
#include <stdio.h>

enum {
	REPORT_TOP = 10, /* rows of a list in the terminal, unless told otherwise */
	REPORT_TOP_MAX = 1000,
	REPORT_PAGE_ROWS = 1000, /* of a list on the page; what is left out is counted there */
	REPORT_TIME_TEXT = 32,
};

/* "24.010 ms": of any length of time in one unit, for columns; or in the unit that suits it, for sentences.
 */
void report_format_ms(char text[REPORT_TIME_TEXT], uint64_t ns);
void report_format_time(char text[REPORT_TIME_TEXT], uint64_t ns);
/* What was traced, in a line: "a boot by vmm 0.1.0, 128 MiB, 1 CPU; AMD EPYC, Linux 6.1". */
void report_describe(const struct report *report, char *text, size_t size);

/* Each writes to a stream whose errors the caller looks at. */
void report_print(FILE *to, const struct report *report, size_t top);
void report_print_changes(FILE *to, const struct changes *changes, size_t top);

/* One page that needs nothing else: no script, no font, no picture from elsewhere. changes: NULL, or of two
 * reports, reports[0] the earlier. */
void report_write_page(FILE *to, const struct report *reports, size_t count, const struct changes *changes);

/* A new reference; NULL without memory. */
json_t *report_to_json(const struct report *report);
json_t *changes_to_json(const struct changes *changes);

#endif
