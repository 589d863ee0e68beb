/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_writer.c - a rank's file, and the index out of
 * the headers of all ranks' files.
 */
#include "base/error.h"
#include "trainer/checkpoint/checkpoint_folder.h"
#include "trainer/checkpoint/checkpoint_index.h"

#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the header of a file says of one section. */
typedef struct label {
    char name[WEFTI_CHECKPOINT_NAME_BYTES + 24];
    char note[WEFTI_CHECKPOINT_HEX_BYTES + 48];
    char dtype[8];
} label;

typedef struct labels {
    label *all;
    wefti_safetensors list;
    wefti_safetensors_note *notes; /* of the step, then one of each */
    char about[WEFTI_CHECKPOINT_ABOUT_BYTES];
} labels;

static const unsigned char *find_value(const wefti_checkpoint_piece *piece,
                                       const void *copy)
{
    return copy ? (const unsigned char *)copy + piece->at_bytes : piece->live;
}

static size_t count_bytes(const wefti_checkpoint_piece *piece)
{
    return (size_t)piece->elems * weft_dtype_bytes(piece->dtype);
}

static void make_label(const wefti_checkpoint_piece *piece, const void *copy,
                       label *own, wefti_safetensor *item)
{
    uint8_t digest[WEFTI_CHECKPOINT_DIGEST_BYTES];
    char hex[WEFTI_CHECKPOINT_HEX_BYTES];
    wefti_checkpoint_digest(find_value(piece, copy), count_bytes(piece),
                            digest);
    sodium_bin2hex(hex, sizeof(hex), digest, sizeof(digest));
    snprintf(own->note, sizeof(own->note), "%s %" PRIu64 " %" PRIu64, hex,
             piece->rows, piece->columns);
    wefti_checkpoint_dtype_name(piece->dtype, own->dtype);
    *item = (wefti_safetensor){.name = own->name,
                               .dtype = own->dtype,
                               .elem_bytes = weft_dtype_bytes(piece->dtype)};
    uint64_t elems = (piece->rows ? piece->rows : 1) * piece->columns;
    if (piece->elems < elems) {
        snprintf(own->name, sizeof(own->name), "%s@%" PRIu64, piece->name,
                 piece->offset);
        item->shape[item->dimensions++] = piece->elems;
        return;
    }
    snprintf(own->name, sizeof(own->name), "%s", piece->name);
    if (piece->rows) {
        item->shape[item->dimensions++] = piece->rows;
    }
    item->shape[item->dimensions++] = piece->columns;
}

static void free_labels(labels *own)
{
    free(own->all);
    free(own->list.items);
    free(own->notes);
}

static weft_status make_labels(const wefti_checkpoint_header *header,
                               const wefti_checkpoint_piece *pieces,
                               size_t count, const void *copy, labels *own)
{
    own->all = calloc(count + 1, sizeof(*own->all));
    own->notes = calloc(count + 1, sizeof(*own->notes));
    own->list = (wefti_safetensors){
        .items = calloc(count + 1, sizeof(*own->list.items)),
        .count = count,
        .notes = own->notes,
        .note_count = count + 1};
    if (!own->all || !own->notes || !own->list.items) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu tensors",
                           count);
    }
    wefti_checkpoint_header_pack(header, own->about);
    own->notes[0] =
        (wefti_safetensors_note){WEFTI_CHECKPOINT_ABOUT, own->about};
    for (size_t i = 0; i < count; i++) {
        make_label(&pieces[i], copy, &own->all[i], &own->list.items[i]);
        own->notes[1 + i] =
            (wefti_safetensors_note){own->all[i].name, own->all[i].note};
    }
    return WEFT_OK;
}

weft_status wefti_checkpoint_write(const char *dir,
                                   const wefti_checkpoint_header *header,
                                   uint32_t rank,
                                   const wefti_checkpoint_piece *pieces,
                                   size_t count, const void *copy)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES], name[WEFTI_CHECKPOINT_FILE_BYTES];
    wefti_safetensors_file file = {.fd = -1};
    labels own = {.all = NULL};
    wefti_checkpoint_file_name(rank, name);
    weft_status status =
        wefti_checkpoint_path(dir, header->step, WEFTI_CHECKPOINT_NEW,
                              header->origin.session, name, path);
    if (status == WEFT_OK) {
        status = make_labels(header, pieces, count, copy, &own);
    }
    if (status == WEFT_OK) {
        status = wefti_safetensors_create(path, &own.list, &file);
    }
    for (size_t i = 0; i < count && status == WEFT_OK; i++) {
        status = wefti_safetensors_write(&file, find_value(&pieces[i], copy),
                                         count_bytes(&pieces[i]));
    }
    if (status == WEFT_OK) {
        status = wefti_safetensors_finish(&file);
    }
    wefti_safetensors_close(&file);
    free_labels(&own);
    return status;
}

/* ---- the index ------------------------------------------------------------
 */

/* A file's line: its header, as it is. */
static weft_status print_header(const char *folder, uint64_t rank, FILE *out)
{
    char path[WEFTI_CHECKPOINT_PATH_BYTES + WEFTI_CHECKPOINT_FILE_BYTES];
    char name[WEFTI_CHECKPOINT_FILE_BYTES];
    wefti_safetensors_file file;
    wefti_checkpoint_file_name(rank, name);
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    weft_status status = wefti_safetensors_open(path, &file);
    if (status != WEFT_OK) {
        return status;
    }
    size_t bytes = (size_t)file.start_bytes - WEFTI_SAFETENSORS_PREFIX_BYTES;
    char *head = malloc(bytes);
    status = head ? wefti_safetensors_read_at(
                        &file, WEFTI_SAFETENSORS_PREFIX_BYTES, head, bytes)
                  : wefti_error(WEFT_ERR_NO_MEMORY, "%.300s: no memory", path);
    if (status == WEFT_OK) {
        fprintf(out, "%s\n\"%s\": ", rank ? "," : "", name);
        fwrite(head, 1, bytes, out);
    }
    free(head);
    wefti_safetensors_close(&file);
    return status;
}

weft_status wefti_checkpoint_index_gather(const char *folder, uint64_t nranks,
                                          size_t *bytes_out,
                                          wefti_checkpoint_index *index_out)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, bytes_out);
    if (!out) {
        return wefti_error_system("no memory for an index");
    }
    weft_status status = WEFT_OK;
    fputc('{', out);
    for (uint64_t rank = 0; rank < nranks && status == WEFT_OK; rank++) {
        status = print_header(folder, rank, out);
    }
    fputs("\n}\n", out);
    if (fclose(out) != 0 && status == WEFT_OK) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory for an index");
    }
    if (status == WEFT_OK && *bytes_out > WEFTI_CHECKPOINT_INDEX_BYTES_MOST) {
        status =
            wefti_error(WEFT_ERR_INVALID,
                        "%.300s: its index would have %zu bytes: allowed "
                        "are %zu (a larger overlap.bucket_mb makes fewer "
                        "sections)",
                        folder, *bytes_out, WEFTI_CHECKPOINT_INDEX_BYTES_MOST);
    }
    if (status != WEFT_OK) {
        free(text);
        return status;
    }
    return wefti_checkpoint_index_unpack(folder, text, *bytes_out, index_out);
}
