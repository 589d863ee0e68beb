/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/blocks.h - the blocks that a result is cut into where there are
 * levels, and which of them one rank handles.
 *
 * A block has an owner, the rank that finishes it (or whose data it is), and on
 * each host an agent, the only rank there that sends or receives it over the
 * network (wefti_grouping_agent; of nested levels, nest.h). A round has at most
 * one block of each owner: even forms one of each, v forms none of those that
 * have no more.
 *
 *      v form, parts of 3, 1, 2 blocks      round 0   owners 0 1 2
 *                                           round 1   owners 0   2
 *                                           round 2   owner  0
 *
 * The ranks of a host (of an outermost group) go through a round in one order:
 * blocks of other hosts first where sums are under way (the network is the
 * slower level), own ones first where data are only spread. Between two hosts
 * without owners the order is the same on both: messages of a pair are read as
 * they were sent.
 */
#ifndef COMM_PATTERN_BLOCKS_H
#define COMM_PATTERN_BLOCKS_H

#include "comm/pattern/parts.h"
#include "comm/pattern/shape.h"

/* Owners that stand one after another behind the outermost group: numbers
 * [begin, end) of the circle. */
typedef struct wefti_block_run {
    size_t begin, end;
    bool own; /* they are this rank's group */
} wefti_block_run;

/*
 * The problem as one rank stands in it, on one level. Only what the problem
 * points to is borrowed.
 *
 * group    places of the ranks that share what one of them handles: a host's,
 *          or the innermost of nested levels
 * top      that of the outermost level that it lies in: where the circle of
 *          owners begins, so that all in it go through blocks in one order
 * twin     two agents finish each block of an all-reduce: its owner is but the
 *          one of them that is on the host of more ranks
 * sole     the only owner; -1: every rank is one, or
 * owning   of this host
 * runs     of owners, in the order of a round
 */
typedef struct wefti_blocks {
    const wefti_problem *problem;
    const wefti_shape *shape;
    const int *members, *places; /* [nranks] of the level's order */
    wefti_nest_run group, top;
    size_t ranks, local; /* of the group, and this rank's place there */
    size_t remotes;      /* ranks outside it */
    bool gathers;        /* results go to all; else sums to their owners only */
    bool twin;
    int sole, owning; /* -1: of all */
    size_t rounds;
    size_t cuts, unit; /* even forms: blocks of one run of elements */
    wefti_block_run runs[4];
    int run_count;
} wefti_blocks;

/* The level on which sums are made, hosts; that on which data spread, which is
 * the same but for nested levels; and of sums that go through these, that on
 * which inputs are added up first. */
typedef enum wefti_block_level {
    WEFTI_BLOCKS_SUMS,
    WEFTI_BLOCKS_SPREAD,
    WEFTI_BLOCKS_INPUTS
} wefti_block_level;

typedef struct wefti_block {
    int owner;
    size_t round;
} wefti_block;

typedef enum wefti_block_list {
    WEFTI_BLOCKS_OWN,     /* of this rank's */
    WEFTI_BLOCKS_REMOTE,  /* of owners elsewhere, whose agent this rank is */
    WEFTI_BLOCKS_HANDLED, /* both */
    WEFTI_BLOCKS_OTHERS   /* the rest: another rank of the group is the agent */
} wefti_block_list;

/* Whether all is one block: so little that a second pair of agents costs more
 * than it saves, where one pair keeps both links as busy as all. */
bool wefti_blocks_are_one(const wefti_problem *problem);

/* Of a problem with a grouping or a nest. */
wefti_blocks wefti_blocks_of(const wefti_problem *problem,
                             wefti_block_level level);

/* How many blocks a list has, and which one is number index of them. */
size_t wefti_blocks_count(const wefti_blocks *blocks, wefti_block_list which);
wefti_block wefti_blocks_at(const wefti_blocks *blocks, wefti_block_list which,
                            size_t index);

/* Where the block lies: in its owner's part where the buffer has parts, else in
 * the whole. */
wefti_part wefti_blocks_place(const wefti_blocks *blocks,
                              const wefti_block *block);

#endif
