/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/svg.c - the few elements that pictures of machines are made of.
 */
#include "topo/svg.h"

#include "base/utf8.h"

#include <string.h>

/* Names come from files. */
static void put_text(FILE *file, const char *text, int bytes)
{
    for (int i = 0, step; i < bytes; i += step) {
        const unsigned char *c = (const unsigned char *)text + i;
        step = (int)wefti_utf8_step(c, (size_t)(bytes - i));
        if (step == 0 || *c < ' ' || *c == 0x7f) {
            fputc('?', file);
            step = 1;
        } else if (strchr("&<>\"", *c)) {
            fprintf(file, "&#%d;", *c);
        } else {
            fwrite(c, 1, (size_t)step, file);
        }
    }
}

static int letters_in(double width, int size)
{
    int letters = (int)(width / (WEFTI_SVG_LETTER * size));
    return letters > 0 ? letters : 0;
}

/* Cut between words where there are several. */
static int cut(const char *text, int most)
{
    int bytes = (int)strlen(text);
    if (bytes <= most) {
        return bytes;
    }
    for (bytes = most; bytes > 0 && !strchr(" -/", text[bytes]);) {
        bytes--;
    }
    bytes = bytes > 0 ? bytes : most;
    while (bytes > 0 && ((unsigned char)text[bytes] & 0xc0) == 0x80) {
        bytes--; /* not inside a character */
    }
    return bytes;
}

static void write_text(FILE *file, wefti_svg_anchor anchor, double x, double y,
                       int size, const char *colour, const char *text,
                       int bytes)
{
    fprintf(file, "<text x=\"%.1f\" y=\"%.1f\" font-size=\"%d\" fill=\"%s\"%s>",
            x, y, size, colour,
            anchor == WEFTI_SVG_MIDDLE ? " text-anchor=\"middle\"" : "");
    put_text(file, text, bytes);
    fputs("</text>\n", file);
}

void wefti_svg_text(FILE *file, wefti_svg_anchor anchor, double x, double y,
                    int size, const char *colour, double width,
                    const char *text)
{
    int bytes = cut(text, letters_in(width, size));
    if (bytes > 0) {
        write_text(file, anchor, x, y, size, colour, text, bytes);
    }
}

void wefti_svg_halo(FILE *file, double x, double y, int size,
                    const char *colour, double width, const char *text)
{
    fputs("<g paint-order=\"stroke\" stroke=\"#fafafa\" stroke-width=\"3\">",
          file);
    wefti_svg_text(file, WEFTI_SVG_START, x, y, size, colour, width, text);
    fputs("</g>\n", file);
}

double wefti_svg_wrap(FILE *file, double x, double y, int size,
                      const char *colour, double width, const char *text)
{
    int most = letters_in(width, size);
    while (*text && most > 0) {
        int bytes = (int)strlen(text);
        if (bytes > most) {
            for (bytes = most; bytes > 0 && text[bytes] != ' ';) {
                bytes--;
            }
            bytes = bytes > 0 ? bytes : most;
        }
        if (file) {
            write_text(file, WEFTI_SVG_START, x, y, size, colour, text, bytes);
        }
        y += size + 4;
        text += bytes;
        text += *text == ' ';
    }
    return y;
}

void wefti_svg_box(FILE *file, double x, double y, double width, double height,
                   const char *fill, const char *stroke)
{
    fprintf(file,
            "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" "
            "rx=\"5\" fill=\"%s\" stroke=\"%s\"/>\n",
            x - width / 2, y - height / 2, width, height, fill, stroke);
}

void wefti_svg_draw_line(FILE *file, const wefti_svg_line *line)
{
    fprintf(file, "<path d=\"M%.1f %.1f ", line->x1, line->y1);
    if (line->bend != 0) { /* its middle lies half as far as what it bends to */
        fprintf(file, "Q%.1f %.1f ", (line->x1 + line->x2) / 2,
                (line->y1 + line->y2) / 2 + 2 * line->bend);
    } else {
        fputs("L", file);
    }
    fprintf(file,
            "%.1f %.1f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s>"
            "<title>",
            line->x2, line->y2, line->colour, line->width,
            line->dashed ? " stroke-dasharray=\"5 4\"" : "");
    put_text(file, line->title, (int)strlen(line->title));
    fputs("</title></path>\n", file);
}
