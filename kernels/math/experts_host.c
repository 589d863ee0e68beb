/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rows by expert: their order, their way there and back, and products.
 */
#include "kernels/math/experts.h"

#include "base/check.h"
#include "kernels/math/level.h"

#include <string.h>

/* Counted, summed up to where each begins, and counted again as they go. */
void WEFTI_LEVEL(expert_order)(int32_t *counts, int32_t *place,
                               const int32_t *expert, size_t tokens,
                               size_t slots, size_t experts)
{
    int32_t begin = 0;
    memset(counts, 0, experts * sizeof(*counts));
    for (size_t i = 0; i < tokens * slots; i++) {
        WEFTI_ASSERT(expert[i] < (int32_t)experts);
        if (expert[i] >= 0) {
            counts[expert[i]]++;
        }
    }
    for (size_t e = 0; e < experts; e++) {
        int32_t count = counts[e];
        counts[e] = begin;
        begin += count;
    }
    for (size_t i = 0; i < tokens * slots; i++) {
        place[i] = expert[i] >= 0 ? counts[expert[i]]++ : -1;
    }
    for (size_t e = experts; e > 1; e--) { /* ends, which are the next begins */
        counts[e - 1] -= counts[e - 2];
    }
}

void WEFTI_LEVEL(expert_load)(double *load, const int32_t *expert,
                              size_t tokens, size_t slots, size_t experts)
{
    for (size_t i = 0; i < tokens * slots; i++) {
        WEFTI_ASSERT(expert[i] < (int32_t)experts);
        if (expert[i] >= 0) {
            load[expert[i]]++;
        }
    }
    (void)experts;
}

void WEFTI_LEVEL(expert_spread)(real *rows, const real *x, const int32_t *place,
                                const real *weight, size_t tokens, size_t slots,
                                size_t width)
{
    for (size_t i = 0; i < tokens * slots; i++) {
        const real *from = x + i / slots * width;
        const real factor = weight ? weight[i] : 1;
        if (place[i] < 0) {
            continue;
        }
        real *to = rows + (size_t)place[i] * width;
        for (size_t k = 0; k < width; k++) {
            to[k] = factor * from[k];
        }
    }
}

void WEFTI_LEVEL(expert_collect)(real *x, const real *rows,
                                 const int32_t *place, const real *weight,
                                 size_t tokens, size_t slots, size_t width)
{
    memset(x, 0, tokens * width * sizeof(*x));
    for (size_t i = 0; i < tokens * slots; i++) {
        real *to = x + i / slots * width;
        const real factor = weight ? weight[i] : 1;
        if (place[i] < 0) {
            continue;
        }
        const real *from = rows + (size_t)place[i] * width;
        for (size_t k = 0; k < width; k++) {
            to[k] += factor * from[k];
        }
    }
}

static real dot(const real *a, const real *b, size_t width)
{
    enum { PARTS = 16 }; /* sums of their own: lanes of a vector */
    real sums[PARTS] = {0}, sum = 0;
    size_t k = 0;
    for (; k + PARTS <= width; k += PARTS) {
        for (size_t n = 0; n < PARTS; n++) {
            sums[n] += a[k + n] * b[k + n];
        }
    }
    for (; k < width; k++) {
        sum += a[k] * b[k];
    }
    for (size_t n = 0; n < PARTS; n++) {
        sum += sums[n];
    }
    return sum;
}

void WEFTI_LEVEL(expert_dots)(real *dweight, const real *rows, const real *dx,
                              const int32_t *place, size_t tokens, size_t slots,
                              size_t width)
{
    for (size_t i = 0; i < tokens * slots; i++) {
        dweight[i] = place[i] < 0 ? 0
                                  : dot(rows + (size_t)place[i] * width,
                                        dx + i / slots * width, width);
    }
}

/* One expert's; BLAS takes no matrix without elements. */
static void multiply(wefti_expert_product product, real *x, real *y,
                     real *weight, size_t rows, size_t inputs, size_t outputs)
{
    if (product == WEFTI_EXPERT_FORWARD) {
        WEFTI_LEVEL(gemm)
        (false, true, rows, outputs, inputs, 1, x, inputs, weight, inputs, 0, y,
         outputs);
    } else if (product == WEFTI_EXPERT_INPUTS) {
        WEFTI_LEVEL(gemm)
        (false, false, rows, inputs, outputs, 1, y, outputs, weight, inputs, 0,
         x, inputs);
    } else if (rows == 0) {
        memset(weight, 0, inputs * outputs * sizeof(*weight));
    } else {
        WEFTI_LEVEL(gemm)
        (true, false, outputs, inputs, rows, 1, y, outputs, x, inputs, 0,
         weight, inputs);
    }
}

void WEFTI_LEVEL(expert_gemm)(wefti_expert_product product, real *x, real *y,
                              real *weight, const int32_t *counts,
                              size_t experts, size_t inputs, size_t outputs)
{
    for (size_t e = 0; e < experts; e++) {
        const size_t rows = (size_t)counts[e];
        multiply(product, x, y, weight, rows, inputs, outputs);
        x += rows * inputs;
        y += rows * outputs;
        weight += inputs * outputs;
    }
}

static size_t count_rows(const int32_t *counts, size_t experts)
{
    size_t rows = 0;
    for (size_t e = 0; e < experts; e++) {
        rows += (size_t)counts[e];
    }
    return rows;
}

void WEFTI_LEVEL(expert_gate)(real *out, const real *gate_up,
                              const int32_t *counts, size_t experts,
                              size_t width)
{
    WEFTI_LEVEL(swiglu_forward)
    (out, gate_up, gate_up + width, count_rows(counts, experts), width,
     2 * width);
}

void WEFTI_LEVEL(expert_gate_backward)(real *d_gate_up, const real *dout,
                                       const real *gate_up,
                                       const int32_t *counts, size_t experts,
                                       size_t width)
{
    WEFTI_LEVEL(swiglu_backward)
    (d_gate_up, d_gate_up + width, dout, gate_up, gate_up + width,
     count_rows(counts, experts), width, 2 * width);
}
