/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold_base.c - the loops for every processor of the build's
 * architecture: SSE2 on x86-64, Advanced SIMD on AArch64.
 */
#define FOLD_LEVEL      wefti_fold_level_base
#define FOLD_LEVEL_NAME "base"
#include "kernels/wire/fold_table.inc"
