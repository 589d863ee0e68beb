/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA matrix product gives what the host's gives, in all four
 *          layouts, and touches only its m x n elements of C.
 * Method   Extents around a tile and its depth, none of each; rows with gaps;
 *          alpha and beta; a C of NaNs where beta is 0. A row alone gives the
 *          bits that it has among others.
 *
 * Tolerance   gemm.h's 2 k epsilon (|A| |B|) for either side, and the roundings
 *             of alpha, beta and the sum.
 */
#include "tests/simt/math_run.h"

typedef struct extent {
    size_t m, n, k;
} extent;

static const extent extents[] = {{1, 1, 1},     {64, 64, 16}, {65, 33, 17},
                                 {70, 130, 40}, {3, 200, 1},  {5, 7, 0},
                                 {0, 4, 4},     {4, 0, 4},    {129, 2, 100}};

typedef struct product {
    math_kind kind, out;
    math_array a, b, c;
    wefti_math_gemm args;
} product;

/* gap: elements behind each row, of C where that is read. */
static product product_init(check_random *random, math_kind kind, math_kind out,
                            extent e, int layout, double alpha, double beta)
{
    bool ta = layout & 1, tb = layout & 2;
    size_t gap = (size_t)layout;
    size_t lda = (ta ? e.m : e.k) + gap, ldb = (tb ? e.k : e.n) + gap;
    size_t ldc = e.n + (beta == 0 ? 0 : gap);
    product p = {.kind = kind, .out = out};

    p.a = math_random(random, kind, (ta ? e.k : e.m) * lda, 1);
    p.b = math_random(random, kind, (tb ? e.n : e.k) * ldb, 1);
    p.c = beta == 0 ? math_new(out, e.m * ldc)
                    : math_random(random, out, e.m * ldc, 1);
    p.args = (wefti_math_gemm){.c = p.c.at,
                               .a = p.a.at,
                               .b = p.b.at,
                               .m = e.m,
                               .n = e.n,
                               .k = e.k,
                               .lda = lda,
                               .ldb = ldb,
                               .ldc = ldc,
                               .alpha = alpha,
                               .beta = beta,
                               .transpose_a = ta,
                               .transpose_b = tb};
    return p;
}

static void product_fini(product *p)
{
    math_free(&p->a);
    math_free(&p->b);
    math_free(&p->c);
}

static void run(const product *p, const wefti_math_gemm *args,
                check_random *random)
{
    math_launch_tiled(p->kind == p->out ? "gemm" : "gemm_bf16", p->out, args,
                      wefti_math_gemm_shared_bytes(sizeof(real)), random);
}

/* sum_k |a| |b| of one element. */
static double element_size(const wefti_math_gemm *g, const real *a,
                           const real *b, size_t i, size_t j)
{
    double size = 0;

    for (size_t k = 0; k < g->k; k++)
        size +=
            fabs((double)a[g->transpose_a ? k * g->lda + i : i * g->lda + k] *
                 (double)b[g->transpose_b ? j * g->ldb + k : k * g->ldb + j]);
    return size;
}

static void check_product(check_random *random, math_kind kind, math_kind out,
                          extent e, int layout, double alpha, double beta)
{
    product p = product_init(random, kind, out, e, layout, alpha, beta);
    const wefti_math_gemm *g = &p.args;
    real *a = math_values(&p.a), *b = math_values(&p.b);
    real *c = math_values(&p.c), *before = math_values(&p.c);
    double epsilon = (double)WEFTI_REAL_EPSILON;
    double step = out == MATH_BF16 ? 0x1.02p-8 : 0;

    wefti_math_get()->gemm(g->transpose_a, g->transpose_b, e.m, e.n, e.k,
                           (real)alpha, a, g->lda, b, g->ldb, (real)beta, c,
                           g->ldc);
    run(&p, g, random);
    for (size_t i = 0; i < e.m; i++)
        for (size_t j = 0; j < g->ldc; j++) {
            size_t at = i * g->ldc + j;
            double old = beta == 0 ? 0 : fabs((double)before[at]);
            double size = j < e.n
                              ? (double)(4 * e.k + 4) * epsilon *
                                    (element_size(g, a, b, i, j) * fabs(alpha) +
                                     old * fabs(beta))
                              : 0;
            double want = (double)(j < e.n ? c[at] : before[at]);

            check_near(math_value(&p.c, at), want,
                       size + (j < e.n ? step * fabs(want) : 0), "c", at);
        }
    free(a);
    free(b);
    free(c);
    free(before);
    product_fini(&p);
}

static void test_gemm_any_layout_near_the_hosts(void **state)
{
    static const double factors[][2] = {{1, 0}, {0.5, -2}, {1, 1}};
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(extents) / sizeof(extents[0]); i++)
        for (int layout = 0; layout < 4; layout++) {
            const double *by = factors[(i + (size_t)layout) % 3];

            check_product(&random, kind, kind, extents[i], layout, by[0],
                          by[1]);
            if (kind == MATH_BF16)
                check_product(&random, kind, MATH_F32, extents[i], layout,
                              by[1] + 1, by[0]);
        }
}

static void test_gemm_row_alone_has_the_same_bits(void **state)
{
    check_random random = check_seed();
    const extent e = {70, 65, 50};

    (void)state;
    FOR_EACH_KIND(kind)
    {
        product p = product_init(&random, kind, kind, e, 2, 1, 0);
        math_array row = math_new(kind, e.n);
        math_array among = math_part(&p.c, 67 * p.args.ldc, e.n);
        wefti_math_gemm alone = p.args;

        run(&p, &p.args, &random);
        alone.m = 1;
        alone.a = (char *)p.a.at + 67 * p.args.lda * math_bytes(kind);
        alone.c = row.at;
        run(&p, &alone, &random);
        math_same_bits(&row, &among);
        math_free(&row);
        product_fini(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_any_layout_near_the_hosts),
        cmocka_unit_test(test_gemm_row_alone_has_the_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
