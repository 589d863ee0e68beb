/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/expert_map.c - experts by slot, and slots by expert.
 */
#include "trainer/model/expert_map.h"

#include "base/check.h"
#include "base/error.h"

#include <math.h>
#include <stdlib.h>

weft_status wefti_expert_map_init(wefti_expert_map *map, size_t layers,
                                  size_t experts, size_t slots, size_t parts)
{
    WEFTI_ASSERT(parts > 0 && slots >= experts && slots % parts == 0);
    *map = (wefti_expert_map){
        .layers = layers, .experts = experts, .slots = slots, .parts = parts};
    const size_t count = layers * slots;
    int32_t *row = calloc(slots + 1, sizeof(*row));
    map->expert = calloc(count, sizeof(*map->expert));
    map->replica = calloc(count, sizeof(*map->replica));
    map->list = calloc(count, sizeof(*map->list));
    map->first = calloc(layers * (experts + 1), sizeof(*map->first));
    if (!row || !map->expert || !map->replica || !map->list || !map->first) {
        free(row);
        wefti_expert_map_fini(map);
        return wefti_error(WEFT_ERR_NO_MEMORY,
                           "no memory for %zu slots of "
                           "experts",
                           count);
    }
    const size_t each = slots / parts;
    const size_t own = experts % parts == 0 ? experts / parts : 0;
    for (size_t s = 0; s < slots; s++) {
        row[s] =
            (int32_t)(own > 0 ? s / each * own + s % each % own : s % experts);
    }
    for (size_t layer = 0; layer < layers; layer++) {
        wefti_expert_map_set(map, layer, row);
    }
    free(row);
    return WEFT_OK;
}

void wefti_expert_map_fini(wefti_expert_map *map)
{
    free(map->expert);
    free(map->replica);
    free(map->first);
    free(map->list);
    *map = (wefti_expert_map){0};
}

void wefti_expert_map_set(wefti_expert_map *map, size_t layer,
                          const int32_t *experts)
{
    int32_t *own = map->expert + layer * map->slots;
    int32_t *replica = map->replica + layer * map->slots;
    int32_t *list = map->list + layer * map->slots;
    int32_t *first = map->first + layer * (map->experts + 1);
    int32_t at = 0;
    for (size_t e = 0; e < map->experts; e++) {
        first[e] = at;
        for (size_t s = 0; s < map->slots; s++) {
            if ((size_t)experts[s] == e) {
                own[s] = experts[s];
                replica[s] = at - first[e];
                list[at++] = (int32_t)s;
            }
        }
        WEFTI_ASSERT(at > first[e]);
    }
    first[map->experts] = at;
    WEFTI_ASSERT((size_t)at == map->slots);
}

static size_t count_replicas(const wefti_expert_map *map,
                             const int32_t *experts, int32_t expert)
{
    size_t count = 0;
    for (size_t s = 0; s < map->slots; s++) {
        count += experts[s] == expert;
    }
    return count;
}

double wefti_expert_map_ratio(const wefti_expert_map *map,
                              const int32_t *experts, const double *loads)
{
    const size_t each = wefti_expert_map_each(map);
    double most = 0, all = 0;
    for (size_t part = 0; part < map->parts; part++) {
        double sum = 0;
        for (size_t s = part * each; s < (part + 1) * each; s++) {
            const size_t count = map->slots > map->experts
                                     ? count_replicas(map, experts, experts[s])
                                     : 1;
            sum += loads[experts[s]] / (double)count;
        }
        most = fmax(most, sum);
        all += sum;
    }
    return all > 0 ? most * (double)map->parts / all : (double)NAN;
}
