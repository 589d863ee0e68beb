/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/pairwise.c - every pair of ranks settles what it has for each
 * other: alltoall, gather, scatter, and their v forms. Gather is the alltoall
 * in which only the root's column has anything, scatter that of its row.
 *
 *      list 0   SEND round by round to rank + 1, rank + 2, ..     channel 0
 *      list 1   RECV round by round from rank - 1, rank - 2, ..   channel 0
 *      list 2   COPY own
 *
 * No rank can starve, whatever the counts and with a single slot: order pieces
 * by round, then by how far their ends are apart; all ranks send and receive
 * in that order. Take the first piece that has not been read. All that its
 * sender sent before has been read, so it has a slot; all that its reader must
 * read before has been read, so the reader waits for it.
 *
 * In place is for the root of gather and scatter alone: own elements stay
 * where they are, and nothing else of one buffer lies in the other.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (pairwise exchange, and the linear
 * forms of gather and scatter).
 */
#include "comm/pattern/parts.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/shape.h"

enum { LIST_OUT, LIST_IN, LIST_OWN };

static bool supports(const wefti_problem *problem)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    bool pairs = shape->send_parts && shape->recv_parts;
    bool one_sided = (shape->send_parts || shape->recv_parts) && shape->rooted;
    return (pairs || one_sided) && !shape->reduces;
}

static size_t step_count(const wefti_problem *problem, int list)
{
    int peers;
    wefti_part_side side = {problem, list == LIST_OUT, NULL};
    if (list > LIST_OWN) {
        return 0;
    }
    if (list != LIST_OWN) {
        return wefti_side_count(&side, &peers);
    }
    size_t own_elems = wefti_part_to(problem, problem->rank).elems;
    WEFTI_ASSERT(own_elems == wefti_part_from(problem, problem->rank).elems);
    return wefti_part_chunks(problem, own_elems);
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    wefti_part_side side = {problem, list == LIST_OUT, NULL};
    *step_out = list == LIST_OWN ? wefti_part_own_step(problem, index)
                                 : wefti_side_step(&side, index);
}

static int slots(const wefti_problem *problem, int channel)
{
    wefti_part_side side = {problem, true, NULL};
    return channel > 0 ? 0 : wefti_side_slots(&side);
}

/* Who sends to all, or gets from all, is the busiest; an all-to-all's ranks do
 * both. */
static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    double part = sizes->bytes / sizes->ranks;
    double rounds = wefti_sizes_chunks(sizes, part);
    double remotes = sizes->ranks - sizes->locals;
    wefti_cost_hops(cost_out, sizes, 1);
    wefti_cost_to_each(cost_out, sizes, rounds);
    cost_out->copied_bytes += sizes->bytes; /* its own to its place */
    if (shape->rooted) {
        cost_out->link_bytes += remotes * part;
        return;
    }
    wefti_cost_from_each(cost_out, sizes, rounds);
    cost_out->copied_bytes += sizes->bytes - part;
    cost_out->link_bytes += sizes->locals * remotes * part;
}

const wefti_pattern wefti_pattern_pairwise = {
    .name = "pairwise",
    .supports = supports,
    .step_count = step_count,
    .step_at = step_at,
    .slots = slots,
    .cost = cost,
};
