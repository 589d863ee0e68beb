/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device.c - devices: opened by kind, closed when nothing of them is
 * left. What is opened twice is one device with two users.
 */
#include "device/device.h"

#include "base/error.h"
#include "base/log.h"
#include "device/await.h"
#include "device/failure.h"
#include "device/holds.h"
#include "device/object.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static weft_device *all_open; /* guarded by that, as are next and opened */

/* A device that was opened before a fork is the parent's. */
static weft_device *find_open_locked(const wefti_device_table *table, int index)
{
    const pid_t process = getpid();
    weft_device *device = all_open;
    while (device && (device->table != table || device->index != index ||
                      device->process != process)) {
        device = device->next;
    }
    return device;
}

static weft_status make_device(const wefti_device_table *table, int index,
                               weft_device **out)
{
    weft_device *device = calloc(1, sizeof(*device));
    if (!device) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    device->table = table;
    device->index = index;
    device->process = getpid();
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
    *out = device;
    return WEFT_OK;
}

/* The one that is open already, or a new one. */
static weft_status open_locked(const wefti_device_table *table, int index,
                               weft_device **out)
{
    weft_device *device = find_open_locked(table, index);
    const bool fresh = !device;
    weft_status status = fresh ? make_device(table, index, &device)
                               : wefti_device_get_failure(device);
    if (status < 0) {
        return status;
    }
    if (fresh) {
        device->next = all_open;
        all_open = device;
    }
    device->opened++;
    atomic_fetch_and(&device->objects, ~abandoned);
    *out = device;
    return WEFT_OK;
}

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
    pthread_mutex_lock(&open_lock);
    weft_status status = open_locked(table, index, device_out);
    pthread_mutex_unlock(&open_lock);
    return status;
}

static void unlist_locked(weft_device *device)
{
    weft_device **place = &all_open;
    while (*place != device) {
        place = &(*place)->next;
    }
    *place = device->next;
}

/* Of a device that is not listed any more. */
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

enum { ENDING_MS = 10000 };

/* A stream of the program's that was given up may yet store how far it has
 * come. One that the program never lets go keeps the device. */
static void await_endings(weft_device *device)
{
    wefti_device_tend(device);
    for (int i = 0; i < ENDING_MS && wefti_holds_are_ending(device); i++) {
        (void)poll(NULL, 0, 1);
        wefti_device_tend(device);
    }
}

void weft_device_close(weft_device *device)
{
    if (!device) {
        return;
    }
    await_endings(device);
    pthread_mutex_lock(&open_lock);
    const bool last = device->opened == 1;
    const size_t objects = last ? atomic_load(&device->objects) : 0;
    if (objects == 0) {
        device->opened--;
    }
    if (last && objects == 0) {
        unlist_locked(device);
    }
    pthread_mutex_unlock(&open_lock);
    if (objects != 0) {
        /* Closing under them would be worse than keeping it. */
        wefti_log(WEFTI_LOG_ERROR, -1,
                  "weft_device_close: %zu allocations, streams, events or "
                  "gates of the %s device still exist; it stays open",
                  objects, device->table->kind);
    } else if (last) {
        close_now(device);
    }
}

void wefti_device_abandon(weft_device *device)
{
    pthread_mutex_lock(&open_lock);
    const bool last = --device->opened == 0 &&
                      atomic_fetch_or(&device->objects, abandoned) == 0;
    if (last) {
        unlist_locked(device);
    }
    pthread_mutex_unlock(&open_lock);
    if (last) {
        close_now(device);
    }
}

/* True: one less, and that was not the last of an abandoned device. Then
 * another thread may close it at any time. */
static bool count_out(weft_device *device)
{
    size_t now = atomic_load(&device->objects);
    while (now != (abandoned | 1)) {
        if (atomic_compare_exchange_weak(&device->objects, &now, now - 1)) {
            return true;
        }
    }
    return false;
}

void wefti_device_count(weft_device *device, int change)
{
    if (change > 0) {
        atomic_fetch_add(&device->objects, 1);
        return;
    }
    if (count_out(device)) {
        return;
    }
    /* It may be opened again until the lock is held. */
    pthread_mutex_lock(&open_lock);
    const bool last = atomic_fetch_sub(&device->objects, 1) == (abandoned | 1);
    if (last) {
        unlist_locked(device);
    }
    pthread_mutex_unlock(&open_lock);
    if (last) {
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
