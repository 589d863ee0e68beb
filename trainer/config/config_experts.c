/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_experts.c - whether a mixture of experts is possible.
 */
#include "base/error.h"
#include "trainer/config/config_key.h"
#include "trainer/model/parameters.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define refuse_key(config, ...)                                                \
    wefti_config_refuse(config, WEFT_ERR_INVALID, __VA_ARGS__)

int64_t wefti_config_expert_slots(const wefti_config *config)
{
    return config->model.experts + config->moe.redundant;
}

static bool has_whole_blocks(const wefti_config *config, int64_t ffn)
{
    return config->model.hidden_size * ffn % WEFTI_BLOCK_ELEMS == 0;
}

static bool spreads(const wefti_config *config, int64_t ranks)
{
    const int64_t slots = wefti_config_expert_slots(config);
    const int64_t rows = slots % ranks == 0 ? slots / ranks : 0;
    return rows > 0 && has_whole_blocks(config, rows * config->model.ffn_size);
}

/* Slots beyond the experts that ranks can have. */
static bool spreads_redundant(const wefti_config *config, int64_t redundant)
{
    return (config->model.experts + redundant) %
               config->parallel.expert_model_parallel_size ==
           0;
}

/* Each rank has whole experts, in whole blocks of parameters. */
static weft_status check_spread(const wefti_config *config)
{
    const int64_t ranks = config->parallel.expert_model_parallel_size;
    const int64_t slots = wefti_config_expert_slots(config);
    int64_t below = ranks - 1, above = ranks + 1;
    char next[32] = "", nearest[64];
    if (ranks > 1 &&
        config->moe.redundant > config->model.experts * (ranks - 1)) {
        return refuse_key(
            config, "moe", "redundant",
            "gives some rank an expert twice; allowed is up to "
            "%" PRId64 ": model.experts %" PRId64 " on each of the other ranks",
            config->model.experts * (ranks - 1), config->model.experts);
    }
    if (spreads(config, ranks) || ranks == 1) {
        return WEFT_OK;
    }
    if (config->moe.redundant > 0 &&
        !spreads_redundant(config, config->moe.redundant)) {
        return refuse_key(
            config, "moe", "redundant",
            "and model.experts %" PRId64
            " are not as many slots for each of %" PRId64
            " ranks (parallel.expert_model_parallel_size); nearest that work: "
            "%s",
            config->model.experts, ranks,
            wefti_config_nearest(
                config, spreads_redundant, config->moe.redundant,
                config->moe.redundant + ranks, nearest, sizeof(nearest)));
    }
    while (below > 1 && !spreads(config, below)) {
        below--;
    }
    while (above <= slots && !spreads(config, above)) {
        above++;
    }
    if (above <= slots) {
        snprintf(next, sizeof(next), " or %" PRId64, above);
    }
    return refuse_key(config, "parallel", "expert_model_parallel_size",
                      "does not give each rank as many of model.experts "
                      "%" PRId64 ", with hidden_size * ffn_size * experts a "
                      "multiple of %d on each; nearest that work: %" PRId64
                      "%s",
                      config->model.experts, WEFTI_BLOCK_ELEMS, below, next);
}

static weft_status check_choice(const wefti_config *config)
{
    return config->model.experts_per_token > config->model.experts
               ? refuse_key(config, "model", "experts_per_token",
                            "is more than model.experts %" PRId64
                            "; allowed is up to that",
                            config->model.experts)
               : WEFT_OK;
}

/* Ranks that have the same tokens would count them twice. */
static weft_status check_rows(const wefti_config *config)
{
    return config->parallel.tensor_model_parallel_size > 1 &&
                   !config->parallel.sequence_parallel
               ? wefti_config_refuse(
                     config, WEFT_ERR_UNSUPPORTED, "parallel",
                     "tensor_model_parallel_size",
                     "is not possible in this version with model.experts "
                     "above 0 where its ranks all have the same tokens; "
                     "allowed is 1, or parallel.sequence_parallel: true")
               : WEFT_OK;
}

/* What ranks that exchange rows of experts cannot do yet. */
static weft_status check_together(const wefti_config *config)
{
    if (config->train.elastic && config->moe.place_every > 0) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "train", "elastic",
            "is not possible in this version with moe.place_every above 0; "
            "allowed is false");
    }
    if (config->train.deterministic) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "train", "deterministic",
            "does not hold with parallel.expert_model_parallel_size above 1: "
            "an expert's gradient is added up over the tokens of several "
            "ranks at once; allowed is false");
    }
    if (config->checkpoint.inside > 0 && config->moe.place_every > 0) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "checkpoint", "inside",
            "is not possible in this version with moe.place_every above 0: a "
            "snapshot does not say where experts are; allowed is 0");
    }
    return config->checkpoint.inside > 0 &&
                   config->parallel.pipeline_model_parallel_size > 1
               ? wefti_config_refuse(
                     config, WEFT_ERR_UNSUPPORTED, "checkpoint", "inside",
                     "is not possible in this version with "
                     "parallel.expert_model_parallel_size above 1 in a "
                     "pipeline, where rows that have come from other ranks "
                     "wait for their backward at any time; allowed is 0")
               : WEFT_OK;
}

/* Without an exchange nothing is narrowed, and nothing should seem to be. */
static weft_status check_dispatch(const wefti_config *config)
{
    return strcmp(config->moe.dispatch, "fp8") == 0 &&
                   config->parallel.expert_model_parallel_size == 1
               ? refuse_key(config, "moe", "dispatch",
                            "and parallel.expert_model_parallel_size 1, with "
                            "which no token travels: allowed is bf16")
               : WEFT_OK;
}

static bool parts_experts(const wefti_config *config, int64_t nodes)
{
    return config->model.experts % nodes == 0;
}

weft_status wefti_config_check_nodes(const wefti_config *config)
{
    const int64_t nodes = config->moe.nodes, limit = config->moe.node_limit;
    const int64_t slots = config->model.experts_per_token;
    char nearest[64];
    if (limit == 0 || nodes == 0) {
        return WEFT_OK;
    }
    if (!parts_experts(config, nodes)) {
        return refuse_key(config, "moe", "nodes",
                          "does not divide model.experts %" PRId64
                          "; nearest that work: %s",
                          config->model.experts,
                          wefti_config_nearest(config, parts_experts, nodes,
                                               config->model.experts, nearest,
                                               sizeof(nearest)));
    }
    const int64_t each = config->model.experts / nodes;
    const int64_t least = (slots + each - 1) / each;
    return limit < least ? refuse_key(config, "moe", "node_limit",
                                      "hosts with %" PRId64
                                      " experts each are too few for "
                                      "model.experts_per_token %" PRId64
                                      "; allowed is 0, or %" PRId64 " and more",
                                      each, slots, least)
                         : WEFT_OK;
}

static weft_status check_dense(const wefti_config *config)
{
    if (config->parallel.expert_model_parallel_size > 1) {
        return refuse_key(config, "parallel", "expert_model_parallel_size",
                          "and model.experts 0: allowed is 1, or a model "
                          "with experts");
    }
    return config->moe.node_limit > 0
               ? refuse_key(config, "moe", "node_limit",
                            "and model.experts 0: allowed is 0, or a model "
                            "with experts")
               : check_dispatch(config);
}

/* Experts that move do so by whole blocks of parameters, and through memory
 * that the host reads. */
static weft_status check_place(const wefti_config *config)
{
    const int64_t ffn = config->model.ffn_size;
    char nearest[64];
    if (config->moe.place_every == 0) {
        return config->moe.redundant > 0
                   ? refuse_key(config, "moe", "redundant",
                                "slots are given to experts by their loads: "
                                "set moe.place_every above 0")
                   : WEFT_OK;
    }
    if (config->parallel.expert_model_parallel_size == 1) {
        return refuse_key(config, "moe", "place_every",
                          "moves experts between ranks: set "
                          "parallel.expert_model_parallel_size above 1");
    }
    if (strcmp(config->train.device, "host") != 0) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "moe", "place_every",
            "is not possible in this version with train.device: %s; allowed "
            "is 0",
            config->train.device);
    }
    if (config->moe.node_limit > 0 &&
        config->model.experts % config->parallel.expert_model_parallel_size !=
            0) {
        return refuse_key(config, "moe", "redundant",
                          "and model.experts %" PRId64
                          ", which parallel.expert_model_parallel_size "
                          "%" PRId64 " does not divide, leave no host its own "
                          "experts (moe.node_limit); allowed with it are "
                          "experts that it divides",
                          config->model.experts,
                          config->parallel.expert_model_parallel_size);
    }
    return has_whole_blocks(config, ffn)
               ? WEFT_OK
               : refuse_key(config, "moe", "place_every",
                            "moves experts of a multiple of %d elements, which "
                            "hidden_size * ffn_size %" PRId64
                            " is not; nearest ffn_size that work: %s",
                            WEFTI_BLOCK_ELEMS, config->model.hidden_size * ffn,
                            wefti_config_nearest(config, has_whole_blocks, ffn,
                                                 ffn + WEFTI_BLOCK_ELEMS,
                                                 nearest, sizeof(nearest)));
}

/* What only experts would read, or only those of other ranks. */
static weft_status check_unread(const wefti_config *config)
{
    const bool dense = config->model.experts == 0;
    if (dense && config->model.shared_experts > 0) {
        return refuse_key(config, "model", "shared_experts",
                          "needs experts: set model.experts above 0");
    }
    if (dense && config->moe.balance_every > 0) {
        return refuse_key(config, "moe", "balance_every",
                          "needs experts: set model.experts above 0");
    }
    if (config->moe.nodes > 0 && config->moe.node_limit == 0) {
        return refuse_key(config, "moe", "nodes",
                          "is read with a moe.node_limit alone; allowed is 0");
    }
    if (dense && config->moe.place_every + config->moe.redundant > 0) {
        return refuse_key(config, "moe",
                          config->moe.place_every > 0 ? "place_every"
                                                      : "redundant",
                          "needs experts: set model.experts above 0");
    }
    return config->moe.room > 0 &&
                   (dense || config->parallel.expert_model_parallel_size == 1)
               ? refuse_key(config, "moe", "room",
                            "is of rows from other ranks: set "
                            "parallel.expert_model_parallel_size above 1")
               : WEFT_OK;
}

weft_status wefti_config_check_experts(const wefti_config *config, int nranks)
{
    const wefti_mesh sizes = wefti_config_mesh(config, nranks);
    wefti_mesh mesh;
    if (config->model.experts == 0) {
        weft_status status = check_dense(config);
        return status == WEFT_OK ? check_unread(config) : status;
    }
    weft_status status = check_unread(config);
    if (status == WEFT_OK) {
        status = check_choice(config);
    }
    if (status == WEFT_OK) {
        status = check_dispatch(config);
    }
    if (status == WEFT_OK) {
        status = wefti_config_check_nodes(config);
    }
    if (status == WEFT_OK) {
        status = check_rows(config);
    }
    if (status == WEFT_OK) {
        status = check_place(config);
    }
    if (status == WEFT_OK) {
        status = check_spread(config);
    }
    if (status == WEFT_OK && sizes.ep > 1) {
        status = check_together(config);
    }
    if (status == WEFT_OK && sizes.ep > 1 && sizes.dp > 0 &&
        wefti_mesh_make(&sizes, nranks, &mesh) != WEFT_OK) {
        status = refuse_key(config, "parallel", "expert_model_parallel_size",
                            "on %d rank%s: %s", nranks, nranks == 1 ? "" : "s",
                            weft_error_text());
    }
    return status;
}
