/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a run that goes on from a snapshot inside a step is, bit by bit, the
 *          run that was never interrupted: every schedule, with and without
 *          data parallelism, tied embeddings, cuts before and behind the
 *          reductions. Any damaged section is named; another schedule or batch
 *          is refused by name; a disk that takes nothing ends the run. Steps go
 *          on while a snapshot is being written.
 * Method   jobs whose ranks are threads, over float and over double. Each
 *          snapshot is kept as soon as it has been committed (pause_job.h), and
 *          one of each layout is resumed by a fresh job. WEFT_TEST_LONG: all of
 *          them.
 */
#include "tests/seed.h"
#include "tests/trainer/image.h"
#include "tests/trainer/pause_job.h"
#include "trainer/checkpoint/checkpoint_index.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* One run of the model without any snapshot; all layouts have its bits. */
static job_result reference;

static int close_all(void **state)
{
    job_result_fini(&reference);
    return pause_close(state);
}

static const pause_layout schedules[] = {
    {2, {SCHEDULE(1f1b)}},
    {2, {SCHEDULE(gpipe)}},
    {2, {SCHEDULE(interleaved), CHUNKS(2)}},
    {2, {SCHEDULE(zb_h1)}},
    {2, {SCHEDULE(zb_h2)}},
    {2, {SCHEDULE(zbv)}},
    {2, {SCHEDULE(dualpipe)}},
    {2, {SCHEDULE(dualpipev)}}};

static void run_reference(void)
{
    if (!reference.parameters) {
        reference = pause_run_good(&schedules[0], NULL, NULL);
    }
}

static void test_pause_in_each_schedule_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    run_reference();
    /* Over double, or where it takes long, every other one. */
    size_t by =
        job_is_slow() || (sizeof(real) == 8 && !pause_is_long()) ? 2 : 1;
    for (size_t i = random_next(&pause_seed) % by;
         i < sizeof(schedules) / sizeof(*schedules); i += by) {
        pause_check_layout(&schedules[i], &reference,
                           random_next(&pause_seed) % 2
                               ? "checkpoint.inside=5"
                               : "checkpoint.inside=4");
    }
}

/* Reductions over the copies, some of them before a cut and some behind it. */
static void test_pause_of_two_copies_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    const pause_layout layouts[] = {{4, {SCHEDULE(zb_h1)}},
                                    {4, {SCHEDULE(dualpipe)}},
                                    {4, {SCHEDULE(zbv)}},
                                    {4, {SCHEDULE(interleaved), CHUNKS(2)}}};
    run_reference();
    for (size_t i = 0; i < (pause_is_long() ? 4 : 2); i++) {
        pause_check_layout(&layouts[i], &reference, "checkpoint.inside=9");
    }
}

/* Buckets are under way behind the last backward. */
static void test_pause_without_a_pipeline_goes_on(void **state)
{
    (void)state;
    const pause_layout layouts[] = {
        {2, {"parallel.pipeline_model_parallel_size=1"}},
        {1, {"parallel.pipeline_model_parallel_size=1"}}};
    run_reference();
    for (size_t i = 0; i < 2; i++) {
        pause_check_layout(&layouts[i], &reference, "checkpoint.inside=9");
    }
}

/* Two sums of one embedding; messages of two lengths. */
static void test_pause_of_other_models_goes_on(void **state)
{
    (void)state;
    const pause_layout layouts[] = {{2, {SCHEDULE(zbv), TIED}},
                                    {2, {SCHEDULE(interleaved), ENCODER}},
                                    {2, {SCHEDULE(1f1b), TIED}},
                                    {2, {SCHEDULE(zbv), ENCODER}},
                                    {4, {SCHEDULE(dualpipe), TIED}}};
    for (size_t i = 0; i < (pause_is_long()     ? 5
                            : sizeof(real) == 8 ? 0
                                                : 2);
         i++) {
        job_result wanted = pause_run_good(&layouts[i], NULL, NULL);
        pause_check_layout(&layouts[i], &wanted, "checkpoint.inside=5");
        job_result_fini(&wanted);
    }
}

/* Both ranks have begun a step, and at least one the next. */
static void test_pause_is_written_beside_the_steps(void **state)
{
    (void)state;
    run_reference();
    job what = pause_make_job(&schedules[0], "checkpoint.inside=1", NULL);
    what.settings[6] = "checkpoint.every=1000";
    pause_remove_folder("ckpt");
    atomic_store(&pause_begun, 0);
    pause_was_passed = false;
    pause_holds = true;
    job_result got = job_run(&pause_own, &what);
    assert_int_equal(got.status, WEFT_OK);
    assert_true(pause_was_passed);
    pause_check_same(&reference, &got);
    job_result_fini(&got);
}

/* ---- what is refused ------------------------------------------------------
 */

static void check_refused(const job *what, weft_status status,
                          const char *const *words)
{
    job_result got = job_run(&pause_own, what);
    assert_int_equal(got.status, status);
    for (; *words; words++) {
        if (!strstr(got.error, *words)) {
            fail_msg("\"%s\" does not say %s", got.error, *words);
        }
    }
    job_result_fini(&got);
}

static void test_pause_resumed_otherwise_is_refused_by_name(void **state)
{
    (void)state;
    char dir[512];
    pause_layout cut = schedules[0];
    pause_remove_kept();
    pause_keeps = true;
    job_result got = pause_run_good(&cut, "checkpoint.inside=1", NULL);
    pause_keeps = false;
    job_result_fini(&got);
    snprintf(dir, sizeof(dir), "%.250s/kept_1", pause_own.dir);
    cut.settings[0] = SCHEDULE(zb_h1);
    job what = pause_make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"1f1b", "zb_h1", "same schedule", NULL});
    cut.settings[0] = SCHEDULE(zbv); /* other stages */
    what = pause_make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"1f1b", "zbv", "same schedule", NULL});
    cut.settings[0] = SCHEDULE(1f1b);
    cut.settings[1] = "train.global_batch_size=64";
    what = pause_make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"same schedule and batch", "64", NULL});
    cut.settings[1] = "parallel.pipeline_model_parallel_size=1";
    what = pause_make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"1f1b", "has no pipeline", NULL});
    cut.settings[1] = NULL;
    cut.nranks = 4;
    what = pause_make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"of 2 ranks", "has 4", NULL});
}

static void test_pause_asked_for_in_vain_is_refused_at_its_place(void **state)
{
    (void)state;
    job what = {.nranks = 1,
                .settings = {"checkpoint.every=1", "checkpoint.inside=2",
                             "train.elastic=true"}};
    const char *words[] = {"--set checkpoint.inside=2", "train.elastic", NULL};
    check_refused(&what, WEFT_ERR_INVALID, words);
    what = pause_make_job(&schedules[0], NULL, NULL);
    what.settings[6] = "checkpoint.inside=2";
    words[1] = "checkpoint.every";
    check_refused(&what, WEFT_ERR_INVALID, words);
}

/* ---- damage ---------------------------------------------------------------
 */

/* Whether the step, as it is now, is found damaged where it is. */
static void check_found(const char *dir, const wefti_checkpoint_done *done,
                        const char *word)
{
    wefti_checkpoint_reader *reader = NULL;
    weft_status status = wefti_checkpoint_reader_open(dir, done, &reader);
    if (status == WEFT_OK) {
        status = wefti_checkpoint_reader_check(reader);
    }
    wefti_checkpoint_reader_close(reader);
    assert_int_equal(status, WEFT_ERR_INVALID);
    if (!strstr(weft_error_text(), word)) {
        fail_msg("\"%s\" does not say %s", weft_error_text(), word);
    }
}

/* A byte of each section of rank 1's file, one after the other. Returns how
 * many. */
static size_t damage_sections(const char *dir, image *file)
{
    wefti_checkpoint_done done;
    wefti_checkpoint_index index;
    size_t damaged = 0;
    image text = image_load(&pause_own, "ckpt/inside/step_00000002/index.json");
    assert_int_equal(wefti_checkpoint_read_done(dir, 2, &done), WEFT_OK);
    assert_int_equal(wefti_checkpoint_index_unpack(
                         text.path, (char *)text.bytes, text.count, &index),
                     WEFT_OK);
    for (size_t i = 0; i < index.count; i++) {
        const wefti_checkpoint_section *section = &index.sections[i];
        if (section->file != 1) {
            continue;
        }
        size_t bytes = (size_t)section->piece.elems *
                       weft_dtype_bytes(section->piece.dtype);
        size_t at =
            (size_t)section->at_bytes + random_next(&pause_seed) % bytes;
        file->bytes[at] ^= 4;
        image_store(file, file->count);
        file->bytes[at] ^= 4;
        check_found(dir, &done, section->piece.name);
        damaged++;
    }
    wefti_checkpoint_index_fini(&index);
    for (int i = 0; i < 5; i++) {
        image_store(file, 1 + random_next(&pause_seed) % (file->count - 1));
        check_found(dir, &done, "rank_00001.safetensors");
    }
    return damaged;
}

static void test_pause_damaged_is_named_with_the_older_step(void **state)
{
    (void)state;
    char dir[512], inside[640], name[128];
    pause_remove_kept();
    pause_keeps = true;
    job_result got = pause_run_good(&schedules[3], "checkpoint.inside=1", NULL);
    pause_keeps = false;
    job_result_fini(&got);
    assert_int_equal(pause_kept_count, PAUSE_STEPS);
    /* As if the run had been killed in its last step. */
    snprintf(dir, sizeof(dir), "%.250s/ckpt", pause_own.dir);
    snprintf(inside, sizeof(inside), "%.500s/inside", dir);
    pause_remove_folder("ckpt/step_00000003");
    scratch_folder(&pause_own, "ckpt/inside/step_00000002");
    char kept_step[512], placed[512];
    snprintf(kept_step, sizeof(kept_step), "%.250s/kept_2/inside/step_00000002",
             pause_own.dir);
    snprintf(placed, sizeof(placed), "%.250s/ckpt/inside/step_00000002",
             pause_own.dir);
    scratch_link_all(kept_step, placed);
    snprintf(name, sizeof(name),
             "ckpt/inside/step_00000002/rank_00001.safetensors");
    image file = image_load(&pause_own, name);
    assert_true(damage_sections(inside, &file) > 15);
    job what = pause_make_job(&schedules[3], NULL, dir);
    const char *const words[] = {
        "step 2 there is complete",
        "remove the folder inside/step_00000002 to go on", NULL};
    job_result bad = job_run(&pause_own, &what);
    assert_int_not_equal(bad.status, WEFT_OK);
    job_result_fini(&bad);
    /* The rank whose file it is says so. */
    image_store(&file, file.count / 2);
    image first = image_load(
        &pause_own, "ckpt/inside/step_00000002/rank_00000.safetensors");
    image_store(&first, first.count / 2);
    check_refused(&what, WEFT_ERR_INVALID, words);
    /* And whole again. */
    image_store(&first, first.count);
    image_store(&file, file.count);
    run_reference();
    got = job_run(&pause_own, &what);
    assert_int_equal(got.status, WEFT_OK);
    assert_int_equal(got.steps, 1);
    pause_check_same(&reference, &got);
    job_result_fini(&got);
    free(first.bytes);
    free(file.bytes);
}

/* Rank 0's file of the snapshot inside step 2 that was kept as number from
 * takes the place of the one in number into, and what is said of that. */
static void check_mixed(size_t into, size_t from, const char *word)
{
    char dir[512], name[96];
    assert_true(pause_kept[into] == 1 && pause_kept[from] == 1);
    snprintf(name, sizeof(name),
             "kept_%zu/inside/step_00000001/rank_00000.safetensors", from);
    image file = image_load(&pause_own, name);
    snprintf(dir, sizeof(dir), "%.250s/kept_%zu", pause_own.dir, into);
    snprintf(file.path, sizeof(file.path), "%.300s/%s", dir,
             "inside/step_00000001/rank_00000.safetensors");
    (void)unlink(file.path); /* a link to the run's own */
    image_store(&file, file.count);
    free(file.bytes);
    job what = pause_make_job(&schedules[5], NULL, dir);
    job_result got = job_run(&pause_own, &what);
    assert_int_equal(got.status, strstr(word, "failed") ? WEFT_ERR_SYSTEM
                                                        : WEFT_ERR_INVALID);
    if (!strstr(got.error, word)) {
        fail_msg("%s", got.error);
    }
    job_result_fini(&got);
}

/* Sound files of one step, but not of one moment, or not of one run. */
static void test_pause_of_two_moments_or_runs_is_refused(void **state)
{
    (void)state;
    size_t other = 0;
    pause_remove_kept();
    pause_keeps = true;
    for (int i = 0; i < 2; i++) {
        job_result one =
            pause_run_good(&schedules[5], "checkpoint.inside=3", NULL);
        job_result_fini(&one);
        other = i == 0 ? pause_kept_count : other;
    }
    pause_keeps = false;
    check_mixed(3, 4, "header: is not the one that the index speaks of");
    check_mixed(5, 5 + other, "put together from both");
}

/* Where the folder should be stands a file. */
static void test_pause_that_cannot_be_written_ends_the_run(void **state)
{
    (void)state;
    job what = pause_make_job(&schedules[0], "checkpoint.inside=2", NULL);
    pause_remove_folder("ckpt");
    scratch_folder(&pause_own, "ckpt");
    scratch_text(&pause_own, "ckpt/inside", "in the way");
    check_refused(&what, WEFT_ERR_SYSTEM, (const char *[]){"inside", NULL});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            test_pause_in_each_schedule_goes_on_with_the_same_bits),
        cmocka_unit_test(test_pause_of_two_copies_goes_on_with_the_same_bits),
        cmocka_unit_test(test_pause_without_a_pipeline_goes_on),
        cmocka_unit_test(test_pause_of_other_models_goes_on),
        cmocka_unit_test(test_pause_is_written_beside_the_steps),
        cmocka_unit_test(test_pause_resumed_otherwise_is_refused_by_name),
        cmocka_unit_test(test_pause_asked_for_in_vain_is_refused_at_its_place),
        cmocka_unit_test(test_pause_damaged_is_named_with_the_older_step),
        cmocka_unit_test(test_pause_of_two_moments_or_runs_is_refused),
        cmocka_unit_test(test_pause_that_cannot_be_written_ends_the_run),
    };
    return cmocka_run_group_tests(tests, pause_open, close_all);
}
