/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/run.c - a rank's run: what trainer/run_open.c opens is trained with,
 * and closed in the opposite order. All memory is taken before the loop, which
 * takes none.
 *
 * An elastic run that loses ranks goes back to where the replica is opened, on
 * the communicator of those that are left, and goes on from the newest
 * checkpoint.
 */
#include "trainer/run_state.h"

#include "base/error.h"
#include "device/cuda.h"
#include "kernels/math/gemm_kernel.h"
#include "kernels/math/math_table.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/ema.h"
#include "trainer/exchange/hugging_face.h"
#include "trainer/expert_hosts.h"
#include "trainer/footprint.h"
#include "trainer/peak.h"
#include "trainer/pipe/pipe_schedule.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool wefti_run_prints(const wefti_run_state *state)
{
    return weft_comm_get_rank(state->comm) == 0;
}

/* OpenBLAS takes its oldest kernels where it does not know the processor. */
static void warn_of_old_kernels(FILE *file)
{
    const char *level = wefti_math_get()->level;
    if (strcmp(level, "base") != 0 &&
        strcmp(wefti_gemm_get_kernel(false), "OpenBLAS Prescott") == 0) {
        fprintf(file,
                "weft-train: OpenBLAS runs its kernels for Prescott, without "
                "AVX, which this processor has: OPENBLAS_CORETYPE=%s names "
                "others\n",
                strcmp(level, "v4") == 0 ? "SkylakeX" : "Haswell");
    }
}

static void describe_start(const wefti_run_state *state)
{
    const wefti_replica *replica = &state->replica;
    fprintf(state->how.err,
            "weft-train: %zu parameters in %zu bucket%s on %zu rank%s; %zu "
            "%s in %zu file%s, %zu to validate\n",
            replica->plan.parameter_count, replica->plan.bucket_count,
            replica->plan.bucket_count == 1 ? "" : "s", replica->nranks,
            replica->nranks == 1 ? "" : "s", state->data.token_count,
            state->data.text ? "bytes of text" : "token ids",
            state->data.files_taken, state->data.files_taken == 1 ? "" : "s",
            state->data.token_count - state->data.train_count);
    if (replica->pipe.info.ranks > 1) {
        const wefti_pipe *pipe = &replica->pipe;
        fprintf(state->how.err,
                "weft-train: %s on %d ranks%s, %d stages, %d micro-batches; "
                "rank 0 keeps at most %zu of a stage, %zu bytes each\n",
                pipe->info.name, pipe->info.ranks,
                replica->copies == 1 ? "" : " of each copy", pipe->info.stages,
                pipe->info.microbatches, pipe->slots, pipe->slot_bytes);
    }
    if (replica->pause && replica->pause->cut_count > 0) {
        fprintf(state->how.err,
                "weft-train: saves %zu times inside each step, from a copy of "
                "%zu bytes on rank 0\n",
                replica->pause->cut_count, replica->saver->copy_bytes);
    }
    wefti_footprint_print(replica, state->how.err);
    warn_of_old_kernels(state->how.err);
    if (state->how.options->import_hf && replica->step == 0) {
        fprintf(state->how.err,
                "weft-train: begins with the parameters of %s\n",
                state->how.options->import_hf);
    }
    if (replica->pause && replica->pause->pending) {
        fprintf(state->how.err,
                "weft-train: goes on inside step %llu, after %zu of its %zu "
                "actions\n",
                (unsigned long long)replica->step + 1,
                replica->pause->mark.place, replica->pipe.info.actions);
    } else if (replica->step > 0) {
        fprintf(state->how.err, "weft-train: goes on after step %llu\n",
                (unsigned long long)replica->step);
    }
}

static void open_loop(wefti_run_state *state)
{
    state->page.trials = &state->trials;
    wefti_gradient_stats_fini(&state->loop.gradients); /* of lost ranks' */
    state->loop =
        (wefti_loop){.config = &state->config,
                     .replica = &state->replica,
                     .savepoint = &state->savepoint,
                     .expert_loads = &state->expert_loads,
                     .page = state->how.options->report ? &state->page : NULL};
    if (!state->has_summary) {
        wefti_summary_init(&state->summary);
        state->has_summary = true;
    }
    if (!wefti_run_prints(state)) {
        return;
    }
    if (state->has_progress) {
        wefti_progress_fini(&state->progress);
    }
    describe_start(state);
    wefti_progress_init(&state->progress, state->how.err,
                        isatty(fileno(state->how.err)), state->replica.step + 1,
                        (uint64_t)state->config.train.steps);
    state->has_progress = true;
    state->loop.metrics = state->has_metrics ? &state->metrics : NULL;
    state->loop.progress = &state->progress;
    state->loop.summary = &state->summary;
}

/* What the ledger has of training, before anything else is recorded there. */
static weft_status gather_page(wefti_run_state *state)
{
    wefti_footprint_compare(&state->replica, &state->page.sums.planned_bytes,
                            &state->page.sums.grown_bytes);
    return wefti_page_gather(&state->page, state->comm, state->ledger);
}

/* A usual step of a pipeline, beside the same on paper. */
static weft_status gather_plan(wefti_run_state *state)
{
    const wefti_page_plan *plan = &state->page.plan;
    wefti_pipe_job job =
        wefti_pipe_schedule_job(&state->config, (int)state->replica.nranks);
    weft_status status = wefti_page_gather_plan(&state->page, state->comm,
                                                state->replica.pipe.pipeline,
                                                state->schedule, &job);
    if (status == WEFT_OK && plan->schedule && state->how.options->measure) {
        state->loop.pending.bubble_planned_ms = plan->planned.ranks[0].bubble;
    }
    return status;
}

/* For the report of a pipeline, and what it should have waited. */
static weft_status open_steps(wefti_run_state *state)
{
    const wefti_pipe *pipe = &state->replica.pipe;
    const weft_action *actions;
    if (pipe->info.ranks == 1 ||
        !(state->loop.page || state->how.options->measure)) {
        return WEFT_OK;
    }
    state->loop.log = &state->page.steps;
    return wefti_page_open_steps(
        &state->page,
        weft_schedule_get_actions(pipe->schedule, pipe->rank, &actions));
}

static weft_status open_gradients(wefti_run_state *state)
{
    wefti_loop *loop = &state->loop;
    if (state->config.train.gradient_stats_every == 0) {
        return WEFT_OK;
    }
    if (loop->metrics) {
        loop->metrics->gradients = &loop->gradients;
    }
    return wefti_gradient_stats_init(&loop->gradients, &state->replica);
}

/* By what the products of training are made. */
static void name_multiplier(wefti_summary *summary, const char *device,
                            bool narrow)
{
    char *name = summary->blas_kernel;
    if (strcmp(device, "cuda") != 0) {
        snprintf(name, sizeof(summary->blas_kernel), "%s",
                 wefti_gemm_get_kernel(narrow));
    } else if (wefti_cuda_find_products(name) < 0) {
        snprintf(name, sizeof(summary->blas_kernel), "weft's own kernel");
    }
}

/* Where it is asked for: how fast matrices are multiplied. */
static weft_status measure_peak(wefti_run_state *state)
{
    const wefti_parameters *plan = &state->replica.plan;
    const bool narrow = plan->shape.narrow;
    wefti_summary *summary = &state->summary;
    double *rate = &state->loop.peak_rate;
    if (!state->how.options->measure && !state->config.train.measure_peak) {
        return WEFT_OK;
    }
    weft_status status =
        wefti_peak_measure(state->comm, state->device, state->replica.compute,
                           wefti_value_dtype(narrow, false), rate);
    summary->peak_gflops = status == WEFT_OK ? *rate * 1e-9 : (double)NAN;
    summary->non_causal =
        wefti_peak_operations(plan, false) / wefti_peak_operations(plan, true);
    summary->multiplied = narrow ? "bf16" : "f32";
    name_multiplier(summary, state->config.train.device, narrow);
    return status;
}

/* Its steps are no training: the weights' average knows nothing of them. */
static weft_status measure(wefti_run_state *state)
{
    struct wefti_ema *ema = state->replica.ema;
    state->replica.ema = NULL;
    weft_status status = wefti_measure_run(&state->replica, &state->measured);
    state->replica.ema = ema;
    wefti_overlap_mark(&state->overlap, &state->measured);
    return status;
}

static weft_status train(wefti_run_state *state)
{
    open_loop(state);
    weft_status status = open_steps(state);
    if (status == WEFT_OK) {
        status = measure_peak(state);
    }
    if (status == WEFT_OK) {
        status = open_gradients(state);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_evaluate(&state->replica,
                                        &state->summary.first_val_loss);
    }
    if (status == WEFT_OK) {
        status = wefti_loop_run(&state->loop);
    }
    bool stepped = state->loop.any_pending;
    if (status == WEFT_OK && state->loop.page) {
        status = gather_page(state);
    }
    if (status == WEFT_OK && state->loop.log && stepped) {
        status = gather_plan(state);
    }
    if (status == WEFT_OK && state->replica.ema) {
        status =
            wefti_ema_evaluate(&state->replica, &state->summary.val_loss_ema);
        state->loop.pending.val_loss_ema = state->summary.val_loss_ema;
    }
    if (status == WEFT_OK && state->how.options->measure) {
        status = measure(state);
    }
    if (status == WEFT_OK) {
        status = wefti_replica_settle(&state->replica);
    }
    if (status != WEFT_OK) {
        return status;
    }
    state->summary.val_loss =
        stepped ? state->loop.pending.val_loss : state->summary.first_val_loss;
    return wefti_loop_close(
        &state->loop, state->how.options->measure ? &state->measured : NULL);
}

static weft_status close_files(wefti_run_state *state)
{
    if (state->has_progress) {
        wefti_progress_fini(&state->progress);
        state->has_progress = false;
    }
    if (!state->has_metrics) {
        return WEFT_OK;
    }
    state->has_metrics = false;
    return wefti_metrics_close(&state->metrics);
}

static void close_replica(wefti_run_state *state)
{
    if (state->has_replica) {
        wefti_replica_fini(&state->replica);
        state->has_replica = false;
    }
    if (state->ledger) {
        weft_ledger_detach(state->ledger, state->comm);
        weft_ledger_destroy(state->ledger);
        state->ledger = NULL;
    }
}

static void close_all(wefti_run_state *state)
{
    close_replica(state);
    wefti_gradient_stats_fini(&state->loop.gradients);
    wefti_savepoint_release(&state->savepoint);
    wefti_page_fini(&state->page);
    wefti_expert_loads_fini(&state->expert_loads);
    wefti_trials_fini(&state->trials);
    wefti_data_fini(&state->encoder_data); /* zeros: there is none */
    if (state->has_data) {
        wefti_data_fini(&state->data);
    }
    weft_schedule_destroy(state->schedule);
    wefti_run_replace_comm(state, NULL);
    weft_device_close(state->device);
    if (state->has_config) {
        wefti_config_fini(&state->config);
    }
}

/*
 * The fault of the training's communicator; else of one of the replica's, or of
 * the one on which savepoints are written, which may detect first that a rank
 * is gone.
 */
static bool find_fault(const wefti_run_state *state, weft_fault *fault_out)
{
    const wefti_saver *saver = state->replica.saver;
    weft_comm *comms[] = {state->comm, saver ? saver->comm : NULL};
    for (int i = 0; i < 2; i++) {
        *fault_out = (weft_fault){.size_bytes = sizeof(*fault_out)};
        if (comms[i] && weft_comm_get_fault(comms[i], fault_out) == WEFT_OK &&
            fault_out->status != WEFT_OK) {
            return true;
        }
    }
    return state->has_replica &&
           wefti_replica_find_fault(&state->replica, fault_out);
}

/*
 * This rank's own error stands, whatever happened to the others meanwhile. What
 * only a communicator reports is printed as its fault's text, which names the
 * rank.
 */
static void describe_error(const wefti_run_state *state, weft_status status,
                           char *error_out)
{
    weft_fault fault;
    snprintf(error_out, WEFTI_RUN_ERROR_BYTES, "%s", weft_error_text());
    if (!state->alone && wefti_replica_is_fault(status) &&
        find_fault(state, &fault)) {
        snprintf(error_out, WEFTI_RUN_ERROR_BYTES, "%s", fault.text);
    }
}

/*
 * After a failure: the others learn of it, if they do not know yet. A savepoint
 * that is being written is a good one, and completed first, unless it lacks a
 * rank already.
 */
static void notify_others(wefti_run_state *state, weft_status status)
{
    wefti_replica *replica = &state->replica;
    if (!wefti_replica_is_fault(status)) {
        wefti_saver_await(replica->saver);
    }
    if (state->replica.failed > 0) {
        wefti_flight_blame(state->comm, state->replica.failed - 1);
    } else if (!state->alone && !state->loop.diverged) {
        /* Operations may wait for what will never be ready. */
        wefti_replica_abort(replica);
        (void)!weft_comm_abort(state->comm);
    }
}

/* Whether others may have been lost, and not this rank. */
static bool may_recover(const wefti_run_state *state, weft_status status)
{
    weft_fault fault;
    return state->has_config && state->config.train.elastic && state->comm &&
           !state->alone &&
           (status == WEFT_ERR_PEER || status == WEFT_ERR_TIMEOUT ||
            status == WEFT_ERR_ABORTED) &&
           find_fault(state, &fault);
}

/*
 * The newest state that fewer ranks can go on from: this run's, else the one it
 * began with; after a step, as inside one only as many ranks do. What ranks
 * that were lost still save counts no more.
 */
static weft_status restore(wefti_run_state *state)
{
    state->savepoint.complete = true;
    wefti_savepoint resumed = state->savepoint;
    const char *import = state->how.options->import_hf;
    weft_status status = WEFT_OK;
    if (state->config.checkpoint.every > 0) {
        status =
            wefti_savepoint_claim_again(&state->savepoint, &state->replica);
        if (status == WEFT_OK) {
            status =
                wefti_savepoint_read_if_any(&state->savepoint, &state->replica);
        }
    }
    if (status == WEFT_OK && state->replica.step == 0 && state->resumed[0]) {
        resumed.dir = state->resumed;
        status = wefti_savepoint_read(&resumed, &state->replica);
    } else if (status == WEFT_OK && state->replica.step == 0 && import) {
        status = wefti_hugging_face_import(&state->replica, import);
        if (status == WEFT_OK && state->replica.ema) {
            status = wefti_ema_begin(state->replica.ema);
        }
    }
    return status;
}

/* Rank 0 may be another now, which then goes on with the files. */
static weft_status take_over_files(wefti_run_state *state, int before, int over,
                                   const weft_fault *fault)
{
    const char *path = state->how.options->metrics;
    if (!wefti_run_prints(state)) {
        return WEFT_OK;
    }
    fprintf(state->how.err,
            "\nweft-train: %s; %d of %d ranks go on from step "
            "%llu",
            fault->text, weft_comm_get_nranks(state->comm), before,
            (unsigned long long)state->replica.step);
    if (over > 0) {
        fprintf(state->how.err,
                "; %d %s over, without a whole group to share "
                "layers, sequences or experts with, and end%s",
                over, over == 1 ? "is" : "are", over == 1 ? "s" : "");
    }
    fprintf(state->how.err, "\n");
    if (state->has_metrics || !path) {
        return WEFT_OK;
    }
    weft_status status = wefti_metrics_continue(&state->metrics, path);
    state->has_metrics = status == WEFT_OK;
    return status;
}

/* Ranks go on in whole groups; those that are over are not needed any more. */
static weft_status leave_whole(wefti_run_state *state, int *over_out)
{
    const int left = weft_comm_get_nranks(state->comm);
    const int rank = weft_comm_get_rank(state->comm);
    int fits = 0;
    weft_comm *part;
    weft_status status = wefti_config_fit(&state->config, left, &fits);
    *over_out = left - fits;
    state->is_over = false; /* of a loss before this one */
    if (status != WEFT_OK || fits == left) {
        return status;
    }
    state->is_over = rank >= fits;
    status = weft_comm_split(
        state->comm, state->is_over ? -1 : 0, rank,
        &(weft_comm_config){.size_bytes = sizeof(weft_comm_config),
                            .name = "world"},
        &part);
    if (status == WEFT_OK) {
        wefti_run_replace_comm(state, part);
    }
    return status;
}

/* On with the ranks that are left, from the newest checkpoint. */
static weft_status recover(wefti_run_state *state)
{
    weft_fault fault;
    weft_comm *less;
    int before = weft_comm_get_nranks(state->comm), over;
    (void)!find_fault(state, &fault);
    wefti_replica_abort_parts(&state->replica); /* others come out, too */
    close_replica(state);                       /* what is being written ends */
    weft_status status = weft_comm_shrink(state->comm, &less);
    if (status != WEFT_OK) {
        state->alone = true;
        return status;
    }
    wefti_run_replace_comm(state, less);
    status = leave_whole(state, &over);
    if (status != WEFT_OK || state->is_over) {
        return status;
    }
    status =
        wefti_config_check(&state->config, weft_comm_get_nranks(state->comm));
    if (status == WEFT_OK) { /* the groups are of other ranks, and hosts */
        status = wefti_expert_hosts_settle(&state->config, state->comm);
    }
    if (status == WEFT_OK) {
        status = wefti_run_try_overlap(state, true);
    }
    if (status == WEFT_OK) {
        status = wefti_run_open_replica(state);
    }
    if (status == WEFT_OK) {
        status = restore(state);
    }
    if (status == WEFT_OK) {
        status = wefti_loop_abandon(&state->loop, state->replica.step);
    }
    return status == WEFT_OK ? take_over_files(state, before, over, &fault)
                             : status;
}

/* For other programs, before this rank's own closing lines. */
static weft_status export_model(wefti_run_state *state)
{
    const char *dir = state->how.options->export_hf;
    const bool average = state->config.memory.ema_export;
    weft_status status =
        average ? wefti_ema_swap(&state->replica, true) : WEFT_OK;
    if (status == WEFT_OK) {
        status = wefti_hugging_face_export(&state->replica, dir);
    }
    if (status == WEFT_OK && average) {
        status = wefti_ema_swap(&state->replica, false);
    }
    if (status == WEFT_OK && wefti_run_prints(state)) {
        fprintf(state->how.err, "weft-train: the model is in %s\n", dir);
    }
    return status;
}

/* Rank 0's copy, and those that have experts of it. */
static bool generates(const wefti_replica *replica)
{
    return replica->copy < (size_t)wefti_mesh_ep_of_dp(&replica->mesh.mesh);
}

weft_status wefti_run(const wefti_run_config *config, char *error_out,
                      bool *everywhere)
{
    wefti_run_state *state = calloc(1, sizeof(*state));
    *everywhere = false;
    if (!state) {
        snprintf(error_out, WEFTI_RUN_ERROR_BYTES, "no memory to begin with");
        return WEFT_ERR_NO_MEMORY;
    }
    state->how = *config;
    weft_status status = wefti_run_open(state, everywhere);
    bool opened = status == WEFT_OK;
    if (opened) {
        status = train(state);
    }
    while (opened && may_recover(state, status)) {
        status = recover(state);
        if (status == WEFT_OK && !state->is_over) {
            status = train(state);
        }
    }
    if (state->is_over && status == WEFT_OK) {
        close_all(state);
        free(state);
        return WEFT_OK;
    }
    if (status == WEFT_OK && config->options->export_hf) {
        status = export_model(state);
    }
    if (status == WEFT_OK && wefti_run_prints(state)) {
        status = close_files(state);
        status = status == WEFT_OK ? wefti_run_sum_up(state) : status;
    } else if (status == WEFT_OK && generates(&state->replica)) {
        status = wefti_run_generate(state);
    }
    if (status == WEFT_OK && config->inspect) {
        config->inspect(config->inspect_context, &state->replica);
    }
    if (status != WEFT_OK) {
        describe_error(state, status, error_out);
        *everywhere |= state->loop.diverged;
        if (opened || state->replica.failed > 0) {
            notify_others(state, status);
        }
        (void)!close_files(state);
    }
    close_all(state);
    free(state);
    return status;
}
