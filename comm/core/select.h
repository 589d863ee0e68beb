/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/core/select.h - which algorithm and chunk size an operation gets: that
 * which costs least by what it does on each level (comm/pattern/cost.h).
 * Depends only on what all ranks have in common, so that all choose alike.
 */
#ifndef COMM_CORE_SELECT_H
#define COMM_CORE_SELECT_H

#include "comm/core/net_rates.h"
#include "comm/core/tuning.h"
#include "comm/pattern/cost.h"
#include "comm/pattern/pattern.h"
#include "comm/pattern/shape.h"

/*
 * pattern   NULL: another route as a whole, or refused.
 * relay_elems  the problem's, where two_hop has counts
 * digest    for the signature: of the algorithm or of the route.
 * route     a wefti_route_kind: what carries it out
 * refused   none of the algorithms that WEFT_ALGO allows can carry it out.
 */
typedef struct wefti_choice {
    const wefti_pattern *pattern;
    size_t chunk_elems, relay_elems;
    uint8_t digest;
    uint8_t route;
    bool refused;
} wefti_choice;

/* Digests of routes; of streams, where one is captured into a graph. */
enum {
    WEFTI_CHOICE_GRAPH = 253,
    WEFTI_CHOICE_STREAMS = 254,
    WEFTI_CHOICE_NCCL = 255
};

/* Whether the stream that it is posted on carries it out, and the engine only
 * looks on. */
static inline bool wefti_choice_is_carried(const wefti_choice *choice)
{
    return choice->route != WEFTI_ROUTE_STEPS;
}

/* Whether graphs will: the ranks only compare what they capture. */
static inline bool wefti_choice_is_captured(const wefti_choice *choice)
{
    return choice->digest == WEFTI_CHOICE_GRAPH;
}

/* Whether lists of steps carry it out. */
static inline bool wefti_choice_has_steps(const wefti_choice *choice)
{
    return choice->pattern && !choice->pattern->in_entries;
}

/*
 * Among whom.
 *
 * grouping   of the ranks; NULL: there is one level
 * nest       of levels inside the hosts, with these; NULL: none
 * apart      which is the network: no two share memory
 * rates      NULL: the usual ones
 * ranks_per_core   of the host, where there is one, as all ranks know it
 */
typedef struct wefti_scope {
    const wefti_tuning *tuning;
    int nranks;
    const wefti_grouping *grouping;
    const wefti_nest *nest;
    bool apart;
    const wefti_rates *rates;
    int ranks_per_core;
} wefti_scope;

/* Whether gates cut a rank's part, where messages then end on all ranks. */
static inline bool wefti_op_is_cut(const weft_op *op)
{
    return op->gate_elems && op->gate_elems < op->count;
}

/* Whether each rank knows how much all others move, if it is not even. */
static inline bool wefti_op_tells_counts(const weft_op *op)
{
    return (op->collective == WEFT_COLLECTIVE_ALLGATHERV ||
            op->collective == WEFT_COLLECTIVE_REDUCESCATTERV) &&
           !op->deferred_counts;
}

/* How much an operation moves, as far as all ranks know it: where they have
 * counts in common, all of these; else its count, and a longest of 0. */
static inline wefti_total wefti_select_total(const weft_op *op, int nranks)
{
    const size_t *counts = !wefti_op_tells_counts(op) ? NULL
                           : op->recv_counts          ? op->recv_counts
                                                      : op->send_counts;
    return counts ? wefti_total_of(counts, nranks)
                  : (wefti_total){op->count, 0};
}

wefti_choice wefti_select(const wefti_scope *scope, const weft_op *op,
                          const wefti_role *role);

/* What the algorithm of that bit is expected to take; NAN: it cannot carry op
 * out, or no rank asks (what has no rival). */
double wefti_select_cost_ns(const wefti_scope *scope, const weft_op *op,
                            int bit);

/*
 * Whether sums of op follow one tree over all ranks also where there are
 * levels: WEFT_SUM_FLAT, if another order would show, and reductions of a
 * program's own, which need not commute.
 */
bool wefti_select_is_flat(const wefti_tuning *tuning, const weft_op *op);

/* What a buffer must hold for any step of any operation: a chunk, wide or not,
 * or the result of what rides in entries. */
size_t wefti_select_bounce_bytes(const wefti_tuning *tuning, int nranks,
                                 const wefti_grouping *grouping);

/* The name of the algorithm that a digest stands for. */
const char *wefti_choice_name(uint8_t digest);

/* The same of a choice: "refused" where it is. */
const char *wefti_choice_text(const wefti_choice *choice);

/* The error of a refused choice: which of its algorithms can carry op out. */
WEFT_NODISCARD weft_status wefti_select_refuse(const wefti_scope *scope,
                                               const weft_op *op,
                                               const wefti_role *role);

/* Why wefti_select chooses as it does, in one sentence; lives for ever. */
const char *wefti_select_why(const wefti_scope *scope, const weft_op *op);

/* Bytes of one rank in an entry when the operation rides there. */
size_t wefti_oneshot_bytes(int nranks, const weft_op *op,
                           const wefti_role *role);

#endif
