/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/device/product_problem.h - one product of matrices on a GPU, with the
 * result that is right: arrays with gaps between their rows, which stay.
 */
#ifndef TESTS_DEVICE_PRODUCT_PROBLEM_H
#define TESTS_DEVICE_PRODUCT_PROBLEM_H

#include "cuda_test.h"

#include "base/small_float.h"

#include <math.h>

typedef struct problem {
    weft_dtype dtype, c_dtype;
    size_t m, n, k;
    bool transpose_a, transpose_b;
    double alpha, beta;
    size_t gap, shift; /* elements: between rows, before the first */
} problem;

typedef struct matrix {
    weft_dtype dtype;
    size_t rows, width, stride, elems, shift;
    unsigned char *host;
    void *device;
} matrix;

/* The three of a problem; c holds what C was before. */
typedef struct product_case {
    weft_device *device;
    problem of;
    matrix a, b, c;
} product_case;

static inline double product_get(const matrix *from, size_t row, size_t column)
{
    const size_t i = from->shift + row * from->stride + column;
    const void *at = from->host;
    return from->dtype == WEFT_DTYPE_F64 ? ((const double *)at)[i]
           : from->dtype == WEFT_DTYPE_F32
               ? (double)((const float *)at)[i]
               : (double)wefti_bf16_widen(((const uint16_t *)at)[i]);
}

/* Values of a few bits in [-1, 1), NaN where nothing belongs. */
static inline void product_fill(matrix *to, uint64_t seed, bool poison)
{
    for (size_t i = 0; i < to->elems; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407U;
        const size_t at = i - to->shift;
        const bool there = i >= to->shift && at % to->stride < to->width;
        const double value =
            there && !poison ? (double)(seed >> 57) * 0x1p-6 - 1 : (double)NAN;
        if (to->dtype == WEFT_DTYPE_F64) {
            ((double *)(void *)to->host)[i] = value;
        } else if (to->dtype == WEFT_DTYPE_F32) {
            ((float *)(void *)to->host)[i] = (float)value;
        } else {
            ((uint16_t *)(void *)to->host)[i] = wefti_bf16_narrow((float)value);
        }
    }
}

static inline void product_upload(const product_case *own, const matrix *of)
{
    CHECK_WEFT(weft_device_copy(own->device, of->device, of->host,
                                of->elems * weft_dtype_bytes(of->dtype), NULL));
}

static inline matrix product_matrix(const product_case *own, weft_dtype dtype,
                                    size_t rows, size_t width)
{
    matrix made = {.dtype = dtype,
                   .rows = rows,
                   .width = width,
                   .stride = width + own->of.gap,
                   .shift = own->of.shift};
    made.elems = made.shift + rows * made.stride;
    made.host = malloc(made.elems * weft_dtype_bytes(dtype));
    CHECK(made.host != NULL);
    made.device = make_memory(own->device, WEFT_MEMORY_DEVICE,
                              made.elems * weft_dtype_bytes(dtype));
    return made;
}

/* New inputs, C poisoned where it is not to be read. */
static inline void product_renew(product_case *own, uint64_t seed)
{
    product_fill(&own->a, seed, false);
    product_fill(&own->b, seed + 1, false);
    product_fill(&own->c, seed + 2, own->of.beta == 0);
    product_upload(own, &own->a);
    product_upload(own, &own->b);
    product_upload(own, &own->c);
}

static inline product_case product_open(weft_device *device, const problem *of)
{
    const bool ta = of->transpose_a, tb = of->transpose_b;
    product_case own = {.device = device, .of = *of};
    own.a =
        product_matrix(&own, of->dtype, ta ? of->k : of->m, ta ? of->m : of->k);
    own.b =
        product_matrix(&own, of->dtype, tb ? of->n : of->k, tb ? of->k : of->n);
    own.c = product_matrix(&own, of->c_dtype, of->m, of->n);
    product_renew(&own, of->m + of->n + of->k);
    return own;
}

static inline void product_close(product_case *own)
{
    matrix *const all[] = {&own->a, &own->b, &own->c};
    for (int i = 0; i < 3; i++) {
        weft_device_free(own->device, all[i]->device);
        free(all[i]->host);
    }
}

static inline void *product_at(const matrix *of)
{
    return (char *)of->device + of->shift * weft_dtype_bytes(of->dtype);
}

static inline weft_status product_post(const product_case *own,
                                       weft_stream *stream, bool *queued)
{
    const problem *of = &own->of;
    const wefti_product product = {.c = product_at(&own->c),
                                   .a = product_at(&own->a),
                                   .b = product_at(&own->b),
                                   .dtype = of->dtype,
                                   .c_dtype = of->c_dtype,
                                   .m = of->m,
                                   .n = of->n,
                                   .k = of->k,
                                   .lda = own->a.stride,
                                   .ldb = own->b.stride,
                                   .ldc = own->c.stride,
                                   .alpha = of->alpha,
                                   .beta = of->beta,
                                   .transpose_a = of->transpose_a,
                                   .transpose_b = of->transpose_b};
    return wefti_stream_multiply(stream, &product, queued);
}

static inline double product_want(const product_case *own, size_t i, size_t j)
{
    const problem *of = &own->of;
    double sum = 0;
    for (size_t l = 0; l < of->k; l++) {
        const double x = of->transpose_a ? product_get(&own->a, l, i)
                                         : product_get(&own->a, i, l);
        const double y = of->transpose_b ? product_get(&own->b, j, l)
                                         : product_get(&own->b, l, j);
        sum += x * y;
    }
    return of->alpha * sum +
           (of->beta == 0 ? 0 : of->beta * product_get(&own->c, i, j));
}

/* C of the device: each element the right one, what is between them as it was.
 * Products of values of a few bits are exact in f32; C is rounded once. */
static inline void product_check(const product_case *own)
{
    const size_t bytes = own->c.elems * weft_dtype_bytes(own->c.dtype);
    matrix got = own->c;
    got.host = malloc(bytes);
    CHECK(got.host != NULL);
    CHECK_WEFT(
        weft_device_copy(own->device, got.host, own->c.device, bytes, NULL));
    for (size_t i = 0; i < own->of.m; i++) {
        for (size_t j = 0; j < own->c.stride; j++) {
            const double there = product_get(&got, i, j);
            if (j >= own->of.n) {
                CHECK(isnan(there));
                continue;
            }
            const double want = product_want(own, i, j);
            const double right =
                own->of.c_dtype == WEFT_DTYPE_BF16
                    ? (double)wefti_bf16_widen(wefti_bf16_narrow((float)want))
                    : want;
            if (there != right) {
                fprintf(stderr, "C[%zu][%zu] is %.17g, not %.17g\n", i, j,
                        there, right);
                _exit(1);
            }
        }
    }
    free(got.host);
}

#endif
