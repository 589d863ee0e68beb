/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     a run that goes on from a snapshot inside a step is, bit by bit, the
 *          run that was never interrupted: every schedule, with and without
 *          data parallelism, tied embeddings, cuts before and behind the
 *          reductions. Any damaged section is named; another schedule or batch
 *          is refused by name; a disk that takes nothing ends the run. Steps go
 *          on while a snapshot is being written.
 * Method   jobs whose ranks are threads, over float and over double. Each
 *          snapshot is kept by links as soon as it has been committed (the
 *          linker sends the commit here), and one of each layout is resumed by
 *          a fresh job. WEFT_TEST_LONG: all of them.
 */
#include "tests/seed.h"
#include "tests/trainer/image.h"
#include "tests/trainer/job.h"
#include "trainer/checkpoint/checkpoint_index.h"
#include "trainer/train_step.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum { STEPS = 3, KEPT_MOST = 64 };

static scratch own;
static uint64_t seed;

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static int open_scratch(void **state)
{
    (void)state;
    seed = random_seed();
    scratch_open(&own);
    job_prepare(&own, seed);
    return 0;
}

/* One run of the model without any snapshot; all layouts have its bits. */
static job_result reference;

static int close_scratch(void **state)
{
    (void)state;
    job_result_fini(&reference);
    scratch_close(&own);
    return 0;
}

static void remove_folder(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%.250s/%.200s", own.dir, name);
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- keeping snapshots ----------------------------------------------------
 */

/* Written by rank 0's writer, read when its job has ended. */
static bool keeps;
static uint64_t kept[KEPT_MOST]; /* steps done before */
static size_t kept_count;

static void keep(const char *dir, uint64_t step)
{
    char name[64], from[512], to[512];
    scratch_require(kept_count < KEPT_MOST, "too many snapshots");
    snprintf(name, sizeof(name), "kept_%zu", kept_count);
    scratch_folder(&own, name);
    snprintf(name, sizeof(name), "kept_%zu/inside", kept_count);
    scratch_folder(&own, name);
    snprintf(name, sizeof(name), "kept_%zu/inside/step_%08u", kept_count,
             (unsigned)step);
    scratch_folder(&own, name);
    snprintf(from, sizeof(from), "%.400s/step_%08u", dir, (unsigned)step);
    snprintf(to, sizeof(to), "%.250s/%.64s", own.dir, name);
    scratch_link_all(from, to);
    kept[kept_count++] = step;
}

static void remove_kept(void)
{
    while (kept_count > 0) {
        char name[64];
        snprintf(name, sizeof(name), "kept_%zu", --kept_count);
        remove_folder(name);
    }
}

/* ---- a writer that is held up ---------------------------------------------
 */

static bool holds;       /* the first commit, until ... */
static atomic_int begun; /* ... three steps have, of two ranks */
static bool was_passed;

static void hold_commit(void)
{
    for (int ms = 0; ms < 20000 && atomic_load(&begun) < 3; ms++) {
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
    }
    was_passed = atomic_load(&begun) >= 3;
    holds = false;
}

weft_status __real_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out);
weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out);
weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    atomic_fetch_add(&begun, 1);
    return __real_wefti_train_step_run(replica, modes, times, result_out);
}

/* The linker sends the calls of the code under test here (-Wl,--wrap). */
weft_status __real_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *dir, uint64_t step,
                                           size_t keep_count);
weft_status __wrap_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *dir, uint64_t step,
                                           size_t keep_count);
weft_status __wrap_wefti_checkpoint_commit(const wefti_checkpoint_owner *owner,
                                           const char *dir, uint64_t step,
                                           size_t keep_count)
{
    weft_status status =
        __real_wefti_checkpoint_commit(owner, dir, step, keep_count);
    const char *last = strrchr(dir, '/');
    bool inside = last && strcmp(last, "/inside") == 0;
    if (keeps && status == WEFT_OK && inside) {
        keep(dir, step);
    }
    if (holds && inside) {
        hold_commit();
    }
    return status;
}

/* ---- jobs -----------------------------------------------------------------
 */

/* A layout; its settings come after the model's. */
enum { SETTINGS = 6 };

typedef struct layout {
    int nranks;
    const char *settings[SETTINGS];
} layout;

#define SCHEDULE(name) "parallel.schedule=" #name
#define CHUNKS(count)  "parallel.virtual_pipeline_model_parallel_size=" #count
#define TIED           "model.tie_embeddings=true"
#define ENCODER                                                                \
    "model.encoder_layers=2", "model.encoder_seq_length=7",                    \
        "data.encoder_path=text.txt"

/* 8 micro-batches of 68 tokens on each pipeline of 2 ranks; or 4 on each. */
static job make_job(const layout *cut, const char *inside, const char *resume)
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
    for (size_t i = 0; i < SETTINGS && cut->settings[i]; i++) {
        what.settings[at++] = cut->settings[i];
    }
    return what;
}

static job_result run_good(const layout *cut, const char *inside,
                           const char *resume)
{
    job what = make_job(cut, inside, resume);
    remove_folder("ckpt");
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%s, %d ranks: %s", cut->settings[0], cut->nranks,
                 result.error);
    }
    return result;
}

/* The steps of got are the last ones of wanted. */
static void check_same(const job_result *wanted, const job_result *got)
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
static void resume(const layout *cut, size_t which, const job_result *wanted)
{
    char dir[512];
    bool more = random_next(&seed) % 2;
    layout other = *cut; /* buckets may be, too */
    size_t free_one = 0;
    while (cut->settings[free_one]) {
        free_one++;
    }
    other.settings[free_one] =
        random_next(&seed) % 2 ? "overlap.bucket_mb=0.05" : NULL;
    snprintf(dir, sizeof(dir), "%.250s/kept_%zu", own.dir, which);
    job_result got = run_good(&other, more ? "checkpoint.inside=2" : NULL, dir);
    assert_int_equal(got.steps, STEPS - kept[which]);
    check_same(wanted, &got);
    job_result_fini(&got);
}

static void check_layout(const layout *cut, const job_result *wanted,
                         const char *inside)
{
    remove_kept();
    keeps = true;
    job_result got = run_good(cut, inside, NULL);
    keeps = false;
    check_same(wanted, &got);
    assert_int_equal(got.steps, STEPS);
    job_result_fini(&got);
    assert_true(kept_count >= STEPS);
    for (size_t i = 0; is_long() && i < kept_count; i++) {
        resume(cut, i, wanted);
    }
    if (!is_long()) { /* the last of a step, or any */
        size_t step = 1 + random_next(&seed) % STEPS;
        size_t last = kept_count / STEPS * step - 1;
        bool any = random_next(&seed) % 2;
        resume(cut, any ? random_next(&seed) % kept_count : last, wanted);
    }
}

static const layout schedules[] = {{2, {SCHEDULE(1f1b)}},
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
        reference = run_good(&schedules[0], NULL, NULL);
    }
}

static void test_pause_in_each_schedule_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    run_reference();
    /* Over double, or where it takes long, every other one. */
    size_t by = job_is_slow() || (sizeof(real) == 8 && !is_long()) ? 2 : 1;
    for (size_t i = random_next(&seed) % by;
         i < sizeof(schedules) / sizeof(*schedules); i += by) {
        check_layout(&schedules[i], &reference,
                     random_next(&seed) % 2 ? "checkpoint.inside=5"
                                            : "checkpoint.inside=4");
    }
}

/* Reductions over the copies, some of them before a cut and some behind it. */
static void test_pause_of_two_copies_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    const layout layouts[] = {{4, {SCHEDULE(zb_h1)}},
                              {4, {SCHEDULE(dualpipe)}},
                              {4, {SCHEDULE(zbv)}},
                              {4, {SCHEDULE(interleaved), CHUNKS(2)}}};
    run_reference();
    for (size_t i = 0; i < (is_long() ? 4 : 2); i++) {
        check_layout(&layouts[i], &reference, "checkpoint.inside=9");
    }
}

/* Buckets are under way behind the last backward. */
static void test_pause_without_a_pipeline_goes_on(void **state)
{
    (void)state;
    const layout layouts[] = {{2, {"parallel.pipeline_model_parallel_size=1"}},
                              {1, {"parallel.pipeline_model_parallel_size=1"}}};
    run_reference();
    for (size_t i = 0; i < 2; i++) {
        check_layout(&layouts[i], &reference, "checkpoint.inside=9");
    }
}

/* Two sums of one embedding; messages of two lengths. */
static void test_pause_of_other_models_goes_on(void **state)
{
    (void)state;
    const layout layouts[] = {{2, {SCHEDULE(zbv), TIED}},
                              {2, {SCHEDULE(interleaved), ENCODER}},
                              {2, {SCHEDULE(1f1b), TIED}},
                              {2, {SCHEDULE(zbv), ENCODER}},
                              {4, {SCHEDULE(dualpipe), TIED}}};
    for (size_t i = 0; i < (is_long() ? 5 : sizeof(real) == 8 ? 0 : 2); i++) {
        job_result wanted = run_good(&layouts[i], NULL, NULL);
        check_layout(&layouts[i], &wanted, "checkpoint.inside=5");
        job_result_fini(&wanted);
    }
}

/* Both ranks have begun a step, and at least one the next. */
static void test_pause_is_written_beside_the_steps(void **state)
{
    (void)state;
    run_reference();
    job what = make_job(&schedules[0], "checkpoint.inside=1", NULL);
    what.settings[6] = "checkpoint.every=1000";
    remove_folder("ckpt");
    atomic_store(&begun, 0);
    was_passed = false;
    holds = true;
    job_result got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_OK);
    assert_true(was_passed);
    check_same(&reference, &got);
    job_result_fini(&got);
}

/* ---- what is refused ------------------------------------------------------
 */

static void check_refused(const job *what, weft_status status,
                          const char *const *words)
{
    job_result got = job_run(&own, what);
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
    layout cut = schedules[0];
    remove_kept();
    keeps = true;
    job_result got = run_good(&cut, "checkpoint.inside=1", NULL);
    keeps = false;
    job_result_fini(&got);
    snprintf(dir, sizeof(dir), "%.250s/kept_1", own.dir);
    cut.settings[0] = SCHEDULE(zb_h1);
    job what = make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"1f1b", "zb_h1", "same schedule", NULL});
    cut.settings[0] = SCHEDULE(zbv); /* other stages */
    what = make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"1f1b", "zbv", "same schedule", NULL});
    cut.settings[0] = SCHEDULE(1f1b);
    cut.settings[1] = "train.global_batch_size=64";
    what = make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"same schedule and batch", "64", NULL});
    cut.settings[1] = "parallel.pipeline_model_parallel_size=1";
    what = make_job(&cut, NULL, dir);
    check_refused(&what, WEFT_ERR_INVALID,
                  (const char *[]){"1f1b", "has no pipeline", NULL});
    cut.settings[1] = NULL;
    cut.nranks = 4;
    what = make_job(&cut, NULL, dir);
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
    what = make_job(&schedules[0], NULL, NULL);
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
    image text = image_load(&own, "ckpt/inside/step_00000002/index.json");
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
        size_t at = (size_t)section->at_bytes + random_next(&seed) % bytes;
        file->bytes[at] ^= 4;
        image_store(file, file->count);
        file->bytes[at] ^= 4;
        check_found(dir, &done, section->piece.name);
        damaged++;
    }
    wefti_checkpoint_index_fini(&index);
    for (int i = 0; i < 5; i++) {
        image_store(file, 1 + random_next(&seed) % (file->count - 1));
        check_found(dir, &done, "rank_00001.safetensors");
    }
    return damaged;
}

static void test_pause_damaged_is_named_with_the_older_step(void **state)
{
    (void)state;
    char dir[512], inside[640], name[128];
    remove_kept();
    keeps = true;
    job_result got = run_good(&schedules[3], "checkpoint.inside=1", NULL);
    keeps = false;
    job_result_fini(&got);
    assert_int_equal(kept_count, STEPS);
    /* As if the run had been killed in its last step. */
    snprintf(dir, sizeof(dir), "%.250s/ckpt", own.dir);
    snprintf(inside, sizeof(inside), "%.500s/inside", dir);
    remove_folder("ckpt/step_00000003");
    scratch_folder(&own, "ckpt/inside/step_00000002");
    char kept_step[512], placed[512];
    snprintf(kept_step, sizeof(kept_step), "%.250s/kept_2/inside/step_00000002",
             own.dir);
    snprintf(placed, sizeof(placed), "%.250s/ckpt/inside/step_00000002",
             own.dir);
    scratch_link_all(kept_step, placed);
    snprintf(name, sizeof(name),
             "ckpt/inside/step_00000002/rank_00001.safetensors");
    image file = image_load(&own, name);
    assert_true(damage_sections(inside, &file) > 15);
    job what = make_job(&schedules[3], NULL, dir);
    const char *const words[] = {
        "step 2 there is complete",
        "remove the folder inside/step_00000002 to go on", NULL};
    job_result bad = job_run(&own, &what);
    assert_int_not_equal(bad.status, WEFT_OK);
    job_result_fini(&bad);
    /* The rank whose file it is says so. */
    image_store(&file, file.count / 2);
    image first =
        image_load(&own, "ckpt/inside/step_00000002/rank_00000.safetensors");
    image_store(&first, first.count / 2);
    check_refused(&what, WEFT_ERR_INVALID, words);
    /* And whole again. */
    image_store(&first, first.count);
    image_store(&file, file.count);
    run_reference();
    got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_OK);
    assert_int_equal(got.steps, 1);
    check_same(&reference, &got);
    job_result_fini(&got);
    free(first.bytes);
    free(file.bytes);
}

/* Rank 0's file of the snapshot inside step 2 that was kept as number from
 * takes the place of the one in number into, and what is said of that. */
static void check_mixed(size_t into, size_t from, const char *word)
{
    char dir[512], name[96];
    assert_true(kept[into] == 1 && kept[from] == 1);
    snprintf(name, sizeof(name),
             "kept_%zu/inside/step_00000001/rank_00000.safetensors", from);
    image file = image_load(&own, name);
    snprintf(dir, sizeof(dir), "%.250s/kept_%zu", own.dir, into);
    snprintf(file.path, sizeof(file.path), "%.300s/%s", dir,
             "inside/step_00000001/rank_00000.safetensors");
    (void)unlink(file.path); /* a link to the run's own */
    image_store(&file, file.count);
    free(file.bytes);
    job what = make_job(&schedules[5], NULL, dir);
    job_result got = job_run(&own, &what);
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
    remove_kept();
    keeps = true;
    for (int i = 0; i < 2; i++) {
        job_result one = run_good(&schedules[5], "checkpoint.inside=3", NULL);
        job_result_fini(&one);
        other = i == 0 ? kept_count : other;
    }
    keeps = false;
    check_mixed(3, 4, "header: is not the one that the index speaks of");
    check_mixed(5, 5 + other, "put together from both");
}

/* Where the folder should be stands a file. */
static void test_pause_that_cannot_be_written_ends_the_run(void **state)
{
    (void)state;
    job what = make_job(&schedules[0], "checkpoint.inside=2", NULL);
    remove_folder("ckpt");
    scratch_folder(&own, "ckpt");
    scratch_text(&own, "ckpt/inside", "in the way");
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
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
