/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_schedule.c - from configuration to list.
 */
#include "trainer/pipe/pipe_schedule.h"

#include "base/error.h"
#include "overlap/schedule/encoder.h"
#include "trainer/pipe/pipe.h"
#include "trainer/pipe/pipe_list.h"

#include <stdlib.h>
#include <string.h>

bool wefti_pipe_schedule_wanted(const wefti_config *config)
{
    return config->parallel.pipeline_model_parallel_size > 1;
}

int wefti_pipe_schedule_encoder(const wefti_config *config)
{
    return config->model.encoder_layers > 0
               ? (int)(config->parallel.pipeline_model_parallel_size *
                       config->parallel.encoder_virtual_stages)
               : 0;
}

wefti_config wefti_pipe_schedule_config(const wefti_config *config,
                                        const char *name, int chunks)
{
    wefti_config own = *config;
    bool chosen = strcmp(name, "interleaved") == 0; /* the others know V */
    own.parallel.schedule = name;
    own.parallel.compare.count = 0;
    own.parallel.virtual_pipeline_model_parallel_size = chosen ? chunks : 1;
    if (!chosen) {
        own.parallel.virtual_group_size = 0;
    }
    return own;
}

int wefti_pipe_schedule_chunks(const wefti_config *config, const char *name)
{
    int64_t own = config->parallel.virtual_pipeline_model_parallel_size;
    int64_t each =
        config->model.layers / config->parallel.pipeline_model_parallel_size;
    if (strcmp(name, "interleaved") != 0) {
        return 1;
    }
    if (own > 1) {
        return (int)own;
    }
    for (int chunks = 2; chunks <= each; chunks++) {
        if (each % chunks == 0) {
            return chunks;
        }
    }
    return 0;
}

wefti_pipe_job wefti_pipe_schedule_job(const wefti_config *config, int nranks)
{
    int64_t sequences =
        config->train.global_batch_size / wefti_config_mesh(config, nranks).dp;
    return (wefti_pipe_job){
        .ranks = (int)config->parallel.pipeline_model_parallel_size,
        .microbatches = (int)(sequences / config->train.micro_batch_size),
        .layers = (int)config->model.layers,
        .sequences = (int)sequences};
}

/*
 * The groups that suit stages of two branches: what a stage takes is its layers
 * times its rows, and twice that backwards. Measured costs would say more, but
 * not before the run, nor the same on every rank.
 */
static weft_status choose_group(const wefti_config *config,
                                weft_schedule_config *wanted)
{
    const int stages = wanted->ranks * wanted->chunks;
    const int encoder = wefti_pipe_schedule_encoder(config);
    const wefti_model_shape shape = {.layers = (size_t)config->model.layers,
                                     .encoder_layers =
                                         (size_t)config->model.encoder_layers};
    const double rows[2] = {
        (double)(config->model.seq_length + config->model.encoder_seq_length),
        (double)config->model.encoder_seq_length};
    weft_schedule_cost cost = {.size_bytes = sizeof(cost)};
    weft_stage_cost *each = calloc((size_t)stages, sizeof(*each));
    if (!each) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d stages",
                           stages);
    }
    for (int stage = 0; stage < stages; stage++) {
        const wefti_layer_run run =
            wefti_pipe_layers(&shape, encoder, stages, stage);
        const double f =
            (double)(run.layers_end - run.first_layer) * rows[stage < encoder];
        each[stage] = (weft_stage_cost){f, f, f, 2 * f};
    }
    cost.stages = each;
    weft_status status = wefti_encoder_group(wanted, &cost, &wanted->group);
    free(each);
    return status;
}

weft_status wefti_pipe_schedule_make(const wefti_config *config,
                                     int64_t microbatches,
                                     weft_schedule **schedule_out)
{
    if (strcmp(config->parallel.schedule, "FILE.csv") == 0) {
        return wefti_pipe_list_read(config, microbatches, schedule_out);
    }
    /* Without a pipeline the two branches are two stages in turn. */
    const bool apart =
        config->model.encoder_layers > 0 && !wefti_pipe_schedule_wanted(config);
    const char *name = apart ? "interleaved" : config->parallel.schedule;
    bool chosen = strcmp(name, "interleaved") == 0;
    int64_t chunks = config->parallel.virtual_pipeline_model_parallel_size;
    if (config->model.encoder_layers > 0) {
        chunks += config->parallel.encoder_virtual_stages;
    }
    weft_schedule_config wanted = {
        .size_bytes = sizeof(wanted),
        .name = name,
        .ranks = (int)config->parallel.pipeline_model_parallel_size,
        .microbatches = (int)microbatches,
        .chunks = chosen ? (int)chunks : 0,
        .group = chosen ? (int)config->parallel.virtual_group_size : 0};
    weft_status status = WEFT_OK;
    if (config->model.encoder_layers > 0 && chosen && wanted.group == 0) {
        status = choose_group(config, &wanted);
    }
    return status == WEFT_OK ? weft_schedule_create(&wanted, schedule_out)
                             : status;
}

/* Which stages are the encoder's, where the schedule has so many. */
static weft_status mark_encoder(const wefti_config *config,
                                weft_schedule *schedule)
{
    const int encoder = wefti_pipe_schedule_encoder(config);
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(schedule, &info);
    return status == WEFT_OK && encoder < info.stages / info.directions
               ? weft_schedule_mark_encoder(schedule, encoder)
               : status;
}

/* What the executor runs: merged, with reductions, staggered, messages placed
 * by the sender and grouped, outputs released. What a file's list has of these
 * stays as it is. */
static weft_status pass(weft_schedule *schedule)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(schedule, &info);
    if (status == WEFT_OK && !info.lowered) {
        status = weft_schedule_merge(schedule);
    }
    if (status == WEFT_OK &&
        !wefti_pipe_list_has(schedule, WEFT_ACTION_REDUCE_GRAD)) {
        status = weft_schedule_reduce(schedule, true);
    }
    if (status == WEFT_OK && !info.lowered) {
        status = weft_schedule_lower(schedule, WEFT_LOWERING_SENDER);
    }
    if (status == WEFT_OK &&
        !wefti_pipe_list_has(schedule, WEFT_ACTION_RELEASE)) {
        status = weft_schedule_release(schedule);
    }
    /* A list with messages says itself which are posted together. */
    return status == WEFT_OK && !info.lowered ? weft_schedule_group(schedule, 0)
                                              : status;
}

weft_status wefti_pipe_schedule_open(const wefti_config *config, int rank,
                                     int nranks, weft_schedule **schedule_out)
{
    const wefti_mesh mesh = wefti_config_mesh(config, nranks);
    size_t all = (size_t)(config->train.global_batch_size /
                          config->train.micro_batch_size);
    size_t copy = (size_t)wefti_mesh_locate(&mesh, rank).dp;
    size_t copies = (size_t)mesh.dp;
    weft_status status = wefti_pipe_schedule_make(
        config,
        (int64_t)(wefti_mesh_first(all, copy + 1, copies) -
                  wefti_mesh_first(all, copy, copies)),
        schedule_out);
    if (status == WEFT_OK) {
        status = mark_encoder(config, *schedule_out);
    }
    return status == WEFT_OK ? pass(*schedule_out) : status;
}

bool wefti_pipe_schedule_has(const weft_schedule *schedule, int rank,
                             weft_action_type type)
{
    const weft_action *actions;
    size_t count = weft_schedule_get_actions(schedule, rank, &actions);
    for (size_t k = 0; k < count; k++) {
        if (actions[k].type == type) {
            return true;
        }
    }
    return false;
}
