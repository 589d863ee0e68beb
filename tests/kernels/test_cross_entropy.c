/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Loss and gradient are the formulas of cross_entropy.h for any
 *          vocabulary size and any size of logits; ignored tokens count
 *          nothing; NaN is not hidden.
 * Method   Against log-sum-exp in double, logits up to 1e4 apart; in the
 *          double build also central differences, 1e-7 relative; in place and
 *          loss-only forms bit for bit.
 */
#include "tests/kernels/math_check.h"

enum { TOKENS = 6 };
static const size_t vocabs[] = {1, 2, 15, 16, 17, 63, 256, 257, 1000, 5003};

static void check_row(const real *x, const real *dx, real loss, size_t vocab,
                      size_t target, double scale)
{
    double top = -(double)INFINITY, sum = 0;

    for (size_t j = 0; j < vocab; j++)
        top = (double)x[j] > top ? (double)x[j] : top;
    for (size_t j = 0; j < vocab; j++)
        sum += exp((double)x[j] - top);

    double want = top + log(sum) - (double)x[target];

    check_near(loss, want,
               TOLERANCE(4e-6, 1e-13) +
                   TOLERANCE(4e-7, 1e-15) *
                       fmax(fabs(top), fabs((double)x[target])),
               "loss", 0);
    for (size_t j = 0; j < vocab; j++) {
        double p = exp((double)x[j] - top) / sum;

        check_near(dx[j], scale * (p - (j == target)),
                   scale * TOLERANCE(4e-7, 1e-14), "dlogits", j);
    }
}

static void one_vocab(const wefti_math *math, check_random *random,
                      size_t vocab, double size)
{
    real *x = check_alloc_random(random, TOKENS * vocab, size);
    real *dx = check_alloc(TOKENS * vocab);
    real loss[TOKENS], loss_only[TOKENS];
    int32_t targets[TOKENS];
    const real scale = WEFTI_REAL(0.125);

    for (size_t t = 0; t < TOKENS; t++)
        targets[t] = (int32_t)(check_bits(random) % vocab);
    targets[2] = -1;
    check_poison(loss, TOKENS);
    check_poison(loss_only, TOKENS);
    math->cross_entropy(loss, dx, x, targets, TOKENS, vocab, scale);
    for (size_t t = 0; t < TOKENS; t++) {
        if (t != 2)
            check_row(x + t * vocab, dx + t * vocab, loss[t], vocab,
                      (size_t)targets[t], (double)scale);
        for (size_t j = 0; t == 2 && j < vocab; j++)
            assert_true(dx[t * vocab + j] == 0);
    }
    assert_true(loss[2] == 0);
    math->cross_entropy(loss_only, NULL, x, targets, TOKENS, vocab, scale);
    check_same_bits(loss_only, loss, TOKENS);
    math->cross_entropy(loss, x, x, targets, TOKENS, vocab, scale);
    check_same_bits(loss_only, loss, TOKENS);
    check_same_bits(x, dx, TOKENS * vocab);
    free(x);
    free(dx);
}

static void test_cross_entropy_any_vocab_matches_reference(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t n = 0; n < sizeof(vocabs) / sizeof(vocabs[0]); n++) {
        one_vocab(math, &random, vocabs[n], 5);
        one_vocab(math, &random, vocabs[n], 5000);
    }
}

static void test_cross_entropy_nan_logit_gives_nan_loss(void **state)
{
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t at = 0; at < 40; at++) {
        real x[40] = {0}, dx[40], loss = 0;
        int32_t target = 3;

        x[at] = (real)NAN;
        math->cross_entropy(&loss, dx, x, &target, 1, 40, 1);
        assert_true(isnan(loss));
    }
}

enum { PARTS = 3 };

/* Columns of part p: the p-th run of vocab, which may have none. */
static size_t first_of(size_t vocab, size_t p)
{
    return vocab * p / PARTS;
}

/* A part's columns, and its targets as its own numbers. */
static real *cut_part(const real *x, const int32_t *targets, size_t vocab,
                      size_t p, int32_t *own)
{
    size_t first = first_of(vocab, p), width = first_of(vocab, p + 1) - first;
    real *part = check_alloc(TOKENS * width + 1);

    for (size_t t = 0; t < TOKENS; t++) {
        size_t at = (size_t)targets[t] - first;

        memcpy(part + t * width, x + t * vocab + first, width * sizeof(*x));
        own[t] = targets[t] < 0 ? WEFTI_CROSS_ENTROPY_NO_TARGET
                 : at < width   ? (int32_t)at
                                : WEFTI_CROSS_ENTROPY_ELSEWHERE;
    }
    return part;
}

static void parts_of_vocab(const wefti_math *math, check_random *random,
                           size_t vocab, double size)
{
    enum { ELEMS = TOKENS * WEFTI_CROSS_ENTROPY_SUMMARY };
    real *x = check_alloc_random(random, TOKENS * vocab, size);
    real *want = check_alloc(TOKENS * vocab);
    real loss[TOKENS], own_loss[TOKENS], summaries[PARTS * ELEMS];
    int32_t targets[TOKENS], own[PARTS][TOKENS];
    real *parts[PARTS];
    const real scale = WEFTI_REAL(0.125);
    const wefti_cross_entropy_parts all = {summaries, PARTS, ELEMS};

    for (size_t t = 0; t < TOKENS; t++)
        targets[t] = (int32_t)(check_bits(random) % vocab);
    targets[2] = -1;
    math->cross_entropy(loss, want, x, targets, TOKENS, vocab, scale);
    for (size_t p = 0; p < PARTS; p++) {
        size_t width = first_of(vocab, p + 1) - first_of(vocab, p);

        parts[p] = cut_part(x, targets, vocab, p, own[p]);
        math->softmax_part(summaries + p * ELEMS, parts[p], own[p], TOKENS,
                           width);
    }
    for (size_t p = 0; p < PARTS; p++) {
        size_t first = first_of(vocab, p);
        size_t width = first_of(vocab, p + 1) - first;

        math->cross_entropy_part(own_loss, parts[p], parts[p], own[p], &all,
                                 TOKENS, width, scale);
        for (size_t t = 0; t < TOKENS; t++) {
            check_near(
                own_loss[t], (double)loss[t],
                2 * (TOLERANCE(4e-6, 1e-13) + TOLERANCE(4e-7, 1e-15) * size),
                "loss of parts", t);
            for (size_t j = 0; j < width; j++)
                check_near(parts[p][t * width + j],
                           (double)want[t * vocab + first + j],
                           0.125 * TOLERANCE(8e-7, 2e-14), "dlogits", j);
        }
        free(parts[p]);
    }
    free(x);
    free(want);
}

static void test_cross_entropy_of_parts_is_that_of_all(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t n = 0; n < sizeof(vocabs) / sizeof(vocabs[0]); n++) {
        parts_of_vocab(math, &random, vocabs[n], 5);
        parts_of_vocab(math, &random, vocabs[n], 5000);
    }
}

/* Of a part without a finite logit only a NaN reaches the loss. */
static void test_cross_entropy_of_parts_keeps_nan_alone(void **state)
{
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (int nan = 0; nan < 2; nan++) {
        real own[2] = {-(real)INFINITY, nan ? (real)NAN : -(real)INFINITY};
        real other[2] = {1, 1}, loss, summaries[6];
        int32_t target = 0, elsewhere = WEFTI_CROSS_ENTROPY_ELSEWHERE;
        const wefti_cross_entropy_parts all = {summaries, 2, 3};

        math->softmax_part(summaries, own, &elsewhere, 1, 2);
        math->softmax_part(summaries + 3, other, &target, 1, 2);
        math->cross_entropy_part(&loss, NULL, other, &target, &all, 1, 2, 1);
        assert_true(nan ? isnan(loss) : fabs((double)loss - log(2)) < 1e-6);
    }
}

#ifdef WEFT_REAL_F64
static void test_cross_entropy_gradient_matches_differences(void **state)
{
    check_random random = check_seed();
    const wefti_math *math = wefti_math_get();
    const double h = 1e-5;
    real *x = check_alloc_random(&random, 37, 3), dx[37], loss, above, below;
    int32_t target = 20;

    (void)state;
    math->cross_entropy(&loss, dx, x, &target, 1, 37, 1);
    for (size_t j = 0; j < 37; j++) {
        real here = x[j];

        x[j] = here + h;
        math->cross_entropy(&above, NULL, x, &target, 1, 37, 1);
        x[j] = here - h;
        math->cross_entropy(&below, NULL, x, &target, 1, 37, 1);
        x[j] = here;
        check_near(dx[j], (above - below) / (2 * h), 1e-7, "dlogits", j);
    }
    free(x);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cross_entropy_any_vocab_matches_reference),
        cmocka_unit_test(test_cross_entropy_nan_logit_gives_nan_loss),
        cmocka_unit_test(test_cross_entropy_of_parts_is_that_of_all),
        cmocka_unit_test(test_cross_entropy_of_parts_keeps_nan_alone),
#ifdef WEFT_REAL_F64
        cmocka_unit_test(test_cross_entropy_gradient_matches_differences),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
