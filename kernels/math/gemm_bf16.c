/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/gemm_bf16.c - products by oneDNN or by widened blocks.
 *
 *   for columns of C, for rows of C:            one block of C in f32
 *       for inner extents:  widen A's block, widen B's block, add the product
 *       narrow it to C
 *
 * A block of 512 x 512 is widened for 1,024 multiplications and additions of
 * each of its elements, so widening costs little beside them.
 */
#include "kernels/math/gemm_bf16.h"

#include "base/log.h"
#include "base/small_float.h"
#include "kernels/math/math_table.h"
#include "kernels/math/onednn.h"

#include <pthread.h>

enum { BLOCK = 512 };

/* Of the process: products take turns, as those of the BLAS do. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static real left[BLOCK * BLOCK], right[BLOCK * BLOCK], sums[BLOCK * BLOCK];

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* rows x columns from an element on, as they are stored. */
static void widen(real *to, const uint16_t *from, size_t stride, size_t rows,
                  size_t columns)
{
    for (size_t row = 0; row < rows; row++) {
        for (size_t i = 0; i < columns; i++) {
            to[row * BLOCK + i] =
                (real)wefti_bf16_widen(from[row * stride + i]);
        }
    }
}

/* The block of op(X) that begins at row and column, as X stores it. */
static void widen_block(real *to, const void *from, size_t stride,
                        bool transposed, size_t row, size_t column, size_t rows,
                        size_t columns)
{
    const uint16_t *x = from;
    x += transposed ? column * stride + row : row * stride + column;
    widen(to, x, stride, transposed ? columns : rows,
          transposed ? rows : columns);
}

static real read_c(const wefti_math_gemm *p, bool c_is_wide, size_t at)
{
    return c_is_wide ? ((const real *)p->c)[at]
                     : (real)wefti_bf16_widen(((const uint16_t *)p->c)[at]);
}

static void begin_block(const wefti_math_gemm *p, bool c_is_wide, size_t row,
                        size_t column, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        for (size_t j = 0; j < columns; j++) {
            sums[i * BLOCK + j] =
                p->beta == 0
                    ? 0
                    : (real)p->beta *
                          read_c(p, c_is_wide, (row + i) * p->ldc + column + j);
        }
    }
}

static void end_block(const wefti_math_gemm *p, bool c_is_wide, size_t row,
                      size_t column, size_t rows, size_t columns)
{
    for (size_t i = 0; i < rows; i++) {
        const size_t at = (row + i) * p->ldc + column;
        for (size_t j = 0; j < columns; j++) {
            if (c_is_wide) {
                ((real *)p->c)[at + j] = sums[i * BLOCK + j];
            } else {
                ((uint16_t *)p->c)[at + j] =
                    wefti_bf16_narrow((float)sums[i * BLOCK + j]);
            }
        }
    }
}

static void multiply_block(const wefti_math_gemm *p, bool c_is_wide, size_t row,
                           size_t column)
{
    const bool ta = p->transpose_a != 0, tb = p->transpose_b != 0;
    const size_t rows = smaller(BLOCK, p->m - row);
    const size_t columns = smaller(BLOCK, p->n - column);
    begin_block(p, c_is_wide, row, column, rows, columns);
    for (size_t inner = 0; inner < p->k; inner += BLOCK) {
        const size_t depth = smaller(BLOCK, p->k - inner);
        widen_block(left, p->a, p->lda, ta, row, inner, rows, depth);
        widen_block(right, p->b, p->ldb, tb, inner, column, depth, columns);
        wefti_math_get()->gemm(ta, tb, rows, columns, depth, (real)p->alpha,
                               left, BLOCK, right, BLOCK, 1, sums, BLOCK);
    }
    end_block(p, c_is_wide, row, column, rows, columns);
}

static void multiply_blocks(const wefti_math_gemm *p, bool c_is_wide)
{
    for (size_t column = 0; column < p->n; column += BLOCK) {
        for (size_t row = 0; row < p->m; row += BLOCK) {
            multiply_block(p, c_is_wide, row, column);
        }
    }
}

static bool multiply_by_onednn(const wefti_math_gemm *p, bool c_is_wide)
{
    static bool told;
    const char *why;
    if (p->k == 0 || !wefti_onednn_get_kernel(WEFTI_ONEDNN_BF16, &why)) {
        return false;
    }
    const bool done = wefti_onednn_multiply_bf16(p, c_is_wide);
    if (!done && !told) {
        told = true;
        wefti_log(WEFTI_LOG_WARN, -1,
                  "oneDNN refuses a product of bf16 (%zu x %zu x %zu): it and "
                  "what else is refused goes by widened blocks",
                  p->m, p->n, p->k);
    }
    return done;
}

void wefti_gemm_bf16(const wefti_math_gemm *product, bool c_is_wide)
{
    if (product->m == 0 || product->n == 0) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (!multiply_by_onednn(product, c_is_wide)) {
        multiply_blocks(product, c_is_wide);
    }
    pthread_mutex_unlock(&lock);
}
