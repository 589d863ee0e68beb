/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: tensors read back in whatever parts; a changed byte, a cut or missing
 * file, another run's file, and sections that are no whole tensor are refused,
 * and the text names the file and the tensor.
 * Method: a step of two small files; every byte of each of its files is flipped
 * in turn, every length tried; an index with one thing wrong at a time.
 */
#include "base/check.h"
#include "saving.h"
#include "scratch.h"
#include "tests/trainer/image.h"
#include "trainer/checkpoint/checkpoint_index.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static void assert_good(weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
}

static void assert_error(weft_status status, weft_status expected,
                         const char *part)
{
    if (status != expected || strstr(weft_error_text(), part) == NULL) {
        fail_msg("%d \"%s\", expected %d \"%s\"", status, weft_error_text(),
                 expected, part);
    }
}

static const float matrix[6] = {1, 2, 3, 4, 5, 6};
static const uint8_t bytes5[] = {9, 8, 7, 6, 5};

/* Step 10 of two ranks: a matrix cut in the middle of a row, and a vector. */
static void save_small(scratch *own)
{
    wefti_checkpoint_piece pieces[3] = {
        {.name = "matrix", .dtype = WEFT_DTYPE_F32, .rows = 2, .columns = 3},
        {.name = "vector", .dtype = WEFT_DTYPE_U8, .columns = 5}};
    wefti_checkpoint_header header = saving_header(10);
    wefti_checkpoint_owner owner;
    assert_good(saving_open(&owner, own->dir));
    header.origin = owner.origin;
    assert_good(wefti_checkpoint_begin(&owner, own->dir, 10));
    pieces[0].elems = 2;
    pieces[0].live = (void *)matrix;
    pieces[1].elems = 5;
    pieces[1].live = (void *)bytes5;
    assert_good(wefti_checkpoint_write(own->dir, &header, 0, pieces, 2, NULL));
    pieces[0].offset = 2;
    pieces[0].elems = 4;
    assert_good(
        wefti_checkpoint_write(own->dir, &header, 1, pieces, 1, matrix + 2));
    assert_good(wefti_checkpoint_seal(&owner, own->dir, 10, 2));
    assert_good(wefti_checkpoint_commit(&owner, own->dir, 10, 1));
    wefti_checkpoint_owner_close(&owner);
}

/* Opens the small step: the first refusal. */
static weft_status open_small(scratch *own, wefti_checkpoint_reader **reader)
{
    wefti_checkpoint_done done;
    *reader = NULL;
    weft_status status = wefti_checkpoint_read_done(own->dir, 10, &done);
    return status == WEFT_OK
               ? wefti_checkpoint_reader_open(own->dir, &done, reader)
               : status;
}

static weft_status check_small(scratch *own)
{
    wefti_checkpoint_reader *reader;
    weft_status status = open_small(own, &reader);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    wefti_checkpoint_reader_close(reader);
    return status;
}

static const char *const small_files[] = {
    "step_00000010/rank_00000.safetensors",
    "step_00000010/rank_00001.safetensors", "step_00000010/index.json",
    "step_00000010/DONE"};

static void
test_sections_any_changed_byte_or_length_is_refused_by_name(void **state)
{
    scratch *own = *state;
    save_small(own);
    assert_good(check_small(own));
    for (size_t i = 0; i < WEFTI_COUNT_OF(small_files); i++) {
        image file = image_load(own, small_files[i]);
        const char *name = strchr(small_files[i], '/') + 1;
        for (size_t at = 0; at < file.count; at++) {
            file.bytes[at] ^= (uint8_t)(1 << at % 8);
            image_store(&file, file.count);
            /* What DONE says wrong may show only beside the index. */
            assert_error(check_small(own), WEFT_ERR_INVALID,
                         i == 3 ? "step_00000010" : name);
            file.bytes[at] ^= (uint8_t)(1 << at % 8);
        }
        for (size_t length = 0; length < file.count; length++) {
            image_store(&file, length);
            assert_error(check_small(own), WEFT_ERR_INVALID, name);
        }
        image longer = file;
        longer.bytes = calloc(file.count + 1, 1);
        memcpy(longer.bytes, file.bytes, file.count);
        image_store(&longer, file.count + 1);
        assert_error(check_small(own), WEFT_ERR_INVALID, name);
        assert_int_equal(unlink(file.path), 0);
        assert_error(check_small(own), WEFT_ERR_SYSTEM, name);
        image_store(&file, file.count);
        assert_good(check_small(own));
        free(longer.bytes);
        free(file.bytes);
    }
}

static wefti_checkpoint_piece make_matrix(uint64_t offset, uint64_t elems)
{
    return (wefti_checkpoint_piece){.name = "matrix",
                                    .dtype = WEFT_DTYPE_F32,
                                    .rows = 2,
                                    .columns = 3,
                                    .offset = offset,
                                    .elems = elems};
}

/* Whatever part is asked for, and in whatever files that is. */
static void test_sections_any_part_reads_back(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_reader *reader;
    save_small(own);
    assert_good(open_small(own, &reader));
    for (uint64_t offset = 0; offset < 6; offset++) {
        for (uint64_t elems = 1; elems <= 6 - offset; elems++) {
            float got[8] = {0};
            const wefti_checkpoint_piece piece = make_matrix(offset, elems);
            assert_good(wefti_checkpoint_reader_get(reader, &piece, got + 1));
            assert_memory_equal(got + 1, matrix + offset, elems * sizeof(*got));
            assert_true(got[0] == 0 && got[elems + 1] == 0);
        }
    }
    wefti_checkpoint_piece bad = make_matrix(0, 6);
    bad.dtype = WEFT_DTYPE_I32;
    assert_error(wefti_checkpoint_reader_get(reader, &bad, NULL),
                 WEFT_ERR_INVALID,
                 "tensor matrix: is 2 x 3 of f32, needed are 2 x 3 of i32");
    bad = make_matrix(0, 6);
    bad.columns = 4;
    assert_error(wefti_checkpoint_reader_get(reader, &bad, NULL),
                 WEFT_ERR_INVALID, "needed are 2 x 4 of f32");
    strcpy(bad.name, "third");
    assert_error(wefti_checkpoint_reader_get(reader, &bad, NULL),
                 WEFT_ERR_INVALID, "index.json: has no tensor third");
    wefti_checkpoint_reader_close(reader);
}

/* Damage is found where it is read, without a check of all before. */
static void test_sections_damaged_section_is_refused_by_get(void **state)
{
    scratch *own = *state;
    float got[6];
    wefti_checkpoint_reader *reader;
    save_small(own);
    image file = image_load(own, small_files[1]);
    file.bytes[file.count - 1] ^= 1;
    image_store(&file, file.count);
    free(file.bytes);
    assert_good(open_small(own, &reader));
    wefti_checkpoint_piece piece = make_matrix(0, 2); /* the other file's */
    assert_good(wefti_checkpoint_reader_get(reader, &piece, got));
    piece = make_matrix(1, 2); /* one element, which is sound, of it */
    assert_error(wefti_checkpoint_reader_get(reader, &piece, got),
                 WEFT_ERR_INVALID,
                 "rank_00001.safetensors: tensor matrix, from element 2 on: "
                 "digest differs");
    wefti_checkpoint_reader_close(reader);
}

static void test_sections_of_another_run_is_refused(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_reader *reader;
    save_small(own);
    assert_good(open_small(own, &reader));
    wefti_checkpoint_header expect = saving_header(10);
    assert_good(wefti_checkpoint_reader_match(reader, &expect));
    expect.config_digest[31] ^= 1;
    assert_error(wefti_checkpoint_reader_match(reader, &expect),
                 WEFT_ERR_INVALID, "another model or data settings");
    expect = saving_header(10);
    expect.data_hash[0] ^= 1;
    assert_error(wefti_checkpoint_reader_match(reader, &expect),
                 WEFT_ERR_INVALID, "another text");
    wefti_checkpoint_reader_close(reader);
    /* Under another number. */
    char from[600];
    wefti_checkpoint_done done;
    snprintf(from, sizeof(from), "%s", scratch_path(own, "step_00000010"));
    assert_int_equal(rename(from, scratch_path(own, "step_00000011")), 0);
    assert_error(wefti_checkpoint_read_done(own->dir, 11, &done),
                 WEFT_ERR_INVALID, "step_00000011/DONE: does not say");
}

/* What the ranks have written is no whole state: nothing is sealed. */
static void test_sections_parts_that_do_not_fit_are_not_sealed(void **state)
{
    scratch *own = *state;
    static const struct {
        uint64_t offset, elems, columns;
        weft_dtype dtype;
        uint64_t step;
        const char *part;
    } cases[] = {
        {3, 3, 3, WEFT_DTYPE_F32, 10, "elements before a section are in none"},
        {1, 5, 3, WEFT_DTYPE_F32, 10, "tensor matrix: two sections overlap"},
        {2, 3, 3, WEFT_DTYPE_F32, 10, "its last elements are in no section"},
        {2, 5, 3, WEFT_DTYPE_F32, 10, "a section is not inside its shape"},
        {2, 4, 3, WEFT_DTYPE_I32, 10, "its sections differ in dtype or shape"},
        {2, 4, 4, WEFT_DTYPE_F32, 10, "its sections differ in dtype or shape"},
        {2, 4, 3, WEFT_DTYPE_F32, 11,
         "rank 1 is not of the step of the others"},
        {2, 4, 3, WEFT_DTYPE_F32, 10, NULL}};
    wefti_checkpoint_owner owner;
    char from[600], to[600];
    assert_good(saving_step(own->dir, 9, 1));
    assert_good(saving_open(&owner, own->dir));
    for (size_t i = 0; i < WEFTI_COUNT_OF(cases); i++) {
        wefti_checkpoint_header header = saving_header(10);
        wefti_checkpoint_piece piece = make_matrix(0, 2);
        float values[8] = {0};
        piece.live = values;
        header.origin = owner.origin;
        assert_good(wefti_checkpoint_begin(&owner, own->dir, 10));
        assert_good(
            wefti_checkpoint_write(own->dir, &header, 0, &piece, 1, NULL));
        piece.offset = cases[i].offset;
        piece.elems = cases[i].elems;
        piece.columns = cases[i].columns;
        piece.dtype = cases[i].dtype;
        header.step = cases[i].step;
        if (header.step != 10) {
            assert_good(wefti_checkpoint_begin(&owner, own->dir, header.step));
        }
        assert_good(
            wefti_checkpoint_write(own->dir, &header, 1, &piece, 1, NULL));
        if (header.step != 10) {
            static const char name[] = "rank_00001.safetensors";
            unsigned long long session =
                (unsigned long long)owner.origin.session;
            snprintf(from, sizeof(from), "%.300s/.step_%08u.%016llx.new/%s",
                     own->dir, 11, session, name);
            snprintf(to, sizeof(to), "%.300s/.step_%08u.%016llx.new/%s",
                     own->dir, 10, session, name);
            assert_int_equal(rename(from, to), 0);
        }
        weft_status status = wefti_checkpoint_seal(&owner, own->dir, 10, 2);
        if (cases[i].part) {
            assert_error(status, WEFT_ERR_INVALID, cases[i].part);
        } else {
            assert_good(status);
        }
    }
    wefti_checkpoint_owner_close(&owner);
    assert_int_equal(access(scratch_path(own, "step_00000010"), F_OK), -1);
    assert_good(saving_verify(own->dir, 9));
}

/* What digests cannot see: an index that is wrong but rightly sealed. */
static void test_sections_of_a_wrong_index_are_refused_by_name(void **state)
{
    scratch *own = *state;
    static const struct {
        const char *from, *to, *part; /* one text in place of another */
    } cases[] = {
        {"version 5", "version 7", "is of version 7; this weft reads 5 and 6"},
        {"version 5", "version 6", "does not say in its metadata of which"},
        {"step 10", "step +10", "does not say in its metadata of which step"},
        {"run 0000", "run 000", "does not say in its metadata of which step"},
        {"\"weft\": ", "\"waft\": ", "does not say in its metadata"},
        {"step 10", "step 11", "rank 1 is not of the step of the others"},
        {"\"rank_00000.", "\"../../ab.", "line 2 is not rank_00000"},
        {"\"rank_00001.", "\"rank_00002.", "line 3 is not rank_00001"},
        {",\n\"rank_00001", "\n}\n\"rank_00001", "line 3 is not rank_00001"},
        {"{\n\"rank", "{ \"rank", "is no index"},
        {"\n}\n", "\n}", "is no index"},
        {"\"__metadata__\"", "__metadata__", "its header is not JSON"},
        {"\"matrix@2\": \"", "\"matrix@2\": \"g", "has no digest and shape"},
        {"\"vector\": \"", "\"vectot\": \"", "has no digest and shape"},
        {" 2 3\"", " 2\"", "has no digest and shape"},
        {" 2 3\"", " 3 3\"", "matrix: its sections differ in dtype or shape"},
        {" 2 3\"", " 0 0\"", "matrix: a section is not inside its shape"},
        {" 2 3\"", " 9007199254740992 9007199254740992\"",
         "matrix: a section is not inside its shape"},
        {" 0 5\"", " 0 6\"", "vector: its last elements are in no section"},
        {"\"dtype\": \"U8\"", "\"dtype\": \"F64\"", "\"vector\": "},
        {"\"dtype\": \"U8\"", "\"dtype\": \"BOOL\"",
         "vector: no dtype of weft's"},
        {"\"shape\": [5]", "\"shape\": [4]", "\"vector\": data_offsets"},
        {"\"data_offsets\": [8, 13]", "\"data_offsets\": [9, 14]",
         "\"vector\": data_offsets: do not begin where"},
        {"\"weft\"", "\"weft\"", NULL}};
    save_small(own);
    image file = image_load(own, small_files[2]);
    char *text = strndup((const char *)file.bytes, file.count);
    scratch_require(text != NULL, "memory");
    for (size_t i = 0; i < WEFTI_COUNT_OF(cases); i++) {
        wefti_checkpoint_index index;
        size_t cut = strlen(cases[i].from), put = strlen(cases[i].to);
        const char *at = strstr(text, cases[i].from);
        assert_non_null(at);
        char *wrong = calloc(file.count + put + 1, 1);
        scratch_require(wrong != NULL, "memory");
        memcpy(wrong, text, (size_t)(at - text));
        strcat(strcat(wrong, cases[i].to), at + cut);
        weft_status status = wefti_checkpoint_index_unpack(
            "x/index.json", wrong, file.count - cut + put, &index);
        if (cases[i].part) {
            assert_error(status, WEFT_ERR_INVALID, cases[i].part);
            assert_int_equal(strncmp(weft_error_text(), "x/index.json: ", 14),
                             0);
        } else {
            assert_good(status);
            wefti_checkpoint_index_fini(&index);
        }
    }
    free(text);
    free(file.bytes);
}

/* The same of sections that do not make a tensor: of both notes and tables. */
static void test_sections_under_another_name_are_no_tensor(void **state)
{
    scratch *own = *state;
    static const struct {
        const char *to, *part; /* for each matrix@2 */
    } cases[] = {{"matrix@1", "matrix: two sections overlap"},
                 {"matrix@3", "matrix: a section is not inside its shape"},
                 {"matrix@0", "matrix: "},
                 {"matrix@x", "matrix: "},
                 {"matriy@2", "matrix: its last elements are in no section"},
                 {"ma rix@2", "ma rix: elements before a section are in none"},
                 {"@2345678", "tensor : a section is not inside its shape"},
                 {"matrix@2", NULL}};
    save_small(own);
    for (size_t i = 0; i < WEFTI_COUNT_OF(cases); i++) {
        wefti_checkpoint_index index;
        image file = image_load(own, small_files[2]);
        for (size_t at = 0; at + 8 < file.count; at++) {
            if (memcmp(file.bytes + at, "matrix@2", 8) == 0) {
                memcpy(file.bytes + at, cases[i].to, 8);
            }
        }
        weft_status status = wefti_checkpoint_index_unpack(
            "x/index.json", (char *)file.bytes, file.count, &index);
        if (cases[i].part) {
            assert_error(status, WEFT_ERR_INVALID, cases[i].part);
        } else {
            assert_good(status);
            wefti_checkpoint_index_fini(&index);
        }
    }
}

int main(void)
{
#define SECTION_TEST(name)                                                     \
    cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        SECTION_TEST(
            test_sections_any_changed_byte_or_length_is_refused_by_name),
        SECTION_TEST(test_sections_any_part_reads_back),
        SECTION_TEST(test_sections_damaged_section_is_refused_by_get),
        SECTION_TEST(test_sections_of_another_run_is_refused),
        SECTION_TEST(test_sections_parts_that_do_not_fit_are_not_sealed),
        SECTION_TEST(test_sections_of_a_wrong_index_are_refused_by_name),
        SECTION_TEST(test_sections_under_another_name_are_no_tensor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
