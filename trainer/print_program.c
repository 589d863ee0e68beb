/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/print_program.c - programs of a configuration, as text.
 */
#include "trainer/print_program.h"

#include "base/error.h"
#include "overlap/schedule/schedule.h"
#include "trainer/model/model_blocks.h"
#include "trainer/pipe/pipe_schedule.h"
#include "trainer/program/program_check.h"
#include "trainer/program/program_plan.h"
#include "trainer/program/program_print.h"
#include "trainer/run_plan.h"

#include <stdlib.h>
#include <string.h>

static weft_status print_stage(const wefti_parameters *plan, size_t stage,
                               size_t tokens, FILE *file)
{
    const wefti_layer_run *part = &plan->parts[stage];
    wefti_program program = {0};
    size_t logits;
    wefti_stage_append(&program, plan, part->first_layer, part->layers_end,
                       &logits);
    weft_status status = wefti_program_plan(&program, tokens);
    if (status == WEFT_OK) {
        status = wefti_program_check(&program);
    }
    if (status == WEFT_OK) {
        fprintf(file, "%sstage %zu of %zu: layers %zu to %zu, %zu tokens\n",
                stage ? "\n" : "", stage, plan->part_count, part->first_layer,
                part->layers_end - 1, tokens);
        wefti_program_print(&program, file);
    }
    wefti_program_fini(&program);
    return status;
}

static weft_status print_stages(const wefti_config *config, size_t stages,
                                FILE *file)
{
    const wefti_model_shape shape = wefti_run_shape(config);
    size_t tokens = (size_t)config->train.micro_batch_size *
                    wefti_context_length(&shape.context, shape.seq);
    wefti_layer_run *parts = calloc(stages, sizeof(*parts));
    wefti_parameters_config layout = {
        .shape = shape,
        .bucket_bytes = (size_t)(config->overlap.bucket_mb * 1e6),
        .nranks = {1, 1},
        .expert_parts = 1,
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
        parts[i].first_layer =
            (size_t)wefti_layers_before((int)shape.layers, (int)stages, (int)i);
        parts[i].layers_end = (size_t)wefti_layers_before(
            (int)shape.layers, (int)stages, (int)i + 1);
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
        status = print_stage(&plan, i, tokens, file);
    }
    wefti_parameters_fini(&plan);
    return status;
}

/* How many stages a pipeline's schedule cuts the model into. */
static weft_status count_stages(const wefti_config *config, int ranks,
                                size_t *stages_out)
{
    weft_schedule *schedule;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    *stages_out = 1;
    if (!wefti_pipe_schedule_wanted(config)) {
        return WEFT_OK;
    }
    if (strcmp(config->parallel.schedule, "auto") == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--print-program: parallel.schedule is auto, which "
                           "a run chooses: name one");
    }
    weft_status status = wefti_pipe_schedule_open(config, 0, ranks, &schedule);
    if (status == WEFT_OK) {
        status = weft_schedule_get_info(schedule, &info);
        *stages_out = (size_t)(info.stages / info.directions);
        weft_schedule_destroy(schedule);
    }
    return status;
}

weft_status wefti_print_program(const wefti_options *options, FILE *file)
{
    wefti_config config;
    size_t stages = 1;
    weft_status status = wefti_config_init(
        &config, options->config, options->settings, options->setting_count);
    if (status != WEFT_OK) {
        return status;
    }
    int ranks = (int)(config.parallel.pipeline_model_parallel_size *
                      config.parallel.context_parallel_size);
    status = wefti_config_check(&config, ranks);
    if (status == WEFT_OK) {
        status = count_stages(&config, ranks, &stages);
    }
    if (status == WEFT_OK) {
        status = print_stages(&config, stages, file);
    }
    wefti_config_fini(&config);
    return status;
}
