/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_call.c - from a case to the call of weft that does it.
 */
#include "perf/perf_call.h"

#include "base/error.h"
#include "perf/perf_graph.h"
#include "perf/perf_moe.h"

#include <stdlib.h>

weft_op wefti_perf_call_op(const wefti_perf_case *subject,
                           wefti_perf_buffers buffers)
{
    bool scales =
        subject->op->reduces && subject->redop == WEFT_REDOP_PREMULSUM;
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = subject->op->collective,
                     .send = buffers.send,
                     .recv = buffers.recv,
                     .count = wefti_perf_case_own_count(subject),
                     .send_counts = subject->send_counts,
                     .recv_counts = subject->recv_counts,
                     .dtype = subject->dtype,
                     .redop = subject->redop,
                     .root = subject->op->kind == WEFTI_PERF_SENDRECV
                                 ? wefti_perf_case_after(subject)
                                 : subject->root,
                     .class_id = WEFT_CLASS_DP,
                     .label = subject->op->name,
                     .scale = scales ? subject->scale : NULL};
}

static weft_p2p list_part(const wefti_perf_case *subject, weft_p2p_kind kind,
                          unsigned char *buffer, int peer)
{
    return (weft_p2p){.size_bytes = sizeof(weft_p2p),
                      .kind = kind,
                      .buffer = buffer,
                      .count = subject->count,
                      .dtype = subject->dtype,
                      .peer = peer,
                      .class_id = WEFT_CLASS_DP,
                      .label = subject->op->name};
}

/* Ties both parts of sendrecv's list to the gate, which opens the first. */
static void gate_list(weft_p2p list[2], const wefti_perf_gate *gate)
{
    list[0].ready = gate->ready;
    for (int i = 0; i < 2; i++) {
        list[i].gate_elems = gate->part_elems;
        list[i].epoch = gate->epoch;
    }
}

/* Writes the parts of sendrecv, 2, or of sendrecv_list, 2 a rank. */
static size_t make_list(const wefti_perf_case *subject,
                        wefti_perf_buffers buffers, weft_p2p *list)
{
    if (subject->op->kind == WEFTI_PERF_SENDRECV) {
        list[0] = list_part(subject, WEFT_P2P_SEND, buffers.send,
                            wefti_perf_case_after(subject));
        list[1] = list_part(subject, WEFT_P2P_RECV, buffers.recv,
                            wefti_perf_case_before(subject));
        return 2;
    }
    size_t part_bytes = subject->count * weft_dtype_bytes(subject->dtype);
    size_t made = 0;
    for (int peer = 0; peer < subject->nranks; peer++) {
        size_t offset = (size_t)peer * part_bytes;
        list[made++] =
            list_part(subject, WEFT_P2P_SEND, buffers.send + offset, peer);
        list[made++] =
            list_part(subject, WEFT_P2P_RECV, buffers.recv + offset, peer);
    }
    return made;
}

static bool is_list(const wefti_perf_case *subject)
{
    return subject->op->kind == WEFTI_PERF_SENDRECV ||
           subject->op->kind == WEFTI_PERF_SENDRECV_LIST;
}

/* Posts the list, or makes a plan of it. */
static weft_status post_list(const wefti_perf_case *subject,
                             wefti_perf_buffers buffers, weft_comm *comm,
                             weft_stream *stream, weft_plan **plan_out)
{
    weft_p2p few[2];
    weft_p2p *list = few;
    if (subject->op->kind == WEFTI_PERF_SENDRECV_LIST) {
        list = calloc(2 * (size_t)subject->nranks, sizeof(*list));
    }
    if (!list) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a list of %d parts",
                           2 * subject->nranks);
    }
    size_t count = make_list(subject, buffers, list);
    weft_status status = plan_out ? weft_p2p_plan(list, count, comm, plan_out)
                                  : weft_p2p_post(list, count, comm, stream);
    if (list != few) {
        free(list);
    }
    return status;
}

weft_status wefti_perf_call_plan(wefti_perf_pool *pool, weft_comm *comm)
{
    const wefti_perf_case *subject = &pool->subject;
    weft_status status = WEFT_OK;
    pool->plans = calloc((size_t)pool->copies, sizeof(weft_plan *));
    if (!pool->plans) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d plans", pool->copies);
    }
    for (int copy = 0; copy < pool->copies && status == WEFT_OK; copy++) {
        wefti_perf_buffers buffers = wefti_perf_pool_at(pool, (size_t)copy);
        weft_op op = wefti_perf_call_op(subject, buffers);
        status = is_list(subject) ? post_list(subject, buffers, comm, NULL,
                                              &pool->plans[copy])
                                  : weft_op_plan(&op, comm, &pool->plans[copy]);
    }
    return status;
}

/* Into the next rank's memory; in a round, when the one before has. */
static weft_status put(const wefti_perf_pool *pool, size_t call,
                       weft_stream *stream)
{
    const wefti_perf_case *subject = &pool->subject;
    wefti_perf_buffers buffers = wefti_perf_pool_at(pool, call);
    size_t offset =
        (size_t)(buffers.recv - (unsigned char *)weft_mem_get_base(pool->mem));
    int before = wefti_perf_case_before(subject);
    int after = wefti_perf_case_after(subject);
    bool waits_first =
        subject->op->kind == WEFTI_PERF_PUT_ROUND && subject->rank != 0;
    weft_status status = WEFT_OK;
    if (waits_first) {
        status = weft_mem_wait(pool->mem, 0, call + 1, before, stream);
    }
    if (status == WEFT_OK) {
        status = weft_mem_put(pool->mem, offset, buffers.send, subject->count,
                              subject->dtype, after, stream);
    }
    if (status == WEFT_OK) {
        status = weft_mem_signal(pool->mem, 0, 1, after, stream);
    }
    if (status == WEFT_OK && !waits_first) {
        status = weft_mem_wait(pool->mem, 0, call + 1, before, stream);
    }
    return status;
}

weft_status wefti_perf_call_ring(wefti_perf_pool *pool, wefti_perf_rank *self)
{
    const wefti_perf_case *subject = &pool->subject;
    const weft_ring_config config = {
        .size_bytes = sizeof(config),
        .comm = self->comm,
        .device = self->device,
        .way = subject->op->kind == WEFTI_PERF_RING_BOTH ? WEFT_RING_BOTH
                                                         : WEFT_RING_ONE,
        .count = subject->count,
        .dtype = subject->dtype,
        .class_id = WEFT_CLASS_CP,
        .label = subject->op->name};
    pool->device = self->device;
    return subject->count > 0 ? weft_ring_create(&config, &pool->ring)
                              : WEFT_OK;
}

/* Each block is copied to its owner's part, in the stream's order. */
static weft_status go_round(const wefti_perf_pool *pool, size_t call,
                            weft_stream *stream)
{
    const size_t bytes =
        pool->subject.count * weft_dtype_bytes(pool->subject.dtype);
    wefti_perf_buffers buffers = wefti_perf_pool_at(pool, call);
    void *block = buffers.send;
    int owner;
    weft_status status = weft_ring_post(pool->ring, buffers.send, stream);
    while (status == WEFT_OK && block) {
        status = weft_ring_next(pool->ring, stream, &block, &owner);
        if (status == WEFT_OK && block) {
            status = weft_device_copy(pool->device,
                                      buffers.recv + (size_t)owner * bytes,
                                      block, bytes, stream);
        }
    }
    return status;
}

weft_status wefti_perf_call_post(const wefti_perf_pool *pool, size_t call,
                                 weft_comm *comm, weft_stream *stream)
{
    const wefti_perf_case *subject = &pool->subject;
    if (wefti_perf_op_puts(subject->op)) {
        return put(pool, call, stream);
    }
    if (pool->moe) {
        return wefti_perf_moe_post(pool, call, stream);
    }
    if (wefti_perf_op_rings(subject->op)) {
        return pool->ring ? go_round(pool, call, stream) : WEFT_OK;
    }
    if (pool->graphs && pool->graphs[call % (size_t)pool->copies]) {
        return wefti_perf_graph_launch(pool, call, stream);
    }
    if (pool->plans) {
        return weft_plan_post(pool->plans[call % (size_t)pool->copies], 0,
                              stream);
    }
    wefti_perf_buffers buffers = wefti_perf_pool_at(pool, call);
    if (is_list(subject)) {
        return post_list(subject, buffers, comm, stream, NULL);
    }
    weft_op op = wefti_perf_call_op(subject, buffers);
    return weft_op_post(&op, 0, comm, stream);
}

weft_status wefti_perf_call_post_gated(const wefti_perf_pool *pool, size_t call,
                                       const wefti_perf_gate *gate,
                                       weft_comm *comm, weft_stream *stream)
{
    const wefti_perf_case *subject = &pool->subject;
    wefti_perf_buffers buffers = wefti_perf_pool_at(pool, call);
    if (subject->count == 0) {
        return wefti_perf_call_post(pool, call, comm, stream);
    }
    if (subject->op->kind == WEFTI_PERF_SENDRECV) {
        weft_p2p list[2];
        (void)make_list(subject, buffers, list);
        gate_list(list, gate);
        return weft_p2p_post(list, 2, comm, stream);
    }
    weft_op op = wefti_perf_call_op(subject, buffers);
    op.ready = gate->ready;
    op.gate_elems = gate->part_elems;
    return weft_op_post(&op, gate->epoch, comm, stream);
}

weft_status wefti_perf_call_run(const wefti_perf_pool *pool, size_t call,
                                weft_comm *comm, weft_stream *stream)
{
    weft_status status = wefti_perf_call_post(pool, call, comm, stream);
    if (status != WEFT_OK || !stream) {
        return status;
    }
    return weft_stream_wait(stream);
}
