/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/tensor_list.c - the decoder's tensors, in order of use.
 */
#include "trainer/model/tensor_list.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/model/model_blocks.h"

#include <stdlib.h>

void wefti_tensor_list_begin_module(wefti_tensor_list *list)
{
    if (list->modules) {
        list->modules[list->module_count] = list->count;
    }
    list->module_count++;
}

void wefti_tensor_list_add(wefti_tensor_list *list,
                           const wefti_tensor_info *info)
{
    WEFTI_ASSERT(info->group < WEFTI_TENSOR_GROUPS_MOST);
    if (info->group >= list->group_count) {
        list->group_count = info->group + 1;
    }
    if (list->items) {
        list->items[list->count] = *info;
        list->items[list->count].module = list->module_count - 1;
    }
    list->count++;
}

static void list_all(wefti_tensor_list *list, const wefti_model_shape *shape)
{
    wefti_tensor_list_begin_module(list);
    wefti_embedding_block.list(list, shape, 0);
    for (size_t layer = 0; layer < shape->layers; layer++) {
        wefti_tensor_list_begin_module(list);
        const wefti_model_block *const *blocks = wefti_layer_blocks(shape);
        for (size_t i = 0; blocks[i]; i++) {
            blocks[i]->list(list, shape, layer);
        }
    }
    wefti_tensor_list_begin_module(list);
    wefti_head_block.list(list, shape, 0);
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
