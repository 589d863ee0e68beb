/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/cpu.c - asks for what the psABI's levels add, as far as kernels use it.
 */
#include "base/cpu.h"

#include <stdbool.h>

#ifdef __x86_64__
/* F16C is older than AVX2, and not every compiler lets one ask for it. */
static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
    return __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

wefti_cpu_level wefti_cpu_get_level(void)
{
#ifdef __x86_64__
    if (has_v3()) {
        return has_v4() ? WEFTI_CPU_V4 : WEFTI_CPU_V3;
    }
#endif
    return WEFTI_CPU_BASE;
}

const void *wefti_cpu_pick(const void *const *tables, size_t index)
{
    for (int level = wefti_cpu_get_level(); level >= WEFTI_CPU_BASE; level--) {
        if (tables[level] && index-- == 0) {
            return tables[level];
        }
    }
    return NULL;
}
