/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_context.c - whether ranks can share sequences as they
 * are told to.
 */
#include "trainer/config/config_key.h"

#include <inttypes.h>
#include <string.h>

#define refuse_key(config, ...)                                                \
    wefti_config_refuse(config, WEFT_ERR_INVALID, __VA_ARGS__)

static bool is_kind(const wefti_config *config, const char *kind)
{
    return strcmp(config->parallel.context_parallel, kind) == 0;
}

static bool has_layout(const wefti_config *config, const char *layout)
{
    return strcmp(config->parallel.context_layout, layout) == 0;
}

int64_t wefti_config_ulysses(const wefti_config *config)
{
    return is_kind(config, "ulysses") ? config->parallel.context_parallel_size
           : is_kind(config, "ring")  ? 1
                                      : config->parallel.ulysses_size;
}

/* A rank's heads are dealt out evenly; those of keys too, or each to as many
 * ranks. */
static bool heads_divide(const wefti_config *config, int64_t ulysses)
{
    const int64_t tensor = config->parallel.tensor_model_parallel_size;
    const int64_t heads = config->model.kv_heads;
    const int64_t keys = tensor > heads ? 1 : heads / tensor;
    return config->model.heads % (tensor * ulysses) == 0 &&
           (keys % ulysses == 0 || ulysses % keys == 0);
}

static bool parts_divide(const wefti_config *config, int64_t ulysses)
{
    return config->parallel.context_parallel_size % ulysses == 0;
}

/* ulysses_size as the kind wants it. */
static weft_status check_ulysses(const wefti_config *config)
{
    const int64_t parts = config->parallel.context_parallel_size;
    const int64_t size = config->parallel.ulysses_size;
    char sizes[64];
    if (is_kind(config, "ring+ulysses")) {
        return parts_divide(config, size)
                   ? WEFT_OK
                   : refuse_key(config, "parallel", "ulysses_size",
                                "does not divide context_parallel_size %" PRId64
                                "; nearest that work: %s",
                                parts,
                                wefti_config_nearest(config, parts_divide, size,
                                                     parts, sizes,
                                                     sizeof(sizes)));
    }
    if (size == 1 || (is_kind(config, "ulysses") && size == parts)) {
        return WEFT_OK;
    }
    return refuse_key(config, "parallel", "ulysses_size",
                      "does not go with context_parallel: %s, where %s "
                      "exchange heads; allowed is 1, or context_parallel: "
                      "ring+ulysses",
                      config->parallel.context_parallel,
                      is_kind(config, "ring") ? "no ranks" : "all ranks");
}

static weft_status check_heads(const wefti_config *config)
{
    const int64_t ulysses = wefti_config_ulysses(config);
    const int64_t tensor = config->parallel.tensor_model_parallel_size;
    const bool all = is_kind(config, "ulysses");
    char sizes[64], ranks[64] = "";
    if (heads_divide(config, ulysses)) {
        return WEFT_OK;
    }
    if (tensor > 1) {
        snprintf(ranks, sizeof(ranks), " of %" PRId64 " ranks of a layer",
                 tensor);
    }
    return refuse_key(
        config, "parallel", all ? "context_parallel_size" : "ulysses_size",
        "does not deal out model.heads %" PRId64 " and kv_heads %" PRId64
        "%s evenly; nearest that work: %s, or context_parallel: ring",
        config->model.heads, config->model.kv_heads, ranks,
        wefti_config_nearest(config, heads_divide, ulysses, config->model.heads,
                             sizes, sizeof(sizes)));
}

/* Two runs of a zigzag have one length. */
static weft_status check_length(const wefti_config *config)
{
    const int64_t parts = config->parallel.context_parallel_size;
    const int64_t ulysses = wefti_config_ulysses(config);
    const bool zigzag = strcmp(config->parallel.context_layout, "zigzag") == 0;
    const bool halves = zigzag && parts > ulysses && ulysses % 2 != 0;
    const int64_t unit = halves ? 2 * parts : parts;
    char lengths[64];
    return config->model.seq_length % unit == 0
               ? WEFT_OK
               : refuse_key(
                     config, "model", "seq_length",
                     "is not divisible by %scontext_parallel_size "
                     "%" PRId64 "%s; nearest that work: %s",
                     halves ? "2 * " : "", parts, halves ? " of a zigzag" : "",
                     wefti_config_multiples(config->model.seq_length, unit,
                                            lengths, sizeof(lengths)));
}

/* What a pipeline alone does not divide, its own check refuses. */
static weft_status check_ranks(const wefti_config *config, int nranks)
{
    const int64_t stages = config->parallel.pipeline_model_parallel_size;
    const int64_t pipeline =
        stages * config->parallel.tensor_model_parallel_size;
    const int64_t parts = config->parallel.context_parallel_size;
    char text[96];
    if (wefti_config_mesh(config, nranks).dp > 0 || nranks % stages != 0) {
        return WEFT_OK;
    }
    return refuse_key(
        config, "parallel", "context_parallel_size",
        "does not divide %d rank%s, pipelines of %" PRId64
        "; nearest that work: %s",
        nranks, nranks == 1 ? "" : "s", pipeline,
        wefti_config_sizes(nranks, parts, pipeline, text, sizeof(text)));
}

/* What only ranks that share a sequence would read. */
static weft_status check_alone(const wefti_config *config)
{
    const char *key = !is_kind(config, "ring")            ? "context_parallel"
                      : !has_layout(config, "contiguous") ? "context_layout"
                      : config->parallel.ulysses_size > 1 ? "ulysses_size"
                                                          : NULL;
    return key ? refuse_key(config, "parallel", key,
                            "needs ranks that share each sequence: set "
                            "parallel.context_parallel_size above 1")
               : WEFT_OK;
}

/* Heads that are exchanged for tokens see them in their order. */
static weft_status check_layout(const wefti_config *config)
{
    return is_kind(config, "ulysses") && !has_layout(config, "contiguous")
               ? refuse_key(config, "parallel", "context_layout",
                            "is of a ring, and context_parallel: ulysses has "
                            "none; allowed is contiguous")
               : WEFT_OK;
}

weft_status wefti_config_check_context(const wefti_config *config, int nranks)
{
    if (config->parallel.context_parallel_size == 1) {
        return check_alone(config);
    }
    weft_status status = check_ranks(config, nranks);
    if (status == WEFT_OK) {
        status = check_layout(config);
    }
    if (status == WEFT_OK) {
        status = check_ulysses(config);
    }
    if (status == WEFT_OK) {
        status = check_heads(config);
    }
    if (status == WEFT_OK) {
        status = check_length(config);
    }
    return status == WEFT_OK && config->train.deterministic
               ? refuse_key(config, "train", "deterministic",
                            "does not hold where ranks share sequences "
                            "(parallel.context_parallel_size above 1): sums "
                            "over their tokens are rounded in another order; "
                            "allowed is false")
               : status;
}
