/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_placement.c - plans a placement and shows it.
 */
#include "perf/info_placement.h"

#include "base/error.h"
#include "topo/placement.h"

#include <stdlib.h>
#include <string.h>

static void write_placement(const wefti_levels *levels,
                            const wefti_placement *p, wefti_json *json)
{
    wefti_json_object_open(json, "placement");
    wefti_json_array_open(json, "order");
    for (int i = 0; i < WEFTI_AXIS_COUNT; i++) {
        wefti_json_text(json, NULL, wefti_axis_text((wefti_axis)p->order[i]));
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "gpus"); /* by rank */
    for (int rank = 0; rank < p->rank_count; rank++) {
        wefti_json_int(json, NULL, levels->gpus[p->places[rank]]);
    }
    wefti_json_array_close(json);
    wefti_json_array_open(json, "levels");
    for (int level = 0; level < levels->level_count; level++) {
        wefti_json_object_open(json, NULL);
        wefti_json_text(json, "name", levels->names[level]);
        wefti_json_real(json, "GBps", levels->GBps[level]);
        wefti_json_real(json, "bytes_before", p->before[level]);
        wefti_json_real(json, "bytes_after", p->after[level]);
        wefti_json_object_open(json, "after_by_axis");
        for (int axis = 0; axis < WEFTI_AXIS_COUNT; axis++) {
            wefti_json_real(json, wefti_axis_text((wefti_axis)axis),
                            p->by_axis[axis][level]);
        }
        wefti_json_object_close(json);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

static int compare_ints(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/* A place for each rank of the job, host by host. */
static weft_status open_levels(const wefti_report *report,
                               const wefti_info_job *running,
                               wefti_levels **levels_out)
{
    int nranks = weft_comm_get_nranks(running->comm);
    size_t bytes = (size_t)nranks * sizeof(int);
    int *hosts = malloc(bytes);
    if (!hosts) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "hosts of %d ranks", nranks);
    }
    memcpy(hosts, running->cluster.hosts, bytes);
    qsort(hosts, (size_t)nranks, sizeof(int), compare_ints);
    weft_status status =
        wefti_levels_create_of(report->paths, hosts, nranks, levels_out);
    free(hosts);
    return status;
}

weft_status wefti_info_placement_show(const wefti_report *report,
                                      const char *sizes,
                                      const wefti_info_job *running,
                                      wefti_json *json, FILE *file)
{
    wefti_place_job job;
    wefti_placement placement;
    wefti_levels *levels;
    weft_status status = wefti_place_job_read(sizes, &job);
    if (status == WEFT_OK) {
        status = running ? open_levels(report, running, &levels)
                         : wefti_levels_create(report->paths, 1, &levels);
    }
    if (status != WEFT_OK) {
        return wefti_error(status, "--place %s: %s", sizes, weft_error_text());
    }
    status = wefti_place_plan(levels, &job, &placement);
    if (status != WEFT_OK) {
        status =
            wefti_error(status, "--place %s: %s", sizes, weft_error_text());
    } else {
        if (json) {
            write_placement(levels, &placement, json);
        } else if (file) {
            wefti_placement_print(levels, &job, &placement, file);
        }
        wefti_placement_fini(&placement);
    }
    wefti_levels_destroy(levels);
    return status;
}
