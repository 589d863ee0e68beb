/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/mpi/mpi_request.c - requests, found by their handles.
 */
#include "doors/mpi/mpi_request.h"

#include "doors/mpi/mpi_report.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUCKETS = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static wefti_mpi_request *buckets[BUCKETS];
static wefti_mpi_request *given_up; /* by MPI_Request_free, still going on */

/* Those with a handle: while there are none, every handle is MPI's own. */
static _Atomic int handles;

/* Handles that are in no program's hands now. They are freed when MPI ends and
 * not before: MPICH 4.0.2 waits for ever in a persistent collective of its own
 * that gets the memory of a freed persistent send. */
static MPI_Request *tokens;
static size_t token_count, token_room;

static wefti_mpi_request **bucket_of(MPI_Request handle)
{
    const uintptr_t key = WEFTI_MPI_KEY(handle);
    return &buckets[(key ^ (key >> 8) ^ (key >> 16)) % BUCKETS];
}

wefti_mpi_request *wefti_mpi_request_create(void)
{
    wefti_mpi_request *made = malloc(sizeof(*made));
    if (made) {
        made->flying = NULL;
        made->persistent = made->active = made->freed = false;
        made->code = MPI_SUCCESS;
    }
    return made;
}

void wefti_mpi_request_destroy(wefti_mpi_request *request)
{
    free(request);
}

static void close_request(wefti_mpi_request *request)
{
    wefti_mpi_job_close(&request->job);
    wefti_mpi_comm_release(request->job.comm);
    free(request);
}

wefti_mpi_request *wefti_mpi_request_find(MPI_Request handle)
{
    if (handle == MPI_REQUEST_NULL || atomic_load(&handles) == 0) {
        return NULL;
    }
    pthread_mutex_lock(&lock);
    wefti_mpi_request *found = *bucket_of(handle);
    while (found && found->token != handle) {
        found = found->next;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

static void add(wefti_mpi_request *request)
{
    pthread_mutex_lock(&lock);
    wefti_mpi_request **bucket = bucket_of(request->token);
    request->next = *bucket;
    *bucket = request;
    pthread_mutex_unlock(&lock);
    atomic_fetch_add(&handles, 1);
}

static int take_token(MPI_Request *token_out)
{
    bool kept = false;
    pthread_mutex_lock(&lock);
    if (token_count > 0) {
        *token_out = tokens[--token_count];
        kept = true;
    }
    pthread_mutex_unlock(&lock);
    return kept ? MPI_SUCCESS
                : PMPI_Send_init(NULL, 0, MPI_BYTE, MPI_PROC_NULL, 0,
                                 MPI_COMM_SELF, token_out);
}

/* Under the lock. Without memory the token stays behind, a few bytes of MPI's.
 */
static void keep_token(MPI_Request token)
{
    if (token_count == token_room) {
        const size_t room = token_room ? 2 * token_room : 16;
        MPI_Request *more = realloc(tokens, room * sizeof(*more));
        if (!more) {
            return;
        }
        tokens = more;
        token_room = room;
    }
    tokens[token_count++] = token;
}

/* Its handle is gone from now on. */
static void take_out(wefti_mpi_request *request)
{
    pthread_mutex_lock(&lock);
    wefti_mpi_request **place = bucket_of(request->token);
    while (*place != request) {
        place = &(*place)->next;
    }
    *place = request->next;
    keep_token(request->token);
    pthread_mutex_unlock(&lock);
    atomic_fetch_sub(&handles, 1);
}

/* Those given up that have ended meanwhile. */
static void sweep(bool wait)
{
    pthread_mutex_lock(&lock);
    wefti_mpi_request **place = &given_up;
    while (*place) {
        wefti_mpi_request *request = *place;
        if (wait) {
            wefti_mpi_request_wait(request);
        }
        if (wefti_mpi_request_is_pending(request)) {
            place = &request->next;
        } else {
            *place = request->next;
            close_request(request);
        }
    }
    pthread_mutex_unlock(&lock);
}

int wefti_mpi_request_start(wefti_mpi_request *request)
{
    wefti_mpi_job *job = &request->job;
    weft_status status = job->status;
    const int64_t from_ns = wefti_mpi_report_now();
    request->code = MPI_SUCCESS;
    if (status == WEFT_OK) {
        wefti_mpi_job_pack(job);
        status = weft_op_begin(&job->op, 0, job->comm->weft, &request->flying);
    }
    request->active = status == WEFT_OK;
    wefti_mpi_report_call(job->op.collective, job->moved_bytes, from_ns);
    return request->active ? MPI_SUCCESS
                           : wefti_mpi_comm_raise(job->comm, status);
}

int wefti_mpi_request_open(wefti_mpi_request *request, bool persistent,
                           MPI_Request *handle_out)
{
    request->persistent = persistent;
    wefti_mpi_comm_hold(request->job.comm);
    int code = take_token(&request->token);
    if (code != MPI_SUCCESS) {
        close_request(request);
        return code;
    }
    add(request);
    code = persistent ? MPI_SUCCESS : wefti_mpi_request_start(request);
    if (code != MPI_SUCCESS) {
        take_out(request);
        close_request(request);
        return code;
    }
    *handle_out = request->token;
    if (given_up) {
        sweep(false);
    }
    return MPI_SUCCESS;
}

/* Its end, once: from now on the buffers are the program's. */
static void land(wefti_mpi_request *request, weft_status status)
{
    if (status == WEFT_OK) {
        wefti_mpi_job_unpack(&request->job);
    } else {
        request->code = wefti_mpi_comm_raise(request->job.comm, status);
    }
    weft_request_destroy(request->flying);
    request->flying = NULL;
}

bool wefti_mpi_request_is_pending(wefti_mpi_request *request)
{
    if (!request->flying) {
        return false;
    }
    const weft_status status = weft_request_test(request->flying);
    if (status == WEFT_INPROGRESS) {
        return true;
    }
    land(request, status);
    return false;
}

void wefti_mpi_request_wait(wefti_mpi_request *request)
{
    const int64_t from_ns = wefti_mpi_report_now();
    if (request->flying) {
        land(request, weft_request_wait(request->flying));
        wefti_mpi_report_wait(request->job.op.collective, from_ns);
    }
}

int wefti_mpi_request_finish(wefti_mpi_request *request, MPI_Request *handle)
{
    const int code = request->code;
    request->active = false;
    request->code = MPI_SUCCESS;
    if (!request->persistent) {
        take_out(request);
        close_request(request);
        *handle = MPI_REQUEST_NULL;
    }
    return code;
}

int wefti_mpi_request_free(wefti_mpi_request *request, MPI_Request *handle)
{
    take_out(request);
    *handle = MPI_REQUEST_NULL;
    if (wefti_mpi_request_is_pending(request)) {
        pthread_mutex_lock(&lock);
        request->next = given_up;
        given_up = request;
        pthread_mutex_unlock(&lock);
    } else {
        close_request(request);
    }
    return MPI_SUCCESS;
}

void wefti_mpi_request_close(void)
{
    sweep(true);
    while (token_count > 0) {
        PMPI_Request_free(&tokens[--token_count]);
    }
    free(tokens);
    tokens = NULL;
    token_room = 0;
}
