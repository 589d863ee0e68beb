/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/hwloc_nvlink.c - NVLinks from hwloc's bandwidth matrix.
 *
 * The matrix holds MB/s of one direction, parallel links summed. Its objects
 * are nvmlN, NVSwitch ports, and on POWER the CPU's package. hwloc's own
 * transforms are not used: on 2.9 MERGE_SWITCH_PORTS and TRANSITIVE_CLOSURE
 * lose links; all ports of all switches simply become one node here.
 */
#include "topo/hwloc_file.h"
#include "topo/rates.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum end_kind { END_NONE, END_GPU, END_SWITCH, END_CPU } end_kind;

/* What an object of the matrix is, and its device where it has one. */
static end_kind classify(wefti_hwloc_import *in, wefti_hwloc_object *object,
                         int *device_out)
{
    wefti_hwloc_object *pci = object;
    *device_out = -1;
    while (pci && pci->type == WEFTI_HWLOC_OSDEV) {
        pci = pci->parent;
    }
    if (pci && pci->type == WEFTI_HWLOC_PCIDEV) {
        wefti_pci ids;
        wefti_hwloc_read_ids(pci, &ids);
        *device_out = pci->device;
        if (pci->device >= 0 &&
            in->topo->devices[pci->device].kind == WEFTI_TOPO_GPU) {
            return END_GPU;
        }
        bool is_switch =
            strcmp(wefti_hwloc_text(pci, "subtype"), "NVSwitch") == 0 ||
            (ids.vendor == 0x10de && ids.class_code >> 8 == 0x0680);
        return is_switch ? END_SWITCH : END_NONE;
    }
    wefti_cpuset own, other;
    if (!object || object->type >= WEFTI_HWLOC_BRIDGE) {
        return END_NONE;
    }
    wefti_hwloc_cpuset(object, &own);
    for (int i = 0; i < in->object_count; i++) {
        wefti_hwloc_object *node = &in->objects[i];
        if (node->type == WEFTI_HWLOC_NUMANODE && node->device >= 0) {
            wefti_hwloc_cpuset(node, &other);
            if (wefti_cpuset_intersects(&own, &other)) {
                *device_out = node->device;
                return END_CPU;
            }
        }
    }
    return END_NONE;
}

/* MB/s from i to j; the diagonal means nothing. */
static double value_of(const wefti_hwloc_matrix *d, int i, int j)
{
    double value = i == j ? 0 : d->values[i * d->count + j];
    return value < 1e8 ? value : 0;
}

/*
 * By how much the matrix must be multiplied: hwloc 2.9.0 writes NVLink 3 and 4
 * at twice their rate, and no GPU has more than its model's links.
 */
static double correction(wefti_hwloc_import *in, const wefti_hwloc_matrix *d)
{
    double over = 0;
    bool modern = false, unknown = false;
    for (int i = 0; i < d->count; i++) {
        int gpu;
        double sum = 0;
        if (classify(in, d->objects[i], &gpu) != END_GPU) {
            continue;
        }
        for (int j = 0; j < d->count; j++) {
            sum += value_of(d, i, j);
        }
        int sm = in->topo->devices[gpu].gpu.sm;
        double most =
            1000 * wefti_rate_nvlink(sm).GBps * wefti_rate_nvlinks_most(sm);
        over = fmax(over, sm > 0 ? sum / most : 0);
        modern |= sm >= 80 && sm < 100;
        unknown |= sm == 0 && sum > 0;
    }
    bool doubles = strncmp(in->version, "2.9.0", 5) == 0;
    bool known = modern && doubles;
    if (known || (over > 1.01 && over <= 2.02)) {
        wefti_topo_warn(in->topo, 20, in->path,
                        "hwloc %.40s doubled the NVLink bandwidths: halved%s",
                        in->version[0] ? in->version : "(version unknown)",
                        known ? " (a known fault of 2.9.0)" : "");
        return 0.5;
    }
    if (over > 1.01) {
        wefti_topo_warn(in->topo, 20, in->path,
                        "NVLink bandwidths of hwloc %.40s are %.3g times what "
                        "the GPUs can do; taken as they are",
                        in->version[0] ? in->version : "(version unknown)",
                        over);
    } else if (doubles && unknown) {
        wefti_topo_warn(in->topo, 20, in->path,
                        "hwloc 2.9.0 doubles NVLink 3 and 4, and of which "
                        "kind these GPUs are is unknown: taken as they are");
    }
    return 1;
}

static void claim_pair(wefti_hwloc_import *in, int from, end_kind to_kind,
                       int to, double GBps)
{
    double one = wefti_rate_nvlink(in->topo->devices[from].gpu.sm).GBps;
    int count = (int)lround(GBps / one);
    wefti_claims_add(in->topo, &in->claims,
                     (wefti_claim){.from = from,
                                   .to = to_kind == END_SWITCH ? -1 : to,
                                   .type = WEFTI_LINK_NVL,
                                   .count = count < 1 ? 1 : count,
                                   .GBps = GBps,
                                   .origin = WEFTI_ORIGIN_READ});
}

/* Of all switches together: one's share alone may be no whole link. */
static void recount_switched(wefti_hwloc_import *in)
{
    for (int i = 0; i < in->claims.count; i++) {
        wefti_claim *claim = &in->claims.list[i];
        if (claim->to < 0) {
            int sm = in->topo->devices[claim->from].gpu.sm;
            int count = (int)lround(claim->GBps / wefti_rate_nvlink(sm).GBps);
            claim->count = count < 1 ? 1 : count;
        }
    }
}

static void claim_matrix(wefti_hwloc_import *in, const wefti_hwloc_matrix *d,
                         double factor)
{
    for (int i = 0; i < d->count; i++) {
        int from;
        if (classify(in, d->objects[i], &from) != END_GPU) {
            continue;
        }
        for (int j = 0; j < d->count; j++) {
            int to;
            double value = factor * value_of(d, i, j);
            end_kind kind = classify(in, d->objects[j], &to);
            if (value > 0 && kind != END_NONE && to != from) {
                claim_pair(in, from, kind, to, value / 1000);
            }
        }
    }
}

/* The line of a matrix of links, whatever it holds; 0: there is none. */
static int find_matrix(const wefti_element *root)
{
    for (int i = 0; i < root->child_count; i++) {
        const wefti_element *child = root->children[i];
        const char *name = wefti_element_text(child, "name");
        if (strncmp(child->name, "distances2", 10) == 0 &&
            (strcmp(name, "NVLinkBandwidth") == 0 ||
             strcmp(name, "XGMIBandwidth") == 0)) {
            return child->line;
        }
    }
    return 0;
}

static void warn_unknown(wefti_hwloc_import *in)
{
    int gpus = 0;
    const char *name = "";
    bool amd = false;
    for (int i = 0; i < in->topo->device_count; i++) {
        const wefti_device *d = &in->topo->devices[i];
        const wefti_gpu_model *model =
            d->kind == WEFTI_TOPO_GPU
                ? wefti_gpu_model_find(d->pci.vendor, d->pci.device, d->name)
                : NULL;
        if (model && model->sxm) {
            gpus++;
            name = d->name;
            amd = d->gpu.amd;
        }
    }
    if (gpus > 1) {
        int line = find_matrix(in->markup->root);
        char why[80] = "the file holds no bandwidth matrix";
        if (line > 0) {
            snprintf(why, sizeof(why),
                     "the bandwidth matrix in line %d is not usable", line);
        }
        in->topo->links_unknown = true;
        wefti_topo_warn(in->topo, 21, in->path,
                        "links unknown: %d GPUs (%.60s) have links, %s; %s can "
                        "tell",
                        gpus, name, why,
                        amd ? "ROCm SMI or an RCCL XML"
                            : "NVML or an NCCL XML");
    }
}

weft_status wefti_hwloc_claim_links(wefti_hwloc_import *in)
{
    wefti_hwloc_matrix nvlink = {0}, xgmi = {0}, hops = {0};
    weft_status status =
        wefti_hwloc_matrix_read(in, "NVLinkBandwidth", &nvlink);
    if (status == WEFT_OK) {
        status = wefti_hwloc_matrix_read(in, "XGMIBandwidth", &xgmi);
    }
    if (status == WEFT_OK) {
        status = wefti_hwloc_matrix_read(in, "XGMIHops", &hops);
    }
    if (status == WEFT_OK && nvlink.count) {
        claim_matrix(in, &nvlink, correction(in, &nvlink));
        recount_switched(in);
    }
    if (status == WEFT_OK && xgmi.count) {
        status = wefti_hwloc_claim_xgmi(in, &xgmi, &hops);
    }
    if (status == WEFT_OK && in->claims.count == 0 && !xgmi.count) {
        warn_unknown(in);
    }
    wefti_hwloc_matrix_fini(&nvlink);
    wefti_hwloc_matrix_fini(&xgmi);
    wefti_hwloc_matrix_fini(&hops);
    return status;
}
