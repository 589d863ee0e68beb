/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold_v3.c - the loops for x86-64-v3 (AVX2); compiled with that
 * -march, so nothing here may run before the processor has been asked.
 */
#define FOLD_LEVEL      wefti_fold_level_v3
#define FOLD_LEVEL_NAME "x86-64-v3"
#define FOLD_LEVEL_RUNS (__builtin_cpu_supports("x86-64-v3") != 0)
#include "kernels/wire/fold_table.h"
