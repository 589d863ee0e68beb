/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold_v4.c - the loops for x86-64-v4 (AVX-512); compiled with
 * that -march, so nothing here may run before the processor has been asked.
 */
#define FOLD_LEVEL      wefti_fold_level_v4
#define FOLD_LEVEL_NAME "x86-64-v4"
#define FOLD_LEVEL_RUNS (__builtin_cpu_supports("x86-64-v4") != 0)
#include "kernels/wire/fold_table.h"
