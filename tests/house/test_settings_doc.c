/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: docs/settings.md lists every WEFT_* variable of base/settings.h as it
 * is, and no other.
 *
 * Method: write the table that the list gives, row by row, and look for each
 * row in the page; then count the page's rows.
 */
#include "base/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char page[65536];

static int read_page(void **state)
{
    (void)state;
    FILE *file = fopen(SETTINGS_PAGE, "r");
    if (!file) {
        return -1;
    }
    page[fread(page, 1, sizeof(page) - 1, file)] = 0;
    return fclose(file);
}

#define RANGE_TEXT(least, most) snprintf(range, sizeof(range), "text")
#define RANGE_INT(least, most)                                                 \
    snprintf(range, sizeof(range), "whole number, %.0f to %.0f",               \
             (double)(least), (double)(most))
#define RANGE_REAL(least, most)                                                \
    snprintf(range, sizeof(range), "number, %.0f to %.0f", (double)(least),    \
             (double)(most))

static void test_page_has_every_setting_as_it_is(void **state)
{
    int missing = 0;
    char range[64], row[512];
    (void)state;
#define CHECK_ROW(name, kind, fallback, least, most, meaning)                  \
    RANGE_##kind(least, most);                                                 \
    snprintf(row, sizeof(row), "| `WEFT_%s` | %s | %s | %s |\n", #name,        \
             fallback, range, meaning);                                        \
    if (!strstr(page, row)) {                                                  \
        print_message("docs/settings.md lacks: %s", row);                      \
        missing++;                                                             \
    }
    WEFTI_SETTING_LIST(CHECK_ROW)
    assert_int_equal(missing, 0);
}

static void test_page_has_no_other_setting(void **state)
{
    int rows = 0;
    (void)state;
    for (const char *at = page; (at = strstr(at, "\n| `WEFT_")); at++) {
        rows++;
    }
    assert_int_equal(rows, WEFTI_SETTING_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_has_every_setting_as_it_is),
        cmocka_unit_test(test_page_has_no_other_setting),
    };
    return cmocka_run_group_tests(tests, read_page, NULL);
}
