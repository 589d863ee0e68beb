/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/simulator.h - all ranks of one operation in memory: an interpreter
 * of patterns with the engine's semantics and the unkindest order of events.
 *
 * Messages are FIFO per (sender, receiver, channel). A sender has exactly as
 * many slots per channel as the pattern asks for, used as a ring: a slot comes
 * free when its message and all older ones have been read by every addressee.
 */
#ifndef TESTS_COMM_SIMULATOR_H
#define TESTS_COMM_SIMULATOR_H

#include "comm/pattern/pattern.h"

/* Which of the lists that can go on does. */
typedef enum sim_order {
    SIM_RANDOM,   /* all in a random order, one step each */
    SIM_UPWARD,   /* lowest rank and list first, as far as it goes */
    SIM_DOWNWARD, /* highest rank and list first, as far as it goes */
    SIM_LAGGARD,  /* one random rank only when nobody else can */
    SIM_ORDERS
} sim_order;

/*
 * problem  rank, host_counts, and what counts say, are ignored
 * counts   v forms: [nranks][nranks] elements that go from rank to rank
 *          (alltoallv), or in its first row those of each rank; NULL: even.
 * hosts    [nranks] the lowest rank that shares memory with each; NULL: one
 *          level
 * levels   [level_count][nranks] the lowest rank of each rank's group,
 *          innermost first: a nest of these, where level_count is not 0
 * border   [nranks] traffic is what crosses these groups; NULL: hosts
 * gap      elements between the parts in both buffers, which nobody may touch;
 *          odd: the parts lie in the reverse order of the ranks.
 */
typedef struct sim_case {
    const wefti_pattern *pattern;
    wefti_problem problem;
    const size_t *counts;
    const int *hosts;
    const int *const *levels;
    int level_count;
    const int *border;
    size_t gap;
    weft_dtype dtype;
    weft_redop redop;
    bool in_place;
    sim_order order;
    uint64_t seed; /* of inputs and order: same seed, same inputs */
} sim_case;

/* What crosses the network, or the border, in messages and elements. */
typedef struct sim_traffic {
    size_t messages, elems;
} sim_traffic;

/*
 * sim_check - run the operation to its end; fail the running test if it
 * stops before, breaks a rule of pattern.h, or if any rank's result differs
 * from the definition in weft/op.h by one bit.
 *
 * Returns     what went from one host (or group of border) to another.
 */
sim_traffic sim_check(const sim_case *what);

#endif
