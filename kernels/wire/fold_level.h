/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold_level.h - the same loops compiled for several instruction
 * sets, one table of functions each.
 *
 * All levels give the same bits: contraction is off, the association is fixed
 * and no loop reorders additions.
 */
#ifndef KERNELS_WIRE_FOLD_LEVEL_H
#define KERNELS_WIRE_FOLD_LEVEL_H

#include "weft/types.h"

/* Slots as in fold.h, with type and operation as indices. */
typedef struct wefti_fold_level {
    const char *name;
    void (*fold[WEFT_DTYPE_COUNT][WEFT_REDOP_COUNT])(void *dst,
                                                     const void *const *sources,
                                                     size_t source_count,
                                                     size_t elems);
    void (*narrow[WEFT_DTYPE_COUNT][WEFT_REDOP_COUNT])(void *dst,
                                                       const void *wide_src,
                                                       size_t source_count,
                                                       size_t elems);
    void (*combine[WEFT_DTYPE_COUNT][WEFT_REDOP_COUNT])(void *wide_dst,
                                                        const void *wide_src,
                                                        size_t elems);
    void (*widen[WEFT_DTYPE_COUNT])(void *wide_dst, const void *src,
                                    size_t elems);
} wefti_fold_level;

/* The index-th best level that this processor has; NULL past the last. */
const wefti_fold_level *wefti_fold_level_at(size_t index);

#endif
