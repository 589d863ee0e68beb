/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe_schedule.c - from configuration to list.
 */
#include "trainer/pipe_schedule.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of so many bytes is nothing that anybody would run. */
enum { FILE_BYTES_MOST = 256 * 1024 * 1024 };

bool wefti_pipe_schedule_wanted(const wefti_config *config)
{
    return config->parallel.pipeline_model_parallel_size > 1;
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

static weft_status read_text(const char *path, char **text_out,
                             size_t *bytes_out)
{
    FILE *file = fopen(path, "r");
    if (!file) {
        return wefti_error_system("%.200s", path);
    }
    size_t room = 0;
    char *text = NULL;
    *bytes_out = 0;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && !feof(file)) {
        if (*bytes_out == room) {
            room = room ? 2 * room : 65536;
            char *wider = realloc(text, room);
            status = wider && room <= FILE_BYTES_MOST
                         ? WEFT_OK
                         : wefti_error(WEFT_ERR_NO_MEMORY,
                                       "%.200s: no memory for a list of more "
                                       "than %zu bytes",
                                       path, *bytes_out);
            text = wider ? wider : text;
            continue;
        }
        *bytes_out += fread(text + *bytes_out, 1, room - *bytes_out, file);
        if (ferror(file)) {
            status = wefti_error_system("%.200s", path);
        }
    }
    (void)fclose(file);
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    *text_out = text;
    return WEFT_OK;
}

/* Nothing but compute: messages and reductions are put in here. */
static weft_status check_actions(const char *path,
                                 const weft_schedule *schedule, int ranks)
{
    for (int rank = 0; rank < ranks; rank++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(schedule, rank, &actions);
        for (size_t i = 0; i < count; i++) {
            char text[WEFT_ACTION_TEXT_BYTES];
            if (actions[i].type > WEFT_ACTION_FB) {
                (void)weft_action_pack(&actions[i], text);
                return wefti_error(WEFT_ERR_INVALID,
                                   "%.200s: row %d: %s; allowed are compute "
                                   "actions only: F, I, W, B and pairs",
                                   path, rank + 1, text);
            }
        }
    }
    return WEFT_OK;
}

static weft_status check_file(const wefti_config *config, const char *path,
                              int64_t microbatches,
                              const weft_schedule *schedule)
{
    int64_t ranks = config->parallel.pipeline_model_parallel_size;
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(schedule, &info);
    if (status == WEFT_OK && info.ranks != ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: is for %d ranks; "
                           "parallel.pipeline_model_parallel_size is %" PRId64,
                           path, info.ranks, ranks);
    }
    if (status == WEFT_OK && info.microbatches != microbatches) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: is for %d micro-batches a step; the "
                           "batch sizes give each pipeline %" PRId64,
                           path, info.microbatches, microbatches);
    }
    return status == WEFT_OK ? check_actions(path, schedule, info.ranks)
                             : status;
}

static weft_status read_file(const wefti_config *config, int64_t microbatches,
                             weft_schedule **schedule_out)
{
    const char *path = config->parallel.schedule_file;
    char *text;
    size_t bytes;
    weft_status status = read_text(path, &text, &bytes);
    if (status != WEFT_OK) {
        return status;
    }
    weft_schedule *schedule = NULL;
    status = weft_schedule_read(text, bytes, 0, 0, &schedule);
    free(text);
    if (status != WEFT_OK) {
        char why[512];
        snprintf(why, sizeof(why), "%s", weft_error_text());
        return wefti_error(status, "%.200s: %s", path, why);
    }
    status = check_file(config, path, microbatches, schedule);
    if (status != WEFT_OK) {
        weft_schedule_destroy(schedule);
        return status;
    }
    *schedule_out = schedule;
    return WEFT_OK;
}

weft_status wefti_pipe_schedule_make(const wefti_config *config,
                                     int64_t microbatches,
                                     weft_schedule **schedule_out)
{
    if (strcmp(config->parallel.schedule, "FILE.csv") == 0) {
        return read_file(config, microbatches, schedule_out);
    }
    bool chosen = strcmp(config->parallel.schedule, "interleaved") == 0;
    int64_t chunks = config->parallel.virtual_pipeline_model_parallel_size;
    weft_schedule_config wanted = {
        .size_bytes = sizeof(wanted),
        .name = config->parallel.schedule,
        .ranks = (int)config->parallel.pipeline_model_parallel_size,
        .microbatches = (int)microbatches,
        .chunks = chosen ? (int)chunks : 0,
        .group = (int)config->parallel.virtual_group_size};
    return weft_schedule_create(&wanted, schedule_out);
}

weft_status wefti_pipe_schedule_pass(weft_schedule *schedule)
{
    weft_status status = weft_schedule_merge(schedule);
    if (status == WEFT_OK) {
        status = weft_schedule_reduce(schedule, true);
    }
    if (status == WEFT_OK) {
        status = weft_schedule_lower(schedule, WEFT_LOWERING_SENDER);
    }
    if (status == WEFT_OK) {
        status = weft_schedule_release(schedule);
    }
    return status == WEFT_OK ? weft_schedule_group(schedule, 0) : status;
}

weft_status wefti_pipe_schedule_open(const wefti_config *config, int nranks,
                                     weft_schedule **schedule_out)
{
    int64_t copies = nranks / config->parallel.pipeline_model_parallel_size;
    weft_status status =
        wefti_pipe_schedule_make(config,
                                 config->train.global_batch_size /
                                     config->train.micro_batch_size / copies,
                                 schedule_out);
    return status == WEFT_OK ? wefti_pipe_schedule_pass(*schedule_out) : status;
}
