/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: one run at a time saves in a folder; a second one is refused by name, a
 * killed one leaves it free; a rank 0 that others have gone on without neither
 * makes nor removes a step any more, whenever it wakes up; a step put together
 * from two sessions is refused, naming both; a run that begins anew gets a
 * folder beside the steps of others, which stay. Method: owners in this
 * process, in threads and in a child that is killed; folders made by hand.
 */
#include "base/check.h"
#include "saving.h"
#include "scratch.h"
#include "trainer/checkpoint/run_folder.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>

#include <cmocka.h>

static void assert_good(weft_status status)
{
    if (status != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
}

static void assert_error(weft_status status, const char *part)
{
    if (status != WEFT_ERR_INVALID || strstr(weft_error_text(), part) == NULL) {
        fail_msg("%d \"%s\", expected \"%s\"", status, weft_error_text(), part);
    }
}

static bool is_there(scratch *own, const char *name)
{
    return access(scratch_path(own, name), F_OK) == 0;
}

static void test_owner_second_run_is_refused_and_named(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner first, second;
    char words[80];
    assert_good(saving_open(&first, own->dir));
    snprintf(words, sizeof(words),
             "another run saves there (run %016llx, session %016llx, host ",
             (unsigned long long)first.origin.run,
             (unsigned long long)first.origin.session);
    assert_error(saving_open(&second, own->dir), words);
    assert_false(second.holds);
    wefti_checkpoint_owner_close(&second);
    assert_good(wefti_checkpoint_owner_check(&first));
    wefti_checkpoint_owner_close(&first);
    assert_false(is_there(own, ".owner"));
    assert_good(saving_open(&second, own->dir));
    assert_true(second.origin.session != first.origin.session);
    wefti_checkpoint_owner_close(&second);
}

static void test_owner_killed_leaves_the_folder_free(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner owner;
    int ends[2], status;
    char byte;
    scratch_require(pipe(ends) == 0, "pipe");
    pid_t child = fork();
    scratch_require(child >= 0, "fork");
    if (child == 0) {
        byte = saving_open(&owner, own->dir) == WEFT_OK;
        scratch_require(write(ends[1], &byte, 1) == 1, "write");
        pause();
    }
    scratch_require(read(ends[0], &byte, 1) == 1 && byte == 1, "child");
    assert_error(saving_open(&owner, own->dir), "another run saves there");
    kill(child, SIGKILL);
    scratch_require(waitpid(child, &status, 0) == child, "waitpid");
    close(ends[0]);
    close(ends[1]);
    assert_true(is_there(own, ".owner"));
    assert_good(saving_open(&owner, own->dir));
    wefti_checkpoint_owner_close(&owner);
}

static void test_owner_file_that_is_none_is_refused(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner owner = {0};
    scratch_text(own, "far", "mine");
    scratch_require(symlink("far", scratch_path(own, ".owner")) == 0, "link");
    assert_int_equal(wefti_checkpoint_owner_open(&owner, own->dir),
                     WEFT_ERR_SYSTEM);
    assert_non_null(strstr(weft_error_text(), ".owner: cannot be opened"));
    (void)unlink(scratch_path(own, ".owner"));
    scratch_require(mkfifo(scratch_path(own, ".owner"), 0600) == 0, "fifo");
    assert_error(wefti_checkpoint_owner_open(&owner, own->dir), "is no file");
    (void)unlink(scratch_path(own, ".owner"));
    scratch_text(own, ".owner", "what \033[1m it says");
    assert_good(wefti_checkpoint_owner_open(&owner, own->dir));
    wefti_checkpoint_owner_close(&owner);
}

/* ---- left behind ----------------------------------------------------------
 */

/* What rank 0 of those that are left does: it holds nothing yet. */
static wefti_checkpoint_owner go_on_without(const wefti_checkpoint_owner *first)
{
    wefti_checkpoint_owner next = *first;
    next.holds = false;
    next.fd = -1;
    assert_good(wefti_checkpoint_owner_renew(&next));
    assert_int_equal(next.origin.run, first->origin.run);
    assert_true(next.origin.session != first->origin.session);
    return next;
}

static uint64_t newest(const char *dir)
{
    wefti_checkpoint_done done = {0};
    bool any;
    assert_good(wefti_checkpoint_find_newest(dir, &any, &done));
    return any ? done.step : 0;
}

/* It was sealing 40 when the others went back to 35, and on to 60. */
static void test_owner_left_behind_changes_nothing_any_more(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner first;
    assert_good(saving_open(&first, own->dir));
    assert_good(saving_seal(&first, 35));
    assert_good(wefti_checkpoint_commit(&first, own->dir, 35, 2));
    assert_good(saving_seal(&first, 40));
    wefti_checkpoint_owner next = go_on_without(&first);
    for (uint64_t step = 40; step <= 60; step += 10) {
        assert_good(saving_seal(&next, step));
        assert_good(wefti_checkpoint_commit(&next, own->dir, step, 2));
    }
    assert_good(saving_seal(&next, 70)); /* is being written */
    assert_error(wefti_checkpoint_commit(&first, own->dir, 40, 2),
                 "is not this run's any more");
    assert_error(wefti_checkpoint_begin(&first, own->dir, 41),
                 "is not this run's any more");
    setenv("WEFT_LOG", "error", 1); /* the warning is expected */
    wefti_checkpoint_prune(&first, own->dir, 99);
    unsetenv("WEFT_LOG");
    wefti_checkpoint_owner_close(&first);
    assert_good(wefti_checkpoint_owner_check(&next));
    assert_good(saving_verify(own->dir, 60));
    assert_good(saving_verify(own->dir, 50));
    assert_good(wefti_checkpoint_commit(&next, own->dir, 70, 2));
    wefti_checkpoint_owner_close(&next);
    assert_int_equal(newest(own->dir), 70);
    assert_false(is_there(own, ".owner"));
    assert_good(saving_verify(own->dir, 70));
}

/* Once they have ended well, too. */
static void test_owner_left_behind_by_a_run_that_has_ended(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner first;
    assert_good(saving_open(&first, own->dir));
    assert_good(saving_seal(&first, 40));
    wefti_checkpoint_owner next = go_on_without(&first);
    assert_good(saving_seal(&next, 300));
    assert_good(wefti_checkpoint_commit(&next, own->dir, 300, 1));
    wefti_checkpoint_owner_close(&next);
    assert_error(wefti_checkpoint_commit(&first, own->dir, 40, 1),
                 "another that has ended has taken it over");
    wefti_checkpoint_owner_close(&first);
    assert_int_equal(newest(own->dir), 300);
    assert_good(saving_verify(own->dir, 300));
}

/* The former rank 0 has ended, well or not; the same one may go on, too. */
static void test_owner_renewed_takes_what_is_its_run_s_alone(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner first, other = {0};
    assert_good(saving_open(&first, own->dir));
    wefti_checkpoint_owner left = first;
    assert_good(wefti_checkpoint_owner_renew(&first));
    assert_good(wefti_checkpoint_owner_check(&first));
    assert_error(wefti_checkpoint_owner_check(&left),
                 "not this run's any more");
    left = first;
    left.holds = false;
    wefti_checkpoint_owner_close(&first);
    assert_good(wefti_checkpoint_owner_renew(&left));
    assert_error(wefti_checkpoint_owner_open(&other, own->dir),
                 "another run saves there");
    wefti_checkpoint_owner second = left;
    second.holds = false;
    wefti_checkpoint_owner_close(&left);
    assert_good(wefti_checkpoint_owner_open(&other, own->dir));
    assert_error(wefti_checkpoint_owner_renew(&second),
                 "not this run's any more");
    assert_good(wefti_checkpoint_owner_check(&other));
    wefti_checkpoint_owner_close(&other);
}

/* Files of one step and one number of ranks, but of two sessions. */
static void test_owner_step_mixed_of_two_sessions_is_refused(void **state)
{
    scratch *own = *state;
    char one[600], words[80];
    assert_good(saving_step(scratch_path(own, "one"), 10, 1));
    assert_good(saving_step(scratch_path(own, "two"), 10, 1));
    snprintf(one, sizeof(one), "%.250s/one", own->dir);
    char from[600];
    snprintf(from, sizeof(from), "%s",
             scratch_path(own, "two/step_00000010/rank_00001.safetensors"));
    assert_int_equal(
        rename(from,
               scratch_path(own, "one/step_00000010/rank_00001.safetensors")),
        0);
    assert_good(saving_verify_rank(one, 10, 0));
    wefti_checkpoint_done here, there;
    assert_good(wefti_checkpoint_read_done(one, 10, &here));
    assert_good(
        wefti_checkpoint_read_done(scratch_path(own, "two"), 10, &there));
    assert_true(here.origin.session != there.origin.session);
    snprintf(words, sizeof(words), "session %016llx",
             (unsigned long long)here.origin.session);
    assert_error(saving_verify(one, 10), words);
    snprintf(words, sizeof(words), "session %016llx",
             (unsigned long long)there.origin.session);
    assert_error(saving_verify(one, 10), words);
    assert_error(saving_verify(one, 10), "put together from both");
}

/* ---- many at once ---------------------------------------------------------
 */

enum { RACERS = 4, ROUNDS = 200 };
static atomic_int holders, took;

static void *race(void *context)
{
    for (int i = 0; i < ROUNDS; i++) {
        wefti_checkpoint_owner owner = {0};
        if (wefti_checkpoint_owner_open(&owner, context) == WEFT_OK) {
            scratch_require(atomic_fetch_add(&holders, 1) == 0, "two holders");
            atomic_fetch_add(&took, 1);
            scratch_require(wefti_checkpoint_owner_check(&owner) == WEFT_OK,
                            weft_error_text());
            atomic_fetch_sub(&holders, 1);
        }
        wefti_checkpoint_owner_close(&owner);
    }
    return NULL;
}

static void test_owner_of_many_that_race_is_one_at_a_time(void **state)
{
    scratch *own = *state;
    pthread_t threads[RACERS];
    for (int i = 0; i < RACERS; i++) {
        scratch_require(pthread_create(&threads[i], NULL, race, own->dir) == 0,
                        "thread");
    }
    for (int i = 0; i < RACERS; i++) {
        pthread_join(threads[i], NULL);
    }
    assert_true(atomic_load(&took) > 0);
    assert_false(is_there(own, ".owner"));
}

/* ---- folders of runs ------------------------------------------------------
 */

static void assert_takes(const char *dir, const char *resumed, uint32_t number)
{
    wefti_checkpoint_owner owner = {0};
    uint32_t got = 0;
    assert_good(wefti_run_folder_take(&owner, dir, resumed, &got));
    assert_int_equal(got, number);
    wefti_run_folder_leave(&owner, got);
}

static void test_run_folder_begun_anew_is_beside_the_others(void **state)
{
    scratch *own = *state;
    char dir[300], second[300], third[300], fourth[300];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own->dir);
    snprintf(second, sizeof(second), "%.250s/ckpt/run_00002", own->dir);
    snprintf(third, sizeof(third), "%.250s/ckpt/run_00003", own->dir);
    snprintf(fourth, sizeof(fourth), "%.250s/elsewhere", own->dir);
    assert_takes(dir, NULL, 1);
    assert_good(saving_step(dir, 40, 1));
    assert_takes(dir, NULL, 2);
    assert_false(is_there(own, "ckpt/run_00002")); /* nothing was saved */
    assert_good(saving_step(second, 20, 1));
    assert_takes(dir, NULL, 3);
    assert_takes(dir, dir, 1);
    assert_takes(dir, second, 2);
    assert_good(saving_step(fourth, 60, 1));
    assert_takes(dir, fourth, 3);
    assert_takes(fourth, second, 2);
    scratch_folder(own, "ckpt/run_00003"); /* killed before its first step */
    assert_takes(dir, NULL, 3);
    uint32_t last;
    assert_good(wefti_run_folder_newest(dir, &last));
    assert_int_equal(last, 2); /* the empty one has gone */
    scratch_folder(own, "ckpt/run_7");
    scratch_text(own, "ckpt/run_00009", "a file");
    assert_good(wefti_run_folder_newest(dir, &last));
    assert_int_equal(last, 2);
    /* What a damaged step is worth is not known. */
    scratch_text(own, "ckpt/run_00002/step_00000020/DONE", "x");
    assert_takes(dir, NULL, 3);
    assert_int_equal(newest(dir), 40);
}

static void test_run_folder_of_a_run_that_goes_on_is_refused(void **state)
{
    scratch *own = *state;
    wefti_checkpoint_owner owner = {0}, other = {0};
    uint32_t number;
    char second[300];
    snprintf(second, sizeof(second), "%.250s/run_00002", own->dir);
    assert_good(wefti_run_folder_take(&owner, own->dir, NULL, &number));
    assert_error(wefti_run_folder_take(&other, own->dir, NULL, &number),
                 "another run saves there");
    wefti_run_folder_leave(&owner, 1);
    assert_good(saving_step(own->dir, 40, 1));
    owner = (wefti_checkpoint_owner){0};
    assert_good(wefti_run_folder_take(&owner, own->dir, NULL, &number));
    assert_int_equal(number, 2);
    assert_good(saving_seal(&owner, 10));
    assert_good(wefti_checkpoint_commit(&owner, second, 10, 1));
    other = (wefti_checkpoint_owner){0};
    assert_error(wefti_run_folder_take(&other, own->dir, NULL, &number),
                 "run_00002: another run saves there");
    assert_error(wefti_run_folder_take(&other, own->dir, second, &number),
                 "run_00002: another run saves there");
    wefti_run_folder_leave(&owner, 2);
    assert_int_equal(newest(second), 10);
}

int main(void)
{
#define OWNER_TEST(name)                                                       \
    cmocka_unit_test_setup_teardown(name, scratch_set_up, scratch_tear_down)
    const struct CMUnitTest tests[] = {
        OWNER_TEST(test_owner_second_run_is_refused_and_named),
        OWNER_TEST(test_owner_killed_leaves_the_folder_free),
        OWNER_TEST(test_owner_file_that_is_none_is_refused),
        OWNER_TEST(test_owner_left_behind_changes_nothing_any_more),
        OWNER_TEST(test_owner_left_behind_by_a_run_that_has_ended),
        OWNER_TEST(test_owner_renewed_takes_what_is_its_run_s_alone),
        OWNER_TEST(test_owner_step_mixed_of_two_sessions_is_refused),
        OWNER_TEST(test_owner_of_many_that_race_is_one_at_a_time),
        OWNER_TEST(test_run_folder_begun_anew_is_beside_the_others),
        OWNER_TEST(test_run_folder_of_a_run_that_goes_on_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
