/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA kernels of the optimizer's step (sums of squares and of
 *          rows, clipping, AdamW) give what the host's give, in any launch
 *          shape.
 * Method   Counts around a warp, a block of threads and a block of the sum,
 * over several steps; bf16 parameters are their masters' rounding, to the bit.
 * Partial sums of squares of f32 and bf16 are the host's bits, those of f64
 * differ by the 37 roundings that sumsq.h states.
 */
#include "tests/simt/math_run.h"

static const size_t counts[] = {0, 1, 31, 33, 1000, 1024, 1025, 5000};

typedef struct trained {
    size_t elems;
    math_array param, master, m, v, grad;
    real *host_param, *host_m, *host_v, *host_grad;
} trained;

static trained trained_init(check_random *random, math_kind kind,
                            math_kind grad, size_t elems)
{
    real *zeros = calloc(elems + 1, sizeof(real));
    trained s = {.elems = elems,
                 .param = math_new(kind, elems),
                 .master = math_random(random, MATH_WIDE, elems, 1),
                 .m = math_of(MATH_WIDE, zeros, elems),
                 .v = math_of(MATH_WIDE, zeros, elems),
                 .grad = math_random(random, grad, elems, 1)};

    free(zeros);
    s.host_param = math_values(&s.master);
    s.host_m = math_values(&s.m);
    s.host_v = math_values(&s.v);
    s.host_grad = math_values(&s.grad);
    return s;
}

static void trained_fini(trained *s)
{
    math_free(&s->param);
    math_free(&s->master);
    math_free(&s->m);
    math_free(&s->v);
    math_free(&s->grad);
    free(s->host_param);
    free(s->host_m);
    free(s->host_v);
    free(s->host_grad);
}

static wefti_math_adamw_step step_of(const wefti_adamw_config *config)
{
    return (wefti_math_adamw_step){
        .beta1 = config->beta1,
        .rest1 = 1 - config->beta1,
        .beta2 = config->beta2,
        .rest2 = 1 - config->beta2,
        .grad_scale = 1,
        .eps = config->eps,
        .decay = config->lr * config->weight_decay,
        .m_factor = config->lr / (1 - pow(config->beta1, (double)config->step)),
        .v_factor = 1 / sqrt(1 - pow(config->beta2, (double)config->step))};
}

static void check_adamw(check_random *random, math_kind kind, math_kind grad,
                        size_t elems)
{
    const wefti_math *math = wefti_math_get();
    trained s = trained_init(random, kind, grad, elems);
    bool own = kind != MATH_BF16; /* a parameter is its own master */
    double factor = 0.37;
    wefti_math_adamw args = {.param = own ? NULL : s.param.at,
                             .master = s.master.at,
                             .m = s.m.at,
                             .v = s.v.at,
                             .grad = s.grad.at,
                             .elems = elems};
    wefti_adamw_config config = {.lr = 1e-2,
                                 .beta1 = 0.9,
                                 .beta2 = 0.95,
                                 .eps = 1e-8,
                                 .weight_decay = 0.1};

    for (config.step = 1; config.step <= 3; config.step++) {
        config.grad_scale = config.step == 1 ? 1 : factor;
        args.grad_factor = config.step == 1 ? NULL : &factor;
        args.step = step_of(&config);
        math->adamw(s.host_param, s.host_m, s.host_v, s.host_grad, elems,
                    &config);
        if (grad == kind)
            math_launch("adamw", kind, &args, random);
        else
            math_launch("adamw_bf16", grad, &args, random);
    }
    /* three steps, of which both sides round each */
    math_all_near(&s.master, s.host_param, 6 * TOLERANCE(4e-7, 1e-15), 0,
                  "param");
    math_all_near(&s.m, s.host_m, TOLERANCE(1e-6, 2e-15), 0, "m");
    math_all_near(&s.v, s.host_v, TOLERANCE(1e-6, 2e-15), 0, "v");
    if (!own) {
        real *masters = math_values(&s.master);
        math_array rounded = math_of(MATH_BF16, masters, elems);

        math_same_bits(&s.param, &rounded);
        math_free(&rounded);
        free(masters);
    }
    trained_fini(&s);
}

static void test_adamw_any_count_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_adamw(&random, kind, kind, counts[i]);
        if (kind == MATH_F32)
            check_adamw(&random, MATH_BF16, MATH_F32, counts[i]);
    }
}

/* Of so many lanes, in the order of warp_sum. */
static double sum_of_warp(const double *lanes)
{
    double now[32];

    memcpy(now, lanes, sizeof(now));
    for (unsigned step = 16; step != 0; step /= 2)
        for (unsigned lane = 0; lane < step; lane++)
            now[lane] += now[lane + step];
    return now[0];
}

/* As math_launch.h has it of clip. */
static double sum_of_lanes(const double *partials, size_t count)
{
    double lanes[256] = {0}, sum = 0;

    for (size_t n = 0; n < count; n++)
        lanes[n % 256] += partials[n];
    for (size_t warp = 0; warp < 8; warp++)
        sum += sum_of_warp(lanes + 32 * warp);
    return sum;
}

static void check_norm(check_random *random, math_kind kind, size_t elems,
                       double most)
{
    const wefti_math *math = wefti_math_get();
    size_t count = wefti_sumsq_blocks(elems);
    math_array x = math_random(random, kind, elems, 3);
    real *host_x = math_values(&x);
    double *got = malloc(count * sizeof(double) + 1);
    double *want = malloc(count * sizeof(double) + 1);
    double norm = NAN, factor = NAN, scale = 0.25;
    wefti_math_sumsq first = {got, x.at, elems};
    wefti_math_clip second = {&norm, &factor, got, count, scale, most};

    memset(got, 0xff, count * sizeof(double));
    math->sumsq(want, host_x, elems);
    math_launch("sumsq", kind, &first, random);
    for (size_t n = 0; n < count; n++)
        check_near(got[n], want[n], TOLERANCE(0, 37 * 0x1p-52 * want[n]),
                   "partials", n);
    math_launch("clip", MATH_F64, &second, random);

    double expected = sqrt(sum_of_lanes(got, count)) * scale;

    assert_true(norm == expected);
    assert_true(factor ==
                (most > 0 && expected > most ? most / expected : 1.0));
    /* The host adds first to last: a rounding a partial sum apart. */
    expected = sqrt(wefti_sumsq_reduce(got, count)) * scale;
    assert_true(fabs(norm - expected) <=
                expected * (double)(count + 8) * 0x1p-53);
    free(got);
    free(want);
    free(host_x);
    math_free(&x);
}

static void test_norm_any_count_gives_the_documented_bits(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_norm(&random, kind, counts[i], 1);
        check_norm(&random, kind, counts[i], 0);
        check_norm(&random, kind, counts[i], 1e6);
    }
    check_norm(&random, FIRST_KIND, 40 * 1024 + 1, 1); /* more than a warp */
}

/* More partial sums than lanes have under way: one sum in any shape. */
static void test_clip_any_launch_gives_the_same_bits(void **state)
{
    enum { COUNT = 5000, SHAPES = 8 };
    check_random random = check_seed();
    double norms[SHAPES], factor, *partials = malloc(COUNT * sizeof(double));

    (void)state;
    assert_non_null(partials);
    for (size_t i = 0; i < COUNT; i++)
        partials[i] = (double)(check_bits(&random) % 1000000) / 7;
    for (size_t i = 0; i < SHAPES; i++) {
        wefti_math_clip args = {&norms[i], &factor, partials, COUNT, 1, 0};

        math_launch("clip", MATH_F64, &args, &random);
        assert_true(norms[i] == sqrt(sum_of_lanes(partials, COUNT)));
    }
    double expected = sqrt(wefti_sumsq_reduce(partials, COUNT));

    assert_true(fabs(norms[0] - expected) <= COUNT * 0x1p-53 * expected);
    free(partials);
}

static void check_totals(check_random *random, math_kind kind, size_t rows,
                         size_t width)
{
    math_array x = math_random(random, kind, rows * width, 3);
    double *got = malloc(rows * sizeof(double) + 1);
    wefti_math_totals args = {got, x.at, rows, width};

    memset(got, 0xff, rows * sizeof(double));
    math_launch("totals", kind, &args, random);
    for (size_t row = 0; row < rows; row++) {
        double want = 0;

        for (size_t i = 0; i < width; i++)
            want += math_value(&x, row * width + i);
        assert_true(got[row] == want);
    }
    free(got);
    math_free(&x);
}

static void test_totals_any_rows_give_the_sums_in_order(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        check_totals(&random, kind, 1, counts[i]);
        check_totals(&random, kind, counts[i] % 50, 70);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_adamw_any_count_near_the_hosts),
        cmocka_unit_test(test_norm_any_count_gives_the_documented_bits),
        cmocka_unit_test(test_clip_any_launch_gives_the_same_bits),
        cmocka_unit_test(test_totals_any_rows_give_the_sums_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
