/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what was saved reads back bit for bit; a changed byte, a cut file or
 * another run's file is refused by name; only what keep says stays, and only
 * what is ours is removed.
 * Method: files of small sections, every byte of one flipped in turn, every
 * length tried; folders as killed runs leave them, made by hand.
 */
#include "base/check.h"
#include "saving.h"
#include "scratch.h"
#include "trainer/checkpoint/checkpoint_format.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int set_up(void **state)
{
    scratch *own = calloc(1, sizeof(*own));
    scratch_require(own != NULL, "memory");
    scratch_open(own);
    *state = own;
    return 0;
}

static int tear_down(void **state)
{
    scratch_close(*state);
    free(*state);
    return 0;
}

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

/* The complete steps of dir, newest first, as text "30 20 ". */
static void assert_steps(const char *dir, const char *expected)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    char text[256] = "";
    assert_good(wefti_checkpoint_list(dir, &steps, &count));
    for (size_t i = 0; i < count; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%llu ",
                 (unsigned long long)steps[i]);
    }
    free(steps);
    assert_string_equal(text, expected);
}

static int count_entries(const char *dir)
{
    int count = 0;
    DIR *list = opendir(dir);
    assert_non_null(list);
    for (struct dirent *entry = readdir(list); entry != NULL;
         entry = readdir(list)) {
        count +=
            strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    }
    closedir(list);
    return count;
}

static void test_checkpoint_saved_step_reads_back(void **state)
{
    scratch *own = *state;
    char dir[600];
    snprintf(dir, sizeof(dir), "%s", scratch_path(own, "deep/er/"));
    assert_steps(dir, "");
    assert_good(saving_step(dir, 50, 2));
    assert_steps(dir, "50 ");
    assert_good(saving_verify(dir, 50));
    assert_int_equal(
        access(scratch_path(own, "deep/er/step_00000050/DONE"), F_OK), 0);
    assert_int_equal(
        access(scratch_path(own, "deep/er/step_00000050/rank_00001.weft"),
               F_OK),
        0);
}

static void test_checkpoint_keep_removes_older_ones_alone(void **state)
{
    scratch *own = *state;
    for (uint64_t step = 10; step <= 40; step += 10) {
        assert_good(saving_step(own->dir, step, 2));
    }
    assert_steps(own->dir, "40 30 ");
    assert_good(saving_step(own->dir, 50, 3));
    assert_steps(own->dir, "50 40 30 ");
    /* A run that saves 35 has not gone on from the newest: newer ones stay. */
    assert_good(saving_step(own->dir, 35, 3));
    assert_steps(own->dir, "50 40 35 ");
    assert_good(saving_step(own->dir, 36, 1));
    assert_steps(own->dir, "50 40 36 ");
    assert_good(saving_step(own->dir, 60, 1));
    assert_steps(own->dir, "60 ");
    assert_int_equal(count_entries(own->dir), 1);
    assert_good(saving_step(own->dir, UINT64_MAX, 1));
    assert_steps(own->dir, "18446744073709551615 ");
    assert_good(saving_verify(own->dir, UINT64_MAX));
}

static void test_checkpoint_same_step_is_replaced(void **state)
{
    scratch *own = *state;
    assert_good(saving_step(own->dir, 10, 2));
    assert_good(saving_step(own->dir, 20, 2));
    FILE *mark = fopen(scratch_path(own, "step_00000020/rank_00000.weft"), "w");
    assert_non_null(mark);
    fclose(mark);
    assert_error(saving_verify(own->dir, 20), WEFT_ERR_INVALID, "header");
    assert_good(saving_step(own->dir, 20, 2));
    assert_good(saving_verify(own->dir, 20));
    assert_steps(own->dir, "20 10 ");
    assert_int_equal(count_entries(own->dir), 2);
}

static void test_checkpoint_leftovers_are_ignored_then_removed(void **state)
{
    scratch *own = *state;
    assert_good(saving_step(own->dir, 10, 2));
    /* Killed while writing. */
    scratch_folder(own, ".step_00000020.0123456789abcdef.new");
    scratch_text(own, ".step_00000020.0123456789abcdef.new/rank_00000.weft",
                 "half");
    scratch_folder(own, "step_00000030"); /* without DONE */
    scratch_text(own, "step_00000030/rank_00000.weft", "x");
    scratch_folder(own, ".step_00000005.old"); /* killed while removing */
    scratch_text(own, ".step_00000005.old/DONE", "x");
    /* Not ours: other names, another depth. */
    scratch_folder(own, "step_5");
    scratch_folder(own, "step_00000007x");
    scratch_folder(own, ".step_00000007.123.new");
    scratch_text(own, "notes.txt", "keep me");
    assert_steps(own->dir, "10 ");
    assert_good(saving_step(own->dir, 20, 2));
    assert_steps(own->dir, "20 10 ");
    assert_good(saving_step(own->dir, 30, 2));
    assert_steps(own->dir, "30 20 ");
    assert_int_equal(count_entries(own->dir), 6);
    assert_int_equal(access(scratch_path(own, "notes.txt"), F_OK), 0);
}

/* DONE counts only with the words of its own step; else it is damaged, which is
 * reported, and its step stays. */
static void
test_checkpoint_damaged_done_is_reported_and_its_step_stays(void **state)
{
    scratch *own = *state;
    char good[256] = "";
    wefti_checkpoint_done done;
    bool any;
    assert_good(saving_step(own->dir, 10, 2));
    assert_good(saving_step(own->dir, 20, 2));
    FILE *file = fopen(scratch_path(own, "step_00000020/DONE"), "r");
    assert_non_null(file);
    size_t length = fread(good, 1, sizeof(good) - 1, file);
    fclose(file);
    assert_true(length > 40);
    char wrong[7][300] = {"", "x", "step 20, ranks 2\n"};
    snprintf(wrong[3], sizeof(wrong[3]), "%s\n", good); /* too long */
    snprintf(wrong[4], sizeof(wrong[4]), "%s", good);
    wrong[4][5] = '1'; /* another step */
    snprintf(wrong[5], sizeof(wrong[5]), "%s", good);
    wrong[5][strlen("step 20, ranks ")] = '0';
    snprintf(wrong[6], sizeof(wrong[6]), "%.*s", (int)length - 1, good);
    for (size_t i = 0; i < WEFTI_COUNT_OF(wrong); i++) {
        scratch_text(own, "step_00000020/DONE", wrong[i]);
        assert_steps(own->dir, "10 ");
        assert_error(wefti_checkpoint_find_newest(own->dir, &any, &done),
                     WEFT_ERR_INVALID,
                     "step_00000020/DONE: does not say that its step is");
        assert_true(any && done.step == 20);
    }
    assert_good(saving_step(own->dir, 30, 1));
    assert_steps(own->dir, "30 ");
    assert_good(wefti_checkpoint_find_newest(own->dir, &any, &done));
    assert_true(any && done.step == 30 && done.nranks == 2);
    scratch_text(own, "step_00000020/DONE", good);
    assert_steps(own->dir, "30 20 ");
    assert_good(saving_verify(own->dir, 20));
}

/* What a link points at is never removed, wherever the link stands. */
static void test_checkpoint_link_is_never_followed_to_remove(void **state)
{
    scratch *own = *state;
    char dir[300], other[300];
    snprintf(dir, sizeof(dir), "%.250s/dir", own->dir);
    snprintf(other, sizeof(other), "%.250s/far", own->dir);
    assert_good(saving_step(dir, 10, 1));
    assert_good(saving_step(other, 5, 9));
    assert_good(saving_step(other, 6, 9));
    assert_int_equal(
        symlink("../far/step_00000005", scratch_path(own, "dir/step_00000005")),
        0);
    assert_int_equal(symlink("../far/step_00000006",
                             scratch_path(own, "dir/.step_00000006.old")),
                     0);
    assert_int_equal(symlink("../far", scratch_path(own, "dir/inside")), 0);
    wefti_checkpoint_owner owner;
    assert_good(saving_open(&owner, dir));
    assert_good(saving_seal(&owner, 20));
    assert_good(wefti_checkpoint_commit(&owner, dir, 20, 1));
    setenv("WEFT_LOG", "error", 1); /* the warning is expected */
    wefti_checkpoint_prune(&owner, scratch_path(own, "dir/inside"), 99);
    unsetenv("WEFT_LOG");
    assert_error(
        wefti_checkpoint_begin(&owner, scratch_path(own, "dir/inside"), 20),
        WEFT_ERR_SYSTEM, "inside: cannot be opened");
    wefti_checkpoint_owner_close(&owner);
    assert_steps(dir, "20 5 ");
    assert_good(saving_verify(dir, 5)); /* to read it may be one */
    assert_steps(other, "6 5 ");
    assert_good(saving_verify(other, 6));
    assert_error(saving_step(dir, 5, 1), WEFT_ERR_INVALID,
                 "step_00000005: what is no folder of its own is in the way");
    assert_good(saving_verify(other, 5));
}

/* A folder that holds something else stays, and no other for it. */
static void test_checkpoint_what_cannot_be_removed_keeps_no_other(void **state)
{
    scratch *own = *state;
    assert_good(saving_step(own->dir, 10, 1));
    scratch_folder(own, ".step_00000030.old");
    scratch_text(own, ".step_00000030.old/mine", "x");
    scratch_folder(own, ".step_00000020.old");
    scratch_text(own, ".step_00000020.old/rank_00000.weft", "x");
    setenv("WEFT_LOG", "error", 1); /* the warning is expected */
    assert_good(saving_step(own->dir, 40, 1));
    unsetenv("WEFT_LOG");
    assert_steps(own->dir, "40 ");
    assert_int_equal(access(scratch_path(own, ".step_00000030.old/mine"), F_OK),
                     0);
    assert_int_equal(access(scratch_path(own, ".step_00000020.old"), F_OK), -1);
    assert_int_equal(access(scratch_path(own, ".step_00000010.old"), F_OK), -1);
}

/* Another run's steps are neither counted nor removed nor replaced. */
static void test_checkpoint_steps_of_another_run_stay(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner owner = {0}; /* a run of its own */
    assert_good(saving_step(own->dir, 10, 9));
    assert_good(saving_step(own->dir, 20, 9));
    assert_good(wefti_checkpoint_owner_open(&owner, own->dir));
    for (uint64_t step = 11; step < 14; step++) {
        assert_good(saving_seal(&owner, step));
        assert_good(wefti_checkpoint_commit(&owner, own->dir, step, 1));
    }
    assert_steps(own->dir, "20 13 10 ");
    assert_good(saving_seal(&owner, 20));
    assert_error(wefti_checkpoint_commit(&owner, own->dir, 20, 1),
                 WEFT_ERR_INVALID,
                 "step_00000020: a complete step of another run is in the way");
    wefti_checkpoint_owner_close(&owner);
    assert_good(saving_verify(own->dir, 20));
    assert_good(saving_verify(own->dir, 10));
}

static void test_checkpoint_foreign_file_inside_a_step_is_kept(void **state)
{
    scratch *own = *state;
    assert_good(saving_step(own->dir, 10, 1));
    scratch_text(own, "step_00000010/mine.txt", "keep me");
    setenv("WEFT_LOG", "error", 1); /* the warning is expected */
    assert_good(saving_step(own->dir, 20, 1));
    unsetenv("WEFT_LOG");
    assert_steps(own->dir, "20 ");
    assert_int_equal(
        access(scratch_path(own, ".step_00000010.old/mine.txt"), F_OK), 0);
}

static void test_checkpoint_missing_rank_is_not_committed(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner owner;
    assert_good(saving_step(own->dir, 10, 1));
    assert_good(saving_open(&owner, own->dir));
    assert_good(wefti_checkpoint_begin(&owner, own->dir, 20));
    assert_good(saving_write(&owner, 20, 0));
    assert_error(wefti_checkpoint_seal(&owner, own->dir, 20, SAVING_NRANKS),
                 WEFT_ERR_SYSTEM, "rank_00001.weft");
    assert_steps(own->dir, "10 ");
    assert_good(saving_verify(own->dir, 10));
    assert_error(wefti_checkpoint_seal(&owner, own->dir, 30, SAVING_NRANKS),
                 WEFT_ERR_SYSTEM, ".step_00000030.");
    wefti_checkpoint_owner_close(&owner);
}

/* One small file as bytes, to be changed. */
static size_t load(scratch *own, uint8_t *bytes, size_t room)
{
    FILE *file =
        fopen(scratch_path(own, "step_00000010/rank_00000.weft"), "rb");
    assert_non_null(file);
    size_t count = fread(bytes, 1, room, file);
    fclose(file);
    assert_true(count < room);
    return count;
}

static void save_small(scratch *own)
{
    static const float a[] = {1, 2, 3};
    static const uint8_t b[] = {9, 8, 7, 6, 5};
    wefti_checkpoint_writer *writer = NULL;
    wefti_checkpoint_header header = saving_header(10, 0);
    wefti_checkpoint_owner owner;
    assert_good(saving_open(&owner, own->dir));
    header.nranks = 1;
    header.origin = owner.origin;
    assert_good(wefti_checkpoint_begin(&owner, own->dir, 10));
    assert_good(wefti_checkpoint_writer_open(own->dir, &header, &writer));
    assert_good(
        wefti_checkpoint_writer_add(writer, "first", WEFT_DTYPE_F32, a, 3));
    assert_good(
        wefti_checkpoint_writer_add(writer, "second", WEFT_DTYPE_U8, b, 5));
    assert_good(wefti_checkpoint_writer_close(writer));
    assert_good(wefti_checkpoint_seal(&owner, own->dir, 10, 1));
    assert_good(wefti_checkpoint_commit(&owner, own->dir, 10, 1));
    wefti_checkpoint_owner_close(&owner);
}

/* The header that a reader of the saved step expects. */
static wefti_checkpoint_header expect_header(scratch *own, uint32_t rank)
{
    wefti_checkpoint_header header = saving_header(10, rank);
    wefti_checkpoint_done done;
    assert_good(wefti_checkpoint_read_done(own->dir, 10, &done));
    header.origin = done.origin;
    return header;
}

/* Opens and checks the small file: the first refusal. */
static weft_status open_small(scratch *own)
{
    wefti_checkpoint_reader *reader = NULL;
    wefti_checkpoint_header header = expect_header(own, 0);
    header.nranks = 1;
    weft_status status =
        wefti_checkpoint_reader_open(own->dir, &header, &reader);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    wefti_checkpoint_reader_close(reader);
    return status;
}

static void test_checkpoint_any_changed_byte_is_refused_by_name(void **state)
{
    scratch *own = *state;
    uint8_t bytes[1024];
    save_small(own);
    size_t count = load(own, bytes, sizeof(bytes));
    assert_int_equal(count, 256 + 12 + 5 + 2 * 128);
    assert_good(open_small(own));
    for (size_t at = 0; at < count; at++) {
        bytes[at] ^= (uint8_t)(1 << at % 8);
        scratch_write(own, "step_00000010/rank_00000.weft", bytes, count);
        assert_error(open_small(own), WEFT_ERR_INVALID,
                     at < 256   ? "rank_00000.weft: header: "
                     : at < 268 ? "rank_00000.weft: section first: checksum"
                     : at < 273 ? "rank_00000.weft: section second: checksum"
                                : "rank_00000.weft: table of sections: ");
        bytes[at] ^= (uint8_t)(1 << at % 8);
    }
    for (size_t length = 0; length < count; length++) {
        scratch_write(own, "step_00000010/rank_00000.weft", bytes, length);
        assert_error(open_small(own), WEFT_ERR_INVALID, "cut short");
    }
    bytes[count] = 0;
    scratch_write(own, "step_00000010/rank_00000.weft", bytes, count + 1);
    assert_error(open_small(own), WEFT_ERR_INVALID, "overwritten");
    scratch_write(own, "step_00000010/rank_00000.weft", bytes, count);
    assert_good(open_small(own));
}

/* A corrupt section is refused also by get, without check before. */
static void test_checkpoint_corrupt_section_is_refused_by_get(void **state)
{
    scratch *own = *state;
    uint8_t bytes[1024];
    float a[3];
    uint8_t b[5];
    wefti_checkpoint_reader *reader = NULL;
    save_small(own);
    wefti_checkpoint_header header = expect_header(own, 0);
    header.nranks = 1;
    size_t count = load(own, bytes, sizeof(bytes));
    bytes[270] ^= 1;
    scratch_write(own, "step_00000010/rank_00000.weft", bytes, count);
    assert_good(wefti_checkpoint_reader_open(own->dir, &header, &reader));
    assert_good(
        wefti_checkpoint_reader_get(reader, "first", WEFT_DTYPE_F32, a, 3));
    assert_true(a[2] == 3);
    assert_error(
        wefti_checkpoint_reader_get(reader, "second", WEFT_DTYPE_U8, b, 5),
        WEFT_ERR_INVALID, "section second: checksum differs");
    assert_error(
        wefti_checkpoint_reader_get(reader, "first", WEFT_DTYPE_F32, a, 2),
        WEFT_ERR_INVALID, "has 3 elements of f32, needed are 2 of f32");
    assert_error(
        wefti_checkpoint_reader_get(reader, "first", WEFT_DTYPE_I32, a, 3),
        WEFT_ERR_INVALID, "needed are 3 of i32");
    assert_error(
        wefti_checkpoint_reader_get(reader, "third", WEFT_DTYPE_U8, b, 5),
        WEFT_ERR_INVALID, "no section third");
    wefti_checkpoint_reader_close(reader);
}

static void test_checkpoint_of_another_run_is_refused(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_reader *reader = NULL;
    assert_good(saving_step(own->dir, 10, 1));
    wefti_checkpoint_header expect = expect_header(own, 1);
    expect.nranks = 3;
    assert_error(wefti_checkpoint_reader_open(own->dir, &expect, &reader),
                 WEFT_ERR_INVALID, "was written by 2 ranks, this run has 3");
    expect = expect_header(own, 2);
    assert_error(wefti_checkpoint_reader_open(own->dir, &expect, &reader),
                 WEFT_ERR_SYSTEM, "no state of rank 2: No such file");
    expect = expect_header(own, 1);
    expect.config_digest[31] ^= 1;
    assert_error(wefti_checkpoint_reader_open(own->dir, &expect, &reader),
                 WEFT_ERR_INVALID, "another model or data settings");
    expect = expect_header(own, 1);
    expect.data_hash[0] ^= 1;
    assert_error(wefti_checkpoint_reader_open(own->dir, &expect, &reader),
                 WEFT_ERR_INVALID, "another text");
    char from[600];
    snprintf(from, sizeof(from), "%s", scratch_path(own, "step_00000010"));
    assert_int_equal(rename(from, scratch_path(own, "step_00000011")), 0);
    const wefti_checkpoint_origin origin = expect.origin;
    expect = saving_header(11, 1);
    expect.origin = origin;
    assert_error(wefti_checkpoint_reader_open(own->dir, &expect, &reader),
                 WEFT_ERR_INVALID, "is of step 10 and rank 1");
    assert_null(reader);
}

static void test_checkpoint_bad_section_is_not_added(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_writer *writer = NULL;
    wefti_checkpoint_header header = saving_header(10, 0);
    char name[80];
    wefti_checkpoint_owner owner;
    assert_good(saving_open(&owner, own->dir));
    header.origin = owner.origin;
    assert_good(wefti_checkpoint_begin(&owner, own->dir, 10));
    assert_good(wefti_checkpoint_writer_open(own->dir, &header, &writer));
    memset(name, 'n', sizeof(name));
    name[64] = '\0';
    const char *bad[] = {"", "with space", "new\nline", "\xC3\xA9", name};
    for (size_t i = 0; i < WEFTI_COUNT_OF(bad); i++) {
        assert_error(
            wefti_checkpoint_writer_add(writer, bad[i], WEFT_DTYPE_U8, name, 1),
            WEFT_ERR_INVALID, "allowed is a name of 1..63");
    }
    name[63] = '\0';
    assert_good(
        wefti_checkpoint_writer_add(writer, name, WEFT_DTYPE_U8, name, 1));
    assert_error(
        wefti_checkpoint_writer_add(writer, name, WEFT_DTYPE_U8, name, 1),
        WEFT_ERR_INVALID, "added already");
    assert_error(
        wefti_checkpoint_writer_add(writer, "x", WEFT_DTYPE_COUNT, name, 1),
        WEFT_ERR_INVALID, "of type");
    assert_error(wefti_checkpoint_writer_add(writer, "x", WEFT_DTYPE_F64, name,
                                             SIZE_MAX / 4),
                 WEFT_ERR_INVALID, "elements of type");
    wefti_checkpoint_writer_abort(writer);
    wefti_checkpoint_writer_abort(NULL);
    wefti_checkpoint_owner_close(&owner);
}

/* What checksums cannot see: a table that is wrong but rightly sealed. */
static void test_checkpoint_sealed_nonsense_is_refused(void **state)
{
    (void)state;
    wefti_checkpoint_entry good[2] = {
        {.name = "a", .dtype = WEFT_DTYPE_F32, .offset = 256, .bytes = 8},
        {.name = "b", .dtype = WEFT_DTYPE_U8, .offset = 264, .bytes = 3}};
    wefti_checkpoint_entry read[2];
    uint8_t table[256];
    static const char *const parts[] = {"b: 3 bytes of u8 at 263",
                                        "a: given",
                                        "section b: unknown element type",
                                        "no proper",
                                        "b: 4 bytes",
                                        "sections end at 266",
                                        "a: 7 bytes"};
    for (size_t i = 0; i <= WEFTI_COUNT_OF(parts); i++) {
        wefti_checkpoint_entry bad[2] = {good[0], good[1]};
        bad[1].offset -= i == 0 ? 1 : 0;
        memcpy(bad[1].name, i == 1 ? "a" : i == 3 ? "\n" : "b", 2);
        bad[1].dtype = i == 2 ? (weft_dtype)99 : WEFT_DTYPE_U8;
        bad[1].bytes = i == 4 ? 4 : i == 5 ? 2 : 3;
        bad[0].bytes = i == 6 ? 7 : 8;
        wefti_checkpoint_extent extent = {.section_count = 2,
                                          .table_offset = 267};
        wefti_checkpoint_entry_pack(&bad[0], table);
        wefti_checkpoint_entry_pack(&bad[1], table + 128);
        wefti_checkpoint_checksum(table, sizeof(table), extent.table_checksum);
        weft_status status =
            wefti_checkpoint_table_unpack("f", table, &extent, read);
        if (i < WEFTI_COUNT_OF(parts)) {
            assert_error(status, WEFT_ERR_INVALID, parts[i]);
        } else {
            assert_good(status);
        }
    }
}

static void test_checkpoint_header_lengths_are_bounded(void **state)
{
    (void)state;
    wefti_checkpoint_header header = saving_header(1, 0);
    wefti_checkpoint_header read;
    wefti_checkpoint_extent extent;
    uint8_t bytes[WEFTI_CHECKPOINT_HEADER_BYTES];
    static const struct {
        uint64_t count, table, file;
        const char *part; /* NULL: good */
    } cases[] = {{0, 256, 256, NULL},
                 {1, 256, 384, NULL},
                 {1, 255, 383, "does not end"},
                 {1, 257, 384, "does not end"},
                 {UINT64_MAX / 128 + 2, 256, 384, "sections; allowed"},
                 {65537, 256, 256 + 65537 * 128, "sections; allowed"},
                 {2, UINT64_MAX - 127, 128, "does not end"},
                 {0, 257, 256, "does not end"}};
    for (size_t i = 0; i < WEFTI_COUNT_OF(cases); i++) {
        extent = (wefti_checkpoint_extent){.section_count = cases[i].count,
                                           .table_offset = cases[i].table,
                                           .file_bytes = cases[i].file};
        wefti_checkpoint_header_pack(&header, &extent, bytes);
        weft_status status = wefti_checkpoint_header_unpack(
            "f", bytes, cases[i].file, &read, &extent);
        if (cases[i].part != NULL) {
            assert_error(status, WEFT_ERR_INVALID, cases[i].part);
        } else {
            assert_good(status);
            assert_memory_equal(&read, &header, sizeof(read));
        }
    }
}

int main(void)
{
#define SAVING_TEST(name)                                                      \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        SAVING_TEST(test_checkpoint_saved_step_reads_back),
        SAVING_TEST(test_checkpoint_keep_removes_older_ones_alone),
        SAVING_TEST(test_checkpoint_same_step_is_replaced),
        SAVING_TEST(test_checkpoint_leftovers_are_ignored_then_removed),
        SAVING_TEST(
            test_checkpoint_damaged_done_is_reported_and_its_step_stays),
        SAVING_TEST(test_checkpoint_link_is_never_followed_to_remove),
        SAVING_TEST(test_checkpoint_what_cannot_be_removed_keeps_no_other),
        SAVING_TEST(test_checkpoint_steps_of_another_run_stay),
        SAVING_TEST(test_checkpoint_foreign_file_inside_a_step_is_kept),
        SAVING_TEST(test_checkpoint_missing_rank_is_not_committed),
        SAVING_TEST(test_checkpoint_any_changed_byte_is_refused_by_name),
        SAVING_TEST(test_checkpoint_corrupt_section_is_refused_by_get),
        SAVING_TEST(test_checkpoint_of_another_run_is_refused),
        SAVING_TEST(test_checkpoint_bad_section_is_not_added),
        cmocka_unit_test(test_checkpoint_sealed_nonsense_is_refused),
        cmocka_unit_test(test_checkpoint_header_lengths_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
