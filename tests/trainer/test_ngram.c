/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the n-gram yardstick is a proper, correctly smoothed model.
 * Method: compare with the same formula computed by brute-force counting, on
 * short seeded texts; check known limits on texts whose entropy is known.
 */
#include "trainer/data/ngram.h"
#include "trainer/mix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Witten-Bell by counting the whole text anew for every history. */
static double brute(const uint8_t *train, size_t train_bytes,
                    const uint8_t *history, size_t length, uint8_t next)
{
    double lower =
        length == 0 ? 1.0 / 256
                    : brute(train, train_bytes, history + 1, length - 1, next);
    double followed = 0;
    double hits = 0;
    double kinds = 0;
    uint8_t seen[256] = {0};
    for (size_t at = length; at < train_bytes; at++) {
        if (memcmp(train + at - length, history, length) != 0) {
            continue;
        }
        followed++;
        hits += train[at] == next;
        kinds += seen[train[at]] == 0;
        seen[train[at]] = 1;
    }
    return followed == 0 ? lower : (hits + kinds * lower) / (followed + kinds);
}

static void fill(uint8_t *text, size_t bytes, uint64_t seed, unsigned letters)
{
    for (size_t i = 0; i < bytes; i++) {
        text[i] = (uint8_t)('a' + wefti_mix_at(seed, i) % letters);
    }
}

static void test_ngram_random_text_equals_brute_force(void **state)
{
    (void)state;
    uint8_t train[400];
    uint8_t tried[100];
    fill(train, sizeof(train), 1, 5);
    fill(tried, sizeof(tried), 2, 6);
    for (int order = 1; order <= WEFTI_NGRAM_ORDER_MOST; order++) {
        double sum = 0;
        for (size_t at = 1; at < sizeof(tried); at++) {
            size_t length = (size_t)order - 1 < at ? (size_t)order - 1 : at;
            sum -= log(brute(train, sizeof(train), tried + at - length, length,
                             tried[at]));
        }
        double loss = -1;
        assert_int_equal(wefti_ngram_measure(order, train, sizeof(train), tried,
                                             sizeof(tried), &loss),
                         WEFT_OK);
        assert_float_equal(loss, sum / (sizeof(tried) - 1), 1e-12);
    }
}

static void test_ngram_large_text_approaches_its_entropy(void **state)
{
    (void)state;
    size_t bytes = 200000;
    uint8_t *text = malloc(2 * bytes);
    assert_non_null(text);
    fill(text, 2 * bytes, 3, 4);
    for (int order = 1; order <= 4; order++) {
        double loss = -1;
        assert_int_equal(
            wefti_ngram_measure(order, text, bytes, text + bytes, bytes, &loss),
            WEFT_OK);
        assert_float_equal(loss, log(4), 2e-3);
    }
    /* A counting text is certain with one byte of context, not without. */
    for (size_t i = 0; i < 2 * bytes; i++) {
        text[i] = (uint8_t)(i % 7);
    }
    double without = -1;
    double with = -1;
    assert_int_equal(
        wefti_ngram_measure(1, text, bytes, text + bytes, bytes, &without),
        WEFT_OK);
    assert_int_equal(
        wefti_ngram_measure(2, text, bytes, text + bytes, bytes, &with),
        WEFT_OK);
    assert_float_equal(without, log(7), 1e-3);
    assert_true(with < 1e-3);
    free(text);
}

static void test_ngram_bad_arguments_are_refused(void **state)
{
    (void)state;
    static const uint8_t text[] = "abc";
    double loss;
    assert_int_equal(wefti_ngram_measure(0, text, 3, text, 3, &loss),
                     WEFT_ERR_INVALID);
    assert_int_equal(wefti_ngram_measure(7, text, 3, text, 3, &loss),
                     WEFT_ERR_INVALID);
    assert_int_equal(wefti_ngram_measure(2, text, 0, text, 3, &loss),
                     WEFT_ERR_INVALID);
    assert_int_equal(wefti_ngram_measure(2, text, 3, text, 1, &loss),
                     WEFT_ERR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ngram_random_text_equals_brute_force),
        cmocka_unit_test(test_ngram_large_text_approaches_its_entropy),
        cmocka_unit_test(test_ngram_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
