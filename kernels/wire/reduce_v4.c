/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/reduce_v4.c - the loops for x86-64-v4 (AVX-512); the whole file
 * is compiled for it, so nothing in it may run before the processor was asked.
 */
#define REDUCE_LEVEL      wefti_reduce_level_v4
#define REDUCE_LEVEL_NAME "x86-64-v4"
#include "kernels/wire/reduce_table.inc"
