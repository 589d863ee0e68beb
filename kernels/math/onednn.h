/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/onednn.h - products by oneDNN, opened at run time: the file that
 * WEFT_ONEDNN names. One thread, as all of a rank's math.
 *
 * f32, where the processor has AVX-512: there it is faster than OpenBLAS
 * (docs/kernels.md), and knows processors that are newer than itself, which
 * OpenBLAS does not. Not with AVX2, where that has not been shown.
 *
 * bf16, where the processor multiplies that. Each of its shapes, and f32's with
 * B alone transposed, has a kernel: made at its first use (about 1 ms) and
 * kept, the last WEFTI_ONEDNN_KEPT of them.
 *
 * Source    oneDNN 2.6's interface in C, dnnl_sgemm and the matmul primitive.
 */
#ifndef KERNELS_MATH_ONEDNN_H
#define KERNELS_MATH_ONEDNN_H

#include "kernels/math/math_launch.h"

#include <stdbool.h>

enum { WEFTI_ONEDNN_KEPT = 128 };

typedef enum wefti_onednn_type {
    WEFTI_ONEDNN_F32,
    WEFTI_ONEDNN_BF16,
    WEFTI_ONEDNN_TYPES
} wefti_onednn_type;

/*
 * wefti_onednn_get_kernel - "oneDNN 2.6.3, avx512_core_amx"; NULL where it does
 * not multiply this type here: why_out is the reason. Opens the library, once.
 *
 * Threads   any, at once.
 */
const char *wefti_onednn_get_kernel(wefti_onednn_type type,
                                    const char **why_out);

/*
 * wefti_onednn_multiply_f32 - kernels/math/gemm.h's product over float, where
 * no extent is 0. Denormal elements count.
 *
 * Threads   any, at once.
 * Returns   whether C has been written; false: it does not multiply f32 here,
 *           or has refused, and what is read has not changed. Without memory
 *           for a product that reads C the program ends: a part may be added.
 */
bool wefti_onednn_multiply_f32(bool transpose_a, bool transpose_b, size_t m,
                               size_t n, size_t k, float alpha, const float *a,
                               size_t lda, const float *b, size_t ldb,
                               float beta, float *c, size_t ldc);

/*
 * wefti_onednn_multiply_bf16 - kernels/math/gemm_bf16.h's product, where
 * get_kernel is not NULL and no extent is 0.
 *
 * Threads   one at a time.
 * Returns   whether C has been written; false: oneDNN has refused the shape or
 *           had no memory, and nothing has changed.
 */
bool wefti_onednn_multiply_bf16(const wefti_math_gemm *product, bool c_is_wide);

#endif
