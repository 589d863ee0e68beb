/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_measure.c - timed calls, then verified ones.
 */
#include "perf/perf_measure.h"

#include "base/clock.h"
#include "base/error.h"
#include "comm/make/explain.h"
#include "perf/perf_call.h"
#include "perf/perf_graph.h"
#include "perf/perf_moe.h"

#include <stdlib.h>
#include <string.h>

weft_status wefti_perf_measure_call(wefti_perf_rank *self,
                                    wefti_perf_pool *pool, size_t call,
                                    int64_t *time_ns_out)
{
    const wefti_perf_case *subject = &pool->subject;
    weft_stream *stream = self->options->blocking ? NULL : self->stream;
    const size_t group = (size_t)self->options->group;
    const size_t first = call * group, end = first + group;
    weft_status status = WEFT_OK;
    for (size_t i = first; i < end && status == WEFT_OK; i++) {
        status = wefti_perf_pool_fill(pool, self, i, 0, subject->send_elems);
    }
    if (status == WEFT_OK && wefti_perf_op_puts(subject->op)) {
        /* Others write into this rank's memory: it has looked and poisoned. */
        status = weft_barrier(self->comm, NULL);
    }
    if (status == WEFT_OK && pool->moe) {
        status = wefti_perf_moe_prepare(pool, self, call);
    }
    if (status == WEFT_OK) {
        status = wefti_perf_rank_meet(self);
    }
    if (status != WEFT_OK) {
        return status;
    }
    int64_t begin_ns = wefti_clock_ns();
    for (size_t i = first; i + 1 < end && status == WEFT_OK; i++) {
        status = wefti_perf_call_post(pool, i, self->comm, stream);
    }
    if (status == WEFT_OK) {
        status = wefti_perf_call_run(pool, end - 1, self->comm, stream);
    }
    *time_ns_out = (wefti_clock_ns() - begin_ns) / (int64_t)group;
    return status;
}

/* Each call's time, of what its ranks had. */
static weft_status agree_times(wefti_perf_rank *self, int64_t *times_ns,
                               int count)
{
    static const weft_redop redops[WEFTI_PERF_AVERAGES] = {
        [WEFTI_PERF_OF_ALL] = WEFT_REDOP_SUM,
        [WEFTI_PERF_LEAST] = WEFT_REDOP_MIN,
        [WEFTI_PERF_MOST] = WEFT_REDOP_MAX};
    const wefti_perf_average average = self->options->average;
    if (average == WEFTI_PERF_OF_RANK_0) {
        return WEFT_OK; /* who prints has them */
    }
    weft_status status =
        wefti_perf_rank_agree(self, times_ns, (size_t)count, redops[average]);
    for (int i = 0; i < count && average == WEFTI_PERF_OF_ALL; i++) {
        times_ns[i] /= self->nranks;
    }
    return status;
}

static weft_status time_calls(wefti_perf_rank *self, wefti_perf_pool *pool,
                              int warmup, int iterations, int64_t *times_ns)
{
    for (int i = 0; i < warmup + iterations; i++) {
        int64_t time_ns = 0;
        weft_status status =
            wefti_perf_measure_call(self, pool, (size_t)i, &time_ns);
        if (status != WEFT_OK) {
            return status;
        }
        if (i >= warmup) {
            times_ns[i - warmup] = time_ns;
        }
    }
    return agree_times(self, times_ns, iterations);
}

/* What the last timed calls have left in the pool; the times are taken. */
static weft_status check_timed(wefti_perf_rank *self, wefti_perf_pool *pool,
                               size_t end_call, int64_t *wrong_out)
{
    size_t copies =
        pool->moe ? 1 : (size_t)pool->copies; /* of a batch's rows */
    end_call *= (size_t)self->options->group;
    size_t call = end_call > copies ? end_call - copies : 0;
    for (; call < end_call; call++) {
        int64_t wrong = 0;
        weft_status status = wefti_perf_pool_check(pool, self, call, &wrong);
        if (status != WEFT_OK) {
            return status;
        }
        *wrong_out += wrong;
    }
    return WEFT_OK;
}

weft_status wefti_perf_measure_check(wefti_perf_rank *self,
                                     wefti_perf_pool *pool, size_t first_call,
                                     int64_t *wrong)
{
    const size_t group = (size_t)self->options->group;
    for (int i = 0; i < self->options->checks; i++) {
        const size_t call = first_call + (size_t)i;
        const size_t first = call * group, end = first + group;
        int64_t time_ns, here = 0;
        weft_status status = WEFT_OK;
        for (size_t j = first; j < end && status == WEFT_OK; j++) {
            status = wefti_perf_pool_poison(pool, self, j);
        }
        if (status == WEFT_OK) {
            status = wefti_perf_measure_call(self, pool, call, &time_ns);
        }
        for (size_t j = first; j < end && status == WEFT_OK; j++) {
            status = wefti_perf_pool_check(pool, self, j, &here);
            *wrong += here;
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    return wefti_perf_rank_agree(self, wrong, 1, WEFT_REDOP_SUM);
}

static weft_status measure(wefti_perf_rank *self, wefti_perf_pool *pool,
                           wefti_perf_row *row, int64_t *times_ns)
{
    const wefti_perf_options *options = self->options;
    int warmup = options->warmup >= 0 ? options->warmup
                                      : wefti_sample_warmup(row->iterations);
    weft_status status =
        time_calls(self, pool, warmup, row->iterations, times_ns);
    if (status != WEFT_OK) {
        return status;
    }
    int64_t *sorted_ns = malloc((size_t)row->iterations * sizeof(*sorted_ns));
    if (!sorted_ns) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d times", row->iterations);
    }
    memcpy(sorted_ns, times_ns, (size_t)row->iterations * sizeof(*sorted_ns));
    row->time = wefti_sample_get(sorted_ns, (size_t)row->iterations);
    free(sorted_ns);
    row->checked = options->checks > 0;
    size_t end_call = (size_t)warmup + (size_t)row->iterations;
    row->wrong = 0;
    if (row->checked) {
        status = check_timed(self, pool, end_call, &row->wrong);
    }
    return status == WEFT_OK
               ? wefti_perf_measure_check(self, pool, end_call, &row->wrong)
               : status;
}

weft_status wefti_perf_measure(wefti_perf_rank *self, size_t bytes,
                               wefti_perf_row *row_out, int64_t **samples_out)
{
    const wefti_perf_options *options = self->options;
    wefti_perf_row row = {.subject = wefti_perf_rank_case(self, bytes)};
    weft_status status = wefti_perf_op_is_moe(options->op)
                             ? wefti_perf_moe_size(self, &row.subject, bytes)
                             : WEFT_OK;
    if (status != WEFT_OK) {
        return status;
    }
    row.iterations = options->iterations
                         ? options->iterations
                         : wefti_sample_iterations(row.subject.bytes);
    *samples_out = NULL;
    int64_t *times_ns = calloc((size_t)row.iterations, sizeof(*times_ns));
    if (!times_ns) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d times", row.iterations);
    }
    wefti_perf_pool pool;
    const int few = wefti_sample_copies(row.subject.bytes);
    status = wefti_perf_pool_init(&pool, self, &row.subject,
                                  few > options->group ? few : options->group);
    if (status != WEFT_OK) {
        goto err_free_times;
    }
    weft_op op = wefti_perf_call_op(&row.subject, wefti_perf_pool_at(&pool, 0));
    row.algorithm = wefti_comm_explain(self->comm, &op, &row.fabric);
    if (wefti_perf_op_puts(row.subject.op)) {
        row.algorithm = "put";
    } else if (row.subject.op->kind == WEFTI_PERF_SENDRECV_LIST) {
        row.algorithm = "list";
    } else if (wefti_perf_op_rings(row.subject.op)) {
        row.algorithm = "ring";
        status = wefti_perf_call_ring(&pool, self);
    } else if (wefti_perf_op_is_moe(row.subject.op)) {
        status = wefti_perf_moe_init(&pool, self, bytes);
        row.algorithm = wefti_perf_moe_way(&pool);
    }
    row.planned = options->plan;
    row.captured = options->graph;
    if (status == WEFT_OK && options->plan) {
        status = wefti_perf_call_plan(&pool, self->comm);
    }
    if (status == WEFT_OK && options->graph) {
        status = wefti_perf_graph_capture(&pool, self);
    }
    if (status == WEFT_OK) {
        status = measure(self, &pool, &row, times_ns);
    }
    wefti_perf_pool_fini(&pool, self);
    if (status != WEFT_OK) {
        goto err_free_times;
    }
    row.samples_ns = options->samples ? times_ns : NULL;
    *row_out = row;
    *samples_out = times_ns;
    return WEFT_OK;

err_free_times:
    free(times_ns);
    return status;
}
