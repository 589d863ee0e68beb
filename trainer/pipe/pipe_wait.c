/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/pipe/pipe_wait.c - a list whose compute is nothing but waits of given
 * lengths, for steps whose times are known where there are fewer cores than
 * ranks. Messages and reductions are those of training; what is in them means
 * nothing.
 */
#include "trainer/pipe/pipe_call.h"

#include "base/clock.h"
#include "trainer/replica.h"

#include <errno.h>
#include <time.h>

static const int64_t ns_per_s = 1000000000;

/* Until a moment of CLOCK_MONOTONIC, whatever signals come. */
static void sleep_until(int64_t end_ns)
{
    struct timespec end = {.tv_sec = (time_t)(end_ns / ns_per_s),
                           .tv_nsec = (long)(end_ns % ns_per_s)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) ==
           EINTR) {
    }
}

/* From when all of the input is there; then all of the output is. */
static weft_status wait_for(double ms, const weft_pipeline_work *work)
{
    weft_status status = weft_rows_wait(work->input, SIZE_MAX);
    if (status == WEFT_OK) {
        sleep_until(wefti_clock_ns() + (int64_t)(ms * 1e6));
        status = weft_rows_signal(work->output, SIZE_MAX);
    }
    return status;
}

static const weft_stage_cost *cost_of(void *context,
                                      const weft_pipeline_work *work)
{
    const wefti_replica *replica = context;
    return &replica->config.pipe.waits[work->stage];
}

static weft_status forward(void *context, const weft_pipeline_work *work)
{
    return wait_for(cost_of(context, work)->f, work);
}

static weft_status backward_input(void *context, const weft_pipeline_work *work)
{
    return wait_for(cost_of(context, work)->i, work);
}

static weft_status backward_weight(void *context,
                                   const weft_pipeline_work *work)
{
    return wait_for(cost_of(context, work)->w, work);
}

static weft_status backward(void *context, const weft_pipeline_work *work)
{
    return wait_for(cost_of(context, work)->b, work);
}

/* A copy takes no part of the time of compute. */
static weft_status copy(void *context, const weft_pipeline_work *work)
{
    (void)context;
    (void)work;
    return WEFT_OK;
}

static weft_status whole(void *context, weft_action_type type, int stage)
{
    wefti_replica *replica = context;
    (void)type; /* the list has REDUCE_GRAD and no other */
    return wefti_pipe_reduce_stage(replica, stage);
}

const weft_pipeline_calls wefti_pipe_waits = {
    .size_bytes = sizeof(wefti_pipe_waits),
    .forward = forward,
    .backward_input = backward_input,
    .backward_weight = backward_weight,
    .backward = backward,
    .recompute = forward,
    .offload = copy,
    .reload = copy,
    .whole = whole};
