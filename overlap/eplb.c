/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/eplb.c - packs, replicas, and packs again.
 */
#include "overlap/eplb.h"

#include "base/error.h"

#include <stdlib.h>

/* ---- pack -----------------------------------------------------------------
 */

/* Items by load, the heaviest first. */
static void sort_items(const double *load, int count, int *order_out)
{
    for (int i = 0; i < count; i++) {
        int at = i;
        for (; at > 0 && load[order_out[at - 1]] < load[i]; at--) {
            order_out[at] = order_out[at - 1];
        }
        order_out[at] = i;
    }
}

/* What packing and replicating need room for. */
typedef struct room {
    int *order;        /* [items] */
    double *sums;      /* [packs] */
    int *held;         /* [packs] */
    double *load;      /* [items] */
    int *pack, *place; /* [items] */
    int *listed;       /* [experts] those of a node */
    int *item, *rank;  /* [replicas] of a node: which of its experts, and the
                          how-manieth of it */
    int *counts;       /* [experts] replicas of a node's */
} room;

/* The pack of each of count items and its place there; as many in each. */
static void pack(room *of, const double *load, int count, int packs)
{
    const int each = count / packs;
    sort_items(load, count, of->order);
    for (int p = 0; p < packs; p++) {
        of->sums[p] = 0;
        of->held[p] = 0;
    }
    for (int i = 0; i < count; i++) {
        const int item = each == 1 ? i : of->order[i];
        int best = -1;
        for (int p = 0; p < packs; p++) {
            if (each == 1 ? p == item
                          : of->held[p] < each &&
                                (best < 0 || of->sums[p] < of->sums[best])) {
                best = p;
            }
        }
        of->pack[item] = best;
        of->place[item] = of->held[best]++;
        of->sums[best] += load[item];
    }
}

/* ---- replicate ------------------------------------------------------------
 */

/* The first ones are the items; each further one is of the item that has most
 * to do. */
static void replicate(room *of, const double *load, int items, int replicas)
{
    for (int i = 0; i < items; i++) {
        of->item[i] = i;
        of->rank[i] = 0;
        of->counts[i] = 1;
    }
    for (int r = items; r < replicas; r++) {
        int most = 0;
        for (int i = 1; i < items; i++) {
            if (load[i] / of->counts[i] > load[most] / of->counts[most]) {
                most = i;
            }
        }
        of->item[r] = most;
        of->rank[r] = of->counts[most]++;
    }
}

/* ---- placing --------------------------------------------------------------
 */

static weft_status check(const wefti_eplb *how)
{
    return how->experts > 0 && how->groups > 0 && how->nodes > 0 &&
                   how->ranks > 0 && how->experts % how->groups == 0 &&
                   how->replicas % how->ranks == 0 &&
                   how->ranks % how->nodes == 0 && how->replicas >= how->experts
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%d experts in %d groups, %d replicas on %d ranks "
                             "of %d nodes: allowed are groups that divide "
                             "experts, ranks that divide replicas, nodes that "
                             "divide ranks, and no fewer replicas than experts",
                             how->experts, how->groups, how->replicas,
                             how->ranks, how->nodes);
}

static void free_room(room *of)
{
    free(of->order);
    free(of->sums);
    free(of->held);
    free(of->load);
    free(of->pack);
    free(of->place);
    free(of->listed);
    free(of->item);
    free(of->rank);
    free(of->counts);
}

static weft_status take_room(room *of, const wefti_eplb *how)
{
    const size_t items = (size_t)how->replicas; /* no fewer than all others */
    *of = (room){.order = calloc(items, sizeof(int)),
                 .sums = calloc(items, sizeof(double)),
                 .held = calloc(items, sizeof(int)),
                 .load = calloc(items, sizeof(double)),
                 .pack = calloc(items, sizeof(int)),
                 .place = calloc(items, sizeof(int)),
                 .listed = calloc(items, sizeof(int)),
                 .item = calloc(items, sizeof(int)),
                 .rank = calloc(items, sizeof(int)),
                 .counts = calloc(items, sizeof(int))};
    if (of->order && of->sums && of->held && of->load && of->pack &&
        of->place && of->listed && of->item && of->rank && of->counts) {
        return WEFT_OK;
    }
    free_room(of);
    return wefti_error(WEFT_ERR_NO_MEMORY, "no memory to place %zu replicas",
                       items);
}

/* All nodes' experts, node by node: its groups as packed, each in order. */
static void list_experts(room *of, const wefti_eplb *how, const double *load)
{
    const int a_group = how->experts / how->groups;
    const int a_node = how->groups / how->nodes;
    for (int g = 0; g < how->groups; g++) {
        of->load[g] = 0;
        for (int e = g * a_group; e < (g + 1) * a_group; e++) {
            of->load[g] += load[e];
        }
    }
    pack(of, of->load, how->groups, how->nodes);
    for (int e = 0; e < how->experts; e++) {
        const int g = e / a_group;
        const int begin = (of->pack[g] * a_node + of->place[g]) * a_group;
        of->listed[begin + e % a_group] = e;
    }
}

static void place_node(room *of, const wefti_eplb *how, const double *load,
                       int node, int *expert_out, int *slots_out,
                       int *count_out)
{
    const int items = how->experts / how->nodes;
    const int replicas = how->replicas / how->nodes;
    const int ranks = how->ranks / how->nodes;
    const int *listed = of->listed + node * items;
    const int most = how->replicas - how->experts + 1;
    for (int i = 0; i < items; i++) {
        of->load[i] = load[listed[i]];
    }
    replicate(of, of->load, items, replicas);
    for (int r = replicas; r-- > 0;) { /* the first ones are read the longest */
        of->load[r] = load[listed[of->item[r]]] / of->counts[of->item[r]];
    }
    pack(of, of->load, replicas, ranks);
    for (int r = 0; r < replicas; r++) {
        const int expert = listed[of->item[r]];
        const int slot =
            node * replicas + of->pack[r] * (replicas / ranks) + of->place[r];
        expert_out[slot] = expert;
        slots_out[expert * most + of->rank[r]] = slot;
        count_out[expert] = of->counts[of->item[r]];
    }
}

weft_status wefti_eplb_place(const wefti_eplb *how, const double *load,
                             int *expert_out, int *slots_out, int *count_out)
{
    wefti_eplb used = *how;
    room of;
    weft_status status = check(how);
    if (status == WEFT_OK) {
        status = take_room(&of, how);
    }
    if (status != WEFT_OK) {
        return status;
    }
    if (how->groups % how->nodes != 0) {
        used.groups = used.nodes = 1;
    }
    const int all = how->experts * (how->replicas - how->experts + 1);
    for (int i = 0; i < all; i++) {
        slots_out[i] = -1;
    }
    list_experts(&of, &used, load);
    for (int node = 0; node < used.nodes; node++) {
        place_node(&of, &used, load, node, expert_out, slots_out, count_out);
    }
    free_room(&of);
    return WEFT_OK;
}
