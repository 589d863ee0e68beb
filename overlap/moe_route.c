/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_route.c - weft/moe_route.h: the best of a few, again and again.
 */
#include "weft/moe_route.h"

#include "base/error.h"
#include "base/sized.h"
#include "weft/moe.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static weft_status check_config(const weft_moe_route_config *given,
                                weft_moe_route_config *own)
{
    if (!given) {
        return wefti_error(WEFT_ERR_INVALID, "config is NULL: allowed is a "
                                             "weft_moe_route_config");
    }
    weft_status status = wefti_sized_read(
        "config", given, offsetof(weft_moe_route_config, groups), own,
        sizeof(*own));
    if (status != WEFT_OK) {
        return status;
    }
    own->groups = own->groups ? own->groups : 1;
    own->group_limit = own->group_limit ? own->group_limit : own->groups;
    own->scale = own->scale != 0 ? own->scale : 1;
    if (own->experts < 1 || own->slots < 1 ||
        own->slots > WEFT_MOE_SLOTS_MOST || own->groups < 1 ||
        own->experts % own->groups != 0 || own->group_limit < 1 ||
        own->group_limit > own->groups) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config: experts %d, slots %d, groups %d, "
                           "group_limit %d: allowed is 1 or more, up to %d "
                           "slots, groups that part the experts evenly, a "
                           "limit up to their number",
                           own->experts, own->slots, own->groups,
                           own->group_limit, WEFT_MOE_SLOTS_MOST);
    }
    if (own->slots > own->experts / own->groups * own->group_limit) {
        return wefti_error(WEFT_ERR_INVALID,
                           "config.slots %d: allowed is 1 .. %d, the experts "
                           "of %d groups",
                           own->slots,
                           own->experts / own->groups * own->group_limit,
                           own->group_limit);
    }
    return WEFT_OK;
}

static weft_status check_arrays(const void *const *arrays,
                                const char *const *names, size_t count,
                                size_t tokens)
{
    for (size_t i = 0; i < count && tokens > 0; i++) {
        if (!arrays[i]) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%s is NULL: allowed is memory", names[i]);
        }
    }
    return WEFT_OK;
}

/* The best that is not taken, which it then is; the first of equals. */
static int take_best(const float *scores, bool *taken, int count)
{
    int best = -1;
    for (int i = 0; i < count; i++) {
        if (!taken[i] && (best < 0 || scores[i] > scores[best])) {
            best = i;
        }
    }
    if (best >= 0) {
        taken[best] = true;
    }
    return best;
}

/* One token's work space. */
typedef struct desk {
    float *scores, *group_scores; /* [experts], [groups] */
    bool *taken, *groups_taken;
} desk;

static float score_group(const weft_moe_route_config *config,
                         const float *scores, bool *taken)
{
    const int here = config->experts / config->groups;
    const int each =
        (config->slots + config->group_limit - 1) / config->group_limit;
    float sum = 0;
    memset(taken, 0, (size_t)here * sizeof(*taken));
    for (int i = 0; i < each && i < here; i++) {
        sum += scores[take_best(scores, taken, here)];
    }
    return sum;
}

/* Experts of other groups than the best count as taken. */
static void limit_groups(const weft_moe_route_config *config, const desk *at)
{
    const int here = config->experts / config->groups;
    for (int group = 0; group < config->groups; group++) {
        at->group_scores[group] =
            score_group(config, at->scores + group * here, at->taken);
        at->groups_taken[group] = false;
    }
    for (int i = 0; i < config->group_limit; i++) {
        (void)take_best(at->group_scores, at->groups_taken, config->groups);
    }
    for (int expert = 0; expert < config->experts; expert++) {
        at->taken[expert] = !at->groups_taken[expert / here];
    }
}

static void route_token(const weft_moe_route_config *config,
                        const float *affinity, const float *bias,
                        const desk *at, int32_t *expert_out, float *weight_out)
{
    float sum = 0;
    for (int expert = 0; expert < config->experts; expert++) {
        at->scores[expert] = affinity[expert] + (bias ? bias[expert] : 0);
    }
    limit_groups(config, at);
    for (int slot = 0; slot < config->slots; slot++) {
        expert_out[slot] = take_best(at->scores, at->taken, config->experts);
        sum += affinity[expert_out[slot]];
    }
    for (int slot = 0; slot < config->slots; slot++) {
        weight_out[slot] =
            sum > 0 ? affinity[expert_out[slot]] / sum * config->scale : 0;
    }
}

weft_status weft_moe_route(const weft_moe_route_config *config,
                           const float *affinity, const float *bias,
                           size_t tokens, int32_t *expert_out,
                           float *weight_out)
{
    static const char *const names[] = {"affinity", "expert_out", "weight_out"};
    const void *const arrays[] = {affinity, expert_out, weight_out};
    weft_moe_route_config own;
    weft_status status = check_config(config, &own);
    if (status == WEFT_OK) {
        status = check_arrays(arrays, names, 3, tokens);
    }
    if (status != WEFT_OK) {
        return status;
    }
    const size_t experts = (size_t)own.experts, groups = (size_t)own.groups;
    const size_t slots = (size_t)own.slots;
    float *scores = calloc(experts + groups, sizeof(*scores));
    bool *taken = calloc(experts + groups, sizeof(*taken));
    const desk at = {scores, scores ? scores + experts : NULL, taken,
                     taken ? taken + experts : NULL};
    if (!scores || !taken) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory to route tokens");
    }
    for (size_t token = 0; token < tokens && status == WEFT_OK; token++) {
        route_token(&own, affinity + token * experts, bias, &at,
                    expert_out + token * slots, weight_out + token * slots);
    }
    free(scores);
    free(taken);
    return status;
}

/* weight = scale * a / sum, so d a = scale * (d weight - the mean of d weight
 * over the shares a / sum) / sum. */
static void token_gradient(const weft_moe_route_config *config,
                           const float *affinity, const int32_t *expert,
                           const float *dweight, float *daffinity)
{
    float sum = 0, mean = 0;
    memset(daffinity, 0, (size_t)config->experts * sizeof(*daffinity));
    for (int slot = 0; slot < config->slots; slot++) {
        sum += affinity[expert[slot]];
    }
    for (int slot = 0; slot < config->slots && sum > 0; slot++) {
        mean += dweight[slot] * (affinity[expert[slot]] / sum);
    }
    for (int slot = 0; slot < config->slots && sum > 0; slot++) {
        daffinity[expert[slot]] = config->scale * (dweight[slot] - mean) / sum;
    }
}

weft_status weft_moe_route_gradient(const weft_moe_route_config *config,
                                    const float *affinity,
                                    const int32_t *expert, const float *dweight,
                                    size_t tokens, float *daffinity_out)
{
    static const char *const names[] = {"affinity", "expert", "dweight",
                                        "daffinity_out"};
    const void *const arrays[] = {affinity, expert, dweight, daffinity_out};
    weft_moe_route_config own;
    weft_status status = check_config(config, &own);
    if (status == WEFT_OK) {
        status = check_arrays(arrays, names, 4, tokens);
    }
    const size_t experts = status == WEFT_OK ? (size_t)own.experts : 0;
    const size_t slots = status == WEFT_OK ? (size_t)own.slots : 0;
    for (size_t i = 0; i < tokens * slots; i++) {
        if (expert[i] < 0 || expert[i] >= own.experts) {
            return wefti_error(WEFT_ERR_INVALID,
                               "expert %d of token %zu: allowed is 0 .. %d",
                               (int)expert[i], i / slots, own.experts - 1);
        }
    }
    for (size_t token = 0; token < tokens && status == WEFT_OK; token++) {
        token_gradient(&own, affinity + token * experts, expert + token * slots,
                       dweight + token * slots,
                       daffinity_out + token * experts);
    }
    return status;
}

weft_status weft_moe_route_balance(float *bias, const uint64_t *load,
                                   int experts, float step)
{
    uint64_t sum = 0;
    if (!bias || !load || experts < 1 || !(step >= 0)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "bias %p, load %p, experts %d, step %g: allowed is "
                           "memory, 1 or more, 0 or more",
                           (void *)bias, (const void *)load, experts,
                           (double)step);
    }
    for (int expert = 0; expert < experts; expert++) {
        sum += load[expert];
    }
    for (int expert = 0; expert < experts; expert++) {
        const uint64_t own = load[expert] * (uint64_t)experts;
        bias[expert] += own > sum ? -step : own < sum ? step : 0;
    }
    return WEFT_OK;
}
