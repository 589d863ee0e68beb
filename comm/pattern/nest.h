/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/nest.h - levels nested in each other, and the way of a block
 * through all of them: from its owner to one rank of each outermost group, from
 * that to one of each group inside, and so on down to every rank.
 *
 *      members    0  1 | 2  3 || 4 | 5  6        two hosts, of two nodes each
 *      innermost  [0 1] [2  3]  [4] [5  6]
 *      outermost  [0 1   2  3]  [4   5  6]
 *
 *      owner 1 ---> 0, 2, 5      2 ---> 3        5 ---> 4, 6
 *
 * Each group has one agent for a block: the owner where it is inside, else a
 * rank that turns with the owner's distance and the round, the same for a group
 * and for that of its groups that the rank is in. So a block enters each group
 * once, and the ranks of a group share what enters it evenly, however uneven
 * the groups in it are.
 *
 * Sums go the other way, through groups of their own: a host's sum is the
 * balanced tree over its ranks (kernels/wire/reduce.h), and only what is a node
 * of that can be added up by itself with the same bits. So each group is parted
 * into the largest nodes that lie in it:
 *
 *      ranks of a host   0 1 2 3 | 4 5 6     0 2 4 | 1 3 5    0 1 2 | 3 4 5
 *      nodes             [0 1 2 3] [4 5 6]   none             [0 1] 2  3 [4 5]
 *
 * Whoever is a node's agent for a block adds up what the ranks of it have, and
 * passes that on, unfinished. All ranks of a host go through blocks in one
 * order here.
 */
#ifndef COMM_PATTERN_NEST_H
#define COMM_PATTERN_NEST_H

#include <stdbool.h>
#include <stddef.h>

enum { WEFTI_NEST_LEVELS_MOST = 8 };

typedef struct wefti_nest_level {
    int group_count;
    int *groups; /* [nranks] of each place */
    int *begins; /* [group_count + 1] places */
} wefti_nest_level;

typedef struct wefti_nest {
    int nranks, level_count; /* at least one */
    int circle;      /* the level of the groups behind which owners are counted:
                        the outermost, or level_count: from place 0 on */
    int least_ranks; /* of any rank's innermost group with others in it */
    int *members;    /* [nranks] group by group on every level */
    int *places;     /* [nranks] of each rank in members */
    wefti_nest_level levels[WEFTI_NEST_LEVELS_MOST]; /* innermost first */
    struct wefti_nest *sums; /* of nodes, and hosts; NULL: there are none, or
                                nobody has looked */
} wefti_nest;

/*
 * wefti_nest_create - from the lowest rank of each rank's group.
 *
 * firsts      [level_count][nranks], innermost first; groups of a level lie
 *             whole in groups of the next. A level that parts nothing that its
 *             neighbour does not is left out.
 * nest_out    NULL where no level is left. Freed with free().
 *
 * Returns     whether there was memory for it.
 */
bool wefti_nest_create(const int *const *firsts, int level_count, int nranks,
                       wefti_nest **nest_out);

/*
 * wefti_nest_find_sums - nest->sums, of the groups that lie in hosts.
 *
 * host_firsts  [nranks] the lowest rank that shares memory with each; NULL: all
 *              do. Members of sums stand as those of wefti_grouping_create.
 *
 * Returns     whether there was memory for it.
 */
bool wefti_nest_find_sums(wefti_nest *nest, const int *host_firsts);

/* That and its sums; may be NULL. */
void wefti_nest_free(wefti_nest *nest);

/* Places [begin, end). */
typedef struct wefti_nest_run {
    int begin, end;
} wefti_nest_run;

/* The group of a place on a level; level_count: all ranks, -1: the place. */
wefti_nest_run wefti_nest_group(const wefti_nest *nest, int level, int place);

/* The smallest group of the rank with others in it, up to the level of the
 * circle; where it has none, that. */
wefti_nest_run wefti_nest_innermost(const wefti_nest *nest, int rank);

/* The rank that handles the block for the group of a place on a level. */
int wefti_nest_agent(const wefti_nest *nest, int level, int place, int owner,
                     size_t round);

/* From whom a rank that is not the owner takes the block, and to whom it gives
 * what it has added up of it. */
int wefti_nest_parent(const wefti_nest *nest, int rank, int owner,
                      size_t round);

/* To whom a rank passes the block on: further levels' agents first. */
int wefti_nest_child_count(const wefti_nest *nest, int rank, int owner,
                           size_t round);
int wefti_nest_child(const wefti_nest *nest, int rank, int owner, size_t round,
                     int number);

/* Whether what the rank adds up of the block is the whole sum of a host, or of
 * all where the circle goes round all. */
bool wefti_nest_ends_sum(const wefti_nest *nest, int rank, int owner,
                         size_t round);

/* What a rank adds up: its own, and what each child of its host gives, the sum
 * of so many ranks. Number by number in the order of places. */
typedef struct wefti_nest_giver {
    int rank, ranks;
} wefti_nest_giver;

int wefti_nest_giver_count(const wefti_nest *nest, int rank, int owner,
                           size_t round);
wefti_nest_giver wefti_nest_giver_at(const wefti_nest *nest, int rank,
                                     int owner, size_t round, int number);

#endif
