/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/worst.c - kinds of hosts by what their devices and links are, and which
 * kind's rings carry least.
 */
#include "topo/worst.h"

#include "base/error.h"
#include "topo/assemble.h"
#include "topo/rings.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINDS_MOST 64 /* that are planned */

typedef struct kind {
    uint64_t signature;
    int clique;         /* the first of its kind */
    int count;          /* cliques of it */
    double least, most; /* GB/s of all links of its poorest and richest GPU */
    int poorest;        /* that GPU */
    double ports_GBps;  /* of all usable ports */
    double rings, net;  /* GB/s; -1: has none, or was not planned */
} kind;

/* ---- kinds ----------------------------------------------------------------
 */

static uint64_t mix(uint64_t hash, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++) { /* FNV-1a */
        hash = (hash ^ at[i]) * 1099511628211u;
    }
    return hash;
}

static uint64_t mix_int(uint64_t hash, int value)
{
    return mix(hash, &value, sizeof(value));
}

static uint64_t mix_device(uint64_t hash, const wefti_device *d, int first)
{
    hash = mix_int(hash, (int)d->kind);
    hash = mix_int(hash, d->parent - first);
    if (d->kind == WEFTI_TOPO_GPU) {
        hash = mix_int(hash, d->gpu.sm);
        hash = mix_int(hash,
                       d->gpu.amd * 4 + d->gpu.gdr * 2 + (d->gpu.domain != 0));
    } else if (d->kind == WEFTI_TOPO_NIC) {
        hash = mix_int(hash, (int)d->nic.kind * 8 + (int)d->nic.state);
        hash = mix_int(hash, d->nic.gdr);
        hash = mix(hash, &d->nic.gbps, sizeof(d->nic.gbps));
    } else if (d->kind == WEFTI_TOPO_NUMA) {
        hash = mix(hash, d->cpu.vendor, strlen(d->cpu.vendor));
    }
    return hash;
}

/* Signatures of all cliques. Links of a host lie together, in its order. */
static void sign(const wefti_paths *paths, kind *kinds)
{
    const wefti_topo *topo = paths->topo;
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *d = &topo->devices[i];
        int host = topo->devices[d->host].ordinal;
        kind *k = &kinds[paths->host_cliques[host]];
        k->signature = mix_device(k->signature, d, d->host);
    }
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        int first = topo->devices[link->a].host;
        kind *k = &kinds[paths->host_cliques[topo->devices[first].ordinal]];
        k->signature = mix_int(k->signature, link->a - first);
        k->signature = mix_int(k->signature, link->b - first);
        k->signature =
            mix_int(k->signature, (int)link->type * 4096 + link->count);
        k->signature = mix(k->signature, &link->GBps, sizeof(link->GBps));
        k->signature =
            mix(k->signature, &link->nccl_GBps, sizeof(link->nccl_GBps));
    }
}

/* leaving: [device_count] GB/s of all links of each device. */
static void measure(const wefti_paths *paths, const double *leaving, kind *k)
{
    const wefti_clique *c = &paths->cliques[k->clique];
    k->least = HUGE_VAL;
    k->rings = k->net = -1;
    for (int i = 0; i < c->gpu_count; i++) {
        int gpu = paths->clique_gpus[c->first_gpu + i];
        double own = leaving[paths->gpus[gpu]];
        if (own < k->least) {
            k->least = own;
            k->poorest = gpu;
        }
        k->most = fmax(k->most, own);
    }
    for (int i = 0; i < c->nic_count; i++) {
        int nic = paths->nics[paths->clique_nics[c->first_nic + i]];
        bool usable = wefti_topo_nic_usable(paths->topo, nic);
        k->ports_GBps += usable ? paths->topo->devices[nic].nic.gbps / 8 : 0;
    }
}

static int by_signature(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    return x->signature != y->signature ? (x->signature < y->signature ? -1 : 1)
                                        : x->clique - y->clique;
}

/* The poorest first: those are planned where there are too many. */
static int by_links(const void *a, const void *b)
{
    const kind *x = a, *y = b;
    return x->least < y->least   ? -1
           : x->least > y->least ? 1
                                 : x->clique - y->clique;
}

/* Cliques that have GPUs, each kind once; how many kinds there are. */
static int list_kinds(const wefti_paths *paths, const double *leaving,
                      kind *kinds)
{
    int count = 0, kept = 0;
    for (int i = 0; i < paths->clique_count; i++) {
        kinds[i] =
            (kind){.signature = 1469598103934665603u, .clique = i, .count = 1};
    }
    sign(paths, kinds);
    for (int i = 0; i < paths->clique_count; i++) {
        if (paths->cliques[i].gpu_count > 0) {
            kinds[count++] = kinds[i];
        }
    }
    qsort(kinds, (size_t)count, sizeof(*kinds), by_signature);
    for (int i = 0; i < count; i++) {
        if (kept > 0 && kinds[kept - 1].signature == kinds[i].signature) {
            kinds[kept - 1].count++;
        } else {
            kinds[kept++] = kinds[i];
        }
    }
    for (int i = 0; i < kept; i++) {
        measure(paths, leaving, &kinds[i]);
    }
    qsort(kinds, (size_t)kept, sizeof(*kinds), by_links);
    return kept;
}

/* ---- the worst ------------------------------------------------------------
 */

static int host_of(const wefti_paths *paths, const kind *k)
{
    return paths->clique_hosts[paths->cliques[k->clique].first_host];
}

static double total_of(wefti_rings *rings)
{
    double total = rings->channels > 0 ? rings->channels * rings->GBps : -1;
    wefti_rings_fini(rings);
    return total;
}

static weft_status plan(const wefti_paths *paths, kind *k)
{
    wefti_rings rings;
    weft_status status = wefti_rings_plan(paths, host_of(paths, k), &rings);
    if (status == WEFT_OK) {
        k->rings = total_of(&rings);
        if (k->ports_GBps > 0) {
            status = wefti_rings_plan_net(paths, host_of(paths, k), &rings);
        }
    }
    if (status == WEFT_OK && k->ports_GBps > 0) {
        k->net = total_of(&rings);
    }
    return status;
}

static double figure(const kind *k, bool net)
{
    return net ? k->net : k->rings;
}

/* The kind with the least; of equals that of the first host. */
static const kind *find_least(const kind *kinds, int count, bool net)
{
    const kind *least = NULL;
    for (int i = 0; i < count; i++) {
        double own = figure(&kinds[i], net);
        double best = least ? figure(least, net) : HUGE_VAL;
        bool first = least && own == best && kinds[i].clique < least->clique;
        least = own >= 0 && (own < best || first) ? &kinds[i] : least;
    }
    return least;
}

/* What most hosts are; of equals the fastest. */
static const kind *find_usual(const kind *kinds, int count, bool net)
{
    const kind *usual = NULL;
    for (int i = 0; i < count; i++) {
        const kind *k = &kinds[i];
        bool more =
            !usual || k->count > usual->count ||
            (k->count == usual->count && figure(k, net) > figure(usual, net));
        usual = figure(k, net) >= 0 && more ? k : usual;
    }
    return usual;
}

/* By which device the host falls behind, as far as links show. */
static void blame(const wefti_paths *paths, const kind *k, const kind *usual,
                  bool net, char *text, size_t room)
{
    char label[64];
    const char *poorest =
        wefti_topo_label(paths->topo, paths->gpus[k->poorest], label);
    if (k->least < 0.95 * k->most && k->least < 0.95 * usual->least) {
        snprintf(text, room, "%s has %.4g GB/s of links, its neighbours %.4g",
                 poorest, k->least, k->most);
    } else if (k->least < 0.95 * usual->least) {
        snprintf(text, room,
                 "its GPUs have %.4g GB/s of links each, there "
                 "%.4g",
                 k->least, usual->least);
    } else if (net && k->ports_GBps < 0.95 * usual->ports_GBps) {
        snprintf(text, room, "its ports carry %.4g GB/s, there %.4g",
                 k->ports_GBps, usual->ports_GBps);
    } else {
        snprintf(text, room, "how its devices are joined differs");
    }
}

/* Every kind that falls behind what most hosts are. */
static void warn_kinds(const wefti_paths *paths, wefti_topo *topo,
                       const kind *kinds, int count, bool net)
{
    const kind *usual = find_usual(kinds, count, net);
    for (int i = 0; i < count && usual; i++) {
        const kind *k = &kinds[i];
        char id[WEFTI_TOPO_ID_BYTES], why[128];
        double own = figure(k, net), most = figure(usual, net);
        if (own < 0 || own >= 0.95 * most || k == usual) {
            continue;
        }
        int host = paths->hosts[host_of(paths, k)].first_device;
        blame(paths, k, usual, net, why, sizeof(why));
        wefti_topo_warn(topo, 4, wefti_topo_id(topo, host, id),
                        "its rings%s carry %.4g GB/s, those of most hosts "
                        "%.4g: %s",
                        net ? " over hosts" : "", own, most, why);
    }
}

static weft_status plan_all(const wefti_paths *paths, wefti_topo *topo,
                            kind *kinds, int count, wefti_worst *worst)
{
    weft_status status = WEFT_OK;
    count = count < KINDS_MOST ? count : KINDS_MOST;
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        status = plan(paths, &kinds[i]);
    }
    if (status == WEFT_OK) {
        const kind *least = find_least(kinds, count, false);
        const kind *net = find_least(kinds, count, true);
        worst->host = least ? host_of(paths, least) : worst->host;
        worst->net_host = net ? host_of(paths, net) : worst->host;
        warn_kinds(paths, topo, kinds, count, false);
        warn_kinds(paths, topo, kinds, count, true);
    }
    return status;
}

weft_status wefti_worst_find(const wefti_paths *paths, wefti_topo *topo,
                             wefti_worst *worst_out)
{
    kind *kinds = calloc((size_t)paths->clique_count + 1, sizeof(*kinds));
    double *leaving = calloc((size_t)topo->device_count + 1, sizeof(*leaving));
    weft_status status = WEFT_OK;
    *worst_out = (wefti_worst){-1, -1, 0};
    if (!kinds || !leaving) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "%d hosts", paths->host_count);
        goto err_free;
    }
    for (int i = 0; i < topo->link_count; i++) {
        leaving[topo->links[i].a] += topo->links[i].nccl_GBps;
        leaving[topo->links[i].b] += topo->links[i].nccl_GBps;
    }
    worst_out->kinds = list_kinds(paths, leaving, kinds);
    for (int i = 0; i < worst_out->kinds; i++) {
        int host = host_of(paths, &kinds[i]);
        bool first = worst_out->host < 0 || host < worst_out->host;
        worst_out->host = first ? host : worst_out->host;
    }
    worst_out->net_host = worst_out->host;
    if (worst_out->kinds > 1) {
        status = plan_all(paths, topo, kinds, worst_out->kinds, worst_out);
    }
err_free:
    free(kinds);
    free(leaving);
    return status;
}

/* The most that a GPU's paths to others of its clique carry. */
static double widest(const wefti_paths *paths, const wefti_clique *c, int gpu)
{
    double most = 0;
    for (int i = 0; i < c->gpu_count; i++) {
        int other = paths->clique_gpus[c->first_gpu + i];
        wefti_topo_path path = wefti_path_gpu_gpu(paths, gpu, other);
        if (other != gpu && path.type != WEFTI_PATH_NET) {
            most = fmax(most, path.nccl_GBps);
        }
    }
    return most;
}

void wefti_worst_warn_fallback(const wefti_paths *paths, wefti_topo *topo,
                               int host, const wefti_rings *rings)
{
    const wefti_clique *c = &paths->cliques[paths->host_cliques[host]];
    double least = HUGE_VAL;
    char label[64];
    int worst = -1;
    if (rings->channels != 1 || rings->most_use > 0 || c->gpu_count < 2) {
        return;
    }
    for (int i = 0; i < c->gpu_count; i++) {
        int gpu = paths->clique_gpus[c->first_gpu + i];
        double own = widest(paths, c, gpu);
        if (own < least) {
            least = own;
            worst = gpu;
        }
    }
    wefti_topo_warn(topo, 4, wefti_topo_label(topo, paths->gpus[worst], label),
                    "no ring over its %d GPUs fits: %g GB/s is planned. It "
                    "reaches no other at more than %.4g GB/s",
                    c->gpu_count, rings->GBps, least);
}
