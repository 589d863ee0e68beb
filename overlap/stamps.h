/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/stamps.h - pairs of events that say when a span on a stream began and
 * ended, for devices whose streams call no host functions.
 *
 * A device's pairs are made by the first span on one of its streams, all at
 * once; from then on nothing is allocated.
 */
#ifndef OVERLAP_STAMPS_H
#define OVERLAP_STAMPS_H

#include "weft/device.h"

#include <pthread.h>
#include <stddef.h>

/* Of one device: a span's of its own. */
enum { WEFTI_STAMPS_MOST = 1024 };

typedef struct wefti_stamps {
    weft_event *begin, *end;
    struct wefti_stamp_set *set; /* whose it is */
    struct wefti_stamps *next;   /* among the spare ones */
} wefti_stamps;

/* The pairs of one device. */
typedef struct wefti_stamp_set {
    struct wefti_stamp_set *next;
    weft_device *device;
    size_t count;
    wefti_stamps *pairs; /* [count] */
    wefti_stamps *spare;
} wefti_stamp_set;

typedef struct wefti_stamp_pool {
    pthread_mutex_t lock; /* guards what follows */
    size_t pairs;         /* of each device */
    wefti_stamp_set *sets;
} wefti_stamp_pool;

/* For up to spans spans of a device at a time, and WEFTI_STAMPS_MOST. */
void wefti_stamp_pool_init(wefti_stamp_pool *pool, size_t spans);

/* None of its events may be posted and not have happened. */
void wefti_stamp_pool_fini(wefti_stamp_pool *pool);

/*
 * wefti_stamps_take - a pair for a span on a stream of the device; NULL: all
 * are in use, or they could not be made (weft_error_text).
 */
wefti_stamps *wefti_stamps_take(wefti_stamp_pool *pool, weft_device *device);

/* A pair whose posts have happened, or that is not read any more. */
void wefti_stamps_release(wefti_stamp_pool *pool, wefti_stamps *stamps);

#endif
