/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what base/json.h writes is exactly the JSON meant: commas, escapes,
 * nesting, numbers; and base/utf8.h distinguishes UTF-8 from other bytes.
 * Method: write into memory and compare the text; for UTF-8, every code point
 * and every sequence of two bytes against an independent decoder's rule.
 */
#include "base/check.h"
#include "base/json.h"
#include "base/utf8.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

typedef struct output {
    char *text;
    size_t bytes;
    FILE *file;
    wefti_json json;
} output;

static int open_output(void **state)
{
    output *out = calloc(1, sizeof(*out));
    assert_non_null(out);
    out->file = open_memstream(&out->text, &out->bytes);
    assert_non_null(out->file);
    wefti_json_init(&out->json, out->file);
    *state = out;
    return 0;
}

static int close_output(void **state)
{
    output *out = *state;
    fclose(out->file);
    free(out->text);
    free(out);
    return 0;
}

static void expect(output *out, const char *text)
{
    assert_int_equal(wefti_json_fini(&out->json), WEFT_OK);
    assert_string_equal(out->text, text);
}

static void test_json_nested_values_have_commas_between(void **state)
{
    output *out = *state;
    wefti_json *json = &out->json;
    wefti_json_object_open(json, NULL);
    wefti_json_int(json, "a", -3);
    wefti_json_array_open(json, "b");
    wefti_json_bool(json, NULL, true);
    wefti_json_object_open(json, NULL);
    wefti_json_object_close(json);
    wefti_json_array_open(json, NULL);
    wefti_json_null(json, NULL);
    wefti_json_array_close(json);
    wefti_json_array_close(json);
    wefti_json_uint(json, "c", UINT64_MAX);
    wefti_json_object_close(json);
    expect(out, "{\"a\": -3, \"b\": [true, {}, [null]], "
                "\"c\": 18446744073709551615}\n");
}

static void test_json_two_values_are_two_lines(void **state)
{
    output *out = *state;
    wefti_json_int(&out->json, NULL, 1);
    assert_int_equal(wefti_json_fini(&out->json), WEFT_OK);
    wefti_json_init(&out->json, out->file);
    wefti_json_int(&out->json, NULL, 2);
    expect(out, "1\n2\n");
}

static void test_json_text_is_escaped(void **state)
{
    output *out = *state;
    wefti_json_array_open(&out->json, NULL);
    wefti_json_text(&out->json, NULL, "q\" b\\ n\n t\t \x01 \x7f");
    wefti_json_text(&out->json, NULL, "\xC3\xA9\xF0\x9F\x99\x82");
    wefti_json_text(&out->json, NULL, "x\xFFy\xC3");
    wefti_json_text(&out->json, NULL, NULL);
    wefti_json_array_close(&out->json);
    expect(out, "[\"q\\\" b\\\\ n\\n t\\u0009 \\u0001 \\u007f\", "
                "\"\xC3\xA9\xF0\x9F\x99\x82\", "
                "\"x\xEF\xBF\xBDy\xEF\xBF\xBD\", null]\n");
}

static void test_json_real_keeps_all_digits_or_is_null(void **state)
{
    output *out = *state;
    wefti_json_array_open(&out->json, NULL);
    wefti_json_real(&out->json, NULL, 0.1);
    wefti_json_real(&out->json, NULL, (double)NAN);
    wefti_json_real(&out->json, NULL, (double)INFINITY);
    wefti_json_real(&out->json, NULL, -1e300);
    wefti_json_array_close(&out->json);
    expect(out, "[0.10000000000000001, null, null, "
                "-1.0000000000000001e+300]\n");
}

static void test_json_full_disk_is_reported(void **state)
{
    (void)state;
    FILE *full = fopen("/dev/full", "w");
    assert_non_null(full);
    wefti_json json;
    wefti_json_init(&json, full);
    wefti_json_int(&json, NULL, 1);
    assert_int_equal(wefti_json_fini(&json), WEFT_ERR_SYSTEM);
    fclose(full);
}

/* RFC 3629 section 3, written from the code point's side. */
static size_t encode(uint32_t point, unsigned char *bytes)
{
    if (point < 0x80) {
        bytes[0] = (unsigned char)point;
        return 1;
    }
    size_t count = point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (size_t i = count - 1; i > 0; i--) {
        bytes[i] = (unsigned char)(0x80 | (point & 0x3F));
        point >>= 6;
    }
    bytes[0] = (unsigned char)((0xF00 >> count) | point);
    return count;
}

static void test_utf8_step_every_code_point_is_taken(void **state)
{
    (void)state;
    for (uint32_t point = 0; point < 0x120000; point++) {
        unsigned char bytes[8] = {0};
        size_t count = encode(point, bytes);
        bool good = point <= 0x10FFFF && (point < 0xD800 || point > 0xDFFF);
        assert_int_equal(wefti_utf8_step(bytes, 8), good ? count : 0);
        assert_int_equal(wefti_utf8_step(bytes, count - 1), 0);
    }
}

static void test_utf8_step_overlong_forms_are_refused(void **state)
{
    (void)state;
    static const unsigned char bad[][4] = {{0xC0, 0x80},
                                           {0xC1, 0xBF},
                                           {0xE0, 0x9F, 0xBF},
                                           {0x80},
                                           {0xF0, 0x8F, 0xBF, 0xBF},
                                           {0xFE},
                                           {0xFF},
                                           {0xE2, 0x28, 0xA1},
                                           {0xE2, 0x82, 0x28},
                                           {0xF8, 0x88, 0x80, 0x80}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(bad); i++) {
        assert_int_equal(wefti_utf8_step(bad[i], 4), 0);
    }
}

static void test_utf8_check_names_first_bad_byte(void **state)
{
    (void)state;
    char text[64];
    for (size_t at = 0; at < sizeof(text); at++) {
        memset(text, 'a', sizeof(text));
        assert_int_equal(wefti_utf8_check(text, sizeof(text)), sizeof(text));
        text[at] = '\xFF';
        assert_int_equal(wefti_utf8_check(text, sizeof(text)), at);
        assert_int_equal(wefti_utf8_check(text, at), at);
    }
}

int main(void)
{
#define JSON_TEST(name)                                                        \
    cmocka_unit_test_setup_teardown(name, open_output, close_output)
    const struct CMUnitTest tests[] = {
        JSON_TEST(test_json_nested_values_have_commas_between),
        JSON_TEST(test_json_two_values_are_two_lines),
        JSON_TEST(test_json_text_is_escaped),
        JSON_TEST(test_json_real_keeps_all_digits_or_is_null),
        cmocka_unit_test(test_json_full_disk_is_reported),
        cmocka_unit_test(test_utf8_step_every_code_point_is_taken),
        cmocka_unit_test(test_utf8_step_overlong_forms_are_refused),
        cmocka_unit_test(test_utf8_check_names_first_bad_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
