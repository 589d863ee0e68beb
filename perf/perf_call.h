/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_call.h - do a case on weft.
 */
#ifndef PERF_PERF_CALL_H
#define PERF_PERF_CALL_H

#include "perf/perf_rank.h"

/* The whole operation, ungated; of lists and puts only what it moves. */
weft_op wefti_perf_call_op(const wefti_perf_case *subject,
                           wefti_perf_buffers buffers);

/* Posts a call, by its plan or graph if there is one. */
WEFT_NODISCARD weft_status wefti_perf_call_post(const wefti_perf_pool *pool,
                                                size_t call, weft_comm *comm,
                                                weft_stream *stream);

/* The gate that says which parts of the send buffer are made. */
typedef struct wefti_perf_gate {
    weft_gate *ready;
    size_t part_elems;
    uint64_t epoch;
} wefti_perf_gate;

/* Posts the operation on stream, tied to the gate. Also where this rank sends
 * nothing: all cut alike. Not for puts and v forms. */
WEFT_NODISCARD weft_status wefti_perf_call_post_gated(
    const wefti_perf_pool *pool, size_t call, const wefti_perf_gate *gate,
    weft_comm *comm, weft_stream *stream);

/*
 * wefti_perf_call_plan - a plan for each of the pool's buffers, which calls
 * then post. Not for puts.
 */
WEFT_NODISCARD weft_status wefti_perf_call_plan(wefti_perf_pool *pool,
                                                weft_comm *comm);

/* wefti_perf_call_ring - of an op that rings; collective. */
WEFT_NODISCARD weft_status wefti_perf_call_ring(wefti_perf_pool *pool,
                                                wefti_perf_rank *self);

/*
 * wefti_perf_call_run - do it, and return when it is done.
 *
 * call     counts the calls on the pool from 0, without gaps.
 * stream   NULL: blocking calls here and now; else through this stream.
 */
WEFT_NODISCARD weft_status wefti_perf_call_run(const wefti_perf_pool *pool,
                                               size_t call, weft_comm *comm,
                                               weft_stream *stream);

#endif
