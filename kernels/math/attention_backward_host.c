/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Block attention backward: blocks of keys, and for each every band of queries
 * that sees it.
 *
 *     scores  p = exp2(q K^T - lse)        slopes  ds = p (dout V^T - delta)
 *     dV += p^T dout      dK += ds^T q     dq += ds K
 *
 * A block's dK and dV stay in scratch until all heads of its group have added
 * to them; a band's dq goes out after every block. Both orders are fixed, so
 * the sums repeat.
 */
#include "kernels/math/attention.h"

#include "base/check.h"
#include "kernels/math/attention_tile.h"
#include "kernels/math/level.h"
#include "kernels/math/vec_exp.h"

#define BAND_QUERIES ((size_t)32)
#define BLOCK_KEYS   ((size_t)64)

/* Columns of scores are filled in whole steps of both kinds of tile. */
#define FILL_STEP (LANES > TILE_ROWS ? LANES : TILE_ROWS)

/* Rows readable in whole vectors: the caller's own, or a padded copy. */
typedef struct rows_of {
    const real *at;
    size_t step;
} rows_of;

/* One block of one kv head's keys. */
typedef struct key_block {
    size_t first, count;
    size_t row_elems;
    const real *keys, *values; /* panels */
    rows_of key_rows;
    real *dk, *dv; /* [BLOCK_KEYS][row_elems] */
} key_block;

/* One head's queries, and the scratch of a band. */
typedef struct query_head {
    const real *q, *dout, *lse, *delta;
    real *dq;
    real *scores, *slopes;    /* [BAND_QUERIES][BLOCK_KEYS] */
    real *q_copy, *dout_copy; /* [BAND_QUERIES][row_elems] */
    real *dq_band;            /* likewise */
} query_head;

static rows_of readable_rows(real *copy, const key_block *block,
                             const real *from, size_t step, size_t rows,
                             size_t head_size)
{
    if (block->row_elems == head_size)
        return (rows_of){from, step};
    pack_rows(copy, block->row_elems, from, step, rows, head_size);
    return (rows_of){copy, block->row_elems};
}

/*
 * A row's scores become weights, its dout V^T (in slope) slopes; both are 0
 * from count up to filled.
 */
static inline void row_slopes(real *score, real *slope, size_t count,
                              size_t filled, real scale, real lse, real delta)
{
    vec by = vec_splat(scale * LOG2_E), off = vec_splat(lse * LOG2_E);
    size_t j = 0;

    for (; j + LANES <= count; j += LANES) {
        vec p = vec_exp2(vec_load(score + j) * by - off);

        vec_store(score + j, p);
        vec_store(slope + j, p * (vec_load(slope + j) - delta) * scale);
    }
    if (j < count) {
        vec p = vec_first(vec_exp2(vec_load(score + j) * by - off), count - j);

        vec_store(score + j, p);
        vec_store(slope + j, p * (vec_load(slope + j) - delta) * scale);
        j += LANES;
    }
    for (; j < filled; j += LANES) {
        vec_store(score + j, (vec){0});
        vec_store(slope + j, (vec){0});
    }
}

/* scores and slopes of one tile's rows [i, i + rows) of the band at first. */
static void band_slopes(const query_head *head, const key_block *block,
                        const wefti_attention *shape, size_t first, size_t i,
                        size_t rows, size_t seen)
{
    size_t size = shape->head_size, at = first + i;
    size_t filled = round_up(seen, FILL_STEP);
    real *scores = head->scores + i * BLOCK_KEYS;
    real *slopes = head->slopes + i * BLOCK_KEYS;

    tile_rows(scores, BLOCK_KEYS, head->q + at * shape->q_stride,
              shape->q_stride, rows, block->keys, PANEL_KEYS, PANEL_KEYS * size,
              size, filled, false);
    tile_rows(slopes, BLOCK_KEYS, head->dout + at * shape->o_stride,
              shape->o_stride, rows, block->values, PANEL_KEYS,
              PANEL_KEYS * size, size, filled, false);
    for (size_t r = 0; r < rows; r++) {
        real lse = head->lse[(at + r) * shape->heads];
        size_t count =
            lse == -(real)INFINITY
                ? 0
                : visible_keys(shape, at + r, block->first, block->count);

        row_slopes(scores + r * BLOCK_KEYS, slopes + r * BLOCK_KEYS, count,
                   filled, shape->scale, lse,
                   head->delta[(at + r) * shape->heads]);
    }
}

/* dq of one tile's rows: slopes times keys, added to the caller's. */
static void band_dq(const query_head *head, const key_block *block,
                    const wefti_attention *shape, size_t first, size_t i,
                    size_t rows, size_t seen)
{
    real *dq = head->dq + (first + i) * shape->q_stride;

    tile_rows(head->dq_band, block->row_elems, head->slopes + i * BLOCK_KEYS,
              BLOCK_KEYS, rows, block->key_rows.at, block->key_rows.step,
              PANEL_KEYS, seen, block->row_elems, false);
    for (size_t r = 0; r < rows; r++)
        for (size_t d = 0; d < shape->head_size; d++)
            dq[r * shape->q_stride + d] +=
                head->dq_band[r * block->row_elems + d];
}

/* dK and dV: the band's weights and slopes, transposed, times dout and q. */
static void band_dkdv(const query_head *head, const key_block *block,
                      const wefti_attention *shape, size_t first, size_t rows)
{
    size_t row_elems = block->row_elems;
    size_t seen =
        visible_keys(shape, first + rows - 1, block->first, block->count);
    rows_of q =
        readable_rows(head->q_copy, block, head->q + first * shape->q_stride,
                      shape->q_stride, rows, shape->head_size);
    rows_of dout = readable_rows(head->dout_copy, block,
                                 head->dout + first * shape->o_stride,
                                 shape->o_stride, rows, shape->head_size);

    for (size_t j = 0, i = 0; j < seen; j += TILE_ROWS) {
        while (visible_keys(shape, first + i, block->first, block->count) <= j)
            i++;
        tile_columns(block->dv + j * row_elems, row_elems,
                     head->scores + i * BLOCK_KEYS + j, BLOCK_KEYS,
                     dout.at + i * dout.step, dout.step, rows - i, row_elems);
        tile_columns(block->dk + j * row_elems, row_elems,
                     head->slopes + i * BLOCK_KEYS + j, BLOCK_KEYS,
                     q.at + i * q.step, q.step, rows - i, row_elems);
    }
}

/* One head against one block. */
static void head_block(const query_head *head, const key_block *block,
                       const wefti_attention *shape)
{
    for (size_t first = 0; first < shape->q_tokens; first += BAND_QUERIES) {
        size_t band = least(BAND_QUERIES, shape->q_tokens - first);

        if (visible_keys(shape, first + band - 1, block->first, block->count) ==
            0)
            continue;
        for (size_t i = 0; i < band; i += TILE_ROWS) {
            size_t rows = least(TILE_ROWS, band - i);
            size_t seen = visible_keys(shape, first + i + rows - 1,
                                       block->first, block->count);

            if (seen == 0)
                continue;
            band_slopes(head, block, shape, first, i, rows, seen);
            band_dq(head, block, shape, first, i, rows, seen);
        }
        band_dkdv(head, block, shape, first, band);
    }
}

/* Adds a block's dK or dV to the caller's rows. */
static void add_rows(real *to, size_t step, const real *from, size_t row_elems,
                     size_t rows, size_t head_size)
{
    for (size_t row = 0; row < rows; row++)
        for (size_t d = 0; d < head_size; d++)
            to[row * step + d] += from[row * row_elems + d];
}

/* Takes elems from the front of the scratch. */
static real *take(real **scratch, size_t elems)
{
    real *taken = *scratch;

    *scratch += elems;
    return taken;
}

void WEFTI_LEVEL(attention_backward)(real *dq, real *dk, real *dv,
                                     const real *dout, const real *q,
                                     const real *k, const real *v,
                                     const real *lse, const real *delta,
                                     const wefti_attention *shape,
                                     real *scratch)
{
    size_t size = shape->head_size, group = shape->heads / shape->kv_heads;
    size_t row_elems = round_up(size, LANES);

    scratch = line_start(scratch);

    real *keys = take(&scratch, BLOCK_KEYS * size);
    real *values = take(&scratch, BLOCK_KEYS * size);
    real *key_copy = take(&scratch, BLOCK_KEYS * row_elems);
    key_block block = {.row_elems = row_elems,
                       .keys = keys,
                       .values = values,
                       .dk = take(&scratch, BLOCK_KEYS * row_elems),
                       .dv = take(&scratch, BLOCK_KEYS * row_elems)};
    query_head head = {.scores = take(&scratch, BAND_QUERIES * BLOCK_KEYS),
                       .slopes = take(&scratch, BAND_QUERIES * BLOCK_KEYS),
                       .q_copy = take(&scratch, BAND_QUERIES * row_elems),
                       .dout_copy = take(&scratch, BAND_QUERIES * row_elems),
                       .dq_band = take(&scratch, TILE_ROWS * row_elems)};

    WEFTI_ASSERT(shape->heads % shape->kv_heads == 0);
    for (size_t g = 0; g < shape->kv_heads; g++)
        for (block.first = 0; block.first < shape->kv_tokens;
             block.first += BLOCK_KEYS) {
            size_t kv = block.first * shape->kv_stride + g * size;

            block.count = least(BLOCK_KEYS, shape->kv_tokens - block.first);
            if (visible_keys(shape, shape->q_tokens - 1, block.first,
                             block.count) == 0)
                break;
            pack_panels(keys, k + kv, shape->kv_stride, block.count, size);
            pack_panels(values, v + kv, shape->kv_stride, block.count, size);
            block.key_rows = readable_rows(key_copy, &block, k + kv,
                                           shape->kv_stride, block.count, size);
            memset(block.dk, 0, BLOCK_KEYS * row_elems * sizeof(real));
            memset(block.dv, 0, BLOCK_KEYS * row_elems * sizeof(real));
            for (size_t h = g * group; h < (g + 1) * group; h++) {
                head.q = q + h * size;
                head.dq = dq + h * size;
                head.dout = dout + h * size;
                head.lse = lse + h;
                head.delta = delta + h;
                head_block(&head, &block, shape);
            }
            add_rows(dk + kv, shape->kv_stride, block.dk, row_elems,
                     block.count, size);
            add_rows(dv + kv, shape->kv_stride, block.dv, row_elems,
                     block.count, size);
        }
}
