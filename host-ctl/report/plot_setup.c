/* SPDX-License-Identifier: Apache-2.0 */
/* vmm's own part, before the guest runs: a row for each phase, the ioctls of KVM below. */
#include "host-ctl/report/plot.h"
#include <string.h>

enum { ROW = 17, BAR = 11, IOCTL_LANE = 20 };

uint64_t plot_setup_end(const struct report *report)
{
	const struct trace *trace = report->trace;
	const struct report_rows *phases = &report->lists[REPORT_PHASES];
	uint64_t end = 1;

	for (size_t i = 0; i < trace->event_count; i++) {
		const char *name = trace->names[trace->events[i].name];

		if (trace->events[i].kind == TRACE_MARK &&
			(!strcmp(name, "kernel") || !strcmp(name, "resume")) && trace->events[i].start > 0)
			return trace->events[i].start;
	}
	for (size_t i = 0; i < phases->count; i++)
		if (phases->rows[i].start + phases->rows[i].ns > end)
			end = phases->rows[i].start + phases->rows[i].ns;
	return end;
}

/* The label stands behind its bar, before it, or in it: where there is room, tried in this order. */
static void draw_phase(struct plot *plot, const struct report_row *row)
{
	double left = svg_place(&plot->scale, row->start),
	       right = svg_place(&plot->scale, row->start + row->ns);
	const char *class = row->depth ? "dim" : "label";
	char time[REPORT_TIME_TEXT], label[PLOT_TEXT_MAX];
	double behind = PLOT_WIDTH - right - 8, before = left - PLOT_LEFT - 8, base = plot->y + ROW - 5,
	       width;

	report_format_time(time, row->ns);
	snprintf(label, sizeof(label), "%s  %s", row->name, time);
	width = svg_width(label);
	svg_rectangle(plot->body, row->depth ? "phase inner" : "phase", left, plot->y + (ROW - BAR) / 2.0,
		right - left > 1 ? right - left : 1, BAR, label);
	if (width <= behind || (width > before && width > right - left && behind >= before))
		svg_word(plot->body, class, right + 6, base, SVG_START, behind, label);
	else if (width <= before)
		svg_word(plot->body, class, left - 6, base, SVG_END, before, label);
	else
		svg_word(plot->body, "onbar", left + 6, base, SVG_START, right - left - 10, label);
	plot->y += ROW;
}

static void draw_ioctls(struct plot *plot)
{
	const struct trace *trace = plot->report->trace;
	char tip[PLOT_TEXT_MAX], time[REPORT_TIME_TEXT];
	double last = -1;

	svg_rectangle(plot->body, "lane", PLOT_LEFT, plot->y, plot->scale.width, IOCTL_LANE, NULL);
	plot_label(plot, "ioctls of KVM", IOCTL_LANE);
	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];
		double left = svg_place(&plot->scale, event->start),
		       right = svg_place(&plot->scale, event->start + event->duration);

		/* One that lies wholly in what is drawn already would not be seen. */
		if (event->kind != TRACE_IOCTL || event->start > plot->scale.end || right < last + 0.25)
			continue;
		report_format_time(time, event->duration);
		snprintf(tip, sizeof(tip), "%s  %s", trace->names[event->name], time);
		svg_rectangle(plot->body, "c1", left, plot->y + 3, right - left, IOCTL_LANE - 6, tip);
		last = right;
	}
	plot->y += IOCTL_LANE + 6;
}

void plot_setup(FILE *to, const struct report *report, uint64_t end)
{
	const struct report_rows *phases = &report->lists[REPORT_PHASES];
	size_t shown = 0;
	struct plot plot, rows;

	for (size_t i = 0; i < phases->count && shown < PLOT_ROWS_MAX; i++)
		shown += phases->rows[i].start < end;
	if (shown == 0 || plot_begin(&plot, report, end) < 0)
		return;
	if (plot_begin(&rows, report, end) == 0) {
		rows.y = 2;
		shown = 0;
		for (size_t i = 0; i < phases->count && shown < PLOT_ROWS_MAX; i++) {
			if (phases->rows[i].start >= end)
				continue;
			draw_phase(&rows, &phases->rows[i]);
			shown++;
		}
		rows.y += 4;
		draw_ioctls(&rows);
		plot.y = rows.y;
		plot_axis(&plot, 0);
		rows.y = plot.y;
		plot_append(&plot, &rows);
	}
	plot_end(&plot, to, "Phases of vmm before the guest runs");
}
