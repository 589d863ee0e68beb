/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: sizes and names of the public enums are right, also for values outside.
 *
 * Method: against the C types they stand for; names are compared to the words
 * that programs print, which are a contract.
 */
#include "weft/types.h"
#include "weft/version.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void test_dtype_bytes_match_the_c_types(void **state)
{
    (void)state;
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_U8), sizeof(uint8_t));
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_I32), sizeof(int32_t));
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_I64), sizeof(int64_t));
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_BF16), sizeof(uint16_t));
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_F32), sizeof(float));
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_F64), sizeof(double));
}

static void test_names_are_those_that_programs_print(void **state)
{
    (void)state;
    assert_string_equal(weft_dtype_text(WEFT_DTYPE_BF16), "bf16");
    assert_string_equal(weft_redop_text(WEFT_REDOP_AVG), "avg");
    assert_string_equal(weft_collective_text(WEFT_COLLECTIVE_ALLREDUCE),
                        "all_reduce");
    assert_string_equal(weft_collective_text(WEFT_COLLECTIVE_REDUCESCATTER),
                        "reduce_scatter");
    assert_string_equal(weft_class_text(WEFT_CLASS_DP), "dp");
}

static void test_values_outside_their_enum_are_named_so(void **state)
{
    (void)state;
    assert_int_equal(weft_dtype_bytes(WEFT_DTYPE_COUNT), 0);
    assert_string_equal(weft_dtype_text(WEFT_DTYPE_COUNT), "?");
    assert_string_equal(weft_redop_text(WEFT_REDOP_COUNT), "?");
    assert_string_equal(weft_collective_text(WEFT_COLLECTIVE_COUNT), "?");
    assert_string_equal(weft_class_text(WEFT_CLASS_COUNT), "?");
}

static void test_version_text_matches_header_and_build(void **state)
{
    char want[32];
    (void)state;
    snprintf(want, sizeof(want), "%d.%d.%d", WEFT_VERSION_MAJOR,
             WEFT_VERSION_MINOR, WEFT_VERSION_PATCH);
    assert_string_equal(weft_version_text(), want);
    assert_string_equal(BUILD_VERSION, want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype_bytes_match_the_c_types),
        cmocka_unit_test(test_names_are_those_that_programs_print),
        cmocka_unit_test(test_values_outside_their_enum_are_named_so),
        cmocka_unit_test(test_version_text_matches_header_and_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
