/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/expert_map.h - which expert each slot of a layer has. Slots are
 * what ranks have room for: part p of so many has slots p * n .. (p + 1) * n -
 * 1 of each layer, in the order in which they lie in its tensors. There may be
 * more than experts: then some experts have several, their replicas.
 *
 *   slots      0 1 2 | 3 4 5     of two parts
 *   experts    0 2 1 | 3 1 0     of which 0 and 1 have a replica each
 *
 * Without a map slot e has expert e. All ranks have the same map.
 */
#ifndef TRAINER_MODEL_EXPERT_MAP_H
#define TRAINER_MODEL_EXPERT_MAP_H

#include "weft/status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct wefti_expert_map {
    size_t layers, experts, slots, parts;
    int32_t *expert;  /* [layers][slots] that each slot has */
    int32_t *replica; /* [layers][slots] its number among that expert's */
    int32_t *first;   /* [layers][experts + 1] of each expert in list */
    int32_t *list;    /* [layers][slots] slots by expert, then by number */
} wefti_expert_map;

/*
 * In order. Slots beyond the experts: where parts divide experts each part's
 * are its own first experts', behind them; else the first experts' again behind
 * all. Returns OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_expert_map_init(wefti_expert_map *map,
                                                 size_t layers, size_t experts,
                                                 size_t slots, size_t parts);
void wefti_expert_map_fini(wefti_expert_map *map); /* also of zeros */

/* A layer's slots have these experts from now on, each at least once; replicas
 * are numbered in the order of slots. */
void wefti_expert_map_set(wefti_expert_map *map, size_t layer,
                          const int32_t *experts);

/* Slots of a part. */
static inline size_t wefti_expert_map_each(const wefti_expert_map *map)
{
    return map->slots / map->parts;
}

static inline const int32_t *
wefti_expert_map_experts(const wefti_expert_map *map, size_t layer)
{
    return map->expert + layer * map->slots;
}

static inline const int32_t *
wefti_expert_map_replicas(const wefti_expert_map *map, size_t layer)
{
    return map->replica + layer * map->slots;
}

/* The slots that an expert of a layer has, and how many. */
static inline const int32_t *wefti_expert_map_slots(const wefti_expert_map *map,
                                                    size_t layer, size_t expert,
                                                    size_t *count_out)
{
    const int32_t *first = map->first + layer * (map->experts + 1) + expert;
    *count_out = (size_t)(first[1] - first[0]);
    return map->list + layer * map->slots + first[0];
}

/*
 * wefti_expert_map_ratio - the largest sum of a part's loads over the mean,
 * where replicas of an expert share its load evenly; NAN: there is no load.
 *
 * experts   [slots] that each has, as of wefti_expert_map_experts
 * loads     [experts] of the layer
 */
double wefti_expert_map_ratio(const wefti_expert_map *map,
                              const int32_t *experts, const double *loads);

#endif
