/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/simt/math_run.c - arrays and launches for the tests of kernels/math.
 */
#include "tests/simt/math_run.h"

#include "base/small_float.h"
#include "tests/simt/simt_launch.h"

static const char *const kind_text[] = {"f32", "bf16", "f64"};

size_t math_bytes(math_kind kind)
{
    return kind == MATH_F32 ? 4 : kind == MATH_BF16 ? 2 : 8;
}

math_array math_new(math_kind kind, size_t elems)
{
    size_t bytes = elems * math_bytes(kind);
    math_array made = {kind, elems, malloc(bytes)};

    assert_true(made.at || bytes == 0);
    if (bytes > 0)
        memset(made.at, 0xff, bytes);
    return made;
}

static void set_value(math_array *array, size_t i, real value)
{
    switch (array->kind) {
    case MATH_F32:
        ((float *)array->at)[i] = (float)value;
        break;
    case MATH_BF16:
        ((uint16_t *)array->at)[i] = wefti_bf16_narrow((float)value);
        break;
    case MATH_F64:
        ((double *)array->at)[i] = (double)value;
        break;
    }
}

math_array math_of(math_kind kind, const real *values, size_t elems)
{
    math_array made = math_new(kind, elems);

    for (size_t i = 0; i < elems; i++)
        set_value(&made, i, values[i]);
    return made;
}

math_array math_copy(const math_array *from)
{
    math_array made = math_new(from->kind, from->elems);

    if (from->elems > 0)
        memcpy(made.at, from->at, from->elems * math_bytes(from->kind));
    return made;
}

math_array math_random(check_random *random, math_kind kind, size_t elems,
                       double size)
{
    math_array made = math_new(kind, elems);

    for (size_t i = 0; i < elems; i++)
        set_value(&made, i, (real)check_uniform(random, -size, size));
    return made;
}

math_array math_part(const math_array *of, size_t first, size_t elems)
{
    assert_true(first + elems <= of->elems);
    return (math_array){of->kind, elems,
                        (char *)of->at + first * math_bytes(of->kind)};
}

void math_free(math_array *array)
{
    free(array->at);
    array->at = NULL;
}

double math_value(const math_array *array, size_t i)
{
    switch (array->kind) {
    case MATH_F32:
        return (double)((const float *)array->at)[i];
    case MATH_BF16:
        return (double)wefti_bf16_widen(((const uint16_t *)array->at)[i]);
    default:
        return ((const double *)array->at)[i];
    }
}

real *math_values(const math_array *array)
{
    real *made = check_alloc(array->elems);

    for (size_t i = 0; i < array->elems; i++)
        made[i] = (real)math_value(array, i);
    return made;
}

void math_all_near(const math_array *got, const real *want, double absolute,
                   double relative, const char *what)
{
    double step = got->kind == MATH_BF16 ? 0x1.02p-8 : 0;

    for (size_t i = 0; i < got->elems; i++) {
        double size = fabs((double)want[i]);

        check_near(math_value(got, i), want[i],
                   absolute + (relative + step) * size, what, i);
    }
}

void math_same_bits(const math_array *a, const math_array *b)
{
    assert_true(a->kind == b->kind && a->elems == b->elems);
    if (a->elems > 0)
        assert_memory_equal(a->at, b->at, a->elems * math_bytes(a->kind));
}

static void launch(const char *op, math_kind kind, const void *args,
                   unsigned threads, size_t shared_bytes, check_random *random)
{
    char name[80];
    void *params[] = {(void *)(uintptr_t)args};
    simt_config config = {
        .grid = {1 + (unsigned)(check_bits(random) % 4), 1, 1},
        .block = {threads, 1, 1},
        .shared_bytes = shared_bytes,
        .order = (simt_order)(check_bits(random) % SIMT_ORDER_COUNT),
        .seed = check_bits(random)};

    snprintf(name, sizeof(name), "wefti_math_%s_%s", op, kind_text[kind]);
    if (simt_launch(name, &config, params) != 0)
        fail_msg("%s", simt_fault());
}

void math_launch(const char *op, math_kind kind, const void *args,
                 check_random *random)
{
    static const unsigned threads[] = {32, 64, 96, 128};

    launch(op, kind, args, threads[check_bits(random) % 4], 0, random);
}

void math_launch_tiled(const char *op, math_kind kind, const void *args,
                       size_t shared_bytes, check_random *random)
{
    launch(op, kind, args, WEFTI_MATH_THREADS, shared_bytes, random);
}
