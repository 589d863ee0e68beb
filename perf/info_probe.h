/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_probe.h - what weft-info measures of this host, unless WEFT_PROBE
 * is off.
 */
#ifndef PERF_INFO_PROBE_H
#define PERF_INFO_PROBE_H

#include "base/json.h"
#include "topo/probe.h"

#include <stdio.h>

/*
 * wefti_info_probe_run - measures into topo, or reads what is in the cache
 * folder (base/cache_folder.h). off_out: WEFT_PROBE is off, nothing was done.
 *
 * Returns     OK | ERR_INVALID (WEFT_PROBE is neither on nor off) | as the
 *             probe.
 */
WEFT_NODISCARD weft_status wefti_info_probe_run(wefti_topo *topo,
                                                wefti_probe *probe_out,
                                                bool *off_out);

void wefti_info_probe_print(const wefti_probe *probe, FILE *file);
/* The member "probe"; probe NULL: null. */
void wefti_info_probe_write(const wefti_probe *probe, wefti_json *json);

#endif
