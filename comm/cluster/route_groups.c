/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_groups.c - hosts, and the NUMA nodes inside them.
 */
#include "comm/cluster/route_groups.h"

#include "base/error.h"
#include "comm/pattern/grouping.h"

#include <stdlib.h>
#include <string.h>

/* The lowest place of each place's domain; lowest: [places] scratch. */
static void find_firsts(const int *domains, int places, int *lowest,
                        int *firsts)
{
    for (int place = places - 1; place >= 0; place--) {
        lowest[domains[place]] = place;
    }
    for (int place = 0; place < places; place++) {
        firsts[place] = lowest[domains[place]];
    }
}

static const int *find_nodes(const wefti_levels *levels)
{
    for (int level = 0; level < levels->level_count; level++) {
        if (strcmp(levels->names[level], "numa") == 0) {
            return levels->domains[level];
        }
    }
    return levels->hosts;
}

weft_status wefti_route_groups_create(const wefti_levels *levels,
                                      wefti_grouping **grouping_out,
                                      wefti_nest **nest_out)
{
    const int places = levels->place_count;
    int *firsts = calloc(3 * (size_t)places, sizeof(*firsts));
    *grouping_out = NULL;
    *nest_out = NULL;
    bool made = firsts != NULL;
    if (made) {
        const int *const both[] = {firsts, firsts + places};
        int *lowest = firsts + 2 * places;
        find_firsts(find_nodes(levels), places, lowest, firsts);
        find_firsts(levels->hosts, places, lowest, firsts + places);
        made = wefti_grouping_create(both[1], places, grouping_out) &&
               wefti_nest_create(both, 2, places, nest_out);
    }
    free(firsts);
    if (!made) {
        free(*grouping_out);
        *grouping_out = NULL;
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", places);
    }
    const int outer = *grouping_out != NULL; /* hosts are a level of it then */
    if (*nest_out && (*nest_out)->level_count <= outer) {
        free(*nest_out);
        *nest_out = NULL;
    }
    return WEFT_OK;
}

static int count_most(const wefti_nest_level *level)
{
    int most = 0;
    for (int group = 0; group < level->group_count; group++) {
        const int ranks = level->begins[group + 1] - level->begins[group];
        most = ranks > most ? ranks : most;
    }
    return most;
}

void wefti_route_groups_print(const wefti_nest *nest, FILE *file)
{
    for (int i = 0; nest && i < nest->level_count; i++) {
        const wefti_nest_level *level = &nest->levels[i];
        fprintf(file, "%-9s%d groups of up to %d ranks\n", "nest",
                level->group_count, count_most(level));
    }
}

void wefti_route_groups_write(const wefti_nest *nest, wefti_json *json)
{
    wefti_json_array_open(json, "nest");
    for (int i = 0; nest && i < nest->level_count; i++) {
        const wefti_nest_level *level = &nest->levels[i];
        wefti_json_object_open(json, NULL);
        wefti_json_int(json, "groups", level->group_count);
        wefti_json_int(json, "most_ranks", count_most(level));
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}
