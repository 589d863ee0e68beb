/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report_svg.c - the graph as one picture: a box for each kind of host,
 * what is faulty in red, and below what the colours mean.
 */
#include "topo/report.h"

#include "topo/report_text.h"
#include "topo/svg.h"
#include "topo/svg_host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH_LEAST 760
#define FAULTS_MOST 12

/* ---- faults ---------------------------------------------------------------
 */

/* The device whose id a warning begins with; -1: it names none. */
static int device_of(const wefti_topo *topo, const char *text)
{
    size_t bytes = strcspn(text, " ");
    for (int i = 0; i < topo->device_count; i++) {
        char id[WEFTI_TOPO_ID_BYTES];
        wefti_topo_id(topo, i, id);
        if (strlen(id) == bytes && strncmp(id, text, bytes) == 0) {
            return i;
        }
    }
    return -1;
}

static void mark_faults(wefti_svg_picture *p)
{
    const wefti_topo *topo = p->report->topo;
    for (int i = 0; i < topo->warning_count; i++) {
        const wefti_topo_warning *warning = &topo->warnings[i];
        int device = device_of(topo, warning->device);
        if (wefti_severity_of(warning->code) != WEFTI_SEVERITY_FAULT ||
            device < 0) {
            continue;
        }
        bool pcie = warning->code == 12;
        bool links = warning->code >= 4 && warning->code <= 7;
        p->faults[device] |= WEFTI_SVG_FAULTY;
        p->faults[device] |= links ? WEFTI_SVG_LINKS_FAULTY : 0;
        p->faults[device] |= pcie ? WEFTI_SVG_PCIE_FAULTY : 0;
        /* A warning about a card's slot is drawn at its first port. */
        int parent = topo->devices[device].parent;
        if (pcie && topo->devices[parent].kind == WEFTI_TOPO_CARD) {
            p->faults[parent] |= WEFTI_SVG_FAULTY | WEFTI_SVG_PCIE_FAULTY;
        }
    }
}

/* ---- the whole ------------------------------------------------------------
 */

static const char legend[] =
    "Green: NVLink or xGMI, with the number of links (NV, XG) and GB/s. "
    "Purple: C2C. Grey: PCIe, GB/s. Orange: between NUMA nodes. Blue: network. "
    "All one way, as wide as fast. Red and dashed: a fault. smi: the index of "
    "nvidia-smi or rocm-smi; cuda: CUDA's by PCI address.";

/* Everything below the hosts; file NULL: only how far down it goes. */
static double write_notes(const wefti_report *report, double y, double width,
                          int left_out, FILE *file)
{
    double x = WEFTI_SVG_MARGIN, room = width - 2 * WEFTI_SVG_MARGIN;
    char text[480];
    int faults = 0;
    for (int i = 0; i < report->group_count; i++) {
        const wefti_warning_group *group = &report->groups[i];
        if (group->severity != WEFTI_SEVERITY_FAULT) {
            continue;
        }
        snprintf(text, sizeof(text), "%s: %s", group->devices, group->text);
        if (faults++ < FAULTS_MOST) {
            y = wefti_svg_wrap(file, x, y, 12, WEFTI_SVG_RED, room, text);
        }
    }
    if (faults > FAULTS_MOST) {
        snprintf(text, sizeof(text), "and %d more faults",
                 faults - FAULTS_MOST);
        y = wefti_svg_wrap(file, x, y, 12, WEFTI_SVG_RED, room, text);
    }
    if (left_out > 0) {
        snprintf(text, sizeof(text), "%d more kinds of hosts are not drawn.",
                 left_out);
        y = wefti_svg_wrap(file, x, y, 12, "#111", room, text);
    }
    y = wefti_svg_wrap(file, x, y, 12, "#111", room, report->topo->source);
    return wefti_svg_wrap(file, x, y, 11, "#444", room, legend);
}

static void write_picture(wefti_svg_picture *p)
{
    const wefti_report *report = p->report;
    wefti_svg_host hosts[WEFTI_REPORT_CLASSES_MOST];
    char titles[WEFTI_REPORT_CLASSES_MOST][48];
    int drawn = wefti_report_classes_shown(report);
    int left_out = report->classes.count - drawn;
    double y = WEFTI_SVG_MARGIN, width = WIDTH_LEAST;
    mark_faults(p);
    for (int i = 0; i < drawn; i++) {
        hosts[i] = (wefti_svg_host){
            .host = report->classes.first[i],
            .top = y,
            .title = wefti_report_class_text(report, i, titles[i])};
        wefti_svg_host_place(p, &hosts[i]);
        y += hosts[i].height + WEFTI_SVG_MARGIN;
        width = fmax(width, hosts[i].width + 2 * WEFTI_SVG_MARGIN);
    }
    y += 12;
    fprintf(p->file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
            "height=\"%.0f\" font-family=\"sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            width, ceil(write_notes(report, y, width, left_out, NULL)));
    for (int i = 0; i < drawn; i++) {
        wefti_svg_host_draw(p, &hosts[i]);
    }
    (void)write_notes(report, y, width, left_out, p->file);
    fputs("</svg>\n", p->file);
}

void wefti_report_write_svg(const wefti_report *report, FILE *file)
{
    size_t room = (size_t)report->topo->device_count + 1;
    wefti_svg_picture p = {report,
                           file,
                           calloc(room, sizeof(double)),
                           calloc(room, sizeof(double)),
                           calloc(room, sizeof(bool)),
                           calloc(room, 1)};
    if (p.x && p.y && p.shown && p.faults && report->paths->host_count > 0) {
        write_picture(&p);
    }
    free(p.x);
    free(p.y);
    free(p.shown);
    free(p.faults);
}
