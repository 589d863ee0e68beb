/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Tokens go to the experts that the formula says, in its order, with
 *          weights without the bias; gradients of affinities are right; biases
 *          even out what a skewed router does.
 * Method   Random affinities, many of them equal, compared with a reference
 *          that sorts; finite differences in double; 300 steps of a router that
 *          prefers a few experts.
 */
#include "weft/moe_route.h"

#include "tests/seed.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

enum { EXPERTS_MOST = 64, SLOTS_MOST = 8, TOKENS = 40 };

/* ---- the reference --------------------------------------------------------
 */

typedef struct ranked {
    float score;
    int number;
} ranked;

static int by_score(const void *left, const void *right)
{
    const ranked *a = left, *b = right;
    return a->score != b->score ? (a->score < b->score ? 1 : -1)
                                : a->number - b->number;
}

static void route_plainly(const weft_moe_route_config *config,
                          const float *affinity, const float *bias,
                          int32_t *experts, float *weights)
{
    const int here = config->experts / config->groups;
    const int each =
        (config->slots + config->group_limit - 1) / config->group_limit;
    ranked groups[EXPERTS_MOST], all[EXPERTS_MOST], of_group[EXPERTS_MOST];
    bool kept[EXPERTS_MOST] = {0};
    int count = 0;
    float sum = 0;
    for (int group = 0; group < config->groups; group++) {
        for (int i = 0; i < here; i++) {
            const int expert = group * here + i;
            of_group[i] = (ranked){affinity[expert] + bias[expert], expert};
        }
        qsort(of_group, (size_t)here, sizeof(*of_group), by_score);
        groups[group] = (ranked){0, group};
        for (int i = 0; i < each && i < here; i++) {
            groups[group].score += of_group[i].score;
        }
    }
    qsort(groups, (size_t)config->groups, sizeof(*groups), by_score);
    for (int i = 0; i < config->group_limit; i++) {
        kept[groups[i].number] = true;
    }
    for (int expert = 0; expert < config->experts; expert++) {
        if (kept[expert / here]) {
            all[count++] = (ranked){affinity[expert] + bias[expert], expert};
        }
    }
    qsort(all, (size_t)count, sizeof(*all), by_score);
    for (int slot = 0; slot < config->slots; slot++) {
        experts[slot] = all[slot].number;
        sum += affinity[experts[slot]];
    }
    for (int slot = 0; slot < config->slots; slot++) {
        weights[slot] =
            sum > 0 ? affinity[experts[slot]] / sum * config->scale : 0;
    }
}

/* ---- tests ----------------------------------------------------------------
 */

/* Of few values, so that many are equal. */
static void draw(uint64_t *seed, float *values, size_t count, float least)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = least + (float)(random_next(seed) % 17) / 16;
    }
}

static weft_moe_route_config shape(int experts, int slots, int groups,
                                   int limit)
{
    return (weft_moe_route_config){.size_bytes = sizeof(weft_moe_route_config),
                                   .experts = experts,
                                   .slots = slots,
                                   .groups = groups,
                                   .group_limit = limit,
                                   .scale = 2.5f};
}

static const int shapes[][4] = {{1, 1, 1, 1},  {8, 2, 1, 1},  {8, 2, 4, 2},
                                {8, 3, 4, 2},  {8, 8, 2, 2},  {64, 8, 8, 4},
                                {64, 6, 8, 3}, {63, 7, 9, 7}, {12, 5, 6, 3}};
enum { SHAPES = sizeof(shapes) / sizeof(shapes[0]) };

static void test_moe_route_chooses_as_the_formula_says(void **state)
{
    uint64_t seed = random_seed();
    (void)state;
    for (int round = 0; round < 20 * SHAPES; round++) {
        const int *of = shapes[round % SHAPES];
        const weft_moe_route_config config = shape(of[0], of[1], of[2], of[3]);
        float affinity[TOKENS * EXPERTS_MOST], bias[EXPERTS_MOST];
        float weights[TOKENS * SLOTS_MOST], wanted_weights[SLOTS_MOST];
        int32_t experts[TOKENS * SLOTS_MOST], wanted[SLOTS_MOST];
        const size_t slots = (size_t)config.slots;
        draw(&seed, affinity, (size_t)(TOKENS * config.experts), 0);
        memset(affinity, 0, (size_t)config.experts * sizeof(*affinity));
        draw(&seed, bias, (size_t)config.experts, -0.5f);
        assert_int_equal(
            weft_moe_route(&config, affinity, bias, TOKENS, experts, weights),
            WEFT_OK);
        for (size_t token = 0; token < TOKENS; token++) {
            route_plainly(&config, affinity + token * (size_t)config.experts,
                          bias, wanted, wanted_weights);
            assert_memory_equal(experts + token * slots, wanted,
                                slots * sizeof(*wanted));
            assert_memory_equal(weights + token * slots, wanted_weights,
                                slots * sizeof(*wanted_weights));
        }
    }
}

static double weigh(const weft_moe_route_config *config, const float *affinity,
                    const int32_t *experts, const float *dweight, int moved,
                    double by)
{
    double sum = 0, out = 0;
    for (int slot = 0; slot < config->slots; slot++) {
        sum +=
            (double)affinity[experts[slot]] + (experts[slot] == moved ? by : 0);
    }
    for (int slot = 0; slot < config->slots; slot++) {
        const double own =
            (double)affinity[experts[slot]] + (experts[slot] == moved ? by : 0);
        out += (double)dweight[slot] * (double)config->scale * own / sum;
    }
    return out;
}

static void test_moe_route_gradient_is_the_difference_quotient(void **state)
{
    uint64_t seed = random_seed();
    const weft_moe_route_config config = shape(16, 4, 4, 2);
    float affinity[16], dweight[4], weights[4], got[16];
    int32_t experts[4];
    const double step = 1e-5;
    (void)state;
    for (int round = 0; round < 50; round++) {
        draw(&seed, affinity, 16, 0.1f);
        draw(&seed, dweight, 4, -0.5f);
        assert_int_equal(
            weft_moe_route(&config, affinity, NULL, 1, experts, weights),
            WEFT_OK);
        assert_int_equal(weft_moe_route_gradient(&config, affinity, experts,
                                                 dweight, 1, got),
                         WEFT_OK);
        for (int expert = 0; expert < 16; expert++) {
            const double quotient =
                (weigh(&config, affinity, experts, dweight, expert, step) -
                 weigh(&config, affinity, experts, dweight, expert, -step)) /
                (2 * step);
            assert_true(fabs(quotient - (double)got[expert]) < 1e-4);
        }
    }
}

/* The largest load over the mean. */
static double skew(const weft_moe_route_config *config, uint64_t *seed,
                   const float *bias, uint64_t *load)
{
    enum { MANY = 256 };
    static float affinity[MANY * 16], weights[MANY * 2];
    static int32_t experts[MANY * 2];
    uint64_t most = 0;
    draw(seed, affinity, MANY * 16, 0);
    for (size_t i = 0; i < MANY * 16; i++) {
        affinity[i] += i % 16 < 3 ? 0.5f : 0; /* everybody likes these */
    }
    assert_int_equal(
        weft_moe_route(config, affinity, bias, MANY, experts, weights),
        WEFT_OK);
    memset(load, 0, 16 * sizeof(*load));
    for (size_t i = 0; i < MANY * 2; i++) {
        load[experts[i]]++;
    }
    for (int expert = 0; expert < 16; expert++) {
        most = load[expert] > most ? load[expert] : most;
    }
    return (double)most * 16 / (MANY * 2);
}

static void test_moe_route_balance_evens_loads(void **state)
{
    uint64_t seed = 7, load[16]; /* the verdict is a statistic: one seed */
    const weft_moe_route_config config = shape(16, 2, 4, 2);
    float bias[16] = {0};
    (void)state;
    assert_true(skew(&config, &seed, bias, load) > 2.5);
    for (int step = 0; step < 300; step++) {
        (void)skew(&config, &seed, bias, load);
        assert_int_equal(weft_moe_route_balance(bias, load, 16, 0.005f),
                         WEFT_OK);
    }
    assert_true(skew(&config, &seed, bias, load) < 1.6);
    assert_true(bias[0] < bias[8]);
}

static void test_moe_route_balance_moves_by_one_step(void **state)
{
    float bias[4] = {0, 1, -1, 0};
    const uint64_t load[4] = {7, 4, 1, 4};
    (void)state;
    assert_int_equal(weft_moe_route_balance(bias, load, 4, 0.25f), WEFT_OK);
    assert_memory_equal(bias, ((const float[]){-0.25f, 1, -0.75f, 0}),
                        sizeof(bias));
}

static void refuse(weft_moe_route_config config, const char *words)
{
    float affinity[8] = {0}, weights[8];
    int32_t experts[8];
    assert_int_equal(
        weft_moe_route(&config, affinity, NULL, 1, experts, weights),
        WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), words));
}

static void test_moe_route_refuses_what_cannot_be(void **state)
{
    float values[8] = {0};
    int32_t experts[2] = {0, 8};
    const weft_moe_route_config config = shape(8, 2, 2, 1);
    (void)state;
    refuse(shape(8, 2, 3, 1), "groups 3");
    refuse(shape(8, 2, 4, 5), "group_limit 5");
    refuse(shape(8, 33, 1, 1), "slots 33");
    refuse(shape(8, 3, 4, 1), "config.slots 3: allowed is 1 .. 2");
    assert_int_equal(weft_moe_route(&config, NULL, NULL, 1, experts, values),
                     WEFT_ERR_INVALID);
    assert_int_equal(weft_moe_route(&config, NULL, NULL, 0, NULL, NULL),
                     WEFT_OK);
    assert_int_equal(
        weft_moe_route_gradient(&config, values, experts, values, 1, values),
        WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "expert 8 of token 0"));
    assert_int_equal(weft_moe_route_balance(NULL, NULL, 1, 0),
                     WEFT_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_moe_route_chooses_as_the_formula_says),
        cmocka_unit_test(test_moe_route_gradient_is_the_difference_quotient),
        cmocka_unit_test(test_moe_route_balance_evens_loads),
        cmocka_unit_test(test_moe_route_balance_moves_by_one_step),
        cmocka_unit_test(test_moe_route_refuses_what_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
