/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: a rank 0 that hangs while it makes a step complete, is left behind by
 * the others and wakes when they have ended takes nothing from them: the newest
 * steps are theirs, and good; it says why it ends.
 * Method: elastic jobs of three ranks that are threads. Calls of the code under
 * test come here (-Wl,--wrap): one of rank 0's, at its second save, is held
 * until the others have saved their last step (30 s at most). Each of these
 * calls in turn: making DONE durable, the rename that makes the step, the one
 * that takes an older step away.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "trainer/checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 10, PATIENCE_MS = 30000 };

static scratch own;
static char dir[512], last_done[600];

static const char *held_call; /* NULL: none */
static const char *held_path; /* a part of what it is called with */
static atomic_bool was_held, was_seen;

static void hold(const char *call, const char *path)
{
    if (!held_call || strcmp(call, held_call) != 0 ||
        !strstr(path, held_path) || atomic_exchange(&was_held, true)) {
        return;
    }
    for (int ms = 0; ms < PATIENCE_MS && access(last_done, F_OK) != 0; ms++) {
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    atomic_store(&was_seen, access(last_done, F_OK) == 0);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    char link[64], path[512] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof(path) - 1) > 0) {
        hold("fsync", path);
    }
    return __real_fsync(fd);
}

int __real_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to);
int __wrap_renameat(int from_fd, const char *from, int to_fd, const char *to)
{
    hold("renameat", to);
    return __real_renameat(from_fd, from, to_fd, to);
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

/* The complete steps, newest first, as "10 8 ". */
static void list_steps(char text[128])
{
    uint64_t *steps;
    size_t count, used = 0;
    text[0] = '\0';
    assert_int_equal(wefti_checkpoint_list(dir, &steps, &count), WEFT_OK);
    for (size_t i = 0; i < count; i++) {
        used += (size_t)snprintf(text + used, 128 - used, "%u ",
                                 (unsigned)steps[i]);
    }
    free(steps);
}

static void check(const char *call, const char *path, const char *async,
                  const char *expected)
{
    char steps[128];
    job what = {.nranks = 3,
                .settings = {"train.steps=10", "train.micro_batch_size=4",
                             "train.global_batch_size=24", "train.elastic=true",
                             "checkpoint.every=2", "checkpoint.keep=2", async}};
    nftw(dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    held_call = call;
    held_path = path;
    atomic_store(&was_held, false);
    atomic_store(&was_seen, false);
    job_result got = job_run(&own, &what);
    held_call = NULL;
    assert_true(atomic_load(&was_held));
    assert_true(atomic_load(&was_seen)); /* the others ended before it woke */
    assert_int_not_equal(got.status, WEFT_OK); /* of rank 0 */
    if (!strstr(got.error, "have gone on without rank 0") &&
        !strstr(got.error, "is not this run's any more")) {
        fail_msg("%s: %s", call, got.error);
    }
    job_result_fini(&got);
    list_steps(steps);
    assert_string_equal(steps, expected);
    assert_int_equal(access(scratch_path(&own, "ckpt/.owner"), F_OK), -1);
    what.settings[0] = "train.steps=12";
    what.nranks = 2;
    what.resume = dir;
    got = job_run(&own, &what);
    if (got.status != WEFT_OK) {
        fail_msg("%s: %s", call, got.error);
    }
    assert_int_equal(got.steps, 2);
    job_result_fini(&got);
}

static void test_fence_rank_0_that_hangs_in_done_takes_nothing(void **state)
{
    (void)state;
    check("fsync", "/DONE", "checkpoint.async=true", "10 8 ");
}

static void
test_fence_rank_0_that_hangs_in_the_rename_takes_nothing(void **state)
{
    (void)state;
    check("renameat", "step_00000004", "checkpoint.async=false", "10 8 ");
}

/* Of steps 2 and 4 and 6 the first is on its way out, and may go. */
static void test_fence_rank_0_that_hangs_in_removing_takes_nothing(void **state)
{
    (void)state;
    check("renameat", ".step_00000002.old", "checkpoint.async=true", "10 8 ");
}

int main(void)
{
    setenv("WEFT_TIMEOUT_MS", "2000", 1);
    setenv("WEFT_WARN_MS", "500", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fence_rank_0_that_hangs_in_done_takes_nothing),
        cmocka_unit_test(
            test_fence_rank_0_that_hangs_in_the_rename_takes_nothing),
        cmocka_unit_test(
            test_fence_rank_0_that_hangs_in_removing_takes_nothing),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
