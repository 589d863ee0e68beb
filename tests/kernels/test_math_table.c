/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The table of math kernels is whole at every level that this
 *          processor runs, and the best level comes first.
 * Method   Walk the levels; look at every member through the same list that
 *          made the struct.
 */
#include "kernels/math/math_table.h"

// clang-format off
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
// clang-format on
#include <string.h>

static void test_math_at_every_level_has_all_kernels(void **state)
{
    size_t levels = 0;

    (void)state;
    for (const wefti_math *math; (math = wefti_math_at(levels)); levels++) {
        print_message("level %s\n", math->level);
#define CHECK(name) assert_true(math->name != NULL);
        WEFTI_MATH_LIST(CHECK)
#undef CHECK
    }
    assert_in_range(levels, 1, 3);
    assert_string_equal(wefti_math_at(levels - 1)->level, "base");
}

static void test_math_get_is_first_level(void **state)
{
    (void)state;
    assert_ptr_equal(wefti_math_get(), wefti_math_at(0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_math_at_every_level_has_all_kernels),
        cmocka_unit_test(test_math_get_is_first_level),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
