/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/stream.c - the public face of streams: checks, then the table.
 */
#include "base/check.h"
#include "base/error.h"
#include "base/sized.h"
#include "device/object.h"

#include <string.h>

static weft_status check_config(const weft_device *device,
                                const weft_stream_config *config)
{
    if (config->sm_budget < 0) {
        return wefti_error(WEFT_ERR_INVALID,
                           "sm_budget %d: allowed is 0 or more",
                           config->sm_budget);
    }
    if (config->sm_budget > 0 &&
        !wefti_device_can(device, WEFT_CAP_SM_BUDGET)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "sm_budget %d: the %s device has no budgets",
                           config->sm_budget, device->table->kind);
    }
    if (config->native && !device->table->natives) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "native %p: the %s device has no native queues",
                           config->native, device->table->kind);
    }
    if (config->native && (config->priority != 0 || config->sm_budget != 0)) {
        return wefti_error(WEFT_ERR_INVALID,
                           "priority %d and sm_budget %d of a native queue: "
                           "allowed is 0, they are its owner's",
                           config->priority, config->sm_budget);
    }
    return WEFT_OK;
}

weft_status weft_stream_create_as(weft_device *device,
                                  const weft_stream_config *config,
                                  weft_stream **stream_out)
{
    if (!device || !config || !stream_out) {
        return wefti_error(
            WEFT_ERR_INVALID,
            "%s is NULL: allowed is an object, or a place for one",
            !device   ? "device"
            : !config ? "config"
                      : "stream_out");
    }
    weft_stream_config own;
    weft_status status = wefti_sized_read(
        "config", config, offsetof(weft_stream_config, sm_budget), &own,
        sizeof(own));
    if (status == WEFT_OK) {
        status = check_config(device, &own);
    }
    weft_stream *stream;
    if (status == WEFT_OK) {
        status = device->table->stream_create(device, &own, &stream);
    }
    if (status == WEFT_OK) {
        stream->device = device;
        wefti_device_count(device, 1);
        *stream_out = stream;
    }
    return status;
}

weft_status weft_stream_create(weft_device *device, int priority,
                               weft_stream **stream_out)
{
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .priority = priority};
    return weft_stream_create_as(device, &config, stream_out);
}

weft_status weft_stream_wrap(weft_device *device, void *native,
                             weft_stream **stream_out)
{
    const weft_stream_config config = {.size_bytes = sizeof(config),
                                       .native = native};
    if (!native) {
        return wefti_error(WEFT_ERR_INVALID,
                           "native is NULL: allowed is a queue of the device");
    }
    return weft_stream_create_as(device, &config, stream_out);
}

void weft_stream_destroy(weft_stream *stream)
{
    if (stream) {
        weft_device *device = stream->device;
        device->table->stream_destroy(stream);
        wefti_device_count(device, -1);
    }
}

void *weft_stream_get_native(const weft_stream *stream)
{
    return stream && stream->device->table->stream_get_native
               ? stream->device->table->stream_get_native(stream)
               : NULL;
}

int weft_stream_get_sms(const weft_stream *stream)
{
    return stream && stream->device->table->stream_get_sms
               ? stream->device->table->stream_get_sms(stream)
               : 0;
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
    if (!wefti_device_can(stream->device, WEFT_CAP_HOST_CALLS)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "streams of the %s device call no host functions",
                           stream->device->table->kind);
    }
    return stream->device->table->stream_call(stream, call, arg);
}

weft_status wefti_stream_launch(weft_stream *stream, const wefti_launch *launch)
{
    if (!stream->device->table->stream_launch) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "%s: the %s device runs no kernels", launch->kernel,
                           stream->device->table->kind);
    }
    return stream->device->table->stream_launch(stream, launch);
}

weft_status wefti_stream_multiply(weft_stream *stream,
                                  const wefti_product *product,
                                  bool *queued_out)
{
    *queued_out = false;
    return stream && stream->device->table->stream_multiply
               ? stream->device->table->stream_multiply(stream, product,
                                                        queued_out)
               : WEFT_OK;
}

weft_status wefti_stream_attend(weft_stream *stream,
                                const wefti_attention_call *call,
                                bool *queued_out)
{
    *queued_out = false;
    return stream && stream->device->table->stream_attend
               ? stream->device->table->stream_attend(stream, call, queued_out)
               : WEFT_OK;
}

bool wefti_stream_computes(const weft_stream *stream)
{
    return !stream || stream->device->table->stream_compute;
}

weft_status wefti_stream_compute(weft_stream *stream, void (*run)(void *arg),
                                 void *arg)
{
    if (!stream) {
        run(arg);
        return WEFT_OK;
    }
    if (!wefti_stream_computes(stream)) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "the %s device computes by kernels",
                           stream->device->table->kind);
    }
    return stream->device->table->stream_compute(stream, run, arg);
}

weft_status wefti_stream_place(const weft_stream *stream, const char *name,
                               const void *pointer, size_t bytes, void **out)
{
    memcpy(out, &pointer, sizeof(*out));
    return stream && stream->device->table->mem_place
               ? stream->device->table->mem_place(name, pointer, bytes, out)
               : WEFT_OK;
}

weft_status wefti_stream_flag(weft_stream *stream, const wefti_flag *flags,
                              size_t count)
{
    WEFTI_ASSERT(count > 0 && count <= WEFTI_FLAGS_MOST);
    if (!stream->device->table->stream_flag) {
        return wefti_error(WEFT_ERR_UNSUPPORTED,
                           "streams of the %s device are captured by no graph",
                           stream->device->table->kind);
    }
    return stream->device->table->stream_flag(stream, flags, count);
}

weft_status wefti_stream_is_captured(weft_stream *stream, bool *captured_out)
{
    *captured_out = false;
    return stream->device->table->stream_is_captured
               ? stream->device->table->stream_is_captured(stream, captured_out)
               : WEFT_OK;
}

weft_device *wefti_stream_get_device(const weft_stream *stream)
{
    return stream->device;
}

bool wefti_stream_get_stand(weft_device *device, weft_stream *stream,
                            wefti_stream_stand *stand_out)
{
    return device->table->stream_stand(device, stream, stand_out);
}

weft_status weft_stream_wait(weft_stream *stream)
{
    if (!stream) {
        return wefti_error(WEFT_ERR_INVALID,
                           "stream is NULL: allowed is an object");
    }
    return stream->device->table->stream_drain(stream);
}
