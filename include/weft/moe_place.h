/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/moe_place.h - which ranks have which experts, so that loads are even:
 * experts with much to do are there several times, and replicas of one host
 * stay together where their groups do.
 *
 *   slots     host 0: rank 0 | rank 1 | ...     host 1: ...
 *   of each   slots / ranks replicas, in order
 *
 * Plain arithmetic on host memory, in double, the same everywhere; of equals
 * the one with the lower number comes first.
 *
 * Source: DeepSeek-AI's expert-parallel load balancer (EPLB, 2025): first the
 * groups to hosts, then replicas inside a host, then these to its ranks.
 */
#ifndef WEFT_MOE_PLACE_H
#define WEFT_MOE_PLACE_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * weft_moe_place_config - what is placed.
 *
 * experts     a multiple of groups.
 * replicas    of all experts together, from experts on; a multiple of ranks.
 * ranks       a multiple of hosts.
 * groups      equal parts of the experts, in order, that are routed to
 * together; 0 counts as 1. Where hosts do not divide them, nothing is held
 *             together: any rank may have any replica.
 * hosts       0 counts as 1.
 */
typedef struct weft_moe_place_config {
    size_t size_bytes; /* sizeof(weft_moe_place_config) */
    int experts;
    int replicas;
    int ranks;
    int groups;
    int hosts;
} weft_moe_place_config;

/*
 * weft_moe_place - replicas of experts, and where each goes.
 *
 * load         host, [experts]: of each, 0 or more and finite.
 * expert_out   host, [replicas]: what each slot has.
 * replica_out  host, [replicas]: its number among its expert's, from 0; NULL:
 *              not asked for.
 * count_out    host, [experts]: replicas of each, 1 or more; NULL: not asked
 *              for.
 *
 * Returns      OK | ERR_INVALID (nothing was written) | ERR_NO_MEMORY.
 * Threads      any.  Blocks: no.  Allocates: for the time of the call.
 */
WEFT_NODISCARD weft_status weft_moe_place(const weft_moe_place_config *config,
                                          const double *load,
                                          int32_t *expert_out,
                                          int32_t *replica_out,
                                          int32_t *count_out);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
