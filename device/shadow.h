/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * device/shadow.h - what tests need of the shadow device beyond the table: no
 * code of weft may include this.
 */
#ifndef DEVICE_SHADOW_H
#define DEVICE_SHADOW_H

#include "device/device.h"

/* Where the shadow device itself finds the memory of a device pointer; other
 * pointers come back as they are. For what plays the part of a GPU kernel. */
void *wefti_shadow_translate(weft_device *device, void *pointer);

/*
 * wefti_shadow_launch - run kernel(arg) in the device's thread, in stream
 * order. All streams of the device stand still until it returns, so it waits
 * for nobody.
 *
 * arg         borrowed until it has run.
 *
 * Returns     OK | ERR_INVALID (the stream is of another kind of device) |
 *             ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_shadow_launch(weft_stream *stream,
                                               void (*kernel)(void *arg),
                                               void *arg);

/*
 * wefti_shadow_alloc_foreign - memory of the device that somebody else's code
 * has allocated: weft_device_query knows it, weft_device_free refuses it.
 *
 * Returns     OK | ERR_NO_MEMORY.
 */
WEFT_NODISCARD weft_status wefti_shadow_alloc_foreign(weft_device *device,
                                                      size_t bytes, void **out);
void wefti_shadow_free_foreign(weft_device *device, void *pointer);

#endif
