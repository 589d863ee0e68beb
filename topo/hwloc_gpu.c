/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/hwloc_gpu.c - which devices of an hwloc file are GPUs, each once, and
 * which of AMD's are parts of one device.
 *
 * A GPU is a PCI device that NVML, CUDA, ROCm SMI, Level Zero or OpenCL names,
 * or whose class and maker say so. AMD's accelerators can be split (TPX, CPX):
 * then one PCI device carries several rsmiN, or has several functions alike, or
 * hwloc (2.11 and before) has found no PCI device for all rsmiN but the first.
 * Each part is a GPU; a bridge stands for the device, which has the PCIe link
 * and the XGMI links that they share.
 *
 * Source: hwloc 2.9 and 3.0, hwloc/topology-rsmi.c, topology-opencl.c and
 * topology-levelzero.c, for names and what they hang on.
 */
#include "topo/hwloc_file.h"
#include "topo/number.h"
#include "topo/rates.h"

#include "base/check.h"
#include "base/error.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NVIDIA 0x10de
#define AMD    0x1002
#define INTEL  0x8086

#define FUNCTIONS_BACK 128  /* objects, at most, between two functions */
#define LOST_MOST      1024 /* rsmiN without a PCI device */

/* ---- names ----------------------------------------------------------------
 */

/* The interfaces that name GPUs; OpenCL by platform. */
typedef enum backend {
    BACKEND_NONE,
    BACKEND_NVML,
    BACKEND_CUDA,
    BACKEND_RSMI,
    BACKEND_ZE,
    BACKEND_OPENCL
} backend;

/* "rsmi3", "opencl0d1"; a part of a device, "ze0.1", is none of its own. */
static backend backend_of(const wefti_hwloc_object *os, int *number_out)
{
    static const struct {
        const char *name;
        backend backend;
    } names[] = {{"nvml", BACKEND_NVML},
                 {"cuda", BACKEND_CUDA},
                 {"rsmi", BACKEND_RSMI},
                 {"ze", BACKEND_ZE},
                 {"opencl", BACKEND_OPENCL}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(names); i++) {
        const char *at = wefti_hwloc_text(os, "name");
        if (!wefti_number_skip(&at, names[i].name) ||
            !wefti_number_read_int(&at, number_out) || *at == '.') {
            continue;
        }
        const char *type = wefti_hwloc_info(os, "OpenCLDeviceType");
        bool other = names[i].backend == BACKEND_OPENCL && type[0] &&
                     strcmp(type, "GPU") != 0;
        return other ? BACKEND_NONE : names[i].backend;
    }
    return BACKEND_NONE;
}

static bool is_named(const wefti_hwloc_import *in,
                     const wefti_hwloc_object *pci)
{
    const wefti_hwloc_object *os;
    int number;
    for (int i = 0; (os = wefti_hwloc_os_device(in, pci, i)); i++) {
        if (backend_of(os, &number) != BACKEND_NONE) {
            return true;
        }
    }
    return false;
}

/* Chips that show the console of a server: displays, and no GPUs.
 * Source: pci.ids; Rage XL, RV100, ES1000. */
static bool is_console(const wefti_pci *ids)
{
    static const uint16_t consoles[] = {0x4750, 0x4752, 0x4759, 0x5159,
                                        0x515e, 0x5960, 0x5969};
    for (size_t i = 0; i < WEFTI_COUNT_OF(consoles); i++) {
        if (ids->vendor == AMD && ids->device == consoles[i]) {
            return true;
        }
    }
    return false;
}

/* A processor's own graphics (Intel's class 0300) are one where named. */
static bool is_gpu_by_class(const wefti_pci *ids)
{
    unsigned class_id = ids->class_code >> 16;
    bool display = class_id == 0x03 || class_id == 0x12;
    return display && !is_console(ids) &&
           (ids->vendor == NVIDIA || ids->vendor == AMD ||
            (ids->vendor == INTEL && ids->class_code >> 8 == 0x0380));
}

/* What is left out although it may be one. */
static void warn_left_out(wefti_hwloc_import *in, const wefti_pci *ids)
{
    unsigned class_id = ids->class_code >> 16;
    bool maker =
        ids->vendor == NVIDIA || ids->vendor == AMD || ids->vendor == INTEL;
    if (class_id == 0x12 || (class_id == 0x03 && maker)) {
        wefti_topo_warn(in->topo, 2, ids->bus,
                        "a %s [%04x:%04x] that nothing names as a GPU: left "
                        "out",
                        class_id == 0x12 ? "processing accelerator"
                                         : "display controller",
                        ids->vendor, ids->device);
    }
}

/* ---- parts ----------------------------------------------------------------
 */

static wefti_hwloc_object *pci_above(wefti_hwloc_object *os)
{
    while (os && os->type == WEFTI_HWLOC_OSDEV) {
        os = os->parent;
    }
    return os && os->type == WEFTI_HWLOC_PCIDEV ? os : NULL;
}

/* The first function of an AMD device whose further ones are alike. */
static wefti_hwloc_object *first_function(const wefti_hwloc_import *in,
                                          wefti_hwloc_object *pci,
                                          const wefti_pci *ids)
{
    size_t slot = strcspn(ids->bus, ".");
    int at = (int)(pci - in->objects);
    for (int i = at - 1; i >= 0 && i > at - FUNCTIONS_BACK &&
                         ids->vendor == AMD && &in->objects[i] != pci->parent;
         i--) {
        wefti_hwloc_object *other = &in->objects[i];
        wefti_pci own = {0};
        if (other->type != WEFTI_HWLOC_PCIDEV || !other->card ||
            other->parent != pci->parent) {
            continue;
        }
        wefti_hwloc_read_ids(other, &own);
        if (own.vendor == ids->vendor && own.device == ids->device &&
            strncmp(own.bus, ids->bus, slot + 1) == 0) {
            return other->card;
        }
    }
    return pci;
}

static bool add_part(wefti_hwloc_import *in, wefti_hwloc_object *card,
                     wefti_hwloc_object *os)
{
    if (in->part_count == in->part_room) {
        int room = in->part_room ? 2 * in->part_room : 64;
        wefti_hwloc_part *grown =
            realloc(in->parts, (size_t)room * sizeof(*grown));
        if (!grown) {
            in->topo->out_of_memory = true;
            return false;
        }
        in->parts = grown;
        in->part_room = room;
    }
    in->parts[in->part_count++] = (wefti_hwloc_part){card, os};
    if (os) {
        os->card = card;
    }
    return true;
}

/* As many parts as ROCm SMI names, or one OpenCL platform; at least one. */
static void list_parts(wefti_hwloc_import *in, wefti_hwloc_object *pci,
                       bool amd)
{
    enum { PLATFORMS = 16 };
    int opencl[PLATFORMS] = {0}, parts = 0, most = 1, number;
    wefti_hwloc_object *os;
    for (int i = 0; (os = wefti_hwloc_os_device(in, pci, i)); i++) {
        backend by = backend_of(os, &number);
        if (amd && by == BACKEND_RSMI) {
            parts += add_part(in, pci->card, os);
        } else if (amd && by == BACKEND_OPENCL && number < PLATFORMS) {
            opencl[number]++;
            most = opencl[number] > most ? opencl[number] : most;
        }
        os->card = by != BACKEND_NONE ? pci->card : NULL;
    }
    while (parts < most && add_part(in, pci->card, NULL)) {
        parts++;
    }
}

/* ---- rsmiN without a PCI device -------------------------------------------
 */

static bool is_below(const wefti_hwloc_object *object,
                     const wefti_hwloc_object *above)
{
    while (object && object != above) {
        object = object->parent;
    }
    return object != NULL;
}

/*
 * The device that a lost rsmiN is a part of: the only one with its UUID; the
 * only one where hwloc has put it; the one whose number comes next before it,
 * as ROCm SMI counts the parts of a device one after the other.
 */
static wefti_hwloc_object *find_card(const wefti_hwloc_import *in,
                                     const wefti_hwloc_object *os, int number,
                                     int known)
{
    wefti_hwloc_object *same = NULL, *near = NULL, *before = NULL;
    const char *uuid = wefti_hwloc_info(os, "AMDUUID");
    int same_count = 0, near_count = 0, best = -1;
    for (int i = 0; i < known; i++) {
        const wefti_hwloc_part *part = &in->parts[i];
        int own = -1;
        if (!part->os || backend_of(part->os, &own) != BACKEND_RSMI) {
            continue;
        }
        const char *other = wefti_hwloc_info(part->os, "AMDUUID");
        if (uuid[0] && strcmp(uuid, other) == 0) {
            same_count += part->card != same;
            same = part->card;
        }
        if (is_below(part->card, os->parent)) {
            near_count += part->card != near;
            near = part->card;
        }
        if (own < number && own > best) {
            best = own;
            before = part->card;
        }
    }
    return same_count == 1 ? same : near_count == 1 ? near : before;
}

static void find_lost(wefti_hwloc_import *in)
{
    int known = in->part_count, lost = 0, number;
    for (int i = 0; i < in->object_count && lost < LOST_MOST && known > 0;
         i++) {
        wefti_hwloc_object *os = &in->objects[i];
        if (os->type != WEFTI_HWLOC_OSDEV || pci_above(os) ||
            backend_of(os, &number) != BACKEND_RSMI) {
            continue;
        }
        wefti_hwloc_object *card = find_card(in, os, number, known);
        lost++;
        if (card && add_part(in, card, os)) {
            char bus[24];
            wefti_bus_normalise(wefti_hwloc_text(card, "pci_busid"), bus);
            wefti_topo_warn(in->topo, 22, bus,
                            "%.20s has no PCI device: taken as a part of this "
                            "one",
                            wefti_hwloc_text(os, "name"));
        }
    }
}

void wefti_hwloc_find_gpus(wefti_hwloc_import *in)
{
    for (int i = 0; i < in->object_count && !in->topo->out_of_memory; i++) {
        wefti_hwloc_object *pci = &in->objects[i];
        wefti_pci ids = {0};
        if (pci->type != WEFTI_HWLOC_PCIDEV) {
            continue;
        }
        wefti_hwloc_read_ids(pci, &ids);
        if (is_named(in, pci) || is_gpu_by_class(&ids)) {
            pci->card = first_function(in, pci, &ids);
            list_parts(in, pci, ids.vendor == AMD);
        } else {
            warn_left_out(in, &ids);
        }
    }
    find_lost(in);
}

/* ---- devices --------------------------------------------------------------
 */

/* Name, kind and number, of what names it or what its PCI device is called. */
static void describe(wefti_hwloc_import *in, int gpu,
                     const wefti_hwloc_object *pci,
                     const wefti_hwloc_object *part, const wefti_pci *ids)
{
    const char *name = pci ? wefti_hwloc_info(pci, "PCIDevice") : "";
    wefti_device *device = &in->topo->devices[gpu];
    const wefti_hwloc_object *os = part;
    for (int i = 0; os || (pci && !part); i++) {
        int number = -1;
        os = part ? part : wefti_hwloc_os_device(in, pci, i);
        if (!os) {
            break;
        }
        const char *model = wefti_hwloc_info(os, "GPUModel");
        backend by = backend_of(os, &number);
        name = model[0] ? model : name;
        if (by == BACKEND_NVML || by == BACKEND_RSMI) {
            device->gpu.dev = number;
        }
        if (part) {
            break;
        }
    }
    const wefti_gpu_model *model =
        wefti_gpu_model_find(ids->vendor, ids->device, name);
    snprintf(device->name, sizeof(device->name), "%s",
             name[0] ? name
             : model ? model->name
                     : "GPU");
    device->gpu.sm = model ? model->sm : 0;
    device->gpu.amd = ids->vendor == AMD;
}

/* One part of several, below the bridge that stands for their device. */
static void add_piece(wefti_hwloc_import *in, wefti_hwloc_part *part,
                      int bridge)
{
    int gpu = wefti_topo_add_device(in->topo, WEFTI_TOPO_GPU, bridge, "GPU");
    if (gpu < 0) {
        return;
    }
    const wefti_pci pci = in->topo->devices[bridge].pci;
    in->topo->devices[gpu].pci = pci;
    describe(in, gpu, part->card, part->os, &pci);
    wefti_pci_link_add(in->topo, gpu, WEFTI_ORIGIN_TABLE);
    if (part->os) {
        part->os->device = gpu;
    }
}

void wefti_hwloc_add_gpu(wefti_hwloc_import *in, wefti_hwloc_object *pci,
                         int parent)
{
    wefti_hwloc_part *first = NULL;
    int parts = 0;
    for (int i = 0; i < in->part_count; i++) {
        if (in->parts[i].card == pci) {
            first = parts++ ? first : &in->parts[i];
        }
    }
    wefti_topo_kind kind = parts > 1 ? WEFTI_TOPO_BRIDGE : WEFTI_TOPO_GPU;
    int index =
        wefti_topo_add_device(in->topo, kind, parent, parts > 1 ? "" : "GPU");
    if (index < 0 || !first) {
        return;
    }
    pci->device = index;
    if (parts == 1) {
        wefti_pci ids = {0};
        wefti_hwloc_read_ids(pci, &ids);
        describe(in, index, pci, first->os, &ids);
        wefti_hwloc_link_pci(in, pci, index);
        if (first->os) {
            first->os->device = index;
        }
        return;
    }
    wefti_hwloc_link_pci(in, pci, index);
    for (int i = 0; i < in->part_count; i++) {
        if (in->parts[i].card == pci && !in->topo->out_of_memory) {
            add_piece(in, &in->parts[i], index);
        }
    }
    char label[64];
    wefti_topo_warn(in->topo, 22, wefti_topo_label(in->topo, index, label),
                    "%d GPUs in one device, its parts: they share its PCIe "
                    "and its XGMI links",
                    parts);
}

/* GPUs that its backend names in all. */
static int count_named(const wefti_hwloc_import *in, backend by, int platform)
{
    int count = 0, number;
    for (int i = 0; i < in->object_count; i++) {
        const wefti_hwloc_object *os = &in->objects[i];
        count += os->type == WEFTI_HWLOC_OSDEV &&
                 backend_of(os, &number) == by &&
                 (by != BACKEND_OPENCL || number == platform);
    }
    return count;
}

bool wefti_hwloc_is_lost_gpu(wefti_hwloc_import *in, wefti_hwloc_object *os)
{
    int number = -1;
    backend by = BACKEND_NONE;
    if (os->type == WEFTI_HWLOC_OSDEV && !os->card && !pci_above(os)) {
        by = backend_of(os, &number);
    }
    if (by == BACKEND_NONE) {
        return false;
    }
    const char *name = wefti_hwloc_text(os, "name");
    bool more =
        count_named(in, by, number) > in->topo->kind_counts[WEFTI_TOPO_GPU];
    wefti_topo_warn(in->topo, 2, name, "a GPU without a PCI device: %s",
                    more ? "counted, its PCIe is unknown"
                         : "taken to be one of those counted");
    return more;
}

void wefti_hwloc_add_lost_gpu(wefti_hwloc_import *in, wefti_hwloc_object *os,
                              int parent)
{
    int gpu = wefti_topo_add_device(in->topo, WEFTI_TOPO_GPU, parent, "GPU");
    if (gpu < 0) {
        return;
    }
    int number;
    bool rsmi = backend_of(os, &number) == BACKEND_RSMI;
    const wefti_pci ids = {.vendor = rsmi ? AMD : 0};
    describe(in, gpu, NULL, os, &ids);
    in->topo->devices[gpu].gpu.amd |=
        strncmp(wefti_hwloc_info(os, "GPUVendor"), "AMD", 3) == 0;
    wefti_pci_link_add(in->topo, gpu, WEFTI_ORIGIN_TABLE);
    os->card = os;
    os->device = gpu;
}
