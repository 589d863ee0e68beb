/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/eplb.h - which rank has which experts, some of them more than once,
 * so that all have about as much to do; arithmetic alone.
 *
 *   groups of experts  --pack-->  nodes
 *   a node's experts   --replicate-->  its replicas  --pack-->  its ranks
 *
 * Where groups do not divide among nodes there is one group and one node: then
 * experts are spread over all ranks at once. Of equals the one with the lower
 * number comes first; arithmetic is in double.
 *
 * Source: DeepSeek-AI 2025 (EPLB).
 */
#ifndef OVERLAP_EPLB_H
#define OVERLAP_EPLB_H

#include "weft/status.h"

/* experts = k groups; replicas = k ranks; ranks = k nodes; replicas >= experts.
 */
typedef struct wefti_eplb {
    int experts, replicas, groups, nodes, ranks;
} wefti_eplb;

/*
 * wefti_eplb_place - load [experts], 0 or more.
 *
 * expert_out   [replicas] the expert in each slot; rank r has replicas / ranks
 *              of them in a row
 * slots_out    [experts][replicas - experts + 1] an expert's slots in the order
 *              in which they were made; -1 behind them
 * count_out    [experts] how many that are
 *
 * Returns      OK | ERR_INVALID (what does not divide) | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_eplb_place(const wefti_eplb *how,
                                            const double *load, int *expert_out,
                                            int *slots_out, int *count_out);

#endif
