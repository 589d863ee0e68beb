/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/reduce_v3.c - the loops for x86-64-v3 (AVX2); the whole file is
 * compiled for it, so nothing in it may run before the processor was asked.
 */
#define REDUCE_LEVEL      wefti_reduce_level_v3
#define REDUCE_LEVEL_NAME "x86-64-v3"
#include "kernels/wire/reduce_table.inc"
