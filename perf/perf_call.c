/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_call.c - from a case to the call of weft that does it.
 */
#include "perf/perf_call.h"

weft_op wefti_perf_call_op(const wefti_perf_case *subject,
                           wefti_perf_buffers buffers)
{
    bool scales =
        subject->op->reduces && subject->redop == WEFT_REDOP_PREMULSUM;
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = subject->op->collective,
                     .send = buffers.send,
                     .recv = buffers.recv,
                     .count = subject->count,
                     .send_counts = subject->send_counts,
                     .recv_counts = subject->recv_counts,
                     .dtype = subject->dtype,
                     .redop = subject->redop,
                     .root = subject->root,
                     .class_id = WEFT_CLASS_DP,
                     .label = subject->op->name,
                     .scale = scales ? subject->scale : NULL};
}

static weft_status send_and_receive(const wefti_perf_case *subject,
                                    wefti_perf_buffers buffers, weft_comm *comm,
                                    weft_stream *stream)
{
    weft_p2p list[] = {{.size_bytes = sizeof(list[0]),
                        .kind = WEFT_P2P_SEND,
                        .buffer = buffers.send,
                        .count = subject->count,
                        .dtype = subject->dtype,
                        .peer = wefti_perf_case_after(subject),
                        .class_id = WEFT_CLASS_DP,
                        .label = subject->op->name},
                       {.size_bytes = sizeof(list[0]),
                        .kind = WEFT_P2P_RECV,
                        .buffer = buffers.recv,
                        .count = subject->count,
                        .dtype = subject->dtype,
                        .peer = wefti_perf_case_before(subject),
                        .class_id = WEFT_CLASS_DP,
                        .label = subject->op->name}};
    return weft_p2p_post(list, 2, comm, stream);
}

static weft_status post(const wefti_perf_case *subject,
                        wefti_perf_buffers buffers, weft_comm *comm,
                        weft_stream *stream)
{
    if (subject->op->kind == WEFTI_PERF_SENDRECV) {
        return send_and_receive(subject, buffers, comm, stream);
    }
    weft_op op = wefti_perf_call_op(subject, buffers);
    return weft_op_post(&op, 0, comm, stream);
}

weft_status wefti_perf_call_run(const wefti_perf_case *subject,
                                wefti_perf_buffers buffers, weft_comm *comm,
                                weft_stream *stream)
{
    weft_status status = post(subject, buffers, comm, stream);
    if (status != WEFT_OK || !stream) {
        return status;
    }
    return weft_stream_wait(stream);
}
