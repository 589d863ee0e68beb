/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/pcie.c - PCIe that does less than it could: bridges slower than what
 * hangs on them, GPUs below their model, NICs below what their ports need, or
 * with enough for these below their model, which is a note.
 *
 * What a device could do is what it reports on a live machine, else what its
 * model does (topo/rates.h), and never less than its twins show. An idle GPU
 * lowers its generation to save power, so a file that was recorded without load
 * does not distinguish idle from degraded; neither does this reader.
 */
#include "topo/assemble.h"
#include "topo/rates.h"
#include "topo/twins.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Rates closer than this are the same: files round them. */
#define SAME       0.99
#define FULL_WIDTH 16

/* "Gen 4 x16 = 31.5 GB/s" */
typedef char speed_text[40];

static const char *speed_of(int gen, int width, double GBps, speed_text text)
{
    if (gen > 0 && fabs(wefti_rate_pci(gen, width).GBps - GBps) < 0.01 * GBps) {
        snprintf(text, sizeof(speed_text), "Gen %d x%d = %.3g GB/s", gen, width,
                 GBps);
    } else {
        snprintf(text, sizeof(speed_text), "%.3g GB/s", GBps);
    }
    return text;
}

/* ---- bridges --------------------------------------------------------------
 */

/* A hypervisor's bridge: its bus is ffff:, or it says a quarter of its child's
 * rate and less. */
static bool is_pseudo(const char *bus, double GBps, double child_GBps)
{
    return strncmp(bus, "ffff", 4) == 0 || GBps <= child_GBps / 4;
}

bool wefti_port_doubt(wefti_topo *topo, const char *port, double GBps,
                      double child_GBps)
{
    bool pseudo = GBps < SAME * child_GBps && is_pseudo(port, GBps, child_GBps);
    if (pseudo) {
        wefti_topo_warn(topo, 11, port,
                        "port says %.3g GB/s above a device at %.3g: not "
                        "believed",
                        GBps, child_GBps);
    }
    return pseudo;
}

/* The rate of a hypervisor's bridge is replaced by the fastest of its children.
 */
static void disbelieve(wefti_topo *topo, int bridge, int up, int fastest)
{
    wefti_topo_link *own = &topo->links[up];
    const wefti_topo_link *child = &topo->links[fastest];
    const wefti_pci *believed = &topo->devices[child->b].pci;
    own->GBps = child->GBps;
    own->nccl_GBps = child->nccl_GBps;
    own->count = child->count;
    own->origin = WEFTI_ORIGIN_TABLE;
    own->assumed = true;
    topo->devices[bridge].pci.gen = believed->gen;
    topo->devices[bridge].pci.width = believed->width;
}

/* A bridge slower than the device below it: a warning, and a pseudo one is not
 * believed.
 */
static void doubt_bridge(wefti_topo *topo, const int *uplinks, int bridge)
{
    int up = uplinks[bridge], fastest = -1;
    for (int i = bridge + 1; i < topo->device_count && up >= 0; i++) {
        int link = topo->devices[i].parent == bridge ? uplinks[i] : -1;
        if (link >= 0 && !topo->links[link].assumed &&
            (fastest < 0 ||
             topo->links[link].GBps > topo->links[fastest].GBps)) {
            fastest = link;
        }
    }
    if (fastest < 0 ||
        topo->links[up].GBps >= SAME * topo->links[fastest].GBps) {
        return;
    }
    char label[64];
    double own = topo->links[up].GBps, child = topo->links[fastest].GBps;
    wefti_topo_label(topo, bridge, label);
    if (!is_pseudo(topo->devices[bridge].pci.bus, own, child)) {
        wefti_topo_warn(topo, 11, label,
                        "bridge at %.3g GB/s below a device at %.3g: a "
                        "bottleneck, if it is true",
                        own, child);
        return;
    }
    wefti_topo_warn(topo, 11, label,
                    "bridge says %.3g GB/s above a device at %.3g: not "
                    "believed, %.3g taken",
                    own, child, child);
    disbelieve(topo, bridge, up, fastest);
}

/* ---- what a device could do -----------------------------------------------
 */

/* The most that is known of a device, and from which source. */
typedef struct ability {
    int gen, width;
    double GBps;
    const char *whose; /* "the H100 does", "its twins have" */
    char text[48];     /* holds it where it is made up */
} ability;

static void raise_to(ability *most, int gen, int width, const char *whose)
{
    double GBps = wefti_rate_pci(gen, width).GBps;
    if (gen > 0 && width > 0 && GBps > most->GBps / SAME) {
        *most = (ability){.gen = gen, .width = width, .GBps = GBps};
        snprintf(most->text, sizeof(most->text), "%s", whose);
        most->whose = most->text;
    }
}

static bool are_twins(const wefti_device *a, const wefti_device *b)
{
    if (a->kind != b->kind) {
        return false;
    }
    if (a->kind == WEFTI_TOPO_GPU) {
        return wefti_twins_are(a, b);
    }
    return a->pci.vendor && a->pci.vendor == b->pci.vendor &&
           a->pci.device == b->pci.device &&
           a->pci.sub_vendor == b->pci.sub_vendor &&
           a->pci.sub_device == b->pci.sub_device;
}

static void raise_to_twins(const wefti_topo *topo, const int *uplinks,
                           int device, ability *most)
{
    const wefti_device *d = &topo->devices[device];
    for (int i = 0; i < topo->device_count; i++) {
        const wefti_device *twin = &topo->devices[i];
        int link = i != device && are_twins(d, twin) ? uplinks[i] : -1;
        if (link >= 0 && !topo->links[link].assumed) {
            raise_to(most, twin->pci.gen, twin->pci.width, "its twins have");
        }
    }
}

static bool has_c2c(const wefti_topo *topo, int gpu)
{
    bool found = false;
    for (int i = 0; i < topo->link_count && !found; i++) {
        const wefti_topo_link *link = &topo->links[i];
        found =
            link->type == WEFTI_LINK_C2C && (link->a == gpu || link->b == gpu);
    }
    return found;
}

/* Grace's GPUs and the MI300A share a board with their CPU, and a link of its
 * own: their PCIe may be anything. */
static bool is_on_board(const wefti_gpu_model *model)
{
    return strncmp(model->name, "GB", 2) == 0 ||
           strncmp(model->name, "GH", 2) == 0 ||
           strcmp(model->name, "MI300A") == 0;
}

static void raise_to_model(const wefti_topo *topo, int gpu, ability *most)
{
    const wefti_device *d = &topo->devices[gpu];
    const wefti_gpu_model *model =
        wefti_gpu_model_find(d->pci.vendor, d->pci.device, d->name);
    char whose[48];
    if ((model && is_on_board(model)) || has_c2c(topo, gpu)) {
        return;
    }
    if (d->pci.max_gen > 0) {
        raise_to(most, d->pci.max_gen, d->pci.max_width,
                 "by its own word it does");
    } else if (model) {
        snprintf(whose, sizeof(whose), "the %.32s does", model->name);
        raise_to(most, model->pci_gen, FULL_WIDTH, whose);
    } else {
        int gen = d->gpu.amd ? wefti_rate_pci_gen_amd(d->gpu.sm)
                             : wefti_rate_pci_gen(d->gpu.sm);
        snprintf(whose, sizeof(whose), "%.32s GPUs do", d->name);
        raise_to(most, gen, FULL_WIDTH, whose);
    }
}

/* ---- GPUs -----------------------------------------------------------------
 */

/* What may be behind it. The machine that was asked for the most of both ends
 * knows that it is the slot; a recorded rate may be that of an idle GPU. */
static const char *cause_of(const wefti_device *d, const ability *most)
{
    if (d->pci.max_gen > 0) {
        return "its slot, riser or port does no more";
    }
    if (d->pci.width < most->width) {
        return "idle or degraded, or a slot of fewer lanes";
    }
    return "idle or degraded (an idle GPU lowers its generation to save power)";
}

static void doubt_gpu(wefti_topo *topo, const int *uplinks, int gpu)
{
    const wefti_device *d = &topo->devices[gpu];
    int up = uplinks[gpu];
    if (up < 0 || topo->links[up].assumed) {
        return;
    }
    char label[64];
    speed_text own, other;
    double GBps = topo->links[up].GBps;
    ability most = {0};
    raise_to_model(topo, gpu, &most);
    raise_to_twins(topo, uplinks, gpu, &most);
    if (GBps < SAME * most.GBps) {
        wefti_topo_warn(topo, 12, wefti_topo_label(topo, gpu, label),
                        "PCIe at %s, %s %s: %s",
                        speed_of(d->pci.gen, d->pci.width, GBps, own),
                        most.whose,
                        speed_of(most.gen, most.width, most.GBps, other),
                        cause_of(d, &most));
    }
}

/* ---- NICs -----------------------------------------------------------------
 */

/* What the ports of a card need of its slot, GB/s; one card may have several
 * slots, which share its ports. */
static double needed(const wefti_topo *topo, int card, int *first_port_out,
                     int *port_count_out)
{
    double gbps = 0;
    uint64_t guid = 0;
    int slots = 1;
    *first_port_out = -1;
    *port_count_out = 0;
    for (int i = card + 1; i < topo->device_count; i++) {
        const wefti_device *port = &topo->devices[i];
        if (port->parent != card || port->kind != WEFTI_TOPO_NIC) {
            continue;
        }
        bool known = !port->nic.gbps_assumed && !port->nic.limited;
        *first_port_out = *first_port_out < 0 ? i : *first_port_out;
        *port_count_out += 1;
        guid = port->nic.card_guid ? port->nic.card_guid : guid;
        gbps += known ? port->nic.gbps
                      : wefti_rate_nic(port->pci.vendor, port->pci.device);
    }
    int last = -1;
    for (int i = topo->devices[card].host; i < topo->device_count && guid;
         i++) {
        const wefti_device *other = &topo->devices[i];
        if (other->kind == WEFTI_TOPO_NIC && other->parent != card &&
            other->parent != last && other->nic.card_guid == guid &&
            other->host == topo->devices[card].host) {
            slots++;
            last = other->parent;
        }
    }
    return gbps / 8 / slots;
}

static void check_card_link(wefti_topo *topo, const int *uplinks, int card)
{
    const wefti_device *d = &topo->devices[card];
    int up = uplinks[card], port, ports;
    double need = needed(topo, card, &port, &ports);
    if (up < 0 || topo->links[up].assumed || port < 0 || !d->pci.bus[0]) {
        return;
    }
    char label[64], could[64] = "";
    speed_text own, other;
    double GBps = topo->links[up].GBps;
    const wefti_nic_model *model =
        wefti_nic_model_find(d->pci.vendor, d->pci.device);
    ability most = {0};
    raise_to(&most, d->pci.max_gen, d->pci.max_width,
             "by its own word it does");
    if (model && !most.gen) {
        char whose[48];
        snprintf(whose, sizeof(whose), "the %.32s does", model->name);
        raise_to(&most, model->pci_gen, model->pci_width, whose);
    }
    ability twins = {0};
    raise_to_twins(topo, uplinks, card, &twins);
    wefti_topo_label(topo, port, label);
    speed_of(d->pci.gen, d->pci.width, GBps, own);
    if (GBps < SAME * most.GBps) {
        snprintf(could, sizeof(could), "; %.24s up to Gen %d x%d", most.whose,
                 most.gen, most.width);
    }
    if (GBps < SAME * need) {
        wefti_topo_warn(topo, 12, label,
                        "PCIe at %s is too little for its %d port%s of %.3g "
                        "GB/s together%s",
                        own, ports, ports == 1 ? "" : "s", need, could);
    } else if (GBps < SAME * twins.GBps) {
        wefti_topo_warn(topo, 12, label,
                        "PCIe at %s, %s %s: degraded, or a "
                        "slot of less",
                        own, twins.whose,
                        speed_of(twins.gen, twins.width, twins.GBps, other));
    } else if (d->pci.width < d->pci.max_width) {
        wefti_topo_warn(topo, 12, label, "PCIe at %s%s: a slot of fewer lanes",
                        own, could);
    } else if (could[0]) {
        wefti_topo_warn(topo, 26, label,
                        "PCIe at %s%s: enough for its %d port%s of %.3g GB/s "
                        "together",
                        own, could, ports, ports == 1 ? "" : "s", need);
    }
}

/* ---- now ------------------------------------------------------------------
 */

/* A link that could do more at this moment than it does. */
static void doubt_now(wefti_topo *topo, const int *uplinks, int device)
{
    const wefti_device *d = &topo->devices[device];
    const wefti_pci *pci = &d->pci;
    int up = uplinks[device];
    if (up < 0 || pci->now_gen < 1 || pci->now_width < 1) {
        return;
    }
    double now = wefti_rate_pci(pci->now_gen, pci->now_width).GBps;
    char label[64];
    speed_text running, could;
    if (now >= SAME * topo->links[up].GBps) {
        return;
    }
    const char *cause = "degraded";
    if (d->kind == WEFTI_TOPO_GPU) {
        cause = pci->now_width < pci->width
                    ? "idle or degraded"
                    : "idle (a GPU lowers its generation to save power) or "
                      "degraded: ask again under load";
    }
    wefti_topo_warn(topo, 12, wefti_topo_label(topo, device, label),
                    "PCIe runs at %s now, the link can do %s: %s",
                    speed_of(pci->now_gen, pci->now_width, now, running),
                    speed_of(pci->gen, pci->width, topo->links[up].GBps, could),
                    cause);
}

void wefti_pcie_doubt(wefti_topo *topo)
{
    int *uplinks = wefti_topo_uplinks(topo);
    topo->out_of_memory |= !uplinks;
    /* A bridge may be given its child's rate, so children come first. */
    for (int i = topo->device_count - 1; i >= 0 && uplinks; i--) {
        switch (topo->devices[i].kind) {
        case WEFTI_TOPO_BRIDGE:
            doubt_bridge(topo, uplinks, i);
            break;
        case WEFTI_TOPO_GPU:
            doubt_gpu(topo, uplinks, i);
            doubt_now(topo, uplinks, i);
            break;
        case WEFTI_TOPO_CARD:
            check_card_link(topo, uplinks, i);
            doubt_now(topo, uplinks, i);
            break;
        default:
            break;
        }
    }
    free(uplinks);
}
