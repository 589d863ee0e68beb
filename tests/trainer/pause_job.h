/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/pause_job.h - jobs whose snapshots inside steps are kept by
 * links as soon as they have been committed, to go on from any of them. The
 * linker sends the calls that it watches (-Wl,--wrap).
 */
#ifndef TESTS_TRAINER_PAUSE_JOB_H
#define TESTS_TRAINER_PAUSE_JOB_H

#include "tests/trainer/job.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PAUSE_STEPS = 3, PAUSE_KEPT_MOST = 64, PAUSE_SETTINGS = 10 };

extern scratch pause_own;
extern uint64_t pause_seed;

/* Of a group of tests. */
int pause_open(void **state);
int pause_close(void **state);

bool pause_is_long(void);
void pause_remove_folder(const char *name);

/* While keeps, each commit's snapshot is kept as kept_N; kept: the steps done
 * before. Written by rank 0's writer, read when its job has ended. */
extern bool pause_keeps;
extern uint64_t pause_kept[PAUSE_KEPT_MOST];
extern size_t pause_kept_count;
void pause_remove_kept(void);

/* The first commit is held up until three steps have begun, of two ranks. */
extern bool pause_holds;
extern atomic_int pause_begun;
extern bool pause_was_passed;

/* A layout; its settings come after the model's. */
typedef struct pause_layout {
    int nranks;
    const char *settings[PAUSE_SETTINGS];
} pause_layout;

#define SCHEDULE(name) "parallel.schedule=" #name
#define CHUNKS(count)  "parallel.virtual_pipeline_model_parallel_size=" #count
#define TIED           "model.tie_embeddings=true"
#define ENCODER                                                                \
    "model.encoder_layers=2", "model.encoder_seq_length=7",                    \
        "data.encoder_path=text.txt"

/* 8 micro-batches of 68 tokens on each pipeline of 2 ranks; or 4 on each. */
job pause_make_job(const pause_layout *cut, const char *inside,
                   const char *resume);
job_result pause_run_good(const pause_layout *cut, const char *inside,
                          const char *resume);

/* The steps of got are the last ones of wanted. */
void pause_check_same(const job_result *wanted, const job_result *got);

/* Snapshots are taken, and a fresh job goes on from one, or from all. */
void pause_check_layout(const pause_layout *cut, const job_result *wanted,
                        const char *inside);

#endif
