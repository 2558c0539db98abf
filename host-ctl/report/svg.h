/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SVG within a page: rectangles, lines and words at places in pixels. Words are of a font of one width, so
 * that what a word takes is known before it is drawn (SVG_CHARACTER). Every word given is escaped here.
 * Colours are classes, which the page's style sheet defines for light and dark.
 */
#ifndef HOST_CTL_SVG_H
#define HOST_CTL_SVG_H

#include <stdint.h>
#include <stdio.h>

#define SVG_CHARACTER 6.7 /* pixels of one character, at the size of the style sheet, rounded up */

enum { SVG_TICKS_MAX = 16, SVG_LABEL_MAX = 64 };

enum svg_anchor { SVG_START, SVG_MIDDLE, SVG_END };

/* Text for HTML and for attributes: the characters that mean something there are escaped. */
void svg_escape(FILE *to, const char *text);

/* title: what the picture is, for who cannot see it. */
void svg_begin(FILE *to, double width, double height, const char *title);
void svg_end(FILE *to);

/* tip: what is shown beside the pointer; NULL: nothing. Widths below half a pixel are drawn as that. */
void svg_rectangle(
	FILE *to, const char *class, double x, double y, double width, double height, const char *tip);
void svg_line(FILE *to, const char *class, double x1, double y1, double x2, double y2);
/* Cut off with an ellipsis, the whole of it as the tip, when it takes more than `room` pixels. */
void svg_word(FILE *to, const char *class, double x, double y, enum svg_anchor anchor, double room,
	const char *word);
double svg_width(const char *word);

/* ---- scales ---- */

/* From nanoseconds to pixels. */
struct svg_scale {
	double left, width; /* of the pixels */
	uint64_t end;	    /* ns at the right edge; at least 1 */
};
double svg_place(const struct svg_scale *scale, uint64_t ns);

/* The step between ticks: 1, 2 or 5 times a power of ten, so that there are at most `most`. At least 1. */
uint64_t svg_tick_step(uint64_t end, unsigned most);
/* A time as short as it can be read at that step: "0", "50 ms", "1.5 s". */
void svg_tick_label(char label[SVG_LABEL_MAX], uint64_t ns, uint64_t step);

#endif
