/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/cluster/route_groups.c - hosts, and the levels inside them: NUMA nodes,
 * or what WEFT_LEVELS says.
 */
#include "comm/cluster/route_groups.h"

#include "base/error.h"
#include "comm/oob/inner_level.h"
#include "comm/pattern/grouping.h"

#include <stdlib.h>
#include <string.h>

/* What the rank of a place would say of itself: its node is the machine's. */
static void label_place(const wefti_levels *levels, int place, int level,
                        char label_out[WEFTI_INNER_LABEL_BYTES])
{
    const int *nodes = levels->hosts;
    if (!wefti_inner_level_is_numa(level)) {
        wefti_inner_level_label(place, level, label_out);
        return;
    }
    for (int i = 0; i < levels->level_count; i++) {
        nodes =
            strcmp(levels->names[i], "numa") == 0 ? levels->domains[i] : nodes;
    }
    snprintf(label_out, WEFTI_INNER_LABEL_BYTES, "node %d", nodes[place]);
}

/* The lowest place that says the same as each, of those that are together with
 * it on the level around. */
static void find_firsts(const wefti_levels *levels, int level,
                        const int *around,
                        char (*labels)[WEFTI_INNER_LABEL_BYTES], int *firsts)
{
    for (int place = 0; place < levels->place_count; place++) {
        int first = around[place];
        label_place(levels, place, level, labels[place]);
        while (around[first] != around[place] ||
               strcmp(labels[first], labels[place]) != 0) {
            first++;
        }
        firsts[place] = first;
    }
}

/* Places lie host by host. */
static void find_host_firsts(const wefti_levels *levels, int *firsts)
{
    for (int place = 0; place < levels->place_count; place++) {
        firsts[place] =
            place > 0 && levels->hosts[place] == levels->hosts[place - 1]
                ? firsts[place - 1]
                : place;
    }
}

weft_status wefti_route_groups_create(const wefti_levels *levels,
                                      wefti_grouping **grouping_out,
                                      wefti_nest **nest_out)
{
    enum { LEVELS = WEFTI_PLACE_LEVELS + 1 };
    const int places = levels->place_count;
    const int *all[LEVELS];
    int *firsts = calloc(LEVELS * (size_t)places, sizeof(*firsts));
    char(*labels)[WEFTI_INNER_LABEL_BYTES] =
        calloc((size_t)places, sizeof(*labels));
    *grouping_out = NULL;
    *nest_out = NULL;
    bool made = firsts && labels;
    for (int level = LEVELS - 1; level >= 0 && made; level--) {
        int *own = firsts + (size_t)level * (size_t)places;
        if (level == LEVELS - 1) {
            find_host_firsts(levels, own);
        } else {
            find_firsts(levels, level, all[level + 1], labels, own);
        }
        all[level] = own;
    }
    made = made &&
           wefti_grouping_create(all[LEVELS - 1], places, grouping_out) &&
           wefti_nest_create(all, LEVELS, places, nest_out) &&
           (!*nest_out || wefti_nest_find_sums(*nest_out, all[LEVELS - 1]));
    free(firsts);
    free(labels);
    if (!made) {
        free(*grouping_out);
        wefti_nest_free(*nest_out);
        *grouping_out = NULL;
        *nest_out = NULL;
        return wefti_error(WEFT_ERR_NO_MEMORY, "%d ranks", places);
    }
    const int outer = *grouping_out != NULL; /* hosts are a level of it then */
    if (*nest_out && (*nest_out)->level_count <= outer) {
        wefti_nest_free(*nest_out);
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

/* Levels of sums inside hosts: hosts are the last, where there are several. */
static int count_sums(const wefti_nest *nest)
{
    const wefti_nest *sums = nest ? nest->sums : NULL;
    return !sums                              ? 0
           : sums->circle < sums->level_count ? sums->level_count - 1
                                              : sums->level_count;
}

static void print_level(const char *name, const wefti_nest_level *level,
                        const char *what, FILE *file)
{
    fprintf(file, "%-9s%d groups of up to %d ranks%s\n", name,
            level->group_count, count_most(level), what);
}

void wefti_route_groups_print(const wefti_nest *nest, FILE *file)
{
    for (int i = 0; nest && i < nest->level_count; i++) {
        print_level("nest", &nest->levels[i], "", file);
    }
    for (int i = 0; i < count_sums(nest); i++) {
        print_level("sums", &nest->sums->levels[i],
                    ", each a node of its host's tree, are added up there",
                    file);
    }
    if (nest && count_sums(nest) == 0) {
        fprintf(file,
                "%-9sno group inside a host is a node of its tree: "
                "inputs go straight\n",
                "sums");
    }
}

static void write_levels(const char *name, const wefti_nest *nest, int count,
                         wefti_json *json)
{
    wefti_json_array_open(json, name);
    for (int i = 0; i < count; i++) {
        const wefti_nest_level *level = &nest->levels[i];
        wefti_json_object_open(json, NULL);
        wefti_json_int(json, "groups", level->group_count);
        wefti_json_int(json, "most_ranks", count_most(level));
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}

void wefti_route_groups_write(const wefti_nest *nest, wefti_json *json)
{
    write_levels("nest", nest, nest ? nest->level_count : 0, json);
    write_levels("sums", nest ? nest->sums : NULL, count_sums(nest), json);
}
