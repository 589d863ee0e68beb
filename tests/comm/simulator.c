/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/simulator.c - sets up the ranks, drives their tracks in the wanted
 * order, compares what they got with what the operation means.
 */
#include "tests/comm/simulator.h"

#include "kernels/wire/fold.h"
#include "tests/comm/simulator_state.h"
#include "tests/kernels/fold_reference.h"
#include "tests/seed.h"

#include <stdlib.h>
#include <string.h>

enum { POISON = 0xa5 };

void sim_describe(const sim_state *world)
{
    const sim_case *what = world->what;
    print_error("%s %s %s %s: %d ranks, root %d, count %zu, chunk %zu, "
                "in place %d, order %d, seed %llu\n",
                what->pattern->name,
                weft_collective_text(what->problem.collective),
                weft_dtype_text(what->dtype), weft_redop_text(what->redop),
                world->nranks, what->problem.root, what->problem.count,
                what->problem.chunk_elems, what->in_place, what->order,
                (unsigned long long)what->seed);
    for (int r = 0; r < world->nranks && r < 8; r++) {
        const sim_node *node = &world->nodes[r];
        print_error("  rank %d: steps %zu/%zu %zu/%zu %zu/%zu, staged %d/%d "
                    "%d/%d\n",
                    r, node->next[0], node->count[0], node->next[1],
                    node->count[1], node->next[2], node->count[2],
                    node->channels[0].staged, node->channels[0].slots,
                    node->channels[1].staged, node->channels[1].slots);
    }
}

static size_t send_elems_of(const wefti_problem *problem)
{
    if (problem->collective == WEFT_COLLECTIVE_REDUCESCATTER) {
        return problem->count * (size_t)problem->nranks;
    }
    if (problem->collective == WEFT_COLLECTIVE_BROADCAST &&
        problem->rank != problem->root) {
        return 0;
    }
    return problem->count;
}

static size_t recv_elems_of(const wefti_problem *problem)
{
    if (problem->collective == WEFT_COLLECTIVE_ALLGATHER) {
        return problem->count * (size_t)problem->nranks;
    }
    if (problem->collective == WEFT_COLLECTIVE_REDUCE &&
        problem->rank != problem->root) {
        return 0;
    }
    return problem->count;
}

static unsigned char *new_bytes(size_t bytes)
{
    unsigned char *block = malloc(bytes + 1);
    assert_non_null(block);
    memset(block, POISON, bytes + 1);
    return block;
}

static void node_init_buffers(const sim_state *world, sim_node *node)
{
    const wefti_problem *problem = &node->problem;
    size_t width = world->elem_bytes;
    size_t own_bytes = (size_t)problem->rank * problem->count * width;
    uint64_t seed = world->what->seed * 31 + (uint64_t)problem->rank;

    node->send_elems = send_elems_of(problem);
    node->recv_elems = recv_elems_of(problem);
    size_t larger = node->send_elems > node->recv_elems ? node->send_elems
                                                        : node->recv_elems;
    node->block = new_bytes(larger * width);
    node->block_recv = new_bytes(larger * width);
    node->send = node->block;
    node->recv = node->block_recv;
    if (world->what->in_place) {
        node->recv = node->block;
        if (problem->collective == WEFT_COLLECTIVE_ALLGATHER) {
            node->send += own_bytes;
        } else if (problem->collective == WEFT_COLLECTIVE_REDUCESCATTER) {
            node->recv += own_bytes;
        }
    }
    reference_fill(node->send, node->send_elems, world->what->dtype, &seed);
    node->send_kept = new_bytes(node->send_elems * width);
    memcpy(node->send_kept, node->send, node->send_elems * width);
    node->written = calloc(node->recv_elems + 1, 1);
    assert_non_null(node->written);
}

static void node_init(sim_state *world, int rank)
{
    const wefti_pattern *pattern = world->what->pattern;
    sim_node *node = &world->nodes[rank];

    *node = (sim_node){.problem = world->what->problem};
    node->problem.rank = rank;
    node_init_buffers(world, node);
    for (int t = 0; t < WEFTI_TRACKS; t++) {
        node->scratch[t] =
            new_bytes(node->problem.chunk_elems * world->wide_bytes);
        node->count[t] = pattern->step_count(&node->problem, t);
    }
    for (int c = 0; c < WEFTI_CHANNELS; c++) {
        node->channels[c].slots = pattern->slots(&node->problem, c);
        node->channels[c].track = -1;
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
        world->lines[i].send_track = -1;
        world->lines[i].read_track = -1;
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
        for (int t = 0; t < WEFTI_TRACKS; t++) {
            free(node->scratch[t]);
        }
    }
    for (size_t i = 0; i < nranks * nranks * WEFTI_CHANNELS; i++) {
        free(world->lines[i].sent);
    }
    free(world->nodes);
    free(world->lines);
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

/* Tries every track of everybody but the laggard; whether any moved. */
static bool pass(sim_state *world, uint64_t *seed, int laggard)
{
    int deck[SIM_MOST_RANKS * WEFTI_TRACKS];
    int tracks = world->nranks * WEFTI_TRACKS;
    bool moved = false;

    shuffle(deck, tracks, seed);
    for (int i = 0; i < tracks; i++) {
        int at = world->what->order == SIM_UPWARD     ? i
                 : world->what->order == SIM_DOWNWARD ? tracks - 1 - i
                                                      : deck[i];
        bool more = at / WEFTI_TRACKS != laggard;
        while (more &&
               sim_advance(world, at / WEFTI_TRACKS, at % WEFTI_TRACKS)) {
            moved = true;
            more = world->what->order != SIM_RANDOM;
        }
    }
    return moved;
}

static bool is_finished(const sim_state *world)
{
    for (int r = 0; r < world->nranks; r++) {
        for (int t = 0; t < WEFTI_TRACKS; t++) {
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
        for (int t = 0; t < WEFTI_TRACKS && !moved && laggard >= 0; t++) {
            moved = sim_advance(world, laggard, t);
        }
        sim_require(world, moved, "nobody can go on");
    }
}

/* What the operation means, for one rank, into out. */
static void expect(const sim_state *world, const wefti_problem *problem,
                   unsigned char *out)
{
    const unsigned char *sources[SIM_MOST_RANKS];
    size_t bytes = problem->count * world->elem_bytes;
    bool scatters = problem->collective == WEFT_COLLECTIVE_REDUCESCATTER;

    for (int p = 0; p < world->nranks; p++) {
        sources[p] = world->nodes[p].send_kept +
                     (scatters ? (size_t)problem->rank * bytes : 0);
    }
    if (problem->collective == WEFT_COLLECTIVE_ALLGATHER) {
        for (int p = 0; p < world->nranks; p++) {
            memcpy(out + (size_t)p * bytes, sources[p], bytes);
        }
    } else if (problem->collective == WEFT_COLLECTIVE_BROADCAST) {
        memcpy(out, sources[problem->root], bytes);
    } else {
        reference_fold(out, sources, (size_t)world->nranks, problem->count,
                       world->what->dtype, world->what->redop);
    }
}

static void check_result(const sim_state *world, const sim_node *node,
                         const unsigned char *expected)
{
    size_t width = world->elem_bytes;
    int rank = node->problem.rank;

    for (size_t i = 0; i < node->recv_elems; i++) {
        sim_require(world, node->written[i] == 1,
                    "rank %d: element %zu written %d times", rank, i,
                    node->written[i]);
    }
    for (size_t i = 0; i < node->recv_elems; i++) {
        sim_require(
            world,
            memcmp(node->recv + i * width, expected + i * width, width) == 0,
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

size_t sim_check(const sim_case *what)
{
    sim_state world;
    bool one_result = what->problem.collective != WEFT_COLLECTIVE_REDUCESCATTER;

    world_init(&world, what);
    world_run(&world);
    check_lines(&world);

    size_t most_elems = what->problem.count * (size_t)world.nranks;
    unsigned char *expected = new_bytes(most_elems * world.elem_bytes);
    for (int r = 0; r < world.nranks; r++) {
        if (r == 0 || !one_result) {
            expect(&world, &world.nodes[r].problem, expected);
        }
        check_result(&world, &world.nodes[r], expected);
    }
    free(expected);
    world_fini(&world);
    return world.messages;
}
