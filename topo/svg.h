/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/svg.h - boxes, lines and texts of a picture. How wide a text is cannot
 * be known here; it is taken for wider than any usual font makes it, and cut
 * where it would leave its place.
 */
#ifndef TOPO_SVG_H
#define TOPO_SVG_H

#include <stdbool.h>
#include <stdio.h>

/* Of a letter, in parts of the size of the font. */
#define WEFTI_SVG_LETTER 0.62

typedef enum wefti_svg_anchor {
    WEFTI_SVG_START,
    WEFTI_SVG_MIDDLE
} wefti_svg_anchor;

/* x is the start or the middle; what is longer than the width is cut. */
void wefti_svg_text(FILE *file, wefti_svg_anchor anchor, double x, double y,
                    int size, const char *colour, double width,
                    const char *text);

/* From x on, with a bright edge that keeps it apart from what it stands on. */
void wefti_svg_halo(FILE *file, double x, double y, int size,
                    const char *colour, double width, const char *text);

/* Over as many lines as it takes, broken at blanks; the y below the last. file
 * NULL: only how far down it would go. */
double wefti_svg_wrap(FILE *file, double x, double y, int size,
                      const char *colour, double width, const char *text);

/* A box round its centre. */
void wefti_svg_box(FILE *file, double x, double y, double width, double height,
                   const char *fill, const char *stroke);

/* A line whose title is what the mouse shows; bend moves its middle up or down,
 * 0: straight. */
typedef struct wefti_svg_line {
    double x1, y1, x2, y2, bend, width;
    const char *colour;
    bool dashed;
    const char *title;
} wefti_svg_line;

void wefti_svg_draw_line(FILE *file, const wefti_svg_line *line);

#endif
