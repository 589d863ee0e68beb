/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/steps/reduction.h - reductions that a program has made itself: kept
 * here, and applied where kernels/wire/reduce.h has no arithmetic for them.
 *
 * They never ride in entries (comm/steps/entry.c): comm/post/op_check.c gives
 * them a shape that moves step by step, so that small built-in operations need
 * not ask which kind they are.
 */
#ifndef COMM_STEPS_REDUCTION_H
#define COMM_STEPS_REDUCTION_H

#include "weft/redop.h"

#include <stdatomic.h>

/* Counted by its holders: the communicator, and plans, which may outlive it. */
typedef struct wefti_reduction {
    _Atomic int holders; /* the one that takes it to 0 frees it */
    weft_redop_function function;
    void *context;
    char name[32];
} wefti_reduction;

/* NULL: comm has none of that number, or redop is a built-in one. */
wefti_reduction *wefti_reduction_get(const weft_comm *comm, weft_redop redop);

/* Another holder; one less. NULL is legal. */
void wefti_reduction_hold(wefti_reduction *reduction);
void wefti_reduction_drop(wefti_reduction *reduction);

/* The last of comm: all that it still holds. */
void wefti_reductions_fini(weft_comm *comm);

/* "sum", or 'reduction "name"'. */
void wefti_reduction_text(const weft_comm *comm, weft_redop redop,
                          char *text_out, size_t text_bytes);

/*
 * wefti_reduction_apply - dst[i] = the balanced tree over k of sources[k][i].
 *
 * As wefti_reduce, but that the partial results have dtype itself.
 */
void wefti_reduction_apply(const wefti_reduction *reduction, void *dst,
                           const void *const *sources, size_t source_count,
                           size_t elems, weft_dtype dtype);

/* dst[i] = dst[i] op src[i]; dst is 64-byte aligned. */
void wefti_reduction_combine(const wefti_reduction *reduction, void *dst,
                             const void *src, size_t elems, weft_dtype dtype);

#endif
