/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/trainer/pause_job.c - jobs that keep their snapshots inside steps.
 */
#include "tests/trainer/pause_job.h"

#include "tests/seed.h"
#include "tests/trainer/wrapped.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/train_step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <time.h>

#include <cmocka.h>

scratch pause_own;
uint64_t pause_seed;

bool pause_is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

int pause_open(void **state)
{
    (void)state;
    pause_seed = random_seed();
    scratch_open(&pause_own);
    job_prepare(&pause_own, pause_seed);
    return 0;
}

int pause_close(void **state)
{
    (void)state;
    scratch_close(&pause_own);
    return 0;
}

void pause_remove_folder(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%.250s/%.200s", pause_own.dir, name);
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- keeping snapshots ----------------------------------------------------
 */

/* Written by rank 0's writer, read when its job has ended. */
bool pause_keeps;
uint64_t pause_kept[PAUSE_KEPT_MOST]; /* steps done before */
size_t pause_kept_count;

static void keep(const char *dir, uint64_t step)
{
    char name[64], from[512], to[512];
    scratch_require(pause_kept_count < PAUSE_KEPT_MOST, "too many snapshots");
    snprintf(name, sizeof(name), "kept_%zu", pause_kept_count);
    scratch_folder(&pause_own, name);
    snprintf(name, sizeof(name), "kept_%zu/inside", pause_kept_count);
    scratch_folder(&pause_own, name);
    snprintf(name, sizeof(name), "kept_%zu/inside/step_%08u", pause_kept_count,
             (unsigned)step);
    scratch_folder(&pause_own, name);
    snprintf(from, sizeof(from), "%.400s/step_%08u", dir, (unsigned)step);
    snprintf(to, sizeof(to), "%.250s/%.64s", pause_own.dir, name);
    scratch_link_all(from, to);
    pause_kept[pause_kept_count++] = step;
}

void pause_remove_kept(void)
{
    while (pause_kept_count > 0) {
        char name[64];
        snprintf(name, sizeof(name), "kept_%zu", --pause_kept_count);
        pause_remove_folder(name);
    }
}

/* ---- a writer that is held up ---------------------------------------------
 */

bool pause_holds;       /* the first commit, until ... */
atomic_int pause_begun; /* ... three steps have, of two ranks */
bool pause_was_passed;

static void hold_commit(void)
{
    for (int ms = 0; ms < 20000 && atomic_load(&pause_begun) < 3; ms++) {
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
    }
    pause_was_passed = atomic_load(&pause_begun) >= 3;
    pause_holds = false;
}

weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    atomic_fetch_add(&pause_begun, 1);
    return __real_wefti_train_step_run(replica, modes, times, result_out);
}

/* The linker sends the calls of the code under test here (-Wl,--wrap). */
weft_status __wrap_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *dir, uint64_t step,
                                           size_t keep_count)
{
    weft_status status =
        __real_wefti_checkpoint_commit(owner, dir, step, keep_count);
    const char *last = strrchr(dir, '/');
    bool inside = last && strcmp(last, "/inside") == 0;
    if (pause_keeps && status == WEFT_OK && inside) {
        keep(dir, step);
    }
    if (pause_holds && inside) {
        hold_commit();
    }
    return status;
}

/* ---- jobs -----------------------------------------------------------------
 */

job pause_make_job(const pause_layout *cut, const char *inside,
                   const char *resume)
{
    job what = {.nranks = cut->nranks,
                .settings = {"model.layers=4", JOB_TOKENS(17, 5),
                             "train.micro_batch_size=4", "train.steps=3",
                             "train.validate_every=2",
                             "parallel.pipeline_model_parallel_size=2"},
                .resume = resume};
    size_t at = 6;
    if (inside) {
        what.settings[at++] = "checkpoint.every=1";
        what.settings[at++] = inside;
    }
    for (size_t i = 0; i < PAUSE_SETTINGS && cut->settings[i]; i++) {
        what.settings[at++] = cut->settings[i];
    }
    return what;
}

job_result pause_run_good(const pause_layout *cut, const char *inside,
                          const char *resume)
{
    job what = pause_make_job(cut, inside, resume);
    pause_remove_folder("ckpt");
    job_result result = job_run(&pause_own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%s, %s, %d ranks: %s", cut->settings[0],
                 cut->settings[1] ? cut->settings[1] : "", cut->nranks,
                 result.error);
    }
    return result;
}

void pause_check_same(const job_result *wanted, const job_result *got)
{
    assert_true(got->steps > 0 && got->steps <= wanted->steps);
    size_t before = wanted->steps - got->steps;
    for (size_t i = 0; i < got->steps; i++) {
        assert_true(wanted->loss[before + i] == got->loss[i]);
        assert_true(wanted->grad_norm[before + i] == got->grad_norm[i]);
    }
    assert_true(wanted->val_loss == got->val_loss);
    assert_int_equal(wanted->parameter_count, got->parameter_count);
    size_t bytes = got->parameter_count * sizeof(real);
    assert_memory_equal(wanted->parameters, got->parameters, bytes);
    assert_memory_equal(wanted->gradients, got->gradients, bytes);
    assert_true(got->peaks_as_planned);
}

/* A fresh job that goes on from a snapshot, and makes some itself or none. */
static void resume(const pause_layout *cut, size_t which,
                   const job_result *wanted)
{
    char dir[512];
    bool more = random_next(&pause_seed) % 2;
    pause_layout other = *cut; /* buckets may be, too */
    size_t end = 0;
    while (other.settings[end]) {
        end++;
    }
    other.settings[end] =
        random_next(&pause_seed) % 2 ? "overlap.bucket_mb=0.05" : NULL;
    snprintf(dir, sizeof(dir), "%.250s/kept_%zu", pause_own.dir, which);
    job_result got =
        pause_run_good(&other, more ? "checkpoint.inside=2" : NULL, dir);
    assert_int_equal(got.steps, PAUSE_STEPS - pause_kept[which]);
    pause_check_same(wanted, &got);
    job_result_fini(&got);
}

void pause_check_layout(const pause_layout *cut, const job_result *wanted,
                        const char *inside)
{
    pause_remove_kept();
    pause_keeps = true;
    job_result got = pause_run_good(cut, inside, NULL);
    pause_keeps = false;
    pause_check_same(wanted, &got);
    assert_int_equal(got.steps, PAUSE_STEPS);
    job_result_fini(&got);
    assert_true(pause_kept_count >= PAUSE_STEPS);
    for (size_t i = 0; pause_is_long() && i < pause_kept_count; i++) {
        resume(cut, i, wanted);
    }
    if (!pause_is_long()) { /* the last of a step, or any */
        size_t step = 1 + random_next(&pause_seed) % PAUSE_STEPS;
        size_t last = pause_kept_count / PAUSE_STEPS * step - 1;
        bool any = random_next(&pause_seed) % 2;
        resume(cut, any ? random_next(&pause_seed) % pause_kept_count : last,
               wanted);
    }
}
