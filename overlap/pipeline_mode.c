/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_mode.c - messages that are not beside compute.
 */
#include "overlap/pipeline_mode.h"

#include "comm/make/explain.h"
#include "overlap/pipeline_core.h"

void wefti_pipeline_set_mode(weft_pipeline *p, weft_bucket_mode mode)
{
    p->transport.mode = mode;
}

/* Compute, or the caller, comes to a chunk of a gate that has been posted. */
static weft_status wait_for(wefti_pipeline_transport *t,
                            wefti_pipeline_record *record, weft_gate *gate,
                            size_t chunk, size_t buffer)
{
    const uint64_t epoch = t->epochs[buffer];
    weft_status status = weft_gate_test(gate, chunk, epoch);
    if (status == WEFT_INPROGRESS) {
        wefti_pipeline_record_stop(record, WEFT_WAIT_TRANSFER, -1);
        status = weft_gate_wait(gate, chunk, epoch, t->compute);
        wefti_pipeline_record_resume(record);
    }
    return wefti_comm_explain_fault(t->comm, status);
}

weft_status wefti_pipeline_transport_clear(wefti_pipeline_transport *t,
                                           wefti_pipeline_record *record)
{
    weft_status status = WEFT_OK;
    for (size_t b = 0; t->mode == WEFT_BUCKET_BLOCKING && b < t->buffers; b++) {
        if (status == WEFT_OK && t->receivers[b] >= 0) {
            status = wait_for(t, record, t->sent, b, b);
        }
        for (size_t c = 0; c < t->coming[b] && status == WEFT_OK; c++) {
            status = wait_for(t, record, t->arrived, b * t->chunks + c, b);
        }
        t->coming[b] = 0;
    }
    return status;
}
