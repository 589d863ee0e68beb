/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline.c - one rank's list, action by action.
 *
 *   take outputs -> post what is posted here -> first chunks are there
 *      -> call -> the rest of the outputs is sent -> release
 *
 * Everything that could be decided before is in the plan; here it is done.
 */
#include "weft/pipeline.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/sized.h"
#include "comm/make/explain.h"
#include "overlap/pipeline_check.h"
#include "overlap/pipeline_core.h"
#include "overlap/pipeline_gather.h"
#include "weft/op.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- life -----------------------------------------------------------------
 */

static weft_status make_plan(wefti_pipeline_plan *plan,
                             const weft_pipeline_config *config, int rank)
{
    weft_status status =
        wefti_pipeline_plan_init(plan, config->schedule, rank,
                                 config->receive_ahead, config->spare_buffers);
    plan->peaks.bytes =
        (size_t)plan->peaks.buffers * wefti_pipeline_buffer_bytes(config);
    return status;
}

static weft_status open_ways(weft_pipeline *p)
{
    weft_status status = WEFT_OK;
    for (size_t k = 0; k < p->plan.count && status == WEFT_OK; k++) {
        const weft_action *action = &p->plan.actions[k];
        if (wefti_action_is_message(action)) {
            status = wefti_pipeline_transport_open(
                &p->transport, p->plan.items[k].peer,
                wefti_pipeline_is_send(action));
        }
    }
    return status;
}

static weft_status missing(const char *what)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "%s is NULL: allowed is an object, or a place for one",
                       what);
}

static weft_status read_config(const weft_pipeline_config *given,
                               weft_pipeline_config *own)
{
    return given ? wefti_sized_read("config", given,
                                    offsetof(weft_pipeline_config, chunk_rows),
                                    own, sizeof(*own))
                 : missing("config");
}

static weft_status read_calls(const weft_pipeline_calls *given,
                              weft_pipeline_calls *own)
{
    return given ? wefti_sized_read("calls", given,
                                    offsetof(weft_pipeline_calls, recompute),
                                    own, sizeof(*own))
                 : missing("config.calls");
}

static weft_status read_all(const weft_pipeline_config *given,
                            weft_pipeline **pipeline_out,
                            weft_pipeline_config *config,
                            weft_pipeline_calls *calls)
{
    weft_status status =
        pipeline_out ? read_config(given, config) : missing("pipeline_out");
    if (status == WEFT_OK) {
        status = read_calls(config->calls, calls);
    }
    if (status == WEFT_OK) {
        config->calls = calls;
        status = wefti_pipeline_check(config);
    }
    return status;
}

weft_status weft_pipeline_create(const weft_pipeline_config *given,
                                 weft_pipeline **pipeline_out)
{
    weft_pipeline_config own;
    weft_pipeline_calls calls;
    weft_status status = read_all(given, pipeline_out, &own, &calls);
    if (status != WEFT_OK) {
        return status;
    }
    weft_pipeline *p = calloc(1, sizeof(*p));
    if (!p) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a pipeline");
    }
    p->calls = calls;
    p->config = own;
    p->config.calls = &p->calls;
    const weft_pipeline_config *config = &p->config;
    status = make_plan(&p->plan, config, weft_comm_get_rank(config->comm));
    if (status == WEFT_OK) {
        status = wefti_pipeline_usage_init(&p->usage, &p->plan.peaks,
                                           wefti_pipeline_buffer_bytes(config));
    }
    if (status == WEFT_OK) {
        status = wefti_pipeline_record_init(&p->record, config->ledger,
                                            config->compute, p->plan.actions,
                                            p->plan.count);
    }
    if (status == WEFT_OK) {
        status = wefti_pipeline_transport_init(&p->transport, config,
                                               p->plan.peaks.buffers);
    }
    if (status == WEFT_OK) {
        status = open_ways(p);
    }
    if (status != WEFT_OK) {
        weft_pipeline_destroy(p);
        return status;
    }
    *pipeline_out = p;
    return WEFT_OK;
}

void weft_pipeline_destroy(weft_pipeline *p)
{
    if (p) {
        wefti_pipeline_transport_fini(&p->transport);
        wefti_pipeline_record_fini(&p->record);
        wefti_pipeline_usage_fini(&p->usage);
        wefti_pipeline_plan_fini(&p->plan);
        free(p);
    }
}

/* ---- one compute action ---------------------------------------------------
 */

/* A work and what it points to. */
typedef struct frame {
    weft_pipeline_work work;
    const wefti_pipeline_part *part;
    weft_rows input, output;
    struct weft_rows_tie input_tie, output_tie;
} frame;

static void lay_rows(weft_pipeline *p, int32_t buffer, wefti_rows_way way,
                     weft_rows *rows, struct weft_rows_tie *tie)
{
    tie->transport = &p->transport;
    tie->record = &p->record;
    tie->buffer = buffer;
    tie->way = way;
    rows->data = wefti_pipeline_transport_data(&p->transport, buffer);
    rows->tie = tie;
}

static void lay_out(weft_pipeline *p, const weft_action *action,
                    const wefti_pipeline_part *part, frame *b)
{
    const weft_schedule *s = p->plan.schedule;
    int length = wefti_stages_of_direction(s);
    const bool forward = action->type == WEFT_ACTION_F;
    *b = (frame){.part = part,
                 .work = {.type = (weft_action_type)action->type,
                          .stage = action->stage,
                          .model_stage = action->stage % length,
                          .direction = action->stage / length,
                          .microbatch = action->microbatch,
                          .first = wefti_stage_before(s, action->stage) < 0,
                          .last = wefti_stage_after(s, action->stage) < 0,
                          .slot = part->slot,
                          .stage_slot = part->stage_slot,
                          .kept = part->kept}};
    if (part->input >= 0) {
        lay_rows(p, part->input,
                 part->from >= 0 ? WEFTI_ROWS_INCOMING : WEFTI_ROWS_LOCAL,
                 &b->input, &b->input_tie);
        b->input_tie.wait = forward ? WEFT_WAIT_FORWARD : WEFT_WAIT_BACKWARD;
        b->input_tie.from = part->from;
        b->input_tie.rows =
            wefti_pipeline_count_rows(p, action->stage, forward);
        b->work.input = &b->input;
    }
    if (part->output >= 0) {
        wefti_edge edge = wefti_edge_out(s, action);
        lay_rows(p, part->output,
                 edge.remote ? WEFTI_ROWS_OUTGOING : WEFTI_ROWS_LOCAL,
                 &b->output, &b->output_tie);
        b->output_tie.rows =
            wefti_pipeline_count_rows(p, action->stage, !forward);
        b->work.output = &b->output;
    }
}

/* What the call has left: the rest of its output goes, all input has come. */
static weft_status finish_rows(weft_pipeline *p, frame *b)
{
    const size_t rows = p->config.rows; /* all, or more */
    weft_status status = weft_rows_signal(b->work.output, rows);
    return status == WEFT_OK ? weft_rows_wait(b->work.input, rows) : status;
}

static weft_status call_backward(weft_pipeline *p, frame *b)
{
    const weft_pipeline_calls *calls = p->config.calls;
    void *context = p->config.context;
    if (calls->backward) {
        return calls->backward(context, &b->work);
    }
    weft_pipeline_work half = b->work;
    half.type = WEFT_ACTION_I;
    weft_status status = calls->backward_input(context, &half);
    if (status == WEFT_OK) {
        status = finish_rows(p, b); /* the gradient need not wait for W */
    }
    half.type = WEFT_ACTION_W;
    half.input = half.output = NULL;
    return status == WEFT_OK ? calls->backward_weight(context, &half) : status;
}

static weft_status call_one(weft_pipeline *p, frame *b)
{
    const weft_pipeline_calls *calls = p->config.calls;
    void *context = p->config.context;
    switch (b->work.type) {
    case WEFT_ACTION_F:
        return calls->forward(context, &b->work);
    case WEFT_ACTION_I:
        return calls->backward_input(context, &b->work);
    case WEFT_ACTION_W:
        return calls->backward_weight(context, &b->work);
    case WEFT_ACTION_B:
        return call_backward(p, b);
    case WEFT_ACTION_RECOMPUTE:
        return calls->recompute(context, &b->work);
    case WEFT_ACTION_OFFLOAD:
        return calls->offload(context, &b->work);
    default:
        return calls->reload(context, &b->work);
    }
}

/* One part after the other, or the pair's call with both. */
static weft_status call_all(weft_pipeline *p, frame *frames, int count)
{
    const weft_pipeline_calls *calls = p->config.calls;
    weft_status status = WEFT_OK;
    if (count == 2 && calls->pair) {
        status =
            calls->pair(p->config.context, &frames[0].work, &frames[1].work);
        for (int k = 0; k < count && status == WEFT_OK; k++) {
            status = finish_rows(p, &frames[k]);
        }
        return status;
    }
    for (int k = 0; k < count && status == WEFT_OK; k++) {
        status = call_one(p, &frames[k]);
        if (status == WEFT_OK) {
            status = finish_rows(p, &frames[k]);
        }
    }
    return status;
}

/* ---- messages -------------------------------------------------------------
 */

static weft_status post_message(weft_pipeline *p, size_t index)
{
    const wefti_pipeline_item *item = &p->plan.items[index];
    const weft_action *action = &p->plan.actions[index];
    const bool send = wefti_pipeline_is_send(action);
    weft_status status = WEFT_OK;
    if (!send) {
        status = wefti_pipeline_transport_take(&p->transport, &p->record,
                                               item->buffer, item->peer);
        wefti_pipeline_usage_take(&p->usage, item->buffer, true);
    }
    if (status == WEFT_OK) {
        status = wefti_pipeline_transport_post(
            &p->transport, item->buffer, item->peer, send,
            wefti_pipeline_message_rows(p, action));
    }
    wefti_pipeline_record_post(&p->record, index);
    return status;
}

/* Posts those of [from, to) that are posted before action index. */
static weft_status post_before(weft_pipeline *p, size_t index, size_t from,
                               size_t to)
{
    const wefti_pipeline_plan *plan = &p->plan;
    weft_status status = WEFT_OK;
    if (p->transport.mode == WEFT_BUCKET_BLOCKING) { /* where the list says */
        return index >= from && index < to &&
                       wefti_action_is_message(&plan->actions[index])
                   ? post_message(p, index)
                   : WEFT_OK;
    }
    for (uint32_t k = plan->items[index].posts;
         k < plan->items[index + 1].posts && status == WEFT_OK; k++) {
        if (plan->posts[k] >= from && plan->posts[k] < to) {
            status = post_message(p, plan->posts[k]);
        }
    }
    return status;
}

/* ---- actions --------------------------------------------------------------
 */

static weft_status take_outputs(weft_pipeline *p, const frame *frames,
                                int count)
{
    weft_status status = WEFT_OK;
    for (int k = 0; k < count && status == WEFT_OK; k++) {
        int32_t output = frames[k].part->output;
        if (output >= 0) {
            status = wefti_pipeline_transport_take(&p->transport, &p->record,
                                                   output, -1);
            wefti_pipeline_usage_take(&p->usage, output, false);
        }
    }
    return status;
}

static weft_status run_parts(weft_pipeline *p, size_t index, size_t to)
{
    const weft_action *action = &p->plan.actions[index];
    const wefti_pipeline_item *item = &p->plan.items[index];
    weft_action parts[2];
    frame frames[2];
    int count = wefti_action_split(action, parts);
    for (int k = 0; k < count; k++) {
        lay_out(p, &parts[k], &item->parts[k], &frames[k]);
        wefti_pipeline_usage_begin(&p->usage, frames[k].work.type,
                                   &item->parts[k]);
    }
    weft_status status = take_outputs(p, frames, count);
    if (status == WEFT_OK) {
        status = post_before(p, index, index, to);
    }
    if (status == WEFT_OK) {
        status = wefti_pipeline_transport_clear(&p->transport, &p->record);
    }
    for (int k = 0; k < count && status == WEFT_OK; k++) {
        status = weft_rows_wait(frames[k].work.input, 1);
    }
    if (status != WEFT_OK) {
        return status;
    }
    wefti_pipeline_record_begin(&p->record, index);
    status = call_all(p, frames, count);
    wefti_pipeline_record_end(&p->record);
    for (int k = 0; k < count && status == WEFT_OK; k++) {
        wefti_pipeline_usage_end(&p->usage, frames[k].work.type,
                                 &item->parts[k]);
    }
    return status;
}

static weft_status run_release(weft_pipeline *p, const weft_action *action)
{
    frame b;
    wefti_pipeline_part none = {.input = -1,
                                .output = -1,
                                .from = -1,
                                .slot = -1,
                                .stage_slot = -1,
                                .kept = -1};
    lay_out(p, action, &none, &b);
    return p->config.calls->release
               ? p->config.calls->release(p->config.context, &b.work)
               : WEFT_OK;
}

static weft_status run_other(weft_pipeline *p, const weft_action *action)
{
    weft_action_type type = (weft_action_type)action->type;
    weft_status status = WEFT_OK;
    if (type == WEFT_ACTION_BARRIER) {
        status = weft_barrier(p->config.comm, p->config.compute);
    } else if (type == WEFT_ACTION_RELEASE) {
        status = run_release(p, action);
    } else {
        status = p->config.calls->whole(p->config.context, type, action->stage);
    }
    wefti_pipeline_record_end(&p->record);
    return status;
}

weft_status wefti_pipeline_release(weft_pipeline *p, size_t index)
{
    const wefti_pipeline_item *item = &p->plan.items[index];
    const int32_t *buffers = p->plan.releases + item->releases;
    const size_t count = item[1].releases - item->releases;
    wefti_pipeline_usage_release(&p->usage, buffers, (int)count);
    return wefti_pipeline_transport_release(&p->transport, buffers, count);
}

static weft_status run_action(weft_pipeline *p, size_t index, size_t to)
{
    const weft_action *action = &p->plan.actions[index];
    bool message = wefti_action_is_message(action);
    weft_status status = WEFT_OK;
    /* a message's time is that of its post: what is waited for here is none's
     */
    wefti_pipeline_record_reach(&p->record, message ? p->plan.count : index);
    if (wefti_pipeline_has_parts(action)) {
        status = run_parts(p, index, to);
    } else {
        status = post_before(p, index, index, to);
    }
    if (status == WEFT_OK && !message && !wefti_pipeline_has_parts(action)) {
        status = run_other(p, action);
    }
    return status == WEFT_OK ? wefti_pipeline_release(p, index) : status;
}

void weft_pipeline_stop(weft_pipeline *p, weft_schedule_wait wait)
{
    if (p) {
        wefti_pipeline_record_stop(&p->record, wait, -1);
    }
}

void weft_pipeline_resume(weft_pipeline *p)
{
    if (p) {
        wefti_pipeline_record_resume(&p->record);
    }
}

/* ---- the run --------------------------------------------------------------
 */

/* The pipeline has failed with status; no rank may wait for this one. */
static weft_status fail(weft_pipeline *p, weft_status status)
{
    snprintf(p->failure, sizeof(p->failure), "%s", weft_error_text());
    p->failed = wefti_comm_explain_fault(p->config.comm, status);
    weft_fault now = {.size_bytes = sizeof(now)};
    if (weft_comm_get_fault(p->config.comm, &now) == WEFT_OK &&
        now.status == WEFT_OK) {
        if (p->plan.schedule->ranks > 1) {
            (void)!weft_comm_abort(p->config.comm);
        }
    } else {
        snprintf(p->failure, sizeof(p->failure), "%s", weft_error_text());
    }
    return wefti_error(p->failed, "%s", p->failure);
}

weft_status wefti_pipeline_check_alive(const weft_pipeline *p)
{
    if (!p) {
        return missing("pipeline");
    }
    return p->failed == WEFT_OK ? WEFT_OK
                                : wefti_error(p->failed, "%s", p->failure);
}

weft_status weft_pipeline_run(weft_pipeline *p, size_t end)
{
    weft_status status = wefti_pipeline_check_alive(p);
    if (status != WEFT_OK) {
        return status;
    }
    const size_t count = p->plan.count;
    size_t from = p->position, to = end < count ? end : count;
    if (to < from) {
        return wefti_error(WEFT_ERR_INVALID,
                           "end %zu: %zu actions have been run", end, from);
    }
    for (size_t k = 0; k < from && status == WEFT_OK; k++) {
        status = post_before(p, k, from, to); /* what the last run held back */
    }
    for (size_t k = from; k < to && status == WEFT_OK; k++) {
        status = run_action(p, k, to);
    }
    if (status == WEFT_OK && to == count && !p->config.compute) {
        status = wefti_pipeline_transport_settle(&p->transport);
    }
    p->position = to == count ? 0 : to;
    return status == WEFT_OK ? WEFT_OK : fail(p, status);
}

weft_status weft_pipeline_settle(weft_pipeline *p)
{
    weft_status status = wefti_pipeline_check_alive(p);
    if (status != WEFT_OK) {
        return status;
    }
    status = wefti_pipeline_transport_settle(&p->transport);
    return status == WEFT_OK ? WEFT_OK : fail(p, status);
}

size_t weft_pipeline_get_position(const weft_pipeline *p)
{
    return p ? p->position : 0;
}

/* ---- what it was ----------------------------------------------------------
 */

static weft_status check_peaks(const weft_pipeline_peaks *peaks_out)
{
    return peaks_out ? wefti_sized_check("peaks", peaks_out->size_bytes,
                                         offsetof(weft_pipeline_peaks, buffers),
                                         sizeof(*peaks_out))
                     : missing("peaks_out");
}

weft_status weft_pipeline_predict(const weft_pipeline_config *config, int rank,
                                  weft_pipeline_peaks *peaks_out)
{
    weft_pipeline_config own;
    weft_status status = check_peaks(peaks_out);
    if (status == WEFT_OK) {
        status = read_config(config, &own);
    }
    if (status == WEFT_OK) {
        status = wefti_pipeline_check_list(&own);
    }
    if (status == WEFT_OK && (rank < 0 || rank >= own.schedule->ranks)) {
        status = wefti_error(WEFT_ERR_INVALID, "rank %d: allowed is 0 .. %d",
                             rank, own.schedule->ranks - 1);
    }
    wefti_pipeline_plan plan;
    if (status == WEFT_OK) {
        status = make_plan(&plan, &own, rank);
    }
    if (status == WEFT_OK) {
        wefti_sized_write(peaks_out, &plan.peaks, sizeof(plan.peaks));
        wefti_pipeline_plan_fini(&plan);
    }
    return status;
}

weft_status weft_pipeline_get_peaks(const weft_pipeline *p,
                                    weft_pipeline_peaks *peaks_out)
{
    weft_status status = p ? check_peaks(peaks_out) : missing("pipeline");
    if (status == WEFT_OK) {
        wefti_sized_write(peaks_out, &p->usage.peaks, sizeof(p->usage.peaks));
    }
    return status;
}

int weft_pipeline_get_stage_slots(const weft_pipeline *p, int stage)
{
    const int stages = p ? p->plan.schedule->stages : 0;
    return stage >= 0 && stage < stages ? p->plan.stage_slots[stage] : 0;
}

const weft_pipeline_span *weft_pipeline_get_spans(const weft_pipeline *p)
{
    return p ? p->record.spans : NULL;
}

weft_status weft_pipeline_measure(weft_pipeline *p,
                                  const weft_pipeline_span *spans,
                                  double unit_ns, weft_schedule_run *run_out,
                                  int64_t *clock_error_out)
{
    int64_t error_ns = 0;
    weft_status status = wefti_pipeline_check_alive(p);
    if (status == WEFT_OK && !run_out) {
        status = missing("run_out");
    }
    if (status == WEFT_OK && !(unit_ns > 0)) {
        status = wefti_error(WEFT_ERR_INVALID, "unit_ns %g: allowed is above 0",
                             unit_ns);
    }
    if (status != WEFT_OK) {
        return status;
    }
    double activations =
        (double)p->usage.peaks.slots / p->plan.schedule->chunks;
    status = wefti_pipeline_gather(p->plan.schedule, p->config.comm,
                                   spans ? spans : p->record.spans, activations,
                                   unit_ns, wefti_clock_ns, run_out, &error_ns);
    if (clock_error_out) {
        *clock_error_out = error_ns;
    }
    return status == WEFT_OK ? WEFT_OK : fail(p, status);
}
