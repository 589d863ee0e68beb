/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/placed_experts.c - where experts are, in pieces of a step.
 */
#include "trainer/checkpoint/placed_experts.h"

#include "base/error.h"
#include "trainer/expert_place.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static wefti_checkpoint_piece make_map(const wefti_expert_map *map, void *live)
{
    wefti_checkpoint_piece piece = {.dtype = WEFT_DTYPE_I32,
                                    .rows = map->layers,
                                    .columns = map->slots,
                                    .elems = map->layers * map->slots,
                                    .live = live};
    snprintf(piece.name, sizeof(piece.name), "moe.placed_%zu_on_%zu",
             map->slots, map->parts);
    return piece;
}

static wefti_checkpoint_piece make_loads(const wefti_expert_map *map,
                                         void *live)
{
    return (wefti_checkpoint_piece){.name = "moe.loads",
                                    .dtype = WEFT_DTYPE_F64,
                                    .rows = map->layers,
                                    .columns = map->experts,
                                    .elems = map->layers * map->experts,
                                    .live = live};
}

static wefti_checkpoint_piece make_steps(void *live)
{
    return (wefti_checkpoint_piece){.name = "moe.loads_steps",
                                    .dtype = WEFT_DTYPE_U64,
                                    .columns = 1,
                                    .elems = 1,
                                    .live = live};
}

void wefti_placed_experts_list(const wefti_replica *replica,
                               wefti_state_list *list)
{
    wefti_expert_place *place = replica->place;
    if (!place || replica->rank != 0) {
        return;
    }
    const wefti_expert_map *map = &replica->plan.expert_map;
    const wefti_checkpoint_piece pieces[WEFTI_PLACED_PIECES] = {
        make_map(map, map->expert), make_loads(map, place->loads),
        make_steps(&place->steps)};
    for (size_t i = 0; i < WEFTI_PLACED_PIECES; i++) {
        wefti_state_add(list, &pieces[i]);
    }
}

/* All of a piece, in memory of its own; NULL: the step has none. */
static weft_status take(wefti_checkpoint_reader *reader,
                        const wefti_checkpoint_piece *piece, void **out)
{
    const size_t bytes = piece->elems * weft_dtype_bytes(piece->dtype);
    weft_dtype saved; /* compared when it is read */
    *out = NULL;
    if (!wefti_checkpoint_reader_has(reader, piece->name, &saved)) {
        return WEFT_OK;
    }
    *out = malloc(bytes);
    return *out ? wefti_checkpoint_reader_get(reader, piece, *out)
                : wefti_error(WEFT_ERR_NO_MEMORY,
                              "no memory for %zu bytes of %s", bytes,
                              piece->name);
}

/* Each slot has an expert, and each expert one slot at least. */
static bool is_map(const wefti_expert_map *map, const int32_t *expert)
{
    for (size_t layer = 0; layer < map->layers; layer++) {
        const int32_t *own = expert + layer * map->slots;
        for (size_t s = 0; s < map->slots; s++) {
            if (own[s] < 0 || (size_t)own[s] >= map->experts) {
                return false;
            }
        }
        for (size_t e = 0; e < map->experts; e++) {
            size_t s = 0;
            while (s < map->slots && (size_t)own[s] != e) {
                s++;
            }
            if (s == map->slots) {
                return false;
            }
        }
    }
    return true;
}

static weft_status read_map(const wefti_expert_map *map,
                            wefti_checkpoint_reader *reader, int32_t **out)
{
    const wefti_checkpoint_piece piece = make_map(map, NULL);
    void *found;
    weft_status status = take(reader, &piece, &found);
    *out = found;
    return status == WEFT_OK && found && !is_map(map, found)
               ? wefti_error(WEFT_ERR_INVALID,
                             "%s: not each of %zu experts has a slot",
                             piece.name, map->experts)
               : status;
}

static bool are_loads(const double *loads, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!isfinite(loads[i]) || loads[i] < 0) {
            return false;
        }
    }
    return true;
}

static weft_status read_loads(const wefti_expert_map *map,
                              wefti_checkpoint_reader *reader,
                              wefti_placed_experts *out)
{
    const wefti_checkpoint_piece loads = make_loads(map, NULL);
    const wefti_checkpoint_piece steps = make_steps(NULL);
    void *found;
    weft_status status = take(reader, &loads, &found);
    out->loads = found;
    if (status != WEFT_OK || !found) {
        return status;
    }
    return are_loads(out->loads, loads.elems)
               ? wefti_checkpoint_reader_get(reader, &steps, &out->steps)
               : wefti_error(WEFT_ERR_INVALID,
                             "%s: a load is not a number from 0", loads.name);
}

weft_status wefti_placed_experts_read(const wefti_replica *replica,
                                      wefti_checkpoint_reader *reader,
                                      wefti_placed_experts *out)
{
    *out = (wefti_placed_experts){0};
    if (!replica->place) {
        return WEFT_OK;
    }
    const wefti_expert_map *map = &replica->plan.expert_map;
    weft_status status = read_map(map, reader, &out->expert);
    if (status == WEFT_OK) {
        status = read_loads(map, reader, out);
    }
    if (status != WEFT_OK) {
        wefti_placed_experts_fini(out);
    }
    return status;
}

static void swap_map(wefti_expert_map *map, int32_t *other)
{
    for (size_t layer = 0; layer < map->layers; layer++) {
        int32_t *own = map->expert + layer * map->slots;
        for (size_t s = 0; s < map->slots; s++) {
            const int32_t expert = own[s];
            own[s] = other[layer * map->slots + s];
            other[layer * map->slots + s] = expert;
        }
        wefti_expert_map_set(map, layer, own);
    }
}

void wefti_placed_experts_swap(wefti_replica *replica,
                               wefti_placed_experts *other)
{
    if (other->expert) {
        swap_map(&replica->plan.expert_map, other->expert);
    }
    if (other->loads) {
        double *loads = replica->place->loads;
        const uint64_t steps = replica->place->steps;
        replica->place->loads = other->loads;
        replica->place->steps = other->steps;
        other->loads = loads;
        other->steps = steps;
    }
}

void wefti_placed_experts_fini(wefti_placed_experts *placement)
{
    free(placement->expert);
    free(placement->loads);
    *placement = (wefti_placed_experts){0};
}
