/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_tensor.c - whether ranks can share each layer: what of
 * the model they part, and what does not go with it.
 */
#include "base/error.h"
#include "trainer/config/config_key.h"

#include <inttypes.h>
#include <stdio.h>

#define refuse(config, ...)                                                    \
    wefti_config_refuse(config, WEFT_ERR_INVALID, __VA_ARGS__)

/* What each rank has a part of, and the key that says how much there is. */
static const struct parted {
    const char *key;
    size_t offset; /* in wefti_config, an int64_t */
} parted[] = {
    {"model.heads", offsetof(wefti_config, model.heads)},
    {"model.ffn_size", offsetof(wefti_config, model.ffn_size)},
    {"model.vocab", offsetof(wefti_config, model.vocab)},
};
enum { PARTED = sizeof(parted) / sizeof(*parted) };

static int64_t count_of(const wefti_config *config, const struct parted *what)
{
    return *(const int64_t *)(const void *)((const char *)config +
                                            what->offset);
}

/* Several ranks may have the same heads of keys and values. */
static bool kv_heads_work(const wefti_config *config, int64_t size)
{
    const int64_t heads = config->model.kv_heads;
    return size > heads ? size % heads == 0 : heads % size == 0;
}

static bool parts_work(const wefti_config *config, int64_t size)
{
    bool works = kv_heads_work(config, size);
    for (size_t i = 0; i < PARTED; i++) {
        works = works && count_of(config, &parted[i]) % size == 0;
    }
    return works;
}

static weft_status check_parts(const wefti_config *config)
{
    const int64_t size = config->parallel.tensor_model_parallel_size;
    char text[64];
    wefti_config_nearest(config, parts_work, size, config->model.heads, text,
                         sizeof(text));
    for (size_t i = 0; i < PARTED; i++) {
        const int64_t count = count_of(config, &parted[i]);
        if (count % size != 0) {
            return refuse(config, "parallel", "tensor_model_parallel_size",
                          "does not divide %s %" PRId64
                          "; nearest that work: %s",
                          parted[i].key, count, text);
        }
    }
    return kv_heads_work(config, size)
               ? WEFT_OK
               : refuse(config, "parallel", "tensor_model_parallel_size",
                        "neither divides model.kv_heads %" PRId64
                        " nor is a multiple of it; nearest that work: %s",
                        config->model.kv_heads, text);
}

/* Without a pipeline and shared sequences, whose own checks name their size. */
static weft_status check_ranks(const wefti_config *config, int nranks)
{
    const int64_t size = config->parallel.tensor_model_parallel_size;
    if (config->parallel.pipeline_model_parallel_size > 1 ||
        config->parallel.context_parallel_size > 1 ||
        wefti_config_mesh(config, nranks).dp > 0) {
        return WEFT_OK;
    }
    char text[96];
    return refuse(config, "parallel", "tensor_model_parallel_size",
                  "does not divide %d rank%s; nearest that work: %s", nranks,
                  nranks == 1 ? "" : "s",
                  wefti_config_sizes(nranks, size, 1, text, sizeof(text)));
}

/* Each rank has as many rows of the residual as the others. */
static weft_status check_rows(const wefti_config *config)
{
    const int64_t size = config->parallel.tensor_model_parallel_size;
    const int64_t parts = config->parallel.context_parallel_size;
    const int64_t rows =
        config->train.micro_batch_size * config->model.seq_length / parts;
    char text[64];
    if (!config->parallel.sequence_parallel) {
        return WEFT_OK;
    }
    if (size == 1) {
        return refuse(config, "parallel", "sequence_parallel",
                      "needs ranks that share each layer: set "
                      "parallel.tensor_model_parallel_size above 1");
    }
    return rows % size == 0
               ? WEFT_OK
               : refuse(config, "parallel", "sequence_parallel",
                        "shares %" PRId64
                        " tokens of a micro-batch (train.micro_batch_size * "
                        "model.seq_length%s) over %" PRId64
                        " ranks; nearest that work: %s tokens, or false",
                        rows,
                        parts > 1 ? " / parallel.context_parallel_size" : "",
                        size,
                        wefti_config_multiples(rows, size, text, sizeof(text)));
}

static weft_status check_others(const wefti_config *config)
{
    return config->train.deterministic
               ? refuse(config, "train", "deterministic",
                        "does not hold with "
                        "parallel.tensor_model_parallel_size above 1: products "
                        "are summed in parts, each rounded; allowed is false")
               : WEFT_OK;
}

weft_status wefti_config_check_tensor(const wefti_config *config, int nranks)
{
    weft_status status = check_rows(config);
    if (status != WEFT_OK || config->parallel.tensor_model_parallel_size == 1) {
        return status;
    }
    status = check_parts(config);
    if (status == WEFT_OK) {
        status = check_ranks(config, nranks);
    }
    return status == WEFT_OK ? check_others(config) : status;
}
