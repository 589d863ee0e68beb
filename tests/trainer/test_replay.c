/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a replay stands still for what its ranks, nodes and links make
 * unavoidable, and for nothing else.
 * Method: small steps whose times are worked out by hand beside them; then
 * random ones of one rank, of which the bound of any order must not exceed what
 * either of two orders takes, nor be less than what a single stretch shows.
 */
#include "trainer/step_replay.h"

#include "tests/seed.h"
#include "weft/status.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define COMPUTE(length_)                                                       \
    {                                                                          \
        .kind = WEFTI_REPLAY_COMPUTE, .length = (length_)                      \
    }
#define READY(op_, chunk_)                                                     \
    {                                                                          \
        .kind = WEFTI_REPLAY_READY, .op = (op_), .chunk = (chunk_)             \
    }
#define AWAIT(op_, chunk_)                                                     \
    {                                                                          \
        .kind = WEFTI_REPLAY_AWAIT, .op = (op_), .chunk = (chunk_)             \
    }
#define POST(op_)      READY(op_, WEFTI_REPLAY_ALL)
#define AWAIT_ALL(op_) AWAIT(op_, WEFTI_REPLAY_ALL)
#define MARK                                                                   \
    {                                                                          \
        .kind = WEFTI_REPLAY_MARK                                              \
    }
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

enum { OUT = 1, IN = 2, BOTH = OUT | IN };

/* One rank's events, and the operations; what it takes. */
static double replay_one(const wefti_replay_event *events, size_t count,
                         wefti_replay_op *ops, size_t op_count)
{
    const wefti_replay_rank rank = {events, count};
    wefti_replay replay = {
        .ranks = &rank, .rank_count = 1, .ops = ops, .op_count = op_count};
    assert_int_equal(wefti_replay_run(&replay), WEFT_OK);
    return replay.length;
}

static double least_of(const wefti_replay_event *events, size_t count,
                       wefti_replay_op *ops, size_t op_count)
{
    const wefti_replay_rank rank = {events, count};
    const wefti_replay replay = {
        .ranks = &rank, .rank_count = 1, .ops = ops, .op_count = op_count};
    double least = -1;
    assert_int_equal(wefti_replay_least(&replay, &least), WEFT_OK);
    return least;
}

/* compute to 3; the link from 3 to 10; awaited at 8; then to 12. */
static void test_replay_of_a_chain_stands_still_for_what_is_left(void **state)
{
    (void)state;
    wefti_replay_op op = {.links = BOTH, .chunks = 1, .length = 7};
    const wefti_replay_event events[] = {COMPUTE(3), POST(0), COMPUTE(5),
                                         AWAIT_ALL(0), COMPUTE(2)};
    assert_true(replay_one(events, COUNT(events), &op, 1) == 12);
    assert_true(op.waited == 2);
    assert_true(least_of(events, COUNT(events), &op, 1) == 2);
    op.length = 5;
    assert_true(replay_one(events, COUNT(events), &op, 1) == 10);
    assert_true(op.waited == 0);
    op.length = 0;
    assert_true(replay_one(events, COUNT(events), &op, 1) == 10);
    op = (wefti_replay_op){.links = 0, .chunks = 1, .length = 99};
    assert_true(replay_one(events, COUNT(events), &op, 1) == 10);
}

/* What nobody awaits makes a step no longer. */
static void test_replay_ends_where_its_ranks_do(void **state)
{
    (void)state;
    wefti_replay_op op = {.links = OUT, .chunks = 2, .length = 50};
    const wefti_replay_event events[] = {POST(0), COMPUTE(4)};
    assert_true(replay_one(events, COUNT(events), &op, 1) == 4);
    assert_true(least_of(events, COUNT(events), &op, 1) == 0);
}

/*
 * a, 4 long, and b, 3, are posted at 0; b is awaited at 5 of compute, a at 6.
 * In turn: a to 4, b to 7, so compute goes on at 7 and ends at 8. b first: to
 * 3, a to 7: the end is 7, which no order beats: 7 of link in 6 of compute.
 */
static void test_replay_of_one_link_takes_turns_by_priority(void **state)
{
    (void)state;
    wefti_replay_op ops[] = {{.links = OUT, .chunks = 1, .length = 4},
                             {.links = OUT, .chunks = 1, .length = 3}};
    const wefti_replay_event events[] = {
        POST(0), POST(1), COMPUTE(5), AWAIT_ALL(1), COMPUTE(1), AWAIT_ALL(0)};
    assert_true(replay_one(events, COUNT(events), ops, 2) == 8);
    assert_true(ops[0].waited == 0 && ops[1].waited == 2);
    ops[1].priority = -1;
    assert_true(replay_one(events, COUNT(events), ops, 2) == 7);
    assert_true(ops[0].waited == 1 && ops[1].waited == 0);
    assert_true(least_of(events, COUNT(events), ops, 2) == 1);
}

/*
 * a, 6 long, is posted at 0, b, 2, at 3, and awaited after 1 more, a after
 * another 4. In turn a is done at 6, b at 8, and compute at 12. Where a yields,
 * b is done at 5 and a, which goes on with what is left, at 8, in time.
 */
static void test_replay_of_what_yields_stands_back(void **state)
{
    (void)state;
    wefti_replay_op ops[] = {
        {.links = BOTH, .priority = 1, .chunks = 1, .length = 6},
        {.links = OUT, .chunks = 1, .length = 2}};
    const wefti_replay_event events[] = {POST(0),     COMPUTE(3),   POST(1),
                                         COMPUTE(1),  AWAIT_ALL(1), COMPUTE(4),
                                         AWAIT_ALL(0)};
    assert_true(replay_one(events, COUNT(events), ops, 2) == 12);
    assert_true(ops[1].waited == 4);
    ops[0].yields = true;
    assert_true(replay_one(events, COUNT(events), ops, 2) == 9);
    assert_true(ops[0].waited == 0 && ops[1].waited == 1);
    ops[0].length = 8;
    assert_true(replay_one(events, COUNT(events), ops, 2) == 10);
    ops[0].priority = 0; /* not for its like */
    assert_true(replay_one(events, COUNT(events), ops, 2) == 14);
}

/* The same two on two links do not meet; one that needs both waits for both. */
static void test_replay_of_two_links_goes_on_beside(void **state)
{
    (void)state;
    wefti_replay_op ops[] = {{.links = OUT, .chunks = 1, .length = 4},
                             {.links = IN, .chunks = 1, .length = 3},
                             {.links = BOTH, .chunks = 1, .length = 2}};
    const wefti_replay_event two[] = {POST(0),      POST(1),    COMPUTE(5),
                                      AWAIT_ALL(1), COMPUTE(1), AWAIT_ALL(0)};
    assert_true(replay_one(two, COUNT(two), ops, 2) == 6);
    assert_true(least_of(two, COUNT(two), ops, 2) == 0);
    /* It begins at 4, where the longer of them ends, and ends at 6. */
    const wefti_replay_event three[] = {POST(0), POST(1), POST(2), COMPUTE(1),
                                        AWAIT_ALL(2)};
    assert_true(replay_one(three, COUNT(three), ops, 3) == 6);
    /* OUT carries 4 + 2 in 1 of compute. But a need not be there by then. */
    assert_true(least_of(three, COUNT(three), ops, 3) == 1);
}

/*
 * Four chunks of 2, made at 1, 2, 3, 4: on the link from 1 to 9. Awaited whole
 * at 4, five are stood still. Awaited chunk by chunk with 3 of compute behind
 * each, all have come in time.
 */
static void test_replay_of_chunks_begins_with_the_first_signal(void **state)
{
    (void)state;
    wefti_replay_op op = {.links = BOTH, .chunks = 4, .length = 8};
    const wefti_replay_event whole[] = {
        COMPUTE(1),  READY(0, 0), COMPUTE(1),  READY(0, 1),  COMPUTE(1),
        READY(0, 2), COMPUTE(1),  READY(0, 3), AWAIT_ALL(0), COMPUTE(12)};
    assert_true(replay_one(whole, COUNT(whole), &op, 1) == 21);
    assert_true(op.waited == 5);
    /* From 1 on 8 of link in 3 of compute. */
    assert_true(least_of(whole, COUNT(whole), &op, 1) == 5);
    const wefti_replay_event parts[] = {
        COMPUTE(1),  READY(0, 0), COMPUTE(1),  READY(0, 1),
        COMPUTE(1),  READY(0, 2), COMPUTE(1),  READY(0, 3),
        AWAIT(0, 0), COMPUTE(3),  AWAIT(0, 1), COMPUTE(3),
        AWAIT(0, 2), COMPUTE(3),  AWAIT(0, 3), COMPUTE(3)};
    assert_true(replay_one(parts, COUNT(parts), &op, 1) == 16);
    assert_true(op.waited == 0);
}

/* Chunks of 2 come at 2, 4, 6, 8; each is used for 1: 1 is stood still for all
 * but the first, which takes 2; the last is used till 9. */
static void test_replay_of_chunks_releases_each_await(void **state)
{
    (void)state;
    wefti_replay_op op = {.links = BOTH, .chunks = 4, .length = 8};
    const wefti_replay_event events[] = {POST(0),     AWAIT(0, 0),  COMPUTE(1),
                                         AWAIT(0, 1), COMPUTE(1),   AWAIT(0, 2),
                                         COMPUTE(1),  AWAIT_ALL(0), COMPUTE(1)};
    assert_true(replay_one(events, COUNT(events), &op, 1) == 9);
    assert_true(op.waited == 5);
    assert_true(least_of(events, COUNT(events), &op, 1) == 5);
}

/* Rank 1's 3 of message begins at 4; rank 0's own end is 5. */
static void test_replay_of_two_ranks_waits_for_the_message(void **state)
{
    (void)state;
    wefti_replay_op op = {.links = OUT, .chunks = 1, .length = 3};
    const wefti_replay_event first[] = {COMPUTE(4), POST(0), MARK, COMPUTE(1),
                                        MARK};
    const wefti_replay_event second[] = {COMPUTE(1), AWAIT_ALL(0), MARK,
                                         COMPUTE(2)};
    const wefti_replay_rank ranks[] = {{first, COUNT(first)},
                                       {second, COUNT(second)}};
    double marks[3] = {-1, -1, -1};
    wefti_replay replay = {.ranks = ranks,
                           .rank_count = 2,
                           .ops = &op,
                           .op_count = 1,
                           .marks = marks,
                           .mark_room = 3};
    assert_int_equal(wefti_replay_run(&replay), WEFT_OK);
    assert_true(replay.length == 9 && op.waited == 6);
    assert_true(marks[0] == 4 && marks[1] == 5 && marks[2] == -1);
}

/* Two stretches, of 4 too much each, with compute between that helps neither.
 */
static void test_replay_least_adds_stretches_up(void **state)
{
    (void)state;
    wefti_replay_op ops[] = {{.links = OUT, .chunks = 1, .length = 5},
                             {.links = OUT, .chunks = 1, .length = 4}};
    const wefti_replay_event events[] = {POST(0),    COMPUTE(1), AWAIT_ALL(0),
                                         COMPUTE(9), POST(1),    AWAIT_ALL(1)};
    assert_true(replay_one(events, COUNT(events), ops, 2) == 18);
    assert_true(least_of(events, COUNT(events), ops, 2) == 8);
}

static void test_replay_refuses_what_cannot_be(void **state)
{
    (void)state;
    wefti_replay_op op = {.links = OUT, .chunks = 2, .length = 3};
    const wefti_replay_event never[] = {READY(0, 0), COMPUTE(1), AWAIT(0, 1)};
    const wefti_replay_event no_chunk[] = {READY(0, 2)};
    const wefti_replay_event no_op[] = {AWAIT(1, 0)};
    const struct {
        wefti_replay_rank rank;
        const char *text;
    } cases[] = {{{never, COUNT(never)}, "awaits operation 0"},
                 {{no_chunk, COUNT(no_chunk)}, "chunk 2"},
                 {{no_op, COUNT(no_op)}, "operation 1"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        wefti_replay replay = {.ranks = &cases[i].rank,
                               .rank_count = 1,
                               .ops = &op,
                               .op_count = 1};
        assert_int_equal(wefti_replay_run(&replay), WEFT_ERR_INVALID);
        assert_non_null(strstr(weft_error_text(), cases[i].text));
    }
    op.chunks = 0;
    wefti_replay replay = {.ops = &op, .op_count = 1};
    assert_int_equal(wefti_replay_run(&replay), WEFT_ERR_INVALID);
}

/* ---- random steps ---------------------------------------------------------
 */

enum { OPS = 6, CHUNKS = 3, EVENTS = 3 * OPS * CHUNKS, ROUNDS = 3000 };

typedef struct draft {
    wefti_replay_op ops[OPS];
    wefti_replay_event events[EVENTS];
    size_t count;
    double compute;
} draft;

static size_t below(uint64_t *random, size_t bound)
{
    return (size_t)(random_next(random) % bound);
}

static void add(draft *own, wefti_replay_event event)
{
    assert_true(own->count < EVENTS);
    own->events[own->count++] = event;
}

static void compute(draft *own, double length)
{
    add(own, (wefti_replay_event)COMPUTE(length));
    own->compute += length;
}

/* Operations are posted in order, each awaited by chunks somewhere behind. */
static void draw(draft *own, uint64_t *random)
{
    size_t posted = 0, awaited = 0;
    *own = (draft){.count = 0};
    for (size_t i = 0; i < OPS; i++) {
        own->ops[i] = (wefti_replay_op){.links = 1 + below(random, 3),
                                        .chunks = 1 + below(random, CHUNKS),
                                        .length = (double)below(random, 24)};
    }
    while (awaited < OPS) {
        if (posted < OPS && (posted == awaited || below(random, 2))) {
            add(own, (wefti_replay_event)POST(posted));
            posted++;
        } else {
            for (size_t k = 0; k < own->ops[awaited].chunks; k++) {
                add(own, (wefti_replay_event)AWAIT(awaited, k));
            }
            awaited++;
        }
        compute(own, (double)below(random, 6));
    }
}

static void test_replay_least_holds_for_each_order(void **state)
{
    (void)state;
    uint64_t random = random_seed();
    size_t some = 0;
    for (int round = 0; round < ROUNDS; round++) {
        draft own;
        draw(&own, &random);
        const double least = least_of(own.events, own.count, own.ops, OPS);
        const double rest =
            replay_one(own.events, own.count, own.ops, OPS) - own.compute;
        double waited = 0, single = 0;
        for (size_t i = 0; i < OPS; i++) {
            waited += own.ops[i].waited;
            own.ops[i].priority = (int)below(&random, 3);
            own.ops[i].yields = below(&random, 2);
        }
        assert_true(fabs(waited - rest) < 1e-9);
        const double other =
            replay_one(own.events, own.count, own.ops, OPS) - own.compute;
        double link[2] = {0};
        for (size_t i = 0; i < OPS; i++) {
            link[0] += own.ops[i].links & OUT ? own.ops[i].length : 0;
            link[1] += own.ops[i].links & IN ? own.ops[i].length : 0;
        }
        single = fmax(link[0], link[1]) - own.compute;
        assert_true(least < rest + 1e-9 && least < other + 1e-9);
        assert_true(least > single - 1e-9 && least >= 0);
        some += least > 0;
    }
    assert_true(some > ROUNDS / 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replay_of_a_chain_stands_still_for_what_is_left),
        cmocka_unit_test(test_replay_ends_where_its_ranks_do),
        cmocka_unit_test(test_replay_of_one_link_takes_turns_by_priority),
        cmocka_unit_test(test_replay_of_what_yields_stands_back),
        cmocka_unit_test(test_replay_of_two_links_goes_on_beside),
        cmocka_unit_test(test_replay_of_chunks_begins_with_the_first_signal),
        cmocka_unit_test(test_replay_of_chunks_releases_each_await),
        cmocka_unit_test(test_replay_of_two_ranks_waits_for_the_message),
        cmocka_unit_test(test_replay_least_adds_stretches_up),
        cmocka_unit_test(test_replay_refuses_what_cannot_be),
        cmocka_unit_test(test_replay_least_holds_for_each_order)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
