/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Experts that move to other ranks, and that have replicas, train as
 *          they would have where they were: weights, moments and averages go
 *          with them, gradients of replicas are summed, checkpoints have each
 *          once. Where loads are skewed, rows come to ranks as evenly as
 *          weft_moe_place says.
 * Method   Jobs whose ranks are threads. Losses are within 1e-5 of one rank's
 *          over all steps, gradients of the last within 1e-4 of the largest. A
 *          text of nearly one letter sends all tokens to the same experts; what
 *          is dispatched is counted by the rank that has the slot, step by
 *          step.
 */
#include "tests/trainer/job.h"
#include "tests/trainer/wrapped.h"
#include "trainer/train_step.h"
#include "weft/moe.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>
#include <cmocka.h>

enum { LAYERS = 2, EXPERTS = 8, RANKS = 4, STEPS_MOST = 16 };

static scratch own;

static int open_scratch(void **state)
{
    static char text[6000];
    (void)state;
    scratch_open(&own);
    job_prepare(&own, 20260107);
    for (size_t i = 0; i < sizeof(text); i++) {
        text[i] = i % 13 == 5 ? 'b' : 'a';
    }
    scratch_write(&own, "skewed.txt", text, sizeof(text));
    return 0;
}

static int close_scratch(void **state)
{
    (void)state;
    scratch_close(&own);
    return 0;
}

/* ---- what is dispatched ---------------------------------------------------
 */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double rows[STEPS_MOST][LAYERS][RANKS]; /* of a job that is watched */
static size_t slots_each;                      /* of a rank; 0: none is */
static _Thread_local uint64_t step;            /* at hand; 0: none */
static _Thread_local size_t calls;

weft_status __wrap_wefti_train_step_run(wefti_replica *replica,
                                        wefti_train_step_modes modes,
                                        const double times[WEFTI_STEP_TIMES],
                                        wefti_train_step_result *result_out)
{
    step = replica->step + 1;
    calls = 0;
    weft_status status =
        __real_wefti_train_step_run(replica, modes, times, result_out);
    step = 0;
    return status;
}

weft_status __wrap_weft_moe_dispatch(weft_moe *moe, const void *x,
                                     const int32_t *expert, const float *weight,
                                     size_t tokens, weft_stream *stream,
                                     weft_moe_batch *batch_out)
{
    if (step > 0 && slots_each > 0) {
        pthread_mutex_lock(&lock);
        for (size_t i = 0; i < 2 * tokens; i++) {
            rows[step][calls % LAYERS][(size_t)expert[i] / slots_each]++;
        }
        pthread_mutex_unlock(&lock);
    }
    calls++;
    return __real_weft_moe_dispatch(moe, x, expert, weight, tokens, stream,
                                    batch_out);
}

/* The busiest rank's rows of two steps over the mean, of the worst layer. */
static double measured_ratio(size_t of)
{
    double worst = 0;
    for (size_t layer = 0; layer < LAYERS; layer++) {
        double most = 0, all = 0;
        for (size_t rank = 0; rank < RANKS; rank++) {
            const double sum =
                rows[of][layer][rank] + rows[of + 1][layer][rank];
            most = fmax(most, sum);
            all += sum;
        }
        assert_true(all > 0);
        worst = fmax(worst, most * RANKS / all);
    }
    return worst;
}

/* ---- jobs -----------------------------------------------------------------
 */

#define EP(ranks)      "parallel.expert_model_parallel_size=" #ranks
#define PP(ranks)      "parallel.pipeline_model_parallel_size=" #ranks
#define SCHEDULE(name) "parallel.schedule=" #name
#define EVERY(steps)   "moe.place_every=" #steps
#define REDUNDANT(n)   "moe.redundant=" #n
#define LIMITED        "moe.nodes=2", "moe.node_limit=1"
#define SKEWED         "data.paths=skewed.txt"
#define STEPS          (job_is_sanitized() ? (size_t)5 : (size_t)12)
#define SAVED          (STEPS / 2)

typedef struct layout {
    int nranks;
    const char *settings[7];
} layout;

static const char *const steps_texts[] = {[2] = "train.steps=2",
                                          [4] = "train.steps=4",
                                          [5] = "train.steps=5",
                                          [12] = "train.steps=12"};

static job make_job(const layout *how, size_t steps)
{
    job what = {.nranks = how->nranks,
                .settings = {"model.ffn_size=64", "model.experts=8",
                             "train.global_batch_size=16",
                             "train.validate_every=5", "train.lr=3.0e-3",
                             "train.lr_decay_style=constant",
                             "train.warmup_steps=1", "memory.ema=fp32",
                             steps_texts[steps]}};
    size_t at = 9;
    for (size_t i = 0; i < 7 && how->settings[i]; i++) {
        what.settings[at++] = how->settings[i];
    }
    return what;
}

static job_result run_good(const layout *how, size_t steps, const char *resume,
                           const char *json)
{
    job what = make_job(how, steps);
    what.resume = resume;
    what.json = json;
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%d ranks, %s: %s", how->nranks, how->settings[0],
                 result.error);
    }
    return result;
}

/* Losses of all steps, which are the last of those wanted. */
static void check_losses(const job_result *got, const job_result *want,
                         const layout *how)
{
    const size_t before = want->steps - got->steps;
    for (size_t i = 0; i < got->steps; i++) {
        const double wanted = want->loss[before + i];
        if (!(fabs(got->loss[i] - wanted) < 1e-5 * wanted)) {
            fail_msg("%d ranks, %s, step %zu: loss %.9g, want %.9g",
                     how->nranks, how->settings[0], before + i, got->loss[i],
                     wanted);
        }
        const double norm = want->grad_norm[before + i];
        if (!(fabs(got->grad_norm[i] - norm) < 1e-4 * norm)) {
            fail_msg("%d ranks, %s, step %zu: norm %.9g, want %.9g",
                     how->nranks, how->settings[0], before + i,
                     got->grad_norm[i], norm);
        }
    }
    assert_true(fabs(got->val_loss - want->val_loss) < 1e-5 * want->val_loss);
    assert_true(fabs(got->val_loss_ema - want->val_loss_ema) <
                1e-5 * want->val_loss_ema);
}

static void check_gradients(const job_result *got, const job_result *want)
{
    double most = 0, off = 0;
    assert_int_equal(got->parameter_count, want->parameter_count);
    for (size_t i = 0; i < want->parameter_count; i++) {
        const double wanted = (double)want->gradients[i];
        most = fmax(most, fabs(wanted));
        off = fmax(off, fabs((double)got->gradients[i] - wanted));
    }
    if (!(off <= 1e-4 * most)) {
        fail_msg("gradients are off by %g of %g", off, most);
    }
}

static cJSON *read_moves(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t bytes = fread(text, 1, sizeof(text) - 1, file);
    assert_int_equal(fclose(file), 0);
    text[bytes] = 0;
    cJSON *summary = cJSON_Parse(text);
    assert_non_null(summary);
    cJSON *moves =
        cJSON_DetachItemFromObjectCaseSensitive(summary, "expert_moves");
    cJSON_Delete(summary);
    assert_non_null(moves);
    return moves;
}

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

/* ---- tests ----------------------------------------------------------------
 */

/* In all these experts have moved. */
static void test_experts_that_move_train_as_on_one_rank(void **state)
{
    static const layout alone = {1, {NULL}};
    static const layout layouts[] = {
        {4, {EP(2), EVERY(2), REDUNDANT(2)}},
        {4, {EP(4), EVERY(1)}},
        {4, {EP(2), EVERY(2)}},
        {4, {EP(4), EVERY(2), REDUNDANT(4), "overlap.param_gather=false"}},
        {4, {EP(2), PP(2), SCHEDULE(dualpipe), EVERY(2), REDUNDANT(4)}},
        {4, {EP(2), PP(2), SCHEDULE(zb_h1), EVERY(1)}}};
    const size_t count =
        job_is_sanitized() ? 2 : sizeof(layouts) / sizeof(layout);
    const char *json = scratch_path(&own, "summary.json");
    (void)state;
    job_result want = run_good(&alone, STEPS, NULL, NULL);
    for (size_t i = 0; i < count; i++) {
        job_result got = run_good(&layouts[i], STEPS, NULL, json);
        double moved = 0, bytes = 0;
        check_losses(&got, &want, &layouts[i]);
        check_gradients(&got, &want);
        cJSON *moves = read_moves(json);
        const cJSON *one;
        cJSON_ArrayForEach(one, moves)
        {
            moved += number(one, "experts");
            bytes += number(one, "bytes");
        }
        assert_true(moved > 0);
        /* Three matrices; weights, moments and an average. */
        assert_true(bytes == moved * 3 * 64 * 32 * 4 * 4);
        cJSON_Delete(moves);
        job_result_fini(&got);
    }
    job_result_fini(&want);
}

/* A token's experts are in one half of all, wherever these are. */
static void test_experts_of_parts_move_together(void **state)
{
    static const layout alone = {1, {LIMITED}};
    static const layout apart = {4, {EP(4), LIMITED, EVERY(1), REDUNDANT(4)}};
    (void)state;
    job_result want = run_good(&alone, STEPS, NULL, NULL);
    job_result got = run_good(&apart, STEPS, NULL, NULL);
    check_losses(&got, &want, &apart);
    job_result_fini(&want);
    job_result_fini(&got);
}

/* Until they move, nothing is different. */
static void test_experts_that_could_move_give_the_same_bits(void **state)
{
    static const layout stay = {2, {EP(2)}};
    static const layout could = {2, {EP(2), EVERY(1000)}};
    (void)state;
    job_result want = run_good(&stay, 2, NULL, NULL);
    job_result got = run_good(&could, 2, NULL, NULL);
    job_assert_same_bits(&got, &want);
    job_result_fini(&want);
    job_result_fini(&got);
}

/* A token's two experts are added up in f32 wherever they are: whether these
 * have moved does not show in a single bit, nor what is computed again. */
static void test_experts_of_two_ranks_move_bit_by_bit(void **state)
{
    static const char *const kinds[] = {
        "memory.ema=bf16", "memory.recompute=full", "memory.ema=fp8"};
    (void)state;
    for (size_t i = 0; i < (job_is_sanitized() ? 2 : 3); i++) {
        const layout stay = {2, {EP(2), kinds[i]}};
        const layout move = {2, {EP(2), kinds[i], EVERY(1)}};
        job_result want = run_good(&stay, STEPS, NULL, NULL);
        job_result got = run_good(&move, STEPS, NULL, NULL);
        job_assert_same_bits(&got, &want);
        assert_true(got.val_loss_ema == want.val_loss_ema);
        job_result_fini(&want);
        job_result_fini(&got);
    }
}

/* Frozen, as rates are: the same tokens go to the same experts. */
static void test_experts_of_skewed_loads_come_to_be_even(void **state)
{
    static const layout skewed[] = {
        {RANKS, {EP(4), EVERY(2), SKEWED, "train.lr=1e-12"}},
        {RANKS, {EP(4), EVERY(2), SKEWED, "train.lr=1e-12", REDUNDANT(8)}}};
    static const size_t each[] = {2, 4};
    const char *json = scratch_path(&own, "summary.json");
    double ratios[2];
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        memset(rows, 0, sizeof(rows));
        slots_each = each[i];
        job_result got = run_good(&skewed[i], 5, NULL, json);
        slots_each = 0;
        cJSON *moves = read_moves(json);
        assert_int_equal(cJSON_GetArraySize(moves),
                         2); /* not behind the last */
        const cJSON *first = cJSON_GetArrayItem(moves, 0);
        const cJSON *before = cJSON_GetObjectItemCaseSensitive(first, "before");
        const cJSON *after = cJSON_GetObjectItemCaseSensitive(first, "after");
        const double planned = number(first, "ratio_planned");
        ratios[i] = measured_ratio(3);
        if (!(measured_ratio(1) > 1.5 * planned) ||
            !(fabs(measured_ratio(1) - number(before, "ratio")) < 0.05) ||
            !(fabs(measured_ratio(3) - planned) < 0.05) ||
            !(fabs(number(after, "ratio") - planned) < 0.05)) {
            fail_msg("%s: rows %.3f, then %.3f; said: %.3f, %.3f, planned %.3f",
                     skewed[i].settings[4] ? "replicas" : "none",
                     measured_ratio(1), measured_ratio(3),
                     number(before, "ratio"), number(after, "ratio"), planned);
        }
        assert_true(number(first, "step") == 2);
        assert_true(number(before, "steps") == 2);
        assert_true(number(before, "step_ms") > 0);
        assert_true(number(after, "step_ms") > 0);
        cJSON_Delete(moves);
        job_result_fini(&got);
    }
    /* One expert's tokens are half of all: only replicas make that even. */
    assert_true(ratios[0] > 1.5);
    assert_true(ratios[1] < 1.2);
}

#define SAVES(n)                                                               \
    "checkpoint.dir=saved" #n,                                                 \
        job_is_sanitized() ? "checkpoint.every=2" : "checkpoint.every=6"

/* Not the last step that was saved, behind which nothing moves. */
static const char *forget_last(const char *folder)
{
    char done[600];
    const char *path = scratch_path(&own, folder);
    snprintf(done, sizeof(done), "%.500s/step_%08zu/DONE", path, 2 * SAVED);
    assert_int_equal(unlink(done), 0);
    return path;
}

/* Saved while they are on their way, each once, and read wherever they are
 * then. */
static void test_experts_that_moved_are_saved_once(void **state)
{
    static const layout whole = {1, {NULL}};
    const layout saves[] = {
        {4, {EP(2), EVERY(1), REDUNDANT(2), SAVES(0)}},
        {4, {EP(4), EVERY(1), SAVES(1), "checkpoint.async=false"}}};
    static const layout goes_on[] = {{4, {EP(4), EVERY(1), REDUNDANT(4)}},
                                     {1, {NULL}}};
    static const char *const folders[] = {"saved0", "saved1"};
    (void)state;
    job_result want = run_good(&whole, STEPS, NULL, NULL);
    for (size_t i = 0; i < 2; i++) {
        job_result saved = run_good(&saves[i], 2 * SAVED, NULL, NULL);
        job_result got =
            run_good(&goes_on[i], STEPS, forget_last(folders[i]), NULL);
        assert_int_equal(got.steps, STEPS - SAVED);
        check_losses(&got, &want, &goes_on[i]);
        job_result_fini(&saved);
        job_result_fini(&got);
    }
    job_result_fini(&want);
}

static void check_same(const cJSON *a, const cJSON *b, const char *name)
{
    assert_true(number(a, name) == number(b, name));
}

/* The last placements of a run, of which got has gone on from inside. */
static void check_moves(const char *want_path, const char *got_path)
{
    cJSON *want = read_moves(want_path), *got = read_moves(got_path);
    const int all = cJSON_GetArraySize(want), count = cJSON_GetArraySize(got);
    assert_true(count > 0 && count <= all);
    for (int i = 0; i < count; i++) {
        const cJSON *a = cJSON_GetArrayItem(want, all - count + i);
        const cJSON *b = cJSON_GetArrayItem(got, i);
        const cJSON *before = cJSON_GetObjectItemCaseSensitive(a, "before");
        const cJSON *there = cJSON_GetObjectItemCaseSensitive(b, "before");
        check_same(a, b, "step");
        check_same(a, b, "experts");
        check_same(a, b, "ratio_planned");
        check_same(before, there, "ratio");
        check_same(before, there, "steps");
    }
    cJSON_Delete(want);
    cJSON_Delete(got);
}

/* Saved between two placements, with experts where the first has brought them
 * and some of the loads by which the second goes. */
static void test_placement_is_saved(void **state)
{
    const char *every = job_is_sanitized() ? EVERY(3) : EVERY(4);
    const layout saves = {4, {EP(4), every, REDUNDANT(4), SAVES(2)}};
    const layout goes_on = {4, {EP(4), every, REDUNDANT(4)}};
    char whole_json[600], json[600];
    (void)state;
    snprintf(whole_json, sizeof(whole_json), "%.500s",
             scratch_path(&own, "whole.json"));
    snprintf(json, sizeof(json), "%.500s", scratch_path(&own, "summary.json"));
    job_result want = run_good(&saves, 2 * SAVED, NULL, whole_json);
    job_result got = run_good(&goes_on, 2 * SAVED, forget_last("saved2"), json);
    assert_int_equal(got.steps, SAVED);
    for (size_t i = 0; i < got.steps; i++) {
        assert_true(got.loss[i] == want.loss[SAVED + i]);
        assert_true(got.grad_norm[i] == want.grad_norm[SAVED + i]);
    }
    assert_true(got.val_loss == want.val_loss);
    assert_true(got.val_loss_ema == want.val_loss_ema);
    check_moves(whole_json, json);
    job_result_fini(&want);
    job_result_fini(&got);
}

static void test_experts_that_cannot_move_are_refused_by_name(void **state)
{
    static const struct {
        layout how;
        const char *text;
    } refused[] = {
        {{1, {EVERY(1)}}, "expert_model_parallel_size above 1"},
        {{1, {EVERY(1), "model.experts=0"}}, "model.experts above 0"},
        {{2, {EP(2), REDUNDANT(2)}}, "moe.place_every above 0"},
        {{2, {EP(2), EVERY(1), REDUNDANT(3)}}, "that work: 2 or 4"},
        {{2, {EP(2), EVERY(1), REDUNDANT(4096)}}, "an expert twice"},
        {{2, {EP(2), EVERY(1), "model.ffn_size=48"}}, "that work: 32 or 64"},
        {{4,
          {EP(4), EVERY(1), REDUNDANT(2), "model.experts=6", "moe.nodes=2",
           "moe.node_limit=1"}},
         "does not divide"},
        {{2, {EP(2), EVERY(1), "train.device=shadow"}}, "device: shadow"}};
    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        job what = make_job(&refused[i].how, 2);
        job_result result = job_run(&own, &what);
        if (result.status == WEFT_OK ||
            !strstr(result.error, refused[i].text)) {
            fail_msg("%s: no \"%s\"",
                     result.status == WEFT_OK ? "trained" : result.error,
                     refused[i].text);
        }
        job_result_fini(&result);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_experts_that_move_train_as_on_one_rank),
        cmocka_unit_test(test_experts_of_parts_move_together),
        cmocka_unit_test(test_experts_that_could_move_give_the_same_bits),
        cmocka_unit_test(test_experts_of_two_ranks_move_bit_by_bit),
        cmocka_unit_test(test_experts_of_skewed_loads_come_to_be_even),
        cmocka_unit_test(test_experts_that_moved_are_saved_once),
        cmocka_unit_test(test_placement_is_saved),
        cmocka_unit_test(test_experts_that_cannot_move_are_refused_by_name)};
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
