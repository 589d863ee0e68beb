/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/rings.h - how many rings and chains of which bandwidth a host, or
 * several alike, carry at once, and in which orders.
 *
 * Every ring asks the same bandwidth of each link on its way; a link's
 * capacity is NCCL's figure for it, so that the answer can be held against
 * NCCL's own. most_use proves it: no link of the graph is asked for more than
 * that share of its capacity (at most 1), counted anew from the orders.
 *
 * Deterministic, and bounded by a number of steps, not by time.
 *
 * Source: NCCL 2.28, src/graph/search.cc, for the speeds tried and the
 * doubling of channels; the search itself is weft's.
 */
#ifndef TOPO_RINGS_H
#define TOPO_RINGS_H

#include "topo/paths.h"

#define WEFTI_RINGS_MOST 32
/* Joined GPUs; over more, no rings are searched. */
#define WEFTI_RING_GPUS_MOST 256

typedef struct wefti_rings {
    int channels;         /* after doubling; 0: no GPU to join, or too many */
    int distinct;         /* orders below; channel c has order c % distinct */
    double GBps;          /* of each channel */
    wefti_path_type type; /* the worst hop between GPUs */
    wefti_path_type nic_type; /* between GPUs and NICs; DIS: single host */
    double most_use;
    int gpu_count;
    int *orders;                 /* [distinct][gpu_count], ordinals of GPUs */
    int nics[WEFTI_RINGS_MOST];  /* by which each enters; -1 */
    int exits[WEFTI_RINGS_MOST]; /* and leaves */
} wefti_rings;

/* Rings within a host; here and below, over all hosts of its NVLink domain
 * where that spans several. */
WEFT_NODISCARD weft_status wefti_rings_plan(const wefti_paths *paths, int host,
                                            wefti_rings *rings_out);

/* A host's part of rings over several: NIC, all GPUs, the same NIC; or in
 * pairs, each of which leaves by the NIC that the other enters by. */
WEFT_NODISCARD weft_status wefti_rings_plan_net(const wefti_paths *paths,
                                                int host,
                                                wefti_rings *rings_out);

/* Chains for trees: like rings without the last hop. As NCCL does, they are
 * counted in one direction; an all-reduce over trees uses both. */
WEFT_NODISCARD weft_status wefti_chains_plan(const wefti_paths *paths, int host,
                                             wefti_rings *rings_out);

/* A host's part of trees over several: a chain whose first GPU receives and
 * sends by a NIC near it. */
WEFT_NODISCARD weft_status wefti_chains_plan_net(const wefti_paths *paths,
                                                 int host,
                                                 wefti_rings *rings_out);

/* Whether there are none because too many GPUs are joined. */
bool wefti_rings_too_large(const wefti_rings *rings);

void wefti_rings_fini(wefti_rings *rings);

#endif
