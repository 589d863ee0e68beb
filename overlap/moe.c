/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe.c - calls of weft/moe.h, as jobs and operations on a stream, or
 * here and now. Counts are deferred: what a job has packed says how many bytes
 * the operation behind it sends.
 */
#include "overlap/moe_core.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/core/live.h"
#include "comm/make/explain.h"
#include "comm/watch/abort.h"
#include "device/device.h"
#include "weft/op.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

void wefti_moe_fail(weft_moe *moe, const char *format, ...)
{
    char text[200], all[256];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof(text), format, values);
    va_end(values);
    snprintf(all, sizeof(all), "%.40s: %s", moe->config.label, text);
    wefti_abort_because(moe->config.comm, WEFT_ERR_MISMATCH, all);
}

/* ---- a call, step by step -------------------------------------------------
 */

/* Where a call's steps are put, and what they have in common. */
typedef struct call {
    weft_moe *moe;
    wefti_moe_held *held;
    weft_stream *stream; /* NULL: the caller carries them out */
    bool waits;          /* for the end, as the program named no stream */
    wefti_moe_row row;
} call;

/* The fault that has ended the batch is its gate's, and so its streams'. */
static void expand(const wefti_moe_job *job)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    wefti_moe_expand(job);
    if (weft_comm_get_fault(job->moe->config.comm, &fault) == WEFT_OK &&
        fault.status != WEFT_OK) {
        wefti_gate_fail(job->moe->counted, fault.status, fault.text);
    }
}

static void run_here(const wefti_moe_job *job)
{
    static void (*const runs[])(const wefti_moe_job *job) = {
        [WEFTI_MOE_PACK] = wefti_moe_pack,
        [WEFTI_MOE_FORWARD] = wefti_moe_forward,
        [WEFTI_MOE_EXPAND] = expand,
        [WEFTI_MOE_EXPAND_GRADIENT] = wefti_moe_expand_gradient,
        [WEFTI_MOE_REDUCE] = wefti_moe_reduce,
        [WEFTI_MOE_MERGE] = wefti_moe_merge,
        [WEFTI_MOE_FINISH] = wefti_moe_finish};
    runs[job->step](job);
}

static void run_job(void *arg)
{
    run_here(arg);
    free(arg);
}

static weft_status post_job(const call *of, wefti_moe_job job)
{
    job.moe = of->moe;
    job.held = of->held;
    job.row = of->row;
    if (of->moe->by_kernels) {
        return wefti_moe_device_post(of->stream, &job);
    }
    if (!of->stream) {
        run_here(&job);
        return WEFT_OK;
    }
    wefti_moe_job *own = malloc(sizeof(*own));
    if (!own) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a step of \"%s\"",
                           of->moe->config.label);
    }
    *own = job;
    weft_status status = wefti_stream_compute(of->stream, run_job, own);
    if (status != WEFT_OK) {
        free(own);
    }
    return status;
}

/* One hop, towards experts or back. */
static weft_status post_hop(const call *of, int hop, bool back)
{
    const weft_moe_config *config = &of->moe->config;
    const wefti_moe_hop *along = &of->moe->hops[hop];
    const wefti_moe_side *from = back ? &along->in : &along->out;
    const wefti_moe_side *to = back ? &along->out : &along->in;
    const weft_op op = {.size_bytes = sizeof(op),
                        .collective = WEFT_COLLECTIVE_ALLTOALLV,
                        .send = from->memory,
                        .recv = to->memory,
                        .send_counts = from->capacity,
                        .recv_counts = to->capacity,
                        .dtype = WEFT_DTYPE_U8,
                        .deferred_counts = along->gone,
                        .arrived_counts = along->come,
                        .class_id = config->class_id,
                        .label = config->label};
    return weft_op_post(&op, 0, config->comm, of->stream);
}

static weft_status post_towards(const call *of, wefti_moe_job pack,
                                wefti_moe_job expand)
{
    weft_status status = post_job(of, pack);
    for (int hop = 0; hop < of->moe->layout.hops && status == WEFT_OK; hop++) {
        if (hop > 0) {
            status = post_job(of, (wefti_moe_job){.step = WEFTI_MOE_FORWARD});
        }
        if (status == WEFT_OK) {
            status = post_hop(of, hop, false);
        }
    }
    return status == WEFT_OK ? post_job(of, expand) : status;
}

static weft_status post_back(const call *of, wefti_moe_job reduce,
                             wefti_moe_job finish)
{
    weft_status status = post_job(of, reduce);
    for (int hop = of->moe->layout.hops - 1; hop >= 0 && status == WEFT_OK;
         hop--) {
        status = post_hop(of, hop, true);
        if (hop > 0 && status == WEFT_OK) {
            status = post_job(of, (wefti_moe_job){.step = WEFTI_MOE_MERGE});
        }
    }
    return status == WEFT_OK ? post_job(of, finish) : status;
}

/* Behind the call before, whatever its stream was. */
static weft_status begin(call *of, weft_stream *stream)
{
    const bool reads =
        wefti_device_can(of->moe->config.device, WEFT_CAP_HOST_READS);
    of->waits = !stream && !reads;
    of->stream = of->waits ? of->moe->own : stream;
    return weft_event_wait(of->moe->done, of->stream);
}

/* Gates and posts know that something has failed; the communicator, what. */
static weft_status end(const call *of, weft_status status)
{
    weft_status posted = weft_event_post(of->moe->done, of->stream);
    status = status == WEFT_OK ? posted : status;
    if (status == WEFT_OK && of->waits) {
        status = weft_stream_wait(of->stream);
    }
    return wefti_comm_explain_fault(of->moe->config.comm, status);
}

/* ---- arguments ------------------------------------------------------------
 */

static weft_status check_moe(const weft_moe *moe, const weft_stream *stream)
{
    if (!moe) {
        return wefti_error(WEFT_ERR_INVALID,
                           "moe is NULL: allowed is an object");
    }
    if (!wefti_comm_is_live(moe->config.comm)) {
        return wefti_comm_refuse(moe->config.comm, "moe's comm");
    }
    if (stream && !wefti_device_is_same(wefti_stream_get_device(stream),
                                        moe->config.device)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream is of another device than \"%s\"",
                           moe->config.label);
    }
    return WEFT_OK;
}

/* What a batch that is in use has; NULL: it is not. */
static wefti_moe_held *find_of(const weft_moe_batch *batch)
{
    wefti_moe_held *held = batch ? batch->held : NULL;
    return held && held->used && held->epoch == batch->counted_epoch ? held
                                                                     : NULL;
}

static weft_status check_batch(const weft_moe *moe, const weft_moe_batch *batch,
                               const weft_stream *stream)
{
    weft_status status = check_moe(moe, stream);
    if (status != WEFT_OK) {
        return status;
    }
    const bool known = find_of(batch) != NULL;
    return known
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "batch is %s: allowed is what a dispatch of "
                             "\"%s\" has written, until its end",
                             batch ? "not in use" : "NULL", moe->config.label);
}

/* Where the host's code finds an argument; NULL stays so. */
static weft_status place(const call *of, const char *name, const void *pointer,
                         size_t bytes, bool needed, void **out)
{
    *out = NULL;
    if (bytes == 0 || (!pointer && !needed)) {
        return WEFT_OK;
    }
    if (!pointer) {
        return wefti_error(WEFT_ERR_INVALID, "%s is NULL: allowed is memory",
                           name);
    }
    return wefti_stream_place(of->moe->own, name, pointer, bytes, out);
}

static size_t token_bytes(const call *of, size_t tokens)
{
    return tokens * of->moe->config.hidden * of->moe->elem_bytes;
}

static size_t rows_bytes(const call *of)
{
    return token_bytes(of, of->moe->config.capacity);
}

static size_t slot_bytes(const call *of, size_t tokens)
{
    return tokens * (size_t)of->moe->config.slots * sizeof(float);
}

/* ---- dispatch -------------------------------------------------------------
 */

static weft_status find_held(weft_moe *moe, wefti_moe_held **held_out)
{
    for (int i = 0; i < moe->config.batches; i++) {
        if (!moe->held[i].used) {
            *held_out = &moe->held[i];
            return WEFT_OK;
        }
    }
    return wefti_error(WEFT_ERR_INVALID,
                       "%d batches of \"%s\" are in use: allowed is to end "
                       "one, or config.batches above",
                       moe->config.batches, moe->config.label);
}

static weft_status check_dispatch(const weft_moe *moe, size_t tokens,
                                  const weft_stream *stream,
                                  const weft_moe_batch *batch_out)
{
    weft_status status = check_moe(moe, stream);
    if (status == WEFT_OK && tokens > moe->config.tokens) {
        status =
            wefti_error(WEFT_ERR_INVALID, "tokens %zu: allowed is 0 .. %zu",
                        tokens, moe->config.tokens);
    }
    if (status == WEFT_OK && !batch_out) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "batch_out is NULL: allowed is a weft_moe_batch");
    }
    return status == WEFT_OK
               ? wefti_sized_check("batch_out", batch_out->size_bytes,
                                   offsetof(weft_moe_batch, tokens),
                                   sizeof(*batch_out))
               : status;
}

static weft_status post_dispatch(call *of, wefti_moe_job pack)
{
    wefti_moe_held *held = of->held;
    held->used = true;
    held->epoch = ++of->moe->epoch;
    weft_status status =
        post_towards(of, pack, (wefti_moe_job){.step = WEFTI_MOE_EXPAND});
    if (status == WEFT_OK) {
        status = weft_gate_signal(of->moe->counted, held->number, held->epoch,
                                  of->stream);
    }
    return status == WEFT_OK ? weft_gate_wait(of->moe->counted, held->number,
                                              held->epoch, of->stream)
                             : status;
}

weft_status weft_moe_dispatch(weft_moe *moe, const void *x,
                              const int32_t *expert, const float *weight,
                              size_t tokens, weft_stream *stream,
                              weft_moe_batch *batch_out)
{
    call of = {.moe = moe, .row = WEFTI_MOE_ROW_TOKEN};
    void *x_at, *expert_at, *weight_at;
    weft_status status = check_dispatch(moe, tokens, stream, batch_out);
    if (status == WEFT_OK) {
        status = find_held(moe, &of.held);
    }
    if (status == WEFT_OK) {
        status = place(&of, "x", x, token_bytes(&of, tokens), true, &x_at);
    }
    if (status == WEFT_OK) {
        status = place(&of, "expert", expert, slot_bytes(&of, tokens), true,
                       &expert_at);
    }
    if (status == WEFT_OK) {
        status = place(&of, "weight", weight, slot_bytes(&of, tokens), false,
                       &weight_at);
    }
    if (status == WEFT_OK) {
        status = begin(&of, stream);
    }
    if (status != WEFT_OK) {
        return status;
    }
    of.held->tokens = tokens;
    status = end(&of, post_dispatch(&of, (wefti_moe_job){.step = WEFTI_MOE_PACK,
                                                         .from = x_at,
                                                         .expert = expert_at,
                                                         .weight = weight_at}));
    if (status != WEFT_OK) {
        of.held->used = false;
        return status;
    }
    const weft_moe_batch batch = {.size_bytes = sizeof(batch),
                                  .rows = of.held->rows,
                                  .expert_rows = of.held->expert_rows,
                                  .counted = moe->counted,
                                  .counted_chunk = of.held->number,
                                  .counted_epoch = of.held->epoch,
                                  .tokens = tokens,
                                  .held = of.held};
    wefti_sized_write(batch_out, &batch, sizeof(batch));
    return WEFT_OK;
}

void weft_moe_batch_fini(weft_moe *moe, weft_moe_batch *batch)
{
    wefti_moe_held *held = moe ? find_of(batch) : NULL;
    if (held) {
        held->used = false;
        batch->held = NULL;
    }
}

/* ---- and back -------------------------------------------------------------
 */

static weft_status combine(weft_moe *moe, const weft_moe_batch *batch,
                           const char *const names[2], const void *from,
                           void *to, bool weighted, weft_stream *stream)
{
    call of = {.moe = moe, .row = WEFTI_MOE_ROW_SUM};
    void *from_at, *to_at;
    weft_status status = check_batch(moe, batch, stream);
    if (status != WEFT_OK) {
        return status;
    }
    of.held = batch->held;
    status = place(&of, names[0], from, rows_bytes(&of), true, &from_at);
    if (status == WEFT_OK) {
        status = place(&of, names[1], to, token_bytes(&of, batch->tokens), true,
                       &to_at);
    }
    if (status == WEFT_OK) {
        status = begin(&of, stream);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return end(
        &of, post_back(&of,
                       (wefti_moe_job){.step = WEFTI_MOE_REDUCE,
                                       .from = from_at,
                                       .weighted = weighted},
                       (wefti_moe_job){.step = WEFTI_MOE_FINISH, .to = to_at}));
}

weft_status weft_moe_combine(weft_moe *moe, const weft_moe_batch *batch,
                             const void *y, void *out, weft_stream *stream)
{
    static const char *const names[] = {"y", "out"};
    return combine(moe, batch, names, y, out, true, stream);
}

weft_status weft_moe_dispatch_gradient(weft_moe *moe,
                                       const weft_moe_batch *batch,
                                       const void *drows, void *dx,
                                       weft_stream *stream)
{
    static const char *const names[] = {"drows", "dx"};
    return combine(moe, batch, names, drows, dx, false, stream);
}

/* A rank without tokens takes part in the products' way back as well. */
static weft_status post_combine_gradient(call *of, const void *dout,
                                         const void *y, void *dy, bool products,
                                         void *dweight)
{
    of->row = WEFTI_MOE_ROW_PLAIN;
    weft_status status =
        post_towards(of, (wefti_moe_job){.step = WEFTI_MOE_PACK, .from = dout},
                     (wefti_moe_job){.step = WEFTI_MOE_EXPAND_GRADIENT,
                                     .other = products ? y : NULL,
                                     .to = dy});
    if (status != WEFT_OK || !products) {
        return status;
    }
    of->row = WEFTI_MOE_ROW_SLOTS;
    return post_back(of, (wefti_moe_job){.step = WEFTI_MOE_REDUCE},
                     (wefti_moe_job){.step = WEFTI_MOE_FINISH, .to = dweight});
}

weft_status weft_moe_combine_gradient(weft_moe *moe,
                                      const weft_moe_batch *batch,
                                      const void *dout, const void *y, void *dy,
                                      float *dweight, weft_stream *stream)
{
    call of = {.moe = moe};
    void *dout_at, *y_at, *dy_at, *dweight_at;
    weft_status status = check_batch(moe, batch, stream);
    if (status != WEFT_OK) {
        return status;
    }
    of.held = batch->held;
    status = place(&of, "dout", dout, token_bytes(&of, batch->tokens), true,
                   &dout_at);
    if (status == WEFT_OK) {
        status = place(&of, "y", y, rows_bytes(&of), dweight, &y_at);
    }
    if (status == WEFT_OK) {
        status = place(&of, "dy", dy, rows_bytes(&of), true, &dy_at);
    }
    if (status == WEFT_OK) {
        status = place(&of, "dweight", dweight, slot_bytes(&of, batch->tokens),
                       false, &dweight_at);
    }
    if (status == WEFT_OK) {
        status = begin(&of, stream);
    }
    if (status != WEFT_OK) {
        return status;
    }
    return end(&of, post_combine_gradient(&of, dout_at, y_at, dy_at,
                                          dweight != NULL, dweight_at));
}
