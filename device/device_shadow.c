/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/device_shadow.c - a device for tests, as hostile as a GPU may be: its
 * memory faults when the host touches it, a thread of its own runs its streams
 * late and in random order to each other, and it notifies nobody.
 *
 * Each of the two ordinals is a unit, which belongs to the process and is there
 * as long as somebody has it open.
 */
#include "base/error.h"
#include "base/settings.h"
#include "device/holds.h"
#include "device/host_stream.h"
#include "device/shadow_unit.h"

#include <stdlib.h>

static pthread_mutex_t units_lock = PTHREAD_MUTEX_INITIALIZER;
static wefti_shadow_unit *units[WEFTI_SHADOW_UNITS]; /* guarded by that */

static weft_status make_unit(int index, wefti_shadow_unit **out)
{
    int64_t seed;
    weft_status status = wefti_setting_int(WEFTI_SETTING_SHADOW_SEED, &seed);
    if (status < 0) {
        return status;
    }
    wefti_shadow_unit *unit = calloc(1, sizeof(*unit));
    if (!unit) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a device");
    }
    unit->index = index;
    unit->random = (uint64_t)seed * WEFTI_SHADOW_UNITS + (uint64_t)index;
    status = wefti_shadow_memory_map(unit);
    if (status < 0) {
        free(unit);
        return status;
    }
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&unit->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    /* Held for shorter than a sleep takes, and very often. */
    pthread_mutexattr_t brief;
    pthread_mutexattr_init(&brief);
    pthread_mutexattr_settype(&brief, PTHREAD_MUTEX_ADAPTIVE_NP);
    pthread_mutex_init(&unit->lock, &brief);
    pthread_mutexattr_destroy(&brief);
    *out = unit;
    return WEFT_OK;
}

static void free_unit(wefti_shadow_unit *unit)
{
    wefti_shadow_stop(unit);
    wefti_shadow_memory_unmap(unit);
    wefti_shadow_post *post;
    while ((post = unit->spare_posts) != NULL) {
        unit->spare_posts = post->next;
        free(post);
    }
    pthread_mutex_destroy(&unit->lock);
    pthread_cond_destroy(&unit->changed);
    free(unit);
}

static weft_status shadow_open(weft_device *device, int index)
{
    if (index < 0 || index >= WEFTI_SHADOW_UNITS) {
        return wefti_error(WEFT_ERR_INVALID,
                           "index %d of a shadow device: allowed is 0 to %d",
                           index, WEFTI_SHADOW_UNITS - 1);
    }
    weft_status status = WEFT_OK;
    pthread_mutex_lock(&units_lock);
    if (!units[index]) {
        status = make_unit(index, &units[index]);
    }
    if (status == WEFT_OK) {
        units[index]->handles++;
        device->own = units[index];
    }
    pthread_mutex_unlock(&units_lock);
    return status;
}

static void shadow_close(weft_device *device)
{
    wefti_shadow_unit *unit = wefti_shadow_unit_of(device);
    pthread_mutex_lock(&units_lock);
    if (--unit->handles == 0) {
        units[unit->index] = NULL;
        free_unit(unit); /* under the lock: the next open maps anew */
    }
    pthread_mutex_unlock(&units_lock);
}

static weft_status shadow_mem_place(const char *name, const void *pointer,
                                    size_t bytes, void **out)
{
    char *found;
    weft_status status = wefti_shadow_reach(name, pointer, bytes, &found);
    if (status == WEFT_OK) {
        *out = found;
    }
    return status;
}

const wefti_device_table wefti_device_shadow = {
    .kind = "shadow",
    .caps = WEFT_CAP_TIMES,
    .open = shadow_open,
    .close = shadow_close,
    .mem_alloc = wefti_shadow_mem_alloc,
    .mem_free = wefti_shadow_mem_free,
    .mem_query = wefti_shadow_mem_query,
    .mem_register = wefti_shadow_mem_register,
    .mem_unregister = wefti_shadow_mem_unregister,
    .mem_place = shadow_mem_place,
    .stream_create = wefti_shadow_stream_create,
    .stream_destroy = wefti_shadow_stream_destroy,
    .stream_copy = wefti_shadow_stream_copy,
    .stream_compute = wefti_shadow_stream_compute,
    .stream_mark = wefti_shadow_stream_mark,
    .stream_drain = wefti_shadow_stream_drain,
    .stream_stand = wefti_holds_find_stand,
    .event_create = wefti_shadow_event_create,
    .event_destroy = wefti_shadow_event_destroy,
    .event_post = wefti_shadow_event_post,
    .event_test = wefti_shadow_event_test,
    .event_wait = wefti_shadow_event_wait,
    .event_time = wefti_shadow_event_time,
    .gate_words = wefti_host_gate_words,
    .gate_words_free = wefti_host_gate_words_free,
};
