/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/pass_stage.c - what is done with whole stages: gradients are
 * reduced, parameters stepped, gathered, fetched and dropped.
 *
 * Sources: staggered reduction: NVIDIA/Megatron-LM, interleaved schedule;
 * fetching and dropping: pytorch/pytorch, torch/distributed/pipelining;
 * gathering while the stage before is used: Megatron's distributed optimizer.
 */
#include "overlap/schedule/pass.h"

#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* ---- reduce ---------------------------------------------------------------
 */

/* A part that adds to a stage's gradients, W or B; NULL: none. */
static const weft_action *find_gradient(const weft_action *action,
                                        weft_action parts[2])
{
    int count = wefti_action_split(action, parts);
    const weft_action *last = &parts[count - 1];
    return last->type == WEFT_ACTION_W || last->type == WEFT_ACTION_B ? last
                                                                      : NULL;
}

typedef struct due {
    int stage;
    int at; /* after so many of the rank's backwards; INT32_MAX: not yet known
             */
} due;

typedef struct reducer {
    wefti_actions *fresh;
    int *left;  /* [stages] gradients still to come */
    due *queue; /* [stages] of this rank, in the order of their reductions */
    int queue_begin, queue_end;
} reducer;

/*
 * Two directions: a mirror has the same parts of the model, and ranks that have
 * the same parts reduce them in the same order, whichever ends first.
 */
static void follow_mirror(reducer *it, const weft_schedule *schedule,
                          const wefti_actions *mirror)
{
    int stages = schedule->stages;
    for (size_t k = 0; k < mirror->count; k++) {
        if (mirror->items[k].type == WEFT_ACTION_REDUCE_GRAD) {
            int same = (mirror->items[k].stage + stages / 2) % stages;
            it->queue[it->queue_end++] = (due){same, INT32_MAX};
        }
    }
}

/* The stage has all its gradients: in its place, or behind those before. */
static void end_stage(reducer *it, int stage, int at)
{
    int place = it->queue_begin;
    while (place < it->queue_end && it->queue[place].stage != stage) {
        place++;
    }
    it->queue_end += place == it->queue_end;
    it->queue[place] = (due){stage, at};
}

static void put_due(reducer *it, int backwards)
{
    while (it->queue_begin < it->queue_end &&
           it->queue[it->queue_begin].at <= backwards) {
        wefti_actions_add(it->fresh,
                          wefti_action(WEFT_ACTION_REDUCE_GRAD,
                                       it->queue[it->queue_begin++].stage, -1));
    }
}

static void reduce_rank(reducer *it, const wefti_actions *list, int delay)
{
    int backwards = 0;
    for (size_t k = 0; k < list->count; k++) {
        weft_action parts[2];
        wefti_actions_add(it->fresh, list->items[k]);
        const weft_action *gradient = find_gradient(&list->items[k], parts);
        if (gradient) {
            backwards++;
            if (--it->left[gradient->stage] == 0) {
                end_stage(it, gradient->stage, backwards + delay);
            }
            put_due(it, backwards);
        }
    }
    put_due(it, INT32_MAX);
}

/* All reductions behind everything else, in their order. */
static void reduce_last(wefti_actions *list)
{
    size_t kept = 0;
    for (size_t k = 0; k < list->count; k++) {
        weft_action action = list->items[k];
        if (action.type != WEFT_ACTION_REDUCE_GRAD) {
            memmove(list->items + kept + 1, list->items + kept,
                    (k - kept) * sizeof(action));
            list->items[kept++] = action;
        }
    }
}

/*
 * A reduction is an exchange of two mirrors. In an arbitrary list, one of them
 * may stand before what the other needs to reach it.
 */
static void part_mirrors(weft_schedule *schedule)
{
    weft_verdict verdict = {0};
    bool runs = weft_schedule_check(schedule, NULL, &verdict) == WEFT_OK &&
                verdict.deadlock_free;
    weft_verdict_fini(&verdict);
    for (int r = 0; r < schedule->ranks && !runs; r++) {
        reduce_last(&schedule->lists[r]);
    }
}

weft_status weft_schedule_reduce(weft_schedule *schedule, bool staggered)
{
    wefti_pass pass;
    weft_status status = wefti_pass_need_compute(schedule, "reduce");
    if (status == WEFT_OK) {
        status = wefti_pass_begin(&pass, schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    size_t stages = (size_t)schedule->stages;
    reducer it = {.left = calloc(stages, sizeof(*it.left)),
                  .queue = calloc(stages, sizeof(*it.queue))};
    if (!it.left || !it.queue) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%zu stages", stages);
    }
    for (size_t s = 0; s < stages && status == WEFT_OK; s++) {
        it.left[s] = schedule->per_stage;
    }
    for (int r = 0; r < schedule->ranks && status == WEFT_OK; r++) {
        int mirror = schedule->ranks - 1 - r;
        bool follows = schedule->directions == 2 && mirror < r;
        it.fresh = &pass.fresh[r];
        it.queue_begin = it.queue_end = 0;
        if (follows) {
            follow_mirror(&it, schedule, &pass.fresh[mirror]);
        }
        reduce_rank(&it, &schedule->lists[r],
                    staggered ? (follows ? mirror : r) : 0);
    }
    free(it.left);
    free(it.queue);
    status = wefti_pass_end(&pass, status);
    if (status == WEFT_OK && schedule->directions == 2) {
        part_mirrors(schedule);
    }
    return status;
}

/* ---- optimize -------------------------------------------------------------
 */

/* Stages in the order of their first use, or of their last gradient. */
typedef struct stage_order {
    int *stages; /* [of the schedule] */
    int count;
} stage_order;

static void order_first(const wefti_actions *list, uint8_t *seen,
                        stage_order *order)
{
    order->count = 0;
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *action = &list->items[k];
        bool forward =
            action->type == WEFT_ACTION_F || action->type == WEFT_ACTION_FB;
        if (forward && !seen[action->stage]) {
            seen[action->stage] = 1;
            order->stages[order->count++] = action->stage;
        }
    }
}

static void order_last(const wefti_actions *list, uint8_t *seen,
                       stage_order *order)
{
    order->count = 0;
    for (size_t k = list->count; k > 0; k--) {
        weft_action parts[2];
        const weft_action *last = find_gradient(&list->items[k - 1], parts);
        if (list->items[k - 1].type == WEFT_ACTION_REDUCE_GRAD) {
            last = &parts[0]; /* in parts, as it is no pair */
        }
        if (last && seen[last->stage] == 1) {
            seen[last->stage] = 2;
            order->stages[order->count++] = last->stage;
        }
    }
}

static void optimize_rank(const wefti_actions *list, wefti_actions *fresh,
                          uint8_t *seen, stage_order *order)
{
    order_first(list, seen, order);
    int gathered = 0, used = 0;
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *action = &list->items[k];
        bool first =
            used < order->count && action->stage == order->stages[used] &&
            (action->type == WEFT_ACTION_F || action->type == WEFT_ACTION_FB);
        used += first;
        while (gathered < order->count && gathered < used + 1) {
            wefti_actions_add(fresh,
                              wefti_action(WEFT_ACTION_GATHER_PARAM,
                                           order->stages[gathered++], -1));
        }
        wefti_actions_add(fresh, *action);
    }
    order_last(list, seen, order);
    while (order->count > 0) {
        wefti_actions_add(
            fresh,
            wefti_action(WEFT_ACTION_OPT, order->stages[--order->count], -1));
    }
}

weft_status weft_schedule_optimize(weft_schedule *schedule)
{
    wefti_pass pass;
    weft_status status = wefti_pass_need_compute(schedule, "optimize");
    if (status == WEFT_OK) {
        status = wefti_pass_begin(&pass, schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    size_t stages = (size_t)schedule->stages;
    uint8_t *seen = calloc(stages, 1);
    stage_order order = {.stages = calloc(stages, sizeof(*order.stages))};
    if (!seen || !order.stages) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%zu stages", stages);
    }
    for (int r = 0; r < schedule->ranks && status == WEFT_OK; r++) {
        optimize_rank(&schedule->lists[r], &pass.fresh[r], seen, &order);
    }
    free(seen);
    free(order.stages);
    return wefti_pass_end(&pass, status);
}

/* ---- shard ----------------------------------------------------------------
 */

/* Which stages come next is known from behind: the one used moves to front. */
typedef struct sharder {
    const wefti_actions *list;
    int resident;
    int32_t *coming; /* [stages] the nearest first, while going back */
    int coming_count;
    int32_t *next;   /* [actions][resident] the stages to have there; -1 */
    int32_t *active; /* [resident] in the order they were fetched */
    int active_count;
} sharder;

static void move_to_front(sharder *s, int32_t stage)
{
    int at = 0;
    while (at < s->coming_count && s->coming[at] != stage) {
        at++;
    }
    s->coming_count += at == s->coming_count;
    memmove(s->coming + 1, s->coming, (size_t)at * sizeof(*s->coming));
    s->coming[0] = stage;
}

static void look_ahead(sharder *s)
{
    s->coming_count = 0;
    for (size_t k = s->list->count; k > 0; k--) {
        weft_action parts[2];
        int count = wefti_action_split(&s->list->items[k - 1], parts);
        for (int p = count - 1;
             p >= 0 && wefti_action_is_compute(&s->list->items[k - 1]); p--) {
            move_to_front(s, parts[p].stage);
        }
        for (int n = 0; n < s->resident; n++) {
            s->next[(k - 1) * (size_t)s->resident + (size_t)n] =
                n < s->coming_count ? s->coming[n] : -1;
        }
    }
}

static bool contains(const int32_t *stages, int count, int32_t stage)
{
    for (int i = 0; i < count; i++) {
        if (stages[i] == stage) {
            return true;
        }
    }
    return false;
}

static void shard_rank(sharder *s, wefti_actions *fresh)
{
    look_ahead(s);
    s->active_count = 0;
    for (size_t k = 0; k < s->list->count; k++) {
        const int32_t *want = s->next + k * (size_t)s->resident;
        int kept = 0;
        for (int i = 0; i < s->active_count; i++) {
            int32_t stage = s->active[i];
            if (contains(want, s->resident, stage)) {
                s->active[kept++] = stage;
            } else {
                wefti_actions_add(fresh,
                                  wefti_action(WEFT_ACTION_RESHARD, stage, -1));
            }
        }
        s->active_count = kept;
        for (int n = 0; n < s->resident; n++) {
            if (want[n] >= 0 &&
                !contains(s->active, s->active_count, want[n])) {
                s->active[s->active_count++] = want[n];
                wefti_actions_add(
                    fresh, wefti_action(WEFT_ACTION_UNSHARD, want[n], -1));
            }
        }
        wefti_actions_add(fresh, s->list->items[k]);
    }
    for (int i = 0; i < s->active_count; i++) {
        wefti_actions_add(fresh,
                          wefti_action(WEFT_ACTION_RESHARD, s->active[i], -1));
    }
}

weft_status weft_schedule_shard(weft_schedule *schedule, int resident)
{
    wefti_pass pass;
    weft_status status = wefti_pass_need_compute(schedule, "shard");
    if (status == WEFT_OK && (resident < 2 || resident > 64)) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "shard, resident %d: allowed is 2 .. 64 (an "
                             "overlapped pair uses two stages)",
                             resident);
    }
    if (status == WEFT_OK) {
        status = wefti_pass_begin(&pass, schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (int r = 0; r < schedule->ranks && status == WEFT_OK; r++) {
        const wefti_actions *list = &schedule->lists[r];
        size_t width = (size_t)resident;
        sharder s = {.list = list,
                     .resident = resident,
                     .coming =
                         calloc((size_t)schedule->stages + 1, sizeof(int32_t)),
                     .next = calloc(list->count * width + 1, sizeof(int32_t)),
                     .active = calloc(width, sizeof(int32_t))};
        if (s.coming && s.next && s.active) {
            shard_rank(&s, &pass.fresh[r]);
        } else {
            status = wefti_error(WEFT_ERR_NO_MEMORY, "rank %d", r);
        }
        free(s.coming);
        free(s.next);
        free(s.active);
    }
    return wefti_pass_end(&pass, status);
}
