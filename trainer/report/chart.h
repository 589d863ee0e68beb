/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/chart.h - curves as inline SVG: a frame with ticks at round
 * numbers, and in it lines, bands and dots.
 *
 * Colours are the page's: an element has a class, and the page's style says
 * what that is by day, by night and in print. Points whose value is NAN are
 * left out, and a line is broken there. What lies above the frame is cut.
 */
#ifndef TRAINER_REPORT_CHART_H
#define TRAINER_REPORT_CHART_H

#include <stddef.h>
#include <stdio.h>

typedef struct wefti_chart {
    FILE *file;
    int number; /* distinguishes charts of one page */
    double x_least, x_most, y_least, y_most;
} wefti_chart;

/*
 * wefti_chart_open - the frame; y_least .. y_most are widened to round numbers
 * unless most is cut.
 *
 * number  of the chart on its page.
 * title   what it shows, for screen readers.
 * x_name  below the axis; y_name above it.
 */
void wefti_chart_open(wefti_chart *chart, FILE *file, int number,
                      const char *title, const char *x_name, const char *y_name,
                      double x_least, double x_most, double y_least,
                      double y_most);

void wefti_chart_line(const wefti_chart *chart, const char *class_name,
                      const double *x, const double *y, size_t count);
/* The area between low and high. */
void wefti_chart_band(const wefti_chart *chart, const char *class_name,
                      const double *x, const double *low, const double *high,
                      size_t count);
void wefti_chart_dots(const wefti_chart *chart, const char *class_name,
                      const double *x, const double *y, size_t count);

void wefti_chart_close(const wefti_chart *chart);

#endif
