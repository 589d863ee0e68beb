/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/expert_place.c - weft_moe_place's answer, with as few moves as it
 * takes: ranks of a host are exchanged for each other, and so are the slots of
 * a rank, so that what may stay does. A layer that would not be evener keeps
 * its map.
 *
 * Source: DeepSeek-AI's expert-parallel load balancer (EPLB, 2025), by
 * weft/moe_place.h.
 */
#include "trainer/expert_place.h"

#include "base/error.h"
#include "trainer/ema.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const wefti_expert_map *map_of(const wefti_expert_place *place)
{
    return &place->replica->plan.expert_map;
}

/* ---- what stays -----------------------------------------------------------
 */

static size_t count(const int32_t *experts, size_t end, int32_t expert)
{
    size_t found = 0;
    for (size_t i = 0; i < end; i++) {
        found += experts[i] == expert;
    }
    return found;
}

/* How much of a is in b, where each may have an expert several times. */
static size_t count_common(const int32_t *a, const int32_t *b, size_t each)
{
    size_t common = 0;
    for (size_t i = 0; i < each; i++) {
        common += count(b, each, a[i]) > count(a, i, a[i]);
    }
    return common;
}

/* What pack has goes to a rank: what it has there now keeps its slot. */
static void fill_rank(const int32_t *pack, const int32_t *now, size_t each,
                      int32_t *next)
{
    size_t slot = 0;
    for (size_t i = 0; i < each; i++) {
        const bool stays = count(pack, each, now[i]) > count(now, i, now[i]);
        next[i] = stays ? now[i] : -1;
    }
    for (size_t i = 0; i < each; i++) {
        if (count(now, each, pack[i]) > count(pack, i, pack[i])) {
            continue; /* it has stayed */
        }
        while (next[slot] >= 0) {
            slot++;
        }
        next[slot] = pack[i];
    }
}

/* Each pack to the free rank of its host that has the most of it. */
static void match_packs(const wefti_expert_map *map, size_t hosts,
                        const int32_t *packs, const int32_t *now, int32_t *next)
{
    const size_t each = wefti_expert_map_each(map);
    const size_t ranks = map->parts / hosts; /* of a host */
    for (size_t i = 0; i < map->slots; i++) {
        next[i] = -1;
    }
    for (size_t pack = 0; pack < map->parts; pack++) {
        const size_t first = pack / ranks * ranks;
        const int32_t *own = packs + pack * each;
        size_t best = map->parts, most = 0;
        for (size_t rank = first; rank < first + ranks; rank++) {
            const size_t common = count_common(own, now + rank * each, each);
            if (next[rank * each] < 0 &&
                (best == map->parts || common > most)) {
                best = rank;
                most = common;
            }
        }
        fill_rank(own, now + best * each, each, next + best * each);
    }
}

/* ---- a choice -------------------------------------------------------------
 */

/* Hosts hold groups together where they divide them, else nothing does. */
static size_t count_hosts(const weft_moe_place_config *how)
{
    const int hosts = how->hosts > 0 ? how->hosts : 1;
    const int groups = how->groups > 0 ? how->groups : 1;
    return groups % hosts == 0 ? (size_t)hosts : 1;
}

static weft_status choose_layer(wefti_expert_place *place, size_t layer)
{
    const wefti_expert_map *map = map_of(place);
    const double *loads = place->loads + layer * map->experts;
    const int32_t *now = wefti_expert_map_experts(map, layer);
    int32_t *next = place->next + layer * map->slots;
    weft_status status =
        weft_moe_place(&place->how, loads, place->found, NULL, NULL);
    if (status != WEFT_OK) {
        return status;
    }
    match_packs(map, count_hosts(&place->how), place->found, now, next);
    if (!(wefti_expert_map_ratio(map, next, loads) <
          wefti_expert_map_ratio(map, now, loads))) {
        memcpy(next, now, map->slots * sizeof(*next));
    }
    return WEFT_OK;
}

static size_t count_moved(const wefti_expert_place *place)
{
    const wefti_expert_map *map = map_of(place);
    size_t moved = 0;
    for (size_t i = 0; i < map->layers * map->slots; i++) {
        moved += place->next[i] != map->expert[i];
    }
    return moved;
}

/* experts: what slots have, of all layers. */
static double find_ratio(const wefti_expert_map *map, const int32_t *experts,
                         const double *loads)
{
    double worst = (double)NAN;
    for (size_t layer = 0; layer < map->layers; layer++) {
        worst = fmax(worst,
                     wefti_expert_map_ratio(map, experts + layer * map->slots,
                                            loads + layer * map->experts));
    }
    return worst;
}

static weft_status keep(wefti_expert_place *place, uint64_t step, size_t moved)
{
    if (place->count == place->room) {
        const size_t room = 2 * place->room + 8;
        wefti_placed *grown =
            realloc(place->placed, room * sizeof(*place->placed));
        if (!grown) {
            return wefti_error(WEFT_ERR_NO_MEMORY,
                               "no memory for %zu placements of experts", room);
        }
        place->placed = grown;
        place->room = room;
    }
    place->placed[place->count++] = (wefti_placed){
        .step = step,
        .before = wefti_expert_place_run(place),
        .ratio_planned = find_ratio(map_of(place), place->next, place->loads),
        .experts = moved,
        .bytes =
            (double)moved * (double)wefti_expert_move_bytes(place->replica)};
    return WEFT_OK;
}

static void begin_run(wefti_expert_place *place)
{
    const wefti_expert_map *map = map_of(place);
    memset(place->loads, 0, map->layers * map->experts * sizeof(*place->loads));
    place->steps = 0;
    place->ms = place->timed = 0;
}

weft_status wefti_expert_place_choose(wefti_expert_place *place, uint64_t step,
                                      const double *loads)
{
    const wefti_expert_map *map = map_of(place);
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < map->layers * map->experts; i++) {
        place->loads[i] += loads[i];
    }
    place->steps++;
    if (step % place->every != 0 ||
        step >= place->replica->config.optimizer.steps) {
        return WEFT_OK;
    }
    for (size_t layer = 0; layer < map->layers && status == WEFT_OK; layer++) {
        status = choose_layer(place, layer);
    }
    const size_t moved = status == WEFT_OK ? count_moved(place) : 0;
    status = status == WEFT_OK ? keep(place, step, moved) : status;
    place->due = moved > 0;
    if (status == WEFT_OK && !place->due) {
        begin_run(place);
    }
    return status;
}

bool wefti_expert_place_is_due(const wefti_expert_place *place)
{
    return place && place->due;
}

double wefti_expert_place_bytes(const wefti_expert_place *place)
{
    return !place       ? (double)NAN
           : place->due ? place->placed[place->count - 1].bytes
                        : 0;
}

weft_status wefti_expert_place_end(wefti_expert_place *place)
{
    if (!wefti_expert_place_is_due(place)) {
        return WEFT_OK;
    }
    wefti_expert_map *map = &place->replica->plan.expert_map;
    weft_status status = WEFT_OK;
    if (place->replica->ema) {
        status = wefti_ema_settle(place->replica->ema);
    }
    if (place->replica->ema && status == WEFT_OK) {
        status = wefti_expert_move_averages(place->move, place->next);
    }
    if (status != WEFT_OK) {
        return status;
    }
    for (size_t layer = 0; layer < map->layers; layer++) {
        wefti_expert_map_set(map, layer, place->next + layer * map->slots);
    }
    begin_run(place);
    place->due = false;
    return WEFT_OK;
}

/* ---- what it has been good for --------------------------------------------
 */

double wefti_expert_place_ratio(const wefti_replica *replica,
                                const double *loads)
{
    const wefti_expert_map *map = &replica->plan.expert_map;
    return find_ratio(map, map->expert, loads);
}

void wefti_expert_place_time(wefti_expert_place *place, double step_ms)
{
    if (place && place->steps == 0 && place->count > 0) {
        wefti_placed_run *run = &place->placed[place->count - 1].before;
        run->step_ms = run->timed > 0 ? (run->step_ms * run->timed + step_ms) /
                                            (run->timed + 1)
                                      : step_ms;
        run->timed++;
    } else if (place) {
        place->ms += step_ms;
        place->timed++;
    }
}

wefti_placed_run wefti_expert_place_run(const wefti_expert_place *place)
{
    return (wefti_placed_run){
        .steps = place->steps,
        .ratio = wefti_expert_place_ratio(place->replica, place->loads),
        .step_ms = place->ms / place->timed,
        .timed = place->timed};
}

/* ---- life -----------------------------------------------------------------
 */

weft_status wefti_expert_place_create(wefti_replica *replica,
                                      const weft_moe_place_config *how,
                                      uint64_t every)
{
    const wefti_expert_map *map = &replica->plan.expert_map;
    const size_t loads = map->layers * map->experts;
    wefti_expert_place *place = calloc(1, sizeof(*place));
    if (!place) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to place experts");
    }
    *place = (wefti_expert_place){
        .replica = replica,
        .how = *how,
        .every = every,
        .loads = calloc(loads, sizeof(double)),
        .next = calloc(map->layers * map->slots, sizeof(int32_t)),
        .found = calloc(map->slots, sizeof(int32_t))};
    place->how.replicas = (int)map->slots;
    weft_status status = place->loads && place->next && place->found
                             ? wefti_expert_move_create(replica, &place->move)
                             : wefti_error(WEFT_ERR_NO_MEMORY,
                                           "no memory for loads of %zu", loads);
    if (status != WEFT_OK) {
        wefti_expert_place_destroy(place);
        return status;
    }
    replica->place = place;
    return WEFT_OK;
}

void wefti_expert_place_destroy(wefti_expert_place *place)
{
    if (place) {
        wefti_expert_move_destroy(place->move);
        free(place->placed);
        free(place->found);
        free(place->next);
        free(place->loads);
        free(place);
    }
}

void wefti_expert_place_abort(wefti_expert_place *place)
{
    if (place) {
        wefti_expert_move_abort(place->move);
    }
}
