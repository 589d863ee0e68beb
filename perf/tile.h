/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/tile.h - data whose every element is known: whole numbers that repeat
 * after a prime number of elements, so that a chunk in the wrong place shows.
 *
 * Rank p of n holds at element e, in a call numbered `shift`,
 *
 *     v(p, x) = h(x) + 2 * ((x + p) mod n),   x = (e + shift) mod 8191
 *
 * with h(x) in 0 .. 7; types of 8 bits hold h(x) mod 4 + (x + p) mod n mod 2,
 * and products have factors of 1 and 2, so that little overflows. What a type
 * cannot hold is held as the type holds it, and what comes out is computed from
 * that: up to 100 ranks every partial sum is exact in every wide type.
 */
#ifndef PERF_TILE_H
#define PERF_TILE_H

#include "weft/types.h"

#include <stdbool.h>
#include <stddef.h>

enum { WEFTI_TILE_ELEMS = 8191, WEFTI_TILE_BYTES = WEFTI_TILE_ELEMS * 8 };

/* One period of what someone holds. */
typedef struct wefti_tile {
    _Alignas(64) unsigned char bytes[WEFTI_TILE_BYTES];
    weft_dtype dtype;
} wefti_tile;

/* What rank holds for a reduction; what the reduction over all ranks gives.
 * Where nothing is reduced, redop is SUM. hosts [nranks]: the host of each rank
 * where sums have two levels (weft/op.h), from 0; NULL: one level. */
void wefti_tile_make(wefti_tile *tile, weft_dtype dtype, weft_redop redop,
                     int rank, int nranks);
void wefti_tile_make_reduced(wefti_tile *tile, weft_dtype dtype,
                             weft_redop redop, int nranks, const int *hosts);

/* rank's scalar for PREMULSUM, one element of dtype: 1 or 2. */
void wefti_tile_make_scale(void *element_out, weft_dtype dtype, int rank);

/* Writes elements first .. first + elems of call shift to target. */
void wefti_tile_fill(const wefti_tile *tile, void *target, size_t first,
                     size_t elems, size_t shift);

/* How many elements of source differ from those. */
size_t wefti_tile_count_wrong(const wefti_tile *tile, const void *source,
                              size_t first, size_t elems, size_t shift);

#endif
