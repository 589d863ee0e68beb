/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/moe_place.c - weft/moe_place.h: packing and replicating, each of the
 * least or most loaded in turn.
 */
#include "weft/moe_place.h"

#include "base/error.h"
#include "base/sized.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Room for one call. */
typedef struct place_work {
    int *order, *pack, *rank; /* [items]: by load; where each went */
    double *sums;             /* [packs] */
    int *filled;              /* [packs] */
    double *loads;            /* of a group, then of what is packed */
    int *experts;             /* by host: its experts */
    int *items, *numbers;     /* of a host's replicas: its expert, which one */
    int *counts;              /* of a host's experts */
} place_work;

static weft_status check(const weft_moe_place_config *given, const double *load,
                         const int32_t *expert_out, weft_moe_place_config *own)
{
    if (!given || !load || !expert_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s is NULL: allowed is an address",
                           !given  ? "config"
                           : !load ? "load"
                                   : "expert_out");
    }
    weft_status status = wefti_sized_read(
        "config", given, offsetof(weft_moe_place_config, groups), own,
        sizeof(*own));
    if (status != WEFT_OK) {
        return status;
    }
    own->groups = own->groups ? own->groups : 1;
    own->hosts = own->hosts ? own->hosts : 1;
    if (own->experts < 1 || own->ranks < 1 || own->groups < 1 ||
        own->hosts < 1 || own->replicas < own->experts ||
        own->experts % own->groups != 0 || own->replicas % own->ranks != 0 ||
        own->ranks % own->hosts != 0) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "config: experts %d, replicas %d, ranks %d, groups %d, hosts %d: "
            "allowed is groups that divide the experts, as many replicas at "
            "least, ranks that divide these, hosts that divide the ranks",
            own->experts, own->replicas, own->ranks, own->groups, own->hosts);
    }
    for (int i = 0; i < own->experts; i++) {
        if (!isfinite(load[i]) || load[i] < 0) {
            return wefti_error(WEFT_ERR_INVALID,
                               "load[%d]: %g; allowed is 0 or more", i,
                               load[i]);
        }
    }
    if (own->groups % own->hosts != 0) {
        own->groups = 1;
        own->hosts = 1;
    }
    return WEFT_OK;
}

/* ---- packing --------------------------------------------------------------
 */

/* By load, the most first; of equals the first. */
static void sort_by_load(const double *loads, int items, int *order)
{
    for (int i = 0; i < items; i++) {
        int at = i;
        for (; at > 0 && loads[order[at - 1]] < loads[i]; at--) {
            order[at] = order[at - 1];
        }
        order[at] = i;
    }
}

/* The least loaded pack that has room. */
static int find_pack(const place_work *work, int packs, int room)
{
    int best = -1;
    for (int p = 0; p < packs; p++) {
        if (work->filled[p] < room &&
            (best < 0 || work->sums[p] < work->sums[best])) {
            best = p;
        }
    }
    return best;
}

/* Items to packs, the same number to each: work->pack and rank. One for each
 * stays where it is. */
static void pack(place_work *work, const double *loads, int items, int packs)
{
    const int room = items / packs;
    memset(work->filled, 0, (size_t)packs * sizeof(*work->filled));
    memset(work->sums, 0, (size_t)packs * sizeof(*work->sums));
    sort_by_load(loads, items, work->order);
    for (int i = 0; i < items; i++) {
        int item = room == 1 ? i : work->order[i];
        int to = room == 1 ? i : find_pack(work, packs, room);
        work->pack[item] = to;
        work->rank[item] = work->filled[to]++;
        work->sums[to] += loads[item];
    }
}

/* ---- replicas -------------------------------------------------------------
 */

/* One of each, then one more of what is most loaded, again and again. */
static void replicate(place_work *work, const double *loads, int items,
                      int replicas)
{
    for (int i = 0; i < replicas; i++) {
        int most = i < items ? i : 0;
        for (int k = 0; i >= items && k < items; k++) {
            if (loads[k] / work->counts[k] > loads[most] / work->counts[most]) {
                most = k;
            }
        }
        work->counts[most] = i < items ? 1 : work->counts[most] + 1;
        work->items[i] = most;
        work->numbers[i] = work->counts[most] - 1;
    }
}

/* The groups of each host, in the order of pack; of each its experts. */
static void place_groups(place_work *work, const weft_moe_place_config *config,
                         const double *load)
{
    const int size = config->experts / config->groups;
    const int of_host = config->groups / config->hosts;
    for (int g = 0; g < config->groups; g++) {
        work->loads[g] = 0;
        for (int i = 0; i < size; i++) {
            work->loads[g] += load[g * size + i];
        }
    }
    pack(work, work->loads, config->groups, config->hosts);
    for (int g = 0; g < config->groups; g++) {
        int first = (work->pack[g] * of_host + work->rank[g]) * size;
        for (int i = 0; i < size; i++) {
            work->experts[first + i] = g * size + i;
        }
    }
}

/* A host's replicas to its ranks. */
static void place_host(place_work *work, const weft_moe_place_config *config,
                       const double *load, int host, int32_t *expert_out,
                       int32_t *replica_out, int32_t *count_out)
{
    const int experts = config->experts / config->hosts;
    const int replicas = config->replicas / config->hosts;
    const int ranks = config->ranks / config->hosts;
    const int *own = work->experts + host * experts;
    for (int i = 0; i < experts; i++) {
        work->loads[i] = load[own[i]];
    }
    replicate(work, work->loads, experts, replicas);
    for (int i = 0; i < experts && count_out; i++) {
        count_out[own[i]] = work->counts[i];
    }
    for (int i = 0; i < replicas; i++) {
        int item = work->items[i];
        work->loads[i] = load[own[item]] / work->counts[item];
    }
    pack(work, work->loads, replicas, ranks);
    for (int i = 0; i < replicas; i++) {
        int slot = host * replicas + work->pack[i] * (replicas / ranks) +
                   work->rank[i];
        expert_out[slot] = own[work->items[i]];
        if (replica_out) {
            replica_out[slot] = work->numbers[i];
        }
    }
}

weft_status weft_moe_place(const weft_moe_place_config *config,
                           const double *load, int32_t *expert_out,
                           int32_t *replica_out, int32_t *count_out)
{
    weft_moe_place_config own;
    weft_status status = check(config, load, expert_out, &own);
    if (status != WEFT_OK) {
        return status;
    }
    const size_t room = (size_t)own.replicas; /* the most of anything */
    int *ints = calloc(8 * room, sizeof(*ints));
    double *reals = calloc(2 * room, sizeof(*reals));
    if (!ints || !reals) {
        free(ints);
        free(reals);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d replicas",
                           own.replicas);
    }
    place_work work = {.order = ints,
                       .pack = ints + room,
                       .rank = ints + 2 * room,
                       .filled = ints + 3 * room,
                       .experts = ints + 4 * room,
                       .items = ints + 5 * room,
                       .numbers = ints + 6 * room,
                       .counts = ints + 7 * room,
                       .sums = reals,
                       .loads = reals + room};
    place_groups(&work, &own, load);
    for (int host = 0; host < own.hosts; host++) {
        place_host(&work, &own, load, host, expert_out, replica_out, count_out);
    }
    free(ints);
    free(reals);
    return WEFT_OK;
}
