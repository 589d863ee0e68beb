/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Which level's kernels this processor runs: plain tables, as base/cpu.h says.
 */
#include "base/cpu.h"
#include "kernels/math/math_table.h"

extern const wefti_math wefti_math_base;
#ifdef WEFTI_MATH_LEVELS_X86
extern const wefti_math wefti_math_v3;
extern const wefti_math wefti_math_v4;
#endif

const wefti_math *wefti_math_at(size_t index)
{
    static const void *const levels[WEFTI_CPU_LEVELS] = {
        [WEFTI_CPU_BASE] = &wefti_math_base,
#ifdef WEFTI_MATH_LEVELS_X86
        [WEFTI_CPU_V3] = &wefti_math_v3,
        [WEFTI_CPU_V4] = &wefti_math_v4,
#endif
    };
    return wefti_cpu_pick(levels, index);
}

const wefti_math *wefti_math_get(void)
{
    return wefti_math_at(0);
}
