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
               : (size_t)wefti_grouping_ranks(v->problem->grouping, v->owning);
}

bool wefti_blocks_are_one(const wefti_problem *problem)
{
    return problem->collective == WEFT_COLLECTIVE_ALLREDUCE && !problem->nest &&
           problem->grouping->host_count == 2 &&
           problem->count <= problem->chunk_elems / ONE_SHARE;
}

/* How far owner is behind the outermost group, going round: from it comes whose
 * turn it is to handle its blocks. */
static size_t distance_of(const wefti_blocks *v, int owner)
{
    int behind = v->places[owner] - v->top.end;
    return (size_t)(behind < 0 ? behind + v->problem->nranks : behind);
}

static int rank_at_distance(const wefti_blocks *v, size_t distance)
{
    size_t nranks = (size_t)v->problem->nranks;
    return v->members[((size_t)v->top.end + distance) % nranks];
}

/* Where the circle comes to the outermost group. */
static size_t top_distance(const wefti_blocks *v)
{
    return (size_t)(v->problem->nranks - (v->top.end - v->top.begin));
}

/* ... and in it to this rank's. */
static size_t group_distance(const wefti_blocks *v)
{
    return top_distance(v) + (size_t)(v->group.begin - v->top.begin);
}

/* Which of a round's come first: those of the outermost group, or others. */
static bool locals_first(const wefti_blocks *v)
{
    return v->twin ? v->problem->grouping->hosts[v->problem->rank] == 0
                   : !v->shape->reduces;
}

/* ---- what one rank sees ----------------------------------------------------
 */

static void set_hosts(wefti_blocks *v)
{
    const wefti_grouping *grouping = v->problem->grouping;
    int host = grouping->hosts[v->problem->rank];
    v->members = grouping->members;
    v->places = grouping->places;
    v->group =
        (wefti_nest_run){grouping->begins[host], grouping->begins[host + 1]};
    v->top = v->group;
}

/* Sums that know no hosts are made by their owners from all ranks' inputs. */
static void set_nested(wefti_blocks *v, wefti_block_level level)
{
    const wefti_nest *nest = level == WEFTI_BLOCKS_INPUTS
                                 ? wefti_problem_sums(v->problem)
                                 : v->problem->nest;
    v->members = nest->members;
    v->places = nest->places;
    if (level == WEFTI_BLOCKS_SUMS) {
        v->group = v->top = (wefti_nest_run){0, nest->nranks};
    } else {
        v->group = wefti_nest_innermost(nest, v->problem->rank);
        v->top = wefti_nest_group(nest, nest->circle,
                                  nest->places[v->problem->rank]);
    }
}

/* Of the numbers [begin, end) those that own something. */
static void add_run(wefti_blocks *v, size_t begin, size_t end, bool own)
{
    size_t least = 0, most = (size_t)v->problem->nranks;
    if (v->sole >= 0) {
        least = distance_of(v, v->sole);
        most = least + 1;
    } else if (v->owning >= 0) { /* of two hosts */
        bool local = v->owning == v->problem->grouping->hosts[v->problem->rank];
        least = local ? top_distance(v) : 0;
        most = local ? most : top_distance(v);
    }
    begin = begin > least ? begin : least;
    end = end < most ? end : most;
    if (begin < end) {
        v->runs[v->run_count++] = (wefti_block_run){begin, end, own};
    }
}

static void find_runs(wefti_blocks *v)
{
    size_t top = top_distance(v), group = group_distance(v);
    bool locals = locals_first(v);
    if (!locals) {
        add_run(v, 0, top, false);
    }
    add_run(v, top, group, false);
    add_run(v, group, group + v->ranks, true);
    add_run(v, group + v->ranks, (size_t)v->problem->nranks, false);
    if (locals) {
        add_run(v, 0, top, false);
    }
}

wefti_blocks wefti_blocks_of(const wefti_problem *problem,
                             wefti_block_level level)
{
    const wefti_shape *shape = wefti_shape_get(problem->collective);
    wefti_blocks v = {.problem = problem,
                      .shape = shape,
                      .sole = shape->rooted ? problem->root : -1,
                      .owning = -1};
    if (!problem->nest ||
        (level == WEFTI_BLOCKS_SUMS && wefti_problem_has_levels(problem))) {
        set_hosts(&v);
    } else {
        set_nested(&v, level);
    }
    v.ranks = (size_t)(v.group.end - v.group.begin);
    v.local = (size_t)(v.places[problem->rank] - v.group.begin);
    v.remotes = (size_t)problem->nranks - v.ranks;
    v.gathers =
        !shape->reduces || problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    v.twin = shape->reduces && v.gathers && !problem->nest &&
             problem->grouping->host_count == 2;
    if (shape->varied) {
        v.rounds = count_varied_rounds(&v);
        return v;
    }
    if (v.twin) { /* as few messages as keep all ranks of both hosts busy */
        v.owning = wefti_grouping_ranks(problem->grouping, 1) >
                   wefti_grouping_ranks(problem->grouping, 0);
    }
    bool dealt = problem->collective == WEFT_COLLECTIVE_ALLREDUCE;
    if (wefti_blocks_are_one(problem) ||
        !cut(&v, problem->count, dealt ? count_owners(&v) : 1)) {
        v.sole = 0; /* too few for each rank to own some */
        cut(&v, problem->count, 1);
    }
    find_runs(&v);
    return v;
}

/* ---- even forms -------------------------------------------------------------
 */

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

/* Owners nearer than distance whose agent this rank is, were none of its
 * group, over all rounds before `rounds`. */
static size_t count_nearer(const wefti_blocks *v, size_t rounds,
                           size_t distance)
{
    size_t turns = rounds / v->ranks, rest = rounds % v->ranks;
    size_t cycles = distance / v->ranks, part = distance % v->ranks;
    return distance * turns + cycles * rest + count_in_run(v, rest, part);
}

/* Of a run, blocks of all rounds before `rounds`. */
static size_t count_run(const wefti_blocks *v, const wefti_block_run *run,
                        wefti_block_list which, size_t rounds)
{
    size_t rank = group_distance(v) + v->local, own = 0, remote = 0;
    if (run->own) {
        own = rank >= run->begin && rank < run->end ? rounds : 0;
    } else {
        remote = count_nearer(v, rounds, run->end) -
                 count_nearer(v, rounds, run->begin);
    }
    switch (which) {
    case WEFTI_BLOCKS_OWN:
        return own;
    case WEFTI_BLOCKS_REMOTE:
        return remote;
    case WEFTI_BLOCKS_HANDLED:
        return own + remote;
    default:
        return (run->end - run->begin) * rounds - own - remote;
    }
}

static size_t count_even(const wefti_blocks *v, wefti_block_list which,
                         size_t rounds)
{
    size_t count = 0;
    for (int i = 0; i < v->run_count; i++) {
        count += count_run(v, &v->runs[i], which, rounds);
    }
    return count;
}

/* The distance of owner number i of the run's in a round of the list. */
static size_t distance_in_run(const wefti_blocks *v, const wefti_block_run *run,
                              wefti_block_list which, size_t round, size_t i)
{
    size_t rank = group_distance(v) + v->local;
    if (run->own) { /* this rank's own, or all but that */
        return which != WEFTI_BLOCKS_OTHERS
                   ? rank
                   : run->begin + i +
                         (rank >= run->begin && run->begin + i >= rank);
    }
    /* From the first of the run that is this rank's turn, each ranks-th is. */
    size_t turn = (run->begin + round) % v->ranks;
    size_t skipped = (v->local + v->ranks - turn) % v->ranks;
    if (which != WEFTI_BLOCKS_OTHERS) {
        return run->begin + skipped + i * v->ranks;
    }
    size_t cycle = i / (v->ranks - 1), at = i % (v->ranks - 1);
    return run->begin + cycle * v->ranks + at + (at >= skipped);
}

static int even_owner(const wefti_blocks *v, wefti_block_list which,
                      size_t round, size_t i)
{
    for (int number = 0; number < v->run_count; number++) {
        const wefti_block_run *run = &v->runs[number];
        size_t has = count_run(v, run, which, round + 1) -
                     count_run(v, run, which, round);
        if (i < has) {
            return rank_at_distance(v,
                                    distance_in_run(v, run, which, round, i));
        }
        i -= has;
    }
    WEFTI_ASSERT(false);
    return -1;
}

/* ---- v forms ----------------------------------------------------------------
 */

static bool is_in_group(const wefti_blocks *v, int owner)
{
    int place = v->places[owner];
    return place >= v->group.begin && place < v->group.end;
}

/* Of owner's blocks before `rounds`, those that this rank handles. */
static size_t count_handled(const wefti_blocks *v, int owner, size_t rounds)
{
    if (is_in_group(v, owner)) {
        return owner == v->problem->rank ? rounds : 0;
    }
    size_t behind = distance_of(v, owner) % v->ranks;
    size_t first = (v->local + v->ranks - behind) % v->ranks;
    return rounds > first ? (rounds - first - 1) / v->ranks + 1 : 0;
}

static bool is_handled(const wefti_blocks *v, int owner, size_t round)
{
    return is_in_group(v, owner)
               ? owner == v->problem->rank
               : (distance_of(v, owner) + round) % v->ranks == v->local;
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
    bool handled = is_handled(v, owner, round);
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

/* Owner number i of the round's blocks in the list, in the circle's order. */
static int varied_owner(const wefti_blocks *v, wefti_block_list which,
                        size_t round, size_t i)
{
    size_t nranks = (size_t)v->problem->nranks;
    size_t place = locals_first(v) ? top_distance(v) : 0;
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
 * group has ranks are the same again; of v forms, no round has more blocks than
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
    size_t mean = period / v->ranks; /* of a round */
    size_t turning = 0; /* runs of which a round has one more, or not */
    for (int i = 0; i < v->run_count; i++) {
        turning += !v->runs[i].own;
    }
    size_t least = mean + 1 > turning ? mean + 1 - turning : 0;
    least = least > mean ? mean : least;
    size_t first = index / period * v->ranks, left = index % period;
    size_t low = first + left / (mean + turning);
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
    const wefti_grouping *grouping = blocks->problem->grouping;
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
