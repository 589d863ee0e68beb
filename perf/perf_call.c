/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_call.c - from a case to the call of weft that does it.
 */
#include "perf/perf_call.h"

weft_op wefti_perf_call_op(const wefti_perf_case *subject,
                           wefti_perf_buffers buffers)
{
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = subject->op->collective,
                     .send = buffers.send,
                     .recv = buffers.recv,
                     .count = subject->count,
                     .dtype = subject->dtype,
                     .redop = subject->redop,
                     .root = subject->root,
                     .class_id = WEFT_CLASS_DP,
                     .label = subject->op->name};
}

/* The send goes aside, or every rank would wait for its neighbour's receive. */
static weft_status send_and_receive(const wefti_perf_case *subject,
                                    wefti_perf_buffers buffers, weft_comm *comm,
                                    weft_stream *stream, weft_stream *aside)
{
    weft_status status = weft_send(buffers.send, subject->count, subject->dtype,
                                   wefti_perf_case_after(subject), comm, aside);
    if (status != WEFT_OK) {
        return status;
    }
    status = weft_recv(buffers.recv, subject->count, subject->dtype,
                       wefti_perf_case_before(subject), comm, stream);
    weft_status sent = weft_stream_wait(aside);
    return status != WEFT_OK ? status : sent;
}

static weft_status post(const wefti_perf_case *subject,
                        wefti_perf_buffers buffers, weft_comm *comm,
                        weft_stream *stream, weft_stream *aside)
{
    if (subject->op->kind == WEFTI_PERF_SENDRECV) {
        return send_and_receive(subject, buffers, comm, stream, aside);
    }
    weft_op op = wefti_perf_call_op(subject, buffers);
    return weft_op_post(&op, 0, comm, stream);
}

weft_status wefti_perf_call_run(const wefti_perf_case *subject,
                                wefti_perf_buffers buffers, weft_comm *comm,
                                weft_stream *stream, weft_stream *aside)
{
    weft_status status = post(subject, buffers, comm, stream, aside);
    if (status != WEFT_OK || !stream) {
        return status;
    }
    return weft_stream_wait(stream);
}
