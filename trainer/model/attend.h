/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/attend.h - the nodes between a row's queries, keys and values
 * and what is attended, by who shares a sequence (trainer/model/context.h).
 *
 *   qkv ---------------------> attend ---------------------> attended
 *   qkv --heads--> of a place: attend --tokens--> attended      ulysses > 1
 *
 *   attend    whole     sequences are here whole
 *             ring      keys come round, their gradients behind them
 */
#ifndef TRAINER_MODEL_ATTEND_H
#define TRAINER_MODEL_ATTEND_H

#include "trainer/model/model_blocks.h"
#include "trainer/program/node_attention.h"

/* Values, and their gradients. */
typedef struct wefti_attend_values {
    size_t qkv, dqkv, out, dout;
} wefti_attend_values;

/* One way to attend; the context of its nodes is the plan's own shape. */
typedef struct wefti_attend_core {
    bool (*applies)(const wefti_context *context);
    void (*append)(wefti_builder *builder, const wefti_attend_values *values);
} wefti_attend_core;

extern const wefti_attend_core wefti_attend_ring;

/* Heads to other ranks of the place for their tokens, and back. */
void wefti_append_heads(wefti_builder *builder, const wefti_attend_values *from,
                        const wefti_attend_values *to);
void wefti_append_tokens(wefti_builder *builder,
                         const wefti_attend_values *from,
                         const wefti_attend_values *to);

/* The model's heads, and those that a rank attends with. */
wefti_node_heads wefti_attend_all_heads(const wefti_model_shape *shape);
wefti_node_heads wefti_attend_heads(const wefti_model_shape *shape);

/* What all ways to attend have beside qkv and out. */
enum {
    WEFTI_ATTEND_QKV,
    WEFTI_ATTEND_DQKV,
    WEFTI_ATTEND_OUT,
    WEFTI_ATTEND_DOUT,
    WEFTI_ATTEND_LSE,
    WEFTI_ATTEND_DELTA,
    WEFTI_ATTEND_DQKV_SUM,
    WEFTI_ATTEND_OUT_SUM /* of rings over bf16 alone */
};
void wefti_append_core(wefti_builder *builder,
                       const wefti_attend_values *values,
                       const wefti_node *node);

/* wefti_append_attend - all nodes. */
void wefti_append_attend(wefti_builder *builder,
                         const wefti_attend_values *values);

#endif
