/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     Rows by expert are those of experts.h: their order, their way there
 *          and back, products and gate; experts may have no rows, or all.
 * Method   Slots drawn evenly, all to one expert, and to none, against loops
 *          over tokens in double.
 */
#include "tests/kernels/math_check.h"

enum { TOKENS = 37, SLOTS = 3, EXPERTS = 5, WIDTH = 19, OUTPUTS = 14 };
enum { ALL = TOKENS * SLOTS };

typedef enum spread_kind { EVEN, ONE, NOBODY, KINDS } spread_kind;

typedef struct problem {
    int32_t expert[ALL], place[ALL], counts[EXPERTS];
    real *x, *rows, *weight, *factor; /* factor: of slots */
    size_t row_count;
} problem;

static problem problem_init(const wefti_math *math, check_random *random,
                            spread_kind kind)
{
    problem p = {.x = check_alloc_random(random, TOKENS * WIDTH, 1),
                 .rows = check_alloc_random(random, ALL * WIDTH, 1),
                 .weight =
                     check_alloc_random(random, EXPERTS * OUTPUTS * WIDTH, 1),
                 .factor = check_alloc_random(random, ALL, 1)};

    for (size_t i = 0; i < ALL; i++)
        p.expert[i] = kind == EVEN  ? (int32_t)(check_bits(random) % EXPERTS)
                      : kind == ONE ? 3
                                    : -1;
    if (kind == EVEN)
        p.expert[7] = -1;
    math->expert_order(p.counts, p.place, p.expert, TOKENS, SLOTS, EXPERTS);
    for (size_t e = 0; e < EXPERTS; e++)
        p.row_count += (size_t)p.counts[e];
    return p;
}

static void problem_fini(problem *p)
{
    free(p->x);
    free(p->rows);
    free(p->weight);
    free(p->factor);
}

#define FOR_EACH_KIND(kind) for (spread_kind kind = EVEN; kind < KINDS; kind++)

static void test_order_is_by_expert_then_slot(void **state)
{
    const wefti_math *math = wefti_math_get();
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    {
        problem p = problem_init(math, &random, kind);
        double load[EXPERTS] = {1, 1, 1, 1, 1};
        int32_t next = 0;

        for (int32_t e = 0; e < EXPERTS; e++) {
            int32_t count = 0;
            for (size_t i = 0; i < ALL; i++) {
                if (p.expert[i] == e) {
                    assert_int_equal(p.place[i], next++);
                    count++;
                }
            }
            assert_int_equal(p.counts[e], count);
        }
        for (size_t i = 0; i < ALL; i++)
            assert_true((p.place[i] == -1) == (p.expert[i] == -1));
        math->expert_load(load, p.expert, TOKENS, SLOTS, EXPERTS);
        for (size_t e = 0; e < EXPERTS; e++)
            check_near(load[e], 1 + p.counts[e], 0, "load", e);
        problem_fini(&p);
    }
}

static void check_there(const wefti_math *math, problem *p, const real *factor)
{
    check_poison(p->rows, ALL * WIDTH);
    math->expert_spread(p->rows, p->x, p->place, factor, TOKENS, SLOTS, WIDTH);
    for (size_t i = 0; i < ALL; i++)
        for (size_t k = 0; p->place[i] >= 0 && k < WIDTH; k++) {
            real want = p->x[i / SLOTS * WIDTH + k] * (factor ? factor[i] : 1);
            check_near(p->rows[(size_t)p->place[i] * WIDTH + k], want, 0, "row",
                       i);
        }
    for (size_t i = p->row_count * WIDTH; i < ALL * WIDTH; i++)
        assert_true(p->rows[i] != p->rows[i]); /* as it was */
}

static void check_back(const wefti_math *math, problem *p, const real *factor)
{
    const double near = TOLERANCE(1e-6, 1e-14);
    real *sum = check_alloc(TOKENS * WIDTH);

    math->expert_collect(sum, p->rows, p->place, factor, TOKENS, SLOTS, WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH; i++) {
        double want = 0;
        for (size_t s = i / WIDTH * SLOTS; s < (i / WIDTH + 1) * SLOTS; s++)
            want +=
                p->place[s] < 0
                    ? 0
                    : (factor ? (double)factor[s] : 1) *
                          (double)
                              p->rows[(size_t)p->place[s] * WIDTH + i % WIDTH];
        check_near(sum[i], want, near, "sum", i);
    }
    free(sum);
}

static void check_dots(const wefti_math *math, problem *p)
{
    const double near = TOLERANCE(4e-6, 1e-14);
    real dots[ALL];

    math->expert_dots(dots, p->rows, p->x, p->place, TOKENS, SLOTS, WIDTH);
    for (size_t i = 0; i < ALL; i++) {
        double want = 0;
        for (size_t k = 0; p->place[i] >= 0 && k < WIDTH; k++)
            want += (double)p->rows[(size_t)p->place[i] * WIDTH + k] *
                    (double)p->x[i / SLOTS * WIDTH + k];
        check_near(dots[i], want, near, "dot", i);
    }
}

static void test_rows_go_there_and_back(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    FOR_EACH_KIND(kind)
    {
        problem p = problem_init(math, &random, kind);

        check_dots(math, &p);
        check_back(math, &p, NULL);
        check_back(math, &p, p.factor);
        check_there(math, &p, NULL);
        check_there(math, &p, p.factor);
        problem_fini(&p);
    }
}

/* y, x or weight of an expert's rows, from the other two. */
static double product(const problem *p, wefti_expert_product kind,
                      const real *y, size_t expert, size_t first, size_t i,
                      size_t k)
{
    const real *w = p->weight + expert * OUTPUTS * WIDTH;
    double sum = 0;

    if (kind == WEFTI_EXPERT_FORWARD)
        for (size_t n = 0; n < WIDTH; n++)
            sum += (double)p->rows[(first + i) * WIDTH + n] *
                   (double)w[k * WIDTH + n];
    else if (kind == WEFTI_EXPERT_INPUTS)
        for (size_t n = 0; n < OUTPUTS; n++)
            sum +=
                (double)y[(first + i) * OUTPUTS + n] * (double)w[n * WIDTH + k];
    else
        for (size_t n = 0; n < (size_t)p->counts[expert]; n++)
            sum += (double)y[(first + n) * OUTPUTS + i] *
                   (double)p->rows[(first + n) * WIDTH + k];
    return sum;
}

static void check_products(const wefti_math *math, check_random *random,
                           problem *p)
{
    const double near = TOLERANCE(2e-5, 1e-13);
    real *y = check_alloc(ALL * OUTPUTS), *dx = check_alloc(ALL * WIDTH);
    real *dy = check_alloc_random(random, ALL * OUTPUTS, 1);
    real *dw = check_alloc(EXPERTS * OUTPUTS * WIDTH);
    size_t first = 0;

    math->expert_gemm(WEFTI_EXPERT_FORWARD, p->rows, y, p->weight, p->counts,
                      EXPERTS, WIDTH, OUTPUTS);
    math->expert_gemm(WEFTI_EXPERT_INPUTS, dx, dy, p->weight, p->counts,
                      EXPERTS, WIDTH, OUTPUTS);
    math->expert_gemm(WEFTI_EXPERT_WEIGHTS, p->rows, dy, dw, p->counts, EXPERTS,
                      WIDTH, OUTPUTS);
    for (size_t e = 0; e < EXPERTS; e++) {
        for (size_t i = 0; i < (size_t)p->counts[e]; i++) {
            for (size_t k = 0; k < OUTPUTS; k++)
                check_near(y[(first + i) * OUTPUTS + k],
                           product(p, WEFTI_EXPERT_FORWARD, y, e, first, i, k),
                           near, "y", i);
            for (size_t k = 0; k < WIDTH; k++)
                check_near(dx[(first + i) * WIDTH + k],
                           product(p, WEFTI_EXPERT_INPUTS, dy, e, first, i, k),
                           near, "dx", i);
        }
        for (size_t i = 0; i < OUTPUTS; i++)
            for (size_t k = 0; k < WIDTH; k++)
                check_near(dw[(e * OUTPUTS + i) * WIDTH + k],
                           product(p, WEFTI_EXPERT_WEIGHTS, dy, e, first, i, k),
                           near, "dw", i);
        first += (size_t)p->counts[e];
    }
    free(y);
    free(dx);
    free(dy);
    free(dw);
}

static void test_products_are_those_of_each_expert(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    FOR_EACH_KIND(kind)
    {
        problem p = problem_init(math, &random, kind);

        check_products(math, &random, &p);
        problem_fini(&p);
    }
}

static void test_gate_is_that_of_the_rows_there_are(void **state)
{
    enum { ROOM = ALL, HALF = 9 };
    check_random random = check_seed();
    const wefti_math *math = wefti_math_get();

    (void)state;
    FOR_EACH_KIND(kind)
    {
        problem p = problem_init(math, &random, kind);
        real *both = check_alloc_random(&random, ROOM * 2 * HALF, 3);
        real *dout = check_alloc_random(&random, ROOM * HALF, 1);
        real *out = check_alloc(ROOM * HALF), *want = check_alloc(ROOM * HALF);
        real *slopes = check_alloc(ROOM * 2 * HALF);
        real *want_slopes = check_alloc(ROOM * 2 * HALF);

        math->expert_gate(out, both, p.counts, EXPERTS, HALF);
        math->expert_gate_backward(slopes, dout, both, p.counts, EXPERTS, HALF);
        math->swiglu_forward(want, both, both + HALF, p.row_count, HALF,
                             2 * HALF);
        math->swiglu_backward(want_slopes, want_slopes + HALF, dout, both,
                              both + HALF, p.row_count, HALF, 2 * HALF);
        check_same_bits(out, want, ROOM * HALF);
        check_same_bits(slopes, want_slopes, ROOM * 2 * HALF);
        free(both);
        free(dout);
        free(out);
        free(want);
        free(slopes);
        free(want_slopes);
        problem_fini(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order_is_by_expert_then_slot),
        cmocka_unit_test(test_rows_go_there_and_back),
        cmocka_unit_test(test_products_are_those_of_each_expert),
        cmocka_unit_test(test_gate_is_that_of_the_rows_there_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
