/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report.h - a graph, its paths and rings, for people and programs: text
 * of 80 columns, JSON, a picture.
 */
#ifndef TOPO_REPORT_H
#define TOPO_REPORT_H

#include "base/json.h"
#include "topo/gpu_numbers.h"
#include "topo/host_classes.h"
#include "topo/pair_links.h"
#include "topo/paths.h"
#include "topo/rings.h"
#include "topo/warning_groups.h"

#include <stdio.h>

/* Everything that is shown; made once, shown in several ways. */
typedef struct wefti_report {
    const wefti_topo *topo; /* borrowed */
    wefti_paths *paths;
    wefti_rings rings;  /* of the host whose rings carry least */
    wefti_rings chains; /* of the same */
    wefti_rings net;    /* likewise; channels 0 where it has no NIC */
    wefti_rings net_chains;
    int host, net_host; /* those hosts; -1 none has a GPU */
    wefti_host_classes classes;
    wefti_pair_links *pairs;
    int *uplinks;               /* by device */
    wefti_gpu_numbers *numbers; /* by GPU */
    wefti_warning_group *groups;
    int group_count;
} wefti_report;

/* topo gets the warnings that comparing its hosts finds. */
WEFT_NODISCARD weft_status wefti_report_init(wefti_report *report,
                                             wefti_topo *topo);
void wefti_report_fini(wefti_report *report);

/* A GPU's name without its maker's, for narrow places. */
const char *wefti_report_short_name(const char *name);

/* Lines of at most 80 columns; colour marks what is wrong. */
void wefti_report_print(const wefti_report *report, bool colour, FILE *file);

/* A text and its end of line, from that column on (of 80) with a blank before
 * each word, broken at blanks; further lines begin after the indent. */
void wefti_report_wrap(const char *text, int indent, int column, FILE *file);

/* Members source, warnings, gpus .. rings_multinode of an open object. */
void wefti_report_write_json(const wefti_report *report, wefti_json *json);

/* One picture: hosts, NUMA nodes, switches, GPUs, NICs; links as wide as they
 * are fast, what is down dashed. At most eight hosts are drawn. */
void wefti_report_write_svg(const wefti_report *report, FILE *file);

#endif
