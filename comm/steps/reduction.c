/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/reduction.c - a program's reductions: who holds them, and running
 * them.
 */
#include "comm/steps/reduction.h"

#include "base/check.h"
#include "comm/core/core.h"
#include "comm/pattern/shape.h"
#include "kernels/wire/reduce_level.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 4096 };

wefti_reduction *wefti_reduction_get(const weft_comm *comm, weft_redop redop)
{
    return wefti_redop_is_user(redop)
               ? comm->reductions[redop - WEFT_REDOP_USER]
               : NULL;
}

void wefti_reduction_hold(wefti_reduction *reduction)
{
    if (reduction) {
        atomic_fetch_add(&reduction->holders, 1);
    }
}

void wefti_reduction_drop(wefti_reduction *reduction)
{
    /* Acquires what the other holders did with it before they let it go. */
    if (reduction && atomic_fetch_sub(&reduction->holders, 1) == 1) {
        free(reduction);
    }
}

void wefti_reductions_fini(weft_comm *comm)
{
    for (int i = 0; i < WEFTI_REDUCTIONS; i++) {
        wefti_reduction_drop(comm->reductions[i]);
    }
}

void wefti_reduction_text(const weft_comm *comm, weft_redop redop,
                          char *text_out, size_t text_bytes)
{
    const wefti_reduction *reduction = wefti_reduction_get(comm, redop);
    if (reduction) {
        snprintf(text_out, text_bytes, "reduction \"%s\"", reduction->name);
    } else if (wefti_redop_is_user(redop)) {
        snprintf(text_out, text_bytes, "reduction %d",
                 (int)redop - WEFT_REDOP_USER);
    } else {
        snprintf(text_out, text_bytes, "%s", weft_redop_text(redop));
    }
}

/* What the blocks of one reduce have in common. */
typedef struct reduce_task {
    const wefti_reduction *reduction;
    const void *const *sources;
    weft_dtype dtype;
    size_t elem_bytes;
} reduce_task;

/* out = the tree over source_count sources, from first, at at .. at + elems. */
static void reduce_block(const reduce_task *task, void *out, size_t first,
                         size_t source_count, size_t at, size_t elems)
{
    if (source_count == 1) {
        const unsigned char *source = task->sources[first];
        memcpy(out, source + at * task->elem_bytes, elems * task->elem_bytes);
        return;
    }
    _Alignas(64) unsigned char high[BLOCK_BYTES];
    size_t low_count = wefti_reduce_split(source_count);
    reduce_block(task, out, first, low_count, at, elems);
    reduce_block(task, high, first + low_count, source_count - low_count, at,
                 elems);
    task->reduction->function(task->reduction->context, out, high, elems,
                              task->dtype);
}

void wefti_reduction_apply(const wefti_reduction *reduction, void *dst,
                           const void *const *sources, size_t source_count,
                           size_t elems, weft_dtype dtype)
{
    const reduce_task task = {reduction, sources, dtype,
                              weft_dtype_bytes(dtype)};
    const size_t block_elems = BLOCK_BYTES / task.elem_bytes;
    WEFTI_ASSERT(reduction && source_count > 0);
    _Alignas(64) unsigned char out[BLOCK_BYTES];
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        reduce_block(&task, out, 0, source_count, at, now);
        /* dst may be a source: only now is all of this block read. */
        memcpy((unsigned char *)dst + at * task.elem_bytes, out,
               now * task.elem_bytes);
    }
}

void wefti_reduction_combine(const wefti_reduction *reduction, void *dst,
                             const void *src, size_t elems, weft_dtype dtype)
{
    const size_t elem_bytes = weft_dtype_bytes(dtype);
    const size_t block_elems = BLOCK_BYTES / elem_bytes;
    WEFTI_ASSERT(reduction && (uintptr_t)dst % 64 == 0);
    _Alignas(64) unsigned char in[BLOCK_BYTES];
    for (size_t at = 0; at < elems; at += block_elems) {
        size_t now = elems - at < block_elems ? elems - at : block_elems;
        memcpy(in, (const unsigned char *)src + at * elem_bytes,
               now * elem_bytes);
        reduction->function(reduction->context,
                            (unsigned char *)dst + at * elem_bytes, in, now,
                            dtype);
    }
}
