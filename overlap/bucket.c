/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/bucket.c - bucketed collectives bound to gates.
 *
 * Operations are posted in the order in which their buckets get ready, at most
 * POSTED_AHEAD before that: a round begins at once however many buckets it has,
 * and posts cost their time where a bucket has just become ready.
 *
 *   order:   0   1   2  ...  i | i+1 ... i+POSTED_AHEAD |  not posted
 *            ready (may fly)   | waiting at their gate  |
 */
#include "weft/bucket.h"

#include "base/error.h"
#include "base/sized.h"
#include "comm/make/explain.h"

#include <stdlib.h>
#include <string.h>

/* Chosen so that four of the default 16 slots are left to operations that are
 * still completing; more would wait in the queue and gain nothing. */
enum { POSTED_AHEAD = 12 };

struct weft_bucket_set {
    weft_bucket_config config;
    weft_bucket_extent *extents;
    weft_gate *ready;   /* signalled by the producer */
    weft_gate *arrived; /* signalled by the operation */
    weft_gate *begun;   /* [1] signalled by compute, where there is a stream */
    weft_stream *stream;
    int rank, nranks;
    weft_bucket_mode mode;
    uint64_t epoch; /* of the current round; 0: none yet */
    size_t posted;  /* in the current round, in order */
    size_t next;    /* which position gets ready next */
};

/* The bucket at a position of the order, or the position of a bucket. */
static size_t in_order(const weft_bucket_set *set, size_t index)
{
    return set->config.backwards ? set->config.count - 1 - index : index;
}

static weft_op make_op(const weft_bucket_set *set, size_t bucket)
{
    const weft_bucket_config *config = &set->config;
    weft_bucket_extent extent = set->extents[bucket];
    size_t elem_bytes = weft_dtype_bytes(config->dtype);
    char *start = (char *)config->buffer + extent.start_elems * elem_bytes;
    char *own = start + (size_t)set->rank * extent.share_elems * elem_bytes;
    bool reduces = config->collective == WEFT_COLLECTIVE_REDUCESCATTER;
    return (weft_op){.size_bytes = sizeof(weft_op),
                     .collective = config->collective,
                     .send = reduces ? start : own,
                     .recv = reduces ? own : start,
                     .count = extent.share_elems,
                     .dtype = config->dtype,
                     .redop = WEFT_REDOP_SUM,
                     .ready = set->ready,
                     .arrived = set->arrived,
                     .ready_chunk = bucket,
                     .arrived_chunk = bucket,
                     .class_id = config->class_id,
                     .label = config->label};
}

static weft_status check_config(const weft_bucket_config *given,
                                weft_bucket_set **set_out,
                                weft_bucket_config *own)
{
    if (!given || !set_out) {
        return wefti_error(WEFT_ERR_INVALID,
                           "%s is NULL: allowed is an object, or a place for "
                           "one",
                           given ? "set_out" : "config");
    }
    weft_status status = wefti_sized_read(
        "config", given, offsetof(weft_bucket_config, backwards), own,
        sizeof(*own));
    if (status != WEFT_OK) {
        return status;
    }
    if (own->collective != WEFT_COLLECTIVE_REDUCESCATTER &&
        own->collective != WEFT_COLLECTIVE_ALLGATHER) {
        return wefti_error(WEFT_ERR_INVALID,
                           "collective %s: buckets allow %s and %s",
                           weft_collective_text(own->collective),
                           weft_collective_text(WEFT_COLLECTIVE_REDUCESCATTER),
                           weft_collective_text(WEFT_COLLECTIVE_ALLGATHER));
    }
    if (weft_dtype_bytes(own->dtype) == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "dtype %d: allowed is a type there is",
                           (int)own->dtype);
    }
    if (!own->comm || !own->device || !own->buffer || !own->extents ||
        own->count == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a bucket set needs a communicator, a device, a "
                           "buffer and at least one bucket");
    }
    return WEFT_OK;
}

static weft_status open_queues(weft_bucket_set *set)
{
    weft_device *device = set->config.device;
    weft_status status =
        weft_gate_create(device, set->config.count, &set->ready);
    if (status == WEFT_OK) {
        status = weft_gate_create(device, set->config.count, &set->arrived);
    }
    if (status == WEFT_OK) {
        status = weft_gate_create(device, 1, &set->begun);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(device, 0, &set->stream);
    }
    return status;
}

weft_status weft_bucket_create(const weft_bucket_config *config,
                               weft_bucket_set **set_out)
{
    weft_bucket_config own;
    weft_status status = check_config(config, set_out, &own);
    if (status != WEFT_OK) {
        return status;
    }
    weft_bucket_set *set = calloc(1, sizeof(*set));
    if (!set) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a bucket set");
    }
    set->config = own;
    set->rank = weft_comm_get_rank(config->comm);
    set->nranks = weft_comm_get_nranks(config->comm);
    set->extents = calloc(config->count, sizeof(*set->extents));
    if (!set->extents) {
        status = wefti_error(WEFT_ERR_NO_MEMORY, "no memory for %zu buckets",
                             config->count);
        goto err_destroy;
    }
    memcpy(set->extents, config->extents,
           config->count * sizeof(*set->extents));
    set->config.extents = set->extents;
    status = open_queues(set);
    if (status != WEFT_OK) {
        goto err_destroy;
    }
    *set_out = set;
    return WEFT_OK;

err_destroy:
    weft_bucket_destroy(set);
    return status;
}

void weft_bucket_destroy(weft_bucket_set *set)
{
    if (!set) {
        return;
    }
    weft_stream_destroy(set->stream);
    weft_gate_destroy(set->begun);
    weft_gate_destroy(set->arrived);
    weft_gate_destroy(set->ready);
    free(set->extents);
    free(set);
}

/* Posts in order until end positions are in flight. */
static weft_status post_until(weft_bucket_set *set, size_t end)
{
    while (set->posted < end && set->posted < set->config.count) {
        weft_op op = make_op(set, in_order(set, set->posted));
        weft_status status =
            weft_op_post(&op, set->epoch, set->config.comm, set->stream);
        if (status != WEFT_OK) {
            return status;
        }
        set->posted++;
    }
    return WEFT_OK;
}

static weft_status check_set(const weft_bucket_set *set)
{
    return set ? WEFT_OK
               : wefti_error(WEFT_ERR_INVALID,
                             "set is NULL: allowed is an object");
}

static weft_status check_bucket(const weft_bucket_set *set, size_t bucket)
{
    weft_status status = check_set(set);
    if (status == WEFT_OK && bucket >= set->config.count) {
        status =
            wefti_error(WEFT_ERR_INVALID, "bucket %zu: allowed is 0 .. %zu",
                        bucket, set->config.count - 1);
    }
    return status;
}

/* The round's operations may touch the buffer when compute has come here. */
static weft_status hold_back(weft_bucket_set *set)
{
    weft_stream *compute = set->config.compute;
    weft_status status = WEFT_OK;
    if (compute) {
        status = weft_gate_signal(set->begun, 0, set->epoch, compute);
    }
    return compute && status == WEFT_OK
               ? weft_gate_wait(set->begun, 0, set->epoch, set->stream)
               : status;
}

weft_status weft_bucket_begin(weft_bucket_set *set, weft_bucket_mode mode)
{
    weft_status status = check_set(set);
    if (status != WEFT_OK) {
        return status;
    }
    if (mode != WEFT_BUCKET_OVERLAPPED && mode != WEFT_BUCKET_BLOCKING &&
        mode != WEFT_BUCKET_OFF) {
        return wefti_error(WEFT_ERR_INVALID,
                           "mode %d: allowed is OVERLAPPED, BLOCKING or OFF",
                           (int)mode);
    }
    if (set->epoch > 0 && set->next < set->config.count) {
        return wefti_error(WEFT_ERR_INVALID,
                           "bucket %zu of round %llu is not ready yet: allowed "
                           "is to begin when all are",
                           in_order(set, set->next),
                           (unsigned long long)set->epoch);
    }
    /* A single rank has no peer to send to, and its share is all there is. */
    set->mode = set->nranks == 1 ? WEFT_BUCKET_OFF : mode;
    set->epoch++;
    set->posted = 0;
    set->next = 0;
    if (set->mode != WEFT_BUCKET_OVERLAPPED) {
        return WEFT_OK;
    }
    status = hold_back(set);
    return status == WEFT_OK ? post_until(set, POSTED_AHEAD) : status;
}

static weft_status check_next(const weft_bucket_set *set, size_t bucket)
{
    weft_status status = check_bucket(set, bucket);
    if (status != WEFT_OK) {
        return status;
    }
    if (set->epoch == 0 || set->next == set->config.count) {
        return wefti_error(WEFT_ERR_INVALID,
                           "bucket %zu: no round has begun that waits for it",
                           bucket);
    }
    if (bucket != in_order(set, set->next)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "bucket %zu: allowed is %zu, the next in order",
                           bucket, in_order(set, set->next));
    }
    return WEFT_OK;
}

weft_status weft_bucket_ready(weft_bucket_set *set, size_t bucket)
{
    weft_status status = check_next(set, bucket);
    if (status != WEFT_OK) {
        return status;
    }
    set->next++;
    weft_stream *compute = set->config.compute;
    status = weft_gate_signal(set->ready, bucket, set->epoch, compute);
    if (status != WEFT_OK) {
        return status;
    }
    switch (set->mode) {
    case WEFT_BUCKET_OVERLAPPED:
        return post_until(set, set->next + POSTED_AHEAD);
    case WEFT_BUCKET_BLOCKING: {
        weft_op op = make_op(set, bucket);
        return weft_op_post(&op, set->epoch, set->config.comm, compute);
    }
    case WEFT_BUCKET_OFF:
        break;
    }
    return weft_gate_signal(set->arrived, bucket, set->epoch, compute);
}

weft_status weft_bucket_wait(weft_bucket_set *set, size_t bucket)
{
    weft_status status = check_bucket(set, bucket);
    if (status != WEFT_OK || set->epoch == 0) {
        return status;
    }
    return wefti_comm_explain_fault(
        set->config.comm,
        weft_gate_wait(set->arrived, bucket, set->epoch, set->config.compute));
}

weft_status weft_bucket_test(weft_bucket_set *set, size_t bucket)
{
    weft_status status = check_bucket(set, bucket);
    if (status != WEFT_OK || set->epoch == 0) {
        return status;
    }
    return wefti_comm_explain_fault(
        set->config.comm, weft_gate_test(set->arrived, bucket, set->epoch));
}
