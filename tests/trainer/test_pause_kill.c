/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a pipeline that was killed at any moment, all of it at once, goes on
 *          from its newest snapshot, inside a step or after one, to the very
 *          bits of an undisturbed run.
 * Method   jobs of two ranks in a child process, each of another schedule,
 *          killed with SIGKILL at random times (3; WEFT_TEST_LONG: 100) while
 *          they save, resumed and killed again in half of the cases, and then
 *          resumed to their end. Where they stood is printed, and that some
 *          stood inside a step is asked for over 100 kills.
 */
#include "base/clock.h"
#include "tests/seed.h"
#include "tests/trainer/child.h"
#include "trainer/checkpoint/checkpoint.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { LAST = 12 };

static scratch own;
static uint64_t seed;
static char dir[512];

static int open_scratch(void **state)
{
    (void)state;
    seed = random_seed();
    scratch_open(&own);
    job_prepare(&own, seed);
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

static job make_job(const char *schedule, const char *resume)
{
    return (job){.nranks = 2,
                 .resume = resume,
                 .settings = {"model.layers=4", "train.steps=12",
                              "train.micro_batch_size=4",
                              "train.validate_every=6", "checkpoint.every=4",
                              "checkpoint.keep=2", "checkpoint.inside=3",
                              "parallel.pipeline_model_parallel_size=2",
                              schedule,
                              strstr(schedule, "interleaved")
                                  ? "parallel.virtual_pipeline_model_parallel_"
                                    "size=2"
                                  : NULL}};
}

/* The newest complete step in a folder; -1: there is none. */
static int64_t newest_step(const char *folder)
{
    uint64_t *steps;
    size_t count;
    assert_int_equal(wefti_checkpoint_list(folder, &steps, &count), WEFT_OK);
    int64_t newest = count ? (int64_t)steps[0] : -1;
    free(steps);
    return newest;
}

/* Steps done, or -1; inside_out: the newest snapshot is of the one after. */
static int64_t read_state(bool *inside_out)
{
    char inside[640];
    snprintf(inside, sizeof(inside), "%.500s/inside", dir);
    int64_t between = newest_step(dir), within = newest_step(inside);
    *inside_out = within >= 0 && within >= between;
    return *inside_out ? within : between;
}

/* Kills a job until it has saved something and left work to do. */
static int64_t kill_somewhere(const char *schedule, int64_t usual_ns,
                              bool *inside_out)
{
    int64_t done = -1;
    for (int tries = 0; (done < 0 || done == LAST) && tries < 50; tries++) {
        nftw(dir, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
        job what = make_job(schedule, NULL);
        child_kill_after(&own, &what,
                         (int64_t)(random_next(&seed) % (uint64_t)usual_ns));
        done = read_state(inside_out);
    }
    assert_true(done >= 0 && done < LAST);
    return done;
}

static const char *const schedules[] = {
    "parallel.schedule=zbv",      "parallel.schedule=1f1b",
    "parallel.schedule=dualpipe", "parallel.schedule=interleaved",
    "parallel.schedule=zb_h2",    "parallel.schedule=dualpipev",
    "parallel.schedule=gpipe",    "parallel.schedule=zb_h1"};

/* All schedules have the same bits; the first job also measures the time. */
static void test_pause_killed_anywhere_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    int kills = getenv("WEFT_TEST_LONG") ? 100 : 3, stood_inside = 0;
    job what = make_job(schedules[0], NULL);
    int64_t before_ns = wefti_clock_ns();
    ending wanted = child_run(&own, &what);
    int64_t usual_ns = wefti_clock_ns() - before_ns;
    assert_int_equal(wanted.status, WEFT_OK);
    size_t first = random_next(&seed) % 8;
    for (int i = 0; i < kills; i++) {
        bool inside;
        const char *schedule = schedules[(first + (size_t)i) % 8];
        int64_t done = kill_somewhere(schedule, usual_ns, &inside);
        what = make_job(schedule, dir);
        if (random_next(&seed) % 2) {
            child_kill_after(
                &own, &what,
                (int64_t)(random_next(&seed) % (uint64_t)usual_ns));
            bool later_inside;
            int64_t later = read_state(&later_inside);
            assert_true(later >= done);
            done = later;
            inside = later_inside;
        }
        stood_inside += inside;
        print_message("kill %d: %s: %d steps done%s\n", i, schedule, (int)done,
                      inside ? ", and a part of one" : "");
        ending end = child_run(&own, &what);
        if (end.status != WEFT_OK) {
            fail_msg("resumed: %s", end.error);
        }
        assert_int_equal(end.steps, LAST - done);
        assert_true(done == LAST || end.loss == wanted.loss);
        assert_true(end.parameters == wanted.parameters);
    }
    print_message("%d of %d stood inside a step\n", stood_inside, kills);
    assert_true(kills < 100 || stood_inside > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pause_killed_anywhere_goes_on_with_the_same_bits),
    };
    /* oneDNN would write its kernels anew in each child. */
    setenv("WEFT_ONEDNN", "off", 1);
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
