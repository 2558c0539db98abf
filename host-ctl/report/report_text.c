/* SPDX-License-Identifier: Apache-2.0 */
/* Reports for the terminal: 120 columns, but for the command line of vmm. */
#include "host-ctl/report/report_show.h"
#include <inttypes.h>
#include <string.h>

enum {
	NS_PER_US = 1000,
	NS_PER_MS = 1000000,
	NS_PER_S = 1000000000,
	NAME_WIDTH = 44,
	BAR_WIDTH = 40,
	SHARE_WIDTH = 20,
	MIB = 1 << 20,
};

void report_format_ms(char text[REPORT_TIME_TEXT], uint64_t ns)
{
	snprintf(text, REPORT_TIME_TEXT, "%.3f", (double)ns / NS_PER_MS);
}

void report_format_time(char text[REPORT_TIME_TEXT], uint64_t ns)
{
	if (ns < NS_PER_US)
		snprintf(text, REPORT_TIME_TEXT, "%" PRIu64 " ns", ns);
	else if (ns < NS_PER_MS)
		snprintf(text, REPORT_TIME_TEXT, "%.1f µs", (double)ns / NS_PER_US);
	else if (ns < NS_PER_S)
		snprintf(text, REPORT_TIME_TEXT, "%.2f ms", (double)ns / NS_PER_MS);
	else
		snprintf(text, REPORT_TIME_TEXT, "%.3f s", (double)ns / NS_PER_S);
}

void report_describe(const struct report *report, char *text, size_t size)
{
	const struct trace *trace = report->trace;

	snprintf(text, size, "a %s by vmm %s, %" PRIu64 " MiB, %" PRIu64 " CPU%s; on %s, Linux %s",
		trace->kind[0] ? trace->kind : "run", trace->vmm[0] ? trace->vmm : "(unknown)",
		trace->memory / MIB, trace->cpus, trace->cpus == 1 ? "" : "s",
		trace->host[0] ? trace->host : "(unknown)",
		trace->host_kernel[0] ? trace->host_kernel : "(unknown)");
}

/* ---- one report ---- */

static void print_label(FILE *to, const struct report_row *row)
{
	char label[2 * REPORT_NAME_MAX];

	snprintf(label, sizeof(label), "%*s%s%s%s", (int)(2 * row->depth), "", row->name,
		row->detail[0] ? "  " : "", row->detail);
	fprintf(to, "  %-*.*s", NAME_WIDTH, NAME_WIDTH, label);
}

/* Where in the whole it lies: a line of BAR_WIDTH places, '=' where it was, one at least. */
static void print_place(FILE *to, uint64_t start, uint64_t ns, uint64_t end)
{
	int from = (int)((double)start / (double)end * BAR_WIDTH),
	    until = (int)((double)(start + ns) / (double)end * BAR_WIDTH + 0.5);

	if (from >= BAR_WIDTH)
		from = BAR_WIDTH - 1;
	if (until > BAR_WIDTH)
		until = BAR_WIDTH;
	if (until <= from)
		until = from + 1;
	fprintf(to, " |%*s", from, "");
	for (int i = from; i < until; i++)
		putc('=', to);
	fprintf(to, "%*s|", BAR_WIDTH - until, "");
}

/* How much it is beside the largest. */
static void print_share(FILE *to, uint64_t value, uint64_t largest)
{
	int length = largest ? (int)((double)value / (double)largest * SHARE_WIDTH + 0.5) : 0;

	fputs("  ", to);
	for (int i = 0; i < length; i++)
		putc('=', to);
}

/* What the list is sorted by. */
static uint64_t value_of(const struct report_shape *shape, const struct report_row *row)
{
	return shape->counts && !shape->by_time ? row->count : row->ns;
}

static void print_row(FILE *to, const struct report_shape *shape, const struct report_row *row,
	uint64_t largest, uint64_t end)
{
	char text[REPORT_TIME_TEXT];

	print_label(to, row);
	if (shape->counts)
		fprintf(to, " %9" PRIu64, row->count);
	if (shape->starts) {
		report_format_ms(text, row->start);
		fprintf(to, " %11s", text);
	}
	if (shape->times) {
		report_format_ms(text, row->ns);
		fprintf(to, " %11s", text);
	}
	if (shape->guest) {
		report_format_ms(text, row->guest_ns);
		fprintf(to, " %13s", text);
	}
	if (shape->starts)
		print_place(to, row->start, row->ns, end);
	else if (largest)
		print_share(to, value_of(shape, row), largest);
	putc('\n', to);
}

/* Counters are of different things: 0, so that none is drawn beside another. */
static uint64_t largest_of(const struct report_rows *list, const struct report_shape *shape)
{
	uint64_t largest = 0;

	if (shape == &report_shapes[REPORT_COUNTERS])
		return 0;

	for (size_t i = 0; i < list->count; i++) {
		uint64_t value = value_of(shape, &list->rows[i]);

		largest = value > largest ? value : largest;
	}
	return largest;
}

/* vmm's own part is short beside the guest's, so it has a scale of its own. */
static uint64_t end_of(const struct report_rows *list)
{
	uint64_t end = 1;

	for (size_t i = 0; i < list->count; i++)
		if (list->rows[i].start + list->rows[i].ns > end)
			end = list->rows[i].start + list->rows[i].ns;
	return end;
}

static void print_list(FILE *to, const struct report *report, enum report_list which, size_t top)
{
	const struct report_shape *shape = &report_shapes[which];
	const struct report_rows *list = &report->lists[which];
	uint64_t largest = largest_of(list, shape), end = report->end;
	/* Those in time have no top: a piece would be missing from the middle. */
	size_t shown = shape->starts && which != REPORT_INITCALLS ? list->count : top;

	if (list->count == 0)
		return;
	if (which == REPORT_PHASES)
		end = end_of(list);
	fprintf(to, "\n%-*s", NAME_WIDTH + 2, shape->title);
	fprintf(to, "%s%s%s%s\n", shape->counts ? "     count" : "", shape->starts ? "    from, ms" : "",
		shape->times ? "    took, ms" : "", shape->guest ? " guest's, ms" : "");
	for (size_t i = 0; i < list->count && i < shown; i++)
		print_row(to, shape, &list->rows[i], largest, end);
	if (list->count > shown)
		fprintf(to, "  ... and %zu more\n", list->count - shown);
	if (list->left_out)
		fprintf(to, "  ... and %zu that are too many for a list\n", list->left_out);
}

static void print_sum(FILE *to, const char *name, uint64_t ns, uint64_t count, const char *of)
{
	char text[REPORT_TIME_TEXT];

	report_format_ms(text, ns);
	fprintf(to, "  %-30s %12s ms", name, text);
	if (of)
		fprintf(to, "  %8" PRIu64 " %s", count, of);
	putc('\n', to);
}

static void print_head(FILE *to, const struct report *report)
{
	const struct trace *trace = report->trace;
	char text[TRACE_NOTE_MAX];

	report_describe(report, text, sizeof(text));
	fprintf(to, "%s: %s\n", report->file, text);
	if (trace->command[0])
		fprintf(to, "  %s\n", trace->command);
	if (trace->end[0])
		fprintf(to, "  end: %s\n", trace->end);
	putc('\n', to);
	print_sum(to, report->scope == TRACE_BOOT ? "start to the agent's hello" : "the whole trace",
		report->end, 0, NULL);
	print_sum(to, "in the guest", report->guest_ns, report->returns, "returns of KVM_RUN");
	print_sum(to, "handling its exits", report->handle_ns, report->irqs, "interrupts raised");
	print_sum(to, "in ioctls of KVM", report->ioctl_ns, report->ioctls, "ioctls of KVM, but KVM_RUN");
	if (!trace->has_hello)
		fputs("  the agent never said hello: this is of all that was traced\n", to);
	if (trace->dropped)
		fprintf(to, "  %" PRIu64 " events did not fit: counts are whole, the timeline is not\n",
			trace->dropped);
}

void report_print(FILE *to, const struct report *report, size_t top)
{
	print_head(to, report);
	for (size_t i = 0; i < REPORT_LISTS; i++)
		print_list(to, report, (enum report_list)i, top);
}

/* ---- two ---- */

static void format_value(char text[REPORT_TIME_TEXT], enum change_unit unit, uint64_t value)
{
	if (unit == CHANGE_NS)
		report_format_ms(text, value);
	else
		snprintf(text, REPORT_TIME_TEXT, "%" PRIu64, value);
}

static void print_change(FILE *to, const struct change *change)
{
	char before[REPORT_TIME_TEXT], after[REPORT_TIME_TEXT], difference[REPORT_TIME_TEXT],
		share[REPORT_TIME_TEXT] = "";
	char label[2 * REPORT_NAME_MAX];
	bool more = change->after > change->before;

	format_value(before, change->unit, change->before);
	format_value(after, change->unit, change->after);
	format_value(difference, change->unit,
		more ? change->after - change->before : change->before - change->after);
	if (change->before && change->after)
		snprintf(share, sizeof(share), "%+.1f %%",
			((double)change->after / (double)change->before - 1) * 100);
	else
		snprintf(share, sizeof(share), "%s", change->before ? "gone" : "new");
	snprintf(label, sizeof(label), "%s%s%s", change->name, change->detail[0] ? "  " : "", change->detail);
	fprintf(to, "  %-*.*s %-2s %12s %12s %c%11s %10s\n", NAME_WIDTH, NAME_WIDTH, label,
		change->unit == CHANGE_NS ? "ms" : "", before, after, more ? '+' : '-', difference, share);
}

static void print_side(FILE *to, const char *side, const struct report *report)
{
	char text[TRACE_NOTE_MAX];

	report_describe(report, text, sizeof(text));
	fprintf(to, "%-7s %s: %s\n", side, report->file, text);
	if (!report->trace->has_hello)
		fputs("        the agent never said hello: this is of all that was traced\n", to);
}

void report_print_changes(FILE *to, const struct changes *changes, size_t top)
{
	size_t in_place = 0;

	print_side(to, "before", changes->before);
	print_side(to, "after", changes->after);
	if (changes->large == 0)
		fprintf(to, "\nNothing differs in count, and no time by more than %u %%.\n", changes->bound);
	for (size_t i = 0; i < changes->large; i++) {
		const struct change *change = &changes->changes[i];

		if (i == 0 || change->place != changes->changes[i - 1].place) {
			in_place = 0;
			fprintf(to, "\n%-*s    %12s %12s %12s\n", NAME_WIDTH + 2, changes_place_title(change),
				"before", "after", "difference");
		}
		if (in_place++ < top)
			print_change(to, change);
		else if (i + 1 == changes->large || changes->changes[i + 1].place != change->place)
			fprintf(to, "  ... and %zu more\n", in_place - top);
	}
	if (changes->count > changes->large)
		fprintf(to, "\n%zu times differ by no more than %u %%, or by less than %d us.\n",
			changes->count - changes->large, changes->bound, CHANGES_NS_MIN / NS_PER_US);
}
