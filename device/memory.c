/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/memory.c - the public face of memory: checks, then the table.
 */
#include "base/error.h"
#include "base/log.h"
#include "base/sized.h"
#include "device/object.h"

#include <string.h>

static weft_status refuse_null(const char *name)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "%s is NULL: allowed is an object, or a place for one",
                       name);
}

weft_status weft_device_alloc_kind(weft_device *device, weft_memory_kind kind,
                                   size_t bytes, void **pointer_out)
{
    if (!device || !pointer_out) {
        return refuse_null(device ? "pointer_out" : "device");
    }
    if (kind != WEFT_MEMORY_PINNED && kind != WEFT_MEMORY_DEVICE &&
        kind != WEFT_MEMORY_EXPORTABLE) {
        return wefti_error(WEFT_ERR_INVALID,
                           "kind %d: allowed is pinned (%d), device (%d) and "
                           "exportable memory (%d)",
                           (int)kind, WEFT_MEMORY_PINNED, WEFT_MEMORY_DEVICE,
                           WEFT_MEMORY_EXPORTABLE);
    }
    if (kind == WEFT_MEMORY_EXPORTABLE &&
        !wefti_device_can(device, WEFT_CAP_IPC)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "the %s device has no exportable memory",
                           device->table->kind);
    }
    weft_status status =
        device->table->mem_alloc(device, kind, bytes ? bytes : 1, pointer_out);
    if (status == WEFT_OK) {
        wefti_device_count(device, 1);
    }
    return status;
}

weft_status weft_device_alloc(weft_device *device, size_t bytes,
                              void **pointer_out)
{
    return weft_device_alloc_kind(device, WEFT_MEMORY_DEVICE, bytes,
                                  pointer_out);
}

/* Of a function that returns nothing. */
static void log_misuse(const weft_device *device, const char *function,
                       const void *pointer, const char *what)
{
    wefti_log(WEFTI_LOG_ERROR, -1, "%s: %p is no %s of this %s device",
              function, pointer, what, device ? device->table->kind : "NULL");
}

void weft_device_free(weft_device *device, void *pointer)
{
    if (!pointer) {
        return;
    }
    if (!device || !device->table->mem_free(device, pointer)) {
        log_misuse(device, "weft_device_free", pointer, "memory");
        return;
    }
    wefti_device_count(device, -1);
}

weft_status weft_device_query(weft_device *device, const void *pointer,
                              weft_pointer *pointer_out)
{
    if (!device || !pointer_out) {
        return refuse_null(device ? "pointer_out" : "device");
    }
    weft_status status =
        wefti_sized_check("pointer_out", pointer_out->size_bytes,
                          offsetof(weft_pointer, base), sizeof(*pointer_out));
    if (status < 0) {
        return status;
    }
    weft_pointer found = {.size_bytes = sizeof(found), .index = -1};
    status = device->table->mem_query(device, pointer, &found);
    if (status == WEFT_OK) {
        wefti_sized_write(pointer_out, &found, sizeof(found));
    }
    return status;
}

bool wefti_device_owns(weft_device *device, const void *pointer)
{
    if (!device || wefti_device_can(device, WEFT_CAP_HOST_READS)) {
        return false;
    }
    weft_pointer found = {.size_bytes = sizeof(found)};
    return weft_device_query(device, pointer, &found) == WEFT_OK &&
           (found.kind == WEFT_MEMORY_DEVICE ||
            found.kind == WEFT_MEMORY_EXPORTABLE);
}

weft_status weft_device_register(weft_device *device, void *pointer,
                                 size_t bytes)
{
    if (!device || !pointer || bytes == 0) {
        return !device || !pointer
                   ? refuse_null(device ? "pointer" : "device")
                   : wefti_error(WEFT_ERR_INVALID,
                                 "bytes 0: allowed is 1 or more");
    }
    return device->table->mem_register
               ? device->table->mem_register(device, pointer, bytes)
               : WEFT_OK;
}

void weft_device_unregister(weft_device *device, void *pointer)
{
    if (pointer && !device) {
        log_misuse(device, "weft_device_unregister", pointer, "memory");
    } else if (pointer && device->table->mem_unregister) {
        device->table->mem_unregister(device, pointer);
    }
}

weft_status wefti_device_reach(weft_device *device, int index)
{
    return device->table->mem_reach ? device->table->mem_reach(device, index)
                                    : WEFT_OK;
}

static weft_status check_ipc(const weft_device *device)
{
    return wefti_device_can(device, WEFT_CAP_IPC)
               ? WEFT_OK
               : wefti_error(WEFT_ERR_UNSUPPORTED,
                             "the %s device shares no memory with other "
                             "processes",
                             device->table->kind);
}

weft_status weft_device_export(weft_device *device, const void *pointer,
                               weft_export *export_out)
{
    if (!device || !pointer || !export_out) {
        return refuse_null(!device    ? "device"
                           : !pointer ? "pointer"
                                      : "export_out");
    }
    weft_status status =
        wefti_sized_check("export_out", export_out->size_bytes,
                          sizeof(*export_out), sizeof(*export_out));
    if (status == WEFT_OK) {
        status = check_ipc(device);
    }
    weft_export made = {.size_bytes = sizeof(made), .descriptor = -1};
    if (status == WEFT_OK) {
        status = device->table->mem_export(device, pointer, &made);
    }
    if (status == WEFT_OK) {
        wefti_sized_write(export_out, &made, sizeof(made));
    }
    return status;
}

weft_status weft_device_import(weft_device *device, const weft_export *given,
                               void **pointer_out)
{
    if (!device || !given || !pointer_out) {
        return refuse_null(!device  ? "device"
                           : !given ? "given"
                                    : "pointer_out");
    }
    weft_export own;
    weft_status status =
        wefti_sized_read("given", given, sizeof(own), &own, sizeof(own));
    if (status == WEFT_OK) {
        status = check_ipc(device);
    }
    if (status == WEFT_OK && own.offset >= own.bytes) {
        status = wefti_error(WEFT_ERR_INVALID,
                             "given: offset %zu of an allocation of %zu bytes",
                             own.offset, own.bytes);
    }
    if (status == WEFT_OK) {
        status = device->table->mem_import(device, &own, pointer_out);
    }
    if (status == WEFT_OK) {
        wefti_device_count(device, 1);
    }
    return status;
}

void weft_device_unimport(weft_device *device, void *pointer)
{
    if (!pointer) {
        return;
    }
    if (!device || !device->table->mem_unimport ||
        !device->table->mem_unimport(device, pointer)) {
        log_misuse(device, "weft_device_unimport", pointer, "import");
        return;
    }
    wefti_device_count(device, -1);
}

static weft_status check_copy(const weft_device *device, const void *dst,
                              const void *src, size_t bytes,
                              const weft_stream *stream)
{
    if (!device) {
        return wefti_error(WEFT_ERR_INVALID,
                           "device is NULL: allowed is an object");
    }
    if (stream && !wefti_device_is_same(stream->device, device)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream of %s device %d: allowed is one of %s "
                           "device %d",
                           stream->device->table->kind, stream->device->index,
                           device->table->kind, device->index);
    }
    if (bytes > 0 && (!dst || !src)) {
        return wefti_error(WEFT_ERR_INVALID, "%s is NULL, bytes is %zu",
                           dst ? "src" : "dst", bytes);
    }
    uintptr_t to = (uintptr_t)dst, from = (uintptr_t)src;
    if ((to <= from && from - to < bytes) || (from < to && to - from < bytes)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "dst %p and src %p: %zu bytes overlap", dst, src,
                           bytes);
    }
    return WEFT_OK;
}

/* The stream of copies without one, made by the first. */
static weft_status get_copies(weft_device *device, weft_stream **stream_out)
{
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&device->copies_lock);
    if (!device->copies) {
        const weft_stream_config config = {.size_bytes = sizeof(config)};
        status = device->table->stream_create(device, &config, &device->copies);
        if (status == WEFT_OK) {
            device->copies->device = device;
        }
    }
    *stream_out = device->copies;
    pthread_mutex_unlock(&device->copies_lock);
    return status;
}

/* Through the device's own stream: it alone reaches its memory. */
static weft_status copy_now(weft_device *device, void *dst, const void *src,
                            size_t bytes)
{
    if (wefti_device_can(device, WEFT_CAP_HOST_READS)) {
        memcpy(dst, src, bytes);
        return WEFT_OK;
    }
    weft_stream *stream;
    weft_status status = get_copies(device, &stream);
    if (status == WEFT_OK) {
        pthread_mutex_lock(&device->copies_lock); /* one poster at a time */
        status = device->table->stream_copy(stream, dst, src, bytes);
        pthread_mutex_unlock(&device->copies_lock);
    }
    return status == WEFT_OK ? device->table->stream_drain(stream) : status;
}

weft_status weft_device_copy(weft_device *device, void *dst, const void *src,
                             size_t bytes, weft_stream *stream)
{
    weft_status status = check_copy(device, dst, src, bytes, stream);
    if (status < 0 || bytes == 0) {
        return status;
    }
    return stream ? device->table->stream_copy(stream, dst, src, bytes)
                  : copy_now(device, dst, src, bytes);
}
