/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * trainer/model/storage.h - flat arrays of real: zeroed, on a cache line's
 * start, the same alignment on every rank so that kernels take the same paths.
 */
#ifndef TRAINER_MODEL_STORAGE_H
#define TRAINER_MODEL_STORAGE_H

#include "kernels/math/real.h"
#include "weft/device.h"

#include <stddef.h>

enum { WEFTI_STORAGE_ALIGN_BYTES = 64 };

/* Returns OK | ERR_NO_MEMORY. */
WEFT_NODISCARD weft_status wefti_storage_alloc(size_t elems, real **out);
void wefti_storage_free(real *storage); /* NULL is legal */

/*
 * The same in memory of a device, where compute has come past what is queued
 * on it now; compute as in wefti_replica.
 *
 * Returns     OK | ERR_NO_MEMORY | as math_stream.h.
 */
WEFT_NODISCARD weft_status wefti_storage_alloc_on(weft_device *device,
                                                  weft_stream *compute,
                                                  size_t elems, real **out);
void wefti_storage_free_on(weft_device *device, real *storage);

#endif
