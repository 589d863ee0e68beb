/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/failure.c - finds out that a device has failed, and releases all that
 * wait for it.
 */
#include "device/failure.h"

#include "base/clock.h"
#include "base/error.h"
#include "device/holds.h"
#include "device/object.h"

#include <stdio.h>

enum { LOOK_NS = 100 * 1000 };

/* The gates first: once the failure is set, streams let go of them. */
static void fail(weft_device *device, weft_status status)
{
    char text[sizeof(device->failure_text)];
    snprintf(text, sizeof(text), "%s", weft_error_text());
    wefti_holds_fail(device, status, text);
    pthread_mutex_lock(&device->holds_lock);
    if (atomic_load(&device->failure) == WEFT_OK) {
        snprintf(device->failure_text, sizeof(device->failure_text), "%s",
                 text);
        atomic_store(&device->failure, (int)status);
    }
    pthread_mutex_unlock(&device->holds_lock);
}

void wefti_device_look(weft_device *device)
{
    if (!device->table->look || atomic_load(&device->failure) != WEFT_OK) {
        return;
    }
    const int64_t now_ns = wefti_clock_ns();
    if (now_ns - atomic_load(&device->looked_ns) < LOOK_NS) {
        return;
    }
    atomic_store(&device->looked_ns, now_ns);
    weft_status status = device->table->look(device);
    if (status < 0) {
        fail(device, status);
    }
}

weft_status wefti_device_get_failure(const weft_device *device)
{
    const weft_status status = (weft_status)atomic_load(&device->failure);
    return status == WEFT_OK ? WEFT_OK
                             : wefti_error(status, "%s", device->failure_text);
}
