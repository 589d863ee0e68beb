/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: what was saved reads back bit for bit, cut in any way; a changed byte,
 * a cut or missing file or another run's file is refused by name; only what
 * keep says stays, and only what is ours is removed. Method: small tensors,
 * every byte of all files of a step flipped in turn, every length tried;
 * folders as killed runs leave them, made by hand.
 */
#include "base/check.h"
#include "saving.h"
#include "scratch.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

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
        access(
            scratch_path(own, "deep/er/step_00000050/rank_00001.safetensors"),
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
    FILE *mark =
        fopen(scratch_path(own, "step_00000020/rank_00000.safetensors"), "w");
    assert_non_null(mark);
    fclose(mark);
    assert_error(saving_verify(own->dir, 20), WEFT_ERR_INVALID,
                 "rank_00000.safetensors: header");
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
    scratch_text(own,
                 ".step_00000020.0123456789abcdef.new/rank_00000.safetensors",
                 "half");
    scratch_folder(own, "step_00000030"); /* without DONE */
    scratch_text(own, "step_00000030/rank_00000.safetensors", "x");
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
    char wrong[8][300] = {"", "x", "step 20, ranks 2\n"};
    snprintf(wrong[3], sizeof(wrong[3]), "%s\n", good); /* too long */
    snprintf(wrong[4], sizeof(wrong[4]), "%s", good);
    wrong[4][5] = '1'; /* another step */
    snprintf(wrong[5], sizeof(wrong[5]), "%s", good);
    wrong[5][strlen("step 20, ranks ")] = '0';
    snprintf(wrong[6], sizeof(wrong[6]), "%.*s", (int)length - 1, good);
    snprintf(wrong[7], sizeof(wrong[7]), "%s", good);
    wrong[7][length - 2] = 'g'; /* no digit */
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
    scratch_text(own, ".step_00000020.old/rank_00000.safetensors", "x");
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
                 WEFT_ERR_SYSTEM, "rank_00001.safetensors");
    assert_steps(own->dir, "10 ");
    assert_good(saving_verify(own->dir, 10));
    assert_error(wefti_checkpoint_seal(&owner, own->dir, 30, SAVING_NRANKS),
                 WEFT_ERR_SYSTEM, ".step_00000030.");
    wefti_checkpoint_owner_close(&owner);
}

/* A step written before there was an index is refused with what to do. */
static void test_checkpoint_of_an_older_version_is_refused(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_done done;
    bool any;
    scratch_folder(own, "step_00000010");
    scratch_text(own, "step_00000010/rank_00000.weft", "WEFTCKPT");
    scratch_text(own, "step_00000010/DONE", "step 10, ranks 1\n");
    assert_error(
        wefti_checkpoint_find_newest(own->dir, &any, &done), WEFT_ERR_INVALID,
        "step_00000010: was written by an older version of weft, "
        "which alone reads it: let that one write it with --export-hf");
    assert_good(saving_step(own->dir, 20, 1));
    assert_steps(own->dir, "20 ");
    assert_int_equal(
        access(scratch_path(own, "step_00000010/rank_00000.weft"), F_OK), 0);
}

int main(void)
{
#define SAVING_TEST(name)                                                      \
    cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)
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
        SAVING_TEST(test_checkpoint_of_an_older_version_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
