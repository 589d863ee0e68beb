/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_binding.h - weft-info --bind N: which CPUs N ranks of this host
 * would get, rank i beside GPU i.
 */
#ifndef PERF_INFO_BINDING_H
#define PERF_INFO_BINDING_H

#include "base/json.h"
#include "topo/graph.h"

#include <stdio.h>

/*
 * wefti_info_binding_show - as the member "binding" of json, or as text.
 *
 * ranks       a number, as text.
 * Returns     OK | ERR_INVALID | ERR_SYSTEM | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_info_binding_show(const wefti_topo *topo,
                                                   const char *ranks,
                                                   wefti_json *json,
                                                   FILE *file);

#endif
