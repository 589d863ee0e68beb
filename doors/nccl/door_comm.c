/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_comm.c - the list, a table of short chains by address, each
 * with a lock of its own; what is on it is the process's.
 */
#include "doors/nccl/door_comm.h"

#include "doors/nccl/door_aside.h"

#include "doors/nccl/door_text.h"

#include <stdlib.h>
#include <time.h>

/* Who is inside may wait for another communicator, in one group; it gives this
 * one back then. */
enum { CHAINS = 64, MOST_WAIT_S = 2 };

/* left: somebody has left one of the chain's communicators. */
typedef struct wefti_door_chain {
    pthread_mutex_t lock;
    pthread_cond_t left;
    wefti_door_comm *first;
} wefti_door_chain;

#define CHAIN                                                                  \
    {                                                                          \
        PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL              \
    }
#define CHAINS_8 CHAIN, CHAIN, CHAIN, CHAIN, CHAIN, CHAIN, CHAIN, CHAIN

/* Of the process. */
static wefti_door_chain chains[CHAINS] = {CHAINS_8, CHAINS_8, CHAINS_8,
                                          CHAINS_8, CHAINS_8, CHAINS_8,
                                          CHAINS_8, CHAINS_8};

static wefti_door_chain *chain_of(const void *handle)
{
    const uintptr_t address = (uintptr_t)handle;
    return &chains[((address >> 4) ^ (address >> 10)) % CHAINS];
}

struct ncclComm *wefti_door_handle(wefti_door_comm *comm)
{
    return (struct ncclComm *)(void *)comm;
}

wefti_door_comm *wefti_door_comm_create(int rank, int nranks,
                                        const wefti_door_wish *wish,
                                        weft_device *device, int ordinal)
{
    wefti_door_comm *comm = calloc(1, sizeof(*comm));
    if (!comm || weft_cancel_create(&comm->cancel) != WEFT_OK) {
        wefti_door_error(WEFTI_DOOR_SYSTEM_ERROR,
                         "a communicator: out of memory or descriptors");
        free(comm);
        return NULL;
    }
    pthread_mutex_init(&comm->lock, NULL);
    comm->rank = rank;
    comm->nranks = nranks;
    comm->wish = *wish;
    comm->device = device;
    comm->ordinal = ordinal;
    comm->inside = 1;
    wefti_door_report_init(&comm->report);
    wefti_door_chain *chain = chain_of(comm);
    pthread_mutex_lock(&chain->lock);
    comm->next = chain->first;
    chain->first = comm;
    pthread_mutex_unlock(&chain->lock);
    return comm;
}

int wefti_door_enter(struct ncclComm *handle, const char *call,
                     wefti_door_comm **comm_out)
{
    wefti_door_chain *chain = chain_of(handle);
    *comm_out = NULL;
    if (!handle) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: comm is NULL: allowed is a communicator",
                                call);
    }
    pthread_mutex_lock(&chain->lock);
    wefti_door_comm *at = chain->first;
    while (at && wefti_door_handle(at) != handle) {
        at = at->next;
    }
    if (at) {
        at->inside++;
    }
    pthread_mutex_unlock(&chain->lock);
    if (!at) {
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: comm %p is not a weft communicator "
                                "(destroyed, or created by another NCCL?)",
                                call, (void *)handle);
    }
    *comm_out = at;
    return WEFTI_DOOR_SUCCESS;
}

void wefti_door_stay(wefti_door_comm *comm)
{
    wefti_door_chain *chain = chain_of(comm);
    pthread_mutex_lock(&chain->lock);
    comm->inside++;
    pthread_mutex_unlock(&chain->lock);
}

static void forget_requests(wefti_door_comm *comm)
{
    for (size_t i = 0; i < comm->request_count; i++) {
        weft_request_destroy(comm->requests[i]);
    }
    comm->request_count = 0;
}

/* Nobody is inside any more. */
static void destroy(wefti_door_comm *comm)
{
    wefti_door_report_print(&comm->report,
                            &(wefti_door_reporter){.name = comm->wish.name,
                                                   .carrier = "weft",
                                                   .hash = comm->hash,
                                                   .rank = comm->rank,
                                                   .nranks = comm->nranks});
    weft_comm_destroy(comm->weft);
    forget_requests(comm);
    wefti_door_aside_free(comm);
    for (size_t i = 0; i < comm->stream_count; i++) {
        weft_stream_destroy(comm->streams[i].stream);
    }
    weft_device_close(comm->device);
    weft_cancel_destroy(comm->cancel);
    pthread_mutex_destroy(&comm->lock);
    free(comm->requests);
    free(comm->redops);
    free(comm->streams);
    free(comm);
}

void wefti_door_leave(wefti_door_comm *comm)
{
    wefti_door_chain *chain = chain_of(comm);
    pthread_mutex_lock(&chain->lock);
    comm->inside--;
    if (comm->leaving) {
        pthread_cond_broadcast(&chain->left);
    }
    const bool last = comm->inside == 0 && comm->leaving;
    pthread_mutex_unlock(&chain->lock);
    if (last) {
        destroy(comm);
    }
}

int wefti_door_take(wefti_door_comm *comm, const char *call)
{
    wefti_door_chain *chain = chain_of(comm);
    pthread_mutex_lock(&chain->lock);
    wefti_door_comm **at = &chain->first;
    while (*at && *at != comm) {
        at = &(*at)->next;
    }
    const bool found = *at != NULL;
    if (found) {
        *at = comm->next;
        comm->leaving = true;
    }
    pthread_mutex_unlock(&chain->lock);
    if (!found) {
        wefti_door_leave(comm);
        return wefti_door_error(WEFTI_DOOR_INVALID_ARGUMENT,
                                "%s: another thread ends this communicator",
                                call);
    }
    return WEFTI_DOOR_SUCCESS;
}

void wefti_door_drop(wefti_door_comm *comm)
{
    wefti_door_chain *chain = chain_of(comm);
    struct timespec until;
    int error = 0;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += MOST_WAIT_S;
    pthread_mutex_lock(&chain->lock);
    while (comm->inside > 1 && error == 0) {
        error = pthread_cond_timedwait(&chain->left, &chain->lock, &until);
    }
    pthread_mutex_unlock(&chain->lock);
    wefti_door_leave(comm);
}

weft_comm *wefti_door_get_weft(wefti_door_comm *comm)
{
    pthread_mutex_lock(&comm->lock);
    weft_comm *weft = comm->weft;
    pthread_mutex_unlock(&comm->lock);
    return weft;
}

/* What of the requests is not done. An error is the communicator's fault, which
 * the caller finds there. Lock held. */
static bool is_pending(wefti_door_comm *comm)
{
    size_t kept = 0;
    for (size_t i = 0; i < comm->request_count; i++) {
        weft_request *request = comm->requests[i];
        if (weft_request_test(request) == WEFT_INPROGRESS) {
            comm->requests[kept++] = request;
        } else {
            weft_request_destroy(request);
        }
    }
    comm->request_count = kept;
    return kept > 0;
}

/* A communicator that was revoked has been stopped on purpose. Lock held. */
static int find_fault(wefti_door_comm *comm)
{
    weft_fault fault = {.size_bytes = sizeof(fault)};
    if (!comm->weft || comm->revoked ||
        weft_comm_get_fault(comm->weft, &fault) != WEFT_OK ||
        fault.status == WEFT_OK) {
        return WEFTI_DOOR_SUCCESS;
    }
    return wefti_door_error(wefti_door_result_of(fault.status), "%s",
                            fault.text);
}

int wefti_door_settle(wefti_door_comm *comm)
{
    int result;
    pthread_mutex_lock(&comm->lock);
    const bool pending = is_pending(comm);
    if (comm->busy > 0) {
        result = WEFTI_DOOR_IN_PROGRESS;
    } else if (comm->state != WEFTI_DOOR_SUCCESS) {
        result = comm->state;
    } else {
        result = find_fault(comm);
        if (result == WEFTI_DOOR_SUCCESS && pending) {
            result = WEFTI_DOOR_IN_PROGRESS;
        }
    }
    pthread_mutex_unlock(&comm->lock);
    return result;
}

int wefti_door_enter_ready(struct ncclComm *handle, const char *call,
                           wefti_door_comm **comm_out)
{
    int result = wefti_door_enter(handle, call, comm_out);
    if (result != WEFTI_DOOR_SUCCESS) {
        return result;
    }
    wefti_door_comm *comm = *comm_out;
    pthread_mutex_lock(&comm->lock);
    const bool going_on = comm->busy > 0 || is_pending(comm);
    result = comm->state;
    pthread_mutex_unlock(&comm->lock);
    if (going_on) {
        result = wefti_door_error(
            WEFTI_DOOR_INVALID_ARGUMENT,
            "%s: the communicator's last call is still in progress: wait until "
            "ncclCommGetAsyncError says ncclSuccess",
            call);
    } else if (result != WEFTI_DOOR_SUCCESS) {
        wefti_door_error(result,
                         "%s: the communicator was not made: see the "
                         "error that its creation met",
                         call);
    }
    if (result != WEFTI_DOOR_SUCCESS) {
        wefti_door_leave(comm);
        *comm_out = NULL;
    }
    return result;
}

bool wefti_door_keep(wefti_door_comm *comm, weft_request *request)
{
    pthread_mutex_lock(&comm->lock);
    if (comm->request_count == comm->request_room) {
        const size_t room = comm->request_room ? 2 * comm->request_room : 8;
        weft_request **moved =
            realloc(comm->requests, room * sizeof(weft_request *));
        if (moved) {
            comm->requests = moved;
            comm->request_room = room;
        }
    }
    const bool kept = comm->request_count < comm->request_room;
    if (kept) {
        comm->requests[comm->request_count++] = request;
    }
    pthread_mutex_unlock(&comm->lock);
    return kept;
}
