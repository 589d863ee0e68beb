/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_usage.h - what a rank holds now, and has held at most,
 * counted while the list runs; never more than was planned.
 */
#ifndef OVERLAP_PIPELINE_USAGE_H
#define OVERLAP_PIPELINE_USAGE_H

#include "overlap/pipeline_plan.h"

typedef struct wefti_pipeline_usage {
    const weft_pipeline_peaks *planned;
    weft_pipeline_peaks now, peaks;
    uint8_t *slots; /* [planned->slots] 1: activations live there */
    uint8_t *held;  /* [planned->buffers] 1: taken and not given back */
    uint8_t *used;  /* [planned->buffers] 1: has been taken in some step */
    size_t buffer_bytes;
} wefti_pipeline_usage;

WEFT_NODISCARD weft_status wefti_pipeline_usage_init(
    wefti_pipeline_usage *usage, const weft_pipeline_peaks *planned,
    size_t buffer_bytes);
void wefti_pipeline_usage_fini(wefti_pipeline_usage *usage);

/* The buffer is taken, for a message to come or for one to be made. */
void wefti_pipeline_usage_take(wefti_pipeline_usage *usage, int buffer,
                               bool received);
/* Buffers are given back. */
void wefti_pipeline_usage_release(wefti_pipeline_usage *usage,
                                  const int32_t *buffers, int buffer_count);

/* A part of an action begins, with its slots taken, and ends. */
void wefti_pipeline_usage_begin(wefti_pipeline_usage *usage,
                                weft_action_type type,
                                const wefti_pipeline_part *part);
void wefti_pipeline_usage_end(wefti_pipeline_usage *usage,
                              weft_action_type type,
                              const wefti_pipeline_part *part);

#endif
