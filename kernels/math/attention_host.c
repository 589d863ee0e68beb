/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Block attention forward: bands of queries against blocks of keys.
 *
 *            keys: one block of BLOCK_KEYS at a time
 *          +-----------+-----------+---
 *   band   | scores    |           |      scores = q K^T, then their exps
 *          +-----------+-----------+---
 *             x V, added to the band's o; o and the running sum shrink when
 *             the running maximum grows
 *
 * Exponents are kept in base 2: top and score are multiples of log2(e).
 */
#include "kernels/math/attention.h"

#include "base/check.h"
#include "kernels/math/attention_tile.h"
#include "kernels/math/level.h"
#include "kernels/math/vec_exp.h"

#define BAND_QUERIES ((size_t)16)
#define BLOCK_KEYS   ((size_t)128)

/* One kv head's keys and values as the tiles read them. */
typedef struct packed {
    const real *keys;   /* panels, pack_panels */
    const real *values; /* [kv_tokens][value_step] */
    size_t value_step;
    size_t row_elems; /* head_size in whole vectors */
} packed;

/* A band of one head's queries on its way through the keys. */
typedef struct band {
    const real *q;
    size_t first, rows;
    real *scores;           /* [BAND_QUERIES][BLOCK_KEYS] */
    real *o;                /* [BAND_QUERIES][row_elems], not yet divided */
    real top[BAND_QUERIES]; /* greatest score so far, base 2 */
    real sum[BAND_QUERIES]; /* of exp2(score - top) */
} band;

static void band_start(band *b, const packed *kv, const wefti_attention *shape,
                       const real *o, const real *lse)
{
    for (size_t i = 0; i < BAND_QUERIES; i++) {
        b->top[i] = -(real)INFINITY;
        b->sum[i] = 0;
    }
    if (!o) {
        memset(b->o, 0, BAND_QUERIES * kv->row_elems * sizeof(real));
        return;
    }
    pack_rows(b->o, kv->row_elems, o, shape->o_stride, b->rows,
              shape->head_size);
    for (size_t i = 0; i < b->rows; i++) {
        real l = lse[i * shape->heads];

        b->top[i] = l * LOG2_E;
        b->sum[i] = l > -(real)INFINITY ? 1 : 0;
    }
}

/* The greatest of count > 0 scores; a row is readable in whole vectors. */
static inline real row_top(const real *score, size_t count)
{
    vec least_score = vec_splat(-(real)INFINITY), top = least_score;
    size_t j = 0;

    for (; j + LANES <= count; j += LANES)
        top = vec_max(vec_load(score + j), top);
    if (j < count)
        top = vec_max(
            vec_select(vec_lanes(count - j), vec_load(score + j), least_score),
            top);
    return vec_top(top);
}

/*
 * score[j] = exp2(scale score[j] - top) for j < count, 0 up to filled (both
 * within the padded row); returns their sum.
 */
static inline real row_exp(real *score, size_t count, size_t filled, real scale,
                           real top)
{
    vec sum = {0}, by = vec_splat(scale), off = vec_splat(top);
    size_t j = 0;

    for (; j + LANES <= count; j += LANES) {
        vec p = vec_exp2(vec_load(score + j) * by - off);

        sum += p;
        vec_store(score + j, p);
    }
    if (j < count) {
        vec p = vec_first(vec_exp2(vec_load(score + j) * by - off), count - j);

        sum += p;
        vec_store(score + j, p);
        j += LANES;
    }
    for (; j < filled; j += LANES)
        vec_store(score + j, (vec){0});
    return vec_sum(sum);
}

/* Moves row i's o and sum to the top that its new scores bring. */
static inline void row_rise(band *b, size_t i, real top, size_t row_elems)
{
    real *o = b->o + i * row_elems;

    if (!(top > b->top[i]))
        return;
    if (b->sum[i] > 0) {
        real keep = (real)exp2((double)(b->top[i] - top));

        b->sum[i] *= keep;
        for (size_t d = 0; d < row_elems; d += LANES)
            vec_store(o + d, vec_load(o + d) * keep);
    }
    b->top[i] = top;
}

/*
 * Turns the scores of one tile's rows into weights. Rows step by step, not one
 * after the other: what one row waits for the others then fill.
 */
static void tile_softmax(band *b, const wefti_attention *shape, size_t i,
                         size_t rows, size_t first, size_t seen,
                         size_t row_elems)
{
    real *scores = b->scores + i * BLOCK_KEYS;
    real scale = shape->scale * LOG2_E;
    size_t count[TILE_ROWS];
    real top[TILE_ROWS];

    for (size_t r = 0; r < rows; r++) {
        count[r] = visible_keys(shape, b->first + i + r, first, seen);
        top[r] = count[r] > 0 ? row_top(scores + r * BLOCK_KEYS, count[r])
                              : -(real)INFINITY;
    }
    for (size_t r = 0; r < rows; r++)
        row_rise(b, i + r, top[r] * scale, row_elems);
    for (size_t r = 0; r < rows; r++)
        b->sum[i + r] += row_exp(scores + r * BLOCK_KEYS, count[r],
                                 round_up(seen, LANES), scale, b->top[i + r]);
}

/* The band against the keys [first, first + count). */
static void band_block(band *b, const packed *kv, const wefti_attention *shape,
                       size_t first, size_t count)
{
    for (size_t i = 0; i < b->rows; i += TILE_ROWS) {
        size_t rows = least(b->rows - i, TILE_ROWS);
        size_t seen =
            visible_keys(shape, b->first + i + rows - 1, first, count);
        size_t filled = round_up(seen, LANES);
        real *scores = b->scores + i * BLOCK_KEYS;

        if (seen == 0)
            continue;
        tile_rows(scores, BLOCK_KEYS, b->q + i * shape->q_stride,
                  shape->q_stride, rows, kv->keys + first * shape->head_size,
                  PANEL_KEYS, PANEL_KEYS * shape->head_size, shape->head_size,
                  filled, false);
        tile_softmax(b, shape, i, rows, first, seen, kv->row_elems);
        tile_rows(b->o + i * kv->row_elems, kv->row_elems, scores, BLOCK_KEYS,
                  rows, kv->values + first * kv->value_step, kv->value_step,
                  PANEL_KEYS, seen, kv->row_elems, true);
    }
}

/* Divides, and writes every query that has seen a key here or before. */
static void band_finish(const band *b, const packed *kv,
                        const wefti_attention *shape, bool merge, real *o,
                        real *lse)
{
    for (size_t i = 0; i < b->rows; i++) {
        const real *from = b->o + i * kv->row_elems;
        real inverse = b->sum[i] == 0 ? 0 : 1 / b->sum[i];

        if (merge &&
            visible_keys(shape, b->first + i, 0, shape->kv_tokens) == 0)
            continue;
        for (size_t d = 0; d < shape->head_size; d++)
            o[i * shape->o_stride + d] = from[d] * inverse;
        lse[i * shape->heads] = b->top[i] * LN_2 + (real)log((double)b->sum[i]);
    }
}

/* One head: every band against every block it sees a key of. */
static void forward_head(real *o, real *lse, const real *q, const packed *kv,
                         const wefti_attention *shape, bool merge,
                         real *scratch)
{
    band b = {.scores = scratch, .o = scratch + BAND_QUERIES * BLOCK_KEYS};

    for (b.first = 0; b.first < shape->q_tokens; b.first += BAND_QUERIES) {
        real *band_o = o + b.first * shape->o_stride;
        real *band_lse = lse + b.first * shape->heads;

        b.q = q + b.first * shape->q_stride;
        b.rows = least(BAND_QUERIES, shape->q_tokens - b.first);
        band_start(&b, kv, shape, merge ? band_o : NULL, band_lse);

        size_t seen =
            visible_keys(shape, b.first + b.rows - 1, 0, shape->kv_tokens);

        for (size_t at = 0; at < seen; at += BLOCK_KEYS)
            band_block(&b, kv, shape, at, least(BLOCK_KEYS, seen - at));
        band_finish(&b, kv, shape, merge, band_o, band_lse);
    }
}

void WEFTI_LEVEL(attention_forward)(real *o, real *lse, const real *q,
                                    const real *k, const real *v,
                                    const wefti_attention *shape, bool merge,
                                    real *scratch)
{
    size_t size = shape->head_size, group = shape->heads / shape->kv_heads;
    packed kv = {.row_elems = round_up(size, LANES)};
    real *keys = line_start(scratch);
    real *values = keys + round_up(shape->kv_tokens, PANEL_KEYS) * size;
    real *rest = values + shape->kv_tokens * kv.row_elems;

    WEFTI_ASSERT(shape->heads % shape->kv_heads == 0);
    for (size_t g = 0; g < shape->kv_heads; g++) {
        pack_panels(keys, k + g * size, shape->kv_stride, shape->kv_tokens,
                    size);
        kv.keys = keys;
        kv.values = v + g * size;
        kv.value_step = shape->kv_stride;
        if (kv.row_elems != size) {
            pack_rows(values, kv.row_elems, v + g * size, shape->kv_stride,
                      shape->kv_tokens, size);
            kv.values = values;
            kv.value_step = kv.row_elems;
        }
        for (size_t h = g * group; h < (g + 1) * group; h++)
            forward_head(o + h * size, lse + h, q + h * size, &kv, shape, merge,
                         rest);
    }
}

void WEFTI_LEVEL(attention_delta)(real *delta, const real *o, const real *dout,
                                  const wefti_attention *shape)
{
    for (size_t i = 0; i < shape->q_tokens; i++)
        for (size_t h = 0; h < shape->heads; h++) {
            size_t at = i * shape->o_stride + h * shape->head_size;
            size_t d = 0;
            vec sum = {0};

            for (; d + LANES <= shape->head_size; d += LANES)
                sum += vec_load(o + at + d) * vec_load(dout + at + d);

            real rest = vec_sum(sum);

            for (; d < shape->head_size; d++)
                rest += o[at + d] * dout[at + d];
            delta[i * shape->heads + h] = rest;
        }
}
