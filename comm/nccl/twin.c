/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * comm/nccl/twin.c - the calls of NCCL that a twin lives by: looked after while
 * they are in progress, asked for errors, aborted by a thread, ended.
 */
#include "comm/nccl/twin.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/relax.h"
#include "base/thread.h"
#include "comm/control/fault.h"
#include "comm/core/wake.h"
#include "device/cuda.h"

#include <sched.h>
#include <stdlib.h>

enum {
    LOOKS_AT_ONCE = 100, /* at what is in progress, before pauses */
    LOOK_NS = 1000000,   /* between questions for errors */
    CALLS_NS = 500000000 /* an abort waits so long for calls to return */
};

static const int64_t end_ns = 10000000000; /* of NCCL's own end, or abort */

weft_status wefti_twin_create(weft_comm *comm, const wefti_nccl_api *api,
                              bool small_floats, wefti_twin **twin_out)
{
    wefti_twin *twin = calloc(1, sizeof(*twin));
    if (!twin) {
        return wefti_error(WEFT_ERR_NO_MEMORY, "no memory for NCCL's twin");
    }
    twin->api = api;
    twin->comm = comm;
    twin->small_floats = small_floats;
    pthread_mutex_init(&twin->calls, NULL);
    *twin_out = twin;
    return WEFT_OK;
}

int wefti_twin_settle(wefti_twin *twin, int result)
{
    int looks = 0;
    int64_t pause_ns = 0;
    while (result == WEFTI_NCCL_IN_PROGRESS && !atomic_load(&twin->aborted) &&
           !wefti_fault_is_published(twin->comm)) {
        const int asked =
            twin->api->ncclCommGetAsyncError(twin->handle, &result);
        result = asked == WEFTI_NCCL_SUCCESS ? result : asked;
        if (result == WEFTI_NCCL_IN_PROGRESS && looks++ < LOOKS_AT_ONCE) {
            sched_yield();
        } else if (result == WEFTI_NCCL_IN_PROGRESS) {
            wefti_relax_longer(&pause_ns);
        }
    }
    return result;
}

/* The thread that is inside a call sees the fault and leaves; NCCL itself takes
 * an abort beside a call that does not. */
static void await_calls(wefti_twin *twin, bool *held_out)
{
    const int64_t until_ns = wefti_clock_ns() + CALLS_NS;
    int64_t pause_ns = 0;
    atomic_store(&twin->aborted, true);
    *held_out = pthread_mutex_trylock(&twin->calls) == 0;
    while (!*held_out && wefti_clock_ns() < until_ns) {
        wefti_relax_longer(&pause_ns);
        *held_out = pthread_mutex_trylock(&twin->calls) == 0;
    }
}

static void *run_abort(void *argument)
{
    wefti_twin *twin = argument;
    weft_device *device = twin->comm->device;
    wefti_engine *engine = twin->comm->engine;
    bool held;
    await_calls(twin, &held);
    const bool entered = wefti_cuda_device_enter(device) == WEFT_OK;
    if (twin->handle) {
        (void)twin->api->ncclCommAbort(twin->handle);
    }
    if (entered) {
        wefti_cuda_device_leave(device);
    }
    if (held) {
        pthread_mutex_unlock(&twin->calls);
    }
    if (atomic_exchange(&twin->end, WEFTI_TWIN_OVER) == WEFTI_TWIN_OPEN) {
        wefti_engine_wake(engine); /* it joins this thread before it ends */
    }
    return NULL;
}

void wefti_twin_abort(wefti_twin *twin)
{
    if (twin->aborting) {
        return;
    }
    twin->aborting = true;
    if (wefti_thread_start(run_abort, twin, &twin->aborter) != 0) {
        wefti_log(WEFTI_LOG_ERROR, twin->comm->rank,
                  "\"%s\": no thread to abort NCCL: it is done here",
                  twin->comm->name);
        twin->aborting = false;
        (void)run_abort(twin);
    }
}

bool wefti_twin_is_over(const wefti_twin *twin)
{
    return !twin || atomic_load(&twin->end) == WEFTI_TWIN_OVER;
}

weft_status wefti_twin_look(wefti_twin *twin)
{
    int result = WEFTI_NCCL_SUCCESS;
    weft_status status = WEFT_OK;
    if (!twin || wefti_fault_is_published(twin->comm) ||
        pthread_mutex_trylock(&twin->calls) != 0) {
        return WEFT_OK;
    }
    const int64_t now_ns = wefti_clock_ns();
    const bool again = now_ns - twin->looked_ns >= LOOK_NS;
    twin->looked_ns = again ? now_ns : twin->looked_ns;
    if (again && !atomic_load(&twin->aborted) &&
        twin->api->ncclCommGetAsyncError(twin->handle, &result) ==
            WEFTI_NCCL_SUCCESS &&
        result != WEFTI_NCCL_SUCCESS && result != WEFTI_NCCL_IN_PROGRESS) {
        status = wefti_nccl_error(twin->api, twin->handle, result,
                                  "ncclCommGetAsyncError");
    }
    pthread_mutex_unlock(&twin->calls);
    return status;
}

/* All has ended well: what NCCL still has under way goes out first. On one host
 * NCCL waits there for the other ranks' ends, which need not come. */
static weft_status finalize(wefti_twin *twin)
{
    const int64_t until_ns = wefti_clock_ns() + end_ns;
    int64_t pause_ns = 0;
    int result = twin->api->ncclCommFinalize(twin->handle);
    while (result == WEFTI_NCCL_IN_PROGRESS && wefti_clock_ns() < until_ns) {
        wefti_relax_longer(&pause_ns);
        const int asked =
            twin->api->ncclCommGetAsyncError(twin->handle, &result);
        result = asked == WEFTI_NCCL_SUCCESS ? result : asked;
    }
    return result == WEFTI_NCCL_SUCCESS
               ? WEFT_OK
               : wefti_nccl_error(twin->api, twin->handle, result,
                                  "ncclCommFinalize");
}

static void end_well(wefti_twin *twin)
{
    weft_device *device = twin->comm->device;
    if (wefti_cuda_device_enter(device) != WEFT_OK) {
        return; /* of a GPU that has failed nothing is left to give back */
    }
    pthread_mutex_lock(&twin->calls);
    if (finalize(twin) == WEFT_OK) {
        (void)twin->api->ncclCommDestroy(twin->handle);
    } else {
        wefti_log(WEFTI_LOG_WARN, twin->comm->rank,
                  "\"%s\": NCCL is aborted: %s", twin->comm->name,
                  weft_error_text());
        (void)twin->api->ncclCommAbort(twin->handle);
    }
    pthread_mutex_unlock(&twin->calls);
    wefti_cuda_device_leave(device);
}

bool wefti_twin_await_abort(const wefti_twin *twin)
{
    const int64_t until_ns = wefti_clock_ns() + end_ns;
    int64_t pause_ns = 0;
    while (atomic_load(&twin->end) != WEFTI_TWIN_OVER &&
           wefti_clock_ns() < until_ns) {
        wefti_relax_longer(&pause_ns);
    }
    return atomic_load(&twin->end) == WEFTI_TWIN_OVER;
}

/* Whether the abort has come back; if not, the twin is left to it. */
static bool leave_to_abort(wefti_twin *twin)
{
    (void)wefti_twin_await_abort(twin);
    return atomic_exchange(&twin->end, WEFTI_TWIN_LOST) == WEFTI_TWIN_OVER;
}

void wefti_twin_end(wefti_twin *twin)
{
    if (!twin) {
        return;
    }
    if (twin->aborting && !leave_to_abort(twin)) {
        wefti_log(WEFTI_LOG_ERROR, twin->comm->rank,
                  "\"%s\": ncclCommAbort has not come back within %lld ms: "
                  "what it holds is lost",
                  twin->comm->name, (long long)(end_ns / 1000000));
        pthread_detach(twin->aborter);
        return;
    }
    if (twin->aborting) {
        pthread_join(twin->aborter, NULL);
    } else if (atomic_load(&twin->end) == WEFTI_TWIN_OPEN) {
        end_well(twin);
    }
    weft_stream_destroy(twin->stream);
    pthread_mutex_destroy(&twin->calls);
    free(twin);
}
