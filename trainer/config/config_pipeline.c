/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/config/config_pipeline.c - whether a pipeline is possible: ranks,
 * layers, and what the schedule itself asks for.
 */
#include "base/error.h"
#include "trainer/config/config_key.h"
#include "trainer/pipe/pipe_list.h"
#include "trainer/pipe/pipe_schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define refuse(config, ...)                                                    \
    wefti_config_refuse(config, WEFT_ERR_INVALID, __VA_ARGS__)

static bool is_named(const wefti_config *config, const char *name)
{
    return strcmp(config->parallel.schedule, name) == 0;
}

/* Snapshots inside steps come between those after steps. */
static weft_status check_inside(const wefti_config *config)
{
    if (config->checkpoint.inside == 0) {
        return WEFT_OK;
    }
    if (config->checkpoint.every == 0) {
        return refuse(config, "checkpoint", "inside",
                      "saves nothing where checkpoint.every is 0; allowed "
                      "is 0, or checkpoint.every from 1");
    }
    if (strcmp(config->memory.ema, "none") != 0) {
        return refuse(config, "checkpoint", "inside",
                      "saves no average of the weights; allowed is 0, or "
                      "memory.ema: none");
    }
    return config->checkpoint.async
               ? WEFT_OK
               : refuse(config, "checkpoint", "inside",
                        "writes copies beside the step, which "
                        "checkpoint.async: false rules out; allowed is 0, or "
                        "checkpoint.async: true");
}

/* What only a pipeline has, asked for without one. */
/* Micro-batches of a step that a copy of the model has; 0: no copy fits. */
static int64_t count_each(const wefti_config *config, int nranks)
{
    int copies = wefti_config_mesh(config, nranks).dp;
    return copies > 0 ? config->train.global_batch_size /
                            config->train.micro_batch_size / copies
                      : 0;
}

static weft_status check_count(const wefti_config *config, int nranks)
{
    int64_t each = count_each(config, nranks);
    return each <= WEFT_SCHEDULE_MICROBATCHES_MOST
               ? WEFT_OK
               : refuse(config, "train", "global_batch_size",
                        "gives each copy of the model %" PRId64
                        " micro-batches a step; allowed are %d",
                        each, WEFT_SCHEDULE_MICROBATCHES_MOST);
}

static weft_status check_without(const wefti_config *config)
{
    const char *needs =
        "needs a pipeline: set parallel.pipeline_model_parallel_size above 1";
    if (config->parallel.virtual_pipeline_model_parallel_size > 1) {
        return refuse(config, "parallel",
                      "virtual_pipeline_model_parallel_size", "%s", needs);
    }
    if (config->parallel.virtual_group_size > 0) {
        return refuse(config, "parallel", "virtual_group_size", "%s", needs);
    }
    if (config->parallel.compare.count > 0 &&
        strcmp(config->parallel.compare.items[0], "none") != 0) {
        return refuse(config, "parallel", "compare", "%s", needs);
    }
    if (!is_named(config, "1f1b")) {
        return refuse(config, "parallel", "schedule", "%s", needs);
    }
    return config->checkpoint.inside > 0 && config->train.elastic
               ? refuse(config, "checkpoint", "inside",
                        "does not go with train.elastic: ranks need not have "
                        "as many micro-batches; allowed is 0")
               : check_inside(config);
}

static weft_status check_ranks(const wefti_config *config, int nranks)
{
    int64_t size = config->parallel.pipeline_model_parallel_size;
    if (wefti_config_mesh(config, nranks).dp > 0) {
        return WEFT_OK;
    }
    char text[96];
    const int64_t others = config->parallel.tensor_model_parallel_size *
                           config->parallel.context_parallel_size;
    wefti_config_sizes(nranks, size, others, text, sizeof(text));
    if (others > 1) {
        return refuse(config, "parallel", "pipeline_model_parallel_size",
                      "times %" PRId64
                      " ranks that share each stage (tensor, context) does not "
                      "divide %d rank%s; nearest that work: %s",
                      others, nranks, nranks == 1 ? "" : "s", text);
    }
    return refuse(config, "parallel", "pipeline_model_parallel_size",
                  "does not divide %d rank%s; nearest that work: %s", nranks,
                  nranks == 1 ? "" : "s", text);
}

/* A V has two chunks a rank without being asked. */
static bool is_v(const wefti_config *config)
{
    return is_named(config, "zbv") || is_named(config, "dualpipev");
}

/* Which then is what a number of chunks, and a group, is for. */
static bool compares_interleaved(const wefti_config *config)
{
    const wefti_config_words *compare = &config->parallel.compare;
    bool any = false;
    for (size_t k = 0; k < compare->count; k++) {
        any |= strcmp(compare->items[k], "interleaved") == 0 ||
               strcmp(compare->items[k], "all") == 0;
    }
    return any;
}

static weft_status check_chunks(const wefti_config *config)
{
    int64_t chunks = config->parallel.virtual_pipeline_model_parallel_size;
    const char *name = config->parallel.schedule;
    bool free_choice = is_named(config, "interleaved");
    if (free_choice && chunks < 2 && config->model.encoder_layers == 0) {
        return refuse(config, "parallel",
                      "virtual_pipeline_model_parallel_size",
                      "is too few for schedule interleaved; allowed is from 2");
    }
    if (!free_choice && !is_named(config, "FILE.csv") && chunks > 1 &&
        !compares_interleaved(config) && !(is_v(config) && chunks == 2)) {
        return refuse(config, "parallel",
                      "virtual_pipeline_model_parallel_size",
                      "is not for schedule %s; allowed is %s, or schedule "
                      "interleaved",
                      name, is_v(config) ? "2" : "1");
    }
    if (!free_choice && !compares_interleaved(config) &&
        config->parallel.virtual_group_size > 0) {
        return refuse(config, "parallel", "virtual_group_size",
                      "is for schedule interleaved only; it is %s", name);
    }
    return WEFT_OK;
}

/* Each stage has a layer at least; of an encoder's stages it is known. */
static weft_status check_layers(const wefti_config *config, int stages)
{
    int64_t ranks = config->parallel.pipeline_model_parallel_size;
    const int encoder = wefti_pipe_schedule_encoder(config);
    if (encoder >= stages) {
        return refuse(config, "parallel", "encoder_virtual_stages",
                      "leaves the decoder no stage of the schedule's %d on "
                      "%" PRId64 " ranks; allowed is less",
                      stages, ranks);
    }
    stages -= encoder;
    return config->model.layers >= stages
               ? WEFT_OK
               : refuse(config, "model", "layers",
                        "is too few for %d stages (%" PRId64
                        " ranks of a pipeline * %" PRId64
                        " each); allowed is from %d",
                        stages, ranks, stages / ranks, stages);
}

/* Adds the key's place to the current error: what a list, or a schedule,
 * lacks. */
static weft_status place_error(const wefti_config *config, int64_t each,
                               weft_status status)
{
    char why[384];
    char where[352];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    if (is_named(config, "FILE.csv")) {
        wefti_config_where(config, "parallel", "schedule", where,
                           sizeof(where));
        return wefti_error(status, "%s: %s", where, why);
    }
    return wefti_config_refuse(config, status, "parallel", "schedule",
                               "is not possible with %" PRId64
                               " micro-batches a step for each pipeline: %s",
                               each, why);
}

/* What a list of the user's own may lack for what else is asked for. */
static weft_status check_list(const wefti_config *config,
                              const weft_schedule *schedule,
                              const weft_schedule_info *info)
{
    int each = info->microbatches / info->directions;
    char text[WEFT_ACTION_TEXT_BYTES];
    if (config->checkpoint.inside > 0 &&
        (wefti_pipe_list_has(schedule, WEFT_ACTION_OFFLOAD) ||
         wefti_pipe_list_has(schedule, WEFT_ACTION_RECOMPUTE))) {
        return refuse(config, "checkpoint", "inside",
                      "does not go with a list that has OFFLOAD or RECOMPUTE: "
                      "what these put away is not saved; allowed is 0");
    }
    if (!config->train.deterministic) {
        return WEFT_OK;
    }
    if (wefti_pipe_list_is_disordered(schedule, text)) {
        return refuse(config, "train", "deterministic",
                      "does not hold for this list: %s adds its gradients out "
                      "of turn; allowed are lists in which those of each stage "
                      "come in the order of micro-batches",
                      text);
    }
    return info->directions == 2 && (each & (each - 1)) != 0
               ? refuse(config, "train", "deterministic",
                        "does not hold where the two directions of a list have "
                        "%d micro-batches each; allowed is a power of two",
                        each)
               : WEFT_OK;
}

/* The schedule itself says what it needs. */
static weft_status check_schedule(const wefti_config *config, int nranks)
{
    int64_t each = count_each(config, nranks);
    weft_schedule *schedule = NULL;
    weft_status status = wefti_pipe_schedule_make(config, each, &schedule);
    if (status != WEFT_OK) {
        return place_error(config, each, status);
    }
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    status = weft_schedule_get_info(schedule, &info);
    if (status == WEFT_OK) {
        status = check_layers(config, info.stages / info.directions);
    }
    if (status == WEFT_OK && is_named(config, "FILE.csv")) {
        status = check_list(config, schedule, &info);
    }
    weft_schedule_destroy(schedule);
    return status;
}

/* The same bits on every layout: two sums of their own have others. */
static weft_status check_deterministic(const wefti_config *config)
{
    return config->train.deterministic && config->model.tie_embeddings
               ? refuse(config, "train", "deterministic",
                        "does not hold for model.tie_embeddings in a pipeline: "
                        "the two ends are summed apart")
               : WEFT_OK;
}

/* The same job under another schedule. */
static weft_status check_other(const wefti_config *config, const char *name,
                               int nranks)
{
    wefti_config other = wefti_pipe_schedule_config(
        config, name, wefti_pipe_schedule_chunks(config, name));
    return wefti_config_check(&other, nranks);
}

/* The same job under one of the schedules that are to be compared. */
static weft_status check_compared(const wefti_config *config, const char *name,
                                  int nranks)
{
    weft_status status = check_other(config, name, nranks);
    if (status == WEFT_OK) {
        return WEFT_OK;
    }
    char why[384];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    return wefti_config_refuse(config, status, "parallel", "compare",
                               "has %s, which does not suit this job: %s", name,
                               why);
}

static weft_status check_compare(const wefti_config *config, int nranks)
{
    const wefti_config_words *compare = &config->parallel.compare;
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < compare->count && status == WEFT_OK; k++) {
        const char *name = compare->items[k];
        if (strcmp(name, "none") == 0) {
            return WEFT_OK;
        }
        if (k == 0) { /* whose costs all are planned with */
            status = check_compared(config, "1f1b", nranks);
        }
        if (status == WEFT_OK && strcmp(name, "all") != 0) {
            status = check_compared(config, name, nranks);
        }
    }
    return status;
}

/* One that is to be run. */
static weft_status check_one(const wefti_config *config, int nranks)
{
    weft_status status = check_ranks(config, nranks);
    if (status == WEFT_OK) {
        status = check_chunks(config);
    }
    if (status == WEFT_OK) {
        status = check_inside(config);
    }
    if (status == WEFT_OK) {
        status = check_schedule(config, nranks);
    }
    return status == WEFT_OK ? check_deterministic(config) : status;
}

/*
 * What else auto tries may not suit: 1f1b must. V and N are what interleaved
 * schedules have; fixed, they must be possible for them, or they would be keys
 * without effect.
 */
static weft_status check_auto(const wefti_config *config, int nranks)
{
    bool chunks = config->parallel.virtual_pipeline_model_parallel_size > 1;
    weft_status status = check_other(config, "1f1b", nranks);
    if (status != WEFT_OK ||
        (!chunks && config->parallel.virtual_group_size == 0)) {
        return status;
    }
    status = check_other(config, "interleaved", nranks);
    if (status == WEFT_OK) {
        return WEFT_OK;
    }
    char why[384];
    snprintf(why, sizeof(why), "%s", weft_error_text());
    return wefti_config_refuse(
        config, status, "parallel",
        chunks ? "virtual_pipeline_model_parallel_size" : "virtual_group_size",
        "leaves schedule auto no interleaved to choose: %s; allowed is %s, "
        "which leaves it to auto, or what suits",
        why, chunks ? "1" : "0");
}

weft_status wefti_config_check_pipeline(const wefti_config *config, int nranks)
{
    weft_status status = check_count(config, nranks);
    if (status != WEFT_OK) {
        return status;
    }
    if (!wefti_pipe_schedule_wanted(config)) {
        return check_without(config);
    }
    if (config->train.elastic) {
        return refuse(config, "train", "elastic",
                      "does not go with a pipeline: the ranks that are left "
                      "do not have all parts of the model");
    }
    if (is_named(config, "auto")) {
        status = check_auto(config, nranks);
    } else {
        status = check_one(config, nranks);
    }
    return status == WEFT_OK ? check_compare(config, nranks) : status;
}
