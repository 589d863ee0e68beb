/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/schedule/places.c - where each action stands.
 */
#include "overlap/schedule/places.h"

#include "base/error.h"
#include "base/memory_limit.h"

#include <stdlib.h>

uint32_t wefti_places_counterpart(const wefti_stage_places *places,
                                  const weft_action *message)
{
    int stage = message->stage, i = message->microbatch;
    switch (message->type) {
    case WEFT_ACTION_SEND_F:
        return wefti_places_get(places, WEFTI_PLACES_RECV_F, stage + 1, i);
    case WEFT_ACTION_RECV_F:
        return wefti_places_get(places, WEFTI_PLACES_SEND_F, stage - 1, i);
    case WEFT_ACTION_SEND_B:
        return wefti_places_get(places, WEFTI_PLACES_RECV_B, stage - 1, i);
    default:
        return wefti_places_get(places, WEFTI_PLACES_SEND_B, stage + 1, i);
    }
}

/* The tables an action is in. Returns how many. */
static int list_tables(weft_action_type type, wefti_places_table tables[2])
{
    switch (type) {
    case WEFT_ACTION_F:
        tables[0] = WEFTI_PLACES_F;
        return 1;
    case WEFT_ACTION_I:
        tables[0] = WEFTI_PLACES_BACK;
        return 1;
    case WEFT_ACTION_W:
        tables[0] = WEFTI_PLACES_W;
        return 1;
    case WEFT_ACTION_B:
        tables[0] = WEFTI_PLACES_BACK;
        tables[1] = WEFTI_PLACES_W;
        return 2;
    case WEFT_ACTION_SEND_F:
    case WEFT_ACTION_RECV_F:
    case WEFT_ACTION_SEND_B:
    case WEFT_ACTION_RECV_B:
        tables[0] = (wefti_places_table)(WEFTI_PLACES_SEND_F + (int)type -
                                         WEFT_ACTION_SEND_F);
        return 1;
    default:
        return 0;
    }
}

/* Returns false if it stood somewhere already. */
static bool note(wefti_stage_places *places, const weft_action *part,
                 size_t index)
{
    wefti_places_table tables[2];
    bool fresh = true;
    if (part->type == WEFT_ACTION_REDUCE_GRAD) {
        fresh = places->reduce[part->stage] == 0;
        places->reduce[part->stage] = (uint32_t)(index + 1);
    }
    int count = list_tables((weft_action_type)part->type, tables);
    for (int t = 0; t < count; t++) {
        uint32_t *entry =
            &places->tables[tables[t]][(size_t)part->stage *
                                           (size_t)places->schedule->per_stage +
                                       (size_t)part->microbatch];
        fresh = fresh && *entry == 0;
        *entry = (uint32_t)(index + 1);
    }
    return fresh;
}

weft_status wefti_places_init(wefti_stage_places *places,
                              const weft_schedule *schedule,
                              wefti_places_twice *twice, void *context)
{
    *places = (wefti_stage_places){.schedule = schedule};
    size_t entries = (size_t)schedule->stages * (size_t)schedule->per_stage;
    int tables = schedule->lowered ? WEFTI_PLACES_COUNT : WEFTI_PLACES_SEND_F;
    bool enough = true;
    weft_status status = wefti_memory_check(
        "the places of its actions",
        (uint64_t)entries * (uint64_t)tables * sizeof(uint32_t));
    if (status != WEFT_OK) {
        return status;
    }
    for (int t = 0; t < tables; t++) {
        places->tables[t] = calloc(entries, sizeof(uint32_t));
        enough = enough && places->tables[t];
    }
    places->reduce = calloc((size_t)schedule->stages, sizeof(uint32_t));
    if (!enough || !places->reduce) {
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "the places of %zu micro-batches", entries);
    }
    for (int r = 0; r < schedule->ranks; r++) {
        const wefti_actions *list = &schedule->lists[r];
        for (size_t k = 0; k < list->count; k++) {
            weft_action parts[2];
            int count = wefti_action_split(&list->items[k], parts);
            for (int i = 0; i < count; i++) {
                if (!note(places, &parts[i], k)) {
                    twice(context, r, k);
                }
            }
        }
    }
    return WEFT_OK;
}

void wefti_places_fini(wefti_stage_places *places)
{
    for (int t = 0; t < WEFTI_PLACES_COUNT; t++) {
        free(places->tables[t]);
    }
    free(places->reduce);
    *places = (wefti_stage_places){0};
}
