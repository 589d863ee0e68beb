/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/gemm_kernel.h - who multiplies on this host.
 */
#ifndef KERNELS_MATH_GEMM_KERNEL_H
#define KERNELS_MATH_GEMM_KERNEL_H

#include <stdbool.h>

/*
 * wefti_gemm_get_kernel - "oneDNN 2.6.3, avx512_core" or "OpenBLAS SkylakeX";
 * of bf16 also the latter with " on widened blocks: " and why. Of the build
 * over double, which tests use, f32 stands for that.
 *
 * Threads   any. Valid for the process's life.
 */
const char *wefti_gemm_get_kernel(bool bf16);

/*
 * wefti_gemm_prepare - multiplies once in each layout, so that what the library
 * keeps for itself is there: of oneDNN its code and the kernels that it makes,
 * some 6 MB.
 *
 * Threads   any.
 */
void wefti_gemm_prepare(void);

#endif
