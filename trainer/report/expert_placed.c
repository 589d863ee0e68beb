/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/report/expert_placed.c - each placement between the steps before it
 * and those up to the next one.
 */
#include "trainer/report/expert_placed.h"

/* Those behind a placement. */
static wefti_placed_run run_after(const wefti_expert_place *place, size_t which)
{
    return which + 1 < place->count ? place->placed[which + 1].before
                                    : wefti_expert_place_run(place);
}

void wefti_expert_placed_print(const wefti_expert_place *place, FILE *file)
{
    double bytes = 0;
    size_t experts = 0;
    if (!place || place->count == 0) {
        return;
    }
    for (size_t i = 0; i < place->count; i++) {
        bytes += place->placed[i].bytes;
        experts += place->placed[i].experts;
    }
    const wefti_placed_run first = place->placed[0].before;
    const wefti_placed_run last = run_after(place, place->count - 1);
    fprintf(file,
            "%-18s %7zu in %zu placements, %.1f MB: the busiest rank had %.2f "
            "times the mean before the first, in steps of %.2f ms, and has "
            "%.2f since the last, in %.2f ms\n",
            "experts moved", experts, place->count, bytes * 1e-6, first.ratio,
            first.step_ms, last.ratio, last.step_ms);
}

static void put_run(wefti_json *json, const char *name,
                    const wefti_placed_run *run)
{
    wefti_json_object_open(json, name);
    wefti_json_uint(json, "steps", run->steps);
    wefti_json_real(json, "ratio", run->ratio);
    wefti_json_real(json, "step_ms", run->step_ms);
    wefti_json_object_close(json);
}

void wefti_expert_placed_put(const wefti_expert_place *place, wefti_json *json,
                             const char *name)
{
    if (!place) {
        wefti_json_null(json, name);
        return;
    }
    wefti_json_array_open(json, name);
    for (size_t i = 0; i < place->count; i++) {
        const wefti_placed *placed = &place->placed[i];
        const wefti_placed_run after = run_after(place, i);
        wefti_json_object_open(json, NULL);
        wefti_json_uint(json, "step", placed->step);
        wefti_json_uint(json, "experts", placed->experts);
        wefti_json_real(json, "bytes", placed->bytes);
        wefti_json_real(json, "ratio_planned", placed->ratio_planned);
        put_run(json, "before", &placed->before);
        put_run(json, "after", &after);
        wefti_json_object_close(json);
    }
    wefti_json_array_close(json);
}
