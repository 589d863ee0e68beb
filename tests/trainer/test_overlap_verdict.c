/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a verdict on overlap as checkpoints have it is read back, with any
 *          numbers; any other text is refused, and leaves no verdict; the
 * layout that it holds for has what of activations and optimizer is kept.
 * Method   calls, without a job.
 */
#include "trainer/overlap_trial.h"
#include "weft/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_verdict_text_is_read_back(void **state)
{
    (void)state;
    char text[WEFTI_OVERLAP_PACKED_BYTES], again[WEFTI_OVERLAP_PACKED_BYTES];
    wefti_overlap_verdict verdict = {.there = true, .layout = UINT64_MAX};
    wefti_overlap_verdict back;
    wefti_overlap_verdict_pack(&verdict, text);
    assert_string_equal(text, "ffffffffffffffff");
    static const weft_class tried[] = {WEFT_CLASS_TP, WEFT_CLASS_CP,
                                       WEFT_CLASS_EP, WEFT_CLASS_DP};
    for (int i = 0; i < 4; i++) {
        verdict.classes[tried[i]] = (wefti_overlap_class){
            true, i % 2 == 0, 1.23456e+100 * (1 + i), 4.56789e-100, 1.0 / 3};
    }
    wefti_overlap_verdict_pack(&verdict, text);
    assert_true(strlen(text) < sizeof(text) - 1);
    assert_null(strpbrk(text, ",\n"));
    assert_int_equal(wefti_overlap_verdict_unpack(text, &back), WEFT_OK);
    wefti_overlap_verdict_pack(&back, again);
    assert_string_equal(text, again);
    for (int i = 0; i < 4; i++) {
        assert_true(back.classes[tried[i]].tried);
        assert_int_equal(back.classes[tried[i]].lost, i % 2 == 0);
    }
    assert_int_equal(wefti_overlap_verdict_unpack("", &back), WEFT_OK);
    assert_false(back.there);
}

static void test_verdict_other_texts_are_refused(void **state)
{
    static const char *const bad[] = {
        "x",
        "0123456789abcde",
        "0123456789abcdef ",
        "0123456789abcdef tp 1 2 3",
        "0123456789abcdef tp 1 2 3 won",
        "0123456789abcdef xx 1 2 3 lost",
        "0123456789abcdef tp 1 2 nan lost",
        "0123456789abcdef tp 1 2 3 lost tp 1 2 3 lost",
        "0123456789abcdef dp 1 2 3 lost tp 1 2 3 lost",
        "0123456789abcdef tp 1 2 3 lost,"};
    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        wefti_overlap_verdict verdict = {.there = true};
        weft_status status = wefti_overlap_verdict_unpack(bad[i], &verdict);
        if (status != WEFT_ERR_INVALID) {
            print_error("%s\n", bad[i]);
        }
        assert_int_equal(status, WEFT_ERR_INVALID);
        assert_false(verdict.there);
        assert_non_null(strstr(weft_error_text(), "no verdict on overlap"));
    }
}

static void test_layout_has_what_of_memory_is_kept(void **state)
{
    (void)state;
    static wefti_config config; /* words may be NULL */
    const uint64_t plain = wefti_overlap_layout(&config, 2);
    config.memory.recompute = "full";
    const uint64_t again = wefti_overlap_layout(&config, 2);
    config.memory.offload = "optimizer";
    assert_int_not_equal(again, plain);
    assert_int_not_equal(wefti_overlap_layout(&config, 2), again);
}

/* Which is known before there is a replica: ranks that mirror each other share
 * gradients, though there is one copy. */
static void test_classes_are_those_of_the_mesh(void **state)
{
    (void)state;
    wefti_config config = {.overlap = {.tensor = true, .grad_reduce = true}};
    bool there[WEFT_CLASS_COUNT];
    for (int mirrored = 0; mirrored < 2; mirrored++) {
        const wefti_mesh mesh = {
            .tp = 1, .cp = 1, .ep = 1, .pp = 2, .dp = 1, .mirrored = mirrored};
        wefti_overlap_find(&config, &mesh, there);
        assert_int_equal(there[WEFT_CLASS_DP], mirrored);
        assert_false(there[WEFT_CLASS_TP] || there[WEFT_CLASS_CP]);
    }
    const wefti_mesh shared = {.tp = 2, .cp = 1, .ep = 1, .pp = 1, .dp = 1};
    wefti_overlap_find(&config, &shared, there);
    assert_true(there[WEFT_CLASS_TP]);
    assert_false(there[WEFT_CLASS_DP]); /* no two have the same parameters */
    config.overlap.tensor = false;
    wefti_overlap_find(&config, &shared, there);
    assert_false(there[WEFT_CLASS_TP]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_classes_are_those_of_the_mesh),
        cmocka_unit_test(test_verdict_text_is_read_back),
        cmocka_unit_test(test_verdict_other_texts_are_refused),
        cmocka_unit_test(test_layout_has_what_of_memory_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
