/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA kernels of embedding and cross-entropy give what the
 *          host's give, in any launch shape and order of threads.
 * Method   Shapes around a warp's lanes, ids that occur often or never, tokens
 *          that do not count, logits of -inf and of 1e4. Embedding gives the
 *          host's bits: one addition after the other, in order of tokens.
 *
 * Cross-entropy is within the host header's tolerances twice: a float exp on
 * either side is right to two steps, the sum's order adds less.
 */
#include "tests/simt/math_run.h"

typedef struct shape {
    size_t tokens, vocab, width;
} shape;

static const shape shapes[] = {{1, 1, 1},     {40, 7, 33},  {100, 3, 300},
                               {65, 50, 64},  {0, 9, 16},   {33, 1, 31},
                               {7, 1000, 70}, {3, 257, 32}, {5, 2312, 8}};

static int32_t *random_ids(check_random *random, size_t tokens, size_t vocab)
{
    int32_t *ids = malloc(tokens * sizeof(*ids) + 1);

    assert_non_null(ids);
    for (size_t t = 0; t < tokens; t++)
        ids[t] = (int32_t)(check_bits(random) % vocab);
    return ids;
}

static void check_embedding(check_random *random, math_kind kind, shape s)
{
    const wefti_math *math = wefti_math_get();
    int32_t *ids = random_ids(random, s.tokens, s.vocab);
    for (size_t t = 3; t < s.tokens; t += 7)
        ids[t] = -(int32_t)t; /* no row here */
    math_array table = math_random(random, kind, s.vocab * s.width, 1);
    math_array out = math_new(kind, s.tokens * s.width), expected;
    math_array dtable = math_random(random, MATH_WIDE, s.vocab * s.width, 1);
    math_array dout = math_random(random, kind, s.tokens * s.width, 1);
    real *host_table = math_values(&table), *sum = math_values(&dtable);
    real *want = check_alloc(s.tokens * s.width), *slopes = math_values(&dout);
    wefti_math_embedding_forward forward = {out.at,   table.at, ids,
                                            s.tokens, s.width,  s.vocab};
    wefti_math_embedding_backward backward = {dtable.at, dout.at, ids,
                                              s.tokens,  s.width, s.vocab};

    math->embedding_forward(want, host_table, ids, s.tokens, s.vocab, s.width);
    math_launch("embedding_forward", kind, &forward, random);
    expected = math_of(kind, want, s.tokens * s.width);
    math_same_bits(&out, &expected);
    math->embedding_backward(sum, slopes, ids, s.tokens, s.vocab, s.width);
    math_launch("embedding_backward", kind, &backward, random);
    assert_memory_equal(dtable.at, sum, s.vocab * s.width * sizeof(real));
    math_free(&table);
    math_free(&out);
    math_free(&expected);
    math_free(&dtable);
    math_free(&dout);
    free(host_table);
    free(sum);
    free(want);
    free(slopes);
    free(ids);
}

static void test_embedding_any_shape_gives_the_hosts_bits(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        check_embedding(&random, kind, shapes[i]);
}

/* Of each five tokens one does not count. */
static void check_loss(check_random *random, math_kind kind, shape s,
                       double size, double scale)
{
    const wefti_math *math = wefti_math_get();
    int32_t *targets = random_ids(random, s.tokens, s.vocab);
    math_array logits = math_random(random, kind, s.tokens * s.vocab, size);
    math_array loss = math_new(MATH_WIDE, s.tokens);
    math_array dlogits = math_new(kind, s.tokens * s.vocab);
    real *x = math_values(&logits), *want = check_alloc(s.tokens);
    real *slopes = check_alloc(s.tokens * s.vocab);
    wefti_math_cross_entropy args = {loss.at,  dlogits.at, logits.at, targets,
                                     s.tokens, s.vocab,    scale};
    double near = TOLERANCE(8e-6, 2e-14);

    for (size_t t = 4; t < s.tokens; t += 5)
        targets[t] = -1 - (int32_t)t;
    math->cross_entropy(want, slopes, x, targets, s.tokens, s.vocab,
                        (real)scale);
    math_launch("cross_entropy", kind, &args, random);
    math_all_near(&loss, want, near + near / 10 * size, 0, "loss");
    math_all_near(&dlogits, slopes, near / 10 * scale, 0, "dlogits");

    /* In place, and the loss alone: the same bits. */
    math_array again = math_copy(&logits), only = math_new(MATH_WIDE, s.tokens);

    args.loss = only.at;
    args.dlogits = NULL;
    math_launch("cross_entropy", kind, &args, random);
    math_same_bits(&only, &loss);
    args.dlogits = again.at;
    args.logits = again.at;
    math_launch("cross_entropy", kind, &args, random);
    math_same_bits(&only, &loss);
    math_same_bits(&again, &dlogits);
    math_free(&again);
    math_free(&only);
    math_free(&logits);
    math_free(&loss);
    math_free(&dlogits);
    free(x);
    free(want);
    free(slopes);
    free(targets);
}

/* Of each five tokens one does not count, and one has its target elsewhere. */
static void check_parts(check_random *random, math_kind kind, shape s,
                        double scale)
{
    enum { PARTS = 3 };
    const wefti_math *math = wefti_math_get();
    const size_t elems = s.tokens * WEFTI_CROSS_ENTROPY_SUMMARY + 5;
    int32_t *targets = random_ids(random, s.tokens, s.vocab);
    math_array logits = math_random(random, kind, s.tokens * s.vocab, 5);
    math_array parts = math_random(random, MATH_WIDE, PARTS * elems, 5);
    math_array loss = math_new(MATH_WIDE, s.tokens);
    math_array dlogits = math_new(kind, s.tokens * s.vocab);
    real *x = math_values(&logits), *want = check_alloc(s.tokens);
    real *slopes = check_alloc(s.tokens * s.vocab), *all = parts.at;
    const double near = TOLERANCE(8e-6, 2e-14);

    for (size_t t = 3; t < s.tokens; t += 5)
        targets[t] = WEFTI_CROSS_ENTROPY_ELSEWHERE;
    for (size_t t = 4; t < s.tokens; t += 5)
        targets[t] = WEFTI_CROSS_ENTROPY_NO_TARGET;
    for (size_t p = 1; p < PARTS; p++)
        for (size_t t = 0; t < s.tokens; t++)
            all[p * elems + t * WEFTI_CROSS_ENTROPY_SUMMARY + 1] = (real)p;
    math_array summary = math_new(MATH_WIDE, elems);
    wefti_math_softmax_part part = {summary.at, logits.at, targets, s.tokens,
                                    s.vocab};
    math->softmax_part(all, x, targets, s.tokens, s.vocab);
    math_launch("softmax_part", kind, &part, random);
    for (size_t i = 0; i < s.tokens * WEFTI_CROSS_ENTROPY_SUMMARY; i++)
        check_near(((real *)summary.at)[i], (double)all[i],
                   near * fmax(1, fabs((double)all[i])), "summary", i);

    const wefti_cross_entropy_parts joined = {all, PARTS, elems};
    wefti_math_cross_entropy_part args = {
        loss.at, dlogits.at, logits.at, targets, parts.at,
        PARTS,   elems,      s.tokens,  s.vocab, scale};
    math->cross_entropy_part(want, slopes, x, targets, &joined, s.tokens,
                             s.vocab, (real)scale);
    math_launch("cross_entropy_part", kind, &args, random);
    math_all_near(&loss, want, 2 * near, 0, "loss");
    math_all_near(&dlogits, slopes, near / 10 * scale, 0, "dlogits");
    args.dlogits = logits.at;
    math_launch("cross_entropy_part", kind, &args, random);
    math_same_bits(&logits, &dlogits);
    math_free(&summary);
    math_free(&logits);
    math_free(&parts);
    math_free(&loss);
    math_free(&dlogits);
    free(x);
    free(want);
    free(slopes);
    free(targets);
}

static void test_cross_entropy_parts_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        check_parts(&random, kind, shapes[i], 0.125);
}

static void test_cross_entropy_any_shape_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        check_loss(&random, kind, shapes[i], 5, 1);
        check_loss(&random, kind, shapes[i], 1e4, 1.0 / 512);
    }
}

static void set_real(const math_array *array, size_t i, real value)
{
    math_array one = math_of(array->kind, &value, 1);

    memcpy((char *)array->at + i * math_bytes(array->kind), one.at,
           math_bytes(array->kind));
    math_free(&one);
}

/* A vocabulary of which most, or the first, is hidden by -inf. */
static void test_cross_entropy_hidden_logits_have_no_share(void **state)
{
    check_random random = check_seed();
    enum { VOCAB = 100 };

    (void)state;
    FOR_EACH_KIND(kind)
    {
        static const int32_t target = 70;
        math_array logits = math_random(&random, kind, VOCAB, 2);
        math_array loss = math_new(MATH_WIDE, 1);
        math_array dlogits = math_new(kind, VOCAB);
        wefti_math_cross_entropy args = {
            loss.at, dlogits.at, logits.at, &target, 1, VOCAB, 1};

        for (size_t j = 0; j < VOCAB; j++)
            if (j != 70 && j != 99)
                set_real(&logits, j, -(real)INFINITY);
        math_launch("cross_entropy", kind, &args, &random);

        double apart = math_value(&logits, 99) - math_value(&logits, 70);
        double share = 1 / (1 + exp(-apart));

        check_near(math_value(&loss, 0), log(1 + exp(apart)), 2e-5, "loss", 0);
        for (size_t j = 0; j < VOCAB; j++)
            check_near(math_value(&dlogits, j),
                       j == 70   ? -share
                       : j == 99 ? share
                                 : 0,
                       kind == MATH_BF16 ? 4e-3 : 1e-6, "dlogits", j);
        set_real(&logits, 3, (real)NAN);
        math_launch("cross_entropy", kind, &args, &random);
        assert_true(isnan(math_value(&loss, 0)));
        math_free(&logits);
        math_free(&loss);
        math_free(&dlogits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_embedding_any_shape_gives_the_hosts_bits),
        cmocka_unit_test(test_cross_entropy_any_shape_near_the_hosts),
        cmocka_unit_test(test_cross_entropy_parts_near_the_hosts),
        cmocka_unit_test(test_cross_entropy_hidden_logits_have_no_share),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
