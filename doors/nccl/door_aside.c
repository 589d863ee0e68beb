/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * doors/nccl/door_aside.c - most lists have nothing of it: one look at where
 * all receives lie says so.
 */
#include "doors/nccl/door_aside.h"

#include "base/error.h"
#include "doors/nccl/door_device.h"

#include <stdlib.h>
#include <string.h>

enum { PLACE_BYTES = 256 }; /* copies begin at a multiple of it */

typedef struct extent {
    uintptr_t begin, end;
} extent;

static extent extent_of(const weft_p2p *part)
{
    const uintptr_t begin = (uintptr_t)part->buffer;
    return (extent){begin, begin + part->count * weft_dtype_bytes(part->dtype)};
}

static bool shares(extent a, extent b)
{
    return a.begin < b.end && b.begin < a.end;
}

/* From the first byte that is received to the last. */
static extent span_of(const weft_p2p *list, size_t length)
{
    extent span = {UINTPTR_MAX, 0};
    for (size_t i = 0; i < length; i++) {
        const extent at = extent_of(&list[i]);
        if (list[i].kind == WEFT_P2P_RECV && at.begin < at.end) {
            span.begin = at.begin < span.begin ? at.begin : span.begin;
            span.end = at.end > span.end ? at.end : span.end;
        }
    }
    return span;
}

static bool is_overwritten(const weft_p2p *list, size_t length, extent span,
                           const weft_p2p *part)
{
    const extent at = extent_of(part);
    bool found = false;
    if (part->kind == WEFT_P2P_SEND && at.begin < at.end && shares(at, span)) {
        for (size_t i = 0; i < length && !found; i++) {
            found = list[i].kind == WEFT_P2P_RECV &&
                    shares(at, extent_of(&list[i]));
        }
    }
    return found;
}

static size_t place_bytes(const weft_p2p *part)
{
    const size_t bytes = part->count * weft_dtype_bytes(part->dtype);
    return (bytes + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
}

static void *take(wefti_door_comm *comm, const weft_stream *stream,
                  size_t bytes)
{
    wefti_door_aside *own = comm->asides;
    while (own && (own->stream != stream || own->bytes < bytes)) {
        own = own->next;
    }
    if (own) {
        return own->memory;
    }
    own = calloc(1, sizeof(*own));
    if (!own) {
        return NULL;
    }
    /* Half as much again: small ones that grow leave little behind. */
    own->bytes = bytes + bytes / 2;
    if (!comm->device) {
        own->memory = malloc(own->bytes);
    } else if (weft_device_alloc(comm->device, own->bytes, &own->memory) < 0) {
        own->memory = NULL;
    }
    if (!own->memory) {
        free(own);
        return NULL;
    }
    own->stream = stream;
    own->next = comm->asides;
    comm->asides = own;
    return own->memory;
}

static weft_status copy(const wefti_door_comm *comm, weft_stream *stream,
                        void *to, const weft_p2p *part)
{
    const size_t bytes = part->count * weft_dtype_bytes(part->dtype);
    if (comm->device) {
        return weft_device_copy(comm->device, to, part->buffer, bytes, stream);
    }
    memcpy(to, part->buffer, bytes);
    return WEFT_OK;
}

/* What is needed for the copies. */
static size_t count_bytes(const weft_p2p *list, size_t length, extent span)
{
    size_t bytes = 0;
    for (size_t i = 0; i < length; i++) {
        if (is_overwritten(list, length, span, &list[i])) {
            bytes += place_bytes(&list[i]);
        }
    }
    return bytes;
}

weft_status wefti_door_set_aside(wefti_door_comm *comm, void *native,
                                 weft_stream *stream, weft_p2p *list,
                                 size_t length)
{
    const extent span = span_of(list, length);
    const size_t bytes = count_bytes(list, length, span);
    if (bytes == 0) {
        return WEFT_OK;
    }
    if (stream && wefti_door_stream_is_captured(native)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "the stream is being captured into a graph: allowed "
                           "are collectives");
    }
    char *at = take(comm, stream, bytes);
    weft_status status =
        at ? WEFT_OK
           : wefti_error(WEFT_ERR_NO_MEMORY,
                         "no memory for a copy of %zu bytes that are sent from "
                         "where others are received",
                         bytes);
    for (size_t i = 0; i < length && status == WEFT_OK; i++) {
        if (is_overwritten(list, length, span, &list[i])) {
            status = copy(comm, stream, at, &list[i]);
            list[i].buffer = at;
            at += place_bytes(&list[i]);
        }
    }
    return status;
}

void wefti_door_aside_forget(wefti_door_comm *comm, const weft_stream *stream)
{
    for (wefti_door_aside *own = comm->asides; own; own = own->next) {
        if (own->stream == stream) {
            own->stream = (const weft_stream *)own; /* no stream's */
        }
    }
}

void wefti_door_aside_free(wefti_door_comm *comm)
{
    while (comm->asides) {
        wefti_door_aside *own = comm->asides;
        comm->asides = own->next;
        if (comm->device) {
            weft_device_free(comm->device, own->memory);
        } else {
            free(own->memory);
        }
        free(own);
    }
}
