/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device.c - devices: opened by kind, closed when nothing of them is
 * left.
 */
#include "device/device.h"

#include "base/error.h"
#include "base/log.h"
#include "device/await.h"
#include "device/holds.h"
#include "device/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const wefti_device_table *const wefti_device_tables[] = {
    &wefti_device_host, &wefti_device_cuda, &wefti_device_shadow, NULL};

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
    device->caps = table->caps;
    device->spins = wefti_await_may_spin();
    weft_status status = table->open(device, index);
    if (status < 0) {
        free(device);
        return status;
    }
    pthread_mutex_init(&device->copies_lock, NULL);
    pthread_mutex_init(&device->holds_lock, NULL);
    pthread_mutex_init(&device->spare_lock, NULL);
    *device_out = device;
    return WEFT_OK;
}

static void close_now(weft_device *device)
{
    if (device->copies) {
        device->table->stream_destroy(device->copies);
    }
    wefti_device_tend(device);
    wefti_gate_free_spares(device);
    device->table->close(device);
    pthread_mutex_destroy(&device->spare_lock);
    pthread_mutex_destroy(&device->holds_lock);
    pthread_mutex_destroy(&device->copies_lock);
    free(device);
}

void weft_device_close(weft_device *device)
{
    if (!device) {
        return;
    }
    wefti_device_tend(device);
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

int wefti_device_get_index(const weft_device *device)
{
    return device->index;
}

bool wefti_device_is_same(const weft_device *one, const weft_device *other)
{
    return one == other ||
           (one->table == other->table && one->index == other->index);
}

bool wefti_device_can(const weft_device *device, uint32_t caps)
{
    return (device->caps & caps) == caps;
}

uint32_t weft_device_get_caps(const weft_device *device)
{
    return device ? device->caps : 0;
}
