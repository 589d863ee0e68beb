/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/streams_join.c - from what each rank has to staging that all reach:
 *
 *   prepare   staging of its own, or why not
 *   offer     where it lies, for this process and for others
 *   meet      each opens the others', and the marks
 *   try       a gathering whose result is known, and with kernels a sum
 *
 * After each all agree that it has been done, or give it up.
 */
#include "comm/make/route_join.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "comm/make/patience.h"
#include "comm/make/streams_end.h"
#include "comm/post/consensus.h"
#include "comm/post/post.h"
#include "comm/streams/lent.h"
#include "kernels/wire/launch.h"

#include <assert.h>
#include <stdio.h>
#include <time.h>

/* What a rank has for the others. */
typedef struct offer {
    int32_t launches;
    wefti_lent staging;
} offer;

static_assert(sizeof(offer) <= sizeof(wefti_verdict),
              "comm->table has room for one of each rank");

static weft_status check(const weft_comm *comm)
{
    if (comm->nranks == 1) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "it has no other rank to move anything to");
    }
    if (comm->local_count != comm->nranks) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "its ranks are on several hosts");
    }
    if (comm->nranks > WEFTI_LAUNCH_SOURCES) {
        return wefti_error(WEFT_ERR_UNSUPPORTED, "it has more than %d ranks",
                           WEFTI_LAUNCH_SOURCES);
    }
    if (comm->device && !comm->copies) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "its device is %s, whose memory the host reads",
                           wefti_device_get_table(comm->device)->kind);
    }
    return comm->device ? WEFT_OK
                        : wefti_error(WEFT_ERR_UNSUPPORTED,
                                      "it was made without a device");
}

static weft_status make_offer(const wefti_streams *streams, offer *made)
{
    weft_comm *comm = streams->comm;
    made->launches = wefti_device_can(comm->device, WEFT_CAP_LAUNCHES);
    return wefti_lent_offer(comm, streams->staging, &made->staging);
}

static weft_status reach(wefti_streams *streams, int peer, const offer *theirs)
{
    wefti_streams_peer *own = &streams->peers[peer];
    void *staging;
    weft_status status = wefti_lent_reach(streams->comm, peer, &theirs->staging,
                                          &staging, &own->imported);
    own->staging = staging;
    return status;
}

/* The offers are in comm->table, which no call here uses. */
static weft_status meet(wefti_streams *streams)
{
    const weft_comm *comm = streams->comm;
    const offer *offers = comm->table;
    weft_status status = WEFT_OK;
    streams->reduces = true;
    for (int peer = 0; status == WEFT_OK && peer < comm->nranks; peer++) {
        streams->reduces &= offers[peer].launches != 0;
        status = reach(streams, peer, &offers[peer]);
        if (status == WEFT_OK) {
            status = wefti_streams_meet(streams, peer);
        }
    }
    return status;
}

/* ---- the first use ------------------------------------------------------- */

static weft_status run(wefti_streams *streams, const weft_op *op,
                       weft_event *event)
{
    weft_status status = wefti_streams_carry(streams, op, streams->stream);
    return status == WEFT_OK
               ? wefti_patience_await(streams->comm, streams->stream, event,
                                      "a first operation")
               : status;
}

/* data: of the device, WEFTI_TRIED_ELEMS for each rank, and as many. */
static weft_status use(wefti_streams *streams, int32_t *data, weft_event *event)
{
    weft_comm *comm = streams->comm;
    int32_t *own = data + (size_t)comm->nranks * WEFTI_TRIED_ELEMS;
    weft_op op = {.collective = WEFT_COLLECTIVE_ALLGATHER,
                  .send = own,
                  .recv = data,
                  .count = WEFTI_TRIED_ELEMS,
                  .dtype = WEFT_DTYPE_I32};
    weft_status status = wefti_patience_put(comm, own, comm->rank + 1);
    if (status == WEFT_OK) {
        status = run(streams, &op, event);
    }
    for (int rank = 0; status == WEFT_OK && rank < comm->nranks; rank++) {
        status = wefti_patience_compare(
            comm, data + (size_t)rank * WEFTI_TRIED_ELEMS, rank + 1,
            "a first gathering by streams");
    }
    if (status != WEFT_OK || !streams->reduces) {
        return status;
    }
    op.collective = WEFT_COLLECTIVE_ALLREDUCE;
    status = run(streams, &op, event);
    return status == WEFT_OK
               ? wefti_patience_compare(comm, data,
                                        comm->nranks * (comm->nranks + 1) / 2,
                                        "a first sum by streams")
               : status;
}

/* Whether its streams have come to their ends, which no mark keeps from them
 * any more; at once, or after a second at most. */
static bool give_up(wefti_streams *streams)
{
    pthread_mutex_t *lock = &streams->comm->engine->lock;
    const int64_t until_ns = wefti_clock_ns() + INT64_C(1000000000);
    const struct timespec pause = {0, 100000};
    bool over;
    do {
        pthread_mutex_lock(lock);
        wefti_streams_stop(streams);
        over = wefti_streams_are_over(streams);
        pthread_mutex_unlock(lock);
        nanosleep(&pause, NULL);
    } while (!over && wefti_clock_ns() < until_ns);
    return over;
}

static weft_status try(wefti_streams *streams)
{
    weft_comm *comm = streams->comm;
    void *data = NULL;
    weft_event *event = NULL;
    const size_t elems = ((size_t)comm->nranks + 1) * WEFTI_TRIED_ELEMS;
    weft_status status =
        weft_device_alloc(comm->device, elems * sizeof(int32_t), &data);
    if (status == WEFT_OK) {
        status = weft_event_create(comm->device, &event);
    }
    if (status == WEFT_OK) {
        status = use(streams, data, event);
    }
    for (int op = 0; op < 1 + streams->reduces; op++) {
        wefti_streams_count_done(streams);
    }
    char why[256];
    snprintf(why, sizeof(why), "%s", status ? weft_error_text() : "");
    if (status == WEFT_OK || give_up(streams)) {
        weft_event_destroy(event);
        weft_device_free(comm->device, data);
    } /* else the stream is still at them: both are lost */
    return status ? wefti_error(status, "%s", why) : WEFT_OK;
}

static weft_status make(weft_comm *comm, wefti_streams **streams_out)
{
    offer own = {0};
    weft_status status = check(comm);
    if (status == WEFT_OK) {
        status = wefti_streams_create(comm, streams_out);
    }
    if (status == WEFT_OK) {
        status = make_offer(*streams_out, &own);
    }
    status = wefti_patience_conclude(comm, "prepare streams", status);
    if (status == WEFT_OK) {
        status = wefti_post_exchange(WEFTI_PURPOSE_ROUTE, &own, comm->table,
                                     sizeof(own), comm);
    }
    if (status == WEFT_OK) {
        status = wefti_patience_conclude(comm, "reach the others' memory",
                                         meet(*streams_out));
    }
    return status == WEFT_OK
               ? wefti_patience_conclude(comm, "use streams", try(*streams_out))
               : status;
}

void wefti_streams_join(weft_comm *comm)
{
    wefti_streams *streams = NULL;
    if (make(comm, &streams) != WEFT_OK) {
        wefti_route_keep_why(comm, weft_error_text());
        if (streams) {
            (void)give_up(streams);
        }
        wefti_streams_end(streams);
        return;
    }
    pthread_mutex_lock(&comm->engine->lock);
    comm->streams = streams;
    if (comm->failed != WEFT_OK) {
        wefti_streams_stop(streams);
    }
    pthread_mutex_unlock(&comm->engine->lock);
    wefti_log(WEFTI_LOG_INFO, comm->rank,
              "\"%s\": collectives of device memory are carried out by their "
              "streams%s; messages, v forms, barriers and what gates cut into "
              "chunks by weft's own steps",
              comm->name,
              streams->reduces ? "" : ", but for those that reduce");
}
