/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/chart.c - frame, ticks, lines, bands and dots.
 */
#include "trainer/report/chart.h"

#include <math.h>
#include <stdbool.h>

enum {
    WIDTH = 960,
    HEIGHT = 280,
    LEFT = 64,
    RIGHT = 12,
    TOP = 26,
    BOTTOM = 40,
    TICKS = 5, /* about so many */
    DOT = 5    /* a dot at the edge is whole */
};

static double place_x(const wefti_chart *chart, double x)
{
    return LEFT + (x - chart->x_least) / (chart->x_most - chart->x_least) *
                      (WIDTH - LEFT - RIGHT);
}

static double place_y(const wefti_chart *chart, double y)
{
    return HEIGHT - BOTTOM -
           (y - chart->y_least) / (chart->y_most - chart->y_least) *
               (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten: about TICKS of them in the span. */
static double tick_of(double span)
{
    double raw = span / TICKS;
    double power = pow(10, floor(log10(raw)));
    double times = raw / power;
    return power * (times <= 1 ? 1 : times <= 2 ? 2 : times <= 5 ? 5 : 10);
}

/* "1.5k", "2M": short, and exact at round numbers. */
static void put_number(FILE *file, double value, double tick)
{
    double size = fabs(value);
    int digits = tick < 1 ? (int)ceil(-log10(tick) - 1e-9) : 0;
    if (size >= 1e6) {
        fprintf(file, "%.4gM", value / 1e6);
    } else if (size >= 1e4) {
        fprintf(file, "%.4gk", value / 1e3);
    } else {
        fprintf(file, "%.*f", digits, fabs(value) < tick / 2 ? 0 : value);
    }
}

static void put_ticks_y(const wefti_chart *chart)
{
    double tick = tick_of(chart->y_most - chart->y_least);
    double first = ceil(chart->y_least / tick - 1e-9);
    int count = (int)floor(chart->y_most / tick + 1e-9 - first) + 1;
    for (int k = 0; k < count; k++) {
        double at = (first + k) * tick;
        double y = place_y(chart, at);
        fprintf(chart->file,
                "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" "
                "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
                LEFT, y, WIDTH - RIGHT, LEFT - 8, y + 4);
        put_number(chart->file, at, tick);
        fputs("</text>\n", chart->file);
    }
}

/* Steps are whole numbers. */
static void put_ticks_x(const wefti_chart *chart)
{
    double tick = fmax(1, tick_of((chart->x_most - chart->x_least) / 2));
    double first = ceil(chart->x_least / tick - 1e-9);
    int count = (int)floor(chart->x_most / tick + 1e-9 - first) + 1;
    for (int k = 0; k < count; k++) {
        double at = (first + k) * tick;
        double x = place_x(chart, at);
        fprintf(chart->file,
                "<path class=\"mark\" d=\"M%.1f %dv5\"/><text class=\"tick\" "
                "x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                x, HEIGHT - BOTTOM, x, HEIGHT - BOTTOM + 18);
        put_number(chart->file, at, tick);
        fputs("</text>\n", chart->file);
    }
}

void wefti_chart_open(wefti_chart *chart, FILE *file, int number,
                      const char *title, const char *x_name, const char *y_name,
                      double x_least, double x_most, double y_least,
                      double y_most)
{
    if (!(y_most > y_least)) {
        double about = fmax(fabs(y_least) / 10, 1e-3);
        y_least -= about;
        y_most = y_least + 2 * about;
    }
    bool one = !(x_most > x_least);
    *chart = (wefti_chart){.file = file,
                           .number = number,
                           .x_least = one ? x_least - 0.5 : x_least,
                           .x_most = one ? x_least + 0.5 : x_most,
                           .y_least = y_least,
                           .y_most = y_most};
    fprintf(file,
            "<svg class=\"chart\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "aria-label=\"%s\">\n<title>%s</title>\n"
            "<defs><clipPath id=\"clip%d\"><rect x=\"%d\" y=\"%d\" "
            "width=\"%d\" height=\"%d\"/></clipPath></defs>\n",
            WIDTH, HEIGHT, title, title, number, LEFT - DOT, TOP,
            WIDTH - LEFT - RIGHT + 2 * DOT, HEIGHT - TOP - BOTTOM + 1);
    put_ticks_y(chart);
    put_ticks_x(chart);
    fprintf(file,
            "<path class=\"axis\" d=\"M%d %dH%d\"/>\n"
            "<text class=\"name\" x=\"%d\" y=\"14\">%s</text>\n"
            "<text class=\"name\" x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">%s</text>\n<g clip-path=\"url(#clip%d)\">\n",
            LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, LEFT, y_name, WIDTH - RIGHT,
            HEIGHT - 6, x_name, number);
}

void wefti_chart_line(const wefti_chart *chart, const char *class_name,
                      const double *x, const double *y, size_t count)
{
    bool open = false;
    fprintf(chart->file, "<path class=\"line %s\" d=\"", class_name);
    for (size_t k = 0; k < count; k++) {
        if (isnan(y[k])) {
            open = false;
            continue;
        }
        fprintf(chart->file, "%c%.1f %.1f", open ? 'L' : 'M',
                place_x(chart, x[k]), place_y(chart, y[k]));
        open = true;
    }
    fputs("\"/>\n", chart->file);
}

void wefti_chart_band(const wefti_chart *chart, const char *class_name,
                      const double *x, const double *low, const double *high,
                      size_t count)
{
    bool open = false;
    fprintf(chart->file, "<path class=\"band %s\" d=\"", class_name);
    for (size_t k = 0; k < count; k++) {
        if (!isnan(high[k])) {
            fprintf(chart->file, "%c%.1f %.1f", open ? 'L' : 'M',
                    place_x(chart, x[k]), place_y(chart, high[k]));
            open = true;
        }
    }
    for (size_t k = count; k-- > 0;) {
        if (!isnan(low[k])) {
            fprintf(chart->file, "L%.1f %.1f", place_x(chart, x[k]),
                    place_y(chart, low[k]));
        }
    }
    fputs(open ? "Z\"/>\n" : "\"/>\n", chart->file);
}

void wefti_chart_dots(const wefti_chart *chart, const char *class_name,
                      const double *x, const double *y, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        if (!isnan(y[k])) {
            fprintf(chart->file,
                    "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" "
                    "r=\"4\"/>\n",
                    class_name, place_x(chart, x[k]), place_y(chart, y[k]));
        }
    }
}

void wefti_chart_close(const wefti_chart *chart)
{
    fputs("</g>\n</svg>\n", chart->file);
}
