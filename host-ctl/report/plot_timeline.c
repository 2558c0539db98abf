/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The whole time in one picture: marks and what lies between them, what each vCPU did, which devices it left
 * the guest for, and what the devices did.
 */
#include "host-ctl/report/plot.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	COLUMNS = 457, /* of two pixels */
	BINS = 183,    /* of five: exits */
	CPUS_MAX = 8,
	MARKS_MAX = 64,
	MARK_ROWS = 8,
	MARK_HEIGHT = 15,
	STAGE_HEIGHT = 24,
	CPU_HEIGHT = 30,
	EXITS_HEIGHT = 104,
	ROW_HEIGHT = 14,
	KEY_HEIGHT = 13,
	ROWS_MAX = 6, /* of interrupts, and of queues */
	GAP = 8,
};

struct mark {
	const char *name;
	uint64_t at;
	double x, left, right; /* of the line; of the label */
	int row;	       /* -1: no room for its label */
};

struct marks {
	struct mark marks[MARKS_MAX];
	size_t count;
	int rows;
};

/* ---- marks ---- */

/* The line goes down from the label's row, and the label stands behind it: so a mark whose line would cross
 * the label of an earlier one has a lower row. They come from left to right. */
static void place_mark(struct marks *marks, struct mark *mark)
{
	mark->left = mark->x + 4;
	mark->right = mark->left + svg_width(mark->name) + 4;
	mark->row = 0;
	for (size_t i = 0; i < marks->count; i++) {
		const struct mark *other = &marks->marks[i];

		if (other->row >= mark->row && other->right > mark->x)
			mark->row = other->row + 1;
	}
	if (mark->row >= MARK_ROWS || mark->right > PLOT_WIDTH)
		mark->row = -1;
	else if (mark->row >= marks->rows)
		marks->rows = mark->row + 1;
}

static void find_marks(struct marks *marks, const struct plot *plot)
{
	const struct trace *trace = plot->report->trace;

	*marks = (struct marks){0};
	for (size_t i = 0; i < trace->event_count && marks->count < MARKS_MAX; i++) {
		struct mark *mark = &marks->marks[marks->count];

		if (trace->events[i].kind != TRACE_MARK || trace->events[i].start > plot->report->end)
			continue;
		*mark = (struct mark){
			.name = trace->names[trace->events[i].name], .at = trace->events[i].start};
		mark->x = svg_place(&plot->scale, mark->at);
		place_mark(marks, mark);
		marks->count++;
	}
}

static void draw_marks(struct plot *plot, const struct marks *marks, double bottom)
{
	char time[REPORT_TIME_TEXT], label[PLOT_TEXT_MAX];

	for (size_t i = 0; i < marks->count; i++) {
		const struct mark *mark = &marks->marks[i];
		double top = mark->row < 0 ? marks->rows * MARK_HEIGHT : mark->row * MARK_HEIGHT;

		svg_line(plot->body, "mark", mark->x, top, mark->x, bottom);
		if (mark->row < 0)
			continue;
		report_format_time(time, mark->at);
		snprintf(label, sizeof(label), "%s at %s", mark->name, time);
		fprintf(plot->body, "<g><title>");
		svg_escape(plot->body, label);
		fprintf(plot->body, "</title>");
		svg_word(plot->body, "markname", mark->left, top + MARK_HEIGHT - 4, SVG_START, PLOT_WIDTH,
			mark->name);
		fprintf(plot->body, "</g>\n");
	}
}

static void draw_stages(struct plot *plot)
{
	const struct report_rows *stages = &plot->report->lists[REPORT_STAGES];
	char time[REPORT_TIME_TEXT], label[PLOT_TEXT_MAX];

	plot_label(plot, "between marks", STAGE_HEIGHT);
	for (size_t i = 0; i < stages->count && i < MARKS_MAX; i++) {
		const struct report_row *stage = &stages->rows[i];
		double left = svg_place(&plot->scale, stage->start),
		       width = svg_place(&plot->scale, stage->start + stage->ns) - left;

		report_format_time(time, stage->ns);
		snprintf(label, sizeof(label), "%s  %s", stage->name, time);
		svg_rectangle(
			plot->body, i % 2 ? "stage odd" : "stage", left, plot->y, width, STAGE_HEIGHT, label);
		/* Its time, and its name with it, only where they fit. */
		if (svg_width(label) + 8 <= width)
			svg_word(plot->body, "inside", left + width / 2, plot->y + STAGE_HEIGHT - 8,
				SVG_MIDDLE, width, label);
		else if (svg_width(time) + 8 <= width)
			svg_word(plot->body, "inside", left + width / 2, plot->y + STAGE_HEIGHT - 8,
				SVG_MIDDLE, width, time);
	}
	plot->y += STAGE_HEIGHT + GAP;
}

/* ---- vCPUs ---- */

struct cpu {
	uint64_t from, until;	 /* first entry, last moment that is known */
	double outside[COLUMNS]; /* ns in vmm */
	bool runs;
};

/* Gives each column its part of a span of time. */
static void add_span(double *columns, const struct svg_scale *scale, uint64_t start, uint64_t length)
{
	double each = (double)scale->end / COLUMNS, from = (double)start, until = from + (double)length;

	for (size_t i = (size_t)(from / each); i < COLUMNS && (double)i * each < until; i++) {
		double left = from > (double)i * each ? from : (double)i * each;
		double right = until < (double)(i + 1) * each ? until : (double)(i + 1) * each;

		columns[i] += right > left ? right - left : 0;
	}
}

static void collect_cpu(const struct plot *plot, uint32_t lane, struct cpu *cpu)
{
	const struct trace *trace = plot->report->trace;

	*cpu = (struct cpu){0};
	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];
		uint64_t entered = event->start > event->guest ? event->start - event->guest : 0;

		if (event->kind != TRACE_EXIT || event->lane != lane || entered > plot->scale.end)
			continue;
		if (!cpu->runs || entered < cpu->from)
			cpu->from = entered;
		if (event->start + event->duration > cpu->until)
			cpu->until = event->start + event->duration;
		cpu->runs = true;
		if (event->start < plot->scale.end)
			add_span(cpu->outside, &plot->scale, event->start, event->duration);
	}
}

static void draw_cpu(struct plot *plot, unsigned number)
{
	double each = (double)plot->scale.end / COLUMNS, width = plot->scale.width / COLUMNS, left, right;
	struct cpu cpu;
	char tip[SVG_LABEL_MAX], name[16];

	collect_cpu(plot, number + 1, &cpu);
	if (!cpu.runs)
		return;
	snprintf(name, sizeof(name), "cpu%u", number);
	plot_label(plot, name, CPU_HEIGHT);
	left = svg_place(&plot->scale, cpu.from);
	right = svg_place(&plot->scale, cpu.until);
	svg_rectangle(plot->body, "guest", left, plot->y, right - left, CPU_HEIGHT, "in the guest");
	for (size_t i = 0; i < COLUMNS; i++) {
		double share = cpu.outside[i] / each < 1 ? cpu.outside[i] / each : 1;

		if (share <= 0)
			continue;
		snprintf(tip, sizeof(tip), "%.0f %% of this moment in vmm", share * 100);
		svg_rectangle(plot->body, "vmm", PLOT_LEFT + (double)i * width,
			plot->y + CPU_HEIGHT * (1 - share), width, CPU_HEIGHT * share, tip);
	}
	plot->y += CPU_HEIGHT + GAP;
}

/* A square of colour and what it means, behind the scale. */
static void draw_key(struct plot *plot, double *y, const char *class, const char *name)
{
	const double x = PLOT_WIDTH - PLOT_RIGHT + 8;

	svg_rectangle(plot->body, class, x, *y + 2, 9, 9, NULL);
	svg_word(plot->body, "key", x + 14, *y + 11, SVG_START, PLOT_RIGHT - 24, name);
	*y += KEY_HEIGHT;
}

static void draw_cpus(struct plot *plot)
{
	double y = plot->y, top = plot->y;

	for (unsigned i = 0; i < CPUS_MAX; i++)
		draw_cpu(plot, i);
	if (plot->y == top)
		return;
	draw_key(plot, &y, "guest", "in the guest");
	draw_key(plot, &y, "vmm", "in vmm");
}

/* ---- exits ---- */

struct exits {
	unsigned counts[BINS][PLOT_COLOURS];
	unsigned most; /* of a bin */
};

/* The colour of each name of the trace; the caller's. */
static unsigned char *colour_names(const struct report *report)
{
	const struct trace *trace = report->trace;
	unsigned char *colours = malloc(trace->name_count + 1);

	for (size_t i = 0; colours && i < trace->name_count; i++)
		colours[i] = (unsigned char)plot_colour(report, trace->names[i]);
	return colours;
}

static void count_exits(const struct plot *plot, const unsigned char *colours, struct exits *exits)
{
	const struct trace *trace = plot->report->trace;

	memset(exits, 0, sizeof(*exits));
	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];
		size_t bin = (size_t)((double)event->start / (double)plot->scale.end * BINS);

		if (event->kind != TRACE_EXIT || event->start > plot->report->end)
			continue;
		exits->counts[bin < BINS ? bin : BINS - 1][colours[event->name]]++;
	}
	for (size_t bin = 0; bin < BINS; bin++) {
		unsigned sum = 0;

		for (size_t i = 0; i < PLOT_COLOURS; i++)
			sum += exits->counts[bin][i];
		exits->most = sum > exits->most ? sum : exits->most;
	}
}

static void draw_bin(struct plot *plot, const struct exits *exits, size_t bin, double bottom)
{
	double width = plot->scale.width / BINS;
	char class[16], tip[PLOT_TEXT_MAX];
	const char *name;

	for (size_t i = 0; i < PLOT_COLOURS; i++) {
		double height = (double)exits->counts[bin][i] / exits->most * EXITS_HEIGHT;

		if (exits->counts[bin][i] == 0)
			continue;
		snprintf(class, sizeof(class), "c%zu", i);
		name = plot_colour_name(plot->report, (unsigned)i);
		snprintf(tip, sizeof(tip), "%u of %s", exits->counts[bin][i], name ? name : "others");
		bottom -= height;
		svg_rectangle(
			plot->body, class, PLOT_LEFT + (double)bin * width, bottom, width - 0.6, height, tip);
	}
}

static void draw_exits_key(struct plot *plot)
{
	double y = plot->y;
	char class[16];

	for (unsigned i = 0; i < PLOT_COLOURS; i++) {
		const char *name = plot_colour_name(plot->report, i);

		snprintf(class, sizeof(class), "c%u", i);
		if (name)
			draw_key(plot, &y, class, name);
	}
}

static void draw_exits(struct plot *plot, const unsigned char *colours)
{
	char time[REPORT_TIME_TEXT], label[SVG_LABEL_MAX];
	struct exits exits;

	count_exits(plot, colours, &exits);
	if (exits.most == 0)
		return;
	draw_exits_key(plot);
	svg_rectangle(plot->body, "lane", PLOT_LEFT, plot->y, plot->scale.width, EXITS_HEIGHT, NULL);
	report_format_time(time, plot->scale.end / BINS);
	snprintf(label, sizeof(label), "exits / %s", time);
	plot_label(plot, label, EXITS_HEIGHT);
	snprintf(label, sizeof(label), "%u", exits.most);
	svg_word(plot->body, "tick", PLOT_LEFT - 10, plot->y + 8, SVG_END, PLOT_LEFT - 14, label);
	svg_word(plot->body, "tick", PLOT_LEFT - 10, plot->y + EXITS_HEIGHT, SVG_END, PLOT_LEFT - 14, "0");
	for (size_t bin = 0; bin < BINS; bin++)
		draw_bin(plot, &exits, bin, plot->y + EXITS_HEIGHT);
	plot->y += EXITS_HEIGHT + GAP;
}

/* ---- what devices did ---- */

static void draw_row(
	struct plot *plot, enum trace_kind kind, const char *what, const char *name, unsigned colour)
{
	const struct trace *trace = plot->report->trace;
	double width = plot->scale.width / COLUMNS;
	unsigned counts[COLUMNS] = {0};
	char label[PLOT_TEXT_MAX], class[16], tip[SVG_LABEL_MAX];

	for (size_t i = 0; i < trace->event_count; i++) {
		const struct trace_event *event = &trace->events[i];
		size_t column = (size_t)((double)event->start / (double)plot->scale.end * COLUMNS);

		if (event->kind == kind && event->start <= plot->report->end &&
			strcmp(trace->names[event->name], name) == 0)
			counts[column < COLUMNS ? column : COLUMNS - 1]++;
	}
	snprintf(label, sizeof(label), "%s %s", what, name);
	snprintf(class, sizeof(class), "c%u", colour);
	plot_label(plot, label, ROW_HEIGHT);
	svg_rectangle(plot->body, "lane", PLOT_LEFT, plot->y + 1, plot->scale.width, ROW_HEIGHT - 2, NULL);
	for (size_t i = 0; i < COLUMNS; i++) {
		if (counts[i] == 0)
			continue;
		snprintf(tip, sizeof(tip), "%u here", counts[i]);
		svg_rectangle(plot->body, class, PLOT_LEFT + (double)i * width, plot->y + 1, width,
			ROW_HEIGHT - 2, tip);
	}
	plot->y += ROW_HEIGHT;
}

/* Has the list had that name already? Several queues, or pins, may be of one. */
static bool is_again(const struct report_rows *list, size_t row)
{
	for (size_t i = 0; i < row; i++)
		if (strcmp(list->rows[i].name, list->rows[row].name) == 0)
			return true;
	return false;
}

/* A row for each name of the list, in the order of their colours. */
static void draw_rows(struct plot *plot, enum trace_kind kind, enum report_list which, const char *what)
{
	const struct report_rows *list = &plot->report->lists[which];
	size_t shown = 0;

	for (unsigned colour = 0; colour < PLOT_COLOURS; colour++) {
		for (size_t i = 0; i < list->count && shown < ROWS_MAX; i++) {
			const char *name = list->rows[i].name;

			if (plot_colour(plot->report, name) != colour || is_again(list, i))
				continue;
			draw_row(plot, kind, what, name, colour);
			shown++;
		}
	}
	plot->y += shown ? GAP : 0;
}

static void draw_initcalls(struct plot *plot)
{
	const struct report_rows *list = &plot->report->lists[REPORT_INITCALLS];
	char time[REPORT_TIME_TEXT], tip[PLOT_TEXT_MAX];

	if (list->count == 0)
		return;
	plot_label(plot, "initcalls", ROW_HEIGHT);
	svg_rectangle(plot->body, "lane", PLOT_LEFT, plot->y + 1, plot->scale.width, ROW_HEIGHT - 2, NULL);
	/* Those that take a pixel or so; the others would only be a blur. */
	for (size_t i = 0; i < list->count && i < COLUMNS; i++) {
		double left = svg_place(&plot->scale, list->rows[i].start);

		report_format_time(time, list->rows[i].ns);
		snprintf(tip, sizeof(tip), "%s  %s", list->rows[i].name, time);
		svg_rectangle(plot->body, "c5", left, plot->y + 1,
			svg_place(&plot->scale, list->rows[i].start + list->rows[i].ns) - left,
			ROW_HEIGHT - 2, tip);
	}
	plot->y += ROW_HEIGHT + GAP;
}

/* ---- the picture ---- */

static void draw_lanes(struct plot *plot, const unsigned char *colours)
{
	draw_stages(plot);
	draw_cpus(plot);
	draw_exits(plot, colours);
	draw_rows(plot, TRACE_IRQ, REPORT_IRQS, "irq");
	draw_rows(plot, TRACE_NOTIFY, REPORT_NOTIFICATIONS, "queue");
	draw_initcalls(plot);
}

void plot_timeline(FILE *to, const struct report *report, uint64_t end)
{
	unsigned char *colours = colour_names(report);
	struct plot back, front;
	struct marks marks;

	if (!colours || plot_begin(&back, report, end) < 0) {
		free(colours);
		return;
	}
	find_marks(&marks, &back);
	back.y = marks.rows * MARK_HEIGHT + 2;
	if (plot_begin(&front, report, end) == 0) {
		front.y = back.y;
		draw_lanes(&front, colours);
		draw_marks(&front, &marks, front.y);
		back.y = front.y;
		plot_axis(&back, marks.rows * MARK_HEIGHT + 2);
		front.y = back.y;
		plot_append(&back, &front);
	}
	plot_end(&back, to, "Timeline");
	free(colours);
}
