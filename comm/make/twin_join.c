/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/make/twin_join.c - from what each rank offers to twins of all:
 *
 *   offer     what each rank has: NCCL's version, its GPU, or why not
 *   id        of the first rank, to all
 *   init      all at once; given up where a rank has died, or has failed
 *   conclude  all have it, or the first that has not says why
 *   try       a sum whose result is known, and a message from the rank before,
 *             to the next; and conclude once more
 *
 * Each exchange is one of comm's own all-gathers, so that a rank that is lost
 * is named as in any operation.
 */
#include "comm/make/route_join.h"

#include "base/error.h"
#include "base/log.h"
#include "comm/make/patience.h"
#include "comm/nccl/twin.h"
#include "comm/post/consensus.h"
#include "comm/post/post.h"
#include "device/cuda.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What a rank can do: version 0, and text says why it cannot, or text is its
 * GPU. */
typedef struct offer {
    int32_t version;
    int32_t capability;
    char text[120];
} offer;

static_assert(sizeof(offer) <= sizeof(wefti_verdict) &&
                  sizeof(wefti_nccl_id) <= sizeof(wefti_verdict),
              "comm->table has room for one of each rank");

/* ---- agreement ----------------------------------------------------------- */

static weft_status find_gpu(const weft_comm *comm, wefti_cuda_info *info_out)
{
    const wefti_device_table *table =
        comm->device ? wefti_device_get_table(comm->device) : NULL;
    if (!table || strcmp(table->kind, "cuda") != 0) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "its device is %s: NCCL is for those of kind cuda",
                           table ? table->kind : "none");
    }
    return wefti_cuda_describe(wefti_device_get_index(comm->device), info_out);
}

/* And the id of the twins, of rank 0. */
static offer make_offer(const weft_comm *comm, const wefti_nccl_api **api_out,
                        wefti_nccl_id *id_out)
{
    offer made = {0};
    wefti_cuda_info info;
    weft_status status = find_gpu(comm, &info);
    if (status == WEFT_OK) {
        status = wefti_nccl_api_open(api_out);
    }
    memset(id_out, 0, sizeof(*id_out));
    if (status == WEFT_OK && comm->rank == 0) {
        const int result = (*api_out)->ncclGetUniqueId(id_out);
        status =
            result == WEFTI_NCCL_SUCCESS
                ? WEFT_OK
                : wefti_nccl_error(*api_out, NULL, result, "ncclGetUniqueId");
    }
    if (status == WEFT_OK) {
        made.version = (*api_out)->version;
        made.capability = info.major;
    }
    snprintf(made.text, sizeof(made.text), "%s",
             status == WEFT_OK ? info.uuid : weft_error_text());
    return made;
}

/* Two ranks that do not go together; false: all do. Whether ranks of one GPU
 * do is for NCCL to say where shared is set: later versions can, and ranks
 * that it takes for other hosts' do so, too. */
static bool find_misfit(const weft_comm *comm, char *why, size_t why_bytes)
{
    const offer *offers = comm->table;
    const bool shared = comm->tuning.nccl_shared;
    for (int rank = 0; rank < comm->nranks; rank++) {
        const offer *one = &offers[rank];
        if (one->version == 0) {
            snprintf(why, why_bytes, "rank %d: %.*s", rank,
                     (int)sizeof(one->text) - 1, one->text);
            return true;
        }
        if (one->version != offers[0].version) {
            char first[32], own[32];
            wefti_nccl_version_text(offers[0].version, first, sizeof(first));
            wefti_nccl_version_text(one->version, own, sizeof(own));
            snprintf(why, why_bytes, "rank 0 has NCCL %s, rank %d %s", first,
                     rank, own);
            return true;
        }
        for (int other = 0; other < rank && !shared; other++) {
            if (strncmp(one->text, offers[other].text, sizeof(one->text)) ==
                0) {
                snprintf(why, why_bytes,
                         "ranks %d and %d have one GPU, %.60s: NCCL needs one "
                         "for each, unless WEFT_NCCL_SHARED_GPU is on",
                         other, rank, one->text);
                return true;
            }
        }
    }
    return false;
}

static bool all_add_small_floats(const offer *offers, int nranks)
{
    bool all = offers[0].version >= WEFTI_NCCL_SMALL_FLOATS_VERSION;
    for (int rank = 0; all && rank < nranks; rank++) {
        all = offers[rank].capability >= 9;
    }
    return all;
}

/* ---- making -------------------------------------------------------------- */

/* A call of NCCL, to its end; calls is held, the device entered. */
static weft_status await_call(wefti_twin *twin, int result, const char *what)
{
    wefti_patience waits = wefti_patience_begin(twin->comm, what);
    while (result == WEFTI_NCCL_IN_PROGRESS) {
        weft_status status = wefti_patience_go_on(&waits);
        if (status != WEFT_OK) {
            return status;
        }
        const int asked =
            twin->api->ncclCommGetAsyncError(twin->handle, &result);
        result = asked == WEFTI_NCCL_SUCCESS ? result : asked;
    }
    return result == WEFTI_NCCL_SUCCESS
               ? WEFT_OK
               : wefti_nccl_error(twin->api, twin->handle, result, what);
}

static weft_status init(wefti_twin *twin, const wefti_nccl_id *id)
{
    weft_comm *comm = twin->comm;
    wefti_nccl_config config = {.size = sizeof(config),
                                .magic = WEFTI_NCCL_MAGIC,
                                .version = WEFTI_NCCL_FIRST_VERSION,
                                .blocking = 0};
    weft_status status = weft_stream_create(comm->device, 0, &twin->stream);
    if (status == WEFT_OK) {
        status = wefti_cuda_device_enter(comm->device);
    }
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&twin->calls);
    const int result = twin->api->ncclCommInitRankConfig(
        &twin->handle, comm->nranks, *id, comm->rank, &config);
    status = await_call(twin, result, "ncclCommInitRankConfig");
    pthread_mutex_unlock(&twin->calls);
    wefti_cuda_device_leave(comm->device);
    return status;
}

/* One first use of NCCL: call's, to its end. */
static weft_status run(wefti_twin *twin, int32_t *data, weft_event *event,
                       int (*call)(const wefti_twin *twin, int32_t *data),
                       const char *what)
{
    weft_comm *comm = twin->comm;
    weft_status status = wefti_cuda_device_enter(comm->device);
    if (status != WEFT_OK) {
        return status;
    }
    pthread_mutex_lock(&twin->calls);
    status = await_call(twin, call(twin, data), what);
    pthread_mutex_unlock(&twin->calls);
    wefti_cuda_device_leave(comm->device);
    return status == WEFT_OK
               ? wefti_patience_await(comm, twin->stream, event, what)
               : status;
}

static int call_sum(const wefti_twin *twin, int32_t *data)
{
    return twin->api->ncclAllReduce(
        data, data, WEFTI_TRIED_ELEMS, WEFTI_NCCL_INT32, WEFTI_NCCL_SUM,
        twin->handle, weft_stream_get_native(twin->stream));
}

/* To the next rank, from the one before. */
static int call_messages(const wefti_twin *twin, int32_t *data)
{
    const wefti_nccl_api *api = twin->api;
    const int rank = twin->comm->rank, nranks = twin->comm->nranks;
    struct CUstream_st *stream = weft_stream_get_native(twin->stream);
    int result = api->ncclGroupStart();
    if (result != WEFTI_NCCL_SUCCESS) {
        return result;
    }
    const int sent = api->ncclSend(data, WEFTI_TRIED_ELEMS, WEFTI_NCCL_INT32,
                                   (rank + 1) % nranks, twin->handle, stream);
    const int received = api->ncclRecv(
        data + WEFTI_TRIED_ELEMS, WEFTI_TRIED_ELEMS, WEFTI_NCCL_INT32,
        (rank + nranks - 1) % nranks, twin->handle, stream);
    result = api->ncclGroupEnd();
    return sent != WEFTI_NCCL_SUCCESS       ? sent
           : received != WEFTI_NCCL_SUCCESS ? received
                                            : result;
}

/* What is relied on later is used once, and the result looked at. */
static weft_status try_sum(wefti_twin *twin, int32_t *data, weft_event *event)
{
    const weft_comm *comm = twin->comm;
    weft_status status = wefti_patience_put(comm, data, comm->rank + 1);
    if (status == WEFT_OK) {
        status = run(twin, data, event, call_sum, "a first sum");
    }
    return status == WEFT_OK
               ? wefti_patience_compare(comm, data,
                                        comm->nranks * (comm->nranks + 1) / 2,
                                        "a first sum")
               : status;
}

static weft_status try_messages(wefti_twin *twin, int32_t *data,
                                weft_event *event)
{
    const weft_comm *comm = twin->comm;
    const int before = (comm->rank + comm->nranks - 1) % comm->nranks;
    weft_status status = comm->nranks > 1
                             ? wefti_patience_put(comm, data, comm->rank + 1)
                             : WEFT_OK;
    if (status != WEFT_OK || comm->nranks == 1) {
        return status;
    }
    status = run(twin, data, event, call_messages, "a first message");
    return status == WEFT_OK
               ? wefti_patience_compare(comm, data + WEFTI_TRIED_ELEMS,
                                        before + 1, "a first message")
               : status;
}

static weft_status try(wefti_twin *twin)
{
    void *data = NULL;
    weft_event *event = NULL;
    weft_device *device = twin->comm->device;
    weft_status status = weft_device_alloc(
        device, 2 * WEFTI_TRIED_ELEMS * sizeof(int32_t), &data);
    if (status == WEFT_OK) {
        status = weft_event_create(device, &event);
    }
    if (status == WEFT_OK) {
        status = try_sum(twin, data, event);
    }
    if (status == WEFT_OK) {
        status = try_messages(twin, data, event);
    }
    if (status != WEFT_OK) {
        /* Before its memory goes: nothing may still write there. */
        char why[256];
        snprintf(why, sizeof(why), "%s", weft_error_text());
        wefti_twin_abort(twin);
        const bool over = wefti_twin_await_abort(twin);
        if (!over || weft_stream_wait(twin->stream) != WEFT_OK) {
            data = NULL; /* lost with the GPU, or with what NCCL holds */
        }
        status = wefti_error(status, "%s", why);
    }
    weft_event_destroy(event);
    weft_device_free(device, data);
    return status;
}

/* All the rest; *twin_out is to be ended where it fails. */
static weft_status make(weft_comm *comm, const wefti_nccl_api *api,
                        bool small_floats, const wefti_nccl_id *id,
                        wefti_twin **twin_out)
{
    weft_status status = wefti_twin_create(comm, api, small_floats, twin_out);
    if (status == WEFT_OK) {
        status = init(*twin_out, id);
    }
    status = wefti_patience_conclude(comm, "join NCCL", status);
    return status == WEFT_OK
               ? wefti_patience_conclude(comm, "use NCCL", try(*twin_out))
               : status;
}

/* From here on it carries operations out; of a communicator that has failed
 * meanwhile it will not. */
static void take_into_use(weft_comm *comm, wefti_twin *twin)
{
    pthread_mutex_lock(&comm->engine->lock);
    comm->twin = twin;
    if (comm->failed != WEFT_OK) {
        wefti_twin_abort(twin);
    }
    pthread_mutex_unlock(&comm->engine->lock);
}

void wefti_twin_join(weft_comm *comm)
{
    const wefti_nccl_api *api = NULL;
    wefti_nccl_id id;
    const offer own = make_offer(comm, &api, &id);
    if (wefti_post_exchange(WEFTI_PURPOSE_ROUTE, &own, comm->table, sizeof(own),
                            comm) != WEFT_OK) {
        return;
    }
    char why[sizeof(comm->route_why)];
    if (find_misfit(comm, why, sizeof(why))) {
        wefti_route_keep_why(comm, why);
        return;
    }
    const bool small_floats = all_add_small_floats(comm->table, comm->nranks);
    if (wefti_post_exchange(WEFTI_PURPOSE_ROUTE, &id, comm->table, sizeof(id),
                            comm) != WEFT_OK) {
        return;
    }
    memcpy(&id, comm->table, sizeof(id));
    wefti_twin *twin = NULL;
    if (make(comm, api, small_floats, &id, &twin) != WEFT_OK) {
        wefti_route_keep_why(comm, weft_error_text());
        if (twin) {
            wefti_twin_abort(twin);
        }
        wefti_twin_end(twin);
        return;
    }
    assert(api); /* else no misfit would have been none */
    take_into_use(comm, twin);
    char version[32];
    wefti_nccl_version_text(api->version, version, sizeof(version));
    wefti_log(WEFTI_LOG_INFO, comm->rank,
              "\"%s\": collectives and messages of GPU memory go by NCCL %s; "
              "barriers and what gates cut into chunks by weft's own steps",
              comm->name, version);
}
