/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/measure.c - the runs behind --measure, and their ratios.
 */
#include "trainer/measure.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/checkpoint/pause.h"
#include "trainer/checkpoint/snapshot.h"
#include "trainer/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    ROUNDS = 3,
    WARM_STEPS = 2, /* of each kind in each round, not counted */
    ROUND_STEPS = 8,
    STEPS = ROUNDS * ROUND_STEPS
};

/* What the ledger counts of weft's threads. */
typedef enum count {
    WAKEUPS,
    PREEMPTIONS,
    PROGRESS_NS,
    MOVED_BYTES,
    COUNTS
} count;

/* One kind's measured steps. */
typedef struct series {
    double step_ns[STEPS]; /* the slowest rank's */
    double compute_ns[STEPS];
    double xfer_ns[STEPS];
    double hidden_ns, cpu_ns; /* totals */
    double counted[COUNTS];   /* totals, of all ranks in the end */
} series;

static weft_status run_step(wefti_replica *replica, wefti_measure_kind kind)
{
    static const wefti_train_step_modes modes[WEFTI_MEASURE_KINDS] = {
        {.reduce = WEFT_BUCKET_OVERLAPPED, .gather = WEFT_BUCKET_OVERLAPPED},
        {.reduce = WEFT_BUCKET_OFF, .gather = WEFT_BUCKET_OFF},
        {.reduce = WEFT_BUCKET_BLOCKING, .gather = WEFT_BUCKET_BLOCKING},
        {.reduce = WEFT_BUCKET_OVERLAPPED, .gather = WEFT_BUCKET_OVERLAPPED}};
    static const double no_times[WEFTI_STEP_TIMES];
    wefti_train_step_result result;
    return kind == WEFTI_MEASURE_ALONE
               ? wefti_train_step_transfer(replica)
               : wefti_train_step_run(replica, modes[kind], no_times, &result);
}

static void keep(series *all, size_t index, const weft_step_report *report)
{
    all->step_ns[index] = (double)report->step_ns;
    all->compute_ns[index] = (double)report->compute_ns;
    all->xfer_ns[index] = (double)report->xfer_all_ns;
    all->hidden_ns += (double)report->hidden_all_ns;
    all->cpu_ns += report->cpu_share * (double)report->compute_ns;
    all->counted[WAKEUPS] += (double)report->wakeups;
    all->counted[PREEMPTIONS] += (double)report->preemptions;
    all->counted[PROGRESS_NS] += (double)report->progress_ns;
    all->counted[MOVED_BYTES] += (double)report->moved_bytes;
}

/* One kind's part of a round, from the state as it is. */
static weft_status run_kind(wefti_replica *replica, wefti_measure_kind kind,
                            size_t first, series *all)
{
    weft_comm *comm = replica->config.comm;
    weft_status status = weft_barrier(comm, NULL);
    for (size_t i = 0; i < WARM_STEPS + ROUND_STEPS && status == WEFT_OK; i++) {
        weft_step_report report = {.size_bytes = sizeof(report)};
        status = run_step(replica, kind);
        if (status == WEFT_OK) {
            status = weft_ledger_step(replica->config.ledger, &report);
        }
        if (status == WEFT_OK && i >= WARM_STEPS) {
            keep(all, first + i - WARM_STEPS, &report);
        }
    }
    if (status == WEFT_OK) {
        status = wefti_replica_settle(replica);
    }
    if (status == WEFT_OK) {
        status = weft_allreduce(all->step_ns + first, all->step_ns + first,
                                ROUND_STEPS, WEFT_DTYPE_F64, WEFT_REDOP_MAX,
                                comm, NULL);
    }
    return status;
}

static weft_status run_rounds(wefti_replica *replica,
                              const wefti_snapshot *snapshot,
                              series kinds[WEFTI_MEASURE_KINDS])
{
    for (size_t round = 0; round < ROUNDS; round++) {
        for (int kind = 0; kind < WEFTI_MEASURE_KINDS; kind++) {
            weft_status status = run_kind(replica, (wefti_measure_kind)kind,
                                          round * ROUND_STEPS, &kinds[kind]);
            if (status == WEFT_OK) {
                status = wefti_snapshot_restore(snapshot, replica);
            }
            if (status != WEFT_OK) {
                return status;
            }
        }
    }
    return WEFT_OK;
}

static wefti_measure_times sum_up(const double *step_ns)
{
    double sorted[STEPS], away[STEPS];
    memcpy(sorted, step_ns, sizeof(sorted));
    double median = wefti_numbers_median(sorted, STEPS);
    for (size_t i = 0; i < STEPS; i++) {
        away[i] = fabs(step_ns[i] - median);
    }
    return (wefti_measure_times){
        .median_ms = median * 1e-6,
        .min_ms = sorted[0] * 1e-6, /* the median has sorted them */
        .max_ms = sorted[STEPS - 1] * 1e-6,
        .spread_ms = wefti_numbers_median(away, STEPS) * 1e-6};
}

static double total(const double *values)
{
    double sum = 0;
    for (size_t i = 0; i < STEPS; i++) {
        sum += values[i];
    }
    return sum;
}

/* a / b; NAN where there is nothing to compare with. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : (double)NAN;
}

static double hiding_ratio(const wefti_measure_times *times)
{
    const wefti_measure_times *comp = &times[WEFTI_MEASURE_COMPUTE];
    const wefti_measure_times *ser = &times[WEFTI_MEASURE_SERIAL];
    double gain = ser->median_ms - comp->median_ms;
    if (gain <= 3 * fmax(ser->spread_ms, comp->spread_ms)) {
        return (double)NAN;
    }
    return 1 -
           (times[WEFTI_MEASURE_OVERLAPPED].median_ms - comp->median_ms) / gain;
}

static weft_status count_all(weft_comm *comm, double counted[COUNTS],
                             wefti_measure_result *result)
{
    weft_status status = weft_allreduce(
        counted, counted, COUNTS, WEFT_DTYPE_F64, WEFT_REDOP_SUM, comm, NULL);
    const double steps = (double)STEPS * weft_comm_get_nranks(comm);
    result->wakeups = counted[WAKEUPS] / steps;
    result->preemptions = counted[PREEMPTIONS] / steps;
    result->progress_ms = counted[PROGRESS_NS] * 1e-6 / steps;
    result->wakeups_per_mib =
        ratio(counted[WAKEUPS], counted[MOVED_BYTES]) * 2 * (1 << 20);
    return status;
}

static void compare(series kinds[WEFTI_MEASURE_KINDS],
                    wefti_measure_result *result)
{
    series *ovl = &kinds[WEFTI_MEASURE_OVERLAPPED];
    result->steps = STEPS;
    for (int kind = 0; kind < WEFTI_MEASURE_KINDS; kind++) {
        result->times[kind] = sum_up(kinds[kind].step_ns);
    }
    double xfer = total(ovl->xfer_ns);
    result->overlap_ratio = ratio(ovl->hidden_ns, xfer);
    result->cpu_share = ratio(ovl->cpu_ns, total(ovl->compute_ns));
    result->s_C = ratio(
        wefti_numbers_median(ovl->compute_ns, STEPS),
        wefti_numbers_median(kinds[WEFTI_MEASURE_COMPUTE].compute_ns, STEPS));
    result->s_M = xfer > 0
                      ? ratio(wefti_numbers_median(ovl->xfer_ns, STEPS),
                              wefti_numbers_median(
                                  kinds[WEFTI_MEASURE_ALONE].xfer_ns, STEPS))
                      : (double)NAN;
    result->hiding_ratio = xfer > 0 ? hiding_ratio(result->times) : (double)NAN;
}

weft_status wefti_measure_run(wefti_replica *replica,
                              wefti_measure_result *result_out)
{
    if (!replica->config.ledger) {
        return wefti_error(WEFT_ERR_INVALID, "measuring needs a ledger");
    }
    weft_status status = wefti_replica_settle(replica);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_snapshot snapshot;
    status = wefti_snapshot_init(&snapshot, replica);
    if (status != WEFT_OK) {
        return status;
    }
    series *kinds = calloc(WEFTI_MEASURE_KINDS, sizeof(*kinds));
    if (!kinds) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory to measure in");
        goto err_snapshot;
    }
    uint32_t before = wefti_numbers_flush_denormals();
    size_t cuts = wefti_pause_set_cuts(replica->pause, 0);
    status = run_rounds(replica, &snapshot, kinds);
    (void)wefti_pause_set_cuts(replica->pause, cuts);
    wefti_numbers_restore(before);
    if (status == WEFT_OK) {
        compare(kinds, result_out);
        status = count_all(replica->config.comm,
                           kinds[WEFTI_MEASURE_OVERLAPPED].counted, result_out);
    }
    free(kinds);

err_snapshot:
    wefti_snapshot_fini(&snapshot);
    return status;
}

static void print_ratio(FILE *file, const char *name, double value)
{
    if (isnan(value)) {
        fprintf(file, "  %s n/a", name);
    } else {
        fprintf(file, "  %s %.3f", name, value);
    }
}

void wefti_measure_print(const wefti_measure_result *result, FILE *file)
{
    static const char *const names[WEFTI_MEASURE_KINDS] = {
        "overlapped", "compute alone", "serial", "transfers alone"};
    fprintf(file, "measured over %zu steps of each kind, slowest rank:\n",
            result->steps);
    for (int kind = 0; kind < WEFTI_MEASURE_KINDS; kind++) {
        const wefti_measure_times *times = &result->times[kind];
        fprintf(file, "  %-16s %9.3f ms  (%.3f to %.3f, spread %.3f)\n",
                names[kind], times->median_ms, times->min_ms, times->max_ms,
                times->spread_ms);
    }
    print_ratio(file, "O", result->overlap_ratio);
    print_ratio(file, "H", result->hiding_ratio);
    print_ratio(file, "s_C", result->s_C);
    print_ratio(file, "s_M", result->s_M);
    fprintf(file, "%s\n",
            result->cpu_share < 0.9 ? "  (oversubscribed: proves nothing)"
                                    : "");
    fprintf(file, "  a step and rank:  %.0f wake-ups", result->wakeups);
    if (!isnan(result->wakeups_per_mib)) {
        fprintf(file, " (%.1f a MiB out and in)", result->wakeups_per_mib);
    }
    fprintf(file,
            "  %.0f preemptions of compute  %.2f ms of progress threads\n",
            result->preemptions, result->progress_ms);
}
