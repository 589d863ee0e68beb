/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * perf/tile.h - data whose every element is known: whole numbers that repeat
 * after a prime number of elements, so that a chunk in the wrong place shows.
 *
 * Rank p of n holds at element e, in a call numbered `shift`,
 *
 *     v(p, x) = h(x) + 2 * ((x + p) mod n),   x = (e + shift) mod 8191
 *
 * with h(x) in 0 .. 7. Sums over ranks are n h + n (n - 1), a multiple of n,
 * so AVG is whole too; every value is exact in every type up to 100 ranks.
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

/* What rank holds; what the reduction over all ranks gives. */
void wefti_tile_make(wefti_tile *tile, weft_dtype dtype, int rank, int nranks);
void wefti_tile_make_reduced(wefti_tile *tile, weft_dtype dtype,
                             weft_redop redop, int nranks);

/* Writes elements first .. first + elems of call shift to target. */
void wefti_tile_fill(const wefti_tile *tile, void *target, size_t first,
                     size_t elems, size_t shift);

/* How many elements of source differ from those. */
size_t wefti_tile_count_wrong(const wefti_tile *tile, const void *source,
                              size_t first, size_t elems, size_t shift);

#endif
