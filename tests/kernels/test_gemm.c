/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     gemm is C = alpha op(A) op(B) + beta C, row-major, any strides, and
 *          reads C only where beta is not 0.
 * Method   All four transposes, odd extents, strides wider than the rows,
 *          poisoned C, against a sum in double; the same bits wherever arrays
 *          begin. Run twice: with oneDNN, where it is installed and
 *          multiplies f32, and with WEFT_ONEDNN=off.
 */
#include "tests/kernels/math_check.h"

#include <pthread.h>
#include <string.h>

typedef struct extents {
    size_t m, n, k, pad; /* behind each row */
} extents;

/* Odd ones, and what a kernel of its own is made for, with B transposed. */
static const extents odd = {13, 37, 29, 3}, large = {64, 130, 127, 0};

static real at(const real *x, size_t stride, bool transpose, size_t row,
               size_t column)
{
    return transpose ? x[column * stride + row] : x[row * stride + column];
}

static void one_product(const wefti_math *math, check_random *random,
                        const extents *of, bool ta, bool tb, real alpha,
                        real beta)
{
    size_t lda = (ta ? of->m : of->k) + of->pad;
    size_t ldb = (tb ? of->k : of->n) + of->pad, ldc = of->n + of->pad;
    real *a = check_alloc_random(random, (ta ? of->k : of->m) * lda, 1);
    real *b = check_alloc_random(random, (tb ? of->n : of->k) * ldb, 1);
    real *c = check_alloc_random(random, of->m * ldc, 1);
    real *before = check_alloc_copy(c, of->m * ldc);

    if (beta == 0)
        check_poison(c, of->m * ldc);
    math->gemm(ta, tb, of->m, of->n, of->k, alpha, a, lda, b, ldb, beta, c,
               ldc);
    for (size_t i = 0; i < of->m; i++)
        for (size_t j = 0; j < of->n; j++) {
            double sum = 0, size = 1;

            for (size_t k = 0; k < of->k; k++) {
                double term =
                    (double)at(a, lda, ta, i, k) * (double)at(b, ldb, tb, k, j);

                sum += term;
                size += fabs(term);
            }
            sum = (double)alpha * sum;
            if (beta != 0)
                sum += (double)beta * (double)before[i * ldc + j];
            check_near(c[i * ldc + j], sum,
                       size * 2 * (double)of->k * (double)WEFTI_REAL_EPSILON,
                       "c", i * ldc + j);
        }
    if (beta != 0)
        for (size_t i = 0; i < of->m; i++)
            check_same_bits(c + i * ldc + of->n, before + i * ldc + of->n,
                            of->pad);
    free(a);
    free(b);
    free(c);
    free(before);
}

static void test_gemm_all_transposes_match_double_sum(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    for (int op = 0; op < 8; op++) {
        const extents *of = op & 4 ? &large : &odd;

        one_product(math, &random, of, op & 1, op & 2, 1, 0);
        one_product(math, &random, of, op & 1, op & 2, WEFTI_REAL(0.5),
                    WEFTI_REAL(-1.5));
    }
}

static void test_gemm_empty_inner_extent_scales_c(void **state)
{
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        real a[1] = {0}, b[2] = {0}, c[2] = {3, 4};

        math->gemm(false, false, 1, 2, 0, 1, a, 1, b, 2, 1, c, 2);
        assert_true(c[0] == 3 && c[1] == 4);
        math->gemm(false, false, 0, 2, 1, 1, a, 1, b, 2, 0, c, 2);
        assert_true(c[0] == 3 && c[1] == 4);
    }
}

/* Where arrays lie must not count: ranks have them at other places. */
static void move_arrays(const wefti_math *math, check_random *random,
                        const extents *of)
{
    enum { PLACES = 16 };
    const size_t a_elems = of->m * of->k, b_elems = of->k * of->n;
    real *a = check_alloc_random(random, a_elems, 1);
    real *b = check_alloc_random(random, b_elems, 1);
    real *c = check_alloc(of->m * of->n + PLACES);
    real *wanted = check_alloc(of->m * of->n);
    real *moved_a = check_alloc(a_elems + PLACES);
    real *moved_b = check_alloc(b_elems + PLACES);

    for (size_t way = 0; way < 4 * PLACES; way++) {
        const bool ta = way & 1, tb = way & 2;
        const size_t lda = ta ? of->m : of->k, ldb = tb ? of->k : of->n;
        const size_t place = way / 4;

        math->gemm(ta, tb, of->m, of->n, of->k, 1, a, lda, b, ldb, 0, wanted,
                   of->n);
        memcpy(moved_a + place, a, a_elems * sizeof(real));
        memcpy(moved_b + PLACES - place, b, b_elems * sizeof(real));
        math->gemm(ta, tb, of->m, of->n, of->k, 1, moved_a + place, lda,
                   moved_b + PLACES - place, ldb, 0, c + place, of->n);
        check_same_bits(c + place, wanted, of->m * of->n);
    }
    free(a);
    free(b);
    free(c);
    free(wanted);
    free(moved_a);
    free(moved_b);
}

static void test_gemm_bits_do_not_depend_on_places(void **state)
{
    check_random random = check_seed();
    const wefti_math *math;

    (void)state;
    FOR_EACH_LEVEL(math)
    {
        move_arrays(math, &random, &odd);
        move_arrays(math, &random, &large);
    }
}

enum {
    CROWD = 3,
    CROWD_M = 384,
    CROWD_N = 96,
    CROWD_K = 32,
    CROWD_RUNS = 3000
};

/* One thread's product, again and again, against what it gave alone. */
typedef struct crowd_member {
    pthread_t thread;
    real *a, *b, *wanted, *c;
    size_t wrong;
} crowd_member;

static void multiply(const crowd_member *self, real *c)
{
    wefti_math_get()->gemm(false, true, CROWD_M, CROWD_N, CROWD_K, 1, self->a,
                           CROWD_K, self->b, CROWD_K, 0, c, CROWD_N);
}

static void prepare(crowd_member *self, size_t number)
{
    self->a = calloc((size_t)CROWD_M * CROWD_K, sizeof(real));
    self->b = calloc((size_t)CROWD_N * CROWD_K, sizeof(real));
    self->c = calloc((size_t)CROWD_M * CROWD_N, sizeof(real));
    self->wanted = calloc((size_t)CROWD_M * CROWD_N, sizeof(real));
    for (size_t i = 0; i < (size_t)CROWD_M * CROWD_K; i++)
        self->a[i] = (real)((i + number) % 7);
    for (size_t i = 0; i < (size_t)CROWD_N * CROWD_K; i++)
        self->b[i] = (real)((i * 3 + number) % 5);
    multiply(self, self->wanted);
}

static void *multiply_often(void *argument)
{
    crowd_member *self = argument;

    for (size_t run = 0; run < CROWD_RUNS; run++) {
        multiply(self, self->c);
        self->wrong += memcmp(self->c, self->wanted,
                              CROWD_M * CROWD_N * sizeof(real)) != 0;
    }
    return NULL;
}

/* Ranks may be threads of one process: the library must not mix them up. */
static void test_gemm_threads_at_once_do_not_disturb_each_other(void **state)
{
    crowd_member crowd[CROWD] = {0};

    (void)state;
    for (size_t i = 0; i < CROWD; i++) {
        prepare(&crowd[i], i);
    }
    for (size_t i = 0; i < CROWD; i++) {
        assert_int_equal(
            pthread_create(&crowd[i].thread, NULL, multiply_often, &crowd[i]),
            0);
    }
    for (size_t i = 0; i < CROWD; i++) {
        pthread_join(crowd[i].thread, NULL);
        assert_int_equal(crowd[i].wrong, 0);
        free(crowd[i].a);
        free(crowd[i].b);
        free(crowd[i].c);
        free(crowd[i].wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemm_threads_at_once_do_not_disturb_each_other),
        cmocka_unit_test(test_gemm_all_transposes_match_double_sum),
        cmocka_unit_test(test_gemm_empty_inner_extent_scales_c),
        cmocka_unit_test(test_gemm_bits_do_not_depend_on_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
