/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/tile.c - making, laying and checking tiles. Both go at the speed of
 * memory, which leaves a measured buffer as an application would.
 */
#include "perf/tile.h"

#include <string.h>

static int64_t held(int64_t x, int64_t rank, int64_t nranks)
{
    int64_t mixed = (x * 2654435761) >> 7;
    return (mixed & 7) + 2 * ((x + rank) % nranks);
}

static int64_t reduced(int64_t x, weft_dtype dtype, weft_redop redop,
                       int nranks)
{
    int64_t sum = 0, most = 0;
    for (int p = 0; p < nranks; p++) {
        int64_t value = held(x, p, nranks);
        sum += value;
        most = value > most ? value : most;
    }
    if (dtype == WEFT_DTYPE_U8) {
        sum &= 255; /* integers wrap round */
    }
    return redop == WEFT_REDOP_MAX   ? most
           : redop == WEFT_REDOP_AVG ? sum / nranks
                                     : sum;
}

/* Nearest, ties to even; value is finite. */
static uint16_t bf16_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#define STORE(tile, x, type, value)                                            \
    memcpy((tile)->bytes + (size_t)(x) * sizeof(type), &(type){value},         \
           sizeof(type))

static void store(wefti_tile *tile, int64_t x, int64_t value)
{
    switch (tile->dtype) {
    case WEFT_DTYPE_U8:
        STORE(tile, x, uint8_t, (uint8_t)value);
        break;
    case WEFT_DTYPE_I32:
        STORE(tile, x, int32_t, (int32_t)value);
        break;
    case WEFT_DTYPE_I64:
        STORE(tile, x, int64_t, value);
        break;
    case WEFT_DTYPE_BF16:
        STORE(tile, x, uint16_t, bf16_of((float)value));
        break;
    case WEFT_DTYPE_F32:
        STORE(tile, x, float, (float)value);
        break;
    case WEFT_DTYPE_F64:
        STORE(tile, x, double, (double)value);
        break;
    case WEFT_DTYPE_COUNT:
        break;
    }
}

void wefti_tile_make(wefti_tile *tile, weft_dtype dtype, int rank, int nranks)
{
    tile->dtype = dtype;
    for (int64_t x = 0; x < WEFTI_TILE_ELEMS; x++) {
        store(tile, x, held(x, rank, nranks));
    }
}

void wefti_tile_make_reduced(wefti_tile *tile, weft_dtype dtype,
                             weft_redop redop, int nranks)
{
    tile->dtype = dtype;
    for (int64_t x = 0; x < WEFTI_TILE_ELEMS; x++) {
        store(tile, x, reduced(x, dtype, redop, nranks));
    }
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
