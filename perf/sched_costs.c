/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/sched_costs.c - costs by stage.
 */
#include "perf/sched_costs.h"

#include "base/error.h"

#include <stdlib.h>

static weft_stage_cost split(const weft_stage_cost *cost)
{
    weft_stage_cost own = *cost;
    own.b = cost->b > 0 ? cost->b : cost->i + cost->w;
    if (cost->i + cost->w <= 0) {
        own.i = own.w = own.b / 2;
    }
    return own;
}

static void add(weft_stage_cost *to, const weft_stage_cost *cost, double share)
{
    const weft_stage_cost own = split(cost);
    to->f += share * own.f;
    to->i += share * own.i;
    to->w += share * own.w;
    to->b += share * own.b;
}

weft_status wefti_sched_costs(const wefti_sched_options *options, int stages,
                              int directions, int chunks,
                              weft_schedule_cost *cost_out)
{
    const int encoder = options->encoder_chunks;
    const int length = stages / directions, ranks = length / chunks;
    const weft_stage_cost rest = {options->cost.f, options->cost.i,
                                  options->cost.w, options->cost.b};
    *cost_out = options->cost;
    if (encoder == 0 && !options->ends_given) {
        return WEFT_OK;
    }
    if (encoder >= chunks) {
        return wefti_error(WEFT_ERR_INVALID,
                           "--encoder %d:...: a rank has %d chunk%s of this "
                           "schedule; allowed is less",
                           encoder, chunks, chunks == 1 ? "" : "s");
    }
    weft_stage_cost *all = calloc((size_t)stages, sizeof(*all));
    if (!all) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %d stages",
                           stages);
    }
    for (int stage = 0; stage < stages; stage++) {
        const int part = stage % length;
        if (part < encoder * ranks) {
            add(&all[stage], &options->encoder, 1.0 / encoder);
        } else {
            add(&all[stage], &rest, 1.0 / (chunks - encoder));
        }
        if (part == 0) {
            add(&all[stage], &options->first, 1);
        }
        if (part == length - 1) {
            add(&all[stage], &options->last, 1);
        }
    }
    cost_out->stages = all;
    return WEFT_OK;
}
