/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_encoder.c - whether a model may have an encoder: its
 * bytes, its stages, and what it does not go with.
 */
#include "trainer/config/config_key.h"

#include <inttypes.h>
#include <string.h>

#define refuse(config, ...)                                                    \
    wefti_config_refuse(config, WEFT_ERR_INVALID, __VA_ARGS__)

enum { SEQ_LENGTH = 64 /* by default */ };

static bool is_schedule(const wefti_config *config, const char *name)
{
    return strcmp(config->parallel.schedule, name) == 0;
}

/* What only an encoder has, asked for without one. */
static weft_status check_without(const wefti_config *config)
{
    if (config->parallel.encoder_virtual_stages > 1) {
        return refuse(config, "parallel", "encoder_virtual_stages",
                      "needs an encoder: set model.encoder_layers from 1");
    }
    if (config->data.encoder_path) {
        return refuse(config, "data", "encoder_path",
                      "needs an encoder: set model.encoder_layers from 1");
    }
    return config->model.encoder_seq_length != SEQ_LENGTH
               ? refuse(config, "model", "encoder_seq_length",
                        "needs an encoder: set model.encoder_layers from 1")
               : WEFT_OK;
}

/* What this version does not have beside it. */
static weft_status check_others(const wefti_config *config)
{
    const struct {
        const char *section, *key;
        bool is_used;
        const char *allowed;
    } rows[] = {
        {"parallel", "tensor_model_parallel_size",
         WEFTI_VOCAB_BYTES % config->parallel.tensor_model_parallel_size != 0,
         "what divides the 256 bytes that the encoder reads"},
        {"parallel", "sequence_parallel", config->parallel.sequence_parallel,
         "false"},
        {"parallel", "context_parallel_size",
         config->parallel.context_parallel_size > 1, "1"},
        {"model", "tie_embeddings", config->model.tie_embeddings, "false"},
        {"data", "document_end", config->data.document_end >= 0, "-1"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        if (rows[i].is_used) {
            return wefti_config_refuse(
                config, WEFT_ERR_UNSUPPORTED, rows[i].section, rows[i].key,
                "is not possible in this version with model.encoder_layers "
                "from 1; allowed is %s",
                rows[i].allowed);
        }
    }
    return WEFT_OK;
}

/* A stage is of one branch, so a rank has two at least. */
static weft_status check_schedule(const wefti_config *config)
{
    const int64_t own = config->parallel.encoder_virtual_stages;
    const int64_t others =
        config->parallel.virtual_pipeline_model_parallel_size;
    if (config->parallel.compare.count > 0 &&
        strcmp(config->parallel.compare.items[0], "none") != 0) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "parallel", "compare",
            "is not possible in this version with model.encoder_layers from 1: "
            "what one layer costs says nothing of the other branch's; allowed "
            "is none");
    }
    if (is_schedule(config, "interleaved") || is_schedule(config, "FILE.csv")) {
        return WEFT_OK;
    }
    if (!is_schedule(config, "zbv") && !is_schedule(config, "dualpipev")) {
        return wefti_config_refuse(
            config, WEFT_ERR_UNSUPPORTED, "parallel", "schedule",
            "has one stage a rank, or is chosen by what one layer costs: with "
            "model.encoder_layers from 1 each rank has stages of two branches; "
            "allowed is interleaved, zbv, dualpipev or FILE.csv");
    }
    return own == 1 && others == 1
               ? WEFT_OK
               : refuse(config, "parallel",
                        own > 1 ? "encoder_virtual_stages"
                                : "virtual_pipeline_model_parallel_size",
                        "is not for schedule %s, whose two stages a rank are "
                        "the encoder's and the decoder's; allowed is 1, or "
                        "schedule interleaved",
                        config->parallel.schedule);
}

static weft_status check_stages(const wefti_config *config)
{
    const int64_t ranks = config->parallel.pipeline_model_parallel_size;
    const int64_t each = config->parallel.encoder_virtual_stages;
    if (ranks == 1 && each > 1) {
        return refuse(config, "parallel", "encoder_virtual_stages",
                      "needs a pipeline: set "
                      "parallel.pipeline_model_parallel_size above 1");
    }
    return config->model.encoder_layers >= ranks * each
               ? WEFT_OK
               : refuse(config, "model", "encoder_layers",
                        "is too few for %" PRId64 " stages (%" PRId64
                        " ranks of a pipeline * %" PRId64
                        " of parallel.encoder_virtual_stages); allowed is "
                        "from %" PRId64,
                        ranks * each, ranks, each, ranks * each);
}

weft_status wefti_config_check_encoder(const wefti_config *config)
{
    if (config->model.encoder_layers == 0) {
        return check_without(config);
    }
    if (!config->data.encoder_path) {
        return refuse(config, "data", "encoder_path",
                      "leaves the encoder of model.encoder_layers without "
                      "bytes; allowed is a file or a folder");
    }
    weft_status status = check_others(config);
    if (status == WEFT_OK) {
        status = check_stages(config);
    }
    return status == WEFT_OK &&
                   config->parallel.pipeline_model_parallel_size > 1
               ? check_schedule(config)
               : status;
}
