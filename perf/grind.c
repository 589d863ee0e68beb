/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/grind.c - the stand-in for a model's compute.
 */
#include "perf/grind.h"

#include "base/clock.h"

void wefti_grind_init(wefti_grind *grind)
{
    for (int i = 0; i < WEFTI_GRIND_SIDE; i++) {
        for (int j = 0; j < WEFTI_GRIND_SIDE; j++) {
            grind->a[i][j] = 1.0f / (float)(1 + i + j);
            grind->b[i][j] = i == j ? 1.0f : 0.0f;
            grind->c[i][j] = 0.0f;
        }
    }
    grind->row = 0;
}

void wefti_grind_run(wefti_grind *grind, size_t rows)
{
    for (; rows > 0; rows--) {
        float *c = grind->c[grind->row];
        const float *a = grind->a[grind->row];
        for (int j = 0; j < WEFTI_GRIND_SIDE; j++) {
            c[j] = 0.0f;
        }
        for (int k = 0; k < WEFTI_GRIND_SIDE; k++) {
            const float *b = grind->b[k];
            for (int j = 0; j < WEFTI_GRIND_SIDE; j++) {
                c[j] += a[k] * b[j];
            }
        }
        grind->row = (grind->row + 1) % WEFTI_GRIND_SIDE;
    }
}

double wefti_grind_row_ns(wefti_grind *grind)
{
    const int64_t enough_ns = 5000000;
    size_t rows = 64;
    for (;;) {
        /* CPU time: what others take of this core is not the row's length. */
        int64_t begin_ns = wefti_clock_thread_ns();
        wefti_grind_run(grind, rows);
        int64_t time_ns = wefti_clock_thread_ns() - begin_ns;
        if (time_ns >= enough_ns) {
            return (double)time_ns / (double)rows;
        }
        rows *= 2;
    }
}
