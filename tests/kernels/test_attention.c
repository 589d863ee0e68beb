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
#include "tests/kernels/attention_problem.h"

static const extent extents[] = {
    {1, 1, 1, 1, 1, false, 0},       {7, 5, 2, 1, 3, false, 0},
    {33, 33, 2, 2, 16, true, 0},     {64, 64, 4, 2, 32, true, 0},
    {65, 130, 3, 1, 24, true, 65},   {40, 70, 2, 1, 40, true, 10},
    {70, 40, 2, 2, 64, true, -1},    {70, 40, 4, 1, 8, true, -50},
    {100, 20, 2, 1, 20, true, -100}, {129, 257, 1, 1, 33, false, 0},
    {31, 300, 2, 1, 128, true, 250}, {17, 90, 1, 1, 160, false, 0},
    {200, 200, 1, 1, 32, true, 0},   {3, 500, 8, 2, 64, true, 497},
};

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
    for (size_t n = 0; n < sizeof(extents) / sizeof(extents[0]); n++) {
        problem p = problem_init(&random, &extents[n]);

        problem_solve(&p);
        FOR_EACH_LEVEL(math)
        {
            problem_reset(&p);
            run_forward(math, &p);
            problem_check_forward(&p);
            run_backward(math, &p);
            problem_check_backward(&p);
        }
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
    for (size_t n = 0; n < sizeof(extents) / sizeof(extents[0]); n++) {
        problem p = problem_init(&random, &extents[n]);
        size_t half = (p.shape.kv_tokens + 1) / 2;

        problem_solve(&p);
        FOR_EACH_LEVEL(math)
        for (int form = 0; form < 4; form++) {
            problem_reset(&p);
            run_in_blocks(math, &p, form & 1 ? half : 1 + half / 3, form & 2);
            problem_check_forward(&p);
            problem_check_backward(&p);
        }
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
        size_t o_elems = problem_o_elems(&p);
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
        real *dq = check_alloc_copy(p.dq, problem_q_elems(&p));
        real *dk = check_alloc_copy(p.dk, problem_kv_elems(&p));
        real *dv = check_alloc_copy(p.dv, problem_kv_elems(&p));

        run_forward(math, &p);
        math->attention_delta(p.delta, p.o, p.dout, s);
        for (size_t n = 0; n < s->q_tokens * s->heads; n++)
            p.lse[n] = -(real)INFINITY;
        math->attention_backward(p.dq, p.dk, p.dv, p.dout, p.q, p.k, p.v, p.lse,
                                 p.delta, s, p.scratch);
        check_same_bits(p.dq, dq, problem_q_elems(&p));
        check_same_bits(p.dk, dk, problem_kv_elems(&p));
        check_same_bits(p.dv, dv, problem_kv_elems(&p));
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
        problem_solve(&p);
        run_forward(math, &p);
        for (size_t n = 0; n < p.shape.q_tokens * p.shape.heads; n++)
            check_near(p.lse[n], p.want_lse[n],
                       TOLERANCE(2e-6, 1e-14) * fabs(p.want_lse[n]), "lse", n);
        for (size_t n = 0; n < p.shape.heads * p.shape.head_size; n++)
            check_near(p.o[n], p.want_o[n], TOLERANCE(2e-3, 1e-11), "o", n);
        problem_fini(&p);
    }
}

/* The same bits every time, wherever the scratch happens to lie. */
static void test_attention_any_scratch_gives_same_bits(void **state)
{
    check_random random = check_seed();
    const extent some = {40, 70, 2, 1, 40, true, 10};
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        problem p = problem_init(&random, &some);
        size_t elems = wefti_attention_scratch_elems(&p.shape);
        size_t o_elems = problem_o_elems(&p), q_elems = problem_q_elems(&p);
        real *o = NULL, *dq = NULL, *room = check_alloc(elems + 20);

        for (size_t shift = 0; shift < 20; shift += 3) {
            problem moved = p;

            moved.scratch = room + shift;
            problem_reset(&p);
            run_forward(math, &moved);
            run_backward(math, &moved);
            if (shift == 0) {
                o = check_alloc_copy(p.o, o_elems);
                dq = check_alloc_copy(p.dq, q_elems);
            }
            check_same_bits(p.o, o, o_elems);
            check_same_bits(p.dq, dq, q_elems);
            assert_true(isnan(room[shift + elems]));
            check_poison(room, elems + 20);
        }
        free(o);
        free(dq);
        free(room);
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

        math->fill(p.dq, 0, problem_q_elems(&p));
        math->fill(p.dk, 0, problem_kv_elems(&p));
        math->fill(p.dv, 0, problem_kv_elems(&p));
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
        cmocka_unit_test(test_attention_any_scratch_gives_same_bits),
#ifdef WEFT_REAL_F64
        cmocka_unit_test(test_attention_gradients_match_differences),
#endif
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
