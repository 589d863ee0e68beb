/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/svg_links.c - links of one host of a picture, with what they carry.
 */
#include "topo/svg_host.h"

#include "topo/svg.h"

#include <math.h>
#include <stdlib.h>

#define LABELS_MOST 16 /* direct links whose figures fit */

static int first_device_of(const wefti_svg_picture *p,
                           const wefti_svg_host *host)
{
    return p->report->paths->hosts[host->host].first_device;
}

bool wefti_svg_is_direct(const wefti_topo *topo, const wefti_topo_link *link)
{
    return topo->devices[link->a].kind == WEFTI_TOPO_GPU &&
           topo->devices[link->b].kind == WEFTI_TOPO_GPU;
}

double wefti_svg_link_width(double GBps)
{
    return fmin(12, 0.8 + sqrt(fmax(GBps, 0)) / 3);
}

const char *wefti_svg_link_colour(wefti_link_type type)
{
    switch (type) {
    case WEFTI_LINK_NVL:
    case WEFTI_LINK_XGMI:
        return "#4a9d2f";
    case WEFTI_LINK_C2C:
        return "#8a4fbf";
    case WEFTI_LINK_SYS:
        return "#d9822b";
    case WEFTI_LINK_PORT:
        return "#2b6fd9";
    case WEFTI_LINK_PCI:
        break;
    }
    return "#8a8f98";
}

const char *wefti_svg_ink(bool faulty)
{
    return faulty ? WEFTI_SVG_RED : "#444";
}

/* Its own, or that of the device it leads to. */
static bool is_faulty(const wefti_svg_picture *p, const wefti_topo_link *link)
{
    const wefti_device *b = &p->report->topo->devices[link->b];
    bool port_down =
        b->kind == WEFTI_TOPO_NIC && b->nic.state == WEFTI_NIC_DOWN;
    if (link->type == WEFTI_LINK_PCI) {
        return (p->faults[link->b] & WEFTI_SVG_PCIE_FAULTY) != 0;
    }
    bool links = link->type == WEFTI_LINK_NVL || link->type == WEFTI_LINK_XGMI;
    return link->down > 0 || port_down ||
           (links && (p->faults[link->a] & WEFTI_SVG_LINKS_FAULTY));
}

void wefti_svg_label(const wefti_svg_picture *p, double x, double y,
                     bool faulty, const char *text)
{
    wefti_svg_halo(p->file, x, y, 9, wefti_svg_ink(faulty), 64, text);
}

/* "NV18 450 GB/s" of a GPU, where it leaves for a switch or another GPU. */
static void label_nvlink(const wefti_svg_picture *p,
                         const wefti_topo_link *link, double x, double y)
{
    char text[40];
    snprintf(text, sizeof(text), "%s%d %.4g",
             link->type == WEFTI_LINK_XGMI ? "XG" : "NV", link->count,
             link->GBps);
    wefti_svg_label(p, x, y, is_faulty(p, link), text);
}

static void label_pcie(const wefti_svg_picture *p, const wefti_topo_link *link)
{
    const wefti_device *d = &p->report->topo->devices[link->b];
    char text[24];
    if (d->kind == WEFTI_TOPO_BRIDGE || !d->pci.bus[0]) {
        return;
    }
    double y =
        p->y[link->b] - (d->kind == WEFTI_TOPO_GPU ? WEFTI_SVG_BOX_H / 2.0 : 4);
    snprintf(text, sizeof(text), "%.3g GB/s", link->GBps);
    wefti_svg_label(p, p->x[link->b] + 4, y - 5, is_faulty(p, link), text);
}

static void title_of(const wefti_topo *topo, const wefti_topo_link *link,
                     char title[160])
{
    char a[WEFTI_TOPO_ID_BYTES], b[WEFTI_TOPO_ID_BYTES];
    int used = snprintf(title, 160, "%s - %s: %s x%d, %.4g GB/s (%s)",
                        wefti_topo_id(topo, link->a, a),
                        wefti_topo_id(topo, link->b, b),
                        wefti_link_type_text(link->type), link->count,
                        link->GBps, wefti_origin_text(link->origin));
    if (link->down > 0) {
        snprintf(title + used, 160 - (size_t)used, ", %d down", link->down);
    }
}

/* Between GPUs below them, between NUMA nodes that are not neighbours above;
 * the farther, the deeper, within the row. */
static double bend_of(const wefti_svg_picture *p, const wefti_svg_host *host,
                      const wefti_topo_link *link)
{
    const wefti_topo *topo = p->report->topo;
    double share = fabs(p->x[link->a] - p->x[link->b]) / host->width;
    if (wefti_svg_is_direct(topo, link)) {
        return 30 + (WEFTI_SVG_ARC_H - 34) * fmin(1, share);
    }
    if (link->type == WEFTI_LINK_SYS && abs(link->a - link->b) > 1) {
        return -14 - 18 * fmin(1, share);
    }
    return 0;
}

/* To a switch straight down, between GPUs below them, else from centre to
 * centre. */
static wefti_svg_line line_of(const wefti_svg_picture *p,
                              const wefti_svg_host *host,
                              const wefti_topo_link *link)
{
    const wefti_topo *topo = p->report->topo;
    bool faulty = is_faulty(p, link);
    wefti_svg_line line = {.x1 = p->x[link->a],
                           .y1 = p->y[link->a],
                           .x2 = p->x[link->b],
                           .y2 = p->y[link->b],
                           .bend = bend_of(p, host, link),
                           .width = wefti_svg_link_width(link->GBps),
                           .colour = faulty ? WEFTI_SVG_RED
                                            : wefti_svg_link_colour(link->type),
                           .dashed = faulty};
    if (topo->devices[link->b].kind == WEFTI_TOPO_NVSWITCH) {
        line.x2 = line.x1;
    } else if (topo->devices[link->a].kind == WEFTI_TOPO_NVSWITCH) {
        line.x1 = line.x2;
    } else if (wefti_svg_is_direct(topo, link)) {
        line.y1 = line.y2 = host->arc_y - 14;
    }
    return line;
}

static void label_to_node(const wefti_svg_picture *p,
                          const wefti_topo_link *link)
{
    const wefti_topo *topo = p->report->topo;
    bool a = topo->devices[link->a].kind == WEFTI_TOPO_GPU;
    int gpu = a ? link->a : link->b;
    char text[40];
    snprintf(text, sizeof(text), "%s %.4g", wefti_link_type_text(link->type),
             link->GBps);
    wefti_svg_label(p, p->x[gpu] - WEFTI_SVG_BOX_W / 2.0,
                    p->y[gpu] - WEFTI_SVG_BOX_H / 2.0 - 5, is_faulty(p, link),
                    text);
}

static void label_link(const wefti_svg_picture *p, const wefti_svg_host *host,
                       const wefti_topo_link *link, bool all)
{
    const wefti_topo *topo = p->report->topo;
    const wefti_svg_line line = line_of(p, host, link);
    double middle = (line.x1 + line.x2) / 2;
    if (wefti_svg_is_direct(topo, link)) {
        if (all || is_faulty(p, link)) {
            label_nvlink(p, link, middle - 14, line.y1 + line.bend - 3);
        }
    } else if (link->type == WEFTI_LINK_PCI) {
        label_pcie(p, link);
    } else if (link->type == WEFTI_LINK_SYS && abs(link->a - link->b) == 1) {
        char text[24];
        snprintf(text, sizeof(text), "%.3g GB/s", link->GBps);
        wefti_svg_label(p, middle - 20, line.y1 - 5, false, text);
    } else if (host->bar_y > 0 &&
               (line.y1 == host->bar_y || line.y2 == host->bar_y)) {
        label_nvlink(p, link, line.x1 + 8, host->bar_y - 18);
    } else if (link->type != WEFTI_LINK_PORT && link->type != WEFTI_LINK_SYS) {
        label_to_node(p, link); /* a GPU and its processor */
    }
}

/* One figure for direct links that are too many for one each. */
static void label_all(const wefti_svg_picture *p, const wefti_svg_host *host,
                      int direct)
{
    const wefti_topo *topo = p->report->topo;
    int first = first_device_of(p, host);
    double least = 0, most = 0;
    char text[80];
    for (int i = 0; i < topo->link_count; i++) {
        const wefti_topo_link *link = &topo->links[i];
        if (topo->devices[link->a].host == first &&
            wefti_svg_is_direct(topo, link)) {
            least = least > 0 ? fmin(least, link->GBps) : link->GBps;
            most = fmax(most, link->GBps);
        }
    }
    int used =
        snprintf(text, sizeof(text), "%d direct links between pairs, ", direct);
    snprintf(text + used, sizeof(text) - (size_t)used,
             least < most ? "%.4g to %.4g GB/s each" : "%.4g GB/s each", least,
             most);
    wefti_svg_text(p->file, WEFTI_SVG_START, 2 * WEFTI_SVG_MARGIN,
                   host->arc_y + WEFTI_SVG_ARC_H - 8, 10,
                   wefti_svg_link_colour(WEFTI_LINK_NVL),
                   host->width - 2 * WEFTI_SVG_MARGIN, text);
}

/* Lines first: what is written stands on them. */
void wefti_svg_links_draw(const wefti_svg_picture *p,
                          const wefti_svg_host *host)
{
    const wefti_topo *topo = p->report->topo;
    int first = first_device_of(p, host), direct = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < topo->link_count; i++) {
            const wefti_topo_link *link = &topo->links[i];
            if (topo->devices[link->a].host != first || !p->shown[link->a] ||
                !p->shown[link->b]) {
                continue;
            }
            if (pass == 1) {
                label_link(p, host, link, direct <= LABELS_MOST);
                continue;
            }
            char title[160];
            wefti_svg_line line = line_of(p, host, link);
            direct += wefti_svg_is_direct(topo, link);
            title_of(topo, link, title);
            line.title = title;
            wefti_svg_draw_line(p->file, &line);
        }
    }
    if (direct > LABELS_MOST) {
        label_all(p, host, direct);
    }
}
