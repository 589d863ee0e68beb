/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/llama_names.c - names, shapes and types of what is in
 * model.safetensors.
 */
#include "trainer/exchange/llama_names.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

size_t wefti_llama_count_items(const wefti_tensor_info *info)
{
    return info->piece_count * (info->repeats > 0 ? info->repeats : 1);
}

size_t wefti_llama_name(const wefti_tensor_info *info, size_t item,
                        char name_out[WEFTI_LLAMA_NAME_BYTES])
{
    const wefti_tensor_piece *piece = &info->pieces[item % info->piece_count];
    const int before = (int)strcspn(piece->name, "#");
    if (piece->name[before]) {
        snprintf(name_out, WEFTI_LLAMA_NAME_BYTES, "%.*s%zu%s", before,
                 piece->name, item / info->piece_count,
                 piece->name + before + 1);
    } else {
        snprintf(name_out, WEFTI_LLAMA_NAME_BYTES, "%s", piece->name);
    }
    return piece->rows;
}

static wefti_safetensor item_of(const wefti_tensor_info *info, size_t item_at,
                                char name[WEFTI_LLAMA_NAME_BYTES])
{
    const size_t rows = wefti_llama_name(info, item_at, name);
    wefti_safetensor item = {.name = name,
                             .dtype =
                                 info->dtype == WEFT_DTYPE_F64 ? "F64" : "F32",
                             .elem_bytes = weft_dtype_bytes(info->dtype),
                             .dimensions = wefti_tensor_dimensions(info)};
    item.shape[0] = rows;
    item.shape[item.dimensions - 1] = info->columns;
    return item;
}

weft_status wefti_llama_items(const wefti_tensor_list *list,
                              wefti_safetensors *items_out)
{
    size_t most = 0;
    for (size_t i = 0; i < list->count; i++) {
        most += wefti_llama_count_items(&list->items[i]);
    }
    /* Names lie behind the items. */
    *items_out = (wefti_safetensors){
        .items = calloc(most + 1,
                        sizeof(*items_out->items) + WEFTI_LLAMA_NAME_BYTES)};
    if (!items_out->items) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors",
                           most);
    }
    char *names = (char *)(items_out->items + most);
    for (size_t i = 0; i < list->count; i++) {
        const wefti_tensor_info *info = &list->items[i];
        for (size_t k = 0; k < wefti_llama_count_items(info); k++) {
            items_out->items[items_out->count++] = item_of(info, k, names);
            names += WEFTI_LLAMA_NAME_BYTES;
        }
    }
    weft_status status = wefti_safetensors_sort(items_out);
    if (status != WEFT_OK) {
        wefti_safetensors_fini(items_out);
    }
    return status;
}
