/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report_svg.c - the graph as one picture.
 *
 *     host      +--------------------------------------------+
 *     NUMA      |   [ numa0 ]-----------------[ numa1 ]      |
 *     switches  |  (br)  (br)               (br)  (br)       |
 *     leaves    |  gpu nic gpu nic         gpu nic gpu nic   |
 *     NVSwitch  |  =======================================   |
 *               +--------------------------------------------+
 *
 * Leaves stand in the order of the tree; direct links between GPUs are arcs
 * below them. A line is as wide as the link is fast.
 */
#include "topo/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define HOSTS_MOST 8
#define LEAF_W     86
#define HOST_H     430
#define MARGIN     20
#define LEGEND_W   720 /* what the words below need */
enum { ROW_NUMA = 70, ROW_BRIDGE = 140, ROW_LEAF = 230, ROW_SWITCH = 350 };

typedef struct canvas {
    const wefti_report *report;
    FILE *file;
    double *x, *y; /* centres, by device */
    double next_x; /* of the next leaf */
} canvas;

/* Names come from files. */
static void put_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '&' || c == '<' || c == '>' || c == '"' || c < ' ' ||
            c >= 0x7f) {
            fprintf(file, "&#%d;", c < ' ' ? '?' : c);
        } else {
            fputc(c, file);
        }
    }
}

static bool is_leaf(const wefti_device *d)
{
    return d->kind == WEFTI_TOPO_GPU || d->kind == WEFTI_TOPO_NIC;
}

static int row_of(wefti_topo_kind kind)
{
    switch (kind) {
    case WEFTI_TOPO_NUMA:
        return ROW_NUMA;
    case WEFTI_TOPO_BRIDGE:
    case WEFTI_TOPO_CARD:
        return ROW_BRIDGE;
    case WEFTI_TOPO_NVSWITCH:
        return ROW_SWITCH;
    default:
        return ROW_LEAF;
    }
}

/* Leaves from left to right, everything else above the middle of its own. */
static void place(canvas *c, int device, int last, double top, int level)
{
    const wefti_topo *topo = c->report->topo;
    const wefti_device *d = &topo->devices[device];
    double sum = 0;
    int count = 0;
    for (int i = device + 1; i < last && level < 64; i++) {
        if (topo->devices[i].parent == device &&
            topo->devices[i].kind != WEFTI_TOPO_NVSWITCH) {
            place(c, i, last, top, level + 1);
            sum += c->x[i];
            count++;
        }
    }
    if (is_leaf(d) || count == 0) {
        c->x[device] = c->next_x;
        c->next_x += is_leaf(d) || d->kind == WEFTI_TOPO_NUMA ? LEAF_W : 0;
    } else {
        c->x[device] = sum / count;
    }
    /* A switch below a switch stands a little lower. */
    bool nested = d->parent >= 0 && d->kind == WEFTI_TOPO_BRIDGE &&
                  topo->devices[d->parent].kind == WEFTI_TOPO_BRIDGE;
    bool card = d->kind == WEFTI_TOPO_CARD;
    c->y[device] = top + row_of(d->kind) + (nested || card ? 34 : 0);
}

static double width_of(double GBps)
{
    return fmin(12, 0.8 + sqrt(fmax(GBps, 0)) / 3);
}

static const char *colour_of(wefti_link_type type)
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

static void draw_link(const canvas *c, const wefti_link *link)
{
    const wefti_topo *topo = c->report->topo;
    const wefti_device *a = &topo->devices[link->a];
    const wefti_device *b = &topo->devices[link->b];
    double x1 = c->x[link->a], y1 = c->y[link->a];
    double x2 = c->x[link->b], y2 = c->y[link->b];
    char names[2][WEFTI_TOPO_ID_BYTES];
    bool down = link->down > 0 ||
                (b->kind == WEFTI_TOPO_NIC && b->nic.state == WEFTI_NIC_DOWN);
    if (b->kind == WEFTI_TOPO_NVSWITCH) {
        x2 = x1; /* straight down to the bar */
    }
    fprintf(c->file, "<path d=\"M%.0f %.0f ", x1, y1);
    if (a->kind == b->kind && a->kind == WEFTI_TOPO_GPU) {
        fprintf(c->file, "Q%.0f %.0f ", (x1 + x2) / 2,
                y1 + 60 + fabs(x2 - x1) / 5);
    } else {
        fputs("L", c->file);
    }
    fprintf(c->file,
            "%.0f %.0f\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"%s>",
            x2, y2, down ? "#d0342c" : colour_of(link->type),
            width_of(link->GBps), down ? " stroke-dasharray=\"5 4\"" : "");
    fprintf(c->file, "<title>%s - %s: %s x%d, %.4g GB/s (%s)",
            wefti_topo_id(topo, link->a, names[0]),
            wefti_topo_id(topo, link->b, names[1]),
            wefti_link_type_text(link->type), link->count, link->GBps,
            wefti_origin_text(link->origin));
    if (link->down > 0) {
        fprintf(c->file, ", %d down", link->down);
    }
    fputs("</title></path>\n", c->file);
}

static void draw_box(const canvas *c, int device, double w, double h,
                     const char *fill, const char *line1, const char *line2)
{
    double x = c->x[device], y = c->y[device];
    fprintf(c->file,
            "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%.0f\" "
            "rx=\"5\" fill=\"%s\" stroke=\"#333\"/>\n",
            x - w / 2, y - h / 2, w, h, fill);
    fprintf(c->file, "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\">", x,
            line2[0] ? y - 2 : y + 4);
    put_text(c->file, line1);
    fputs("</text>\n", c->file);
    if (line2[0]) {
        fprintf(c->file,
                "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"middle\" "
                "class=\"s\">",
                x, y + 12);
        put_text(c->file, line2);
        fputs("</text>\n", c->file);
    }
}

#define NAME_MOST 11 /* letters in a box */

/* Without whose it is: the box is narrow. */
static const char *short_name(const char *name)
{
    static const char *const makers[] = {"NVIDIA ", "Tesla ", "AMD ",
                                         "Instinct "};
    for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++) {
        size_t bytes = strlen(makers[i]);
        name += strncmp(name, makers[i], bytes) == 0 ? bytes : 0;
    }
    return name;
}

/* How many bytes of it fit, cut between words where there are several. */
static int whole_words(const char *name)
{
    int bytes = (int)strlen(name);
    if (bytes <= NAME_MOST) {
        return bytes;
    }
    for (bytes = NAME_MOST; bytes > 0 && !strchr(" -/", name[bytes]);) {
        bytes--;
    }
    return bytes > 0 ? bytes : NAME_MOST;
}

static void draw_device(canvas *c, int device, double left, double right)
{
    const wefti_topo *topo = c->report->topo;
    const wefti_device *d = &topo->devices[device];
    char id[WEFTI_TOPO_ID_BYTES], more[32] = "";
    wefti_topo_id(topo, device, id);
    switch (d->kind) {
    case WEFTI_TOPO_NUMA:
        snprintf(more, sizeof(more), "numa%d", d->os_index);
        draw_box(c, device, 90, 30, "#fdf1d6",
                 d->os_index < 0 ? "numa ?" : more, "");
        break;
    case WEFTI_TOPO_BRIDGE:
    case WEFTI_TOPO_CARD:
        fprintf(c->file,
                "<circle cx=\"%.0f\" cy=\"%.0f\" r=\"6\" fill=\"#e3e5e8\" "
                "stroke=\"#333\"><title>%s %s</title></circle>\n",
                c->x[device], c->y[device], id, d->pci.bus);
        break;
    case WEFTI_TOPO_GPU:
        snprintf(more, sizeof(more), "%.*s", whole_words(short_name(d->name)),
                 short_name(d->name));
        draw_box(c, device, LEAF_W - 10, 44, "#e2f3dc", id, more);
        break;
    case WEFTI_TOPO_NIC:
        snprintf(more, sizeof(more), "%.4g Gb/s", d->nic.gbps);
        if (d->nic.state == WEFTI_NIC_DOWN) {
            snprintf(more, sizeof(more), "down");
        }
        draw_box(c, device, LEAF_W - 10, 44,
                 d->nic.state == WEFTI_NIC_DOWN ? "#f8d7d5" : "#dbe8fb", id,
                 more);
        break;
    case WEFTI_TOPO_NVSWITCH:
        c->x[device] = (left + right) / 2;
        draw_box(c, device, right - left, 26, "#c9e7be", "NVSwitch", "");
        break;
    default:
        break;
    }
}

/* Ports of several hosts meet below them. */
static void draw_network(const canvas *c, int host, double top, double left,
                         double right)
{
    const wefti_paths *paths = c->report->paths;
    const wefti_host_paths *h = &paths->hosts[host];
    double y = top + HOST_H - 15;
    if (paths->host_count < 2) {
        return;
    }
    for (int i = 0; i < h->nic_count; i++) {
        int device = paths->nics[h->first_nic + i];
        if (wefti_topo_nic_usable(c->report->topo, device)) {
            fprintf(c->file,
                    "<path d=\"M%.0f %.0fV%.0f\" stroke=\"#2b6fd9\" "
                    "stroke-width=\"%.1f\"/>\n",
                    c->x[device], c->y[device], y,
                    width_of(c->report->topo->devices[device].nic.gbps / 8));
        }
    }
    fprintf(c->file,
            "<path d=\"M%.0f %.0fH%.0f\" stroke=\"#2b6fd9\" "
            "stroke-width=\"4\"><title>network</title></path>\n",
            left, y, right + MARGIN + 6);
}

static void draw_host(canvas *c, int host, double top)
{
    const wefti_topo *topo = c->report->topo;
    const wefti_host_paths *h = &c->report->paths->hosts[host];
    int first = h->first_device, last = first + h->device_count;
    double left = c->next_x;
    c->next_x += LEAF_W / 2.0 + MARGIN;
    double inner = c->next_x - LEAF_W / 2.0;
    place(c, first, last, top, 0);
    for (int i = first; i < last; i++) {
        if (topo->devices[i].kind == WEFTI_TOPO_NVSWITCH) {
            c->y[i] = top + ROW_SWITCH;
        }
    }
    double right = c->next_x - LEAF_W / 2.0;
    right = right < inner + 2 * LEAF_W ? inner + 2 * LEAF_W : right;
    fprintf(c->file,
            "<rect x=\"%.0f\" y=\"%.0f\" width=\"%.0f\" height=\"%d\" "
            "rx=\"10\" fill=\"#fafafa\" stroke=\"#888\"/>\n"
            "<text x=\"%.0f\" y=\"%.0f\" class=\"h\">host%d</text>\n",
            left, top, right - left + MARGIN, HOST_H - 30, left + 12, top + 24,
            host);
    draw_network(c, host, top, inner, right);
    for (int i = 0; i < topo->link_count; i++) {
        if (topo->devices[topo->links[i].a].host == first) {
            draw_link(c, &topo->links[i]);
        }
    }
    for (int i = first; i < last; i++) {
        draw_device(c, i, inner, right);
    }
    c->next_x = right + 2 * MARGIN;
}

/* Of the widest host that is drawn. */
static int count_leaves(const wefti_topo *topo, int drawn,
                        const wefti_paths *paths)
{
    int most = 2;
    for (int host = 0; host < drawn; host++) {
        const wefti_host_paths *h = &paths->hosts[host];
        int leaves = h->gpu_count + h->nic_count;
        for (int i = 0; i < h->device_count; i++) {
            leaves +=
                topo->devices[h->first_device + i].kind == WEFTI_TOPO_NUMA &&
                leaves < 2;
        }
        most = leaves > most ? leaves : most;
    }
    return most;
}

/* One host a row, or two where they are small; a cloud joins their NICs. */
void wefti_report_write_svg(const wefti_report *report, FILE *file)
{
    const wefti_topo *topo = report->topo;
    int hosts = report->paths->host_count;
    int drawn = hosts > HOSTS_MOST ? HOSTS_MOST : hosts;
    size_t room = (size_t)topo->device_count + 1;
    canvas c = {report, file, calloc(room, sizeof(double)),
                calloc(room, sizeof(double)), MARGIN};
    if (!c.x || !c.y || hosts == 0) {
        free(c.x);
        free(c.y);
        return;
    }
    double width =
        (count_leaves(topo, drawn, report->paths)) * LEAF_W + 5 * MARGIN;
    width = fmax(width, LEGEND_W);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%d\" font-family=\"sans-serif\" font-size=\"13\">\n"
            "<style>.s{font-size:10px}.h{font-size:15px;font-weight:bold}"
            "</style>\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>"
            "\n",
            width, drawn * HOST_H + 80);
    for (int i = 0; i < drawn; i++) {
        c.next_x = MARGIN;
        draw_host(&c, i, MARGIN + i * HOST_H);
    }
    if (drawn > 1) {
        fprintf(file,
                "<path d=\"M%.0f %dV%d\" stroke=\"#2b6fd9\" "
                "stroke-width=\"4\"/>\n",
                c.next_x - MARGIN + 6, MARGIN + HOST_H - 15,
                MARGIN + drawn * HOST_H - 15);
    }
    fprintf(file, "<text x=\"%d\" y=\"%d\">", MARGIN, drawn * HOST_H + 30);
    put_text(file, topo->source);
    fprintf(file,
            ": %d host%s%s</text>\n<text x=\"%d\" y=\"%d\">Green NVLink, "
            "purple C2C, grey PCIe, orange between NUMA nodes, blue ports; "
            "dashed red is down.</text>\n</svg>\n",
            hosts, hosts == 1 ? "" : "s",
            hosts > drawn ? ", the first eight drawn" : "", MARGIN,
            drawn * HOST_H + 52);
    free(c.x);
    free(c.y);
}
