/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/llama_names.c - names, shapes and types of what is in
 * model.safetensors.
 */
#include "trainer/exchange/llama_names.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

weft_status wefti_llama_path(const char *dir, const char *name,
                             char path_out[WEFTI_LLAMA_PATH_BYTES])
{
    int length = snprintf(path_out, WEFTI_LLAMA_PATH_BYTES, "%s/%s", dir, name);
    return length > 0 && length < WEFTI_LLAMA_PATH_BYTES
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.200s...: allowed are paths of up to %d bytes",
                             dir, WEFTI_LLAMA_PATH_BYTES - 1);
}

static wefti_safetensor item_of(const wefti_tensor_info *info, size_t piece)
{
    wefti_safetensor item = {.name = info->pieces[piece].name,
                             .dtype =
                                 info->dtype == WEFT_DTYPE_F64 ? "F64" : "F32",
                             .elem_bytes = weft_dtype_bytes(info->dtype),
                             .dimensions = wefti_tensor_dimensions(info)};
    item.shape[0] = info->pieces[piece].rows;
    item.shape[item.dimensions - 1] = info->columns;
    return item;
}

weft_status wefti_llama_items(const wefti_tensor_list *list,
                              wefti_safetensors *items_out)
{
    *items_out = (wefti_safetensors){
        .items = calloc(list->count * WEFTI_TENSOR_PIECES_MOST,
                        sizeof(*items_out->items))};
    if (!items_out->items) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors",
                           list->count);
    }
    for (size_t i = 0; i < list->count; i++) {
        for (size_t k = 0; k < list->items[i].piece_count; k++) {
            items_out->items[items_out->count++] = item_of(&list->items[i], k);
        }
    }
    return WEFT_OK;
}
