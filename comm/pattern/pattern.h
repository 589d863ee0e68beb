/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/pattern.h - algorithms as arithmetic: which steps one rank takes
 * for one operation.
 *
 * A pattern never touches memory, clocks or other ranks: it answers "what is
 * step i of list t", so a list of any length costs nothing to make or keep.
 *
 * Lists advance side by side; the steps of one list run in order, each when
 * it can. Messages between two ranks are matched per channel in the order they
 * are sent, so all sends and receives of one (peer, channel) pair must stand
 * in one list, in the same order on both sides. A SEND copies its elements
 * out and is over when they are staged; there is room for `slots` staged
 * messages per channel, freed when every addressee has read them.
 *
 *      rank 0  list 0: SEND -> 1 ch 0        list 1: REDUCE ch 0, SEND all ch 1
 *      rank 1  list 0: SEND -> 0 ch 0        list 1: REDUCE ch 0, SEND all ch 1
 *                                             list 2: RECV ch 1
 */
#ifndef COMM_PATTERN_PATTERN_H
#define COMM_PATTERN_PATTERN_H

#include "comm/pattern/grouping.h"
#include "comm/pattern/nest.h"
#include "weft/types.h"

#include <stdint.h>

/* Without a grouping and a nest only the first FLAT_LISTS lists have steps. */
enum { WEFTI_CHANNELS = 4, WEFTI_STEP_LISTS = 5, WEFTI_FLAT_STEP_LISTS = 3 };

/*
 * Which rank's part of which collective is to be planned; counts as in op.h.
 * The four arrays, [nranks], are those of the v forms and complete: displs are
 * never NULL where counts are not.
 *
 * grouping   which ranks share memory; NULL: there is one level only
 * nest       through which levels data spread, hosts among them; NULL: through
 *            hosts alone
 * upward     a host's sums are made through the nest's sums; else from inputs
 * apart      without a grouping: no two share any, else all do; for costs alone
 * flat       sums follow the tree over all ranks whatever the grouping, and
 *            know no levels
 * deferred   counts are capacities: a part may end before any of its chunks
 * gated      each part has a gate chunk of its own, and waits for no other
 * relay_elems  two_hop with counts: parts of up to so many elements are small
 * host_counts  which needs these, once it has begun: of each rank of this host
 *              uint16_t[nranks], elements for each rank, UINT16_MAX for more
 *              (comm/pattern/relay.h)
 */
typedef struct wefti_problem {
    weft_collective collective;
    int rank;
    int nranks;
    int root;
    size_t count;
    size_t chunk_elems; /* most elements of one message; at least 1 */
    const wefti_grouping *grouping;
    const wefti_nest *nest;
    bool upward, flat, apart, deferred, gated;
    size_t relay_elems;
    const void *const *host_counts;
    const size_t *send_counts, *send_displs;
    const size_t *recv_counts, *recv_displs;
} wefti_problem;

typedef enum wefti_step_kind {
    WEFTI_STEP_COPY,    /* dst = src */
    WEFTI_STEP_SEND,    /* src to peer, or to several ranks */
    WEFTI_STEP_RECV,    /* dst = message from peer */
    WEFTI_STEP_REDUCE,  /* dst = tree over ranks: own src at this rank's place,
                         one message from each other rank; finished */
    WEFTI_STEP_RELAY,   /* the tree over this host's ranks, own src and one
                           message from each other, the level's end; or, of
                           levels inside hosts, over what is given to this rank,
                           which ends the level if it is not wide. Staged and
                           sent to peer on to_channel */
    WEFTI_STEP_WIDEN,   /* scratch = widened src */
    WEFTI_STEP_COMBINE, /* scratch = scratch op message from peer (wide) */
    WEFTI_STEP_ROUND,   /* scratch, the host's sum, rounded: the level's end */
    WEFTI_STEP_NARROW   /* dst = finished scratch */
} wefti_step_kind;

/*
 * Several ranks at once, in place of a peer. Agents are those of the step's
 * owner and round, one for each host (comm/pattern/grouping.h), and children
 * those that take its block from this rank (comm/pattern/nest.h).
 *
 * ALL      SEND: all other ranks. REDUCE: all ranks, in the order of sums.
 * LOCAL    SEND: the others of this host.
 * AGENTS   RELAY: to all agents, of which this rank is one. REDUCE: one message
 *          from each, from itself too: there is no src.
 * SPREAD   SEND: the others of this host and the agents of other hosts.
 * CHILD    SEND: the children, through the levels of the nest.
 * GIVER    RELAY: those that give this rank what they have, or have added up,
 *          of the block, this rank among them.
 *
 * A rank sends to itself only in a RELAY.
 */
enum {
    WEFTI_ALL_PEERS = -1,
    WEFTI_LOCAL_PEERS = -2,
    WEFTI_AGENT_PEERS = -3,
    WEFTI_SPREAD_PEERS = -4,
    WEFTI_CHILD_PEERS = -5,
    WEFTI_GIVER_PEERS = -6
};

/*
 * SCRATCH holds chunk_elems elements, per list. Of a reduction they are wide
 * and begin at element 0, and a message that leaves or enters SCRATCH (SEND
 * from it, RECV into it, COMBINE) has wide elements too; both ends agree. Every
 * other message has elements of the op's type, and so has the SCRATCH of what
 * only moves data: there a COPY takes elements in and out, at any place.
 */
typedef enum wefti_buffer {
    WEFTI_BUFFER_NONE,
    WEFTI_BUFFER_SEND, /* the op's send buffer (recv, if in place says so) */
    WEFTI_BUFFER_RECV,
    WEFTI_BUFFER_SCRATCH
} wefti_buffer;

typedef struct wefti_step {
    wefti_step_kind kind;
    wefti_buffer src, dst;
    int peer;     /* rank, or one of WEFTI_*_PEERS; own rank: no message */
    int owner;    /* of agents; v forms: the rank whose part is moved, which
                     is to send it, to have it or to get it */
    size_t round; /* of agents */
    int channel;
    int to_channel; /* RELAY: its message's, and that of sources that are sums;
                       channel is that of others */
    bool wide;      /* RELAY: unfinished, so its message has wide elements */
    size_t src_elem, dst_elem; /* from the buffer's start */
    size_t elems;              /* 1 .. chunk_elems */
    bool bundled; /* RECV: of an agent, with whatever its host has */
} wefti_step;

typedef struct wefti_sizes wefti_sizes;
typedef struct wefti_cost wefti_cost;

/*
 * wefti_pattern - one algorithm for some collectives.
 *
 * in_entries   payload rides in the entries by which ranks meet, up to
 *              WEFTI_ENTRIES_BYTES of each rank, or beside them; there are no
 *              steps, and the calls about them are NULL.
 * rewrites     in place, elements that were sent may be written before all
 *              have read them: their SEND must have copied them.
 * is_tree      what it costs is its top's work, which that of the others, where
 *              they share its cores, holds up.
 * passes_on    of other ranks' parts only what a few children have is staged at
 *              a time: chunks may be as long as scratch.
 * supports     whether it can do this problem.
 * step_count   how many steps the list has for this rank; 0 is common.
 * step_at      step index of the list, index < step_count.
 * slots        how many messages this rank must be able to have staged at once
 *              on the channel so that no rank can starve; 0: sends none.
 * cost         what it does on each level (comm/pattern/cost.h); NULL: no other
 *              pattern has its collectives.
 *
 * All are pure and cost O(1), O(log nranks), O(ranks of a host) or O(hosts),
 * for the v forms O(nranks log count), for a binomial tree's root, whose
 * subtrees end where a chunk does, O(nranks / chunk_elems). Costs know no root
 * from another but rank 0 (comm/core/choice_cache.h). A buffer range is written
 * by at most one step; every element of the result is written by exactly one.
 * supports looks at the collective, at nranks, at whether there is a grouping
 * or a nest, or sums of that, and at apart, flat, deferred and gated only.
 */
typedef struct wefti_pattern {
    const char *name;
    bool in_entries, rewrites, is_tree, passes_on;
    bool (*supports)(const wefti_problem *problem);
    size_t (*step_count)(const wefti_problem *problem, int list);
    void (*step_at)(const wefti_problem *problem, int list, size_t index,
                    wefti_step *step_out);
    int (*slots)(const wefti_problem *problem, int channel);
    void (*cost)(const wefti_problem *problem, const wefti_sizes *sizes,
                 wefti_cost *cost_out);
} wefti_pattern;

/* What a rank may contribute in its entry, and read of all entries. */
enum { WEFTI_ENTRIES_BYTES = 4096, WEFTI_ENTRIES_READ_BYTES = 32 << 10 };

/* All patterns, ended by NULL. To add one, add its file and a line here. */
extern const wefti_pattern *const wefti_patterns[];
/* The first with steps that supports it: what moves each byte once, where that
 * can be; NULL: none, as there is nothing to move. */
const wefti_pattern *wefti_pattern_first(const wefti_problem *problem);

extern const wefti_pattern wefti_pattern_oneshot;
extern const wefti_pattern wefti_pattern_dissemination;
extern const wefti_pattern wefti_pattern_hierarchical;
extern const wefti_pattern wefti_pattern_direct;
extern const wefti_pattern wefti_pattern_tree;
extern const wefti_pattern wefti_pattern_exchange;
extern const wefti_pattern wefti_pattern_pairwise;
extern const wefti_pattern wefti_pattern_two_hop;
extern const wefti_pattern wefti_pattern_binomial;
extern const wefti_pattern wefti_pattern_nested;
extern const wefti_pattern wefti_pattern_nested_sums;

/*
 * wefti_peer_count, _at - the ranks that peer, a rank or one of WEFTI_*_PEERS,
 * stands for, place by place; _includes: whether rank is one of them. This rank
 * is among them where it is one of ALL, LOCAL, AGENTS or SPREAD. ALL and AGENTS
 * stand in the order of sums.
 */
int wefti_peer_count(const wefti_problem *problem, int peer, int owner,
                     size_t round);
int wefti_peer_at(const wefti_problem *problem, int peer, int owner,
                  size_t round, int place);
bool wefti_peer_includes(const wefti_problem *problem, int peer, int owner,
                         size_t round, int rank);

/* The levels inside hosts that its sums go through; NULL: none. */
static inline const wefti_nest *wefti_problem_sums(const wefti_problem *problem)
{
    return problem->upward ? problem->nest->sums : NULL;
}

/* The ranks whose elements a REDUCE or RELAY adds up, and one of them: of how
 * many ranks it has the sum, wide if there are several, on which channel. */
static inline int wefti_step_sources(const wefti_problem *problem,
                                     const wefti_step *step)
{
    return step->kind != WEFTI_STEP_RELAY ? step->peer
           : wefti_problem_sums(problem)  ? WEFTI_GIVER_PEERS
                                          : WEFTI_LOCAL_PEERS;
}

typedef struct wefti_source {
    int rank, ranks, channel;
} wefti_source;

wefti_source wefti_source_at(const wefti_problem *problem,
                             const wefti_step *step, int place);

/* Slots for so many messages, of which depth are under way at once. */
static inline int wefti_slots_at_most(size_t messages, size_t depth)
{
    return (int)(messages < depth ? messages : depth);
}

/* Whether sums end one level on each host. */
static inline bool wefti_problem_has_levels(const wefti_problem *problem)
{
    return problem->grouping && !problem->flat;
}

/*
 * wefti_deal - which elements owner owns when count are dealt out in nearly
 * equal runs of whole units: [*begin_out, return value).
 *
 * wefti_share - the same for ranks. Multiples of 16 elements while count is
 * large enough, so that owners do not share cache lines.
 */
size_t wefti_deal(size_t count, size_t unit, size_t owners, size_t owner,
                  size_t *begin_out);
size_t wefti_share(size_t count, int nranks, int rank, size_t *begin_out);

#endif
