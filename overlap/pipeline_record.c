/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_record.c - the times of a step.
 *
 * A compute span of the ledger is closed while the rank stops inside it: what
 * it waits for is a message, which the ledger knows from its communicator.
 */
#include "overlap/pipeline_record.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>

weft_status wefti_pipeline_record_init(wefti_pipeline_record *record,
                                       weft_ledger *ledger,
                                       weft_stream *compute,
                                       const weft_action *actions, size_t count)
{
    *record = (wefti_pipeline_record){.ledger = ledger, .compute = compute};
    record->spans = calloc(count + 1, sizeof(*record->spans));
    record->labels = ledger ? calloc(count + 1, sizeof(*record->labels)) : NULL;
    if (!record->spans || (ledger && !record->labels)) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "the times of %zu actions",
                           count);
    }
    for (size_t k = 0; ledger && k < count; k++) {
        (void)weft_action_pack(&actions[k], record->labels[k]);
    }
    return WEFT_OK;
}

void wefti_pipeline_record_fini(wefti_pipeline_record *record)
{
    free(record->spans);
    free(record->labels);
    *record = (wefti_pipeline_record){0};
}

void wefti_pipeline_record_reach(wefti_pipeline_record *record, size_t index)
{
    int64_t now_ns = wefti_clock_ns();
    record->now = &record->spans[index];
    *record->now = (weft_pipeline_span){.reached_ns = now_ns,
                                        .begin_ns = now_ns,
                                        .end_ns = now_ns,
                                        .wait_rank = -1};
}

void wefti_pipeline_record_post(wefti_pipeline_record *record, size_t index)
{
    weft_pipeline_span *now = record->now;
    wefti_pipeline_record_reach(record, index);
    record->now = now;
}

void wefti_pipeline_record_begin(wefti_pipeline_record *record, size_t index)
{
    record->label = record->labels ? record->labels[index] : "";
    record->open = weft_span_open(record->ledger, WEFT_CLASS_COMPUTE,
                                  record->label, record->compute);
    record->now->begin_ns = wefti_clock_ns();
}

void wefti_pipeline_record_end(wefti_pipeline_record *record)
{
    record->now->end_ns = wefti_clock_ns();
    if (record->label) {
        weft_span_close(record->ledger, record->open, record->compute);
        record->label = NULL;
    }
}

void wefti_pipeline_record_stop(wefti_pipeline_record *record,
                                weft_schedule_wait wait, int rank)
{
    record->wait_ns = wefti_clock_ns();
    if (wait != WEFT_WAIT_NONE) {
        record->now->wait = wait;
        record->now->wait_rank = rank;
    }
    if (record->label) {
        weft_span_close(record->ledger, record->open, record->compute);
    }
}

void wefti_pipeline_record_resume(wefti_pipeline_record *record)
{
    if (record->label) {
        record->open = weft_span_open(record->ledger, WEFT_CLASS_COMPUTE,
                                      record->label, record->compute);
        record->now->waited_ns += wefti_clock_ns() - record->wait_ns;
    }
}
