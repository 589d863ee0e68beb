/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/warning_groups.h - warnings that say the same of several devices as one,
 * grave ones first.
 */
#ifndef TOPO_WARNING_GROUPS_H
#define TOPO_WARNING_GROUPS_H

#include "topo/graph.h"

typedef enum wefti_severity {
    WEFTI_SEVERITY_FAULT, /* something is broken, or slower than it should be */
    WEFTI_SEVERITY_DOUBT, /* a figure is missing, inferred or not believed */
    WEFTI_SEVERITY_NOTE   /* odd, and allowed for */
} wefti_severity;

/* By the number of docs/topology.md. */
wefti_severity wefti_severity_of(int code);
const char *wefti_severity_text(wefti_severity severity);

/* "gpu0-7", "nic0,nic4-6", "0004:02:0a.0 and 3 more". */
typedef struct wefti_warning_group {
    int code, count;
    wefti_severity severity;
    int first; /* the warning that came first */
    char devices[120];
    char text[256]; /* ids in it that differ are "gpu#" */
} wefti_warning_group;

/* All warnings of topo in groups; free() them. Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_warning_groups_list(const wefti_topo *topo,
                                                     wefti_warning_group **out,
                                                     int *count_out);

#endif
