/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA kernels of RMSNorm give what the host's give, in any launch
 *          shape and order of threads.
 * Method   Rows and widths around a warp's lanes, a piece's columns and a
 *          partial sum's rows, none among them, against the host's function on
 *          the same inputs; forms in place against the plain, bit for bit.
 *
 * Tolerances are those of rmsnorm.h twice, as both sides round, times the size
 * of the terms.
 */
#include "tests/simt/math_run.h"

static const double eps = 1e-5;
static const size_t all_rows[] = {1, 5, 0, 67, 130};
/* Some hold whole packs (math_pack.cuh), of one type or all, and more of them
 * than a lane has under way; some do not. */
static const size_t all_widths[] = {1, 31, 33, 100, 257, 300, 520, 2312};

typedef struct norm {
    size_t rows, width;
    math_kind kind;
    math_array x, weight, dy, y, rstd, dx, dweight;
} norm;

static norm norm_init(check_random *random, math_kind kind, size_t rows,
                      size_t width)
{
    return (norm){.rows = rows,
                  .width = width,
                  .kind = kind,
                  .x = math_random(random, kind, rows * width, 2),
                  .weight = math_random(random, kind, width, 2),
                  .dy = math_random(random, kind, rows * width, 1),
                  .y = math_new(kind, rows * width),
                  .rstd = math_new(MATH_WIDE, rows),
                  .dx = math_random(random, kind, rows * width, 1),
                  .dweight = math_random(random, MATH_WIDE, width, 1)};
}

static void norm_fini(norm *n)
{
    math_array *all[] = {&n->x,    &n->weight, &n->dy,     &n->y,
                         &n->rstd, &n->dx,     &n->dweight};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        math_free(all[i]);
}

static void norm_forward(const norm *n, const math_array *y, void *rstd,
                         const math_array *x, check_random *random)
{
    wefti_math_rmsnorm_forward args = {
        .y = y->at,
        .rstd = rstd,
        .x = x->at,
        .weight = n->weight.at,
        .rows = n->rows,
        .width = n->width,
        .eps = eps,
    };

    math_launch("rmsnorm_forward", n->kind, &args, random);
}

static void norm_dx(const norm *n, const math_array *dx, const math_array *dy,
                    bool accumulate, check_random *random)
{
    wefti_math_rmsnorm_backward args = {
        .dx = dx->at,
        .dy = dy->at,
        .x = n->x.at,
        .weight = n->weight.at,
        .rstd = n->rstd.at,
        .rows = n->rows,
        .width = n->width,
        .accumulate = accumulate,
    };

    math_launch("rmsnorm_backward", n->kind, &args, random);
}

static void norm_dweight(const norm *n, check_random *random)
{
    size_t count = wefti_math_dweight_partials(n->rows);
    math_array partials = math_new(MATH_WIDE, count * n->width);
    wefti_math_rmsnorm_dweight first = {
        .partials = partials.at,
        .dy = n->dy.at,
        .x = n->x.at,
        .rstd = n->rstd.at,
        .rows = n->rows,
        .width = n->width,
    };
    wefti_math_sum_rows second = {.sum = n->dweight.at,
                                  .summands = partials.at,
                                  .rows = count,
                                  .width = n->width};

    math_launch("rmsnorm_dweight", n->kind, &first, random);
    math_launch("sum_rows", MATH_WIDE, &second, random);
    math_free(&partials);
}

/* The host's arrays of a norm. */
typedef struct host_norm {
    real *x, *weight, *dy, *y, *rstd, *dx, *dweight;
} host_norm;

static host_norm host_init(const norm *n)
{
    return (host_norm){math_values(&n->x),      math_values(&n->weight),
                       math_values(&n->dy),     check_alloc(n->rows * n->width),
                       check_alloc(n->rows),    math_values(&n->dx),
                       math_values(&n->dweight)};
}

static void host_fini(host_norm *h)
{
    real *all[] = {h->x, h->weight, h->dy, h->y, h->rstd, h->dx, h->dweight};

    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        free(all[i]);
}

static void check_norm(check_random *random, math_kind kind, size_t rows,
                       size_t width, bool accumulate)
{
    const wefti_math *math = wefti_math_get();
    norm n = norm_init(random, kind, rows, width);
    host_norm h = host_init(&n);
    double near = TOLERANCE(8e-6, 8e-15);

    math->rmsnorm_forward(h.y, h.rstd, h.x, h.weight, rows, width, (real)eps);
    norm_forward(&n, &n.y, n.rstd.at, &n.x, random);
    math_all_near(&n.rstd, h.rstd, 0, near, "rstd");
    math_all_near(&n.y, h.y, 0, near, "y");
    math->rmsnorm_backward(h.dx, h.dweight, h.dy, h.x, h.weight, h.rstd, rows,
                           width, accumulate);
    norm_dx(&n, &n.dx, &n.dy, accumulate, random);
    norm_dweight(&n, random);
    for (size_t t = 0; t < rows; t++) { /* terms are of the size of 4 rstd */
        math_array row = math_part(&n.dx, t * width, width);

        math_all_near(&row, h.dx + t * width,
                      near * (4 * (double)h.rstd[t] + 1), 0, "dx");
    }
    for (size_t i = 0; i < width; i++) {
        double size = 1;

        for (size_t t = 0; t < rows; t++)
            size += 2 * (double)h.rstd[t];
        check_near(math_value(&n.dweight, i), h.dweight[i], near * size,
                   "dweight", i);
    }
    host_fini(&h);
    norm_fini(&n);
}

static void test_rmsnorm_any_shape_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t r = 0; r < sizeof(all_rows) / sizeof(all_rows[0]); r++)
        for (size_t w = 0; w < sizeof(all_widths) / sizeof(all_widths[0]); w++)
            check_norm(&random, kind, all_rows[r], all_widths[w], (r + w) % 2);
}

static void test_rmsnorm_zero_row_is_finite(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    {
        norm n = norm_init(&random, kind, 2, 40);

        memset(n.x.at, 0, 2 * 40 * math_bytes(kind));
        norm_forward(&n, &n.y, n.rstd.at, &n.x, &random);
        norm_dx(&n, &n.dx, &n.dy, false, &random);
        for (size_t i = 0; i < 2 * 40; i++) {
            assert_true(math_value(&n.y, i) == 0);
            assert_true(isfinite(math_value(&n.dx, i)));
        }
        check_near(math_value(&n.rstd, 1), 1 / sqrt(eps), 1e-3, "rstd", 1);
        norm_fini(&n);
    }
}

static void test_rmsnorm_in_place_gives_same_bits(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    {
        norm n = norm_init(&random, kind, 3, 77);
        math_array x = math_copy(&n.x), dy = math_copy(&n.dy);

        norm_forward(&n, &n.y, n.rstd.at, &n.x, &random);
        norm_forward(&n, &x, NULL, &x, &random);
        math_same_bits(&x, &n.y);
        norm_dx(&n, &n.dx, &n.dy, false, &random);
        norm_dx(&n, &dy, &dy, false, &random);
        math_same_bits(&dy, &n.dx);
        math_free(&x);
        math_free(&dy);
        norm_fini(&n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rmsnorm_any_shape_near_the_hosts),
        cmocka_unit_test(test_rmsnorm_zero_row_is_finite),
        cmocka_unit_test(test_rmsnorm_in_place_gives_same_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
