/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_check.c - what a pipeline is asked for, refused by name.
 */
#include "overlap/pipeline_check.h"

#include "base/error.h"
#include "comm/core/core.h"
#include "overlap/schedule/schedule.h"

static weft_status check_sizes(const weft_pipeline_config *config)
{
    if (!config->schedule) {
        return wefti_error(WEFT_ERR_INVALID,
                           "schedule is NULL: allowed is an object");
    }
    if (config->rows == 0 || config->row_elems == 0 ||
        weft_dtype_bytes(config->dtype) == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "rows %zu of %zu elements of type %d: allowed is 1 "
                           "or more, of a type there is",
                           config->rows, config->row_elems, (int)config->dtype);
    }
    size_t chunk_rows =
        config->chunk_rows > 0 ? config->chunk_rows : config->rows;
    if ((config->rows - 1) / chunk_rows >= WEFTI_GATE_CHUNKS_MAX) {
        return wefti_error(WEFT_ERR_INVALID,
                           "chunk_rows %zu of %zu rows: allowed is up to %d "
                           "chunks",
                           chunk_rows, config->rows, WEFTI_GATE_CHUNKS_MAX);
    }
    if (config->receive_ahead < 0 || config->spare_buffers < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "receive_ahead %d, spare_buffers %d: allowed is 0 "
                           "or more",
                           config->receive_ahead, config->spare_buffers);
    }
    return WEFT_OK;
}

static weft_status check_stage_rows(const weft_pipeline_config *config)
{
    const weft_schedule *schedule = config->schedule;
    for (int stage = 0; config->stage_rows && stage < schedule->stages;
         stage++) {
        const size_t rows = config->stage_rows[stage];
        if (wefti_stage_after(schedule, stage) >= 0 &&
            (rows == 0 || rows > config->rows)) {
            return wefti_error(WEFT_ERR_INVALID,
                               "stage_rows of stage %d, %zu: allowed is 1 .. "
                               "%zu (rows)",
                               stage, rows, config->rows);
        }
    }
    return WEFT_OK;
}

static weft_status check_schedule(const weft_schedule *schedule)
{
    weft_check_config config = {.size_bytes = sizeof(config),
                                .semantics = WEFT_SEMANTICS_GROUPED};
    weft_verdict verdict;
    if (!schedule->lowered) {
        return wefti_error(WEFT_ERR_INVALID,
                           "the schedule has no messages: lower it first");
    }
    weft_status status = weft_schedule_check(schedule, &config, &verdict);
    if (status != WEFT_OK) {
        return status;
    }
    if (!verdict.valid) {
        const weft_finding *first = &verdict.findings[0];
        status =
            wefti_error(WEFT_ERR_INVALID, "the schedule breaks rule %s: %s",
                        weft_rule_text(first->rule), first->text);
    }
    weft_verdict_fini(&verdict);
    return status;
}

static weft_status need_call(bool there, const char *call,
                             weft_action_type type)
{
    static const char *const texts[] = {
#define TEXT(name, text, microbatch, torch) text,
        WEFT_ACTION_LIST(TEXT)
#undef TEXT
    };
    return there ? WEFT_OK
                 : wefti_error(WEFT_ERR_INVALID,
                               "calls.%s is NULL: the list has %s", call,
                               texts[type]);
}

static weft_status check_call(const weft_pipeline_calls *calls,
                              const weft_action *action)
{
    weft_action_type type = (weft_action_type)action->type;
    bool whole_backward =
        calls->backward || (calls->backward_input && calls->backward_weight);
    switch (type) {
    case WEFT_ACTION_F:
        return need_call(calls->forward, "forward", type);
    case WEFT_ACTION_I:
        return need_call(calls->backward_input, "backward_input", type);
    case WEFT_ACTION_W:
        return need_call(calls->backward_weight, "backward_weight", type);
    case WEFT_ACTION_B:
        return need_call(whole_backward, "backward", type);
    case WEFT_ACTION_FB:
        return need_call(calls->pair || (calls->forward && whole_backward),
                         "pair", type);
    case WEFT_ACTION_RECOMPUTE:
        return need_call(calls->recompute, "recompute", type);
    case WEFT_ACTION_OFFLOAD:
        return need_call(calls->offload, "offload", type);
    case WEFT_ACTION_RELOAD:
        return need_call(calls->reload, "reload", type);
    case WEFT_ACTION_UNSHARD:
    case WEFT_ACTION_RESHARD:
    case WEFT_ACTION_REDUCE_GRAD:
    case WEFT_ACTION_OPT:
    case WEFT_ACTION_GATHER_PARAM:
    case WEFT_ACTION_EMA:
        return need_call(calls->whole, "whole", type);
    default:
        return WEFT_OK;
    }
}

weft_status wefti_pipeline_check_list(const weft_pipeline_config *config)
{
    weft_status status = check_sizes(config);
    if (status == WEFT_OK) {
        status = check_stage_rows(config);
    }
    return status == WEFT_OK ? check_schedule(config->schedule) : status;
}

weft_status wefti_pipeline_check(const weft_pipeline_config *config)
{
    weft_status status = wefti_pipeline_check_list(config);
    if (status != WEFT_OK) {
        return status;
    }
    if (!config->comm || !config->device) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            config->comm ? "device" : "comm");
    }
    int nranks = weft_comm_get_nranks(config->comm);
    if (nranks != config->schedule->ranks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a communicator of %d ranks: the schedule has %d",
                           nranks, config->schedule->ranks);
    }
    const weft_action *actions;
    size_t count = weft_schedule_get_actions(
        config->schedule, weft_comm_get_rank(config->comm), &actions);
    for (size_t k = 0; k < count && status == WEFT_OK; k++) {
        status = check_call(config->calls, &actions[k]);
    }
    return status;
}
