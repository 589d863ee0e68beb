/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/tensor_list.c - the decoder's tensors, in order of use.
 */
#include "trainer/model/tensor_list.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/model/model_blocks.h"

#include <stdio.h>
#include <stdlib.h>

void wefti_tensor_list_begin_module(wefti_tensor_list *list)
{
    if (list->modules) {
        list->modules[list->module_count] = list->count;
    }
    list->module_count++;
}

/* To its own name and to those of its pieces. */
static void add_prefix(const char *prefix, wefti_tensor_info *info)
{
    const wefti_tensor_info plain = *info;
    snprintf(info->name, sizeof(info->name), "%.8s.%.30s", prefix, plain.name);
    for (size_t k = 0; k < info->piece_count; k++) {
        snprintf(info->pieces[k].name, sizeof(info->pieces[k].name),
                 "%.8s.%.54s", prefix, plain.pieces[k].name);
    }
}

void wefti_tensor_list_add(wefti_tensor_list *list,
                           const wefti_tensor_info *info)
{
    WEFTI_ASSERT(info->group < WEFTI_TENSOR_GROUPS_MOST);
    if (info->group >= list->group_count) {
        list->group_count = info->group + 1;
    }
    if (list->items) {
        wefti_tensor_info *item = &list->items[list->count];
        *item = *info;
        item->module = list->module_count - 1;
        if (list->prefix) {
            add_prefix(list->prefix, item);
        }
    }
    list->count++;
}

wefti_model_shape wefti_model_encoder(const wefti_model_shape *shape)
{
    wefti_model_shape own = *shape;
    own.layers = shape->encoder_layers;
    own.seq = shape->encoder_seq;
    own.vocab = WEFTI_MODEL_BYTES;
    own.sees_all = true;
    own.encoder_layers = own.encoder_seq = 0;
    own.experts = 0;
    return own;
}

/* A module for what comes before the layers, each of them, and what comes
 * behind. */
static void list_branch(wefti_tensor_list *list, const wefti_model_shape *shape,
                        const wefti_model_block *end)
{
    const wefti_model_block *const *blocks = wefti_layer_blocks(shape);
    wefti_tensor_list_begin_module(list);
    wefti_embedding_block.list(list, shape, 0);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        wefti_tensor_list_begin_module(list);
        for (size_t i = 0; blocks[i]; i++) {
            blocks[i]->list(list, shape, layer);
        }
    }
    wefti_tensor_list_begin_module(list);
    end->list(list, shape, 0);
}

static void list_all(wefti_tensor_list *list, const wefti_model_shape *shape)
{
    if (shape->encoder_layers > 0) {
        const wefti_model_shape encoder = wefti_model_encoder(shape);
        list->prefix = "encoder";
        list_branch(list, &encoder, &wefti_bridge_block);
        list->prefix = NULL;
    }
    list_branch(list, shape, &wefti_head_block);
}

size_t wefti_tensor_list_count(const wefti_model_shape *shape)
{
    wefti_tensor_list counted = {0};
    list_all(&counted, shape);
    return counted.count;
}

weft_status wefti_tensor_list_init(wefti_tensor_list *list,
                                   const wefti_model_shape *shape)
{
    wefti_tensor_list counted = {0};
    list_all(&counted, shape);
    *list = (wefti_tensor_list){
        .items = calloc(counted.count, sizeof(*list->items)),
        .modules = calloc(counted.module_count, sizeof(*list->modules))};
    if (!list->items || !list->modules) {
        wefti_tensor_list_fini(list);
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors",
                           counted.count);
    }
    list_all(list, shape);
    return WEFT_OK;
}

void wefti_tensor_list_fini(wefti_tensor_list *list)
{
    free(list->items);
    free(list->modules);
    *list = (wefti_tensor_list){0};
}

size_t wefti_tensor_elems(const wefti_tensor_info *info)
{
    return info->rows * info->columns;
}

size_t wefti_tensor_dimensions(const wefti_tensor_info *info)
{
    return info->kind == WEFTI_TENSOR_NORM || info->kind == WEFTI_TENSOR_BIAS
               ? 1
               : 2;
}
