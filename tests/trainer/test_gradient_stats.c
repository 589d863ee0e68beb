/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal: the metrics have each tensor's gradient where that was asked for and
 * nowhere else: the norm, the largest value and the zeros of the very sums that
 * the step used, the same on every layout; and training takes no notice.
 *
 * Method: whole jobs on one rank, several, and pipelines; what their lines say
 * against the gradients that the ranks were left with, element by element, and
 * against each other.
 */
#include "base/check.h"
#include "job.h"
#include "tests/seed.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { TENSORS_MOST = 64, LINES_MOST = 16, LINE_BYTES = 1 << 16 };

static scratch own;

typedef struct line {
    size_t count; /* tensors; 0: the line has none */
    char names[TENSORS_MOST][40];
    size_t elems[TENSORS_MOST];
    double norms[TENSORS_MOST], most[TENSORS_MOST], zeros[TENSORS_MOST];
} line;

typedef struct outcome {
    job_result result;
    line lines[LINES_MOST];
} outcome;

static double number(const cJSON *object, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static void read_line(const char *text, line *out)
{
    cJSON *object = cJSON_Parse(text);
    const cJSON *one;
    assert_non_null(object);
    cJSON_ArrayForEach(one,
                       cJSON_GetObjectItemCaseSensitive(object, "gradients"))
    {
        size_t k = out->count++;
        assert_true(k < TENSORS_MOST);
        snprintf(out->names[k], sizeof(out->names[k]), "%s",
                 cJSON_GetObjectItemCaseSensitive(one, "tensor")->valuestring);
        out->elems[k] = (size_t)number(one, "elems");
        out->norms[k] = number(one, "norm");
        out->most[k] = number(one, "max_abs");
        out->zeros[k] = number(one, "zeros");
    }
    cJSON_Delete(object);
}

static void run(const job *what, outcome *out)
{
    static char text[LINE_BYTES];
    *out = (outcome){.result = job_run(&own, what)};
    if (out->result.status != WEFT_OK) {
        fail_msg("%d ranks: %s", what->nranks, out->result.error);
    }
    FILE *file = fopen(scratch_path(&own, "metrics"), "r");
    assert_non_null(file);
    size_t count = 0;
    for (; fgets(text, sizeof(text), file); count++) {
        assert_true(count < LINES_MOST);
        read_line(text, &out->lines[count]);
    }
    (void)fclose(file);
    assert_int_equal(count, out->result.steps);
}

static bool same(double a, double b)
{
    return !(a < b) && !(a > b);
}

/* The last line, against what the ranks were left with. */
static void check_against_gradients(const outcome *got)
{
    const job_result *result = &got->result;
    const line *last = &got->lines[result->steps - 1];
    size_t at = 0;
    double squares = 0;
    assert_true(last->count > 10);
    for (size_t t = 0; t < last->count; t++) {
        double sum = 0, most = 0;
        size_t zeros = 0;
        for (size_t end = at + last->elems[t]; at < end; at++) {
            double value = fabs((double)result->gradients[at]);
            sum += value * value;
            most = value > most ? value : most;
            zeros += !(value > 0);
        }
        assert_true(fabs(last->norms[t] - sqrt(sum)) <= 1e-12 * sqrt(sum));
        assert_true(same(last->most[t], most));
        assert_true(
            same(last->zeros[t], (double)zeros / (double)last->elems[t]));
        squares += last->norms[t] * last->norms[t];
    }
    assert_int_equal(at, result->parameter_count);
    double norm = result->grad_norm[result->steps - 1];
    assert_true(fabs(sqrt(squares) - norm) <= 1e-12 * norm);
    assert_string_equal(last->names[0], "embedding");
}

static void check_same(const outcome *a, const outcome *b)
{
    assert_int_equal(a->result.steps, b->result.steps);
    for (size_t k = 0; k < a->result.steps; k++) {
        const line *one = &a->lines[k], *two = &b->lines[k];
        assert_true(same(a->result.loss[k], b->result.loss[k]));
        assert_int_equal(one->count, two->count);
        for (size_t t = 0; t < one->count; t++) {
            assert_string_equal(one->names[t], two->names[t]);
            assert_true(same(one->norms[t], two->norms[t]));
            assert_true(same(one->most[t], two->most[t]));
            assert_true(same(one->zeros[t], two->zeros[t]));
        }
    }
}

#define SMALL                                                                  \
    "model.layers=4", "train.steps=5", "train.micro_batch_size=8",             \
        "train.global_batch_size=32", "overlap.bucket_mb=0.01"
#define EVERY "train.gradient_stats_every=2"
#define PIPED "parallel.pipeline_model_parallel_size=2"

static void test_stats_are_the_gradients_on_every_layout(void **state)
{
    static const job jobs[] = {
        {.nranks = 1, .settings = {SMALL, EVERY}},
        {.nranks = 2, .settings = {SMALL, EVERY}},
        {.nranks = 4, .settings = {SMALL, EVERY}},
        {.nranks = 2, .settings = {SMALL, EVERY, PIPED}},
        {.nranks = 4,
         .settings = {SMALL, EVERY, PIPED, "parallel.schedule=zbv"}},
        {.nranks = 2,
         .settings = {SMALL, EVERY, PIPED, "parallel.schedule=dualpipe"}}};
    static outcome first, other;
    (void)state;
    run(&jobs[0], &first);
    for (size_t k = 0; k < first.result.steps; k++) {
        bool due = (k + 1) % 2 == 0 || k + 1 == first.result.steps;
        assert_int_equal(first.lines[k].count > 0, due);
    }
    check_against_gradients(&first);
    /* Bytes that the text does not have. */
    assert_true(first.lines[first.result.steps - 1].zeros[0] > 0.5);
    for (size_t k = 1; k < WEFTI_COUNT_OF(jobs) && !(k > 2 && job_is_slow());
         k++) {
        run(&jobs[k], &other);
        check_against_gradients(&other);
        check_same(&first, &other);
        job_result_fini(&other.result);
    }
    job_result_fini(&first.result);
}

/* Its copy on another rank has no gradient of its own. */
static void test_stats_of_a_tied_head_are_the_embeddings(void **state)
{
    static const job jobs[] = {
        {.nranks = 2,
         .settings = {SMALL, EVERY, PIPED, "model.tie_embeddings=true"}},
        {.nranks = 4,
         .settings = {SMALL, EVERY, PIPED, "model.tie_embeddings=true"}}};
    static outcome got;
    (void)state;
    for (size_t k = 0; k < WEFTI_COUNT_OF(jobs); k++) {
        run(&jobs[k], &got);
        check_against_gradients(&got);
        job_result_fini(&got.result);
    }
}

static void test_stats_that_nobody_asks_for_are_not_there(void **state)
{
    const job with = {.nranks = 2, .settings = {SMALL, EVERY}};
    const job without = {.nranks = 2, .settings = {SMALL}};
    static outcome a, b;
    (void)state;
    run(&with, &a);
    run(&without, &b);
    for (size_t k = 0; k < b.result.steps; k++) {
        assert_int_equal(b.lines[k].count, 0);
        assert_true(same(a.result.loss[k], b.result.loss[k]));
        assert_true(same(a.result.grad_norm[k], b.result.grad_norm[k]));
    }
    assert_memory_equal(a.result.parameters, b.result.parameters,
                        a.result.parameter_count * sizeof(real));
    job_result_fini(&a.result);
    job_result_fini(&b.result);
}

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
    scratch_close(&own);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats_are_the_gradients_on_every_layout),
        cmocka_unit_test(test_stats_of_a_tied_head_are_the_embeddings),
        cmocka_unit_test(test_stats_that_nobody_asks_for_are_not_there),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
