/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/exchange/hugging_face_import.c - rank 0 reads each tensor, and all
 * get it; those keep it that have it.
 */
#include "base/error.h"
#include "base/small_float.h"
#include "trainer/checkpoint/savepoint.h"
#include "trainer/exchange/hugging_face.h"
#include "trainer/exchange/llama_names.h"
#include "weft/op.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For the ranks that have not failed. */
static const char whole[] = "the import of the model";

/* What rank 0 reads. */
typedef struct source {
    char path[WEFTI_LLAMA_PATH_BYTES];
    wefti_tensor_list tensors;
    wefti_safetensors items; /* as they should be */
    wefti_safetensors_file file;
} source;

/* "[2, 3]" */
static const char *print_shape(const wefti_safetensor *item, char *text,
                               size_t text_bytes)
{
    size_t used = 0;
    for (size_t i = 0; i < item->dimensions && used < text_bytes; i++) {
        used += (size_t)snprintf(text + used, text_bytes - used, "%s%" PRIu64,
                                 i ? ", " : "[", item->shape[i]);
    }
    if (used < text_bytes) {
        snprintf(text + used, text_bytes - used, "%s", used ? "]" : "[]");
    }
    return text;
}

/* Whether numbers of a type are all exactly those of real. */
static bool is_taken(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "F16") == 0 ||
           strcmp(dtype, "BF16") == 0 ||
           (strcmp(dtype, "F64") == 0 && sizeof(real) == sizeof(double));
}

static weft_status check_item(const char *path, const wefti_safetensor *want,
                              const wefti_safetensor *item)
{
    char shapes[2][128];
    if (!item) {
        return wefti_error(WEFT_ERR_INVALID, "%.200s: has no \"%.64s\"", path,
                           want->name);
    }
    if (item->dimensions != want->dimensions ||
        memcmp(item->shape, want->shape, sizeof(item->shape)) != 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%.200s: \"%.64s\": its shape is %s, the "
                           "configuration's %s",
                           path, want->name,
                           print_shape(item, shapes[0], sizeof(shapes[0])),
                           print_shape(want, shapes[1], sizeof(shapes[1])));
    }
    return is_taken(item->dtype)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "%.200s: \"%.64s\": its dtype is %s: allowed are "
                             "F32, F16 and BF16",
                             path, want->name, item->dtype);
}

/* All that should be there is, and nothing else. */
static weft_status check_items(const source *own)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < own->items.count && status == WEFT_OK; i++) {
        const wefti_safetensor *want = &own->items.items[i];
        status =
            check_item(own->path, want,
                       wefti_safetensors_find(&own->file.list, want->name));
    }
    for (size_t i = 0; i < own->file.list.count && status == WEFT_OK; i++) {
        const char *name = own->file.list.items[i].name;
        if (!wefti_safetensors_find(&own->items, name)) {
            status = wefti_error(WEFT_ERR_INVALID,
                                 "%.200s: \"%.100s\": the configuration's "
                                 "model has no such tensor",
                                 own->path, name);
        }
    }
    return status;
}

static weft_status open_source(const wefti_model_shape *shape, const char *dir,
                               source *own)
{
    weft_status status = wefti_llama_config_check(dir, shape);
    if (status == WEFT_OK) {
        status = wefti_tensor_list_init(&own->tensors, shape);
    }
    if (status == WEFT_OK) {
        status = wefti_llama_items(&own->tensors, &own->items);
    }
    if (status == WEFT_OK) {
        status = wefti_llama_path(dir, WEFTI_LLAMA_TENSORS, own->path);
    }
    if (status == WEFT_OK) {
        status = wefti_safetensors_open(own->path, &own->file);
    }
    return status == WEFT_OK ? check_items(own) : status;
}

static void close_source(source *own)
{
    wefti_safetensors_close(&own->file);
    wefti_safetensors_fini(&own->items);
    wefti_tensor_list_fini(&own->tensors);
}

/* One of a type's numbers. */
static real take_number(const char *dtype, const char *bytes)
{
    uint16_t code;
    float single;
    double wide;
    if (dtype[0] == 'F' && dtype[1] == '3') {
        memcpy(&single, bytes, sizeof(single));
        return (real)single;
    }
    if (dtype[0] == 'F' && dtype[1] == '6') {
        memcpy(&wide, bytes, sizeof(wide));
        return (real)wide;
    }
    memcpy(&code, bytes, sizeof(code));
    return dtype[0] == 'B' ? (real)wefti_bf16_widen(code)
                           : (real)wefti_f16_widen(code);
}

/* A piece's numbers, which lie in raw, to where they belong. */
static weft_status take_numbers(const source *own, const wefti_safetensor *item,
                                const char *raw, real *values)
{
    size_t elems =
        (size_t)(item->end_bytes - item->start_bytes) / item->elem_bytes;
    for (size_t i = 0; i < elems; i++) {
        values[i] = take_number(item->dtype, raw + i * item->elem_bytes);
        if (!isfinite(values[i])) {
            return wefti_error(WEFT_ERR_INVALID,
                               "%.200s: \"%.64s\": number %zu is not finite",
                               own->path, item->name, i);
        }
    }
    return WEFT_OK;
}

/* A tensor, piece by piece. */
static weft_status read_tensor(const source *own, const wefti_tensor_info *info,
                               void *raw, real *values)
{
    char name[WEFTI_LLAMA_NAME_BYTES];
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < wefti_llama_count_items(info) && status == WEFT_OK;
         i++) {
        const size_t rows = wefti_llama_name(info, i, name);
        const wefti_safetensor *item =
            wefti_safetensors_find(&own->file.list, name);
        status = wefti_safetensors_read(&own->file, item, raw);
        if (status == WEFT_OK) {
            status = take_numbers(own, item, raw, values);
        }
        values += rows * info->columns;
    }
    return status;
}

/* What of a whole tensor belongs here. */
static weft_status keep_part(const wefti_replica *replica,
                             const wefti_tensor *to, const real *room)
{
    real *own = malloc(wefti_tensor_here_elems(to) * sizeof(*own) + 1);
    if (!own) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "--import-hf: no memory");
    }
    wefti_tensor_take(to, room, own);
    weft_status status = wefti_replica_set(replica, to, own);
    free(own);
    return status;
}

/* Where this rank has it: also as the copy of a tied embedding. */
static weft_status keep(const wefti_replica *replica, size_t tensor,
                        const real *room)
{
    const wefti_parameters *plan = &replica->plan;
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < plan->tensor_count && status == WEFT_OK; i++) {
        const wefti_tensor *to = &plan->tensors[i];
        bool is_it =
            i == tensor || (to->copy && tensor == wefti_tensor_embedding(plan));
        if (is_it && to->here) {
            status = keep_part(replica, to, room);
        }
    }
    return status;
}

/* What rank 0 cannot read it still sends, so that none waits for it. */
static weft_status spread(const wefti_replica *replica, const source *own,
                          real *room, void *raw, weft_status *read)
{
    const wefti_parameters *plan = &replica->plan;
    for (size_t i = 0; i < plan->tensor_count; i++) {
        const wefti_tensor *tensor = &plan->tensors[i];
        if (tensor->copy) {
            continue;
        }
        if (replica->rank == 0 && *read == WEFT_OK) {
            *read = read_tensor(own, &tensor->info, raw, room);
        }
        weft_status status =
            weft_broadcast(room, room, wefti_tensor_elems(&tensor->info),
                           WEFTI_REAL_DTYPE, 0, replica->config.comm, NULL);
        if (status == WEFT_OK) {
            status = keep(replica, i, room);
        }
        if (status != WEFT_OK) {
            return status;
        }
    }
    return WEFT_OK;
}

static weft_status import_all(wefti_replica *replica, const char *dir,
                              source *own, real *room, void *raw)
{
    weft_comm *comm = replica->config.comm;
    weft_status read = replica->rank == 0
                           ? open_source(&replica->config.shape, dir, own)
                           : WEFT_OK;
    weft_status status =
        wefti_savepoint_agree(comm, &replica->failed, read, whole);
    if (status == WEFT_OK) {
        status = spread(replica, own, room, raw, &read);
    }
    return status == WEFT_OK
               ? wefti_savepoint_agree(comm, &replica->failed, read, whole)
               : status;
}

weft_status wefti_hugging_face_import(wefti_replica *replica, const char *dir)
{
    size_t most = wefti_parameters_largest(&replica->plan);
    source *own = calloc(1, sizeof(*own));
    real *room = calloc(most, sizeof(*room));
    real *raw = malloc(most * sizeof(*raw)); /* no type taken is wider */
    weft_status status;
    if (own && room && raw) {
        own->file.fd = -1;
        status = import_all(replica, dir, own, room, raw);
        close_source(own);
    } else {
        status = wefti_savepoint_agree(
            replica->config.comm, &replica->failed,
            wefti_error(WEFT_ERR_NO_MEMORY, "--import-hf: no memory"), whole);
    }
    free(raw);
    free(room);
    free(own);
    return status;
}
