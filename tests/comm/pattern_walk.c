/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/comm/pattern_walk.c - adds up a hash of each message on both its ends.
 */
#include "tests/comm/pattern_walk.h"

#include "base/clock.h"
#include "comm/pattern/shape.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Who sends what to whom, added up: equal sums of both ends, equal messages. */
typedef struct tally {
    uint64_t sent, read;
    size_t sends, reads, crossing;
    uint32_t *sent_to, *read_from; /* [rank * WEFTI_CHANNELS + channel] */
} tally;

/* Message number `place` of its line; wide: its elements are. */
static uint64_t message_hash(int sender, int receiver, int channel,
                             uint32_t place, const wefti_step *step, bool wide)
{
    uint64_t key = ((uint64_t)sender << 32) + (uint64_t)receiver;
    key = random_next(&key) + (uint64_t)channel * 2 + wide;
    key = random_next(&key) + ((uint64_t)place << 32) + step->elems;
    return random_next(&key);
}

/* Sums have wide elements in scratch. */
static bool is_wide(const wefti_problem *problem, const wefti_step *step)
{
    return (step->src == WEFTI_BUFFER_SCRATCH ||
            step->dst == WEFTI_BUFFER_SCRATCH) &&
           wefti_shape_get(problem->collective)->reduces;
}

static void tally_send(tally *sums, const wefti_problem *problem, int to,
                       int channel, const wefti_step *step)
{
    size_t line = (size_t)to * WEFTI_CHANNELS + (size_t)channel;
    const wefti_grouping *grouping = problem->grouping;
    sums->sent +=
        message_hash(problem->rank, to, channel, sums->sent_to[line]++, step,
                     is_wide(problem, step) || step->wide);
    sums->sends++;
    if (grouping && grouping->hosts[to] != grouping->hosts[problem->rank]) {
        sums->crossing += step->elems;
    }
}

static void tally_read(tally *sums, const wefti_problem *problem,
                       const wefti_source *from, const wefti_step *step)
{
    size_t line = (size_t)from->rank * WEFTI_CHANNELS + (size_t)from->channel;
    sums->read += message_hash(from->rank, problem->rank, from->channel,
                               sums->read_from[line]++, step,
                               is_wide(problem, step) || from->ranks > 1);
    sums->reads++;
}

static void tally_sends(tally *sums, const wefti_problem *problem,
                        const wefti_step *step, int channel)
{
    for (int i = 0;
         i < wefti_peer_count(problem, step->peer, step->owner, step->round);
         i++) {
        int to =
            wefti_peer_at(problem, step->peer, step->owner, step->round, i);
        if (to != problem->rank || step->kind == WEFTI_STEP_RELAY) {
            tally_send(sums, problem, to, channel, step);
        }
    }
}

static void tally_reads(tally *sums, const wefti_problem *problem,
                        const wefti_step *step)
{
    int peers = wefti_step_sources(problem, step);
    bool adds =
        step->kind == WEFTI_STEP_REDUCE || step->kind == WEFTI_STEP_RELAY;
    bool own = adds && step->src != WEFTI_BUFFER_NONE; /* needs no message */
    for (int i = 0;
         i < wefti_peer_count(problem, peers, step->owner, step->round); i++) {
        const wefti_source from = wefti_source_at(problem, step, i);
        if (from.rank != problem->rank || !own) {
            tally_read(sums, problem, &from, step);
        }
    }
}

static void tally_step(tally *sums, const wefti_problem *problem,
                       const wefti_step *step)
{
    switch (step->kind) {
    case WEFTI_STEP_SEND:
        tally_sends(sums, problem, step, step->channel);
        break;
    case WEFTI_STEP_RELAY:
        tally_reads(sums, problem, step);
        tally_sends(sums, problem, step, step->to_channel);
        break;
    case WEFTI_STEP_RECV:
    case WEFTI_STEP_COMBINE:
    case WEFTI_STEP_REDUCE:
        tally_reads(sums, problem, step);
        break;
    default:
        break;
    }
}

size_t pattern_walk(const wefti_pattern *pattern, wefti_problem problem)
{
    size_t lines = (size_t)problem.nranks * WEFTI_CHANNELS;
    tally sums = {.sent_to = malloc(lines * sizeof(uint32_t)),
                  .read_from = malloc(lines * sizeof(uint32_t))};
    size_t steps = 0;
    int64_t start_ns = wefti_clock_ns();

    assert_non_null(sums.sent_to);
    assert_non_null(sums.read_from);
    for (problem.rank = 0; problem.rank < problem.nranks; problem.rank++) {
        memset(sums.sent_to, 0, lines * sizeof(uint32_t));
        memset(sums.read_from, 0, lines * sizeof(uint32_t));
        for (int t = 0; t < WEFTI_STEP_LISTS; t++) {
            size_t count = pattern->step_count(&problem, t);
            for (size_t i = 0; i < count; i++) {
                wefti_step step;
                pattern->step_at(&problem, t, i, &step);
                tally_step(&sums, &problem, &step);
            }
            steps += count;
        }
    }
    print_message("%s %s of %d ranks: %zu steps, %zu messages, %.2f s\n",
                  pattern->name, weft_collective_text(problem.collective),
                  problem.nranks, steps, sums.reads,
                  (double)(wefti_clock_ns() - start_ns) * 1e-9);
    assert_int_equal(sums.sends, sums.reads);
    assert_int_equal(sums.sent, sums.read);
    free(sums.sent_to);
    free(sums.read_from);
    return sums.crossing;
}
