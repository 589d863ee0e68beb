/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/onednn.h - products of bf16 by oneDNN, opened at run time: the
 * file that WEFT_ONEDNN names. One thread, as all of a rank's math.
 *
 * A shape's kernel is made at its first use (about 1 ms) and kept: the last
 * WEFTI_ONEDNN_KEPT of them.
 *
 * Threads   one at a time.
 * Source    oneDNN 2.6's interface in C, the matmul primitive.
 */
#ifndef KERNELS_MATH_ONEDNN_H
#define KERNELS_MATH_ONEDNN_H

#include "kernels/math/math_launch.h"

#include <stdbool.h>

enum { WEFTI_ONEDNN_KEPT = 128 };

/*
 * wefti_onednn_get_kernel - "oneDNN 2.6.3, avx512_core_amx"; NULL where it
 * cannot multiply bf16 here: why_out is the reason. Opens the library, once.
 */
const char *wefti_onednn_get_kernel(const char **why_out);

/*
 * wefti_onednn_multiply - kernels/math/gemm_bf16.h's product, where get_kernel
 * is not NULL and no extent is 0.
 *
 * Returns   whether C has been written; false: oneDNN has refused the shape or
 *           had no memory, and nothing has changed.
 */
bool wefti_onednn_multiply(const wefti_math_gemm *product, bool c_is_wide);

#endif
