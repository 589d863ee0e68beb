/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/fold.c - hands each call to the best level of this processor,
 * and folds block by block what has no loop of its own:
 *
 *     sources --widen--> wide blocks --combine, down the tree--> one block
 *             --narrow or average--> dst
 *
 * A block and its partial results stay in the first-level cache.
 */
#include "kernels/wire/fold.h"

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/wire/fold_level.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK_BYTES = 4096 }; /* wide */

extern const wefti_fold_level wefti_fold_level_base;
#ifdef __x86_64__
extern const wefti_fold_level wefti_fold_level_v3;
extern const wefti_fold_level wefti_fold_level_v4;
#endif

const wefti_fold_level *wefti_fold_level_at(size_t index)
{
    static const void *const levels[WEFTI_CPU_LEVELS] = {
        [WEFTI_CPU_BASE] = &wefti_fold_level_base,
#ifdef __x86_64__
        [WEFTI_CPU_V3] = &wefti_fold_level_v3,
        [WEFTI_CPU_V4] = &wefti_fold_level_v4,
#endif
    };
    return wefti_cpu_pick(levels, index);
}

size_t wefti_wide_bytes(weft_dtype dtype)
{
    size_t bytes = weft_dtype_bytes(dtype);
    bool grows = weft_dtype_kind(dtype) == WEFT_KIND_FLOAT && bytes < 4;
    return grows ? sizeof(float) : bytes;
}

void wefti_widen_by(const wefti_fold_level *level, void *wide_dst,
                    const void *src, size_t elems, weft_dtype dtype)
{
    if (level->widen[dtype]) {
        level->widen[dtype](wide_dst, src, elems);
    } else if (wide_dst != src && elems != 0) {
        memcpy(wide_dst, src, elems * weft_dtype_bytes(dtype));
    }
}

void wefti_narrow_by(const wefti_fold_level *level, void *dst,
                     const void *wide_src, size_t source_count, size_t elems,
                     weft_dtype dtype, weft_redop redop)
{
    if (redop == WEFT_REDOP_AVG) {
        level->average[dtype](dst, wide_src, source_count, elems);
    } else if (level->narrow[dtype]) {
        level->narrow[dtype](dst, wide_src, elems);
    } else if (dst != wide_src && elems != 0) {
        memcpy(dst, wide_src, elems * weft_dtype_bytes(dtype));
    }
}

/* What the blocks of one fold have in common. */
typedef struct fold_task {
    const wefti_fold_level *level;
    void (*combine)(void *wide_dst, const void *wide_src, size_t elems);
    weft_dtype dtype;
    size_t elem_bytes;
} fold_task;

/* out = the tree over the sources' elements at .. at + elems, wide. */
static void fold_block(const fold_task *task, void *out,
                       const void *const *sources, size_t source_count,
                       size_t at, size_t elems)
{
    const unsigned char *first = sources[0];
    if (source_count == 1) {
        wefti_widen_by(task->level, out, first + at * task->elem_bytes, elems,
                       task->dtype);
        return;
    }
    size_t low_count = wefti_fold_split(source_count);
    fold_block(task, out, sources, low_count, at, elems);
    if (source_count - low_count == 1 && !task->level->widen[task->dtype]) {
        const unsigned char *last = sources[low_count];
        task->combine(out, last + at * task->elem_bytes, elems);
        return;
    }
    _Alignas(64) unsigned char high[BLOCK_BYTES];
    fold_block(task, high, sources + low_count, source_count - low_count, at,
               elems);
    task->combine(out, high, elems);
}

static void fold_blocks(const wefti_fold_level *level, void *dst,
                        const void *const *sources, size_t source_count,
                        size_t elems, weft_dtype dtype, weft_redop redop)
{
    fold_task task = {level, level->combine[dtype][redop], dtype,
                      weft_dtype_bytes(dtype)};
    WEFTI_ASSERT(task.combine != NULL);
    _Alignas(64) unsigned char out[BLOCK_BYTES];
    size_t block_elems = BLOCK_BYTES / wefti_wide_bytes(dtype);
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        fold_block(&task, out, sources, source_count, at, now);
        wefti_narrow_by(level, (unsigned char *)dst + at * task.elem_bytes, out,
                        source_count, now, dtype, redop);
    }
}

void wefti_fold_by(const wefti_fold_level *level, void *dst,
                   const void *const *sources, size_t source_count,
                   size_t elems, weft_dtype dtype, weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    bool sums_in_place = redop == WEFT_REDOP_AVG && !level->narrow[dtype] &&
                         level->fold[dtype][WEFT_REDOP_SUM];
    if (level->fold[dtype][redop]) {
        level->fold[dtype][redop](dst, sources, source_count, elems);
    } else if (sums_in_place) {
        level->fold[dtype][WEFT_REDOP_SUM](dst, sources, source_count, elems);
        level->average[dtype](dst, dst, source_count, elems);
    } else {
        fold_blocks(level, dst, sources, source_count, elems, dtype, redop);
    }
}

/* Looked up once: all threads find the same, so nobody orders anything. */
static const wefti_fold_level *best_level(void)
{
    static const wefti_fold_level *_Atomic best;
    const wefti_fold_level *level =
        atomic_load_explicit(&best, memory_order_relaxed);
    if (!level) {
        level = wefti_fold_level_at(0);
        atomic_store_explicit(&best, level, memory_order_relaxed);
    }
    return level;
}

void wefti_fold(void *dst, const void *const *sources, size_t source_count,
                size_t elems, weft_dtype dtype, weft_redop redop)
{
    wefti_fold_by(best_level(), dst, sources, source_count, elems, dtype,
                  redop);
}

void wefti_widen(void *wide_dst, const void *src, size_t elems,
                 weft_dtype dtype)
{
    wefti_widen_by(best_level(), wide_dst, src, elems, dtype);
}

void wefti_narrow(void *dst, const void *wide_src, size_t source_count,
                  size_t elems, weft_dtype dtype, weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    wefti_narrow_by(best_level(), dst, wide_src, source_count, elems, dtype,
                    redop);
}

void wefti_combine(void *wide_dst, const void *wide_src, size_t elems,
                   weft_dtype dtype, weft_redop redop)
{
    best_level()->combine[dtype][redop](wide_dst, wide_src, elems);
}

void wefti_scale(void *dst, const void *src, const void *scalar, size_t elems,
                 weft_dtype dtype)
{
    best_level()->scale[dtype](dst, src, scalar, elems);
}
