/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/host_stream.h - streams that threads of the host run, events of such
 * streams, and gate words in host memory. The functions fill the slots of the
 * same name in the host's table.
 */
#ifndef DEVICE_HOST_STREAM_H
#define DEVICE_HOST_STREAM_H

#include "device/device.h"

weft_status wefti_host_stream_create(weft_device *device,
                                     const weft_stream_config *config,
                                     weft_stream **out);
void wefti_host_stream_destroy(weft_stream *stream);
weft_status wefti_host_stream_copy(weft_stream *stream, void *dst,
                                   const void *src, size_t bytes);
weft_status wefti_host_stream_call(weft_stream *stream, void (*call)(void *),
                                   void *arg);
weft_status wefti_host_stream_mark(weft_stream *stream, const wefti_mark *marks,
                                   size_t count);
weft_status wefti_host_stream_drain(weft_stream *stream);
bool wefti_host_stream_stand(weft_device *device, weft_stream *stream,
                             wefti_stream_stand *out);

/* A signal that leaves in *time_out when it was raised; stays until then. */
weft_status wefti_host_stream_signal_timed(weft_stream *stream, weft_gate *gate,
                                           size_t chunk, uint64_t epoch,
                                           _Atomic int64_t *time_out);

weft_status wefti_host_event_create(weft_device *device, weft_event **out);
void wefti_host_event_destroy(weft_event *event);
weft_status wefti_host_event_post(weft_event *event, weft_stream *stream);
weft_status wefti_host_event_test(weft_event *event);
weft_status wefti_host_event_wait(weft_event *event, weft_stream *stream);
weft_status wefti_host_event_time(weft_event *event, int64_t *ns_out);

weft_status wefti_host_gate_words(weft_device *device, size_t chunks,
                                  _Atomic uint64_t **out);
void wefti_host_gate_words_free(weft_device *device, _Atomic uint64_t *words);

#endif
