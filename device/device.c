/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device.c - devices, their memory and copies: checks the arguments,
 * then asks the kind's table.
 */
#include "device/device.h"

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "device/await.h"
#include "device/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const wefti_device_table *const wefti_device_tables[] = {
    &wefti_device_host, &wefti_device_shadow, NULL};

static const wefti_device_table *find_table(const char *kind)
{
    for (size_t i = 0; wefti_device_tables[i]; i++) {
        if (strcmp(wefti_device_tables[i]->kind, kind) == 0) {
            return wefti_device_tables[i];
        }
    }
    return NULL;
}

static weft_status unknown_kind(const char *kind)
{
    char known[128] = "";
    size_t used = 0;
    for (size_t i = 0; wefti_device_tables[i] && used < sizeof(known); i++) {
        used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                 i ? ", " : "", wefti_device_tables[i]->kind);
    }
    return wefti_error(WEFT_ERR_INVALID, "device kind \"%s\": allowed is %s",
                       kind, known);
}

/* The top bit of the count: the last object closes the device. */
static const size_t abandoned = ~(SIZE_MAX >> 1);

weft_status weft_device_open(const char *kind, int index,
                             weft_device **device_out)
{
    if (!kind || !device_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            kind ? "device_out" : "kind");
    }
    const wefti_device_table *table = find_table(kind);
    if (!table) {
        return unknown_kind(kind);
    }
    weft_device *device = calloc(1, sizeof(*device));
    if (!device) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    device->table = table;
    device->index = index;
    device->spins = wefti_await_may_spin();
    weft_status status = table->open(device, index);
    if (status < 0) {
        free(device);
        return status;
    }
    pthread_mutex_init(&device->spare_lock, NULL);
    *device_out = device;
    return WEFT_OK;
}

static void close_now(weft_device *device)
{
    wefti_gate_free_spares(device);
    device->table->close(device);
    pthread_mutex_destroy(&device->spare_lock);
    free(device);
}

void weft_device_close(weft_device *device)
{
    if (!device) {
        return;
    }
    size_t objects = atomic_load(&device->objects);
    if (objects != 0) {
        /* Closing under them would be worse than keeping it. */
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "weft_device_close: %zu allocations, streams, events or "
                  "gates of the %s device still exist; it stays open",
                  objects, device->table->kind);
        return;
    }
    close_now(device);
}

void wefti_device_abandon(weft_device *device)
{
    if (atomic_fetch_or(&device->objects, abandoned) == 0) {
        close_now(device);
    }
}

void wefti_device_count(weft_device *device, int change)
{
    if (change > 0) {
        atomic_fetch_add(&device->objects, 1);
    } else if (atomic_fetch_sub(&device->objects, 1) == (abandoned | 1)) {
        close_now(device);
    }
}

const wefti_device_table *wefti_device_get_table(const weft_device *device)
{
    return device->table;
}

bool wefti_device_owns(weft_device *device, const void *pointer)
{
    return device && !device->table->host_reads &&
           device->table->mem_owns(device, pointer);
}

weft_status weft_device_alloc(weft_device *device, size_t bytes,
                              void **pointer_out)
{
    if (!device || !pointer_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            device ? "pointer_out" : "device");
    }
    weft_status status = device->table->mem_alloc(device, bytes, pointer_out);
    if (status == WEFT_OK) {
        wefti_device_count(device, 1);
    }
    return status;
}

void weft_device_free(weft_device *device, void *pointer)
{
    if (!pointer) {
        return;
    }
    if (!device->table->host_reads && !wefti_device_owns(device, pointer)) {
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "weft_device_free: %p is no memory of this %s device",
                  pointer, device->table->kind);
        return;
    }
    device->table->mem_free(device, pointer);
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
    if (stream && stream->device != device) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream belongs to another device");
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

weft_status weft_device_copy(weft_device *device, void *dst, const void *src,
                             size_t bytes, weft_stream *stream)
{
    weft_status status = check_copy(device, dst, src, bytes, stream);
    if (status < 0 || bytes == 0) {
        return status;
    }
    return stream ? device->table->stream_copy(stream, dst, src, bytes)
                  : device->table->copy_now(device, dst, src, bytes);
}
