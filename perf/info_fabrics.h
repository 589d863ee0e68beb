/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_fabrics.h - by which ways ranks on this machine could exchange
 * bytes, and why not by the others.
 */
#ifndef PERF_INFO_FABRICS_H
#define PERF_INFO_FABRICS_H

#include "base/json.h"

#include <stdio.h>

/* The array "fabrics"; live false: of a recorded machine nobody can tell. */
void wefti_info_fabrics_write(bool live, wefti_json *json);
void wefti_info_fabrics_print(FILE *file);

#endif
