/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/attend_ring.c - attention while keys and values come round.
 *
 *   F   own keys | r-1's | r+1's | ...     each merged by its log-sum-exp
 *   I   own keys | r-1's | r-2's | ...     with the final one
 *       own sums | r-1's | r-2's | ...     of gradients, one step behind; at
 *                                          the end they are at home
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
 * A sum leaves when compute has done with it, and is needed at the same moment
 * where it goes. A block of keys has room once the one before the last of its
 * way is used up; serial steps wait for it there.
 */
static void note_next(const wefti_node_args *args, const key_round *round,
                      size_t order)
{
    const size_t places = count_places(args);
    const size_t ahead = count_ahead(args, round);
    if (carries(args, round)) {
        if (order > 0 && order <= places) {
            note(args, round, WEFTI_SCORE_POST, order);
            note(args, round, WEFTI_SCORE_SERIAL, order);
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
        *block_out = order < places ? round->own : NULL;
        *owner_out =
            (int)((context->part / wefti_context_ulysses(context) + order) %
                  places);
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
                                   v[WEFTI_ATTEND_QKV], false);
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

/* Gradients of a block's keys, to the sum that came; the first is the sum. */
static weft_status slope_block(const wefti_node_args *args,
                               const wefti_node_heads *heads,
                               const wefti_node_seen *seen,
                               wefti_node_slopes *slopes, void *keys,
                               void *sums)
{
    const wefti_context_link *link = args->pass->link;
    const void *qkv = args->values[WEFTI_ATTEND_QKV];
    const size_t width = wefti_node_heads_keys(heads);
    const wefti_node_matrix to = {sums, width}, from = {link->slopes, width};
    const size_t tokens = args->rows * heads->spread;
    weft_status status = WEFT_OK;
    slopes->dkeys = rounds(args) ? link->slopes : sums;
    if (rounds(args) && slopes->accumulate) {
        status = wefti_node_clear(args, link->slopes, tokens * width);
    }
    if (status == WEFT_OK) {
        status =
            wefti_node_block_backward(args, heads, seen, slopes, qkv, keys);
    }
    return status == WEFT_OK && rounds(args)
               ? wefti_node_round_rows(args, &to, &from, tokens, width,
                                       slopes->accumulate)
               : status;
}

/* Both rounds: keys, and the sums of their gradients. */
static weft_status slope_rounds(const wefti_node_args *args,
                                const wefti_node_heads *heads)
{
    const wefti_context_link *link = args->pass->link;
    void *const *v = args->values;
    wefti_node_slopes slopes = {.dqkv = v[WEFTI_ATTEND_DQKV_SUM],
                                .dout = v[WEFTI_ATTEND_DOUT],
                                .lse = v[WEFTI_ATTEND_LSE],
                                .delta = v[WEFTI_ATTEND_DELTA]};
    key_round of_keys, of_sums;
    weft_status status = begin(args, &of_keys, link->keys_again, link->own);
    if (status == WEFT_OK) {
        status = begin(args, &of_sums, link->sums, link->own_sum);
    }
    while (status == WEFT_OK) {
        void *keys, *sums = NULL;
        int owner;
        status = next(args, &of_keys, &keys, &owner);
        if (status == WEFT_OK) {
            status = next(args, &of_sums, &sums, &owner);
        }
        if (status != WEFT_OK || !keys) {
            return status;
        }
        const wefti_node_seen seen = see(args, heads, owner);
        if (seen.block.queries > 0 && !args->pass->idle) {
            status = slope_block(args, heads, &seen, &slopes, keys, sums);
        }
        slopes.accumulate = true;
    }
    return status;
}

/* Gradients of queries, and of keys that have come home, to where those were.
 */
static weft_status put_slopes(const wefti_node_args *args,
                              const wefti_node_heads *heads)
{
    void *const *v = args->values;
    void *slopes = v[WEFTI_ATTEND_DQKV];
    const size_t row = wefti_node_heads_qkv(heads);
    const wefti_node_matrix to = {slopes, row};
    const wefti_node_matrix from = {v[WEFTI_ATTEND_DQKV_SUM], row};
    weft_status status =
        wefti_node_round_rows(args, &to, &from, args->rows * heads->spread,
                              wefti_node_heads_out(heads), false);
    if (status == WEFT_OK) {
        status = wefti_node_pack_keys(args, heads, args->pass->link->own_sum,
                                      slopes, true);
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
        status = wefti_node_pack_keys(args, &heads, link->own,
                                      v[WEFTI_ATTEND_QKV], false);
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
