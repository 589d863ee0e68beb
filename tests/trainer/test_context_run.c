/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Ranks that share sequences train as one rank does that has them
 *          whole: by rings, by exchanged heads and by both, in every layout,
 *          alone, with copies and with a pipeline of every schedule; what one
 *          has saved, another goes on from.
 * Method   Losses, norms, gradients, validation and generated text of a small
 *          model against those of a single rank: over double to what its sums
 *          may differ by, over float within 1e-5. Sequences of 24 tokens, two
 *          in a micro-batch; one of odd length where ranks are odd. Four heads,
 *          two of keys, so that a place of four has keys twice.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define CONTEXT(ranks) "parallel.context_parallel_size=" #ranks
#define ULYSSES        "parallel.context_parallel=ulysses"
#define BOTH(size)                                                             \
    "parallel.context_parallel=ring+ulysses", "parallel.ulysses_size=" #size
#define LAYOUT(name)   "parallel.context_layout=" #name
#define PIPE(ranks)    "parallel.pipeline_model_parallel_size=" #ranks
#define CHUNKS(count)  "parallel.virtual_pipeline_model_parallel_size=" #count
#define SCHEDULE(name) "parallel.schedule=" #name

enum { SETTINGS = 8 };

typedef struct cut {
    int nranks;
    const char *settings[SETTINGS];
} cut;

static scratch own;

/* Rounding, grown over the steps. */
static const double most = sizeof(real) == 8 ? 1e-9 : 1e-5;

/* steps: in place of the model's; NULL: those. */
static job_result run_one(const cut *how, const char *const *model,
                          const char *resume, const char *steps)
{
    job what = {.nranks = how->nranks,
                .settings = {"train.global_batch_size=16", "generate.bytes=4"},
                .resume = resume,
                .generate = "we"};
    size_t at = 2;
    for (size_t i = 0; model[i]; i++) {
        what.settings[at++] = model[i];
    }
    for (size_t i = 0; i < SETTINGS && how->settings[i]; i++) {
        what.settings[at++] = how->settings[i];
    }
    if (steps) {
        what.settings[at++] = steps;
    }
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks, %s, %s: %s", how->nranks, how->settings[0],
                 how->settings[1] ? how->settings[1] : "", result.error);
    }
    return result;
}

static job_result run(const cut *how, const char *const *model,
                      const char *resume)
{
    return run_one(how, model, resume, NULL);
}

static double distance(double a, double b)
{
    return fabs(a - b) / fmax(fabs(b), 1e-300);
}

/* Of all elements, by the largest one. */
static double furthest(const real *got, const real *wanted, size_t count)
{
    double away = 0, largest = 0;
    for (size_t i = 0; i < count; i++) {
        away = fmax(away, fabs((double)got[i] - (double)wanted[i]));
        largest = fmax(largest, fabs((double)wanted[i]));
    }
    return away / largest;
}

/* Of a step from the same parameters: AdamW would turn rounding of what is
 * nearly 0 into whole steps. */
static void check_slopes(const job_result *got, const job_result *wanted,
                         const cut *how)
{
    const double slopes =
        furthest(got->gradients, wanted->gradients, wanted->parameter_count);
    assert_int_equal(got->steps, 1);
    if (!(slopes < most)) {
        fail_msg("%d ranks, %s, %s: gradients differ by %g", how->nranks,
                 how->settings[0], how->settings[1] ? how->settings[1] : "",
                 slopes);
    }
}

static void check_near(const job_result *got, const job_result *wanted,
                       const cut *how)
{
    double loss = 0, norm = 0;
    assert_int_equal(got->steps, wanted->steps);
    for (size_t i = 0; i < got->steps; i++) {
        loss = fmax(loss, distance(got->loss[i], wanted->loss[i]));
        norm = fmax(norm, distance(got->grad_norm[i], wanted->grad_norm[i]));
    }
    const double valued = distance(got->val_loss, wanted->val_loss);
    if (!(loss < most && norm < most && valued < most)) {
        fail_msg("%d ranks, %s, %s: losses differ by %g, norms by %g, "
                 "validation by %g",
                 how->nranks, how->settings[0],
                 how->settings[1] ? how->settings[1] : "", loss, norm, valued);
    }
    assert_int_equal(got->printed_bytes, wanted->printed_bytes);
    if (sizeof(real) == 8) { /* over float a draw may lie on an edge */
        assert_memory_equal(got->printed, wanted->printed, got->printed_bytes);
    }
    assert_true(got->peaks_as_planned);
    assert_true(got->step_error_ms < 1e-3);
}

/* Under a sanitizer the first few of count: those that differ in what runs, and
 * no step of its own for its gradients. */
static void check_cuts(const cut *cuts, size_t count, size_t few,
                       const char *const *model)
{
    count = job_is_sanitized() ? few : count;
    const cut single = {1, {NULL}};
    job_result wanted = run(&single, model, NULL);
    job_result first = run_one(&single, model, NULL, "train.steps=1");
    for (size_t i = 0; i < count; i++) {
        job_result got = run(&cuts[i], model, NULL);
        check_near(&got, &wanted, &cuts[i]);
        job_result_fini(&got);
        if (job_is_sanitized()) {
            continue;
        }
        got = run_one(&cuts[i], model, NULL, "train.steps=1");
        check_slopes(&got, &first, &cuts[i]);
        job_result_fini(&got);
    }
    job_result_fini(&wanted);
    job_result_fini(&first);
}

static const char *const plain[] = {"train.steps=2", "train.validate_every=2",
                                    NULL};

static void test_rings_of_every_layout_train_as_one_rank(void **state)
{
    (void)state;
    const cut cuts[] = {{4, {CONTEXT(4), LAYOUT(zigzag)}},
                        {2, {CONTEXT(2), LAYOUT(stripe)}},
                        {2, {CONTEXT(2)}},
                        {2, {CONTEXT(2), LAYOUT(zigzag)}},
                        {4, {CONTEXT(4), LAYOUT(stripe)}},
                        {8, {CONTEXT(8), LAYOUT(stripe)}}};
    check_cuts(cuts, sizeof(cuts) / sizeof(*cuts), 2, plain);
}

static void test_heads_are_exchanged_alone_and_in_rings(void **state)
{
    (void)state;
    const cut cuts[] = {{2, {CONTEXT(2), ULYSSES}},
                        {4, {CONTEXT(4), BOTH(2), LAYOUT(zigzag)}},
                        {4, {CONTEXT(4), ULYSSES}},
                        {4, {CONTEXT(4), BOTH(2)}},
                        {4, {CONTEXT(4), BOTH(2), LAYOUT(stripe)}},
                        {8, {CONTEXT(8), BOTH(4), LAYOUT(zigzag)}}};
    check_cuts(cuts, sizeof(cuts) / sizeof(*cuts), 2, plain);
}

static void test_odd_lengths_are_cut_where_they_divide(void **state)
{
    static const char *const odd[] = {"train.steps=2", "train.validate_every=2",
                                      "model.seq_length=15",
                                      "train.micro_batch_size=1", NULL};
    (void)state;
    const cut cuts[] = {{3, {CONTEXT(3)}},
                        {3, {CONTEXT(3), LAYOUT(stripe)}},
                        {5, {CONTEXT(5)}}};
    check_cuts(cuts, sizeof(cuts) / sizeof(*cuts), 1, odd);
}

static void test_copies_share_the_batch(void **state)
{
    (void)state;
    const cut cuts[] = {{8, {CONTEXT(2), PIPE(2), LAYOUT(stripe)}},
                        {4, {CONTEXT(2), LAYOUT(zigzag)}},
                        {8, {CONTEXT(4), BOTH(2)}}};
    check_cuts(cuts, sizeof(cuts) / sizeof(*cuts), 1, plain);
}

static void test_pipelines_of_every_schedule_share_sequences(void **state)
{
    static const char *const deep[] = {
        "train.steps=2", "train.validate_every=2", "model.layers=4", NULL};
    (void)state;
    const cut cuts[] = {
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(dualpipev), CHUNKS(2), ULYSSES}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(1f1b), LAYOUT(zigzag)}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(gpipe)}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(interleaved), CHUNKS(2)}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(zb_h1), LAYOUT(stripe)}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(zb_h2)}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(zbv), CHUNKS(2)}},
        {4, {CONTEXT(2), PIPE(2), SCHEDULE(dualpipe)}}};
    check_cuts(cuts, sizeof(cuts) / sizeof(*cuts), 2, deep);
}

/* Documents are words and what follows them. */
static void test_documents_are_cut_as_sequences_are(void **state)
{
    (void)state;
    static const char *const model[] = {
        "train.steps=2",       "train.validate_every=2", "model.layers=3",
        "model.seq_length=24", "data.document_end=32",   NULL};
    static const cut cuts[] = {{2, {CONTEXT(2), LAYOUT(contiguous)}},
                               {3, {CONTEXT(3), LAYOUT(zigzag)}},
                               {4, {CONTEXT(4), LAYOUT(stripe)}},
                               {4, {CONTEXT(4), ULYSSES}},
                               {4, {CONTEXT(4), BOTH(2), LAYOUT(zigzag)}},
                               {6, {CONTEXT(2), LAYOUT(stripe), PIPE(3)}},
                               {3, {PIPE(3)}}};
    check_cuts(cuts, sizeof(cuts) / sizeof(*cuts), 3, model);
    job_result packed = run(&(cut){1, {NULL}}, model, NULL);
    job_result whole =
        run(&(cut){1, {"model.layers=3", "model.seq_length=24", NULL}}, plain,
            NULL);
    double apart = 0; /* by chance one of them may hardly be */
    for (size_t i = 0; i < packed.steps; i++) {
        apart = fmax(apart, distance(packed.loss[i], whole.loss[i]));
        apart = fmax(apart, distance(packed.grad_norm[i], whole.grad_norm[i]));
    }
    assert_true(apart > 10 * most);
    job_result_fini(&packed);
    job_result_fini(&whole);
}

/* Parameters are whole on all ranks of a sequence: any may go on. */
static void test_saved_by_one_another_goes_on(void **state)
{
    static const char *const half[] = {"train.steps=6", "checkpoint.every=3",
                                       "checkpoint.async=false", NULL};
    (void)state;
    char saved[512];
    snprintf(saved, sizeof(saved), "%s/ckpt", own.dir);
    const cut single = {1, {NULL}}, shared = {2, {CONTEXT(2)}};
    const cut other = {4, {CONTEXT(4), BOTH(2), LAYOUT(zigzag)}};
    job_result first = run(&shared, half, NULL);
    job_result wanted = run(&single, plain, NULL);
    assert_true(distance(first.loss[1], wanted.loss[1]) < most);
    job_result_fini(&wanted);
    static const char *const rest[] = {"train.steps=8", NULL};
    wanted = run(&single, rest, saved);
    job_result got = run(&other, rest, saved);
    assert_int_equal(got.steps, 2);
    check_near(&got, &wanted, &other);
    job_result_fini(&first);
    job_result_fini(&wanted);
    job_result_fini(&got);
    wanted = run_one(&single, rest, saved, "train.steps=7");
    got = run_one(&other, rest, saved, "train.steps=7");
    check_slopes(&got, &wanted, &other);
    job_result_fini(&wanted);
    job_result_fini(&got);
}

/* ---------------------------------------------------------------------------
 */

static int prepare(void **state)
{
    (void)state;
    scratch_open(&own);
    job_prepare(&own, random_seed());
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rings_of_every_layout_train_as_one_rank),
        cmocka_unit_test(test_heads_are_exchanged_alone_and_in_rings),
        cmocka_unit_test(test_odd_lengths_are_cut_where_they_divide),
        cmocka_unit_test(test_copies_share_the_batch),
        cmocka_unit_test(test_pipelines_of_every_schedule_share_sequences),
        cmocka_unit_test(test_documents_are_cut_as_sequences_are),
        cmocka_unit_test(test_saved_by_one_another_goes_on),
    };
    return cmocka_run_group_tests(tests, prepare, clean_up);
}
