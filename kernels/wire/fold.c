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

const wefti_fold_level *const wefti_fold_levels[] = {
#ifdef __x86_64__
    &wefti_fold_level_v4, &wefti_fold_level_v3,
#endif
    &wefti_fold_level_base, NULL};

static const wefti_fold_level *level_here(void)
{
    const wefti_fold_level *const *level = wefti_fold_levels;
    while (!(*level)->runs_here()) {
        level++;
    }
    return *level;
}

size_t wefti_wide_bytes(weft_dtype dtype)
{
    return dtype == WEFT_DTYPE_BF16 ? sizeof(float) : weft_dtype_bytes(dtype);
}

void wefti_fold(void *dst, const void *const *sources, size_t source_count,
                size_t elems, weft_dtype dtype, weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    level_here()->fold[dtype][redop](dst, sources, source_count, elems);
}

void wefti_widen(void *wide_dst, const void *src, size_t elems,
                 weft_dtype dtype)
{
    level_here()->widen[dtype](wide_dst, src, elems);
}

void wefti_narrow(void *dst, const void *wide_src, size_t source_count,
                  size_t elems, weft_dtype dtype, weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    level_here()->narrow[dtype][redop](dst, wide_src, source_count, elems);
}

void wefti_combine(void *wide_dst, const void *wide_src, size_t elems,
                   weft_dtype dtype, weft_redop redop)
{
    level_here()->combine[dtype][redop](wide_dst, wide_src, elems);
}
