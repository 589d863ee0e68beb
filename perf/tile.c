/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/tile.c - making, laying and checking tiles. Both go at the speed of
 * memory, which leaves a measured buffer as an application would.
 */
#include "perf/tile.h"

#include "base/small_float.h"

#include <math.h>
#include <string.h>

/* Whole numbers of that type, before the type has seen them. */
static int64_t planned(int64_t x, weft_dtype dtype, weft_redop redop,
                       int64_t rank, int64_t nranks)
{
    int64_t mixed = (x * 2654435761) >> 7;
    int64_t place = (x + rank) % nranks;
    if (redop == WEFT_REDOP_PROD) {
        return place <= mixed % 3 ? 2 : 1;
    }
    return weft_dtype_bytes(dtype) == 1 ? (mixed & 3) + (place & 1)
                                        : (mixed & 7) + 2 * place;
}

#define STORE(type, value)                                                     \
    do {                                                                       \
        type stored = (type)(value);                                           \
        memcpy(at, &stored, sizeof(stored));                                   \
    } while (0)

/* value as an element; whole numbers wrap. */
static void store(void *at, weft_dtype dtype, double value)
{
    float narrow = (float)value;
    int64_t whole = (int64_t)value;
    switch (dtype) {
    case WEFT_DTYPE_F16:
        STORE(uint16_t, wefti_f16_narrow(narrow));
        break;
    case WEFT_DTYPE_BF16:
        STORE(uint16_t, wefti_bf16_narrow(narrow));
        break;
    case WEFT_DTYPE_F8E4M3:
        STORE(uint8_t, wefti_f8e4m3_narrow(narrow));
        break;
    case WEFT_DTYPE_F8E5M2:
        STORE(uint8_t, wefti_f8e5m2_narrow(narrow));
        break;
    case WEFT_DTYPE_F32:
        STORE(float, narrow);
        break;
    case WEFT_DTYPE_F64:
        STORE(double, value);
        break;
    default: /* integers, low bytes first */
        memcpy(at, &whole, weft_dtype_bytes(dtype));
        break;
    }
}

/* What the type makes of value: integers wrap, floats round. */
static double as_held(weft_dtype dtype, double value)
{
    float narrow = (float)value;
    int64_t whole = (int64_t)value;
    switch (dtype) {
    case WEFT_DTYPE_I8:
        return (int8_t)whole;
    case WEFT_DTYPE_U8:
        return (uint8_t)whole;
    case WEFT_DTYPE_F16:
        return (double)wefti_f16_widen(wefti_f16_narrow(narrow));
    case WEFT_DTYPE_BF16:
        return (double)wefti_bf16_widen(wefti_bf16_narrow(narrow));
    case WEFT_DTYPE_F8E4M3:
        return (double)wefti_f8e4m3_widen(wefti_f8e4m3_narrow(narrow));
    case WEFT_DTYPE_F8E5M2:
        return (double)wefti_f8e5m2_widen(wefti_f8e5m2_narrow(narrow));
    default:
        return value;
    }
}

static double joined(double a, double b, weft_redop redop)
{
    int64_t x = (int64_t)a, y = (int64_t)b;
    switch (redop) {
    case WEFT_REDOP_PROD:
        return a * b;
    case WEFT_REDOP_MAX:
        return a > b ? a : b;
    case WEFT_REDOP_MIN:
        return a < b ? a : b;
    case WEFT_REDOP_BAND:
        return (double)(x & y);
    case WEFT_REDOP_BOR:
        return (double)(x | y);
    case WEFT_REDOP_BXOR:
        return (double)(x ^ y);
    default:
        return a + b;
    }
}

static double averaged(double sum, weft_dtype dtype, int nranks)
{
    if (weft_dtype_kind(dtype) != WEFT_KIND_FLOAT) {
        return trunc(as_held(dtype, sum) / nranks);
    }
    return dtype == WEFT_DTYPE_F64 ? sum / nranks
                                   : (double)((float)sum / (float)nranks);
}

static int factor_of(int rank)
{
    return 1 + rank % 2;
}

static double reduced(int64_t x, weft_dtype dtype, weft_redop redop, int nranks)
{
    double result = 0;
    for (int p = 0; p < nranks; p++) {
        double value =
            as_held(dtype, (double)planned(x, dtype, redop, p, nranks));
        if (redop == WEFT_REDOP_PREMULSUM) {
            value = as_held(dtype, value * factor_of(p));
        }
        result = p == 0 ? value : joined(result, value, redop);
    }
    return redop == WEFT_REDOP_AVG ? averaged(result, dtype, nranks) : result;
}

void wefti_tile_make(wefti_tile *tile, weft_dtype dtype, weft_redop redop,
                     int rank, int nranks)
{
    size_t elem_bytes = weft_dtype_bytes(dtype);
    tile->dtype = dtype;
    for (int64_t x = 0; x < WEFTI_TILE_ELEMS; x++) {
        store(tile->bytes + (size_t)x * elem_bytes, dtype,
              (double)planned(x, dtype, redop, rank, nranks));
    }
}

void wefti_tile_make_reduced(wefti_tile *tile, weft_dtype dtype,
                             weft_redop redop, int nranks)
{
    size_t elem_bytes = weft_dtype_bytes(dtype);
    tile->dtype = dtype;
    for (int64_t x = 0; x < WEFTI_TILE_ELEMS; x++) {
        store(tile->bytes + (size_t)x * elem_bytes, dtype,
              reduced(x, dtype, redop, nranks));
    }
}

void wefti_tile_make_scale(void *element_out, weft_dtype dtype, int rank)
{
    store(element_out, dtype, factor_of(rank));
}

/* How many elements lie unbroken in the tile from place x. */
static size_t run_at(size_t x, size_t left)
{
    size_t run = WEFTI_TILE_ELEMS - x;
    return run < left ? run : left;
}

void wefti_tile_fill(const wefti_tile *tile, void *target, size_t first,
                     size_t elems, size_t shift)
{
    size_t elem_bytes = weft_dtype_bytes(tile->dtype);
    unsigned char *to = target;
    size_t x = (first + shift) % WEFTI_TILE_ELEMS;
    while (elems > 0) {
        size_t run = run_at(x, elems);
        memcpy(to, tile->bytes + x * elem_bytes, run * elem_bytes);
        to += run * elem_bytes;
        elems -= run;
        x = 0;
    }
}

size_t wefti_tile_count_wrong(const wefti_tile *tile, const void *source,
                              size_t first, size_t elems, size_t shift)
{
    size_t elem_bytes = weft_dtype_bytes(tile->dtype), wrong = 0;
    const unsigned char *from = source;
    size_t x = (first + shift) % WEFTI_TILE_ELEMS;
    while (elems > 0) {
        size_t run = run_at(x, elems);
        const unsigned char *expected = tile->bytes + x * elem_bytes;
        if (memcmp(from, expected, run * elem_bytes) != 0) {
            for (size_t i = 0; i < run; i++) {
                wrong += memcmp(from + i * elem_bytes,
                                expected + i * elem_bytes, elem_bytes) != 0;
            }
        }
        from += run * elem_bytes;
        elems -= run;
        x = 0;
    }
    return wrong;
}
