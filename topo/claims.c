/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/claims.c - NVLinks from what both their ends claim.
 */
#include "topo/assemble.h"
#include "topo/rates.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where a claim is, or would be, in the table of slots. */
static int slot_of(const wefti_claims *claims, int from, int to,
                   wefti_link_type type)
{
    uint64_t hash = ((uint64_t)(uint32_t)from << 32 | (uint32_t)to) * 8 + type;
    hash *= 0x9e3779b97f4a7c15u;
    int at = (int)(hash >> 32) & (claims->slot_count - 1);
    while (claims->slots[at] >= 0) {
        const wefti_claim *claim = &claims->list[claims->slots[at]];
        if (claim->from == from && claim->to == to && claim->type == type) {
            break;
        }
        at = (at + 1) & (claims->slot_count - 1);
    }
    return at;
}

/* Room for one more claim, its table at most half full. */
static bool grow(wefti_claims *claims)
{
    if (claims->count < claims->room) {
        return true;
    }
    int room = claims->room ? 2 * claims->room : 64;
    wefti_claim *list =
        realloc(claims->list, (size_t)room * sizeof(*claims->list));
    claims->list = list ? list : claims->list;
    int *slots = malloc(2 * (size_t)room * sizeof(*slots));
    if (!list || !slots) {
        free(slots);
        return false;
    }
    free(claims->slots);
    claims->slots = slots;
    claims->room = room;
    claims->slot_count = 2 * room;
    memset(slots, 0xff, 2 * (size_t)room * sizeof(*slots));
    for (int i = 0; i < claims->count; i++) {
        const wefti_claim *claim = &claims->list[i];
        slots[slot_of(claims, claim->from, claim->to, claim->type)] = i;
    }
    return true;
}

bool wefti_claims_add(wefti_topo *topo, wefti_claims *claims, wefti_claim claim)
{
    if (claim.from < 0) {
        return false;
    }
    if (!grow(claims)) {
        topo->out_of_memory = true;
        return false;
    }
    int slot = slot_of(claims, claim.from, claim.to, claim.type);
    if (claims->slots[slot] >= 0) {
        wefti_claim *old = &claims->list[claims->slots[slot]];
        old->count += claim.count;
        old->down += claim.down;
        old->GBps += claim.GBps;
    } else {
        claims->slots[slot] = claims->count;
        claims->list[claims->count++] = claim;
    }
    return true;
}

void wefti_claims_fini(wefti_claims *claims)
{
    free(claims->list);
    free(claims->slots);
    *claims = (wefti_claims){0};
}

static const wefti_claim *find(const wefti_claims *claims, int from, int to,
                               wefti_link_type type)
{
    int slot = slot_of(claims, from, to, type);
    return claims->slots[slot] >= 0 ? &claims->list[claims->slots[slot]] : NULL;
}

/* Of a GPU, or of the first of a bridge's GPUs; -1: it has none. */
static int sm_of(const wefti_topo *topo, int device)
{
    int first = device + 1;
    if (device < 0 || topo->devices[device].kind == WEFTI_TOPO_GPU) {
        return device < 0 ? -1 : topo->devices[device].gpu.sm;
    }
    return topo->devices[device].kind == WEFTI_TOPO_BRIDGE &&
                   first < topo->device_count &&
                   topo->devices[first].parent == device &&
                   topo->devices[first].kind == WEFTI_TOPO_GPU
               ? topo->devices[first].gpu.sm
               : -1;
}

static wefti_rate rate_each(const wefti_topo *topo, const wefti_claim *claim)
{
    int sm = sm_of(topo, claim->from), other = sm_of(topo, claim->to);
    sm = other >= 0 && other < sm ? other : sm;
    return claim->type == WEFTI_LINK_XGMI ? wefti_rate_xgmi(sm)
                                          : wefti_rate_nvlink(sm);
}

static void add(wefti_topo *topo, const wefti_claim *claim, int to, int count)
{
    wefti_rate rate = rate_each(topo, claim);
    double GBps = rate.GBps * count, nccl_GBps = rate.nccl_GBps * count;
    wefti_origin origin = WEFTI_ORIGIN_TABLE;
    if (claim->GBps > 0) {
        GBps =
            claim->count > 0 ? claim->GBps * count / claim->count : claim->GBps;
        origin = claim->origin;
        /* A link that was read as slow is not planned for as a fast one. */
        nccl_GBps = fmin(nccl_GBps, GBps);
    }
    if (claim->type == WEFTI_LINK_C2C || claim->type == WEFTI_LINK_PCI) {
        nccl_GBps = GBps;
    }
    int link =
        wefti_topo_add_link(topo, claim->from, to, claim->type, GBps, origin);
    if (link >= 0) {
        topo->links[link].count = count;
        topo->links[link].down = claim->down;
        topo->links[link].nccl_GBps = nccl_GBps;
        topo->links[link].assumed = claim->assumed;
    }
}

/* The one node that stands for all NVSwitches of a host. */
static int switch_of(wefti_topo *topo, int host)
{
    for (int i = host; i < topo->device_count; i++) {
        if (topo->devices[i].host == host &&
            topo->devices[i].kind == WEFTI_TOPO_NVSWITCH) {
            return i;
        }
    }
    return wefti_topo_add_device(topo, WEFTI_TOPO_NVSWITCH, host, "NVSwitch");
}

/* A link between two GPUs: as many as the end that lists fewer. */
static void settle_pair(wefti_topo *topo, const wefti_claims *claims,
                        const wefti_claim *claim)
{
    const wefti_claim *back = find(claims, claim->to, claim->from, claim->type);
    if (claims->one_sided_ok && !back) {
        add(topo, claim, claim->to, claim->count);
        return;
    }
    int count = back ? back->count : 0;
    if (count != claim->count) {
        char a[64], b[64];
        wefti_topo_label(topo, claim->from, a);
        wefti_topo_label(topo, claim->to, b);
        wefti_topo_warn(topo, 7, a,
                        "%d links to %s, which lists %d back: %d used",
                        claim->count, b, count,
                        count < claim->count ? count : claim->count);
        if (back && claim->from > claim->to) {
            return; /* warned of and added from the other end */
        }
    } else if (claim->from > claim->to) {
        return;
    }
    count = count < claim->count ? count : claim->count;
    if (count > 0 || claim->down > 0) {
        add(topo, claim, claim->to, count);
    }
}

/* Between GPUs, or devices of several GPUs, each of which reports it. */
static bool has_two_ends(const wefti_topo *topo, const wefti_claim *claim)
{
    wefti_topo_kind from = topo->devices[claim->from].kind;
    wefti_topo_kind to = topo->devices[claim->to].kind;
    return to == WEFTI_TOPO_GPU || (claim->type == WEFTI_LINK_XGMI &&
                                    from == WEFTI_TOPO_BRIDGE && from == to);
}

void wefti_claims_settle(wefti_topo *topo, const wefti_claims *claims)
{
    for (int i = 0; i < claims->count && !topo->out_of_memory; i++) {
        const wefti_claim *claim = &claims->list[i];
        if (claim->to < 0) {
            int hub = switch_of(topo, topo->devices[claim->from].host);
            if (hub >= 0) {
                add(topo, claim, hub, claim->count);
            }
        } else if (has_two_ends(topo, claim)) {
            settle_pair(topo, claims, claim);
        } else {
            add(topo, claim, claim->to, claim->count);
        }
    }
}
