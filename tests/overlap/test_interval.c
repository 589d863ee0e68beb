/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: interval sets obey the algebra of sets.
 * Method: random sets over a small line of moments, also with touching, equal
 * and empty intervals; every result is compared moment by moment with the same
 * operation on bitmaps, and must be normal. Negative times included.
 */
#include "overlap/interval.h"

#include "base/check.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOMENTS = 64, ORIGIN = -20, MOST = 24, ROOM = 2 * MOST + 1 };
enum { ROUNDS = 20000 };

/* 0 .. bound-1 */
static int64_t below(uint64_t *seed, int64_t bound)
{
    return (int64_t)(random_next(seed) % (uint64_t)bound);
}

typedef struct subject {
    wefti_interval items[ROOM];
    wefti_interval_set set;
    bool bits[MOMENTS];
} subject;

static void init(subject *it)
{
    memset(it, 0xa5, sizeof(*it));
    memset(it->bits, 0, sizeof(it->bits));
    it->set = (wefti_interval_set){it->items, ROOM, 0};
}

static void fill(subject *it, uint64_t *random)
{
    init(it);
    size_t count = (size_t)below(random, MOST + 1);
    for (size_t i = 0; i < count; i++) {
        int64_t begin = below(random, MOMENTS);
        int64_t end = begin + below(random, 8);
        end = end > MOMENTS ? MOMENTS : end;
        wefti_interval_add(&it->set, ORIGIN + begin, ORIGIN + end);
        for (int64_t t = begin; t < end; t++) {
            it->bits[t] = true;
        }
    }
    wefti_interval_normalise(&it->set);
}

static void assert_same(const wefti_interval_set *set, const bool *bits)
{
    bool found[MOMENTS] = {false};
    int64_t length = 0;
    for (size_t i = 0; i < set->count; i++) {
        wefti_interval item = set->items[i];
        assert_true(item.begin_ns < item.end_ns);
        assert_true(i == 0 || set->items[i - 1].end_ns < item.begin_ns);
        assert_in_range(item.begin_ns - ORIGIN, 0, MOMENTS - 1);
        assert_in_range(item.end_ns - ORIGIN, 1, MOMENTS);
        for (int64_t t = item.begin_ns; t < item.end_ns; t++) {
            found[t - ORIGIN] = true;
            length++;
        }
    }
    assert_memory_equal(found, bits, sizeof(found));
    assert_int_equal(wefti_interval_length(set), length);
}

static void test_interval_any_sets_match_bitmaps(void **state)
{
    (void)state;
    uint64_t random = random_seed();
    for (int round = 0; round < ROUNDS; round++) {
        subject a, b, out;
        fill(&a, &random);
        fill(&b, &random);
        assert_same(&a.set, a.bits);

        init(&out);
        wefti_interval_unite(&a.set, &b.set, &out.set);
        for (int t = 0; t < MOMENTS; t++) {
            out.bits[t] = a.bits[t] || b.bits[t];
        }
        assert_same(&out.set, out.bits);

        init(&out);
        wefti_interval_intersect(&a.set, &b.set, &out.set);
        for (int t = 0; t < MOMENTS; t++) {
            out.bits[t] = a.bits[t] && b.bits[t];
        }
        assert_same(&out.set, out.bits);

        init(&out);
        wefti_interval_subtract(&a.set, &b.set, &out.set);
        for (int t = 0; t < MOMENTS; t++) {
            out.bits[t] = a.bits[t] && !b.bits[t];
        }
        assert_same(&out.set, out.bits);
    }
}

static void test_gaps_any_window_match_bitmaps(void **state)
{
    (void)state;
    uint64_t random = random_seed();
    for (int round = 0; round < ROUNDS; round++) {
        subject a, out;
        fill(&a, &random);
        init(&out);
        int64_t begin = below(&random, MOMENTS);
        int64_t end = begin + below(&random, MOMENTS + 1 - begin);
        wefti_interval window = {ORIGIN + begin, ORIGIN + end};
        wefti_interval_gaps(&a.set, window, &out.set);
        for (int64_t t = begin; t < end; t++) {
            out.bits[t] = !a.bits[t];
        }
        assert_same(&out.set, out.bits);
    }
}

static void test_normalise_touching_intervals_become_one(void **state)
{
    (void)state;
    wefti_interval items[4];
    wefti_interval_set set = {items, WEFTI_COUNT_OF(items), 0};
    wefti_interval_add(&set, 5, 9);
    wefti_interval_add(&set, 1, 3);
    wefti_interval_add(&set, 3, 5);
    wefti_interval_add(&set, 7, 7);
    wefti_interval_normalise(&set);
    assert_int_equal(set.count, 1);
    assert_int_equal(items[0].begin_ns, 1);
    assert_int_equal(items[0].end_ns, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_interval_any_sets_match_bitmaps),
        cmocka_unit_test(test_gaps_any_window_match_bitmaps),
        cmocka_unit_test(test_normalise_touching_intervals_become_one)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
