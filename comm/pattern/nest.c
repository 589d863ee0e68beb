/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/nest.c - sorting ranks into nested groups, and who passes a
 * block to whom.
 */
#include "comm/pattern/nest.h"

#include "base/check.h"

#include <stdlib.h>
#include <string.h>

/* ---- groups ---------------------------------------------------------------
 */

static int count_groups(const int *firsts, int nranks)
{
    int groups = 0;
    for (int rank = 0; rank < nranks; rank++) {
        WEFTI_ASSERT(firsts[rank] >= 0 && firsts[rank] <= rank);
        groups += firsts[rank] == rank;
    }
    return groups;
}

/* Which levels part something: each has fewer groups than the one before. */
static int choose_levels(const int *const *firsts, int level_count, int nranks,
                         int *chosen)
{
    int kept = 0, finer = nranks;
    for (int level = 0; level < level_count; level++) {
        int groups = count_groups(firsts[level], nranks);
        if (groups < finer && groups > 1) {
            chosen[kept++] = level;
            finer = groups;
        }
    }
    return kept;
}

/* Orders members by their groups; those of a group stay in order. */
static void sort_by(const int *firsts, int nranks, int *members, int *spare,
                    int *ends)
{
    memset(ends, 0, (size_t)nranks * sizeof(*ends));
    for (int rank = 0; rank < nranks; rank++) {
        ends[firsts[rank]]++;
    }
    for (int rank = 1; rank < nranks; rank++) {
        ends[rank] += ends[rank - 1];
    }
    for (int place = nranks - 1; place >= 0; place--) {
        spare[--ends[firsts[members[place]]]] = members[place];
    }
    memcpy(members, spare, (size_t)nranks * sizeof(*members));
}

static void number_groups(const wefti_nest *nest, const int *firsts,
                          wefti_nest_level *level)
{
    int groups = 0;
    for (int place = 0; place < nest->nranks; place++) {
        int first = firsts[nest->members[place]];
        if (place == 0 || first != firsts[nest->members[place - 1]]) {
            level->begins[groups++] = place;
        }
        level->groups[place] = groups - 1;
    }
    level->group_count = groups;
    level->begins[groups] = nest->nranks;
}

/* One allocation: the nest, its ranks' places, and twice so much a level. */
static wefti_nest *allocate(int level_count, int nranks)
{
    size_t ranks = (size_t)nranks, levels = (size_t)level_count;
    size_t ints = (2 + 2 * levels) * ranks + levels;
    wefti_nest *made = calloc(1, sizeof(*made) + ints * sizeof(int));
    if (!made) {
        return NULL;
    }
    made->nranks = nranks;
    made->level_count = level_count;
    made->circle = level_count - 1;
    made->members = (int *)(made + 1);
    made->places = made->members + ranks;
    int *next = made->places + ranks;
    for (int level = 0; level < level_count; level++) {
        made->levels[level].groups = next;
        made->levels[level].begins = next + ranks;
        next += 2 * ranks + 1;
    }
    return made;
}

bool wefti_nest_create(const int *const *firsts, int level_count, int nranks,
                       wefti_nest **nest_out)
{
    int chosen[WEFTI_NEST_LEVELS_MOST];
    *nest_out = NULL;
    WEFTI_ASSERT(level_count <= WEFTI_NEST_LEVELS_MOST);
    int levels = choose_levels(firsts, level_count, nranks, chosen);
    if (levels == 0) {
        return true;
    }
    wefti_nest *made = allocate(levels, nranks);
    int *spare = calloc((size_t)nranks * 2, sizeof(*spare));
    if (!made || !spare) {
        free(made);
        free(spare);
        return false;
    }
    for (int rank = 0; rank < nranks; rank++) {
        made->members[rank] = rank;
    }
    for (int level = 0; level < levels; level++) {
        sort_by(firsts[chosen[level]], nranks, made->members, spare,
                spare + nranks);
    }
    for (int level = 0; level < levels; level++) {
        number_groups(made, firsts[chosen[level]], &made->levels[level]);
    }
    for (int place = 0; place < nranks; place++) {
        made->places[made->members[place]] = place;
    }
    free(spare);
    made->least_ranks = nranks;
    for (int rank = 0; rank < nranks; rank++) {
        wefti_nest_run run = wefti_nest_innermost(made, rank);
        int ranks = run.end - run.begin;
        made->least_ranks =
            ranks < made->least_ranks ? ranks : made->least_ranks;
    }
    *nest_out = made;
    return true;
}

wefti_nest_run wefti_nest_group(const wefti_nest *nest, int level, int place)
{
    if (level < 0) {
        return (wefti_nest_run){place, place + 1};
    }
    if (level == nest->level_count) {
        return (wefti_nest_run){0, nest->nranks};
    }
    const wefti_nest_level *own = &nest->levels[level];
    int group = own->groups[place];
    return (wefti_nest_run){own->begins[group], own->begins[group + 1]};
}

wefti_nest_run wefti_nest_innermost(const wefti_nest *nest, int rank)
{
    wefti_nest_run run = {0, 0};
    for (int level = 0; level <= nest->circle; level++) {
        run = wefti_nest_group(nest, level, nest->places[rank]);
        if (run.end - run.begin > 1) {
            break;
        }
    }
    return run;
}

/* ---- the way of a block ---------------------------------------------------
 */

/* What turns the agents of all groups in the one of the circle: how far the
 * owner is behind that, going round, and the round. */
static size_t turn_of(const wefti_nest *nest, int place, int owner,
                      size_t round)
{
    wefti_nest_run top = wefti_nest_group(nest, nest->circle, place);
    int behind = nest->places[owner] - top.end;
    behind += behind < 0 ? nest->nranks : 0;
    return (size_t)behind + round;
}

/* The place of the agent of a place's group on a level: down through the groups
 * in which the turn ends. */
static int agent_of(const wefti_nest *nest, int level, int place, int owner,
                    size_t round)
{
    wefti_nest_run run = wefti_nest_group(nest, level, place);
    size_t turn = turn_of(nest, place, owner, round);
    int at = nest->places[owner];
    if (at >= run.begin && at < run.end) {
        return at;
    }
    for (;; level--) {
        at = run.begin + (int)(turn % (size_t)(run.end - run.begin));
        if (level <= 0) {
            return at;
        }
        run = wefti_nest_group(nest, level - 1, at);
    }
}

/* The lowest level on whose group the rank is not the agent; level_count: all
 * have it for agent. */
static int height_of(const wefti_nest *nest, int rank, int owner, size_t round)
{
    int place = nest->places[rank], level = 0;
    while (level < nest->level_count &&
           agent_of(nest, level, place, owner, round) == place) {
        level++;
    }
    return level;
}

int wefti_nest_agent(const wefti_nest *nest, int level, int place, int owner,
                     size_t round)
{
    return nest->members[agent_of(nest, level, place, owner, round)];
}

int wefti_nest_parent(const wefti_nest *nest, int rank, int owner, size_t round)
{
    int level = height_of(nest, rank, owner, round);
    WEFTI_ASSERT(rank != owner);
    if (level == nest->level_count) {
        return owner;
    }
    return wefti_nest_agent(nest, level, nest->places[rank], owner, round);
}

/* The level on which a rank passes blocks to its group's groups, at most. */
static int passing_level(const wefti_nest *nest, int rank, int owner,
                         size_t round)
{
    return rank == owner ? nest->level_count
                         : height_of(nest, rank, owner, round) - 1;
}

/* How many groups one level down a group has: its places are -1's. */
static int count_inside(const wefti_nest *nest, int level, wefti_nest_run run)
{
    if (level == 0) {
        return run.end - run.begin;
    }
    const int *groups = nest->levels[level - 1].groups;
    return groups[run.end - 1] - groups[run.begin] + 1;
}

int wefti_nest_child_count(const wefti_nest *nest, int rank, int owner,
                           size_t round)
{
    int children = 0;
    for (int level = passing_level(nest, rank, owner, round); level >= 0;
         level--) {
        children +=
            count_inside(nest, level,
                         wefti_nest_group(nest, level, nest->places[rank])) -
            1;
    }
    return children;
}

/* Some place of the group that is so many behind the place's own, going round
 * the groups of its group on a level. */
static int place_behind(const wefti_nest *nest, int level, int place,
                        int behind)
{
    wefti_nest_run run = wefti_nest_group(nest, level, place);
    int count = count_inside(nest, level, run);
    if (level == 0) {
        return run.begin + (place - run.begin + behind) % count;
    }
    const wefti_nest_level *inner = &nest->levels[level - 1];
    int first = inner->groups[run.begin];
    int group = first + (inner->groups[place] - first + behind) % count;
    return inner->begins[group];
}

int wefti_nest_child(const wefti_nest *nest, int rank, int owner, size_t round,
                     int number)
{
    int place = nest->places[rank];
    int level = passing_level(nest, rank, owner, round);
    for (; level >= 0; level--) {
        int others =
            count_inside(nest, level, wefti_nest_group(nest, level, place)) - 1;
        if (number < others) {
            break;
        }
        number -= others;
    }
    WEFTI_ASSERT(level >= 0);
    int beside = place_behind(nest, level, place, number + 1);
    return nest->members[agent_of(nest, level - 1, beside, owner, round)];
}

/* ---- sums -------------------------------------------------------------------
 */

/* The level of the group whose elements a rank adds up. */
static int adding_level(const wefti_nest *nest, int rank, int owner,
                        size_t round)
{
    int level = passing_level(nest, rank, owner, round);
    return level < nest->circle ? level : nest->circle;
}

bool wefti_nest_ends_sum(const wefti_nest *nest, int rank, int owner,
                         size_t round)
{
    return adding_level(nest, rank, owner, round) == nest->circle;
}

int wefti_nest_giver_count(const wefti_nest *nest, int rank, int owner,
                           size_t round)
{
    int level = adding_level(nest, rank, owner, round), givers = 1;
    for (; level >= 0; level--) {
        wefti_nest_run run = wefti_nest_group(nest, level, nest->places[rank]);
        givers += count_inside(nest, level, run) - 1;
    }
    return givers;
}

/* Of the groups in the place's on a level, how many stand before its own, or
 * behind it. */
static int count_beside(const wefti_nest *nest, int level, int place,
                        bool before)
{
    wefti_nest_run run = wefti_nest_group(nest, level, place);
    wefti_nest_run own = wefti_nest_group(nest, level - 1, place);
    wefti_nest_run side = before ? (wefti_nest_run){run.begin, own.begin}
                                 : (wefti_nest_run){own.end, run.end};
    return side.begin < side.end ? count_inside(nest, level, side) : 0;
}

/* What the group so many behind the place's own on a level gives. */
static wefti_nest_giver giver_beside(const wefti_nest *nest, int level,
                                     int place, int behind, int owner,
                                     size_t round)
{
    int beside = place + behind;
    if (level > 0) {
        const wefti_nest_level *inner = &nest->levels[level - 1];
        beside = inner->begins[inner->groups[place] + behind];
    }
    wefti_nest_run run = wefti_nest_group(nest, level - 1, beside);
    return (wefti_nest_giver){
        wefti_nest_agent(nest, level - 1, beside, owner, round),
        run.end - run.begin};
}

wefti_nest_giver wefti_nest_giver_at(const wefti_nest *nest, int rank,
                                     int owner, size_t round, int number)
{
    const int place = nest->places[rank];
    const int top = adding_level(nest, rank, owner, round);
    for (int level = top; level >= 0; level--) {
        int before = count_beside(nest, level, place, true);
        if (number < before) {
            return giver_beside(nest, level, place, number - before, owner,
                                round);
        }
        number -= before;
    }
    for (int level = 0; number > 0; level++) {
        WEFTI_ASSERT(level <= top);
        int behind = count_beside(nest, level, place, false);
        if (number <= behind) {
            return giver_beside(nest, level, place, number, owner, round);
        }
        number -= behind;
    }
    return (wefti_nest_giver){rank, 1};
}
