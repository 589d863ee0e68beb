/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/program/node_attention.h - attention as nodes call it: of whole
 * sequences, or of the keys of one place after the other (model/context.h).
 *
 * A row of a call stands for spread tokens, those that other ranks have sent;
 * so arrays have rows spread rows, of rows * spread tokens. Keys come as
 * [tokens][2][kv_heads][head_dim], keys then values. lse and delta are real,
 * and so are, of the keys of one place, results and gradients, which others are
 * added to; all else is of the program's type.
 */
#ifndef TRAINER_PROGRAM_NODE_ATTENTION_H
#define TRAINER_PROGRAM_NODE_ATTENTION_H

#include "trainer/model/documents.h"
#include "trainer/program/program_run.h"

/* Heads over a row of q, k, v. */
typedef struct wefti_node_heads {
    size_t heads, kv_heads, head_dim;
    size_t spread;
    bool sees_all; /* of whole sequences: not causal */
} wefti_node_heads;

/* Elements of a row of q, k and v, of one of the result, and of one of k, v. */
size_t wefti_node_heads_qkv(const wefti_node_heads *heads);
size_t wefti_node_heads_out(const wefti_node_heads *heads);
size_t wefti_node_heads_keys(const wefti_node_heads *heads);

/* Rotary embedding of queries and keys in place, or of their gradients back. */
WEFT_NODISCARD weft_status wefti_node_turn(const wefti_node_args *args,
                                           const wefti_node_heads *heads,
                                           void *qkv, bool back);

/* Attention of whole sequences, within documents, turned already; causal unless
 * heads say otherwise. lse: [tokens][heads]. */
WEFT_NODISCARD weft_status wefti_node_attention_forward(
    const wefti_node_args *args, const wefti_node_heads *heads, void *out,
    real *lse, const void *qkv);

/* dqkv is overwritten. delta: [tokens][heads], scratch. */
WEFT_NODISCARD weft_status wefti_node_attention_backward(
    const wefti_node_args *args, const wefti_node_heads *heads, void *dqkv,
    const void *dout, const void *qkv, const void *out, const real *lse,
    real *delta);

WEFT_NODISCARD weft_status wefti_node_delta(const wefti_node_args *args,
                                            const wefti_node_heads *heads,
                                            real *delta, const void *out,
                                            const void *dout);

/* Of a place's keys what this rank's queries see, in sequences of seq tokens;
 * owner: the place, in the ring. */
typedef struct wefti_node_seen {
    const wefti_context *context;
    size_t seq, owner;
    wefti_context_block block;
} wefti_node_seen;

/* Of what the queries see of these keys, within documents; merge: with what
 * they saw before. */
WEFT_NODISCARD weft_status wefti_node_block_forward(
    const wefti_node_args *args, const wefti_node_heads *heads,
    const wefti_node_seen *seen, real *out, real *lse, const void *qkv,
    const void *keys, bool merge);

/* dqkv's queries and dkeys are added to. keys_stride: from one token's keys to
 * the next one's, and so of dkeys. */
typedef struct wefti_node_slopes {
    real *dqkv, *dkeys;
    size_t keys_stride;
    const void *dout;
    const real *lse, *delta;
} wefti_node_slopes;
WEFT_NODISCARD weft_status wefti_node_block_backward(
    const wefti_node_args *args, const wefti_node_heads *heads,
    const wefti_node_seen *seen, const wefti_node_slopes *slopes,
    const void *qkv, const void *keys);

/* Keys out of rows of q, k, v. */
WEFT_NODISCARD weft_status wefti_node_pack_keys(const wefti_node_args *args,
                                                const wefti_node_heads *heads,
                                                void *keys, const void *qkv);

#endif
