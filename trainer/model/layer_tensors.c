/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/layer_tensors.c - a layer's tensors, and by which names other
 * programs know their pieces.
 *
 * The halves of a head that the rotary embedding turns are its first and its
 * second half of rows, as in Hugging Face's Llama (rotate_half): rows need no
 * other order there.
 */
#include "trainer/model/layer_tensors.h"

#include "kernels/math/real.h"

#include <stdio.h>

void wefti_layer_list_tensors(wefti_tensor_list *list,
                              const wefti_model_shape *shape, size_t layer)
{
    const size_t hidden = shape->hidden, ffn = shape->ffn;
    const size_t queries = shape->heads * shape->head_dim;
    const size_t keys = shape->kv_heads * shape->head_dim;
    const wefti_tensor_info rows[WEFTI_LAYER_TENSORS] = {
        [WEFTI_LAYER_ATTENTION_NORM] = {.name = "attention_norm",
                                        .kind = WEFTI_TENSOR_NORM,
                                        .columns = hidden,
                                        .pieces = {{"input_layernorm", 1}}},
        [WEFTI_LAYER_QKV] = {.name = "qkv",
                             .kind = WEFTI_TENSOR_INPUT,
                             .columns = hidden,
                             .split = WEFTI_SPLIT_ROW,
                             .pieces = {{"self_attn.q_proj", queries},
                                        {"self_attn.k_proj", keys},
                                        {"self_attn.v_proj", keys}}},
        [WEFTI_LAYER_ATTENTION_OUT] = {.name = "attention_out",
                                       .kind = WEFTI_TENSOR_OUTPUT,
                                       .columns = queries,
                                       .split = WEFTI_SPLIT_COLUMN,
                                       .pieces = {{"self_attn.o_proj",
                                                   hidden}}},
        [WEFTI_LAYER_FFN_NORM] = {.name = "ffn_norm",
                                  .kind = WEFTI_TENSOR_NORM,
                                  .columns = hidden,
                                  .pieces = {{"post_attention_layernorm", 1}}},
        [WEFTI_LAYER_GATE_UP] = {.name = "gate_up",
                                 .kind = WEFTI_TENSOR_INPUT,
                                 .columns = hidden,
                                 .split = WEFTI_SPLIT_ROW,
                                 .pieces = {{"mlp.gate_proj", ffn},
                                            {"mlp.up_proj", ffn}}},
        [WEFTI_LAYER_DOWN] = {.name = "down",
                              .kind = WEFTI_TENSOR_OUTPUT,
                              .columns = ffn,
                              .split = WEFTI_SPLIT_COLUMN,
                              .pieces = {{"mlp.down_proj", hidden}}},
    };
    for (size_t i = 0; i < WEFTI_LAYER_TENSORS; i++) {
        wefti_tensor_info info = rows[i];
        info.dtype = WEFTI_REAL_DTYPE;
        snprintf(info.name, sizeof(info.name), "layer%u.%.16s", (unsigned)layer,
                 rows[i].name);
        for (size_t k = 0;
             k < WEFTI_TENSOR_PIECES_MOST && rows[i].pieces[k].rows > 0; k++) {
            snprintf(info.pieces[k].name, sizeof(info.pieces[k].name),
                     "model.layers.%u.%.32s.weight", (unsigned)layer,
                     rows[i].pieces[k].name);
            info.rows += info.pieces[k].rows;
            info.piece_count++;
        }
        wefti_tensor_list_add(list, &info);
    }
}
