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

/* What a reduction is made of, but for the place. */
typedef struct reducing {
    weft_dtype dtype;
    weft_redop redop;
    int nranks;
    const int *hosts;
} reducing;

/* Over the ranks of one host, or all where there is one level. */
static double reduced_by(const reducing *of, int64_t x, int host)
{
    double result = 0;
    bool first = true;
    for (int p = 0; p < of->nranks; p++) {
        if (of->hosts && of->hosts[p] != host) {
            continue;
        }
        double value = as_held(
            of->dtype, (double)planned(x, of->dtype, of->redop, p, of->nranks));
        if (of->redop == WEFT_REDOP_PREMULSUM) {
            value = as_held(of->dtype, value * factor_of(p));
        }
        result = first ? value : joined(result, value, of->redop);
        first = false;
    }
    return result;
}

/* Over the hosts first .. first + count - 1, by the tree of weft/op.h: averages
 * of floats have fractions, so that its order matters. */
static double reduced_hosts(const reducing *of, int64_t x, int first, int count)
{
    bool real = weft_dtype_kind(of->dtype) == WEFT_KIND_FLOAT;
    if (count == 1) {
        double value = reduced_by(of, x, first);
        if (real && of->redop == WEFT_REDOP_AVG) {
            value = averaged(value, of->dtype, of->nranks);
        }
        return as_held(of->dtype, value);
    }
    int low = 1;
    while (low * 2 < count) {
        low *= 2;
    }
    double sum =
        joined(reduced_hosts(of, x, first, low),
               reduced_hosts(of, x, first + low, count - low), of->redop);
    return real && of->dtype != WEFT_DTYPE_F64 ? (double)(float)sum : sum;
}

static double reduced(const reducing *of, int64_t x)
{
    if (!of->hosts) {
        double all = reduced_by(of, x, 0);
        return of->redop == WEFT_REDOP_AVG
                   ? averaged(all, of->dtype, of->nranks)
                   : all;
    }
    int count = 0;
    for (int p = 0; p < of->nranks; p++) {
        count = of->hosts[p] >= count ? of->hosts[p] + 1 : count;
    }
    double all = reduced_hosts(of, x, 0, count);
    bool whole = weft_dtype_kind(of->dtype) != WEFT_KIND_FLOAT;
    return whole && of->redop == WEFT_REDOP_AVG
               ? averaged(all, of->dtype, of->nranks)
               : all;
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
                             weft_redop redop, int nranks, const int *hosts)
{
    const reducing of = {dtype, redop, nranks, hosts};
    size_t elem_bytes = weft_dtype_bytes(dtype);
    tile->dtype = dtype;
    for (int64_t x = 0; x < WEFTI_TILE_ELEMS; x++) {
        store(tile->bytes + (size_t)x * elem_bytes, dtype, reduced(&of, x));
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
