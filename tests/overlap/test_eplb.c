/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Experts are placed as EPLB places them; of equals the lower number
 *          comes first. What does not divide is refused.
 * Method   The example that its authors published, two layers; small cases by
 *          hand; for random loads that each expert has a slot, each rank as
 * many and each slot's expert its slot.
 */
#include "overlap/eplb.h"
#include "tests/seed.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 64 };

typedef struct placed {
    int expert[MOST], slots[MOST * MOST], count[MOST];
} placed;

static placed place(const wefti_eplb *how, const double *load)
{
    placed got;
    memset(&got, 0x7f, sizeof(got));
    assert_int_equal(
        wefti_eplb_place(how, load, got.expert, got.slots, got.count), WEFT_OK);
    return got;
}

/* Source: github.com/deepseek-ai/EPLB, README.md, "Interface and Example". */
static void test_eplb_published_example_is_reproduced(void **state)
{
    static const wefti_eplb how = {12, 16, 4, 2, 8};
    static const double loads[2][12] = {
        {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
        {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    static const int want[2][16] = {
        {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
        {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
    (void)state;
    for (int layer = 0; layer < 2; layer++) {
        placed got = place(&how, loads[layer]);
        assert_memory_equal(got.expert, want[layer], sizeof(want[layer]));
    }
}

static void test_eplb_equal_loads_go_by_number(void **state)
{
    static const wefti_eplb how = {4, 6, 1, 1, 2};
    static const double load[] = {1, 1, 1, 1};
    static const int want[] = {2, 0, 0, 3, 1, 1};
    static const int slots[] = {1, 2, -1, 4, 5, -1, 0, -1, -1, 3, -1, -1};
    (void)state;
    placed got = place(&how, load);
    assert_memory_equal(got.expert, want, sizeof(want));
    assert_memory_equal(got.slots, slots, sizeof(slots));
    assert_int_equal(got.count[0], 2);
    assert_int_equal(got.count[3], 1);
}

static void check_whole(const wefti_eplb *how, const placed *got)
{
    const int most = how->replicas - how->experts + 1;
    int slots = 0;
    for (int e = 0; e < how->experts; e++) {
        assert_in_range(got->count[e], 1, most);
        for (int i = 0; i < most; i++) {
            int slot = got->slots[e * most + i];
            assert_true((slot >= 0) == (i < got->count[e]));
            if (slot >= 0) {
                assert_int_equal(got->expert[slot], e);
                slots++;
            }
        }
    }
    assert_int_equal(slots, how->replicas);
}

static void test_eplb_any_loads_give_every_expert_a_slot(void **state)
{
    static const wefti_eplb cases[] = {
        {8, 8, 4, 2, 4}, {8, 12, 4, 2, 4}, {9, 12, 3, 2, 4}, {16, 32, 8, 4, 8}};
    uint64_t seed = random_seed();
    (void)state;
    for (int i = 0; i < 200; i++) {
        const wefti_eplb *how = &cases[i % 4];
        double load[MOST];
        for (int e = 0; e < how->experts; e++) {
            load[e] = (double)(random_next(&seed) % 100);
        }
        placed got = place(how, load);
        check_whole(how, &got);
    }
}

static void test_eplb_what_does_not_divide_is_refused(void **state)
{
    static const wefti_eplb refused[] = {
        {8, 8, 3, 1, 4}, {8, 9, 4, 2, 4}, {8, 12, 4, 3, 4}, {8, 4, 4, 2, 4}};
    static const double load[8] = {0};
    placed got;
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        assert_int_equal(wefti_eplb_place(&refused[i], load, got.expert,
                                          got.slots, got.count),
                         WEFT_ERR_INVALID);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_eplb_published_example_is_reproduced),
        cmocka_unit_test(test_eplb_equal_loads_go_by_number),
        cmocka_unit_test(test_eplb_any_loads_give_every_expert_a_slot),
        cmocka_unit_test(test_eplb_what_does_not_divide_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
