/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/perf_regret.c - all algorithms at one size, in turn.
 */
#include "perf/perf_regret.h"

#include "base/check.h"
#include "base/error.h"
#include "comm/make/explain.h"
#include "perf/perf_call.h"
#include "perf/perf_measure.h"

#include <stdlib.h>
#include <string.h>

typedef struct bench {
    wefti_perf_rank *rank;
    wefti_perf_pool pool;
    weft_collective collective;
    wefti_algorithms allowed;                    /* as it was */
    wefti_algorithms sets[WEFTI_PERF_WAYS_MOST]; /* of each way */
    size_t calls;
} bench;

/* What the communicator would take of the set. */
static const char *explain(const bench *it, wefti_algorithms set)
{
    const char *fabric;
    weft_op op =
        wefti_perf_call_op(&it->pool.subject, wefti_perf_pool_at(&it->pool, 0));
    (void)wefti_comm_allow(it->rank->comm, it->collective, set);
    return wefti_comm_explain(it->rank->comm, &op, &fabric);
}

static void add_way(bench *it, const char *name, wefti_algorithms set,
                    wefti_perf_regret *regret)
{
    WEFTI_ASSERT(regret->count < WEFTI_PERF_WAYS_MOST);
    it->sets[regret->count] = set;
    regret->ways[regret->count++].algorithm = name;
}

/* Each that is allowed and can, and the choice among them. */
static void list_ways(bench *it, wefti_perf_regret *regret)
{
    wefti_algorithms set = wefti_algorithms_of(it->collective);
    set &= it->allowed ? it->allowed : set;
    const char *choice = explain(it, it->allowed);
    for (int bit = 0; set >> bit; bit++) {
        wefti_algorithms one = set & (wefti_algorithms)(1U << bit);
        const char *name = one ? wefti_algorithm_name(bit) : NULL;
        /* Where the setting says nothing (one rank, no element) all are the
         * same. */
        if (name && strcmp(explain(it, one), name) == 0) {
            add_way(it, name, one, regret);
        }
    }
    regret->chosen = 0;
    while (regret->chosen < regret->count &&
           strcmp(regret->ways[regret->chosen].algorithm, choice) != 0) {
        regret->chosen++;
    }
    if (regret->chosen == regret->count) { /* another library's, or refused */
        add_way(it, choice, it->allowed, regret);
    }
}

static weft_status call(bench *it, int way, int64_t *time_ns_out)
{
    (void)wefti_comm_allow(it->rank->comm, it->collective, it->sets[way]);
    return wefti_perf_measure_call(it->rank, &it->pool, it->calls++,
                                   time_ns_out);
}

/* times_ns: [count][iterations] */
static weft_status run_rounds(bench *it, int count, int warmup, int iterations,
                              int64_t *times_ns)
{
    for (int round = 0; round < warmup + iterations; round++) {
        for (int i = 0; i < count; i++) {
            int way = (round + i) % count;
            int64_t time_ns = 0;
            weft_status status = call(it, way, &time_ns);
            if (status != WEFT_OK) {
                return status;
            }
            if (round >= warmup) {
                times_ns[way * iterations + round - warmup] = time_ns;
            }
        }
    }
    return wefti_perf_rank_agree(
        it->rank, times_ns, (size_t)count * (size_t)iterations, WEFT_REDOP_MAX);
}

static weft_status check_ways(bench *it, int count, int64_t *wrong_out)
{
    *wrong_out = 0;
    for (int way = 0; way < count; way++) {
        int64_t wrong = 0;
        (void)wefti_comm_allow(it->rank->comm, it->collective, it->sets[way]);
        weft_status status =
            wefti_perf_measure_check(it->rank, &it->pool, it->calls, &wrong);
        if (status != WEFT_OK) {
            return status;
        }
        it->calls += (size_t)it->rank->options->checks;
        *wrong_out += wrong;
    }
    return WEFT_OK;
}

static weft_status measure(bench *it, wefti_perf_row *row,
                           wefti_perf_regret *regret)
{
    const wefti_perf_options *options = it->rank->options;
    int iterations = row->iterations;
    int warmup = options->warmup >= 0 ? options->warmup
                                      : wefti_sample_warmup(iterations);
    int64_t *times_ns =
        calloc((size_t)regret->count * (size_t)iterations, sizeof(*times_ns));
    if (!times_ns) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d times of %d algorithms",
                           iterations, regret->count);
    }
    weft_status status =
        run_rounds(it, regret->count, warmup, iterations, times_ns);
    for (int i = 0; i < regret->count && status == WEFT_OK; i++) {
        wefti_sample *time = &regret->ways[i].time;
        *time = wefti_sample_get(times_ns + i * iterations, (size_t)iterations);
        bool better =
            time->median_us < regret->ways[regret->best].time.median_us;
        regret->best = better ? i : regret->best;
    }
    free(times_ns);
    row->time = regret->ways[regret->chosen].time;
    row->algorithm = regret->ways[regret->chosen].algorithm;
    row->checked = options->checks > 0;
    return status == WEFT_OK ? check_ways(it, regret->count, &row->wrong)
                             : status;
}

weft_status wefti_perf_regret_measure(wefti_perf_rank *self, size_t bytes,
                                      wefti_perf_row *row_out,
                                      wefti_perf_regret *regret_out)
{
    wefti_perf_row row = {.subject = wefti_perf_rank_case(self, bytes),
                          .regret = regret_out};
    bench it = {.rank = self, .collective = row.subject.op->collective};
    *regret_out = (wefti_perf_regret){0};
    row.iterations = self->options->iterations
                         ? self->options->iterations
                         : wefti_sample_iterations(row.subject.bytes);
    weft_status status = wefti_perf_pool_init(
        &it.pool, self, &row.subject, wefti_sample_copies(row.subject.bytes));
    if (status != WEFT_OK) {
        return status;
    }
    weft_op op =
        wefti_perf_call_op(&row.subject, wefti_perf_pool_at(&it.pool, 0));
    (void)wefti_comm_explain(self->comm, &op, &row.fabric);
    it.allowed = wefti_comm_allow(self->comm, it.collective, 0);
    list_ways(&it, regret_out);
    status = measure(&it, &row, regret_out);
    (void)wefti_comm_allow(self->comm, it.collective, it.allowed);
    wefti_perf_pool_fini(&it.pool, self);
    *row_out = row;
    return status;
}
