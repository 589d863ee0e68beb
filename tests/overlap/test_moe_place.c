/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Replicas go where the published algorithm puts them; every expert is
 *          there, groups stay on a host, and loads become even.
 * Method   The example that its authors publish, slot by slot; random loads
 *          with what must hold of any placement; a skewed load by hand.
 */
#include "weft/moe_place.h"

#include "tests/seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS_MOST = 256 };

/* DeepSeek-AI, EPLB, README: two layers of 12 experts. */
static void test_place_published_example_comes_out(void **state)
{
    (void)state;
    static const double loads[2][12] = {
        {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
        {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
    static const int32_t wanted[2][16] = {
        {5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
        {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
    const weft_moe_place_config config = {.size_bytes = sizeof(config),
                                          .experts = 12,
                                          .replicas = 16,
                                          .ranks = 8,
                                          .groups = 4,
                                          .hosts = 2};
    for (int layer = 0; layer < 2; layer++) {
        int32_t expert[16];
        assert_int_equal(
            weft_moe_place(&config, loads[layer], expert, NULL, NULL), WEFT_OK);
        assert_memory_equal(expert, wanted[layer], sizeof(expert));
    }
}

/* What each rank, and each expert at each slot, has to do. */
static double find_most(const weft_moe_place_config *config, const double *load,
                        const int32_t *expert, const int32_t *count)
{
    const int each = config->replicas / config->ranks;
    double most = 0;
    for (int rank = 0; rank < config->ranks; rank++) {
        double sum = 0;
        for (int i = 0; i < each; i++) {
            int32_t of = expert[rank * each + i];
            sum += load[of] / count[of];
        }
        most = sum > most ? sum : most;
    }
    return most;
}

static void check_placed(const weft_moe_place_config *config,
                         const int32_t *expert, const int32_t *replica,
                         const int32_t *count)
{
    bool seen[SLOTS_MOST][SLOTS_MOST] = {0};
    int all = 0;
    for (int slot = 0; slot < config->replicas; slot++) {
        assert_in_range(expert[slot], 0, config->experts - 1);
        assert_in_range(replica[slot], 0, count[expert[slot]] - 1);
        assert_false(seen[expert[slot]][replica[slot]]);
        seen[expert[slot]][replica[slot]] = true;
    }
    for (int i = 0; i < config->experts; i++) {
        all += count[i];
    }
    assert_int_equal(all, config->replicas);
}

/* Experts of a group have all their replicas on one host. */
static void check_together(const weft_moe_place_config *config,
                           const int32_t *expert)
{
    const int of_group = config->experts / config->groups;
    const int of_host = config->replicas / config->hosts;
    int host_of[SLOTS_MOST];
    memset(host_of, -1, sizeof(host_of));
    for (int slot = 0; slot < config->replicas; slot++) {
        int *host = &host_of[expert[slot] / of_group];
        assert_true(*host < 0 || *host == slot / of_host);
        *host = slot / of_host;
    }
}

static void test_place_random_loads_are_placed_whole(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int round = 0; round < 300; round++) {
        const int hosts = 1 << random_next(&seed) % 3;
        const int ranks = hosts << random_next(&seed) % 3;
        const int groups = 1 << random_next(&seed) % 4;
        const int experts = 16 * (int)(1 + random_next(&seed) % 4);
        const int replicas = (experts + ranks - 1) / ranks * ranks +
                             ranks * (int)(random_next(&seed) % 3);
        const weft_moe_place_config config = {.size_bytes = sizeof(config),
                                              .experts = experts,
                                              .replicas = replicas,
                                              .ranks = ranks,
                                              .groups = groups,
                                              .hosts = hosts};
        double load[SLOTS_MOST], all = 0, heaviest = 0;
        int32_t expert[SLOTS_MOST], replica[SLOTS_MOST], count[SLOTS_MOST];
        for (int i = 0; i < experts; i++) { /* many of them equal, some 0 */
            load[i] = (double)(random_next(&seed) % 9);
            all += load[i];
        }
        assert_int_equal(weft_moe_place(&config, load, expert, replica, count),
                         WEFT_OK);
        check_placed(&config, expert, replica, count);
        for (int i = 0; i < experts; i++) {
            heaviest = fmax(heaviest, load[i] / count[i]);
        }
        if (groups % hosts == 0) {
            check_together(&config, expert);
        } else { /* greedy packing: a mean and one item at most */
            assert_true(find_most(&config, load, expert, count) <=
                        all / ranks + (double)(replicas / ranks) * heaviest +
                            1e-9);
        }
    }
}

/* One expert has all the work: its replicas share it. */
static void test_place_of_one_busy_expert_spreads_it(void **state)
{
    (void)state;
    const weft_moe_place_config config = {
        .size_bytes = sizeof(config), .experts = 4, .replicas = 8, .ranks = 4};
    const double load[4] = {0, 0, 100, 0};
    int32_t expert[8], count[4];
    assert_int_equal(weft_moe_place(&config, load, expert, NULL, count),
                     WEFT_OK);
    assert_int_equal(count[2], 5);
    assert_true(fabs(find_most(&config, load, expert, count) - 40) < 1e-9);
    /* Without further replicas one rank has all of it. */
    weft_moe_place_config plain = config;
    plain.replicas = 4;
    assert_int_equal(weft_moe_place(&plain, load, expert, NULL, count),
                     WEFT_OK);
    assert_true(find_most(&plain, load, expert, count) == 100);
}

static void test_place_wrong_sizes_are_refused(void **state)
{
    (void)state;
    static const weft_moe_place_config wrong[] = {
        {.experts = 0, .replicas = 4, .ranks = 2},
        {.experts = 4, .replicas = 3, .ranks = 1},
        {.experts = 4, .replicas = 6, .ranks = 4},
        {.experts = 4, .replicas = 4, .ranks = 4, .groups = 3},
        {.experts = 4, .replicas = 6, .ranks = 3, .hosts = 2},
        {.experts = 4, .replicas = 4, .ranks = 4, .hosts = -1}};
    const double load[4] = {1, 2, 3, 4}, bad[4] = {1, -1, 0, 0},
                 worse[4] = {1, (double)NAN, 0, 0};
    int32_t expert[8] = {7};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        weft_moe_place_config config = wrong[i];
        config.size_bytes = sizeof(config);
        assert_int_equal(weft_moe_place(&config, load, expert, NULL, NULL),
                         WEFT_ERR_INVALID);
    }
    const weft_moe_place_config right = {
        .size_bytes = sizeof(right), .experts = 4, .replicas = 4, .ranks = 2};
    assert_int_equal(weft_moe_place(&right, bad, expert, NULL, NULL),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_moe_place(&right, worse, expert, NULL, NULL),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_moe_place(&right, NULL, expert, NULL, NULL),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_moe_place(NULL, load, expert, NULL, NULL),
                     WEFT_ERR_INVALID);
    assert_int_equal(expert[0], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place_published_example_comes_out),
        cmocka_unit_test(test_place_random_loads_are_placed_whole),
        cmocka_unit_test(test_place_of_one_busy_expert_spreads_it),
        cmocka_unit_test(test_place_wrong_sizes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
