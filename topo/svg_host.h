/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/svg_host.h - where the devices of one host stand in a picture, and the
 * drawing of them.
 */
#ifndef TOPO_SVG_HOST_H
#define TOPO_SVG_HOST_H

#include "topo/report.h"

#define WEFTI_SVG_MARGIN 20
#define WEFTI_SVG_RED    "#d0342c"
#define WEFTI_SVG_BOX_W  88 /* of a GPU or a NIC */
#define WEFTI_SVG_BOX_H  62
#define WEFTI_SVG_ARC_H  110 /* below them, for links between GPUs */

/* Any; of its links to GPUs and switches; of its PCIe link. */
enum {
    WEFTI_SVG_FAULTY = 1,
    WEFTI_SVG_LINKS_FAULTY = 2,
    WEFTI_SVG_PCIE_FAULTY = 4
};

typedef struct wefti_svg_picture {
    const wefti_report *report;
    FILE *file;
    double *x, *y;         /* centres, by device */
    bool *shown;           /* by device; the rest of a large host is counted */
    unsigned char *faults; /* by device: what warnings say of it */
} wefti_svg_picture;

/* One host's place; host is its ordinal. */
typedef struct wefti_svg_host {
    int host;
    const char *title;
    double top, width, height;
    double leaf_y, arc_y, bar_y, net_y; /* rows; 0: there is none */
    int left_out;                       /* leaves that are not shown */
} wefti_svg_host;

/* Chooses what is shown, places it, and finds width and height. */
void wefti_svg_host_place(wefti_svg_picture *picture, wefti_svg_host *host);
void wefti_svg_host_draw(wefti_svg_picture *picture,
                         const wefti_svg_host *host);

/* The links of a host, with what they carry (topo/svg_links.c). */
void wefti_svg_links_draw(const wefti_svg_picture *picture,
                          const wefti_svg_host *host);
/* Between two GPUs. */
bool wefti_svg_is_direct(const wefti_topo *topo, const wefti_topo_link *link);
double wefti_svg_link_width(double GBps);
const char *wefti_svg_link_colour(wefti_link_type type);
/* Of what is written. */
const char *wefti_svg_ink(bool faulty);
/* A figure or name beside a line. */
void wefti_svg_label(const wefti_svg_picture *picture, double x, double y,
                     bool faulty, const char *text);

#endif
