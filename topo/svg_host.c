/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/svg_host.c - one host of a picture.
 *
 *     +-- host0 -----------------------------------+
 *     |   [ numa0 ]-----------------[ numa1 ]      |
 *     |     (br)                      (br)         |   one row a level
 *     |   gpu nic gpu nic         gpu nic gpu nic  |
 *     |     \___arcs: direct links___/             |
 *     |   ===============NVSwitch================  |
 *     |   ---------------network-----------------  |
 *     +--------------------------------------------+
 *
 * Leaves stand in the order of the tree, all else above the middle of its own.
 * Every row has a height of its own, so that nothing leaves the box.
 */
#include "topo/svg_host.h"

#include "topo/svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAF_W      96
#define LEVEL_H     34 /* between a switch and the one below it */
#define LEVELS_MOST 5
#define LEAVES_MOST 48
#define NODES_MOST  16 /* NUMA nodes without leaves that are shown */
enum { ROW_NUMA = 92, ROW_BRIDGE = 150 };

static bool is_leaf(const wefti_device *d)
{
    return d->kind == WEFTI_TOPO_GPU || d->kind == WEFTI_TOPO_NIC;
}

static const wefti_host_paths *paths_of(const wefti_svg_picture *p, int host)
{
    return &p->report->paths->hosts[host];
}

/* ---- what is shown --------------------------------------------------------
 */

static void show_with_parents(wefti_svg_picture *p, int device)
{
    for (; device >= 0 && !p->shown[device];
         device = p->report->topo->devices[device].parent) {
        p->shown[device] = true;
    }
}

/* The first leaves, and before them those that are faulty. */
static int choose(wefti_svg_picture *p, const wefti_host_paths *h)
{
    const wefti_topo *topo = p->report->topo;
    int first = h->first_device, last = first + h->device_count;
    int leaves = 0, nodes = 0, total = h->gpu_count + h->nic_count;
    for (int faulty = 1; faulty >= 0; faulty--) {
        for (int i = first; i < last && leaves < LEAVES_MOST; i++) {
            if (is_leaf(&topo->devices[i]) && !p->shown[i] &&
                (p->faults[i] != 0 || !faulty)) {
                show_with_parents(p, i);
                leaves++;
            }
        }
    }
    for (int i = first; i < last; i++) {
        wefti_topo_kind kind = topo->devices[i].kind;
        p->shown[i] |= kind == WEFTI_TOPO_NVSWITCH || i == first ||
                       (kind == WEFTI_TOPO_NUMA && nodes++ < NODES_MOST);
    }
    return total - leaves;
}

/* ---- places ---------------------------------------------------------------
 */

/* How many switches lie between it and its NUMA node. */
static int level_of(const wefti_topo *topo, int device)
{
    int level = 0;
    for (int up = topo->devices[device].parent; up >= 0 && level < LEVELS_MOST;
         up = topo->devices[up].parent) {
        level += topo->devices[up].kind == WEFTI_TOPO_BRIDGE;
    }
    return level;
}

/* The leaves below it from left to right; next_x is the next one's. */
static void place_x(wefti_svg_picture *p, int device, int last, double *next_x,
                    int depth)
{
    const wefti_topo *topo = p->report->topo;
    double sum = 0;
    int count = 0;
    for (int i = device + 1; i < last && depth < 64; i++) {
        if (topo->devices[i].parent == device && p->shown[i] &&
            topo->devices[i].kind != WEFTI_TOPO_NVSWITCH) {
            place_x(p, i, last, next_x, depth + 1);
            sum += p->x[i];
            count++;
        }
    }
    if (count == 0) {
        p->x[device] = *next_x;
        *next_x += LEAF_W;
    } else {
        p->x[device] = sum / count;
    }
}

/* Whether links of that host join GPUs directly; whether it has a switch. */
static void find_rows(const wefti_svg_picture *p, const wefti_host_paths *h,
                      bool *arcs_out, bool *bar_out)
{
    const wefti_topo *topo = p->report->topo;
    *arcs_out = *bar_out = false;
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        *arcs_out |= topo->devices[link->a].host == h->first_device &&
                     wefti_svg_is_direct(topo, link);
    }
    for (int i = 0; i < h->device_count; i++) {
        *bar_out |=
            topo->devices[h->first_device + i].kind == WEFTI_TOPO_NVSWITCH;
    }
}

void wefti_svg_host_place(wefti_svg_picture *p, wefti_svg_host *host)
{
    const wefti_topo *topo = p->report->topo;
    const wefti_host_paths *h = paths_of(p, host->host);
    int first = h->first_device, last = first + h->device_count, levels = 1;
    bool arcs, bar, net = false;
    host->left_out = choose(p, h);
    double next_x = 2 * WEFTI_SVG_MARGIN + LEAF_W / 2.0;
    place_x(p, first, last, &next_x, 0);
    double right = next_x - LEAF_W / 2.0;
    right = fmax(right, 2 * WEFTI_SVG_MARGIN + 6 * LEAF_W);
    host->width = right; /* from the box's left margin to its right */
    for (int i = first; i < last; i++) {
        int level = p->shown[i] ? level_of(topo, i) : 0;
        levels = level > levels ? level : levels;
        net |= wefti_topo_nic_usable(topo, i);
    }
    find_rows(p, h, &arcs, &bar);
    host->leaf_y =
        host->top + ROW_BRIDGE + (levels + 1) * LEVEL_H + WEFTI_SVG_BOX_H / 2.0;
    double below = host->leaf_y + WEFTI_SVG_BOX_H / 2.0 + 14;
    host->arc_y = arcs ? below : 0;
    below += arcs ? WEFTI_SVG_ARC_H : 0;
    host->bar_y = bar ? below + 34 : 0;
    below += bar ? 60 : 0;
    host->net_y = net ? below + 22 : 0;
    below += net ? 30 : 0;
    host->height = below + 14 - host->top;
    for (int i = first; i < last; i++) {
        switch (topo->devices[i].kind) {
        case WEFTI_TOPO_NUMA:
            p->y[i] = host->top + ROW_NUMA;
            break;
        case WEFTI_TOPO_BRIDGE:
            p->y[i] = host->top + ROW_BRIDGE + level_of(topo, i) * LEVEL_H;
            break;
        case WEFTI_TOPO_CARD:
            p->y[i] = host->leaf_y - WEFTI_SVG_BOX_H / 2.0 - LEVEL_H / 2.0;
            break;
        case WEFTI_TOPO_NVSWITCH:
            p->x[i] = (2 * WEFTI_SVG_MARGIN + right) / 2;
            p->y[i] = host->bar_y;
            break;
        default:
            p->y[i] = host->leaf_y;
            break;
        }
    }
}

/* ---- devices --------------------------------------------------------------
 */

static void draw_leaf(const wefti_svg_picture *p, int device, const char *fill,
                      const char *const lines[4])
{
    bool faulty = p->faults[device] != 0;
    double x = p->x[device], y = p->y[device];
    wefti_svg_box(p->file, x, y, WEFTI_SVG_BOX_W, WEFTI_SVG_BOX_H,
                  faulty ? "#f8d7d5" : fill, faulty ? WEFTI_SVG_RED : "#333");
    for (int i = 0; i < 4; i++) {
        wefti_svg_text(p->file, WEFTI_SVG_MIDDLE, x, y - 18 + 14 * i,
                       i == 0   ? 12
                       : i == 2 ? 9
                                : 10,
                       i == 0 ? "#111" : wefti_svg_ink(faulty),
                       WEFTI_SVG_BOX_W - 4, lines[i]);
    }
}

static void draw_gpu(const wefti_svg_picture *p, int device)
{
    const wefti_device *d = &p->report->topo->devices[device];
    const wefti_gpu_numbers *number = &p->report->numbers[d->ordinal];
    char id[WEFTI_TOPO_ID_BYTES], others[32] = "";
    if (number->smi >= 0 && number->smi == number->cuda_pci) {
        snprintf(others, sizeof(others), "smi, cuda %d", number->smi);
    } else if (number->smi >= 0) {
        snprintf(others, sizeof(others),
                 number->cuda_pci >= 0 ? "smi %d cuda %d" : "smi %d",
                 number->smi, number->cuda_pci);
    }
    const char *const lines[4] = {wefti_topo_id(p->report->topo, device, id),
                                  wefti_report_short_name(d->name), others,
                                  d->pci.bus};
    draw_leaf(p, device, "#e2f3dc", lines);
}

static void draw_nic(const wefti_svg_picture *p, int device)
{
    const wefti_device *d = &p->report->topo->devices[device];
    char id[WEFTI_TOPO_ID_BYTES], rate[32];
    snprintf(rate, sizeof(rate), "%.4g Gb/s", d->nic.gbps);
    if (d->nic.state == WEFTI_NIC_DOWN) {
        snprintf(rate, sizeof(rate), "down");
    } else if (d->nic.kind == WEFTI_NIC_WIFI) {
        snprintf(rate, sizeof(rate), "Wi-Fi");
    }
    const char *const lines[4] = {wefti_topo_id(p->report->topo, device, id),
                                  d->name, rate, d->pci.bus};
    draw_leaf(p, device,
              wefti_topo_nic_usable(p->report->topo, device) ? "#dbe8fb"
                                                             : "#e8e8e8",
              lines);
}

static void draw_node(const wefti_svg_picture *p, int device)
{
    const wefti_device *d = &p->report->topo->devices[device];
    double x = p->x[device], y = p->y[device];
    char name[32] = "numa ?", more[48] = "";
    if (d->os_index >= 0) {
        snprintf(name, sizeof(name), "numa%d", d->os_index);
    }
    if (d->cpu.cores > 0 && d->cpu.memory_bytes > 0) {
        snprintf(more, sizeof(more), "%d cores %.3g GB", d->cpu.cores,
                 (double)d->cpu.memory_bytes / 1e9);
    }
    wefti_svg_box(p->file, x, y, WEFTI_SVG_BOX_W, 34, "#fdf1d6",
                  p->faults[device] != 0 ? WEFTI_SVG_RED : "#333");
    wefti_svg_text(p->file, WEFTI_SVG_MIDDLE, x, more[0] ? y - 1 : y + 4, 12,
                   "#111", WEFTI_SVG_BOX_W - 4, name);
    wefti_svg_text(p->file, WEFTI_SVG_MIDDLE, x, y + 12, 8, "#444",
                   WEFTI_SVG_BOX_W - 4, more);
}

static void draw_switch(const wefti_svg_picture *p, const wefti_svg_host *host,
                        int device)
{
    double left = 2 * WEFTI_SVG_MARGIN, right = host->width;
    wefti_svg_box(p->file, (left + right) / 2, p->y[device], right - left, 24,
                  "#c9e7be", p->faults[device] != 0 ? WEFTI_SVG_RED : "#333");
    wefti_svg_text(p->file, WEFTI_SVG_MIDDLE, (left + right) / 2,
                   p->y[device] + 4, 12, "#111", right - left, "NVSwitch");
}

static void draw_bridge(const wefti_svg_picture *p, int device)
{
    const wefti_device *d = &p->report->topo->devices[device];
    char id[WEFTI_TOPO_ID_BYTES];
    double x = p->x[device], y = p->y[device];
    bool bridge = d->kind == WEFTI_TOPO_BRIDGE;
    wefti_svg_box(p->file, x, y, bridge ? 12 : 7, bridge ? 12 : 7, "#e3e5e8",
                  p->faults[device] != 0 ? WEFTI_SVG_RED : "#333");
    if (bridge) {
        wefti_svg_label(p, x + 9, y + 3, p->faults[device] != 0,
                        wefti_topo_id(p->report->topo, device, id));
    }
}

static void draw_device(const wefti_svg_picture *p, const wefti_svg_host *host,
                        int device)
{
    switch (p->report->topo->devices[device].kind) {
    case WEFTI_TOPO_NUMA:
        draw_node(p, device);
        break;
    case WEFTI_TOPO_BRIDGE:
    case WEFTI_TOPO_CARD:
        draw_bridge(p, device);
        break;
    case WEFTI_TOPO_GPU:
        draw_gpu(p, device);
        break;
    case WEFTI_TOPO_NIC:
        draw_nic(p, device);
        break;
    case WEFTI_TOPO_NVSWITCH:
        draw_switch(p, host, device);
        break;
    default:
        break;
    }
}

/* Ports that may be used go down to it. */
static void draw_network(const wefti_svg_picture *p, const wefti_svg_host *host)
{
    const wefti_topo *topo = p->report->topo;
    const wefti_host_paths *h = paths_of(p, host->host);
    for (int i = 0; i < h->device_count; i++) {
        int device = h->first_device + i;
        const wefti_device *d = &topo->devices[device];
        if (wefti_topo_nic_usable(topo, device) && p->shown[device]) {
            wefti_svg_draw_line(
                p->file, &(wefti_svg_line){
                             .x1 = p->x[device],
                             .y1 = p->y[device],
                             .x2 = p->x[device],
                             .y2 = host->net_y,
                             .width = wefti_svg_link_width(d->nic.gbps / 8),
                             .colour = wefti_svg_link_colour(WEFTI_LINK_PORT),
                             .title = d->name});
        }
    }
    wefti_svg_draw_line(
        p->file,
        &(wefti_svg_line){.x1 = 2 * WEFTI_SVG_MARGIN,
                          .y1 = host->net_y,
                          .x2 = host->width,
                          .y2 = host->net_y,
                          .width = 4,
                          .colour = wefti_svg_link_colour(WEFTI_LINK_PORT),
                          .title = "network"});
    wefti_svg_text(p->file, WEFTI_SVG_START, 2 * WEFTI_SVG_MARGIN,
                   host->net_y - 6, 10, wefti_svg_link_colour(WEFTI_LINK_PORT),
                   80, "network");
}

void wefti_svg_host_draw(wefti_svg_picture *p, const wefti_svg_host *host)
{
    const wefti_host_paths *h = paths_of(p, host->host);
    double width = host->width, height = host->height;
    char more[64] = "";
    wefti_svg_box(p->file, WEFTI_SVG_MARGIN + width / 2, host->top + height / 2,
                  width, height, "#fafafa", "#888");
    if (host->left_out > 0) {
        snprintf(more, sizeof(more), "; %d more GPUs and NICs are not drawn",
                 host->left_out);
    }
    char title[200];
    snprintf(title, sizeof(title), "%.120s%s", host->title, more);
    wefti_svg_text(p->file, WEFTI_SVG_START, 2 * WEFTI_SVG_MARGIN,
                   host->top + 24, 15, "#111", width - 2 * WEFTI_SVG_MARGIN,
                   title);
    if (host->net_y > 0) {
        draw_network(p, host);
    }
    wefti_svg_links_draw(p, host);
    for (int i = 0; i < h->device_count; i++) {
        if (p->shown[h->first_device + i]) {
            draw_device(p, host, h->first_device + i);
        }
    }
}
