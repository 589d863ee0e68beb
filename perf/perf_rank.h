/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_rank.h - one rank of a weft-perf run: its communicator, streams
 * and start line, and the buffers of one size.
 */
#ifndef PERF_PERF_RANK_H
#define PERF_PERF_RANK_H

#include "perf/perf_options.h"
#include "perf/perf_traffic.h"
#include "perf/startline.h"
#include "weft/weft.h"

typedef struct wefti_perf_rank {
    const wefti_perf_options *options;
    int rank, nranks;
    weft_dtype dtype; /* of those asked for, the one at work */
    weft_redop redop;
    bool inplace; /* the form at work */
    weft_device *device;
    weft_comm *comm;
    weft_stream *stream;   /* operations with -z 0, and gated ones */
    wefti_startline *line; /* NULL: ranks on several hosts */
    int64_t warn_ns;       /* at the line, then it asks */
    int64_t come_ns;       /* to the line */
    wefti_tile own;        /* what this rank sends */
    wefti_tile scratch;
    size_t *counts;             /* [2][nranks], of the newest case */
    wefti_perf_traffic traffic; /* its rows: bytes of alltoallv's matrix */
} wefti_perf_rank;

/*
 * wefti_perf_rank_init - bring the ranks together. id NULL: by environment.
 *
 * Returns     OK | what failed (nothing to undo).
 */
WEFT_NODISCARD weft_status
wefti_perf_rank_init(wefti_perf_rank *self, const wefti_perf_options *options,
                     int rank, int nranks, const weft_unique_id *id);
void wefti_perf_rank_fini(wefti_perf_rank *self);

/* Makes dtype and redop the ones at work. */
void wefti_perf_rank_set(wefti_perf_rank *self, weft_dtype dtype,
                         weft_redop redop);

/* This rank's view of one size of the operation asked for; valid until the
 * next. */
wefti_perf_case wefti_perf_rank_case(const wefti_perf_rank *self, size_t bytes);

/* All ranks go on together. */
WEFT_NODISCARD weft_status wefti_perf_rank_meet(wefti_perf_rank *self);

/* Over all ranks, elementwise, in place, here and now, by whatever algorithm:
 * those asked for are what is measured. */
WEFT_NODISCARD weft_status wefti_perf_rank_agree(wefti_perf_rank *self,
                                                 int64_t *values, size_t count,
                                                 weft_redop redop);

/* Buffers to go round in: `copies` rooms for each direction. */
typedef struct wefti_perf_pool {
    wefti_perf_case subject;
    int copies;
    void *block;   /* memory of the device */
    void *staging; /* host memory of one room; NULL: the host reads block */
    size_t room_bytes;
    size_t first_bytes; /* of a room, before its buffer */
    weft_mem *mem;      /* block is this rank's part of it; NULL: of none */
    weft_plan **plans;  /* [copies] of --plan, else NULL */
    struct CUgraphExec_st **graphs; /* [copies] of --graph, else NULL */
    weft_ring *ring;                /* of blocks that come round, else NULL */
    weft_device *device;            /* with ring: copies its blocks */
    struct wefti_perf_moe *moe;     /* rows to experts and back, else NULL */
} wefti_perf_pool;

WEFT_NODISCARD weft_status wefti_perf_pool_init(wefti_perf_pool *pool,
                                                wefti_perf_rank *self,
                                                const wefti_perf_case *subject,
                                                int copies);
void wefti_perf_pool_fini(wefti_perf_pool *pool, wefti_perf_rank *self);

/* Send and receive buffer of a call. */
wefti_perf_buffers wefti_perf_pool_at(const wefti_perf_pool *pool, size_t call);

/* Makes sure that nothing of the call's output is right already. */
WEFT_NODISCARD weft_status wefti_perf_pool_poison(wefti_perf_pool *pool,
                                                  wefti_perf_rank *self,
                                                  size_t call);

/* Writes elements first .. first + elems of what this rank sends, if any. */
WEFT_NODISCARD weft_status wefti_perf_pool_fill(wefti_perf_pool *pool,
                                                wefti_perf_rank *self,
                                                size_t call, size_t first,
                                                size_t elems);

/* How many elements of the call's whole output are wrong. */
WEFT_NODISCARD weft_status wefti_perf_pool_check(wefti_perf_pool *pool,
                                                 wefti_perf_rank *self,
                                                 size_t call,
                                                 int64_t *wrong_out);

#endif
