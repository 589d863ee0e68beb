/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/planner.c - a schedule's F, I and W in a shorter order.
 *
 * The planner knows what each action and each message takes by itself. Then the
 * simulator decides, with all that messages share: a schedule never gets longer
 * by this, and stays as it is where nothing shorter is found.
 */
#include "overlap/schedule/planner.h"

#include "base/check.h"
#include "base/error.h"
#include "overlap/schedule/pass.h"
#include "overlap/schedule/price.h"
#include "overlap/schedule/verdict.h"

#include <stdlib.h>

/* Some 60 bytes are kept of each. */
static const size_t actions_most = (size_t)1 << 26;

/* Shorter by less is no reason to leave a published order. */
static const double same = 1e-9;

/* ---- what is to be ordered
 * --------------------------------------------------------------
 */

/* One message, alone on its way. */
static double hop(const weft_schedule *schedule, const weft_schedule_cost *cost,
                  int from_stage, int to_stage)
{
    wefti_edge edge = wefti_edge_make(schedule, from_stage, to_stage, 0);
    double time = edge.remote ? cost->p2p : 0;
    if (edge.remote && cost->link_count > 0) {
        int links[WEFT_ROUTE_LINKS_MOST];
        int count =
            cost->route(cost->context, edge.from_rank, edge.to_rank, links);
        for (int k = 0; k < count; k++) {
            time += cost->links[links[k]].busy + cost->links[links[k]].latency;
        }
    }
    return time;
}

static double price(const weft_schedule *schedule,
                    const weft_schedule_cost *cost, weft_action_type type,
                    int stage)
{
    weft_action action = wefti_action(type, stage, 0);
    return wefti_price_action(schedule, cost, &action);
}

static void job_fini(wefti_plan_job *job)
{
    free(job->f);
    free(job->i);
    free(job->w);
    free(job->hop[0]);
    free(job->hop[1]);
}

static weft_status job_init(wefti_plan_job *job, const weft_schedule *schedule,
                            const weft_schedule_cost *cost, int slots)
{
    size_t stages = (size_t)schedule->stages;
    *job = (wefti_plan_job){.ranks = schedule->ranks,
                            .chunks = schedule->chunks,
                            .microbatches = schedule->per_stage,
                            .slots = slots,
                            .f = malloc(stages * sizeof(double)),
                            .i = malloc(stages * sizeof(double)),
                            .w = malloc(stages * sizeof(double)),
                            .hop = {malloc(stages * sizeof(double)),
                                    malloc(stages * sizeof(double))}};
    if (!job->f || !job->i || !job->w || !job->hop[0] || !job->hop[1]) {
        job_fini(job);
        return wefti_error(WEFT_ERR_NO_MEMORY, "a plan of %zu stages", stages);
    }
    for (int s = 0; s < schedule->stages; s++) {
        job->f[s] = price(schedule, cost, WEFT_ACTION_F, s);
        job->i[s] = price(schedule, cost, WEFT_ACTION_I, s);
        job->w[s] = price(schedule, cost, WEFT_ACTION_W, s);
        job->hop[WEFTI_PLAN_F][s] =
            hop(schedule, cost, wefti_stage_before(schedule, s), s);
        job->hop[WEFTI_PLAN_I][s] =
            hop(schedule, cost, wefti_stage_after(schedule, s), s);
    }
    return WEFT_OK;
}

/* ---- what there is ---------------------------------------------------------
 */

/* One stage a rank in order, or two as a V. */
static bool is_placed(const weft_schedule *schedule)
{
    int ranks = schedule->ranks, stages = schedule->stages;
    bool placed =
        schedule->directions == 1 && (stages == ranks || stages == 2 * ranks);
    for (int s = 0; s < stages && placed; s++) {
        placed = schedule->rank_of[s] == (s < ranks ? s : 2 * ranks - 1 - s);
    }
    return placed;
}

/* Everything once, in an order that can run. */
static weft_status check_valid(const weft_schedule *schedule)
{
    weft_verdict verdict;
    weft_status status = weft_schedule_check(schedule, NULL, &verdict);
    if (status != WEFT_OK) {
        return status;
    }
    if (!verdict.valid) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "plan: the list is not valid: "
                             "%s",
                             verdict.findings[0].text);
    }
    weft_verdict_fini(&verdict);
    return status;
}

static weft_status check_list(const weft_schedule *schedule)
{
    size_t all = (size_t)3 * (size_t)schedule->stages;
    size_t most = actions_most / (size_t)schedule->per_stage;
    weft_status status = wefti_pass_need_compute(schedule, "plan");
    if (status == WEFT_OK && all > most) {
        status =
            wefti_error(WEFT_ERR_INVALID,
                        "plan: %d stages and %d micro-batches: allowed "
                        "are %zu actions",
                        schedule->stages, schedule->per_stage, actions_most);
    }
    bool suits = is_placed(schedule);
    for (int r = 0; r < schedule->ranks && suits; r++) {
        const wefti_actions *list = &schedule->lists[r];
        suits = list->count == (size_t)3 * (size_t)schedule->chunks *
                                   (size_t)schedule->per_stage;
        for (size_t k = 0; k < list->count && suits; k++) {
            suits = list->items[k].type <= WEFT_ACTION_W;
        }
    }
    if (status == WEFT_OK && !suits) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "plan: %s has other actions than F, I and W, or "
                             "its stages elsewhere than zb_h1, zb_h2 and zbv, "
                             "which are planned",
                             schedule->name);
    }
    return status == WEFT_OK ? check_valid(schedule) : status;
}

/* A valid list's; where one is not in the order of micro-batches, of a list
 * that is. */
static void read_marks(const weft_schedule *schedule, uint8_t *marks)
{
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            int chunk = list->items[k].stage >= schedule->ranks;
            int type = list->items[k].type;
            *marks++ = (uint8_t)(type == WEFT_ACTION_F   ? WEFTI_PLAN_F0 + chunk
                                 : type == WEFT_ACTION_I ? WEFTI_PLAN_I0 + chunk
                                                         : WEFTI_PLAN_W);
        }
    }
}

/* Chunks that a rank may hold; peak: of the list as it is, in device units. */
static weft_status find_slots(const weft_schedule *schedule, double memory_most,
                              double peak, int *slots_out)
{
    if (!isfinite(memory_most) || memory_most < 0 ||
        (memory_most > 0 && memory_most < 1)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "plan: memory of %g device units: allowed is 1 or "
                           "more, or 0 for what the list takes",
                           memory_most);
    }
    double most = memory_most > 0 ? memory_most : fmax(peak, schedule->ranks);
    double all = (double)schedule->chunks * schedule->per_stage;
    *slots_out = (int)fmin(floor(most * schedule->chunks + same), all);
    return WEFT_OK;
}

/* ---- the whole ------------------------------------------------------------
 */

/* What the lists are, with each W that of the oldest I. */
static void write_rank(const wefti_plan_job *job, const uint8_t *marks,
                       int rank, wefti_actions *list, uint8_t *owed)
{
    static const weft_action_type types[] = {WEFT_ACTION_F, WEFT_ACTION_I,
                                             WEFT_ACTION_W};
    int count[3][2] = {{0}};
    size_t made = 0, used = 0;
    for (size_t k = 0; k < wefti_plan_per_rank(job); k++) {
        int kind = marks[k] / 2;
        WEFTI_ASSERT(marks[k] != WEFTI_PLAN_W || used < made);
        int chunk = marks[k] == WEFTI_PLAN_W ? owed[used++] : marks[k] % 2;
        if (kind == WEFTI_PLAN_I) {
            owed[made++] = (uint8_t)chunk;
        }
        wefti_actions_add(list, wefti_action(types[kind],
                                             wefti_plan_stage(job, rank, chunk),
                                             count[kind][chunk]++));
    }
}

static weft_status measure(const weft_schedule *schedule,
                           const weft_schedule_cost *cost, double *makespan_out)
{
    weft_schedule_run run;
    weft_status status = weft_schedule_simulate(schedule, cost, false, &run);
    if (status == WEFT_OK) {
        *makespan_out = run.makespan;
        weft_schedule_run_fini(&run);
    }
    return status;
}

/* The marks in the place of the lists, where that is shorter or needed. */
static weft_status put_marks(const wefti_plan_job *job, const uint8_t *marks,
                             weft_schedule *schedule,
                             const weft_schedule_cost *cost, bool needed)
{
    wefti_pass pass;
    size_t per_rank = wefti_plan_per_rank(job);
    uint8_t *owed = calloc(per_rank, 1);
    double before = 0, after = 0;
    weft_status status =
        owed ? wefti_pass_begin(&pass, schedule)
             : wefti_error(WEFT_ERR_NO_MEMORY, "a list of %zu", per_rank);
    if (status != WEFT_OK) {
        free(owed);
        return status;
    }
    for (int r = 0; r < schedule->ranks; r++) {
        write_rank(job, marks + (size_t)r * per_rank, r, &pass.fresh[r], owed);
    }
    free(owed);
    weft_schedule planned = *schedule;
    planned.lists = pass.fresh;
    status = wefti_schedule_settle(&planned);
    if (status == WEFT_OK) {
        status = measure(schedule, cost, &before);
    }
    if (status == WEFT_OK) {
        status = measure(&planned, cost, &after);
    }
    bool shorter = after < before * (1 - same);
    if (status == WEFT_OK && !shorter && !needed) {
        (void)!wefti_pass_end(&pass, WEFT_ERR_INVALID); /* as it was */
        return WEFT_OK;
    }
    return wefti_pass_end(&pass, status);
}

/* Peak of the worst rank. */
static weft_status find_peak(const weft_schedule *schedule, double *peak_out)
{
    double *peaks = calloc((size_t)schedule->ranks, sizeof(*peaks));
    weft_status status =
        peaks ? wefti_schedule_peaks(schedule, peaks, NULL)
              : wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", schedule->ranks);
    *peak_out = 0;
    for (int r = 0; r < schedule->ranks && status == WEFT_OK; r++) {
        *peak_out = fmax(*peak_out, peaks[r]);
    }
    free(peaks);
    return status;
}

static weft_status plan(weft_schedule *schedule, const weft_schedule_cost *cost,
                        int slots, bool fits)
{
    wefti_plan_job job;
    weft_status status = job_init(&job, schedule, cost, slots);
    if (status != WEFT_OK) {
        return status;
    }
    size_t actions = wefti_plan_actions(&job);
    uint8_t *given = malloc(actions), *marks = malloc(actions);
    status = given && marks ? WEFT_OK
                            : wefti_error(WEFT_ERR_NO_MEMORY,
                                          "a plan of %zu actions", actions);
    if (status == WEFT_OK) {
        read_marks(schedule, given);
        status = wefti_plan_best(&job, fits ? given : NULL, marks);
    }
    if (status == WEFT_OK) {
        status = put_marks(&job, marks, schedule, cost, !fits);
    }
    free(given);
    free(marks);
    job_fini(&job);
    return status;
}

weft_status weft_schedule_plan(weft_schedule *schedule,
                               const weft_schedule_cost *cost,
                               double memory_most)
{
    if (!schedule) {
        return wefti_error(WEFT_ERR_INVALID, "plan: schedule must not be NULL");
    }
    double peak = 0;
    int slots = 0;
    weft_schedule_cost own;
    weft_status status = wefti_price_read(cost, &own);
    cost = &own;
    if (status == WEFT_OK) {
        status = wefti_price_check(schedule, cost);
    }
    if (status == WEFT_OK) {
        status = check_list(schedule);
    }
    if (status == WEFT_OK) {
        status = find_peak(schedule, &peak);
    }
    if (status == WEFT_OK) {
        status = find_slots(schedule, memory_most, peak, &slots);
    }
    if (status != WEFT_OK) {
        return status;
    }
    bool fits = peak * schedule->chunks <= slots + same;
    return plan(schedule, cost, slots, fits);
}
