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

/* OK | ERR_INVALID: it is NULL | as what it has failed. */
WEFT_NODISCARD weft_status wefti_pipeline_check_alive(const weft_pipeline *p);

/* The buffers that are held up to an action are given back. */
WEFT_NODISCARD weft_status wefti_pipeline_release(weft_pipeline *p,
                                                  size_t index);

#endif
