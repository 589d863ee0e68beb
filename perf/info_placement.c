/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/info_placement.c - plans a placement and shows it.
 */
#include "perf/info_placement.h"

#include "base/error.h"
#include "topo/placement.h"

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
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
    wefti_json_object_close(json);
}

weft_status wefti_info_placement_show(const wefti_report *report,
                                      const char *sizes, wefti_json *json,
                                      FILE *file)
{
    wefti_place_job job;
    wefti_placement placement;
    wefti_levels *levels;
    weft_status status = wefti_place_job_read(sizes, &job);
    if (status == WEFT_OK) {
        status = wefti_levels_create(report->paths, 1, &levels);
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
