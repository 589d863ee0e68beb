/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/kernels/device_pair.c - arrays on two devices.
 */
#include "tests/kernels/device_pair.h"

#include "base/small_float.h"

bool pair_open(device_pair *pair, const char *kind)
{
    const char *const kinds[] = {"host", kind};

    *pair = (device_pair){.random = check_seed()};
    for (int side = 0; side < 2; side++) {
        if (weft_device_open(kinds[side], 0, &pair->device[side]) < 0 ||
            (side == 1 && weft_stream_create(pair->device[side], 0,
                                             &pair->stream[side]) < 0)) {
            print_error("%s: %s\n", kinds[side], weft_error_text());
            return false;
        }
    }
    return true;
}

void pair_close(device_pair *pair)
{
    pair_clear(pair);
    for (int side = 0; side < 2; side++) {
        weft_stream_destroy(pair->stream[side]);
        weft_device_close(pair->device[side]);
    }
}

void pair_clear(device_pair *pair)
{
    for (size_t i = 0; i < pair->array_count; i++) {
        free(pair->arrays[i].bytes);
        for (int side = 0; side < 2; side++)
            weft_device_free(pair->device[side], pair->arrays[i].on[side]);
    }
    pair->array_count = 0;
}

static void copy(device_pair *pair, int side, void *to, const void *from,
                 size_t bytes)
{
    if (bytes > 0)
        pair_ok(weft_device_copy(pair->device[side], to, from, bytes,
                                 pair->stream[side]));
    if (pair->stream[side])
        pair_ok(weft_stream_wait(pair->stream[side]));
}

/* Takes bytes. */
static pair_array *add(device_pair *pair, weft_dtype dtype, size_t elems,
                       void *bytes)
{
    assert_true(pair->array_count < PAIR_ARRAYS && bytes);
    pair_array *made = &pair->arrays[pair->array_count++];

    *made = (pair_array){.dtype = dtype, .elems = elems, .bytes = bytes};
    for (int side = 0; side < 2; side++) {
        size_t size = elems * weft_dtype_bytes(dtype);

        pair_ok(weft_device_alloc(pair->device[side], size, &made->on[side]));
        copy(pair, side, made->on[side], bytes, size);
    }
    return made;
}

pair_array *pair_poison(device_pair *pair, weft_dtype dtype, size_t elems)
{
    size_t size = elems * weft_dtype_bytes(dtype);
    void *bytes = malloc(size + 1);

    assert_non_null(bytes);
    memset(bytes, 0xff, size);
    return add(pair, dtype, elems, bytes);
}

static void set_value(void *bytes, weft_dtype dtype, size_t i, double value)
{
    if (dtype == WEFT_DTYPE_F64)
        ((double *)bytes)[i] = value;
    else if (dtype == WEFT_DTYPE_F32)
        ((float *)bytes)[i] = (float)value;
    else
        ((uint16_t *)bytes)[i] = wefti_bf16_narrow((float)value);
}

static double get_value(const void *bytes, weft_dtype dtype, size_t i)
{
    return dtype == WEFT_DTYPE_F64 ? ((const double *)bytes)[i]
           : dtype == WEFT_DTYPE_F32
               ? (double)((const float *)bytes)[i]
               : (double)wefti_bf16_widen(((const uint16_t *)bytes)[i]);
}

pair_array *pair_random(device_pair *pair, weft_dtype dtype, size_t elems,
                        double low, double high)
{
    void *bytes = malloc(elems * weft_dtype_bytes(dtype) + 1);

    assert_non_null(bytes);
    for (size_t i = 0; i < elems; i++)
        set_value(bytes, dtype, i, check_uniform(&pair->random, low, high));
    return add(pair, dtype, elems, bytes);
}

pair_array *pair_ids(device_pair *pair, size_t elems, size_t below)
{
    int32_t *ids = malloc(elems * sizeof(*ids) + 1);

    assert_non_null(ids);
    for (size_t i = 0; i < elems; i++)
        ids[i] = (int32_t)(check_bits(&pair->random) % below);
    return add(pair, WEFT_DTYPE_I32, elems, ids);
}

wefti_math_tensor pair_part(const device_pair *pair, const pair_array *array,
                            size_t first, size_t rows, size_t width,
                            size_t stride)
{
    char *at = array->on[pair->side];

    assert_true(rows == 0 ||
                first + (rows - 1) * stride + width <= array->elems);
    return (wefti_math_tensor){at + first * weft_dtype_bytes(array->dtype),
                               array->dtype, rows, width, stride};
}

wefti_math_tensor pair_rows(const device_pair *pair, const pair_array *array,
                            size_t rows, size_t width)
{
    return pair_part(pair, array, 0, rows, width, width);
}

wefti_math_tensor pair_flat(const device_pair *pair, const pair_array *array)
{
    return pair_rows(pair, array, 1, array->elems);
}

void *pair_read(device_pair *pair, const pair_array *array, int side)
{
    size_t size = array->elems * weft_dtype_bytes(array->dtype);
    void *bytes = malloc(size + 1);

    assert_non_null(bytes);
    copy(pair, side, bytes, array->on[side], size);
    return bytes;
}

void pair_near(device_pair *pair, const pair_array *array, double absolute,
               double relative, const char *what)
{
    void *want = pair_read(pair, array, 0), *got = pair_read(pair, array, 1);
    /* Two roundings of values that are close are a step apart at most. */
    double step = array->dtype == WEFT_DTYPE_BF16 ? 0x1.02p-7 : 0;
    size_t written = 0;

    for (size_t i = 0; i < array->elems; i++) {
        double w = get_value(want, array->dtype, i);
        double g = get_value(got, array->dtype, i);

        if (!(isnan(w) && isnan(g)) && !(w == g)) /* infinities */
            check_near(g, w, absolute + (relative + step) * fabs(w), what, i);
        written += !isnan(w);
    }
    if (written == 0)
        fail_msg("%s: nothing was written", what);
    free(want);
    free(got);
}

void pair_same(device_pair *pair, const pair_array *array, const char *what)
{
    void *want = pair_read(pair, array, 0), *got = pair_read(pair, array, 1);
    size_t size = array->elems * weft_dtype_bytes(array->dtype);

    if (size > 0 && memcmp(want, got, size) != 0)
        fail_msg("%s: other bits", what);
    free(want);
    free(got);
}
