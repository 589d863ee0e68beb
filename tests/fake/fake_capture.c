/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * tests/fake/fake_capture.c - streams that capture (programming guide, "Stream
 * capture"). Work becomes nodes of a graph (fake_graph.c) and is not done.
 *
 * - Waiting for, or asking about, a stream that captures is refused and breaks
 *   the capture ("Prohibited and unhandled operations"); from then on the
 *   stream refuses work until the capture ends, which then yields no graph.
 * - An event recorded in a capture brings streams that wait for it into the
 *   capture ("Cross-stream dependencies and events"). They must be joined: the
 *   capture's own stream waits for an event behind their last work.
 * - A capturing stream may not wait for an event recorded outside.
 * - Unsafe calls, such as allocations, are refused by the mode
 *   (cuThreadExchangeStreamCaptureMode).
 */
#include "tests/fake/fake.h"

#include <stdlib.h>

struct fake_capture {
    uint64_t id;
    CUstreamCaptureMode mode;
    CUstreamCaptureStatus status;
    CUstream origin;
    pthread_t thread;
    CUgraph graph;
};

static void break_capture(struct fake_capture *capture)
{
    capture->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
}

CUresult fake_capture_refuse(CUstream stream)
{
    if (!stream->capture) {
        return CUDA_SUCCESS;
    }
    break_capture(stream->capture);
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

/* Of the calling thread (cuThreadExchangeStreamCaptureMode). */
static _Thread_local CUstreamCaptureMode thread_mode;

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
    CUresult result = fake_enter();
    if (result != CUDA_SUCCESS || !mode ||
        *mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        return result != CUDA_SUCCESS ? result : CUDA_ERROR_INVALID_VALUE;
    }
    CUstreamCaptureMode before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

/* Whether a capture forbids this thread unsafe calls: its own if it is not
 * relaxed, another's if it is global; none if the thread's mode is relaxed. */
static bool forbids(const struct fake_capture *capture)
{
    bool own = pthread_equal(capture->thread, pthread_self());
    return thread_mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
           (own ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                      thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL);
}

CUresult fake_capture_unsafe(void)
{
    CUresult result = CUDA_SUCCESS;
    for (CUstream at = fake.streams; at; at = at->next) {
        if (at->capture && forbids(at->capture)) {
            break_capture(at->capture);
            result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    return result;
}

static CUresult check_status(CUstream stream)
{
    return stream->capture->status == CU_STREAM_CAPTURE_STATUS_ACTIVE
               ? CUDA_SUCCESS
               : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

CUresult fake_capture_work(CUstream stream, const fake_work *work,
                           bool *captured_out)
{
    *captured_out = stream->capture != NULL;
    stream->captured += *captured_out;
    CUresult result = *captured_out ? check_status(stream) : CUDA_SUCCESS;
    return result == CUDA_SUCCESS && *captured_out
               ? fake_graph_add(stream->capture->graph, work, &stream->tail)
               : result;
}

CUresult fake_capture_record(CUstream stream, CUevent event, bool *captured_out)
{
    *captured_out = stream->capture != NULL;
    if (!*captured_out) {
        return CUDA_SUCCESS;
    }
    CUresult result = check_status(stream);
    if (result == CUDA_SUCCESS) {
        event->capture_id = stream->capture->id;
        event->capture_stream = stream;
        event->capture_mark = stream->captured;
        event->capture_tail = stream->tail;
    }
    return result;
}

/* The capture that an event belongs to, while it goes on. */
static struct fake_capture *find_capture(uint64_t id)
{
    CUstream at = fake.streams;
    while (at && (!at->capture || at->capture->id != id)) {
        at = at->next;
    }
    return at ? at->capture : NULL;
}

static void join(CUstream stream, struct fake_capture *capture)
{
    stream->capture = capture;
    stream->captured = stream->joined = 0;
    stream->tail.count = 0;
}

CUresult fake_capture_wait(CUstream stream, CUevent event, bool *captured_out)
{
    struct fake_capture *theirs =
        event->capture_id ? find_capture(event->capture_id) : NULL;
    *captured_out = stream->capture || event->capture_id;
    if (!*captured_out) {
        return CUDA_SUCCESS;
    }
    if (!theirs || (stream->capture && stream->capture != theirs)) {
        if (stream->capture) {
            break_capture(stream->capture);
        }
        return event->capture_id && !theirs
                   ? CUDA_ERROR_CAPTURED_EVENT
                   : CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    }
    if (!stream->capture) {
        join(stream, theirs);
        stream->captured = 1; /* the wait itself must be joined */
    } else {
        stream->captured++;
    }
    if (event->capture_stream->joined < event->capture_mark) {
        event->capture_stream->joined = event->capture_mark;
    }
    CUresult result = check_status(stream);
    return result == CUDA_SUCCESS
               ? fake_tail_join(&stream->tail, &event->capture_tail)
               : result;
}

void fake_capture_leave(CUstream stream)
{
    if (stream->capture && stream->capture->origin == stream) {
        struct fake_capture *capture = stream->capture;
        fake_graph_drop(capture->graph);
        for (CUstream at = fake.streams; at; at = at->next) {
            at->capture = at->capture == capture ? NULL : at->capture;
        }
        free(capture);
    }
    stream->capture = NULL;
}

static CUresult enter_stream(CUstream stream)
{
    CUresult result = fake_enter_context();
    if (result == CUDA_SUCCESS) {
        pthread_mutex_lock(&fake.lock);
        if (!fake_stream_is(stream)) {
            pthread_mutex_unlock(&fake.lock);
            result = CUDA_ERROR_INVALID_HANDLE;
        }
    }
    return result;
}

CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    CUresult result = enter_stream(stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fake_capture *capture = calloc(1, sizeof(*capture));
    CUgraph graph =
        fake_graph_create(fake.next_id + 1, stream->context->ordinal);
    if (!capture || !graph || stream->capture ||
        mode > CU_STREAM_CAPTURE_MODE_RELAXED) {
        result = !capture || !graph ? CUDA_ERROR_OUT_OF_MEMORY
                                    : CUDA_ERROR_INVALID_VALUE;
        free(capture);
        fake_graph_drop(graph);
    } else {
        *capture =
            (struct fake_capture){.id = ++fake.next_id,
                                  .mode = mode,
                                  .status = CU_STREAM_CAPTURE_STATUS_ACTIVE,
                                  .origin = stream,
                                  .thread = pthread_self(),
                                  .graph = graph};
        join(stream, capture);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

static bool has_unjoined(const struct fake_capture *capture)
{
    for (CUstream at = fake.streams; at; at = at->next) {
        if (at->capture == capture && at != capture->origin &&
            at->joined < at->captured) {
            return true;
        }
    }
    return false;
}

/* cuStreamEndCapture: on the stream where it began; in the same thread, unless
 * relaxed. A broken capture ends, with an error and no graph. */
CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    CUresult result = enter_stream(stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    struct fake_capture *capture = stream->capture;
    *graph = NULL;
    if (!capture || capture->origin != stream) {
        result = CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
    } else if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
               !pthread_equal(capture->thread, pthread_self())) {
        result = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else {
        result = check_status(stream);
        if (result == CUDA_SUCCESS && has_unjoined(capture)) {
            result = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        }
        if (result == CUDA_SUCCESS) {
            *graph = capture->graph;
            capture->graph = NULL; /* the caller's */
        }
        fake_capture_leave(stream);
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status)
{
    CUresult result = enter_stream(stream);
    if (result == CUDA_SUCCESS) {
        *status = stream->capture ? stream->capture->status
                                  : CU_STREAM_CAPTURE_STATUS_NONE;
        pthread_mutex_unlock(&fake.lock);
    }
    return result;
}

/* cuStreamGetCaptureInfo: what follows the status is set only if it is ACTIVE;
 * all but the status may be NULL. */
CUresult cuStreamGetCaptureInfo_v2(CUstream stream,
                                   CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph,
                                   const CUgraphNode **dependencies,
                                   size_t *count)
{
    CUresult result = enter_stream(stream);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    *status = stream->capture ? stream->capture->status
                              : CU_STREAM_CAPTURE_STATUS_NONE;
    if (*status == CU_STREAM_CAPTURE_STATUS_ACTIVE) {
        if (id) {
            *id = stream->capture->id;
        }
        if (graph) {
            *graph = stream->capture->graph;
        }
        if (dependencies) {
            *dependencies = NULL;
        }
        if (count) {
            *count = 0;
        }
    }
    pthread_mutex_unlock(&fake.lock);
    return result;
}

CUresult cuStreamGetCaptureInfo_v3(CUstream stream,
                                   CUstreamCaptureStatus *status, uint64_t *id,
                                   CUgraph *graph,
                                   const CUgraphNode **dependencies,
                                   const CUgraphEdgeData **edges, size_t *count)
{
    if (edges) {
        *edges = NULL;
    }
    return cuStreamGetCaptureInfo_v2(stream, status, id, graph, dependencies,
                                     count);
}
