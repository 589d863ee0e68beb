/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rotary embedding: the table in double, the turn in place.
 */
#include "kernels/math/rope.h"

#include "base/check.h"
#include "kernels/math/level.h"

#include <math.h>

void WEFTI_LEVEL(rope_table)(real *table, const int32_t *positions,
                             int64_t first, size_t tokens, size_t head_size,
                             double theta)
{
    size_t half = head_size / 2;

    WEFTI_ASSERT(head_size % 2 == 0);
    for (size_t i = 0; i < half; i++) {
        double turn = pow(theta, -2.0 * (double)i / (double)head_size);

        for (size_t t = 0; t < tokens; t++) {
            double at =
                positions ? (double)positions[t] : (double)(first + (int64_t)t);

            table[t * head_size + i] = (real)cos(at * turn);
            table[t * head_size + half + i] = (real)sin(at * turn);
        }
    }
}

/* One head turned by +1 (forward) or -1 (backward) times the table's angle. */
static inline void turn_head(real *restrict x, const real *restrict table,
                             size_t half, real sign)
{
    for (size_t i = 0; i < half; i++) {
        real c = table[i], s = sign * table[half + i];
        real a = x[i], b = x[half + i];

        x[i] = a * c - b * s;
        x[half + i] = b * c + a * s;
    }
}

void WEFTI_LEVEL(rope_forward)(real *x, const real *table, size_t tokens,
                               size_t heads, size_t head_size, size_t x_stride)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++)
            turn_head(x + t * x_stride + h * head_size, table + t * head_size,
                      head_size / 2, 1);
}

void WEFTI_LEVEL(rope_backward)(real *x, const real *table, size_t tokens,
                                size_t heads, size_t head_size, size_t x_stride)
{
    for (size_t t = 0; t < tokens; t++)
        for (size_t h = 0; h < heads; h++)
            turn_head(x + t * x_stride + h * head_size, table + t * head_size,
                      head_size / 2, -1);
}
