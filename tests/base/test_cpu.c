/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: tables by level come out best first, and only those this processor can
 * run.
 *
 * Method: tables with and without holes; the level is compared to what the
 * processor says of AVX2 and AVX-512.
 */
#include "base/cpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_level_is_what_the_processor_has(void **state)
{
    (void)state;
    wefti_cpu_level level = wefti_cpu_get_level();
#ifdef __x86_64__
    assert_int_equal(level >= WEFTI_CPU_V3,
                     __builtin_cpu_supports("avx2") != 0);
    assert_true(level < WEFTI_CPU_V4 || __builtin_cpu_supports("avx512f") != 0);
#else
    assert_int_equal(level, WEFTI_CPU_BASE);
#endif
}

static void test_pick_best_first_then_null(void **state)
{
    (void)state;
    static const char marks[WEFTI_CPU_LEVELS];
    const void *tables[WEFTI_CPU_LEVELS];
    for (int i = 0; i < WEFTI_CPU_LEVELS; i++) {
        tables[i] = &marks[i];
    }
    size_t usable = (size_t)wefti_cpu_get_level() + 1;
    for (size_t i = 0; i < usable; i++) {
        assert_ptr_equal(wefti_cpu_pick(tables, i), &marks[usable - 1 - i]);
    }
    assert_null(wefti_cpu_pick(tables, usable));
}

static void test_pick_skips_levels_without_a_table(void **state)
{
    (void)state;
    static const char mark;
    const void *tables[WEFTI_CPU_LEVELS] = {[WEFTI_CPU_BASE] = &mark};
    assert_ptr_equal(wefti_cpu_pick(tables, 0), &mark);
    assert_null(wefti_cpu_pick(tables, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_level_is_what_the_processor_has),
        cmocka_unit_test(test_pick_best_first_then_null),
        cmocka_unit_test(test_pick_skips_levels_without_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
