/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/schedule.c - lists of actions, where stages are, and the
 * edges between them.
 */
#include "overlap/schedule/schedule.h"

#include "base/check.h"
#include "base/error.h"
#include "base/sized.h"

#include <stdlib.h>
#include <string.h>

void wefti_actions_add(wefti_actions *list, weft_action action)
{
    if (list->count == list->room && !list->failed) {
        size_t room = list->room ? 2 * list->room : 64;
        weft_action *items = realloc(list->items, room * sizeof(*items));
        list->failed = !items;
        if (items) {
            list->items = items;
            list->room = room;
        }
    }
    if (!list->failed) {
        list->items[list->count++] = action;
    }
}

void wefti_actions_add_cell(wefti_actions *list, weft_action action,
                            uint32_t column)
{
    size_t room = list->room;
    wefti_actions_add(list, action);
    if (list->room != room) {
        uint32_t *columns =
            realloc(list->columns, list->room * sizeof(*columns));
        list->columns = columns ? columns : list->columns;
        list->failed = list->failed || !columns;
    }
    if (!list->failed) {
        list->columns[list->count - 1] = column;
    }
}

void wefti_actions_fini(wefti_actions *list)
{
    free(list->items);
    free(list->columns);
    *list = (wefti_actions){0};
}

void wefti_actions_replace(wefti_actions *list, wefti_actions *fresh)
{
    wefti_actions_fini(list);
    *list = *fresh;
    *fresh = (wefti_actions){0};
}

weft_status wefti_schedule_make(const char *name, int ranks, int stages,
                                int directions, int per_stage,
                                weft_schedule **schedule_out)
{
    weft_schedule *schedule = calloc(1, sizeof(*schedule));
    if (!schedule) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a schedule");
    }
    *schedule = (weft_schedule){.ranks = ranks,
                                .stages = stages,
                                .directions = directions,
                                .chunks = stages / directions / ranks,
                                .per_stage = per_stage};
    size_t name_bytes = strnlen(name, sizeof(schedule->name) - 1);
    memcpy(schedule->name, name, name_bytes);
    schedule->rank_of = calloc((size_t)stages, sizeof(*schedule->rank_of));
    schedule->lists = calloc((size_t)ranks, sizeof(*schedule->lists));
    if (!schedule->rank_of || !schedule->lists) {
        weft_schedule_destroy(schedule);
        return wefti_error(WEFT_ERR_NO_MEMORY, "a schedule of %d stages",
                           stages);
    }
    for (int s = 0; s < stages; s++) {
        schedule->rank_of[s] = s % ranks;
    }
    *schedule_out = schedule;
    return WEFT_OK;
}

void wefti_schedule_place_v(weft_schedule *schedule)
{
    WEFTI_ASSERT(schedule->stages == 2 * schedule->ranks);
    for (int r = 0; r < schedule->ranks; r++) {
        schedule->rank_of[r] = r;
        schedule->rank_of[2 * schedule->ranks - 1 - r] = r;
    }
}

weft_place wefti_schedule_place(const weft_schedule *schedule, int rank,
                                size_t index)
{
    const uint32_t *columns = schedule->lists[rank].columns;
    return (weft_place){.rank = rank,
                        .index = index,
                        .row = columns ? rank + 1 : 0,
                        .column = columns ? (int)columns[index] : 0};
}

weft_status wefti_schedule_settle(const weft_schedule *schedule)
{
    for (int r = 0; r < schedule->ranks; r++) {
        if (schedule->lists[r].failed) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "the list of rank %d, after %zu actions", r,
                               schedule->lists[r].count);
        }
    }
    return WEFT_OK;
}

void weft_schedule_destroy(weft_schedule *schedule)
{
    if (!schedule) {
        return;
    }
    for (int r = 0; schedule->lists && r < schedule->ranks; r++) {
        wefti_actions_fini(&schedule->lists[r]);
    }
    free(schedule->lists);
    free(schedule->rank_of);
    free(schedule);
}

weft_action wefti_edge_send(const wefti_edge *edge)
{
    bool forward = edge->to_stage > edge->from_stage;
    return wefti_action(forward ? WEFT_ACTION_SEND_F : WEFT_ACTION_SEND_B,
                        edge->from_stage, edge->microbatch);
}

weft_action wefti_edge_recv(const wefti_edge *edge)
{
    bool forward = edge->to_stage > edge->from_stage;
    return wefti_action(forward ? WEFT_ACTION_RECV_F : WEFT_ACTION_RECV_B,
                        edge->to_stage, edge->microbatch);
}

wefti_edge wefti_edge_of_message(const weft_schedule *schedule,
                                 const weft_action *message)
{
    int stage = message->stage, i = message->microbatch;
    switch (message->type) {
    case WEFT_ACTION_SEND_F:
        return wefti_edge_make(schedule, stage,
                               wefti_stage_after(schedule, stage), i);
    case WEFT_ACTION_RECV_F:
        return wefti_edge_make(schedule, wefti_stage_before(schedule, stage),
                               stage, i);
    case WEFT_ACTION_SEND_B:
        return wefti_edge_make(schedule, stage,
                               wefti_stage_before(schedule, stage), i);
    case WEFT_ACTION_RECV_B:
        return wefti_edge_make(schedule, wefti_stage_after(schedule, stage),
                               stage, i);
    default:
        return (wefti_edge){0};
    }
}

/* Messages of a step: each edge between two ranks, both ways. */
static size_t count_messages(const weft_schedule *schedule)
{
    size_t edges = 0;
    for (int s = 0; s < schedule->stages; s++) {
        int next = wefti_stage_after(schedule, s);
        edges += next >= 0 && schedule->rank_of[s] != schedule->rank_of[next];
    }
    return 2 * edges * (size_t)schedule->per_stage;
}

weft_status weft_schedule_get_info(const weft_schedule *schedule,
                                   weft_schedule_info *info)
{
    if (!schedule || !info) {
        return wefti_error(WEFT_ERR_INVALID,
                           "neither schedule nor info may be NULL");
    }
    weft_status status = wefti_sized_check(
        "info", info->size_bytes, offsetof(weft_schedule_info, directions),
        sizeof(*info));
    if (status != WEFT_OK) {
        return status;
    }
    weft_schedule_info found = {.ranks = schedule->ranks,
                                .stages = schedule->stages,
                                .directions = schedule->directions,
                                .chunks = schedule->chunks,
                                .microbatches =
                                    schedule->per_stage * schedule->directions,
                                .lowered = schedule->lowered,
                                .messages = count_messages(schedule),
                                .encoder_stages = schedule->encoder_stages};
    for (int r = 0; r < schedule->ranks; r++) {
        found.actions += schedule->lists[r].count;
    }
    memcpy(found.name, schedule->name, sizeof(found.name));
    wefti_sized_write(info, &found, sizeof(found));
    return WEFT_OK;
}

int weft_schedule_get_rank(const weft_schedule *schedule, int stage)
{
    WEFTI_ASSERT(stage >= 0 && stage < schedule->stages);
    return schedule->rank_of[stage];
}

size_t weft_schedule_get_actions(const weft_schedule *schedule, int rank,
                                 const weft_action **actions_out)
{
    WEFTI_ASSERT(rank >= 0 && rank < schedule->ranks);
    *actions_out = schedule->lists[rank].items;
    return schedule->lists[rank].count;
}
