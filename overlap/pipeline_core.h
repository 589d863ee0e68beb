/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_core.h - a pipeline from inside: what runs it and what packs
 * it share this.
 */
#ifndef OVERLAP_PIPELINE_CORE_H
#define OVERLAP_PIPELINE_CORE_H

#include "overlap/pipeline_plan.h"
#include "overlap/pipeline_transport.h"
#include "overlap/pipeline_usage.h"

struct weft_pipeline {
    weft_pipeline_config config;
    weft_pipeline_calls calls; /* config's */
    wefti_pipeline_plan plan;
    wefti_pipeline_transport transport;
    wefti_pipeline_record record;
    wefti_pipeline_usage usage;
    size_t position;    /* the next action */
    weft_status failed; /* and for ever */
    char failure[256];  /* its text */
};

/* What the longest activation takes. */
static inline size_t
wefti_pipeline_buffer_bytes(const weft_pipeline_config *config)
{
    return config->rows * config->row_elems * weft_dtype_bytes(config->dtype);
}

/* Rows that a stage sends on, or of those that it gets. */
static inline size_t wefti_pipeline_count_rows(const weft_pipeline *p,
                                               int stage, bool gets)
{
    const weft_pipeline_config *config = &p->config;
    const int sender =
        gets ? wefti_stage_before(config->schedule, stage) : stage;
    return config->stage_rows ? config->stage_rows[sender] : config->rows;
}

/* Of a message: of an activation, or the gradient of one. */
static inline size_t wefti_pipeline_message_rows(const weft_pipeline *p,
                                                 const weft_action *message)
{
    return wefti_pipeline_count_rows(p, message->stage,
                                     message->type == WEFT_ACTION_RECV_F ||
                                         message->type == WEFT_ACTION_SEND_B);
}

/* OK | ERR_INVALID: it is NULL | as what it has failed. */
WEFT_NODISCARD weft_status wefti_pipeline_check_alive(const weft_pipeline *p);

/* The buffers that are held up to an action are given back. */
WEFT_NODISCARD weft_status wefti_pipeline_release(weft_pipeline *p,
                                                  size_t index);

#endif
