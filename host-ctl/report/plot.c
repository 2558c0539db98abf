/* SPDX-License-Identifier: Apache-2.0 */
/* What the pictures share, and the two without a scale of time. */
#include "host-ctl/report/plot.h"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
	TICKS_MOST = 12,
	TICK_LABEL_HEIGHT = 14,
	BAR_HEIGHT = 12,
	BAR_STEP = 19,
	BAR_LABEL = 300,
	BAR_NUMBER = 110,
	BAR_GAP = 24,
	MEMORY_HEIGHT = 90,
	MEMORY_COLUMNS = 457,
	MIB = 1 << 20,
	BASELINE = 4, /* of a word below the middle of its row */
};

int plot_begin(struct plot *plot, const struct report *report, uint64_t end)
{
	*plot = (struct plot){
		.report = report,
		.scale = {.left = PLOT_LEFT,
			.width = PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT,
			.end = end ? end : 1},
	};
	plot->body = open_memstream(&plot->text, &plot->length);
	return plot->body ? 0 : -ENOMEM;
}

void plot_end(struct plot *plot, FILE *to, const char *title)
{
	if (fclose(plot->body) == 0) {
		svg_begin(to, PLOT_WIDTH, plot->y, title);
		fwrite(plot->text, 1, plot->length, to);
		svg_end(to);
	}
	free(plot->text);
}

void plot_append(struct plot *plot, struct plot *other)
{
	if (fclose(other->body) == 0)
		fwrite(other->text, 1, other->length, plot->body);
	free(other->text);
	plot->y = other->y;
}

void plot_axis(struct plot *plot, double top)
{
	uint64_t step = svg_tick_step(plot->scale.end, TICKS_MOST);
	char label[SVG_LABEL_MAX];

	for (uint64_t ns = 0; ns <= plot->scale.end; ns += step) {
		double x = svg_place(&plot->scale, ns);

		svg_tick_label(label, ns, step);
		svg_line(plot->body, "grid", x, top, x, plot->y + 3);
		svg_word(plot->body, "tick", x, plot->y + TICK_LABEL_HEIGHT, SVG_MIDDLE, PLOT_WIDTH, label);
		if (step > plot->scale.end - ns)
			break;
	}
	plot->y += TICK_LABEL_HEIGHT + 4;
}

void plot_label(struct plot *plot, const char *name, double height)
{
	svg_word(plot->body, "label", PLOT_LEFT - 10, plot->y + height / 2 + BASELINE, SVG_END,
		PLOT_LEFT - 14, name);
}

const char *plot_colour_name(const struct report *report, unsigned colour)
{
	const struct report *palette = report->palette ? report->palette : report;
	const struct report_rows *list = &palette->lists[REPORT_DEVICES];

	if (colour < PLOT_COLOURS - 1)
		return colour < list->count ? list->rows[colour].name : NULL;
	return list->count > PLOT_COLOURS - 1 || palette != report ? "others" : NULL;
}

unsigned plot_colour(const struct report *report, const char *name)
{
	for (unsigned i = 0; i < PLOT_COLOURS - 1; i++) {
		const char *known = plot_colour_name(report, i);

		if (known && strcmp(known, name) == 0)
			return i;
	}
	return PLOT_COLOURS - 1;
}

/* ---- bars ---- */

struct column {
	double left, width;
	uint64_t largest;
	bool time;
};

static uint64_t value_of(const struct report_row *row, bool time)
{
	return time ? row->ns : row->count;
}

static void draw_bar(
	struct plot *plot, const struct column *column, const struct report_row *row, unsigned colour)
{
	double room = column->width - BAR_NUMBER, width;
	uint64_t value = value_of(row, column->time);
	char class[16], text[REPORT_TIME_TEXT];

	width = column->largest ? room * ((double)value / (double)column->largest) : 0;
	snprintf(class, sizeof(class), "c%u", colour);
	if (column->time)
		report_format_time(text, value);
	else
		snprintf(text, sizeof(text), "%" PRIu64, value);
	svg_rectangle(plot->body, class, column->left, plot->y, width, BAR_HEIGHT, NULL);
	svg_word(plot->body, "number", column->left + width + 6, plot->y + BAR_HEIGHT - 2, SVG_START,
		BAR_NUMBER, text);
}

static void draw_bar_row(struct plot *plot, const struct column *columns, size_t count,
	const struct report_row *row, unsigned colour)
{
	char label[PLOT_TEXT_MAX];

	snprintf(label, sizeof(label), "%s%s%s", row->name, row->detail[0] ? "  " : "", row->detail);
	svg_word(plot->body, "label", BAR_LABEL - 10, plot->y + BAR_HEIGHT - 2, SVG_END, BAR_LABEL - 14,
		label);
	for (size_t i = 0; i < count; i++)
		draw_bar(plot, &columns[i], row, colour);
	plot->y += BAR_STEP;
}

void plot_bars(FILE *to, const struct report *report, enum report_list which)
{
	const struct report_shape *shape = &report_shapes[which];
	const struct report_rows *list = &report->lists[which];
	size_t columns = (size_t)shape->counts + (size_t)shape->times;
	double width = (PLOT_WIDTH - BAR_LABEL - BAR_GAP * (double)(columns - 1)) / (double)columns;
	struct column all[2];
	struct plot plot;

	if (list->count == 0 || plot_begin(&plot, report, 1) < 0)
		return;
	for (size_t i = 0; i < columns; i++) {
		all[i] = (struct column){.left = BAR_LABEL + (double)i * (width + BAR_GAP), .width = width};
		all[i].time = i == 1 || !shape->counts;
		for (size_t j = 0; j < list->count; j++)
			if (value_of(&list->rows[j], all[i].time) > all[i].largest)
				all[i].largest = value_of(&list->rows[j], all[i].time);
		svg_word(
			plot.body, "head", all[i].left, 12, SVG_START, width, all[i].time ? "time" : "count");
	}
	plot.y = 22;
	for (size_t i = 0; i < list->count && i < PLOT_BARS_MAX; i++) {
		bool of_device = which == REPORT_DEVICES || which == REPORT_REGISTERS;

		draw_bar_row(&plot, all, columns, &list->rows[i],
			of_device ? plot_colour(report, list->rows[i].name) : 0);
	}
	plot_end(&plot, to, shape->title);
}

/* ---- memory ---- */

/* The share of touched pages of column i: the mean of its blocks, or the block that it is part of. */
static double memory_share(const struct trace *trace, size_t i)
{
	size_t from = i * trace->block_count / MEMORY_COLUMNS,
	       until = (i + 1) * trace->block_count / MEMORY_COLUMNS;
	double pages = (double)trace->block / (double)trace->page, sum = 0;

	if (until <= from)
		until = from + 1;
	for (size_t block = from; block < until; block++)
		sum += trace->blocks[block];
	return sum / pages / (double)(until - from);
}

/* How much memory lies before a place; and where another region begins, with its address. */
static void draw_places(struct plot *plot, double top, double bottom)
{
	const struct trace *trace = plot->report->trace;
	uint64_t blocks = trace->block_count, mib = blocks * trace->block / MIB,
		 step = svg_tick_step(mib, TICKS_MOST);
	char label[SVG_LABEL_MAX];

	for (uint64_t i = 0; i <= mib && mib; i += step) {
		double x = PLOT_LEFT + plot->scale.width * ((double)i / (double)mib);

		svg_line(plot->body, "edge", x, bottom, x, bottom + 4);
		snprintf(label, sizeof(label), "%" PRIu64 "%s", i, i ? " MiB" : "");
		svg_word(plot->body, "tick", x, bottom + 16, SVG_MIDDLE, PLOT_WIDTH, label);
	}
	for (size_t i = 0; i < trace->region_count && blocks; i++) {
		double x = PLOT_LEFT + plot->scale.width * ((double)trace->regions[i].first / (double)blocks);

		/* It may be too near to the end, or to another one, for its address; but for the edge it is
		 * not. */
		if (trace->regions[i].address)
			svg_line(plot->body, "mark", x, top, x, bottom);
	}
}

void plot_memory(FILE *to, const struct report *report)
{
	const struct trace *trace = report->trace;
	double width = (PLOT_WIDTH - PLOT_LEFT - PLOT_RIGHT) / (double)MEMORY_COLUMNS, bottom;
	struct plot plot;
	char tip[SVG_LABEL_MAX];

	if (trace->block_count == 0 || plot_begin(&plot, report, 1) < 0)
		return;
	plot.y = 8;
	bottom = plot.y + MEMORY_HEIGHT;
	svg_rectangle(plot.body, "lane", PLOT_LEFT, plot.y, plot.scale.width, MEMORY_HEIGHT, NULL);
	svg_word(plot.body, "tick", PLOT_LEFT - 10, plot.y + 8, SVG_END, PLOT_LEFT, "100 %");
	svg_word(plot.body, "tick", PLOT_LEFT - 10, bottom, SVG_END, PLOT_LEFT, "0 %");
	plot_label(&plot, "pages touched", MEMORY_HEIGHT);
	for (size_t i = 0; i < MEMORY_COLUMNS; i++) {
		double share = memory_share(trace, i), height = share * MEMORY_HEIGHT;

		if (share <= 0)
			continue;
		snprintf(tip, sizeof(tip), "%.0f %%", share * 100);
		svg_rectangle(
			plot.body, "c2", PLOT_LEFT + (double)i * width, bottom - height, width, height, tip);
	}
	draw_places(&plot, plot.y, bottom);
	plot.y = bottom + 20;
	plot_end(&plot, to, "Pages of guest memory that were touched, by address");
}
