/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * kernels/math/attention_tile.h - small products on registers, and the packed
 * operands they read.
 *
 * One register block is TILE_ROWS rows of TILE_VECS vectors. It multiplies
 *
 *     c[i][n] (+)= sum_k a(i, k) b[k][n]
 *
 * with a broadcast and b read by vectors. Two forms differ in how a lies:
 * by rows (a(i, k) = a[i * a_step + k]) and by columns (a[k * a_step + i]).
 * Columns of c and b are padded to whole vectors; rows of a are not padded:
 * a block that has fewer repeats its last one, and c has room for all.
 */
#ifndef KERNELS_MATH_ATTENTION_TILE_H
#define KERNELS_MATH_ATTENTION_TILE_H

#include "kernels/math/attention.h"
#include "kernels/math/vec.h"

#if defined(__AVX512F__)
#define TILE_ROWS ((size_t)8)
#else
#define TILE_ROWS ((size_t)4)
#endif
#define TILE_VECS ((size_t)2)

#define LINE_BYTES ((size_t)64)

/* Keys of one packed panel: the columns of one register block. */
#define PANEL_KEYS (TILE_VECS * LANES)

static inline size_t round_up(size_t value, size_t step)
{
    return (value + step - 1) / step * step;
}

/* The first address in the scratch where no vector straddles cache lines. */
static inline real *line_start(real *scratch)
{
    size_t past = (uintptr_t)scratch % LINE_BYTES / sizeof(real);

    return past == 0 ? scratch : scratch + LINE_BYTES / sizeof(real) - past;
}

static inline size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* a's next column for every row of the block. */
ALWAYS_INLINE void tile_step(vec sum[TILE_ROWS][TILE_VECS],
                             const real *const row[TILE_ROWS], size_t at,
                             const real *b, const size_t vecs)
{
    vec right[TILE_VECS];

#pragma GCC unroll 2
    for (size_t n = 0; n < vecs; n++)
        right[n] = vec_load(b + n * LANES);
#pragma GCC unroll 8
    for (size_t i = 0; i < TILE_ROWS; i++) {
        vec left = vec_splat(row[i][at]);

#pragma GCC unroll 2
        for (size_t n = 0; n < vecs; n++)
            sum[i][n] += left * right[n];
    }
}

ALWAYS_INLINE void tile_block(real *c, size_t c_step,
                              const real *const row[TILE_ROWS], size_t a_step,
                              const real *b, size_t b_step, size_t depth,
                              const size_t vecs, bool add)
{
    vec sum[TILE_ROWS][TILE_VECS];

#pragma GCC unroll 8
    for (size_t i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (size_t n = 0; n < vecs; n++)
            sum[i][n] =
                add ? vec_load(c + i * c_step + n * LANES) : vec_splat(0);
    for (size_t k = 0; k < depth; k++)
        tile_step(sum, row, k * a_step, b + k * b_step, vecs);
#pragma GCC unroll 8
    for (size_t i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (size_t n = 0; n < vecs; n++)
            vec_store(c + i * c_step + n * LANES, sum[i][n]);
}

/*
 * One band of up to TILE_ROWS rows times columns columns (a multiple of LANES);
 * b_panel is the distance from one TILE_VECS vectors of b to the next.
 */
static inline void tile_rows(real *c, size_t c_step, const real *a,
                             size_t a_step, size_t rows, const real *b,
                             size_t b_step, size_t b_panel, size_t depth,
                             size_t columns, bool add)
{
    const real *row[TILE_ROWS];
    size_t n = 0;

    for (size_t i = 0; i < TILE_ROWS; i++)
        row[i] = a + least(i, rows - 1) * a_step;
    for (; n + PANEL_KEYS <= columns; n += PANEL_KEYS, b += b_panel)
        tile_block(c + n, c_step, row, 1, b, b_step, depth, TILE_VECS, add);
    if (n < columns)
        tile_block(c + n, c_step, row, 1, b, b_step, depth, 1, add);
}

/* The same with a by columns: band rows i are a[.. + i]; b is not in panels. */
static inline void tile_columns(real *c, size_t c_step, const real *a,
                                size_t a_step, const real *b, size_t b_step,
                                size_t depth, size_t columns)
{
    const real *row[TILE_ROWS];
    size_t n = 0;

    for (size_t i = 0; i < TILE_ROWS; i++)
        row[i] = a + i;
    for (; n + PANEL_KEYS <= columns; n += PANEL_KEYS)
        tile_block(c + n, c_step, row, a_step, b + n, b_step, depth, TILE_VECS,
                   true);
    if (n < columns)
        tile_block(c + n, c_step, row, a_step, b + n, b_step, depth, 1, true);
}

/*
 * pack_panels - to[panel][d][PANEL_KEYS] from from[key][d]; keys past the last
 * are zero.
 */
static inline void pack_panels(real *to, const real *from, size_t step,
                               size_t keys, size_t head_size)
{
    for (size_t key = 0; key < keys; key++) {
        real *panel = to + key / PANEL_KEYS * PANEL_KEYS * head_size;

        for (size_t d = 0; d < head_size; d++)
            panel[d * PANEL_KEYS + key % PANEL_KEYS] = from[key * step + d];
    }
    for (size_t key = keys; key % PANEL_KEYS != 0; key++) {
        real *panel = to + key / PANEL_KEYS * PANEL_KEYS * head_size;

        for (size_t d = 0; d < head_size; d++)
            panel[d * PANEL_KEYS + key % PANEL_KEYS] = 0;
    }
}

/* pack_rows - rows padded with zeros to row_elems. */
static inline void pack_rows(real *to, size_t row_elems, const real *from,
                             size_t step, size_t rows, size_t head_size)
{
    for (size_t row = 0; row < rows; row++) {
        memcpy(to + row * row_elems, from + row * step,
               head_size * sizeof(real));
        for (size_t d = head_size; d < row_elems; d++)
            to[row * row_elems + d] = 0;
    }
}

/* How many of the keys from first on query i sees, at most count. */
static inline size_t visible_keys(const wefti_attention *shape, size_t i,
                                  size_t first, size_t count)
{
    if (!shape->causal)
        return count;

    ptrdiff_t seen = (ptrdiff_t)i + shape->causal_offset + 1 - (ptrdiff_t)first;

    return seen <= 0 ? 0 : least((size_t)seen, count);
}

#endif
