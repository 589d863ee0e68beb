/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * GEMM: of f32 by oneDNN, where it is there and fast; else by CBLAS. Use a
 * serial library: a rank has one thread for its math.
 */
#include "kernels/math/gemm.h"

#include "base/check.h"
#include "kernels/math/blas_lock.h"
#include "kernels/math/level.h"
#ifndef WEFT_REAL_F64
#include "kernels/math/onednn.h"
#endif

#include <cblas.h>
#include <limits.h>

void WEFTI_LEVEL(gemm)(bool transpose_a, bool transpose_b, size_t m, size_t n,
                       size_t k, real alpha, const real *a, size_t lda,
                       const real *b, size_t ldb, real beta, real *c,
                       size_t ldc)
{
    WEFTI_ASSERT(m <= INT_MAX && n <= INT_MAX && k <= INT_MAX);
    WEFTI_ASSERT(lda <= INT_MAX && ldb <= INT_MAX && ldc <= INT_MAX);

    enum CBLAS_TRANSPOSE op_a = transpose_a ? CblasTrans : CblasNoTrans;
    enum CBLAS_TRANSPOSE op_b = transpose_b ? CblasTrans : CblasNoTrans;

    if (m == 0 || n == 0)
        return;
#ifndef WEFT_REAL_F64
    if (k > 0 && wefti_onednn_multiply_f32(transpose_a, transpose_b, m, n, k,
                                           alpha, a, lda, b, ldb, beta, c, ldc))
        return;
#endif
    wefti_blas_lock();
#ifdef WEFT_REAL_F64
    cblas_dgemm(CblasRowMajor, op_a, op_b, (int)m, (int)n, (int)k, alpha, a,
                (int)lda, b, (int)ldb, beta, c, (int)ldc);
#else
    cblas_sgemm(CblasRowMajor, op_a, op_b, (int)m, (int)n, (int)k, alpha, a,
                (int)lda, b, (int)ldb, beta, c, (int)ldc);
#endif
    wefti_blas_unlock();
}
