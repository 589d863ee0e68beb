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

#endif
