/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Parts of a sequence are a partition of it, in order within a place;
 *          what a place is said to see of another's keys is what the positions
 *          say, whatever the layout; layouts share the work as they should.
 * Method   All layouts over up to 8 ranks, as rings of groups of 1, 2 and 4,
 *          against the positions, pair by pair.
 */
#include "trainer/model/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { PARTS_MOST = 8, UNITS = 3, SEQ_MOST = 2 * PARTS_MOST * UNITS };

static const wefti_context_layout layouts[] = {
    WEFTI_CONTEXT_CONTIGUOUS, WEFTI_CONTEXT_ZIGZAG, WEFTI_CONTEXT_STRIPE};

/* Calls check for every context there is. */
static void for_each(void (*check)(const wefti_context *context, size_t seq))
{
    for (size_t l = 0; l < 3; l++) {
        for (size_t parts = 1; parts <= PARTS_MOST; parts++) {
            for (size_t ulysses = 1; ulysses <= parts; ulysses *= 2) {
                const wefti_context context = {
                    .parts = parts, .ulysses = ulysses, .layout = layouts[l]};
                if (parts % ulysses == 0) {
                    check(&context, UNITS * wefti_context_unit(&context));
                }
            }
        }
    }
}

static void check_partition(const wefti_context *context, size_t seq)
{
    int32_t whole[SEQ_MOST], own[SEQ_MOST], taken[SEQ_MOST] = {0};
    for (size_t i = 0; i < seq; i++) {
        whole[i] = (int32_t)i;
    }
    for (size_t part = 0; part < wefti_context_parts(context); part++) {
        wefti_context at = *context;
        at.part = part;
        wefti_context_take(&at, seq, whole, own);
        for (size_t i = 0; i < wefti_context_length(&at, seq); i++) {
            size_t index;
            assert_int_equal(own[i], wefti_context_position(&at, seq, i));
            assert_true(i == 0 || own[i] > own[i - 1]);
            taken[own[i]]++;
            assert_int_equal(
                wefti_context_find(context, seq, (size_t)own[i], &index), part);
            assert_int_equal(index, i);
        }
    }
    for (size_t i = 0; i < seq; i++) {
        assert_int_equal(taken[i], 1);
    }
}

static void test_context_parts_are_a_partition(void **state)
{
    (void)state;
    for_each(check_partition);
}

/* The place with this number in the ring. */
static wefti_context at_place(const wefti_context *context, size_t place)
{
    wefti_context at = *context;
    at.part = place * wefti_context_ulysses(context);
    return at;
}

static bool is_seen(const wefti_context_block *block, size_t query, size_t key)
{
    const size_t i = query - block->query, j = key - block->key;
    return query >= block->query && i < block->queries && key >= block->key &&
           j < block->keys &&
           (!block->causal || (int64_t)j <= (int64_t)i + block->offset);
}

static void check_blocks(const wefti_context *context, size_t seq)
{
    const size_t ring = wefti_context_ring(context);
    const size_t tokens = wefti_context_attended(context, seq);
    for (size_t n = 0; n < ring * ring; n++) {
        const wefti_context own = at_place(context, n / ring);
        const wefti_context other = at_place(context, n % ring);
        const wefti_context_block block =
            wefti_context_see(&own, tokens, n % ring);
        for (size_t i = 0; i < tokens; i++) {
            size_t at = wefti_context_attended_position(&own, seq, i);
            for (size_t j = 0; j < tokens; j++) {
                assert_int_equal(
                    is_seen(&block, i, j),
                    wefti_context_attended_position(&other, seq, j) <= at);
            }
        }
    }
}

static void test_context_sees_what_positions_say(void **state)
{
    (void)state;
    for_each(check_blocks);
}

/* Pairs of a query and a key that it sees. */
static size_t count_pairs(const wefti_context *context, size_t tokens,
                          size_t owner)
{
    const wefti_context_block block = wefti_context_see(context, tokens, owner);
    size_t pairs = 0;
    for (size_t i = 0; i < block.queries; i++) {
        const int64_t seen =
            block.causal ? (int64_t)i + 1 + block.offset : (int64_t)block.keys;
        pairs += seen > 0 ? (size_t)seen : 0;
    }
    return pairs;
}

/* All pairs, over what the slowest place of each step makes of all places, is
 * the fraction. */
static void expect_efficiency(wefti_context_layout layout, size_t parts,
                              size_t tokens, size_t numerator,
                              size_t denominator)
{
    size_t all = 0, slowest = 0;
    for (size_t step = 0; step < parts; step++) {
        size_t most = 0;
        for (size_t part = 0; part < parts; part++) {
            const wefti_context at = {parts, part, 1, layout};
            const size_t pairs =
                count_pairs(&at, tokens, (part + parts - step) % parts);
            all += pairs;
            most = pairs > most ? pairs : most;
        }
        slowest += most;
    }
    assert_int_equal(all * denominator, slowest * parts * numerator);
}

static void test_context_layouts_share_the_work(void **state)
{
    const size_t n = 128;
    (void)state;
    for (size_t parts = 2; parts <= 8; parts *= 2) {
        const size_t all = parts * n + 1;
        expect_efficiency(WEFTI_CONTEXT_CONTIGUOUS, parts, n, all,
                          n + 1 + 2 * (parts - 1) * n);
        expect_efficiency(WEFTI_CONTEXT_ZIGZAG, parts, n, 1, 1);
        expect_efficiency(WEFTI_CONTEXT_STRIPE, parts, n, all, parts * (n + 1));
    }
}

static void test_context_of_zeros_is_whole_sequences(void **state)
{
    const wefti_context whole = {0};
    (void)state;
    assert_int_equal(wefti_context_unit(&whole), 1);
    assert_int_equal(wefti_context_length(&whole, 7), 7);
    assert_int_equal(wefti_context_position(&whole, 7, 5), 5);
    assert_true(wefti_context_see(&whole, 7, 0).causal);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_context_parts_are_a_partition),
        cmocka_unit_test(test_context_sees_what_positions_say),
        cmocka_unit_test(test_context_layouts_share_the_work),
        cmocka_unit_test(test_context_of_zeros_is_whole_sequences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
