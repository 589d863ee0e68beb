/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/print_program.c - programs of a configuration, as text.
 */
#include "trainer/print_program.h"

#include "base/error.h"
#include "overlap/schedule/schedule.h"
#include "trainer/model/model_blocks.h"
#include "trainer/model/stage.h"
#include "trainer/pipe/pipe.h"
#include "trainer/pipe/pipe_schedule.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"
#include "trainer/program/program_print.h"
#include "trainer/run_plan.h"

#include <stdlib.h>
#include <string.h>

/* How a configuration's stages are planned. */
typedef struct print_plan {
    const wefti_config *config;
    size_t stages;
    bool *together; /* [stages]: I and W run as B alone */
} print_plan;

static weft_status print_stage(const print_plan *how,
                               const wefti_parameters *plan, size_t stage,
                               FILE *file)
{
    const wefti_layer_run *part = &plan->parts[stage];
    const size_t tokens = (size_t)how->config->train.micro_batch_size *
                          wefti_stage_length(plan, part);
    wefti_program program = {.recompute = wefti_run_recompute(how->config),
                             .together = how->together[stage],
                             .keeps = !how->config->memory.release_activations};
    size_t logits;
    wefti_stage_append(&program, plan, part->first_layer, part->layers_end,
                       &logits);
    weft_status status = wefti_program_plan(&program, tokens);
    if (status == WEFT_OK) {
        status = wefti_program_check(&program);
    }
    if (status == WEFT_OK) {
        const size_t before = plan->shape.encoder_layers;
        const bool encoder = part->first_layer < before;
        const size_t first = part->first_layer - (encoder ? 0 : before);
        fprintf(file, "%sstage %zu of %zu: %slayers %zu to %zu, %zu tokens\n",
                stage ? "\n" : "", stage, plan->part_count,
                encoder       ? "encoder "
                : before == 0 ? ""
                              : "decoder ",
                first, first + part->layers_end - part->first_layer - 1,
                tokens);
        wefti_program_print(&program, file);
    }
    wefti_program_fini(&program);
    return status;
}

static weft_status print_stages(const print_plan *how, FILE *file)
{
    const wefti_config *config = how->config;
    const size_t stages = how->stages;
    const wefti_model_shape shape = wefti_run_shape(config);
    wefti_layer_run *parts = calloc(stages, sizeof(*parts));
    wefti_parameters_config layout = {
        .shape = shape,
        .bucket_bytes = (size_t)(config->overlap.bucket_mb * 1e6),
        .nranks = {1, 1},
        .expert_parts = (size_t)config->parallel.expert_model_parallel_size,
        .expert_slots = wefti_run_expert_slots(config),
        .tensor = {.parts = (size_t)config->parallel.tensor_model_parallel_size,
                   .sequence = config->parallel.sequence_parallel},
        .parts = parts,
        .part_count = stages,
        .cut = stages > 1};
    wefti_tensor_list list;
    wefti_parameters plan;
    if (!parts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu stages",
                           stages);
    }
    for (size_t i = 0; i < stages; i++) {
        parts[i] = wefti_pipe_layers(
            &shape, wefti_pipe_schedule_encoder(config), (int)stages, (int)i);
    }
    weft_status status = wefti_tensor_list_init(&list, &shape);
    if (status == WEFT_OK) {
        status = wefti_parameters_plan_list(&layout, &list, &plan);
        wefti_tensor_list_fini(&list);
    }
    free(parts);
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t i = 0; i < stages && status == WEFT_OK; i++) {
        status = print_stage(how, &plan, i, file);
    }
    wefti_parameters_fini(&plan);
    return status;
}

static weft_status make_room(print_plan *how, size_t stages)
{
    how->stages = stages;
    how->together = calloc(stages, sizeof(*how->together));
    for (size_t i = 0; how->together && i < stages; i++) {
        how->together[i] = true;
    }
    return how->together ? WEFT_OK
                         : wefti_error(WEFT_ERR_NO_MEMORY,
                                       "no memory for %zu stages", stages);
}

/* Into how many stages a pipeline's schedule cuts the model, and how. */
static weft_status find_stages(int ranks, print_plan *how)
{
    const wefti_config *config = how->config;
    weft_schedule *schedule;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    if (!wefti_pipe_schedule_wanted(config) &&
        config->model.encoder_layers == 0) {
        return make_room(how, 1);
    }
    if (strcmp(config->parallel.schedule, "auto") == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--print-program: parallel.schedule is auto, which "
                           "a run chooses: name one");
    }
    weft_status status = wefti_pipe_schedule_open(config, 0, ranks, &schedule);
    if (status == WEFT_OK) {
        status = weft_schedule_get_info(schedule, &info);
        if (status == WEFT_OK) {
            status = make_room(how, (size_t)(info.stages / info.directions));
        }
        for (size_t i = 0; i < how->stages && status == WEFT_OK; i++) {
            how->together[i] = !wefti_pipe_schedule_has(
                schedule, weft_schedule_get_rank(schedule, (int)i),
                WEFT_ACTION_I);
        }
        weft_schedule_destroy(schedule);
    }
    return status;
}

weft_status wefti_print_program(const wefti_options *options, FILE *file)
{
    wefti_config config;
    print_plan how = {.config = &config};
    weft_status status = wefti_config_init(
        &config, options->config, options->settings, options->setting_count);
    if (status != WEFT_OK) {
        return status;
    }
    int ranks = (int)(config.parallel.pipeline_model_parallel_size *
                      config.parallel.tensor_model_parallel_size *
                      config.parallel.context_parallel_size *
                      config.parallel.expert_model_parallel_size);
    status = wefti_config_check(&config, ranks);
    if (status == WEFT_OK) {
        status = find_stages(ranks, &how);
    }
    if (status == WEFT_OK) {
        status = print_stages(&how, file);
    }
    free(how.together);
    wefti_config_fini(&config);
    return status;
}
