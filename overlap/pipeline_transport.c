/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_transport.c - buffers, gates, and one stream for each
 * ordered pair of ranks.
 */
#include "overlap/pipeline_transport.h"
#include "weft/p2p.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/make/explain.h"

#include <stdlib.h>

enum { ALIGN_BYTES = 64 };

/* ---- life -----------------------------------------------------------------
 */

static weft_status make_gates(wefti_pipeline_transport *t)
{
    /* a gate has at least one chunk, though there may be no buffer */
    size_t chunks = t->buffers * t->chunks;
    weft_status status =
        weft_gate_create(t->device, chunks + !chunks, &t->arrived);
    if (status == WEFT_OK) {
        status = weft_gate_create(t->device, chunks + !chunks, &t->ready);
    }
    if (status == WEFT_OK) {
        status =
            weft_gate_create(t->device, t->buffers + !t->buffers, &t->sent);
    }
    if (status == WEFT_OK) {
        status =
            weft_gate_create(t->device, t->buffers + !t->buffers, &t->used);
    }
    return status;
}

static size_t count_chunks(const wefti_pipeline_transport *t, size_t rows)
{
    return (rows - 1) / t->chunk_rows + 1;
}

weft_status wefti_pipeline_transport_init(wefti_pipeline_transport *t,
                                          const weft_pipeline_config *config,
                                          int buffers)
{
    size_t chunk_rows =
        config->chunk_rows > 0 ? config->chunk_rows : config->rows;
    *t =
        (wefti_pipeline_transport){.comm = config->comm,
                                   .device = config->device,
                                   .compute = config->compute,
                                   .buffers = (size_t)buffers,
                                   .rows = config->rows,
                                   .chunk_rows = chunk_rows,
                                   .row_elems = config->row_elems,
                                   .dtype = config->dtype,
                                   .ranks = weft_comm_get_nranks(config->comm)};
    t->chunks = count_chunks(t, t->rows);
    size_t bytes = t->rows * t->row_elems * weft_dtype_bytes(t->dtype);
    t->stride_bytes = (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
    t->epochs = calloc(t->buffers + 1, sizeof(*t->epochs));
    t->receivers = calloc(t->buffers + 1, sizeof(*t->receivers));
    t->coming = calloc(t->buffers + 1, sizeof(*t->coming));
    t->out = calloc((size_t)t->ranks, sizeof(weft_stream *));
    t->in = calloc((size_t)t->ranks, sizeof(weft_stream *));
    if (!t->epochs || !t->receivers || !t->coming || !t->out || !t->in) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d buffers", buffers);
    }
    for (size_t b = 0; b < t->buffers; b++) {
        t->receivers[b] = -1;
    }
    void *memory = NULL;
    weft_status status =
        weft_device_alloc(t->device, t->buffers * t->stride_bytes, &memory);
    t->memory = memory;
    return status == WEFT_OK ? make_gates(t) : status;
}

void wefti_pipeline_transport_fini(wefti_pipeline_transport *t)
{
    for (int r = 0; r < t->ranks && t->out && t->in; r++) {
        weft_stream_destroy(t->out[r]);
        weft_stream_destroy(t->in[r]);
    }
    weft_gate_destroy(t->arrived);
    weft_gate_destroy(t->ready);
    weft_gate_destroy(t->sent);
    weft_gate_destroy(t->used);
    if (t->memory) {
        weft_device_free(t->device, t->memory);
    }
    free(t->epochs);
    free(t->receivers);
    free(t->coming);
    free(t->out);
    free(t->in);
    *t = (wefti_pipeline_transport){0};
}

weft_status wefti_pipeline_transport_open(wefti_pipeline_transport *t, int peer,
                                          bool out)
{
    weft_stream **stream = out ? &t->out[peer] : &t->in[peer];
    return *stream ? WEFT_OK : weft_stream_create(t->device, 0, stream);
}

/* ---- messages -------------------------------------------------------------
 */

weft_status wefti_pipeline_transport_take(wefti_pipeline_transport *t,
                                          wefti_pipeline_record *record,
                                          int buffer, int peer)
{
    size_t b = (size_t)buffer;
    const bool received = t->compute && peer >= 0;
    weft_stream *writer = received ? t->in[peer] : t->compute;
    weft_status status = WEFT_OK;
    WEFTI_ASSERT(b < t->buffers);
    if (t->receivers[b] >= 0) {
        status = weft_gate_test(t->sent, b, t->epochs[b]);
        if (status == WEFT_INPROGRESS) {
            wefti_pipeline_record_stop(record, WEFT_WAIT_TRANSFER,
                                       t->receivers[b]);
            status = weft_gate_wait(t->sent, b, t->epochs[b], writer);
            wefti_pipeline_record_resume(record);
        }
        t->receivers[b] = -1;
    }
    if (status == WEFT_OK && received && t->epochs[b] > 0) {
        status = weft_gate_wait(t->used, b, t->epochs[b], writer);
    }
    t->coming[b] = 0;
    t->epochs[b]++;
    return status;
}

weft_status wefti_pipeline_transport_release(wefti_pipeline_transport *t,
                                             const int32_t *buffers,
                                             size_t count)
{
    weft_status status = WEFT_OK;
    for (size_t k = 0; t->compute && k < count && status == WEFT_OK; k++) {
        size_t b = (size_t)buffers[k];
        status = weft_gate_signal(t->used, b, t->epochs[b], t->compute);
    }
    return status;
}

weft_status wefti_pipeline_transport_post(wefti_pipeline_transport *t,
                                          int buffer, int peer, bool send,
                                          size_t rows)
{
    size_t b = (size_t)buffer, chunks = count_chunks(t, rows);
    weft_stream *stream = send ? t->out[peer] : t->in[peer];
    const bool bare = t->mode == WEFT_BUCKET_OFF;
    weft_p2p part = {.size_bytes = sizeof(part),
                     .kind = send ? WEFT_P2P_SEND : WEFT_P2P_RECV,
                     .buffer = wefti_pipeline_transport_data(t, buffer),
                     .count = bare ? chunks : rows * t->row_elems,
                     .dtype = t->dtype,
                     .peer = peer,
                     .ready = send ? t->ready : NULL,
                     .arrived = send ? NULL : t->arrived,
                     .gate_elems = bare ? 1 : t->chunk_rows * t->row_elems,
                     .ready_chunk = send ? b * t->chunks : 0,
                     .arrived_chunk = send ? 0 : b * t->chunks,
                     .epoch = t->epochs[b],
                     .class_id = WEFT_CLASS_PP,
                     .label = send ? "pipeline send" : "pipeline receive"};
    weft_status status = weft_p2p_post(&part, 1, t->comm, stream);
    t->coming[b] = send ? 0 : chunks;
    if (status == WEFT_OK && send) {
        t->receivers[b] = peer;
        status = weft_gate_signal(t->sent, b, t->epochs[b], stream);
    }
    return status;
}

weft_status wefti_pipeline_transport_settle(wefti_pipeline_transport *t)
{
    weft_status status = WEFT_OK;
    for (int r = 0; r < t->ranks; r++) {
        weft_stream *streams[2] = {t->out[r], t->in[r]};
        for (int way = 0; way < 2; way++) {
            weft_status one =
                streams[way] ? weft_stream_wait(streams[way]) : WEFT_OK;
            status = status == WEFT_OK ? one : status;
        }
    }
    return status == WEFT_OK && t->compute ? weft_stream_wait(t->compute)
                                           : status;
}

/* ---- rows -----------------------------------------------------------------
 */

static weft_status wait_chunk(struct weft_rows_tie *tie, size_t chunk)
{
    wefti_pipeline_transport *t = tie->transport;
    size_t at = (size_t)tie->buffer * t->chunks + chunk;
    uint64_t epoch = t->epochs[tie->buffer];
    weft_status status = weft_gate_test(t->arrived, at, epoch);
    if (status == WEFT_INPROGRESS) {
        wefti_pipeline_record_stop(tie->record, tie->wait, tie->from);
        status = weft_gate_wait(t->arrived, at, epoch, t->compute);
        wefti_pipeline_record_resume(tie->record);
    }
    return wefti_comm_explain_fault(t->comm, status);
}

weft_status weft_rows_wait(weft_rows *rows, size_t end_row)
{
    struct weft_rows_tie *tie = rows ? rows->tie : NULL;
    if (!tie || tie->way != WEFTI_ROWS_INCOMING || end_row == 0) {
        return WEFT_OK;
    }
    const wefti_pipeline_transport *t = tie->transport;
    size_t last = (end_row < tie->rows ? end_row : tie->rows) - 1;
    weft_status status = WEFT_OK;
    while (status == WEFT_OK && tie->done <= last / t->chunk_rows) {
        status = wait_chunk(tie, tie->done);
        tie->done += status == WEFT_OK;
    }
    return status;
}

weft_status weft_rows_signal(weft_rows *rows, size_t end_row)
{
    struct weft_rows_tie *tie = rows ? rows->tie : NULL;
    if (!tie || tie->way != WEFTI_ROWS_OUTGOING) {
        return WEFT_OK;
    }
    const wefti_pipeline_transport *t = tie->transport;
    size_t end = end_row < tie->rows ? end_row / t->chunk_rows
                                     : count_chunks(t, tie->rows);
    size_t first = (size_t)tie->buffer * t->chunks;
    weft_status status = WEFT_OK;
    for (; status == WEFT_OK && tie->done < end; tie->done++) {
        status = weft_gate_signal(t->ready, first + tie->done,
                                  t->epochs[tie->buffer], t->compute);
    }
    return status;
}
