/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/pipeline_gather.c - each rank sends all others its times; each then
 * makes the same run of them.
 *
 * Clocks of ranks that do not agree are aligned with rank 0's by the quickest
 * of some messages there and back. Time begins with the first compute of any
 * rank, as on paper. What a rank spent neither computing nor waiting for
 * something it knows stands under WEFT_WAIT_NONE, so that waits sum up to the
 * bubble.
 */
#include "overlap/pipeline_gather.h"

#include "base/error.h"
#include "weft/op.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { PINGS = 8 };

/* ---- one clock ------------------------------------------------------------
 */

/* Answers rank 0 with this rank's clock, or asks rank and keeps the best. */
static weft_status ping(weft_comm *comm, int rank, wefti_pipeline_clock *clock,
                        int64_t *offset_ns, int64_t *error_ns)
{
    int64_t theirs = 0, token = 0;
    int64_t begin_ns = clock();
    weft_status status = weft_send(&token, 1, WEFT_DTYPE_I64, rank, comm, NULL);
    if (status == WEFT_OK) {
        status = weft_recv(&theirs, 1, WEFT_DTYPE_I64, rank, comm, NULL);
    }
    int64_t end_ns = clock(), error = (end_ns - begin_ns) / 2;
    if (error < *error_ns) {
        *error_ns = error;
        *offset_ns = theirs - begin_ns - error;
    }
    return status;
}

static weft_status answer(weft_comm *comm, wefti_pipeline_clock *clock)
{
    int64_t token = 0;
    weft_status status = weft_recv(&token, 1, WEFT_DTYPE_I64, 0, comm, NULL);
    token = clock();
    return status == WEFT_OK
               ? weft_send(&token, 1, WEFT_DTYPE_I64, 0, comm, NULL)
               : status;
}

/*
 * How far each rank's clock is ahead of rank 0's; 0 where that may be no more
 * than the way there and back, as on one host.
 */
static weft_status compare_clocks(weft_comm *comm, wefti_pipeline_clock *clock,
                                  int64_t *offsets_ns, int64_t *error_out)
{
    int own = weft_comm_get_rank(comm), ranks = weft_comm_get_nranks(comm);
    weft_status status = WEFT_OK;
    *error_out = 0;
    for (int r = 1; r < ranks && status == WEFT_OK; r++) {
        int64_t error_ns = INT64_MAX;
        offsets_ns[r] = 0;
        for (int n = 0; n < PINGS && status == WEFT_OK; n++) {
            if (own == 0) {
                status = ping(comm, r, clock, &offsets_ns[r], &error_ns);
            } else if (own == r) {
                status = answer(comm, clock);
            }
        }
        bool same = offsets_ns[r] <= error_ns && offsets_ns[r] >= -error_ns;
        offsets_ns[r] = same ? 0 : offsets_ns[r];
        *error_out =
            own == 0 && !same && error_ns > *error_out ? error_ns : *error_out;
    }
    return status;
}

/* ---- collecting -----------------------------------------------------------
 */

/* The same on all ranks, though each has its own. */
static weft_status share(weft_comm *comm, void *data, size_t bytes, int root)
{
    return weft_broadcast(data, data, bytes, WEFT_DTYPE_U8, root, comm, NULL);
}

static weft_status collect(const weft_schedule *schedule, weft_comm *comm,
                           const weft_pipeline_span *own, double *activations,
                           weft_pipeline_span **all)
{
    int rank = weft_comm_get_rank(comm);
    weft_status status = WEFT_OK;
    for (int r = 0; r < schedule->ranks && status == WEFT_OK; r++) {
        size_t bytes = schedule->lists[r].count * sizeof(**all);
        if (r == rank) {
            memcpy(all[r], own, bytes);
        }
        status = share(comm, &activations[r], sizeof(*activations), r);
        if (status == WEFT_OK) {
            status = share(comm, all[r], bytes, r);
        }
    }
    return status;
}

/* All spans on rank 0's clock. */
static weft_status align(const weft_schedule *schedule, weft_comm *comm,
                         wefti_pipeline_clock *clock, weft_pipeline_span **all,
                         int64_t *error_out)
{
    size_t ranks = (size_t)schedule->ranks;
    int64_t *offsets_ns = calloc(ranks, sizeof(*offsets_ns));
    if (!offsets_ns) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%zu ranks", ranks);
    }
    weft_status status = compare_clocks(comm, clock, offsets_ns, error_out);
    if (status == WEFT_OK) {
        status = share(comm, error_out, sizeof(*error_out), 0);
    }
    if (status == WEFT_OK) {
        status = share(comm, offsets_ns, ranks * sizeof(*offsets_ns), 0);
    }
    for (size_t r = 0; r < ranks && status == WEFT_OK; r++) {
        for (size_t k = 0; k < schedule->lists[r].count; k++) {
            all[r][k].reached_ns -= offsets_ns[r];
            all[r][k].begin_ns -= offsets_ns[r];
            all[r][k].end_ns -= offsets_ns[r];
        }
    }
    free(offsets_ns);
    return status;
}

/* ---- one run --------------------------------------------------------------
 */

static bool takes_time(const weft_action *action)
{
    return wefti_action_is_compute(action) || action->type == WEFT_ACTION_OPT ||
           action->type == WEFT_ACTION_RECOMPUTE;
}

/* When the step began: the first compute of all. */
static int64_t find_begin(const weft_schedule *schedule,
                          weft_pipeline_span **all)
{
    int64_t begin_ns = INT64_MAX;
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            if (takes_time(&list->items[k])) {
                begin_ns = all[r][k].begin_ns < begin_ns ? all[r][k].begin_ns
                                                         : begin_ns;
                break;
            }
        }
    }
    return begin_ns;
}

static void add_rank(const wefti_actions *list, const weft_pipeline_span *all,
                     int64_t begin_ns, double unit_ns, weft_schedule_rank *rank)
{
    bool started = false;
    for (size_t k = 0; k < list->count; k++) {
        const weft_pipeline_span *from = &all[k];
        weft_schedule_span *to = &rank->spans[k];
        *to = (weft_schedule_span){
            .begin = (double)(from->begin_ns - begin_ns) / unit_ns,
            .end = (double)(from->end_ns - begin_ns) / unit_ns,
            .wait = from->wait,
            .wait_rank = from->wait_rank};
        if (!takes_time(&list->items[k])) {
            continue;
        }
        int64_t waited_ns = from->waited_ns;
        rank->begin = started ? rank->begin : to->begin;
        rank->end = to->end;
        rank->busy += to->end - to->begin - (double)waited_ns / unit_ns;
        if (started || from->reached_ns > begin_ns) {
            waited_ns += from->begin_ns - from->reached_ns;
        } else {
            waited_ns += from->begin_ns - begin_ns;
        }
        rank->wait[from->wait] += (double)waited_ns / unit_ns;
        started = true;
    }
}

static void sum_up(const weft_schedule *schedule, weft_pipeline_span **all,
                   const double *activations, double unit_ns,
                   weft_schedule_run *run)
{
    int64_t begin_ns = find_begin(schedule, all), end_ns = begin_ns;
    for (int r = 0; r < run->rank_count; r++) {
        const wefti_actions *list = &schedule->lists[r];
        add_rank(list, all[r], begin_ns, unit_ns, &run->ranks[r]);
        for (size_t k = 0; k < list->count; k++) {
            end_ns = all[r][k].end_ns > end_ns ? all[r][k].end_ns : end_ns;
        }
    }
    run->makespan = (double)(end_ns - begin_ns) / unit_ns;
    for (int r = 0; r < run->rank_count; r++) {
        weft_schedule_rank *rank = &run->ranks[r];
        double known = 0;
        rank->bubble = run->makespan - rank->busy;
        rank->window_bubble = rank->end - rank->begin - rank->busy;
        rank->activations = activations[r];
        rank->wait[WEFT_WAIT_END] = run->makespan - rank->end;
        for (int w = WEFT_WAIT_NONE + 1; w < WEFT_WAIT_COUNT; w++) {
            known += rank->wait[w];
        }
        rank->wait[WEFT_WAIT_NONE] = rank->bubble - known;
        run->ideal = fmax(run->ideal, rank->busy);
        run->bubble = fmax(run->bubble, rank->bubble);
        run->window_bubble = fmax(run->window_bubble, rank->window_bubble);
        run->activations = fmax(run->activations, rank->activations);
    }
}

static bool make_run(const weft_schedule *schedule, weft_schedule_run *run)
{
    *run = (weft_schedule_run){
        .ranks = calloc((size_t)schedule->ranks, sizeof(*run->ranks))};
    run->rank_count = run->ranks ? schedule->ranks : 0;
    bool enough = run->ranks != NULL;
    for (int r = 0; r < run->rank_count; r++) {
        run->ranks[r].spans =
            calloc(schedule->lists[r].count + 1, sizeof(*run->ranks[r].spans));
        enough = enough && run->ranks[r].spans;
    }
    return enough;
}

weft_status
wefti_pipeline_gather(const weft_schedule *schedule, weft_comm *comm,
                      const weft_pipeline_span *spans, double activations,
                      double unit_ns, wefti_pipeline_clock *clock,
                      weft_schedule_run *run_out, int64_t *error_out)
{
    size_t ranks = (size_t)schedule->ranks;
    weft_pipeline_span **all = calloc(ranks, sizeof(*all));
    double *peaks = calloc(ranks, sizeof(*peaks));
    bool enough = make_run(schedule, run_out) && all && peaks;
    for (size_t r = 0; r < ranks && enough; r++) {
        all[r] = calloc(schedule->lists[r].count + 1, sizeof(**all));
        enough = all[r] != NULL;
    }
    weft_status status =
        wefti_error(WEFT_ERR_NO_MEMORY, "the times of %zu ranks", ranks);
    if (enough) {
        peaks[weft_comm_get_rank(comm)] = activations;
        status = collect(schedule, comm, spans, peaks, all);
    }
    if (status == WEFT_OK) {
        status = align(schedule, comm, clock, all, error_out);
    }
    if (status == WEFT_OK) {
        sum_up(schedule, all, peaks, unit_ns, run_out);
    } else {
        weft_schedule_run_fini(run_out);
    }
    for (size_t r = 0; r < ranks && all; r++) {
        free(all[r]);
    }
    free(all);
    free(peaks);
    return status;
}
