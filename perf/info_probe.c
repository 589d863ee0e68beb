/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_probe.c - the probe, its folder and its words.
 */
#include "perf/info_probe.h"

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/settings.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

weft_status wefti_info_probe_run(wefti_topo *topo, wefti_probe *probe_out,
                                 bool *off_out)
{
    char path[PATH_MAX];
    const char *wanted = wefti_setting_text(WEFTI_SETTING_PROBE);
    *off_out = strcmp(wanted, "off") == 0;
    if (*off_out) {
        return WEFT_OK;
    }
    if (strcmp(wanted, "on") != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "WEFT_PROBE=%s: allowed is on or off", wanted);
    }
    weft_status status = wefti_probe_run(
        topo, wefti_cache_folder_find(path) ? path : NULL, probe_out);
    if (status == WEFT_OK) {
        wefti_probe_apply(probe_out, topo);
    }
    return status;
}

void wefti_info_probe_print(const wefti_probe *probe, FILE *file)
{
    fprintf(file, "\nMeasured%s\n", probe->from_cache ? " before" : "");
    fprintf(file, "copy of memory, one core    %8.4g GB/s\n", probe->copy_GBps);
    if (probe->handover_us > 0) {
        fprintf(file, "from one core to another    %8.4g us\n",
                probe->handover_us);
    }
    if (!probe->steady) {
        fputs("disturbed by other work: not kept, measured anew next time\n",
              file);
    }
    for (int i = 0; i < probe->pair_count; i++) {
        fprintf(file, "from NUMA node %d to %d       %8.4g GB/s\n",
                probe->pairs[i][0], probe->pairs[i][1], probe->pair_GBps[i]);
    }
}

void wefti_info_probe_write(const wefti_probe *probe, wefti_json *json)
{
    if (!probe) {
        wefti_json_null(json, "probe");
        return;
    }
    wefti_json_object_open(json, "probe");
    wefti_json_real(json, "copy_GBps", probe->copy_GBps);
    if (probe->handover_us > 0) {
        wefti_json_real(json, "handover_us", probe->handover_us);
    } else {
        wefti_json_null(json, "handover_us");
    }
    wefti_json_bool(json, "steady", probe->steady);
    wefti_json_bool(json, "from_cache", probe->from_cache);
    wefti_json_object_close(json);
}
