/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/stamps.c - a set of event pairs for each device that needs them.
 */
#include "overlap/stamps.h"

#include "base/error.h"
#include "device/device.h"

#include <stdlib.h>

void wefti_stamp_pool_init(wefti_stamp_pool *pool, size_t spans)
{
    pthread_mutex_init(&pool->lock, NULL);
    pool->pairs = spans < WEFTI_STAMPS_MOST ? spans : WEFTI_STAMPS_MOST;
    pool->sets = NULL;
}

static void free_set(wefti_stamp_set *set)
{
    for (size_t i = 0; i < set->count; i++) {
        weft_event_destroy(set->pairs[i].begin);
        weft_event_destroy(set->pairs[i].end);
    }
    free(set->pairs);
    free(set);
}

void wefti_stamp_pool_fini(wefti_stamp_pool *pool)
{
    while (pool->sets) {
        wefti_stamp_set *set = pool->sets;
        pool->sets = set->next;
        free_set(set);
    }
    pthread_mutex_destroy(&pool->lock);
}

static weft_status fill_set(wefti_stamp_set *set, size_t pairs)
{
    weft_status status = WEFT_OK;
    for (size_t i = 0; i < pairs && status == WEFT_OK; i++) {
        wefti_stamps *pair = &set->pairs[set->count++];
        status = weft_event_create(set->device, &pair->begin);
        if (status == WEFT_OK) {
            status = weft_event_create(set->device, &pair->end);
        }
        pair->set = set;
        pair->next = set->spare;
        set->spare = pair;
    }
    return status;
}

static wefti_stamp_set *make_set(weft_device *device, size_t pairs)
{
    if (!wefti_device_can(device, WEFT_CAP_TIMES)) {
        wefti_error_keep("spans on streams of the %s device: it has neither "
                         "host calls nor times of events",
                         wefti_device_get_table(device)->kind);
        return NULL;
    }
    wefti_stamp_set *set = calloc(1, sizeof(*set));
    if (set) {
        set->device = device;
        set->pairs = calloc(pairs, sizeof(*set->pairs));
    }
    if (!set || !set->pairs) {
        wefti_error_keep("no memory for the events of %zu spans", pairs);
        free(set);
        return NULL;
    }
    if (fill_set(set, pairs) < 0) {
        free_set(set);
        return NULL;
    }
    return set;
}

static wefti_stamp_set *find_set_locked(const wefti_stamp_pool *pool,
                                        const weft_device *device)
{
    wefti_stamp_set *set = pool->sets;
    while (set && set->device != device) {
        set = set->next;
    }
    return set;
}

wefti_stamps *wefti_stamps_take(wefti_stamp_pool *pool, weft_device *device)
{
    wefti_stamps *taken = NULL;
    pthread_mutex_lock(&pool->lock);
    wefti_stamp_set *set = find_set_locked(pool, device);
    if (!set && (set = make_set(device, pool->pairs)) != NULL) {
        set->next = pool->sets;
        pool->sets = set;
    }
    if (set && set->spare) {
        taken = set->spare;
        set->spare = taken->next;
    } else if (set) {
        wefti_error_keep("%zu spans on streams of the %s device are open or "
                         "not reported yet: that is all there may be",
                         set->count, wefti_device_get_table(device)->kind);
    }
    pthread_mutex_unlock(&pool->lock);
    return taken;
}

void wefti_stamps_release(wefti_stamp_pool *pool, wefti_stamps *stamps)
{
    pthread_mutex_lock(&pool->lock);
    wefti_stamp_set *set = stamps->set;
    stamps->next = set->spare;
    set->spare = stamps;
    pthread_mutex_unlock(&pool->lock);
}
