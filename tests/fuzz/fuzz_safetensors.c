/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/fuzz_safetensors.c - any bytes as a safetensors file: its length,
 * its header, its data.
 *
 * What is accepted must be safe to read: tensors of known types, one after the
 * other, that fill the data exactly, each as long as its shape says, found by a
 * name that no other has.
 */
#include "trainer/exchange/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(int good)
{
    if (!good) {
        abort();
    }
}

static void check_list(const wefti_safetensors *list, uint64_t data_bytes)
{
    uint64_t end = 0;
    for (size_t i = 0; i < list->count; i++) {
        const wefti_safetensor *item = &list->items[i];
        uint64_t bytes = wefti_safetensor_dtype_bytes(item->dtype);
        require(bytes > 0 && bytes == item->elem_bytes);
        for (size_t k = 0; k < item->dimensions; k++) {
            bytes *= item->shape[k];
        }
        require(item->start_bytes == end);
        require(item->end_bytes - item->start_bytes == bytes);
        require(wefti_safetensors_find(list, item->name) == item);
        end = item->end_bytes;
    }
    require(end == data_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    uint64_t header_bytes = 0;
    wefti_safetensors list;
    if (data_bytes < WEFTI_SAFETENSORS_PREFIX_BYTES) {
        return 0;
    }
    size_t left = data_bytes - WEFTI_SAFETENSORS_PREFIX_BYTES;
    for (size_t i = 0; i < WEFTI_SAFETENSORS_PREFIX_BYTES; i++) {
        header_bytes |= (uint64_t)data[i] << (8 * i);
    }
    if (header_bytes > left) { /* files are refused so; here the rest is one */
        header_bytes = left;
    }
    if (wefti_safetensors_parse(
            "input", (const char *)data + WEFTI_SAFETENSORS_PREFIX_BYTES,
            (size_t)header_bytes, left - header_bytes, &list) == WEFT_OK) {
        check_list(&list, left - header_bytes);
        wefti_safetensors_fini(&list);
    } else {
        require(strncmp(weft_error_text(), "input: ", 7) == 0);
    }
    return 0;
}
