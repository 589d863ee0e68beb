/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     the average of the weights follows them in every format, where plain
 *          rounding stands still; its bits depend on no layout, and a run that
 *          is resumed goes on with them, on other ranks too.
 * Method   a constant 5% away, 2000 steps at a decay of 0.999, beside e4m3 and
 *          bf16 rounded to the nearest; all codes of e4m3; jobs whose ranks are
 *          threads, and the loss of validation with the average.
 */
#include "tests/seed.h"
#include "tests/trainer/job.h"
#include "trainer/ema_code.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static scratch own;

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

/* ---- rounding -------------------------------------------------------------
 */

/* 0x7f and 0xff are no numbers. */
static void test_e4m3_each_code_is_its_values_nearest(void **state)
{
    (void)state;
    for (int code = 0; code < 256; code++) {
        float value = wefti_ema_f8_value((uint8_t)code);
        if ((code & 0x7f) == 0x7f) {
            continue;
        }
        assert_int_equal(wefti_ema_f8(value), code);
        if ((code & 0x7f) >= 0x7e) {
            continue;
        }
        float next = wefti_ema_f8_value((uint8_t)(code + 1));
        assert_int_equal(wefti_ema_f8(value + 0.49f * (next - value)), code);
        assert_int_equal(wefti_ema_f8(value + 0.51f * (next - value)),
                         code + 1);
    }
    assert_true(wefti_ema_f8_value(0x7e) == 448 &&
                wefti_ema_f8_value(0x08) == 0.015625f);
    assert_int_equal(wefti_ema_f8(1e9f), 0x7e);
    assert_int_equal(wefti_ema_f8(-1e9f), 0xfe);
}

enum { COUNT = 1024, STEPS = 2000 };

static const double decay = 0.999;

typedef struct average {
    float f32[COUNT];
    uint16_t bf16[COUNT];
    uint8_t f8[COUNT];
    wefti_ema_words words;
} average;

static void make(average *all, wefti_ema_format format)
{
    memset(all, 0xa5, sizeof(*all));
    all->words = (wefti_ema_words){format == WEFTI_EMA_FP32 ? all->f32 : NULL,
                                   format == WEFTI_EMA_FP32 ? NULL : all->bf16,
                                   format == WEFTI_EMA_FP8 ? all->f8 : NULL};
}

static void fill(real *p, double size)
{
    for (size_t i = 0; i < COUNT; i++) {
        p[i] = (real)(size * (i % 2 ? -1 : 1));
    }
}

/* Mean and largest distance of the averages from wanted, in parts of it. */
static double distance(const average *all, double wanted, double *worst_out)
{
    real got[COUNT];
    double sum = 0;
    *worst_out = 0;
    wefti_ema_get(&all->words, COUNT, got);
    for (size_t i = 0; i < COUNT; i++) {
        double off = (double)got[i] * (i % 2 ? -1 : 1) / wanted - 1;
        sum += off / COUNT;
        *worst_out = fmax(*worst_out, fabs(off));
    }
    return fabs(sum);
}

static double to_nearest_bf16(double x)
{
    float rounded = (float)x;
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof(bits));
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&rounded, &bits, sizeof(bits));
    return (double)rounded;
}

static double to_nearest_f8(double x)
{
    return (double)wefti_ema_f8_value(wefti_ema_f8((float)x * 64)) / 64;
}

static void test_average_follows_where_plain_rounding_freezes(void **state)
{
    (void)state;
    static const struct {
        wefti_ema_format format;
        double mean, worst;
        double worst_beyond; /* e4m3's range: then it is the rest's alone */
    } cases[] = {{WEFTI_EMA_FP32, 1e-4, 1e-4, 1e-4},
                 {WEFTI_EMA_BF16, 2e-3, 0.1, 0.1},
                 {WEFTI_EMA_FP8, 2e-4, 0.02, 0.05}};
    const double range = 448.0 / 64;
    /* Also where e4m3 has fewer digits, and beyond its range. */
    static const double sizes[] = {1, 0.03, 1e-4, 30};
    static average all;
    real first[COUNT], later[COUNT];
    for (size_t k = 0; k < 12; k++) {
        const double size = sizes[k / 3], target = 1.05 * size;
        const double wanted = target + (size - target) * pow(decay, STEPS);
        double bf16 = to_nearest_bf16(size), f8 = to_nearest_f8(size), worst;
        const double frozen_bf16 = bf16, frozen_f8 = f8;
        fill(first, size);
        fill(later, target);
        make(&all, cases[k % 3].format);
        wefti_ema_add(&all.words, COUNT, first, 0, 1, 0);
        for (uint64_t step = 1; step <= STEPS; step++) {
            wefti_ema_add(&all.words, COUNT, later, decay,
                          wefti_ema_stream(7, "tensor", step), 0);
            bf16 = to_nearest_bf16(bf16 + (1 - decay) * (target - bf16));
            f8 = to_nearest_f8(f8 + (1 - decay) * (target - f8));
        }
        assert_true(bf16 == frozen_bf16 && f8 == frozen_f8);
        assert_true(distance(&all, wanted, &worst) < cases[k % 3].mean);
        assert_true(worst < (target > range ? cases[k % 3].worst_beyond
                                            : cases[k % 3].worst));
    }
}

static void test_draws_are_a_places_not_a_calls(void **state)
{
    (void)state;
    static average whole, parts;
    real p[COUNT];
    for (wefti_ema_format format = WEFTI_EMA_BF16; format <= WEFTI_EMA_FP8;
         format++) {
        make(&whole, format);
        make(&parts, format);
        for (uint64_t step = 0; step < 5; step++) {
            const uint64_t stream = wefti_ema_stream(7, "tensor", step);
            const wefti_ema_words end = wefti_ema_words_at(&parts.words, 300);
            fill(p, 0.1 * (double)(step + 1));
            wefti_ema_add(&whole.words, COUNT, p, step ? 0.9 : 0, stream, 5000);
            wefti_ema_add(&end, COUNT - 300, p + 300, step ? 0.9 : 0, stream,
                          5300);
            wefti_ema_add(&parts.words, 300, p, step ? 0.9 : 0, stream, 5000);
        }
        assert_memory_equal(whole.bf16, parts.bf16, sizeof(whole.bf16));
        assert_memory_equal(whole.f8, parts.f8, sizeof(whole.f8));
    }
    assert_true(wefti_ema_stream(7, "a", 1) != wefti_ema_stream(7, "a", 2));
    assert_true(wefti_ema_stream(7, "a", 1) != wefti_ema_stream(7, "b", 1));
    assert_true(wefti_ema_stream(7, "a", 1) != wefti_ema_stream(8, "a", 1));
}

/* ---- jobs -----------------------------------------------------------------
 */

#define PIPE           "parallel.pipeline_model_parallel_size=2"
#define SCHEDULE(name) "parallel.schedule=" #name

/* A run of the small model; more: up to 6 settings. */
static job_result run(int nranks, const char *const *more, const char *resume)
{
    job what = {.nranks = nranks,
                .resume = resume,
                .settings = {"model.layers=4", "model.seq_length=16",
                             "train.micro_batch_size=2",
                             "train.global_batch_size=16",
                             "train.validate_every=2", "checkpoint.every=0"}};
    for (size_t i = 0; more[i]; i++) {
        what.settings[6 + i] = more[i];
    }
    job_result result = job_run(&own, &what);
    if (result.status != WEFT_OK) {
        fail_msg("%s: %s", more[0], result.error);
    }
    return result;
}

static const char *const formats[] = {"memory.ema=fp32", "memory.ema=bf16",
                                      "memory.ema=fp8"};

static void test_average_is_the_same_on_every_layout(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        const char *const one[] = {formats[i], "memory.ema_decay=0.5",
                                   "train.steps=3", NULL};
        const char *const cut[] = {formats[i],      "memory.ema_decay=0.5",
                                   "train.steps=3", PIPE,
                                   SCHEDULE(zb_h1), NULL};
        job_result a = run(1, one, NULL), b = run(2, one, NULL);
        job_result c = run(4, cut, NULL);
        assert_true(isfinite(a.val_loss_ema));
        assert_true(a.val_loss_ema != a.val_loss);
        assert_true(a.val_loss_ema == b.val_loss_ema);
        assert_true(a.val_loss_ema == c.val_loss_ema);
        /* Training knows nothing of it. */
        assert_true(a.val_loss == b.val_loss && a.val_loss == c.val_loss);
        assert_memory_equal(a.parameters, c.parameters,
                            a.parameter_count * sizeof(real));
        job_result_fini(&a);
        job_result_fini(&b);
        job_result_fini(&c);
    }
}

/* Of bf16 the masters are averaged: with no decay it is they, and what they
 * round to is the weights. */
static void test_average_of_bf16_is_that_of_masters(void **state)
{
    (void)state;
    const char *const none[] = {"memory.ema=none", "model.dtype=bf16",
                                "train.steps=3", NULL};
    const char *const one[] = {"memory.ema=fp32", "model.dtype=bf16",
                               "train.steps=3", "memory.ema_decay=0.5", NULL};
    const char *const last[] = {"memory.ema=fp32", "model.dtype=bf16",
                                "train.steps=3", "memory.ema_decay=0", NULL};
    const char *const cut[] = {"memory.ema=fp32",
                               "model.dtype=bf16",
                               "train.steps=3",
                               "memory.ema_decay=0.5",
                               PIPE,
                               SCHEDULE(zb_h1),
                               NULL};
    job_result plain = run(1, none, NULL), a = run(2, one, NULL);
    job_result b = run(4, cut, NULL), c = run(2, last, NULL);
    assert_true(isfinite(a.val_loss_ema) && a.val_loss_ema != a.val_loss);
    assert_true(a.val_loss_ema == b.val_loss_ema);
    assert_true(c.val_loss_ema == c.val_loss);
    /* What was trained is there again. */
    assert_true(a.val_loss == plain.val_loss && b.val_loss == plain.val_loss);
    assert_memory_equal(a.parameters, plain.parameters,
                        a.parameter_count * sizeof(real));
    job_result_fini(&plain);
    job_result_fini(&a);
    job_result_fini(&b);
    job_result_fini(&c);
}

#define FLAT "train.lr_decay_style=constant"

/* What a run of two steps has saved, two ranks go on from, as a pipeline. */
static job_result go_on(const char *saved_format, const char *type,
                        const char *const *rest)
{
    char folder[300];
    const char *const begun[] = {
        saved_format,    "memory.ema_decay=0.5", FLAT, type,
        "train.steps=2", "checkpoint.every=2",   NULL};
    job_result before = run(2, begun, NULL);
    job_result_fini(&before);
    snprintf(folder, sizeof(folder), "%s/ckpt", own.dir);
    job_result after = run(2, rest, folder);
    nftw(folder, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    return after;
}

static void test_average_goes_on_where_it_was_saved(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        const char *format = formats[i % 3];
        const char *type = i < 3 ? "model.dtype=fp32" : "model.dtype=bf16";
        const char *const whole[] = {
            format, "memory.ema_decay=0.5", FLAT, "train.steps=4", type, NULL};
        const char *const rest[] = {
            format, "memory.ema_decay=0.5", FLAT, "train.steps=4", type,
            PIPE,   SCHEDULE(1f1b),         NULL};
        job_result wanted = run(2, whole, NULL);
        job_result got = go_on(format, type, rest);
        assert_int_equal(got.steps, 2);
        assert_true(wanted.val_loss_ema == got.val_loss_ema);
        assert_true(wanted.val_loss == got.val_loss);
        job_result_fini(&wanted);
        job_result_fini(&got);
    }
}

/* A step without an average is where one begins: it is kept as it is. */
static void test_average_begins_as_the_parameters_of_a_step(void **state)
{
    (void)state;
    const char *const two[] = {"memory.ema=none", FLAT, "train.steps=2", NULL};
    const char *const rest[] = {"memory.ema=fp32", "memory.ema_decay=1", FLAT,
                                "train.steps=4", NULL};
    job_result wanted = run(2, two, NULL);
    job_result got = go_on("memory.ema=none", "model.dtype=fp32", rest);
    assert_true(isnan(wanted.val_loss_ema));
    assert_true(got.val_loss_ema == wanted.val_loss);
    assert_true(got.val_loss != wanted.val_loss);
    job_result_fini(&wanted);
    job_result_fini(&got);
}

/* One of another format is refused by key and formats. An older step without an
 * average is not advised: nothing of the newest is damaged. */
static void test_average_of_another_format_is_refused(void **state)
{
    (void)state;
    char folder[300];
    const char *const older[] = {"memory.ema=none", "train.steps=1",
                                 "checkpoint.every=1", NULL};
    const char *const begun[] = {"memory.ema=bf16", "train.steps=2",
                                 "checkpoint.every=1", NULL};
    job_result oldest = run(1, older, NULL);
    snprintf(folder, sizeof(folder), "%s/ckpt", own.dir);
    job_result before = run(1, begun, folder);
    job what = {.nranks = 1,
                .resume = folder,
                .settings = {"model.layers=4", "model.seq_length=16",
                             "train.micro_batch_size=2",
                             "train.global_batch_size=16", "memory.ema=fp32",
                             "train.steps=3"}};
    job_result got = job_run(&own, &what);
    assert_int_equal(got.status, WEFT_ERR_INVALID);
    assert_non_null(strstr(got.error, "memory.ema: fp32, but step 2 in "));
    assert_non_null(strstr(got.error, "format bf16; allowed is bf16, or none"));
    assert_null(strstr(got.error, "remove"));
    nftw(folder, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
    job_result_fini(&oldest);
    job_result_fini(&before);
    job_result_fini(&got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_e4m3_each_code_is_its_values_nearest),
        cmocka_unit_test(test_average_follows_where_plain_rounding_freezes),
        cmocka_unit_test(test_draws_are_a_places_not_a_calls),
        cmocka_unit_test(test_average_is_the_same_on_every_layout),
        cmocka_unit_test(test_average_of_bf16_is_that_of_masters),
        cmocka_unit_test(test_average_goes_on_where_it_was_saved),
        cmocka_unit_test(test_average_begins_as_the_parameters_of_a_step),
        cmocka_unit_test(test_average_of_another_format_is_refused),
    };
    return cmocka_run_group_tests(tests, open_scratch, close_scratch);
}
