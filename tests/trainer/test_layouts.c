/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     every layout of a job learns as one rank does: losses of all steps
 *          within 1e-5, and norms of gradients of the dense model; of experts
 *          these within 1e-4.
 * Method   whole jobs, ranks as threads, over all meshes of 2, 4 and 8 ranks
 *          that divide the model, each pipeline with the next schedule of the
 *          list, each context with the next layout; the dense model, and one of
 *          experts. Ranks of a layer share rows. WEFT_TEST_LONG runs all; the
 *          short form some of each model, spread over the list, from one that
 *          the printed seed picks, for eight steps: a run leaves most of them
 *          out. Under a sanitizer, which sees in two steps what it would in
 *          twenty, two.
 *
 * Layouts round differently, by some 1e-8. So a token for which two experts are
 * equally good but for that goes to one of them on some layouts and to the
 * other on the rest: of about 40000 choices of a run one in some texts. It
 * moves that step's norm by 1e-5, to the same value on all of the latter, and
 * the loss by 1e-6; a mistake is there from the first step on, and larger. The
 * text is the same in each run of the test, so that this is not drawn.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "trainer/mesh/mesh.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYOUTS_MOST = 512, SETTINGS = 10, TEXT = 64 };
#define NEAR          1e-5
#define NEAR_ONE_FLIP 1e-4 /* a norm, where a token may have other experts */

typedef struct layout {
    wefti_mesh mesh;
    int nranks;
    bool experts; /* of the model that has them */
    const char *schedule, *layout_of_context;
} layout;

static layout layouts[LAYOUTS_MOST];
static size_t layout_count;
static scratch own;
static uint64_t seed;

static const char *const schedules[] = {"gpipe",    "1f1b",     "interleaved",
                                        "zb_h1",    "zb_h2",    "zbv",
                                        "dualpipe", "dualpipev"};
static const char *const contexts[] = {"contiguous", "zigzag", "stripe"};

enum {
    SCHEDULES = sizeof(schedules) / sizeof(schedules[0]),
    CONTEXTS = sizeof(contexts) / sizeof(contexts[0])
};

/* The ranks of a number, in all ways: each twice where it has a pipeline. */
static void list_of(int nranks, bool experts)
{
    static size_t next_schedule, next_context;
    for (int code = 0; code < 3 * 3 * 4 * 3; code++) {
        wefti_mesh sizes = {.tp = 1 << code % 3,
                            .cp = 1 << code / 3 % 3,
                            .ep = 1 << code / 9 % 4,
                            .pp = 1 << code / 36};
        wefti_mesh mesh;
        if ((sizes.ep > 1 && !experts) || sizes.ep > 8 ||
            sizes.tp * sizes.cp * sizes.pp > nranks ||
            wefti_mesh_make(&sizes, nranks, &mesh) != WEFT_OK) {
            continue;
        }
        int times = mesh.pp > 1 && !experts ? 2 : 1;
        for (int i = 0; i < times; i++) {
            assert_true(layout_count < LAYOUTS_MOST);
            layouts[layout_count++] = (layout){
                mesh, nranks, experts,
                mesh.pp > 1 ? schedules[next_schedule++ % SCHEDULES] : NULL,
                mesh.cp > 1 ? contexts[next_context++ % CONTEXTS] : NULL};
        }
    }
}

static int open_scratch(void **state)
{
    (void)state;
    seed = random_seed();
    scratch_open(&own);
    job_prepare(&own, 20260101);
    for (int nranks = 2; nranks <= JOB_RANKS_MOST; nranks *= 2) {
        list_of(nranks, false);
        list_of(nranks, true);
    }
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

static bool is_long(void)
{
    return getenv("WEFT_TEST_LONG") != NULL;
}

static size_t count_steps(void)
{
    return job_is_sanitized() ? 2 : is_long() ? 20 : 8;
}

/* What the model and the steps are, on every layout. */
static size_t set_model(job *what, bool experts)
{
    static const char *const common[] = {
        "model.layers=8", "model.seq_length=16", "train.micro_batch_size=1",
        "train.global_batch_size=16"};
    size_t count = 0;
    for (; count < sizeof(common) / sizeof(common[0]); count++) {
        what->settings[count] = common[count];
    }
    what->settings[count++] = job_is_sanitized() ? "train.steps=2"
                              : is_long()        ? "train.steps=20"
                                                 : "train.steps=8";
    what->settings[count++] = job_is_sanitized() ? "train.validate_every=2"
                                                 : "train.validate_every=20";
    if (experts) {
        what->settings[count++] = "model.ffn_size=64";
        what->settings[count++] = "model.experts=8";
        what->settings[count++] = "model.experts_per_token=2";
    }
    return count;
}

static job_result run_one(const layout *of)
{
    char texts[SETTINGS][TEXT];
    job what = {.nranks = of->nranks};
    size_t count = set_model(&what, of->experts), used = 0;
    const struct {
        const char *key;
        int value;
    } sizes[] = {{"tensor_model", of->mesh.tp},
                 {"context", of->mesh.cp},
                 {"expert_model", of->mesh.ep},
                 {"pipeline_model", of->mesh.pp}};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        if (sizes[i].value > 1) {
            snprintf(texts[used], TEXT, "parallel.%s_parallel_size=%d",
                     sizes[i].key, sizes[i].value);
            what.settings[count++] = texts[used++];
        }
    }
    if (of->mesh.tp > 1) {
        what.settings[count++] = "parallel.sequence_parallel=true";
    }
    if (of->schedule) {
        snprintf(texts[used], TEXT, "parallel.schedule=%s", of->schedule);
        what.settings[count++] = texts[used++];
    }
    if (of->schedule && strcmp(of->schedule, "interleaved") == 0) {
        what.settings[count++] =
            "parallel.virtual_pipeline_model_parallel_size=2";
    }
    if (of->layout_of_context) {
        snprintf(texts[used], TEXT, "parallel.context_layout=%s",
                 of->layout_of_context);
        what.settings[count++] = texts[used++];
    }
    return job_run(&own, &what);
}

static bool is_near(double got, double wanted, double within)
{
    return fabs(got - wanted) <= within * fabs(wanted);
}

static bool is_right(const job_result *got, const job_result *wanted,
                     double of_norms)
{
    bool right = got->status == WEFT_OK && got->steps == count_steps() &&
                 is_near(got->val_loss, wanted->val_loss, NEAR);
    for (size_t i = 0; i < got->steps && right; i++) {
        right = is_near(got->loss[i], wanted->loss[i], NEAR) &&
                is_near(got->grad_norm[i], wanted->grad_norm[i], of_norms);
        if (!right) {
            print_error("step %zu: loss %.9f instead of %.9f, norm %.9f "
                        "instead of %.9f\n",
                        i, got->loss[i], wanted->loss[i], got->grad_norm[i],
                        wanted->grad_norm[i]);
        }
    }
    return right;
}

static void check_all(bool experts)
{
    const layout alone = {
        .mesh = {1, 1, 1, 1, 1, false}, .nranks = 1, .experts = experts};
    job_result wanted = run_one(&alone);
    size_t stride = is_long() ? 1 : job_is_sanitized() ? 40 : 24;
    size_t wrong = 0, done = 0, count = 0;
    assert_int_equal(wanted.status, WEFT_OK);
    for (size_t i = 0; i < layout_count; i++) {
        const layout *of = &layouts[i];
        if (of->experts != experts || count++ % stride != seed % stride) {
            continue;
        }
        job_result got = run_one(of);
        done++;
        if (!is_right(&got, &wanted, experts ? NEAR_ONE_FLIP : NEAR)) {
            wrong++;
            print_error("%d ranks: tp %d cp %d ep %d pp %d dp %d %s %s: %s\n",
                        of->nranks, of->mesh.tp, of->mesh.cp, of->mesh.ep,
                        of->mesh.pp, of->mesh.dp,
                        of->schedule ? of->schedule : "",
                        of->layout_of_context ? of->layout_of_context : "",
                        got.status == WEFT_OK ? "" : got.error);
        }
        job_result_fini(&got);
    }
    job_result_fini(&wanted);
    print_message("%zu of %zu layouts\n", done, count);
    assert_int_equal(wrong, 0);
    assert_true(done > 0);
}

static void test_layouts_of_the_dense_model_learn_alike(void **state)
{
    (void)state;
    check_all(false);
}

static void test_layouts_of_experts_learn_alike(void **state)
{
    (void)state;
    check_all(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layouts_of_the_dense_model_learn_alike),
        cmocka_unit_test(test_layouts_of_experts_learn_alike),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
