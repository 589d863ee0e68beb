/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_overlap.c - whether a run's transfers go under compute: tried
 * before it begins, or as the run that it goes on with had found.
 */
#include "trainer/run_state.h"

#include "trainer/overlap_trial.h"
#include "trainer/pipe/pipe_schedule.h"

static void print_saved(const wefti_run_state *state)
{
    char text[WEFTI_OVERLAP_TEXT_BYTES];
    for (int c = 0; c < WEFT_CLASS_COUNT && wefti_run_prints(state); c++) {
        if (state->overlap.classes[c].tried) {
            wefti_overlap_verdict_text(&state->overlap, (weft_class)c, text);
            fprintf(state->how.err,
                    "weft-train: overlap goes on as in the checkpoint in %s: "
                    "%s; nothing is tried\n",
                    state->savepoint.dir, text);
        }
    }
}

/* What the checkpoint has, if that is of this layout. */
static weft_status keep_saved(wefti_run_state *state)
{
    wefti_savepoint_choices saved;
    weft_status status = wefti_savepoint_read_choices(
        &state->savepoint, state->comm, &state->data, &state->replica.failed,
        &saved);
    if (status != WEFT_OK || !saved.overlap.there) {
        return status;
    }
    if (saved.overlap.layout ==
        wefti_overlap_layout(&state->config,
                             weft_comm_get_nranks(state->comm))) {
        state->overlap = saved.overlap;
        state->overlap.resumed = true;
        print_saved(state);
    } else if (wefti_run_prints(state)) {
        fprintf(state->how.err,
                "weft-train: overlap is tried anew: the checkpoint in %s was "
                "made in another layout\n",
                state->savepoint.dir);
    }
    return WEFT_OK;
}

static weft_status try_classes(wefti_run_state *state)
{
    const wefti_config *config = &state->config;
    weft_schedule *schedule = NULL; /* NULL: no pipeline */
    weft_status status =
        wefti_pipe_schedule_open(config, weft_comm_get_rank(state->comm),
                                 weft_comm_get_nranks(state->comm), &schedule);
    const wefti_overlap_job job = {
        .config = config,
        .comm = state->comm,
        .device = state->device,
        .data = &state->data,
        .encoder_data =
            config->model.encoder_layers > 0 ? &state->encoder_data : NULL,
        .schedule = schedule,
        .failed = &state->replica.failed,
        .fault = &state->replica.fault,
        .clock = state->how.clock,
        .clock_context = state->how.clock_context};
    if (status == WEFT_OK) {
        status = wefti_overlap_try(
            &job, wefti_run_prints(state) ? state->how.err : NULL,
            &state->overlap);
    }
    weft_schedule_destroy(schedule);
    return status;
}

weft_status wefti_run_try_overlap(wefti_run_state *state, bool again)
{
    weft_status status = WEFT_OK;
    state->overlap = (wefti_overlap_verdict){0};
    if (!state->config.overlap.trial) {
        return WEFT_OK;
    }
    if (state->how.options->resume && !again) {
        status = keep_saved(state);
    }
    return status == WEFT_OK && !state->overlap.there ? try_classes(state)
                                                      : status;
}
