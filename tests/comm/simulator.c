/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/simulator.c - sets up the ranks, drives their lists in the wanted
 * order, compares what they got with what the operation means.
 */
#include "tests/comm/simulator.h"

#include "kernels/wire/reduce.h"
#include "tests/comm/simulator_state.h"
#include "tests/kernels/reduce_reference.h"
#include "tests/seed.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5 };

void sim_describe(const sim_state *world)
{
    const sim_case *what = world->what;
    print_error("%s %s %s %s: %d ranks, root %d, count %zu, chunk %zu, "
                "in place %d, order %d, seed %llu%s\n",
                what->pattern->name,
                weft_collective_text(what->problem.collective),
                weft_dtype_text(what->dtype), weft_redop_text(what->redop),
                world->nranks, what->problem.root, what->problem.count,
                what->problem.chunk_elems, what->in_place, what->order,
                (unsigned long long)what->seed, what->hosts ? ", hosts" : "");
    for (int r = 0; what->hosts && r < world->nranks; r++) {
        print_error("%s%d", r ? " " : "  ", world->host_of[r]);
    }
    print_error("%s", what->hosts ? "\n" : "");
    for (int r = 0; r < world->nranks && r < 8; r++) {
        const sim_node *node = &world->nodes[r];
        print_error("  rank %d: steps", r);
        for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
            print_error(" %zu/%zu", node->next[t], node->count[t]);
        }
        print_error(", staged");
        for (int c = 0; c < WEFTI_CHANNELS; c++) {
            print_error(" %d/%d", node->channels[c].staged,
                        node->channels[c].slots);
        }
        print_error("\n");
    }
}

static bool is_root(const wefti_problem *problem)
{
    return problem->rank == problem->root;
}

/* Which buffers have a part for each rank, and which one rank alone has. */
static bool has_send_parts(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_REDUCESCATTER ||
           collective == WEFT_COLLECTIVE_REDUCESCATTERV ||
           collective == WEFT_COLLECTIVE_SCATTER ||
           collective == WEFT_COLLECTIVE_SCATTERV ||
           collective == WEFT_COLLECTIVE_ALLTOALL ||
           collective == WEFT_COLLECTIVE_ALLTOALLV;
}

static bool has_recv_parts(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLGATHER ||
           collective == WEFT_COLLECTIVE_ALLGATHERV ||
           collective == WEFT_COLLECTIVE_GATHER ||
           collective == WEFT_COLLECTIVE_GATHERV ||
           collective == WEFT_COLLECTIVE_ALLTOALL ||
           collective == WEFT_COLLECTIVE_ALLTOALLV;
}

static bool sends(const wefti_problem *problem)
{
    return is_root(problem) ||
           (problem->collective != WEFT_COLLECTIVE_BROADCAST &&
            problem->collective != WEFT_COLLECTIVE_SCATTER &&
            problem->collective != WEFT_COLLECTIVE_SCATTERV);
}

static bool receives(const wefti_problem *problem)
{
    return is_root(problem) || (problem->collective != WEFT_COLLECTIVE_REDUCE &&
                                problem->collective != WEFT_COLLECTIVE_GATHER &&
                                problem->collective != WEFT_COLLECTIVE_GATHERV);
}

static unsigned char *new_bytes(size_t bytes)
{
    unsigned char *block = malloc(bytes + 1);
    assert_non_null(block);
    memset(block, POISON, bytes + 1);
    return block;
}

/* Where parts of these lengths begin; returns the end of the last in memory. */
static size_t lay_out(const sim_case *what, const size_t *counts,
                      size_t *displs)
{
    size_t ranks = (size_t)what->problem.nranks, end = 0;
    for (size_t i = 0; i < ranks; i++) {
        size_t p = what->gap % 2 ? ranks - 1 - i : i;
        displs[p] = end + (what->counts ? what->gap : 0);
        end = displs[p] + counts[p];
    }
    return end;
}

/* Fills the node's arrays and problem; even parts have them here only. */
static void node_init_counts(const sim_state *world, sim_node *node,
                             size_t *send_places, size_t *recv_places)
{
    const sim_case *what = world->what;
    wefti_problem *problem = &node->problem;
    size_t ranks = (size_t)world->nranks, rank = (size_t)problem->rank;
    bool pairs = problem->collective == WEFT_COLLECTIVE_ALLTOALLV;
    for (size_t p = 0; p < ranks; p++) {
        size_t even = what->counts ? what->counts[p] : problem->count;
        send_places[p] = pairs ? what->counts[rank * ranks + p] : even;
        recv_places[p] = pairs ? what->counts[p * ranks + rank] : even;
    }
    if (what->counts && !pairs) {
        problem->count = what->counts[rank];
    }
    node->send_elems = lay_out(what, send_places, send_places + ranks);
    node->recv_elems = lay_out(what, recv_places, recv_places + ranks);
    if (what->counts) {
        problem->send_counts = send_places;
        problem->send_displs = send_places + ranks;
        problem->recv_counts = recv_places;
        problem->recv_displs = recv_places + ranks;
    }
    node->send_elems = !sends(problem)                       ? 0
                       : has_send_parts(problem->collective) ? node->send_elems
                                                             : problem->count;
    node->recv_elems = !receives(problem)                    ? 0
                       : has_recv_parts(problem->collective) ? node->recv_elems
                                                             : problem->count;
}

static void node_init_buffers(const sim_state *world, sim_node *node)
{
    const wefti_problem *problem = &node->problem;
    size_t width = world->elem_bytes, ranks = (size_t)world->nranks;
    size_t own = ranks + (size_t)problem->rank; /* of displs behind counts */
    uint64_t seed = world->what->seed * 31 + (uint64_t)problem->rank;

    size_t larger = node->send_elems > node->recv_elems ? node->send_elems
                                                        : node->recv_elems;
    node->block = new_bytes(larger * width);
    node->block_recv = new_bytes(larger * width);
    node->send = node->block;
    node->recv = node->block_recv;
    if (world->what->in_place && sends(problem) && receives(problem)) {
        node->recv = node->block;
        if (has_recv_parts(problem->collective)) {
            node->send += node->arrays[2 * ranks + own] * width;
        } else if (has_send_parts(problem->collective)) {
            node->recv += node->arrays[own] * width;
        }
    }
    reference_fill(node->send, node->send_elems, world->what->dtype, &seed);
    node->send_kept = new_bytes(node->send_elems * width);
    memcpy(node->send_kept, node->send, node->send_elems * width);
    node->written = calloc(node->recv_elems + 1, 1);
    node->wanted = calloc(node->recv_elems + 1, 1);
    assert_non_null(node->written);
    assert_non_null(node->wanted);
}

/* What ranks of a host tell each other of an all-to-all with counts. */
static void init_told(sim_state *world)
{
    const size_t *counts = world->what->counts;
    size_t ranks = (size_t)world->nranks;
    world->told = calloc(ranks * ranks, sizeof(*world->told));
    world->hosts = calloc(ranks, sizeof(*world->hosts));
    assert_non_null(world->told);
    assert_non_null(world->hosts);
    for (size_t i = 0; i < ranks * ranks; i++) {
        world->told[i] =
            counts[i] < UINT16_MAX ? (uint16_t)counts[i] : UINT16_MAX;
    }
    for (size_t place = 0; place < ranks; place++) {
        size_t rank = (size_t)world->grouping->members[place];
        world->hosts[place] = world->told + rank * ranks;
    }
}

static void node_init(sim_state *world, int rank)
{
    const wefti_pattern *pattern = world->what->pattern;
    size_t ranks = (size_t)world->nranks;
    sim_node *node = &world->nodes[rank];

    *node = (sim_node){.problem = world->what->problem};
    node->problem.rank = rank;
    node->problem.grouping = world->grouping;
    node->problem.nest = world->nest;
    node->problem.upward = world->what->pattern == &wefti_pattern_nested_sums;
    node->problem.host_counts =
        world->hosts ? world->hosts +
                           world->grouping->begins[world->grouping->hosts[rank]]
                     : NULL;
    node->arrays = calloc(4 * ranks, sizeof(*node->arrays));
    assert_non_null(node->arrays);
    node_init_counts(world, node, node->arrays, node->arrays + 2 * ranks);
    node_init_buffers(world, node);
    for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
        node->scratch[t] =
            new_bytes(node->problem.chunk_elems * world->wide_bytes);
        node->count[t] = pattern->step_count(&node->problem, t);
    }
    for (int c = 0; c < WEFTI_CHANNELS; c++) {
        node->channels[c].slots = pattern->slots(&node->problem, c);
        node->channels[c].list = -1;
    }
}

static void world_init(sim_state *world, const sim_case *what)
{
    int nranks = what->problem.nranks;
    size_t lines = (size_t)nranks * (size_t)nranks * WEFTI_CHANNELS;

    assert_true(nranks <= SIM_MOST_RANKS);
    *world = (sim_state){.what = what,
                         .nranks = nranks,
                         .elem_bytes = weft_dtype_bytes(what->dtype),
                         .wide_bytes = wefti_wide_bytes(what->dtype)};
    world->nodes = calloc((size_t)nranks, sizeof(*world->nodes));
    world->lines = calloc(lines, sizeof(*world->lines));
    assert_non_null(world->nodes);
    assert_non_null(world->lines);
    for (size_t i = 0; i < lines; i++) {
        world->lines[i].send_list = -1;
        world->lines[i].read_list = -1;
    }
    if (what->hosts) {
        assert_true(
            wefti_grouping_create(what->hosts, nranks, &world->grouping));
    }
    if (what->level_count) {
        assert_true(wefti_nest_create(what->levels, what->level_count, nranks,
                                      &world->nest));
        assert_true(!world->nest ||
                    wefti_nest_find_sums(world->nest, what->hosts));
    }
    world->border = what->border ? what->border : world->host_of;
    for (int r = 0, hosts = 0; r < nranks; r++) {
        world->host_of[r] = !what->hosts ? 0
                            : what->hosts[r] == r
                                ? hosts++
                                : world->host_of[what->hosts[r]];
    }
    if (what->problem.relay_elems) {
        init_told(world);
    }
    for (int r = 0; r < nranks; r++) {
        node_init(world, r);
    }
}

static void world_fini(sim_state *world)
{
    size_t nranks = (size_t)world->nranks;
    for (size_t r = 0; r < nranks; r++) {
        sim_node *node = &world->nodes[r];
        free(node->block);
        free(node->block_recv);
        free(node->send_kept);
        free(node->written);
        free(node->wanted);
        free(node->arrays);
        for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
            free(node->scratch[t]);
        }
    }
    for (size_t i = 0; i < nranks * nranks * WEFTI_CHANNELS; i++) {
        free(world->lines[i].sent);
    }
    free(world->told);
    free(world->hosts);
    free(world->nodes);
    free(world->lines);
    free(world->grouping);
    wefti_nest_free(world->nest);
}

/* 0 .. count - 1 in random order. */
static void shuffle(int *deck, int count, uint64_t *seed)
{
    for (int i = 0; i < count; i++) {
        int other = (int)(random_next(seed) % (uint64_t)(i + 1));
        deck[i] = deck[other];
        deck[other] = i;
    }
}

/* Tries every list of everybody but the laggard; whether any moved. */
static bool pass(sim_state *world, uint64_t *seed, int laggard)
{
    int deck[SIM_MOST_RANKS * WEFTI_STEP_LISTS];
    int lists = world->nranks * WEFTI_STEP_LISTS;
    bool moved = false;

    shuffle(deck, lists, seed);
    for (int i = 0; i < lists; i++) {
        int at = world->what->order == SIM_UPWARD     ? i
                 : world->what->order == SIM_DOWNWARD ? lists - 1 - i
                                                      : deck[i];
        bool more = at / WEFTI_STEP_LISTS != laggard;
        while (more && sim_advance(world, at / WEFTI_STEP_LISTS,
                                   at % WEFTI_STEP_LISTS)) {
            moved = true;
            more = world->what->order != SIM_RANDOM;
        }
    }
    return moved;
}

static bool is_finished(const sim_state *world)
{
    for (int r = 0; r < world->nranks; r++) {
        for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
            if (world->nodes[r].next[t] != world->nodes[r].count[t]) {
                return false;
            }
        }
    }
    return true;
}

static void world_run(sim_state *world)
{
    uint64_t seed = ~world->what->seed;
    int laggard = -1;
    if (world->what->order == SIM_LAGGARD) {
        laggard = (int)(random_next(&seed) % (uint64_t)world->nranks);
    }
    while (!is_finished(world)) {
        bool moved = pass(world, &seed, laggard);
        for (int t = 0; t < WEFTI_STEP_LISTS && !moved && laggard >= 0; t++) {
            moved = sim_advance(world, laggard, t);
        }
        sim_require(world, moved, "nobody can go on");
    }
}

static bool reduces(weft_collective collective)
{
    return collective == WEFT_COLLECTIVE_ALLREDUCE ||
           collective == WEFT_COLLECTIVE_REDUCE ||
           collective == WEFT_COLLECTIVE_REDUCESCATTER ||
           collective == WEFT_COLLECTIVE_REDUCESCATTERV;
}

/* What rank `from` holds for `to`. */
static const unsigned char *part_kept(const sim_state *world, int from, int to)
{
    const sim_node *node = &world->nodes[from];
    size_t ranks = (size_t)world->nranks;
    size_t begin = has_send_parts(node->problem.collective)
                       ? node->arrays[ranks + (size_t)to]
                       : 0;
    return node->send_kept + begin * world->elem_bytes;
}

/* What the operation means, for one rank, into out and node->wanted. Of an
 * all-reduce out is the same on all ranks, and rank 0's remains. */
static void expect(const sim_state *world, sim_node *node, unsigned char *out)
{
    const unsigned char *sources[SIM_MOST_RANKS];
    const wefti_problem *problem = &node->problem;
    size_t ranks = (size_t)world->nranks, width = world->elem_bytes;
    const size_t *counts = node->arrays + 2 * ranks, *displs = counts + ranks;
    bool parts = has_recv_parts(problem->collective);
    if (!receives(problem)) {
        return;
    }
    for (int p = 0; p < world->nranks; p++) {
        sources[p] = part_kept(world, p, problem->rank);
        if (parts) {
            memcpy(out + displs[p] * width, sources[p], counts[p] * width);
            memset(node->wanted + displs[p], 1, counts[p]);
        }
    }
    if (parts) {
        return;
    }
    memset(node->wanted, 1, problem->count);
    if (problem->collective == WEFT_COLLECTIVE_ALLREDUCE && problem->rank > 0) {
        return;
    }
    if (reduces(problem->collective) && world->grouping && !problem->flat) {
        reference_reduce_hosts(out, sources, world->host_of, ranks,
                               problem->count, world->what->dtype,
                               world->what->redop);
    } else if (reduces(problem->collective)) {
        reference_reduce(out, sources, (size_t)world->nranks, problem->count,
                         world->what->dtype, world->what->redop);
    } else {
        memcpy(out, sources[problem->root], problem->count * width);
    }
}

static void check_result(const sim_state *world, const sim_node *node,
                         const unsigned char *expected)
{
    size_t width = world->elem_bytes;
    int rank = node->problem.rank;

    for (size_t i = 0; i < node->recv_elems; i++) {
        sim_require(world, node->written[i] == node->wanted[i],
                    "rank %d: element %zu written %d times", rank, i,
                    node->written[i]);
    }
    for (size_t i = 0; i < node->recv_elems; i++) {
        sim_require(world,
                    !node->wanted[i] ||
                        memcmp(node->recv + i * width, expected + i * width,
                               width) == 0,
                    "rank %d: element %zu is wrong", rank, i);
    }
    sim_require(world,
                world->what->in_place || memcmp(node->send, node->send_kept,
                                                node->send_elems * width) == 0,
                "rank %d: its input was changed", rank);
}

static void check_lines(const sim_state *world)
{
    size_t nranks = (size_t)world->nranks;
    for (size_t i = 0; i < nranks * nranks * WEFTI_CHANNELS; i++) {
        sim_require(world, world->lines[i].first == world->lines[i].last,
                    "line %zu has messages that nobody reads", i);
    }
}

sim_traffic sim_check(const sim_case *what)
{
    sim_state world;

    world_init(&world, what);
    world_run(&world);
    check_lines(&world);

    size_t most_elems = 0;
    for (int r = 0; r < world.nranks; r++) {
        size_t elems = world.nodes[r].recv_elems;
        most_elems = elems > most_elems ? elems : most_elems;
    }
    unsigned char *expected = new_bytes(most_elems * world.elem_bytes);
    for (int r = 0; r < world.nranks; r++) {
        expect(&world, &world.nodes[r], expected);
        check_result(&world, &world.nodes[r], expected);
    }
    free(expected);
    world_fini(&world);
    return world.traffic;
}
