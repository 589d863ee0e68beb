/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The product of bf16 is gemm.h's over bf16, with C in bf16 or f32,
 *          and whoever multiplies says so.
 * Method   All four transposes, extents below, at and above a block's and 1,
 *          strides wider than the rows, poisoned C, against a sum in double;
 *          the same shape again with other data and places; more shapes than
 *          are kept; from several threads. Run twice: with what is installed,
 *          and with WEFT_ONEDNN=off.
 */
#include "base/small_float.h"
#include "kernels/math/gemm_bf16.h"
#include "kernels/math/gemm_kernel.h"
#include "kernels/math/onednn.h"
#include "tests/kernels/math_check.h"

#include <pthread.h>
#include <stdio.h>

typedef struct problem {
    size_t m, n, k;
    bool ta, tb, wide;
    double alpha, beta;
} problem;

static uint16_t *make_bf16(check_random *random, size_t elems)
{
    uint16_t *made = malloc((elems + 1) * sizeof(*made));

    assert_non_null(made);
    for (size_t i = 0; i < elems + 1; i++)
        made[i] = wefti_bf16_narrow((float)check_uniform(random, -1, 1));
    return made;
}

static double at(const uint16_t *x, size_t stride, bool transposed, size_t row,
                 size_t column)
{
    return (double)wefti_bf16_widen(
        x[transposed ? column * stride + row : row * stride + column]);
}

static double c_at(const void *c, bool wide, size_t i)
{
    return wide ? (double)((const float *)c)[i]
                : (double)wefti_bf16_widen(((const uint16_t *)c)[i]);
}

enum { PAD = 3 };

/* Every element of C, and that what lies between its rows stays. */
static void check_product(const problem *p, const wefti_math_gemm *g,
                          const void *before)
{
    const size_t width = p->wide ? 4 : 2;

    for (size_t i = 0; i < p->m; i++)
        for (size_t j = 0; j < p->n + PAD; j++) {
            size_t place = i * g->ldc + j;
            double sum = 0, size = 1, was = 0;

            if (j >= p->n) {
                assert_memory_equal((const char *)g->c + place * width,
                                    (const char *)before + place * width,
                                    width);
                continue;
            }
            for (size_t k = 0; k < p->k; k++) {
                double term = at(g->a, g->lda, p->ta, i, k) *
                              at(g->b, g->ldb, p->tb, k, j);

                sum += term;
                size += fabs(term);
            }
            if (p->beta != 0)
                was = p->beta * c_at(before, p->wide, place);
            sum = p->alpha * sum + was;
            check_near(c_at(g->c, p->wide, place), sum,
                       size * 2 * (double)(p->k + 1) * 0x1p-24 +
                           (p->wide ? 0 : fabs(sum) * 0x1p-8),
                       "c", place);
        }
}

static void one(check_random *random, const problem *p)
{
    const size_t lda = (p->ta ? p->m : p->k) + PAD;
    const size_t ldb = (p->tb ? p->k : p->n) + PAD, ldc = p->n + PAD;
    const size_t bytes = p->m * ldc * (p->wide ? 4 : 2);
    uint16_t *a = make_bf16(random, (p->ta ? p->k : p->m) * lda);
    uint16_t *b = make_bf16(random, (p->tb ? p->n : p->k) * ldb);
    void *c = malloc(bytes + 4), *before = malloc(bytes + 4);
    wefti_math_gemm g = {c,   a,   b,        p->m,    p->n,  p->k, lda,
                         ldb, ldc, p->alpha, p->beta, p->ta, p->tb};

    assert_non_null(c);
    assert_non_null(before);
    memset(c, 0xff, bytes); /* NaN in either type */
    for (size_t i = 0; p->beta != 0 && i < p->m * ldc; i++)
        if (p->wide)
            ((float *)c)[i] = (float)check_uniform(random, -1, 1);
        else
            ((uint16_t *)c)[i] =
                wefti_bf16_narrow((float)check_uniform(random, -1, 1));
    memcpy(before, c, bytes);
    wefti_gemm_bf16(&g, p->wide);
    check_product(p, &g, before);
    free(a);
    free(b);
    free(c);
    free(before);
}

static void test_products_match_a_double_sum(void **state)
{
    static const size_t shapes[][3] = {
        {1, 1, 1}, {13, 37, 29}, {64, 48, 128}, {130, 1, 33}, {1, 77, 515},
    };
    check_random random = check_seed();

    (void)state;
    for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
        for (int way = 0; way < 16; way++) {
            problem p = {.m = shapes[s][0],
                         .n = shapes[s][1],
                         .k = shapes[s][2],
                         .ta = way & 1,
                         .tb = way & 2,
                         .wide = way & 4,
                         .alpha = way & 8 ? 0.5 : 1,
                         .beta = way & 8 ? -1.5 : 0};

            one(&random, &p);
        }
}

static void test_products_larger_than_a_block(void **state)
{
    check_random random = check_seed();

    (void)state;
    for (int way = 0; way < 4; way++) {
        problem p = {.m = way & 1 ? 514 : 20,
                     .n = way & 1 ? 20 : 514,
                     .k = 1030,
                     .ta = way & 1,
                     .tb = way & 2,
                     .wide = way & 2,
                     .alpha = 1,
                     .beta = way & 1 ? 1 : 0};

        one(&random, &p);
    }
}

static void test_one_shape_again_has_its_own_data(void **state)
{
    check_random random = check_seed();
    problem p = {.m = 16, .n = 24, .k = 32, .tb = true, .alpha = 1};

    (void)state;
    for (int i = 0; i < 20; i++) {
        p.wide = i & 1;
        one(&random, &p);
    }
}

static void test_more_shapes_than_are_kept(void **state)
{
    check_random random = check_seed();

    (void)state;
    for (size_t round = 0; round < 2; round++)
        for (size_t i = 0; i < WEFTI_ONEDNN_KEPT + 9; i++) {
            problem p = {.m = 1 + i, .n = 5, .k = 3, .wide = true, .alpha = 1};

            one(&random, &p);
        }
}

static void test_no_inner_extent_scales_c(void **state)
{
    float c[2] = {3, 4};
    uint16_t none = 0x7fff; /* NaN: must not be read */
    wefti_math_gemm g = {.c = c,
                         .a = &none,
                         .b = &none,
                         .m = 1,
                         .n = 2,
                         .lda = 1,
                         .ldb = 2,
                         .ldc = 2,
                         .alpha = 1,
                         .beta = 0.5};

    (void)state;
    wefti_gemm_bf16(&g, true);
    assert_true(c[0] == 1.5F && c[1] == 2);
    g.beta = 0;
    wefti_gemm_bf16(&g, true);
    assert_true(c[0] == 0 && c[1] == 0);
    g.m = 0;
    c[0] = 7;
    wefti_gemm_bf16(&g, true);
    assert_true(c[0] == 7);
}

static void *multiply_many(void *seed)
{
    check_random random = {*(const uint64_t *)seed};

    for (size_t i = 0; i < 40; i++) {
        problem p = {
            .m = 33 + i % 3, .n = 17, .k = 40, .wide = i & 1, .alpha = 1};

        one(&random, &p);
    }
    return NULL;
}

static void *multiply_one(void *random)
{
    problem p = {.m = 65, .n = 47, .k = 130, .ta = true, .alpha = 1};

    one(random, &p);
    return NULL;
}

/* And the one that has made it is gone. */
static void test_thread_multiplies_by_what_another_has_made(void **state)
{
    check_random random = check_seed();

    (void)state;
    for (int i = 0; i < 3; i++) {
        pthread_t thread;

        assert_int_equal(pthread_create(&thread, NULL, multiply_one, &random),
                         0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
}

static void test_threads_take_turns(void **state)
{
    pthread_t threads[3];
    uint64_t seeds[3];
    check_random random = check_seed();

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        seeds[i] = check_bits(&random);
        assert_int_equal(
            pthread_create(&threads[i], NULL, multiply_many, &seeds[i]), 0);
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
}

static void test_kernel_says_who_multiplies(void **state)
{
    const char *kernel = wefti_gemm_get_kernel(true);
    const char *asked = getenv("WEFT_ONEDNN");

    (void)state;
    printf("%s; f32: %s\n", kernel, wefti_gemm_get_kernel(false));
    if (asked && strcmp(asked, "off") == 0) {
        assert_non_null(strstr(kernel, "WEFT_ONEDNN=off"));
    } else if (asked) {
        assert_non_null(strstr(kernel, asked));
    }
    assert_true(strncmp(kernel, "oneDNN 2.", 9) == 0 ||
                strstr(kernel, " on widened blocks: "));
    kernel = wefti_gemm_get_kernel(false);
    assert_true(strncmp(kernel, "OpenBLAS ", 9) == 0 ||
                (!asked && strncmp(kernel, "oneDNN 2.", 9) == 0));
    kernel = wefti_gemm_get_kernel(true);
    assert_ptr_equal(kernel, wefti_gemm_get_kernel(true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kernel_says_who_multiplies),
        cmocka_unit_test(test_products_match_a_double_sum),
        cmocka_unit_test(test_products_larger_than_a_block),
        cmocka_unit_test(test_one_shape_again_has_its_own_data),
        cmocka_unit_test(test_more_shapes_than_are_kept),
        cmocka_unit_test(test_no_inner_extent_scales_c),
        cmocka_unit_test(test_thread_multiplies_by_what_another_has_made),
        cmocka_unit_test(test_threads_take_turns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
