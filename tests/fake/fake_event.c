/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_event.c - events. A record is a number; it is complete once
 * the stream has come to it. Waits are for the most recent record at the time
 * of the call, and a later record changes nothing for them (cuEventRecord).
 */
#include "tests/fake/fake.h"

#include <stdlib.h>
#include <time.h>

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool is_complete(CUevent event, uint64_t mark)
{
    return mark == 0 ||
           atomic_load(&event->state->completed[mark % FAKE_EVENT_WORDS]) >=
               mark;
}

/* cuEventCreate: INTERPROCESS only with DISABLE_TIMING. */
CUresult cuEventCreate(CUevent *event, unsigned flags)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !event || flags > 7) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    bool shared = flags & CU_EVENT_INTERPROCESS;
    if (shared && !(flags & CU_EVENT_DISABLE_TIMING)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUevent made = calloc(1, sizeof(*made));
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    pthread_mutex_lock(&fake.lock);
    made->state =
        shared ? fake_ipc_make_event() : calloc(1, sizeof(*made->state));
    pthread_mutex_unlock(&fake.lock);
    if (!made->state) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    made->context = fake_current();
    made->flags = flags;
    *event = made;
    return CUDA_SUCCESS;
}

void fake_event_free_locked(CUevent event)
{
    if (!event->destroyed || event->users != 0) {
        return;
    }
    if (event->flags & CU_EVENT_INTERPROCESS) {
        fake_ipc_drop_event(event);
    } else {
        free(event->state);
    }
    free(event);
}

/* cuCtxDestroy: what was made in a context, its events too, may not be passed
 * to any call after it. */
static CUresult check_context_locked(CUevent event)
{
    if (!event->context->gone) {
        return CUDA_SUCCESS;
    }
    fake_say("an event of a context that was destroyed");
    return CUDA_ERROR_INVALID_HANDLE;
}

/* cuEventDestroy: may come before the record completes. */
CUresult cuEventDestroy_v2(CUevent event)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !event) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&fake.lock);
    result = check_context_locked(event);
    event->destroyed = true;
    fake_event_free_locked(event);
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static CUresult run_record(CUstream stream, fake_work *work)
{
    (void)stream;
    fake_event_state *state = work->event->state;
    _Atomic uint64_t *word = &state->completed[work->mark % FAKE_EVENT_WORDS];
    atomic_store(&state->completed_ns, now_ns());
    if (atomic_load(word) < work->mark) {
        atomic_store(word, work->mark);
    }
    return CUDA_SUCCESS;
}

/* Common to record and wait: the event lives, and so does the stream. */
static CUresult enter(CUevent event, CUstream stream)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !event) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&fake.lock);
    result = check_context_locked(event);
    if (result == CUDA_SUCCESS && !fake_stream_is(stream)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    }
    if (result != CUDA_SUCCESS) {
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

/* cuEventRecord: event and stream are of the same context, else
 * INVALID_HANDLE. An imported event is of the context that opened it. */
CUresult cuEventRecord(CUevent event, CUstream stream)
{
    bool captured = false;
    CUresult result = enter(event, stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (event->context != stream->context) {
        fake_say("cuEventRecord: event and stream are of different contexts");
        result = CUDA_ERROR_INVALID_HANDLE;
    } else {
        result = fake_capture_record(stream, event, &captured);
    }
    fake_work work = {.run = run_record, .event = event};
    if (result == CUDA_SUCCESS && !captured) {
        event->capture_id = 0;
        work.mark = atomic_fetch_add(&event->state->recorded, 1) + 1;
    }
    pthread_mutex_unlock(&fake.lock);
    return result == CUDA_SUCCESS && !captured
               ? fake_stream_submit(stream, &work)
               : result;
}

static CUresult run_wait(CUstream stream, fake_work *work)
{
    (void)stream;
    uint64_t backoff_ns = 0;
    pthread_mutex_lock(&fake.lock);
    while (!is_complete(work->event, work->mark) &&
           fake.dying == CUDA_SUCCESS) {
        fake_wait_locked(&backoff_ns);
    }
    pthread_mutex_unlock(&fake.lock);
    return CUDA_SUCCESS;
}

/* cuStreamWaitEvent: of any context; one that was never recorded is no wait. */
CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    bool captured = false;
    CUresult result = enter(event, stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = flags ? CUDA_ERROR_INVALID_VALUE
                   : fake_capture_wait(stream, event, &captured);
    fake_work work = {.run = run_wait,
                      .event = event,
                      .mark = atomic_load(&event->state->recorded)};
    pthread_mutex_unlock(&fake.lock);
    return result == CUDA_SUCCESS && !captured
               ? fake_stream_submit(stream, &work)
               : result;
}

/* CUDA_ERROR_CAPTURED_EVENT: "not permitted on an event which was last recorded
 * in a capturing stream". */
static CUresult enter_question(CUevent event)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !event) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_HANDLE;
    }
    pthread_mutex_lock(&fake.lock);
    result = check_context_locked(event);
    if (result == CUDA_SUCCESS && event->capture_id) {
        result = CUDA_ERROR_CAPTURED_EVENT;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuEventQuery: an event that was never recorded is complete. */
CUresult cuEventQuery(CUevent event)
{
    CUresult result = enter_question(event);
    if (result == CUDA_SUCCESS &&
        !is_complete(event, atomic_load(&event->state->recorded))) {
        result = CUDA_ERROR_NOT_READY;
    }
    return result;
}

CUresult cuEventSynchronize(CUevent event)
{
    CUresult result = enter_question(event);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    uint64_t mark = atomic_load(&event->state->recorded), backoff_ns = 0;
    pthread_mutex_lock(&fake.lock);
    while (!is_complete(event, mark) && fake.sticky == CUDA_SUCCESS) {
        fake_wait_locked(&backoff_ns);
    }
    result = fake.sticky;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* cuEventElapsedTime: INVALID_HANDLE for one never recorded or without timing,
 * NOT_READY for one not yet complete. */
CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
    CUresult result = enter_question(start);
    if (result == CUDA_SUCCESS) {
        result = enter_question(end);
    }
    if (result != CUDA_SUCCESS || !ms) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t marks[2] = {atomic_load(&start->state->recorded),
                         atomic_load(&end->state->recorded)};
    if ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING || !marks[0] ||
        !marks[1]) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (!is_complete(start, marks[0]) || !is_complete(end, marks[1])) {
        return CUDA_ERROR_NOT_READY;
    }
    *ms = (float)((int64_t)(atomic_load(&end->state->completed_ns) -
                            atomic_load(&start->state->completed_ns))) /
          1e6F;
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
    return cuEventElapsedTime(ms, start, end);
}
