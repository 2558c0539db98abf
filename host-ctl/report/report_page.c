/* SPDX-License-Identifier: Apache-2.0 */
/* One report, or two beside each other, as a page of HTML that is well-formed XML too. */
#include "host-ctl/report/plot.h"
#include <inttypes.h>
#include <string.h>

/* The colours of c0 to c7 are told apart with any kind of colour vision, on light and on dark. */
/* clang-format off */
#define LIGHT "--page:#ffffff;--panel:#f5f6f8;--ink:#1c2128;--dim:#5b6470;--line:#d9dde3;--guest:#bcd4ec;--vmm:#c2410c;" \
	"--stage:#dfe8d8;--odd:#cbd9c0;--phase:#4a7ab5;--inner:#9dbbdc;--mark:#b0235f;--more:#b42318;--less:#14713f;" \
	"--c0:#0b6bb3;--c1:#d3720a;--c2:#178a62;--c3:#b3518f;--c4:#8c7a00;--c5:#6857c9;--c6:#2f9fc4;--c7:#7d8590"
#define DARK "--page:#14171b;--panel:#1d2127;--ink:#e6e9ed;--dim:#9aa4b0;--line:#343b44;--guest:#284866;--vmm:#f0883e;" \
	"--stage:#2e3b2c;--odd:#3d4d39;--phase:#5f93d3;--inner:#37577e;--mark:#f27aa8;--more:#ff8f85;--less:#5fd08f;" \
	"--c0:#58a6ea;--c1:#f0a045;--c2:#4fc79b;--c3:#e08cc0;--c4:#d0bd4c;--c5:#a79af5;--c6:#6dcbe8;--c7:#8b949e"
static const char style[] =
	":root{color-scheme:light dark;" LIGHT "}\n"
	"@media (prefers-color-scheme:dark){:root{" DARK "}}\n"
	"@media print{:root{color-scheme:light;" LIGHT "}*{print-color-adjust:exact;-webkit-print-color-adjust:exact}"
	"section,svg,tr{break-inside:avoid}body{margin:0;max-width:none}}\n"
	"@page{size:A4 landscape;margin:12mm}\n"
	"*{box-sizing:border-box}\n"
	"body{margin:0 auto;max-width:1208px;padding:24px;background:var(--page);color:var(--ink);"
	"font:14px/1.45 system-ui,\"DejaVu Sans\",sans-serif}\n"
	"h1{font-size:22px;margin:0 0 2px}h2{font-size:16px;margin:34px 0 8px}h3{font-size:14px;margin:20px 0 6px}\n"
	"p{margin:2px 0;color:var(--dim);overflow-wrap:anywhere}p.warn{color:var(--more)}\n"
	"code,td,svg text{font-family:ui-monospace,\"DejaVu Sans Mono\",Menlo,Consolas,monospace}\n"
	"svg{display:block;max-width:100%;height:auto}svg text{font-size:11px;fill:var(--ink)}\n"
	".tiles{display:flex;flex-wrap:wrap;gap:10px;margin:18px 0 0}\n"
	".tile{background:var(--panel);border:1px solid var(--line);border-radius:6px;padding:8px 14px;min-width:150px}\n"
	".tile b{display:block;font-size:20px;font-weight:600;white-space:nowrap}.tile span{color:var(--dim);font-size:12px}\n"
	"table{border-collapse:collapse;margin:0 0 8px;min-width:min(100%,680px)}th,td{padding:2px 12px 2px 0;text-align:right;font-size:12px}\n"
	"th{color:var(--dim);font-weight:500;border-bottom:1px solid var(--line);white-space:nowrap}td{border-bottom:1px solid var(--line)}\n"
	"th:first-child,td:first-child,.left{text-align:left;overflow-wrap:anywhere}tr:last-child td{border-bottom:0}\n"
	"h2.part{font-size:20px;border-top:2px solid var(--line);padding-top:16px}td.more{color:var(--more)}td.less{color:var(--less)}\n"
	"svg .tick,svg .dim,svg .head{fill:var(--dim)}svg .markname{fill:var(--mark)}svg .onbar{fill:#fff}\n"
	"svg .grid{stroke:var(--line)}svg .edge{stroke:var(--dim)}svg .mark{stroke:var(--mark);stroke-dasharray:3 3}\n"
	"svg .lane{fill:var(--panel)}svg .guest{fill:var(--guest)}svg .vmm{fill:var(--vmm)}svg .stage{fill:var(--stage)}\n"
	"svg .odd{fill:var(--odd)}svg .phase{fill:var(--phase)}svg .inner{fill:var(--inner)}\n"
	"svg .c0{fill:var(--c0)}svg .c1{fill:var(--c1)}svg .c2{fill:var(--c2)}svg .c3{fill:var(--c3)}\n"
	"svg .c4{fill:var(--c4)}svg .c5{fill:var(--c5)}svg .c6{fill:var(--c6)}svg .c7{fill:var(--c7)}\n";
/* clang-format on */

static void put(FILE *to, const char *before, const char *text, const char *after)
{
	fputs(before, to);
	svg_escape(to, text);
	fputs(after, to);
}

/* ---- the head ---- */

static void put_tile(FILE *to, const char *figure, const char *what)
{
	put(to, "<div class=\"tile\"><b>", figure, "</b><span>");
	put(to, "", what, "</span></div>\n");
}

static void put_time_tile(FILE *to, uint64_t ns, const char *what)
{
	char text[REPORT_TIME_TEXT];

	report_format_time(text, ns);
	put_tile(to, text, what);
}

static void put_count_tile(FILE *to, uint64_t count, const char *what)
{
	char text[REPORT_TIME_TEXT];

	snprintf(text, sizeof(text), "%" PRIu64, count);
	put_tile(to, text, what);
}

static void put_tiles(FILE *to, const struct report *report)
{
	uint64_t value;

	fputs("<div class=\"tiles\">\n", to);
	put_time_tile(to, report->end,
		report->scope == TRACE_BOOT ? "start to the agent's hello" : "the whole trace");
	put_count_tile(to, report->returns, "returns of KVM_RUN");
	put_time_tile(to, report->guest_ns, "in the guest, all vCPUs");
	put_time_tile(to, report->handle_ns, "handling its exits");
	put_count_tile(to, report->ioctls, "ioctls of KVM, but KVM_RUN");
	put_time_tile(to, report->ioctl_ns, "in ioctls of KVM");
	put_count_tile(to, report->irqs, "interrupts raised");
	if (report_find_counter(report, "kvm pf_fixed", &value))
		put_count_tile(to, value, "nested page faults (pf_fixed)");
	if (report->trace->page)
		put_count_tile(to, report->trace->touched, "pages of memory touched");
	fputs("</div>\n", to);
}

static void put_what(FILE *to, const struct report *report)
{
	const struct trace *trace = report->trace;
	char text[TRACE_NOTE_MAX];

	report_describe(report, text, sizeof(text));
	put(to, "<p><code>", report->file, "</code>: ");
	put(to, "", text, "</p>\n");
	if (trace->command[0])
		put(to, "<p><code>", trace->command, "</code></p>\n");
	if (trace->kernel_cmdline[0])
		put(to, "<p>kernel: <code>", trace->kernel_cmdline, "</code></p>\n");
	if (trace->end[0])
		put(to, "<p>end: ", trace->end, "</p>\n");
	if (!trace->has_hello)
		fputs("<p class=\"warn\">The agent never said hello: this is of all that was traced.</p>\n",
			to);
	if (trace->dropped)
		fprintf(to,
			"<p class=\"warn\">%" PRIu64
			" events did not fit: counts are whole, the timeline is not.</p>\n",
			trace->dropped);
}

/* ---- tables ---- */

static void put_ms(FILE *to, uint64_t ns)
{
	char text[REPORT_TIME_TEXT];

	report_format_ms(text, ns);
	fprintf(to, "<td>%s</td>", text);
}

static void put_row(FILE *to, const struct report_shape *shape, const struct report_row *row)
{
	fputs("<tr><td>", to);
	for (unsigned i = 0; i < row->depth; i++)
		fputs("&#160;&#160;", to);
	put(to, "", row->name, row->detail[0] ? " &#160;" : "");
	put(to, "", row->detail, "</td>");
	if (shape->counts)
		fprintf(to, "<td>%" PRIu64 "</td>", row->count);
	if (shape->starts)
		put_ms(to, row->start);
	if (shape->times)
		put_ms(to, row->ns);
	if (shape->guest)
		put_ms(to, row->guest_ns);
	fputs("</tr>\n", to);
}

static void put_table(FILE *to, const struct report *report, enum report_list which)
{
	const struct report_shape *shape = &report_shapes[which];
	const struct report_rows *list = &report->lists[which];
	size_t more = list->count > REPORT_PAGE_ROWS ? list->count - REPORT_PAGE_ROWS : 0;

	if (list->count == 0)
		return;
	put(to, "<h3>", shape->title, "</h3>\n<table>\n<tr><th>");
	put(to, "", shape->one, "</th>");
	fprintf(to, "%s%s%s%s</tr>\n", shape->counts ? "<th>count</th>" : "",
		shape->starts ? "<th>from, ms</th>" : "", shape->times ? "<th>took, ms</th>" : "",
		shape->guest ? "<th>before it in the guest, ms</th>" : "");
	for (size_t i = 0; i < list->count - more; i++)
		put_row(to, shape, &list->rows[i]);
	fputs("</table>\n", to);
	if (more + list->left_out)
		fprintf(to, "<p>… and %zu more.</p>\n", more + list->left_out);
}

static void put_tables(FILE *to, const struct report *report)
{
	fputs("<section><h2>All figures</h2>\n", to);
	for (size_t i = 0; i < REPORT_LISTS; i++)
		put_table(to, report, (enum report_list)i);
	fputs("</section>\n", to);
}

/* ---- pictures ---- */

static void put_bars(FILE *to, const struct report *report, enum report_list which)
{
	const struct report_rows *list = &report->lists[which];

	if (list->count == 0)
		return;
	put(to, "<section><h2>", report_shapes[which].title, "</h2>\n");
	plot_bars(to, report, which);
	if (list->count > PLOT_BARS_MAX)
		fprintf(to, "<p>… and %zu more, in the table below.</p>\n", list->count - PLOT_BARS_MAX);
	fputs("</section>\n", to);
}

static void put_memory(FILE *to, const struct report *report)
{
	const struct trace *trace = report->trace;

	if (trace->block_count == 0)
		return;
	fprintf(to,
		"<section><h2>Guest memory</h2>\n<p>%" PRIu64 " pages of %" PRIu64
		" KiB are there at the trace's end, by guest-physical address.</p>\n",
		trace->touched, trace->page / 1024);
	plot_memory(to, report);
	fputs("</section>\n", to);
}

static void put_pictures(FILE *to, const struct report *report, uint64_t end, uint64_t setup_end)
{
	fputs("<section><h2>Timeline</h2>\n", to);
	plot_timeline(to, report, end);
	fputs("</section>\n", to);
	if (report->lists[REPORT_PHASES].count) {
		fputs("<section><h2>vmm, before the guest runs</h2>\n", to);
		plot_setup(to, report, setup_end);
		fputs("</section>\n", to);
	}
}

/* ---- changes ---- */

static void put_value(FILE *to, const struct change *change, uint64_t value, const char *sign)
{
	char text[REPORT_TIME_TEXT];

	if (change->unit == CHANGE_NS)
		report_format_ms(text, value);
	else
		snprintf(text, sizeof(text), "%" PRIu64, value);
	fprintf(to, "%s%s", sign, text);
}

static void put_change(FILE *to, const struct change *change)
{
	bool more = change->after > change->before;

	put(to, "<tr><td>", change->name, change->detail[0] ? " &#160;" : "");
	put(to, "", change->detail, "</td>");
	fprintf(to, "<td>%s</td><td>", change->unit == CHANGE_NS ? "ms" : "count");
	put_value(to, change, change->before, "");
	fputs("</td><td>", to);
	put_value(to, change, change->after, "");
	fprintf(to, "</td><td class=\"%s\">", more ? "more" : "less");
	put_value(to, change, more ? change->after - change->before : change->before - change->after,
		more ? "+" : "−");
	if (change->before && change->after)
		fprintf(to, "</td><td>%+.1f %%</td></tr>\n",
			((double)change->after / (double)change->before - 1) * 100);
	else
		fprintf(to, "</td><td>%s</td></tr>\n", change->before ? "gone" : "new");
}

static void put_changes(FILE *to, const struct changes *changes)
{
	size_t shown = changes->large < REPORT_PAGE_ROWS ? changes->large : REPORT_PAGE_ROWS;

	fputs("<section><h2>What changed</h2>\n", to);
	for (size_t i = 0; i < shown; i++) {
		const struct change *change = &changes->changes[i];

		if (i == 0 || change->place != changes->changes[i - 1].place) {
			put(to, i ? "</table>\n<h3>" : "<h3>", changes_place_title(change), "</h3>\n");
			fputs("<table>\n<tr><th>name</th><th>in</th><th>before</th><th>after</"
			      "th><th>difference</th><th></th></tr>\n",
				to);
		}
		put_change(to, change);
	}
	fputs(shown ? "</table>\n" : "", to);
	fprintf(to,
		"<p>%zu more differ. Times that do so by no more than %u %%, or by less than %d µs, are "
		"among them.</p>\n</section>\n",
		changes->count - shown, changes->bound, CHANGES_NS_MIN / 1000);
}

/* ---- the page ---- */

static void put_details(FILE *to, const struct report *report)
{
	put_bars(to, report, REPORT_DEVICES);
	put_bars(to, report, REPORT_IOCTLS);
	put_bars(to, report, REPORT_INITCALLS);
	put_memory(to, report);
	put_tables(to, report);
}

void report_write_page(FILE *to, const struct report *reports, size_t count, const struct changes *changes)
{
	uint64_t end = 1, setup_end = 1;

	for (size_t i = 0; i < count; i++) {
		uint64_t setup = plot_setup_end(&reports[i]);

		end = reports[i].end > end ? reports[i].end : end;
		setup_end = setup > setup_end ? setup : setup_end;
	}
	fputs("<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta "
	      "charset=\"utf-8\"/>\n"
	      "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>",
		to);
	put(to, "Boot report: ", reports[0].file, "</title>\n<style>\n");
	fputs(style, to);
	fputs("</style>\n</head>\n<body>\n<h1>Boot report</h1>\n", to);
	for (size_t i = 0; i < count; i++) {
		if (count > 1)
			fprintf(to, "<h2>%s</h2>\n", i ? "After" : "Before");
		put_what(to, &reports[i]);
		put_tiles(to, &reports[i]);
	}
	if (changes)
		put_changes(to, changes);
	for (size_t i = 0; i < count; i++) {
		if (count > 1)
			fprintf(to, "<h2 class=\"part\">%s, on one scale</h2>\n", i ? "After" : "Before");
		put_pictures(to, &reports[i], end, setup_end);
	}
	for (size_t i = 0; i < count; i++) {
		if (count > 1)
			fprintf(to, "<h2 class=\"part\">%s, in full</h2>\n", i ? "After" : "Before");
		put_details(to, &reports[i]);
	}
	fputs("</body>\n</html>\n", to);
}
