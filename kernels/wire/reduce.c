/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/wire/reduce.c - hands each call to the best level of this processor,
 * and reduces block by block what has no loop of its own:
 *
 *     sources --widen--> wide blocks --combine, down the tree--> one block
 *             --narrow or average--> dst
 *
 * A block and its partial results stay in the first-level cache.
 */
#include "kernels/wire/reduce.h"

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/wire/reduce_level.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK_BYTES = 4096 }; /* wide */

extern const wefti_reduce_level wefti_reduce_level_base;
#ifdef __x86_64__
extern const wefti_reduce_level wefti_reduce_level_v3;
extern const wefti_reduce_level wefti_reduce_level_v4;
#endif

const wefti_reduce_level *wefti_reduce_level_at(size_t index)
{
    static const void *const levels[WEFTI_CPU_LEVELS] = {
        [WEFTI_CPU_BASE] = &wefti_reduce_level_base,
#ifdef __x86_64__
        [WEFTI_CPU_V3] = &wefti_reduce_level_v3,
        [WEFTI_CPU_V4] = &wefti_reduce_level_v4,
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

void wefti_widen_by(const wefti_reduce_level *level, void *wide_dst,
                    const void *src, size_t elems, weft_dtype dtype)
{
    if (level->widen[dtype]) {
        level->widen[dtype](wide_dst, src, elems);
    } else if (wide_dst != src && elems != 0) {
        memcpy(wide_dst, src, elems * weft_dtype_bytes(dtype));
    }
}

void wefti_narrow_by(const wefti_reduce_level *level, void *dst,
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

/* What the blocks of one reduce have in common. */
typedef struct reduce_task {
    const wefti_reduce_level *level;
    void (*combine)(void *wide_dst, const void *wide_src, size_t elems);
    weft_dtype dtype;
    size_t elem_bytes;
} reduce_task;

/* out = the tree over the sources' elements at .. at + elems, wide. */
static void reduce_block(const reduce_task *task, void *out,
                         const void *const *sources, size_t source_count,
                         size_t at, size_t elems)
{
    const unsigned char *first = sources[0];
    if (source_count == 1) {
        wefti_widen_by(task->level, out, first + at * task->elem_bytes, elems,
                       task->dtype);
        return;
    }
    size_t low_count = wefti_reduce_split(source_count);
    reduce_block(task, out, sources, low_count, at, elems);
    if (source_count - low_count == 1 && !task->level->widen[task->dtype]) {
        const unsigned char *last = sources[low_count];
        task->combine(out, last + at * task->elem_bytes, elems);
        return;
    }
    _Alignas(64) unsigned char high[BLOCK_BYTES];
    reduce_block(task, high, sources + low_count, source_count - low_count, at,
                 elems);
    task->combine(out, high, elems);
}

static void reduce_blocks(const wefti_reduce_level *level, void *dst,
                          const void *const *sources, size_t source_count,
                          size_t total_count, size_t elems, weft_dtype dtype,
                          weft_redop redop)
{
    reduce_task task = {level, level->combine[dtype][redop], dtype,
                        weft_dtype_bytes(dtype)};
    WEFTI_ASSERT(task.combine != NULL);
    _Alignas(64) unsigned char out[BLOCK_BYTES];
    size_t block_elems = BLOCK_BYTES / wefti_wide_bytes(dtype);
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        reduce_block(&task, out, sources, source_count, at, now);
        wefti_narrow_by(level, (unsigned char *)dst + at * task.elem_bytes, out,
                        total_count, now, dtype, redop);
    }
}

/* An average divides by total_count. */
static void reduce_over(const wefti_reduce_level *level, void *dst,
                        const void *const *sources, size_t source_count,
                        size_t total_count, size_t elems, weft_dtype dtype,
                        weft_redop redop)
{
    WEFTI_ASSERT(source_count > 0);
    bool sums_in_place = redop == WEFT_REDOP_AVG && !level->narrow[dtype] &&
                         level->reduce[dtype][WEFT_REDOP_SUM];
    /* The loops that average divide by their own count. */
    bool fits = redop != WEFT_REDOP_AVG || total_count == source_count;
    if (level->reduce[dtype][redop] && fits) {
        level->reduce[dtype][redop](dst, sources, source_count, elems);
    } else if (sums_in_place) {
        level->reduce[dtype][WEFT_REDOP_SUM](dst, sources, source_count, elems);
        level->average[dtype](dst, dst, total_count, elems);
    } else {
        reduce_blocks(level, dst, sources, source_count, total_count, elems,
                      dtype, redop);
    }
}

void wefti_reduce_by(const wefti_reduce_level *level, void *dst,
                     const void *const *sources, size_t source_count,
                     size_t elems, weft_dtype dtype, weft_redop redop)
{
    reduce_over(level, dst, sources, source_count, source_count, elems, dtype,
                redop);
}

/* Looked up once: all threads find the same, so nobody orders anything. */
static const wefti_reduce_level *best_level(void)
{
    static const wefti_reduce_level *_Atomic best;
    const wefti_reduce_level *level =
        atomic_load_explicit(&best, memory_order_relaxed);
    if (!level) {
        level = wefti_reduce_level_at(0);
        atomic_store_explicit(&best, level, memory_order_relaxed);
    }
    return level;
}

void wefti_reduce(void *dst, const void *const *sources, size_t source_count,
                  size_t elems, weft_dtype dtype, weft_redop redop)
{
    wefti_reduce_by(best_level(), dst, sources, source_count, elems, dtype,
                    redop);
}

static bool is_float_average(weft_dtype dtype, weft_redop redop)
{
    return redop == WEFT_REDOP_AVG && weft_dtype_kind(dtype) == WEFT_KIND_FLOAT;
}

weft_redop wefti_redop_inner(weft_dtype dtype, weft_redop redop)
{
    bool later = redop == WEFT_REDOP_AVG && !is_float_average(dtype, redop);
    return later ? WEFT_REDOP_SUM : redop;
}

weft_redop wefti_redop_outer(weft_dtype dtype, weft_redop redop)
{
    return is_float_average(dtype, redop) ? WEFT_REDOP_SUM : redop;
}

void wefti_reduce_part(void *dst, const void *const *sources,
                       size_t source_count, size_t total_count, size_t elems,
                       weft_dtype dtype, weft_redop redop)
{
    reduce_over(best_level(), dst, sources, source_count, total_count, elems,
                dtype, redop);
}

static void round_by(const wefti_reduce_level *level, void *wide,
                     size_t total_count, size_t elems, weft_dtype dtype,
                     weft_redop redop)
{
    redop = wefti_redop_inner(dtype, redop);
    if (redop == WEFT_REDOP_AVG || level->narrow[dtype]) {
        _Alignas(64) unsigned char narrow[BLOCK_BYTES];
        WEFTI_ASSERT(elems <= BLOCK_BYTES / wefti_wide_bytes(dtype));
        wefti_narrow_by(level, narrow, wide, total_count, elems, dtype, redop);
        wefti_widen_by(level, wide, narrow, elems, dtype);
    }
}

void wefti_round(void *wide, size_t total_count, size_t elems, weft_dtype dtype,
                 weft_redop redop)
{
    size_t width = wefti_wide_bytes(dtype), block_elems = BLOCK_BYTES / width;
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        round_by(best_level(), (unsigned char *)wide + at * width, total_count,
                 now, dtype, redop);
    }
}

/* The groups of one reduce. */
typedef struct group_task {
    reduce_task reduce;
    const void *const *sources;
    const int *begins;
    size_t total_count;
    weft_redop redop;
} group_task;

/* out = the tree over `count` groups' results at .. at + elems, wide. */
static void reduce_group_block(const group_task *task, void *out, size_t first,
                               size_t count, size_t at, size_t elems)
{
    if (count == 1) {
        size_t begin = (size_t)task->begins[first];
        size_t sources = (size_t)task->begins[first + 1] - begin;
        reduce_block(&task->reduce, out, task->sources + begin, sources, at,
                     elems);
        round_by(task->reduce.level, out, task->total_count, elems,
                 task->reduce.dtype, task->redop);
        return;
    }
    _Alignas(64) unsigned char high[BLOCK_BYTES];
    size_t low_count = wefti_reduce_split(count);
    reduce_group_block(task, out, first, low_count, at, elems);
    reduce_group_block(task, high, first + low_count, count - low_count, at,
                       elems);
    task->reduce.combine(out, high, elems);
}

void wefti_reduce_groups(void *dst, const void *const *sources,
                         const int *group_begins, size_t group_count,
                         size_t elems, weft_dtype dtype, weft_redop redop)
{
    const wefti_reduce_level *level = best_level();
    const group_task task = {.reduce = {level, level->combine[dtype][redop],
                                        dtype, weft_dtype_bytes(dtype)},
                             .sources = sources,
                             .begins = group_begins,
                             .total_count = (size_t)group_begins[group_count],
                             .redop = redop};
    WEFTI_ASSERT(task.reduce.combine != NULL && group_count > 0);
    _Alignas(64) unsigned char out[BLOCK_BYTES];
    size_t block_elems = BLOCK_BYTES / wefti_wide_bytes(dtype);
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        reduce_group_block(&task, out, 0, group_count, at, now);
        wefti_narrow_by(
            level, (unsigned char *)dst + at * task.reduce.elem_bytes, out,
            task.total_count, now, dtype, wefti_redop_outer(dtype, redop));
    }
}

/* Nodes of one reduce. */
typedef struct node_task {
    reduce_task reduce;
    const void *const *sources;
    const int *begins;
    size_t wide_bytes;
} node_task;

static size_t count_ranks(const node_task *task, size_t first, size_t count)
{
    return (size_t)(task->begins[first + count] - task->begins[first]);
}

/* Elements of a source that is a sum. */
static const void *wide_source(const node_task *task, size_t source, size_t at)
{
    return (const unsigned char *)task->sources[source] + at * task->wide_bytes;
}

/* out = the tree over `count` sources at .. at + elems, wide. */
static void reduce_node_block(const node_task *task, void *out, size_t first,
                              size_t count, size_t at, size_t elems)
{
    size_t ranks = count_ranks(task, first, count), low_count = 1;
    if (ranks == count) {
        reduce_block(&task->reduce, out, task->sources + first, count, at,
                     elems);
        return;
    }
    if (count == 1) {
        memcpy(out, wide_source(task, first, at), elems * task->wide_bytes);
        return;
    }
    while (count_ranks(task, first, low_count) < wefti_reduce_split(ranks)) {
        low_count++;
    }
    WEFTI_ASSERT(count_ranks(task, first, low_count) ==
                 wefti_reduce_split(ranks));
    reduce_node_block(task, out, first, low_count, at, elems);
    if (count - low_count == 1 && count_ranks(task, first + low_count, 1) > 1) {
        task->reduce.combine(out, wide_source(task, first + low_count, at),
                             elems);
        return;
    }
    _Alignas(64) unsigned char high[BLOCK_BYTES];
    reduce_node_block(task, high, first + low_count, count - low_count, at,
                      elems);
    task->reduce.combine(out, high, elems);
}

/* Whether the tree over the sources is that over their ranks: all are nodes of
 * one size, but for a smaller one at the end. */
static bool are_even(const int *begins, size_t source_count)
{
    int size = begins[1] - begins[0];
    for (size_t i = 1; i + 1 < source_count; i++) {
        if (begins[i + 1] - begins[i] != size) {
            return false;
        }
    }
    return (size & (size - 1)) == 0 &&
           begins[source_count] - begins[source_count - 1] <= size;
}

void wefti_reduce_nodes(void *dst, const void *const *sources,
                        const int *begins, size_t source_count,
                        size_t total_count, size_t elems, weft_dtype dtype,
                        weft_redop redop)
{
    const wefti_reduce_level *level = best_level();
    const node_task task = {.reduce = {level, level->combine[dtype][redop],
                                       dtype, weft_dtype_bytes(dtype)},
                            .sources = sources,
                            .begins = begins,
                            .wide_bytes = wefti_wide_bytes(dtype)};
    const weft_redop unfinished =
        redop == WEFT_REDOP_AVG ? WEFT_REDOP_SUM : redop;
    WEFTI_ASSERT(task.reduce.combine != NULL && source_count > 0);
    if (!level->widen[dtype] && are_even(begins, source_count)) {
        reduce_over(level, dst, sources, source_count, total_count, elems,
                    dtype, total_count ? redop : unfinished);
        return;
    }
    _Alignas(64) unsigned char block[BLOCK_BYTES];
    const size_t block_elems = BLOCK_BYTES / task.wide_bytes;
    const size_t dst_bytes =
        total_count ? task.reduce.elem_bytes : task.wide_bytes;
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        unsigned char *to = (unsigned char *)dst + at * dst_bytes;
        reduce_node_block(&task, total_count ? block : to, 0, source_count, at,
                          now);
        if (total_count) {
            wefti_narrow_by(level, to, block, total_count, now, dtype, redop);
        }
    }
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
