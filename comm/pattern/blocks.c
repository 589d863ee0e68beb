/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/pattern/blocks.c - the blocks of a rank, counted and found: see
 * blocks.h.
 *
 * Even forms have a block of each owner in each round, and are counted in
 * closed form. v forms add up over the owners: O(nranks) for a number, times
 * the logarithm of the rounds for the block of that number.
 */
#include "comm/pattern/blocks.h"

#include "base/check.h"

enum {
    UNIT_ELEMS = 16,
    ONE_SHARE = 32 /* of a chunk: 4 KiB of 128 */
};

/* Cuts count elements into the same number of nearly equal blocks for each of
 * `parts` owners; none is empty. */
static bool cut(wefti_blocks *v, size_t count, size_t parts)
{
    size_t chunk = v->problem->chunk_elems;
    v->unit = chunk >= 4 * UNIT_ELEMS && count / (4 * UNIT_ELEMS) >= parts
                  ? UNIT_ELEMS
                  : 1;
    size_t units = count / v->unit + (count % v->unit != 0);
    size_t most = chunk / v->unit; /* at least 1 */
    size_t blocks = units / most + (units % most != 0);
    v->rounds = blocks / parts + (blocks % parts != 0);
    v->cuts = v->rounds * parts;
    return v->cuts <= units;
}

/* v forms: the elements that owner owns, the same on every rank. */
static size_t elems_of(const wefti_blocks *v, int owner)
{
    const wefti_problem *problem = v->problem;
    return v->shape->reduces ? problem->send_counts[owner]
                             : problem->recv_counts[owner];
}

/* v forms: blocks of owner. */
static size_t blocks_of(const wefti_blocks *v, int owner)
{
    return wefti_part_chunks(v->problem, elems_of(v, owner));
}

static size_t count_varied_rounds(const wefti_blocks *v)
{
    size_t rounds = 0;
    for (int owner = 0; owner < v->problem->nranks; owner++) {
        size_t blocks = blocks_of(v, owner);
        rounds = blocks > rounds ? blocks : rounds;
    }
    return rounds;
}

static size_t count_owners(const wefti_blocks *v)
{
    return v->sole >= 0 ? 1
           : v->owning < 0
               ? (size_t)v->problem->nranks
               : (size_t)wefti_grouping_ranks(v->grouping, v->owning);
}

bool wefti_blocks_are_one(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_ALLREDUCE &&
           problem->grouping->host_count == 2 &&
           problem->count <= problem->chunk_elems / ONE_SHARE;
}

wefti_blocks wefti_blocks_of(const wefti_problem *problem)
{
    const wefti_grouping *grouping = problem->grouping;
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    int host = grouping->hosts[problem->rank];
    wefti_blocks v = {.problem = problem,
                      .grouping = grouping,
                      .shape = shape,
                      .host = host,
                      .ranks = (size_t)wefti_grouping_ranks(grouping, host),
                      .local = (size_t)(grouping->places[problem->rank] -
                                        grouping->begins[host]),
                      .sole = shape->rooted ? problem->root : -1,
                      .owning = -1};
    v.remotes = (size_t)problem->nranks - v.ranks;
    v.gathers =
        !shape->reduces || problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    v.twin = shape->reduces && v.gathers && grouping->host_count == 2;
    if (shape->varied) {
        v.rounds = count_varied_rounds(&v);
        return v;
    }
    if (v.twin) { /* as few messages as keep all ranks of both hosts busy */
        v.owning = wefti_grouping_ranks(grouping, 1) >
                   wefti_grouping_ranks(grouping, 0);
    }
    bool dealt = problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    if (wefti_blocks_are_one(problem) ||
        !cut(&v, problem->count, dealt ? count_owners(&v) : 1)) {
        v.sole = 0; /* too few for each rank to own some */
        cut(&v, problem->count, 1);
    }
    return v;
}

static bool owns(const wefti_blocks *v)
{
    return v->sole >= 0 ? v->sole == v->problem->rank
                        : v->owning < 0 || v->owning == v->host;
}

/* How far owner, of another host, is from this one. */
static size_t distance_of(const wefti_blocks *v, int owner)
{
    return (size_t)wefti_grouping_distance(v->grouping, v->host, owner);
}

static int rank_at_distance(const wefti_blocks *v, size_t distance)
{
    size_t nranks = (size_t)v->problem->nranks;
    size_t place = (size_t)v->grouping->begins[v->host + 1] + distance;
    return v->grouping->members[place % nranks];
}

/* ---- even forms -------------------------------------------------------------
 */

/* The lowest distance whose owner this rank is agent of in a round; from there
 * on it is each ranks-th. */
static size_t first_distance(const wefti_blocks *v, size_t round)
{
    return (v->local + v->ranks - round % v->ranks) % v->ranks;
}

/* How many of [0, end) lie in the circle's run of `run` that ends at local. */
static size_t count_in_run(const wefti_blocks *v, size_t run, size_t end)
{
    size_t below = v->local + 1 < end ? v->local + 1 : end;
    if (run <= v->local + 1) {
        size_t begin = v->local + 1 - run;
        return below > begin ? below - begin : 0;
    }
    size_t begin = v->ranks - (run - v->local - 1);
    return below + (end > begin ? end - begin : 0);
}

/* Owners nearer than distance whose agent this rank is, over all rounds before
 * `rounds`. */
static size_t count_nearer(const wefti_blocks *v, size_t rounds,
                           size_t distance)
{
    size_t turns = rounds / v->ranks, rest = rounds % v->ranks;
    size_t cycles = distance / v->ranks, part = distance % v->ranks;
    return distance * turns + cycles * rest + count_in_run(v, rest, part);
}

static size_t count_remote(const wefti_blocks *v, size_t rounds)
{
    if (v->sole < 0) { /* where one of two hosts owns, all or none is remote */
        return v->owning == v->host ? 0 : count_nearer(v, rounds, v->remotes);
    }
    if (v->grouping->hosts[v->sole] == v->host) {
        return 0;
    }
    size_t distance = distance_of(v, v->sole);
    return count_nearer(v, rounds, distance + 1) -
           count_nearer(v, rounds, distance);
}

/* Blocks of all rounds before `rounds`. */
static size_t count_even(const wefti_blocks *v, wefti_block_list which,
                         size_t rounds)
{
    size_t own = owns(v) * rounds, remote = count_remote(v, rounds);
    switch (which) {
    case WEFTI_BLOCKS_OWN:
        return own;
    case WEFTI_BLOCKS_REMOTE:
        return remote;
    case WEFTI_BLOCKS_HANDLED:
        return own + remote;
    default:
        return count_owners(v) * rounds - own - remote;
    }
}

/* Owner number i of the remote ones, handled by this rank or by others. */
static int remote_at(const wefti_blocks *v, wefti_block_list which,
                     size_t round, size_t i)
{
    size_t skipped = first_distance(v, round);
    if (v->sole >= 0) {
        return v->sole;
    }
    if (which != WEFTI_BLOCKS_OTHERS) {
        return rank_at_distance(v, skipped + i * v->ranks);
    }
    size_t turn = i / (v->ranks - 1), at = i % (v->ranks - 1);
    return rank_at_distance(v, turn * v->ranks + at + (at >= skipped));
}

/* Owner number i of this host's. */
static int local_at(const wefti_blocks *v, wefti_block_list which, size_t i)
{
    if (which != WEFTI_BLOCKS_OTHERS || v->sole >= 0) {
        return which == WEFTI_BLOCKS_OTHERS ? v->sole : v->problem->rank;
    }
    size_t place = (size_t)v->grouping->begins[v->host] + i + (i >= v->local);
    return v->grouping->members[place];
}

/* This host's owners among those of a round of the list. */
static size_t count_locals(const wefti_blocks *v, wefti_block_list which)
{
    if (which != WEFTI_BLOCKS_OTHERS) {
        return which != WEFTI_BLOCKS_REMOTE && owns(v);
    }
    return v->sole < 0 ? (owns(v) ? v->ranks - 1 : 0)
                       : v->grouping->hosts[v->sole] == v->host && !owns(v);
}

/* Which of a round's come first. */
static bool locals_first(const wefti_blocks *v)
{
    return v->twin ? v->host == 0 : !v->shape->reduces;
}

static int even_owner(const wefti_blocks *v, wefti_block_list which,
                      size_t round, size_t i)
{
    size_t all = count_even(v, which, round + 1) - count_even(v, which, round);
    size_t locals = count_locals(v, which), remotes = all - locals;
    size_t first = locals_first(v) ? locals : remotes;
    bool is_local = locals_first(v) == (i < first);
    i -= i < first ? 0 : first;
    return is_local ? local_at(v, which, i) : remote_at(v, which, round, i);
}

/* ---- v forms ----------------------------------------------------------------
 */

/* Of owner's blocks before `rounds`, those that this rank handles. */
static size_t count_handled(const wefti_blocks *v, int owner, size_t rounds)
{
    if (v->grouping->hosts[owner] == v->host) {
        return owner == v->problem->rank ? rounds : 0;
    }
    size_t behind = distance_of(v, owner) % v->ranks;
    size_t first = (v->local + v->ranks - behind) % v->ranks;
    return rounds > first ? (rounds - first - 1) / v->ranks + 1 : 0;
}

static size_t count_varied(const wefti_blocks *v, wefti_block_list which,
                           size_t rounds)
{
    size_t count = 0;
    for (int owner = 0; owner < v->problem->nranks; owner++) {
        size_t blocks = blocks_of(v, owner);
        blocks = blocks < rounds ? blocks : rounds;
        size_t handled = count_handled(v, owner, blocks);
        bool own = owner == v->problem->rank;
        switch (which) {
        case WEFTI_BLOCKS_OWN:
            count += own ? handled : 0;
            break;
        case WEFTI_BLOCKS_REMOTE:
            count += own ? 0 : handled;
            break;
        case WEFTI_BLOCKS_HANDLED:
            count += handled;
            break;
        default:
            count += blocks - handled;
            break;
        }
    }
    return count;
}

static bool is_listed(const wefti_blocks *v, wefti_block_list which, int owner,
                      size_t round)
{
    int rank = v->problem->rank;
    bool handled =
        wefti_grouping_agent(v->grouping, v->host, owner, round) == rank;
    switch (which) {
    case WEFTI_BLOCKS_OWN:
        return owner == rank;
    case WEFTI_BLOCKS_REMOTE:
        return handled && owner != rank;
    case WEFTI_BLOCKS_HANDLED:
        return handled;
    default:
        return !handled;
    }
}

/* Owner number i of the round's blocks in the list, in the host's order. */
static int varied_owner(const wefti_blocks *v, wefti_block_list which,
                        size_t round, size_t i)
{
    size_t nranks = (size_t)v->problem->nranks;
    size_t place = locals_first(v) ? v->remotes : 0;
    for (size_t looked = 0; looked < nranks; looked++) {
        int owner = rank_at_distance(v, (place + looked) % nranks);
        if (blocks_of(v, owner) > round && is_listed(v, which, owner, round) &&
            i-- == 0) {
            return owner;
        }
    }
    WEFTI_ASSERT(false);
    return -1;
}

/* ---- both -------------------------------------------------------------------
 */

/* Blocks of all rounds before `rounds`. */
static size_t count_before(const wefti_blocks *v, wefti_block_list which,
                           size_t rounds)
{
    return v->shape->varied ? count_varied(v, which, rounds)
                            : count_even(v, which, rounds);
}

/* The last round of [low, high) before which at most index blocks lie. */
static size_t search_round(const wefti_blocks *v, wefti_block_list which,
                           size_t index, size_t low, size_t high)
{
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (count_before(v, which, middle) <= index) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The round that a list's block is in: of even forms, as many rounds as the
 * host has ranks are the same again; of v forms, no round has more blocks than
 * there are ranks. */
static size_t find_round(const wefti_blocks *v, wefti_block_list which,
                         size_t index)
{
    if (v->shape->varied) {
        size_t most = (size_t)v->problem->nranks;
        return search_round(v, which, index, index / most, v->rounds);
    }
    size_t period = count_even(v, which, v->ranks);
    WEFTI_ASSERT(period > 0 && v->ranks > 0);
    size_t least = period / v->ranks; /* of a round; most is one more */
    size_t first = index / period * v->ranks, left = index % period;
    size_t low = first + left / (least + 1);
    size_t high = first + (least && left / least < v->ranks ? left / least + 1
                                                            : v->ranks);
    return search_round(v, which, index, low, high);
}

size_t wefti_blocks_count(const wefti_blocks *blocks, wefti_block_list which)
{
    return count_before(blocks, which, blocks->rounds);
}

wefti_block wefti_blocks_at(const wefti_blocks *blocks, wefti_block_list which,
                            size_t index)
{
    size_t round = find_round(blocks, which, index);
    size_t i = index - count_before(blocks, which, round);
    int owner = blocks->shape->varied ? varied_owner(blocks, which, round, i)
                                      : even_owner(blocks, which, round, i);
    return (wefti_block){owner, round};
}

wefti_part wefti_blocks_place(const wefti_blocks *blocks,
                              const wefti_block *block)
{
    if (blocks->shape->varied) {
        wefti_part part = {0, elems_of(blocks, block->owner)};
        return wefti_part_chunk(blocks->problem, part, block->round);
    }
    const wefti_grouping *grouping = blocks->grouping;
    size_t owners = blocks->cuts / blocks->rounds;
    size_t number = block->round * owners;
    if (owners > 1) {
        number += blocks->owning < 0
                      ? (size_t)block->owner
                      : (size_t)(grouping->places[block->owner] -
                                 grouping->begins[blocks->owning]);
    }
    wefti_part place;
    place.elems = wefti_deal(blocks->problem->count, blocks->unit, blocks->cuts,
                             number, &place.begin);
    return place;
}
