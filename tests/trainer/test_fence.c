/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a rank 0 that hangs while it makes a step complete, is left behind by
 * the others and wakes when they have gone on takes nothing from them: the
 * newest steps are theirs, and good; it says why it ends. Where a file system
 * cannot exchange two folders, a step is replaced all the same.
 * Method: calls of the code under test come here (-Wl,--wrap), and one of them
 * is held while the others go on. While DONE is made durable: an elastic job of
 * three ranks that are threads, until the other two have saved their last step
 * (30 s at most). The rename that makes the step, the one that takes an older
 * step away, the one in place of a step without DONE: by hand, where the test
 * itself saves as the others would.
 */
#include "saving.h"
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "trainer/checkpoint/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 6, PATIENCE_MS = 30000 };

static scratch own;
static char dir[512], last_done[600];

/* The first call of these on a path that ends so is held. */
static const char *held_calls, *held_path; /* NULL: none */
static void (*meanwhile)(void);
static atomic_bool was_held, was_seen;
static bool no_exchange;

static bool ends_with(const char *path, const char *end)
{
    size_t length = strlen(path), end_length = strlen(end);
    return length >= end_length && strcmp(path + length - end_length, end) == 0;
}

static void hold(const char *call, const char *path)
{
    if (held_calls && strstr(held_calls, call) && ends_with(path, held_path) &&
        !atomic_exchange(&was_held, true)) {
        int error = errno;
        meanwhile();
        errno = error;
    }
}

static void hold_at(const char *calls, const char *path, void (*others)(void))
{
    atomic_store(&was_held, false);
    atomic_store(&was_seen, false);
    held_path = path;
    meanwhile = others;
    held_calls = calls;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0 &&
        strstr(path, "/.step_00000004.")) { /* the second save */
        hold("fsync", path);
    }
    return __real_fsync(fd);
}

int __real_openat(int at_fd, const char *path, int flags, ...);
int __wrap_openat(int at_fd, const char *path, int flags, mode_t mode);
int __wrap_openat(int at_fd, const char *path, int flags, mode_t mode)
{
    hold("openat", path);
    return __real_openat(at_fd, path, flags, mode);
}

int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    hold("renameat", to);
    return __real_renameat(from_fd, from, to_fd, to);
}

int __real_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags);
int __wrap_renameat2(int from_fd, const char *from, int to_fd, const char *to,
                     unsigned flags)
{
    hold("renameat2", to);
    if (no_exchange) {
        errno = EINVAL;
        return -1;
    }
    return __real_renameat2(from_fd, from, to_fd, to, flags);
}

static int prepare(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    snprintf(last_done, sizeof(last_done), "%s/step_%08d/DONE", dir, STEPS);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

/* An empty folder for each test. */
static int set_up(void **state)
{
    (void)state;
    nftw(dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    held_calls = NULL;
    no_exchange = false;
    return 0;
}

/* The complete steps, newest first, as "10 8 ". */
static void assert_steps(const char *expected)
{
    char text[128] = "";
    uint64_t *steps;
    size_t count, used = 0;
    assert_int_equal(wefti_checkpoint_list(dir, &steps, &count), WEFT_OK);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, sizeof(text) - used, "%u ",
                                 (unsigned)steps[i]);
    }
    free(steps);
    assert_string_equal(text, expected);
}

/* ---- a job ----------------------------------------------------------------
 */

static void await_the_others(void)
{
    for (int ms = 0; ms < PATIENCE_MS && access(last_done, F_OK) != 0; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_store(&was_seen, access(last_done, F_OK) == 0);
}

static void test_fence_rank_0_that_hangs_in_done_takes_nothing(void **state)
{
    job what = {.nranks = 3,
                .settings = {"train.steps=6", "train.micro_batch_size=4",
                             "train.global_batch_size=24", "train.elastic=true",
                             "checkpoint.every=2", "checkpoint.keep=2"}};
    (void)state;
    hold_at("fsync", "/DONE", await_the_others);
    job_result got = job_run(&own, &what);
    held_calls = NULL;
    assert_true(atomic_load(&was_held));
    assert_true(atomic_load(&was_seen)); /* the others ended before it woke */
    assert_int_not_equal(got.status, WEFT_OK); /* of rank 0 */
    if (!strstr(got.error, "have gone on without rank 0") &&
        !strstr(got.error, "is not this run's any more")) {
        fail_msg("%s", got.error);
    }
    job_result_fini(&got);
    assert_steps("6 4 ");
    assert_int_equal(access(scratch_path(&own, "ckpt/.owner"), F_OK), -1);
    what.settings[0] = "train.steps=8";
    what.nranks = 2;
    what.resume = dir;
    got = job_run(&own, &what);
    if (got.status != WEFT_OK) {
        fail_msg("%s", got.error);
    }
    assert_int_equal(got.steps, 2);
    job_result_fini(&got);
}

/* ---- by hand --------------------------------------------------------------
 */

static wefti_checkpoint_owner first;

static void save(const wefti_checkpoint_owner *owner, uint64_t step)
{
    if (saving_seal(owner, step) != WEFT_OK ||
        wefti_checkpoint_commit(owner, owner->dir, step, 2) != WEFT_OK) {
        fail_msg("%s", weft_error_text());
    }
}

static void others_save(uint64_t from, uint64_t to)
{
    wefti_checkpoint_owner next = first;
    next.holds = false;
    assert_int_equal(wefti_checkpoint_owner_renew(&next), WEFT_OK);
    for (uint64_t step = from; step <= to; step += 2) {
        save(&next, step);
    }
    wefti_checkpoint_owner_close(&next);
}

static void others_save_6_to_10(void)
{
    others_save(6, 10);
}

static void others_save_4(void)
{
    others_save(4, 4);
}

static void open_first(void)
{
    assert_int_equal(saving_open(&first, dir), WEFT_OK);
}

/* Rank 0's commit of a sealed step, held on its way. */
static weft_status commit_held(uint64_t step, const char *calls,
                               const char *path, void (*others)(void))
{
    assert_int_equal(saving_seal(&first, step), WEFT_OK);
    hold_at(calls, path, others);
    setenv("WEFT_LOG", "error", 1); /* a warning may come */
    weft_status status = wefti_checkpoint_commit(&first, dir, step, 1);
    unsetenv("WEFT_LOG");
    assert_true(atomic_load(&was_held));
    wefti_checkpoint_owner_close(&first);
    return status;
}

static void assert_left_behind(weft_status status)
{
    assert_int_equal(status, WEFT_ERR_INVALID);
    assert_non_null(strstr(weft_error_text(), "is not this run's any more"));
}

static void
test_fence_rank_0_that_hangs_in_the_rename_takes_nothing(void **state)
{
    (void)state;
    open_first();
    save(&first, 2);
    assert_left_behind(
        commit_held(4, "renameat", "step_00000004", others_save_6_to_10));
    assert_steps("10 8 ");
    assert_int_equal(saving_verify(dir, 10), WEFT_OK);
}

/* The step on its way out may go, and no other. */
static void test_fence_rank_0_that_hangs_in_removing_takes_nothing(void **state)
{
    (void)state;
    open_first();
    save(&first, 2);
    assert_int_equal(
        commit_held(4, "renameat", ".step_00000002.old", others_save_6_to_10),
        WEFT_OK);
    assert_steps("10 8 ");
    assert_int_equal(saving_verify(dir, 8), WEFT_OK);
}

/* The others have made a good step of that number by then. */
static void
test_fence_rank_0_in_place_of_half_a_step_takes_no_whole_one(void **state)
{
    (void)state;
    open_first();
    save(&first, 2);
    scratch_folder(&own, "ckpt/step_00000004");
    scratch_text(&own, "ckpt/step_00000004/rank_00000.safetensors", "half");
    assert_left_behind(
        commit_held(4, "renameat2 openat", "step_00000004", others_save_4));
    assert_steps("4 2 ");
    assert_int_equal(saving_verify(dir, 4), WEFT_OK);
}

static void
test_fence_step_is_replaced_where_none_can_be_exchanged(void **state)
{
    wefti_checkpoint_done done;
    (void)state;
    no_exchange = true;
    open_first();
    save(&first, 2);
    save(&first, 4);
    others_save_4();
    wefti_checkpoint_owner_close(&first);
    assert_steps("4 2 ");
    assert_int_equal(saving_verify(dir, 4), WEFT_OK);
    assert_int_equal(wefti_checkpoint_read_done(dir, 4, &done), WEFT_OK);
    assert_true(done.origin.session != first.origin.session);
    assert_int_equal(
        access(scratch_path(&own, "ckpt/.step_00000004.old"), F_OK), -1);
}

int main(void)
{
    setenv("WEFT_TIMEOUT_MS", "1500", 1);
    setenv("WEFT_WARN_MS", "500", 1);
#define FENCE_TEST(name) cmocka_unit_test_setup(name, set_up)
    const struct CMUnitTest tests[] = {
        FENCE_TEST(test_fence_rank_0_that_hangs_in_done_takes_nothing),
        FENCE_TEST(test_fence_rank_0_that_hangs_in_the_rename_takes_nothing),
        FENCE_TEST(test_fence_rank_0_that_hangs_in_removing_takes_nothing),
        FENCE_TEST(
            test_fence_rank_0_in_place_of_half_a_step_takes_no_whole_one),
        FENCE_TEST(test_fence_step_is_replaced_where_none_can_be_exchanged),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
