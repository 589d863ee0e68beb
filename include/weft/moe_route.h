/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * weft/moe_route.h - which experts a token goes to, and how evenly.
 *
 *   selection   affinity + bias; where groups are limited, a token goes to the
 *               best of them only
 *   weight      scale * affinity / the sum of those of its experts: no bias
 *   balance     a bias falls where an expert has more than the mean, and rises
 *               where it has less
 *
 * A group is what lies together, such as the experts of one host: then a token
 * crosses the network group_limit times at most.
 *
 * Plain arithmetic on host memory, the same bits everywhere; of equals the one
 * with the lower number comes first.
 *
 * Source: DeepSeek-AI 2024 (DeepSeek-V3, arXiv 2412.19437, section 2.1.2); Wang
 * et al. 2024 (loss-free balancing, arXiv 2408.15664).
 */
#ifndef WEFT_MOE_ROUTE_H
#define WEFT_MOE_ROUTE_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/*
 * weft_moe_route_config - how a token's experts are chosen.
 *
 * experts      of all ranks.
 * slots        experts of a token, at most WEFT_MOE_SLOTS_MOST.
 * groups       equal parts of the experts, in order; 0 counts as 1.
 * group_limit  of how many groups a token's experts may be; 0: of all. A
 *              group's score is the sum of its slots / group_limit (rounded up)
 *              best selection scores.
 * scale        of weights; 0 counts as 1.
 */
typedef struct weft_moe_route_config {
    size_t size_bytes; /* sizeof(weft_moe_route_config) */
    int experts;
    int slots;
    int groups;
    int group_limit;
    float scale;
} weft_moe_route_config;

/*
 * weft_moe_route - experts and weights of tokens.
 *
 * affinity    host, [tokens][experts], 0 or more (a sigmoid's, a softmax').
 * bias        host, [experts], added for the choice only; NULL: none.
 * expert_out  host, [tokens][slots], best first: weft_moe_dispatch takes it.
 * weight_out  host, [tokens][slots]; all 0 where the affinities are.
 *
 * Returns     OK | ERR_INVALID (nothing was written) | ERR_NO_MEMORY.
 * Threads     any.  Blocks: no.  Allocates: for the time of the call.
 */
WEFT_NODISCARD weft_status weft_moe_route(const weft_moe_route_config *config,
                                          const float *affinity,
                                          const float *bias, size_t tokens,
                                          int32_t *expert_out,
                                          float *weight_out);

/*
 * weft_moe_route_gradient - of affinities, from that of weights.
 *
 * expert         as weft_moe_route wrote it.
 * dweight        host, [tokens][slots].
 * daffinity_out  host, [tokens][experts]; 0 where a token does not go.
 *
 * Returns, Threads, Blocks: weft_moe_route.  Allocates: no.
 */
WEFT_NODISCARD weft_status weft_moe_route_gradient(
    const weft_moe_route_config *config, const float *affinity,
    const int32_t *expert, const float *dweight, size_t tokens,
    float *daffinity_out);

/*
 * weft_moe_route_balance - one step of biases towards even loads.
 *
 * bias      host, [experts]: falls by step where load is above the mean, rises
 *           by it where it is below.
 * load      host, [experts]: tokens of all ranks since the last step.
 *
 * Returns   OK | ERR_INVALID.  Threads: any.  Blocks: no.  Allocates: no.
 */
WEFT_NODISCARD weft_status weft_moe_route_balance(float *bias,
                                                  const uint64_t *load,
                                                  int experts, float step);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
