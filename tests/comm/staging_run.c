/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/staging_run.c - filling the buffers of a job, posting it in one
 * of the ways there are, and waiting for it.
 */
#include "tests/comm/staging_run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POISON = 0xA5, GATE_CHUNKS = 1024 };

static void *room(staging_rank *own, bool on_device)
{
    void *memory = NULL;
    if (!on_device) {
        memory = malloc(STAGING_ROOM_BYTES);
    } else if (weft_device_alloc(own->device, STAGING_ROOM_BYTES, &memory) !=
               WEFT_OK) {
        memory = NULL;
    }
    assert_non_null(memory);
    return memory;
}

void staging_rank_init(staging_rank *own, weft_comm *comm, weft_device *device)
{
    *own = (staging_rank){.comm = comm,
                          .device = device,
                          .rank = weft_comm_get_rank(comm),
                          .nranks = weft_comm_get_nranks(comm)};
    assert_int_equal(weft_stream_create(device, 0, &own->stream), WEFT_OK);
    assert_int_equal(weft_stream_create(device, 0, &own->compute), WEFT_OK);
    assert_int_equal(weft_gate_create(device, GATE_CHUNKS, &own->ready),
                     WEFT_OK);
    assert_int_equal(weft_gate_create(device, GATE_CHUNKS, &own->arrived),
                     WEFT_OK);
    own->input = room(own, false);
    for (int b = 0; b < 2; b++) {
        own->device_room[b] = room(own, true);
        own->host_room[b] = room(own, false);
        own->image[b] = room(own, false);
    }
}

void staging_rank_fini(staging_rank *own)
{
    weft_stream_destroy(own->stream);
    weft_stream_destroy(own->compute);
    weft_gate_destroy(own->ready);
    weft_gate_destroy(own->arrived);
    free(own->input);
    for (int b = 0; b < 2; b++) {
        weft_device_free(own->device, own->device_room[b]);
        free(own->host_room[b]);
        free(own->image[b]);
    }
}

static void expect_ok(staging_rank *own, weft_status status, const char *what)
{
    if (status != WEFT_OK && own->failures++ < 5) {
        fprintf(stderr, "rank %d: %s: %s: %s\n", own->rank, what,
                weft_status_text(status), weft_error_text());
    }
}

static weft_status post_messages(staging_rank *own, const weft_op *op,
                                 bool planned, weft_stream *stream)
{
    weft_p2p send = {.size_bytes = sizeof(send),
                     .kind = WEFT_P2P_SEND,
                     .buffer = (void *)(uintptr_t)op->send,
                     .count = op->count,
                     .dtype = op->dtype,
                     .peer = (own->rank + 1) % own->nranks,
                     .ready = op->ready,
                     .gate_elems = op->gate_elems,
                     .epoch = op->ready ? own->epoch : 0};
    weft_p2p recv = send;
    recv.kind = WEFT_P2P_RECV;
    recv.buffer = op->recv;
    recv.peer = (own->rank + own->nranks - 1) % own->nranks;
    recv.ready = NULL;
    recv.arrived = op->arrived;
    const weft_p2p list[] = {send, recv};
    if (!planned) {
        return weft_p2p_post(list, 2, own->comm, stream);
    }
    weft_plan *plan;
    weft_status status = weft_p2p_plan(list, 2, own->comm, &plan);
    if (status == WEFT_OK) {
        status = weft_plan_post(plan, own->epoch, stream);
        weft_plan_destroy(plan);
    }
    return status;
}

static weft_status post(staging_rank *own, const weft_op *op, bool planned,
                        weft_stream *stream)
{
    const uint64_t epoch = op->ready || op->arrived ? own->epoch : 0;
    if (op->collective == WEFT_COLLECTIVE_SEND) {
        return post_messages(own, op, planned, stream);
    }
    if (!planned) {
        return weft_op_post(op, epoch, own->comm, stream);
    }
    weft_plan *plan;
    weft_status status = weft_op_plan(op, own->comm, &plan);
    if (status == WEFT_OK) {
        status = weft_plan_post(plan, epoch, stream);
        weft_plan_destroy(plan);
    }
    return status;
}

/* The input comes while the operation runs, chunk by chunk, on a stream of its
 * own. */
static void feed(staging_rank *own, const staging_job *job, size_t block_bytes)
{
    unsigned char *send = (void *)(uintptr_t)job->op.send;
    for (size_t at = 0; at < job->send_bytes; at += block_bytes) {
        const size_t left = job->send_bytes - at;
        expect_ok(own,
                  weft_device_copy(own->device, send + at, own->input + at,
                                   left < block_bytes ? left : block_bytes,
                                   own->compute),
                  "copy of a chunk");
        expect_ok(own,
                  weft_gate_signal(own->ready, at / block_bytes, own->epoch,
                                   own->compute),
                  "ready");
    }
}

/* Posts it and waits for it. */
static void run(staging_rank *own, staging_job *job, const staging_form *form)
{
    weft_op *op = &job->op;
    const bool varied = staging_is_varied(op->collective);
    weft_stream *stream = form->on_stream || form->gated ? own->stream : NULL;
    const size_t block_bytes =
        varied ? STAGING_ROOM_BYTES
               : form->gate_elems * weft_dtype_bytes(op->dtype);
    if (form->gated) {
        op->ready = job->send_bytes ? own->ready : NULL;
        op->arrived = job->recv_bytes ? own->arrived : NULL;
        op->gate_elems = varied ? 0 : form->gate_elems;
        own->epoch++;
    }
    expect_ok(own, post(own, op, form->planned, stream),
              weft_collective_text(op->collective));
    if (form->gated) {
        feed(own, job, block_bytes);
        for (size_t at = 0; at < job->recv_bytes; at += block_bytes) {
            expect_ok(own,
                      weft_gate_wait(own->arrived, at / block_bytes, own->epoch,
                                     NULL),
                      "arrived");
        }
    }
    if (stream) {
        expect_ok(own, weft_stream_wait(stream), "stream");
    }
}

/* Between host memory and one of the rooms. */
static void move(staging_rank *own, void *dst, const void *src, size_t bytes,
                 bool on_device)
{
    if (on_device) {
        expect_ok(own, weft_device_copy(own->device, dst, src, bytes, NULL),
                  "copy");
    } else {
        memcpy(dst, src, bytes);
    }
}

void staging_run(staging_rank *own, const staging_job *given,
                 const staging_form *form, const bool on_device[2],
                 size_t room_bytes, unsigned char *const results[2])
{
    staging_job job = *given;
    unsigned char *rooms[2], *in_rooms[2], *in_images[2];
    if (job.op.scale) {
        job.op.scale = job.scale;
    }
    for (int b = 0; b < 2; b++) {
        rooms[b] = on_device[b] ? own->device_room[b] : own->host_room[b];
        in_rooms[b] = rooms[b] + form->lead_bytes;
        in_images[b] = own->image[b] + form->lead_bytes;
        memset(own->image[b], POISON, room_bytes);
    }
    staging_fill(job.op.dtype, form->values + (uint64_t)own->rank, own->input,
                 job.send_bytes);
    staging_job_point(&job, in_images);
    if (!form->gated && job.send_bytes) {
        memcpy((void *)(uintptr_t)job.op.send, own->input, job.send_bytes);
    }
    for (int b = 0; b < 2; b++) {
        move(own, rooms[b], own->image[b], room_bytes, on_device[b]);
    }
    staging_job_point(&job, in_rooms);
    run(own, &job, form);
    expect_ok(own, weft_stream_wait(own->compute), "compute");
    for (int b = 0; b < 2; b++) {
        move(own, results[b], rooms[b], room_bytes, on_device[b]);
    }
}
