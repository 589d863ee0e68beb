/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which level's kernels this processor runs.
 *
 * A plain function and plain tables: resolvers that run while the program is
 * being loaded (ifunc, target_clones) run before the sanitizers are ready.
 */
#include "kernels/math/math_table.h"

extern const wefti_math wefti_math_base;

#ifdef WEFTI_MATH_LEVELS_X86
extern const wefti_math wefti_math_v3;
extern const wefti_math wefti_math_v4;

/* What the psABI's level v3 has beyond the baseline, as far as kernels care. */
static bool has_v3(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

static bool has_v4(void)
{
    return has_v3() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512cd") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
#endif

const wefti_math *wefti_math_at(size_t index)
{
    const wefti_math *usable[3];
    size_t count = 0;

#ifdef WEFTI_MATH_LEVELS_X86
    if (has_v4())
        usable[count++] = &wefti_math_v4;
    if (has_v3())
        usable[count++] = &wefti_math_v3;
#endif
    usable[count++] = &wefti_math_base;
    return index < count ? usable[index] : NULL;
}

const wefti_math *wefti_math_get(void)
{
    return wefti_math_at(0);
}
