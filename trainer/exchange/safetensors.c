/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/safetensors.c - reading a header, item by item, and finding
 * one; files are safetensors_file.c's.
 */
#include "trainer/exchange/safetensors.h"

#include "base/check.h"
#include "base/error.h"
#include "trainer/exchange/json_number.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {{"F64", 8},     {"F32", 4},     {"F16", 2}, {"BF16", 2},
              {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"I64", 8}, {"U64", 8},
              {"I32", 4},     {"U32", 4},     {"I16", 2}, {"U16", 2},
              {"I8", 1},      {"U8", 1},      {"BOOL", 1}};

enum { DTYPES = sizeof(dtypes) / sizeof(*dtypes) };

size_t wefti_safetensor_dtype_bytes(const char *dtype)
{
    for (size_t i = 0; i < DTYPES; i++) {
        if (strcmp(dtypes[i].name, dtype) == 0) {
            return dtypes[i].bytes;
        }
    }
    return 0;
}

/* Where in which file an error is. */
typedef struct place {
    const char *path, *name;
} place;

static weft_status refuse(const place *at, const char *what)
{
    return wefti_error(WEFT_ERR_INVALID, "%.200s: \"%.100s\": %s", at->path,
                       at->name, what);
}

static weft_status take_dtype(const place *at, const cJSON *entry,
                              wefti_safetensor *item)
{
    const char *dtype =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "dtype"));
    for (size_t i = 0; dtype && i < DTYPES; i++) {
        if (strcmp(dtypes[i].name, dtype) == 0) {
            item->dtype = dtypes[i].name;
            item->elem_bytes = dtypes[i].bytes;
            return WEFT_OK;
        }
    }
    return dtype ? wefti_error(WEFT_ERR_INVALID,
                               "%.200s: \"%.100s\": dtype \"%.20s\" is none "
                               "of the format's",
                               at->path, at->name, dtype)
                 : refuse(at, "has no dtype");
}

static weft_status take_shape(const place *at, const cJSON *entry,
                              wefti_safetensor *item, uint64_t *bytes_out)
{
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(entry, "shape");
    const cJSON *side;
    *bytes_out = item->elem_bytes;
    if (!cJSON_IsArray(shape)) {
        return refuse(at, "has no shape");
    }
    cJSON_ArrayForEach(side, shape)
    {
        uint64_t *own = &item->shape[item->dimensions];
        if (item->dimensions == WEFTI_SAFETENSOR_DIMENSIONS_MOST) {
            return refuse(at, "has more than 8 dimensions");
        }
        if (!wefti_json_number_whole(side, own)) {
            return refuse(at, "shape: allowed are whole numbers from 0 on");
        }
        if (*own > 0 && *bytes_out > UINT64_MAX / *own) {
            return refuse(at, "shape: is too large");
        }
        *bytes_out *= *own;
        item->dimensions++;
    }
    return WEFT_OK;
}

static weft_status take_offsets(const place *at, const cJSON *entry,
                                uint64_t bytes, uint64_t data_bytes,
                                wefti_safetensor *item)
{
    const cJSON *both = cJSON_GetObjectItemCaseSensitive(entry, "data_offsets");
    if (!cJSON_IsArray(both) || cJSON_GetArraySize(both) != 2 ||
        !wefti_json_number_whole(both->child, &item->start_bytes) ||
        !wefti_json_number_whole(both->child->next, &item->end_bytes)) {
        return refuse(at, "data_offsets: allowed are two whole numbers");
    }
    if (item->start_bytes > item->end_bytes || item->end_bytes > data_bytes) {
        return refuse(at, "data_offsets: lie outside the file");
    }
    return item->end_bytes - item->start_bytes == bytes
               ? WEFT_OK
               : refuse(at, "data_offsets: are not as far apart as dtype and "
                            "shape need");
}

static weft_status take_item(const char *path, const cJSON *entry,
                             uint64_t data_bytes, wefti_safetensor *item)
{
    const place at = {path, entry->string};
    uint64_t bytes;
    *item = (wefti_safetensor){.name = entry->string};
    if (!cJSON_IsObject(entry)) {
        return refuse(&at, "allowed is an object");
    }
    weft_status status = take_dtype(&at, entry, item);
    if (status == WEFT_OK) {
        status = take_shape(&at, entry, item, &bytes);
    }
    return status == WEFT_OK ? take_offsets(&at, entry, bytes, data_bytes, item)
                             : status;
}

static int compare_starts(const void *left, const void *right)
{
    const wefti_safetensor *a = left, *b = right;
    if (a->start_bytes != b->start_bytes) {
        return a->start_bytes < b->start_bytes ? -1 : 1;
    }
    return (a->end_bytes > b->end_bytes) - (a->end_bytes < b->end_bytes);
}

static int compare_names(const void *left, const void *right)
{
    const wefti_safetensor *const *a = left, *const *b = right;
    return strcmp((*a)->name, (*b)->name);
}

weft_status wefti_safetensors_sort(wefti_safetensors *list)
{
    list->by_name = calloc(list->count + 1, sizeof(*list->by_name));
    if (!list->by_name) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu names",
                           list->count);
    }
    for (size_t i = 0; i < list->count; i++) {
        list->by_name[i] = &list->items[i];
    }
    qsort(list->by_name, list->count, sizeof(*list->by_name), compare_names);
    return WEFT_OK;
}

static weft_status check_names(const char *path, wefti_safetensors *list)
{
    weft_status status = wefti_safetensors_sort(list);
    for (size_t i = 1; i < list->count && status == WEFT_OK; i++) {
        const place at = {path, list->by_name[i]->name};
        if (strcmp(list->by_name[i - 1]->name, at.name) == 0) {
            status = refuse(&at, "is there twice");
        }
    }
    return status;
}

/* All of the data belongs to one item. */
static weft_status check_cover(const char *path, uint64_t data_bytes,
                               const wefti_safetensors *list)
{
    uint64_t end = 0;
    for (size_t i = 0; i < list->count; i++) {
        const place at = {path, list->items[i].name};
        if (list->items[i].start_bytes != end) {
            return refuse(&at, "data_offsets: do not begin where the data "
                               "before end");
        }
        end = list->items[i].end_bytes;
    }
    return end == data_bytes || data_bytes == WEFTI_SAFETENSORS_ANY_BYTES
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.200s: %" PRIu64 " bytes follow the last tensor",
                             path, data_bytes - end);
}

static weft_status take_items(const char *path, const cJSON *root,
                              uint64_t data_bytes, wefti_safetensors *out)
{
    const cJSON *entry;
    weft_status status = WEFT_OK;
    out->items =
        calloc((size_t)cJSON_GetArraySize(root) + 1, sizeof(*out->items));
    if (!out->items) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "%.200s: no memory", path);
    }
    cJSON_ArrayForEach(entry, root)
    {
        if (strcmp(entry->string, "__metadata__") == 0) {
            continue;
        }
        status = take_item(path, entry, data_bytes, &out->items[out->count]);
        if (status != WEFT_OK) {
            return status;
        }
        out->count++;
    }
    qsort(out->items, out->count, sizeof(*out->items), compare_starts);
    status = check_cover(path, data_bytes, out);
    return status == WEFT_OK ? check_names(path, out) : status;
}

static bool is_blank(const char *from, const char *end)
{
    while (from < end && strchr(" \t\r\n", *from) && *from) {
        from++;
    }
    return from == end;
}

weft_status wefti_safetensors_parse(const char *path, const char *header,
                                    size_t header_bytes, uint64_t data_bytes,
                                    wefti_safetensors *out)
{
    const char *end = header;
    *out = (wefti_safetensors){0};
    cJSON *root =
        header_bytes > 0 && header[0] == '{'
            ? cJSON_ParseWithLengthOpts(header, header_bytes, &end, false)
            : NULL;
    out->names = root;
    if (!root || !is_blank(end, header + header_bytes)) {
        wefti_safetensors_fini(out);
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: its header is not JSON, from byte %zu on",
                           path, (size_t)(end - header));
    }
    weft_status status = take_items(path, root, data_bytes, out);
    if (status != WEFT_OK) {
        wefti_safetensors_fini(out);
    }
    return status;
}

void wefti_safetensors_fini(wefti_safetensors *list)
{
    cJSON_Delete(list->names);
    free(list->by_name);
    free(list->items);
    *list = (wefti_safetensors){0};
}

const wefti_safetensor *wefti_safetensors_find(const wefti_safetensors *list,
                                               const char *name)
{
    const wefti_safetensor wanted = {.name = name}, *key = &wanted;
    WEFTI_ASSERT(list->by_name);
    const wefti_safetensor **found =
        bsearch(&key, list->by_name, list->count, sizeof(*list->by_name),
                compare_names);
    return found ? *found : NULL;
}

const char *wefti_safetensors_find_note(const wefti_safetensors *list,
                                        const char *key, const void **near)
{
    const cJSON *all =
        cJSON_GetObjectItemCaseSensitive(list->names, "__metadata__");
    const cJSON *next = *near ? ((const cJSON *)*near)->next : NULL;
    const cJSON *found = next && strcmp(next->string, key) == 0
                             ? next
                             : cJSON_GetObjectItemCaseSensitive(all, key);
    *near = found ? found : *near;
    return cJSON_GetStringValue(found);
}
