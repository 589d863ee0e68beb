/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/engine/handle.c - testing and waiting, by any thread, also while another
 * one destroys the communicator.
 *
 *   test, wait, destroy       the end, lock held       weft_comm_destroy
 *     enter: +1 unless DONE
 *     use comm                   DONE, and those inside
 *     leave: -1, or if DONE      -> comm->inside         ends what is pending,
 *     lock: comm->inside - 1                             waits for inside == 0
 *
 * Who has entered before DONE may use the communicator: until DONE its request
 * keeps that, and from then on inside does.
 */
#include "comm/engine/handle.h"

#include "base/error.h"
#include "comm/engine/engine.h"
#include "comm/engine/held_work.h"
#include "comm/engine/turn.h"

#include <stdlib.h>
#include <string.h>

enum { DONE = 1, ENTERED = 2 /* each one inside */ };

/*
 * state   DONE is set last by its end: a thread that loads it may free the
 *         handle after
 * text    of the fault; the communicator may be gone
 */
struct weft_request {
    weft_comm *comm;
    bool abandoned; /* its end frees it */
    weft_status status;
    _Atomic unsigned state;
    char text[sizeof(((weft_fault *)NULL)->text)];
};

weft_status wefti_handle_create(weft_comm *comm, weft_request **handle_out)
{
    *handle_out = calloc(1, sizeof(**handle_out));
    if (!*handle_out) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for a request");
    }
    (*handle_out)->comm = comm;
    return WEFT_OK;
}

void wefti_handle_end(weft_comm *comm, weft_request *handle, weft_status status)
{
    if (handle->abandoned) {
        free(handle);
        return;
    }
    handle->status = status;
    if (status != WEFT_OK) {
        memcpy(handle->text, comm->fault.text, sizeof(handle->text));
    }
    const unsigned inside = atomic_fetch_or(&handle->state, DONE) / ENTERED;
    if (inside > 0) {
        comm->inside += (int)inside;
        wefti_doorbell_ring(comm->engine->bell); /* they may sleep */
    }
}

static bool is_done(const void *context)
{
    return atomic_load(&((const weft_request *)context)->state) & DONE;
}

/* Whether handle's communicator may be used until leave; false: it is done. */
static bool enter(weft_request *handle)
{
    unsigned state = atomic_load(&handle->state);
    while (!(state & DONE)) {
        if (atomic_compare_exchange_weak(&handle->state, &state,
                                         state + ENTERED)) {
            return true;
        }
    }
    return false;
}

/* Lock held by one that has entered a handle that is done. */
static void leave_locked(weft_comm *comm)
{
    comm->inside--;
    if (comm->inside == 0) {
        wefti_doorbell_ring(comm->engine->bell); /* it may be waited for */
    }
}

/* Returns whether the handle is done. comm may be gone after. */
static bool leave(weft_comm *comm, weft_request *handle)
{
    wefti_engine *engine = comm->engine;
    unsigned state = atomic_load(&handle->state);
    while (!(state & DONE)) {
        if (atomic_compare_exchange_weak(&handle->state, &state,
                                         state - ENTERED)) {
            return false;
        }
    }
    pthread_mutex_lock(&engine->lock);
    leave_locked(comm);
    pthread_mutex_unlock(&engine->lock);
    return true;
}

static weft_status refuse_null(void)
{
    return wefti_error(WEFT_ERR_INVALID,
                       "request is NULL: allowed is a weft_request");
}

static weft_status tell_end(const weft_request *request)
{
    return request->status == WEFT_OK
               ? WEFT_OK
               : wefti_error(request->status, "%s", request->text);
}

weft_status weft_request_test(weft_request *request)
{
    if (!request) {
        return refuse_null();
    }
    if (enter(request)) {
        weft_comm *comm = request->comm;
        wefti_engine *engine = comm->engine;
        /* Who asks again and again may have the thread's processor. */
        if (pthread_mutex_trylock(&engine->lock) == 0) {
            wefti_engine_push(engine);
            wefti_engine_work(engine);
            wefti_engine_unlock(engine);
        }
        if (!leave(comm, request)) {
            return WEFT_INPROGRESS;
        }
    }
    return tell_end(request);
}

weft_status weft_request_wait(weft_request *request)
{
    if (!request) {
        return refuse_null();
    }
    if (enter(request)) {
        weft_comm *comm = request->comm;
        wefti_engine_drive_idle(comm->engine, &comm->idle, is_done, request);
        (void)leave(comm, request);
    }
    return tell_end(request);
}

void weft_request_destroy(weft_request *request)
{
    if (!request) {
        return;
    }
    if (enter(request)) {
        weft_comm *comm = request->comm;
        wefti_engine *engine = comm->engine;
        pthread_mutex_lock(&engine->lock);
        const bool done = is_done(request);
        if (done) {
            leave_locked(comm);
        } else {
            request->abandoned = true;
        }
        pthread_mutex_unlock(&engine->lock);
        if (!done) {
            return;
        }
    }
    free(request);
}
