/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a checkpoint is written while the next steps compute, one at a time;
 *          the next one waits, and the wait is reported; whatever ends the run,
 *          what is being written is completed first; what cannot be written
 *          ends the run with the reason, and the checkpoint before it is one to
 *          go on from. An elastic run goes on also where only the writers have
 *          detected that a rank is gone. checkpoint.async: false writes before
 *          the next step begins. Both have the bits of a run that saves
 *          nothing.
 * Method   jobs of two ranks that are threads. The linker sends calls of the
 *          code under test here, which hold the writer until the training has
 *          come to a given point (20 s at most), or fail in its place.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "tests/trainer/wrapped.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/saver.h"
#include "trainer/report/metrics.h"
#include "trainer/train_step.h"

#include "base/error.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEPS = 6, PATIENCE_MS = 20000 };

static scratch own;
static char dir[512];
static job_result reference; /* saves nothing */

/* ---- what the wrappers see and do -----------------------------------------
 */

typedef struct hold {
    uint64_t step; /* whose writer is held; 0: none is */
    bool at_begin; /* before anything is written; else before the commit */
    atomic_int *count;
    int until; /* of count */
    int patience_ms;
    int then_ms; /* a slow disk */
} hold;

static hold held;
static bool was_seen;         /* count came to it in time */
static atomic_int begun;      /* steps, of all ranks */
static atomic_int settling;   /* calls that wait for the writer */
static atomic_int torn;       /* metrics that could not be written */
static atomic_int diverged;   /* steps */
static atomic_int writing;    /* from begin to commit */
static atomic_int overlapped; /* saves that found another one */
static uint64_t tears_at;     /* the line of this step; 0: none */
static uint64_t diverges_at;  /* this step, after it has been done */
static uint64_t moved_before; /* the commit of this step */
static atomic_int aborts;     /* rank 0's writer, when 1 is left: it has been
                                 asked for so often after the last step */
static uint64_t full_after;   /* the commit of this step */
static const char *full_for;  /* which files */
static _Atomic(const char *)
    full; /* now; stored after a commit, read by the
             writers of the next, which barriers part */

static void nap_ms(int ms)
{
    struct timespec nap = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&nap, NULL);
}

static void hold_writer(uint64_t step, bool at_begin)
{
    if (held.step != step || held.at_begin != at_begin) {
        return;
    }
    for (int ms = 0;
         ms < held.patience_ms && atomic_load(held.count) < held.until; ms++) {
        nap_ms(1);
    }
    was_seen = atomic_load(held.count) >= held.until;
    nap_ms(held.then_ms);
}

weft_status __real_wefti_checkpoint_begin(const wefti_checkpoint_owner *owner,
                                          const char *where, uint64_t step);
weft_status __wrap_wefti_checkpoint_begin(const wefti_checkpoint_owner *owner,
                                          const char *where, uint64_t step);
weft_status __wrap_wefti_checkpoint_begin(const wefti_checkpoint_owner *owner,
                                          const char *where, uint64_t step)
{
    overlapped += atomic_fetch_add(&writing, 1) > 0;
    hold_writer(step, true);
    return __real_wefti_checkpoint_begin(owner, where, step);
}

weft_status __wrap_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *where, uint64_t step,
                                           size_t keep_count)
{
    char gone[512];
    hold_writer(step, false);
    if (step == moved_before) {
        snprintf(gone, sizeof(gone), "%.250s/gone", own.dir);
        scratch_require(rename(where, gone) == 0, gone);
    }
    weft_status status =
        __real_wefti_checkpoint_commit(owner, where, step, keep_count);
    atomic_fetch_sub(&writing, 1);
    if (step == full_after) {
        atomic_store(&full, full_for);
    }
    return status;
}

weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    atomic_fetch_add(&begun, 1);
    weft_status status =
        __real_wefti_train_step_run(replica, modes, times, result_out);
    if (status == WEFT_OK && replica->step == diverges_at) {
        result_out->diverged = true;
        status = wefti_train_step_diverged(replica, replica->step, "loss",
                                           (double)INFINITY);
        atomic_fetch_add(&diverged, 1);
    }
    return status;
}

weft_status __real_wefti_saver_settle(wefti_saver *saver);
weft_status __wrap_wefti_saver_settle(wefti_saver *saver);
weft_status __wrap_wefti_saver_settle(wefti_saver *saver)
{
    atomic_fetch_add(&settling, 1);
    if (saver->replica->rank == 0 && saver->replica->step == STEPS &&
        atomic_fetch_sub(&aborts, 1) == 1) {
        wefti_saver_abort(saver);
    }
    return __real_wefti_saver_settle(saver);
}

weft_status __real_wefti_metrics_write(wefti_metrics *metrics,
                                       const wefti_metrics_step *step);
weft_status __wrap_wefti_metrics_write(wefti_metrics *metrics,
                                       const wefti_metrics_step *step);
weft_status __wrap_wefti_metrics_write(wefti_metrics *metrics,
                                       const wefti_metrics_step *step)
{
    if (step->step == tears_at) {
        atomic_fetch_add(&torn, 1);
        return wefti_error(WEFT_ERR_SYSTEM, "--metrics: torn");
    }
    return __real_wefti_metrics_write(metrics, step);
}

ssize_t __real_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count);
ssize_t __wrap_write(int fd, const void *bytes, size_t count)
{
    const char *what = atomic_load(&full);
    char link[64], path[512] = "";
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    if (what && readlink(link, path, sizeof(path) - 1) > 0 &&
        strstr(path, what)) {
        errno = ENOSPC;
        return -1;
    }
    return __real_write(fd, bytes, count);
}

static void let_go(void)
{
    held = (hold){0};
    was_seen = false;
    atomic_store(&begun, 0);
    atomic_store(&settling, 0);
    atomic_store(&torn, 0);
    atomic_store(&diverged, 0);
    atomic_store(&writing, 0);
    atomic_store(&overlapped, 0);
    atomic_store(&full, NULL);
    atomic_store(&aborts, 0);
    tears_at = diverges_at = moved_before = full_after = 0;
}

/* ---- jobs -----------------------------------------------------------------
 */

static job make_job(const char *every, const char *more)
{
    return (job){.nranks = 2,
                 .settings = {"train.steps=6", "train.micro_batch_size=4",
                              "checkpoint.keep=2", every, more}};
}

static int prepare(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    job what = make_job("checkpoint.every=0", NULL);
    reference = job_run(&own, &what);
    assert_int_equal(reference.status, WEFT_OK);
    assert_int_equal(reference.steps, STEPS);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    job_result_fini(&reference);
    scratch_close(&own);
    return 0;
}

static int begin_test(void **state)
{
    (void)state;
    nftw(dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    let_go();
    return 0;
}

static void check_same(const job_result *got)
{
    if (got->status != WEFT_OK) {
        fail_msg("%s", got->error);
    }
    assert_true(got->steps > 0 && got->steps <= STEPS);
    for (size_t i = 0; i < got->steps; i++) {
        assert_true(reference.loss[STEPS - got->steps + i] == got->loss[i]);
    }
    assert_memory_equal(reference.parameters, got->parameters,
                        got->parameter_count * sizeof(real));
}

static uint64_t newest_step(const char *where)
{
    uint64_t *steps = NULL, newest = 0;
    size_t count;
    assert_int_equal(wefti_checkpoint_list(where, &steps, &count), WEFT_OK);
    newest = count ? steps[0] : 0;
    free(steps);
    return newest;
}

/* Ends with what is said; step is the newest in where, and good. */
static void check_ended(const job *what, weft_status status, const char *word,
                        const char *where, uint64_t step)
{
    job_result got = job_run(&own, what);
    assert_int_equal(got.status, status);
    if (!strstr(got.error, word)) {
        fail_msg("\"%s\" does not say %s", got.error, word);
    }
    job_result_fini(&got);
    assert_int_equal(newest_step(where), step);
    let_go();
    job rest = make_job("checkpoint.every=0", NULL);
    rest.resume = where;
    got = job_run(&own, &rest);
    assert_int_equal(got.steps, STEPS - step);
    check_same(&got);
    job_result_fini(&got);
}

/* ---- beside the steps -----------------------------------------------------
 */

/* Both ranks have begun a step, and at least one the next. */
static void test_saver_writes_while_the_next_step_runs(void **state)
{
    (void)state;
    held = (hold){
        .step = 1, .count = &begun, .until = 3, .patience_ms = PATIENCE_MS};
    job what = make_job("checkpoint.every=1", NULL);
    job_result got = job_run(&own, &what);
    check_same(&got);
    assert_true(was_seen);
    assert_int_equal(overlapped, 0);
    assert_int_equal(newest_step(dir), STEPS);
    job_result_fini(&got);
}

/* Each rank asks for the writer before it saves, here for the second time. */
static void test_saver_next_save_waits_and_the_wait_is_reported(void **state)
{
    (void)state;
    held = (hold){.step = 1,
                  .count = &settling,
                  .until = 4,
                  .patience_ms = PATIENCE_MS,
                  .then_ms = 100};
    job what = make_job("checkpoint.every=1", NULL);
    job_result got = job_run(&own, &what);
    check_same(&got);
    assert_true(was_seen);
    assert_int_equal(overlapped, 0);
    assert_true(got.checkpoint_wait_ms[2] > 10);
    for (size_t i = 0; i < STEPS; i++) {
        assert_true(got.checkpoint_ms[i] >= got.checkpoint_wait_ms[i]);
    }
    assert_true(got.checkpoint_ms[0] == 0);
    assert_true(got.step_error_ms < 1e-6);
    job_result_fini(&got);
}

static void test_saver_without_async_writes_before_the_next_step(void **state)
{
    (void)state;
    held = (hold){.step = 1, .count = &begun, .until = 3, .patience_ms = 100};
    job what = make_job("checkpoint.every=1", "checkpoint.async=false");
    job_result got = job_run(&own, &what);
    check_same(&got);
    assert_false(was_seen);
    assert_true(got.checkpoint_ms[1] > 50);
    assert_true(got.checkpoint_wait_ms[1] < 50);
    assert_int_equal(newest_step(dir), STEPS);
    job_result_fini(&got);
}

/* ---- what ends a run ------------------------------------------------------
 */

static void test_saver_full_disk_ends_the_run_by_name(void **state)
{
    (void)state;
    job what = make_job("checkpoint.every=1", NULL);
    full_after = 3;
    full_for = "rank_00000.safetensors";
    check_ended(&what, WEFT_ERR_SYSTEM, "No space left on device", dir, 3);
}

static void test_saver_full_disk_of_another_rank_is_that_rank_s(void **state)
{
    (void)state;
    job what = make_job("checkpoint.every=2", NULL);
    full_after = 2;
    full_for = "rank_00001.safetensors";
    check_ended(&what, WEFT_ERR_SYSTEM, "checkpoint: rank 1 has failed", dir,
                2);
}

/* Nothing comes after it that would have to wait. */
static void test_saver_last_save_that_fails_fails_the_run(void **state)
{
    (void)state;
    job what = make_job("checkpoint.every=5", NULL);
    full_after = 5;
    full_for = "DONE";
    check_ended(&what, WEFT_ERR_SYSTEM, "DONE: cannot be written", dir, 5);
}

static void test_saver_folder_that_is_gone_ends_the_run(void **state)
{
    (void)state;
    char gone[512];
    job what = make_job("checkpoint.every=2", NULL);
    snprintf(gone, sizeof(gone), "%.250s/gone", own.dir);
    moved_before = 4;
    check_ended(&what, WEFT_ERR_SYSTEM, "ckpt: cannot be opened", gone, 2);
    nftw(gone, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The other rank has to agree yet when rank 0 gives up. */
static void test_saver_completes_what_it_writes_when_a_rank_fails(void **state)
{
    (void)state;
    job what = make_job("checkpoint.every=3", NULL);
    held = (hold){.step = 3,
                  .at_begin = true,
                  .count = &torn,
                  .until = 1,
                  .patience_ms = PATIENCE_MS,
                  .then_ms = 30};
    tears_at = 3;
    check_ended(&what, WEFT_ERR_SYSTEM, "--metrics: torn", dir, 3);
}

static void test_saver_completes_what_it_writes_at_divergence(void **state)
{
    (void)state;
    job what = make_job("checkpoint.every=2", NULL);
    held = (hold){.step = 2,
                  .at_begin = true,
                  .count = &diverged,
                  .until = 2,
                  .patience_ms = PATIENCE_MS,
                  .then_ms = 30};
    diverges_at = 3;
    check_ended(&what, WEFT_ERR_INVALID, "has diverged", dir, 2);
}

/* ---- what does not --------------------------------------------------------
 */

/* The last save is held until its writers' communicator has failed. */
static void test_saver_fault_of_the_writers_alone_is_recovered(void **state)
{
    (void)state;
    job what = make_job("checkpoint.every=1", "train.elastic=true");
    held = (hold){.step = STEPS,
                  .at_begin = true,
                  .count = &settling,
                  .until = 2 * STEPS + 2,
                  .patience_ms = PATIENCE_MS,
                  .then_ms = 30};
    atomic_store(&aborts, 2); /* before that save, and after it */
    job_result got = job_run(&own, &what);
    check_same(&got);
    assert_true(was_seen);
    assert_true(atomic_load(&aborts) < 0); /* and in the second run */
    assert_int_equal(newest_step(dir), STEPS);
    job_result_fini(&got);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup(name, begin_test)
    const struct CMUnitTest tests[] = {
        TEST(test_saver_writes_while_the_next_step_runs),
        TEST(test_saver_next_save_waits_and_the_wait_is_reported),
        TEST(test_saver_without_async_writes_before_the_next_step),
        TEST(test_saver_full_disk_ends_the_run_by_name),
        TEST(test_saver_full_disk_of_another_rank_is_that_rank_s),
        TEST(test_saver_last_save_that_fails_fails_the_run),
        TEST(test_saver_folder_that_is_gone_ends_the_run),
        TEST(test_saver_completes_what_it_writes_when_a_rank_fails),
        TEST(test_saver_completes_what_it_writes_at_divergence),
        TEST(test_saver_fault_of_the_writers_alone_is_recovered),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
