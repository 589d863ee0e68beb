/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a setting is its default, or exactly the number that its variable
 * spells; everything else is refused with a text that names variable, value
 * and range.
 *
 * Method: tables of spellings, right and wrong, put into the environment.
 */
#include "base/settings.h"

#include "base/printable.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { POISON = -77 };

static int clear_all(void **state)
{
    (void)state;
    for (int s = 0; s < WEFTI_SETTING_COUNT; s++) {
        unsetenv(wefti_setting_describe((wefti_setting)s).name);
    }
    return 0;
}

static void test_int_right_spelling_gives_value(void **state)
{
    static const struct {
        const char *text;
        int64_t value;
    } cases[] = {{"-1", -1},          {"0", 0},  {"7", 7},
                 {"0042", 42},        {"-0", 0}, {"999999", 999999},
                 {"1000000", 1000000}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = POISON;
        setenv("WEFT_SPIN_US", cases[i].text, 1);
        assert_int_equal(wefti_setting_int(WEFTI_SETTING_SPIN_US, &value),
                         WEFT_OK);
        assert_int_equal(value, cases[i].value);
    }
}

static void test_int_wrong_spelling_is_refused(void **state)
{
    static const char *const cases[] = {" 1",
                                        "1 ",
                                        "+1",
                                        "4x",
                                        "3.5",
                                        "0x10",
                                        "1e3",
                                        "nan",
                                        "-",
                                        "banana",
                                        "--1",
                                        "-2",
                                        "1,0",
                                        "\t1",
                                        "1\n",
                                        "1000001",
                                        "99999999999999999999"};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int64_t value = POISON;
        char want[96] = "WEFT_SPIN_US=", shown[64];
        setenv("WEFT_SPIN_US", cases[i], 1);
        assert_int_equal(wefti_setting_int(WEFTI_SETTING_SPIN_US, &value),
                         WEFT_ERR_INVALID);
        assert_int_equal(value, POISON);
        wefti_printable(cases[i], strlen(cases[i]), shown, sizeof(shown));
        strcat(strcat(want, shown), ": allowed is");
        assert_ptr_equal(strstr(weft_error_text(), want), weft_error_text());
        assert_non_null(strstr(weft_error_text(), "from -1 to 1000000"));
    }
}

static void test_real_right_spelling_gives_value(void **state)
{
    static const struct {
        const char *text;
        double value;
    } cases[] = {{"0", 0.0},      {"0.5", 0.5},   {".25", 0.25},
                 {"1e3", 1000.0}, {"2E-1", 0.2},  {"1.5e+2", 150.0},
                 {"3.", 3.0},     {"100000", 1e5}};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double value = POISON;
        setenv("WEFT_EMULATE_GBPS", cases[i].text, 1);
        assert_int_equal(wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS, &value),
                         WEFT_OK);
        assert_true(value == cases[i].value);
    }
}

static void test_real_wrong_spelling_is_refused(void **state)
{
    static const char *const cases[] = {
        "nan", "inf",  "-inf", "0x1p3", "1e",   " 1",    "1 ", "+1",
        "1,5", "-0.1", "1e6",  "1e999", "GBps", "1GBps", ".",  "infinity"};
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        double value = POISON;
        setenv("WEFT_EMULATE_GBPS", cases[i], 1);
        assert_int_equal(wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS, &value),
                         WEFT_ERR_INVALID);
        assert_true(value == POISON);
        assert_non_null(strstr(weft_error_text(), cases[i]));
    }
}

/* A host program may have any locale; where none with a comma is installed
 * this still covers the C locale. */
static void test_real_under_decimal_comma_is_the_same(void **state)
{
    static const char *const names[] = {"de_DE.UTF-8", "fr_FR.UTF-8"};
    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        double value = POISON;
        setlocale(LC_ALL, names[i]);
        setenv("WEFT_EMULATE_GBPS", "0.5", 1);
        weft_status status =
            wefti_setting_real(WEFTI_SETTING_EMULATE_GBPS, &value);
        setlocale(LC_ALL, "C");
        assert_int_equal(status, WEFT_OK);
        assert_true(value == 0.5);
    }
}

static void test_setting_unset_or_empty_is_default(void **state)
{
    (void)state;
    for (int empty = 0; empty < 2; empty++) {
        int64_t value = POISON;
        if (empty) {
            setenv("WEFT_WARN_MS", "", 1);
        }
        assert_false(wefti_setting_given(WEFTI_SETTING_WARN_MS));
        assert_string_equal(wefti_setting_text(WEFTI_SETTING_WARN_MS), "10000");
        assert_int_equal(wefti_setting_int(WEFTI_SETTING_WARN_MS, &value),
                         WEFT_OK);
        assert_int_equal(value, 10000);
    }
}

static void test_setting_without_default_unset_is_refused(void **state)
{
    int64_t value = POISON;
    (void)state;
    assert_int_equal(wefti_setting_int(WEFTI_SETTING_RANK, &value),
                     WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "WEFT_RANK=(not set)"));
    assert_int_equal(value, POISON);
}

static void test_describe_set_shows_value_and_origin(void **state)
{
    (void)state;
    setenv("WEFT_LOG", "debug", 1);
    wefti_setting_info info = wefti_setting_describe(WEFTI_SETTING_LOG);
    assert_string_equal(info.name, "WEFT_LOG");
    assert_string_equal(info.value, "debug");
    assert_string_equal(info.fallback, "warn");
    assert_true(info.from_environment);
    unsetenv("WEFT_LOG");
    info = wefti_setting_describe(WEFTI_SETTING_LOG);
    assert_string_equal(info.value, "warn");
    assert_false(info.from_environment);
}

/* Each default of a number must itself pass its row's reader. */
static void test_defaults_of_numbers_are_in_range(void **state)
{
    (void)state;
#define CHECK_TEXT(name)
#define CHECK_INT(name)                                                        \
    if (wefti_setting_text(WEFTI_SETTING_##name)[0]) {                         \
        int64_t value;                                                         \
        assert_int_equal(wefti_setting_int(WEFTI_SETTING_##name, &value),      \
                         WEFT_OK);                                             \
    }
#define CHECK_REAL(name)                                                       \
    if (wefti_setting_text(WEFTI_SETTING_##name)[0]) {                         \
        double value;                                                          \
        assert_int_equal(wefti_setting_real(WEFTI_SETTING_##name, &value),     \
                         WEFT_OK);                                             \
    }
#define CHECK_ROW(name, kind, fallback, least, most, meaning) CHECK_##kind(name)
    WEFTI_SETTING_LIST(CHECK_ROW)
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_int_right_spelling_gives_value, clear_all),
        cmocka_unit_test_setup(test_int_wrong_spelling_is_refused, clear_all),
        cmocka_unit_test_setup(test_real_right_spelling_gives_value, clear_all),
        cmocka_unit_test_setup(test_real_wrong_spelling_is_refused, clear_all),
        cmocka_unit_test_setup(test_real_under_decimal_comma_is_the_same,
                               clear_all),
        cmocka_unit_test_setup(test_setting_unset_or_empty_is_default,
                               clear_all),
        cmocka_unit_test_setup(test_setting_without_default_unset_is_refused,
                               clear_all),
        cmocka_unit_test_setup(test_describe_set_shows_value_and_origin,
                               clear_all),
        cmocka_unit_test_setup(test_defaults_of_numbers_are_in_range,
                               clear_all),
    };
    return cmocka_run_group_tests(tests, NULL, clear_all);
}
