/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/pipelines.h - what the tests of pipelines share: a job of ranks
 * that execute one schedule with the toy model.
 */
#ifndef TESTS_OVERLAP_PIPELINES_H
#define TESTS_OVERLAP_PIPELINES_H

#include "tests/comm/world.h"
#include "tests/overlap/toy.h"

enum { JOB_RANKS_MOST = 16 };

/*
 * One job. before the ranks start: schedule, kind and what follows; call gets
 * it as its context.
 */
typedef struct job {
    const weft_schedule *schedule;
    const char *kind; /* of device; NULL: host */
    bool streams;     /* the toy's stream is the pipeline's */
    weft_pipeline_calls calls;
    size_t chunk_rows;
    int receive_ahead, spare_buffers;
    const size_t *rows; /* [stages] that each sends on; NULL: all */
    int steps;
    const int32_t *order; /* cuts: of the checker; NULL: none */
    size_t order_count;
    uint64_t seed;
    bool anew; /* at a cut: packed, destroyed, made anew, unpacked */
    weft_device *devices[JOB_RANKS_MOST];
    weft_pipeline_peaks peaks[JOB_RANKS_MOST]; /* measured */
} job;

/* The world of its ranks; devices are opened by them, and job_run closes them.
 */
void job_world(job *it, world_rank_call call, int timeout_ms,
               struct world *world_out);

/* Runs call on every rank, with a device each; returns failed checks. */
int job_run(job *it, world_rank_call call, int timeout_ms);

/* A config for the rank with this communicator; context is the toy. */
weft_pipeline_config job_config(job *it, weft_comm *comm, toy *model);

/* A rank that runs the job's steps and checks everything: a call. */
int job_rank(weft_comm *comm, void *context);

#endif
