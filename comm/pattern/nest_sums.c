/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/nest_sums.c - the groups that are added up by themselves: of
 * each group the largest nodes of its host's tree.
 */
#include "base/check.h"
#include "comm/pattern/nest.h"
#include "kernels/wire/reduce_level.h"

#include <stdlib.h>

/* Ranks of one host, ascending, and which group each is in. */
typedef struct host_tree {
    const int *ranks, *groups;
    int *firsts; /* [nranks] of all ranks */
} host_tree;

/* Parts the node of ranks [begin, begin + count) until each lies in one group.
 */
static void part_node(const host_tree *tree, int begin, int count)
{
    const int *ranks = tree->ranks + begin;
    int alike = 1;
    while (alike < count &&
           tree->groups[ranks[alike]] == tree->groups[ranks[0]]) {
        alike++;
    }
    if (alike == count) {
        for (int i = 0; i < count; i++) {
            tree->firsts[ranks[i]] = ranks[0];
        }
        return;
    }
    int low = (int)wefti_reduce_split((size_t)count);
    part_node(tree, begin, low);
    part_node(tree, begin + low, count - low);
}

/* groups: [nranks] a number for each rank's group. ranks: [nranks] scratch. */
static void part_groups(const int *groups, const int *host_firsts, int nranks,
                        int *ranks, int *firsts)
{
    for (int host = 0; host < nranks; host++) {
        const host_tree tree = {ranks, groups, firsts};
        int count = 0;
        if (host_firsts ? host_firsts[host] != host : host > 0) {
            continue;
        }
        for (int rank = host; rank < nranks; rank++) {
            if (!host_firsts || host_firsts[rank] == host) {
                ranks[count++] = rank;
            }
        }
        part_node(&tree, 0, count);
    }
}

/* groups: [nranks] scratch. */
static void number_ranks(const wefti_nest *nest, int level, int *groups)
{
    for (int rank = 0; rank < nest->nranks; rank++) {
        groups[rank] = nest->levels[level].groups[nest->places[rank]];
    }
}

static bool are_several(const int *host_firsts, int nranks)
{
    for (int rank = 0; host_firsts && rank < nranks; rank++) {
        if (host_firsts[rank] != 0) {
            return true;
        }
    }
    return false;
}

bool wefti_nest_find_sums(wefti_nest *nest, const int *host_firsts)
{
    enum { LEVELS = WEFTI_NEST_LEVELS_MOST };
    const int *levels[LEVELS + 1];
    const size_t ranks = (size_t)nest->nranks;
    const bool hosts = are_several(host_firsts, nest->nranks);
    int count = nest->level_count;
    int *room = calloc((LEVELS + 2) * ranks, sizeof(*room));
    if (!room) {
        return false;
    }
    for (int level = 0; level < count; level++) {
        int *firsts = room + (size_t)(2 + level) * ranks;
        number_ranks(nest, level, room);
        part_groups(room, host_firsts, nest->nranks, room + ranks, firsts);
        levels[level] = firsts;
    }
    if (hosts && count < LEVELS) {
        levels[count++] = host_firsts;
    }
    bool made = wefti_nest_create(levels, count, nest->nranks, &nest->sums);
    free(room);
    if (nest->sums && nest->sums->level_count <= hosts) { /* hosts alone */
        wefti_nest_free(nest->sums);
        nest->sums = NULL;
    }
    if (nest->sums && !hosts) {
        nest->sums->circle = nest->sums->level_count;
    }
    return made;
}

void wefti_nest_free(wefti_nest *nest)
{
    if (nest) {
        free(nest->sums);
        free(nest);
    }
}
