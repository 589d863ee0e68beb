/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/loop.c - the training loop.
 *
 * A step ends with its update; validation and saving fall into the time of the
 * step after it. Ranks learn each other's times one step late, on an operation
 * that runs anyway, so the line about a step is written after the next one.
 */
#include "trainer/loop.h"

#include "base/clock.h"
#include "base/error.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/checkpoint/saver.h"
#include "trainer/expert_place.h"
#include "trainer/overlap_trial.h"
#include "trainer/peak.h"

#include <math.h>
#include <stdio.h>
#include <sys/resource.h>

static const double ms_per_ns = 1e-6;

static wefti_train_step_modes modes_of(const wefti_config *config)
{
    wefti_train_step_modes modes = wefti_overlap_modes(config);
    modes.places = true;
    return modes;
}

static uint64_t peak_memory_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0
               ? (uint64_t)usage.ru_maxrss * 1024
               : 0;
}

/* What saving has cost this rank since the step before ended. */
static void take_saving(wefti_replica *replica, wefti_metrics_step *step)
{
    step->checkpoint_ms = (double)replica->save_ns * ms_per_ns;
    step->checkpoint_wait_ms = (double)replica->save_wait_ns * ms_per_ns;
    replica->save_ns = 0;
    replica->save_wait_ns = 0;
}

/* What the host has computed again in this step; validation does not. */
static void take_recompute(wefti_replica *replica, wefti_metrics_step *step)
{
    wefti_workspace *space = &replica->pipe.workspace;
    if (replica->pipe.recompute != WEFTI_RECOMPUTE_NONE && !space->compute) {
        step->recompute_ms = (double)space->again_ns * ms_per_ns;
    }
    space->again_ns = 0;
}

static wefti_metrics_step describe(const wefti_loop *loop,
                                   const wefti_train_step_result *result,
                                   const weft_step_report *report)
{
    const wefti_replica *replica = loop->replica;
    wefti_metrics_step step;
    wefti_metrics_step_init(&step);
    step.step = replica->step;
    step.loss = result->loss;
    step.grad_norm = result->grad_norm;
    step.expert_load_ratio = result->expert_ratio;
    step.expert_rank_ratio = result->expert_rank_ratio;
    step.expert_moved_bytes = result->expert_moved_bytes;
    step.lr = result->rate;
    step.step_ms = (double)report->step_ns * ms_per_ns;
    step.tokens_per_s = (double)replica->config.global_batch *
                        (double)replica->config.shape.seq /
                        (step.step_ms * 1e-3);
    if (loop->peak_rate > 0) {
        step.mfu = step.tokens_per_s *
                   wefti_peak_operations(&replica->plan, true) /
                   loop->peak_rate;
    }
    step.compute_ms = (double)report->compute_ns * ms_per_ns;
    for (int i = 0; i < WEFT_CLASS_COUNT; i++) {
        step.exposed_ms[i] = (double)report->exposed_ns[i] * ms_per_ns;
        if (replica->nranks > 1) {
            step.transfer_ms[i] = (double)report->xfer_ns[i] * ms_per_ns;
            step.moved_bytes[i] = (double)report->class_bytes[i];
        }
    }
    step.bubble_ms = (double)report->bubble_ns * ms_per_ns;
    step.skew_ms = (double)report->skew_ns * ms_per_ns;
    step.idle_ms = (double)report->idle_ns * ms_per_ns;
    /* What a single rank sends itself is no transfer. */
    if (report->xfer_all_ns > 0 && replica->nranks > 1) {
        step.overlap_ratio =
            (double)report->hidden_all_ns / (double)report->xfer_all_ns;
    }
    step.bubble_ratio = step.bubble_ms / step.step_ms;
    step.cpu_share = report->cpu_share;
    step.wakeups = report->wakeups;
    step.preemptions = report->preemptions;
    step.progress_ms = (double)report->progress_ns * ms_per_ns;
    step.memory_bytes = peak_memory_bytes();
    step.dropped = report->dropped;
    return step;
}

/* Writes the line that waited, now that the times of all ranks are known. */
static weft_status write_pending(wefti_loop *loop,
                                 const double times_most[WEFTI_STEP_TIMES])
{
    if (!loop->any_pending) {
        return WEFT_OK;
    }
    wefti_metrics_step *step = &loop->pending;
    step->step_ms_max = times_most[0];
    step->compute_ms_max = times_most[1];
    step->bubble_ms_max = times_most[2];
    loop->any_pending = false;
    if (loop->summary) {
        wefti_summary_add(loop->summary, step);
    }
    if (loop->page) {
        wefti_page_add(loop->page, step);
    }
    return loop->metrics ? wefti_metrics_write(loop->metrics, step) : WEFT_OK;
}

static void keep_times(wefti_loop *loop, const wefti_metrics_step *step)
{
    loop->times[0] = step->step_ms;
    loop->times[1] = step->compute_ms;
    loop->times[2] = step->bubble_ms;
}

/* The diverged step's times are left out, those before it are still
 * reported. */
static weft_status end_diverged(wefti_loop *loop,
                                const wefti_train_step_result *result)
{
    char why[512];
    loop->diverged = true;
    snprintf(why, sizeof(why), "%s", weft_error_text());
    (void)!write_pending(loop, result->times_most);
    return wefti_error(WEFT_ERR_INVALID, "%s", why);
}

/* Once: the sums of such a step lack what was dropped. */
static void warn_of_dropped(wefti_loop *loop)
{
    char line[160];
    if (!loop->progress || loop->warned_dropped || !loop->pending.dropped) {
        return;
    }
    loop->warned_dropped = true;
    snprintf(line, sizeof(line),
             "weft-train: step %llu: the ledger had no room for %llu records: "
             "the times of such steps are incomplete",
             (unsigned long long)loop->pending.step,
             (unsigned long long)loop->pending.dropped);
    wefti_progress_note(loop->progress, line);
}

/* For the report: this step, and where a pipeline ran all of it, its actions.
 */
static void note(wefti_loop *loop)
{
    const wefti_replica *replica = loop->replica;
    if (loop->page) {
        wefti_page_note(loop->page, &loop->pending);
    }
    if (loop->log && !wefti_pause_is_partial(replica->pause)) {
        wefti_step_log_add(loop->log, loop->pending.step, loop->pending.step_ms,
                           weft_pipeline_get_spans(replica->pipe.pipeline));
    }
}

static bool is_due(uint64_t step, int64_t every, uint64_t last)
{
    return every > 0 && (step % (uint64_t)every == 0 || step == last);
}

static weft_status take_gradients(wefti_loop *loop)
{
    const wefti_config *config = loop->config;
    return is_due(loop->replica->step, config->train.gradient_stats_every,
                  (uint64_t)config->train.steps)
               ? wefti_gradient_stats_take(&loop->gradients, loop->replica)
               : WEFT_OK;
}

/* One step, and the line about the one before. */
static weft_status run_one(wefti_loop *loop)
{
    wefti_train_step_result result;
    weft_step_report report = {.size_bytes = sizeof(report)};
    weft_status status = wefti_train_step_run(
        loop->replica, modes_of(loop->config), loop->times, &result);
    if (result.diverged) {
        return end_diverged(loop, &result);
    }
    if (status == WEFT_OK) {
        status = weft_ledger_step(loop->replica->config.ledger, &report);
    }
    if (status == WEFT_OK) {
        status = write_pending(loop, result.times_most);
    }
    if (status == WEFT_OK) {
        status = take_gradients(loop);
    }
    if (status == WEFT_OK) {
        status = wefti_expert_place_end(loop->replica->place);
    }
    if (status == WEFT_OK) {
        loop->pending = describe(loop, &result, &report);
        if (loop->expert_loads) {
            wefti_expert_loads_add(loop->expert_loads, result.expert_loads);
        }
        wefti_expert_place_time(loop->replica->place, loop->pending.step_ms);
        take_saving(loop->replica, &loop->pending);
        take_recompute(loop->replica, &loop->pending);
        loop->any_pending = true;
        keep_times(loop, &loop->pending);
        note(loop);
        warn_of_dropped(loop);
    }
    return status;
}

static weft_status finish_step(wefti_loop *loop, uint64_t last)
{
    uint64_t step = loop->replica->step;
    weft_status status = WEFT_OK;
    bool validates = is_due(step, loop->config->train.validate_every, last) &&
                     wefti_data_validation_windows(loop->replica->config.data);
    if (validates) {
        status = wefti_replica_evaluate(loop->replica, &loop->pending.val_loss);
    }
    if (status == WEFT_OK && validates && !isfinite(loop->pending.val_loss)) {
        loop->diverged = true;
        return wefti_train_step_diverged(loop->replica, step, "validation loss",
                                         loop->pending.val_loss);
    }
    if (status == WEFT_OK && loop->progress) {
        wefti_progress_show(loop->progress, &loop->pending, wefti_clock_ns());
    }
    if (status == WEFT_OK &&
        is_due(step, loop->config->checkpoint.every, last)) {
        status = wefti_savepoint_write(loop->savepoint, loop->replica);
    }
    return status;
}

weft_status wefti_loop_run(wefti_loop *loop)
{
    uint64_t last = (uint64_t)loop->config->train.steps;
    weft_step_report before = {.size_bytes = sizeof(before)};
    /* What came before the first step counts for no step. */
    weft_status status =
        weft_ledger_step(loop->replica->config.ledger, &before);
    while (status == WEFT_OK && loop->replica->step < last) {
        status = run_one(loop);
        if (status == WEFT_OK) {
            status = finish_step(loop, last);
        }
    }
    return status == WEFT_OK ? wefti_saver_settle(loop->replica->saver)
                             : status;
}

weft_status wefti_loop_abandon(wefti_loop *loop, uint64_t last)
{
    return loop->any_pending && loop->pending.step <= last
               ? write_pending(loop, loop->times)
               : WEFT_OK;
}

weft_status wefti_loop_close(wefti_loop *loop,
                             const wefti_measure_result *measured)
{
    double most[WEFTI_STEP_TIMES];
    weft_status status =
        weft_allreduce(loop->times, most, WEFTI_STEP_TIMES, WEFT_DTYPE_F64,
                       WEFT_REDOP_MAX, loop->replica->config.comm, NULL);
    if (status != WEFT_OK) {
        return status;
    }
    if (measured) {
        loop->pending.hiding_ratio = measured->hiding_ratio;
        loop->pending.hiding_ceiling = measured->ceiling.ceiling;
        loop->pending.rest_ms = measured->rest.rest_ms;
        loop->pending.bare_cpu_ms = measured->ceiling.bare_ms;
        loop->pending.bare_hiding_ratio = measured->ceiling.hiding_bare;
        loop->pending.s_C = measured->s_C;
        loop->pending.s_M = measured->s_M;
    }
    return write_pending(loop, most);
}
