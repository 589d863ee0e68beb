/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_record.h - when each action of a step ran and what it waited
 * for, written while it runs, to the record and to the ledger.
 *
 *   reach ... wait ... begin ======= wait ======= end
 *                      compute       not compute
 */
#ifndef OVERLAP_PIPELINE_RECORD_H
#define OVERLAP_PIPELINE_RECORD_H

#include "weft/pipeline.h"

typedef struct wefti_pipeline_record {
    weft_ledger *ledger;  /* or NULL */
    weft_stream *compute; /* of its spans; NULL: of the calling thread */
    weft_pipeline_span *spans;
    weft_pipeline_span *now; /* of the action that runs; NULL: none */
    char (*labels)[WEFT_ACTION_TEXT_BYTES]; /* [actions]; NULL: no ledger */
    const char *label; /* of the compute that runs; NULL: none runs */
    weft_span open;
    int64_t wait_ns; /* when the wait began */
} wefti_pipeline_record;

/*
 * wefti_pipeline_record_init - of a rank's list. The ledger's spans have the
 * actions' texts, "2F5", as labels: they are gone when this is finished.
 */
WEFT_NODISCARD weft_status wefti_pipeline_record_init(
    wefti_pipeline_record *record, weft_ledger *ledger, weft_stream *compute,
    const weft_action *actions, size_t count);
void wefti_pipeline_record_fini(wefti_pipeline_record *record);

/* The rank has come to action index; till it ends, its end is its begin. */
void wefti_pipeline_record_reach(wefti_pipeline_record *record, size_t index);

/* A message, posted now. */
void wefti_pipeline_record_post(wefti_pipeline_record *record, size_t index);

/* The compute of action index begins, and ends. */
void wefti_pipeline_record_begin(wefti_pipeline_record *record, size_t index);
void wefti_pipeline_record_end(wefti_pipeline_record *record);

/* The rank stops, and goes on; before the compute or while it runs. */
void wefti_pipeline_record_stop(wefti_pipeline_record *record,
                                weft_schedule_wait wait, int rank);
void wefti_pipeline_record_resume(wefti_pipeline_record *record);

#endif
