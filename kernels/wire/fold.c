/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold.c - hands each call to the best level of this processor.
 *
 * The level is asked for at every call: that is a test of words which the C
 * runtime filled at start, costs a few ns, and needs no state of ours and no
 * ifunc (which sanitizers cannot follow).
 */
#include "kernels/wire/fold.h"

#include "base/check.h"
#include "kernels/wire/fold_level.h"

#include <stdbool.h>

extern const wefti_fold_level wefti_fold_level_base;

#ifdef __x86_64__
extern const wefti_fold_level wefti_fold_level_v3;
extern const wefti_fold_level wefti_fold_level_v4;

/* What the psABI's levels add, as far as compiled loops use it. */
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

const wefti_fold_level *wefti_fold_level_at(size_t index)
{
#ifdef __x86_64__
    if (has_v4() && index-- == 0) {
        return &wefti_fold_level_v4;
    }
    if (has_v3() && index-- == 0) {
        return &wefti_fold_level_v3;
    }
#endif
    return index == 0 ? &wefti_fold_level_base : NULL;
}

size_t wefti_wide_bytes(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_BF16 ? sizeof(float) : weft_dtype_bytes(dtype);
}

void wefti_fold(void *dst, const void *const *sources, size_t source_count,
                size_t elems, weft_dtype dtype, weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    wefti_fold_level_at(0)->fold[dtype][redop](dst, sources, source_count,
                                               elems);
}

void wefti_widen(void *wide_dst, const void *src, size_t elems,
                 weft_dtype dtype)
{
    wefti_fold_level_at(0)->widen[dtype](wide_dst, src, elems);
}

void wefti_narrow(void *dst, const void *wide_src, size_t source_count,
                  size_t elems, weft_dtype dtype, weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    wefti_fold_level_at(0)->narrow[dtype][redop](dst, wide_src, source_count,
                                                 elems);
}

void wefti_combine(void *wide_dst, const void *wide_src, size_t elems,
                   weft_dtype dtype, weft_redop redop)
{
    wefti_fold_level_at(0)->combine[dtype][redop](wide_dst, wide_src, elems);
}
