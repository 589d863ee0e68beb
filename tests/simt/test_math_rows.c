/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Goal     The CUDA kernels of rotary embedding, SwiGLU and the plain loops
 * give what the host's give, in any launch shape and order of threads. Method
 * Widths around a warp's lanes and a piece's columns, rows with gaps, which
 * stay as they are, against the host's function on the same inputs.
 *
 * Tolerances are those of the host's headers twice, as both sides round.
 */
#include "tests/simt/math_run.h"

/* Some hold whole packs (math_pack.cuh), of one type or all; some do not. */
static const size_t all_widths[] = {1, 31, 33, 100, 257, 300, 520};

/* Tokens, heads and strides with gaps, which stay as they are. */
static void check_rope(check_random *random, math_kind kind, size_t tokens,
                       size_t heads, size_t head_size, size_t gap)
{
    const wefti_math *math = wefti_math_get();
    size_t stride = heads * head_size + gap;
    int32_t *positions = malloc(tokens * sizeof(*positions) + 1);
    math_array table = math_new(MATH_WIDE, tokens * head_size);
    math_array x = math_random(random, kind, tokens * stride, 1);
    real *want_table = check_alloc(tokens * head_size);
    real *want = math_values(&x);
    wefti_math_rope_table make = {.table = table.at,
                                  .positions = gap ? positions : NULL,
                                  .first = 3000,
                                  .tokens = tokens,
                                  .head_size = head_size,
                                  .theta = 10000};
    wefti_math_rope_turn turn = {.x = x.at,
                                 .table = table.at,
                                 .tokens = tokens,
                                 .heads = heads,
                                 .head_size = head_size,
                                 .x_stride = stride,
                                 .backward = gap % 2};

    for (size_t t = 0; t < tokens; t++)
        positions[t] = (int32_t)(check_bits(random) % 100000);
    math->rope_table(want_table, make.positions, 3000, tokens, head_size,
                     10000);
    math_launch("rope_table", MATH_WIDE, &make, random);
    /* double angles of up to 1e5, which both sides round once */
    math_all_near(&table, want_table, TOLERANCE(2e-7, 4e-11), 0, "table");
    (turn.backward ? math->rope_backward : math->rope_forward)(
        want, want_table, tokens, heads, head_size, stride);
    math_launch("rope_turn", kind, &turn, random);
    math_all_near(&x, want, TOLERANCE(8e-7, 1e-10), 0, "x");
    free(positions);
    free(want_table);
    free(want);
    math_free(&table);
    math_free(&x);
}

static void test_rope_any_shape_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    {
        check_rope(&random, kind, 7, 3, 64, 0);
        check_rope(&random, kind, 5, 2, 66, 5);
        check_rope(&random, kind, 33, 1, 2, 4);
        check_rope(&random, kind, 1, 5, 128, 128);
        check_rope(&random, kind, 0, 1, 8, 0);
    }
}

static void check_swiglu(check_random *random, math_kind kind, size_t rows,
                         size_t width, double size)
{
    const wefti_math *math = wefti_math_get();
    size_t stride = 2 * width, bytes = math_bytes(kind);
    math_array both = math_random(random, kind, rows * stride, size);
    math_array slopes = math_copy(&both), out = math_new(kind, rows * width);
    math_array dout = math_random(random, kind, rows * width, 1);
    real *x = math_values(&both), *dx = math_values(&both);
    real *want = check_alloc(rows * width), *d = math_values(&dout);
    char *gate = both.at, *dgate = slopes.at;
    wefti_math_swiglu_forward forward = {out.at, gate,  gate + width * bytes,
                                         rows,   width, stride};
    wefti_math_swiglu_backward backward = {dgate,
                                           dgate + width * bytes,
                                           dout.at,
                                           dgate,
                                           dgate + width * bytes,
                                           rows,
                                           width,
                                           stride};
    double most = size + 1;

    math->swiglu_forward(want, x, x + width, rows, width, stride);
    math_launch("swiglu_forward", kind, &forward, random);
    math_all_near(&out, want, TOLERANCE(8e-7, 2e-15) * size * size, 0, "out");
    math->swiglu_backward(dx, dx + width, d, x, x + width, rows, width, stride);
    math_launch("swiglu_backward", kind, &backward, random);
    math_all_near(&slopes, dx, TOLERANCE(8e-7, 2e-15) * most * most, 0,
                  "slopes");
    math_free(&both);
    math_free(&slopes);
    math_free(&out);
    math_free(&dout);
    free(x);
    free(dx);
    free(want);
    free(d);
}

static void test_swiglu_any_shape_near_the_hosts(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t w = 0; w < sizeof(all_widths) / sizeof(all_widths[0]); w++) {
        check_swiglu(&random, kind, 5, all_widths[w], 4);
        check_swiglu(&random, kind, w % 2, all_widths[w], 200);
    }
}

/* One rounding on either side: the same bits. */
static void check_elementwise(check_random *random, math_kind kind,
                              size_t elems)
{
    math_array a = math_random(random, kind, elems, 2);
    math_array b = math_random(random, kind, elems, 2);
    real *x = math_values(&a), *y = math_values(&b);
    wefti_math_add add = {a.at, a.at, b.at, elems};
    wefti_math_scale scale = {b.at, b.at, 0.3, elems};

    math_launch("add", kind, &add, random);
    math_launch("scale", kind, &scale, random);
    for (size_t i = 0; i < elems; i++) {
        x[i] += y[i];
        y[i] *= (real)0.3;
    }

    math_array sum = math_of(kind, x, elems), product = math_of(kind, y, elems);
    wefti_math_fill fill = {a.at, -1.5, elems};

    math_same_bits(&a, &sum);
    math_same_bits(&b, &product);
    math_launch("fill", kind, &fill, random);
    for (size_t i = 0; i < elems; i++)
        assert_true(math_value(&a, i) == -1.5);
    math_free(&a);
    math_free(&b);
    math_free(&sum);
    math_free(&product);
    free(x);
    free(y);
}

static void test_elementwise_any_count_gives_the_hosts_bits(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(all_widths) / sizeof(all_widths[0]); i++)
        check_elementwise(&random, kind, 7 * all_widths[i] - 7);
}

/* Rows with gaps, which stay as they are; copied, and added to the copy. */
static void check_copy_rows(check_random *random, math_kind kind, size_t rows,
                            size_t width)
{
    const size_t to_step = width + 3, from_step = width + 1;
    math_array src = math_random(random, kind, (rows + 1) * from_step, 2);
    math_array dst = math_random(random, kind, (rows + 1) * to_step, 2);
    real *x = math_values(&src), *y = math_values(&dst);
    wefti_math_copy_rows copy = {dst.at,  src.at,    rows, width,
                                 to_step, from_step, 0};

    math_launch("copy_rows", kind, &copy, random);
    copy.add = 1;
    math_launch("copy_rows", kind, &copy, random);
    for (size_t row = 0; row < rows; row++)
        for (size_t i = 0; i < width; i++)
            y[row * to_step + i] = 2 * x[row * from_step + i];

    math_array want = math_of(kind, y, (rows + 1) * to_step);

    math_same_bits(&dst, &want);
    math_free(&src);
    math_free(&dst);
    math_free(&want);
    free(x);
    free(y);
}

static void test_copy_rows_any_shape_gives_the_hosts_bits(void **state)
{
    check_random random = check_seed();

    (void)state;
    FOR_EACH_KIND(kind)
    for (size_t i = 0; i < sizeof(all_widths) / sizeof(all_widths[0]); i++)
        check_copy_rows(&random, kind, i % 3, all_widths[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rope_any_shape_near_the_hosts),
        cmocka_unit_test(test_swiglu_any_shape_near_the_hosts),
        cmocka_unit_test(test_elementwise_any_count_gives_the_hosts_bits),
        cmocka_unit_test(test_copy_rows_any_shape_gives_the_hosts_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
