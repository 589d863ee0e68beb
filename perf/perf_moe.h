/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_moe.h - moe_dispatch and moe_combine of weft-perf: one exchange of
 * weft/moe.h, its tokens' experts, and what must come of a call.
 *
 * A case's count is that of this rank's x. Its bytes are those of the rows that
 * go to ranks, of the mean rank, in dtype: a token counts once for each rank
 * with any of its experts.
 */
#ifndef PERF_PERF_MOE_H
#define PERF_PERF_MOE_H

#include "perf/perf_rank.h"
#include "perf/perf_traffic.h"

typedef struct wefti_perf_moe {
    wefti_perf_traffic traffic;
    size_t hidden, capacity;
    bool fp8;
    weft_moe *moe;
    weft_moe_batch batch; /* of the last dispatch */
    int32_t *expert;      /* the device's */
    float *weight;        /* the device's, all 1 */
    unsigned char *host;  /* rows to look at */
} wefti_perf_moe;

/* Fills in what wefti_perf_case_size does for other operations. */
WEFT_NODISCARD weft_status wefti_perf_moe_size(const wefti_perf_rank *self,
                                               wefti_perf_case *subject,
                                               size_t bytes);

/* pool->moe of a case; fini takes NULL. */
WEFT_NODISCARD weft_status wefti_perf_moe_init(wefti_perf_pool *pool,
                                               wefti_perf_rank *self,
                                               size_t bytes);
/* "one_hop" or "two_hop": what it does. */
const char *wefti_perf_moe_way(const wefti_perf_pool *pool);
void wefti_perf_moe_fini(wefti_perf_moe *moe, wefti_perf_rank *self);

/* Before a call that is timed: the batch that it needs. */
WEFT_NODISCARD weft_status wefti_perf_moe_prepare(wefti_perf_pool *pool,
                                                  wefti_perf_rank *self,
                                                  size_t call);

/* The call itself. */
WEFT_NODISCARD weft_status wefti_perf_moe_post(const wefti_perf_pool *pool,
                                               size_t call,
                                               weft_stream *stream);

/* Elements that are wrong of what the last call, of that number, has left. */
WEFT_NODISCARD weft_status wefti_perf_moe_check(wefti_perf_pool *pool,
                                                wefti_perf_rank *self,
                                                size_t call,
                                                int64_t *wrong_out);

#endif
