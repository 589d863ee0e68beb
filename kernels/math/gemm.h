/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/gemm.h - matrix product, row-major: of f32 by oneDNN, where that
 * is installed and fast (kernels/math/onednn.h), else through CBLAS.
 *
 *     C = alpha op(A) op(B) + beta C      op(X) = X or its transpose
 *
 * a           op(A) is [m][k]; stored [m][k], or [k][m] where transpose_a.
 * b           op(B) is [k][n]; stored [k][n], or [n][k] where transpose_b.
 * c           [m][n]; not read where beta is 0; overlaps neither a nor b.
 * lda ldb ldc elements from one stored row to the next.
 *
 * Threads of one process take turns in the BLAS (kernels/math/blas_lock.h).
 *
 * Every extent is at most INT_MAX. m, n or k of 0 is legal (k = 0: C = beta C).
 * The bits of a row may depend on m: the library chooses its blocks by shape.
 *
 * Tolerance   |error| <= 2 k epsilon (|A| |B|), element by element.
 * Source      BLAS technical forum standard, 2001, GEMM; OpenBLAS, oneDNN.
 */
#ifndef KERNELS_MATH_GEMM_H
#define KERNELS_MATH_GEMM_H

#include "kernels/math/real.h"

typedef void wefti_gemm_fn(bool transpose_a, bool transpose_b, size_t m,
                           size_t n, size_t k, real alpha, const real *a,
                           size_t lda, const real *b, size_t ldb, real beta,
                           real *c, size_t ldc);

#endif
