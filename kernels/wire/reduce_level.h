/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/reduce_level.h - the same loops compiled for several instruction
 * sets, one table of functions each.
 *
 * All levels give the same bits: contraction is off, the association is fixed
 * and no loop reorders additions.
 */
#ifndef KERNELS_WIRE_REDUCE_LEVEL_H
#define KERNELS_WIRE_REDUCE_LEVEL_H

#include "weft/types.h"

/*
 * The loops of one level, by type and reduction. combine is there for every
 * pair that is defined; the others are NULL where something simpler does:
 *
 *   reduce     all sources in one pass; NULL: block by block through combine
 *   widen    NULL: the wide type is the type itself
 *   narrow   dst = wide_src rounded; NULL: copy
 *   average  dst = wide_src / source_count, rounded; may be in place where the
 *            sizes are equal
 *   scale    as wefti_scale
 */
typedef struct wefti_reduce_level {
    const char *name;
    void (*reduce[WEFT_DTYPE_COUNT][WEFT_REDOP_COUNT])(
        void *dst, const void *const *sources, size_t source_count,
        size_t elems);
    void (*combine[WEFT_DTYPE_COUNT][WEFT_REDOP_COUNT])(void *wide_dst,
                                                        const void *wide_src,
                                                        size_t elems);
    void (*widen[WEFT_DTYPE_COUNT])(void *wide_dst, const void *src,
                                    size_t elems);
    void (*narrow[WEFT_DTYPE_COUNT])(void *dst, const void *wide_src,
                                     size_t elems);
    void (*average[WEFT_DTYPE_COUNT])(void *dst, const void *wide_src,
                                      size_t source_count, size_t elems);
    void (*scale[WEFT_DTYPE_COUNT])(void *dst, const void *src,
                                    const void *scalar, size_t elems);
} wefti_reduce_level;

/* The index-th best level that this processor has; NULL past the last. */
const wefti_reduce_level *wefti_reduce_level_at(size_t index);

/* reduce.h's calls on a level of one's choice. */
void wefti_reduce_by(const wefti_reduce_level *level, void *dst,
                     const void *const *sources, size_t source_count,
                     size_t elems, weft_dtype dtype, weft_redop redop);
void wefti_widen_by(const wefti_reduce_level *level, void *wide_dst,
                    const void *src, size_t elems, weft_dtype dtype);
void wefti_narrow_by(const wefti_reduce_level *level, void *dst,
                     const void *wide_src, size_t source_count, size_t elems,
                     weft_dtype dtype, weft_redop redop);

/* Where the tree over count >= 2 sources splits: largest power of two below. */
static inline size_t wefti_reduce_split(size_t count)
{
    return (size_t)1 << (63 - __builtin_clzll(count - 1));
}

#endif
