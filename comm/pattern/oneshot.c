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
#include "comm/pattern/pattern.h"
#include "comm/pattern/shape.h"

static bool supports(const wefti_problem *problem)
{
    return wefti_pattern_first(problem) &&
           !wefti_shape_get(problem->collective)->varied;
}

const wefti_pattern wefti_pattern_oneshot = {
    .name = "oneshot",
    .in_entries = true,
    .rewrites = true,
    .supports = supports,
};
