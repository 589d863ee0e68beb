/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_layout.c - divisibilities: what each head, rank and
 * micro-batch gets must be whole. What fails is named with the nearest values
 * that work.
 */
#include "base/check.h"
#include "base/error.h"
#include "trainer/config/config_key.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

char *wefti_config_where(const wefti_config *config, const char *section,
                         const char *name, char *text, size_t text_bytes)
{
    const wefti_config_key *key = wefti_config_key_find(section, name);
    WEFTI_ASSERT(key != NULL);
    wefti_config_place place = config->places[key - wefti_config_keys];
    char value[64];
    if (place.line < 0 &&
        (key->kind == WEFTI_CONFIG_PATHS || key->kind == WEFTI_CONFIG_PATH)) {
        snprintf(text, text_bytes, "--set %s.%s", section, name);
    } else if (place.line < 0) {
        snprintf(text, text_bytes, "--set %s.%s=%s: %s.%s", section, name,
                 wefti_config_key_print(config, key, value, sizeof(value)),
                 section, name);
    } else if (place.line == 0) {
        snprintf(text, text_bytes, "%.200s (default): %s.%s", config->path,
                 section, name);
    } else {
        snprintf(text, text_bytes, "%.200s:%d:%d: %s.%s", config->path,
                 place.line, place.column, section, name);
    }
    return text;
}

weft_status wefti_config_refuse(const wefti_config *config, weft_status status,
                                const char *section, const char *name,
                                const char *format, ...)
{
    const wefti_config_key *key = wefti_config_key_find(section, name);
    WEFTI_ASSERT(key != NULL);
    char where[352];
    char value[64];
    char text[384];
    wefti_config_key_print(config, key, value, sizeof(value));
    wefti_config_where(config, section, name, where, sizeof(where));
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    return wefti_error(status, "%s: %s %s", where, value, text);
}

#define refuse_key(config, ...)                                                \
    wefti_config_refuse(config, WEFT_ERR_INVALID, __VA_ARGS__)

char *wefti_config_nearest(const wefti_config *config, wefti_config_works *test,
                           int64_t value, int64_t most, char *text,
                           size_t text_bytes)
{
    int64_t below = value - 1;
    int64_t above = value + 1;
    while (below >= 1 && !test(config, below)) {
        below--;
    }
    while (above <= most && !test(config, above)) {
        above++;
    }
    if (below >= 1 && above <= most) {
        snprintf(text, text_bytes, "%" PRId64 " or %" PRId64, below, above);
    } else if (below >= 1 || above <= most) {
        snprintf(text, text_bytes, "%" PRId64, below >= 1 ? below : above);
    } else {
        snprintf(text, text_bytes, "none");
    }
    return text;
}

char *wefti_config_multiples(int64_t value, int64_t unit, char *text,
                             size_t text_bytes)
{
    int64_t below = value / unit * unit;
    int used =
        below == 0 ? 0 : snprintf(text, text_bytes, "%" PRId64 " or ", below);
    snprintf(text + used, text_bytes - (size_t)used, "%" PRId64, below + unit);
    return text;
}

char *wefti_config_sizes(int nranks, int64_t size, int64_t others, char *text,
                         size_t text_bytes)
{
    const int64_t groups = nranks / others;
    char ranks[64];
    int64_t below = size < groups ? size : groups;
    while (below > 1 && groups % below != 0) {
        below--;
    }
    wefti_config_multiples(nranks, size * others, ranks, sizeof(ranks));
    if (below < 1 || nranks % others != 0) {
        snprintf(text, text_bytes, "%s ranks", ranks);
    } else {
        snprintf(text, text_bytes, "%" PRId64 ", or %s ranks", below, ranks);
    }
    return text;
}

static bool heads_work(const wefti_config *config, int64_t heads)
{
    return config->model.hidden_size % (2 * heads) == 0;
}

static bool kv_heads_work(const wefti_config *config, int64_t kv_heads)
{
    return config->model.heads % kv_heads == 0;
}

/* Attention: heads of one even size (RoPE turns pairs), shared evenly. */
static weft_status check_heads(const wefti_config *config)
{
    char sizes[64];
    char heads[64];
    int64_t hidden_size = config->model.hidden_size;
    int64_t unit = 2 * config->model.heads;
    if (!heads_work(config, config->model.heads)) {
        return refuse_key(
            config, "model", "hidden_size",
            "does not give %" PRId64 " heads of one even size "
            "(it must be divisible by %" PRId64 "); nearest that "
            "work: hidden_size %s, or heads %s",
            config->model.heads, unit,
            wefti_config_multiples(hidden_size, unit, sizes, sizeof(sizes)),
            wefti_config_nearest(config, heads_work, config->model.heads,
                                 hidden_size / 2, heads, sizeof(heads)));
    }
    if (!kv_heads_work(config, config->model.kv_heads)) {
        return refuse_key(
            config, "model", "kv_heads",
            "does not divide model.heads %" PRId64 "; nearest that work: %s",
            config->model.heads,
            wefti_config_nearest(config, kv_heads_work, config->model.kv_heads,
                                 config->model.heads, heads, sizeof(heads)));
    }
    return WEFT_OK;
}

/* What shares the batch: "rank", or of a pipeline all of its ranks at once. */
static const char *sharer(const wefti_config *config)
{
    return config->parallel.pipeline_model_parallel_size > 1 ? "pipeline"
                                                             : "rank";
}

/* Elastic: some ranks may have one micro-batch more, but each has one. */
static weft_status check_uneven(const wefti_config *config, int nranks)
{
    int64_t global = config->train.global_batch_size;
    int64_t micro = config->train.micro_batch_size;
    if (global % micro == 0 && global / micro >= nranks) {
        return WEFT_OK;
    }
    return refuse_key(config, "train", "global_batch_size",
                      "does not give %d rank%s whole micro-batches of %" PRId64
                      ", one each at least; allowed are multiples of %" PRId64
                      " from %" PRId64,
                      nranks, nranks == 1 ? "" : "s", micro, micro,
                      nranks * micro);
}

/* Each of the copies gets the same number of whole micro-batches. */
static weft_status check_batch(const wefti_config *config, int copies)
{
    int64_t global = config->train.global_batch_size;
    int64_t micro = config->train.micro_batch_size;
    int64_t unit = copies * micro;
    const char *noun = sharer(config);
    if (global % unit == 0) {
        return WEFT_OK;
    }
    if (config->train.elastic) {
        return check_uneven(config, copies);
    }
    char sizes[64];
    int fits = copies - 1; /* 0: not even one does */
    while (fits > 0 && global % (fits * micro) != 0) {
        fits--;
    }
    char fewer[48] = "";
    if (fits > 0) {
        snprintf(fewer, sizeof(fewer), ", or %d %s%s", fits, noun,
                 fits == 1 ? "" : "s");
    }
    return refuse_key(
        config, "train", "global_batch_size",
        "is not divisible by %d %s%s * micro_batch_size "
        "%" PRId64 " = %" PRId64 "; nearest that work: %s%s",
        copies, noun, copies == 1 ? "" : "s", micro, unit,
        wefti_config_multiples(global, unit, sizes, sizeof(sizes)), fewer);
}

/* Whether ranks that each have so many micro-batches add in the one tree. */
static bool holds_tree(const wefti_config *config, int ranks)
{
    int64_t unit = ranks * config->train.micro_batch_size;
    int64_t each = config->train.global_batch_size / unit;
    return ranks == 1 || (config->train.global_batch_size % unit == 0 &&
                          (each & (each - 1)) == 0);
}

/*
 * The same bits on every layout: each rank's run of micro-batches must be a
 * whole subtree of the tree over all of them (trainer/gradient.h).
 */
static weft_status check_tree(const wefti_config *config, int nranks,
                              const char *noun)
{
    int64_t micro = config->train.micro_batch_size;
    int64_t all = config->train.global_batch_size / micro;
    int64_t below = 1; /* the power of two in what each rank has */
    int ranks = nranks;
    if (!config->train.deterministic || holds_tree(config, nranks)) {
        return WEFT_OK;
    }
    while (2 * below <= all / nranks) {
        below *= 2;
    }
    while (!holds_tree(config, ranks)) {
        ranks--;
    }
    return refuse_key(config, "train", "deterministic",
                      "does not hold where %d %ss share %" PRId64
                      " micro-batches: each must have a power of two of them; "
                      "nearest that work: global_batch_size %" PRId64
                      " or %" PRId64 ", or %d %s%s",
                      nranks, noun, all, below * nranks * micro,
                      2 * below * nranks * micro, ranks, noun,
                      ranks == 1 ? "" : "s");
}

wefti_mesh wefti_config_mesh(const wefti_config *config, int nranks)
{
    wefti_mesh mesh = {.tp = (int)config->parallel.tensor_model_parallel_size,
                       .cp = (int)config->parallel.context_parallel_size,
                       .ep = (int)config->parallel.expert_model_parallel_size,
                       .pp =
                           (int)config->parallel.pipeline_model_parallel_size};
    mesh.dp = wefti_mesh_copies(&mesh, nranks);
    return mesh;
}

weft_status wefti_config_fit(const wefti_config *config, int nranks,
                             int *fits_out)
{
    const int64_t batches =
        config->train.global_batch_size / config->train.micro_batch_size;
    const wefti_mesh sizes = wefti_config_mesh(config, nranks);
    wefti_mesh mesh;
    for (int ranks = nranks; ranks > 0; ranks--) {
        if (wefti_mesh_make(&sizes, ranks, &mesh) == WEFT_OK &&
            mesh.dp <= batches) {
            *fits_out = ranks;
            return WEFT_OK;
        }
    }
    return refuse_key(config, "train", "elastic",
                      "goes on with whole groups of ranks alone, and of the %d "
                      "left none can be made: it takes "
                      "tensor_model_parallel_size %d * context_parallel_size "
                      "%d ranks, and expert_model_parallel_size %d, to have "
                      "the whole model and whole sequences",
                      nranks, sizes.tp, sizes.cp, sizes.ep);
}

/* Of a key of train: above 0 in the file, 0 its default, below 0 --set. */
static int line_of(const wefti_config *config, const char *name)
{
    const wefti_config_key *key = wefti_config_key_find("train", name);
    return config->places[key - wefti_config_keys].line;
}

/* A run that never reaches the rate that was asked for. One of a file that
 * --set makes shorter for a try is as its user wants it. */
static weft_status check_warmup(const wefti_config *config)
{
    int64_t steps = config->train.steps;
    int warmup_line = line_of(config, "warmup_steps");
    if (steps == 0 || config->train.warmup_steps <= steps || warmup_line == 0 ||
        (warmup_line > 0 && line_of(config, "steps") < 0)) {
        return WEFT_OK;
    }
    return refuse_key(config, "train", "warmup_steps",
                      "is longer than the run of %" PRId64
                      " steps (train.steps); allowed is up to that",
                      steps);
}

/* Communication keeps to a part of a GPU only; and the host writes from its own
 * memory. */
static weft_status check_device(const wefti_config *config)
{
    if (config->overlap.comm_sms > 0 &&
        strcmp(config->train.device, "cuda") != 0) {
        return refuse_key(config, "overlap", "comm_sms",
                          "is a part of a GPU, and train.device: %s has no "
                          "multiprocessors; allowed is 0",
                          config->train.device);
    }
    return strcmp(config->train.device, "host") != 0 &&
                   config->checkpoint.every > 0 && !config->checkpoint.async
               ? refuse_key(config, "checkpoint", "async",
                            "is false, and train.device: %s computes in memory "
                            "that no file is written from; allowed is true, or "
                            "checkpoint.every: 0",
                            config->train.device)
               : WEFT_OK;
}

/* What attention sees follows from the tokens. */
static weft_status check_documents(const wefti_config *config)
{
    const int64_t end = config->data.document_end;
    return end < config->model.vocab
               ? WEFT_OK
               : refuse_key(config, "data", "document_end",
                            "is no token of model.vocab %lld; allowed is -1 to "
                            "%lld",
                            (long long)config->model.vocab,
                            (long long)config->model.vocab - 1);
}

/* Averages and moments in the host's memory. */
static weft_status check_memory(const wefti_config *config)
{
    if (strcmp(config->memory.offload, "none") != 0 &&
        strcmp(config->train.device, "host") == 0) {
        return refuse_key(config, "memory", "offload",
                          "moves nothing with train.device: host, which "
                          "computes in the host's memory; allowed is none");
    }
    return config->memory.ema_export && strcmp(config->memory.ema, "none") == 0
               ? refuse_key(config, "memory", "ema_export",
                            "has no average to write; allowed is false, or "
                            "memory.ema: fp32, bf16 or fp8")
               : WEFT_OK;
}

weft_status wefti_config_check(const wefti_config *config, int nranks)
{
    WEFTI_ASSERT(nranks > 0);
    int copies = wefti_config_mesh(config, nranks).dp;
    weft_status status = check_heads(config);
    if (status == WEFT_OK) {
        status = wefti_config_check_encoder(config);
    }
    if (status == WEFT_OK) {
        status = wefti_config_check_tensor(config, nranks);
    }
    if (status == WEFT_OK) {
        status = check_warmup(config);
    }
    if (status == WEFT_OK) {
        status = check_device(config);
    }
    if (status == WEFT_OK) {
        status = check_memory(config);
    }
    if (status == WEFT_OK) {
        status = check_documents(config);
    }
    if (status == WEFT_OK) {
        status = wefti_config_check_context(config, nranks);
    }
    if (status == WEFT_OK && copies > 0) {
        status = check_batch(config, copies);
    }
    if (status == WEFT_OK) {
        status = wefti_config_check_experts(config, nranks);
    }
    if (status == WEFT_OK) {
        status = wefti_config_check_pipeline(config, nranks);
    }
    /* Both directions of a schedule have half of the micro-batches. */
    bool two = strcmp(config->parallel.schedule, "dualpipe") == 0;
    return status == WEFT_OK ? check_tree(config, copies * (two ? 2 : 1),
                                          two ? "direction" : sharer(config))
                             : status;
}
