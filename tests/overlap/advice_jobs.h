/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/overlap/advice_jobs.h - questions for advice, and what is found in it.
 */
#ifndef TESTS_OVERLAP_ADVICE_JOBS_H
#define TESTS_OVERLAP_ADVICE_JOBS_H

#include "tests/overlap/schedules.h"
#include "weft/advice.h"

static inline weft_schedule_cost make_cost(double f, double i, double w)
{
    return (weft_schedule_cost){
        .size_bytes = sizeof(weft_schedule_cost), .f = f, .i = i, .w = w};
}

static inline weft_advice_config make_job(int ranks, int microbatches,
                                          int layers,
                                          const weft_schedule_cost *cost)
{
    return (weft_advice_config){.size_bytes = sizeof(weft_advice_config),
                                .ranks = ranks,
                                .microbatches = microbatches,
                                .layers = layers,
                                .cost = cost};
}

static inline weft_advice advise(const weft_advice_config *config)
{
    weft_advice advice;
    ASSERT_OK(weft_schedule_advise(config, &advice));
    return advice;
}

static inline const weft_schedule_candidate *
find(const weft_advice *advice, const char *name, int microbatches, int chunks)
{
    for (size_t k = 0; k < advice->count; k++) {
        const weft_schedule_candidate *c = &advice->candidates[k];
        if (strcmp(c->name, name) == 0 && c->microbatches == microbatches &&
            (chunks == 0 || c->chunks == chunks) && !c->overlap) {
            return c;
        }
    }
    static const weft_schedule_candidate none;
    fail_msg("no %s with m = %d, V = %d", name, microbatches, chunks);
    return &none;
}

#endif
