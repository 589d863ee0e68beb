/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/exchange.c - all-reduce in one hop: every rank shows all others
 * its whole input and reduces everything itself.
 *
 *      list 0   SEND 0, SEND 1, REDUCE 0, SEND 2, REDUCE 1, ...   channel 0
 *
 * Each rank stages its input once and reads n - 1 times as much: half the hops
 * of direct, which pays while waiting costs more than reading.
 *
 * One chunk ahead keeps the peers fed. In place is safe: a chunk is staged
 * before it is overwritten, in the same list. No rank can starve: a rank that
 * cannot stage chunk i waits for peers to reduce an earlier one, for which
 * every rank has staged his before.
 *
 * Source: Thakur, Rabenseifner, Gropp 2005 (recursive doubling; this is its
 * flat form for memory that all can read).
 */
#include "comm/pattern/pattern.h"

#include "base/check.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/parts.h"

enum { STAGED_DEPTH = 4 };

static bool supports(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_ALLREDUCE &&
           problem->nranks > 1;
}

static size_t step_count(const wefti_problem *problem, int list)
{
    return list == 0 ? 2 * wefti_part_chunks(problem, problem->count) : 0;
}

static void step_at(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out)
{
    WEFTI_ASSERT(list == 0 && index < step_count(problem, list));
    (void)list;
    size_t chunks = wefti_part_chunks(problem, problem->count);
    bool last = index == 2 * chunks - 1;
    bool send = !last && (index == 0 || index % 2 == 1);
    wefti_part chunk =
        wefti_part_chunk(problem, (wefti_part){0, problem->count},
                         last   ? chunks - 1
                         : send ? (index + 1) / 2
                                : index / 2 - 1);
    *step_out = (wefti_step){
        .kind = send ? WEFTI_STEP_SEND : WEFTI_STEP_REDUCE,
        .src = WEFTI_BUFFER_SEND,
        .dst = send ? WEFTI_BUFFER_NONE : WEFTI_BUFFER_RECV,
        .peer = WEFTI_ALL_PEERS,
        .src_elem = chunk.begin,
        .dst_elem = chunk.begin,
        .elems = chunk.elems,
    };
}

static int slots(const wefti_problem *problem, int channel)
{
    size_t chunks = wefti_part_chunks(problem, problem->count);
    return channel > 0 ? 0 : chunks < STAGED_DEPTH ? (int)chunks : STAGED_DEPTH;
}

static void cost(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out)
{
    double chunks = wefti_sizes_chunks(sizes, sizes->bytes);
    double remote = sizes->ranks - sizes->locals;
    (void)problem;
    wefti_cost_hops(cost_out, sizes, 1);
    wefti_cost_to_all(cost_out, sizes, chunks);
    wefti_cost_from_each(cost_out, sizes, chunks);
    wefti_cost_reads_alike(cost_out, sizes, (sizes->locals - 1) * sizes->bytes);
    cost_out->copied_bytes += sizes->bytes;
    cost_out->reduced_bytes += sizes->ranks * sizes->bytes;
    cost_out->link_bytes += sizes->locals * remote * sizes->bytes;
}

const wefti_pattern wefti_pattern_exchange = {
    .name = "exchange",
    .rewrites = true,
    .supports = supports,
    .step_count = step_count,
    .step_at = step_at,
    .slots = slots,
    .cost = cost,
};
