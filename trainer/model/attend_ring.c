/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/attend_ring.c - attention while keys and values come round.
 *
 *   F   own keys | r-1's | r+1's | ...     each merged by its log-sum-exp
 *   I   own keys | r-1's | own | r-2's | own ...     with the final one
 *         sums of  r-1's --> next rank, while own keys are computed; at the end
 *                  the others' gradients of own keys come home
 *
 * Of own keys a piece is computed at the beginning, while the first of others
 * come, and one behind each block whose gradients go on their way, so that
 * these are at the next rank when it needs them.
 *
 * Blocks and sums that travel are of the model's type. Of bf16 results and
 * gradients of queries are added up in f32, and rounded at the end; of a sum
 * that comes round each rank rounds what it adds to.
 *
 * All of a round is posted before its first block is computed; what no query
 * sees is not. Queries and their gradients stay where they are.
 *
 * Source: Liu, Zaharia, Abbeel 2023 (ring attention, arXiv 2310.01889).
 */
#include "trainer/model/attend.h"

#include "overlap/ring.h"
#include "trainer/model/context_link.h"
#include "trainer/program/node_comm.h"
#include "trainer/program/node_math.h"

#include <math.h>

/* Own keys are cut behind a multiple of so many queries. */
enum { PIECE_QUERIES = 16 };

/* A round; without other ranks own block stands for theirs. */
typedef struct key_round {
    weft_ring *ring;
    void *own;
    size_t order; /* of the next block */
} key_round;

/* ---- what is noted --------------------------------------------------------
 */

static wefti_score *score_of(const wefti_node_args *args)
{
    return args->pass->links ? args->pass->links[WEFTI_LINK_CONTEXT].score
                             : NULL;
}

static size_t count_places(const wefti_node_args *args)
{
    const wefti_model_shape *shape = args->node->context;
    return wefti_context_ring(&shape->context);
}

static bool carries(const wefti_node_args *args, const key_round *round)
{
    return round->ring == args->pass->link->sums;
}

/* Blocks of others that have room beside the one in use: two each way. */
static size_t count_ahead(const wefti_node_args *args, const key_round *round)
{
    const bool both =
        round->ring == args->pass->link->keys && count_places(args) > 2;
    return both ? 4 : 2;
}

static void note(const wefti_node_args *args, const key_round *round,
                 wefti_score_kind kind, size_t block)
{
    wefti_score_note_down(
        score_of(args),
        &(wefti_score_note){.kind = kind,
                            .class_id = WEFT_CLASS_CP,
                            .label = carries(args, round) ? "sums" : "keys",
                            .of = round->ring,
                            .number = block,
                            .chunk = kind == WEFTI_SCORE_AWAIT ? WEFTI_SCORE_ALL
                                                               : 1});
}

/* What comes as the round begins: blocks of keys. */
static void note_begin(const wefti_node_args *args, const key_round *round)
{
    const size_t ahead = count_ahead(args, round);
    for (size_t block = 1;
         !carries(args, round) && block <= ahead && block < count_places(args);
         block++) {
        note(args, round, WEFTI_SCORE_POST, block);
    }
}

/*
 * A sum that has been passed on is needed where the next one is. A block of
 * keys has room once the one before the last of its way is used up; serial
 * steps wait for it there.
 */
static void note_next(const wefti_node_args *args, const key_round *round,
                      size_t order)
{
    const size_t places = count_places(args);
    const size_t ahead = count_ahead(args, round);
    if (carries(args, round)) {
        if (order > 0) {
            note(args, round, WEFTI_SCORE_AWAIT, order);
        }
        return;
    }
    for (size_t block = order + 1;
         order == 0 && block <= ahead && block < places; block++) {
        note(args, round, WEFTI_SCORE_SERIAL, block);
    }
    const size_t room = order + ahead - 1;
    if (order > 1 && room < places) {
        note(args, round, WEFTI_SCORE_POST, room);
        note(args, round, WEFTI_SCORE_SERIAL, room);
    }
    if (order > 0 && order < places) {
        note(args, round, WEFTI_SCORE_AWAIT, order);
    }
}

/* ---- rounds ---------------------------------------------------------------
 */

static weft_status begin_round(const wefti_node_args *args, weft_ring *ring,
                               void *own)
{
    if (!wefti_node_exchanges(args->pass, WEFTI_LINK_CONTEXT)) {
        return WEFT_OK;
    }
    wefti_ring_set_blocking(ring, args->pass->links[WEFTI_LINK_CONTEXT].mode ==
                                      WEFT_BUCKET_BLOCKING);
    return weft_ring_post(ring, own, args->pass->compute);
}

static weft_status begin(const wefti_node_args *args, key_round *round,
                         weft_ring *ring, void *own)
{
    *round = (key_round){.ring = ring, .own = own};
    wefti_score_begin(score_of(args));
    if (score_of(args)) {
        note_begin(args, round);
    }
    weft_status status = begin_round(args, ring, own);
    wefti_score_end(score_of(args));
    return status;
}

static weft_status next_block(const wefti_node_args *args, key_round *round,
                              size_t order, void **block_out, int *owner_out)
{
    const wefti_model_shape *shape = args->node->context;
    const wefti_context *context = &shape->context;
    const size_t places = wefti_context_ring(context);
    if (!wefti_node_exchanges(args->pass, WEFTI_LINK_CONTEXT)) {
        const size_t sums = carries(args, round); /* without own */
        const size_t place = wefti_context_place(context);
        *block_out = order + sums < places ? round->own : NULL;
        *owner_out = (int)((place + order + sums) % places);
        return WEFT_OK;
    }
    wefti_node_stop(args->pass, WEFTI_LINK_CONTEXT);
    weft_status status =
        weft_ring_next(round->ring, args->pass->compute, block_out, owner_out);
    wefti_node_resume(args->pass, WEFTI_LINK_CONTEXT);
    return status;
}

/* The next block; NULL: the round is over. */
static weft_status next(const wefti_node_args *args, key_round *round,
                        void **block_out, int *owner_out)
{
    const size_t order = round->order++;
    wefti_score_begin(score_of(args));
    if (score_of(args)) {
        note_next(args, round, order);
    }
    weft_status status = next_block(args, round, order, block_out, owner_out);
    wefti_score_end(score_of(args));
    return status;
}

/* What has been added to the sum that came last is all that this rank adds. */
static weft_status pass_on(const wefti_node_args *args, const key_round *sums)
{
    weft_status status = WEFT_OK;
    wefti_score_begin(score_of(args));
    if (score_of(args)) {
        note(args, sums, WEFTI_SCORE_POST, sums->order);
        note(args, sums, WEFTI_SCORE_SERIAL, sums->order);
    }
    if (wefti_node_exchanges(args->pass, WEFTI_LINK_CONTEXT)) {
        wefti_node_stop(args->pass, WEFTI_LINK_CONTEXT);
        status = wefti_ring_pass_on(sums->ring, args->pass->compute);
        wefti_node_resume(args->pass, WEFTI_LINK_CONTEXT);
    }
    wefti_score_end(score_of(args));
    return status;
}

static wefti_node_seen see(const wefti_node_args *args,
                           const wefti_node_heads *heads, int owner)
{
    const wefti_model_shape *shape = args->node->context;
    const size_t tokens = args->pass->batch->length * heads->spread;
    return (wefti_node_seen){
        .context = &shape->context,
        .seq = shape->seq,
        .owner = (size_t)owner,
        .block = wefti_context_see(&shape->context, tokens, (size_t)owner)};
}

static bool rounds(const wefti_node_args *args)
{
    return args->pass->program->narrow;
}

static weft_status attend_round(const wefti_node_args *args,
                                const wefti_node_heads *heads, real *out)
{
    const wefti_context_link *link = args->pass->link;
    void *const *v = args->values;
    key_round round;
    weft_status status = begin(args, &round, link->keys, link->own);
    bool merge = false;
    while (status == WEFT_OK) {
        void *keys;
        int owner;
        status = next(args, &round, &keys, &owner);
        if (status != WEFT_OK || !keys) {
            return status;
        }
        const wefti_node_seen seen = see(args, heads, owner);
        if (seen.block.queries > 0 && !args->pass->idle) {
            status = wefti_node_block_forward(args, heads, &seen, out,
                                              v[WEFTI_ATTEND_LSE],
                                              v[WEFTI_ATTEND_QKV], keys, merge);
        }
        merge = true;
    }
    return status;
}

static weft_status forward(const wefti_node_args *args)
{
    const wefti_node_heads heads = wefti_attend_heads(args->node->context);
    void *const *v = args->values;
    real *out = v[rounds(args) ? WEFTI_ATTEND_OUT_SUM : WEFTI_ATTEND_OUT];
    weft_status status =
        args->pass->idle
            ? WEFT_OK
            : wefti_node_pack_keys(args, &heads, args->pass->link->own,
                                   v[WEFTI_ATTEND_QKV]);
    if (status == WEFT_OK) {
        status = attend_round(args, &heads, out);
    }
    if (status != WEFT_OK || args->pass->idle || !rounds(args)) {
        return status;
    }
    const size_t width = wefti_node_heads_out(&heads);
    const wefti_node_matrix to = {v[WEFTI_ATTEND_OUT], width};
    const wefti_node_matrix from = {out, width};
    return wefti_node_round_rows(args, &to, &from, args->rows * heads.spread,
                                 width, false);
}

static wefti_node_slopes slopes_of(const wefti_node_args *args, real *dkeys,
                                   size_t keys_stride)
{
    void *const *v = args->values;
    return (wefti_node_slopes){.dqkv = v[WEFTI_ATTEND_DQKV_SUM],
                               .dkeys = dkeys,
                               .keys_stride = keys_stride,
                               .dout = v[WEFTI_ATTEND_DOUT],
                               .lse = v[WEFTI_ATTEND_LSE],
                               .delta = v[WEFTI_ATTEND_DELTA]};
}

/* Gradients of a block's keys, to the sum that came; the first begins it. */
static weft_status slope_block(const wefti_node_args *args,
                               const wefti_node_heads *heads, int owner,
                               const void *keys, void *sums, bool first)
{
    const wefti_context_link *link = args->pass->link;
    const void *qkv = args->values[WEFTI_ATTEND_QKV];
    const size_t width = wefti_node_heads_keys(heads);
    const size_t tokens = args->rows * heads->spread;
    const wefti_node_matrix to = {sums, width}, from = {link->slopes, width};
    const wefti_node_seen seen = see(args, heads, owner);
    real *dkeys = rounds(args) ? link->slopes : sums;
    const wefti_node_slopes slopes = slopes_of(args, dkeys, width);
    weft_status status = WEFT_OK;
    if (args->pass->idle || (!first && seen.block.queries == 0)) {
        return WEFT_OK;
    }
    if (first || rounds(args)) {
        status = wefti_node_clear(args, dkeys, tokens * width);
    }
    if (status == WEFT_OK && seen.block.queries > 0) {
        status =
            wefti_node_block_backward(args, heads, &seen, &slopes, qkv, keys);
    }
    return status == WEFT_OK && rounds(args)
               ? wefti_node_round_rows(args, &to, &from, tokens, width, !first)
               : status;
}

/* Of so many queries that see no key behind themselves, those before a piece:
 * all pieces have the same work. */
static size_t piece_start(size_t queries, size_t piece, size_t pieces)
{
    const double share = sqrt((double)piece / (double)pieces);
    const size_t start = (size_t)((double)queries * share);
    return piece == pieces ? queries : start - start % PIECE_QUERIES;
}

/* Of own keys a piece, straight into where their gradients belong. */
static weft_status slope_own(const wefti_node_args *args,
                             const wefti_node_heads *heads, size_t piece)
{
    const wefti_model_shape *shape = args->node->context;
    const void *qkv = args->values[WEFTI_ATTEND_QKV];
    const size_t queries = wefti_node_heads_out(heads);
    real *dqkv = args->values[WEFTI_ATTEND_DQKV_SUM];
    const wefti_node_slopes slopes =
        slopes_of(args, dqkv + queries, wefti_node_heads_qkv(heads));
    wefti_node_seen seen =
        see(args, heads, (int)wefti_context_place(&shape->context));
    wefti_context_block *block = &seen.block;
    const size_t pieces = count_places(args);
    const size_t first = piece_start(block->queries, piece, pieces);
    const size_t end = piece_start(block->queries, piece + 1, pieces);
    if (args->pass->idle || first == end) {
        return WEFT_OK;
    }
    block->query += first;
    block->queries = end - first;
    block->keys = end; /* the place's own are a triangle */
    block->offset += (int64_t)first;
    return wefti_node_block_backward(args, heads, &seen, &slopes, qkv,
                                     wefti_node_skip(args, qkv, queries));
}

/* Both rounds: keys, and the sums of their gradients. */
static weft_status slope_rounds(const wefti_node_args *args,
                                const wefti_node_heads *heads)
{
    const wefti_context_link *link = args->pass->link;
    key_round of_keys, of_sums;
    void *keys, *sums;
    int owner;
    weft_status status = begin(args, &of_keys, link->keys_again, link->own);
    if (status == WEFT_OK) {
        status = begin(args, &of_sums, link->sums, link->own_sum);
    }
    if (status == WEFT_OK) {
        status = next(args, &of_keys, &keys, &owner);
    }
    if (status == WEFT_OK) {
        status = slope_own(args, heads, 0);
    }
    while (status == WEFT_OK) {
        status = next(args, &of_keys, &keys, &owner);
        if (status == WEFT_OK) {
            status = next(args, &of_sums, &sums, &owner);
        }
        if (status != WEFT_OK || !keys) {
            return status;
        }
        status =
            slope_block(args, heads, owner, keys, sums, of_sums.order == 1);
        if (status == WEFT_OK) {
            status = pass_on(args, &of_sums);
        }
        if (status == WEFT_OK) {
            status = slope_own(args, heads, of_sums.order);
        }
    }
    return status;
}

/* Gradients to where queries and keys were; those of keys that others have
 * added up are home. */
static weft_status put_slopes(const wefti_node_args *args,
                              const wefti_node_heads *heads)
{
    void *const *v = args->values;
    void *slopes = v[WEFTI_ATTEND_DQKV];
    const size_t row = wefti_node_heads_qkv(heads);
    const size_t width = wefti_node_heads_keys(heads);
    const size_t tokens = args->rows * heads->spread;
    const wefti_node_matrix to = {slopes, row};
    const wefti_node_matrix from = {v[WEFTI_ATTEND_DQKV_SUM], row};
    const wefti_node_matrix keys = {
        wefti_node_skip(args, slopes, wefti_node_heads_out(heads)), row};
    const wefti_node_matrix others = {args->pass->link->own_sum, width};
    weft_status status =
        wefti_node_round_rows(args, &to, &from, tokens, row, false);
    if (status == WEFT_OK) {
        status =
            wefti_node_copy_rows(args, &keys, &others, tokens, width, true);
    }
    return status == WEFT_OK ? wefti_node_turn(args, heads, slopes, true)
                             : status;
}

static weft_status inputs(const wefti_node_args *args)
{
    const wefti_node_heads heads = wefti_attend_heads(args->node->context);
    const wefti_context_link *link = args->pass->link;
    void *const *v = args->values;
    if (args->pass->idle) {
        return slope_rounds(args, &heads);
    }
    weft_status status =
        wefti_node_delta(args, &heads, v[WEFTI_ATTEND_DELTA],
                         v[WEFTI_ATTEND_OUT], v[WEFTI_ATTEND_DOUT]);
    if (status == WEFT_OK) {
        status =
            wefti_node_pack_keys(args, &heads, link->own, v[WEFTI_ATTEND_QKV]);
    }
    if (status == WEFT_OK) { /* all is added to what is there */
        status =
            wefti_node_clear(args, v[WEFTI_ATTEND_DQKV_SUM],
                             args->rows * args->widths[WEFTI_ATTEND_DQKV_SUM]);
    }
    if (status == WEFT_OK) {
        status = slope_rounds(args, &heads);
    }
    return status == WEFT_OK ? put_slopes(args, &heads) : status;
}

static bool applies(const wefti_context *context)
{
    return wefti_context_ring(context) > 1;
}

static void append(wefti_builder *builder, const wefti_attend_values *values)
{
    wefti_append_core(builder, values,
                      &(wefti_node){.kind = WEFTI_NODE_EXCHANGE,
                                    .class_id = WEFT_CLASS_CP,
                                    .calls = {forward, inputs}});
}

const wefti_attend_core wefti_attend_ring = {applies, append};
