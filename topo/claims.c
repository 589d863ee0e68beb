/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/claims.c - NVLinks from what both their ends say of them.
 */
#include "topo/assemble.h"
#include "topo/rates.h"

#include <math.h>
#include <stdlib.h>

bool wefti_claims_add(wefti_topo *topo, wefti_claims *claims, wefti_claim claim)
{
    if (claim.from < 0) {
        return false;
    }
    for (int i = 0; i < claims->count; i++) {
        wefti_claim *old = &claims->list[i];
        if (old->from == claim.from && old->to == claim.to &&
            old->type == claim.type) {
            old->count += claim.count;
            old->down += claim.down;
            old->GBps += claim.GBps;
            return true;
        }
    }
    if (claims->count == claims->room) {
        int room = claims->room ? 2 * claims->room : 64;
        wefti_claim *grown =
            realloc(claims->list, (size_t)room * sizeof(*grown));
        if (!grown) {
            topo->out_of_memory = true;
            return false;
        }
        claims->list = grown;
        claims->room = room;
    }
    claims->list[claims->count++] = claim;
    return true;
}

void wefti_claims_fini(wefti_claims *claims)
{
    free(claims->list);
    *claims = (wefti_claims){0};
}

static const wefti_claim *find(const wefti_claims *claims, int from, int to,
                               wefti_link_type type)
{
    for (int i = 0; i < claims->count; i++) {
        const wefti_claim *claim = &claims->list[i];
        if (claim->from == from && claim->to == to && claim->type == type) {
            return claim;
        }
    }
    return NULL;
}

static wefti_rate rate_each(const wefti_topo *topo, const wefti_claim *claim)
{
    const wefti_gpu *gpu = &topo->devices[claim->from].gpu;
    int sm = gpu->sm;
    if (claim->to >= 0 && topo->devices[claim->to].kind == WEFTI_TOPO_GPU &&
        topo->devices[claim->to].gpu.sm < sm) {
        sm = topo->devices[claim->to].gpu.sm;
    }
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
            return; /* told and added from the other end */
        }
    } else if (claim->from > claim->to) {
        return;
    }
    count = count < claim->count ? count : claim->count;
    if (count > 0 || claim->down > 0) {
        add(topo, claim, claim->to, count);
    }
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
        } else if (topo->devices[claim->to].kind == WEFTI_TOPO_GPU) {
            settle_pair(topo, claims, claim);
        } else {
            add(topo, claim, claim->to, claim->count);
        }
    }
}
