/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_binding.c - plans a binding and shows it.
 */
#include "perf/info_binding.h"

#include "base/error.h"
#include "base/plain_number.h"
#include "topo/binding.h"
#include "topo/cpus.h"

#include <stdlib.h>

#define RANKS_MOST 1024
#define TEXT_BYTES 512

static void show_rank(int rank, const wefti_bound *bound, wefti_json *json,
                      FILE *file)
{
    char text[TEXT_BYTES];
    wefti_cpus_text(&bound->cpus, false, text, sizeof(text));
    if (!json) {
        fprintf(file, "rank %-4d CPUs %-24s NUMA %d%s\n", rank, text,
                bound->numa, bound->shared ? " (shared)" : "");
        return;
    }
    wefti_json_object_open(json, NULL);
    wefti_json_int(json, "rank", rank);
    wefti_json_text(json, "cpus", text);
    wefti_json_int(json, "numa", bound->numa);
    wefti_json_bool(json, "shared", bound->shared);
    wefti_json_object_close(json);
}

weft_status wefti_info_binding_show(const wefti_topo *topo, const char *ranks,
                                    wefti_json *json, FILE *file)
{
    wefti_allowance allowed;
    int count;
    weft_status status =
        wefti_plain_flag("--bind", ranks, 1, RANKS_MOST, &count);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_bound *bounds = calloc((size_t)count, sizeof(*bounds));
    int *devices = calloc((size_t)count, sizeof(*devices));
    if (!bounds || !devices) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "--bind %s", ranks);
    }
    if (status == WEFT_OK) {
        status = wefti_allowance_read("/proc", "/sys", &allowed);
    }
    if (status == WEFT_OK) {
        wefti_binding_devices(topo, count, devices);
        status = wefti_binding_plan(topo, devices, count, &allowed, bounds);
    }
    if (status == WEFT_OK && json) {
        wefti_json_array_open(json, "binding");
    } else if (status == WEFT_OK) {
        fputs("\nBinding\n", file);
    }
    for (int i = 0; i < count && status == WEFT_OK; i++) {
        show_rank(i, &bounds[i], json, file);
    }
    if (status == WEFT_OK && json) {
        wefti_json_array_close(json);
    }
    free(bounds);
    free(devices);
    return status;
}
