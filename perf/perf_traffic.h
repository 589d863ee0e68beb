/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_traffic.h - which experts the tokens of weft-perf's moe_dispatch
 * and moe_combine go to: drawn evenly, the same in every run, or as a file says
 * that ranks send to ranks, as its alltoallv does, too. Each rank knows that of
 * all.
 */
#ifndef PERF_PERF_TRAFFIC_H
#define PERF_PERF_TRAFFIC_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct wefti_perf_traffic {
    int nranks, experts, slots;
    size_t tokens; /* of each rank; not of a matrix */
    size_t *rows;  /* [nranks][nranks] of a matrix; NULL: there is none */
} wefti_perf_traffic;

/*
 * wefti_perf_traffic_read - rows from a file of numbers of bytes, as alltoallv
 * of nccl-tests reads it: a square of at least nranks lines, of which the first
 * nranks count, and in each the first nranks numbers. fini frees them.
 *
 * scale       times every number.
 * row_bytes   a token has so many; what is not whole rows is rounded down.
 *
 * Returns     OK | ERR_INVALID (file, line and what is allowed) | ERR_SYSTEM |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_perf_traffic_read(wefti_perf_traffic *traffic,
                                                   const char *path,
                                                   double scale,
                                                   size_t row_bytes);
void wefti_perf_traffic_fini(wefti_perf_traffic *traffic);

/* The tokens of a rank; the experts of one of them, [slots]. */
size_t wefti_perf_traffic_tokens(const wefti_perf_traffic *traffic, int rank);
void wefti_perf_traffic_experts(const wefti_perf_traffic *traffic, int rank,
                                size_t token, int32_t *experts_out);

/* The most tokens of any rank; rows that come to a rank, one for each token and
 * expert there; and how many tokens go to how many ranks, over all. */
size_t wefti_perf_traffic_most(const wefti_perf_traffic *traffic);
size_t wefti_perf_traffic_rows(const wefti_perf_traffic *traffic, int rank);
size_t wefti_perf_traffic_pairs(const wefti_perf_traffic *traffic);

#endif
