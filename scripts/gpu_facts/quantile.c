// SPDX-License-Identifier: BSD-3-Clause
/*
 * Clock and quantiles of the questions.
 */
#include "facts.h"

#include <stdlib.h>
#include <time.h>

double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double quantile(double *values, int count, double at)
{
    qsort(values, (size_t)count, sizeof(*values), compare);
    int i = (int)(at * (count - 1) + 0.5);
    return values[i];
}

void fact_spread(const char *name, double *values, int count, const char *unit,
                 const char *how)
{
    char text[256], tail[72];
    snprintf(text, sizeof(text), "median of %d: %s", count, how);
    fact_number(name, quantile(values, count, 0.5), unit, text);
    snprintf(tail, sizeof(tail), "%s_p99", name);
    snprintf(text, sizeof(text), "99th percentile of %d: %s", count, how);
    fact_number(tail, quantile(values, count, 0.99), unit, text);
}
