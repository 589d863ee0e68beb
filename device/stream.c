/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/stream.c - the public face of streams: checks, then the table.
 */
#include "base/error.h"
#include "device/object.h"

weft_status weft_stream_create(weft_device *device, int priority,
                               weft_stream **stream_out)
{
    if (!device || !stream_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            device ? "stream_out" : "device");
    }
    weft_status status =
        device->table->stream_create(device, priority, stream_out);
    if (status == WEFT_OK) {
        (*stream_out)->device = device;
        wefti_device_count(device, 1);
    }
    return status;
}

void weft_stream_destroy(weft_stream *stream)
{
    if (stream) {
        weft_device *device = stream->device;
        device->table->stream_destroy(stream);
        wefti_device_count(device, -1);
    }
}

weft_status weft_stream_call(weft_stream *stream, void (*call)(void *arg),
                             void *arg)
{
    if (!stream || !call) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            stream ? "call" : "stream");
    }
    return stream->device->table->stream_call(stream, call, arg);
}

weft_device *wefti_stream_get_device(const weft_stream *stream)
{
    return stream->device;
}

bool wefti_stream_get_stand(weft_stream *stream, wefti_stream_stand *stand_out)
{
    return stream->device->table->stream_stand(stream, stand_out);
}

weft_status weft_stream_wait(weft_stream *stream)
{
    if (!stream) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream is NULL: allowed is an object");
    }
    return stream->device->table->stream_drain(stream);
}
