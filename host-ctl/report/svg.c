/* SPDX-License-Identifier: Apache-2.0 */
#include "host-ctl/report/svg.h"
#include <string.h>

enum { NS_PER_US = 1000, NS_PER_MS = 1000000, NS_PER_S = 1000000000 };

#define LEAST_WIDTH 0.5

void svg_escape(FILE *to, const char *text)
{
	for (; *text; text++) {
		switch (*text) {
		case '&':
			fputs("&amp;", to);
			break;
		case '<':
			fputs("&lt;", to);
			break;
		case '>':
			fputs("&gt;", to);
			break;
		case '"':
			fputs("&quot;", to);
			break;
		case '\'':
			fputs("&#39;", to);
			break;
		default:
			putc(*text, to);
		}
	}
}

void svg_begin(FILE *to, double width, double height, const char *title)
{
	fprintf(to,
		"<svg viewBox=\"0 0 %.0f %.0f\" width=\"%.0f\" height=\"%.0f\" role=\"img\" aria-label=\"",
		width, height, width, height);
	svg_escape(to, title);
	fputs("\">\n", to);
}

void svg_end(FILE *to)
{
	fputs("</svg>\n", to);
}

/* Ends an element, with its tip if it has one. */
static void end_element(FILE *to, const char *name, const char *tip)
{
	if (!tip) {
		fputs("/>\n", to);
		return;
	}
	fputs("><title>", to);
	svg_escape(to, tip);
	fprintf(to, "</title></%s>\n", name);
}

void svg_rectangle(
	FILE *to, const char *class, double x, double y, double width, double height, const char *tip)
{
	if (width < LEAST_WIDTH)
		width = LEAST_WIDTH;
	fprintf(to, "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"", class, x, y,
		width, height);
	end_element(to, "rect", tip);
}

void svg_line(FILE *to, const char *class, double x1, double y1, double x2, double y2)
{
	fprintf(to, "<line class=\"%s\" x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\"/>\n", class, x1, y1,
		x2, y2);
}

double svg_width(const char *word)
{
	return (double)strlen(word) * SVG_CHARACTER;
}

void svg_word(FILE *to, const char *class, double x, double y, enum svg_anchor anchor, double room,
	const char *word)
{
	static const char *const anchors[] = {
		[SVG_START] = "start", [SVG_MIDDLE] = "middle", [SVG_END] = "end"};
	size_t fits = room > 0 ? (size_t)(room / SVG_CHARACTER) : 0;
	char shown[SVG_LABEL_MAX * 2];

	if (fits == 0)
		return;
	fprintf(to, "<text class=\"%s\" x=\"%.2f\" y=\"%.2f\" text-anchor=\"%s\">", class, x, y,
		anchors[anchor]);
	if (strlen(word) <= fits) {
		svg_escape(to, word);
	} else {
		/* Not in the middle of a character. */
		for (fits--; fits > 0 && ((unsigned char)word[fits] & 0xC0) == 0x80;)
			fits--;
		snprintf(shown, sizeof(shown), "%.*s", (int)fits, word);
		svg_escape(to, shown);
		fputs("&#8230;<title>", to);
		svg_escape(to, word);
		fputs("</title>", to);
	}
	fputs("</text>\n", to);
}

/* ---- scales ---- */

double svg_place(const struct svg_scale *scale, uint64_t ns)
{
	if (ns > scale->end)
		ns = scale->end;
	return scale->left + scale->width * ((double)ns / (double)scale->end);
}

uint64_t svg_tick_step(uint64_t end, unsigned most)
{
	static const unsigned factors[] = {1, 2, 5};

	for (uint64_t power = 1; power <= UINT64_MAX / 50; power *= 10)
		for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++)
			if (end / (power * factors[i]) <= most)
				return power * factors[i];
	return UINT64_MAX;
}

void svg_tick_label(char label[SVG_LABEL_MAX], uint64_t ns, uint64_t step)
{
	static const struct {
		uint64_t ns;
		const char *name;
	} units[] = {{NS_PER_S, "s"}, {NS_PER_MS, "ms"}, {NS_PER_US, "µs"}, {1, "ns"}};
	size_t i = 0;

	if (ns == 0) {
		snprintf(label, SVG_LABEL_MAX, "0");
		return;
	}
	/* The largest unit of which a tenth still tells two ticks apart. */
	while (step * 10 < units[i].ns)
		i++;
	if (ns % units[i].ns == 0 && step % units[i].ns == 0)
		snprintf(label, SVG_LABEL_MAX, "%llu %s", (unsigned long long)(ns / units[i].ns),
			units[i].name);
	else
		snprintf(label, SVG_LABEL_MAX, "%.1f %s", (double)ns / (double)units[i].ns, units[i].name);
}
