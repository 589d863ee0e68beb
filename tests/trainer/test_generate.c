/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a byte is drawn as its probability says, from no more of the likeliest
 * bytes than top_k and top_p leave, and never the one that separates files.
 *
 * Method: random logits; with all bytes left, each draw against a plain one
 * written here, from the same random numbers; with some, against a sorted list.
 */
#include "tests/seed.h"
#include "trainer/generate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { BYTES = 256, ROUNDS = 150 };

static wefti_generate_choice choices[BYTES];

static uint64_t seed;

static void make_logits(real *logits)
{
    for (size_t i = 0; i < BYTES; i++) {
        logits[i] = (real)((double)(random_next(&seed) % 2000) / 200);
    }
    logits[0] = 100; /* the likeliest, if it counted */
}

static const real *sorted_by;

static int by_logit(const void *left, const void *right)
{
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    if (sorted_by[a] > sorted_by[b] || sorted_by[a] < sorted_by[b]) {
        return sorted_by[a] > sorted_by[b] ? -1 : 1;
    }
    return (a > b) - (a < b);
}

/* How many bytes are at least as likely, and come before it. */
static size_t find_place(const real *logits, int32_t byte)
{
    size_t order[BYTES - 1], place = 0;
    for (size_t i = 0; i + 1 < BYTES; i++) {
        order[i] = i + 1;
    }
    sorted_by = logits;
    qsort(order, BYTES - 1, sizeof(order[0]), by_logit);
    while (order[place] != (size_t)byte) {
        place++;
    }
    return place;
}

static int32_t draw_plainly(const real *logits, double temperature,
                            wefti_random *random)
{
    double most = -HUGE_VAL, sum = 0;
    for (size_t i = 1; i < BYTES; i++) {
        most = (double)logits[i] > most ? (double)logits[i] : most;
    }
    for (size_t i = 1; i < BYTES; i++) {
        sum += exp(((double)logits[i] - most) / temperature);
    }
    double point = wefti_random_uniform(random) * sum;
    for (size_t i = 1; i + 1 < BYTES; i++) {
        point -= exp(((double)logits[i] - most) / temperature);
        if (point < 0) {
            return (int32_t)i;
        }
    }
    return BYTES - 1;
}

static void test_draw_of_all_is_the_plain_one(void **state)
{
    real logits[BYTES];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        wefti_generate_config config = {
            .is_text = true,
            .vocab = BYTES,
            .temperature = 0.05 + (double)(random_next(&seed) % 100) / 50,
            .top_p = 1};
        wefti_random one = wefti_random_make(random_next(&seed), 3);
        wefti_random two = one;
        make_logits(logits);
        for (int k = 0; k < 20; k++) {
            assert_int_equal(
                wefti_generate_draw(logits, &config, choices, &one),
                draw_plainly(logits, config.temperature, &two));
        }
    }
}

static void test_draw_is_from_the_likeliest(void **state)
{
    real logits[BYTES];
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        size_t most = 1 + random_next(&seed) % 8;
        bool seen[8] = {false};
        wefti_generate_config config = {.is_text = true,
                                        .vocab = BYTES,
                                        .temperature = 50,
                                        .top_k = most,
                                        .top_p = 1};
        wefti_random random = wefti_random_make(random_next(&seed), 0);
        make_logits(logits);
        for (int k = 0; k < 200; k++) {
            size_t place = find_place(
                logits, wefti_generate_draw(logits, &config, choices, &random));
            assert_true(place < most);
            seen[place] = true;
        }
        for (size_t place = 0; place < most; place++) {
            assert_true(seen[place]); /* about alike at such a temperature */
        }
    }
}

/* Shares of a half, a quarter, an eighth, ... */
static void test_draw_takes_no_more_than_the_share(void **state)
{
    real logits[BYTES];
    (void)state;
    for (size_t i = 0; i < BYTES; i++) {
        logits[i] = (real)(-(double)i * log(2));
    }
    for (size_t most = 1; most < 8; most++) {
        size_t highest = 0;
        double share = 1 - pow(0.5, (double)most);
        wefti_generate_config config = {.is_text = true,
                                        .vocab = BYTES,
                                        .temperature = 1,
                                        .top_p = share - 1e-4};
        wefti_random random = wefti_random_make(random_next(&seed), 0);
        for (int k = 0; k < 4000; k++) {
            int32_t byte =
                wefti_generate_draw(logits, &config, choices, &random);
            assert_in_range(byte, 1, most);
            highest = (size_t)byte > highest ? (size_t)byte : highest;
        }
        assert_int_equal(highest, most);
    }
}

static void test_draw_without_temperature_is_the_likeliest(void **state)
{
    real logits[BYTES];
    wefti_generate_config config = {
        .is_text = true, .vocab = BYTES, .temperature = 0, .top_p = 1};
    wefti_random random = wefti_random_make(1, 0);
    (void)state;
    for (int round = 0; round < ROUNDS; round++) {
        make_logits(logits);
        assert_int_equal(
            find_place(logits,
                       wefti_generate_draw(logits, &config, choices, &random)),
            0);
    }
}

/* Ids know no separator, and their vocabulary may be of any size. */
static void test_draw_of_ids_is_from_all_of_them(void **state)
{
    enum { VOCAB = 40 };
    real logits[VOCAB] = {0};
    bool seen[VOCAB] = {false};
    wefti_generate_config config = {
        .vocab = VOCAB, .temperature = 1, .top_p = 1};
    wefti_random random = wefti_random_make(random_next(&seed), 0);
    (void)state;
    for (int k = 0; k < 4000; k++) {
        int32_t id = wefti_generate_draw(logits, &config, choices, &random);
        assert_in_range(id, 0, VOCAB - 1);
        seen[id] = true;
    }
    for (int id = 0; id < VOCAB; id++) {
        assert_true(seen[id]);
    }
    config.top_k = 3; /* of equals those that come first */
    for (int k = 0; k < 100; k++) {
        assert_in_range(wefti_generate_draw(logits, &config, choices, &random),
                        0, 2);
    }
    logits[0] = 100;
    assert_int_equal(wefti_generate_draw(logits, &config, choices, &random), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_draw_of_all_is_the_plain_one),
        cmocka_unit_test(test_draw_is_from_the_likeliest),
        cmocka_unit_test(test_draw_takes_no_more_than_the_share),
        cmocka_unit_test(test_draw_without_temperature_is_the_likeliest),
        cmocka_unit_test(test_draw_of_ids_is_from_all_of_them),
    };
    seed = random_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
