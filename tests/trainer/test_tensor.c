/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     ranks that share each layer train as one rank does: alone, beside
 *          copies, in pipelines, sharing sequences too; with the residual's
 * rows shared and whole, with exchanges beside compute and in its order, which
 * changes no bit; tied embeddings, validation, generated text. A checkpoint
 * goes on under any other number of them. What cannot be shared is refused with
 * the nearest that can. Method   jobs whose ranks are threads; losses, norms,
 * gradients and parameters are compared with a single rank's, within 1e-5 over
 * 20 steps (float) and 1e-9 (double).
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static scratch own;
static job_result single, brief; /* one rank's steps, and fewer of them */

static int open_scratch(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    job_result_fini(&single);
    job_result_fini(&brief);
    scratch_close(&own);
    return 0;
}

#define TP(ranks)      "parallel.tensor_model_parallel_size=" #ranks
#define PP(ranks)      "parallel.pipeline_model_parallel_size=" #ranks
#define CHUNKS(count)  "parallel.virtual_pipeline_model_parallel_size=" #count
#define SCHEDULE(name) "parallel.schedule=" #name
#define CONTEXT(ranks) "parallel.context_parallel_size=" #ranks
#define LAYOUT(name)   "parallel.context_layout=" #name
#define ULYSSES        "parallel.context_parallel=ulysses"
#define ROWS           "parallel.sequence_parallel=true"
#define TIED           "model.tie_embeddings=true"

enum { OWN_SETTINGS = 6, EXPORT_BYTES = 1 << 22 };

/* A layout; its settings come after the model's. */
typedef struct tensor_layout {
    int nranks;
    const char *settings[OWN_SETTINGS];
} tensor_layout;

static job make_job(const tensor_layout *cut, const char *const *more)
{
    job what = {.nranks = cut->nranks,
                .generate = "we",
                .settings = {"model.layers=4", "model.kv_heads=4",
                             JOB_TOKENS(20, 8), "train.steps=20",
                             "train.micro_batch_size=4",
                             "train.global_batch_size=16",
                             "train.validate_every=10", "generate.bytes=12"}};
    size_t at = 8;
    for (size_t i = 0; i < OWN_SETTINGS && cut->settings[i]; i++) {
        what.settings[at++] = cut->settings[i];
    }
    for (size_t i = 0; more && more[i]; i++) {
        what.settings[at++] = more[i];
    }
    return what;
}

static job_result run_good(const tensor_layout *cut, const char *const *more)
{
    job what = make_job(cut, more);
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks, %s: %s", cut->nranks,
                 cut->settings[0] ? cut->settings[0] : "", result.error);
    }
    return result;
}

static const tensor_layout one = {1, {NULL}};

static double distance(const real *a, const real *b, size_t count)
{
    double apart = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        apart += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
        size += (double)a[i] * (double)a[i];
    }
    return sqrt(apart / size);
}

static void check_near(double got, double wanted, double near)
{
    if (!(fabs(got - wanted) <= near * fabs(wanted))) {
        fail_msg("%.9g is not %.9g", got, wanted);
    }
}

static void check_alike(const job_result *want, const job_result *got)
{
    const double near = sizeof(real) == 8 ? 1e-10 : 1e-5;
    assert_int_equal(want->steps, got->steps);
    for (size_t i = 0; i < want->steps; i++) {
        check_near(got->loss[i], want->loss[i], near);
        check_near(got->grad_norm[i], want->grad_norm[i], 10 * near);
    }
    check_near(got->val_loss, want->val_loss, near);
    assert_int_equal(want->parameter_count, got->parameter_count);
    assert_true(distance(want->parameters, got->parameters,
                         want->parameter_count) < 10 * near);
    assert_int_equal(want->printed_bytes, got->printed_bytes);
    assert_true(got->peaks_as_planned);
    assert_true(got->step_error_ms < 1e-3);
}

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

/* Over all steps, or few. */
static void check_layouts(const tensor_layout *layouts, size_t count, bool all)
{
    static const char *const five[] = {"train.steps=5",
                                       "train.validate_every=5", NULL};
    static const char *const two[] = {"train.steps=2", "train.validate_every=2",
                                      NULL};
    const char *const *few = job_is_sanitized() ? two : five;
    const char *const *more = all || is_long() ? NULL : few;
    job_result *want = more ? &brief : &single;
    if (!want->parameters) {
        *want = run_good(&one, more);
    }
    for (size_t i = 0; i < count; i++) {
        job_result got = run_good(&layouts[i], more);
        check_alike(want, &got);
        job_result_fini(&got);
    }
}

static void test_tensor_shared_layers_train_as_one_rank(void **state)
{
    (void)state;
    const tensor_layout layouts[] = {{2, {TP(2)}},
                                     {2, {TP(2), ROWS}},
                                     {4, {TP(4), ROWS}},
                                     {4, {TP(4)}},
                                     {2, {TP(2), ROWS, "overlap.tensor=false"}},
                                     {2, {TP(2), "overlap.tensor=false"}}};
    check_layouts(layouts,
                  is_long()       ? 6
                  : job_is_slow() ? 2
                                  : 3,
                  !job_is_sanitized());
}

static void test_tensor_beside_copies_trains_as_one_rank(void **state)
{
    (void)state;
    const tensor_layout layouts[] = {
        {4, {TP(2), ROWS}}, {4, {TP(2)}}, {8, {TP(2), ROWS}}};
    check_layouts(layouts, is_long() ? 3 : 1, false);
}

static void test_tensor_in_pipelines_trains_as_one_rank(void **state)
{
    (void)state;
    const tensor_layout layouts[] = {
        {4, {TP(2), ROWS, PP(2), SCHEDULE(1f1b)}},
        {4, {TP(2), ROWS, PP(2), SCHEDULE(dualpipev)}},
        {4, {TP(2), PP(2), SCHEDULE(gpipe)}},
        {4, {TP(2), ROWS, PP(2), SCHEDULE(interleaved), CHUNKS(2)}},
        {4, {TP(2), ROWS, PP(2), SCHEDULE(zbv)}},
        {8, {TP(2), ROWS, PP(4), SCHEDULE(zb_h1)}},
        {4, {TP(2), PP(2), SCHEDULE(dualpipe)}},
        {8, {TP(2), ROWS, PP(2), SCHEDULE(1f1b)}}};
    check_layouts(layouts, is_long() ? 8 : job_is_slow() ? 2 : 4, false);
}

static void test_tensor_beside_shared_sequences_trains_as_one_rank(void **state)
{
    (void)state;
    const tensor_layout layouts[] = {
        {4, {TP(2), ROWS, CONTEXT(2), LAYOUT(zigzag)}},
        {4, {TP(2), CONTEXT(2), ULYSSES}},
        {8,
         {TP(2), ROWS, CONTEXT(4), LAYOUT(stripe),
          "parallel.context_parallel=ring+ulysses", "parallel.ulysses_size=2"}},
        {8, {TP(2), ROWS, CONTEXT(2), ULYSSES, PP(2), SCHEDULE(dualpipev)}},
        {8, {TP(2), CONTEXT(2), PP(2), SCHEDULE(zb_h1)}},
        {8, {TP(2), ROWS, CONTEXT(2), "overlap.tensor=false"}},
        {8, {TP(4), ROWS, CONTEXT(2), LAYOUT(stripe)}}};
    check_layouts(layouts, is_long() ? 7 : job_is_slow() ? 1 : 4, false);
}

/* Of the first step: what follows would hide what is wrong in one of them. */
static void test_tensor_gradients_are_those_of_one_rank(void **state)
{
    (void)state;
    const char *const more[] = {"train.steps=1", NULL};
    const char *const tied[] = {"train.steps=1", TIED, NULL};
    const tensor_layout layouts[] = {
        {2, {TP(2), ROWS}},
        {4, {TP(4)}},
        {4, {TP(2), ROWS, PP(2), SCHEDULE(dualpipev)}},
        {4, {TP(2), PP(2), SCHEDULE(1f1b)}},
        {4, {TP(2), ROWS, CONTEXT(2), LAYOUT(zigzag)}}};
    const double near = sizeof(real) == 8 ? 1e-12 : 1e-5;
    /* Without ties others train for two steps, which a sanitizer has seen. */
    for (int i = job_is_sanitized(); i < 2; i++) {
        job_result want = run_good(&one, i ? tied : more);
        for (size_t k = 0; k < (job_is_slow() ? 1 : 5); k++) {
            job_result got = run_good(&layouts[k], i ? tied : more);
            assert_int_equal(want.parameter_count, got.parameter_count);
            assert_true(distance(want.gradients, got.gradients,
                                 want.parameter_count) < near);
            check_near(got.grad_norm[0], want.grad_norm[0], near);
            job_result_fini(&got);
        }
        job_result_fini(&want);
    }
}

/* Two heads of keys and values on four ranks: each has one of them. */
static void test_tensor_more_ranks_than_heads_of_keys_share_them(void **state)
{
    (void)state;
    const char *const more[] = {"train.steps=4", "model.kv_heads=2",
                                "checkpoint.every=2",
                                "train.gradient_stats_every=2", NULL};
    const char *const goes_on[] = {"train.steps=6", "model.kv_heads=2",
                                   "train.lr_decay_style=constant", NULL};
    const tensor_layout layouts[] = {{4, {TP(4), ROWS}},
                                     {4, {TP(2), ROWS, CONTEXT(2), ULYSSES}},
                                     {4, {TP(4)}},
                                     {8, {TP(4), ROWS}},
                                     {8, {TP(4), ROWS, CONTEXT(2)}}};
    job_result want = run_good(&one, more);
    for (size_t i = 0; i < (is_long() ? 5 : job_is_slow() ? 1 : 2); i++) {
        job_result got = run_good(&layouts[i], more);
        check_alike(&want, &got);
        job_result_fini(&got);
    }
    job_result_fini(&want);
    char dir[512];
    snprintf(dir, sizeof(dir), "%s", scratch_path(&own, "ckpt"));
    job here = make_job(&layouts[0], goes_on), there = make_job(&one, goes_on);
    here.resume = there.resume = dir;
    want = job_run(&own, &here);
    job_result got = job_run(&own, &there);
    assert_int_equal(want.status, WEFT_OK);
    assert_int_equal(got.status, WEFT_OK);
    check_near(got.loss[0], want.loss[0], 1e-6);
    job_result_fini(&want);
    job_result_fini(&got);
}

static void test_tensor_overlap_changes_no_bit(void **state)
{
    (void)state;
    const char *const short_run[] = {"train.steps=4", NULL};
    const char *const in_order[] = {"train.steps=4", "overlap.tensor=false",
                                    NULL};
    const tensor_layout layouts[] = {{2, {TP(2), ROWS}},
                                     {4, {TP(2), PP(2), SCHEDULE(dualpipev)}}};
    for (size_t i = job_is_slow(); i < 2; i++) {
        job_result beside = run_good(&layouts[i], short_run);
        job_result after = run_good(&layouts[i], in_order);
        for (size_t k = 0; k < beside.steps; k++) {
            assert_true(beside.loss[k] == after.loss[k]);
            assert_true(beside.grad_norm[k] == after.grad_norm[k]);
        }
        assert_memory_equal(beside.parameters, after.parameters,
                            beside.parameter_count * sizeof(real));
        job_result_fini(&beside);
        job_result_fini(&after);
    }
}

/* Saved by from after some steps; to goes on as one rank would. */
static void check_resume(const tensor_layout *from, const tensor_layout *to)
{
    const char *const goes_on[] = {"train.steps=9",
                                   "train.lr_decay_style=constant", NULL};
    const char *const first[] = {"train.steps=6", "checkpoint.every=3",
                                 "train.lr_decay_style=constant", NULL};
    const double near = sizeof(real) == 8 ? 1e-12 : 1e-6;
    job_result saved = run_good(from, first);
    const char *dir = strdup(scratch_path(&own, "ckpt"));
    job here = make_job(from, goes_on), there = make_job(to, goes_on);
    here.resume = there.resume = dir;
    job_result want = job_run(&own, &here);
    job_result got = job_run(&own, &there);
    if (got.status != WEFT_OK) {
        fail_msg("%d ranks go on from %d: %s", to->nranks, from->nranks,
                 got.error);
    }
    assert_int_equal(want.status, WEFT_OK);
    assert_int_equal(want.steps, got.steps);
    check_near(got.loss[0], want.loss[0], near);
    check_near(got.grad_norm[0], want.grad_norm[0], 10 * near);
    for (size_t i = 1; i < want.steps; i++) {
        check_near(got.loss[i], want.loss[i], 10 * near);
    }
    free((char *)(uintptr_t)dir);
    job_result_fini(&saved);
    job_result_fini(&want);
    job_result_fini(&got);
}

static void test_tensor_checkpoints_go_on_under_any_layout(void **state)
{
    (void)state;
    const tensor_layout layouts[] = {{2, {TP(2), ROWS}},
                                     {4, {TP(2), PP(2), SCHEDULE(1f1b)}},
                                     {8, {TP(4), ROWS}}};
    check_resume(&layouts[1], &layouts[2]);
    if (!job_is_slow()) {
        check_resume(&layouts[0], &one);
    }
    if (is_long()) {
        check_resume(&one, &layouts[0]);
        check_resume(&layouts[2], &layouts[1]);
    }
}

/* The bytes of the model that a layout begins with, as exported. */
static char *export_start(const tensor_layout *cut, const char *name,
                          size_t *count_out)
{
    const char *const none[] = {"train.steps=0", "model.kv_heads=2", NULL};
    char dir[512], file[1024];
    snprintf(dir, sizeof(dir), "%s", scratch_path(&own, name));
    snprintf(file, sizeof(file), "%s/model.safetensors", dir);
    job what = make_job(cut, none);
    what.export_hf = dir;
    what.generate = NULL;
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%s: %s", name, result.error);
    }
    job_result_fini(&result);
    FILE *from = fopen(file, "rb");
    assert_non_null(from);
    char *bytes = malloc(EXPORT_BYTES);
    assert_non_null(bytes);
    *count_out = fread(bytes, 1, EXPORT_BYTES, from);
    assert_true(*count_out > 0 && *count_out < EXPORT_BYTES);
    (void)fclose(from);
    return bytes;
}

/* Start values, and what others get, are those of the whole tensors. */
static void test_tensor_export_is_the_same_from_any_layout(void **state)
{
    (void)state;
    const tensor_layout layouts[] = {{2, {TP(2), ROWS}},
                                     {8, {TP(4), PP(2), SCHEDULE(1f1b)}}};
    const char *const names[] = {"two", "eight"};
    size_t count, all;
    char *want = export_start(&one, "alone", &all);
    for (size_t i = 0; i < 2; i++) {
        char *got = export_start(&layouts[i], names[i], &count);
        assert_int_equal(count, all);
        assert_memory_equal(got, want, all);
        free(got);
    }
    free(want);
}

static void expect_refused(const tensor_layout *cut, const char *const *more,
                           const char *text)
{
    job what = make_job(cut, more);
    job_result got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_ERR_INVALID);
    if (!strstr(got.error, text)) {
        fail_msg("\"%s\" is not in: %s", text, got.error);
    }
    job_result_fini(&got);
}

static void test_tensor_what_cannot_be_shared_is_refused(void **state)
{
    (void)state;
    const tensor_layout three = {3, {TP(3)}}, two = {2, {TP(2)}};
    const tensor_layout rows = {2, {TP(2), ROWS}}, alone = {1, {ROWS}};
    const tensor_layout odd = {3, {TP(2)}};
    const char *const tokens[] = {"model.seq_length=21",
                                  "train.micro_batch_size=1", NULL};
    const char *const same[] = {"train.deterministic=true", NULL};
    expect_refused(&three, NULL,
                   "tensor_model_parallel_size: 3 does not divide model.heads "
                   "4; nearest that work: 2 or 4");
    expect_refused(&odd, NULL,
                   "tensor_model_parallel_size: 2 does not divide 3 ranks; "
                   "nearest that work: 1, or 2 or 4 ranks");
    expect_refused(&rows, tokens, "nearest that work: 20 or 22 tokens");
    expect_refused(&alone, NULL, "needs ranks that share each layer");
    expect_refused(&two, same, "train.deterministic: true does not hold");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_shared_layers_train_as_one_rank),
        cmocka_unit_test(test_tensor_beside_copies_trains_as_one_rank),
        cmocka_unit_test(test_tensor_in_pipelines_trains_as_one_rank),
        cmocka_unit_test(
            test_tensor_beside_shared_sequences_trains_as_one_rank),
        cmocka_unit_test(test_tensor_gradients_are_those_of_one_rank),
        cmocka_unit_test(test_tensor_more_ranks_than_heads_of_keys_share_them),
        cmocka_unit_test(test_tensor_overlap_changes_no_bit),
        cmocka_unit_test(test_tensor_checkpoints_go_on_under_any_layout),
        cmocka_unit_test(test_tensor_export_is_the_same_from_any_layout),
        cmocka_unit_test(test_tensor_what_cannot_be_shared_is_refused),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
