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
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void test_dtype_bytes_and_kinds_match_the_c_types(void **state)
{
    (void)state;
    static const struct {
        weft_dtype dtype;
        size_t bytes;
        weft_kind kind;
    } rows[] = {{WEFT_DTYPE_I8, sizeof(int8_t), WEFT_KIND_SIGNED},
                {WEFT_DTYPE_U8, sizeof(uint8_t), WEFT_KIND_UNSIGNED},
                {WEFT_DTYPE_I32, sizeof(int32_t), WEFT_KIND_SIGNED},
                {WEFT_DTYPE_U32, sizeof(uint32_t), WEFT_KIND_UNSIGNED},
                {WEFT_DTYPE_I64, sizeof(int64_t), WEFT_KIND_SIGNED},
                {WEFT_DTYPE_U64, sizeof(uint64_t), WEFT_KIND_UNSIGNED},
                {WEFT_DTYPE_F16, 2, WEFT_KIND_FLOAT},
                {WEFT_DTYPE_F32, sizeof(float), WEFT_KIND_FLOAT},
                {WEFT_DTYPE_F64, sizeof(double), WEFT_KIND_FLOAT},
                {WEFT_DTYPE_BF16, 2, WEFT_KIND_FLOAT},
                {WEFT_DTYPE_F8E4M3, 1, WEFT_KIND_FLOAT},
                {WEFT_DTYPE_F8E5M2, 1, WEFT_KIND_FLOAT}};
    assert_int_equal(sizeof(rows) / sizeof(rows[0]), WEFT_DTYPE_COUNT);
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        /* in the order of ncclDataType_t, whose values these are */
        assert_int_equal(rows[i].dtype, i);
        assert_int_equal(weft_dtype_bytes(rows[i].dtype), rows[i].bytes);
        assert_int_equal(weft_dtype_kind(rows[i].dtype), rows[i].kind);
    }
}

static void test_redop_values_are_those_of_nccl(void **state)
{
    (void)state;
    assert_int_equal(WEFT_REDOP_SUM, 0);
    assert_int_equal(WEFT_REDOP_PROD, 1);
    assert_int_equal(WEFT_REDOP_MAX, 2);
    assert_int_equal(WEFT_REDOP_MIN, 3);
    assert_int_equal(WEFT_REDOP_AVG, 4);
}

static void test_redop_bitwise_applies_to_integers_only(void **state)
{
    (void)state;
    for (int d = 0; d < WEFT_DTYPE_COUNT; d++) {
        for (int o = 0; o < WEFT_REDOP_COUNT; o++) {
            bool applies = o < WEFT_REDOP_BAND || d < WEFT_DTYPE_F16;
            assert_int_equal(weft_redop_applies((weft_redop)o, (weft_dtype)d),
                             applies);
        }
    }
}

static void test_names_are_those_that_programs_print(void **state)
{
    (void)state;
    static const char *const dtypes[] = {"i8",  "u8",   "i32",    "u32",
                                         "i64", "u64",  "f16",    "f32",
                                         "f64", "bf16", "f8e4m3", "f8e5m2"};
    static const char *const redops[] = {
        "sum", "prod", "max", "min", "avg", "premulsum", "band", "bor", "bxor"};
    for (int i = 0; i < WEFT_DTYPE_COUNT; i++) {
        assert_string_equal(weft_dtype_text((weft_dtype)i), dtypes[i]);
    }
    for (int i = 0; i < WEFT_REDOP_COUNT; i++) {
        assert_string_equal(weft_redop_text((weft_redop)i), redops[i]);
    }
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
    assert_int_equal(weft_redop_applies(WEFT_REDOP_COUNT, WEFT_DTYPE_I8), 0);
    assert_int_equal(weft_redop_applies(WEFT_REDOP_SUM, WEFT_DTYPE_COUNT), 0);
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
        cmocka_unit_test(test_dtype_bytes_and_kinds_match_the_c_types),
        cmocka_unit_test(test_redop_values_are_those_of_nccl),
        cmocka_unit_test(test_redop_bitwise_applies_to_integers_only),
        cmocka_unit_test(test_names_are_those_that_programs_print),
        cmocka_unit_test(test_values_outside_their_enum_are_named_so),
        cmocka_unit_test(test_version_text_matches_header_and_build),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
