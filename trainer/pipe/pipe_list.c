/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_list.c - a schedule from a file.
 */
#include "trainer/pipe/pipe_list.h"

#include "base/error.h"
#include "base/input.h"
#include "overlap/schedule/schedule.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A list of so many bytes is too long to run. */
enum { FILE_BYTES_MOST = 256 * 1024 * 1024 };

bool wefti_pipe_list_has(const weft_schedule *schedule, weft_action_type type)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    bool any = false;
    if (weft_schedule_get_info(schedule, &info) != WEFT_OK) {
        return false;
    }
    for (int rank = 0; rank < info.ranks && !any; rank++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(schedule, rank, &actions);
        for (size_t i = 0; i < count && !any; i++) {
            any = actions[i].type == type;
        }
    }
    return any;
}

/* The last micro-batch whose gradients of a stage an action adds; else -1. */
static int added_by(const weft_action *action, int *stage)
{
    bool pair = action->type == WEFT_ACTION_FB;
    bool adds =
        pair || action->type == WEFT_ACTION_W || action->type == WEFT_ACTION_B;
    *stage = pair ? action->pair_stage : action->stage;
    return !adds ? -1 : pair ? action->pair_microbatch : action->microbatch;
}

/* Of one stage, all of whose actions are in one rank's list. */
static const weft_action *find_disorder(const weft_schedule *schedule,
                                        int stage)
{
    const weft_action *actions;
    int rank = weft_schedule_get_rank(schedule, stage);
    size_t count = weft_schedule_get_actions(schedule, rank, &actions);
    int next = 0;
    for (size_t i = 0; i < count; i++) {
        int at;
        int microbatch = added_by(&actions[i], &at);
        if (microbatch >= 0 && at == stage && microbatch != next++) {
            return &actions[i];
        }
    }
    return NULL;
}

bool wefti_pipe_list_is_disordered(const weft_schedule *schedule,
                                   char text[WEFT_ACTION_TEXT_BYTES])
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    const weft_action *found = NULL;
    if (weft_schedule_get_info(schedule, &info) != WEFT_OK) {
        return false;
    }
    for (int stage = 0; stage < info.stages && !found; stage++) {
        found = find_disorder(schedule, stage);
    }
    if (found) {
        (void)weft_action_pack(found, text);
    }
    return found != NULL;
}

/* ---- what the trainer can run ---------------------------------------------
 */

/* Parameters are gathered and stepped outside the list. */
static bool is_allowed(weft_action_type type)
{
    switch (type) {
    case WEFT_ACTION_UNSHARD:
    case WEFT_ACTION_RESHARD:
    case WEFT_ACTION_OPT:
    case WEFT_ACTION_GATHER_PARAM:
    case WEFT_ACTION_EMA:
        return false;
    default:
        return true;
    }
}

static weft_status check_actions(const char *path,
                                 const weft_schedule *schedule,
                                 const weft_schedule_info *info)
{
    for (int rank = 0; rank < info->ranks; rank++) {
        const weft_action *actions;
        size_t count = weft_schedule_get_actions(schedule, rank, &actions);
        for (size_t i = 0; i < count; i++) {
            char text[WEFT_ACTION_TEXT_BYTES];
            if (!is_allowed((weft_action_type)actions[i].type)) {
                (void)weft_action_pack(&actions[i], text);
                weft_place at = wefti_schedule_place(schedule, rank, i);
                return wefti_error(WEFT_ERR_INVALID,
                                   "%.200s: row %d, column %d: %s; allowed is "
                                   "all but UNSHARD, RESHARD, OPT, "
                                   "GATHER_PARAM and EMA, which training does "
                                   "by itself",
                                   path, at.row, at.column, text);
            }
        }
    }
    if (info->lowered &&
        !wefti_pipe_list_has(schedule, WEFT_ACTION_REDUCE_GRAD)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: has messages, so it is run as it is, but "
                           "no REDUCE_GRAD: each stage needs one behind its "
                           "last W or B (weft-sched show --passes reduce)",
                           path);
    }
    return WEFT_OK;
}

static weft_status check_numbers(const wefti_config *config, const char *path,
                                 int64_t microbatches,
                                 const weft_schedule_info *info)
{
    int64_t ranks = config->parallel.pipeline_model_parallel_size;
    if (info->ranks != ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: is for %d ranks; "
                           "parallel.pipeline_model_parallel_size is %" PRId64,
                           path, info->ranks, ranks);
    }
    if (info->microbatches != microbatches) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: is for %d micro-batches a step; the "
                           "batch sizes give each pipeline %" PRId64,
                           path, info->microbatches, microbatches);
    }
    return WEFT_OK;
}

/* Every schedule that is run has been proved; this one may be arbitrary. */
static weft_status check_rules(const char *path, const weft_schedule *schedule)
{
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = WEFT_SEMANTICS_GROUPED};
    weft_verdict verdict;
    weft_status status = weft_schedule_check(schedule, &config, &verdict);
    if (status != WEFT_OK) {
        return status;
    }
    if (!verdict.valid) {
        const weft_finding *first = &verdict.findings[0];
        status = wefti_error(WEFT_ERR_INVALID, "%.200s: breaks rule %s: %s",
                             path, weft_rule_text(first->rule), first->text);
    }
    weft_verdict_fini(&verdict);
    return status;
}

static weft_status check_list(const wefti_config *config, const char *path,
                              int64_t microbatches,
                              const weft_schedule *schedule)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    weft_status status = weft_schedule_get_info(schedule, &info);
    if (status == WEFT_OK) {
        status = check_numbers(config, path, microbatches, &info);
    }
    if (status == WEFT_OK) {
        status = check_actions(path, schedule, &info);
    }
    return status == WEFT_OK ? check_rules(path, schedule) : status;
}

weft_status wefti_pipe_list_read(const wefti_config *config,
                                 int64_t microbatches,
                                 weft_schedule **schedule_out)
{
    const char *path = config->parallel.schedule_file;
    char *text;
    size_t bytes;
    weft_status status =
        wefti_file_read(path, WEFTI_INPUT_FILE, FILE_BYTES_MOST, &text, &bytes);
    if (status != WEFT_OK) {
        return status;
    }
    weft_schedule *schedule = NULL;
    status = weft_schedule_read(text, bytes, 0, 0, &schedule);
    free(text);
    if (status != WEFT_OK) {
        return wefti_error(status, "%.200s: %s", path, weft_error_text());
    }
    status = check_list(config, path, microbatches, schedule);
    if (status != WEFT_OK) {
        weft_schedule_destroy(schedule);
        return status;
    }
    *schedule_out = schedule;
    return WEFT_OK;
}
