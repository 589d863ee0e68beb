/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/checkpoint/checkpoint_index.c - the index, with every field checked
 * before anything relies on it.
 */
#include "trainer/checkpoint/checkpoint_index.h"

#include "base/error.h"

#include <ctype.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files hold their elements as memory does");

enum { DIGEST = WEFTI_CHECKPOINT_DIGEST_BYTES };

/* No tensor is larger, so that products of its numbers have room. */
static const uint64_t elems_most = UINT64_C(1) << 53;

void wefti_checkpoint_file_name(uint64_t rank,
                                char name[WEFTI_CHECKPOINT_FILE_BYTES])
{
    snprintf(name, WEFTI_CHECKPOINT_FILE_BYTES,
             "rank_%05" PRIu64 ".safetensors", rank);
}

void wefti_checkpoint_digest(const void *value, size_t bytes,
                             uint8_t digest_out[WEFTI_CHECKPOINT_DIGEST_BYTES])
{
    crypto_generichash(digest_out, DIGEST, value, bytes, NULL, 0);
}

/* weft's "f32" is "F32" there. */
void wefti_checkpoint_dtype_name(weft_dtype dtype, char name[8])
{
    size_t at = 0;
    for (const char *text = weft_dtype_text(dtype); *text && at < 7; text++) {
        name[at++] = (char)toupper((unsigned char)*text);
        if (at == 2 && name[0] == 'F' && name[1] == '8') {
            name[at++] = '_'; /* F8_E4M3 */
        }
    }
    name[at] = '\0';
}

static weft_dtype find_dtype(const char *text)
{
    int dtype = 0;
    for (char name[8]; dtype < WEFT_DTYPE_COUNT; dtype++) {
        wefti_checkpoint_dtype_name((weft_dtype)dtype, name);
        if (strcmp(name, text) == 0) {
            break;
        }
    }
    return (weft_dtype)dtype;
}

static bool read_hex(const char *text, uint8_t digest[DIGEST])
{
    size_t got = 0;
    return sodium_hex2bin(digest, DIGEST, text, strlen(text), NULL, &got,
                          NULL) == 0 &&
           got == DIGEST;
}

/* ---- what a file says of its step -----------------------------------------
 */

_Static_assert(WEFTI_CONFIG_DIGEST_BYTES == DIGEST &&
                   WEFTI_DATA_HASH_BYTES == DIGEST,
               "both are written alike");

void wefti_checkpoint_header_pack(const wefti_checkpoint_header *header,
                                  char text[WEFTI_CHECKPOINT_ABOUT_BYTES])
{
    char config[WEFTI_CHECKPOINT_HEX_BYTES], data[WEFTI_CHECKPOINT_HEX_BYTES];
    const bool tried = header->overlap[0] != '\0';
    sodium_bin2hex(config, sizeof(config), header->config_digest, DIGEST);
    sodium_bin2hex(data, sizeof(data), header->data_hash, DIGEST);
    snprintf(text, WEFTI_CHECKPOINT_ABOUT_BYTES,
             "version %d, step %" PRIu64 ", ranks %" PRIu64 ", run %016" PRIx64
             ", session %016" PRIx64
             ", config %s, data %s, next_sequence %" PRIu64 ", seed %" PRIu64
             ", pipeline %" PRIu64 ", stages %" PRIu64 ", chunks %" PRIu64
             "%s%.255s, schedule %.31s",
             tried ? WEFTI_CHECKPOINT_VERSION_TRIED : WEFTI_CHECKPOINT_VERSION,
             header->step, header->nranks, header->origin.run,
             header->origin.session, config, data, header->next_sequence,
             header->seed, header->pipeline, header->stages, header->chunks,
             tried ? ", overlap " : "", header->overlap, header->schedule);
}

/* What stands behind the numbers. */
static void read_words(const char *text, wefti_checkpoint_header *own)
{
    int length = 0;
    if (sscanf(text, ", overlap %255[^,\n]%n", own->overlap, &length) != 1) {
        length = 0;
    }
    (void)sscanf(text + length, ", schedule %31[^\n]", own->schedule);
}

/* What is read is right where writing it gives the same again. */
weft_status wefti_checkpoint_header_find(const char *path,
                                         const wefti_safetensors *list,
                                         wefti_checkpoint_header *header_out)
{
    char again[WEFTI_CHECKPOINT_ABOUT_BYTES];
    char config[WEFTI_CHECKPOINT_HEX_BYTES] = "";
    char data[WEFTI_CHECKPOINT_HEX_BYTES] = "";
    wefti_checkpoint_header own = {.step = 0};
    const void *near = NULL;
    int version = 0, length = 0;
    const char *text =
        wefti_safetensors_find_note(list, WEFTI_CHECKPOINT_ABOUT, &near);
    (void)sscanf(text ? text : "",
                 "version %d, step %" SCNu64 ", ranks %" SCNu64 ", run %" SCNx64
                 ", session %" SCNx64
                 ", config %64[0-9a-f], data %64[0-9a-f], next_sequence "
                 "%" SCNu64 ", seed %" SCNu64 ", pipeline %" SCNu64
                 ", stages %" SCNu64 ", chunks %" SCNu64 "%n",
                 &version, &own.step, &own.nranks, &own.origin.run,
                 &own.origin.session, config, data, &own.next_sequence,
                 &own.seed, &own.pipeline, &own.stages, &own.chunks, &length);
    if (length > 0) {
        read_words(text + length, &own);
    }
    (void)read_hex(config, own.config_digest);
    (void)read_hex(data, own.data_hash);
    wefti_checkpoint_header_pack(&own, again);
    *header_out = own;
    if (text && version > 0 && version != WEFTI_CHECKPOINT_VERSION &&
        version != WEFTI_CHECKPOINT_VERSION_TRIED) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%.300s: is of version %d; this weft reads %d and %d", path,
            version, WEFTI_CHECKPOINT_VERSION, WEFTI_CHECKPOINT_VERSION_TRIED);
    }
    return text && strcmp(text, again) == 0
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.300s: does not say in its metadata of which "
                             "step it is",
                             path);
}

/* ---- what an index promises -----------------------------------------------
 */

static int compare_sections(const void *left, const void *right)
{
    const wefti_checkpoint_piece *a =
        &((const wefti_checkpoint_section *)left)->piece;
    const wefti_checkpoint_piece *b =
        &((const wefti_checkpoint_section *)right)->piece;
    int names = strcmp(a->name, b->name);
    return names ? names : (a->offset > b->offset) - (a->offset < b->offset);
}

static uint64_t count_elems(const wefti_checkpoint_piece *piece)
{
    return piece->rows ? piece->rows * piece->columns : piece->columns;
}

static weft_status refuse(const char *path, const wefti_checkpoint_piece *piece,
                          const char *what)
{
    return wefti_error(WEFT_ERR_INVALID, "%.300s: tensor %.64s: %s", path,
                       piece->name, what);
}

static weft_status check_section(const char *path,
                                 const wefti_checkpoint_piece *piece)
{
    if (piece->dtype == WEFT_DTYPE_COUNT) {
        return refuse(path, piece, "no dtype of weft's");
    }
    return piece->columns == 0 || piece->columns > elems_most ||
                   piece->rows > elems_most / piece->columns ||
                   piece->elems == 0 || piece->elems > count_elems(piece) ||
                   piece->offset > count_elems(piece) - piece->elems
               ? refuse(path, piece, "a section is not inside its shape")
               : WEFT_OK;
}

/* A section after the one before it; NULL: it is the first. */
static weft_status check_follows(const char *path,
                                 const wefti_checkpoint_piece *before,
                                 const wefti_checkpoint_piece *piece)
{
    bool begins = !before || strcmp(before->name, piece->name) != 0;
    uint64_t end = begins ? 0 : before->offset + before->elems;
    if (begins && before &&
        before->offset + before->elems != count_elems(before)) {
        return refuse(path, before, "its last elements are in no section");
    }
    if (!begins &&
        (before->dtype != piece->dtype || before->rows != piece->rows ||
         before->columns != piece->columns)) {
        return refuse(path, piece, "its sections differ in dtype or shape");
    }
    return piece->offset == end
               ? WEFT_OK
               : refuse(path, piece,
                        piece->offset > end
                            ? "elements before a section are in none"
                            : "two sections overlap");
}

/* Sorts the sections, and checks that they are whole tensors. */
static weft_status check_sections(const char *path,
                                  wefti_checkpoint_index *index)
{
    weft_status status = WEFT_OK;
    const wefti_checkpoint_piece *before = NULL;
    if (index->count > 0) {
        qsort(index->sections, index->count, sizeof(*index->sections),
              compare_sections);
    }
    for (size_t i = 0; i < index->count && status == WEFT_OK; i++) {
        const wefti_checkpoint_piece *piece = &index->sections[i].piece;
        status = check_section(path, piece);
        if (status == WEFT_OK) {
            status = check_follows(path, before, piece);
        }
        before = piece;
    }
    return status == WEFT_OK && before &&
                   before->offset + before->elems != count_elems(before)
               ? refuse(path, before, "its last elements are in no section")
               : status;
}

void wefti_checkpoint_index_fini(wefti_checkpoint_index *index)
{
    free(index->files);
    free(index->sections);
    free(index->text);
    *index = (wefti_checkpoint_index){0};
}

/* ---- reading --------------------------------------------------------------
 */

/* What a file's header says of one of its sections. */
static weft_status take_section(const char *path, const wefti_safetensors *list,
                                const wefti_safetensor *item, const void **near,
                                wefti_checkpoint_section *section)
{
    char hex[WEFTI_CHECKPOINT_HEX_BYTES] = "";
    wefti_checkpoint_piece *piece = &section->piece;
    const char *note = wefti_safetensors_find_note(list, item->name, near);
    size_t length = strcspn(item->name, "@");
    snprintf(piece->name, sizeof(piece->name), "%.*s", (int)length, item->name);
    piece->dtype = find_dtype(item->dtype);
    piece->offset =
        item->name[length] ? strtoull(item->name + length + 1, NULL, 10) : 0;
    piece->elems = (item->end_bytes - item->start_bytes) / item->elem_bytes;
    section->at_bytes += item->start_bytes;
    return note && length < sizeof(piece->name) &&
                   sscanf(note, "%64[0-9a-f] %" SCNu64 " %" SCNu64, hex,
                          &piece->rows, &piece->columns) == 3 &&
                   read_hex(hex, section->digest)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.300s: \"%.100s\": has no digest and shape",
                             path, item->name);
}

/* The header of the next rank's file, which is one of all ranks'. */
static weft_status take_list(const char *path, const wefti_safetensors *list,
                             wefti_checkpoint_index *index)
{
    wefti_checkpoint_header header;
    const void *near = NULL;
    wefti_checkpoint_file *file = &index->files[index->file_count];
    weft_status status = wefti_checkpoint_header_find(path, list, &header);
    if (status == WEFT_OK && index->file_count == 0) {
        index->header = header;
    }
    if (status == WEFT_OK &&
        memcmp(&header, &index->header, sizeof(header)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.300s: rank %zu is not of the step of the others",
                           path, index->file_count);
    }
    wefti_checkpoint_section *wider = realloc(
        index->sections, (index->count + list->count + 1) * sizeof(*wider));
    if (!wider) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.300s: no memory", path);
    }
    index->sections = wider;
    file->bytes = WEFTI_SAFETENSORS_PREFIX_BYTES + file->head_bytes;
    for (size_t i = 0; i < list->count && status == WEFT_OK; i++) {
        wefti_checkpoint_section *section = &index->sections[index->count++];
        *section = (wefti_checkpoint_section){.file = index->file_count,
                                              .at_bytes = file->bytes};
        status = take_section(path, list, &list->items[i], &near, section);
    }
    file->bytes += list->count ? list->items[list->count - 1].end_bytes : 0;
    index->file_count++;
    return status;
}

/* The line that begins at at; where the next one does. */
static weft_status take_line(const char *path, char *at, size_t bytes,
                             wefti_checkpoint_index *index)
{
    char name[WEFTI_CHECKPOINT_FILE_BYTES], begin[sizeof(name) + 4];
    wefti_safetensors list;
    wefti_checkpoint_file *wider =
        realloc(index->files, (index->file_count + 1) * sizeof(*wider));
    if (!wider) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.300s: no memory", path);
    }
    index->files = wider;
    wefti_checkpoint_file_name(index->file_count, name);
    size_t skip = (size_t)snprintf(begin, sizeof(begin), "\"%s\": ", name);
    bytes -= bytes > 0 && at[bytes - 1] == ',';
    if (bytes < skip || memcmp(at, begin, skip) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.300s: line %zu is not %s's header", path,
                           index->file_count + 2, name);
    }
    index->files[index->file_count] =
        (wefti_checkpoint_file){.head = at + skip, .head_bytes = bytes - skip};
    weft_status status = wefti_safetensors_parse(
        path, at + skip, bytes - skip, WEFTI_SAFETENSORS_ANY_BYTES, &list);
    if (status == WEFT_OK) {
        status = take_list(path, &list, index);
        wefti_safetensors_fini(&list);
    }
    return status;
}

/* Between the braces, which have lines of their own. */
static weft_status take_lines(const char *path, char *text, size_t bytes,
                              wefti_checkpoint_index *index)
{
    weft_status status = WEFT_OK;
    if (bytes < 4 || memcmp(text, "{\n", 2) != 0 ||
        memcmp(text + bytes - 2, "}\n", 2) != 0) {
        return wefti_error(WEFT_ERR_INVALID, "%.300s: is no index", path);
    }
    char *at = text + 2, *end = text + bytes - 2;
    while (at < end && status == WEFT_OK) {
        char *line_end = memchr(at, '\n', (size_t)(end - at));
        line_end = line_end ? line_end : end;
        status = take_line(path, at, (size_t)(line_end - at), index);
        at = line_end + 1;
    }
    return status == WEFT_OK && (index->file_count == 0 ||
                                 index->file_count != index->header.nranks)
               ? wefti_error(WEFT_ERR_INVALID,
                             "%.300s: has the headers of %zu files of %" PRIu64
                             " ranks",
                             path, index->file_count, index->header.nranks)
               : status;
}

weft_status wefti_checkpoint_index_unpack(const char *path, char *text,
                                          size_t bytes,
                                          wefti_checkpoint_index *index_out)
{
    *index_out = (wefti_checkpoint_index){.text = text};
    weft_status status = take_lines(path, text, bytes, index_out);
    if (status == WEFT_OK) {
        status = check_sections(path, index_out);
    }
    if (status != WEFT_OK) {
        wefti_checkpoint_index_fini(index_out);
    }
    return status;
}
