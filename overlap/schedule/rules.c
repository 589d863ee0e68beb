/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/rules.c - the rules that read lists: each message with its
 * other side, inputs before their use, messages in one order.
 */
#include "overlap/schedule/verdict.h"

#include "base/error.h"

#include <stdlib.h>

/* ---- rule 1: each message with its other side -----------------------------
 */

/* What an action makes must be sent once and received once. */
static void check_edge(wefti_schedule_trial *trial, int rank, size_t index,
                       const weft_action *part)
{
    wefti_edge edge = wefti_edge_out(trial->schedule, part);
    if (!edge.exists || !edge.remote) {
        return;
    }
    weft_action sending = wefti_edge_send(&edge);
    weft_action receiving = wefti_edge_recv(&edge);
    uint32_t recv = wefti_places_counterpart(&trial->places, &sending);
    uint32_t send = wefti_places_counterpart(&trial->places, &receiving);
    char text[WEFT_ACTION_TEXT_BYTES];
    if (send == 0) {
        weft_action_pack(&sending, text);
        wefti_trial_find(trial, WEFT_RULE_COMPLETE, rank, index,
                         "its result is never sent: rank %d has no %s",
                         edge.from_rank, text);
    }
    if (recv == 0) {
        weft_action_pack(&receiving, text);
        wefti_trial_find(trial, WEFT_RULE_COMPLETE, rank, index,
                         "its result is never received: rank %d has no %s",
                         edge.to_rank, text);
    }
}

void wefti_rule_messages(wefti_schedule_trial *trial)
{
    for (int r = 0; r < trial->schedule->ranks; r++) {
        const wefti_actions *list = &trial->schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            const weft_action *action = &list->items[k];
            weft_action parts[2];
            int count = wefti_action_split(action, parts);
            for (int p = 0; p < count; p++) {
                check_edge(trial, r, k, &parts[p]);
            }
            if (wefti_action_is_message(action) &&
                wefti_message_peer(trial->schedule, action) < 0) {
                wefti_trial_find(trial, WEFT_RULE_COMPLETE, r, k,
                                 "there is no other rank at its other side");
            }
        }
    }
}

/* ---- rule 2: inputs before their use --------------------------------------
 */

/* Complains unless what stands at place comes before index. */
static void need(wefti_schedule_trial *trial, int rank, size_t index,
                 uint32_t place, weft_action_type type, int stage,
                 int microbatch)
{
    if (place != 0 && place - 1 < index) {
        return;
    }
    char text[WEFTI_CELL_TEXT_BYTES];
    if (place != 0) {
        wefti_trial_find(
            trial, WEFT_RULE_ORDER, rank, index,
            "needs %s, which comes only later",
            wefti_cell_text(trial->schedule, rank, place - 1, text));
        return;
    }
    weft_action action = wefti_action(type, stage, microbatch);
    weft_action_pack(&action, text);
    wefti_trial_find(trial, WEFT_RULE_ORDER, rank, index,
                     "needs %s, which is nowhere", text);
}

/* The data from the neighbouring stage, by message or on this rank. */
static void need_input(wefti_schedule_trial *trial, int rank, size_t index,
                       const weft_action *part)
{
    const wefti_stage_places *places = &trial->places;
    wefti_edge edge = wefti_edge_in(trial->schedule, part);
    bool forward = part->type == WEFT_ACTION_F;
    int i = part->microbatch;
    if (!edge.exists || (edge.remote && !trial->schedule->lowered)) {
        return;
    }
    if (edge.remote) {
        wefti_places_table table =
            forward ? WEFTI_PLACES_RECV_F : WEFTI_PLACES_RECV_B;
        need(trial, rank, index,
             wefti_places_get(places, table, part->stage, i),
             forward ? WEFT_ACTION_RECV_F : WEFT_ACTION_RECV_B, part->stage, i);
        return;
    }
    wefti_places_table table = forward ? WEFTI_PLACES_F : WEFTI_PLACES_BACK;
    need(trial, rank, index,
         wefti_places_get(places, table, edge.from_stage, i),
         forward ? WEFT_ACTION_F : WEFT_ACTION_I, edge.from_stage, i);
}

static void check_part(wefti_schedule_trial *trial, int rank, size_t index,
                       const weft_action *part)
{
    const wefti_stage_places *places = &trial->places;
    int stage = part->stage, i = part->microbatch;
    switch (part->type) {
    case WEFT_ACTION_F:
        need_input(trial, rank, index, part);
        break;
    case WEFT_ACTION_I:
    case WEFT_ACTION_B:
        need(trial, rank, index,
             wefti_places_get(places, WEFTI_PLACES_F, stage, i), WEFT_ACTION_F,
             stage, i);
        need_input(trial, rank, index, part);
        break;
    case WEFT_ACTION_W:
    case WEFT_ACTION_SEND_B:
        need(trial, rank, index,
             wefti_places_get(places, WEFTI_PLACES_BACK, stage, i),
             WEFT_ACTION_I, stage, i);
        break;
    case WEFT_ACTION_SEND_F:
    case WEFT_ACTION_OFFLOAD:
    case WEFT_ACTION_RECOMPUTE:
        need(trial, rank, index,
             wefti_places_get(places, WEFTI_PLACES_F, stage, i), WEFT_ACTION_F,
             stage, i);
        break;
    default:
        break;
    }
}

/* Behind the SEND, where there is one. */
static void check_release(wefti_schedule_trial *trial, int rank, size_t index,
                          const weft_action *action)
{
    int stage = action->stage, i = action->microbatch;
    weft_action f = wefti_action(WEFT_ACTION_F, stage, i);
    wefti_edge edge = wefti_edge_out(trial->schedule, &f);
    bool sent = edge.exists && edge.remote && trial->schedule->lowered;
    need(trial, rank, index,
         wefti_places_get(&trial->places,
                          sent ? WEFTI_PLACES_SEND_F : WEFTI_PLACES_F, stage,
                          i),
         sent ? WEFT_ACTION_SEND_F : WEFT_ACTION_F, stage, i);
}

void wefti_rule_order(wefti_schedule_trial *trial)
{
    for (int r = 0; r < trial->schedule->ranks; r++) {
        const wefti_actions *list = &trial->schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            weft_action parts[2];
            int count = wefti_action_split(&list->items[k], parts);
            for (int p = 0; p < count; p++) {
                check_part(trial, r, k, &parts[p]);
            }
            if (list->items[k].type == WEFT_ACTION_RELEASE) {
                check_release(trial, r, k, &list->items[k]);
            }
        }
    }
}

/* ---- rule 3: one order per ordered pair of ranks --------------------------
 */

/* The next RECV from rank from in to's list, at or behind index. */
static size_t find_recv(const weft_schedule *schedule, int from, int to,
                        size_t index)
{
    const wefti_actions *list = &schedule->lists[to];
    while (index < list->count) {
        const weft_action *action = &list->items[index];
        bool is_recv = action->type == WEFT_ACTION_RECV_F ||
                       action->type == WEFT_ACTION_RECV_B;
        if (is_recv && wefti_message_peer(schedule, action) == from) {
            break;
        }
        index++;
    }
    return index;
}

/* All sends of rank; next [ranks] is 0 and will be again. */
static void check_sender(wefti_schedule_trial *trial, int rank, size_t *next)
{
    const weft_schedule *schedule = trial->schedule;
    const wefti_actions *list = &schedule->lists[rank];
    for (size_t k = 0; k < list->count; k++) {
        const weft_action *send = &list->items[k];
        int peer =
            send->type == WEFT_ACTION_SEND_F || send->type == WEFT_ACTION_SEND_B
                ? wefti_message_peer(schedule, send)
                : -1;
        uint32_t recv =
            peer < 0 ? 0 : wefti_places_counterpart(&trial->places, send);
        if (recv == 0 || next[peer] == SIZE_MAX) {
            continue; /* reported already */
        }
        size_t match = find_recv(schedule, rank, peer, next[peer]);
        next[peer] = match + 1;
        if (match != recv - 1) {
            char text[WEFTI_CELL_TEXT_BYTES] = "nothing";
            if (match < schedule->lists[peer].count) {
                wefti_cell_text(schedule, peer, match, text);
            }
            wefti_trial_find(trial, WEFT_RULE_FIFO, rank, k,
                             "rank %d then expects %s from here", peer, text);
            next[peer] = SIZE_MAX;
        }
    }
    for (size_t k = 0; k < list->count; k++) {
        int peer = wefti_action_is_message(&list->items[k])
                       ? wefti_message_peer(schedule, &list->items[k])
                       : -1;
        if (peer >= 0) {
            next[peer] = 0;
        }
    }
}

weft_status wefti_rule_fifo(wefti_schedule_trial *trial)
{
    size_t *next = calloc((size_t)trial->schedule->ranks, sizeof(*next));
    if (!next) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks",
                           trial->schedule->ranks);
    }
    for (int r = 0; r < trial->schedule->ranks; r++) {
        check_sender(trial, r, next);
    }
    free(next);
    return WEFT_OK;
}
