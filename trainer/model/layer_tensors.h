/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/layer_tensors.h - the tensors of one decoder layer; their
 * places within it are known to the layer alone.
 */
#ifndef TRAINER_MODEL_LAYER_TENSORS_H
#define TRAINER_MODEL_LAYER_TENSORS_H

#include "trainer/model/tensor_list.h"

/* In order of use. Matrices are [outputs][inputs]. */
typedef enum wefti_layer_tensor {
    WEFTI_LAYER_ATTENTION_NORM, /* [hidden] */
    WEFTI_LAYER_QKV,            /* [(heads + 2 kv_heads) head_dim][hidden] */
    WEFTI_LAYER_ATTENTION_OUT,  /* [hidden][heads head_dim] */
    WEFTI_LAYER_FFN_NORM,       /* [hidden] */
    WEFTI_LAYER_GATE_UP,        /* [2 ffn][hidden]: gate rows, then up rows */
    WEFTI_LAYER_DOWN,           /* [hidden][ffn] */
    WEFTI_LAYER_TENSORS
} wefti_layer_tensor;

/* Adds those of a layer to the list. */
void wefti_layer_list_tensors(wefti_tensor_list *list,
                              const wefti_model_shape *shape, size_t layer);

#endif
