/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run_schedule.c - the schedule that a run's pipelines have: the one
 * that is named; or with auto, which is tried before a run begins, and stays
 * when one goes on that had one.
 */
#include "trainer/run_state.h"

#include "base/error.h"
#include "trainer/pipe/pipe_schedule.h"

#include <limits.h>
#include <string.h>

/* As if it had been named; name outlives the configuration. */
static void set_schedule(wefti_run_state *state, const char *name, int chunks)
{
    const wefti_config with =
        wefti_pipe_schedule_config(&state->config, name, chunks);
    state->config.parallel.schedule = with.parallel.schedule;
    state->config.parallel.virtual_pipeline_model_parallel_size =
        with.parallel.virtual_pipeline_model_parallel_size;
    state->config.parallel.virtual_group_size =
        with.parallel.virtual_group_size;
}

/* ---- the one before -------------------------------------------------------
 */

/* The generator's own name, which stays; NULL: there is none of that name. */
static const char *find_name(const char *name)
{
    for (int n = 0; weft_schedule_name(n); n++) {
        if (strcmp(weft_schedule_name(n), name) == 0) {
            return weft_schedule_name(n);
        }
    }
    return NULL;
}

/* After a step any schedule may go on; inside one only that of the snapshot. */
static weft_status leave_saved(const wefti_run_state *state,
                               const wefti_savepoint_choices *saved)
{
    if (saved->inside) {
        bool named = saved->name[0] != '\0';
        return wefti_error(
            WEFT_ERR_INVALID, "--resume %s: the snapshot was made %s%s%s",
            state->savepoint.dir,
            named ? "with schedule " : "inside a step without a pipeline",
            saved->name,
            named
                ? ", which parallel.schedule: auto cannot choose; name it (of "
                  "a list of your own: its file)"
                : ": allowed is to go on without one");
    }
    return WEFT_OK;
}

static void print_saved(const wefti_run_state *state,
                        const wefti_savepoint_choices *saved)
{
    char chunks[32] = "";
    if (strcmp(saved->name, "interleaved") == 0) {
        snprintf(chunks, sizeof(chunks), " with V = %d", (int)saved->chunks);
    }
    if (wefti_run_prints(state)) {
        fprintf(state->how.err,
                "weft-train: schedule auto goes on with %s%s, which the "
                "checkpoint %s step %lld in %s was made with; nothing is "
                "tried\n",
                saved->name, chunks, saved->inside ? "inside" : "after",
                (long long)(saved->step + saved->inside), state->savepoint.dir);
    }
}

/* What is fixed by the configuration is not overruled by a checkpoint. */
static weft_status check_chunks(const wefti_run_state *state, const char *name,
                                int64_t chunks)
{
    int64_t fixed = state->config.parallel.virtual_pipeline_model_parallel_size;
    if (strcmp(name, "interleaved") != 0 || fixed == 1 || fixed == chunks) {
        return WEFT_OK;
    }
    return wefti_error(
        WEFT_ERR_INVALID,
        "--resume %s: the checkpoint was made with interleaved with V = %lld; "
        "parallel.virtual_pipeline_model_parallel_size is %lld, allowed is "
        "%lld, or 1, which leaves it to schedule auto",
        state->savepoint.dir, (long long)chunks, (long long)fixed,
        (long long)chunks);
}

/* Auto goes on with what it chose once; name_out stays NULL where there is
 * nothing to go on with. */
static weft_status keep_saved(wefti_run_state *state, const char **name_out,
                              int *chunks_out)
{
    wefti_savepoint_choices saved;
    weft_status status = wefti_savepoint_read_choices(
        &state->savepoint, state->comm, &state->data, &state->replica.failed,
        &saved);
    if (status != WEFT_OK) {
        return status;
    }
    const char *name = find_name(saved.name);
    if (!name || saved.chunks < 1 || saved.chunks > INT_MAX) {
        return leave_saved(state, &saved);
    }
    status = check_chunks(state, name, saved.chunks);
    if (status != WEFT_OK) {
        return status;
    }
    print_saved(state, &saved);
    *name_out = name;
    *chunks_out = (int)saved.chunks;
    const wefti_config with =
        wefti_pipe_schedule_config(&state->config, name, *chunks_out);
    return wefti_config_check(&with, weft_comm_get_nranks(state->comm));
}

/* ---- what is to be tried --------------------------------------------------
 */

static weft_status try_some(wefti_run_state *state, bool choose)
{
    const wefti_trial_job job = {.config = &state->config,
                                 .comm = state->comm,
                                 .device = state->device,
                                 .data = &state->data,
                                 .choose = choose,
                                 .failed = &state->replica.failed};
    return wefti_trials_run(&state->trials, &job,
                            wefti_run_prints(state) ? state->how.err : NULL);
}

weft_status wefti_run_choose_schedule(wefti_run_state *state)
{
    const wefti_config *config = &state->config;
    const char *name = NULL; /* of what takes auto's place */
    int chunks = 1;
    weft_status status = WEFT_OK;
    if (!wefti_pipe_schedule_wanted(config)) {
        return WEFT_OK;
    }
    bool is_auto = strcmp(config->parallel.schedule, "auto") == 0;
    if (is_auto && state->how.options->resume) {
        status = keep_saved(state, &name, &chunks);
    }
    bool choose = is_auto && !name;
    if (status == WEFT_OK && (choose || wefti_trials_compare(config))) {
        status = try_some(state, choose);
    }
    if (status == WEFT_OK && choose) {
        name = state->trials.chosen->name;
        chunks = state->trials.chosen->chunks;
    }
    if (status == WEFT_OK && name) {
        set_schedule(state, name, chunks);
    }
    return status;
}
