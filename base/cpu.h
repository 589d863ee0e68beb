/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * base/cpu.h - which instruction-set level this processor has, for code that
 * is compiled once per level.
 */
#ifndef BASE_CPU_H
#define BASE_CPU_H

#include <stddef.h>

/* Each includes those before it; other processors than x86-64 have only BASE.
 */
typedef enum wefti_cpu_level {
    WEFTI_CPU_BASE, /* what the build's architecture always has */
    WEFTI_CPU_V3,   /* x86-64-v3: AVX2, FMA, F16C */
    WEFTI_CPU_V4,   /* x86-64-v4: AVX-512 */
    WEFTI_CPU_LEVELS
} wefti_cpu_level;

/*
 * wefti_cpu_get_level - the best level. Tests words that the C runtime filled
 * at start: costs a few ns, needs no state of ours and no resolver that runs
 * while the program is being loaded, before sanitizers are ready.
 */
wefti_cpu_level wefti_cpu_get_level(void);

/*
 * wefti_cpu_pick - of tables by level ([WEFTI_CPU_LEVELS], NULL where there is
 * none) the index-th best that this processor can run; NULL past the last.
 */
const void *wefti_cpu_pick(const void *const *tables, size_t index);

#endif
