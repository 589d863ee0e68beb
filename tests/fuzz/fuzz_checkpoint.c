/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fuzz/fuzz_checkpoint.c - any bytes as the index of a checkpoint.
 *
 * What is accepted must be safe to read by: tensors that sections cover from
 * end to end, sections inside their files.
 */
#include "trainer/checkpoint/checkpoint_index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes);

static void require(int good)
{
    if (!good) {
        abort();
    }
}

static void check_sections(const wefti_checkpoint_index *index)
{
    uint64_t end = 0, whole = 0; /* of the tensor before */
    for (size_t i = 0; i < index->count; i++) {
        const wefti_checkpoint_section *section = &index->sections[i];
        const wefti_checkpoint_piece *piece = &section->piece;
        const wefti_checkpoint_file *file = &index->files[section->file];
        require(section->file < index->header.nranks);
        require(section->at_bytes >=
                WEFTI_SAFETENSORS_PREFIX_BYTES + file->head_bytes);
        require(piece->elems > 0 &&
                piece->elems * weft_dtype_bytes(piece->dtype) <=
                    file->bytes - section->at_bytes);
        if (piece->offset == 0) {
            require(end == whole);
            whole = (piece->rows ? piece->rows : 1) * piece->columns;
            end = 0;
        }
        require(piece->offset == end);
        end += piece->elems;
    }
    require(end == whole);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t data_bytes)
{
    wefti_checkpoint_index index;
    char *text = malloc(data_bytes + 1);
    require(text != NULL);
    if (data_bytes > 0) {
        memcpy(text, data, data_bytes);
    }
    if (wefti_checkpoint_index_unpack("input", text, data_bytes, &index) !=
        WEFT_OK) {
        require(strncmp(weft_error_text(), "input: ", 7) == 0);
        return 0;
    }
    require(index.file_count == index.header.nranks);
    check_sections(&index);
    wefti_checkpoint_index_fini(&index);
    return 0;
}
