/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Attention of a block of keys, its gradients, and their merging over
 *          blocks are the formulas of attention.h.
 * Method   Odd and even extents, grouped heads, causal masks with offsets,
 *          strides wider than the rows, against the formulas in double; keys
 *          cut into blocks visited in several orders against the uncut call;
 *          queries that see nothing; in the double build central differences
 *          of sum(o dout), 1e-7 relative. Scratch and outputs are guarded.
 */
#include "tests/kernels/math_check.h"

enum { PAD = 2 };

/* Everything one attention reads and writes, rows PAD longer than needed. */
typedef struct problem {
    wefti_attention shape;
    real *q, *k, *v, *dout;
    real *o, *lse, *delta, *dq, *dk, *dv, *scratch;
    double *want_o, *want_lse, *want_dq, *want_dk, *want_dv;
} problem;

typedef struct extent {
    size_t q_tokens, kv_tokens, heads, kv_heads, head_size;
    bool causal;
    ptrdiff_t offset;
} extent;

static const extent extents[] = {
    {1, 1, 1, 1, 1, false, 0},       {7, 5, 2, 1, 3, false, 0},
    {33, 33, 2, 2, 16, true, 0},     {64, 64, 4, 2, 32, true, 0},
    {65, 130, 3, 1, 24, true, 65},   {40, 70, 2, 1, 40, true, 10},
    {70, 40, 2, 2, 64, true, -1},    {70, 40, 4, 1, 8, true, -50},
    {100, 20, 2, 1, 20, true, -100}, {129, 257, 1, 1, 33, false, 0},
    {31, 300, 2, 1, 128, true, 250}, {17, 90, 1, 1, 160, false, 0},
    {200, 200, 1, 1, 32, true, 0},   {3, 500, 8, 2, 64, true, 497},
};

static size_t q_elems(const wefti_attention *s)
{
    return s->q_tokens * s->q_stride;
}

static size_t kv_elems(const wefti_attention *s)
{
    return s->kv_tokens * s->kv_stride;
}

static problem problem_init(check_random *random, const extent *e)
{
    problem p = {.shape = {.q_tokens = e->q_tokens,
                           .kv_tokens = e->kv_tokens,
                           .heads = e->heads,
                           .kv_heads = e->kv_heads,
                           .head_size = e->head_size,
                           .q_stride = e->heads * e->head_size + PAD,
                           .kv_stride = e->kv_heads * e->head_size + 2 * PAD,
                           .o_stride = e->heads * e->head_size + 3 * PAD,
                           .scale = 1 / (real)sqrt((double)e->head_size),
                           .causal = e->causal,
                           .causal_offset = e->offset}};
    const wefti_attention *s = &p.shape;
    size_t rows = s->q_tokens * s->heads;

    p.q = check_alloc_random(random, q_elems(s), 2);
    p.k = check_alloc_random(random, kv_elems(s), 2);
    p.v = check_alloc_random(random, kv_elems(s), 1);
    p.dout = check_alloc_random(random, s->q_tokens * s->o_stride, 1);
    p.o = check_alloc(s->q_tokens * s->o_stride);
    p.lse = check_alloc(rows);
    p.delta = check_alloc(rows);
    p.dq = check_alloc_random(random, q_elems(s), 1);
    p.dk = check_alloc_random(random, kv_elems(s), 1);
    p.dv = check_alloc_random(random, kv_elems(s), 1);
    p.scratch = check_alloc(wefti_attention_scratch_elems(s));
    p.want_o = calloc(s->q_tokens * s->o_stride, sizeof(double));
    p.want_lse = calloc(rows, sizeof(double));
    p.want_dq = calloc(q_elems(s), sizeof(double));
    p.want_dk = calloc(kv_elems(s), sizeof(double));
    p.want_dv = calloc(kv_elems(s), sizeof(double));
    assert_true(p.want_o && p.want_lse && p.want_dq && p.want_dk && p.want_dv);
    return p;
}

static void problem_fini(problem *p)
{
    assert_true(isnan(p->scratch[wefti_attention_scratch_elems(&p->shape)]));
    real *reals[] = {p->q,     p->k,  p->v,  p->dout, p->o,      p->lse,
                     p->delta, p->dq, p->dk, p->dv,   p->scratch};
    double *doubles[] = {p->want_o, p->want_lse, p->want_dq, p->want_dk,
                         p->want_dv};

    for (size_t n = 0; n < sizeof(reals) / sizeof(reals[0]); n++)
        free(reals[n]);
    for (size_t n = 0; n < sizeof(doubles) / sizeof(doubles[0]); n++)
        free(doubles[n]);
}

static bool sees(const wefti_attention *s, size_t i, size_t j)
{
    return !s->causal || (ptrdiff_t)j <= (ptrdiff_t)i + s->causal_offset;
}

static double score(const problem *p, size_t i, size_t h, size_t j)
{
    const wefti_attention *s = &p->shape;
    size_t g = h / (s->heads / s->kv_heads);
    double sum = 0;

    for (size_t d = 0; d < s->head_size; d++)
        sum += (double)p->q[i * s->q_stride + h * s->head_size + d] *
               (double)p->k[j * s->kv_stride + g * s->head_size + d];
    return sum * (double)s->scale;
}

static void reference_forward(problem *p)
{
    const wefti_attention *s = &p->shape;

    for (size_t i = 0; i < s->q_tokens; i++)
        for (size_t h = 0; h < s->heads; h++) {
            double top = -(double)INFINITY, sum = 0;
            double *o = p->want_o + i * s->o_stride + h * s->head_size;
            size_t g = h / (s->heads / s->kv_heads);

            for (size_t j = 0; j < s->kv_tokens; j++)
                if (sees(s, i, j))
                    top = fmax(top, score(p, i, h, j));
            for (size_t j = 0; j < s->kv_tokens; j++) {
                const real *v = p->v + j * s->kv_stride + g * s->head_size;
                double e = sees(s, i, j) ? exp(score(p, i, h, j) - top) : 0;

                sum += e;
                for (size_t d = 0; d < s->head_size; d++)
                    o[d] += e * (double)v[d];
            }
            for (size_t d = 0; sum > 0 && d < s->head_size; d++)
                o[d] /= sum;
            p->want_lse[i * s->heads + h] =
                sum > 0 ? top + log(sum) : -(double)INFINITY;
        }
}

/* One (query, head, key)'s share of the gradients; o and lse are wanted's. */
static void reference_pair(problem *p, size_t i, size_t h, size_t j)
{
    const wefti_attention *s = &p->shape;
    size_t size = s->head_size, g = h / (s->heads / s->kv_heads);
    size_t qi = i * s->q_stride + h * size, kj = j * s->kv_stride + g * size;
    size_t oi = i * s->o_stride + h * size;
    double pij = exp(score(p, i, h, j) - p->want_lse[i * s->heads + h]);
    double dp = 0, delta = 0;

    for (size_t d = 0; d < size; d++) {
        dp += (double)p->dout[oi + d] * (double)p->v[kj + d];
        delta += (double)p->dout[oi + d] * p->want_o[oi + d];
    }

    double ds = pij * (dp - delta) * (double)s->scale;

    for (size_t d = 0; d < size; d++) {
        p->want_dv[kj + d] += pij * (double)p->dout[oi + d];
        p->want_dq[qi + d] += ds * (double)p->k[kj + d];
        p->want_dk[kj + d] += ds * (double)p->q[qi + d];
    }
}

/* Needs reference_forward; starts from what dq, dk, dv hold. */
static void reference_backward(problem *p)
{
    const wefti_attention *s = &p->shape;

    for (size_t n = 0; n < q_elems(s); n++)
        p->want_dq[n] = (double)p->dq[n];
    for (size_t n = 0; n < kv_elems(s); n++) {
        p->want_dk[n] = (double)p->dk[n];
        p->want_dv[n] = (double)p->dv[n];
    }
    for (size_t i = 0; i < s->q_tokens; i++)
        for (size_t h = 0; h < s->heads; h++)
            for (size_t j = 0; j < s->kv_tokens; j++)
                if (sees(s, i, j))
                    reference_pair(p, i, h, j);
}

static void check_forward(const problem *p)
{
    const wefti_attention *s = &p->shape;
    double near = TOLERANCE(2e-5, 1e-12);

    for (size_t i = 0; i < s->q_tokens; i++) {
        const real *row = p->o + i * s->o_stride;

        for (size_t n = 0; n < s->heads * s->head_size; n++)
            check_near(row[n], p->want_o[i * s->o_stride + n], near, "o",
                       i * s->o_stride + n);
        for (size_t n = s->heads * s->head_size; n < s->o_stride; n++)
            assert_true(isnan(row[n]));
        for (size_t h = 0; h < s->heads; h++) {
            double want = p->want_lse[i * s->heads + h];
            real got = p->lse[i * s->heads + h];

            if (isinf(want))
                assert_true(isinf(got) && got < 0);
            else
                check_near(got, want, near, "lse", i * s->heads + h);
        }
    }
}

static void check_backward(const problem *p)
{
    const wefti_attention *s = &p->shape;
    double absolute = TOLERANCE(4e-5, 1e-12), relative = TOLERANCE(2e-5, 1e-12);

    check_all_near(p->dq, p->want_dq, q_elems(s), absolute, relative, "dq");
    check_all_near(p->dk, p->want_dk, kv_elems(s), absolute, relative, "dk");
    check_all_near(p->dv, p->want_dv, kv_elems(s), absolute, relative, "dv");
}

static void run_forward(const wefti_math *math, problem *p)
{
    math->attention_forward(p->o, p->lse, p->q, p->k, p->v, &p->shape, false,
                            p->scratch);
}

static void run_backward(const wefti_math *math, problem *p)
{
    math->attention_delta(p->delta, p->o, p->dout, &p->shape);
    math->attention_backward(p->dq, p->dk, p->dv, p->dout, p->q, p->k, p->v,
                             p->lse, p->delta, &p->shape, p->scratch);
}

static void test_attention_any_shape_matches_reference(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t n = 0; n < sizeof(extents) / sizeof(extents[0]); n++) {
        problem p = problem_init(&random, &extents[n]);

        reference_forward(&p);
        run_forward(math, &p);
        check_forward(&p);
        reference_backward(&p);
        run_backward(math, &p);
        check_backward(&p);
        problem_fini(&p);
    }
}

/* The part of p whose keys are [first, first + count). */
static wefti_attention block_of(const wefti_attention *whole, size_t first,
                                size_t count)
{
    wefti_attention block = *whole;

    block.kv_tokens = count;
    block.causal_offset -= (ptrdiff_t)first;
    return block;
}

/* Forward and backward in blocks of block_tokens keys, first or last first. */
static void run_in_blocks(const wefti_math *math, problem *p,
                          size_t block_tokens, bool backwards)
{
    const wefti_attention *s = &p->shape;
    size_t blocks = (s->kv_tokens + block_tokens - 1) / block_tokens;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t n = 0; n < blocks; n++) {
            size_t at = (backwards ? blocks - 1 - n : n) * block_tokens;
            size_t rest = s->kv_tokens - at, kv = at * s->kv_stride;
            wefti_attention block =
                block_of(s, at, rest < block_tokens ? rest : block_tokens);

            if (pass == 0)
                math->attention_forward(p->o, p->lse, p->q, p->k + kv,
                                        p->v + kv, &block, n > 0, p->scratch);
            else
                math->attention_backward(p->dq, p->dk + kv, p->dv + kv, p->dout,
                                         p->q, p->k + kv, p->v + kv, p->lse,
                                         p->delta, &block, p->scratch);
        }
        if (pass == 0)
            math->attention_delta(p->delta, p->o, p->dout, s);
    }
}

static void test_attention_merged_blocks_match_whole(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (size_t n = 0; n < sizeof(extents) / sizeof(extents[0]); n++)
        for (int form = 0; form < 4; form++) {
            problem p = problem_init(&random, &extents[n]);
            size_t half = (p.shape.kv_tokens + 1) / 2;

            reference_forward(&p);
            reference_backward(&p);
            run_in_blocks(math, &p, form & 1 ? half : 1 + half / 3, form & 2);
            check_forward(&p);
            check_backward(&p);
            problem_fini(&p);
        }
}

static void
test_attention_queries_that_see_nothing_stay_as_they_were(void **state)
{
    check_random random = check_seed();
    const extent hidden = {20, 30, 2, 1, 16, true, -100};
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        problem p = problem_init(&random, &hidden);
        const wefti_attention *s = &p.shape;
        size_t o_elems = s->q_tokens * s->o_stride;
        size_t rows = s->q_tokens * s->heads;

        run_forward(math, &p);
        for (size_t n = 0; n < rows; n++)
            assert_true(isinf(p.lse[n]) && p.lse[n] < 0);
        for (size_t n = 0; n < s->heads * s->head_size; n++)
            assert_true(p.o[n] == 0);
        for (size_t n = 0; n < o_elems; n++)
            p.o[n] = (real)check_uniform(&random, -1, 1);
        for (size_t n = 0; n < rows; n++)
            p.lse[n] =
                n % 3 ? (real)check_uniform(&random, -90, 90) : -(real)INFINITY;

        real *o = check_alloc_copy(p.o, o_elems);
        real *lse = check_alloc_copy(p.lse, rows);

        math->attention_forward(p.o, p.lse, p.q, p.k, p.v, s, true, p.scratch);
        check_same_bits(p.o, o, o_elems);
        check_same_bits(p.lse, lse, rows);
        free(o);
        free(lse);
        problem_fini(&p);
    }
}

static void test_attention_hidden_query_adds_no_gradient(void **state)
{
    check_random random = check_seed();
    const extent open = {20, 30, 2, 1, 16, false, 0};
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        problem p = problem_init(&random, &open);
        const wefti_attention *s = &p.shape;
        real *dq = check_alloc_copy(p.dq, q_elems(s));
        real *dk = check_alloc_copy(p.dk, kv_elems(s));
        real *dv = check_alloc_copy(p.dv, kv_elems(s));

        run_forward(math, &p);
        math->attention_delta(p.delta, p.o, p.dout, s);
        for (size_t n = 0; n < s->q_tokens * s->heads; n++)
            p.lse[n] = -(real)INFINITY;
        math->attention_backward(p.dq, p.dk, p.dv, p.dout, p.q, p.k, p.v, p.lse,
                                 p.delta, s, p.scratch);
        check_same_bits(p.dq, dq, q_elems(s));
        check_same_bits(p.dk, dk, kv_elems(s));
        check_same_bits(p.dv, dv, kv_elems(s));
        free(dq);
        free(dk);
        free(dv);
        problem_fini(&p);
    }
}

/* Scores far apart: the running maximum grows inside and between tiles. */
static void test_attention_large_scores_do_not_overflow(void **state)
{
    check_random random = check_seed();
    const extent wide = {20, 300, 2, 1, 32, true, 280};
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        problem p = problem_init(&random, &wide);

        p.shape.scale = 1;
        for (size_t j = 0; j < p.shape.kv_tokens; j++)
            for (size_t d = 0; d < p.shape.kv_stride; d++)
                p.k[j * p.shape.kv_stride + d] *= (real)(j % 97);
        reference_forward(&p);
        run_forward(math, &p);
        for (size_t n = 0; n < p.shape.q_tokens * p.shape.heads; n++)
            check_near(p.lse[n], p.want_lse[n],
                       TOLERANCE(2e-6, 1e-14) * fabs(p.want_lse[n]), "lse", n);
        for (size_t n = 0; n < p.shape.heads * p.shape.head_size; n++)
            check_near(p.o[n], p.want_o[n], TOLERANCE(2e-3, 1e-11), "o", n);
        problem_fini(&p);
    }
}

#ifdef WEFT_REAL_F64
static double objective(const wefti_math *math, problem *p)
{
    const wefti_attention *s = &p->shape;
    double sum = 0;

    run_forward(math, p);
    for (size_t i = 0; i < s->q_tokens; i++)
        for (size_t n = 0; n < s->heads * s->head_size; n++)
            sum += p->o[i * s->o_stride + n] * p->dout[i * s->o_stride + n];
    return sum;
}

static void check_slopes(const wefti_math *math, problem *p, real *x,
                         const real *dx, size_t rows, size_t row_elems,
                         size_t stride, const char *what)
{
    const double h = 1e-5;

    for (size_t n = 0; n < rows * row_elems; n += 5) {
        size_t at = n / row_elems * stride + n % row_elems;
        real here = x[at];

        x[at] = here + h;
        double above = objective(math, p);
        x[at] = here - h;
        double below = objective(math, p);
        x[at] = here;
        check_near(dx[at], (above - below) / (2 * h), 1e-7 * (1 + fabs(dx[at])),
                   what, at);
    }
}

static void test_attention_gradients_match_differences(void **state)
{
    check_random random = check_seed();
    const extent some[] = {{9, 9, 4, 2, 6, true, 0}, {8, 13, 2, 1, 5, true, 3}};
    const wefti_math *math = wefti_math_get();

    (void)state;
    for (size_t n = 0; n < 2; n++) {
        problem p = problem_init(&random, &some[n]);
        const wefti_attention *s = &p.shape;

        math->fill(p.dq, 0, q_elems(s));
        math->fill(p.dk, 0, kv_elems(s));
        math->fill(p.dv, 0, kv_elems(s));
        run_forward(math, &p);
        run_backward(math, &p);
        check_slopes(math, &p, p.q, p.dq, s->q_tokens, s->heads * s->head_size,
                     s->q_stride, "dq");
        check_slopes(math, &p, p.k, p.dk, s->kv_tokens,
                     s->kv_heads * s->head_size, s->kv_stride, "dk");
        check_slopes(math, &p, p.v, p.dv, s->kv_tokens,
                     s->kv_heads * s->head_size, s->kv_stride, "dv");
        problem_fini(&p);
    }
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_attention_any_shape_matches_reference),
        cmocka_unit_test(test_attention_merged_blocks_match_whole),
        cmocka_unit_test(
            test_attention_queries_that_see_nothing_stay_as_they_were),
        cmocka_unit_test(test_attention_hidden_query_adds_no_gradient),
        cmocka_unit_test(test_attention_large_scores_do_not_overflow),
#ifdef WEFT_REAL_F64
        cmocka_unit_test(test_attention_gradients_match_differences),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
