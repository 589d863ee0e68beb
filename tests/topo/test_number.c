/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: numbers are read where they are numbers and fit; where not, the cursor
 * and the result stay.
 * Method: texts on both sides of each limit, and what the C library's readers
 * would take.
 */
#include "tests/topo/machine.h"
#include "topo/number.h"

#include <limits.h>

static void expect(const char *text, int base, uint64_t most, int bytes,
                   uint64_t value)
{
    const char *at = text;
    uint64_t read = 77;
    assert_int_equal(wefti_number_read(&at, base, most, &read), bytes > 0);
    assert_int_equal(at - text, bytes);
    assert_int_equal(read, bytes > 0 ? value : 77);
}

static void test_read_digits_that_fit_are_read(void **state)
{
    (void)state;
    expect("0", 10, 0, 1, 0);
    expect("42 rest", 10, 100, 2, 42);
    expect("007", 10, 7, 3, 7);
    expect("12a", 10, 100, 2, 12);
    expect("aFg", 16, 0xaf, 2, 0xaf);
    expect("0x10", 16, 100, 1, 0);
    expect("ffffffffffffffff", 16, UINT64_MAX, 16, UINT64_MAX);
    expect("18446744073709551615", 10, UINT64_MAX, 20, UINT64_MAX);
}

static void test_read_anything_else_is_refused(void **state)
{
    static const char *const texts[] = {"", " 1", "\t1", "+1", "-1", "x", ":"};
    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        expect(texts[i], 10, UINT64_MAX, 0, 0);
        expect(texts[i], 16, UINT64_MAX, 0, 0);
    }
    expect("a", 10, 100, 0, 0);
    expect("1", 10, 0, 0, 0);
    expect("101", 10, 100, 0, 0);
    expect("18446744073709551616", 10, UINT64_MAX, 0, 0);
    expect("10000000000000000", 16, UINT64_MAX, 0, 0);
}

static void test_get_takes_whole_ints_only(void **state)
{
    (void)state;
    assert_int_equal(wefti_number_get("143", -5), 143);
    assert_int_equal(wefti_number_get("2147483647", -5), INT_MAX);
    assert_int_equal(wefti_number_get("2147483648", -5), -5);
    assert_int_equal(wefti_number_get("143 ", -5), -5);
    assert_int_equal(wefti_number_get("-1", -5), -5);
    assert_int_equal(wefti_number_get("", -5), -5);
}

static void test_real_takes_finite_decimals_only(void **state)
{
    static const char *const texts[] = {"",      " 1",  "-1",  "+1",   ".5",
                                        "0x1p3", "inf", "nan", "1e999"};
    (void)state;
    const char *at = "11.75 9e2";
    double value = 77;
    assert_true(wefti_number_read_real(&at, &value) && value == 11.75);
    assert_true(wefti_number_skip(&at, " "));
    assert_true(wefti_number_read_real(&at, &value) && value == 900);
    assert_string_equal(at, "");
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        at = texts[i];
        assert_false(wefti_number_read_real(&at, &value));
        assert_ptr_equal(at, texts[i]);
        assert_true(value == 900);
    }
}

static void test_skip_other_words_stay(void **state)
{
    (void)state;
    const char *text = "nvml3", *at = text;
    assert_false(wefti_number_skip(&at, "nvml3x"));
    assert_ptr_equal(at, text);
    assert_true(wefti_number_skip(&at, "nvml"));
    assert_string_equal(at, "3");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read_digits_that_fit_are_read),
        cmocka_unit_test(test_read_anything_else_is_refused),
        cmocka_unit_test(test_get_takes_whole_ints_only),
        cmocka_unit_test(test_real_takes_finite_decimals_only),
        cmocka_unit_test(test_skip_other_words_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
