/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pictures of a page. Each is drawn into memory first, from the top down, since its height is known only
 * at its end. None grows with the number of events: what is narrower than a column is summed in it.
 */
#ifndef HOST_CTL_PLOT_H
#define HOST_CTL_PLOT_H

#include "host-ctl/report/report_show.h"
#include "host-ctl/report/svg.h"

enum {
	PLOT_WIDTH = 1160,
	PLOT_LEFT = 130,    /* of what has a scale; labels stand before it */
	PLOT_RIGHT = 116,   /* behind it: what its colours mean, and the ends of words */
	PLOT_COLOURS = 8,   /* classes c0 to c7; the last is that of all others */
	PLOT_ROWS_MAX = 60, /* of phases */
	PLOT_BARS_MAX = 25, /* of a list */
	PLOT_TEXT_MAX = 2 * REPORT_NAME_MAX + REPORT_TIME_TEXT,
};

struct plot {
	FILE *body;
	char *text;
	size_t length;
	double y; /* the next free pixel */
	const struct report *report;
	struct svg_scale scale;
};

/* end: of the scale. 0 or -ENOMEM. */
int plot_begin(struct plot *plot, const struct report *report, uint64_t end);
/* Writes it as one picture, and is done with it. */
void plot_end(struct plot *plot, FILE *to, const char *title);
/* Adds to `plot` what another one has drawn, which is done with then. */
void plot_append(struct plot *plot, struct plot *other);
/* Lines down from `top` to y, ticks' labels below. */
void plot_axis(struct plot *plot, double top);
/* A name before the scale, in the middle of a row of that height. */
void plot_label(struct plot *plot, const char *name, double height);

/* The colour of a device, or a reason: by its place among those with the most exits. */
unsigned plot_colour(const struct report *report, const char *name);
/* The name of a colour; NULL: it has none. That of the last is "others". */
const char *plot_colour_name(const struct report *report, unsigned colour);

/* Each draws one picture to the page; end: of the scale, the same for two that are compared. */
void plot_timeline(FILE *to, const struct report *report, uint64_t end);
void plot_setup(FILE *to, const struct report *report, uint64_t end);
void plot_bars(FILE *to, const struct report *report, enum report_list list);
void plot_memory(FILE *to, const struct report *report);

/* When the guest was entered first; else the end of the last phase. */
uint64_t plot_setup_end(const struct report *report);

#endif
