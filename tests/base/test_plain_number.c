/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: only what is wholly a decimal number is read as one, whatever the
 * locale, and a refused flag names itself, its value and what is allowed.
 *
 * Method: tables; the value is poisoned and must stay so where text is refused.
 */
#include "base/plain_number.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <locale.h>
#include <math.h>

static void test_plain_int_takes_digits_only(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t value;
    } good[] = {{"0", 0},
                {"007", 7},
                {"-12", -12},
                {"9223372036854775807", INT64_MAX},
                {"9223372036854775808", INT64_MAX},
                {"-99999999999999999999", INT64_MIN}};
    static const char *const bad[] = {"",    "-",  "+5", " 5", "5 ",  "\t5",
                                      "--5", "5x", "5.", "5,", "0x5", "5\n"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        int64_t value = 12345;
        assert_true(wefti_plain_int(good[i].text, &value));
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        int64_t value = 12345;
        assert_false(wefti_plain_int(bad[i], &value));
        assert_int_equal(value, 12345);
    }
}

static void test_plain_real_takes_decimal_numbers_only(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } good[] = {{"0", 0},        {"1.5", 1.5},       {".5", 0.5},
                {"5.", 5},       {"-2e3", -2000},    {"2E+3", 2000},
                {"25e-2", 0.25}, {"1e999", HUGE_VAL}};
    static const char *const bad[] = {
        "",    ".",   "-",    "e5",    " 5",  "5 ",  "1e", "1e+",
        "nan", "inf", "0x10", "1e5.0", "1,5", "--1", "+1", "1.2.3"};
    /* A decimal comma, where the machine has such a locale. */
    (void)setlocale(LC_ALL, "de_DE.UTF-8");
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        double value = 12345;
        assert_true(wefti_plain_real(good[i].text, &value));
        assert_true(value >= good[i].value && value <= good[i].value);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        double value = 12345;
        assert_false(wefti_plain_real(bad[i], &value));
        assert_int_equal(value, 12345);
    }
    (void)setlocale(LC_ALL, "C");
}

static void test_plain_flag_is_named_with_its_range(void **state)
{
    (void)state;
    int value = 12345;
    assert_int_equal(wefti_plain_flag("-n", "2", 2, 4, &value), WEFT_OK);
    assert_int_equal(value, 2);
    assert_int_equal(wefti_plain_flag("-n", "4", 2, 4, &value), WEFT_OK);
    assert_int_equal(value, 4);
    static const char *const bad[] = {"1", "5", "-3", " 3", "4294967299"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(wefti_plain_flag("-n", bad[i], 2, 4, &value),
                         WEFT_ERR_INVALID);
        assert_int_equal(value, 4);
    }
    assert_string_equal(weft_error_text(),
                        "-n 4294967299: allowed is a whole number from 2 to 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_int_takes_digits_only),
        cmocka_unit_test(test_plain_real_takes_decimal_numbers_only),
        cmocka_unit_test(test_plain_flag_is_named_with_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
