/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * topo/report_text.h - the parts of a report's text, in the order in which they
 * are printed. Of equal hosts one is shown, and how many there are.
 */
#ifndef TOPO_REPORT_TEXT_H
#define TOPO_REPORT_TEXT_H

#include "topo/report.h"

#define WEFTI_REPORT_COLUMNS 80
/* Kinds of hosts that are shown; GPUs, NICs of each. */
#define WEFTI_REPORT_CLASSES_MOST 4
#define WEFTI_REPORT_ROWS_MOST    40

/* Hosts, their processors, GPUs and NICs. */
void wefti_report_print_devices(const wefti_report *report, bool colour,
                                FILE *file);
/* What lies between GPUs, and GPUs and NICs, with a legend. */
void wefti_report_print_paths(const wefti_report *report, FILE *file);

/* How many kinds of hosts are shown. */
int wefti_report_classes_shown(const wefti_report *report);
/* "host0", "host0 (64 equal)" */
const char *wefti_report_class_text(const wefti_report *report, int class_index,
                                    char text[48]);

#endif
