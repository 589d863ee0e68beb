/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a resumed run is, bit by bit, the run that was never interrupted,
 *          whatever the moment it was killed at; what may not be resumed is
 *          refused by name and nothing else breaks.
 * Method   a job of two ranks in a child process, killed with SIGKILL at random
 *          times (3; WEFT_TEST_LONG: 20) between its first and its last save,
 * then resumed to its end and compared with an undisturbed one. How far the
 *          killed runs had got is printed.
 */
#include "base/clock.h"
#include "tests/seed.h"
#include "tests/trainer/child.h"
#include "trainer/checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#define STEPS "train.steps=30"
enum { LAST = 30 };

static scratch own;
static uint64_t seed;

static int open_scratch(void **state)
{
    (void)state;
    seed = random_seed();
    scratch_open(&own);
    job_prepare(&own, seed);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

static job saving_job(void)
{
    return (job){.nranks = 2,
                 .settings = {STEPS, "checkpoint.every=3", "checkpoint.keep=2",
                              "train.micro_batch_size=16"}};
}

static void remove_checkpoints(void)
{
    char command_path[512];
    snprintf(command_path, sizeof(command_path), "%.250s/ckpt", own.dir);
    nftw(command_path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static ending run_whole(const job *what)
{
    return child_run(&own, what);
}

static void assert_same(const ending *a, const ending *b)
{
    if (b->status != WEFT_OK) {
        print_error("resumed: %s\n", b->error);
    }
    assert_int_equal(b->status, WEFT_OK);
    assert_true(a->loss == b->loss);
    assert_true(a->val_loss == b->val_loss);
    assert_true(a->parameters == b->parameters);
}

/* The newest complete step, 0 where there is none. */
static uint64_t newest_step(void)
{
    uint64_t *steps, newest = 0;
    size_t count;
    char dir[512];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    assert_int_equal(wefti_checkpoint_list(dir, &steps, &count), WEFT_OK);
    if (count) {
        newest = steps[0];
    }
    free(steps);
    return newest;
}

/*
 * Lets the job run for a random time up to usual_ns and kills it;
 * again from the start, until it has saved something and left work to do.
 */
static uint64_t kill_somewhere(int64_t usual_ns)
{
    uint64_t saved = 0;
    for (int tries = 0; (saved == 0 || saved == LAST) && tries < 50; tries++) {
        remove_checkpoints();
        job what = saving_job();
        child_kill_after(&own, &what,
                         (int64_t)(random_next(&seed) % (uint64_t)usual_ns));
        saved = newest_step();
    }
    return saved;
}

static void test_resume_after_kill_gives_the_same_bits(void **state)
{
    (void)state;
    int kills = getenv("WEFT_TEST_LONG") ? 20 : 3;
    char dir[512];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    remove_checkpoints();
    job what = saving_job();
    int64_t before_ns = wefti_clock_ns();
    ending wanted = run_whole(&what);
    /* The second half is mostly the summary, where nothing more is saved. */
    int64_t usual_ns = (wefti_clock_ns() - before_ns) / 2;
    assert_int_equal(wanted.status, WEFT_OK);
    for (int i = 0; i < kills; i++) {
        uint64_t saved = kill_somewhere(usual_ns);
        print_message("kill %d: step %u of 30 was saved\n", i, (unsigned)saved);
        assert_true(saved > 0 && saved < LAST);
        job rest = saving_job();
        rest.resume = dir;
        ending resumed = run_whole(&rest);
        assert_int_equal(resumed.steps, LAST - saved);
        assert_same(&wanted, &resumed);
    }
}

/* After the test above: a complete run's checkpoints are there. */
static void save_all(void)
{
    job what = saving_job();
    remove_checkpoints();
    assert_int_equal(run_whole(&what).status, WEFT_OK);
    assert_int_equal(newest_step(), 30);
}

static void check_refused(const job *what, const char *word)
{
    ending end = run_whole(what);
    assert_int_equal(end.status, WEFT_ERR_INVALID);
    if (!strstr(end.error, word)) {
        print_error("\"%s\" does not say %s\n", end.error, word);
    }
    assert_non_null(strstr(end.error, word));
    assert_int_equal(newest_step(), 30);
}

static void test_resume_other_model_is_refused_by_name(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    save_all();
    job what = saving_job();
    what.resume = dir;
    what.settings[4] = "model.hidden_size=48";
    check_refused(&what, "another model");
    what = saving_job();
    what.resume = own.dir;
    check_refused(&what, "no complete checkpoint");
}

static void test_resume_corrupt_newest_names_the_older_one(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    save_all();
    FILE *file = fopen(
        scratch_path(&own, "ckpt/step_00000030/rank_00000.safetensors"), "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, 3000, SEEK_SET), 0);
    int byte = fgetc(file);
    assert_int_equal(fseek(file, 3000, SEEK_SET), 0);
    fputc(byte ^ 1, file);
    fclose(file);
    job what = saving_job();
    what.resume = dir;
    check_refused(&what, "step 27 there is complete");
}

static void test_resume_no_steps_left_generates_the_same(void **state)
{
    (void)state;
    char dir[512];
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    save_all();
    job what = {.nranks = 2,
                .settings = {"train.steps=0"},
                .resume = dir,
                .generate = "a loom"};
    ending end = run_whole(&what);
    job whole = saving_job();
    ending wanted = run_whole(&whole);
    assert_int_equal(end.status, WEFT_OK);
    assert_int_equal(end.steps, 0);
    assert_true(end.parameters == wanted.parameters);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resume_after_kill_gives_the_same_bits),
        cmocka_unit_test(test_resume_other_model_is_refused_by_name),
        cmocka_unit_test(test_resume_corrupt_newest_names_the_older_one),
        cmocka_unit_test(test_resume_no_steps_left_generates_the_same),
    };
    /* oneDNN would write its kernels anew in each child. */
    setenv("WEFT_ONEDNN", "off", 1);
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
