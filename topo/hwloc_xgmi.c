/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/hwloc_xgmi.c - AMD's links from hwloc's XGMIBandwidth and XGMIHops.
 *
 * The matrix holds MB/s of one direction between every two rsmiN, parts of
 * devices too: links belong to devices, so a pair of devices has what the best
 * pair of their parts has, once. Older hwloc writes 100000 for every pair, and
 * drivers round: the figure is compared with the links that such a GPU has, and
 * one beyond them is not believed, with a warning.
 *
 *     gpu0 -.                     .- gpu3       parts of devices reach what
 *     gpu1 --- bridge0 --- bridge1 -- gpu4      they share by an XGMI link as
 *     gpu2 -'                     '- gpu5       wide as all of the device's
 */
#include "topo/hwloc_file.h"
#include "topo/rates.h"

#include "base/error.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The matrix by devices. */
typedef struct ends {
    int count;
    int *devices;   /* GPUs, or bridges that stand for several */
    int *of;        /* [matrix count] the end of each object; -1 none */
    double *GBps;   /* [count][count]; 0: no direct link */
    int links_most; /* of one of them; 0: of unknown kind */
    double each;    /* GB/s of one link */
    const char *model;
    int sm;
} ends;

static void ends_fini(ends *e)
{
    free(e->devices);
    free(e->of);
    free(e->GBps);
}

/* The GPU that an object of the matrix names; -1: none. */
static int gpu_of(const wefti_topo *topo, const wefti_hwloc_object *object)
{
    while (object && object->device < 0 && object->type == WEFTI_HWLOC_OSDEV) {
        object = object->card ? object->card : object->parent;
    }
    int device = object ? object->device : -1;
    return device >= 0 && topo->devices[device].kind == WEFTI_TOPO_GPU ? device
                                                                       : -1;
}

/* The bridge that stands for its device, or the GPU itself. */
static int owner_of(const wefti_topo *topo, int gpu)
{
    int parent = topo->devices[gpu].parent;
    const wefti_device *above = &topo->devices[parent];
    bool part = above->kind == WEFTI_TOPO_BRIDGE && above->pci.bus[0] &&
                strcmp(above->pci.bus, topo->devices[gpu].pci.bus) == 0;
    return part ? parent : gpu;
}

/* All are of the kind of the first, or the least is expected. */
static void find_limit(const wefti_topo *topo, int gpu, ends *e)
{
    const wefti_device *d = &topo->devices[gpu];
    const wefti_gpu_model *model =
        wefti_gpu_model_find(d->pci.vendor, d->pci.device, d->name);
    int most = model && model->vendor == 0x1002
                   ? model->links
                   : wefti_rate_xgmi_most(d->gpu.sm);
    if (e->count == 0 || most < e->links_most) {
        e->links_most = most;
        e->model = model ? model->name : d->name;
        e->sm = d->gpu.sm;
        e->each = wefti_rate_xgmi(d->gpu.sm).GBps;
    }
}

static void list_ends(const wefti_topo *topo, const wefti_hwloc_matrix *xgmi,
                      ends *e)
{
    for (int i = 0; i < xgmi->count; i++) {
        int gpu = gpu_of(topo, xgmi->objects[i]), end = 0;
        e->of[i] = -1;
        if (gpu < 0) {
            continue;
        }
        int device = owner_of(topo, gpu);
        while (end < e->count && e->devices[end] != device) {
            end++;
        }
        if (end == e->count) {
            find_limit(topo, gpu, e);
            e->devices[e->count++] = device;
        }
        e->of[i] = end;
    }
}

/* Hops between neighbours: 1, or more where parts of one device are nearer. */
static double nearest(const wefti_hwloc_matrix *hops, const ends *e)
{
    double least = HUGE_VAL;
    for (int i = 0; i < hops->count; i++) {
        for (int j = 0; j < hops->count; j++) {
            double own = hops->values[i * hops->count + j];
            if (e->of[i] >= 0 && e->of[j] >= 0 && e->of[i] != e->of[j] &&
                own > 0) {
                least = fmin(least, own);
            }
        }
    }
    return least;
}

static void fill_ends(const wefti_hwloc_matrix *xgmi,
                      const wefti_hwloc_matrix *hops, ends *e)
{
    bool known = hops->count == xgmi->count;
    double near = known ? nearest(hops, e) : 0;
    for (int i = 0; i < xgmi->count; i++) {
        for (int j = 0; j < xgmi->count; j++) {
            int from = e->of[i], to = e->of[j];
            double GBps = xgmi->values[i * xgmi->count + j] / 1000;
            bool direct = !known || hops->values[i * xgmi->count + j] <= near;
            if (from >= 0 && to >= 0 && from != to && direct && GBps < 1e5) {
                double *own = &e->GBps[from * e->count + to];
                *own = fmax(*own, GBps);
            }
        }
    }
}

static weft_status ends_init(const wefti_topo *topo,
                             const wefti_hwloc_matrix *xgmi,
                             const wefti_hwloc_matrix *hops, ends *e)
{
    size_t count = (size_t)xgmi->count;
    *e = (ends){.model = ""};
    e->devices = calloc(count, sizeof(int));
    e->of = calloc(count, sizeof(int));
    if (e->devices && e->of) {
        list_ends(topo, xgmi, e);
        e->GBps =
            calloc((size_t)e->count * (size_t)e->count + 1, sizeof(double));
    }
    if (!e->GBps) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "a matrix of %zu", count);
    }
    fill_ends(xgmi, hops, e);
    return WEFT_OK;
}

/* ---- belief ---------------------------------------------------------------
 */

/* Every pair alike: what hwloc writes where it knows no better. */
static bool is_flat(const ends *e)
{
    for (int i = 0; i < e->count * e->count; i++) {
        if (i / e->count != i % e->count && !(e->GBps[i] == e->GBps[1])) {
            return false;
        }
    }
    return e->count > 2 && e->GBps[1] > 0;
}

/* GB/s of all links of the one that claims most, and how many links that is. */
static double sum_most(const ends *e)
{
    double most = 0;
    for (int i = 0; i < e->count; i++) {
        double sum = 0;
        for (int j = 0; j < e->count; j++) {
            sum += e->GBps[i * e->count + j];
        }
        most = fmax(most, sum);
    }
    return most;
}

/* Links that carry as much: the nearest number, as drivers round, unless all
 * together would be more than there are. */
static int links_of(const ends *e, double GBps)
{
    int count = (int)lround(GBps / e->each);
    bool rounds = e->links_most == 0 || count * (e->count - 1) <= e->links_most;
    count = rounds ? count : (int)(GBps / e->each + 0.01);
    return count < 1 ? 1 : count;
}

/* A figure known to be wrong is corrected, with a warning. */
static void hold_flat(wefti_hwloc_import *in, ends *e, double most)
{
    int peers = e->count - 1, each = e->links_most / peers;
    int stated = (int)lround(e->GBps[1] / e->each) * peers;
    double GBps = fmin(e->GBps[1], each * e->each);
    char what[96] = "nothing is planned with them";
    if (GBps > 0) {
        snprintf(what, sizeof(what), "planned with %.4g GB/s for each pair",
                 GBps);
    }
    in->topo->links_unknown = true;
    wefti_topo_warn(in->topo, 21, in->path,
                    "links unknown: the XGMI matrix has one value for every "
                    "pair, %.4g GB/s: %d links a GPU (%.4g GB/s), and a %.30s "
                    "has %d of %g, not all alike; %s",
                    e->GBps[1], stated, most, e->model, e->links_most, e->each,
                    what);
    for (int i = 0; i < e->count * e->count; i++) {
        e->GBps[i] = i / e->count == i % e->count ? 0 : GBps;
    }
}

static void hold_uneven(wefti_hwloc_import *in, ends *e, double most)
{
    double limit = e->links_most * e->each;
    wefti_topo_warn(in->topo, 20, in->path,
                    "XGMI bandwidths of hwloc %.40s come to %.4g GB/s a GPU, "
                    "and a %.30s has %d links of %g: scaled down to that",
                    in->version[0] ? in->version : "(version unknown)", most,
                    e->model, e->links_most, e->each);
    for (int i = 0; i < e->count * e->count; i++) {
        e->GBps[i] *= limit / most;
    }
}

/* True: what is left of it is our assumption. */
static bool hold_against_model(wefti_hwloc_import *in, ends *e)
{
    double most = sum_most(e);
    bool over = most > 1.01 * e->links_most * e->each;
    if (e->count < 2 || !(most > 0)) {
        return false;
    }
    if (e->links_most == 0) {
        wefti_topo_warn(in->topo, 20, in->path,
                        "XGMI bandwidths of up to %.4g GB/s a GPU, of which "
                        "kind (%.30s) it is unknown how many links it has: "
                        "taken as they are",
                        most, e->model);
        return false;
    }
    bool even = wefti_rate_xgmi_even(e->sm) && e->count <= e->links_most + 1;
    if (is_flat(e) && !even) {
        hold_flat(in, e, most);
        return true;
    }
    if (over) {
        hold_uneven(in, e, most);
    }
    return false;
}

/* ---- claims ---------------------------------------------------------------
 */

/* Each part reaches all links of its device. */
static void claim_parts(wefti_hwloc_import *in, wefti_claim all)
{
    int bridge = all.from;
    for (int i = bridge + 1; i < in->topo->device_count; i++) {
        if (in->topo->devices[i].parent == bridge && all.count > 0) {
            all.from = i;
            all.to = bridge;
            wefti_claims_add(in->topo, &in->claims, all);
        }
    }
}

static void claim_end(wefti_hwloc_import *in, const ends *e, int from,
                      bool assumed)
{
    wefti_claim all = {.from = e->devices[from],
                       .type = WEFTI_LINK_XGMI,
                       .origin =
                           assumed ? WEFTI_ORIGIN_TABLE : WEFTI_ORIGIN_READ,
                       .assumed = assumed};
    for (int to = 0; to < e->count; to++) {
        wefti_claim one = all;
        one.to = e->devices[to];
        one.GBps = e->GBps[from * e->count + to];
        one.count = links_of(e, one.GBps);
        if (one.GBps > 0) {
            wefti_claims_add(in->topo, &in->claims, one);
        }
    }
    for (int to = 0; to < e->count; to++) {
        double GBps = e->GBps[from * e->count + to];
        all.GBps += GBps;
        all.count += GBps > 0 ? links_of(e, GBps) : 0;
    }
    if (in->topo->devices[all.from].kind == WEFTI_TOPO_BRIDGE) {
        claim_parts(in, all);
    }
}

weft_status wefti_hwloc_claim_xgmi(wefti_hwloc_import *in,
                                   const wefti_hwloc_matrix *xgmi,
                                   const wefti_hwloc_matrix *hops)
{
    ends e;
    weft_status status = ends_init(in->topo, xgmi, hops, &e);
    if (status == WEFT_OK) {
        bool assumed = hold_against_model(in, &e);
        for (int i = 0; i < e.count; i++) {
            claim_end(in, &e, i, assumed);
        }
    }
    ends_fini(&e);
    return status;
}
