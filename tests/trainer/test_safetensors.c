/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     files in the safetensors format come back as they were written; a
 *          header that breaks a rule is refused, and the text names the file,
 *          the tensor and the rule.
 * Method   a file of several types and shapes, an empty one among them; one
 *          header for each rule.
 */
#include "tests/trainer/scratch.h"
#include "trainer/exchange/safetensors.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_safetensors_written_come_back(void **state)
{
    (void)state;
    scratch own;
    scratch_open(&own);
    wefti_safetensor items[] = {
        {"matrix", "F32", 4, {2, 3}, 2, 0, 0},
        {"empty", "U8", 1, {0, 5}, 2, 0, 0},
        {"vector \"quoted\"", "F64", 8, {2}, 1, 0, 0},
        {"scalar", "BF16", 2, {0}, 0, 0, 0},
    };
    unsigned char data[24 + 16 + 2], got[sizeof(data)];
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (unsigned char)(i * 7 + 1);
    }
    const wefti_safetensors_note notes[] = {{"matrix", "of \"two\" rows"},
                                            {"of itself", "text"}};
    wefti_safetensors list = {
        .items = items, .count = 4, .notes = notes, .note_count = 2};
    wefti_safetensors_file file;
    const char *path = scratch_path(&own, "a.safetensors");
    assert_int_equal(wefti_safetensors_create(path, &list, &file), WEFT_OK);
    assert_int_equal(wefti_safetensors_write(&file, data, 10), WEFT_OK);
    assert_int_equal(
        wefti_safetensors_write(&file, data + 10, sizeof(data) - 10), WEFT_OK);
    assert_int_equal(wefti_safetensors_finish(&file), WEFT_OK);
    assert_int_equal(file.start_bytes % 8, 0);
    wefti_safetensors_close(&file);
    /* What is there is not overwritten. */
    assert_int_equal(wefti_safetensors_create(path, &list, &file),
                     WEFT_ERR_SYSTEM);

    assert_int_equal(wefti_safetensors_open(path, &file), WEFT_OK);
    assert_int_equal(file.list.count, 4);
    size_t at = 0;
    for (size_t i = 0; i < 4; i++) {
        const wefti_safetensor *item =
            wefti_safetensors_find(&file.list, items[i].name);
        assert_non_null(item);
        assert_string_equal(item->dtype, items[i].dtype);
        assert_int_equal(item->dimensions, items[i].dimensions);
        assert_memory_equal(item->shape, items[i].shape, sizeof(item->shape));
        size_t bytes = (size_t)(item->end_bytes - item->start_bytes);
        memset(got, 0xA5, sizeof(got));
        assert_int_equal(wefti_safetensors_read(&file, item, got), WEFT_OK);
        assert_memory_equal(got, data + at, bytes);
        at += bytes;
    }
    assert_int_equal(at, sizeof(data));
    assert_null(wefti_safetensors_find(&file.list, "matri"));
    for (int i = 0; i < 2; i++) { /* in either order */
        const void *near = NULL;
        for (int k = 0; k < 2; k++) {
            const wefti_safetensors_note *note = &notes[i ? 1 - k : k];
            assert_string_equal(
                wefti_safetensors_find_note(&file.list, note->key, &near),
                note->text);
        }
        assert_null(wefti_safetensors_find_note(&file.list, "vector", &near));
    }
    wefti_safetensors_close(&file);
    scratch_close(&own);
}

#define ENTRY(type, shape, offsets)                                            \
    "{\"a\": {\"dtype\": \"" type "\", \"shape\": " shape                      \
    ", \"data_offsets\": " offsets "}}"

static void test_safetensors_header_that_breaks_a_rule_is_refused(void **state)
{
    (void)state;
    const struct {
        const char *header;
        uint64_t data_bytes;
        const char *part;
    } rows[] = {
        {"", 0, "its header is not JSON"},
        {" {}", 0, "its header is not JSON"},
        {"[]", 0, "its header is not JSON"},
        {"{} {", 0, "its header is not JSON, from byte 2 on"},
        {"{}", 4, "4 bytes follow the last tensor"},
        {"{\"a\": []}", 0, "\"a\": allowed is an object"},
        {"{\"a\": {}}", 0, "\"a\": has no dtype"},
        {"{\"a\": {\"dtype\": \"F32\"}}", 0, "\"a\": has no shape"},
        {ENTRY("F31", "[1]", "[0, 4]"), 4, "dtype \"F31\" is none"},
        {ENTRY("F32", "[1.5]", "[0, 4]"), 4, "shape: allowed are whole"},
        {ENTRY("F32", "[-1]", "[0, 4]"), 4, "shape: allowed are whole"},
        {ENTRY("F32", "[1e17]", "[0, 4]"), 4, "shape: allowed are whole"},
        {ENTRY("F32", "[1,1,1,1,1,1,1,1,1]", "[0, 4]"), 4, "more than 8"},
        {ENTRY("F32", "[4294967296, 4294967296]", "[0, 4]"), 4, "too large"},
        {ENTRY("F32", "[1]", "[0]"), 4, "allowed are two whole numbers"},
        {ENTRY("F32", "[1]", "[0, true]"), 4, "allowed are two whole numbers"},
        {ENTRY("F32", "[1]", "[4, 0]"), 4, "lie outside the file"},
        {ENTRY("F32", "[1]", "[0, 4]"), 3, "lie outside the file"},
        {ENTRY("F32", "[2]", "[0, 4]"), 4, "not as far apart"},
        {ENTRY("F32", "[1]", "[4, 8]"), 8, "do not begin where"},
        {"{\"a\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": [0, 2]}"
         ", \"b\": {\"dtype\": \"U8\", \"shape\": [2], \"data_offsets\": "
         "[1, 3]}}",
         3, "\"b\": data_offsets: do not begin where"},
        {"{\"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": [0, 1]}"
         ", \"a\": {\"dtype\": \"U8\", \"shape\": [1], \"data_offsets\": "
         "[1, 2]}}",
         2, "\"a\": is there twice"},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        wefti_safetensors list;
        weft_status status = wefti_safetensors_parse("x/y", rows[i].header,
                                                     strlen(rows[i].header),
                                                     rows[i].data_bytes, &list);
        if (status != WEFT_ERR_INVALID ||
            strncmp(weft_error_text(), "x/y: ", 5) != 0 ||
            strstr(weft_error_text(), rows[i].part) == NULL) {
            fail_msg("%s\ngave %d \"%s\", expected \"%s\"", rows[i].header,
                     status, weft_error_text(), rows[i].part);
        }
    }
}

static void test_safetensors_file_of_another_kind_is_refused(void **state)
{
    (void)state;
    scratch own;
    wefti_safetensors_file file;
    scratch_open(&own);
    const char *const bytes[] = {"", "1234567", "12345678{}",
                                 "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF{}"};
    for (size_t i = 0; i < 4; i++) {
        scratch_text(&own, "a", bytes[i]);
        assert_int_equal(wefti_safetensors_open(own.path, &file),
                         WEFT_ERR_INVALID);
    }
    assert_int_equal(wefti_safetensors_open(own.dir, &file), WEFT_ERR_INVALID);
    assert_int_equal(wefti_safetensors_open(scratch_path(&own, "none"), &file),
                     WEFT_ERR_SYSTEM);
    scratch_close(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors_written_come_back),
        cmocka_unit_test(test_safetensors_header_that_breaks_a_rule_is_refused),
        cmocka_unit_test(test_safetensors_file_of_another_kind_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
