/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sample.h - what is said of the times of one point: order statistics,
 * and how many times a size is worth measuring. Free of weft, so that the
 * peers' bench measures by the very same rules.
 */
#ifndef PERF_SAMPLE_H
#define PERF_SAMPLE_H

#include <stddef.h>
#include <stdint.h>

typedef struct wefti_sample {
    double median_us, p10_us, p90_us, min_us, max_us, mean_us, p99_us;
    double deviation_us; /* from the mean, of these times */
} wefti_sample;

/* Sorts times_ns; count at least 1. Between two values it interpolates. */
wefti_sample wefti_sample_get(int64_t *times_ns, size_t count);

/* Where no number was asked for: timed calls, and untimed ones before. */
int wefti_sample_iterations(size_t bytes);
int wefti_sample_warmup(int iterations);

/* How many buffers a point goes round in, so that none is warm by itself. */
int wefti_sample_copies(size_t bytes);

#endif
