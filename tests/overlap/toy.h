/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/toy.h - a model of whole numbers for tests of pipelines: what
 * a stage makes depends on every bit of what it gets, on the stage, the
 * micro-batch, the step and the place in the row; so a wrong, early or late
 * input shows in the gradients at the end. What they must be is computed
 * without any pipeline.
 *
 * Stages may send on fewer rows than there are: a row that is not sent on ends
 * there as at the model's end, and begins behind it with a token.
 *
 * A rank's activations live in slots; their owners are written down, so that
 * two that share one are found.
 */
#ifndef TESTS_OVERLAP_TOY_H
#define TESTS_OVERLAP_TOY_H

#include "weft/pipeline.h"

enum { TOY_ROWS = 13, TOY_ELEMS = 3, TOY_CHUNK_ROWS = 4 };
enum { TOY_CELLS = TOY_ROWS * TOY_ELEMS };

/* What a slot holds. */
typedef struct toy_slot {
    int stage, microbatch; /* whose; -1: none's */
    uint64_t x[TOY_CELLS], y[TOY_CELLS], dy[TOY_CELLS];
} toy_slot;

/* One rank's share of the model. */
typedef struct toy {
    const weft_schedule *schedule;
    weft_device *device;
    weft_stream *stream; /* of its kernels; NULL: the host reaches the memory */
    int rank;
    uint64_t step;
    const size_t *rows; /* [stages] that each sends on; NULL: all */
    bool hurried;       /* reads before waiting: must be found out */
    size_t slots, kept;
    toy_slot *slot;                    /* [slots] */
    toy_slot *kept_slot;               /* [kept] */
    uint64_t *gradient;                /* [stages] */
    int *reduced, *stepped, *gathered; /* [stages] calls in this step */
    int *gradients;                    /* [stages] W or B in this step */
    int released;
    int wrong; /* complaints so far */
} toy;

/* Room for what a pipeline of these peaks needs. */
void toy_init(toy *it, const weft_schedule *schedule, weft_device *device,
              int rank, const weft_pipeline_peaks *peaks);
void toy_fini(toy *it);

extern const weft_pipeline_calls toy_calls;

/* The same with backward and pair in calls of their own. */
extern const weft_pipeline_calls toy_calls_whole;

/* Begins a step: gradients are 0 again. */
void toy_begin(toy *it, uint64_t step);

/* Whether the step's gradients are right; complaints are added to wrong. */
void toy_end(toy *it);

#endif
