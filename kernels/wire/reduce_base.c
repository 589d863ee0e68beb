/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/reduce_base.c - the loops for every processor of the build's
 * architecture: SSE2 on x86-64, Advanced SIMD on AArch64.
 */
#define REDUCE_LEVEL      wefti_reduce_level_base
#define REDUCE_LEVEL_NAME "base"
#include "kernels/wire/reduce_table.inc"
