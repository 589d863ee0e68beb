/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/grind.h - arithmetic of a known length, as a GEMM would keep a core
 * busy: rows of a small matrix product, all in the first two cache levels.
 */
#ifndef PERF_GRIND_H
#define PERF_GRIND_H

#include <stddef.h>

enum { WEFTI_GRIND_SIDE = 64 };

typedef struct wefti_grind {
    float a[WEFTI_GRIND_SIDE][WEFTI_GRIND_SIDE];
    float b[WEFTI_GRIND_SIDE][WEFTI_GRIND_SIDE];
    float c[WEFTI_GRIND_SIDE][WEFTI_GRIND_SIDE];
    size_t row; /* next to be made */
} wefti_grind;

void wefti_grind_init(wefti_grind *grind);

/* Makes so many rows of c = a b: 2 * 64 * 64 operations each. */
void wefti_grind_run(wefti_grind *grind, size_t rows);

/* How long a row takes on this thread now; takes about 10 ms. */
double wefti_grind_row_ns(wefti_grind *grind);

#endif
