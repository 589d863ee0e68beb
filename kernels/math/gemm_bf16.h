/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/gemm_bf16.h - matrix product of bf16 on the host, row-major:
 *
 *     C = alpha op(A) op(B) + beta C      op(X) = X or its transpose
 *
 * Sums are f32, rounded once where C is bf16. Carried out by oneDNN, where it
 * is installed (kernels/math/onednn.h) and the processor multiplies bf16, or
 * else by kernels/math/gemm.h on blocks that are widened on their way, so that
 * no array is copied whole.
 *
 * Layouts, extents and what is read: as gemm.h has them.
 *
 * Tolerance   gemm.h's, of f32, and bf16's rounding where C is bf16. Which of
 *             the two multiplies shows in the last digits; oneDNN takes
 *             denormal elements for 0.
 * Threads     any; those of one process take turns.
 */
#ifndef KERNELS_MATH_GEMM_BF16_H
#define KERNELS_MATH_GEMM_BF16_H

#include "kernels/math/math_launch.h"

#include <stdbool.h>

/* c_is_wide: C is f32. */
void wefti_gemm_bf16(const wefti_math_gemm *product, bool c_is_wide);

#endif
