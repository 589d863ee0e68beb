/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/pass_lower.c - puts the messages between the actions.
 *
 * Source of "the sender places the receive": pytorch/pytorch,
 * torch/distributed/pipelining/schedules.py; of what deadlocks, docs/
 * schedules.md.
 */
#include "overlap/schedule/pass.h"

#include "base/error.h"
#include "base/memory_limit.h"
#include "overlap/schedule/verdict.h"

#include <stdlib.h>
#include <string.h>

/* ---- naive and gap --------------------------------------------------------
 */

/* The messages of an action's outputs, or of its inputs. */
static void add_messages(wefti_pass *pass, int rank, const weft_action *action,
                         bool out, bool grouped)
{
    wefti_actions *list = &pass->fresh[rank];
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    for (int p = 0; p < count; p++) {
        wefti_edge edge = out ? wefti_edge_out(pass->schedule, &parts[p])
                              : wefti_edge_in(pass->schedule, &parts[p]);
        if (edge.exists && edge.remote) {
            weft_action message =
                out ? wefti_edge_send(&edge) : wefti_edge_recv(&edge);
            message.joined =
                grouped && list->count > 0 &&
                wefti_action_is_message(&list->items[list->count - 1]);
            wefti_actions_add(list, message);
        }
    }
}

static void lower_around(wefti_pass *pass, bool grouped)
{
    for (int r = 0; r < pass->schedule->ranks; r++) {
        const wefti_actions *list = &pass->schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            add_messages(pass, r, &list->items[k], false, grouped);
            wefti_actions_add(&pass->fresh[r], list->items[k]);
            add_messages(pass, r, &list->items[k], true, grouped);
        }
    }
}

/* ---- the sender places the receive ----------------------------------------
 */

typedef struct sweep {
    wefti_pass *pass;
    const weft_schedule *schedule;
    uint8_t *made[2]; /* [stages][per_stage] by F, by I or B: 1 once done */
    size_t *next;     /* [ranks] */
} sweep;

static size_t entry_of(const sweep *s, int stage, int microbatch)
{
    return (size_t)stage * (size_t)s->schedule->per_stage + (size_t)microbatch;
}

/*
 * The rank that an action exchanges with; -1: none. Both go on at once: what is
 * sent behind the exchange is received behind it.
 */
static int find_partner(const sweep *s, const weft_action *action)
{
    int mirror = action->type == WEFT_ACTION_REDUCE_GRAD
                     ? wefti_mirror_stage(s->schedule, action->stage)
                     : -1;
    return mirror < 0 ? -1 : s->schedule->rank_of[mirror];
}

/* Whether the rank has reached the other side of an exchange. */
static bool is_there(const sweep *s, int rank, const weft_action *action)
{
    const wefti_actions *list = &s->schedule->lists[rank];
    const weft_action *next = &list->items[s->next[rank]];
    return s->next[rank] < list->count && next->type == action->type &&
           next->stage == wefti_mirror_stage(s->schedule, action->stage);
}

/* Whether all inputs of the action are made and its partner has reached it. */
static bool can_run(const sweep *s, const weft_action *action)
{
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    int partner = find_partner(s, action);
    if (partner >= 0) {
        return is_there(s, partner, action);
    }
    for (int p = 0; p < count; p++) {
        wefti_edge edge = wefti_edge_in(s->schedule, &parts[p]);
        bool back = parts[p].type != WEFT_ACTION_F;
        if (edge.exists &&
            !s->made[back][entry_of(s, edge.from_stage, parts[p].microbatch)]) {
            return false;
        }
    }
    return true;
}

static void take(sweep *s, int rank, const weft_action *action)
{
    weft_action parts[2];
    int count = wefti_action_split(action, parts);
    int partner = find_partner(s, action);
    wefti_actions_add(&s->pass->fresh[rank], *action);
    if (partner >= 0) {
        wefti_actions_add(
            &s->pass->fresh[partner],
            s->schedule->lists[partner].items[s->next[partner]++]);
    }
    for (int p = 0; p < count; p++) {
        wefti_edge edge = wefti_edge_out(s->schedule, &parts[p]);
        bool forward = parts[p].type == WEFT_ACTION_F;
        if (forward || parts[p].type == WEFT_ACTION_I ||
            parts[p].type == WEFT_ACTION_B) {
            s->made[!forward]
                   [entry_of(s, parts[p].stage, parts[p].microbatch)] = 1;
        }
        if (edge.exists && edge.remote) {
            wefti_actions_add(&s->pass->fresh[rank], wefti_edge_send(&edge));
            wefti_actions_add(&s->pass->fresh[edge.to_rank],
                              wefti_edge_recv(&edge));
        }
    }
}

static weft_status refuse_stuck(const sweep *s, int rank)
{
    char text[WEFT_ACTION_TEXT_BYTES];
    weft_action_pack(&s->schedule->lists[rank].items[s->next[rank]], text);
    return wefti_error(
        WEFT_ERR_INVALID,
        "lower: rank %d can never run %s, as its inputs are "
        "never made; weft_schedule_check names the ranks that wait",
        rank, text);
}

/* Ranks in turn, one action each if it can run, until all have ended. */
static weft_status sweep_all(sweep *s)
{
    int left = s->schedule->ranks, first_stuck = 0;
    while (left > 0) {
        bool moved = false;
        left = 0;
        for (int r = 0; r < s->schedule->ranks; r++) {
            const wefti_actions *list = &s->schedule->lists[r];
            if (s->next[r] == list->count) {
                continue;
            }
            if (!can_run(s, &list->items[s->next[r]])) {
                first_stuck = left++ == 0 ? r : first_stuck;
                continue;
            }
            take(s, r, &list->items[s->next[r]++]);
            moved = true;
            left += s->next[r] < list->count;
        }
        if (left > 0 && !moved) {
            return refuse_stuck(s, first_stuck);
        }
    }
    return WEFT_OK;
}

static weft_status lower_by_sender(wefti_pass *pass)
{
    const weft_schedule *schedule = pass->schedule;
    weft_status status = wefti_pass_need_whole(schedule, "lower");
    if (status != WEFT_OK) {
        return status;
    }
    size_t entries = (size_t)schedule->stages * (size_t)schedule->per_stage;
    sweep s = {.pass = pass,
               .schedule = schedule,
               .made = {calloc(entries, 1), calloc(entries, 1)},
               .next = calloc((size_t)schedule->ranks, sizeof(size_t))};
    status =
        s.made[0] && s.made[1] && s.next
            ? sweep_all(&s)
            : wefti_error(WEFT_ERR_NO_MEMORY, "%zu micro-batches", entries);
    free(s.made[0]);
    free(s.made[1]);
    free(s.next);
    return status;
}

/* The generator's recipe, as the steps on its compute actions say. */
static bool is_dual(const weft_schedule *schedule)
{
    const wefti_actions *list = &schedule->lists[0];
    size_t k = 0;
    while (k < list->count && !wefti_action_is_compute(&list->items[k])) {
        k++;
    }
    return k < list->count && list->items[k].step > 0 &&
           (strcmp(schedule->name, "dualpipe") == 0 ||
            strcmp(schedule->name, "dualpipev") == 0);
}

/* Of the new list, which is made beside the old one. */
static uint64_t predict_bytes(const weft_schedule *schedule)
{
    weft_schedule_info info = {.size_bytes = sizeof(info)};
    if (weft_schedule_get_info(schedule, &info) != WEFT_OK) {
        return 0;
    }
    return (info.actions + 2 * info.messages) * sizeof(weft_action);
}

weft_status weft_schedule_lower(weft_schedule *schedule, weft_lowering lowering)
{
    wefti_pass pass;
    bool dual = is_dual(schedule);
    weft_status status = wefti_pass_need_compute(schedule, "lower");
    if (status == WEFT_OK && lowering == WEFT_LOWERING_DUALPIPE && !dual) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "lowering dualpipe: only for dualpipe and "
                             "dualpipev as generated; this is %s",
                             schedule->name);
    }
    if (status == WEFT_OK) {
        status = wefti_memory_check("the list with its messages",
                                    predict_bytes(schedule));
    }
    if (status == WEFT_OK) {
        status = wefti_pass_begin(&pass, schedule);
    }
    if (status != WEFT_OK) {
        return status;
    }
    switch (lowering) {
    case WEFT_LOWERING_SENDER:
        status = lower_by_sender(&pass);
        break;
    case WEFT_LOWERING_DUALPIPE:
        wefti_lower_dual(&pass);
        break;
    case WEFT_LOWERING_GAP:
    case WEFT_LOWERING_NAIVE:
        lower_around(&pass, lowering == WEFT_LOWERING_GAP);
        break;
    }
    status = wefti_pass_end(&pass, status);
    schedule->lowered = schedule->lowered || status == WEFT_OK;
    return status;
}
