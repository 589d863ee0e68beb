/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/host_stream.h - streams that the host runs, and gate words in host
 * memory: for every kind of device whose copy_now is the host's own work. The
 * functions fill the slots of the same name in such a kind's table.
 */
#ifndef DEVICE_HOST_STREAM_H
#define DEVICE_HOST_STREAM_H

#include "device/device.h"

weft_status wefti_host_stream_create(weft_device *device, int priority,
                                     weft_stream **out);
void wefti_host_stream_destroy(weft_stream *stream);
weft_status wefti_host_stream_copy(weft_stream *stream, void *dst,
                                   const void *src, size_t bytes);
weft_status wefti_host_stream_call(weft_stream *stream, void (*call)(void *),
                                   void *arg);
weft_status wefti_host_stream_signal(weft_stream *stream, weft_gate *gate,
                                     size_t chunk, uint64_t epoch);
weft_status wefti_host_stream_wait(weft_stream *stream, weft_gate *gate,
                                   size_t chunk, uint64_t epoch);
weft_status wefti_host_stream_drain(weft_stream *stream);
bool wefti_host_stream_stand(weft_stream *stream, wefti_stream_stand *out);

weft_status wefti_host_gate_words(weft_device *device, size_t chunks,
                                  _Atomic uint64_t **out);
void wefti_host_gate_words_free(weft_device *device, _Atomic uint64_t *words);

#endif
