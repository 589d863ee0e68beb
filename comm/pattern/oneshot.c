/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/oneshot.c - small payloads inside the entries by which ranks
 * meet, or beside them: one exchange, no messages, no acknowledgement, so no
 * steps. comm/steps/entry.c carries it out.
 *
 *      rank r   entry {payload of r, signature, number}
 *               reads the entries it needs; reduces in the order of ranks
 *
 * Not for the v forms, whose sizes are not every rank's to know.
 */
#include "comm/pattern/cost.h"
#include "comm/pattern/pattern.h"
#include "comm/pattern/shape.h"

static bool supports(const wefti_problem *problem)
{
    return wefti_pattern_first(problem) &&
           !wefti_shape_get(problem->collective)->varied;
}

/*
 * Entries are looked at once. Each rank shows what others read, and reads it
 * from all who have some for it; the busiest one is counted.
 */
static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    const double part = sizes->bytes / sizes->ranks;
    const double shown = shape->recv_parts && !shape->send_parts ? part
                         : shape->send_parts ? sizes->bytes - part
                                             : sizes->bytes;
    wefti_cost_hops(cost_out, sizes, 1);
    wefti_cost_from_each(cost_out, sizes, 1);
    wefti_cost_reads_alike(cost_out, sizes, (sizes->locals - 1) * shown);
    cost_out->copied_bytes += shown;
    if (shape->reduces) {
        cost_out->reduced_bytes +=
            shape->send_parts ? sizes->bytes : sizes->ranks * sizes->bytes;
    } else {
        cost_out->copied_bytes += sizes->bytes;
    }
    cost_out->link_bytes +=
        sizes->locals * (sizes->ranks - sizes->locals) * shown;
}

const wefti_pattern wefti_pattern_oneshot = {
    .name = "oneshot",
    .in_entries = true,
    .rewrites = true,
    .supports = supports,
    .cost = cost,
};
