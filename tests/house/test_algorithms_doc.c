/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: docs/collectives.md has a row for every algorithm, and for no other.
 *
 * Method: the names that comm/pattern has are looked for at the
 * beginning of the rows behind the heading; then the rows are counted.
 */
#include "comm/pattern/pattern.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char page[65536];
static const char *table;

static int read_page(void **state)
{
    (void)state;
    FILE *file = fopen(COLLECTIVES_PAGE, "r");
    if (!file) {
        return -1;
    }
    page[fread(page, 1, sizeof(page) - 1, file)] = 0;
    table = strstr(page, "\n## Algorithms\n");
    return fclose(file) != 0 || !table;
}

static size_t count_missing(const char *name)
{
    char row[64];
    snprintf(row, sizeof(row), "\n| %s | ", name);
    if (strstr(table, row)) {
        return 0;
    }
    print_message("docs/collectives.md lacks: %s\n", name);
    return 1;
}

static void test_page_has_every_algorithm_and_no_other(void **state)
{
    size_t missing = 0, rows = 0, algorithms = 0;
    (void)state;
    for (size_t i = 0; wefti_patterns[i]; i++) {
        missing += count_missing(wefti_patterns[i]->name);
        algorithms++;
    }
    assert_int_equal(missing, 0);
    for (const char *at = table; (at = strstr(at, "\n| ")); at++) {
        rows++;
    }
    assert_int_equal(rows, algorithms + 1); /* the table's head */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_has_every_algorithm_and_no_other)};
    return cmocka_run_group_tests(tests, read_page, NULL);
}
