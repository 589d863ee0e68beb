/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * overlap/bucket.c - bucketed collectives bound to gates.
 *
 * Operations are posted in the order in which their buckets get ready, at most
 * POSTED_AHEAD before that: a communicator holds a limited number in flight,
 * and a caller that blocked in a post could never make the data that the
 * operation before waits for. With the window, whatever a post may wait for
 * already has its data on this rank.
 *
 *   order:   0   1   2  ...  i | i+1 ... i+POSTED_AHEAD |  not posted
 *            ready (may fly)   | waiting at their gate  |
 */
#include "overlap/bucket.h"

#include "base/check.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

/* Leaves a quarter of the default ops_in_flight to those still completing. */
enum { POSTED_AHEAD = 12 };

struct wefti_bucket_set {
    wefti_bucket_config config;
    wefti_bucket_extent *extents;
    weft_gate *ready;   /* signalled by the producer */
    weft_gate *arrived; /* signalled by the operation */
    weft_stream *stream;
    int rank, nranks;
    wefti_bucket_mode mode;
    uint64_t epoch; /* of the current round; 0: none yet */
    size_t posted;  /* in the current round, in order */
    size_t next;    /* which position gets ready next */
};

/* The bucket at a position of the order, or the position of a bucket. */
static size_t in_order(const wefti_bucket_set *set, size_t index)
{
    return set->config.backwards ? set->config.count - 1 - index : index;
}

static weft_op make_op(const wefti_bucket_set *set, size_t bucket)
{
    const wefti_bucket_config *config = &set->config;
    wefti_bucket_extent extent = set->extents[bucket];
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

static weft_status check_config(const wefti_bucket_config *config)
{
    if (config->collective != WEFT_COLLECTIVE_REDUCESCATTER &&
        config->collective != WEFT_COLLECTIVE_ALLGATHER) {
        return wefti_error(WEFT_ERR_INVALID,
                           "collective %s: buckets allow %s and %s",
                           weft_collective_text(config->collective),
                           weft_collective_text(WEFT_COLLECTIVE_REDUCESCATTER),
                           weft_collective_text(WEFT_COLLECTIVE_ALLGATHER));
    }
    if (!config->comm || !config->device || !config->buffer ||
        !config->extents || config->count == 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "a bucket set needs a communicator, a device, a "
                           "buffer and at least one bucket");
    }
    return WEFT_OK;
}

static weft_status open_queues(wefti_bucket_set *set)
{
    weft_device *device = set->config.device;
    weft_status status =
        weft_gate_create(device, set->config.count, &set->ready);
    if (status == WEFT_OK) {
        status = weft_gate_create(device, set->config.count, &set->arrived);
    }
    if (status == WEFT_OK) {
        status = weft_stream_create(device, 0, &set->stream);
    }
    return status;
}

weft_status wefti_bucket_create(const wefti_bucket_config *config,
                                wefti_bucket_set **set_out)
{
    weft_status status = check_config(config);
    if (status != WEFT_OK) {
        return status;
    }
    wefti_bucket_set *set = calloc(1, sizeof(*set));
    if (!set) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a bucket set");
    }
    set->config = *config;
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
    wefti_bucket_destroy(set);
    return status;
}

void wefti_bucket_destroy(wefti_bucket_set *set)
{
    if (!set) {
        return;
    }
    weft_stream_destroy(set->stream);
    weft_gate_destroy(set->arrived);
    weft_gate_destroy(set->ready);
    free(set->extents);
    free(set);
}

/* Posts in order until end positions are in flight. */
static weft_status post_until(wefti_bucket_set *set, size_t end)
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

weft_status wefti_bucket_begin(wefti_bucket_set *set, wefti_bucket_mode mode)
{
    WEFTI_ASSERT(set->epoch == 0 || set->next == set->config.count);
    /* A single rank has nobody to send to, and its share is all there is. */
    set->mode = set->nranks == 1 ? WEFTI_BUCKET_OFF : mode;
    set->epoch++;
    set->posted = 0;
    set->next = 0;
    return set->mode == WEFTI_BUCKET_OVERLAPPED ? post_until(set, POSTED_AHEAD)
                                                : WEFT_OK;
}

weft_status wefti_bucket_ready(wefti_bucket_set *set, size_t bucket)
{
    WEFTI_ASSERT(set->next < set->config.count);
    WEFTI_ASSERT(bucket == in_order(set, set->next));
    set->next++;
    weft_status status = weft_gate_signal(set->ready, bucket, set->epoch, NULL);
    if (status != WEFT_OK) {
        return status;
    }
    switch (set->mode) {
    case WEFTI_BUCKET_OVERLAPPED:
        return post_until(set, set->next + POSTED_AHEAD);
    case WEFTI_BUCKET_BLOCKING: {
        weft_op op = make_op(set, bucket);
        return weft_op_post(&op, set->epoch, set->config.comm, NULL);
    }
    case WEFTI_BUCKET_OFF:
        break;
    }
    return weft_gate_signal(set->arrived, bucket, set->epoch, NULL);
}

/* A gate knows that its operation has failed; the communicator, why. */
static weft_status tell_fault(const wefti_bucket_set *set, weft_status status)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    if (status < 0 &&
        weft_comm_get_fault(set->config.comm, &fault) == WEFT_OK &&
        fault.status != WEFT_OK) {
        return wefti_error(fault.status, "%s", fault.text);
    }
    return status;
}

weft_status wefti_bucket_wait(wefti_bucket_set *set, size_t bucket)
{
    if (set->epoch == 0) {
        return WEFT_OK;
    }
    return tell_fault(set,
                      weft_gate_wait(set->arrived, bucket, set->epoch, NULL));
}

weft_status wefti_bucket_test(wefti_bucket_set *set, size_t bucket)
{
    if (set->epoch == 0) {
        return WEFT_OK;
    }
    return tell_fault(set, weft_gate_test(set->arrived, bucket, set->epoch));
}
