/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_fabrics.h - by which ways ranks on this machine could exchange
 * bytes, and why not by the others.
 */
#ifndef PERF_INFO_FABRICS_H
#define PERF_INFO_FABRICS_H

#include "base/json.h"
#include "comm/net/transports.h"

#include <stdio.h>

/*
 * The array "fabrics"; live false: of a recorded machine nobody can tell.
 * transports   of the network module; NULL: there is none.
 */
void wefti_info_fabrics_write(bool live, const wefti_transports *transports,
                              wefti_json *json);
void wefti_info_fabrics_print(const wefti_transports *transports, FILE *file);

#endif
