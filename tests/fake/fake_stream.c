/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_stream.c - streams: each is a queue and a thread, which waits
 * for a time by chance before each operation. Streams are not ordered among
 * each other but by events and memory (programming guide, "Streams").
 *
 * There is no default stream: weft gives every operation one of its own, and
 * NULL is refused with a line.
 *
 * A write to another device's memory may be late: if a value written by the
 * same stream follows, a part of the write arrives after that value, unless
 * the waiting side flushes (fake_memop.c). Whatever else follows sees it whole.
 */
#include "tests/fake/fake.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { LEAST_PRIORITY = 0, GREATEST_PRIORITY = -5 };

bool fake_stream_is(CUstream stream)
{
    CUstream at = fake.streams;
    while (at && (at != stream || at->destroyed)) {
        at = at->next;
    }
    if (!at) {
        fake_say(stream ? "%p is not a stream, or destroyed"
                        : "%p: the fake has no default stream",
                 (void *)stream);
    }
    return at != NULL;
}

static void unlink_locked(CUstream stream)
{
    CUstream *at = &fake.streams;
    while (*at != stream) {
        at = &(*at)->next;
    }
    *at = stream->next;
}

void fake_stream_drop(const fake_work *work)
{
    free(work->staged);
    free(work->values);
    free(work->launch);
    if (work->exec) {
        fake_exec_drop(work->exec);
    }
}

static void land_locked(CUstream stream)
{
    fake_range *range = fake_range_find(stream->late.dst, stream->late.bytes);
    if (range) {
        memcpy(range->alias + (stream->late.dst - range->address),
               stream->late.data, stream->late.bytes);
    }
    free(stream->late.data);
    stream->late.data = NULL;
}

void fake_stream_land(CUstream stream)
{
    pthread_mutex_lock(&fake.lock);
    if (stream->late.data) {
        land_locked(stream);
    }
    pthread_mutex_unlock(&fake.lock);
}

void fake_stream_land_on(int ordinal)
{
    pthread_mutex_lock(&fake.lock);
    for (CUstream at = fake.streams; at; at = at->next) {
        const fake_range *range =
            at->late.data ? fake_range_find(at->late.dst, at->late.bytes)
                          : NULL;
        if (range && range->owner == ordinal) {
            land_locked(at);
        }
    }
    pthread_mutex_unlock(&fake.lock);
}

/* The error on demand, if this is the operation that gets it. */
static CUresult demanded_error(void)
{
    const fake_settings *settings = fake_get_settings();
    pthread_mutex_lock(&fake.lock);
    bool now = ++fake.operations == settings->error_operation;
    pthread_mutex_unlock(&fake.lock);
    return now ? (CUresult)settings->error : CUDA_SUCCESS;
}

/* The sticky error; waits for one that is about to become it, so that nobody
 * takes work that it ended for work that was done. */
static CUresult settled_error(void)
{
    uint64_t backoff_ns = 0;
    pthread_mutex_lock(&fake.lock);
    while (fake.sticky != fake.dying) {
        fake_wait_locked(&backoff_ns);
    }
    CUresult result = fake.sticky;
    pthread_mutex_unlock(&fake.lock);
    return result;
}

/* After an error nothing runs, host functions neither (cuLaunchHostFunc). */
void fake_stream_run(CUstream stream, fake_work *work)
{
    fake_delay(&stream->seed);
    if (!work->writes_value) {
        fake_stream_land(stream);
    }
    CUresult result = settled_error();
    if (result == CUDA_SUCCESS) {
        result = demanded_error();
        if (result == CUDA_SUCCESS) {
            result = work->run(stream, work);
        }
        if (result != CUDA_SUCCESS) {
            fake_fail(result);
        }
        (void)settled_error(); /* of another stream: it may have ended a wait */
    }
    if (work->writes_value) {
        fake_delay(&stream->seed);
        fake_stream_land(stream);
    }
}

/* Events and functions of the host are no part of what a stream is full of. */
static bool is_counted(const fake_work *work)
{
    return !work->event && !work->function;
}

static void *stream_main(void *arg)
{
    CUstream stream = arg;
    pthread_mutex_lock(&fake.lock);
    for (;;) {
        while (!stream->first && !stream->destroyed) {
            pthread_cond_wait(&stream->queued, &fake.lock);
        }
        fake_work *work = stream->first;
        if (!work) {
            break;
        }
        pthread_mutex_unlock(&fake.lock);
        fake_stream_run(stream, work);
        pthread_mutex_lock(&fake.lock);
        stream->first = work->next;
        if (!stream->first) {
            stream->last = &stream->first;
        }
        stream->done++;
        stream->taken -= is_counted(work);
        if (work->event) {
            work->event->users--;
            fake_event_free_locked(work->event);
        }
        fake_stream_drop(work);
        free(work);
        pthread_cond_broadcast(&fake.progress);
    }
    unlink_locked(stream);
    pthread_mutex_unlock(&fake.lock);
    pthread_cond_destroy(&stream->queued);
    free(stream);
    return NULL;
}

/* A thread of the driver handles none of the program's signals. */
static bool start_thread(CUstream stream)
{
    sigset_t all, before;
    pthread_t thread;
    pthread_attr_t attributes;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, stream_main, stream);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0;
}

CUresult fake_stream_create(CUcontext context, unsigned flags, int priority,
                            CUstream *stream_out)
{
    CUstream stream = calloc(1, sizeof(*stream));
    if (!stream) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    stream->context = context;
    stream->flags = flags;
    stream->priority = priority > LEAST_PRIORITY      ? LEAST_PRIORITY
                       : priority < GREATEST_PRIORITY ? GREATEST_PRIORITY
                                                      : priority;
    stream->last = &stream->first;
    pthread_cond_init(&stream->queued, NULL);
    pthread_mutex_lock(&fake.lock);
    uint64_t number = ++fake.next_id;
    stream->seed = fake_get_settings()->seed + (number << 32);
    stream->next = fake.streams;
    fake.streams = stream;
    pthread_mutex_unlock(&fake.lock);
    if (!start_thread(stream)) {
        pthread_mutex_lock(&fake.lock);
        unlink_locked(stream);
        pthread_mutex_unlock(&fake.lock);
        pthread_cond_destroy(&stream->queued);
        free(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *stream_out = stream;
    return CUDA_SUCCESS;
}

/* cuStreamCreateWithPriority: a priority outside of the range is clamped. */
CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags,
                                    int priority)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS || !stream || flags > CU_STREAM_NON_BLOCKING) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    return fake_stream_create(fake_current(), flags, priority, stream);
}

/* The beginning of each call on a stream; the lock is held if it succeeds. */
static CUresult enter_stream(CUstream stream)
{
    CUresult result = fake_enter_context();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    if (!fake_stream_is(stream)) {
        pthread_mutex_unlock(&fake.lock);
        return CUDA_ERROR_INVALID_HANDLE;
    }
    return CUDA_SUCCESS;
}

/* cuStreamDestroy: returns at once; what is queued is still done. */
CUresult cuStreamDestroy_v2(CUstream stream)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    pthread_mutex_lock(&fake.lock);
    if (!fake_stream_is(stream)) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else {
        fake_capture_leave(stream);
        stream->destroyed = true;
        pthread_cond_signal(&stream->queued);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuStreamQuery(CUstream stream)
{
    CUresult result = enter_stream(stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fake_capture_refuse(stream);
    if (result == CUDA_SUCCESS && stream->first) {
        result = CUDA_ERROR_NOT_READY;
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult fake_stream_drain_locked(CUstream stream, bool to_the_end)
{
    uint64_t until = stream->submitted, backoff_ns = 0;
    while (stream->done < until &&
           (to_the_end || fake.sticky == CUDA_SUCCESS)) {
        fake_wait_locked(&backoff_ns);
    }
    return fake.sticky;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    CUresult result = enter_stream(stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = fake_capture_refuse(stream);
    if (result == CUDA_SUCCESS) {
        result = fake_stream_drain_locked(stream, false);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuStreamGetCtx(CUstream stream, CUcontext *context)
{
    CUresult result = enter_stream(stream);
    if (result == CUDA_SUCCESS) {
        *context = stream->context;
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

/* cuStreamGetCtx_v2: the green context, or NULL; "the primary context of the
 * associated device" in either case. */
CUresult cuStreamGetCtx_v2(CUstream stream, CUcontext *context,
                           CUgreenCtx *green)
{
    CUresult result = enter_stream(stream);
    if (result == CUDA_SUCCESS) {
        *context = stream->context->primary;
        if (green) {
            *green = stream->context->green;
        }
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

CUresult cuStreamGetPriority(CUstream stream, int *priority)
{
    CUresult result = enter_stream(stream);
    if (result == CUDA_SUCCESS) {
        *priority = stream->priority;
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

/* Behind a stream that stands the caller waits; whether calls of other threads
 * do meanwhile has not been asked: they do. */
static void await_room_locked(CUstream stream)
{
    uint64_t backoff_ns = 0;
    if (stream->taken < FAKE_QUEUE_MOST || stream->capture) {
        return;
    }
    fake.waiting++;
    while (stream->taken >= FAKE_QUEUE_MOST && fake.sticky == CUDA_SUCCESS) {
        fake_wait_locked(&backoff_ns);
    }
    fake.waiting--;
}

/* Takes what the work holds, whatever becomes of it. */
CUresult fake_stream_submit(CUstream stream, const fake_work *work)
{
    bool captured = false;
    CUresult result = enter_stream(stream);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_lock(&fake.lock);
        fake_stream_drop(work);
        pthread_mutex_unlock(&fake.lock);
        return result;
    }
    fake_work *queued = NULL;
    uint64_t backoff_ns = 0;
    while (fake.waiting > 0 && fake.sticky == CUDA_SUCCESS) {
        fake_wait_locked(&backoff_ns);
    }
    if (is_counted(work)) {
        await_room_locked(stream);
    }
    result = fake_capture_work(stream, work, &captured);
    if (result == CUDA_SUCCESS && !captured) {
        queued = malloc(sizeof(*queued));
        result = queued ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (queued) {
        *queued = *work;
        queued->next = NULL;
        if (queued->event) {
            queued->event->users++;
        }
        *stream->last = queued;
        stream->last = &queued->next;
        stream->submitted++;
        stream->taken += is_counted(work);
        pthread_cond_signal(&stream->queued);
    } else if (result != CUDA_SUCCESS || !captured) {
        fake_stream_drop(work);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static CUresult run_function(CUstream stream, fake_work *work)
{
    static pthread_mutex_t one_function = PTHREAD_MUTEX_INITIALIZER;
    bool serial = fake_draw(&stream->seed, 2) == 0;
    if (serial) {
        pthread_mutex_lock(&one_function);
    }
    fake_set_in_function(true);
    work->function(work->user_data);
    fake_set_in_function(false);
    if (serial) {
        pthread_mutex_unlock(&one_function);
    }
    return CUDA_SUCCESS;
}

/* cuLaunchHostFunc: functions of several streams "may be serialized", and by
 * chance are; a function "must not make any CUDA API calls", and gets
 * NOT_PERMITTED. */
CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *user_data)
{
    if (!function) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    fake_work work = {
        .run = run_function, .function = function, .user_data = user_data};
    return fake_stream_submit(stream, &work);
}
