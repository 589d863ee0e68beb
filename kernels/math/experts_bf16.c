/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/experts_bf16.c - rows by expert, of bf16.
 */
#include "kernels/math/experts_bf16.h"

#include "base/check.h"
#include "base/small_float.h"
#include "kernels/math/gemm_bf16.h"
#include "kernels/math/math_table.h"

#include <string.h>

enum { RUN_ELEMS = 512 }; /* of a row, widened at a time */

static void widen(real *to, const uint16_t *from, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        to[i] = (real)wefti_bf16_widen(from[i]);
    }
}

static void narrow(uint16_t *to, const real *from, size_t elems)
{
    for (size_t i = 0; i < elems; i++) {
        to[i] = wefti_bf16_narrow((float)from[i]);
    }
}

/* How much of a row is left from first on, of a run. */
static size_t run_of(size_t width, size_t first)
{
    return width - first < RUN_ELEMS ? width - first : RUN_ELEMS;
}

/* ---- rows there, and back -------------------------------------------------
 */

static void scale_row(uint16_t *to, const uint16_t *from, real factor,
                      size_t width)
{
    real own[RUN_ELEMS];
    for (size_t first = 0; first < width; first += RUN_ELEMS) {
        const size_t elems = run_of(width, first);
        widen(own, from + first, elems);
        for (size_t k = 0; k < elems; k++) {
            own[k] *= factor;
        }
        narrow(to + first, own, elems);
    }
}

static void spread(const wefti_math_expert_spread *a)
{
    uint16_t *rows = a->rows_at;
    const uint16_t *x = a->x;
    const real *weight = a->weight;
    for (size_t i = 0; i < a->tokens * a->slots; i++) {
        const uint16_t *from = x + i / a->slots * a->width;
        if (a->place[i] < 0) {
            continue;
        }
        uint16_t *to = rows + (size_t)a->place[i] * a->width;
        if (weight) {
            scale_row(to, from, weight[i], a->width);
        } else {
            memcpy(to, from, a->width * sizeof(*to));
        }
    }
}

/* Elements first .. of a token's sum. */
static void collect_run(const wefti_math_expert_collect *a, size_t token,
                        size_t first, size_t elems)
{
    const uint16_t *rows = a->rows_at;
    const real *weight = a->weight;
    real sum[RUN_ELEMS] = {0}, own[RUN_ELEMS];
    for (size_t i = token * a->slots; i < (token + 1) * a->slots; i++) {
        const real factor = weight ? weight[i] : 1;
        if (a->place[i] < 0) {
            continue;
        }
        widen(own, rows + (size_t)a->place[i] * a->width + first, elems);
        for (size_t k = 0; k < elems; k++) {
            sum[k] += factor * own[k];
        }
    }
    narrow((uint16_t *)a->x + token * a->width + first, sum, elems);
}

static void collect(const wefti_math_expert_collect *a)
{
    for (size_t t = 0; t < a->tokens; t++) {
        for (size_t first = 0; first < a->width; first += RUN_ELEMS) {
            collect_run(a, t, first, run_of(a->width, first));
        }
    }
}

static real dot(const uint16_t *a, const uint16_t *b, size_t width)
{
    real left[RUN_ELEMS], right[RUN_ELEMS], sum = 0;
    for (size_t first = 0; first < width; first += RUN_ELEMS) {
        const size_t elems = run_of(width, first);
        widen(left, a + first, elems);
        widen(right, b + first, elems);
        for (size_t k = 0; k < elems; k++) {
            sum += left[k] * right[k];
        }
    }
    return sum;
}

static void dots(const wefti_math_expert_dots *a)
{
    const uint16_t *rows = a->rows_at, *dx = a->dx;
    real *dweight = a->dweight;
    for (size_t i = 0; i < a->tokens * a->slots; i++) {
        dweight[i] = a->place[i] < 0
                         ? 0
                         : dot(rows + (size_t)a->place[i] * a->width,
                               dx + i / a->slots * a->width, a->width);
    }
}

/* ---- experts --------------------------------------------------------------
 */

/* One expert's; no product has matrices without elements. weight_bytes: of an
 * element of what the product writes there. */
static void multiply(const wefti_math_expert_gemm *a, uint16_t *x, uint16_t *y,
                     void *weight, size_t rows, size_t weight_bytes)
{
    const size_t in = a->inputs, out = a->outputs;
    wefti_math_gemm one = {.alpha = 1};
    if (a->product == WEFTI_EXPERT_WEIGHTS && rows == 0) {
        memset(weight, 0, in * out * weight_bytes);
        return;
    }
    if (rows == 0) {
        return;
    }
    if (a->product == WEFTI_EXPERT_FORWARD) {
        one.c = y, one.a = x, one.b = weight;
        one.m = rows, one.n = out, one.k = in;
        one.lda = in, one.ldb = in, one.ldc = out;
        one.transpose_b = 1;
    } else if (a->product == WEFTI_EXPERT_INPUTS) {
        one.c = x, one.a = y, one.b = weight;
        one.m = rows, one.n = in, one.k = out;
        one.lda = out, one.ldb = in, one.ldc = in;
    } else {
        one.c = weight, one.a = y, one.b = x;
        one.m = out, one.n = in, one.k = rows;
        one.lda = out, one.ldb = in, one.ldc = in;
        one.transpose_a = 1;
    }
    wefti_gemm_bf16(&one, weight_bytes == sizeof(real));
}

static void gemm(const wefti_math_expert_gemm *a, bool is_mixed)
{
    const bool is_wide = is_mixed && a->product == WEFTI_EXPERT_WEIGHTS;
    const size_t bytes = is_wide ? sizeof(real) : sizeof(uint16_t);
    uint16_t *x = a->x, *y = a->y;
    char *weight = a->weight;
    for (size_t e = 0; e < a->experts; e++) {
        const size_t rows = (size_t)a->counts[e];
        multiply(a, x, y, weight, rows, bytes);
        x += rows * a->inputs;
        y += rows * a->outputs;
        weight += a->inputs * a->outputs * bytes;
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

static void gate(const wefti_math_expert_gate *a)
{
    const size_t rows = count_rows(a->counts, a->experts);
    const uint16_t *both = a->gate_up;
    uint16_t *out = a->out;
    real gates[RUN_ELEMS], ups[RUN_ELEMS], made[RUN_ELEMS];
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < a->width; first += RUN_ELEMS) {
            const size_t elems = run_of(a->width, first);
            const uint16_t *at = both + 2 * row * a->width + first;
            widen(gates, at, elems);
            widen(ups, at + a->width, elems);
            wefti_math_get()->swiglu_forward(made, gates, ups, 1, elems, elems);
            narrow(out + row * a->width + first, made, elems);
        }
    }
}

static void gate_backward(const wefti_math_expert_gate_backward *a)
{
    const size_t rows = count_rows(a->counts, a->experts);
    const uint16_t *both = a->gate_up, *dout = a->dout;
    uint16_t *slopes = a->d_gate_up;
    real gates[RUN_ELEMS], ups[RUN_ELEMS], above[RUN_ELEMS];
    for (size_t row = 0; row < rows; row++) {
        for (size_t first = 0; first < a->width; first += RUN_ELEMS) {
            const size_t elems = run_of(a->width, first);
            const size_t at = 2 * row * a->width + first;
            widen(gates, both + at, elems);
            widen(ups, both + at + a->width, elems);
            widen(above, dout + row * a->width + first, elems);
            wefti_math_get()->swiglu_backward(gates, ups, above, gates, ups, 1,
                                              elems, elems);
            narrow(slopes + at, gates, elems);
            narrow(slopes + at + a->width, ups, elems);
        }
    }
}

bool wefti_experts_bf16_has(wefti_math_op op, wefti_math_type type)
{
    return (type == WEFTI_MATH_BF16 || type == WEFTI_MATH_BF16_F32) &&
           (op == WEFTI_MATH_OP_expert_spread ||
            op == WEFTI_MATH_OP_expert_collect ||
            op == WEFTI_MATH_OP_expert_dots ||
            op == WEFTI_MATH_OP_expert_gemm ||
            op == WEFTI_MATH_OP_expert_gate ||
            op == WEFTI_MATH_OP_expert_gate_backward);
}

void wefti_experts_bf16_run(wefti_math_op op, wefti_math_type type,
                            const wefti_math_args *args)
{
    switch (op) {
    case WEFTI_MATH_OP_expert_spread:
        spread(&args->expert_spread);
        break;
    case WEFTI_MATH_OP_expert_collect:
        collect(&args->expert_collect);
        break;
    case WEFTI_MATH_OP_expert_dots:
        dots(&args->expert_dots);
        break;
    case WEFTI_MATH_OP_expert_gemm:
        gemm(&args->expert_gemm, type == WEFTI_MATH_BF16_F32);
        break;
    case WEFTI_MATH_OP_expert_gate:
        gate(&args->expert_gate);
        break;
    default:
        WEFTI_ASSERT(op == WEFTI_MATH_OP_expert_gate_backward);
        gate_backward(&args->expert_gate_backward);
    }
}
