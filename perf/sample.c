/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sample.c - order statistics of measured times.
 */
#include "perf/sample.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* share 0 .. 1 of the sorted times, in microseconds; rises with share. */
static double quantile_us(const int64_t *times_ns, size_t count, double share)
{
    double place = share * (double)(count - 1);
    size_t below = (size_t)place;
    size_t above = below + 1 < count ? below + 1 : below;
    double part = place - (double)below;
    double step_ns = (double)(times_ns[above] - times_ns[below]);
    return ((double)times_ns[below] + step_ns * part) / 1e3;
}

wefti_sample wefti_sample_get(int64_t *times_ns, size_t count)
{
    double sum_ns = 0;
    qsort(times_ns, count, sizeof(*times_ns), by_value);
    for (size_t i = 0; i < count; i++) {
        sum_ns += (double)times_ns[i];
    }
    const double mean_us = sum_ns / (double)count / 1e3;
    double squares = 0;
    for (size_t i = 0; i < count; i++) {
        const double off_us = (double)times_ns[i] / 1e3 - mean_us;
        squares += off_us * off_us;
    }
    return (wefti_sample){.median_us = quantile_us(times_ns, count, 0.5),
                          .p10_us = quantile_us(times_ns, count, 0.1),
                          .p90_us = quantile_us(times_ns, count, 0.9),
                          .min_us = quantile_us(times_ns, count, 0.0),
                          .max_us = quantile_us(times_ns, count, 1.0),
                          .mean_us = mean_us,
                          .p99_us = quantile_us(times_ns, count, 0.99),
                          .deviation_us = sqrt(squares / (double)count)};
}

int wefti_sample_iterations(size_t bytes)
{
    const size_t kib = 1024, mib = 1024 * kib;
    return bytes <= 64 * kib  ? 300
           : bytes <= mib     ? 100
           : bytes <= 8 * mib ? 40
                              : 15;
}

int wefti_sample_warmup(int iterations)
{
    return iterations / 10 + 3;
}

int wefti_sample_copies(size_t bytes)
{
    return bytes <= (size_t)8 << 20 ? 4 : 2;
}
